//! The search: one device after the other is tried, and given back when it leads nowhere.
//!
//! What was decided is on a stack of [`Frame`]s, and [`Go`] says what is to be done next. The first solution is taken.
//! Within a request devices are tried in order only, because which of them came first makes no difference.

use std::collections::HashMap;

use capstan_api::Quantity;
use k8s_openapi::api::{
    core::v1::Node,
    resource::v1::{Device, DeviceTaint, DeviceToleration},
};

use super::{
    AllocateError, Amounts, DeviceId, Inventory, MAX_RESULTS, capacity,
    pools::{Counters, Pool, devices},
    quantity,
    wanted::{Candidate, Claim, Wanted, candidates},
};

/// How many devices are looked at before the search is given up.
const MAX_STEPS: usize = 200_000;

/// One of the alternatives of a request of a claim.
#[derive(Clone, Copy, Debug)]
pub(super) struct Place {
    claim: usize,
    request: usize,
    option: usize,
}

/// What is to be done next.
#[derive(Clone, Copy, Debug)]
enum Go {
    /// Begin with a request of a claim.
    Request(usize, usize),
    /// Begin with an alternative.
    Option(Place),
    /// Find the nth device, from this number on.
    Device(Place, usize, usize),
    /// Take the last decision back and decide otherwise.
    Back,
}

/// A decision.
#[derive(Debug)]
enum Frame {
    Option(Place),
    Device(Place, usize, Taking),
}

/// A device that is to be taken, and what has to be taken back if it is not.
#[derive(Debug)]
struct Taking {
    number: usize,
    counted: bool,
    constraints: usize,
}

/// A device that a claim gets.
#[derive(Clone, Debug)]
pub(super) struct Granted {
    pub(super) number: usize,
    pub(super) place: Place,
    /// What it takes of a device that others may share.
    pub(super) consumed: Option<Amounts>,
}

/// The search.
#[derive(Debug)]
pub(super) struct Search<'a> {
    pub(super) inventory: &'a Inventory,
    pub(super) node: &'a Node,
    pub(super) claims: Vec<Claim<'a>>,
    pub(super) candidates: Vec<Candidate<'a>>,
    /// By claim.
    pub(super) results: Vec<Vec<Granted>>,
    pools: &'a [Pool],
    ids: Vec<DeviceId>,
    /// The claims that have a device, by its number.
    users: HashMap<usize, Vec<usize>>,
    /// What is taken of devices that are shared, by number.
    shares: HashMap<usize, Vec<Amounts>>,
    /// What is left of the counters of a pool, once somebody has asked.
    left: HashMap<usize, Counters>,
    steps: usize,
}

impl<'a> Search<'a> {
    pub(super) fn new(inventory: &'a Inventory, pools: &'a [Pool], node: &'a Node, claims: Vec<Claim<'a>>) -> Self {
        let candidates = candidates(pools);
        let id = |candidate: &Candidate<'_>| DeviceId {
            driver: candidate.slice.spec.driver.clone(),
            pool: candidate.slice.spec.pool.name.clone(),
            device: candidate.device.name.clone(),
        };
        Search {
            results: vec![Vec::new(); claims.len()],
            ids: candidates.iter().map(id).collect(),
            inventory,
            node,
            claims,
            candidates,
            pools,
            users: HashMap::new(),
            shares: HashMap::new(),
            left: HashMap::new(),
            steps: 0,
        }
    }

    pub(super) fn wanted(&self, place: Place) -> &Wanted<'a> {
        &self.claims[place.claim].requests[place.request].options[place.option]
    }

    pub(super) fn id(&self, number: usize) -> &DeviceId {
        &self.ids[number]
    }

    /// Whether there is a solution; then [`results`](Self::results) holds it.
    pub(super) fn run(&mut self) -> Result<bool, AllocateError> {
        let (mut frames, mut go) = (Vec::new(), Go::Request(0, 0));
        loop {
            go = match go {
                Go::Request(claim, _) if claim == self.claims.len() => return Ok(true),
                Go::Request(claim, request) if request == self.claims[claim].requests.len() => {
                    Go::Request(claim + 1, 0)
                }
                Go::Request(claim, request) => Go::Option(Place { claim, request, option: 0 }),
                Go::Option(place) => {
                    let Some(wanted) = self.claims[place.claim].requests[place.request].options.get(place.option)
                    else {
                        go = Go::Back;
                        continue;
                    };
                    let none = wanted.all.as_ref().is_some_and(Vec::is_empty);
                    let many = self.results[place.claim].len() + wanted.count > MAX_RESULTS;
                    self.claims[place.claim].requests[place.request].chosen = place.option;
                    frames.push(Frame::Option(place));
                    if none || many { Go::Back } else { Go::Device(place, 0, 0) }
                }
                Go::Device(place, nth, _) if nth == self.wanted(place).count => {
                    Go::Request(place.claim, place.request + 1)
                }
                Go::Device(place, nth, from) => match self.find(place, nth, from)? {
                    None => Go::Back,
                    Some(taking) => {
                        let next = taking.number + 1;
                        frames.push(Frame::Device(place, nth, taking));
                        Go::Device(place, nth + 1, next)
                    }
                },
                Go::Back => match frames.pop() {
                    None => return Ok(false),
                    Some(Frame::Option(place)) => Go::Option(Place { option: place.option + 1, ..place }),
                    Some(Frame::Device(place, nth, taking)) => {
                        let next = taking.number + 1;
                        self.give_back(place, &taking);
                        // Of all devices there is only one way to take all.
                        if self.wanted(place).all.is_some() { Go::Back } else { Go::Device(place, nth, next) }
                    }
                },
            };
        }
    }

    /// Takes the next device that will do.
    fn find(&mut self, place: Place, nth: usize, from: usize) -> Result<Option<Taking>, AllocateError> {
        if let Some(all) = &self.wanted(place).all {
            return self.take(place, all[nth], true);
        }
        for number in from..self.candidates.len() {
            self.steps += 1;
            if self.steps > MAX_STEPS {
                return Err(AllocateError::TooLong);
            }
            let (candidate, claim) = (self.candidates[number], &mut self.claims[place.claim]);
            let wanted = &mut claim.requests[place.request].options[place.option];
            if !wanted.accepts(self.inventory, self.node, &claim.name, (number, candidate))? {
                continue;
            }
            if let Some(taking) = self.take(place, number, false)? {
                return Ok(Some(taking));
            }
        }
        Ok(None)
    }

    fn is_free(&self, place: Place, number: usize) -> bool {
        let users = self.users.get(&number).map_or(&[][..], Vec::as_slice);
        match self.wanted(place).admin {
            true => !users.contains(&place.claim),
            false => users.is_empty() && !self.inventory.taken.whole.contains(&self.ids[number]),
        }
    }

    /// Takes a device, if it is free and nothing speaks against it.
    fn take(&mut self, place: Place, number: usize, must: bool) -> Result<Option<Taking>, AllocateError> {
        let candidate = self.candidates[number];
        let shareable = candidate.device.allow_multiple_allocations == Some(true);
        if !self.is_free(place, number) || is_tainted(candidate.device, self.wanted(place).tolerations) {
            return Ok(None);
        }
        let Some(consumed) = capacity::consumed(candidate.device, &self.wanted(place).capacity) else {
            return Ok(None);
        };
        let before = self.inventory.taken.shared.get(&self.ids[number]);
        let shares = self.shares.get(&number).map_or(&[][..], Vec::as_slice);
        if !capacity::fits(candidate.device, &consumed, before.into_iter().chain(shares)) {
            return Ok(None);
        }
        // Whoever shared it first has paid for it.
        let counts = candidate.device.consumes_counters.is_some();
        let paid = shareable && (before.is_some() || self.shares.contains_key(&number));
        let mut taking = Taking { number, counted: false, constraints: 0 };
        if counts && !paid {
            if !self.count(candidate) {
                return Ok(None);
            }
            taking.counted = true;
        }
        let claim = &mut self.claims[place.claim];
        let wanted = &claim.requests[place.request].options[place.option];
        let allowed = claim.constraints.iter_mut().all(|constraint| {
            let allowed = constraint.add(wanted, candidate);
            taking.constraints += usize::from(allowed);
            allowed
        });
        if !allowed {
            let name = wanted.alternative.unwrap_or(wanted.request);
            let error = format!(
                "claim {}, request {name}: cannot add device {} because a claim constraint would not be satisfied",
                claim.name, self.ids[number]
            );
            self.release(place, &taking);
            return if must { Err(AllocateError::Failed(error)) } else { Ok(None) };
        }
        match shareable {
            true => self.shares.entry(number).or_default().push(consumed.clone()),
            false => self.users.entry(number).or_default().push(place.claim),
        }
        self.results[place.claim].push(Granted { number, place, consumed: shareable.then_some(consumed) });
        Ok(Some(taking))
    }

    fn give_back(&mut self, place: Place, taking: &Taking) {
        let result = self.results[place.claim].pop();
        if result.is_some_and(|result| result.consumed.is_some()) {
            let shares = self.shares.entry(taking.number).or_default();
            shares.pop();
            if shares.is_empty() {
                self.shares.remove(&taking.number);
            }
        } else {
            self.users.entry(taking.number).or_default().pop();
        }
        self.release(place, taking);
    }

    fn release(&mut self, place: Place, taking: &Taking) {
        let claim = &mut self.claims[place.claim];
        let wanted = &claim.requests[place.request].options[place.option];
        for constraint in &mut claim.constraints[..taking.constraints] {
            constraint.remove(wanted);
        }
        if taking.counted {
            let candidate = self.candidates[taking.number];
            if let Some(left) = self.left.get_mut(&candidate.pool) {
                change(left, candidate.device, Quantity::add);
            }
        }
    }

    /// Takes from the counters what a device takes, if there is enough.
    fn count(&mut self, candidate: Candidate<'_>) -> bool {
        let (pools, taken) = (self.pools, &self.inventory.taken);
        let left = self.left.entry(candidate.pool).or_insert_with(|| {
            let pool = &pools[candidate.pool];
            let mut left = pool.counters.clone();
            for slice in pool.slices.iter().chain(&pool.elsewhere) {
                let id = |device: &Device| DeviceId {
                    driver: pool.driver.clone(),
                    pool: pool.name.clone(),
                    device: device.name.clone(),
                };
                for device in devices(slice).iter().filter(|device| taken.is_taken(&id(device))) {
                    change(&mut left, device, Quantity::sub);
                }
            }
            left
        });
        change(left, candidate.device, Quantity::sub);
        let enough = left.values().flat_map(Amounts::values).all(|left| left.signum() >= 0);
        if !enough {
            change(left, candidate.device, Quantity::add);
        }
        enough
    }
}

fn change(counters: &mut Counters, device: &Device, by: impl Fn(&mut Quantity, &Quantity)) {
    for consumed in device.consumes_counters.iter().flatten() {
        let Some(set) = counters.get_mut(&consumed.counter_set) else { continue };
        for (name, counter) in &consumed.counters {
            if let Some(left) = set.get_mut(name) {
                by(left, &quantity(&counter.value));
            }
        }
    }
}

/// Whether a device has a taint that keeps a request away.
fn is_tainted(device: &Device, tolerations: &[DeviceToleration]) -> bool {
    let taints = device.taints.iter().flatten();
    let mut hard = taints.filter(|taint| taint.effect == "NoSchedule" || taint.effect == "NoExecute");
    hard.any(|taint| !tolerations.iter().any(|toleration| tolerates(toleration, taint)))
}

fn tolerates(toleration: &DeviceToleration, taint: &DeviceTaint) -> bool {
    let is = |wanted: &Option<String>, other: &str| wanted.as_deref().is_none_or(|it| it.is_empty() || it == other);
    is(&toleration.effect, &taint.effect)
        && is(&toleration.key, &taint.key)
        && match toleration.operator.as_deref().unwrap_or_default() {
            "" | "Equal" => {
                toleration.value.as_deref().unwrap_or_default() == taint.value.as_deref().unwrap_or_default()
            }
            "Exists" => true,
            _ => false,
        }
}
