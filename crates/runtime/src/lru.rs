//! A map with a bound: what was not asked for the longest goes first.

use std::{
    collections::{BTreeMap, HashMap},
    hash::Hash,
};

/// A map that never has more than so many entries.
#[derive(Debug)]
pub(crate) struct Lru<K, V> {
    entries: HashMap<K, (u64, V)>,
    order: BTreeMap<u64, K>,
    next: u64,
    most: usize,
}

impl<K: Clone + Eq + Hash, V> Lru<K, V> {
    pub(crate) fn new(most: usize) -> Self {
        Lru { entries: HashMap::new(), order: BTreeMap::new(), next: 0, most: most.max(1) }
    }

    /// The entry of a key, made if it is not there.
    pub(crate) fn entry(&mut self, key: &K, make: impl FnOnce() -> V) -> &mut V {
        let now = self.next;
        self.next += 1;
        match self.entries.get(key) {
            Some((at, _)) => drop(self.order.remove(at)),
            None if self.entries.len() >= self.most => {
                if let Some((_, oldest)) = self.order.pop_first() {
                    self.entries.remove(&oldest);
                }
            }
            None => {}
        }
        self.order.insert(now, key.clone());
        let entry = self.entries.entry(key.clone()).or_insert_with(|| (now, make()));
        entry.0 = now;
        &mut entry.1
    }

    pub(crate) fn remove(&mut self, key: &K) {
        if let Some((at, _)) = self.entries.remove(key) {
            self.order.remove(&at);
        }
    }

    /// The keys, those that were not asked for the longest first.
    pub(crate) fn keys(&self) -> Vec<K> {
        self.order.values().cloned().collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_oldest_goes_first() {
        let mut lru = Lru::new(2);
        *lru.entry(&"a", || 1) += 10;
        lru.entry(&"b", || 2);
        assert_eq!(*lru.entry(&"a", || 0), 11);
        lru.entry(&"c", || 3);
        assert_eq!(lru.keys(), ["a", "c"]);
        assert_eq!(*lru.entry(&"b", || 5), 5, "it was forgotten");
        lru.remove(&"b");
        assert_eq!(lru.keys(), ["c"]);
    }
}
