//! How many nodes of a zone are lost, and how fast pods may leave. Pure.

use std::collections::{BTreeMap, BTreeSet, VecDeque};

use capstan_clock::Moment;

/// How many nodes a second are tainted in a zone that is well.
const EVICTION_RATE: f64 = 0.1;
/// The same, in a large zone that is not.
const SECONDARY_EVICTION_RATE: f64 = 0.01;
/// How many nodes make a zone large.
const LARGE_ZONE: usize = 50;
/// The part of nodes that may be lost before a zone is not well.
const UNHEALTHY_ZONE: f64 = 0.55;

/// How a zone is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum ZoneState {
    Initial,
    Normal,
    PartialDisruption,
    FullDisruption,
}

impl ZoneState {
    /// By how many nodes are ready and how many are not.
    pub(super) fn of(ready: usize, not_ready: usize) -> Self {
        if ready == 0 && not_ready > 0 {
            ZoneState::FullDisruption
        } else if not_ready > 2 && not_ready as f64 / (ready + not_ready) as f64 >= UNHEALTHY_ZONE {
            ZoneState::PartialDisruption
        } else {
            ZoneState::Normal
        }
    }

    fn rate(self, size: usize) -> Option<f64> {
        match self {
            ZoneState::Initial => None,
            ZoneState::Normal | ZoneState::FullDisruption => Some(EVICTION_RATE),
            ZoneState::PartialDisruption if size > LARGE_ZONE => Some(SECONDARY_EVICTION_RATE),
            ZoneState::PartialDisruption => Some(0.0),
        }
    }
}

/// The nodes of a zone that are to be tainted, at a limited rate. A node that was tainted is not tainted again unless
/// it was well in between.
#[derive(Clone, Debug)]
pub(super) struct TaintQueue {
    queue: VecDeque<String>,
    known: BTreeSet<String>,
    rate: f64,
    next: Moment,
}

impl TaintQueue {
    fn new() -> Self {
        TaintQueue { queue: VecDeque::new(), known: BTreeSet::new(), rate: EVICTION_RATE, next: Moment::default() }
    }

    pub(super) fn add(&mut self, node: &str) {
        if self.known.insert(node.to_owned()) {
            self.queue.push_back(node.to_owned());
        }
    }

    pub(super) fn remove(&mut self, node: &str) -> bool {
        self.queue.retain(|queued| queued != node);
        self.known.remove(node)
    }

    /// The next node, if it is time.
    pub(super) fn next(&mut self, now: Moment) -> Option<String> {
        if self.rate <= 0.0 || now < self.next {
            return None;
        }
        let node = self.queue.pop_front()?;
        self.next = now.plus(std::time::Duration::from_secs_f64(1.0 / self.rate));
        Some(node)
    }

    /// It was not the time for that node; it has cost nothing.
    pub(super) fn put_back(&mut self, node: String, now: Moment) {
        self.next = now;
        if self.known.contains(&node) {
            self.queue.push_front(node);
        }
    }

    /// The node could not be tainted.
    pub(super) fn again(&mut self, node: String) {
        if self.known.contains(&node) {
            self.queue.push_back(node);
        }
    }

    fn set_rate(&mut self, rate: f64, now: Moment) {
        if (self.rate - rate).abs() < f64::EPSILON {
            return;
        }
        // Who has just used the old rate waits for the new one.
        if rate > 0.0 && now < self.next {
            self.next = now.plus(std::time::Duration::from_secs_f64(1.0 / rate));
        }
        self.rate = rate;
    }
}

/// All zones.
#[derive(Debug, Default)]
pub(super) struct Zones {
    zones: BTreeMap<String, (ZoneState, TaintQueue)>,
}

/// What a change of all zones together means.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Turn {
    /// Nothing.
    None,
    /// No node is heard of any more: it is this loop that is cut off, so all taints are to go.
    AllLost,
    /// The first nodes are heard of again: all others get time.
    Back,
}

impl Zones {
    pub(super) fn queue(&mut self, zone: &str) -> &mut TaintQueue {
        let new = || (ZoneState::Initial, TaintQueue::new());
        &mut self.zones.entry(zone.to_owned()).or_insert_with(new).1
    }

    pub(super) fn queues(&mut self) -> impl Iterator<Item = &mut TaintQueue> {
        self.zones.values_mut().map(|(_, queue)| queue)
    }

    /// The node is gone.
    pub(super) fn forget(&mut self, node: &str) {
        for queue in self.queues() {
            queue.remove(node);
        }
    }

    pub(super) fn has_work(&self) -> bool {
        self.zones.values().any(|(_, queue)| !queue.queue.is_empty() && queue.rate > 0.0)
    }

    /// Sets the rates by how many nodes of each zone are ready, and how many are not.
    pub(super) fn update(&mut self, counts: &BTreeMap<String, (usize, usize)>, now: Moment) -> Turn {
        for zone in counts.keys() {
            self.queue(zone);
        }
        let states: BTreeMap<_, _> =
            counts.iter().map(|(zone, (ready, lost))| (zone, ZoneState::of(*ready, *lost))).collect();
        let all_lost = states.values().all(|state| *state == ZoneState::FullDisruption);
        self.zones.retain(|zone, _| counts.contains_key(zone));
        let all_were_lost = self.zones.values().all(|(state, _)| *state == ZoneState::FullDisruption);
        if all_lost && all_were_lost {
            return Turn::None;
        }
        for (zone, (state, queue)) in &mut self.zones {
            let new = states.get(zone).copied().unwrap_or(ZoneState::Normal);
            if all_lost {
                queue.set_rate(0.0, now);
            } else if all_were_lost || *state != new {
                let size = counts.get(zone).map_or(0, |(ready, lost)| ready + lost);
                queue.set_rate(new.rate(size).unwrap_or(queue.rate), now);
            }
            *state = new;
        }
        match (all_lost, all_were_lost) {
            (true, _) => Turn::AllLost,
            (_, true) => Turn::Back,
            _ => Turn::None,
        }
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;

    #[test]
    fn states() {
        for (ready, lost, expected) in [
            (3, 0, ZoneState::Normal),
            (0, 0, ZoneState::Normal),
            (0, 1, ZoneState::FullDisruption),
            (1, 2, ZoneState::Normal),
            (2, 3, ZoneState::PartialDisruption),
            (5, 6, ZoneState::Normal),
            (9, 11, ZoneState::PartialDisruption),
        ] {
            assert_eq!(ZoneState::of(ready, lost), expected, "{ready} {lost}");
        }
    }

    #[test]
    fn rates() {
        let at = |seconds| Moment(Duration::from_secs(seconds));
        let counts =
            |one: (usize, usize), two: (usize, usize)| BTreeMap::from([("1".to_owned(), one), ("2".to_owned(), two)]);
        let mut zones = Zones::default();
        assert_eq!(zones.update(&counts((3, 0), (3, 0)), at(0)), Turn::None);
        for node in ["a", "b", "a"] {
            zones.queue("1").add(node);
        }
        assert_eq!(zones.queue("1").next(at(100)).as_deref(), Some("a"));
        assert_eq!(zones.queue("1").next(at(109)), None);
        assert_eq!(zones.queue("1").next(at(110)).as_deref(), Some("b"));
        zones.queue("1").add("a");
        assert_eq!(zones.queue("1").next(at(200)), None, "it was tainted already");
        assert!(zones.queue("1").remove("a"));
        zones.queue("1").add("a");

        // Most of a small zone is lost: nobody leaves; of a large one: slowly.
        assert_eq!(zones.update(&counts((1, 9), (10, 90)), at(200)), Turn::None);
        assert_eq!(zones.queue("1").next(at(1000)), None);
        assert!(!zones.has_work());
        zones.queue("2").add("x");
        zones.queue("2").add("y");
        assert_eq!(zones.queue("2").next(at(200)).as_deref(), Some("x"));
        assert_eq!(zones.queue("2").next(at(299)), None);
        assert_eq!(zones.queue("2").next(at(300)).as_deref(), Some("y"));

        // All is lost, and back.
        assert_eq!(zones.update(&counts((0, 9), (10, 90)), at(300)), Turn::None);
        assert_eq!(zones.update(&counts((0, 9), (0, 90)), at(300)), Turn::AllLost);
        assert_eq!(zones.update(&counts((0, 9), (0, 90)), at(300)), Turn::None);
        assert_eq!(zones.queue("1").next(at(1000)), None);
        assert_eq!(zones.update(&counts((8, 1), (0, 90)), at(1000)), Turn::Back);
        assert_eq!(zones.queue("1").next(at(1000)).as_deref(), Some("a"));
    }
}
