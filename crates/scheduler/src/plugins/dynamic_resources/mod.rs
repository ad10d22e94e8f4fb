//! Devices that pods claim.
//!
//! Before nodes are looked at, the claims of the pod are read; on each node it is tried what those would get that have
//! no devices yet ([`crate::devices`]). Once a node is chosen its devices are set aside, and before the pod is bound
//! they are written to the claims ([`bind`]).

mod bind;
mod extended;

use std::{
    collections::{BTreeSet, HashMap},
    sync::{Arc, Mutex, MutexGuard, PoisonError},
    time::Duration,
};

use capstan_client::BoxFuture;
use k8s_openapi::api::{
    core::v1::{ContainerExtendedResourceRequest, Pod},
    resource::v1::{AllocationResult, ResourceClaim},
};

use self::extended::{Extended, Special};
use crate::{
    cache::Slot,
    devices::{AllocateError, Inventory, MAX_ALTERNATIVES, Programs, Taken, full_name},
    event::{ActionType as A, ClusterEvent, EventObject, EventResource as R},
    node_info::NodeInfo,
    plugin::{BindContext, Cycle, Filter, Plugin, Point, QueueingHint, Score, normalize_by_max},
    pod_info::PodInfo,
    selectors::NodeTerms,
    status::Status,
    world::World,
};

/// How many pods may use a claim at a time.
const MAX_RESERVED_FOR: usize = 256;

/// How long devices may take to be bound, unless the configuration says otherwise.
pub const DEFAULT_BINDING_TIMEOUT: Duration = Duration::from_secs(600);

/// Devices that pods claim.
#[derive(Debug)]
pub struct DynamicResources {
    /// How long devices may take to be bound.
    pub binding_timeout: Duration,
    programs: Arc<Programs>,
    state: Mutex<State>,
}

impl Default for DynamicResources {
    fn default() -> Self {
        DynamicResources::new(DEFAULT_BINDING_TIMEOUT)
    }
}

#[derive(Debug, Default)]
struct State {
    /// What was found out about the pod that is looked at.
    attempt: Option<Arc<Attempt>>,
    /// What was set aside for pods that are on their way to their nodes.
    reserved: HashMap<Arc<str>, Vec<Reserved>>,
    /// Devices that are being written to claims, by the claim's uid.
    in_flight: HashMap<String, InFlight>,
    /// Claims whose devices did not become ready in time, by uid.
    late: BTreeSet<String>,
    /// What is to be told to the server once a pod is refused.
    chores: HashMap<Arc<str>, Vec<Chore>>,
}

impl State {
    /// Devices are on their way to a claim.
    fn fly(&mut self, claim: &Arc<ResourceClaim>, allocation: Option<&AllocationResult>, made: bool) {
        if let Some(allocation) = allocation.cloned() {
            let flight = InFlight { claim: Arc::clone(claim), allocation, written: None, made };
            self.in_flight.insert(uid(claim).to_owned(), flight);
        }
    }
}

/// A claim of a pod that is on its way, and the devices that it gets, if it had none.
#[derive(Clone, Debug)]
struct Reserved {
    claim: Arc<ResourceClaim>,
    allocation: Option<AllocationResult>,
    /// Which container uses what of it, if it is the claim for extended resources.
    mappings: Option<Vec<ContainerExtendedResourceRequest>>,
}

/// Devices that are being written to a claim.
#[derive(Debug)]
struct InFlight {
    claim: Arc<ResourceClaim>,
    allocation: AllocationResult,
    /// The version of the claim once they were; when that is known from the server, this is not needed any more.
    written: Option<u64>,
    /// It was made here, so that it may not be known from the server yet.
    made: bool,
}

/// What is to be told to the server once a pod is refused.
#[derive(Debug)]
enum Chore {
    /// Take the devices from a claim.
    Deallocate(Arc<ResourceClaim>),
    /// The pod does not use the claim after all.
    Unreserve(Arc<ResourceClaim>),
    /// The claim for extended resources that was made for the pod is of no use.
    Delete(Arc<ResourceClaim>),
}

/// What was found out about a pod.
#[derive(Debug)]
struct Attempt {
    uid: Arc<str>,
    claims: Vec<Arc<ResourceClaim>>,
    extended: Option<Extended>,
    found: Mutex<Found>,
}

#[derive(Debug, Default)]
struct Found {
    /// By node: what the claims without devices would get there, and the last of them, if it is for extended resources.
    allocations: HashMap<String, (Vec<AllocationResult>, Option<Special>)>,
    /// Claims whose devices are of no use somewhere.
    unavailable: BTreeSet<usize>,
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

fn uid(claim: &ResourceClaim) -> &str {
    claim.metadata.uid.as_deref().unwrap_or_default()
}

fn allocation(claim: &ResourceClaim) -> Option<&AllocationResult> {
    claim.status.as_ref().and_then(|status| status.allocation.as_ref())
}

/// Whether a pod is one of those that use a claim.
fn is_reserved_for(claim: &ResourceClaim, pod: &str) -> bool {
    let users = claim.status.iter().flat_map(|status| status.reserved_for.iter().flatten());
    users.into_iter().any(|user| user.uid == pod)
}

/// The names of a pod's claims, and whether the claim was made for the pod.
fn claim_names(pod: &Pod) -> Result<Vec<(String, bool)>, String> {
    let (namespace, name) = (pod.metadata.namespace.as_deref(), pod.metadata.name.as_deref());
    let whose = format!("pod \"{}/{}\"", namespace.unwrap_or_default(), name.unwrap_or_default());
    let mut names = Vec::new();
    for claim in pod.spec.iter().flat_map(|spec| spec.resource_claims.iter().flatten()) {
        if let Some(name) = &claim.resource_claim_name {
            names.push((name.clone(), false));
            continue;
        }
        let statuses = pod.status.as_ref().and_then(|status| status.resource_claim_statuses.as_deref());
        let status = statuses.unwrap_or_default().iter().find(|status| status.name == claim.name);
        match status {
            None => return Err(format!("{whose}: ResourceClaim not created yet")),
            // Without a name none was needed.
            Some(status) => names.extend(status.resource_claim_name.clone().map(|name| (name, true))),
        }
    }
    Ok(names)
}

/// The claims of a pod.
fn claims(pod: &PodInfo, world: &World) -> Result<Vec<Arc<ResourceClaim>>, String> {
    let mut found = Vec::new();
    for (name, generated) in claim_names(&pod.pod)? {
        let Some(claim) = world.resource_claims.get(pod.namespace(), &name) else {
            return Err(format!("resourceclaim.resource.k8s.io \"{name}\" not found"));
        };
        if claim.metadata.deletion_timestamp.is_some() {
            return Err(format!("resourceclaim \"{name}\" is being deleted"));
        }
        let owners = claim.metadata.owner_references.iter().flatten();
        let owned = owners.into_iter().any(|owner| owner.controller == Some(true) && *owner.uid == *pod.uid);
        if generated && !owned {
            let (namespace, pod) = (pod.namespace(), pod.name());
            return Err(format!(
                "ResourceClaim {namespace}/{name} was not created for Pod {namespace}/{pod} (Pod is not owner)"
            ));
        }
        found.push(Arc::clone(claim));
    }
    Ok(found)
}

impl DynamicResources {
    /// With another patience.
    #[must_use]
    pub fn new(binding_timeout: Duration) -> Self {
        DynamicResources { binding_timeout, programs: Arc::default(), state: Mutex::default() }
    }

    fn lock(&self) -> MutexGuard<'_, State> {
        lock(&self.state)
    }

    fn attempt(&self, pod: &PodInfo) -> Option<Arc<Attempt>> {
        self.lock().attempt.as_ref().filter(|attempt| attempt.uid == pod.uid).cloned()
    }

    /// The devices that a pod on its way gets.
    #[cfg(test)]
    pub(crate) fn set_aside(&self, pod: &PodInfo) -> Vec<String> {
        let state = self.lock();
        let reserved = state.reserved.get(&pod.uid).into_iter().flatten();
        let devices = reserved.flat_map(|reserved| reserved.allocation.iter().flat_map(|a| &a.devices));
        devices.flat_map(|devices| devices.results.iter().flatten()).map(|result| result.device.clone()).collect()
    }

    /// All devices that claims have, or are about to.
    fn taken(&self, world: &World) -> Taken {
        let mut taken = Taken::default();
        let mut state = self.lock();
        state.in_flight.retain(|_, flight| {
            let (namespace, name) = (&flight.claim.metadata.namespace, &flight.claim.metadata.name);
            let known = world
                .resource_claims
                .get(namespace.as_deref().unwrap_or_default(), name.as_deref().unwrap_or_default());
            let version = known.map(|known| known.metadata.resource_version.as_deref().unwrap_or_default());
            let version = version.and_then(|version| version.parse::<u64>().ok());
            match known.filter(|known| uid(known) == uid(&flight.claim)) {
                Some(_) => flight.written.is_none_or(|written| version.is_some_and(|version| version < written)),
                None => flight.made && flight.written.is_none_or(|written| world.resource_claims.newest() < written),
            }
        });
        if !state.late.is_empty() {
            let known: BTreeSet<&str> = world.resource_claims.iter().map(|claim| uid(claim)).collect();
            state.late.retain(|late| known.contains(late.as_str()));
        }
        for flight in state.in_flight.values() {
            taken.add(&flight.allocation);
        }
        for claim in world.resource_claims.iter().filter(|claim| !state.in_flight.contains_key(uid(claim))) {
            allocation(claim).into_iter().for_each(|allocation| taken.add(allocation));
        }
        taken
    }

    /// What there is for claims without devices.
    fn inventory(
        &self,
        world: &World,
        claims: &[Arc<ResourceClaim>],
        extended: Option<&Extended>,
    ) -> Result<Inventory, Status> {
        let mut classes = HashMap::new();
        for class in extended.into_iter().flat_map(Extended::classes) {
            classes.insert(class.metadata.name.clone().unwrap_or_default(), Arc::clone(class));
        }
        let wanting = claims.iter().filter(|claim| allocation(claim).is_none());
        for claim in wanting {
            let devices = claim.spec.devices.iter();
            for request in devices.flat_map(|devices| devices.requests.iter().flatten()) {
                let exactly = request.exactly.iter().map(|exactly| (request.name.clone(), &exactly.device_class_name));
                let alternatives = request.first_available.iter().flatten();
                let alternatives =
                    alternatives.map(|one| (format!("{}/{}", request.name, one.name), &one.device_class_name));
                for (name, class) in exactly.chain(alternatives) {
                    let Some(known) = world.device_classes.get("", class) else {
                        return Err(Status::unresolvable(format!(
                            "request {name}: device class {class} does not exist"
                        )));
                    };
                    classes.insert(class.clone(), Arc::clone(known));
                }
            }
        }
        let mut slices: Vec<_> = world.resource_slices.iter().cloned().collect();
        slices.sort_by(|a, b| a.metadata.name.cmp(&b.metadata.name));
        Ok(Inventory { slices, classes, taken: self.taken(world), programs: Arc::clone(&self.programs) })
    }
}

#[derive(Debug)]
struct ClaimFilter {
    attempt: Arc<Attempt>,
    /// Where the devices of a claim are of use; nothing when they are everywhere, or when there are none yet.
    available: Vec<Option<NodeTerms>>,
    /// Claims whose devices are of no use anywhere.
    useless: BTreeSet<usize>,
    inventory: Option<Inventory>,
}

impl Filter for ClaimFilter {
    fn filter(&self, cycle: Cycle<'_>, node: &NodeInfo) -> Result<(), Status> {
        let special = match &self.attempt.extended {
            Some(extended) => extended.on(cycle.pod, node)?,
            None => None,
        };
        let elsewhere = |terms: &Option<NodeTerms>| terms.as_ref().is_some_and(|terms| !terms.matches_node(&node.node));
        let unavailable =
            self.available.iter().enumerate().filter(|(at, terms)| elsewhere(terms) || self.useless.contains(at));
        let unavailable: Vec<usize> = unavailable.map(|(at, _)| at).collect();
        let mut allocations = Vec::new();
        let wanting = self.attempt.claims.iter().filter(|claim| allocation(claim).is_none());
        let wanting = wanting.chain(special.iter().map(|special| &special.claim));
        let wanting: Vec<&ResourceClaim> = wanting.map(|claim| &**claim).collect();
        if let Some(inventory) = self.inventory.as_ref().filter(|_| !wanting.is_empty()) {
            allocations = match inventory.allocate(&node.node, &wanting) {
                Ok(Some(allocations)) => allocations,
                Ok(None) => return Err(Status::unresolvable("cannot allocate all claims")),
                Err(AllocateError::Node(problem)) => return Err(Status::unresolvable(problem)),
                Err(AllocateError::Failed(problem)) => return Err(Status::error(problem)),
                Err(AllocateError::TooLong) => {
                    let name = node.name();
                    return Err(Status::error(format!("node {name}: timed out trying to allocate devices")));
                }
            };
        }
        let mut found = lock(&self.attempt.found);
        if !unavailable.is_empty() {
            found.unavailable.extend(unavailable);
            return Err(Status::unresolvable("resourceclaim not available on the node"));
        }
        found.allocations.insert(node.name().to_owned(), (allocations, special));
        Ok(())
    }
}

/// Nodes where more of the first choices of claims can be had are better.
#[derive(Debug)]
struct ChoiceScore(Arc<Attempt>);

/// How much the choices are worth that a claim got.
fn worth(claim: &ResourceClaim, allocation: &AllocationResult) -> i64 {
    let results = allocation.devices.iter().flat_map(|devices| devices.results.iter().flatten());
    let got: BTreeSet<&str> = results.map(|result| result.request.as_str()).collect();
    let requests = claim.spec.devices.iter().flat_map(|devices| devices.requests.iter().flatten());
    let mut worth = 0;
    for request in requests {
        for (at, choice) in (0..).zip(request.first_available.iter().flatten()) {
            if got.contains(format!("{}/{}", request.name, choice.name).as_str()) {
                worth += MAX_ALTERNATIVES - at;
            }
        }
    }
    worth
}

impl Score for ChoiceScore {
    fn score(&self, _cycle: Cycle<'_>, node: &NodeInfo) -> i64 {
        let found = lock(&self.0.found);
        let Some((new, _)) = found.allocations.get(node.name()) else { return 0 };
        let mut new = new.iter();
        let of = |claim: &Arc<ResourceClaim>| match allocation(claim) {
            Some(allocation) => worth(claim, allocation),
            None => new.next().map_or(0, |allocation| worth(claim, allocation)),
        };
        self.0.claims.iter().map(of).sum()
    }

    fn normalize(&self, _slots: &[Slot], scores: &mut [i64]) {
        normalize_by_max(scores, false);
    }
}

impl Plugin for DynamicResources {
    fn name(&self) -> &'static str {
        "DynamicResources"
    }

    fn points(&self) -> &'static [Point] {
        &[
            Point::PreEnqueue,
            Point::PreFilter,
            Point::Filter,
            Point::PostFilter,
            Point::Score,
            Point::Reserve,
            Point::PreBind,
        ]
    }

    /// Pods with claims are in no class.
    fn by_class(&self) -> bool {
        true
    }

    fn events(&self) -> &'static [ClusterEvent] {
        const {
            &[
                ClusterEvent::new(R::Node, A::ADD.or(A::UPDATE_NODE_LABEL).or(A::UPDATE_NODE_ALLOCATABLE)),
                ClusterEvent::new(R::ResourceClaim, A::ADD.or(A::UPDATE).or(A::DELETE)),
                ClusterEvent::new(R::Pod, A::UPDATE_POD_GENERATED_RESOURCE_CLAIM),
                ClusterEvent::new(R::DeviceClass, A::ADD.or(A::UPDATE)),
                ClusterEvent::new(R::ResourceSlice, A::ADD.or(A::UPDATE)),
            ]
        }
    }

    fn hint(&self, pod: &PodInfo, _event: ClusterEvent, object: &EventObject) -> QueueingHint {
        let helps = match object {
            EventObject::ResourceClaim(old, Some(new)) => {
                let freed = old.as_ref().is_some_and(|old| allocation(old).is_some()) && allocation(new).is_none();
                let named = |(name, _): &(String, bool)| Some(name) == new.metadata.name.as_ref();
                let mine = new.metadata.namespace.as_deref() == Some(pod.namespace())
                    && claim_names(&pod.pod).is_ok_and(|names| names.iter().any(named));
                freed || (mine && old.as_ref().is_none_or(|old| old.status != new.status))
            }
            // What was made for the pod in an earlier attempt is out of its way now.
            EventObject::ResourceClaim(Some(old), None) => allocation(old).is_some() || extended::is_for(old, pod),
            EventObject::Pod(_, Some(new)) => new.uid == pod.uid,
            _ => true,
        };
        if helps { QueueingHint::Queue } else { QueueingHint::Skip }
    }

    fn pre_filter(&self, cycle: Cycle<'_>) -> Result<Option<Box<dyn Filter>>, Status> {
        self.lock().attempt = None;
        let world = &cycle.cache.world;
        let claims = claims(cycle.pod, world).map_err(Status::gated)?;
        let extended = Extended::of(cycle.pod, world);
        if claims.is_empty() && extended.is_none() {
            return Ok(None);
        }
        let (mut available, mut useless) = (Vec::new(), BTreeSet::new());
        for (at, claim) in claims.iter().enumerate() {
            let users = claim.status.as_ref().and_then(|status| status.reserved_for.as_ref()).map_or(0, Vec::len);
            match allocation(claim) {
                Some(_) if users >= MAX_RESERVED_FOR && !is_reserved_for(claim, &cycle.pod.uid) => {
                    return Err(Status::unresolvable("resourceclaim in use"));
                }
                Some(allocation) => {
                    available.push(allocation.node_selector.as_ref().map(NodeTerms::new));
                    let ready = bind::is_ready(claim);
                    if ready.is_err() || (ready == Ok(false) && self.lock().late.contains(uid(claim))) {
                        useless.insert(at);
                    }
                }
                None if self.lock().in_flight.contains_key(uid(claim)) => {
                    return Err(Status::unresolvable(format!(
                        "resource claim {} is in the process of being allocated",
                        full_name(claim)
                    )));
                }
                None => available.push(None),
            }
        }
        let wanting = extended.is_some() || claims.iter().any(|claim| allocation(claim).is_none());
        let inventory = if wanting { Some(self.inventory(world, &claims, extended.as_ref())?) } else { None };
        let attempt = Attempt { uid: Arc::clone(&cycle.pod.uid), claims, extended, found: Mutex::default() };
        let attempt = Arc::new(attempt);
        self.lock().attempt = Some(Arc::clone(&attempt));
        Ok(Some(Box::new(ClaimFilter { attempt, available, useless, inventory })))
    }

    fn post_filter(&self, cycle: Cycle<'_>) -> Option<String> {
        let Some(attempt) = self.attempt(cycle.pod) else { return Some("no new claims to deallocate".to_owned()) };
        let found = lock(&attempt.found);
        let free = found.unavailable.iter().map(|at| &attempt.claims[*at]).find(|claim| {
            let users = claim.status.as_ref().and_then(|status| status.reserved_for.as_deref()).unwrap_or_default();
            users.is_empty() || (users.len() == 1 && *users[0].uid == *cycle.pod.uid)
        });
        let left_over = attempt.extended.as_ref().and_then(|extended| extended.left_over.as_ref());
        let (chore, done) = match (free, left_over) {
            (Some(claim), _) => (Chore::Deallocate(Arc::clone(claim)), "deallocation of ResourceClaim completed"),
            (None, Some(claim)) => (Chore::Delete(Arc::clone(claim)), "deletion of ResourceClaim completed"),
            (None, None) => return Some("still not schedulable".to_owned()),
        };
        self.lock().chores.entry(Arc::clone(&cycle.pod.uid)).or_default().push(chore);
        Some(done.to_owned())
    }

    fn pre_score(&self, cycle: Cycle<'_>) -> Option<Box<dyn Score>> {
        Some(Box::new(ChoiceScore(self.attempt(cycle.pod)?)))
    }

    fn reserve(&self, cycle: Cycle<'_>, node: &NodeInfo) -> Result<(), Status> {
        let Some(attempt) = self.attempt(cycle.pod) else { return Ok(()) };
        let Some((allocations, special)) = lock(&attempt.found).allocations.remove(node.name()) else {
            return Err(Status::error("claim allocation not found for node"));
        };
        let (mut new, mut state) = (allocations.into_iter(), self.lock());
        let mut reserved = Vec::new();
        for claim in &attempt.claims {
            let allocation = if allocation(claim).is_some() { None } else { new.next() };
            state.fly(claim, allocation.as_ref(), false);
            reserved.push(Reserved { claim: Arc::clone(claim), allocation, mappings: None });
        }
        if let Some(Special { claim, mappings }) = special {
            let allocation = new.next();
            state.fly(&claim, allocation.as_ref(), true);
            reserved.push(Reserved { claim, allocation, mappings: Some(mappings) });
        }
        state.reserved.insert(Arc::clone(&cycle.pod.uid), reserved);
        state.attempt = None;
        Ok(())
    }

    fn unreserve(&self, pod: &PodInfo, _node: &str) {
        let mut state = self.lock();
        for Reserved { claim, allocation, mappings } in state.reserved.remove(&pod.uid).unwrap_or_default() {
            let not_written = state.in_flight.get(uid(&claim)).is_some_and(|flight| flight.written.is_none());
            if allocation.is_some() && not_written {
                state.in_flight.remove(uid(&claim));
            }
            if mappings.is_some() {
                state.in_flight.remove(uid(&claim));
                if claim.metadata.name.as_deref() != Some(extended::IN_MEMORY) {
                    state.chores.entry(Arc::clone(&pod.uid)).or_default().push(Chore::Delete(claim));
                }
            } else if is_reserved_for(&claim, &pod.uid) {
                state.chores.entry(Arc::clone(&pod.uid)).or_default().push(Chore::Unreserve(claim));
            }
        }
    }

    fn pre_bind<'a>(
        &'a self,
        context: &'a BindContext,
        pod: &'a Arc<PodInfo>,
        _node: &'a str,
    ) -> BoxFuture<'a, Result<(), Status>> {
        Box::pin(self.bind_claims(context, pod))
    }

    fn forget(&self, pod: &PodInfo) {
        let mut state = self.lock();
        state.reserved.remove(&pod.uid);
        state.chores.remove(&pod.uid);
    }

    fn refused<'a>(&'a self, context: &'a BindContext, pod: &'a Arc<PodInfo>) -> BoxFuture<'a, ()> {
        Box::pin(self.do_chores(context, pod))
    }
}
