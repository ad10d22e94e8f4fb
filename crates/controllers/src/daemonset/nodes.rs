//! Which nodes a DaemonSet wants a pod on, and what that looks like.

use k8s_openapi::api::{
    apps::v1::{DaemonSet, DaemonSetSpec},
    core::v1::{Node, NodeSelector, NodeSelectorRequirement, NodeSelectorTerm, Taint, Toleration},
};

use crate::{
    history::REVISION_HASH,
    pod::{Pod, WholePod},
    pods::control::pod_from_template,
};

/// The field by which a pod is bound to a node.
const NODE_NAME_FIELD: &str = "metadata.name";
/// The annotation and the label of a generation of the template, from before there were revisions.
const GENERATION_ANNOTATION: &str = "deprecated.daemonset.template.generation";
const GENERATION_LABEL: &str = "pod-template-generation";

/// The taints that pods of DaemonSets put up with: they are there for the node, whatever state it is in.
const TOLERATED: [(&str, &str); 6] = [
    ("node.kubernetes.io/not-ready", "NoExecute"),
    ("node.kubernetes.io/unreachable", "NoExecute"),
    ("node.kubernetes.io/disk-pressure", "NoSchedule"),
    ("node.kubernetes.io/memory-pressure", "NoSchedule"),
    ("node.kubernetes.io/pid-pressure", "NoSchedule"),
    ("node.kubernetes.io/unschedulable", "NoSchedule"),
];
/// The taint that pods put up with that bring their own network.
const NETWORK_UNAVAILABLE: (&str, &str) = ("node.kubernetes.io/network-unavailable", "NoSchedule");

fn tolerations(spec: &DaemonSetSpec) -> Vec<Toleration> {
    let template = spec.template.spec.clone().unwrap_or_default();
    let mut tolerations = template.tolerations.unwrap_or_default();
    let host_network = template.host_network.unwrap_or_default();
    for (key, effect) in TOLERATED.into_iter().chain(host_network.then_some(NETWORK_UNAVAILABLE)) {
        let toleration = Toleration {
            key: Some(key.to_owned()),
            operator: Some("Exists".to_owned()),
            effect: Some(effect.to_owned()),
            ..Toleration::default()
        };
        let is_same = |known: &Toleration| {
            (&known.key, &known.operator, &known.effect) == (&toleration.key, &toleration.operator, &toleration.effect)
                && known.value.as_deref().unwrap_or_default().is_empty()
        };
        let mut found = false;
        for known in tolerations.iter_mut().filter(|known| is_same(known)) {
            (*known, found) = (toleration.clone(), true);
        }
        if !found {
            tolerations.push(toleration);
        }
    }
    tolerations
}

fn tolerates(toleration: &Toleration, taint: &Taint) -> bool {
    let effect = toleration.effect.as_deref().unwrap_or_default();
    let key = toleration.key.as_deref().unwrap_or_default();
    let value = taint.value.as_deref().unwrap_or_default();
    (effect.is_empty() || effect == taint.effect)
        && (key.is_empty() || key == taint.key)
        && match toleration.operator.as_deref().unwrap_or("Equal") {
            "Exists" => true,
            _ => toleration.value.as_deref().unwrap_or_default() == value,
        }
}

fn requirement_fits(requirement: &NodeSelectorRequirement, value: Option<&str>) -> bool {
    let values = requirement.values.as_deref().unwrap_or_default();
    let listed = value.is_some_and(|value| values.iter().any(|known| known == value));
    let numbers = || Some((value?.parse::<i64>().ok()?, values.first()?.parse::<i64>().ok()?));
    match requirement.operator.as_str() {
        "In" => listed,
        "NotIn" => !listed,
        "Exists" => value.is_some(),
        "DoesNotExist" => value.is_none(),
        "Gt" => numbers().is_some_and(|(value, than)| value > than),
        "Lt" => numbers().is_some_and(|(value, than)| value < than),
        _ => false,
    }
}

fn term_fits(term: &NodeSelectorTerm, node: &Node) -> bool {
    let label = |key: &str| node.metadata.labels.as_ref().and_then(|labels| labels.get(key)).map(String::as_str);
    let expressions = term.match_expressions.as_deref().unwrap_or_default();
    let fields = term.match_fields.as_deref().unwrap_or_default();
    let field = |key: &str| if key == NODE_NAME_FIELD { node.metadata.name.as_deref() } else { None };
    // A term without requirements selects nothing.
    !(expressions.is_empty() && fields.is_empty())
        && expressions.iter().all(|requirement| requirement_fits(requirement, label(&requirement.key)))
        && fields.iter().all(|requirement| requirement_fits(requirement, field(&requirement.key)))
}

/// Whether a pod shall be on a node, and whether one that is there may stay.
pub(super) fn should_run(spec: &DaemonSetSpec, node: &Node) -> (bool, bool) {
    let template = spec.template.spec.clone().unwrap_or_default();
    let bound = template.node_name.as_deref().unwrap_or_default();
    let labels = node.metadata.labels.clone().unwrap_or_default();
    let selected = template.node_selector.iter().flatten().all(|(key, value)| labels.get(key) == Some(value));
    let affinity = template.affinity.and_then(|affinity| affinity.node_affinity);
    let required = affinity.and_then(|affinity| affinity.required_during_scheduling_ignored_during_execution);
    let fits = required.is_none_or(|required| required.node_selector_terms.iter().any(|term| term_fits(term, node)));
    if !(bound.is_empty() || Some(bound) == node.metadata.name.as_deref()) || !selected || !fits {
        return (false, false);
    }
    let tolerations = tolerations(spec);
    let taints = node.spec.as_ref().and_then(|spec| spec.taints.as_deref()).unwrap_or_default();
    let untolerated = |effects: &[&str]| {
        let mut taints = taints.iter().filter(|taint| effects.contains(&taint.effect.as_str()));
        taints.any(|taint| !tolerations.iter().any(|toleration| tolerates(toleration, taint)))
    };
    (!untolerated(&["NoSchedule", "NoExecute"]), !untolerated(&["NoExecute"]))
}

/// The node that a pod is on, or is meant for.
pub(super) fn target(pod: &Pod) -> Option<&str> {
    let spec = pod.spec.as_ref()?;
    if let Some(name) = spec.node_name.as_deref().filter(|name| !name.is_empty()) {
        return Some(name);
    }
    let mut names = spec
        .affinity
        .as_ref()?
        .match_fields
        .iter()
        .filter(|field| field.key == NODE_NAME_FIELD && field.operator == "In");
    match names.next()?.values.as_deref()? {
        [name] => Some(name),
        _ => None,
    }
}

/// The generation of the template, from before there were revisions.
pub(super) fn generation(set: &DaemonSet) -> Option<&String> {
    set.metadata.annotations.as_ref()?.get(GENERATION_ANNOTATION)
}

/// Whether a pod is of the newest template.
pub(super) fn is_updated(set: &DaemonSet, pod: &Pod, hash: &str) -> bool {
    let label = |name: &str| pod.metadata.labels.as_ref().and_then(|labels| labels.get(name));
    label(REVISION_HASH).is_some_and(|found| found == hash)
        || generation(set).is_some_and(|generation| label(GENERATION_LABEL) == Some(generation))
}

/// The pod for a node. The scheduler puts it there, and nowhere else.
pub(super) fn new_pod(set: &DaemonSet, spec: &DaemonSetSpec, hash: &str, node: &str) -> WholePod {
    let mut pod = pod_from_template(&spec.template, set);
    let labels = pod.metadata.labels.get_or_insert_default();
    if let Some(generation) = generation(set) {
        labels.insert(GENERATION_LABEL.to_owned(), generation.clone());
    }
    labels.insert(REVISION_HASH.to_owned(), hash.to_owned());
    let of_pod = pod.spec.get_or_insert_default();
    of_pod.tolerations = Some(tolerations(spec));
    let field = NodeSelectorRequirement {
        key: NODE_NAME_FIELD.to_owned(),
        operator: "In".to_owned(),
        values: Some(vec![node.to_owned()]),
    };
    let term = NodeSelectorTerm { match_fields: Some(vec![field]), match_expressions: None };
    let affinity = of_pod.affinity.get_or_insert_default().node_affinity.get_or_insert_default();
    affinity.required_during_scheduling_ignored_during_execution =
        Some(NodeSelector { node_selector_terms: vec![term] });
    pod
}
