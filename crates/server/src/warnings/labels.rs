//! Labels of nodes that have another name now, wherever nodes are selected.

use capstan_api::{Map, field::Path, validation::is_valid_label_value};

use crate::validation::read;

const DEPRECATED: [(&str, &str); 8] = [
    ("beta.kubernetes.io/arch", r#"deprecated since v1.14; use "kubernetes.io/arch" instead"#),
    ("beta.kubernetes.io/os", r#"deprecated since v1.14; use "kubernetes.io/os" instead"#),
    (
        "failure-domain.beta.kubernetes.io/region",
        r#"deprecated since v1.17; use "topology.kubernetes.io/region" instead"#,
    ),
    ("failure-domain.beta.kubernetes.io/zone", r#"deprecated since v1.17; use "topology.kubernetes.io/zone" instead"#),
    ("beta.kubernetes.io/instance-type", r#"deprecated since v1.17; use "node.kubernetes.io/instance-type" instead"#),
    ("app.kubernetes.io/created-by", "deprecated since v1.9"),
    ("scheduler.alpha.kubernetes.io/preferAvoidPods", "deprecated since v1.22; use Taints and Tolerations instead"),
    ("node-role.kubernetes.io/master", r#"use "node-role.kubernetes.io/control-plane" instead"#),
];

/// What is to be said about a label, if it is one of those.
pub(super) fn deprecated(label: &str) -> Option<&'static str> {
    DEPRECATED.iter().find(|(known, _)| *known == label).map(|(_, message)| *message)
}

/// The expressions of a term of a node selector. Values are looked at where validation does not.
pub(super) fn node_selector_term(term: &Map, check_values: bool, path: &Path<'_>, out: &mut Vec<String>) {
    let path = path.child("matchExpressions");
    for (i, expression) in read::objects(term, "matchExpressions") {
        let (path, key) = (path.index(i), read::text(expression, "key"));
        if let Some(message) = deprecated(key) {
            out.push(format!("{}: {key} is {message}", path.child("key")));
        }
        for (j, value) in read::list(expression, "values").iter().enumerate().filter(|_| check_values) {
            let value = value.as_str().unwrap_or("");
            for message in is_valid_label_value(value) {
                out.push(format!("{}: {value} is invalid, {message}", path.child("values").index(j)));
            }
        }
    }
}

pub(super) fn runtime_class(object: &Map, _: Option<&Map>, out: &mut Vec<String>) {
    for (label, _) in read::strings(read::at(object, "scheduling"), "nodeSelector") {
        out.extend(deprecated(label).map(|message| format!("scheduling.nodeSelector: {message}")));
    }
}

pub(super) fn storage_class(object: &Map, _: Option<&Map>, out: &mut Vec<String>) {
    for (i, topology) in read::objects(object, "allowedTopologies") {
        for (j, expression) in read::objects(topology, "matchLabelExpressions") {
            if let Some(message) = deprecated(read::text(expression, "key")) {
                out.push(format!("allowedTopologies[{i}].matchLabelExpressions[{j}].key: {message}"));
            }
        }
    }
}

pub(super) fn csi_storage_capacity(object: &Map, _: Option<&Map>, out: &mut Vec<String>) {
    let topology = read::at(object, "nodeTopology");
    node_selector_term(topology, false, &Path::new("nodeTopology"), out);
    for (label, _) in read::strings(topology, "matchLabels") {
        out.extend(deprecated(label).map(|message| format!("nodeTopology.matchLabels.{label}: {message}")));
    }
}
