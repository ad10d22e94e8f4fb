//! The index: keys in order, each with the place of its value, compact and cheap to clone.
//!
//! A persistent map of [`Leaf`]s: a clone is a snapshot that never changes, for readers, checkpoints and a writer that
//! may have to take back what it did.

use std::{ops::Bound, sync::Arc};

use imbl::OrdMap;

use super::leaf::{LEAF_KEYS, Leaf, Place, Walk};
use crate::Key;

/// A leaf with fewer keys looks for a neighbour to join with.
const SPARSE: usize = LEAF_KEYS / 4;

/// Keys in order with their places.
#[derive(Clone, Debug, Default)]
pub(super) struct Index {
    /// Leaves under a key that is not after their first and after all of the leaf before. The first one is under the
    /// empty key and stays when it is empty.
    leaves: OrdMap<Key, Arc<Leaf>>,
    len: usize,
}

impl Index {
    pub(super) fn len(&self) -> usize {
        self.len
    }

    pub(super) fn get(&self, key: &[u8]) -> Option<Place> {
        self.leaves.get_prev(key)?.1.get(key)
    }

    /// Puts `place` under the key, or nothing, and returns what was there.
    pub(super) fn set(&mut self, key: &[u8], place: Option<&Place>) -> Option<Place> {
        let (under, leaf) = match self.leaves.get_prev(key) {
            Some((under, leaf)) => (under.clone(), Arc::clone(leaf)),
            None => (Key::new(), Arc::new(Leaf::empty())),
        };
        let (edited, old, inside) = leaf.edit(key, place);
        self.len = self.len + usize::from(place.is_some()) - usize::from(old.is_some());
        if edited.overfull() {
            // Keys that come in order leave full leaves behind.
            let (left, middle, right) = edited.split(if inside { edited.len() / 2 } else { 1 });
            self.leaves.insert(under, Arc::new(left));
            self.leaves.insert(middle.into(), Arc::new(right));
        } else if edited.len() == 0 && !under.is_empty() {
            self.leaves.remove(&under);
        } else if place.is_none() && edited.len() < SPARSE {
            self.thin(under, edited);
        } else {
            self.leaves.insert(under, Arc::new(edited));
        }
        old
    }

    /// Puts a leaf with few keys in place, together with the one after it if the two stay small.
    fn thin(&mut self, under: Key, mut leaf: Leaf) {
        let after = self.leaves.range::<_, [u8]>((Bound::Excluded(&under[..]), Bound::Unbounded)).next();
        if let Some((next, right)) = after
            && leaf.len() + right.len() <= LEAF_KEYS * 3 / 4
        {
            let (next, joined) = (next.clone(), leaf.join(right));
            if !joined.overfull() {
                self.leaves.remove(&next);
                leaf = joined;
            }
        }
        self.leaves.insert(under, Arc::new(leaf));
    }

    /// All keys that are not before `from`, in order.
    pub(super) fn scan(&self, from: &[u8]) -> Scan<'_> {
        let first = self.leaves.get_prev(from).map_or(&[][..], |(under, _)| under);
        let mut scan = Scan {
            leaves: self.leaves.range::<_, [u8]>((Bound::Included(first), Bound::Unbounded)),
            walk: None,
            at: None,
        };
        scan.next();
        while scan.key().is_some_and(|key| key < from) {
            scan.next();
        }
        scan
    }

    /// How many keys begin with `prefix` and are not before `from`.
    pub(super) fn count(&self, prefix: &[u8], from: &[u8]) -> usize {
        let from = prefix.max(from);
        let mut scan = self.scan(from);
        let mut count = 0;
        while scan.key().is_some_and(|key| key.starts_with(prefix)) {
            count += 1;
            scan.next();
        }
        count
    }

    /// The leaves in order, with the keys that they are under.
    pub(super) fn leaves(&self) -> impl Iterator<Item = (&Key, &Leaf)> {
        self.leaves.iter().map(|(under, leaf)| (under, &**leaf))
    }

    /// The index with these leaves, which have been checked and come in order.
    pub(super) fn of(leaves: impl IntoIterator<Item = (Key, Leaf)>) -> Self {
        let mut len = 0;
        let leaves = leaves.into_iter().map(|(under, leaf)| {
            len += leaf.len();
            (under, Arc::new(leaf))
        });
        let leaves = leaves.collect();
        Index { leaves, len }
    }
}

/// Goes through an index. Stands at a key, or behind the last.
pub(super) struct Scan<'a> {
    leaves: imbl::ordmap::RangedIter<'a, Key, Arc<Leaf>, imbl::shared_ptr::DefaultSharedPtr>,
    walk: Option<Walk<'a>>,
    at: Option<Place>,
}

impl Scan<'_> {
    /// The key that it stands at.
    pub(super) fn key(&self) -> Option<&[u8]> {
        self.at.as_ref().and(self.walk.as_ref()).map(Walk::key)
    }

    /// The key and place that it stands at.
    pub(super) fn item(&self) -> Option<(&[u8], Place)> {
        self.key().zip(self.at)
    }

    /// Goes on.
    pub(super) fn next(&mut self) {
        loop {
            if let Some(walk) = &mut self.walk {
                self.at = walk.next();
                if self.at.is_some() {
                    return;
                }
            }
            self.walk = self.leaves.next().map(|(_, leaf)| leaf.walk());
            if self.walk.is_none() {
                self.at = None;
                return;
            }
        }
    }
}
