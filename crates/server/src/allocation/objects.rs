//! The objects that stand for addresses and ranges.

use std::net::IpAddr;

use capstan_api::{Map, Str, Value};

use super::{Family, ServiceCidr};

/// The ServiceCIDR that the server's own flag makes.
pub const DEFAULT_SERVICE_CIDR: &str = "kubernetes";
/// Says which family an IPAddress is of.
pub const LABEL_IP_FAMILY: &str = "ipaddress.kubernetes.io/ip-family";
/// Says who looks after an IPAddress.
pub const LABEL_MANAGED_BY: &str = "ipaddress.kubernetes.io/managed-by";
/// The one who looks after those of services.
pub const MANAGER: &str = "ipallocator.k8s.io";

fn map<V: Into<Value>, const N: usize>(entries: [(&str, V); N]) -> Map {
    entries.into_iter().map(|(key, value)| (Str::from(key), value.into())).collect()
}

fn object(kind: &str, metadata: Map, spec: Map) -> Map {
    let mut object = map([("apiVersion", "networking.k8s.io/v1"), ("kind", kind)]);
    object.insert("metadata", metadata);
    object.insert("spec", spec);
    object
}

/// The IPAddress of a service's address; `owner` is the service's `namespace/name`.
pub(super) fn ip_address(ip: IpAddr, owner: &str) -> Map {
    let mut metadata = map([("name", ip.to_string())]);
    metadata.insert("labels", map([(LABEL_IP_FAMILY, Family::of(ip).as_str()), (LABEL_MANAGED_BY, MANAGER)]));
    let (namespace, name) = owner.split_once('/').unwrap_or(("", owner));
    let parent = map([("resource", "services"), ("namespace", namespace), ("name", name)]);
    object("IPAddress", metadata, map([("parentRef", parent)]))
}

/// The owner that an IPAddress names.
pub(super) fn parent(ip_address: &Map) -> Option<String> {
    let parent = ip_address.get("spec")?.get("parentRef")?;
    let text = |key| parent.get(key).and_then(Value::as_str).unwrap_or_default();
    Some(match (text("group"), text("resource")) {
        ("", "services") => format!("{}/{}", text("namespace"), text("name")),
        // Nobody's service: it is never given back to one.
        (group, resource) => format!("{group}/{resource}/{}/{}", text("namespace"), text("name")),
    })
}

/// The ServiceCIDR of the server's own ranges, created at start if it is missing.
#[must_use]
pub fn default_service_cidr(ranges: &[ServiceCidr]) -> Map {
    let cidrs: Vec<Value> = ranges.iter().map(|range| range.to_string().into()).collect();
    object("ServiceCIDR", map([("name", DEFAULT_SERVICE_CIDR)]), map([("cidrs", cidrs)]))
}

/// The condition that the server gives its own ServiceCIDR.
#[must_use]
pub fn ready_condition(now: capstan_api::Time) -> Map {
    let mut condition = map([("type", "Ready"), ("status", "True"), ("reason", ""), ("message", "")]);
    condition.insert("message", "Kubernetes default Service CIDR is ready");
    condition.insert("lastTransitionTime", now.to_string());
    condition
}
