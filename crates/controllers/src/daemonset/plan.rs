//! What is to be done about the pods of a DaemonSet, decided from its present state alone.

use std::collections::{BTreeMap, BTreeSet};

use capstan_clock::Timestamp;
use k8s_openapi::{
    api::{
        apps::v1::{DaemonSet, DaemonSetSpec, DaemonSetStatus},
        core::v1::Node,
    },
    apimachinery::pkg::util::intstr::IntOrString,
};

use super::nodes::{is_updated, should_run, target};
use crate::{
    percent::scaled,
    pod::Pod,
    pods::{count, is_available, is_deleted, is_ready, is_terminal, node_name, nonzero, phase},
};

/// So many pods are created or deleted at most before the cache is asked again.
const BURST_REPLICAS: usize = 250;

/// A pod that has ended, and what is told of it.
pub(super) type Ended = (bool, &'static str, String);

/// What is to be done.
#[derive(Debug, Default)]
pub(super) struct Plan<'a> {
    /// The nodes that get a pod.
    pub(super) create: Vec<String>,
    pub(super) delete: Vec<&'a Pod>,
    pub(super) tell: Vec<Ended>,
    pub(super) status: DaemonSetStatus,
}

/// The DaemonSet, its nodes and the pods on them, the oldest first.
struct Look<'a> {
    set: &'a DaemonSet,
    spec: DaemonSetSpec,
    hash: &'a str,
    nodes: Vec<(&'a Node, (bool, bool))>,
    pods: BTreeMap<&'a str, Vec<&'a Pod>>,
    now: Timestamp,
}

/// Decides. `may_retry` says whether a pod that failed may be replaced already.
pub(super) fn plan<'a>(
    set: &'a DaemonSet,
    hash: &'a str,
    nodes: &'a [&'a Node],
    pods: &[&'a Pod],
    may_retry: impl Fn(&str) -> bool,
    now: Timestamp,
) -> Plan<'a> {
    let spec = set.spec.clone().unwrap_or_default();
    let nodes: Vec<_> = nodes.iter().map(|node| (*node, should_run(&spec, node))).collect();
    let mut by_node: BTreeMap<&str, Vec<&Pod>> = BTreeMap::new();
    // Nothing is left to do about who has ended and is deleted but held back, nor is it known what to do about who is
    // meant for no node in particular.
    for pod in pods.iter().copied().filter(|pod| !(is_terminal(pod) && is_deleted(pod))) {
        if let Some(node) = target(pod) {
            by_node.entry(node).or_default().push(pod);
        }
    }
    for pods in by_node.values_mut() {
        pods.sort_by_key(|pod| {
            let created = pod.metadata.creation_timestamp.clone().map(|time| time.0);
            (node_name(pod).is_empty(), created, pod.metadata.name.clone())
        });
    }
    let look = Look { set, spec, hash, nodes, pods: by_node, now };
    let mut plan = Plan { status: look.status(), ..Plan::default() };
    look.manage(&mut plan, may_retry);
    if plan.create.is_empty() && plan.delete.is_empty() {
        look.roll(&mut plan);
    }
    plan.create.truncate(BURST_REPLICAS);
    plan.delete.truncate(BURST_REPLICAS);
    plan
}

fn name(node: &Node) -> &str {
    node.metadata.name.as_deref().unwrap_or_default()
}

impl<'a> Look<'a> {
    fn on(&self, node: &str) -> &[&'a Pod] {
        self.pods.get(node).map(Vec::as_slice).unwrap_or_default()
    }

    fn is_available(&self, pod: &Pod) -> bool {
        is_available(pod, self.spec.min_ready_seconds.unwrap_or_default(), self.now)
    }

    /// On how many nodes there shall be a pod.
    fn desired(&self) -> usize {
        self.nodes.iter().filter(|(_, (run, _))| *run).count()
    }

    /// How many nodes may be without a pod during an update, and how many may have two, out of so many.
    fn limits(&self, desired: usize) -> (usize, usize) {
        let rolling = self.spec.update_strategy.as_ref().and_then(|strategy| strategy.rolling_update.as_ref());
        let of = |value: Option<&IntOrString>| usize::try_from(scaled(value, count(desired), true)).unwrap_or_default();
        let unavailable = of(rolling.and_then(|rolling| rolling.max_unavailable.as_ref()));
        let surge = of(rolling.and_then(|rolling| rolling.max_surge.as_ref()));
        if desired > 0 && (unavailable, surge) == (0, 0) { (1, 0) } else { (unavailable, surge) }
    }

    /// Whether a node may have two.
    fn allows_surge(&self) -> bool {
        self.is_rolling() && self.limits(1).1 > 0
    }

    fn is_rolling(&self) -> bool {
        let strategy = self.spec.update_strategy.as_ref();
        strategy.and_then(|strategy| strategy.type_.as_deref()).unwrap_or("RollingUpdate") == "RollingUpdate"
    }

    /// Where pods are missing, and which are too many.
    fn manage(&self, plan: &mut Plan<'a>, may_retry: impl Fn(&str) -> bool) {
        for (node, (run, stay)) in &self.nodes {
            let pods = self.on(name(node));
            if *run && pods.is_empty() {
                plan.create.push(name(node).to_owned());
            } else if *stay {
                self.manage_node(plan, name(node), *run, pods, &may_retry);
            } else {
                plan.delete.extend(pods.iter().filter(|pod| !is_deleted(pod)));
            }
        }
        // Those that are meant for a node that is gone will never run. Those on it are garbage, and collected as such.
        for (node, pods) in &self.pods {
            if self.nodes.iter().all(|(known, _)| name(known) != *node) {
                plan.delete.extend(pods.iter().filter(|pod| node_name(pod).is_empty() && !is_deleted(pod)));
            }
        }
    }

    fn manage_node(
        &self,
        plan: &mut Plan<'a>,
        node: &str,
        run: bool,
        pods: &[&'a Pod],
        may_retry: &impl Fn(&str) -> bool,
    ) {
        let mut running = Vec::new();
        for pod in pods.iter().copied().filter(|pod| !is_deleted(pod)) {
            let place = format!(
                "{}/{} on node {node}",
                pod.metadata.namespace.as_deref().unwrap_or_default(),
                pod.metadata.name.as_deref().unwrap_or_default()
            );
            match phase(pod) {
                "Failed" => {
                    if may_retry(node) {
                        let message = format!("Found failed daemon pod {place}, will try to kill it");
                        plan.tell.push((true, "FailedDaemonPod", message));
                        plan.delete.push(pod);
                    }
                }
                "Succeeded" => {
                    let message = format!("Found succeeded daemon pod {place}, will try to delete it");
                    plan.tell.push((false, "SucceededDaemonPod", message));
                    plan.delete.push(pod);
                }
                _ => running.push(pod),
            }
        }
        if !self.allows_surge() {
            plan.delete.extend(running.iter().skip(1));
            return;
        }
        if running.is_empty() && run {
            // Where there may be two nobody waits for the other one to be gone.
            plan.create.push(node.to_owned());
        }
        if running.len() <= 1 {
            return;
        }
        // Two may be there while the new one is not ready yet and the old one still is.
        let (mut new, mut old): (Vec<_>, Vec<_>) =
            running.into_iter().partition(|pod| is_updated(self.set, pod, self.hash));
        let first = |pods: &mut Vec<&'a Pod>| if pods.is_empty() { None } else { Some(pods.remove(0)) };
        let (new_pod, old_pod) = (first(&mut new), first(&mut old));
        plan.delete.extend(new.into_iter().chain(old));
        if let (Some(new), Some(old)) = (new_pod, old_pod)
            && (!is_ready(old) || self.is_available(new))
        {
            plan.delete.push(old);
        }
    }

    /// The newest and the old pod of a node; none if there is more than one of a sort.
    fn new_and_old(&self, pods: &[&'a Pod]) -> Option<(Option<&'a Pod>, Option<&'a Pod>)> {
        let alive = pods.iter().copied().filter(|pod| !is_deleted(pod));
        let (new, old): (Vec<_>, Vec<_>) = alive.partition(|pod| is_updated(self.set, pod, self.hash));
        (new.len() <= 1 && old.len() <= 1).then(|| (new.first().copied(), old.first().copied()))
    }

    /// One step of an update.
    fn roll(&self, plan: &mut Plan<'a>) {
        if !self.is_rolling() {
            return;
        }
        match self.limits(self.desired()) {
            (max_unavailable, 0) => self.replace(plan, max_unavailable),
            (_, max_surge) => self.surge(plan, max_surge),
        }
    }

    /// Deletes old pods; new ones come in their place.
    fn replace(&self, plan: &mut Plan<'a>, max_unavailable: usize) {
        let wanted = self.nodes.iter().filter(|(_, (run, _))| *run).map(|(node, _)| name(node));
        let nodes: BTreeSet<&str> = self.pods.keys().copied().chain(wanted).collect();
        let (mut unavailable, mut may) = (0, Vec::new());
        for node in nodes {
            match self.new_and_old(self.on(node)) {
                Some((Some(new), None)) => unavailable += usize::from(!self.is_available(new)),
                Some((None, Some(old))) if self.is_available(old) => may.push(old),
                // Who does not work can be replaced at no loss, but is lost already.
                Some((None, Some(old))) => {
                    plan.delete.push(old);
                    unavailable += 1;
                }
                _ => unavailable += 1,
            }
        }
        plan.delete.extend(may.into_iter().take(max_unavailable.saturating_sub(unavailable)));
    }

    /// Makes new pods beside the old ones, which go once the new ones work. Pods on a node that is gone are none of
    /// this: they are garbage, and collected as such.
    fn surge(&self, plan: &mut Plan<'a>, max_surge: usize) {
        let (mut surging, mut available, mut may, mut out_of_place) = (0, 0, Vec::new(), Vec::new());
        for (node, (run, _)) in &self.nodes {
            let Some((new, old)) = self.new_and_old(self.on(name(node))) else {
                surging += 1;
                continue;
            };
            available += usize::from(old.or(new).is_some_and(|pod| self.is_available(pod)));
            match (new, old.map(|old| (old, self.is_available(old)))) {
                (_, None) => {}
                (Some(new), Some((old, _))) if self.is_available(new) => plan.delete.push(old),
                (Some(_), Some(_)) => surging += 1,
                (None, Some((_, true))) if *run => may.push(name(node).to_owned()),
                (None, Some((_, false))) if *run => plan.create.push(name(node).to_owned()),
                (None, Some((old, true))) => out_of_place.push(old),
                (None, Some((old, false))) => plan.delete.push(old),
            }
        }
        // Who works where none shall be goes when there are enough of them elsewhere.
        plan.delete.extend(out_of_place.into_iter().take(available.saturating_sub(self.desired())));
        plan.create.extend(may.into_iter().take(max_surge.saturating_sub(surging)));
    }

    fn status(&self) -> DaemonSetStatus {
        let before = self.set.status.clone().unwrap_or_default();
        let (mut desired, mut current, mut misscheduled) = (0, 0, 0);
        let (mut ready, mut available, mut updated) = (0, 0, 0);
        for (node, (run, _)) in &self.nodes {
            let oldest = self.on(name(node)).first();
            if !run {
                misscheduled += i32::from(oldest.is_some());
                continue;
            }
            desired += 1;
            let Some(pod) = oldest else { continue };
            current += 1;
            ready += i32::from(is_ready(pod));
            available += i32::from(self.is_available(pod));
            updated += i32::from(is_updated(self.set, pod, self.hash));
        }
        DaemonSetStatus {
            desired_number_scheduled: desired,
            current_number_scheduled: current,
            number_misscheduled: misscheduled,
            number_ready: ready,
            number_available: nonzero(available),
            number_unavailable: nonzero(desired - available),
            updated_number_scheduled: nonzero(updated),
            observed_generation: self.set.metadata.generation,
            collision_count: before.collision_count,
            conditions: before.conditions,
        }
    }
}
