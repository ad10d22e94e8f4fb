//! What pods and volumes refer to.

use capstan_api::{Str, Value};

use super::graph::{Key, Kind, Volume};

const MIRROR: &str = "kubernetes.io/config.mirror";

/// Where the sources of a pod's volumes name a secret.
const VOLUME_SECRETS: &[(&str, &str)] = &[
    ("azureFile", "secretName"),
    ("secret", "secretName"),
    ("cephfs", "secretRef"),
    ("cinder", "secretRef"),
    ("flexVolume", "secretRef"),
    ("rbd", "secretRef"),
    ("scaleIO", "secretRef"),
    ("iscsi", "secretRef"),
    ("storageos", "secretRef"),
    ("csi", "nodePublishSecretRef"),
];

/// Where volumes name the secrets that nodes need, and whether a missing namespace is that of the claim.
const PERSISTENT_SECRETS: &[(&str, &str, bool)] = &[
    ("cephfs", "secretRef", true),
    ("cinder", "secretRef", false),
    ("flexVolume", "secretRef", true),
    ("rbd", "secretRef", true),
    ("scaleIO", "secretRef", true),
    ("iscsi", "secretRef", true),
    ("storageos", "secretRef", false),
    ("csi", "nodePublishSecretRef", false),
    ("csi", "nodeStageSecretRef", false),
    ("csi", "nodeExpandSecretRef", false),
];

fn at<'a>(value: &'a Value, path: &[&str]) -> &'a Value {
    path.iter().try_fold(value, |value, key| value.get(key)).unwrap_or(&Value::Null)
}

fn text<'a>(value: &'a Value, path: &[&str]) -> &'a str {
    at(value, path).as_str().unwrap_or("")
}

fn items<'a>(value: &'a Value, path: &[&str]) -> impl Iterator<Item = &'a Value> + use<'a> {
    at(value, path).as_array().into_iter().flatten()
}

/// The node of a pod, and what the pod refers to, sorted, each once.
pub(super) fn of_pod<'a>(pod: &'a Value, namespace: &str, name: &str) -> (&'a str, Vec<Key>) {
    let spec = at(pod, &["spec"]);
    let node = text(spec, &["nodeName"]);
    // A node makes its mirror pods itself, so they must not open any doors.
    if node.is_empty() || at(pod, &["metadata", "annotations"]).get(MIRROR).is_some() {
        return (node, Vec::new());
    }
    let mut keys: Vec<(Kind, Str)> = Vec::new();
    let mut add = |kind, name: &str| {
        if !name.is_empty() {
            keys.push((kind, name.into()));
        }
    };
    add(Kind::ServiceAccount, text(spec, &["serviceAccountName"]));
    for secret in items(spec, &["imagePullSecrets"]) {
        add(Kind::Secret, text(secret, &["name"]));
    }
    let containers = ["initContainers", "containers", "ephemeralContainers"];
    for container in containers.iter().flat_map(|field| items(spec, &[field])) {
        for source in items(container, &["envFrom"]) {
            add(Kind::Secret, text(source, &["secretRef", "name"]));
            add(Kind::ConfigMap, text(source, &["configMapRef", "name"]));
        }
        for variable in items(container, &["env"]) {
            add(Kind::Secret, text(variable, &["valueFrom", "secretKeyRef", "name"]));
            add(Kind::ConfigMap, text(variable, &["valueFrom", "configMapKeyRef", "name"]));
        }
    }
    for volume in items(spec, &["volumes"]) {
        for (source, field) in VOLUME_SECRETS {
            let reference = at(volume, &[source, field]);
            add(Kind::Secret, reference.as_str().unwrap_or_else(|| text(reference, &["name"])));
        }
        add(Kind::ConfigMap, text(volume, &["configMap", "name"]));
        for source in items(volume, &["projected", "sources"]) {
            add(Kind::Secret, text(source, &["secret", "name"]));
            add(Kind::ConfigMap, text(source, &["configMap", "name"]));
        }
        if !at(volume, &["persistentVolumeClaim"]).is_null() {
            add(Kind::Claim, text(volume, &["persistentVolumeClaim", "claimName"]));
        } else if !at(volume, &["ephemeral"]).is_null() {
            add(Kind::Claim, &format!("{name}-{}", text(volume, &["name"])));
        }
    }
    for claim in items(spec, &["resourceClaims"]) {
        if !at(claim, &["resourceClaimName"]).is_null() {
            add(Kind::ResourceClaim, text(claim, &["resourceClaimName"]));
        } else if !at(claim, &["resourceClaimTemplateName"]).is_null() {
            // The claim that was made from the template is in the status.
            let own = text(claim, &["name"]);
            let made = items(pod, &["status", "resourceClaimStatuses"]).find(|made| text(made, &["name"]) == own);
            add(Kind::ResourceClaim, made.map_or("", |made| text(made, &["resourceClaimName"])));
        }
    }
    add(Kind::ResourceClaim, text(pod, &["status", "extendedResourceClaimStatus", "resourceClaimName"]));
    let mut keys: Vec<Key> = keys.into_iter().map(|(kind, name)| (kind, Str::from(namespace), name)).collect();
    keys.sort_by(|a, b| (a.0 as u8, &a.2).cmp(&(b.0 as u8, &b.2)));
    keys.dedup();
    (node, keys)
}

/// What a volume refers to, if it is bound.
pub(super) fn of_volume(volume: &Value) -> Option<Volume> {
    let spec = at(volume, &["spec"]);
    let claim = spec.get("claimRef").filter(|claim| !claim.is_null())?;
    let claim = (Str::from(text(claim, &["namespace"])), Str::from(text(claim, &["name"])));
    let mut secrets = Vec::new();
    let mut add = |namespace: &str, name: &str, of_claim: bool| {
        let namespace = if namespace.is_empty() && of_claim { &claim.0 } else { namespace };
        if !name.is_empty() {
            secrets.push((Str::from(namespace), Str::from(name)));
        }
    };
    let azure = at(spec, &["azureFile"]);
    add(text(azure, &["secretNamespace"]), text(azure, &["secretName"]), true);
    for &(source, field, of_claim) in PERSISTENT_SECRETS {
        let reference = at(spec, &[source, field]);
        add(text(reference, &["namespace"]), text(reference, &["name"]), of_claim);
    }
    Some(Volume { claim, secrets })
}
