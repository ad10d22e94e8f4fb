//! Volumes and claims.

use capstan_api::{Map, Value, field::Path, go};

use super::labels::node_selector_term;
use crate::validation::read;

/// Kinds of volumes that do nothing any more, of pods and of persistent volumes.
pub(super) const REMOVED_VOLUMES: [(&str, &str); 8] = [
    ("photonPersistentDisk", "deprecated in v1.11, non-functional in v1.16+"),
    ("scaleIO", "deprecated in v1.16, non-functional in v1.22+"),
    ("flocker", "deprecated in v1.22, non-functional in v1.25+"),
    ("storageos", "deprecated in v1.22, non-functional in v1.25+"),
    ("quobyte", "deprecated in v1.22, non-functional in v1.25+"),
    ("glusterfs", "deprecated in v1.25, non-functional in v1.26+"),
    ("cephfs", "deprecated in v1.28, non-functional in v1.31+"),
    ("rbd", "deprecated in v1.28, non-functional in v1.31+"),
];

/// The order in which those of persistent volumes are told.
const OF_PERSISTENT_VOLUMES: [&str; 6] = ["cephfs", "photonPersistentDisk", "scaleIO", "storageos", "glusterfs", "rbd"];

/// The name of a kind of volume as the warning has it, which for one of them is not that of the field.
pub(super) fn volume_name(field: &str) -> &str {
    if field == "storageos" { "storageOS" } else { field }
}

/// Bytes come in whole numbers.
pub(super) fn fraction(quantities: &Map, name: &str, path: &Path<'_>, out: &mut Vec<String>) {
    let Some(quantity) = quantities.get(name).and_then(read::quantity) else { return };
    if quantity.milli_value() % 1000 != 0 {
        let shown = go::quote(&quantity.to_string());
        out.push(format!("{}: fractional byte value {shown} is invalid, must be an integer", path.key(name)));
    }
}

/// The spec of a claim.
pub(super) fn claim_spec(spec: &Map, path: &Path<'_>, out: &mut Vec<String>) {
    let (resources, path) = (read::at(spec, "resources"), path.child("resources"));
    for field in ["requests", "limits"] {
        fraction(read::at(resources, field), "storage", &path.child(field), out);
    }
}

fn annotations(object: &Map, known: &[(&str, &str)], out: &mut Vec<String>) {
    let annotations = read::at(read::at(object, "metadata"), "annotations");
    for (key, message) in known.iter().filter(|(key, _)| annotations.contains_key(key)) {
        out.push(format!("metadata.annotations[{key}]: {message}"));
    }
}

const STORAGE_CLASS: (&str, &str) =
    ("volume.beta.kubernetes.io/storage-class", r#"deprecated since v1.8; use "storageClassName" attribute instead"#);
const MOUNT_OPTIONS: (&str, &str) =
    ("volume.beta.kubernetes.io/mount-options", r#"deprecated since v1.31; use "mountOptions" attribute instead"#);

pub(super) fn persistent_volume_claim(object: &Map, _: Option<&Map>, out: &mut Vec<String>) {
    annotations(object, &[STORAGE_CLASS], out);
    claim_spec(read::at(object, "spec"), &Path::new("spec"), out);
}

pub(super) fn persistent_volume(object: &Map, _: Option<&Map>, out: &mut Vec<String>) {
    annotations(object, &[STORAGE_CLASS, MOUNT_OPTIONS], out);
    let spec = read::at(object, "spec");
    if read::text(spec, "persistentVolumeReclaimPolicy") == "Recycle" {
        out.push(
            "spec.persistentVolumeReclaimPolicy: The Recycle reclaim policy is deprecated. Instead, the recommended \
             approach is to use dynamic provisioning."
                .to_owned(),
        );
    }
    let required = read::at(read::at(spec, "nodeAffinity"), "required");
    let path = Path::new("spec.nodeAffinity.required.nodeSelectorTerms");
    for (i, term) in read::objects(required, "nodeSelectorTerms") {
        node_selector_term(term, false, &path.index(i), out);
    }
    for field in OF_PERSISTENT_VOLUMES.into_iter().filter(|field| read::is_set(spec, field)) {
        let message = REMOVED_VOLUMES.iter().find(|(known, _)| *known == field).map_or("", |(_, message)| message);
        out.push(format!("spec.{}: {message}", volume_name(field)));
    }
}

const TOKENS_IN_SECRETS: &str = "spec.serviceAccountTokenInSecrets is unset; if supported by this CSI driver, set to \
                                 true to prevent possible logging of tokens in volume attributes";

pub(super) fn csi_driver(object: &Map, old: Option<&Map>, out: &mut Vec<String>) {
    let (spec, requests) = (read::at(object, "spec"), |object| read::list(read::at(object, "spec"), "tokenRequests"));
    let changed = old.is_none_or(|old| requests(old) != requests(object));
    if changed && !requests(object).is_empty() && !read::is_set(spec, "serviceAccountTokenInSecrets") {
        out.push(TOKENS_IN_SECRETS.to_owned());
    }
}

/// What a volume of a pod maps to paths: each path once, and none below another.
pub(super) fn overlapping_paths(volume: &Map, out: &mut Vec<String>) {
    let name = go::quote(read::text(volume, "name"));
    let items = |source: &Map| -> Vec<String> {
        read::objects(source, "items").map(|(_, item)| read::text(item, "path").to_owned()).collect()
    };
    for (field, description) in [
        ("configMap", format!("ConfigMap {}", go::quote(read::text(read::at(volume, "configMap"), "name")))),
        ("secret", format!("Secret {}", go::quote(read::text(read::at(volume, "secret"), "secretName")))),
        ("downwardAPI", "DownwardAPI".to_owned()),
    ] {
        let mut taken = Taken::default();
        for path in items(read::at(volume, field)) {
            for overlap in taken.add(&path, "") {
                out.push(format!("volume {name} ({description}): overlapping paths: {overlap}"));
            }
        }
    }
    let mut taken = Taken::default();
    for (_, source) in read::objects(read::at(volume, "projected"), "sources") {
        if !source.values().any(|value| !value.is_null()) {
            out.push(format!("volume {name} (Projected) has no sources provided"));
        }
        for (path, source) in projected(source, items) {
            for overlap in taken.add(&path, &source) {
                out.push(format!("volume {name} (Projected): overlapping paths: {overlap}"));
            }
        }
    }
}

/// The paths of a source of a projected volume, and what they are from.
fn projected(source: &Map, items: impl Fn(&Map) -> Vec<String>) -> Vec<(String, String)> {
    let has_items = |field| read::at(source, field).get("items").is_some_and(|items| !items.is_null());
    let of = |field: &str, from: String| {
        items(read::at(source, field)).into_iter().map(|path| (path, from.clone())).collect()
    };
    let named = |word: &str, field: &str| format!("{word} {}", go::quote(read::text(read::at(source, field), "name")));
    let path = |field: &str, key: &str| read::text(read::at(source, field), key).to_owned();
    if has_items("configMap") {
        of("configMap", named("ConfigMap", "configMap"))
    } else if has_items("secret") {
        of("secret", named("Secret", "secret"))
    } else if has_items("downwardAPI") {
        of("downwardAPI", "DownwardAPI".to_owned())
    } else if read::is_set(source, "serviceAccountToken") {
        vec![(path("serviceAccountToken", "path"), "ServiceAccountToken".to_owned())]
    } else if let Some(bundle) = read::object(source, "clusterTrustBundle") {
        let name = bundle.get("name").or(bundle.get("signerName")).and_then(Value::as_str).unwrap_or("");
        vec![(path("clusterTrustBundle", "path"), format!("ClusterTrustBundle {}", go::quote(name)))]
    } else {
        let of = [
            ("certificateChainPath", "PodCertificate chain"),
            ("keyPath", "PodCertificate key"),
            ("credentialBundlePath", "PodCertificate credential bundle"),
        ];
        let paths = of.map(|(field, from)| (path("podCertificate", field), from.to_owned()));
        paths.into_iter().filter(|(path, _)| !path.is_empty()).collect()
    }
}

/// How many paths of a volume are compared with each other; validation has no limit of its own.
const MAX_PATHS: usize = 1000;

/// Paths and what they are from.
#[derive(Default)]
struct Taken(Vec<(String, String)>);

impl Taken {
    /// Takes a path, and says which of those that were taken it collides with.
    fn add(&mut self, path: &str, source: &str) -> Vec<String> {
        let path = path.trim_end_matches('/');
        let show = |path: &str, source: &str| match source {
            "" => go::quote(path),
            source => format!("{} ({source})", go::quote(path)),
        };
        let below = |a: &str, b: &str| a.strip_prefix(b).is_some_and(|rest| rest.is_empty() || rest.starts_with('/'));
        let collides = |other: &&(String, String)| {
            !path.is_empty() && !other.0.is_empty() && (below(path, &other.0) || below(&other.0, path))
        };
        let collisions = self.0.iter().filter(collides);
        let told =
            collisions.map(|(other, from)| format!("{} with {}", show(path, source), show(other, from))).collect();
        if self.0.len() < MAX_PATHS {
            self.0.push((path.to_owned(), source.to_owned()));
        }
        told
    }
}
