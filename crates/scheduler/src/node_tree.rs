//! The nodes by zone, and the order in which they are looked at.

use std::collections::HashMap;

use k8s_openapi::api::core::v1::Node;

use crate::{cache::Slot, pod_info::labels_of};

/// The nodes by zone. The order takes one node of each zone in turn.
#[derive(Debug, Default)]
pub(crate) struct NodeTree {
    zones: Vec<(String, Vec<Slot>)>,
    zone_of: HashMap<Slot, String>,
    order: Vec<Slot>,
    stale: bool,
}

/// The region and zone of a node, under their old names or their new ones.
fn zone_key(node: &Node) -> String {
    let labels = labels_of(node.metadata.labels.as_ref());
    let either = |old: &str, new: &str| labels.get(old).or_else(|| labels.get(new)).cloned().unwrap_or_default();
    let zone = either("failure-domain.beta.kubernetes.io/zone", "topology.kubernetes.io/zone");
    let region = either("failure-domain.beta.kubernetes.io/region", "topology.kubernetes.io/region");
    if zone.is_empty() && region.is_empty() { String::new() } else { format!("{region}:\0:{zone}") }
}

impl NodeTree {
    pub(crate) fn len(&self) -> usize {
        self.zone_of.len()
    }

    /// Takes in a node; one that stays in its zone keeps its place.
    pub(crate) fn put(&mut self, slot: Slot, node: &Node) {
        let zone = zone_key(node);
        if self.zone_of.get(&slot) == Some(&zone) {
            return;
        }
        self.remove(slot);
        match self.zones.iter_mut().find(|(name, _)| *name == zone) {
            Some((_, slots)) => slots.push(slot),
            None => self.zones.push((zone.clone(), vec![slot])),
        }
        self.zone_of.insert(slot, zone);
        self.stale = true;
    }

    pub(crate) fn remove(&mut self, slot: Slot) {
        let Some(zone) = self.zone_of.remove(&slot) else { return };
        self.stale = true;
        if let Some(at) = self.zones.iter().position(|(name, _)| *name == zone) {
            self.zones[at].1.retain(|other| *other != slot);
            if self.zones[at].1.is_empty() {
                self.zones.remove(at);
            }
        }
    }

    pub(crate) fn order(&self) -> &[Slot] {
        &self.order
    }

    pub(crate) fn refresh(&mut self) {
        if self.stale {
            self.stale = false;
            self.order.clear();
            let longest = self.zones.iter().map(|(_, slots)| slots.len()).max().unwrap_or(0);
            for at in 0..longest {
                self.order.extend(self.zones.iter().filter_map(|(_, slots)| slots.get(at)));
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::testing::node;

    #[test]
    fn zones_take_turns() {
        let mut tree = NodeTree::default();
        for (at, zone) in ["a", "a", "a", "b", "c", "c"].into_iter().enumerate() {
            let yaml = format!("metadata: {{name: some, labels: {{topology.kubernetes.io/zone: {zone}}}}}");
            tree.put(Slot(at as u32), &node(&yaml));
        }
        let order = |tree: &mut NodeTree| {
            tree.refresh();
            tree.order().iter().map(|slot| slot.0).collect::<Vec<_>>()
        };
        assert_eq!(order(&mut tree), [0, 3, 4, 1, 5, 2]);
        tree.remove(Slot(3));
        tree.put(Slot(0), &node("metadata: {name: some, labels: {failure-domain.beta.kubernetes.io/zone: c}}"));
        assert_eq!(order(&mut tree), [1, 4, 2, 5, 0]);
        assert_eq!(tree.len(), 5);
    }
}
