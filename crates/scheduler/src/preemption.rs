//! Whom to evict so that a pod fits: as few as possible, the least important, and rather none that a budget protects.

use std::{cmp::Reverse, sync::Arc};

use capstan_clock::{Ids, Timestamp};

use crate::{
    cache::Slot,
    class::Class,
    node_info::NodeInfo,
    nominator::Nominator,
    plugin::{Cycle, PreemptionArgs},
    pod_info::PodInfo,
    selectors::label_selector,
    status::{Code, Diagnosis, Status},
};

/// Whom to evict from which node.
#[derive(Clone, Debug)]
pub struct Victims {
    /// The node that becomes free.
    pub node: String,
    /// Where it is in the cache.
    pub slot: Slot,
    /// Who has to go, the most important first.
    pub pods: Vec<Arc<PodInfo>>,
    /// How many of them a budget protects.
    pub violations: usize,
}

impl PartialEq for Victims {
    fn eq(&self, other: &Self) -> bool {
        let uids = |victims: &Self| victims.pods.iter().map(|pod| Arc::clone(&pod.uid)).collect::<Vec<_>>();
        self.node == other.node && uids(self) == uids(other) && self.violations == other.violations
    }
}

/// Why nobody is to be evicted.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct Refusal {
    pub(crate) message: String,
    pub(crate) clears_nomination: bool,
}

/// Pods that are not running yet are the youngest.
fn importance(pod: &PodInfo) -> (Reverse<i32>, i128) {
    (Reverse(pod.priority), pod.start_time().map_or(i128::MAX, Timestamp::as_nanosecond))
}

/// Whether a pod was told to go because a more important one needs its place.
fn is_leaving_for_another(pod: &PodInfo) -> bool {
    let conditions = pod.pod.status.iter().flat_map(|status| status.conditions.iter().flatten());
    let mut target = conditions.filter(|condition| condition.type_ == "DisruptionTarget");
    pod.is_terminating()
        && target.next().is_some_and(|c| c.status == "True" && c.reason.as_deref() == Some("PreemptionByScheduler"))
}

/// Whether a pod may displace others at all.
fn eligible(cycle: Cycle<'_>, diagnosis: &Diagnosis) -> Result<(), &'static str> {
    let pod = cycle.pod;
    if pod.pod.spec.as_ref().and_then(|spec| spec.preemption_policy.as_deref()) == Some("Never") {
        return Err("not eligible due to preemptionPolicy=Never.");
    }
    let Some(node) = cycle.cache.find(pod.nominated_node_name()) else { return Ok(()) };
    if diagnosis.of(node.slot).is_some_and(|status| status.code == Code::UnschedulableAndUnresolvable) {
        return Ok(());
    }
    match node.pods.iter().any(|other| other.priority < pod.priority && is_leaving_for_another(other)) {
        true => Err("not eligible due to a terminating pod on the nominated node."),
        false => Ok(()),
    }
}

/// Finds nodes where evicting helps, at least one.
pub(crate) fn preempt(
    cycle: Cycle<'_>,
    class: &mut Class,
    nominator: &Nominator,
    diagnosis: &Diagnosis,
    args: PreemptionArgs,
    ids: &dyn Ids,
) -> Result<Vec<Victims>, Refusal> {
    if let Err(message) = eligible(cycle, diagnosis) {
        return Err(Refusal { message: message.to_owned(), clears_nomination: false });
    }
    let helpful: Vec<Slot> = match (&diagnosis.absent, diagnosis.pre_filter.is_empty()) {
        (Some(status), false) if status.code == Code::Unschedulable => cycle.cache.order().to_vec(),
        _ => {
            let all = diagnosis.statuses.iter().filter(|(_, status)| status.code == Code::Unschedulable);
            all.map(|(slot, _)| *slot).collect()
        }
    };
    let wanted = (helpful.len() * args.min_candidate_nodes_percentage.max(0) as usize / 100)
        .max(args.min_candidate_nodes_absolute.max(0) as usize)
        .min(helpful.len());
    let offset = ids.below(helpful.len() as u64) as usize;
    let budgets = Budgets::new(cycle);
    let (mut candidates, mut harmless) = (Vec::new(), 0);
    let mut statuses = Vec::new();
    for at in 0..helpful.len() {
        let node = cycle.cache.node(helpful[(offset + at) % helpful.len()]);
        match select_victims(cycle, class, nominator, node, &budgets) {
            Ok(victims) => {
                harmless += usize::from(victims.violations == 0);
                candidates.push(victims);
                if harmless > 0 && candidates.len() >= wanted {
                    break;
                }
            }
            Err(status) => statuses.push((node.slot, status)),
        }
    }
    if !candidates.is_empty() {
        return Ok(candidates);
    }
    let tried = Diagnosis {
        all_nodes: cycle.cache.len(),
        statuses,
        absent: Some(Status::unresolvable("Preemption is not helpful for scheduling")),
        ..Diagnosis::default()
    };
    Err(Refusal { message: tried.to_string(), clears_nomination: true })
}

/// How much budgets still allow, worked out once for all nodes.
struct Budgets<'a> {
    all: Vec<(&'a k8s_openapi::api::policy::v1::PodDisruptionBudget, capstan_api::selector::Selector)>,
}

impl<'a> Budgets<'a> {
    fn new(cycle: Cycle<'a>) -> Self {
        let budgets = cycle.cache.world.budgets.iter();
        let all = budgets.filter_map(|budget| {
            let selector = label_selector(budget.spec.as_ref()?.selector.as_ref()).ok()?;
            (!selector.is_everything()).then_some((&**budget, selector))
        });
        Budgets { all: all.collect() }
    }

    /// Which of the pods are protected when all of them are evicted in this order.
    fn violated(&self, pods: &[Arc<PodInfo>]) -> Vec<bool> {
        let allowed = |budget: &k8s_openapi::api::policy::v1::PodDisruptionBudget| {
            budget.status.as_ref().and_then(|status| status.disruptions_allowed).unwrap_or_default()
        };
        let mut allowed: Vec<i32> = self.all.iter().map(|(budget, _)| allowed(budget)).collect();
        let mut violates = |pod: &Arc<PodInfo>| {
            let mut violated = false;
            for ((budget, selector), allowed) in self.all.iter().zip(&mut allowed) {
                let gone = budget.status.as_ref().and_then(|status| status.disrupted_pods.as_ref());
                let speaks_of = !pod.labels().is_empty()
                    && budget.metadata.namespace.as_deref() == Some(pod.namespace())
                    && selector.matches(pod.labels())
                    && !gone.is_some_and(|gone| gone.contains_key(pod.name()));
                if speaks_of {
                    *allowed -= 1;
                    violated |= *allowed < 0;
                }
            }
            violated
        };
        pods.iter().map(&mut violates).collect()
    }
}

/// Whom to evict from one node. First all of lower priority go; then those come back who do not stand in the way, the
/// protected and the important ones first.
fn select_victims(
    cycle: Cycle<'_>,
    class: &mut Class,
    nominator: &Nominator,
    node: &NodeInfo,
    budgets: &Budgets<'_>,
) -> Result<Victims, Arc<Status>> {
    let lower = |pod: &PodInfo| pod.priority < cycle.pod.priority;
    if !node.pods.iter().any(|pod| lower(pod)) {
        return Err(Arc::new(Status::unresolvable("No preemption victims found for incoming pod")));
    }
    let (mut copy, mut potential) = node.without(lower);
    let toggle = |class: &mut Class, copy: &mut NodeInfo, pod: &Arc<PodInfo>, delta: i64| {
        if delta > 0 {
            copy.add_pod(pod);
        } else {
            copy.remove_pod(&pod.uid);
        }
        class.pretend(cycle, pod, node, delta);
    };
    for pod in &potential {
        class.pretend(cycle, pod, node, -1);
    }
    let mut victims = Vec::new();
    let result = class.would_fit(cycle, &copy, nominator);
    if result.is_ok() {
        potential.sort_by_key(|pod| importance(pod));
        let violated = budgets.violated(&potential);
        for protected in [true, false] {
            for (pod, violated) in potential.iter().zip(&violated).filter(|(_, violated)| **violated == protected) {
                toggle(class, &mut copy, pod, 1);
                if class.would_fit(cycle, &copy, nominator).is_err() {
                    toggle(class, &mut copy, pod, -1);
                    victims.push((Arc::clone(pod), *violated));
                }
            }
        }
    }
    // All this was only to find out: nothing has happened.
    let gone: Vec<_> = match result {
        Ok(()) => victims.iter().map(|(pod, _)| Arc::clone(pod)).collect(),
        Err(_) => potential,
    };
    for pod in &gone {
        class.pretend(cycle, pod, node, 1);
    }
    result?;
    if victims.is_empty() {
        let message = format!("expected at least one victim pod on node \"{}\"", node.name());
        return Err(Arc::new(Status::error(message)));
    }
    let violations = victims.iter().filter(|(_, violated)| *violated).count();
    let mut pods: Vec<_> = victims.into_iter().map(|(pod, _)| pod).collect();
    pods.sort_by_key(|pod| importance(pod));
    Ok(Victims { node: node.name().to_owned(), slot: node.slot, pods, violations })
}

/// The candidate that hurts least: fewest protected, least important at the top, least importance in all, fewest, and
/// then the one whose most important pods started last.
pub(crate) fn take_best(candidates: &mut Vec<Victims>) -> Option<Victims> {
    let cost = |victims: &Victims| {
        let priorities = victims.pods.iter().map(|pod| i64::from(pod.priority));
        let sum: i64 = priorities.clone().map(|priority| priority + i64::from(i32::MAX) + 1).sum();
        let highest = priorities.max().unwrap_or_default();
        let top = victims.pods.iter().filter(|pod| i64::from(pod.priority) == highest);
        let earliest = top.map(|pod| importance(pod).1).min().unwrap_or_default();
        (victims.violations, highest, sum, victims.pods.len(), Reverse(earliest))
    };
    let best = candidates.iter().enumerate().min_by_key(|(_, victims)| cost(victims))?.0;
    Some(candidates.swap_remove(best))
}

/// The pods with a lower priority that a node was also made free for: they have to look again.
#[must_use]
pub fn displaced(nominator: &Nominator, node: &str, pod: &PodInfo) -> Vec<Arc<PodInfo>> {
    nominator.on(node).iter().filter(|other| other.priority < pod.priority).cloned().collect()
}
