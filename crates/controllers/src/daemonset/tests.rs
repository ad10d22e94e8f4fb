//! Plans, told in names of nodes and pods.

use k8s_openapi::api::{apps::v1::DaemonSet, core::v1::Node};
use serde_json::json;

use super::{nodes, plan::plan};
use crate::{
    history::REVISION_HASH,
    pod::Pod,
    pods::testing::{pod, start},
};

/// A set with a limit on nodes that may have two pods and one on nodes that may have none; `OnDelete` without.
fn set(limits: &str) -> DaemonSet {
    let number = |text: &str| text.parse::<i32>().map_or_else(|_| json!(text), |number| json!(number));
    let strategy = match limits.split_once(' ') {
        Some((surge, unavailable)) => json!({"type": "RollingUpdate", "rollingUpdate":
            {"maxSurge": number(surge), "maxUnavailable": number(unavailable)}}),
        None => json!({"type": "OnDelete"}),
    };
    let spec = json!({"selector": {}, "updateStrategy": strategy, "template": {"spec": {"containers": []}}});
    serde_json::from_value(json!({"metadata": {"name": "agent"}, "spec": spec})).unwrap()
}

/// A node: its name, and the effect of its taint if it has one.
fn node(text: &str) -> Node {
    let (name, effect) = text.split_once(' ').unwrap_or((text, ""));
    let taints = if effect.is_empty() { json!([]) } else { json!([{"key": "k", "effect": effect}]) };
    serde_json::from_value(json!({"metadata": {"name": name}, "spec": {"taints": taints}})).unwrap()
}

/// What is made and deleted. Pods with the label `new` are of the newest template.
fn acts(limits: &str, nodes: &[&str], pods: &[&str]) -> String {
    let nodes: Vec<Node> = nodes.iter().map(|text| node(text)).collect();
    let labelled = |text: &&str| {
        let mut pod = pod(text);
        let labels = capstan_api::Resource::labels_mut(&mut pod);
        labels.insert(REVISION_HASH.to_owned(), labels.get("l").cloned().unwrap_or_default());
        pod
    };
    let pods: Vec<Pod> = pods.iter().map(labelled).collect();
    let (nodes, pods): (Vec<&Node>, Vec<&Pod>) = (nodes.iter().collect(), pods.iter().collect());
    let set = set(limits);
    let plan = plan(&set, "new", &nodes, &pods, |_| true, start());
    let created = plan.create.iter().map(|node| format!("+{node}"));
    let deleted = plan.delete.iter().map(|pod| format!("-{}", pod.metadata.name.as_deref().unwrap()));
    created.chain(deleted).collect::<Vec<_>>().join(" ")
}

#[test]
fn replaces_no_more_than_may_be_unavailable() {
    let (a, b, c) = ("a1 on:a ready", "b1 on:b ready", "c1 on:c ready");
    let check = |limits: &str, pods: &[&str], expected: &str| {
        assert_eq!(acts(limits, &["a", "b", "c"], pods), expected, "{limits} {pods:?}");
    };
    check("0 1", &[a, b, c], "-a1");
    check("0 2", &[a, b, c], "-a1 -b1");
    check("0 50%", &[a, b, c], "-a1 -b1");
    check("0 0", &[a, b, c], "-a1");
    check("", &[a, b, c], "");
    // Who is broken goes first, and counts.
    check("0 1", &[a, "b1 on:b Running", c], "-b1");
    check("0 2", &[a, "b1 on:b Running", c], "-b1 -a1");
    check("0 1", &["a1 on:a", "b1 on:b", c], "-a1 -b1");
    check("0 1", &["a2 on:a label:new", b, c], "");
    check("0 1", &["a1 on:a ready deleted", b, c], "");
    check("0 2", &["a1 on:a ready deleted", b, c], "-b1");
}

#[test]
fn surges_only_where_pods_shall_be() {
    let (a, b) = ("a1 on:a ready", "b1 on:b ready");
    let check = |nodes: &[&str], pods: &[&str], expected: &str| {
        assert_eq!(acts("1 0", nodes, pods), expected, "{nodes:?} {pods:?}");
    };
    check(&["a", "b"], &[a, b], "+a");
    check(&["a", "b"], &["a1 on:a Running", b], "+a +b");
    check(&["a", "b"], &[a, "a2 on:a label:new", b], "");
    check(&["a", "b"], &[a, "a2 on:a ready label:new", b], "-a1");
    // A node where none shall be any more: who is broken goes, who works only when there are enough without it.
    check(&["a NoSchedule", "b"], &["a1 on:a Running", "b2 on:b ready label:new"], "-a1");
    check(&["a NoSchedule", "b"], &[a, "b2 on:b label:new"], "");
    check(&["a NoSchedule", "b"], &[a, "b2 on:b ready label:new"], "-a1");
    check(&["a NoSchedule", "b"], &[a, b], "+b -a1");
    // Nothing is made for a node that is gone, and others do not wait for it.
    check(&["b"], &[a, b], "+b");
    check(&["b"], &["a1 on:a Running", b], "+b");
    // Where there may be two nobody waits for the end of one.
    check(&["a"], &["a2 on:a ready deleted label:new"], "+a");
    check(&["a NoSchedule"], &["a2 on:a ready deleted label:new"], "");
    assert_eq!(acts("0 1", &["a"], &["a2 on:a ready deleted label:new"]), "");
}

#[test]
fn who_is_left_alone() {
    // Ended, deleted, and held back by somebody.
    assert_eq!(acts("0 1", &["a"], &["a1 on:a Failed deleted label:new"]), "+a");
    // For no node in particular, as somebody else made it.
    assert_eq!(acts("0 1", &["a"], &["stray label:new"]), "+a");
}

#[test]
fn tolerations_in_place_of_those_that_mean_the_same() {
    let mut spec = set("").spec.unwrap();
    let ours = |operator: &str| {
        json!({"key": "node.kubernetes.io/not-ready", "operator": operator, "effect": "NoExecute",
            "tolerationSeconds": 5})
    };
    let pod =
        |tolerations: serde_json::Value| serde_json::from_value(json!({"containers": [], "tolerations": tolerations}));
    let found = |spec: &_| {
        let made = nodes::new_pod(&DaemonSet::default(), spec, "new", "a").spec.unwrap().tolerations.unwrap();
        let about =
            made.into_iter().filter(|toleration| toleration.key.as_deref() == Some("node.kubernetes.io/not-ready"));
        about.map(|toleration| (toleration.operator.unwrap(), toleration.toleration_seconds)).collect::<Vec<_>>()
    };
    spec.template.spec = Some(pod(json!([ours("Exists"), ours("Exists")])).unwrap());
    assert_eq!(found(&spec), [("Exists".to_owned(), None), ("Exists".to_owned(), None)]);
    spec.template.spec = Some(pod(json!([ours("Equal")])).unwrap());
    assert_eq!(found(&spec), [("Equal".to_owned(), Some(5)), ("Exists".to_owned(), None)]);
}
