//! The pods that wait for a node: those to look at now, those that were refused a moment ago, and those that wait for
//! something to happen.
//!
//! A plain structure: time is handed in, nothing waits. Pods are looked at by priority, then by age. A pod that was
//! refused is tried again when something happens that the plugins which refused it say may help; not at once, but after
//! a while that doubles each time. What happens while a pod is being looked at is remembered until it is refused, so
//! that nothing is missed. And to be safe every pod is tried again after a few minutes.

mod pods;
#[cfg(test)]
mod tests;

use std::{
    collections::{BTreeMap, BTreeSet, HashMap, HashSet, VecDeque},
    sync::Arc,
    time::Duration,
};

use capstan_clock::Moment;

use crate::{
    event::{ClusterEvent, EventObject, EventResource, pod_changes},
    plugin::{Point, QueueingHint},
    pod_info::PodInfo,
    profile::Profile,
    status::Status,
};
use pods::{Order, Place};
pub use pods::{QueuedPod, Sizes};

/// How long pods wait at first after being refused, unless the configuration says otherwise.
pub const DEFAULT_POD_INITIAL_BACKOFF: Duration = Duration::from_secs(1);
/// How long pods wait at most, unless the configuration says otherwise.
pub const DEFAULT_POD_MAX_BACKOFF: Duration = Duration::from_secs(10);
/// After how long every pod is tried again, whatever has happened.
pub const MAX_IN_UNSCHEDULABLE: Duration = Duration::from_secs(5 * 60);
/// How many events are remembered for pods that are being looked at. When there are more, those pods are tried again
/// as if something that may help had happened.
const MAX_IN_FLIGHT_EVENTS: usize = 1 << 14;

/// What is said of a pod that is kept back while others are being evicted for it.
const HELD: &str = "waiting for the preemption for this pod to be finished";

/// Whether and when a pod is tried again.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
enum Strategy {
    Skip,
    AfterBackoff,
    Immediately,
}

/// The pods that wait for a node.
#[derive(Debug)]
pub struct SchedulingQueue {
    profiles: Arc<[Profile]>,
    initial_backoff: Duration,
    max_backoff: Duration,
    pods: HashMap<Arc<str>, QueuedPod>,
    active: BTreeSet<Order>,
    backoff: BTreeMap<(Moment, Order), ()>,
    /// By when they came here, which says when they are tried again at the latest.
    unschedulable: BTreeSet<(Moment, Arc<str>)>,
    gated: BTreeSet<Arc<str>>,
    /// How many of those who wait for something to happen or are gated a plugin has refused.
    refusals: HashMap<&'static str, usize>,
    /// Pods that are being looked at, with where in the events that began.
    in_flight: HashMap<Arc<str>, u64>,
    events: VecDeque<(ClusterEvent, EventObject)>,
    events_end: u64,
    /// Pods that are kept back while others are being evicted for them.
    held: HashSet<Arc<str>>,
    cycle: u64,
    next_sequence: u64,
    /// Pods came in, by where from and where to: `scheduler_queue_incoming_pods_total`.
    pub incoming: BTreeMap<(&'static str, String), u64>,
}

impl SchedulingQueue {
    /// An empty queue for the pods of some profiles.
    #[must_use]
    pub fn new(profiles: Arc<[Profile]>, initial_backoff: Duration, max_backoff: Duration) -> Self {
        SchedulingQueue {
            profiles,
            initial_backoff,
            max_backoff,
            pods: HashMap::new(),
            active: BTreeSet::new(),
            backoff: BTreeMap::new(),
            unschedulable: BTreeSet::new(),
            gated: BTreeSet::new(),
            refusals: HashMap::new(),
            in_flight: HashMap::new(),
            events: VecDeque::new(),
            events_end: 0,
            held: HashSet::new(),
            cycle: 0,
            next_sequence: 0,
            incoming: BTreeMap::new(),
        }
    }

    fn profile(&self, pod: &PodInfo) -> Option<&Profile> {
        self.profiles.iter().find(|profile| profile.scheduler_name == pod.scheduler_name())
    }

    /// How many times a pod was given out to be looked at.
    #[must_use]
    pub fn cycle(&self) -> u64 {
        self.cycle
    }

    /// How many pods wait, and how.
    #[must_use]
    pub fn sizes(&self) -> Sizes {
        Sizes {
            active: self.active.len(),
            backoff: self.backoff.len(),
            unschedulable: self.unschedulable.len(),
            gated: self.gated.len(),
            in_flight: self.in_flight.len(),
        }
    }

    /// How many pods wait that a plugin of a profile has refused.
    pub(crate) fn refused(&self) -> BTreeMap<(&'static str, &str), usize> {
        let mut refused = BTreeMap::new();
        for queued in self.waiting().filter_map(|uid| self.pods.get(uid)) {
            for plugin in queued.rejectors() {
                *refused.entry((plugin, queued.pod.scheduler_name())).or_default() += 1;
            }
        }
        refused
    }

    /// The pods that wait for something to happen.
    fn waiting(&self) -> impl Iterator<Item = &Arc<str>> {
        self.unschedulable.iter().map(|(_, uid)| uid).chain(&self.gated)
    }

    /// A pod, if it waits.
    #[must_use]
    pub fn get(&self, uid: &str) -> Option<&QueuedPod> {
        self.pods.get(uid)
    }

    /// Takes in a pod that wants a node.
    pub fn add(&mut self, pod: Arc<PodInfo>, now: Moment) {
        if self.in_flight.contains_key(&pod.uid) || self.pods.contains_key(&pod.uid) {
            return self.update(None, pod, now);
        }
        let queued = QueuedPod::new(pod, now, self.next_sequence);
        self.next_sequence += 1;
        self.make_active(queued, "PodAdd");
    }

    /// Takes in a pod that wants a node and has changed.
    pub fn update(&mut self, old: Option<&Arc<PodInfo>>, pod: Arc<PodInfo>, now: Moment) {
        let Some(mut queued) = self.pods.remove(&pod.uid) else {
            if !self.in_flight.contains_key(&pod.uid) {
                self.add(pod, now);
            } else if let Some(old) = old {
                // Whoever looks at the pod gives it back as it is then; the change may be what it waits for.
                for event in pod_changes(old, &pod) {
                    self.remember(event, &EventObject::Pod(Some(Arc::clone(old)), Some(Arc::clone(&pod))));
                }
            }
            return;
        };
        self.unlink(&queued);
        let old = std::mem::replace(&mut queued.pod, Arc::clone(&pod));
        match queued.place {
            Place::Active => self.link(queued, Place::Active),
            Place::Backoff(until) => self.link(queued, Place::Backoff(until)),
            Place::Unschedulable | Place::Gated => {
                let object = EventObject::Pod(Some(Arc::clone(&old)), Some(pod));
                for event in pod_changes(&old, &queued.pod) {
                    let strategy = self.strategy(&queued, event, &object);
                    if strategy > Strategy::Skip {
                        return self.requeue(queued, strategy, &event.to_string(), now);
                    }
                }
                let place = queued.place;
                self.link(queued, place);
            }
        }
    }

    /// The pod is gone, or has a node.
    pub fn remove(&mut self, uid: &str) {
        if let Some(queued) = self.pods.remove(uid) {
            self.unlink(&queued);
        }
    }

    /// The next pod to look at. When no pod is active, the one that has waited longest for its time to come is next.
    /// To be told [`done`](Self::done) or given [back](Self::add_unschedulable).
    pub fn pop(&mut self) -> Option<QueuedPod> {
        let uid = match self.active.first() {
            Some(order) => Arc::clone(&order.uid),
            None => self.backoff.keys().find(|(_, order)| !order.errors).map(|(_, order)| Arc::clone(&order.uid))?,
        };
        let mut queued = self.pods.remove(&uid)?;
        self.unlink(&queued);
        queued.attempts += 1;
        self.cycle += 1;
        self.in_flight.insert(uid, self.events_end);
        Some(queued)
    }

    /// A pod has been looked at, and does not come back.
    pub fn done(&mut self, uid: &str) {
        self.in_flight.remove(uid);
        self.forget_events();
    }

    fn forget_events(&mut self) {
        let oldest = self.in_flight.values().copied().min().unwrap_or(self.events_end);
        let keep = usize::try_from(self.events_end - oldest).unwrap_or(usize::MAX);
        while self.events.len() > keep {
            self.events.pop_front();
        }
    }

    /// A pod was looked at and there was no node for it; its `unschedulable_plugins` say who refused. Without any,
    /// something broke.
    pub fn add_unschedulable(&mut self, mut queued: QueuedPod, now: Moment) {
        let since = self.in_flight.remove(&queued.pod.uid);
        if self.pods.contains_key(&queued.pod.uid) {
            return self.forget_events();
        }
        if queued.rejectors().next().is_none() {
            queued.consecutive_errors += 1;
        } else {
            queued.unschedulable_count += 1;
            queued.consecutive_errors = 0;
        }
        queued.timestamp = now;
        let strategy = self.meanwhile(&queued, since);
        self.forget_events();
        self.requeue(queued, strategy, "ScheduleAttemptFailure", now);
    }

    /// A pod turned out to lack something that it cannot be looked at without: it was not an attempt.
    pub fn add_gated(&mut self, mut queued: QueuedPod, status: &Status) {
        let since = self.in_flight.remove(&queued.pod.uid);
        if self.pods.contains_key(&queued.pod.uid) {
            return self.forget_events();
        }
        queued.attempts = queued.attempts.saturating_sub(1);
        queued.unschedulable_plugins = vec![status.plugin];
        queued.pending_plugins.clear();
        let strategy = self.meanwhile(&queued, since);
        self.forget_events();
        if strategy > Strategy::Skip {
            return self.make_active(queued, "ScheduleAttemptFailure");
        }
        queued.gated = true;
        queued.gate = status.message();
        self.count("gated", "ScheduleAttemptFailure");
        self.link(queued, Place::Gated);
    }

    /// Whether something has happened since a pod was given out that is a reason to try it again.
    fn meanwhile(&self, queued: &QueuedPod, since: Option<u64>) -> Strategy {
        if queued.rejectors().next().is_none() {
            return Strategy::AfterBackoff;
        }
        let Some(since) = since else { return Strategy::Skip };
        let missing = usize::try_from(self.events_end - since).unwrap_or(usize::MAX);
        let Some(from) = self.events.len().checked_sub(missing) else { return Strategy::AfterBackoff };
        let hints = self.events.range(from..).map(|(event, object)| self.strategy(queued, *event, object));
        hints.max().unwrap_or(Strategy::Skip)
    }

    /// Something happened: pods that it may help are tried again. `check` can leave some out beforehand.
    pub fn notify(&mut self, event: ClusterEvent, object: &EventObject, now: Moment, check: impl Fn(&PodInfo) -> bool) {
        let uids: Vec<_> = if self.concerns(event) { self.waiting().cloned().collect() } else { Vec::new() };
        for uid in uids {
            let Some(queued) = self.pods.get(&uid) else { continue };
            // Who is held already stays so, whatever else helps.
            if !check(&queued.pod) || (queued.gated && queued.gate == HELD) {
                continue;
            }
            let strategy = self.strategy(queued, event, object);
            if strategy > Strategy::Skip
                && let Some(queued) = self.pods.remove(&uid)
            {
                self.unlink(&queued);
                self.requeue(queued, strategy, &event.to_string(), now);
            }
        }
        self.remember(event, object);
    }

    /// Whether anybody waits whom an event may help. Most events come while pods are bound, and help nobody.
    fn concerns(&self, event: ClusterEvent) -> bool {
        let listens = |profile: &Profile, name| {
            let plugin = profile.plugin(name);
            plugin.is_none_or(|plugin| plugin.events().iter().any(|known| event.matches(*known)))
        };
        event.resource == EventResource::WildCard
            || self.refusals.keys().any(|name| self.profiles.iter().any(|profile| listens(profile, name)))
    }

    fn remember(&mut self, event: ClusterEvent, object: &EventObject) {
        if !self.in_flight.is_empty() {
            self.events.push_back((event, object.clone()));
            self.events_end += 1;
            if self.events.len() > MAX_IN_FLIGHT_EVENTS {
                self.events.pop_front();
            }
        }
    }

    /// Tries a pod again at once, whatever it waits for; if it is being looked at, soon after that.
    pub fn activate(&mut self, uid: &str) {
        if let Some(queued) = self.pods.remove(uid) {
            self.unlink(&queued);
            self.make_active(queued, "ForceActivate");
        } else if self.in_flight.contains_key(uid) {
            self.remember(ClusterEvent::WILD_CARD, &EventObject::Other);
        }
    }

    /// Keeps a pod back while others are being evicted for it.
    pub fn hold(&mut self, uid: &Arc<str>) {
        self.held.insert(Arc::clone(uid));
    }

    /// Those who were in the way of a pod have been told to go. If something has happened meanwhile that may help, the
    /// pod is tried again.
    pub fn release(&mut self, uid: &str) {
        self.held.remove(uid);
        if self.pods.get(uid).is_some_and(|queued| queued.gated && queued.gate == HELD) {
            self.activate(uid);
        }
    }

    /// Moves on those whose time has come. Gives when the next is due.
    pub fn flush(&mut self, now: Moment) -> Option<Moment> {
        while let Some((at, order)) = self.backoff.keys().next()
            && *at <= now
        {
            let uid = Arc::clone(&order.uid);
            if let Some(queued) = self.pods.remove(&uid) {
                self.unlink(&queued);
                self.make_active(queued, "BackoffComplete");
            }
        }
        while let Some((since, uid)) = self.unschedulable.first()
            && since.plus(MAX_IN_UNSCHEDULABLE) < now
        {
            let uid = Arc::clone(uid);
            if let Some(queued) = self.pods.remove(&uid) {
                self.unlink(&queued);
                self.requeue(queued, Strategy::AfterBackoff, "UnschedulableTimeout", now);
            }
        }
        let next = self.backoff.keys().next().map(|(at, _)| *at);
        let latest = self.unschedulable.first();
        let latest = latest.map(|(since, _)| since.plus(MAX_IN_UNSCHEDULABLE).plus(Duration::from_millis(1)));
        next.into_iter().chain(latest).min()
    }

    /// How long a pod waits before it is tried again.
    fn backoff_of(&self, queued: &QueuedPod) -> Duration {
        let count = if queued.consecutive_errors > 0 { queued.consecutive_errors } else { queued.unschedulable_count };
        let Some(doublings) = count.checked_sub(1) else { return Duration::ZERO };
        let factor = 1u32.checked_shl(doublings).unwrap_or(u32::MAX);
        self.initial_backoff.saturating_mul(factor).min(self.max_backoff)
    }

    /// Whether an event is a reason to try a pod again.
    fn strategy(&self, queued: &QueuedPod, event: ClusterEvent, object: &EventObject) -> Strategy {
        let mut rejectors = queued.rejectors().peekable();
        if rejectors.peek().is_none() {
            return Strategy::AfterBackoff;
        }
        if event.resource == EventResource::WildCard {
            return Strategy::AfterBackoff;
        }
        let Some(profile) = self.profile(&queued.pod) else { return Strategy::AfterBackoff };
        let mut strategy = Strategy::Skip;
        for name in rejectors {
            // Who is not one of the plugins, such as an extender, says nothing about events: any may help.
            let hint = profile.plugin(name).map_or(QueueingHint::Queue, |plugin| {
                match plugin.events().iter().any(|known| event.matches(*known)) {
                    true => plugin.hint(&queued.pod, event, object),
                    false => QueueingHint::Skip,
                }
            });
            if hint == QueueingHint::Queue {
                let pending = queued.pending_plugins.contains(&name);
                strategy = strategy.max(if pending { Strategy::Immediately } else { Strategy::AfterBackoff });
            }
        }
        strategy
    }

    fn requeue(&mut self, mut queued: QueuedPod, strategy: Strategy, event: &str, now: Moment) {
        if strategy == Strategy::Skip {
            let (place, queue) = match queued.gated {
                true => (Place::Gated, "gated"),
                false => (Place::Unschedulable, "unschedulable"),
            };
            self.count(queue, event);
            return self.link(queued, place);
        }
        let until = queued.timestamp.plus(self.backoff_of(&queued));
        if strategy == Strategy::AfterBackoff && until > now && !queued.gated {
            // Pods are taken from here too when no other is active, so the gates stand before this as well.
            self.gate(&mut queued);
            let (place, queue) = match queued.gated {
                true => (Place::Gated, "gated"),
                false => (Place::Backoff(until), "backoff"),
            };
            self.count(queue, event);
            return self.link(queued, place);
        }
        self.make_active(queued, event);
    }

    /// Lets a pod be looked at, unless it is kept back.
    fn make_active(&mut self, mut queued: QueuedPod, event: &str) {
        self.gate(&mut queued);
        let (place, queue) = if queued.gated { (Place::Gated, "gated") } else { (Place::Active, "active") };
        self.count(queue, event);
        self.link(queued, place);
    }

    /// Asks whether a plugin keeps a pod back, or whether others are being evicted for it.
    fn gate(&self, queued: &mut QueuedPod) {
        let refused = self.profile(&queued.pod).and_then(|profile| {
            let mut plugins = profile.at(Point::PreEnqueue);
            plugins.find_map(|(plugin, _)| plugin.pre_enqueue(&queued.pod).err().map(|status| (plugin.name(), status)))
        });
        let held = || ("DefaultPreemption", Status::unresolvable(HELD));
        let refused = refused.or_else(|| self.held.contains(&queued.pod.uid).then(held));
        queued.gated = refused.is_some();
        if let Some((plugin, status)) = refused {
            queued.gate = status.message();
            if !queued.unschedulable_plugins.contains(&plugin) {
                queued.unschedulable_plugins.push(plugin);
            }
        }
    }

    fn count(&mut self, queue: &'static str, event: &str) {
        *self.incoming.entry((queue, event.to_owned())).or_default() += 1;
    }

    fn link(&mut self, mut queued: QueuedPod, place: Place) {
        queued.place = place;
        let uid = Arc::clone(&queued.pod.uid);
        match place {
            Place::Active => drop(self.active.insert(queued.order())),
            Place::Backoff(until) => drop(self.backoff.insert((until, queued.order()), ())),
            Place::Unschedulable => drop(self.unschedulable.insert((queued.timestamp, uid))),
            Place::Gated => drop(self.gated.insert(uid)),
        }
        if matches!(place, Place::Unschedulable | Place::Gated) {
            queued.rejectors().for_each(|name| *self.refusals.entry(name).or_default() += 1);
        }
        self.pods.insert(Arc::clone(&queued.pod.uid), queued);
    }

    /// Before anything about the pod changes.
    fn unlink(&mut self, queued: &QueuedPod) {
        match queued.place {
            Place::Active => drop(self.active.remove(&queued.order())),
            Place::Backoff(until) => drop(self.backoff.remove(&(until, queued.order()))),
            Place::Unschedulable => drop(self.unschedulable.remove(&(queued.timestamp, Arc::clone(&queued.pod.uid)))),
            Place::Gated => drop(self.gated.remove(&queued.pod.uid)),
        }
        if matches!(queued.place, Place::Unschedulable | Place::Gated) {
            for name in queued.rejectors() {
                match self.refusals.get_mut(name) {
                    Some(count) if *count > 1 => *count -= 1,
                    _ => drop(self.refusals.remove(name)),
                }
            }
        }
    }
}
