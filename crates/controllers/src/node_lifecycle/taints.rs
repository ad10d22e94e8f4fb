//! The taints of a node.

use capstan_client::{Api, Client, Error, Patch};
use capstan_clock::Timestamp;
use k8s_openapi::{
    api::core::v1::{Node, Taint},
    apimachinery::pkg::apis::meta::v1::Time,
};
use serde_json::json;

/// How often a write that others are quicker than is tried at once.
const MAX_CONFLICTS: u32 = 5;

pub(super) const NOT_READY: &str = "node.kubernetes.io/not-ready";
pub(super) const UNREACHABLE: &str = "node.kubernetes.io/unreachable";
const UNSCHEDULABLE: &str = "node.kubernetes.io/unschedulable";

/// Conditions, the status in which each keeps pods away, and the taint that says so.
const BY_CONDITION: [(&str, &str, &str); 6] = [
    ("Ready", "False", NOT_READY),
    ("Ready", "Unknown", UNREACHABLE),
    ("MemoryPressure", "True", "node.kubernetes.io/memory-pressure"),
    ("DiskPressure", "True", "node.kubernetes.io/disk-pressure"),
    ("NetworkUnavailable", "True", "node.kubernetes.io/network-unavailable"),
    ("PIDPressure", "True", "node.kubernetes.io/pid-pressure"),
];

fn taint(key: &str, effect: &str) -> Taint {
    Taint { key: key.to_owned(), effect: effect.to_owned(), ..Taint::default() }
}

pub(super) fn no_execute(key: &str) -> Taint {
    taint(key, "NoExecute")
}

pub(super) fn of(node: &Node) -> &[Taint] {
    node.spec.as_ref().and_then(|spec| spec.taints.as_deref()).unwrap_or_default()
}

fn is_same(a: &Taint, b: &Taint) -> bool {
    a.key == b.key && a.effect == b.effect
}

pub(super) fn has(node: &Node, taint: &Taint) -> bool {
    of(node).iter().any(|own| is_same(own, taint))
}

/// The taints that keep new pods away, as the conditions of a node want them: which to add, which to remove.
pub(super) fn no_schedule(node: &Node) -> (Vec<Taint>, Vec<Taint>) {
    const EFFECT: &str = "NoSchedule";
    let conditions = node.status.iter().flat_map(|status| status.conditions.iter().flatten());
    let by_condition = |type_: &str, status: &str| BY_CONDITION.iter().find(|row| (row.0, row.1) == (type_, status));
    let wanted = conditions.filter_map(|condition| by_condition(&condition.type_, &condition.status));
    let mut wanted: Vec<_> = wanted.map(|(_, _, key)| taint(key, EFFECT)).collect();
    if node.spec.as_ref().is_some_and(|spec| spec.unschedulable == Some(true)) {
        wanted.push(taint(UNSCHEDULABLE, EFFECT));
    }
    let is_ours = |own: &&Taint| {
        own.effect == EFFECT && (own.key == UNSCHEDULABLE || BY_CONDITION.iter().any(|(_, _, key)| *key == own.key))
    };
    let add = wanted.iter().filter(|taint| !has(node, taint)).cloned().collect();
    let remove = of(node).iter().filter(is_ours).filter(|own| !wanted.iter().any(|taint| is_same(taint, own)));
    (add, remove.cloned().collect())
}

/// The taints of a node after a change, if it is one.
fn changed(node: &Node, add: &[Taint], remove: &[Taint]) -> Option<Vec<Taint>> {
    let mut taints = of(node).to_vec();
    taints.retain(|own| !remove.iter().any(|taint| is_same(taint, own)));
    for new in add {
        match taints.iter_mut().find(|own| is_same(own, new)) {
            Some(own) => own.clone_from(new),
            None => taints.push(new.clone()),
        }
    }
    (taints != of(node)).then_some(taints)
}

/// Adds and removes taints in one write, whatever others write.
pub(super) async fn swap(
    client: &Client,
    node: &Node,
    add: &[Taint],
    remove: &[Taint],
    now: Timestamp,
) -> Result<(), Error> {
    let add: Vec<_> = add.iter().map(|taint| Taint { time_added: Some(Time(now)), ..taint.clone() }).collect();
    let api = Api::<Node>::all(client);
    let name = node.metadata.name.as_deref().unwrap_or_default();
    let mut latest = node.clone();
    for _ in 1..MAX_CONFLICTS {
        let Some(taints) = changed(&latest, &add, remove) else { return Ok(()) };
        let version = &latest.metadata.resource_version;
        let patch = Patch::Merge(json!({"metadata": {"resourceVersion": version}, "spec": {"taints": taints}}));
        match api.patch(name, &patch).await {
            Err(error) if error.is_conflict() => latest = api.get(name).await?,
            Err(error) if error.is_not_found() => return Ok(()),
            other => return other.map(drop),
        }
    }
    Err(Error::Transport(format!("others have changed node {name} {MAX_CONFLICTS} times")))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn keys(taints: &[Taint]) -> String {
        let short = |taint: &Taint| taint.key.trim_start_matches("node.kubernetes.io/").to_owned();
        taints.iter().map(short).collect::<Vec<_>>().join(" ")
    }

    #[test]
    fn by_conditions() {
        fn check(conditions: &[(&str, &str)], unschedulable: bool, own: &[&str], add: &str, remove: &str) {
            let conditions: Vec<_> =
                conditions.iter().map(|(type_, status)| json!({"type": type_, "status": status})).collect();
            let own: Vec<_> = own
                .iter()
                .map(|text| {
                    let (key, effect) = text.split_once(':').unwrap_or((text, "NoSchedule"));
                    json!({"key": format!("node.kubernetes.io/{key}"), "effect": effect})
                })
                .collect();
            let node = json!({
                "metadata": {}, "spec": {"unschedulable": unschedulable, "taints": own},
                "status": {"conditions": conditions},
            });
            let (found_add, found_remove) = no_schedule(&serde_json::from_value(node).unwrap());
            assert_eq!(
                (keys(&found_add).as_str(), keys(&found_remove).as_str()),
                (add, remove),
                "{conditions:?} {own:?}"
            );
        }
        check(&[("Ready", "True"), ("DiskPressure", "False")], false, &[], "", "");
        check(&[("Ready", "False"), ("MemoryPressure", "True")], false, &[], "not-ready memory-pressure", "");
        check(&[("Ready", "Unknown")], false, &["not-ready"], "unreachable", "not-ready");
        check(&[("Ready", "Unknown")], false, &["unreachable", "not-ready:NoExecute", "other"], "", "");
        check(
            &[("NetworkUnavailable", "True"), ("PIDPressure", "True")],
            true,
            &[],
            "network-unavailable pid-pressure unschedulable",
            "",
        );
        check(&[], false, &["unschedulable", "disk-pressure"], "", "unschedulable disk-pressure");
    }

    #[test]
    fn changes() {
        let node = |taints: &[Taint]| {
            let mut node = Node::default();
            node.spec.get_or_insert_default().taints = Some(taints.to_vec());
            node
        };
        let (a, b) = ([no_execute("a")], [no_execute("b")]);
        assert_eq!(keys(&changed(&node(&a), &b, &a).unwrap()), "b");
        assert_eq!(changed(&node(&a), &[], &b), None);
        assert_eq!(changed(&node(&a), &a, &b), None);
        assert_eq!(keys(&changed(&Node::default(), &a, &[]).unwrap()), "a");
    }
}
