//! The orders in which queues hand items out.

use std::{
    cmp::Reverse,
    collections::{BTreeMap, VecDeque},
    fmt,
};

/// How many priorities keep their room when nothing of them is left.
const KEPT_PRIORITIES: usize = 8;

/// The order in which items are handed out. Items are known by their slots.
pub(super) trait Ready: Default + Send {
    /// What the order depends on, besides who came first.
    type Rank: Copy + Ord + Default + Send + fmt::Debug;

    /// Whether it is first come, first served: nothing that comes later changes what is next.
    const IN_ORDER: bool;
    /// Whether an item that waits for its time and is added meanwhile comes only once.
    const MERGES_WAITING: bool;

    fn push(&mut self, slot: usize, at: (Self::Rank, u64));
    fn pop(&mut self) -> Option<usize>;
    fn len(&self) -> usize;
    /// Gives an item that is in it another rank.
    fn rerank(&mut self, from: (Self::Rank, u64), to: Self::Rank);
}

/// First come, first served.
#[derive(Debug, Default)]
pub(super) struct Fifo(VecDeque<usize>);

impl Ready for Fifo {
    type Rank = ();
    const IN_ORDER: bool = true;
    const MERGES_WAITING: bool = false;

    fn push(&mut self, slot: usize, _: ((), u64)) {
        self.0.push_back(slot);
    }

    fn pop(&mut self) -> Option<usize> {
        self.0.pop_front()
    }

    fn len(&self) -> usize {
        self.0.len()
    }

    fn rerank(&mut self, _: ((), u64), (): ()) {}
}

/// The highest priority first, and among equals who came first.
///
/// There are many items and few priorities, and nearly all items come last among their equals.
#[derive(Debug, Default)]
pub(super) struct ByPriority {
    /// Places and slots, in the order of the places.
    levels: BTreeMap<Reverse<i32>, VecDeque<(u64, usize)>>,
    len: usize,
}

impl Ready for ByPriority {
    type Rank = i32;
    const IN_ORDER: bool = false;
    const MERGES_WAITING: bool = true;

    fn push(&mut self, slot: usize, (priority, place): (i32, u64)) {
        self.len += 1;
        let level = self.levels.entry(Reverse(priority)).or_default();
        match level.back() {
            Some((last, _)) if *last > place => {
                level.insert(level.partition_point(|(other, _)| *other < place), (place, slot));
            }
            _ => level.push_back((place, slot)),
        }
    }

    fn pop(&mut self) -> Option<usize> {
        let (priority, level) = self.levels.iter_mut().find(|(_, level)| !level.is_empty())?;
        let (_, slot) = level.pop_front()?;
        self.len -= 1;
        let (priority, emptied) = (*priority, level.is_empty());
        if emptied && self.levels.len() > KEPT_PRIORITIES {
            self.levels.remove(&priority);
        }
        Some(slot)
    }

    fn len(&self) -> usize {
        self.len
    }

    fn rerank(&mut self, (from, place): (i32, u64), to: i32) {
        let Some(level) = self.levels.get_mut(&Reverse(from)) else { return };
        let Ok(at) = level.binary_search_by_key(&place, |(other, _)| *other) else { return };
        if let Some((_, slot)) = level.remove(at) {
            self.len -= 1;
            self.push(slot, (to, place));
        }
    }
}
