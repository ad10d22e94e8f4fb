//! The pools of devices that a node can reach.

use std::{
    collections::{BTreeMap, BTreeSet},
    sync::Arc,
};

use k8s_openapi::api::{
    core::v1::{Node, NodeSelector},
    resource::v1::{Device, ResourceSlice},
};

use super::{Amounts, quantity};
use crate::selectors::NodeTerms;

/// Counters that devices of a pool share, by set and name.
pub(super) type Counters = BTreeMap<String, Amounts>;

/// Devices that belong together.
#[derive(Debug, Default)]
pub(super) struct Pool {
    pub(super) driver: String,
    pub(super) name: String,
    pub(super) state: State,
    /// The slices with devices that the node may reach, by name.
    pub(super) slices: Vec<Arc<ResourceSlice>>,
    /// The others: their devices may have taken from the counters.
    pub(super) elsewhere: Vec<Arc<ResourceSlice>>,
    pub(super) counters: Counters,
}

/// Whether a pool can be used.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) enum State {
    #[default]
    Usable,
    /// The driver has not written all of it yet.
    Incomplete,
    /// The driver contradicts itself.
    Invalid,
}

impl Pool {
    pub(super) fn is_invalid(&self) -> bool {
        self.state == State::Invalid
    }

    /// How it is called in messages.
    pub(super) fn id(&self) -> String {
        format!("{}/{}", self.driver, self.name)
    }

    fn has_binding_conditions(&self) -> bool {
        let mut all = self.slices.iter().flat_map(|slice| devices(slice));
        all.any(|device| device.binding_conditions.is_some())
    }
}

/// The devices of a slice.
pub(super) fn devices(slice: &ResourceSlice) -> &[Device] {
    slice.spec.devices.as_deref().unwrap_or_default()
}

/// Whether a node is one of those that devices can be reached from.
pub(super) fn reaches(node: &Node, name: Option<&str>, all: Option<bool>, selector: Option<&NodeSelector>) -> bool {
    match name.filter(|name| !name.is_empty()) {
        Some(name) => node.metadata.name.as_deref() == Some(name),
        None => all == Some(true) || selector.is_some_and(|selector| NodeTerms::new(selector).matches_node(node)),
    }
}

/// Whether a device can be reached from a node, where its slice leaves that to the devices.
pub(super) fn reaches_device(node: &Node, device: &Device) -> bool {
    reaches(node, device.node_name.as_deref(), device.all_nodes, device.node_selector.as_ref())
}

fn has_counters(slice: &ResourceSlice) -> bool {
    slice.spec.shared_counters.as_ref().is_some_and(|counters| !counters.is_empty())
}

fn is_relevant(slice: &ResourceSlice, node: &Node) -> bool {
    let spec = &slice.spec;
    has_counters(slice)
        || reaches(node, spec.node_name.as_deref(), spec.all_nodes, spec.node_selector.as_ref())
        || (spec.per_device_node_selection == Some(true)
            && devices(slice).iter().any(|device| reaches_device(node, device)))
}

/// The pools that a node can reach, by driver and name; those with devices that take long to be bound come last.
pub(super) fn gather(slices: &[Arc<ResourceSlice>], node: &Node) -> Vec<Pool> {
    let mut found: BTreeMap<(&str, &str), Vec<&Arc<ResourceSlice>>> = BTreeMap::new();
    for slice in slices.iter().filter(|slice| is_relevant(slice, node)) {
        let pool = found.entry((&slice.spec.driver, &slice.spec.pool.name)).or_default();
        let newest = pool.first().map_or(i64::MIN, |first| first.spec.pool.generation);
        // What is older is on its way out.
        if slice.spec.pool.generation > newest {
            pool.clear();
        }
        if slice.spec.pool.generation >= newest {
            pool.push(slice);
        }
    }
    let pools = found.into_iter().filter_map(|((driver, name), here)| {
        let pool = Pool { driver: driver.to_owned(), name: name.to_owned(), ..Pool::default() };
        build(pool, &here, slices)
    });
    let (last, mut pools): (Vec<_>, Vec<_>) = pools.partition(Pool::has_binding_conditions);
    pools.extend(last);
    pools
}

/// Nothing when the driver has begun to replace the pool elsewhere.
fn build(mut pool: Pool, here: &[&Arc<ResourceSlice>], slices: &[Arc<ResourceSlice>]) -> Option<Pool> {
    let of_pool = &here.first()?.spec.pool;
    let all: Vec<_> =
        slices.iter().filter(|slice| slice.spec.driver == pool.driver && slice.spec.pool.name == pool.name).collect();
    let complete = |count: usize| i64::try_from(count) == Ok(of_pool.resource_slice_count);
    let mut elsewhere = Vec::new();
    if !complete(here.len()) {
        if all.iter().any(|slice| slice.spec.pool.generation > of_pool.generation) {
            return None;
        }
        let current = all.iter().filter(|slice| slice.spec.pool.generation == of_pool.generation);
        if !complete(current.clone().count()) {
            pool.state = State::Incomplete;
            return Some(pool);
        }
        elsewhere = current.filter(|slice| !here.iter().any(|known| Arc::ptr_eq(known, slice))).collect();
    }
    pool.slices = here.iter().filter(|slice| !has_counters(slice)).map(|slice| Arc::clone(slice)).collect();
    pool.elsewhere = elsewhere.into_iter().map(|slice| Arc::clone(slice)).collect();
    if !names_are_unique(&pool) || !read_counters(&mut pool, here) || !counters_are_known(&pool) {
        return Some(Pool { state: State::Invalid, slices: Vec::new(), elsewhere: Vec::new(), ..pool });
    }
    Some(pool)
}

fn names_are_unique(pool: &Pool) -> bool {
    let mut seen = BTreeSet::new();
    pool.slices.iter().flat_map(|slice| devices(slice)).all(|device| seen.insert(&device.name))
}

fn read_counters(pool: &mut Pool, slices: &[&Arc<ResourceSlice>]) -> bool {
    for set in slices.iter().flat_map(|slice| slice.spec.shared_counters.iter().flatten()) {
        let counters = set.counters.iter().map(|(name, counter)| (name.clone(), quantity(&counter.value))).collect();
        if pool.counters.insert(set.name.clone(), counters).is_some() {
            return false;
        }
    }
    true
}

fn counters_are_known(pool: &Pool) -> bool {
    let all = pool.slices.iter().chain(&pool.elsewhere).flat_map(|slice| devices(slice));
    all.flat_map(|device| device.consumes_counters.iter().flatten()).all(|consumed| {
        let set = pool.counters.get(&consumed.counter_set);
        set.is_some_and(|set| consumed.counters.keys().all(|name| set.contains_key(name)))
    })
}
