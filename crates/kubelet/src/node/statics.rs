//! Static pods: manifests in a directory of the node, shown in the API by a mirror that nobody can change.

use std::{collections::BTreeMap, path::Path};

use capstan_api::{value::from_value, yaml};
use k8s_openapi::{api::core::v1::Pod, apimachinery::pkg::apis::meta::v1::OwnerReference};

/// How often the directory is looked at.
pub(super) const CHECK_FREQUENCY: std::time::Duration = std::time::Duration::from_secs(20);
/// The annotation by which a mirror names what it mirrors.
pub const MIRROR: &str = "kubernetes.io/config.mirror";
/// The largest manifest.
const MAX_MANIFEST: u64 = 1 << 20;

/// The pods of a directory by the uid that they get from their content; what can't be read is left out.
pub(super) fn read(dir: &Path, node: &str) -> BTreeMap<String, Pod> {
    let mut all = BTreeMap::new();
    for entry in std::fs::read_dir(dir).into_iter().flatten().flatten() {
        let path = entry.path();
        let hidden = path.file_name().is_none_or(|name| name.to_string_lossy().starts_with('.'));
        if hidden || !path.is_file() || entry.metadata().is_ok_and(|meta| meta.len() > MAX_MANIFEST) {
            continue;
        }
        let Ok(text) = std::fs::read(&path) else { continue };
        if let Ok(pod) = static_pod(&text, node, &path.display().to_string()) {
            all.insert(pod.metadata.uid.clone().unwrap_or_default(), pod);
        }
    }
    all
}

/// The pod of a manifest on a node.
///
/// # Errors
/// It isn't one.
pub fn static_pod(text: &[u8], node: &str, source: &str) -> Result<Pod, String> {
    let value = yaml::parse(text).map_err(|error| error.to_string())?;
    let mut pod: Pod = from_value(value).map_err(|error| error.to_string())?;
    let name = pod.metadata.name.clone().filter(|name| !name.is_empty()).ok_or("a static pod needs a name")?;
    let hash = fingerprint(&[text, node.as_bytes(), source.as_bytes()].concat());
    pod.metadata.name = Some(format!("{name}-{}", node.to_lowercase()));
    pod.metadata.namespace.get_or_insert_with(|| "default".to_owned());
    pod.metadata.uid = Some(hash.clone());
    let annotations = pod.metadata.annotations.get_or_insert_default();
    annotations.insert("kubernetes.io/config.source".to_owned(), "file".to_owned());
    annotations.insert("kubernetes.io/config.hash".to_owned(), hash);
    let spec = pod.spec.get_or_insert_default();
    spec.node_name = Some(node.to_owned());
    spec.restart_policy.get_or_insert_with(|| "Always".to_owned());
    spec.enable_service_links.get_or_insert(true);
    pod.status = None;
    Ok(pod)
}

/// The object that stands for a static pod in the API.
pub(super) fn mirror(pod: &Pod, node_uid: &str) -> Pod {
    let mut mirror = pod.clone();
    let hash = pod.metadata.uid.clone().unwrap_or_default();
    mirror.metadata.uid = None;
    mirror.metadata.annotations.get_or_insert_default().insert(MIRROR.to_owned(), hash);
    mirror.metadata.owner_references = Some(vec![OwnerReference {
        api_version: "v1".to_owned(),
        controller: Some(true),
        kind: "Node".to_owned(),
        name: pod.spec.as_ref().and_then(|spec| spec.node_name.clone()).unwrap_or_default(),
        uid: node_uid.to_owned(),
        ..OwnerReference::default()
    }]);
    mirror
}

/// Sixteen bytes that tell contents apart: FNV-1a, twice.
fn fingerprint(bytes: &[u8]) -> String {
    let hash =
        |seed: u64| bytes.iter().fold(seed, |hash, &byte| (hash ^ u64::from(byte)).wrapping_mul(0x0000_0100_0000_01b3));
    format!("{:016x}{:016x}", hash(0xcbf2_9ce4_8422_2325), hash(0x9e37_79b9_7f4a_7c15))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_manifest_becomes_a_pod_of_this_node() {
        let text = b"apiVersion: v1\nkind: Pod\nmetadata: {name: web}\nspec: {containers: [{name: c, image: x}]}\n";
        let pod = static_pod(text, "Node-1", "/m/web.yaml").unwrap();
        assert_eq!(pod.metadata.name.as_deref(), Some("web-node-1"));
        assert_eq!(pod.metadata.namespace.as_deref(), Some("default"));
        let again = static_pod(text, "Node-1", "/m/web.yaml").unwrap();
        assert_eq!(again.metadata.uid, pod.metadata.uid);
        let changed = [&text[..], b"# more\n"].concat();
        assert_ne!(static_pod(&changed, "Node-1", "/m/web.yaml").unwrap().metadata.uid, pod.metadata.uid);
        let mirror = mirror(&pod, "u");
        assert_eq!(mirror.metadata.annotations.unwrap().get(MIRROR), pod.metadata.uid.as_ref());
        assert!(static_pod(b"metadata: {}", "n", "f").is_err());
    }
}
