//! Plugins that look at the node's name, labels, taints and ports.

use k8s_openapi::api::core::v1::{Node, NodeSelectorTerm, Taint};

use crate::{
    event::{ActionType as A, ClusterEvent, EventObject, EventResource as R},
    node_info::{NodeInfo, has_untolerated_taint},
    plugin::{Cycle, Filter, Plugin, Point, QueueingHint, Score, normalize_by_max},
    pod_info::{PodInfo, labels_of, tolerated},
    selectors::{NodeTerms, PreferredNodes},
    status::Status,
};

/// A filter that is nothing but a function.
#[derive(Clone, Copy)]
struct By(fn(Cycle<'_>, &NodeInfo) -> Result<(), Status>);

impl std::fmt::Debug for By {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("By")
    }
}

impl Filter for By {
    fn filter(&self, cycle: Cycle<'_>, node: &NodeInfo) -> Result<(), Status> {
        self.0(cycle, node)
    }
}

type PreFilter = Result<Option<Box<dyn Filter>>, Status>;

/// Only the node that the pod names.
#[derive(Debug)]
pub struct NodeName;

impl Plugin for NodeName {
    fn name(&self) -> &'static str {
        "NodeName"
    }

    fn points(&self) -> &'static [Point] {
        &[Point::Filter]
    }

    fn by_class(&self) -> bool {
        true
    }

    fn events(&self) -> &'static [ClusterEvent] {
        const { &[ClusterEvent::new(R::Node, A::ADD)] }
    }

    fn pre_filter(&self, cycle: Cycle<'_>) -> PreFilter {
        if cycle.pod.node_name().is_empty() {
            return Ok(None);
        }
        Ok(Some(Box::new(By(|cycle, node| match cycle.pod.node_name() == node.name() {
            true => Ok(()),
            false => Err(Status::unresolvable("node(s) didn't match the requested node name")),
        }))))
    }
}

fn is_unschedulable(node: &Node) -> bool {
    node.spec.as_ref().and_then(|spec| spec.unschedulable) == Some(true)
}

fn tolerates_unschedulable(pod: &PodInfo) -> bool {
    let taint = Taint {
        key: "node.kubernetes.io/unschedulable".to_owned(),
        effect: "NoSchedule".to_owned(),
        ..Taint::default()
    };
    tolerated(pod.tolerations(), &taint)
}

/// No node that is closed.
#[derive(Debug)]
pub struct NodeUnschedulable;

impl Plugin for NodeUnschedulable {
    fn name(&self) -> &'static str {
        "NodeUnschedulable"
    }

    fn points(&self) -> &'static [Point] {
        &[Point::Filter]
    }

    fn by_class(&self) -> bool {
        true
    }

    fn events(&self) -> &'static [ClusterEvent] {
        const {
            &[
                ClusterEvent::new(R::Node, A::ADD.or(A::UPDATE_NODE_TAINT)),
                ClusterEvent::new(R::Pod, A::UPDATE_POD_TOLERATION),
            ]
        }
    }

    fn hint(&self, pod: &PodInfo, _event: ClusterEvent, object: &EventObject) -> QueueingHint {
        let queue = match object {
            EventObject::Pod(_, Some(new)) => new.uid == pod.uid && tolerates_unschedulable(new),
            EventObject::Node(old, Some(new)) => {
                old.as_ref().is_none_or(|old| is_unschedulable(old)) && !is_unschedulable(new)
            }
            _ => true,
        };
        if queue { QueueingHint::Queue } else { QueueingHint::Skip }
    }

    fn pre_filter(&self, cycle: Cycle<'_>) -> PreFilter {
        if tolerates_unschedulable(cycle.pod) {
            return Ok(None);
        }
        Ok(Some(Box::new(By(|_, node| match is_unschedulable(&node.node) {
            true => Err(Status::unresolvable("node(s) were unschedulable")),
            false => Ok(()),
        }))))
    }
}

/// No node with a taint that the pod does not bear; rather one without those that it had better not bear.
#[derive(Debug)]
pub struct TaintToleration;

#[derive(Debug)]
struct TaintScore;

impl Score for TaintScore {
    fn score(&self, cycle: Cycle<'_>, node: &NodeInfo) -> i64 {
        let soft = node.taints().iter().filter(|taint| taint.effect == "PreferNoSchedule");
        soft.filter(|taint| !tolerated(cycle.pod.tolerations(), taint)).count() as i64
    }

    fn normalize(&self, _slots: &[crate::cache::Slot], scores: &mut [i64]) {
        normalize_by_max(scores, true);
    }
}

impl Plugin for TaintToleration {
    fn name(&self) -> &'static str {
        "TaintToleration"
    }

    fn points(&self) -> &'static [Point] {
        &[Point::Filter, Point::PreScore, Point::Score]
    }

    fn by_class(&self) -> bool {
        true
    }

    fn events(&self) -> &'static [ClusterEvent] {
        const {
            &[
                ClusterEvent::new(R::Node, A::ADD.or(A::UPDATE_NODE_TAINT)),
                ClusterEvent::new(R::Pod, A::UPDATE_POD_TOLERATION),
            ]
        }
    }

    fn hint(&self, pod: &PodInfo, _event: ClusterEvent, object: &EventObject) -> QueueingHint {
        let queue = match object {
            EventObject::Pod(_, Some(new)) => new.uid == pod.uid,
            EventObject::Node(old, Some(new)) => {
                old.as_ref().is_none_or(|old| has_untolerated_taint(old, pod)) && !has_untolerated_taint(new, pod)
            }
            _ => true,
        };
        if queue { QueueingHint::Queue } else { QueueingHint::Skip }
    }

    fn pre_filter(&self, _cycle: Cycle<'_>) -> PreFilter {
        Ok(Some(Box::new(By(|cycle, node| match has_untolerated_taint(&node.node, cycle.pod) {
            true => Err(Status::unresolvable("node(s) had untolerated taint(s)")),
            false => Ok(()),
        }))))
    }

    fn pre_score(&self, _cycle: Cycle<'_>) -> Option<Box<dyn Score>> {
        Some(Box::new(TaintScore))
    }
}

/// Only nodes that the pod asks for by label or name, and rather those that it would like.
#[derive(Debug, Default)]
pub struct NodeAffinity {
    /// Nodes that the configuration asks for on behalf of every pod.
    pub added_required: Option<NodeTerms>,
    /// Nodes that the configuration prefers on behalf of every pod.
    pub added_preferred: PreferredNodes,
}

#[derive(Debug)]
struct AffinityFilter {
    added: Option<NodeTerms>,
    names: Option<Vec<String>>,
}

impl Filter for AffinityFilter {
    fn nodes(&self) -> Option<&[String]> {
        self.names.as_deref()
    }

    fn filter(&self, cycle: Cycle<'_>, node: &NodeInfo) -> Result<(), Status> {
        if self.added.as_ref().is_some_and(|added| !added.matches(node.name(), node.labels())) {
            return Err(Status::unresolvable("node(s) didn't match scheduler-enforced node affinity"));
        }
        match cycle.pod.rules().matches_node(node.name(), node.labels()) {
            true => Ok(()),
            false => Err(Status::unresolvable("node(s) didn't match Pod's node affinity/selector")),
        }
    }
}

#[derive(Debug)]
struct AffinityScore {
    added: PreferredNodes,
}

impl Score for AffinityScore {
    fn score(&self, cycle: Cycle<'_>, node: &NodeInfo) -> i64 {
        let of = |terms: &PreferredNodes| terms.score(node.name(), node.labels());
        of(&self.added) + of(&cycle.pod.rules().preferred_nodes)
    }

    fn normalize(&self, _slots: &[crate::cache::Slot], scores: &mut [i64]) {
        normalize_by_max(scores, false);
    }
}

/// The names that one term leaves, if it names nodes.
fn names_of(term: &NodeSelectorTerm) -> Option<Vec<String>> {
    let mut names: Option<Vec<String>> = None;
    for field in term.match_fields.iter().flatten() {
        if field.key == "metadata.name" && field.operator == "In" {
            let values = field.values.clone().unwrap_or_default();
            names = Some(match names {
                None => values,
                Some(names) => names.into_iter().filter(|name| values.contains(name)).collect(),
            });
        }
    }
    names
}

impl Plugin for NodeAffinity {
    fn name(&self) -> &'static str {
        "NodeAffinity"
    }

    fn points(&self) -> &'static [Point] {
        &[Point::PreFilter, Point::Filter, Point::PreScore, Point::Score]
    }

    fn by_class(&self) -> bool {
        true
    }

    fn events(&self) -> &'static [ClusterEvent] {
        const { &[ClusterEvent::new(R::Node, A::ADD.or(A::UPDATE_NODE_LABEL))] }
    }

    fn hint(&self, pod: &PodInfo, _event: ClusterEvent, object: &EventObject) -> QueueingHint {
        let EventObject::Node(old, Some(new)) = object else { return QueueingHint::Queue };
        let matches = |node: &Node| {
            let name = node.metadata.name.as_deref().unwrap_or_default();
            pod.rules().matches_node(name, labels_of(node.metadata.labels.as_ref()))
        };
        if self.added_required.as_ref().is_some_and(|added| !added.matches_node(new)) || !matches(new) {
            return QueueingHint::Skip;
        }
        if old.as_ref().is_some_and(|old| matches(old)) { QueueingHint::Skip } else { QueueingHint::Queue }
    }

    fn pre_filter(&self, cycle: Cycle<'_>) -> PreFilter {
        if !cycle.pod.rules().has_required_nodes() && self.added_required.is_none() {
            return Ok(None);
        }
        let affinity = cycle.pod.pod.spec.as_ref().and_then(|spec| spec.affinity.as_ref()?.node_affinity.as_ref());
        let required = affinity.and_then(|a| a.required_during_scheduling_ignored_during_execution.as_ref());
        let terms = required.map(|required| required.node_selector_terms.as_slice()).unwrap_or_default();
        let names: Option<Vec<_>> = terms.iter().map(names_of).collect();
        let names = names.filter(|_| !terms.is_empty()).map(|names| names.concat());
        if names.as_ref().is_some_and(Vec::is_empty) {
            return Err(Status::unresolvable("pod affinity terms conflict"));
        }
        Ok(Some(Box::new(AffinityFilter { added: self.added_required.clone(), names })))
    }

    fn pre_score(&self, cycle: Cycle<'_>) -> Option<Box<dyn Score>> {
        if cycle.pod.rules().preferred_nodes.is_empty() && self.added_preferred.is_empty() {
            return None;
        }
        Some(Box::new(AffinityScore { added: self.added_preferred.clone() }))
    }
}

/// Only nodes whose ports are free.
#[derive(Debug)]
pub struct NodePorts;

impl Plugin for NodePorts {
    fn name(&self) -> &'static str {
        "NodePorts"
    }

    fn points(&self) -> &'static [Point] {
        &[Point::PreFilter, Point::Filter]
    }

    fn by_class(&self) -> bool {
        true
    }

    fn events(&self) -> &'static [ClusterEvent] {
        const { &[ClusterEvent::new(R::Pod, A::DELETE), ClusterEvent::new(R::Node, A::ADD)] }
    }

    fn hint(&self, pod: &PodInfo, _event: ClusterEvent, object: &EventObject) -> QueueingHint {
        let EventObject::Pod(Some(old), None) = object else { return QueueingHint::Queue };
        let took = pod.host_ports.iter().any(|port| old.host_ports.iter().any(|other| port.conflicts(other)));
        if took { QueueingHint::Queue } else { QueueingHint::Skip }
    }

    fn pre_filter(&self, cycle: Cycle<'_>) -> PreFilter {
        if cycle.pod.host_ports.is_empty() {
            return Ok(None);
        }
        Ok(Some(Box::new(By(|cycle, node| {
            let taken = |port| node.used_ports.iter().any(|used| used.conflicts(port));
            match cycle.pod.host_ports.iter().any(taken) {
                true => Err(Status::unschedulable("node(s) didn't have free ports for the requested pod ports")),
                false => Ok(()),
            }
        }))))
    }
}

/// No pod that has gates.
#[derive(Debug)]
pub struct SchedulingGates;

impl Plugin for SchedulingGates {
    fn name(&self) -> &'static str {
        "SchedulingGates"
    }

    fn points(&self) -> &'static [Point] {
        &[Point::PreEnqueue]
    }

    fn events(&self) -> &'static [ClusterEvent] {
        const { &[ClusterEvent::new(R::Pod, A::UPDATE_POD_SCHEDULING_GATES_ELIMINATED)] }
    }

    fn hint(&self, pod: &PodInfo, _event: ClusterEvent, object: &EventObject) -> QueueingHint {
        match object {
            EventObject::Pod(_, Some(new)) if new.uid != pod.uid => QueueingHint::Skip,
            _ => QueueingHint::Queue,
        }
    }

    fn pre_enqueue(&self, pod: &PodInfo) -> Result<(), Status> {
        let gates = pod.pod.spec.as_ref().and_then(|spec| spec.scheduling_gates.as_deref()).unwrap_or_default();
        if gates.is_empty() {
            return Ok(());
        }
        let names: Vec<_> = gates.iter().map(|gate| gate.name.as_str()).collect();
        Err(Status::unresolvable(format!("waiting for scheduling gates: [{}]", names.join(" "))))
    }
}

/// Only nodes that have the features which the pod uses.
#[derive(Debug)]
pub struct NodeDeclaredFeatures;

/// The features that a pod needs a node to declare.
fn required_features(pod: &PodInfo) -> Vec<&'static str> {
    let mut features = Vec::new();
    let Some(spec) = &pod.pod.spec else { return features };
    let containers = spec.containers.iter().chain(spec.init_containers.iter().flatten());
    let mut rules = containers.flat_map(|container| container.restart_policy_rules.iter().flatten());
    if rules.any(|rule| rule.action == "RestartAllContainers") {
        features.push("RestartAllContainersOnContainerExits");
    }
    if spec.host_network == Some(true) && spec.host_users == Some(false) {
        features.push("UserNamespacesHostNetworkSupport");
    }
    features
}

impl Plugin for NodeDeclaredFeatures {
    fn name(&self) -> &'static str {
        "NodeDeclaredFeatures"
    }

    fn points(&self) -> &'static [Point] {
        &[Point::PreFilter, Point::Filter]
    }

    fn by_class(&self) -> bool {
        true
    }

    fn events(&self) -> &'static [ClusterEvent] {
        const {
            &[
                ClusterEvent::new(R::Node, A::ADD.or(A::UPDATE_NODE_DECLARED_FEATURE)),
                ClusterEvent::new(R::Pod, A::UPDATE),
            ]
        }
    }

    fn hint(&self, pod: &PodInfo, _event: ClusterEvent, object: &EventObject) -> QueueingHint {
        let skip = match object {
            EventObject::Pod(Some(old), Some(new)) => {
                new.uid != pod.uid || required_features(old) == required_features(new)
            }
            _ => false,
        };
        if skip { QueueingHint::Skip } else { QueueingHint::Queue }
    }

    fn pre_filter(&self, cycle: Cycle<'_>) -> PreFilter {
        if required_features(cycle.pod).is_empty() {
            return Ok(None);
        }
        Ok(Some(Box::new(By(|cycle, node| {
            let declared = node.node.status.as_ref().and_then(|status| status.declared_features.as_deref());
            let has = |feature: &&str| declared.unwrap_or_default().iter().any(|declared| declared == feature);
            match required_features(cycle.pod).iter().all(has) {
                true => Ok(()),
                false => Err(Status::unresolvable("node(s) didn't match Pod's required features")),
            }
        }))))
    }
}
