//! Volumes made of directories of nodes: the provisioner behind the default storage class.

use std::{collections::BTreeMap, fmt, sync::Arc};

use k8s_openapi::{
    api::{
        core::v1::{
            HostPathVolumeSource, Node, NodeSelector, NodeSelectorRequirement, NodeSelectorTerm, PersistentVolume,
            PersistentVolumeClaim, PersistentVolumeSpec, VolumeNodeAffinity,
        },
        storage::v1::StorageClass,
    },
    apimachinery::pkg::apis::meta::v1::ObjectMeta,
};

use super::binding::{BOUND_BY_CONTROLLER, PROVISIONED_BY, claim_class, reference};

/// The provisioner's name, for storage classes.
pub const LOCAL_PATH_PROVISIONER: &str = "capstan.dev/local-path";
/// Keeps a volume until what is in it is gone.
pub(super) const FINALIZER: &str = "kubernetes.io/pv-controller";
const HOSTNAME: &str = "kubernetes.io/hostname";

/// Removes a directory of a node: the node, then the path.
pub type RemoveDirectory = Arc<dyn Fn(&str, &str) -> Result<(), String> + Send + Sync>;

/// Where the directories of volumes are.
#[derive(Clone)]
pub struct LocalPath {
    /// The directory, on every node, that holds those of the volumes.
    pub root: String,
    /// Removes the directory of a volume that is reclaimed. Without it directories stay; their volumes go.
    pub remove: Option<RemoveDirectory>,
}

impl Default for LocalPath {
    fn default() -> Self {
        LocalPath { root: "/var/lib/capstan/local-path".to_owned(), remove: None }
    }
}

impl fmt::Debug for LocalPath {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("LocalPath").field("root", &self.root).finish_non_exhaustive()
    }
}

/// The volume for a claim, on the node that the scheduler chose.
///
/// # Errors
/// Why there can be none.
pub(super) fn provision(
    local: &LocalPath,
    claim: &PersistentVolumeClaim,
    class: &StorageClass,
    node: Option<&Node>,
) -> Result<PersistentVolume, String> {
    let spec = claim.spec.clone().unwrap_or_default();
    let node = node.ok_or("no node was specified: the StorageClass needs volumeBindingMode WaitForFirstConsumer")?;
    if spec.selector.is_some() {
        return Err("claim.spec.selector is not supported".to_owned());
    }
    if spec.volume_mode.as_deref() == Some("Block") {
        return Err("volumeMode Block is not supported".to_owned());
    }
    let supported = |mode: &String| mode == "ReadWriteOnce" || mode == "ReadWriteOncePod";
    if let Some(mode) = spec.access_modes.iter().flatten().find(|mode| !supported(mode)) {
        return Err(format!("access mode {mode} is not supported: directories of nodes are on one node"));
    }
    let name = volume_name(claim);
    let (namespace, claim_name) = (&claim.metadata.namespace, &claim.metadata.name);
    let path = format!(
        "{}/{name}_{}_{}",
        local.root.trim_end_matches('/'),
        namespace.as_deref().unwrap_or_default(),
        claim_name.as_deref().unwrap_or_default()
    );
    let policy = class.reclaim_policy.clone().unwrap_or_else(|| "Delete".to_owned());
    let annotations = [(BOUND_BY_CONTROLLER, "yes"), (PROVISIONED_BY, LOCAL_PATH_PROVISIONER)];
    Ok(PersistentVolume {
        metadata: ObjectMeta {
            name: Some(name),
            annotations: Some(annotations.map(|(key, value)| (key.to_owned(), value.to_owned())).into()),
            finalizers: (policy == "Delete").then(|| vec![FINALIZER.to_owned()]),
            ..ObjectMeta::default()
        },
        spec: Some(PersistentVolumeSpec {
            access_modes: spec.access_modes,
            capacity: spec.resources.and_then(|resources| resources.requests).map(storage_only),
            claim_ref: Some(reference(claim)),
            host_path: Some(HostPathVolumeSource { path, type_: Some("DirectoryOrCreate".to_owned()) }),
            mount_options: class.mount_options.clone(),
            node_affinity: Some(VolumeNodeAffinity { required: Some(on(node)) }),
            persistent_volume_reclaim_policy: Some(policy),
            storage_class_name: claim_class(claim).map(str::to_owned),
            volume_mode: spec.volume_mode,
            ..PersistentVolumeSpec::default()
        }),
        status: None,
    })
}

/// The name of the volume that is made for a claim.
pub(super) fn volume_name(claim: &PersistentVolumeClaim) -> String {
    format!("pvc-{}", claim.metadata.uid.as_deref().unwrap_or_default())
}

fn storage_only<V>(mut amounts: BTreeMap<String, V>) -> BTreeMap<String, V> {
    amounts.retain(|name, _| name == "storage");
    amounts
}

fn on(node: &Node) -> NodeSelector {
    let label = node.metadata.labels.as_ref().and_then(|labels| labels.get(HOSTNAME));
    let name = label.or(node.metadata.name.as_ref()).cloned().unwrap_or_default();
    let requirement =
        NodeSelectorRequirement { key: HOSTNAME.to_owned(), operator: "In".to_owned(), values: Some(vec![name]) };
    let term = NodeSelectorTerm { match_expressions: Some(vec![requirement]), match_fields: None };
    NodeSelector { node_selector_terms: vec![term] }
}

/// Whether a directory is one of those for a while that may be removed, whoever made it.
pub(super) fn is_temporary(path: &str) -> bool {
    path.split_once("/tmp/").is_some_and(|(_, rest)| !rest.is_empty()) && path.split('/').all(|part| part != "..")
}

/// Removes what is in a volume.
///
/// # Errors
/// What went wrong.
pub(super) fn remove(local: &LocalPath, volume: &PersistentVolume) -> Result<(), String> {
    let Some(remove) = &local.remove else { return Ok(()) };
    let Some(spec) = &volume.spec else { return Ok(()) };
    let terms = spec.node_affinity.iter().filter_map(|affinity| affinity.required.as_ref());
    let terms = terms.flat_map(|required| &required.node_selector_terms);
    let values = terms.flat_map(|term| term.match_expressions.iter().flatten()).flat_map(|wanted| &wanted.values);
    let node = values.flatten().next().map(String::as_str).unwrap_or_default();
    let Some(path) = spec.host_path.as_ref().map(|source| source.path.as_str()) else { return Ok(()) };
    // Only what this provisioner made, or what is as good as gone: whoever can write a volume must not get other
    // directories removed.
    if is_temporary(path) {
        return remove(node, path);
    }
    let name = volume.metadata.name.as_deref().unwrap_or_default();
    let own = format!("{}/{name}_", local.root.trim_end_matches('/'));
    let rest = path.strip_prefix(&own).ok_or_else(|| format!("{path} is not a directory of this volume"))?;
    if rest.contains('/') {
        return Err(format!("{path} is not a directory of this volume"));
    }
    remove(node, path)
}
