//! What is known about a class of pods: the filters and scores that plugins made for it, and their answers for nodes
//! that have not changed since.

use std::{collections::HashMap, sync::Arc};

use crate::{
    cache::{Change, Slot},
    node_info::NodeInfo,
    nominator::Nominator,
    plugin::{Cycle, Filter, Plugin, Point, Scope, Score},
    pod_info::{ClassKey, PodInfo},
    profile::Profile,
    status::{Code, Status},
};

/// How many classes are remembered.
const MAX_CLASSES: usize = 128;

struct FilterOf {
    plugin: Arc<dyn Plugin>,
    position: usize,
    scope: Scope,
    filter: Box<dyn Filter>,
}

struct ScoreOf {
    plugin: Arc<dyn Plugin>,
    weight: i64,
    scope: Scope,
    score: Box<dyn Score>,
}

/// What those filters said of a node that look at nothing else.
#[derive(Clone, Debug, Default)]
struct Memo {
    /// Of which state of the node it is; 0 for none.
    generation: u64,
    scored: u64,
    failed: Option<(usize, Arc<Status>)>,
}

/// The nodes that may do, when plugins know them by name.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct Named {
    pub(crate) names: Vec<String>,
    pub(crate) plugins: Vec<&'static str>,
}

/// What is known about a class of pods.
pub(crate) struct Class {
    filters: Vec<FilterOf>,
    scores: Vec<ScoreOf>,
    /// The filters that depend on the cluster and have something to say now.
    active: Vec<usize>,
    /// No node can do, and why.
    pub(crate) refused: Option<Status>,
    pub(crate) named: Option<Named>,
    /// How many of the plugins that filter were asked before one of them said that no node can do.
    pub(crate) asked: usize,
    memo: Vec<Memo>,
    memo_scores: Vec<i64>,
    seen: u64,
    topology: u64,
    world: u64,
    used: u64,
    /// It is not for others.
    alone: bool,
}

impl std::fmt::Debug for Class {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Class").field("filters", &self.filters.len()).finish_non_exhaustive()
    }
}

impl Class {
    fn new(cycle: Cycle<'_>, profile: &Profile) -> Self {
        let mut class = Class {
            filters: Vec::new(),
            scores: Vec::new(),
            active: Vec::new(),
            refused: None,
            named: None,
            asked: 0,
            memo: Vec::new(),
            memo_scores: Vec::new(),
            seen: cycle.cache.log_end(),
            topology: cycle.cache.topology_version(),
            world: cycle.cache.world.version(),
            used: 0,
            alone: false,
        };
        class.make_filters(cycle, profile);
        for (plugin, weight) in profile.at(Point::Score) {
            if let Some(score) = plugin.pre_score(cycle) {
                class.scores.push(ScoreOf { plugin: Arc::clone(plugin), weight, scope: score.scope(), score });
            }
        }
        class.memo.resize(cycle.cache.places(), Memo::default());
        class.memo_scores.resize(cycle.cache.places() * class.scores.len(), 0);
        class
    }

    fn make_filters(&mut self, cycle: Cycle<'_>, profile: &Profile) {
        for (position, plugin) in profile.filters().into_iter().enumerate() {
            self.asked = position + 1;
            match plugin.pre_filter(cycle) {
                Ok(None) => {}
                Ok(Some(filter)) => {
                    if let Some(names) = filter.nodes() {
                        let named = self.named.get_or_insert_with(|| Named { names: names.to_vec(), plugins: vec![] });
                        named.names.retain(|name| names.contains(name));
                        named.names.sort();
                        named.names.dedup();
                        named.plugins.push(plugin.name());
                        if named.names.is_empty() {
                            named.plugins.sort_unstable();
                            let message = match &named.plugins[..] {
                                [one] => format!("node(s) didn't satisfy plugin {one}"),
                                all => format!("node(s) didn't satisfy plugin(s) [{}] simultaneously", all.join(" ")),
                            };
                            self.refused = Some(Status::unresolvable(message));
                            return;
                        }
                    }
                    let (plugin, scope) = (Arc::clone(plugin), filter.scope());
                    self.filters.push(FilterOf { plugin, position, scope, filter });
                }
                Err(status) => {
                    // What could be helped by evicting others does not keep later plugins from saying that it cannot.
                    let stop = status.code != Code::Unschedulable;
                    self.refused = Some(status.by(plugin.name()));
                    if stop {
                        return;
                    }
                }
            }
        }
    }

    /// Brings it up to date. Says whether that can be done.
    fn catch_up(&mut self, cycle: Cycle<'_>) -> bool {
        let cache = cycle.cache;
        if self.topology != cache.topology_version() || self.world != cache.world.version() {
            return false;
        }
        let Some(changes) = cache.changes_since(self.seen) else { return false };
        for change in changes {
            self.update(cycle, change);
        }
        self.seen = cache.log_end();
        true
    }

    fn update(&mut self, cycle: Cycle<'_>, change: &Change) {
        let node = cycle.cache.node(change.slot);
        for FilterOf { filter, .. } in &mut self.filters {
            filter.update(cycle, &change.pod, node, change.delta);
        }
        for ScoreOf { score, .. } in &mut self.scores {
            score.update(cycle, &change.pod, node, change.delta);
        }
    }

    /// Tells the filters that a pod came to a node or left it, if only for the sake of asking what would be.
    pub(crate) fn pretend(&mut self, cycle: Cycle<'_>, other: &PodInfo, node: &NodeInfo, delta: i64) {
        for FilterOf { filter, .. } in &mut self.filters {
            filter.update(cycle, other, node, delta);
        }
    }

    /// What the node at a place says, as it is in the cache.
    fn check(&mut self, cycle: Cycle<'_>, slot: Slot) -> Result<(), Arc<Status>> {
        let generation = cycle.cache.generation(slot);
        let memo = &mut self.memo[slot.index()];
        if memo.generation != generation {
            memo.generation = generation;
            let mut alone = self.filters.iter().filter(|of| of.scope == Scope::Node);
            memo.failed = alone.find_map(|of| {
                let status = of.filter.filter(cycle, cycle.cache.node(slot)).err()?;
                Some((of.position, Arc::new(status.by(of.plugin.name()))))
            });
        }
        let limit = memo.failed.as_ref().map_or(usize::MAX, |(position, _)| *position);
        for of in self.active.iter().map(|at| &self.filters[*at]).take_while(|of| of.position <= limit) {
            if let Err(status) = of.filter.filter(cycle, cycle.cache.node(slot)) {
                return Err(Arc::new(status.by(of.plugin.name())));
            }
        }
        match &memo.failed {
            Some((_, status)) => Err(Arc::clone(status)),
            None => Ok(()),
        }
    }

    /// What a node says that may differ from the one in the cache.
    fn check_anew(&self, cycle: Cycle<'_>, node: &NodeInfo) -> Result<(), Arc<Status>> {
        let mut all = self.filters.iter();
        all.try_for_each(|of| of.filter.filter(cycle, node).map_err(|status| Arc::new(status.by(of.plugin.name()))))
    }

    /// Whether the pod can go to the node at a place, also when those are there whom the node was made free for.
    pub(crate) fn fits(&mut self, cycle: Cycle<'_>, slot: Slot, nominator: &Nominator) -> Result<(), Arc<Status>> {
        // The others may never come, so it must do without them, too. This is kept from before, so it is asked first.
        self.check(cycle, slot)?;
        match nominator.is_empty() {
            true => Ok(()),
            false => self.fits_with_others(cycle, cycle.cache.node(slot), nominator),
        }
    }

    /// The same for a node that is not as it is in the cache.
    pub(crate) fn would_fit(
        &mut self,
        cycle: Cycle<'_>,
        node: &NodeInfo,
        nominator: &Nominator,
    ) -> Result<(), Arc<Status>> {
        self.check_anew(cycle, node)?;
        self.fits_with_others(cycle, node, nominator)
    }

    fn fits_with_others(
        &mut self,
        cycle: Cycle<'_>,
        node: &NodeInfo,
        nominator: &Nominator,
    ) -> Result<(), Arc<Status>> {
        let pod = cycle.pod;
        let others = nominator.on(node.name()).iter();
        let others: Vec<_> = others.filter(|other| other.priority >= pod.priority && other.uid != pod.uid).collect();
        if others.is_empty() {
            return Ok(());
        }
        let mut copy = node.clone();
        for other in &others {
            copy.add_pod(other);
            self.pretend(cycle, other, node, 1);
        }
        let result = self.check_anew(cycle, &copy);
        for other in &others {
            self.pretend(cycle, other, node, -1);
        }
        result
    }

    /// Whether nodes are ranked at all.
    pub(crate) fn ranks(&self) -> bool {
        !self.scores.is_empty()
    }

    /// The weighted sums of scores of nodes.
    pub(crate) fn rank(&mut self, cycle: Cycle<'_>, slots: &[Slot], totals: &mut Vec<i64>) -> Result<(), Status> {
        totals.clear();
        totals.resize(slots.len(), 0);
        let width = self.scores.len();
        for slot in slots {
            let generation = cycle.cache.generation(*slot);
            let memo = &mut self.memo[slot.index()];
            if memo.scored != generation {
                memo.scored = generation;
                let node = cycle.cache.node(*slot);
                for (at, of) in self.scores.iter().enumerate().filter(|(_, of)| of.scope == Scope::Node) {
                    self.memo_scores[slot.index() * width + at] = of.score.score(cycle, node);
                }
            }
        }
        let mut scores = vec![0; slots.len()];
        for (at, of) in self.scores.iter_mut().enumerate() {
            if !of.score.prepare(cycle, slots) {
                continue;
            }
            match of.scope {
                Scope::Node => {
                    for (score, slot) in scores.iter_mut().zip(slots) {
                        *score = self.memo_scores[slot.index() * width + at];
                    }
                }
                Scope::Cluster => {
                    for (score, slot) in scores.iter_mut().zip(slots) {
                        *score = of.score.score(cycle, cycle.cache.node(*slot));
                    }
                }
            }
            of.score.normalize(slots, &mut scores);
            for (total, score) in totals.iter_mut().zip(&scores) {
                if !(0..=crate::plugin::MAX_NODE_SCORE).contains(score) {
                    let name = of.plugin.name();
                    return Err(Status::error(format!(
                        "plugin \"{name}\" returns an invalid score {score}, it should in the range of [0, 100] after \
                         normalizing"
                    )));
                }
                *total += score * of.weight;
            }
        }
        Ok(())
    }
}

/// The classes that are remembered.
#[derive(Debug, Default)]
pub(crate) struct Classes {
    known: HashMap<ClassKey, Class, foldhash::fast::FixedState>,
    round: u64,
}

impl Classes {
    /// What is known about the class of a pod, up to date. To be given [back](Self::give_back).
    pub(crate) fn take(&mut self, cycle: Cycle<'_>, profile: &Profile) -> Class {
        // What devices serve depends on who else has some: such a pod is alone.
        let alone = cycle.cache.world.serves(&cycle.pod.requests);
        let known = cycle.pod.class.filter(|_| !alone).and_then(|key| self.known.remove(&key));
        let known = known.and_then(|mut class| class.catch_up(cycle).then_some(class));
        let mut class = known.unwrap_or_else(|| Class::new(cycle, profile));
        let filters = class.filters.iter().enumerate();
        let active = filters.filter(|(_, of)| of.scope == Scope::Cluster && !of.filter.is_idle());
        class.active = active.map(|(at, _)| at).collect();
        self.round += 1;
        class.used = self.round;
        class.alone = alone;
        class
    }

    pub(crate) fn give_back(&mut self, pod: &PodInfo, profile: &Profile, class: Class) {
        let Some(key) = pod.class else { return };
        // Plugins that look at more than the class covers make everything anew for each pod.
        if class.alone || !profile.by_class() {
            return;
        }
        if self.known.len() >= MAX_CLASSES
            && let Some(oldest) = self.known.iter().min_by_key(|(_, class)| class.used).map(|(key, _)| *key)
        {
            self.known.remove(&oldest);
        }
        self.known.insert(key, class);
    }

    /// How many there are.
    pub(crate) fn len(&self) -> usize {
        self.known.len()
    }
}
