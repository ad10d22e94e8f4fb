//! What a pod refers to: secrets, config maps, and whatever else a node may not lead to through a mirror pod.

use capstan_api::{Map, Value, go};

use super::common::{CONTAINERS, each, is_set};
use crate::registry::paths;

/// Where volumes name a secret. Of these only the first that is set counts, as a volume has one source.
const VOLUME_SECRETS: [(&str, &str); 10] = [
    ("azureFile", "azureFile.secretName"),
    ("cephfs", "cephfs.secretRef.name"),
    ("cinder", "cinder.secretRef.name"),
    ("flexVolume", "flexVolume.secretRef.name"),
    ("rbd", "rbd.secretRef.name"),
    ("secret", "secret.secretName"),
    ("scaleIO", "scaleIO.secretRef.name"),
    ("iscsi", "iscsi.secretRef.name"),
    ("storageos", "storageos.secretRef.name"),
    ("csi", "csi.nodePublishSecretRef.name"),
];

/// Volumes that lead to nothing in the API.
const FREE_VOLUMES: [&str; 22] = [
    "awsElasticBlockStore",
    "azureDisk",
    "cephfs",
    "cinder",
    "downwardAPI",
    "emptyDir",
    "fc",
    "flexVolume",
    "flocker",
    "gcePersistentDisk",
    "gitRepo",
    "hostPath",
    "image",
    "iscsi",
    "nfs",
    "photonPersistentDisk",
    "portworxVolume",
    "quobyte",
    "rbd",
    "scaleIO",
    "storageos",
    "vsphereVolume",
];

/// Volumes that lead to something in the API, and to what.
const BOUND_VOLUMES: [(&str, &str); 7] = [
    ("configMap", "configmaps (via configmap volumes)"),
    ("secret", "secrets (via secret volumes)"),
    ("csi", "csidrivers (via CSI volumes)"),
    ("glusterfs", "endpoints (via glusterFS volumes)"),
    ("persistentVolumeClaim", "persistentvolumeclaims"),
    ("ephemeral", "persistentvolumeclaims (via ephemeral volumes)"),
    ("azureFile", "secrets (via azureFile volumes)"),
];

/// Projections that lead to something in the API, and to what.
const BOUND_PROJECTIONS: [(&str, &str); 5] = [
    ("configMap", "configmaps (via projected volumes)"),
    ("secret", "secrets (via projected volumes)"),
    ("serviceAccountToken", "serviceaccounts (via projected volumes)"),
    ("clusterTrustBundle", "clustertrustbundles"),
    ("podCertificate", "podcertificates"),
];

/// The service account; its old name counts where the new one is empty.
pub(super) fn service_account(pod: &Map) -> &str {
    match paths::text(pod, "spec.serviceAccountName") {
        "" => paths::text(pod, "spec.serviceAccount"),
        name => name,
    }
}

/// Whether a pod uses a secret.
pub(super) fn uses_secrets(pod: &Map) -> bool {
    each(pod, "spec.imagePullSecrets").any(|reference| !paths::text(reference, "name").is_empty())
        || containers_name(pod, "secretRef.name", "valueFrom.secretKeyRef.name")
        || volumes_name(pod, &VOLUME_SECRETS, "secret.name")
}

/// Whether a pod uses a config map.
fn uses_config_maps(pod: &Map) -> bool {
    containers_name(pod, "configMapRef.name", "valueFrom.configMapKeyRef.name")
        || volumes_name(pod, &[("configMap", "configMap.name")], "configMap.name")
}

fn containers_name(pod: &Map, from: &str, variable: &str) -> bool {
    let named = |object: &Map, path: &str| !paths::text(object, path).is_empty();
    CONTAINERS.iter().flat_map(|list| each(pod, list)).any(|container| {
        each(container, "envFrom").any(|source| named(source, from))
            || each(container, "env").any(|entry| named(entry, variable))
    })
}

fn volumes_name(pod: &Map, sources: &[(&str, &str)], projected: &str) -> bool {
    let named = |object: &Map, path: &str| !paths::text(object, path).is_empty();
    each(pod, "spec.volumes").any(|volume| {
        sources.iter().any(|(source, path)| is_set(volume, source) && named(volume, path))
            || each(volume, "projected.sources").any(|source| named(source, projected))
    })
}

/// Whether a pod uses a token through a projected volume.
pub(super) fn projects_tokens(pod: &Map) -> bool {
    each(pod, "spec.volumes")
        .flat_map(|volume| each(volume, "projected.sources"))
        .any(|source| is_set(source, "serviceAccountToken"))
}

/// What of the API a pod refers to, if anything.
///
/// # Errors
/// A volume is of a type that nobody knows.
pub(super) fn api_reference(pod: &Map) -> Result<Option<&'static str>, String> {
    if !service_account(pod).is_empty() {
        return Ok(Some("serviceaccounts"));
    }
    if uses_secrets(pod) {
        return Ok(Some("secrets"));
    }
    if uses_config_maps(pod) {
        return Ok(Some("configmaps"));
    }
    if !paths::items(pod, "spec.resourceClaims").is_empty() {
        return Ok(Some("resourceclaims"));
    }
    for volume in each(pod, "spec.volumes") {
        if FREE_VOLUMES.iter().any(|source| is_set(volume, source)) {
            continue;
        }
        if let Some((_, what)) = BOUND_VOLUMES.iter().find(|(source, _)| is_set(volume, source)) {
            return Ok(Some(what));
        }
        let name = || go::quote(paths::text(volume, "name"));
        let Some(projected) = volume.get("projected").and_then(Value::as_object) else {
            // The two spaces are upstream's.
            return Err(format!("unknown volume type for volume  {}", name()));
        };
        for source in each(projected, "sources") {
            if let Some((_, what)) = BOUND_PROJECTIONS.iter().find(|(kind, _)| is_set(source, kind)) {
                return Ok(Some(what));
            }
            if !is_set(source, "downwardAPI") {
                return Err(format!("unknown source for projected volume {}", name()));
            }
        }
    }
    Ok(None)
}
