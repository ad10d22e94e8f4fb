//! Services: fields that the server had filled in go away with the type that had them.

use std::collections::BTreeSet;

use capstan_api::{Map, Value};

use super::paths;

/// Removes what only the old type had, where the client has left it as it was: what the client has changed is for
/// validation to refuse.
pub(super) fn drop_what_the_type_has_not(new: &mut Map, old: &Map) {
    let leaves = |has: fn(&Map) -> bool, new: &Map| has(old) && !has(new);
    if leaves(needs_cluster_ip, new) {
        if paths::same(new, old, "spec.clusterIP") && paths::same(new, old, "spec.clusterIPs") {
            paths::remove(new, "spec.clusterIP");
            paths::remove(new, "spec.clusterIPs");
        }
        remove_if_same(new, old, "spec.ipFamilies");
        remove_if_same(new, old, "spec.ipFamilyPolicy");
    }
    // Ports may go and change places, but none may be new.
    if leaves(is_on_nodes, new) && node_ports(new).is_subset(&node_ports(old)) {
        for port in paths::array_mut(new, "spec.ports").into_iter().flat_map(|ports| ports.iter_mut()) {
            port.as_object_mut().map(|port| port.remove("nodePort"));
        }
    }
    if leaves(needs_health_check_port, new) {
        remove_if_same(new, old, "spec.healthCheckNodePort");
    }
    if leaves(is_load_balancer, new) {
        remove_if_same(new, old, "spec.allocateLoadBalancerNodePorts");
        remove_if_same(new, old, "spec.loadBalancerClass");
    }
    if leaves(is_externally_accessible, new) {
        remove_if_same(new, old, "spec.externalTrafficPolicy");
    }
    if ty(new) == "ExternalName" {
        paths::remove(new, "spec.internalTrafficPolicy");
    }
    if !is_load_balancer(new) {
        paths::set(new, "status.loadBalancer", Map::new());
    }
}

fn remove_if_same(new: &mut Map, old: &Map, path: &str) {
    if paths::same(new, old, path) {
        paths::remove(new, path);
    }
}

fn ty(service: &Map) -> &str {
    paths::text(service, "spec.type")
}

fn needs_cluster_ip(service: &Map) -> bool {
    ty(service) != "ExternalName"
}

/// Whether its type has ports on nodes, chosen for it or not.
fn is_on_nodes(service: &Map) -> bool {
    matches!(ty(service), "NodePort" | "LoadBalancer")
}

fn needs_health_check_port(service: &Map) -> bool {
    is_load_balancer(service) && paths::text(service, "spec.externalTrafficPolicy") == "Local"
}

fn is_load_balancer(service: &Map) -> bool {
    ty(service) == "LoadBalancer"
}

fn is_externally_accessible(service: &Map) -> bool {
    let has_external_ips = !paths::items(service, "spec.externalIPs").is_empty();
    matches!(ty(service), "NodePort" | "LoadBalancer") || ty(service) == "ClusterIP" && has_external_ips
}

fn node_ports(service: &Map) -> BTreeSet<i64> {
    let port = |port: &Value| port.get("nodePort").and_then(Value::as_i64).filter(|port| *port != 0);
    paths::items(service, "spec.ports").iter().filter_map(port).collect()
}
