//! Nodes, the health of components, and quotas.

use std::collections::BTreeSet;

use capstan_api::{Time, Value};

use super::view::{View, cell, quantity};

/// Labels with this prefix name a role.
const ROLE_PREFIX: &str = "node-role.kubernetes.io/";
/// The value of this label is a role.
const ROLE_LABEL: &str = "kubernetes.io/role";

/// Whether a node is ready, and whether pods may go there.
pub(super) fn status(node: View<'_>, _now: Time) -> String {
    // Of conditions of the same type the last counts.
    let ready = node.items("status.conditions").rfind(|condition| condition.text("type") == "Ready");
    let ready = ready.map_or("Unknown", |ready| if ready.text("status") == "True" { "Ready" } else { "NotReady" });
    let disabled = if node.flag("spec.unschedulable") { ",SchedulingDisabled" } else { "" };
    format!("{ready}{disabled}")
}

/// The roles of a node.
pub(super) fn roles(node: View<'_>, _now: Time) -> String {
    let role = |(key, value): (&'_ str, &'_ Value)| match key.strip_prefix(ROLE_PREFIX) {
        Some(role) => role.to_owned(),
        None if key == ROLE_LABEL => value.as_str().unwrap_or("").to_owned(),
        None => String::new(),
    };
    let roles: BTreeSet<_> = node.at("metadata.labels").entries().map(role).filter(|role| !role.is_empty()).collect();
    if roles.is_empty() { "<none>".to_owned() } else { roles.into_iter().collect::<Vec<_>>().join(",") }
}

fn address(node: View<'_>, kind: &str) -> String {
    let found = node.items("status.addresses").find(|address| address.text("type") == kind);
    found.map_or("<none>", |address| address.text("address")).to_owned()
}

/// The first address inside the cluster.
pub(super) fn internal_ip(node: View<'_>, _now: Time) -> String {
    address(node, "InternalIP")
}

/// The first address outside the cluster.
pub(super) fn external_ip(node: View<'_>, _now: Time) -> String {
    address(node, "ExternalIP")
}

/// The version of the kernel, and the architecture.
pub(super) fn kernel(node: View<'_>, _now: Time) -> String {
    let version = node.text_or("status.nodeInfo.kernelVersion", "<unknown>");
    match node.text("status.nodeInfo.architecture") {
        "" => version.to_owned(),
        architecture => format!("{version} ({architecture})"),
    }
}

/// The status, message and error of a component.
pub(super) fn component_status(component: View<'_>, _now: Time) -> Vec<Value> {
    let Some(healthy) = component.condition("conditions", "Healthy") else {
        return vec![cell("Unknown"), cell(""), cell("")];
    };
    let status = if healthy.text("status") == "True" { "Healthy" } else { "Unhealthy" };
    vec![cell(status), cell(healthy.text("message")), cell(healthy.text("error"))]
}

/// What is used of a quota: requests, and limits.
pub(super) fn quota(quota: View<'_>, _now: Time) -> Vec<Value> {
    let (mut requests, mut limits) = (Vec::new(), Vec::new());
    let all_used = quota.at("status.used");
    for (resource, hard) in quota.at("status.hard").entries() {
        let column = if resource.starts_with("limits.") { &mut limits } else { &mut requests };
        column.push(format!("{resource}: {}/{}", quantity(all_used.entry(resource)), quantity(Some(hard))));
    }
    vec![cell(requests.join(", ")), cell(limits.join(", "))]
}
