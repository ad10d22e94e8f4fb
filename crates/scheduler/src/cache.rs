//! What the scheduler decides on: nodes with the pods on them, including pods that are still being bound.
//!
//! It is kept up to date event by event, and a decision reads it as it is: there is no snapshot to make, so the cost of
//! a decision does not depend on what did not change. Whoever keeps results of earlier decisions can catch up by the
//! log of pods that came and went ([`Cache::changes_since`]), or sees by the versions that it has to start anew.

use std::{
    collections::{HashMap, VecDeque},
    sync::Arc,
};

use k8s_openapi::api::core::v1::Node;

use crate::{
    node_info::{NodeInfo, Pair},
    node_tree::NodeTree,
    pod_info::{PodInfo, labels_of},
    selectors::NO_LABELS,
    world::World,
};

/// How many changes are remembered for those who catch up.
const MAX_LOG: usize = 1 << 16;

/// Where a node is in the cache. Places are used again when nodes are gone.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct Slot(pub u32);

impl Slot {
    /// As an index.
    #[must_use]
    pub fn index(self) -> usize {
        self.0 as usize
    }
}

/// A pod came to a node or left it.
#[derive(Clone, Debug)]
pub struct Change {
    /// Which node.
    pub slot: Slot,
    /// Which pod.
    pub pod: Arc<PodInfo>,
    /// 1 when it came, -1 when it left.
    pub delta: i64,
}

#[derive(Debug)]
struct Placed {
    info: Arc<PodInfo>,
    slot: Slot,
    assumed: bool,
}

#[derive(Debug, Default)]
struct Image {
    size: i64,
    nodes: u32,
}

/// A label with its value, and how many nodes have it. Numbers are used again when no node has the pair any more:
/// whoever keeps them starts anew when labels of nodes change.
#[derive(Debug)]
struct UsedPair {
    pair: Pair,
    nodes: u32,
}

/// Nodes, pods and what else decisions depend on.
#[derive(Debug, Default)]
pub struct Cache {
    nodes: Vec<NodeInfo>,
    /// Apart from the nodes, and close together: they are what every decision looks at for every node.
    generations: Vec<u64>,
    free: Vec<Slot>,
    by_name: HashMap<String, Slot>,
    tree: NodeTree,
    pods: HashMap<Arc<str>, Placed>,
    log: VecDeque<Change>,
    log_end: u64,
    generation: u64,
    topology_version: u64,
    images: HashMap<String, Image>,
    images_version: u64,
    pairs: HashMap<(Arc<str>, String), UsedPair>,
    free_pairs: Vec<Pair>,
    claim_users: HashMap<String, u32>,
    /// The rest of the cluster.
    pub world: World,
}

impl Cache {
    /// A node.
    #[must_use]
    pub fn node(&self, slot: Slot) -> &NodeInfo {
        &self.nodes[slot.index()]
    }

    /// Changes whenever anything about the node at a place does.
    #[must_use]
    pub fn generation(&self, slot: Slot) -> u64 {
        self.generations[slot.index()]
    }

    /// A node by name, if it is there.
    #[must_use]
    pub fn find(&self, name: &str) -> Option<&NodeInfo> {
        self.by_name.get(name).map(|slot| self.node(*slot)).filter(|node| node.present)
    }

    /// The nodes, zone by zone in turns, so that a walk that is cut short has seen all zones.
    ///
    /// Up to date once [`refresh_order`](Self::refresh_order) was called after the last change of nodes.
    #[must_use]
    pub fn order(&self) -> &[Slot] {
        self.tree.order()
    }

    /// Brings the order up to date. Many nodes at once cost no more than one.
    pub fn refresh_order(&mut self) {
        self.tree.refresh();
    }

    /// All nodes, in the order of their places.
    pub fn nodes(&self) -> impl Iterator<Item = &NodeInfo> {
        self.nodes.iter().filter(|node| node.present)
    }

    /// How many places for nodes there are.
    #[must_use]
    pub fn places(&self) -> usize {
        self.nodes.len()
    }

    /// How many nodes there are.
    #[must_use]
    pub fn len(&self) -> usize {
        self.tree.len()
    }

    /// Whether there are no nodes.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// How many pods are on nodes, assumed ones too.
    #[must_use]
    pub fn pods(&self) -> usize {
        self.pods.len()
    }

    /// Changes when a node comes or goes, or its labels or taints change.
    #[must_use]
    pub fn topology_version(&self) -> u64 {
        self.topology_version
    }

    /// Changes when an image is on more or fewer nodes.
    #[must_use]
    pub fn images_version(&self) -> u64 {
        self.images_version
    }

    /// The size of an image and the number of nodes that have it.
    #[must_use]
    pub fn image(&self, name: &str) -> Option<(i64, u32)> {
        self.images.get(name).map(|image| (image.size, image.nodes))
    }

    /// How many pods use a claim.
    #[must_use]
    pub fn claim_users(&self, namespace: &str, claim: &str) -> u32 {
        self.claim_users.get(&format!("{namespace}/{claim}")).copied().unwrap_or_default()
    }

    /// Where the log ends now.
    #[must_use]
    pub fn log_end(&self) -> u64 {
        self.log_end
    }

    /// What has come and gone since a place in the log; nothing when that is too long ago.
    #[must_use]
    pub fn changes_since(&self, seen: u64) -> Option<impl Iterator<Item = &Change>> {
        let missing = usize::try_from(self.log_end.checked_sub(seen)?).ok()?;
        let from = self.log.len().checked_sub(missing)?;
        Some(self.log.range(from..))
    }

    fn slot(&mut self, name: &str) -> Slot {
        if let Some(slot) = self.by_name.get(name) {
            return *slot;
        }
        let slot = self.free.pop().unwrap_or_else(|| {
            let slot = Slot(self.nodes.len() as u32);
            self.nodes.push(NodeInfo::new(slot));
            self.generations.push(0);
            slot
        });
        self.by_name.insert(name.to_owned(), slot);
        slot
    }

    fn touch(&mut self, slot: Slot) -> &mut NodeInfo {
        self.generation += 1;
        self.generations[slot.index()] = self.generation;
        &mut self.nodes[slot.index()]
    }

    /// Takes in a node that is new or has changed.
    pub fn put_node(&mut self, node: Arc<Node>) {
        let name = node.metadata.name.clone().unwrap_or_default();
        let slot = self.slot(&name);
        let old = self.nodes[slot.index()].clone_node();
        self.count_images(old.as_deref(), Some(&node));
        let same = old.as_ref().is_some_and(|old| {
            old.metadata.labels == node.metadata.labels
                && old.spec.as_ref().map(|spec| &spec.taints) == node.spec.as_ref().map(|spec| &spec.taints)
        });
        if !same {
            self.topology_version += 1;
            let labels = labels_of(node.metadata.labels.as_ref());
            self.release_pairs(old.as_deref());
            let pairs = labels.iter().map(|(key, value)| self.pair(key, value)).collect();
            self.nodes[slot.index()].pairs = pairs;
            self.tree.put(slot, &node);
        }
        self.touch(slot).set_node(node);
    }

    /// Forgets a node. Pods on it are remembered until they are gone as well.
    pub fn remove_node(&mut self, name: &str) {
        let Some(&slot) = self.by_name.get(name) else { return };
        let Some(old) = self.nodes[slot.index()].clone_node() else { return };
        self.count_images(Some(&old), None);
        self.topology_version += 1;
        self.release_pairs(Some(&old));
        self.tree.remove(slot);
        let node = self.touch(slot);
        node.present = false;
        node.node = Arc::default();
        node.pairs.clear();
        if node.pods.is_empty() {
            self.release(slot, name);
        }
    }

    fn release(&mut self, slot: Slot, name: &str) {
        self.nodes[slot.index()] = NodeInfo::new(slot);
        self.by_name.remove(name);
        self.free.push(slot);
    }

    fn pair(&mut self, key: &str, value: &str) -> (Arc<str>, Pair) {
        let key: Arc<str> = key.into();
        let (in_use, free) = (self.pairs.len() + self.free_pairs.len(), &mut self.free_pairs);
        let used = self.pairs.entry((Arc::clone(&key), value.to_owned()));
        let used = used.or_insert_with(|| UsedPair { pair: free.pop().unwrap_or(Pair(in_use as u32)), nodes: 0 });
        used.nodes += 1;
        (key, used.pair)
    }

    fn release_pairs(&mut self, old: Option<&Node>) {
        for (key, value) in old.map_or(&NO_LABELS, |old| labels_of(old.metadata.labels.as_ref())) {
            let key = (Arc::from(key.as_str()), value.clone());
            let Some(used) = self.pairs.get_mut(&key) else { continue };
            used.nodes -= 1;
            if used.nodes == 0 {
                self.free_pairs.push(used.pair);
                self.pairs.remove(&key);
            }
        }
    }

    fn count_images(&mut self, old: Option<&Node>, new: Option<&Node>) {
        let images =
            |node: Option<&Node>| node.and_then(|node| node.status.as_ref()?.images.clone()).unwrap_or_default();
        let (old, new) = (images(old), images(new));
        if old == new {
            return;
        }
        self.images_version += 1;
        for name in old.iter().flat_map(|image| image.names.iter().flatten()) {
            if let Some(image) = self.images.get_mut(name) {
                image.nodes -= 1;
                if image.nodes == 0 {
                    self.images.remove(name);
                }
            }
        }
        for image in &new {
            for name in image.names.iter().flatten() {
                let known = self.images.entry(name.clone()).or_default();
                known.size = image.size_bytes.unwrap_or_default();
                known.nodes += 1;
            }
        }
    }

    /// The pod under a uid, if it is on a node, and the node's name.
    #[must_use]
    pub fn placed(&self, uid: &str) -> Option<(&Arc<PodInfo>, &str)> {
        self.pods.get(uid).map(|placed| (&placed.info, self.node(placed.slot).name()))
    }

    /// Whether a pod was put on a node by a decision that the server has not confirmed yet.
    #[must_use]
    pub fn is_assumed(&self, uid: &str) -> bool {
        self.pods.get(uid).is_some_and(|placed| placed.assumed)
    }

    /// Puts a pod on a node before the server knows.
    pub fn assume(&mut self, pod: &Arc<PodInfo>, slot: Slot) {
        self.take_off(&pod.uid);
        self.place(pod, slot, true);
    }

    /// Takes back what was assumed.
    pub fn forget(&mut self, uid: &str) -> bool {
        self.is_assumed(uid) && self.take_off(uid).is_some()
    }

    /// Takes in a pod that is on a node, as the server tells it.
    pub fn put_pod(&mut self, pod: &Arc<PodInfo>) {
        if let Some(placed) = self.pods.get_mut(&pod.uid) {
            let same_node = self.nodes[placed.slot.index()].name() == pod.node_name();
            let same = placed.info.class.is_some()
                && placed.info.class == pod.class
                && placed.info.is_terminating() == pod.is_terminating()
                && placed.info.priority == pod.priority;
            if same_node && same {
                // Only what nobody counts has changed: no need to count again.
                placed.assumed = false;
                let slot = placed.slot;
                placed.info = Arc::clone(pod);
                let node = &mut self.nodes[slot.index()];
                for known in node.pods.iter_mut().chain(&mut node.with_affinity) {
                    if known.uid == pod.uid {
                        *known = Arc::clone(pod);
                    }
                }
                return;
            }
        }
        self.take_off(&pod.uid);
        let slot = self.slot(pod.node_name());
        self.place(pod, slot, false);
    }

    /// Forgets a pod. Gives where it was.
    pub fn remove_pod(&mut self, uid: &str) -> Option<Slot> {
        self.take_off(uid)
    }

    fn place(&mut self, pod: &Arc<PodInfo>, slot: Slot, assumed: bool) {
        self.touch(slot).add_pod(pod);
        for (claim, _) in pod.claims() {
            *self.claim_users.entry(format!("{}/{claim}", pod.namespace())).or_default() += 1;
        }
        self.pods.insert(Arc::clone(&pod.uid), Placed { info: Arc::clone(pod), slot, assumed });
        self.note(slot, pod, 1);
    }

    fn take_off(&mut self, uid: &str) -> Option<Slot> {
        let Placed { info, slot, .. } = self.pods.remove(uid)?;
        self.touch(slot).remove_pod(uid);
        for (claim, _) in info.claims() {
            let key = format!("{}/{claim}", info.namespace());
            if let Some(users) = self.claim_users.get_mut(&key) {
                *users -= 1;
                if *users == 0 {
                    self.claim_users.remove(&key);
                }
            }
        }
        self.note(slot, &info, -1);
        let node = self.node(slot);
        if !node.present && node.pods.is_empty() {
            let name = self.by_name.iter().find(|(_, at)| **at == slot).map(|(name, _)| name.clone());
            if let Some(name) = name {
                self.release(slot, &name);
            }
        }
        Some(slot)
    }

    fn note(&mut self, slot: Slot, pod: &Arc<PodInfo>, delta: i64) {
        if self.log.len() == MAX_LOG {
            self.log.pop_front();
        }
        self.log.push_back(Change { slot, pod: Arc::clone(pod), delta });
        self.log_end += 1;
    }
}
