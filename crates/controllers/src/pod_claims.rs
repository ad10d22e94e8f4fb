//! Pods and the claims that they use.

use std::sync::Arc;

use capstan_api::Str;
use capstan_client::{Key, SharedIndexInformer, store::Indexers};
use k8s_openapi::{
    api::core::v1::PersistentVolumeClaim,
    apimachinery::pkg::apis::meta::v1::{ObjectMeta, OwnerReference},
};

use crate::pod::{Pod, Volume};

/// The index of pods by the keys of their claims.
const INDEX: &str = "pod-pvc-index";

/// The name of the claim behind a volume of a pod, if there is one: its own, or the one made for it.
pub(crate) fn claim_name(pod: &Pod, volume: &Volume) -> Option<String> {
    if let Some(claim) = &volume.persistent_volume_claim {
        return Some(claim.claim_name.clone());
    }
    volume.ephemeral.as_ref()?;
    Some(ephemeral_claim_name(pod, volume))
}

/// The name of the claim that is made for an ephemeral volume.
pub(crate) fn ephemeral_claim_name(pod: &Pod, volume: &Volume) -> String {
    format!("{}-{}", pod.metadata.name.as_deref().unwrap_or_default(), volume.name)
}

/// The volumes of a pod.
pub(crate) fn volumes(pod: &Pod) -> impl Iterator<Item = &Volume> {
    pod.spec.as_ref().and_then(|spec| spec.volumes.as_ref()).into_iter().flatten()
}

/// The claims of a pod.
pub(crate) fn claims_of(pod: &Pod) -> Vec<Key> {
    let namespace = pod.metadata.namespace.as_deref().unwrap_or_default();
    volumes(pod).filter_map(|volume| claim_name(pod, volume)).map(|name| Key::new(namespace, &name)).collect()
}

/// Has the informer find pods by their claims.
pub(crate) fn index(pods: &SharedIndexInformer<Pod>) {
    let by_claim = |pod: &Pod| claims_of(pod).iter().map(|key| Str::from(key.as_str())).collect();
    pods.add_indexers(Indexers::from([(INDEX.into(), Arc::new(by_claim) as _)]));
}

/// The pods that use a claim.
pub(crate) fn pods_of(pods: &SharedIndexInformer<Pod>, claim: &Key) -> Vec<Arc<Pod>> {
    pods.indexer().by_index(INDEX, claim.as_str()).unwrap_or_default()
}

/// Whether a pod has ended, or has ended on its node and is only still there.
pub(crate) fn is_terminated(pod: &Pod) -> bool {
    let Some(status) = &pod.status else { return false };
    let not_running = || {
        let statuses = status.container_statuses.iter().flatten();
        statuses.into_iter().all(|status| {
            let state = status.state.as_ref();
            state.is_none_or(|state| state.terminated.is_some() || state.waiting.is_some() || state.running.is_none())
        })
    };
    matches!(status.phase.as_deref(), Some("Failed" | "Succeeded"))
        || (pod.metadata.deletion_timestamp.is_some() && not_running())
}

/// Whether this object was made for that pod.
pub(crate) fn is_controlled_by(meta: &ObjectMeta, pod: &Pod) -> bool {
    let controls = |owner: &OwnerReference| owner.controller == Some(true) && owner.uid == pod.metadata.uid();
    meta.owner_references.iter().flatten().any(controls)
}

/// Why a claim is not the one that was made for an ephemeral volume of this pod.
pub(crate) fn check_is_for_pod(pod: &Pod, claim: &PersistentVolumeClaim) -> Result<(), String> {
    if is_controlled_by(&claim.metadata, pod) {
        return Ok(());
    }
    let (claim, pod) = (Key::of(claim), Key::of(pod));
    Err(format!("PVC {claim} was not created for pod {pod} (pod is not owner)"))
}
