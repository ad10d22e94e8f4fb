//! Nodes that were made free for pods which are not there yet.

use std::{collections::HashMap, sync::Arc};

use crate::pod_info::PodInfo;

/// Which pods are to go to which nodes, once those whom they displace are gone. They count as if they were there for
/// pods of lower priority.
#[derive(Debug, Default)]
pub struct Nominator {
    by_node: HashMap<String, Vec<Arc<PodInfo>>>,
    node_of: HashMap<Arc<str>, String>,
}

impl Nominator {
    /// A pod is to go to a node; nowhere when the name is empty.
    pub fn nominate(&mut self, pod: &Arc<PodInfo>, node: &str) {
        self.remove(&pod.uid);
        if !node.is_empty() {
            self.by_node.entry(node.to_owned()).or_default().push(Arc::clone(pod));
            self.node_of.insert(Arc::clone(&pod.uid), node.to_owned());
        }
    }

    /// The pod has changed.
    pub fn update(&mut self, pod: &Arc<PodInfo>) {
        // Who nominates writes to the pod later; until then the pod says nothing, and that is not a change of mind.
        let node = match pod.nominated_node_name() {
            "" => self.node_of.get(&pod.uid).cloned().unwrap_or_default(),
            node => node.to_owned(),
        };
        self.nominate(pod, &node);
    }

    /// The pod is not to go anywhere any more. Gives where it was to go.
    pub fn remove(&mut self, uid: &str) -> Option<String> {
        let node = self.node_of.remove(uid)?;
        if let Some(pods) = self.by_node.get_mut(&node) {
            pods.retain(|pod| *pod.uid != *uid);
            if pods.is_empty() {
                self.by_node.remove(&node);
            }
        }
        Some(node)
    }

    /// Where a pod is to go.
    #[must_use]
    pub fn node_of(&self, uid: &str) -> Option<&str> {
        self.node_of.get(uid).map(String::as_str)
    }

    /// The pods that are to go to a node.
    #[must_use]
    pub fn on(&self, node: &str) -> &[Arc<PodInfo>] {
        self.by_node.get(node).map(Vec::as_slice).unwrap_or_default()
    }

    /// Whether no pod is to go anywhere.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.by_node.is_empty()
    }
}
