//! Which devices a claim gets on a node: structured parameters, without I/O.
//!
//! Drivers say in ResourceSlices which devices there are; claims say what they want, by class, by expressions and by
//! rules about all devices of a claim. [`Inventory::allocate`] looks for a set of free devices that does, in a fixed
//! order, so that the same question has the same answer.

mod answer;
mod capacity;
mod pools;
mod search;
mod selector;
mod wanted;

use std::{
    collections::{BTreeMap, HashMap, HashSet},
    fmt,
    sync::Arc,
};

use capstan_api::Quantity;
use k8s_openapi::{
    api::{
        core::v1::Node,
        resource::v1::{AllocationResult, DeviceClass, ResourceClaim, ResourceSlice},
    },
    apimachinery::pkg::api::resource::Quantity as RawQuantity,
};

pub(crate) use selector::Programs;

/// How many devices a claim may get.
pub(crate) const MAX_RESULTS: usize = 32;

/// How many alternatives a request may have; the first is worth the most when nodes are ranked.
pub(crate) const MAX_ALTERNATIVES: i64 = 8;

/// A device, wherever it is.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub(crate) struct DeviceId {
    pub(crate) driver: String,
    pub(crate) pool: String,
    pub(crate) device: String,
}

impl fmt::Display for DeviceId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}/{}/{}", self.driver, self.pool, self.device)
    }
}

/// Amounts by name.
pub(crate) type Amounts = BTreeMap<String, Quantity>;

/// The devices that claims have already.
#[derive(Clone, Debug, Default)]
pub(crate) struct Taken {
    /// Those that one claim has for itself.
    whole: HashSet<DeviceId>,
    /// Those that several may share, with what is taken of them.
    shared: HashMap<DeviceId, Amounts>,
}

impl Taken {
    /// Counts the devices of a claim. Those for administrators are in nobody's way.
    pub(crate) fn add(&mut self, allocation: &AllocationResult) {
        let results = allocation.devices.iter().flat_map(|devices| devices.results.iter().flatten());
        for result in results.filter(|result| result.admin_access != Some(true)) {
            let id =
                DeviceId { driver: result.driver.clone(), pool: result.pool.clone(), device: result.device.clone() };
            if result.share_id.is_none() {
                self.whole.insert(id);
                continue;
            }
            let amounts = self.shared.entry(id).or_default();
            for (name, amount) in result.consumed_capacity.iter().flatten() {
                capacity::add(amounts, name, &quantity(amount));
            }
        }
    }

    fn is_taken(&self, id: &DeviceId) -> bool {
        self.whole.contains(id) || self.shared.contains_key(id)
    }
}

/// Why it cannot be said whether there are devices.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum AllocateError {
    /// Something is wrong with the claim, its class or the devices: other nodes will not help.
    Failed(String),
    /// Something is wrong with what this node has.
    Node(&'static str),
    /// The search was given up.
    TooLong,
}

/// What there is, and what is taken of it.
#[derive(Debug)]
pub(crate) struct Inventory {
    /// What drivers have, ordered by name.
    pub(crate) slices: Vec<Arc<ResourceSlice>>,
    /// The classes that claims speak of.
    pub(crate) classes: HashMap<String, Arc<DeviceClass>>,
    /// What is taken.
    pub(crate) taken: Taken,
    /// Expressions that were read before.
    pub(crate) programs: Arc<Programs>,
}

impl Inventory {
    /// What each of the claims gets on a node, or nothing when not all of them get what they want.
    ///
    /// # Errors
    /// Says why that cannot be told.
    pub(crate) fn allocate(
        &self,
        node: &Node,
        claims: &[&ResourceClaim],
    ) -> Result<Option<Vec<AllocationResult>>, AllocateError> {
        let pools = pools::gather(&self.slices, node);
        let wanted = wanted::Reader { inventory: self, pools: &pools, node }.claims(claims)?;
        let mut search = search::Search::new(self, &pools, node, wanted);
        if search.run()? {
            return search.answer(node).map(Some);
        }
        match pools.iter().any(pools::Pool::is_invalid) {
            true => Err(AllocateError::Node("invalid resource pools were encountered")),
            false => Ok(None),
        }
    }
}

/// What cannot be read counts as nothing; the server has checked it.
pub(crate) fn quantity(raw: &RawQuantity) -> Quantity {
    raw.0.parse().unwrap_or_default()
}

/// How claims are called in messages.
pub(crate) fn full_name(claim: &ResourceClaim) -> String {
    let part = |part: &Option<String>| part.clone().unwrap_or_default();
    format!("{}/{}", part(&claim.metadata.namespace), part(&claim.metadata.name))
}
