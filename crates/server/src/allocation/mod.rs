//! Addresses and node ports of Services: who has which, and which are free.
//!
//! No I/O: an [`Allocator`] is filled from the stored objects once ([`Allocator::repair`]), is told what other servers
//! write ([`Allocator::service`], [`Allocator::ip_address`], [`Allocator::service_cidr`]), and hands out an
//! [`Allocation`] for each write, which says what belongs into the same commit. A range is a [`ServiceCidr`]; its lower
//! part is left to clients who choose their addresses, as is the lower part of the ports.
//!
//! A write goes: defaults, mutating admission, [`Allocator::allocate`], the registry's preparation, validation, commit,
//! [`Allocation::commit`].

mod families;
mod fields;
mod normalize;
mod objects;
mod pool;
mod range;
#[cfg(test)]
mod tests;
mod transaction;
mod validate;

use std::{
    collections::{BTreeMap, BTreeSet},
    fmt,
    net::IpAddr,
    ops::RangeInclusive,
    sync::{Arc, Mutex, MutexGuard, PoisonError},
};

use capstan_api::{Map, Status, Value};
use capstan_clock::SharedIds;
use families::Stack;
pub use fields::Family;
use fields::Fields;
pub use objects::{
    DEFAULT_SERVICE_CIDR, LABEL_IP_FAMILY, LABEL_MANAGED_BY, MANAGER, default_service_cidr, ready_condition,
};
use pool::{Cidrs, Pool};
pub use range::{InvalidCidr, ServiceCidr};
use transaction::{Changes, Transaction};
pub use validate::{validate_allocated, validate_allocated_update};

/// The ports that are used where nothing else is said.
pub const DEFAULT_NODE_PORTS: RangeInclusive<u16> = 30_000..=32_767;

/// What addresses and ports there are to give.
#[derive(Clone, Debug)]
pub struct Config {
    /// The range of the first family, which services have by default.
    pub primary: ServiceCidr,
    /// The range of the other family, in a cluster that has two.
    pub secondary: Option<ServiceCidr>,
    /// The ports on nodes.
    pub node_ports: RangeInclusive<u16>,
}

/// Gives addresses and ports to Services.
///
/// Can be shared and cloned; clones have the same pool. A call holds a lock while it computes and never waits for
/// anything else. What an [`Allocation`] has taken is taken for everybody until it is dropped without
/// [`commit`](Allocation::commit).
#[derive(Clone)]
pub struct Allocator {
    pool: Arc<Mutex<Pool>>,
    ids: SharedIds,
    stack: Stack,
}

impl fmt::Debug for Allocator {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Allocator").field("stack", &self.stack).finish_non_exhaustive()
    }
}

/// What has to be stored beside a Service, and a claim on it until then.
///
/// Dropped, it gives back what it has taken.
#[derive(Debug)]
#[must_use = "what it holds is given back when it is dropped"]
pub struct Allocation {
    pool: Arc<Mutex<Pool>>,
    changes: Changes,
}

/// What the stored objects lack of agreeing with each other.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Repair {
    /// IPAddresses to create: services have the address.
    pub create: Vec<Map>,
    /// Names of IPAddresses to delete: no service has the address.
    pub delete: Vec<String>,
    /// Addresses and ports that more than one service has, each with the services.
    pub conflicts: Vec<(String, String, String)>,
}

fn lock(pool: &Mutex<Pool>) -> MutexGuard<'_, Pool> {
    // No step leaves the pool half changed, so one that panicked has not broken it.
    pool.lock().unwrap_or_else(PoisonError::into_inner)
}

impl Allocator {
    /// With nothing taken yet.
    #[must_use]
    pub fn new(config: &Config, ids: SharedIds) -> Self {
        let ranges = [Some(config.primary), config.secondary].into_iter().flatten().collect();
        let cidrs = BTreeMap::from([(DEFAULT_SERVICE_CIDR.to_owned(), Cidrs { ranges, ready: true })]);
        let port_range = config.node_ports.clone();
        let pool = Pool { cidrs, ips: BTreeMap::new(), ports: BTreeMap::new(), port_range };
        let stack = Stack { primary: config.primary.family(), dual: config.secondary.is_some() };
        Allocator { pool: Arc::new(Mutex::new(pool)), ids, stack }
    }

    /// Fills in the addresses, families and ports of a Service that is created, or that replaces `old`, and claims them.
    ///
    /// A dry run fills in the same and claims nothing.
    ///
    /// # Errors
    ///
    /// With what the client is told.
    pub fn allocate(&self, new: &mut Map, old: Option<&Map>, dry_run: bool) -> Result<Allocation, Box<Status>> {
        let old = old.map(|old| {
            let mut old = Fields::read(old);
            normalize::default_on_read(&mut old, self.stack.primary);
            old
        });
        let mut service = Fields::read(new);
        if let Some(old) = &old {
            normalize::keep_allocated(&mut service, old);
        }
        normalize::cluster_ips(&mut service, old.as_ref());

        let owner = Arc::from(old.as_ref().unwrap_or(&service).owner());
        let mut changes = Changes { owner: Some(Arc::clone(&owner)), ..Changes::default() };
        let mut pool = lock(&self.pool);
        let ids = &*self.ids;
        let mut transaction = Transaction {
            pool: &mut pool,
            ids,
            stack: self.stack,
            changes: &mut changes,
            owner,
            dry_run,
            made_up: Vec::new(),
        };
        let outcome = transaction.run(&mut service, old.as_ref());
        if dry_run || outcome.is_err() {
            changes.undo(&mut pool);
        }
        drop(pool);
        outcome?;
        service.write(new);
        if dry_run {
            changes = Changes::default();
        }
        Ok(Allocation { pool: Arc::clone(&self.pool), changes })
    }

    /// What goes with a Service that is deleted. Nothing is free again before that is committed.
    pub fn release(&self, service: &Map) -> Allocation {
        let mut service = Fields::read(service);
        normalize::default_on_read(&mut service, self.stack.primary);
        Allocation { pool: Arc::clone(&self.pool), changes: transaction::release(&service) }
    }

    /// Fills in what a Service lacks that was stored before there were families, for those who read it.
    pub fn default_on_read(&self, service: &mut Map) {
        let before = Fields::read(service);
        let mut fields = before.clone();
        normalize::default_on_read(&mut fields, self.stack.primary);
        if fields != before {
            fields.write(service);
        }
        if !fields.needs_cluster_ip() {
            service.get_mut("spec").and_then(Value::as_object_mut).map(|spec| spec.remove("internalTrafficPolicy"));
        }
    }

    /// A ServiceCIDR is now like this, or gone.
    pub fn service_cidr(&self, name: &str, object: Option<&Map>) {
        let mut pool = lock(&self.pool);
        let Some(object) = object else {
            pool.cidrs.remove(name);
            return;
        };
        let spec = object.get("spec");
        let cidrs = spec.and_then(|spec| spec.get("cidrs")).and_then(Value::as_array).map_or(&[][..], |list| list);
        let ranges = cidrs.iter().filter_map(|cidr| cidr.as_str()?.parse().ok()).collect();
        pool.cidrs.insert(name.to_owned(), Cidrs { ranges, ready: is_ready(object) });
    }

    /// An IPAddress is now like this, or gone; `old` is what it was.
    pub fn ip_address(&self, name: &str, new: Option<&Map>, old: Option<&Map>) {
        let Ok(ip) = name.parse::<IpAddr>() else { return };
        let mut pool = lock(&self.pool);
        if let Some(owner) = old.and_then(objects::parent) {
            pool.give_back_ip(ip, &owner);
        }
        if let Some(new) = new {
            let owner = objects::parent(new).unwrap_or_default();
            pool.ips.entry(ip).or_insert_with(|| owner.into());
        }
    }

    /// A Service is now like this, or gone; `old` is what it was. What another service has by now stays with it.
    pub fn service(&self, new: Option<&Map>, old: Option<&Map>) {
        let ports = |service: Option<&Map>| {
            let service = service.map(Fields::read);
            let ports: BTreeSet<u16> =
                service.iter().flat_map(Fields::all_node_ports).filter_map(|port| u16::try_from(port).ok()).collect();
            (ports, service.map(|service| service.owner()))
        };
        let ((new, owner), (old, old_owner)) = (ports(new), ports(old));
        let mut pool = lock(&self.pool);
        for port in old.difference(&new) {
            pool.give_back_port(*port, old_owner.as_deref().unwrap_or_default());
        }
        let Some(owner) = owner.or(old_owner).map(Arc::<str>::from) else { return };
        for port in new {
            pool.ports.entry(port).or_insert_with(|| Arc::clone(&owner));
        }
    }

    /// Forgets all that is taken and takes it again from what is stored: at start, and whenever in doubt.
    pub fn repair<'a>(
        &self,
        services: impl IntoIterator<Item = &'a Map>,
        ip_addresses: impl IntoIterator<Item = &'a Map>,
    ) -> Repair {
        let mut repair = Repair::default();
        let (mut ips, mut ports) = (BTreeMap::<IpAddr, pool::Owner>::new(), BTreeMap::<u16, pool::Owner>::new());
        for service in services {
            let mut service = Fields::read(service);
            normalize::default_on_read(&mut service, self.stack.primary);
            let owner: pool::Owner = service.owner().into();
            let mut conflict = |what: String, have: &pool::Owner| {
                if *have != owner {
                    repair.conflicts.push((what, have.to_string(), owner.to_string()));
                }
            };
            for ip in service.addresses() {
                conflict(ip.to_string(), ips.entry(ip).or_insert_with(|| Arc::clone(&owner)));
            }
            for port in service.all_node_ports().filter_map(|port| u16::try_from(port).ok()) {
                conflict(port.to_string(), ports.entry(port).or_insert_with(|| Arc::clone(&owner)));
            }
        }
        let mut missing = ips.clone();
        for object in ip_addresses {
            let metadata = object.get("metadata");
            let Some(name) = metadata.and_then(|meta| meta.get("name")).and_then(Value::as_str) else { continue };
            let Ok(ip) = name.parse::<IpAddr>() else { continue };
            missing.remove(&ip);
            let managed = metadata.and_then(|meta| meta.get("labels")?.get(LABEL_MANAGED_BY)?.as_str());
            let parent = objects::parent(object).unwrap_or_default();
            let wrong = ips.get(&ip).is_none_or(|owner| **owner != *parent);
            if wrong && managed == Some(MANAGER) {
                repair.delete.push(name.to_owned());
                if let Some(owner) = ips.get(&ip) {
                    repair.create.push(objects::ip_address(ip, owner));
                }
            } else {
                ips.entry(ip).or_insert_with(|| parent.into());
            }
        }
        repair.create.extend(missing.iter().map(|(ip, owner)| objects::ip_address(*ip, owner)));
        let mut pool = lock(&self.pool);
        (pool.ips, pool.ports) = (ips, ports);
        repair
    }
}

/// Whether addresses may be taken from a ServiceCIDR: without a condition they may, for nobody may be there to set it.
fn is_ready(cidr: &Map) -> bool {
    let deleted = cidr.get("metadata").and_then(|meta| meta.get("deletionTimestamp")).is_some_and(|at| !at.is_null());
    let conditions = cidr.get("status").and_then(|status| status.get("conditions")).and_then(Value::as_array);
    let text = |condition: &Value, key: &str| condition.get(key).and_then(Value::as_str).unwrap_or_default().to_owned();
    let ready = conditions.and_then(|list| list.iter().find(|condition| text(condition, "type") == "Ready"));
    !deleted && ready.is_none_or(|condition| text(condition, "status") == "True")
}

impl Allocation {
    /// The IPAddresses to create in the same commit.
    #[must_use]
    pub fn created(&self) -> Vec<Map> {
        let owner = self.changes.owner.as_deref().unwrap_or_default();
        self.changes.taken_ips.iter().map(|ip| objects::ip_address(*ip, owner)).collect()
    }

    /// The names of the IPAddresses to delete in the same commit, where they are there.
    #[must_use]
    pub fn deleted(&self) -> Vec<String> {
        self.changes.freed_ips.iter().map(IpAddr::to_string).collect()
    }

    /// The commit is done: what was taken stays, what was given up is free.
    pub fn commit(mut self) {
        self.changes.finish(&mut lock(&self.pool));
        self.changes = Changes::default();
    }
}

impl Drop for Allocation {
    fn drop(&mut self) {
        if !self.changes.taken_ips.is_empty() || !self.changes.taken_ports.is_empty() {
            self.changes.undo(&mut lock(&self.pool));
        }
    }
}
