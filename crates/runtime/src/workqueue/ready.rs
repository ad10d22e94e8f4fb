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
    /// Where an item stands.
    type At: Copy + Send + fmt::Debug;

    /// Whether an item that waits for its time and is added meanwhile comes only once.
    const MERGES_WAITING: bool;
    /// Whether the next item cannot be one that comes later.
    const IN_ORDER: bool;

    /// Where an item of this rank stands that came as the so-manieth.
    fn at(rank: Self::Rank, place: u64) -> Self::At;
    fn rank(at: Self::At) -> Self::Rank;
    /// The priority that a rank is, if it is one.
    fn priority(rank: Self::Rank) -> Option<i32>;
    /// How many there are of each rank.
    fn counts(&self) -> Vec<(Self::Rank, usize)>;
    /// The same with another rank.
    fn reranked(at: Self::At, rank: Self::Rank) -> Self::At;
    fn push(&mut self, slot: u32, at: Self::At);
    fn pop(&mut self) -> Option<u32>;
    fn len(&self) -> usize;
    /// Lets an item that is in it stand elsewhere.
    fn rerank(&mut self, from: Self::At, to: Self::At);
}

/// First come, first served.
#[derive(Debug, Default)]
pub(super) struct Fifo(VecDeque<u32>);

impl Ready for Fifo {
    type Rank = ();
    type At = ();
    const MERGES_WAITING: bool = false;
    const IN_ORDER: bool = true;

    fn at((): (), _: u64) {}

    fn rank((): ()) {}

    fn priority((): ()) -> Option<i32> {
        None
    }

    fn counts(&self) -> Vec<((), usize)> {
        vec![((), self.0.len())]
    }

    fn reranked((): (), (): ()) {}

    fn push(&mut self, slot: u32, (): ()) {
        self.0.push_back(slot);
    }

    fn pop(&mut self) -> Option<u32> {
        self.0.pop_front()
    }

    fn len(&self) -> usize {
        self.0.len()
    }

    fn rerank(&mut self, (): (), (): ()) {}
}

/// The highest priority first, and among equals who came first.
///
/// There are many items and few priorities, and nearly all items come last among their equals.
#[derive(Debug, Default)]
pub(super) struct ByPriority {
    /// Places and slots, in the order of the places.
    levels: BTreeMap<Reverse<i32>, VecDeque<(u64, u32)>>,
    len: usize,
}

impl Ready for ByPriority {
    type Rank = i32;
    type At = (i32, u64);
    const MERGES_WAITING: bool = true;
    const IN_ORDER: bool = false;

    fn at(priority: i32, place: u64) -> (i32, u64) {
        (priority, place)
    }

    fn rank((priority, _): (i32, u64)) -> i32 {
        priority
    }

    fn priority(rank: i32) -> Option<i32> {
        Some(rank)
    }

    fn counts(&self) -> Vec<(i32, usize)> {
        self.levels.iter().map(|(Reverse(priority), level)| (*priority, level.len())).collect()
    }

    fn reranked((_, place): (i32, u64), priority: i32) -> (i32, u64) {
        (priority, place)
    }

    fn push(&mut self, slot: u32, (priority, place): (i32, u64)) {
        self.len += 1;
        let level = self.levels.entry(Reverse(priority)).or_default();
        match level.back() {
            Some((last, _)) if *last > place => {
                level.insert(level.partition_point(|(other, _)| *other < place), (place, slot));
            }
            _ => level.push_back((place, slot)),
        }
    }

    fn pop(&mut self) -> Option<u32> {
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

    fn rerank(&mut self, (from, place): (i32, u64), to: (i32, u64)) {
        let Some(level) = self.levels.get_mut(&Reverse(from)) else { return };
        let Ok(at) = level.binary_search_by_key(&place, |(other, _)| *other) else { return };
        if let Some((_, slot)) = level.remove(at) {
            self.len -= 1;
            self.push(slot, to);
        }
    }
}
