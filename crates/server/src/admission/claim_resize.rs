//! PersistentVolumeClaimResize: claims grow only where their class allows it.

use std::str::FromStr;

use capstan_api::{Map, Quantity, Status};

use super::{
    Operation, Plugin, Request,
    common::{PVCS, STORAGE_CLASSES, annotation, flag, forbidden, is_about, object, old_object, stored},
};
use crate::registry::paths;

/// The annotation that named a claim's class before there was a field.
pub(super) const BETA_CLASS: &str = "volume.beta.kubernetes.io/storage-class";

/// The plugin.
#[derive(Debug, Default)]
pub struct PersistentVolumeClaimResize;

impl Plugin for PersistentVolumeClaimResize {
    fn name(&self) -> &'static str {
        "PersistentVolumeClaimResize"
    }

    fn validate(&self, request: &mut Request<'_>) -> Result<(), Status> {
        if !is_about(request, &PVCS) || request.operation != Operation::Update {
            return Ok(());
        }
        let (new, old) = (object(request), old_object(request));
        if size(new) <= size(old) {
            return Ok(());
        }
        if paths::text(old, "status.phase") != "Bound" {
            return Err(forbidden(request, "Only bound persistent volume claims can be expanded"));
        }
        let class = class(new);
        let allows = !class.is_empty()
            && class == self::class(old)
            && stored(request, &STORAGE_CLASSES, "", class)
                .is_some_and(|class| flag(&class, "allowVolumeExpansion") == Some(true));
        if allows {
            return Ok(());
        }
        Err(forbidden(
            request,
            "only dynamically provisioned pvc can be resized and the storageclass that provisions the pvc must support \
             resize",
        ))
    }
}

fn size(claim: &Map) -> Quantity {
    Quantity::from_str(paths::text(claim, "spec.resources.requests.storage")).unwrap_or_default()
}

fn class(claim: &Map) -> &str {
    annotation(claim, BETA_CLASS).unwrap_or_else(|| paths::text(claim, "spec.storageClassName"))
}
