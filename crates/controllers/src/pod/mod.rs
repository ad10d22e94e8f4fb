//! Pods as loops keep them: what loops read of a pod, and nothing else. There are many pods, and a whole one is large.
//!
//! The names of fields are those of the API. A pod that is kept like this cannot be written, for the rest of it would
//! be lost: it has no `Serialize`. Who has to write one gets the [whole](whole) of it, or sends a patch.

mod metadata;
mod shared;
mod spec;
mod status;

use capstan_api::{
    GroupVersionKind, GroupVersionResource, Resource, Scope, Status,
    object::{Metadata as _, Object as _},
};
use capstan_client::{Api, Client, Error};
use serde::Deserialize;

pub(crate) use k8s_openapi::api::core::v1::Pod as WholePod;
pub(crate) use metadata::Metadata;
pub(crate) use spec::{Amounts, Container, PodResourceClaim, PodSpec, ResourceRequirements, Toleration, Volume};
pub(crate) use status::{ContainerStatus, PodCondition, PodResourceClaimStatus, PodStatus};

/// What loops read of a pod.
#[derive(Clone, Debug, Default, PartialEq, Deserialize)]
#[serde(default)]
pub(crate) struct Pod {
    pub(crate) metadata: Metadata,
    pub(crate) spec: Option<PodSpec>,
    pub(crate) status: Option<PodStatus>,
}

impl Resource for Pod {
    const SCOPE: Scope = Scope::Namespaced;
    type Meta = Metadata;

    fn gvk() -> GroupVersionKind {
        GroupVersionKind::from_static("", "v1", "Pod")
    }

    fn gvr() -> GroupVersionResource {
        GroupVersionResource::from_static("", "v1", "pods")
    }

    fn meta(&self) -> &Metadata {
        &self.metadata
    }

    fn meta_mut(&mut self) -> &mut Metadata {
        &mut self.metadata
    }
}

/// The whole of a pod as it is known, for those who write it: the server is asked for it.
///
/// # Errors
/// It cannot be had, or is a newer one by now. Then writing the one that is known would have been a conflict too.
pub(crate) async fn whole(client: &Client, pod: &Pod) -> Result<WholePod, Error> {
    let known = pod.metadata.resource_version();
    let whole = Api::<WholePod>::namespaced(client, pod.metadata.namespace()).get(pod.metadata.name()).await?;
    if whole.identity().resource_version == known {
        return Ok(whole);
    }
    let why = "the object has been modified; please apply your changes to the latest version and try again";
    let conflict = Status::conflict(&Pod::gvr().group_resource(), pod.metadata.name(), why);
    Err(Error::Api(Box::new(conflict)))
}
