//! Pods near other pods, or far from them.

use crate::{
    cache::Slot,
    event::{ActionType as A, ClusterEvent, EventObject, EventResource as R},
    node_info::NodeInfo,
    plugin::{Cycle, Filter, MAX_NODE_SCORE, Plugin, Point, QueueingHint, Scope, Score},
    pod_info::{AffinityTerm, PodInfo, labels_of},
    status::Status,
    world::World,
};

/// Pods near other pods, or far from them.
#[derive(Clone, Debug)]
pub struct InterPodAffinity {
    /// How much it counts that a pod on a node requires pods like this nearby.
    pub hard_pod_affinity_weight: i64,
    /// Whether wishes of pods on nodes are not looked at for pods without wishes of their own.
    pub ignore_preferred_terms_of_existing_pods: bool,
}

impl Default for InterPodAffinity {
    fn default() -> Self {
        InterPodAffinity { hard_pod_affinity_weight: 1, ignore_preferred_terms_of_existing_pods: false }
    }
}

/// The number of a label that a node does not have.
const NONE: u32 = u32::MAX;

/// A label that counts are about, and its value on each node, by the node's place: as long as a class of pods is
/// remembered, labels of nodes do not change.
#[derive(Debug)]
struct Key {
    name: String,
    pairs: Vec<u32>,
}

/// How many pods match, by label and value of the nodes that they are on. Asked for every node, so there is nothing to
/// search.
#[derive(Debug, Default)]
struct Counts {
    counts: Vec<i64>,
    /// How many of them are not zero.
    left: usize,
    keys: Vec<Key>,
}

impl Counts {
    /// The place of a label among the keys.
    fn key(&mut self, cycle: Cycle<'_>, name: &str) -> usize {
        if let Some(at) = self.keys.iter().position(|key| key.name == name) {
            return at;
        }
        let mut pairs = vec![NONE; cycle.cache.places()];
        for node in cycle.cache.nodes() {
            pairs[node.slot.index()] = node.pair(name).map_or(NONE, |pair| pair.0);
        }
        self.keys.push(Key { name: name.to_owned(), pairs });
        self.keys.len() - 1
    }

    fn pair(&self, slot: Slot, key: usize) -> Option<usize> {
        let pair = *self.keys[key].pairs.get(slot.index())?;
        (pair != NONE).then_some(pair as usize)
    }

    fn add(&mut self, cycle: Cycle<'_>, slot: Slot, key: &str, delta: i64) {
        let key = self.key(cycle, key);
        let Some(pair) = self.pair(slot, key) else { return };
        if pair >= self.counts.len() {
            self.counts.resize(pair + 1, 0);
        }
        let count = &mut self.counts[pair];
        self.left -= usize::from(*count != 0);
        *count += delta;
        self.left += usize::from(*count != 0);
    }

    fn of(&self, slot: Slot, key: usize) -> i64 {
        self.pair(slot, key).and_then(|pair| self.counts.get(pair)).copied().unwrap_or_default()
    }

    /// The sum over all labels.
    fn sum(&self, slot: Slot) -> i64 {
        (0..self.keys.len()).map(|key| self.of(slot, key)).sum()
    }

    fn any(&self, slot: Slot) -> bool {
        self.left > 0 && (0..self.keys.len()).any(|key| self.of(slot, key) > 0)
    }

    fn is_empty(&self) -> bool {
        self.left == 0
    }
}

fn matches_all(terms: &[AffinityTerm], pod: &PodInfo, world: &World) -> bool {
    !terms.is_empty() && terms.iter().all(|term| term.matches(pod, world))
}

#[derive(Debug, Default)]
struct AffinityFilter {
    /// Pods that must not have this one near.
    existing_anti: Counts,
    /// Pods that this one must have near; its keys are those of all rules about that.
    affinity: Counts,
    needs_near: bool,
    /// Pods that this one must not have near.
    anti: Counts,
    /// Whether the pod is one of those that it must have near: the first of them may go anywhere.
    matches_itself: bool,
}

impl AffinityFilter {
    fn count(&mut self, cycle: Cycle<'_>, other: &PodInfo, node: &NodeInfo, delta: i64) {
        let (rules, world) = (cycle.pod.rules(), &cycle.cache.world);
        if other.has_affinity() {
            for term in &other.rules().required_anti_affinity {
                if term.matches(cycle.pod, world) {
                    self.existing_anti.add(cycle, node.slot, &term.topology_key, delta);
                }
            }
        }
        if matches_all(&rules.required_affinity, other, world) {
            for term in &rules.required_affinity {
                self.affinity.add(cycle, node.slot, &term.topology_key, delta);
            }
        }
        for term in &rules.required_anti_affinity {
            if term.matches(other, world) {
                self.anti.add(cycle, node.slot, &term.topology_key, delta);
            }
        }
    }
}

impl Filter for AffinityFilter {
    fn scope(&self) -> Scope {
        Scope::Cluster
    }

    fn is_idle(&self) -> bool {
        !self.needs_near && self.anti.is_empty() && self.existing_anti.is_empty()
    }

    fn filter(&self, _cycle: Cycle<'_>, node: &NodeInfo) -> Result<(), Status> {
        let (affinity, slot) = (&self.affinity, node.slot);
        if self.needs_near {
            let mut keys = 0..affinity.keys.len();
            let has_labels = keys.clone().all(|key| affinity.pair(slot, key).is_some());
            let first = affinity.is_empty() && self.matches_itself;
            if !has_labels || !(first || keys.all(|key| affinity.of(slot, key) > 0)) {
                return Err(Status::unresolvable("node(s) didn't match pod affinity rules"));
            }
        }
        if self.anti.any(slot) {
            return Err(Status::unschedulable("node(s) didn't match pod anti-affinity rules"));
        }
        if self.existing_anti.any(slot) {
            return Err(Status::unschedulable("node(s) didn't satisfy existing pods anti-affinity rules"));
        }
        Ok(())
    }

    fn update(&mut self, cycle: Cycle<'_>, other: &PodInfo, node: &NodeInfo, delta: i64) {
        self.count(cycle, other, node, delta);
    }
}

#[derive(Debug)]
struct AffinityScore {
    scores: Counts,
    hard_weight: i64,
}

impl AffinityScore {
    fn count(&mut self, cycle: Cycle<'_>, other: &PodInfo, node: &NodeInfo, delta: i64) {
        let world = &cycle.cache.world;
        let rules = cycle.pod.rules();
        for (terms, sign) in [(&rules.preferred_affinity, 1), (&rules.preferred_anti_affinity, -1)] {
            for (weight, term) in terms.iter().filter(|(_, term)| term.matches(other, world)) {
                self.scores.add(cycle, node.slot, &term.topology_key, weight * sign * delta);
            }
        }
        if !other.has_affinity() {
            return;
        }
        let rules = other.rules();
        if self.hard_weight > 0 {
            for term in rules.required_affinity.iter().filter(|term| term.matches(cycle.pod, world)) {
                self.scores.add(cycle, node.slot, &term.topology_key, self.hard_weight * delta);
            }
        }
        for (terms, sign) in [(&rules.preferred_affinity, 1), (&rules.preferred_anti_affinity, -1)] {
            for (weight, term) in terms.iter().filter(|(_, term)| term.matches(cycle.pod, world)) {
                self.scores.add(cycle, node.slot, &term.topology_key, weight * sign * delta);
            }
        }
    }
}

impl Score for AffinityScore {
    fn scope(&self) -> Scope {
        Scope::Cluster
    }

    fn prepare(&mut self, _cycle: Cycle<'_>, _feasible: &[Slot]) -> bool {
        !self.scores.is_empty()
    }

    fn score(&self, _cycle: Cycle<'_>, node: &NodeInfo) -> i64 {
        self.scores.sum(node.slot)
    }

    fn normalize(&self, _slots: &[Slot], scores: &mut [i64]) {
        let (min, max) = (scores.iter().copied().min().unwrap_or(0), scores.iter().copied().max().unwrap_or(0));
        for score in scores {
            *score = match max - min {
                0 => 0,
                range => (MAX_NODE_SCORE as f64 * ((*score - min) as f64 / range as f64)) as i64,
            };
        }
    }

    fn update(&mut self, cycle: Cycle<'_>, other: &PodInfo, node: &NodeInfo, delta: i64) {
        self.count(cycle, other, node, delta);
    }
}

impl Plugin for InterPodAffinity {
    fn name(&self) -> &'static str {
        "InterPodAffinity"
    }

    fn points(&self) -> &'static [Point] {
        &[Point::PreFilter, Point::Filter, Point::PreScore, Point::Score]
    }

    fn by_class(&self) -> bool {
        true
    }

    fn events(&self) -> &'static [ClusterEvent] {
        const {
            &[
                ClusterEvent::new(R::Pod, A::ADD.or(A::UPDATE_POD_LABEL).or(A::DELETE)),
                // With a node its pods are gone from their zone before they are deleted. (Upstream waits for that.)
                ClusterEvent::new(R::Node, A::ADD.or(A::DELETE).or(A::UPDATE_NODE_LABEL)),
            ]
        }
    }

    fn hint(&self, pod: &PodInfo, _event: ClusterEvent, object: &EventObject) -> QueueingHint {
        // Namespaces are not looked up here: a term that selects namespaces is taken to mean all of them.
        let rules = pod.rules();
        let world = World::default();
        let (want, avoid) = (&rules.required_affinity, &rules.required_anti_affinity);
        let placed = |other: &PodInfo| !other.node_name().is_empty() || !other.nominated_node_name().is_empty();
        let matches = |terms: &[AffinityTerm], other: &PodInfo| matches_all(terms, other, &world);
        let matches_one =
            |terms: &[AffinityTerm], other: &PodInfo| terms.iter().any(|term| term.matches(other, &world));
        // The first of pods that want to be near each other waits until nobody else is there to be near to.
        let first = matches(want, pod);
        let queue = match object {
            EventObject::Pod(Some(_), Some(new)) if new.uid == pod.uid => true,
            EventObject::Pod(old, new) if !old.iter().chain(new).all(|other| placed(other)) => false,
            _ if want.iter().chain(avoid).any(AffinityTerm::selects_namespaces) => true,
            EventObject::Pod(Some(old), Some(new)) => {
                let near = (matches(want, old), matches(want, new));
                near == (false, true)
                    || (first && near == (true, false))
                    || avoid.iter().any(|term| term.matches(old, &world) && !term.matches(new, &world))
            }
            EventObject::Pod(None, Some(new)) => matches(want, new),
            EventObject::Pod(Some(old), None) => {
                let others = &old.rules().required_anti_affinity;
                matches_one(avoid, old)
                    || (first && matches(want, old))
                    || others.iter().any(|term| term.selects_namespaces() || term.matches(pod, &world))
            }
            EventObject::Node(None, Some(new)) => {
                let labels = labels_of(new.metadata.labels.as_ref());
                want.is_empty() || want.iter().any(|term| labels.contains_key(&term.topology_key))
            }
            EventObject::Node(Some(old), Some(new)) => {
                let (old, new) = (labels_of(old.metadata.labels.as_ref()), labels_of(new.metadata.labels.as_ref()));
                // The node left a zone, and its pods with it: by which label others keep away is not known here.
                let left = old.iter().any(|(key, zone)| new.get(key) != Some(zone));
                let joined = |key: &String| new.contains_key(key) && new.get(key) != old.get(key);
                left || want.iter().any(|term| joined(&term.topology_key))
            }
            _ => true,
        };
        if queue { QueueingHint::Queue } else { QueueingHint::Skip }
    }

    fn pre_filter(&self, cycle: Cycle<'_>) -> Result<Option<Box<dyn Filter>>, Status> {
        let rules = cycle.pod.rules();
        if let Some(invalid) = &rules.invalid {
            return Err(Status::unresolvable(format!("parsing pod: {invalid}")));
        }
        let mut filter = AffinityFilter {
            matches_itself: matches_all(&rules.required_affinity, cycle.pod, &cycle.cache.world),
            needs_near: !rules.required_affinity.is_empty(),
            ..AffinityFilter::default()
        };
        for term in &rules.required_affinity {
            filter.affinity.key(cycle, &term.topology_key);
        }
        let own = !rules.required_affinity.is_empty() || !rules.required_anti_affinity.is_empty();
        for node in cycle.cache.nodes() {
            for other in if own { &node.pods } else { &node.with_affinity } {
                filter.count(cycle, other, node, 1);
            }
        }
        // Kept even when it has nothing to say now: pods with rules may come.
        Ok(Some(Box::new(filter)))
    }

    fn pre_score(&self, cycle: Cycle<'_>) -> Option<Box<dyn Score>> {
        let rules = cycle.pod.rules();
        let own = !rules.preferred_affinity.is_empty() || !rules.preferred_anti_affinity.is_empty();
        if self.ignore_preferred_terms_of_existing_pods && !own {
            return None;
        }
        let mut score = AffinityScore { scores: Counts::default(), hard_weight: self.hard_pod_affinity_weight };
        for node in cycle.cache.nodes() {
            for other in if own { &node.pods } else { &node.with_affinity } {
                score.count(cycle, other, node, 1);
            }
        }
        Some(Box::new(score))
    }
}
