//! Endpoints into slices, with as few writes as possible.

use std::{cmp::Reverse, collections::BTreeMap, sync::Arc};

use k8s_openapi::api::{
    core::v1::ObjectReference,
    discovery::v1::{Endpoint, EndpointPort, EndpointSlice},
};

use crate::fnv::fnv128a;

/// What makes two endpoints the same one: addresses, hostname, and whom they stand for.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct EndpointKey {
    addresses: Vec<String>,
    hostname: Option<String>,
    target: Option<(Option<String>, Option<String>)>,
}

impl EndpointKey {
    /// The key of an endpoint.
    pub(crate) fn of(endpoint: &Endpoint) -> Self {
        let mut addresses = endpoint.addresses.clone();
        addresses.sort_unstable();
        let target = endpoint.target_ref.as_ref().map(|target| (target.namespace.clone(), target.name.clone()));
        EndpointKey { addresses, hostname: endpoint.hostname.clone(), target }
    }
}

/// Endpoints that there should be, each once.
pub(crate) type EndpointSet = BTreeMap<EndpointKey, Endpoint>;

/// Whether two endpoints with the same key say the same. Hints are looked at elsewhere.
pub(crate) fn says_the_same(one: &Endpoint, other: &Endpoint) -> bool {
    let target = |endpoint: &Endpoint| {
        endpoint.target_ref.clone().map(|target| ObjectReference { resource_version: None, ..target })
    };
    one.node_name == other.node_name
        && one.zone == other.zone
        && one.conditions.clone().unwrap_or_default() == other.conditions.clone().unwrap_or_default()
        && target(one) == target(other)
}

/// How upstream prints a port before it hashes it.
fn dump(port: &EndpointPort) -> String {
    let text = |value: &Option<String>| value.clone().unwrap_or_else(|| "<nil>".to_owned());
    format!(
        "(v1.EndpointPort){{Name:(*string){} Protocol:(*v1.Protocol){} Port:(*int32){} AppProtocol:(*string){}}}",
        text(&port.name),
        text(&port.protocol),
        port.port.map_or("<nil>".to_owned(), |port| port.to_string()),
        text(&port.app_protocol),
    )
}

/// Puts ports into the order that upstream writes them in.
pub(crate) fn sort_ports(ports: &mut [EndpointPort]) {
    ports.sort_by_cached_key(|port| fnv128a(dump(port)));
}

/// What slices must have in common for endpoints to move between them.
pub(crate) fn port_map_key(ports: &[EndpointPort]) -> String {
    let mut dumps: Vec<String> = ports.iter().map(dump).collect();
    dumps.sort_unstable();
    dumps.concat()
}

/// What is to be written.
#[derive(Debug, Default)]
pub(crate) struct Changes {
    /// Slices that are not there.
    pub(crate) create: Vec<EndpointSlice>,
    /// Slices that say something else.
    pub(crate) update: Vec<EndpointSlice>,
    /// Slices that are no longer needed.
    pub(crate) delete: Vec<Arc<EndpointSlice>>,
}

impl Changes {
    /// Adds others.
    pub(crate) fn extend(&mut self, other: Changes) {
        self.create.extend(other.create);
        self.update.extend(other.update);
        self.delete.extend(other.delete);
    }

    /// Slices that would go take over what would be in new ones: an update for two writes.
    pub(crate) fn recycle(&mut self, may: impl Fn(&EndpointSlice) -> bool) {
        let mut kept = Vec::new();
        for slice in self.delete.drain(..) {
            let fits = |new: &EndpointSlice| new.address_type == slice.address_type;
            match self.create.pop_if(|new| fits(new) && may(&slice)) {
                Some(mut new) => {
                    new.metadata.name.clone_from(&slice.metadata.name);
                    self.update.push(new);
                }
                None => kept.push(slice),
            }
        }
        self.delete = kept;
    }
}

fn endpoints(slice: &EndpointSlice) -> &[Endpoint] {
    slice.endpoints.as_deref().unwrap_or_default()
}

fn fill(slice: &mut EndpointSlice, desired: &mut EndpointSet, max: usize) {
    let endpoints = slice.endpoints.get_or_insert_default();
    while endpoints.len() < max
        && let Some((_, endpoint)) = desired.pop_first()
    {
        endpoints.push(endpoint);
    }
}

/// The slice that has the least room left once `count` endpoints are put into it, if it has room for all of them.
fn closest(slices: &[Arc<EndpointSlice>], count: usize, max: usize) -> Option<usize> {
    let room = |slice: &EndpointSlice| max.checked_sub(count + endpoints(slice).len());
    let fitting = slices.iter().enumerate().filter_map(|(index, slice)| Some((room(slice)?, index)));
    fitting.filter(|(room, _)| *room < max).min().map(|(_, index)| index)
}

/// Puts endpoints with the same ports into slices. Slices are changed in this order: those that lose something take
/// what is new; then, if all of the rest fits into one that would not change, that one does; then there are new ones.
///
/// `labels` says what the labels of a slice should be, and whether that is worth a write.
pub(crate) fn pack(
    existing: &[Arc<EndpointSlice>],
    mut desired: EndpointSet,
    max: usize,
    labels: impl Fn(&EndpointSlice) -> (BTreeMap<String, String>, bool),
    new: impl Fn() -> EndpointSlice,
) -> Changes {
    let mut changes = Changes::default();
    let mut unchanged = Vec::new();
    for slice in existing {
        let (mut kept, mut updated) = (Vec::new(), false);
        for endpoint in endpoints(slice) {
            if let Some(wanted) = desired.remove(&EndpointKey::of(endpoint)) {
                updated |= !says_the_same(&wanted, endpoint);
                kept.push(wanted);
            }
        }
        let changed = updated || kept.len() != endpoints(slice).len();
        let (labels, labels_changed) = labels(slice);
        if changed && kept.is_empty() {
            changes.delete.push(Arc::clone(slice));
        } else if changed || labels_changed {
            let mut slice = EndpointSlice::clone(slice);
            if changed {
                slice.endpoints = Some(kept);
            }
            slice.metadata.labels = Some(labels);
            changes.update.push(slice);
        } else {
            unchanged.push(Arc::clone(slice));
        }
    }

    changes.update.sort_by_key(|slice| Reverse(endpoints(slice).len()));
    changes.update.iter_mut().for_each(|slice| fill(slice, &mut desired, max));
    while !desired.is_empty() {
        let fitting = if desired.len() < max { closest(&unchanged, desired.len(), max) } else { None };
        match fitting {
            Some(index) => {
                let mut slice = EndpointSlice::clone(&unchanged.swap_remove(index));
                fill(&mut slice, &mut desired, max);
                changes.update.push(slice);
            }
            None => {
                let mut slice = new();
                fill(&mut slice, &mut desired, max);
                changes.create.push(slice);
            }
        }
    }
    changes
}
