//! The decision: a pod and a cluster in, a node or reasons out. No I/O, no waiting.

use std::{fmt, sync::Arc};

use capstan_clock::SharedIds;

use crate::{
    cache::{Cache, Slot},
    class::{Class, Classes},
    nominator::Nominator,
    plugin::{Cycle, Point},
    pod_info::PodInfo,
    preemption::{self, Victims},
    profile::Profile,
    status::{Code, Diagnosis, Status},
};

/// Clusters with fewer nodes are looked at as a whole.
pub const MIN_FEASIBLE_NODES_TO_FIND: usize = 100;
/// However large the cluster, at least this part of it is looked at, in percent.
const MIN_FEASIBLE_NODES_PERCENTAGE_TO_FIND: usize = 5;

/// What came of looking for a node.
#[derive(Clone, Debug, PartialEq)]
pub enum Outcome {
    /// A node was found.
    Placed {
        /// Which.
        slot: Slot,
        /// How many nodes were looked at.
        evaluated: usize,
        /// How many of them would have done.
        feasible: usize,
    },
    /// There is none.
    Unschedulable {
        /// Why.
        diagnosis: Box<Diagnosis>,
        /// Whom to evict to make room, if that helps.
        victims: Option<Victims>,
        /// What else would have helped, for those who have a say in it.
        others: Vec<Victims>,
        /// Where the pod is to go then; empty: nowhere any more; none: as before.
        nomination: Option<String>,
    },
    /// There are no nodes at all.
    NoNodes,
    /// Something is missing that the pod cannot be looked at without.
    Gated(Status),
    /// Something broke.
    Failed(Status),
}

/// A search for a node, between finding those that will do and choosing one of them.
pub struct Search {
    /// The nodes that will do.
    pub feasible: Vec<Slot>,
    /// What the others said.
    pub diagnosis: Diagnosis,
    class: Class,
}

impl fmt::Debug for Search {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Search").field("feasible", &self.feasible.len()).finish_non_exhaustive()
    }
}

/// Decides where pods go.
#[derive(Debug)]
pub struct Core {
    /// The cluster.
    pub cache: Cache,
    /// Nodes that were made free for pods.
    pub nominator: Nominator,
    classes: Classes,
    next_start: usize,
    ids: SharedIds,
    totals: Vec<i64>,
}

impl Core {
    /// Knows of no nodes yet.
    #[must_use]
    pub fn new(ids: SharedIds) -> Self {
        Core {
            cache: Cache::default(),
            nominator: Nominator::default(),
            classes: Classes::default(),
            next_start: 0,
            ids,
            totals: Vec::new(),
        }
    }

    /// Looks for a node.
    pub fn schedule(&mut self, profile: &Profile, pod: &Arc<PodInfo>) -> Outcome {
        match self.find(profile, pod) {
            Ok(search) => self.choose(profile, pod, search, |_| 0),
            Err(outcome) => outcome,
        }
    }

    /// Finds the nodes that will do, possibly none.
    ///
    /// # Errors
    /// The search is over already: there are no nodes, or something broke.
    pub fn find(&mut self, profile: &Profile, pod: &Arc<PodInfo>) -> Result<Search, Outcome> {
        self.cache.refresh_order();
        if self.cache.is_empty() {
            return Err(Outcome::NoNodes);
        }
        let cycle = Cycle { pod, cache: &self.cache };
        let mut class = self.classes.take(cycle, profile);
        let mut diagnosis = Diagnosis { all_nodes: self.cache.len(), ..Diagnosis::default() };
        if let Some(named) = &class.named {
            diagnosis.unschedulable_plugins.extend(&named.plugins);
        }
        if let Some(status) = &class.refused {
            if !status.is_rejected() {
                let message = format!("running PreFilter plugin \"{}\": {status}", status.plugin);
                return Err(Outcome::Failed(Status::error(message).by(status.plugin)));
            }
            if status.code == Code::Gated {
                return Err(Outcome::Gated(status.clone()));
            }
            diagnosis.blame(status);
            diagnosis.pre_filter = status.message();
            diagnosis.absent = Some(status.clone());
            return Ok(Search { feasible: Vec::new(), diagnosis, class });
        }

        let nominated = match pod.nominated_node_name() {
            "" => self.nominator.node_of(&pod.uid).unwrap_or_default(),
            node => node,
        };
        if let Some(node) = self.cache.find(nominated)
            && class.fits(cycle, node.slot, &self.nominator).is_ok()
        {
            return Ok(Search { feasible: vec![node.slot], diagnosis, class });
        }

        let named: Vec<Slot>;
        let nodes = match &class.named {
            None => self.cache.order(),
            Some(only) => {
                let plugins = only.plugins.join(" ");
                diagnosis.absent = Some(Status::unresolvable(format!("node(s) didn't satisfy plugin(s) [{plugins}]")));
                named = only.names.iter().filter_map(|name| Some(self.cache.find(name)?.slot)).collect();
                &named
            }
        };
        let wanted = match class.ranks() {
            true => nodes_to_find(nodes.len(), profile.percentage_of_nodes_to_score),
            false => 1,
        };
        let mut feasible = Vec::with_capacity(wanted.min(nodes.len()));
        let start = self.next_start % nodes.len().max(1);
        for &slot in nodes[start..].iter().chain(&nodes[..start]) {
            match class.fits(cycle, slot, &self.nominator) {
                Ok(()) => {
                    feasible.push(slot);
                    if feasible.len() >= wanted {
                        break;
                    }
                }
                Err(status) if status.is_rejected() => {
                    diagnosis.blame(&status);
                    diagnosis.statuses.push((slot, status));
                }
                Err(status) => {
                    let message = format!("running \"{}\" filter plugin: {status}", status.plugin);
                    return Err(Outcome::Failed(Status::error(message).by(status.plugin)));
                }
            }
        }
        self.next_start = (self.next_start + feasible.len() + diagnosis.statuses.len()) % self.cache.len();
        Ok(Search { feasible, diagnosis, class })
    }

    /// Chooses the best of the nodes that will do, or says why there are none. `extra` is what others add to the score
    /// of a node.
    pub fn choose(
        &mut self,
        profile: &Profile,
        pod: &Arc<PodInfo>,
        mut search: Search,
        extra: impl Fn(Slot) -> i64,
    ) -> Outcome {
        // Nodes may have gone while others were asked.
        search.feasible.retain(|slot| self.cache.node(*slot).present);
        let outcome = if search.feasible.is_empty() {
            self.fail(profile, pod, &mut search)
        } else {
            self.pick(pod, &mut search, extra)
        };
        self.classes.give_back(pod, profile, search.class);
        outcome
    }

    fn pick(&mut self, pod: &Arc<PodInfo>, search: &mut Search, extra: impl Fn(Slot) -> i64) -> Outcome {
        let feasible = search.feasible.len();
        let evaluated = feasible + search.diagnosis.statuses.len();
        if let [slot] = search.feasible[..] {
            return Outcome::Placed { slot, evaluated, feasible };
        }
        let cycle = Cycle { pod, cache: &self.cache };
        if let Err(status) = search.class.rank(cycle, &search.feasible, &mut self.totals) {
            return Outcome::Failed(status);
        }
        let (mut best, mut best_score, mut equals) = (search.feasible[0], i64::MIN, 0);
        for (slot, total) in search.feasible.iter().zip(&self.totals) {
            let score = total.saturating_add(extra(*slot));
            if score > best_score {
                (best, best_score, equals) = (*slot, score, 1);
            } else if score == best_score {
                // Each of those that are equally good ends up with the same chance.
                equals += 1;
                if self.ids.below(equals) == 0 {
                    best = *slot;
                }
            }
        }
        Outcome::Placed { slot: best, evaluated, feasible }
    }

    fn fail(&mut self, profile: &Profile, pod: &Arc<PodInfo>, search: &mut Search) -> Outcome {
        let cycle = Cycle { pod, cache: &self.cache };
        let (mut reasons, mut candidates, mut nomination) = (Vec::new(), Vec::new(), Some(String::new()));
        let filters = profile.filters();
        for (plugin, _) in profile.at(Point::PostFilter) {
            let position = filters.iter().position(|filter| filter.name() == plugin.name());
            if position.is_some_and(|position| position >= search.class.asked) {
                // It was not asked before and knows nothing of the pod. Upstream says it so, and leaves it at that.
                reasons = vec!["not found".to_owned()];
                nomination = None;
                break;
            }
            reasons.extend(plugin.post_filter(cycle));
            let Some(args) = plugin.preemption() else { continue };
            let made =
                preemption::preempt(cycle, &mut search.class, &self.nominator, &search.diagnosis, args, &*self.ids);
            match made {
                Ok(found) => {
                    candidates = found;
                    reasons.clear();
                    break;
                }
                Err(refusal) => {
                    if !refusal.clears_nomination {
                        nomination = None;
                    }
                    reasons.push(format!("preemption: {}", refusal.message));
                }
            }
        }
        search.diagnosis.post_filter = reasons.join(", ");
        let victims = preemption::take_best(&mut candidates);
        if let Some(victims) = &victims {
            nomination = Some(victims.node.clone());
        }
        let diagnosis = Box::new(std::mem::take(&mut search.diagnosis));
        Outcome::Unschedulable { diagnosis, victims, others: candidates, nomination }
    }

    /// How many classes of pods are remembered, for curiosity.
    #[must_use]
    pub fn classes(&self) -> usize {
        self.classes.len()
    }
}

/// How many nodes that will do are enough.
#[must_use]
pub fn nodes_to_find(all: usize, percentage: i32) -> usize {
    if all < MIN_FEASIBLE_NODES_TO_FIND {
        return all;
    }
    let percentage = match usize::try_from(percentage) {
        Ok(0) | Err(_) => 50usize.saturating_sub(all / 125).max(MIN_FEASIBLE_NODES_PERCENTAGE_TO_FIND),
        Ok(percentage) => percentage,
    };
    (all * percentage / 100).clamp(MIN_FEASIBLE_NODES_TO_FIND, all)
}

#[cfg(test)]
mod tests {
    use super::nodes_to_find;

    #[test]
    fn how_many() {
        for (all, percentage, expected) in [
            (10, 0, 10),
            (99, 40, 99),
            (100, 0, 100),
            (1000, 0, 420),
            (1000, 40, 400),
            (6000, 0, 300),
            (6000, 40, 2400),
            (20000, 0, 1000),
            (200, 100, 200),
        ] {
            assert_eq!(nodes_to_find(all, percentage), expected, "{all} {percentage}");
        }
    }
}
