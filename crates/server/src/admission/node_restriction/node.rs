//! What a node may do to its own Node: not what would lead workloads to it.

use std::collections::BTreeSet;

use capstan_api::{Map, go};

use crate::{
    admission::{
        Operation, Request,
        common::{is_set, keyed, object, old_object, strings},
    },
    registry::paths,
};

/// The labels under Kubernetes' own domains that a kubelet sets.
const KUBELET_LABELS: [&str; 11] = [
    "kubernetes.io/hostname",
    "topology.kubernetes.io/zone",
    "topology.kubernetes.io/region",
    "failure-domain.beta.kubernetes.io/zone",
    "failure-domain.beta.kubernetes.io/region",
    "beta.kubernetes.io/instance-type",
    "node.kubernetes.io/instance-type",
    "kubernetes.io/os",
    "kubernetes.io/arch",
    "beta.kubernetes.io/os",
    "beta.kubernetes.io/arch",
];
const KUBELET_DOMAINS: [&str; 2] = ["kubelet.kubernetes.io", "node.kubernetes.io"];
const KUBERNETES_DOMAINS: [&str; 2] = ["kubernetes.io", "k8s.io"];
const RESTRICTED_DOMAIN: &str = "node-restriction.kubernetes.io";

pub(super) fn refusal(request: &Request<'_>, node: &str) -> Option<String> {
    let quoted = go::quote(node);
    if request.name != node {
        return Some(format!("node {quoted} is not allowed to modify node {}", go::quote(request.name)));
    }
    let (new, old) = (object(request), old_object(request));
    match request.operation {
        Operation::Create => {
            if is_set(new, "spec.configSource") {
                return Some(format!("node {quoted} is not allowed to create pods with a non-nil configSource"));
            }
            let labels = forbidden_labels(new, &Map::new())?;
            Some(format!("node {quoted} is not allowed to set the following labels: {labels}"))
        }
        Operation::Update => {
            if is_set(new, "spec.configSource") && !paths::same(new, old, "spec.configSource") {
                return Some(format!(
                    "node {quoted} is not allowed to update configSource to a new non-nil configSource"
                ));
            }
            if !paths::same(new, old, "spec.taints") {
                return Some(format!("node {quoted} is not allowed to modify taints"));
            }
            if !paths::same(new, old, "metadata.ownerReferences") {
                return Some(format!("node {quoted} is not allowed to modify ownerReferences"));
            }
            let labels = forbidden_labels(new, old)?;
            Some(format!("is not allowed to modify labels: {labels}"))
        }
        _ => None,
    }
}

/// The labels that differ and are not for a node to change, if there are any.
fn forbidden_labels(new: &Map, old: &Map) -> Option<String> {
    const LABELS: &str = "metadata.labels";
    let differs = |key: &&str| keyed(new, LABELS, key) != keyed(old, LABELS, key);
    let keys = strings(new, LABELS).chain(strings(old, LABELS)).map(|(key, _)| key).filter(differs);
    let keys: BTreeSet<&str> = keys.filter(|key| is_forbidden(key)).collect();
    (!keys.is_empty()).then(|| keys.into_iter().collect::<Vec<_>>().join(", "))
}

fn is_forbidden(key: &str) -> bool {
    let domain = key.split_once('/').map_or("", |(domain, _)| domain);
    let is_in = |parent: &&str| domain.strip_suffix(*parent).is_some_and(|rest| rest.is_empty() || rest.ends_with('.'));
    let is_kubelets = KUBELET_LABELS.contains(&key) || KUBELET_DOMAINS.iter().any(is_in);
    is_in(&RESTRICTED_DOMAIN) || KUBERNETES_DOMAINS.iter().any(is_in) && !is_kubelets
}
