//! Services, endpoints and policies: mostly addresses that are not written as they should be.

use capstan_api::{
    Map, Value,
    field::Path,
    validation::{warnings_for_cidr, warnings_for_ip},
};

use crate::validation::read;

fn label<'a>(object: &'a Map, key: &str) -> &'a str {
    read::text(read::at(read::at(object, "metadata"), "labels"), key)
}

fn has_annotation(object: &Map, key: &str) -> bool {
    read::at(read::at(object, "metadata"), "annotations").contains_key(key)
}

/// Each text of a list.
fn each(list: &Map, key: &str, path: &Path<'_>, warn: fn(&Path<'_>, &str) -> Vec<String>, out: &mut Vec<String>) {
    for (i, value) in read::list(list, key).iter().enumerate() {
        out.extend(warn(&path.index(i), value.as_str().unwrap_or("")));
    }
}

pub(super) fn service(object: &Map, _: Option<&Map>, out: &mut Vec<String>) {
    const HINTS: &str = "service.kubernetes.io/topology-aware-hints";
    let spec = read::at(object, "spec");
    let text = |key| read::text(spec, key);
    let path = Path::new("spec");
    let external_ips = !read::list(spec, "externalIPs").is_empty();
    let external_name = text("type") == "ExternalName";
    let headless = text("type") == "ClusterIP" && text("clusterIP") == "None";
    if has_annotation(object, HINTS) {
        out.push(format!("annotation {HINTS} is deprecated, please use service.kubernetes.io/topology-mode instead"));
    }
    if !matches!(text("clusterIP"), "" | "None") {
        each(spec, "clusterIPs", &path.child("clusterIPs"), warnings_for_ip, out);
    }
    if headless {
        let ignored = [
            (!text("loadBalancerIP").is_empty(), "loadBalancerIP"),
            (external_ips, "externalIPs"),
            (!matches!(text("sessionAffinity"), "" | "None"), "SessionAffinity"),
        ];
        for (_, field) in ignored.iter().filter(|(set, _)| *set) {
            out.push(format!("spec.{field} is ignored for headless services"));
        }
    }
    each(spec, "externalIPs", &path.child("externalIPs"), warnings_for_ip, out);
    if external_ips && !headless && !external_name {
        out.push("spec.externalIPs is deprecated and may no longer be implemented in some clusters".to_owned());
    }
    if !text("loadBalancerIP").is_empty() {
        out.extend(warnings_for_ip(&path.child("loadBalancerIP"), text("loadBalancerIP")));
    }
    each(spec, "loadBalancerSourceRanges", &path.child("loadBalancerSourceRanges"), warnings_for_cidr, out);
    if external_name && external_ips {
        out.push("spec.externalIPs is ignored when spec.type is \"ExternalName\"".to_owned());
    }
    if !external_name && !text("externalName").is_empty() {
        out.push("spec.externalName is ignored when spec.type is not \"ExternalName\"".to_owned());
    }
    if text("trafficDistribution") == "PreferClose" {
        out.push("spec.trafficDistribution: \"PreferClose\" is deprecated; use \"PreferSameZone\"".to_owned());
    }
}

/// The status of services and ingresses.
pub(super) fn load_balancer_status(object: &Map, _: Option<&Map>, out: &mut Vec<String>) {
    let balancer = read::at(read::at(object, "status"), "loadBalancer");
    let path = Path::new("status.loadBalancer.ingress");
    for (i, ingress) in read::objects(balancer, "ingress").filter(|(_, ingress)| !read::text(ingress, "ip").is_empty())
    {
        out.extend(warnings_for_ip(&path.index(i), read::text(ingress, "ip")));
    }
}

pub(super) fn pod_status(object: &Map, _: Option<&Map>, out: &mut Vec<String>) {
    let status = read::at(object, "status");
    for (key, path) in [("podIPs", Path::new("status.podIPs")), ("hostIPs", Path::new("status.hostIPs"))] {
        for (i, item) in read::objects(status, key) {
            out.extend(warnings_for_ip(&path.index(i).child("ip"), read::text(item, "ip")));
        }
    }
}

pub(super) fn node(object: &Map, _: Option<&Map>, out: &mut Vec<String>) {
    let spec = read::at(object, "spec");
    if read::is_set(spec, "configSource") {
        out.push("spec.configSource: the feature is removed".to_owned());
    }
    if !read::text(spec, "externalID").is_empty() {
        out.push("spec.externalID: this field is deprecated, and is unused by Kubernetes".to_owned());
    }
    each(spec, "podCIDRs", &Path::new("spec.podCIDRs"), warnings_for_cidr, out);
}

pub(super) fn endpoints(object: &Map, _: Option<&Map>, out: &mut Vec<String>) {
    if label(object, "endpoints.kubernetes.io/managed-by") == "endpoint-controller" {
        return;
    }
    let path = Path::new("subsets");
    for (i, subset) in read::objects(object, "subsets") {
        for key in ["addresses", "notReadyAddresses"] {
            for (j, address) in read::objects(subset, key) {
                let (path, ip) = (path.index(i), read::text(address, "ip"));
                out.extend(warnings_for_ip(&path.child(key).index(j).child("ip"), ip));
            }
        }
    }
}

pub(super) fn endpoint_slice(object: &Map, old: Option<&Map>, out: &mut Vec<String>) {
    if old.is_none() && read::text(object, "addressType") == "FQDN" {
        out.push("spec.addressType: FQDN endpoints are deprecated".to_owned());
    }
    let manager = label(object, "endpointslice.kubernetes.io/managed-by");
    if matches!(manager, "endpointslice-controller.k8s.io" | "endpointslicemirroring-controller.k8s.io") {
        return;
    }
    let path = Path::new("endpoints");
    for (i, endpoint) in read::objects(object, "endpoints") {
        each(endpoint, "addresses", &path.index(i).child("addresses"), warnings_for_ip, out);
    }
}

pub(super) fn network_policy(object: &Map, _: Option<&Map>, out: &mut Vec<String>) {
    let (spec, path) = (read::at(object, "spec"), Path::new("spec"));
    for (direction, peers) in [("ingress", "from"), ("egress", "to")] {
        let path = path.child(direction);
        for (i, rule) in read::objects(spec, direction) {
            let path = path.index(i);
            let path = path.child(peers);
            for (j, peer) in read::objects(rule, peers) {
                let Some(block) = read::object(peer, "ipBlock") else { continue };
                let path = path.index(j);
                let path = path.child("ipBlock");
                out.extend(warnings_for_cidr(&path.child("cidr"), read::text(block, "cidr")));
                each(block, "except", &path.child("except"), warnings_for_cidr, out);
            }
        }
    }
}

pub(super) fn ingress(object: &Map, _: Option<&Map>, out: &mut Vec<String>) {
    const CLASS: &str = "kubernetes.io/ingress.class";
    if has_annotation(object, CLASS) && !read::is_set(read::at(object, "spec"), "ingressClassName") {
        out.push(format!("annotation \"{CLASS}\" is deprecated, please use 'spec.ingressClassName' instead"));
    }
}

pub(super) fn service_account(object: &Map, old: Option<&Map>, out: &mut Vec<String>) {
    const ENFORCE: &str = "kubernetes.io/enforce-mountable-secrets";
    if has_annotation(object, ENFORCE) && !old.is_some_and(|old| has_annotation(old, ENFORCE)) {
        out.push(format!(
            "metadata.annotations[{ENFORCE}]: deprecated in v1.32+; prefer separate namespaces to isolate access to \
             mounted secrets"
        ));
    }
}

pub(super) fn resource_slice(object: &Map, _: Option<&Map>, out: &mut Vec<String>) {
    let driver = read::text(read::at(object, "spec"), "driver");
    if driver.to_lowercase() != driver {
        let driver = capstan_api::go::quote(driver);
        out.push(format!("spec.driver: driver names should be lowercase; {driver} contains uppercase characters"));
    }
}

pub(super) fn resource_quota(object: &Map, old: Option<&Map>, out: &mut Vec<String>) {
    let hard = read::at(read::at(object, "spec"), "hard");
    if old.is_some() {
        return;
    }
    for name in ["cpu", "memory", "storage", "ephemeral-storage"] {
        let requests = format!("requests.{name}");
        let request = match hard.get(&requests) {
            Some(value) => Some((requests.as_str(), value)),
            None if matches!(name, "cpu" | "memory") => hard.get(name).map(|value| (name, value)),
            None => None,
        };
        let limits = format!("limits.{name}");
        let quantity = |value: &Value| read::quantity(value);
        if let Some((requests, request)) = request
            && let (Some(request), Some(limit)) = (quantity(request), hard.get(&limits).and_then(quantity))
            && request > limit
        {
            out.push(format!("ResourceQuota {requests} ({request}) should be less than {limits} ({limit})"));
        }
    }
}
