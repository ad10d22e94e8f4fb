//! A node and what is on it.

use std::sync::Arc;

use k8s_openapi::api::core::v1::{Node, Taint};

use crate::{
    cache::Slot,
    pod_info::{HostPort, PodInfo, labels_of, tolerated},
    resource::Resource,
    selectors::Labels,
};

/// A label of a node with its value, as a number: equal pairs have equal numbers.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct Pair(pub(crate) u32);

/// A node and what is on it.
#[derive(Clone, Debug)]
pub struct NodeInfo {
    /// The node itself; empty while only pods on it are known.
    pub node: Arc<Node>,
    /// Where it is in the cache.
    pub slot: Slot,
    /// What the node has to give.
    pub allocatable: Resource,
    /// How many pods it takes.
    pub allowed_pods: i64,
    /// What the pods on it ask for.
    pub requested: Resource,
    /// What they count for when nodes are ranked.
    pub non_zero: Resource,
    /// The pods on it.
    pub pods: Vec<Arc<PodInfo>>,
    /// Those of them with rules about pods nearby.
    pub with_affinity: Vec<Arc<PodInfo>>,
    /// The ports that are taken.
    pub used_ports: Vec<HostPort>,
    /// The labels as numbers, with their keys: few enough to go through.
    pub(crate) pairs: Vec<(Arc<str>, Pair)>,
    /// Whether the node itself is known, rather than only pods on it.
    pub(crate) present: bool,
}

impl NodeInfo {
    pub(crate) fn new(slot: Slot) -> Self {
        NodeInfo {
            node: Arc::default(),
            slot,
            allocatable: Resource::default(),
            allowed_pods: 0,
            requested: Resource::default(),
            non_zero: Resource::default(),
            pods: Vec::new(),
            with_affinity: Vec::new(),
            used_ports: Vec::new(),
            pairs: Vec::new(),
            present: false,
        }
    }

    pub(crate) fn set_node(&mut self, node: Arc<Node>) {
        let status = node.status.as_ref();
        (self.allocatable, self.allowed_pods) = Resource::read(status.and_then(|status| status.allocatable.as_ref()));
        self.node = node;
        self.present = true;
    }

    /// Its name.
    #[must_use]
    pub fn name(&self) -> &str {
        self.node.metadata.name.as_deref().unwrap_or_default()
    }

    /// Its labels.
    #[must_use]
    pub fn labels(&self) -> &Labels {
        labels_of(self.node.metadata.labels.as_ref())
    }

    /// Its taints.
    #[must_use]
    pub fn taints(&self) -> &[Taint] {
        taints(&self.node)
    }

    /// A label and its value as a number, if the node has the label.
    #[must_use]
    pub fn pair(&self, key: &str) -> Option<Pair> {
        self.pairs.iter().find(|(k, _)| **k == *key).map(|(_, pair)| *pair)
    }

    /// Puts a pod on it.
    pub fn add_pod(&mut self, pod: &Arc<PodInfo>) {
        self.requested.add(&pod.requests, 1);
        self.non_zero.add(&pod.non_zero, 1);
        self.used_ports.extend_from_slice(&pod.host_ports);
        if pod.has_affinity() {
            self.with_affinity.push(Arc::clone(pod));
        }
        self.pods.push(Arc::clone(pod));
    }

    /// A copy without some of the pods, and those pods.
    pub(crate) fn without(&self, leaves: impl Fn(&PodInfo) -> bool) -> (Self, Vec<Arc<PodInfo>>) {
        let (gone, stay): (Vec<_>, Vec<_>) = self.pods.iter().cloned().partition(|pod| leaves(pod));
        let mut copy = NodeInfo {
            node: Arc::clone(&self.node),
            slot: self.slot,
            allocatable: self.allocatable.clone(),
            allowed_pods: self.allowed_pods,
            requested: self.requested.clone(),
            non_zero: self.non_zero.clone(),
            pods: stay,
            with_affinity: self.with_affinity.iter().filter(|pod| !leaves(pod)).cloned().collect(),
            used_ports: Vec::new(),
            pairs: self.pairs.clone(),
            present: self.present,
        };
        for pod in &gone {
            copy.requested.add(&pod.requests, -1);
            copy.non_zero.add(&pod.non_zero, -1);
        }
        if !self.used_ports.is_empty() {
            copy.used_ports = copy.pods.iter().flat_map(|pod| pod.host_ports.iter().cloned()).collect();
        }
        (copy, gone)
    }

    /// Takes a pod off it. Says whether it was there.
    pub fn remove_pod(&mut self, uid: &str) -> bool {
        // Who came last is the first to be taken off when it is only tried what would be.
        let Some(at) = self.pods.iter().rposition(|pod| *pod.uid == *uid) else { return false };
        let pod = self.pods.swap_remove(at);
        self.requested.add(&pod.requests, -1);
        self.non_zero.add(&pod.non_zero, -1);
        for port in &pod.host_ports {
            if let Some(at) = self.used_ports.iter().position(|used| used == port) {
                self.used_ports.swap_remove(at);
            }
        }
        self.with_affinity.retain(|other| other.uid != pod.uid);
        true
    }
}

/// The taints of a node.
#[must_use]
pub fn taints(node: &Node) -> &[Taint] {
    node.spec.as_ref().and_then(|spec| spec.taints.as_deref()).unwrap_or_default()
}

/// Whether a node has a taint that keeps a pod away.
#[must_use]
pub fn has_untolerated_taint(node: &Node, pod: &PodInfo) -> bool {
    let mut hard = taints(node).iter().filter(|taint| taint.effect == "NoSchedule" || taint.effect == "NoExecute");
    hard.any(|taint| !tolerated(pod.tolerations(), taint))
}

impl NodeInfo {
    /// The node itself, if it is known.
    pub(crate) fn clone_node(&self) -> Option<Arc<Node>> {
        self.present.then(|| Arc::clone(&self.node))
    }
}
