//! Topology-aware hints: endpoints are handed to zones in proportion to the CPUs of their nodes.

use std::{
    collections::{BTreeMap, BTreeSet},
    sync::Arc,
};

use capstan_api::Quantity;
use capstan_client::Key;
use k8s_openapi::api::{
    core::v1::Node,
    discovery::v1::{Endpoint, EndpointHints, EndpointSlice, ForZone},
};

use super::{
    plan::{Said, SliceInfo},
    traffic::{has_hints, is_ready, remove_hints},
};

/// The label with a node's zone.
pub(crate) const ZONE: &str = "topology.kubernetes.io/zone";
/// How much more than its share an endpoint may have to bear.
const OVERLOAD_THRESHOLD: f64 = 0.2;

/// How many endpoints each zone was given.
type Zones = BTreeMap<String, usize>;
/// The part of all CPUs that a zone has.
pub(crate) type Ratios = BTreeMap<String, f64>;

#[derive(Debug)]
struct Allocation {
    minimum: usize,
    maximum: usize,
    desired: f64,
}

/// Whether a node says that it is ready.
pub(crate) fn is_node_ready(node: &Node) -> bool {
    let conditions = node.status.as_ref().and_then(|status| status.conditions.as_ref());
    let ready = conditions.into_iter().flatten().find(|condition| condition.type_ == "Ready");
    ready.is_some_and(|condition| condition.status == "True")
}

/// The zone of a node, if it has one.
pub(crate) fn zone(node: &Node) -> Option<&str> {
    node.metadata.labels.as_ref()?.get(ZONE).map(String::as_str).filter(|zone| !zone.is_empty())
}

/// The part of all CPUs that each zone has. Nothing when it is not known of all nodes, or there is one zone only.
pub(crate) fn ratios(nodes: &[Arc<Node>]) -> Option<Ratios> {
    const EXCLUDED: [&str; 2] = ["node-role.kubernetes.io/control-plane", "node-role.kubernetes.io/master"];
    let mut by_zone: BTreeMap<String, i64> = BTreeMap::new();
    let labelled =
        |node: &Node, label: &str| node.metadata.labels.as_ref().is_some_and(|labels| labels.contains_key(label));
    for node in nodes.iter().filter(|node| !EXCLUDED.iter().any(|label| labelled(node, label)) && is_node_ready(node)) {
        let cpu = node.status.as_ref()?.allocatable.as_ref()?.get("cpu")?.0.parse::<Quantity>().ok()?.milli_value();
        if cpu == 0 {
            return None;
        }
        *by_zone.entry(zone(node)?.to_owned()).or_default() += cpu;
    }
    let total: i64 = by_zone.values().sum();
    let share = |(zone, cpu): (String, i64)| (zone, cpu as f64 / total as f64);
    (by_zone.len() > 1 && total > 0).then(|| by_zone.into_iter().map(share).collect())
}

/// What was given to which zone, by service.
#[derive(Debug, Default)]
pub(crate) struct TopologyCache {
    zones: BTreeMap<Key, BTreeMap<String, Zones>>,
    populated: BTreeSet<Key>,
}

impl TopologyCache {
    /// The services that need another look because a zone has too few endpoints for its CPUs.
    pub(crate) fn overloaded(&self, ratios: Option<&Ratios>) -> Vec<Key> {
        let some = |by_type: &BTreeMap<String, Zones>| by_type.values().any(|zones| is_overloaded(zones, ratios));
        self.zones.iter().filter(|(_, by_type)| some(by_type)).map(|(key, _)| key.clone()).collect()
    }

    /// Whether a service has hints.
    pub(crate) fn has_hints(&self, key: &Key) -> bool {
        self.populated.contains(key)
    }

    /// A service has no hints for this type of addresses.
    pub(crate) fn remove(&mut self, key: &Key, address_type: &str) {
        if let Some(by_type) = self.zones.get_mut(key) {
            by_type.remove(address_type);
            if by_type.is_empty() {
                self.zones.remove(key);
            }
        }
        self.populated.remove(key);
    }

    /// A service is gone.
    pub(crate) fn forget(&mut self, key: &Key) {
        self.zones.remove(key);
        self.populated.remove(key);
    }

    /// Gives hints to the slices of a service, or takes them away when that cannot be done fairly.
    pub(crate) fn add_hints(&mut self, info: &mut SliceInfo<'_>, ratios: Option<&Ratios>, events: &mut Vec<Said>) {
        match allocate(info, ratios) {
            Ok(zones) => {
                let by_type = self.zones.entry(info.key.clone()).or_default();
                by_type.insert(info.address_type.to_owned(), zones);
                if self.populated.insert(info.key.clone()) {
                    let message = said("Topology Aware Hints has been enabled", info);
                    events.push(Said { type_: "Normal", reason: "TopologyAwareHintsEnabled", message });
                }
            }
            Err(why) => {
                let message = said(&why, info);
                events.push(Said { type_: "Warning", reason: "TopologyAwareHintsDisabled", message });
                self.remove(info.key, info.address_type);
                remove_from(info);
            }
        }
    }
}

/// A message about addresses of one type.
pub(crate) fn said(message: &str, info: &SliceInfo<'_>) -> String {
    format!("{message}, addressType: {}", info.address_type)
}

/// Takes the hints from all slices of a service.
pub(crate) fn remove_from(info: &mut SliceInfo<'_>) {
    info.create.iter_mut().chain(info.update.iter_mut()).for_each(remove_hints);
    let (changed, unchanged): (Vec<_>, Vec<_>) = info.unchanged.drain(..).partition(|slice| has_hints(slice));
    info.unchanged = unchanged;
    info.update.extend(changed.into_iter().map(|slice| {
        let mut slice = EndpointSlice::clone(&slice);
        remove_hints(&mut slice);
        slice
    }));
}

fn ready(slice: &EndpointSlice) -> impl Iterator<Item = &Endpoint> {
    slice.endpoints.iter().flatten().filter(|endpoint| is_ready(endpoint))
}

fn allocations(ratios: Option<&Ratios>, count: usize) -> Result<BTreeMap<String, Allocation>, String> {
    let Some(ratios) = ratios else {
        return Err("Insufficient Node information: allocatable CPU or zone not specified on one or more nodes".into());
    };
    let counted = |why: &str| format!("{why} ({count} endpoints, {} zones)", ratios.len());
    if ratios.len() > count {
        return Err(counted("Insufficient number of endpoints"));
    }
    let mut total = 0;
    let mut allocations = BTreeMap::new();
    for (zone, ratio) in ratios {
        let desired = ratio * count as f64;
        let minimum = (desired * (1.0 / (1.0 + OVERLOAD_THRESHOLD))).ceil() as usize;
        total += minimum;
        if total > count {
            return Err(counted(
                "Unable to allocate minimum required endpoints to each zone without exceeding overload threshold",
            ));
        }
        allocations.insert(zone.clone(), Allocation { minimum, maximum: 0, desired: desired.max(minimum as f64) });
    }
    for allocation in allocations.values_mut() {
        allocation.maximum = allocation.minimum + count - total;
    }
    Ok(allocations)
}

/// The hints that a slice has, by zone. Nothing when they cannot stay as they are.
fn hints_by_zone(slice: &EndpointSlice, given: &Zones, allocations: &BTreeMap<String, Allocation>) -> Option<Zones> {
    let mut found = Zones::new();
    for endpoint in ready(slice) {
        let zones = endpoint.hints.as_ref()?.for_zones.as_ref().filter(|zones| !zones.is_empty())?;
        for zone in zones {
            allocations.get(&zone.name)?;
            *found.entry(zone.name.clone()).or_default() += 1;
        }
    }
    let fits = |(zone, count): (&String, &usize)| {
        count + given.get(zone).copied().unwrap_or_default() <= allocations[zone].maximum
    };
    found.iter().all(fits).then_some(found)
}

fn allocate(info: &mut SliceInfo<'_>, ratios: Option<&Ratios>) -> Result<Zones, String> {
    let changing = info.create.iter().chain(info.update.iter());
    let count = changing.chain(info.unchanged.iter().map(|slice| &**slice)).map(|slice| ready(slice).count()).sum();
    let allocations = allocations(ratios, count)?;

    let mut given = Zones::new();
    for slice in std::mem::take(&mut info.unchanged) {
        match hints_by_zone(&slice, &given, &allocations) {
            None => info.update.push(EndpointSlice::clone(&slice)),
            Some(zones) => {
                zones.into_iter().for_each(|(zone, count)| *given.entry(zone).or_default() += count);
                info.unchanged.push(slice);
            }
        }
    }
    for endpoint in info.create.iter_mut().chain(info.update.iter_mut()).flat_map(|slice| slice.endpoints.iter_mut()) {
        for endpoint in endpoint.iter_mut().filter(|endpoint| is_ready(endpoint)) {
            let zone = endpoint.zone.clone().filter(|zone| !zone.is_empty());
            let zone = zone.ok_or("One or more endpoints do not have a zone specified")?;
            *given.entry(zone.clone()).or_default() += 1;
            endpoint.hints = hint(&zone);
        }
    }
    let (giving, receiving) = giving_and_receiving(&allocations, &given);
    let slices = info.create.iter_mut().chain(info.update.iter_mut());
    redistribute(slices, giving, receiving, &mut given);
    if given.is_empty() { Err("No hints allocated for zones".to_owned()) } else { Ok(given) }
}

fn hint(zone: &str) -> Option<EndpointHints> {
    Some(EndpointHints { for_zones: Some(vec![ForZone { name: zone.to_owned() }]), for_nodes: None })
}

fn redistribute<'a>(
    slices: impl Iterator<Item = &'a mut EndpointSlice>,
    mut giving: Zones,
    mut receiving: Zones,
    given: &mut Zones,
) {
    let take = |zones: &mut Zones, zone: &str| {
        if let Some(count) = zones.get_mut(zone) {
            *count -= 1;
            if *count == 0 {
                zones.remove(zone);
            }
        }
    };
    let endpoints = slices.flat_map(|slice| slice.endpoints.iter_mut().flatten());
    for endpoint in endpoints.filter(|endpoint| is_ready(endpoint)) {
        let Some(from) = endpoint.zone.clone().filter(|zone| giving.contains_key(zone)) else { continue };
        let Some(to) = receiving.keys().next().cloned() else { return };
        endpoint.hints = hint(&to);
        take(&mut giving, &from);
        take(&mut receiving, &to);
        take(given, &from);
        *given.entry(to).or_default() += 1;
    }
}

/// How many endpoints zones with too many give, and those with too few get.
fn giving_and_receiving(allocations: &BTreeMap<String, Allocation>, given: &Zones) -> (Zones, Zones) {
    let (mut too_many, mut too_few) = (BTreeMap::new(), BTreeMap::new());
    for (zone, allocation) in allocations {
        let more = given.get(zone).copied().unwrap_or_default() as f64 - allocation.desired;
        if more > 0.0 {
            too_many.insert(zone.clone(), more);
        } else if more < 0.0 {
            too_few.insert(zone.clone(), -more);
        }
    }
    let most = |zones: &BTreeMap<String, f64>| {
        let greater = |best: Option<(String, f64)>, (zone, &number): (&String, &f64)| match best {
            Some((_, most)) if most >= number => best,
            _ if number > 0.0 => Some((zone.clone(), number)),
            _ => best,
        };
        zones.iter().fold(None, greater)
    };
    let (mut giving, mut receiving) = (Zones::new(), Zones::new());
    while let (Some((from, give)), Some((to, receive))) = (most(&too_many), most(&too_few)) {
        if (give < 1.0 && receive < 1.0) || give < 0.5 || receive < 0.5 {
            break;
        }
        too_many.insert(from.clone(), give - 1.0);
        too_few.insert(to.clone(), receive - 1.0);
        *giving.entry(from).or_default() += 1;
        *receiving.entry(to).or_default() += 1;
    }
    (giving, receiving)
}

fn is_overloaded(zones: &Zones, ratios: Option<&Ratios>) -> bool {
    let Some(ratios) = ratios else { return !zones.is_empty() };
    let total = zones.values().sum::<usize>() as f64;
    !zones.is_empty()
        && ratios.iter().any(|(zone, ratio)| {
            let minimum = (total * ratio * (1.0 / (1.0 + OVERLOAD_THRESHOLD))).ceil() as usize;
            zones.get(zone).is_none_or(|&count| count < minimum)
        })
}
