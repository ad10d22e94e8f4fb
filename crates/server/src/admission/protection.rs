//! StorageObjectInUseProtection and PodGroupProtection: what is in use is held back from going by a finalizer.

use capstan_api::{GroupResource, Status};

use super::{
    Operation, Plugin, Request,
    common::{PVCS, is_about, push},
};
use crate::registry::paths;

/// A plugin that gives finalizers to new objects.
#[derive(Debug)]
pub struct Protection {
    name: &'static str,
    finalizers: &'static [(GroupResource, &'static str)],
}

/// StorageObjectInUseProtection.
pub const STORAGE_OBJECT_IN_USE_PROTECTION: Protection = Protection {
    name: "StorageObjectInUseProtection",
    finalizers: &[
        (GroupResource::from_static("", "persistentvolumes"), "kubernetes.io/pv-protection"),
        (PVCS, "kubernetes.io/pvc-protection"),
        (GroupResource::from_static("storage.k8s.io", "volumeattributesclasses"), "kubernetes.io/vac-protection"),
    ],
};

/// PodGroupProtection. Pod groups are behind a gate that is closed by default, and so is this.
pub const POD_GROUP_PROTECTION: Protection = Protection {
    name: "PodGroupProtection",
    finalizers: &[(
        GroupResource::from_static("scheduling.k8s.io", "podgroups"),
        "scheduling.k8s.io/podgroup-protection",
    )],
};

impl Plugin for Protection {
    fn name(&self) -> &'static str {
        self.name
    }

    fn admit(&self, request: &mut Request<'_>) -> Result<(), Status> {
        if request.operation != Operation::Create {
            return Ok(());
        }
        let row = self.finalizers.iter().find(|(resource, _)| is_about(request, resource));
        if let (Some((_, finalizer)), Some(object)) = (row, request.object.as_deref_mut()) {
            let has = paths::items(object, "metadata.finalizers").iter().any(|own| own.as_str() == Some(finalizer));
            if !has {
                push(object, "metadata.finalizers", *finalizer);
            }
        }
        Ok(())
    }
}
