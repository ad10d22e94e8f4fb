//! Pods evenly over domains: zones, hosts, or whatever label says so.

use std::collections::HashMap;

use k8s_openapi::api::core::v1::{Node, TopologySpreadConstraint};

use crate::{
    cache::Slot,
    event::{ActionType as A, ClusterEvent, EventObject, EventResource as R},
    node_info::{NodeInfo, Pair, has_untolerated_taint},
    plugin::{Cycle, Filter, MAX_NODE_SCORE, Plugin, Point, QueueingHint, Scope, Score},
    pod_info::{PodInfo, SpreadConstraint, labels_of},
    selectors::Labels,
    status::Status,
};

const HOSTNAME: &str = "kubernetes.io/hostname";
const NOT_MATCHED: &str = "node(s) didn't match pod topology spread constraints";
const LABEL_MISSING: &str = "node(s) didn't match pod topology spread constraints (missing required label)";

/// What is asked of pods that ask for nothing themselves.
#[derive(Clone, Debug, Default)]
pub enum Defaults {
    /// Rather over hosts and zones, without demanding that nodes say where they are.
    #[default]
    System,
    /// What the configuration says.
    List(Vec<TopologySpreadConstraint>),
}

/// Pods evenly over domains.
#[derive(Clone, Debug, Default)]
pub struct PodTopologySpread {
    /// What is asked of pods that ask for nothing themselves.
    pub defaults: Defaults,
}

fn system_defaults() -> [TopologySpreadConstraint; 2] {
    [(HOSTNAME, 3), ("topology.kubernetes.io/zone", 5)].map(|(key, skew)| TopologySpreadConstraint {
        topology_key: key.to_owned(),
        max_skew: skew,
        when_unsatisfiable: "ScheduleAnyway".to_owned(),
        ..TopologySpreadConstraint::default()
    })
}

impl PodTopologySpread {
    /// The constraints that hold for a pod, and whether nodes without their labels are out.
    fn constraints(&self, cycle: Cycle<'_>, hard: bool) -> (Vec<SpreadConstraint>, bool) {
        let own = &cycle.pod.rules().spread;
        if !own.is_empty() {
            return (own.iter().filter(|constraint| constraint.hard == hard).cloned().collect(), true);
        }
        let (defaults, strict) = match &self.defaults {
            Defaults::System => (system_defaults().to_vec(), false),
            Defaults::List(list) => (list.clone(), true),
        };
        let mut constraints = Vec::new();
        for constraint in &defaults {
            if let Ok(constraint) = SpreadConstraint::new(constraint, cycle.pod.labels())
                && constraint.hard == hard
            {
                constraints.push(constraint);
            }
        }
        if constraints.is_empty() {
            return (constraints, strict);
        }
        let Some(selector) = cycle.cache.world.default_selector(cycle.pod) else { return (Vec::new(), strict) };
        constraints.iter_mut().for_each(|constraint| constraint.selector = selector.clone());
        (constraints, strict)
    }
}

/// The place of a node that has no domain.
const NOWHERE: u32 = u32::MAX;

/// How the pods that one constraint counts are spread.
#[derive(Debug)]
struct Domains {
    constraint: SpreadConstraint,
    /// The domain of each node.
    of: Vec<u32>,
    /// Whether the pods on a node count.
    counted: Vec<bool>,
    /// How many there are in each domain, and whether it has a node that counts.
    counts: Vec<(i64, bool)>,
    /// How many there are on each node, whether they count or not.
    on_node: Vec<i64>,
    /// The fewest in a domain that counts, and how many domains have as few.
    min: i64,
    at_min: usize,
    domains: usize,
    /// Whether the pod itself is one of those that count.
    itself: i64,
}

impl Domains {
    fn new(cycle: Cycle<'_>, constraint: SpreadConstraint, all_keys: &[String]) -> Self {
        let places = cycle.cache.places();
        let itself = i64::from(constraint.selector.matches(cycle.pod.labels()));
        let mut this = Domains {
            of: vec![NOWHERE; places],
            counted: vec![false; places],
            counts: Vec::new(),
            on_node: vec![0; places],
            min: 0,
            at_min: 0,
            domains: 0,
            itself,
            constraint,
        };
        let mut index: HashMap<Pair, u32> = HashMap::new();
        for node in cycle.cache.nodes() {
            let at = node.slot.index();
            if let Some(pair) = node.pair(&this.constraint.topology_key) {
                let next = index.len() as u32;
                let domain = *index.entry(pair).or_insert(next);
                this.of[at] = domain;
                if domain as usize == this.counts.len() {
                    this.counts.push((0, false));
                }
            }
            let complete = all_keys.iter().all(|key| node.pair(key).is_some());
            this.counted[at] = complete && this.counts_on(cycle.pod, node);
            let here = node.pods.iter().filter(|other| this.counts_pod(cycle.pod, other)).count() as i64;
            this.on_node[at] = here;
            if this.counted[at] && this.of[at] != NOWHERE {
                let (count, known) = &mut this.counts[this.of[at] as usize];
                *count += here;
                *known = true;
            }
        }
        this.find_min();
        this
    }

    fn counts_on(&self, pod: &PodInfo, node: &NodeInfo) -> bool {
        (!self.constraint.honor_affinity || pod.rules().matches_node(node.name(), node.labels()))
            && (!self.constraint.honor_taints || !has_untolerated_taint(&node.node, pod))
    }

    fn counts_pod(&self, pod: &PodInfo, other: &PodInfo) -> bool {
        !other.is_terminating()
            && other.namespace() == pod.namespace()
            && !self.constraint.selector.is_everything()
            && self.constraint.selector.matches(other.labels())
    }

    fn find_min(&mut self) {
        let known = self.counts.iter().filter(|(_, known)| *known).map(|(count, _)| *count);
        // Without any domain nothing is too much.
        self.min = known.clone().min().unwrap_or(i64::from(i32::MAX));
        self.at_min = known.clone().filter(|count| *count == self.min).count();
        self.domains = known.count();
    }

    fn update(&mut self, pod: &PodInfo, other: &PodInfo, slot: Slot, delta: i64) {
        if !self.counts_pod(pod, other) {
            return;
        }
        let Some(on_node) = self.on_node.get_mut(slot.index()) else { return };
        *on_node += delta;
        let domain = self.of[slot.index()];
        if !self.counted[slot.index()] || domain == NOWHERE {
            return;
        }
        let count = &mut self.counts[domain as usize].0;
        let before = *count;
        *count += delta;
        if *count < self.min {
            (self.min, self.at_min) = (*count, 1);
        } else if *count == self.min {
            self.at_min += 1;
        } else if before == self.min {
            self.at_min -= 1;
        }
        if self.at_min == 0 || (before == self.min && *count < before) {
            self.find_min();
        }
    }

    fn min(&self) -> i64 {
        if (self.domains as i64) < i64::from(self.constraint.min_domains) { 0 } else { self.min }
    }
}

fn domains(cycle: Cycle<'_>, constraints: Vec<SpreadConstraint>, strict: bool) -> Vec<Domains> {
    let keys: Vec<_> = match strict {
        true => constraints.iter().map(|constraint| constraint.topology_key.clone()).collect(),
        false => Vec::new(),
    };
    constraints.into_iter().map(|constraint| Domains::new(cycle, constraint, &keys)).collect()
}

#[derive(Debug)]
struct SpreadFilter(Vec<Domains>);

impl Filter for SpreadFilter {
    fn scope(&self) -> Scope {
        Scope::Cluster
    }

    fn filter(&self, _cycle: Cycle<'_>, node: &NodeInfo) -> Result<(), Status> {
        for domains in &self.0 {
            let domain = domains.of[node.slot.index()];
            if domain == NOWHERE {
                return Err(Status::unresolvable(LABEL_MISSING));
            }
            let skew = domains.counts[domain as usize].0 + domains.itself - domains.min();
            if skew > i64::from(domains.constraint.max_skew) {
                return Err(Status::unschedulable(NOT_MATCHED));
            }
        }
        Ok(())
    }

    fn update(&mut self, cycle: Cycle<'_>, other: &PodInfo, node: &NodeInfo, delta: i64) {
        self.0.iter_mut().for_each(|domains| domains.update(cycle.pod, other, node.slot, delta));
    }
}

#[derive(Debug)]
struct SpreadScore {
    domains: Vec<Domains>,
    strict: bool,
    weights: Vec<f64>,
    /// The last time that a domain was seen, for counting those of the nodes that are ranked.
    seen: Vec<Vec<u64>>,
    round: u64,
}

impl SpreadScore {
    fn is_ignored(&self, slot: Slot) -> bool {
        self.strict && self.domains.iter().any(|domains| domains.of[slot.index()] == NOWHERE)
    }
}

impl Score for SpreadScore {
    fn scope(&self) -> Scope {
        Scope::Cluster
    }

    fn prepare(&mut self, _cycle: Cycle<'_>, feasible: &[Slot]) -> bool {
        self.round += 1;
        let ranked: Vec<Slot> = feasible.iter().copied().filter(|slot| !self.is_ignored(*slot)).collect();
        self.weights.clear();
        for (domains, seen) in self.domains.iter().zip(&mut self.seen) {
            let size = if domains.constraint.topology_key == HOSTNAME {
                ranked.len()
            } else {
                let mut size = 0;
                for slot in &ranked {
                    // The last place is for nodes without a domain, which together count as one.
                    let domain = domains.of[slot.index()];
                    let at = if domain == NOWHERE { domains.counts.len() } else { domain as usize };
                    size += usize::from(std::mem::replace(&mut seen[at], self.round) != self.round);
                }
                size
            };
            self.weights.push(((size + 2) as f64).ln());
        }
        true
    }

    fn score(&self, _cycle: Cycle<'_>, node: &NodeInfo) -> i64 {
        if self.is_ignored(node.slot) {
            return 0;
        }
        let mut score = 0.0;
        for (domains, weight) in self.domains.iter().zip(&self.weights) {
            let domain = domains.of[node.slot.index()];
            if domain == NOWHERE {
                continue;
            }
            let count = match domains.constraint.topology_key == HOSTNAME {
                true => domains.on_node[node.slot.index()],
                false => domains.counts[domain as usize].0,
            };
            score += count as f64 * weight + f64::from(domains.constraint.max_skew - 1);
        }
        score.round() as i64
    }

    fn normalize(&self, slots: &[Slot], scores: &mut [i64]) {
        let ranked = |slot: &Slot| !self.is_ignored(*slot);
        let all = || slots.iter().zip(scores.iter()).filter(|(slot, _)| ranked(slot)).map(|(_, score)| *score);
        let (min, max) = (all().min().unwrap_or(0), all().max().unwrap_or(0).max(0));
        for (slot, score) in slots.iter().zip(scores) {
            *score = match max {
                _ if !ranked(slot) => 0,
                0 => MAX_NODE_SCORE,
                max => MAX_NODE_SCORE * (max + min - *score) / max,
            };
        }
    }

    fn update(&mut self, cycle: Cycle<'_>, other: &PodInfo, node: &NodeInfo, delta: i64) {
        self.domains.iter_mut().for_each(|domains| domains.update(cycle.pod, other, node.slot, delta));
    }
}

impl Plugin for PodTopologySpread {
    fn name(&self) -> &'static str {
        "PodTopologySpread"
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
                ClusterEvent::new(R::Pod, A::ADD.or(A::UPDATE_POD_LABEL).or(A::UPDATE_POD_TOLERATION).or(A::DELETE)),
                ClusterEvent::new(R::Node, A::ADD.or(A::DELETE).or(A::UPDATE_NODE_LABEL).or(A::UPDATE_NODE_TAINT)),
            ]
        }
    }

    fn hint(&self, pod: &PodInfo, _event: ClusterEvent, object: &EventObject) -> QueueingHint {
        let own: Vec<_> = pod.rules().spread.iter().filter(|constraint| constraint.hard).collect();
        if own.is_empty() {
            // Refused by a default of the configuration: whose pods count is not known here.
            return QueueingHint::Queue;
        }
        let placed = |other: &PodInfo| !other.node_name().is_empty() || !other.nominated_node_name().is_empty();
        let involved =
            |other: &PodInfo| other.namespace() == pod.namespace() && (other.uid == pod.uid || placed(other));
        let matches = |labels: &Labels| own.iter().map(|c| c.selector.matches(labels)).collect::<Vec<_>>();
        let has_keys = |node: &Node| {
            let labels = labels_of(node.metadata.labels.as_ref());
            own.iter().all(|constraint| labels.contains_key(&constraint.topology_key))
        };
        let values = |node: &Node| {
            let labels = labels_of(node.metadata.labels.as_ref()).clone();
            own.iter().map(|constraint| labels.get(&constraint.topology_key).cloned()).collect::<Vec<_>>()
        };
        let queue = match object {
            EventObject::Pod(old, new) if !old.iter().chain(new).all(|other| involved(other)) => false,
            EventObject::Pod(Some(old), Some(new)) => {
                (pod.uid == new.uid && old.tolerations() != new.tolerations() && own.iter().any(|c| c.honor_taints))
                    || matches(old.labels()) != matches(new.labels())
            }
            EventObject::Pod(Some(one), None) | EventObject::Pod(None, Some(one)) => {
                matches(one.labels()).contains(&true)
            }
            EventObject::Node(Some(old), Some(new)) => {
                has_keys(old) != has_keys(new)
                    || (has_keys(new)
                        && (values(old) != values(new)
                            || crate::node_info::taints(old) != crate::node_info::taints(new)))
            }
            EventObject::Node(Some(one), None) | EventObject::Node(None, Some(one)) => has_keys(one),
            _ => true,
        };
        if queue { QueueingHint::Queue } else { QueueingHint::Skip }
    }

    fn pre_filter(&self, cycle: Cycle<'_>) -> Result<Option<Box<dyn Filter>>, Status> {
        if let Some(invalid) = &cycle.pod.rules().invalid {
            return Err(Status::unresolvable(format!("parsing pod: {invalid}")));
        }
        let (constraints, _) = self.constraints(cycle, true);
        if constraints.is_empty() {
            return Ok(None);
        }
        Ok(Some(Box::new(SpreadFilter(domains(cycle, constraints, true)))))
    }

    fn pre_score(&self, cycle: Cycle<'_>) -> Option<Box<dyn Score>> {
        let (constraints, strict) = self.constraints(cycle, false);
        if constraints.is_empty() {
            return None;
        }
        let domains = domains(cycle, constraints, strict);
        let seen = domains.iter().map(|domains| vec![0; domains.counts.len() + 1]).collect();
        Some(Box::new(SpreadScore { domains, strict, weights: Vec::new(), seen, round: 0 }))
    }
}
