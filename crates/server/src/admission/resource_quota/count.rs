//! What objects other than pods and device claims use: how many there are, and a few things that cost more.

use capstan_api::{GroupResource, Map, Quantity, Str, quantity::Format};

use super::{super::resources::ResourceList, scopes::Selector};
use crate::{
    admission::resources::read,
    validation::read::{at, flag, int, is_set, objects, text},
};

pub(super) const STORAGE_CLASS_INFIX: &str = ".storageclass.storage.k8s.io/";
/// What claims use, of all storage classes together or of one.
pub(super) const CLAIM_RESOURCES: [&str; 2] = ["persistentvolumeclaims", "requests.storage"];

pub(super) fn number(count: usize) -> Quantity {
    Quantity::new(i64::try_from(count).unwrap_or(i64::MAX), Format::DecimalSI)
}

/// `count/deployments.apps`.
pub(super) fn count_name(resource: &GroupResource) -> Str {
    if resource.group.is_empty() {
        return format!("count/{}", resource.resource).into();
    }
    format!("count/{}.{}", resource.resource, resource.group).into()
}

pub(super) fn service(service: &Map) -> ResourceList {
    let spec = at(service, "spec");
    let ports = objects(spec, "ports").count();
    let assigned = || objects(spec, "ports").filter(|(_, port)| int(port, "nodePort").is_some_and(|n| n != 0)).count();
    let unallocated = || is_set(spec, "allocateLoadBalancerNodePorts") && !flag(spec, "allocateLoadBalancerNodePorts");
    let (balancers, node_ports) = match text(spec, "type") {
        "NodePort" => (0, ports),
        "LoadBalancer" if unallocated() => (1, assigned()),
        "LoadBalancer" => (1, ports),
        _ => (0, 0),
    };
    let counts = [
        ("count/services", 1),
        ("services", 1),
        ("services.loadbalancers", balancers),
        ("services.nodeports", node_ports),
    ];
    counts.into_iter().map(|(name, count)| (name.into(), number(count))).collect()
}

/// The class of a claim; the annotation was there before the field and wins.
fn storage_class(claim: &Map) -> &str {
    let annotations = at(at(claim, "metadata"), "annotations");
    let annotation = annotations.get("volume.beta.kubernetes.io/storage-class").and_then(|class| class.as_str());
    annotation.unwrap_or_else(|| text(at(claim, "spec"), "storageClassName"))
}

pub(super) fn claim(claim: &Map) -> ResourceList {
    let class = storage_class(claim);
    let mut usage = ResourceList::from([("count/persistentvolumeclaims".into(), number(1))]);
    let requested = read(at(at(claim, "spec"), "resources"), "requests").remove("storage");
    // While a volume grows, or when that has failed, the larger size counts.
    let allocated = read(at(claim, "status"), "allocatedResources").remove("storage");
    let storage = requested.map(|requested| allocated.filter(|allocated| *allocated > requested).unwrap_or(requested));
    let storage = storage.map(|mut storage| {
        storage.round_up(0);
        storage
    });
    for (name, amount) in CLAIM_RESOURCES.into_iter().zip([Some(number(1)), storage]) {
        let Some(amount) = amount else { continue };
        if !class.is_empty() {
            usage.insert(format!("{class}{STORAGE_CLASS_INFIX}{name}").into(), amount.clone());
        }
        usage.insert(name.into(), amount);
    }
    usage
}

/// Whether a claim is in a scope: only that of its volume attributes classes, past, present and to come.
pub(super) fn claim_matches(selector: &Selector<'_>, claim: &Map) -> bool {
    if selector.scope != "VolumeAttributesClass" {
        return false;
    }
    let status = at(claim, "status");
    let classes = [
        text(at(claim, "spec"), "volumeAttributesClassName"),
        text(status, "currentVolumeAttributesClassName"),
        text(at(status, "modifyVolumeStatus"), "targetVolumeAttributesClassName"),
    ];
    let mut classes = classes.into_iter().filter(|class| !class.is_empty()).peekable();
    if classes.peek().is_none() {
        return selector.admits(None);
    }
    classes.any(|class| selector.admits(Some(class)))
}
