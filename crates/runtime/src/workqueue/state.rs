//! What a queue knows of its items: which are to be worked on, which are in work, whose time has not come.
//!
//! Items that were added wait elsewhere until many of them are sorted in at once. What is done to items meanwhile is
//! remembered, so that they end up where they would be if each had been sorted in when it came: one that came while it
//! stood in the queue has added nothing, and one that came while it was in work stands where it was done with.

use std::{
    cmp::Reverse,
    collections::{BTreeMap, BinaryHeap, HashMap},
};

use capstan_clock::Moment;
use foldhash::fast::RandomState;

use super::{
    Metrics,
    core::Item,
    metrics::{Stamp, observe, stamp},
    ready::Ready,
    table::Table,
};

/// How many items that are done keep their slots, if fewer than that are not done. Items come back: one that finds its
/// slot needs no new one, and taking many slots away at once costs much less than one at a time.
pub(super) const KEPT: usize = if cfg!(test) { 4 } else { 1024 };

/// How many items may wait to be sorted in while there is something to hand out, and how many things may be done
/// meanwhile.
const BATCH: usize = if cfg!(test) { 4 } else { 256 };
const MAX_MET: usize = 4 * BATCH;

/// An item that is to be worked on, or is being worked on, or both; or one that was not long ago.
#[derive(Debug)]
struct Slot<T, A> {
    /// None when the slot is free.
    item: Option<T>,
    /// Since when it is to be worked on.
    added: Stamp,
    hash: u32,
    /// Its place in [`State::met`], if it is there.
    met: u32,
    /// To be worked on: where it stands. While it is in work it is not handed out.
    dirty: Option<A>,
    /// In work.
    processing: bool,
    /// Among those that were done with and not taken away since.
    kept: bool,
}

/// What was done to an item while others waited to be sorted in: so many had come when it was taken, and when it was
/// done with, as the so-manieth.
#[derive(Debug)]
struct Met {
    slot: u32,
    taken: u32,
    done: u32,
    order: u32,
}

/// An item in work: its hash, its slot, and since when. There are no more than workers, so they are looked through.
type InWork = (u32, u32, Stamp);

/// An item that was added.
#[derive(Debug)]
pub(super) struct Arrival<T, R> {
    pub(super) item: T,
    pub(super) hash: u32,
    pub(super) rank: R,
    pub(super) at: Stamp,
}

pub(super) struct State<T, Q: Ready> {
    pub(super) ready: Q,
    /// Where each item is in `slots`.
    table: Table,
    slots: Vec<Slot<T, Q::At>>,
    free: Vec<u32>,
    in_work: Vec<InWork>,
    /// The slots of items that were done with. Those that have come back since are among them.
    kept: Vec<u32>,
    /// What was done since arrivals were sorted in last, if some have come.
    met: Vec<Met>,
    /// How many of them were done with.
    ended: u32,
    /// While arrivals are sorted in: those that came while they were in work, by when they were done with.
    late: BinaryHeap<Reverse<(u32, u32, u32)>>,
    /// Items whose time has not come.
    waiting: HashMap<T, (Moment, u64, Q::Rank), RandomState>,
    deadlines: BTreeMap<(Moment, u64), T>,
    next: u64,
    pub(super) shutting_down: bool,
    /// Somebody waits until nothing is left.
    pub(super) drain: bool,
    pub(super) metrics: Metrics,
    /// The room for what has arrived while it is sorted in.
    pub(super) arriving: Vec<Arrival<T, Q::Rank>>,
}

impl<T, Q: Ready> Default for State<T, Q> {
    fn default() -> Self {
        State {
            ready: Q::default(),
            table: Table::default(),
            slots: Vec::new(),
            free: Vec::new(),
            in_work: Vec::new(),
            kept: Vec::new(),
            met: Vec::new(),
            ended: 0,
            late: BinaryHeap::new(),
            waiting: HashMap::default(),
            deadlines: BTreeMap::new(),
            next: 0,
            shutting_down: false,
            drain: false,
            metrics: Metrics::default(),
            arriving: Vec::new(),
        }
    }
}

impl<T: Item, Q: Ready> State<T, Q> {
    fn find(&self, item: &T, hash: u32) -> Option<u32> {
        self.table.find(hash, |at| self.slots[at as usize].item.as_ref() == Some(item))
    }

    /// The slot of an item, made if it has none.
    fn slot(&mut self, item: T, hash: u32) -> u32 {
        if let Some(at) = self.find(&item, hash) {
            return at;
        }
        // Filled in where it is: a copy of what was just put together waits for all that is still on its way to memory.
        let at = self.free.pop().unwrap_or_else(|| {
            let new = Slot { item: None, added: None, hash: 0, met: 0, dirty: None, processing: false, kept: false };
            self.slots.push(new);
            number(self.slots.len() - 1)
        });
        let slot = &mut self.slots[at as usize];
        slot.hash = hash;
        slot.item = Some(item);
        self.table.insert(hash, at);
        at
    }

    pub(super) fn is_dirty(&self, item: &T, hash: u32) -> bool {
        self.find(item, hash).is_some_and(|at| self.slots[at as usize].dirty.is_some())
    }

    /// Adds an item now.
    pub(super) fn add(&mut self, item: T, hash: u32, rank: Q::Rank, now: Stamp) {
        self.add_as(u32::MAX, Arrival { item, hash, rank, at: now });
    }

    /// Whether what has arrived is to be sorted in before the next item is handed out.
    pub(super) fn wants(&self, arrived: usize) -> bool {
        let late_is_fine = Q::IN_ORDER && arrived < BATCH && self.met.len() < MAX_MET;
        arrived > 0 && !(late_is_fine && self.ready.len() > 0)
    }

    /// Adds what has arrived, in that order.
    pub(super) fn sort_in(&mut self, arriving: &mut Vec<Arrival<T, Q::Rank>>) {
        self.table.fetch(arriving.iter().map(|arrival| arrival.hash));
        for (count, arrival) in arriving.drain(..).enumerate() {
            let count = number(count);
            self.catch_up(count);
            self.add_as(count, arrival);
        }
        self.catch_up(u32::MAX);
        self.met.clear();
        self.ended = 0;
    }

    /// Those that were done with before so many had come, and had come themselves, stand behind those.
    fn catch_up(&mut self, count: u32) {
        while let Some(Reverse((_, _, at))) = self.late.peek().filter(|late| late.0.0 <= count).copied() {
            self.late.pop();
            if let Some(dirty) = self.slots[at as usize].dirty {
                self.ready.push(at, dirty);
            }
        }
    }

    /// What was done to an item since arrivals were sorted in last.
    fn met(&self, at: u32) -> Option<&Met> {
        self.met.get(self.slots[at as usize].met as usize).filter(|met| met.slot == at)
    }

    fn meet(&mut self, at: u32) -> &mut Met {
        if self.met(at).is_none() {
            self.slots[at as usize].met = number(self.met.len());
            self.met.push(Met { slot: at, taken: 0, done: 0, order: 0 });
        }
        &mut self.met[self.slots[at as usize].met as usize]
    }

    /// Adds an item that came as the so-manieth of those that are sorted in.
    fn add_as(&mut self, count: u32, arrival: Arrival<T, Q::Rank>) {
        let Arrival { item, hash, mut rank, at: now } = arrival;
        if self.shutting_down {
            return;
        }
        if Q::MERGES_WAITING
            && !self.waiting.is_empty()
            && let Some((deadline, at, waiting)) = self.waiting.remove(&item)
        {
            self.deadlines.remove(&(deadline, at));
            rank = rank.max(waiting);
        }
        let (place, at) = (self.next, self.slot(item, hash));
        let met =
            self.met(at).filter(|met| count < met.taken.max(met.done)).map(|met| (met.taken, met.done, met.order));
        let slot = &mut self.slots[at as usize];
        match (slot.dirty, met) {
            (Some(known), _) => {
                if rank > Q::rank(known) {
                    let to = Q::reranked(known, rank);
                    slot.dirty = Some(to);
                    if !slot.processing {
                        self.ready.rerank(known, to);
                    }
                }
            }
            // It stood in the queue when this one came.
            (None, Some((taken, ..))) if count < taken => {}
            (None, met) => {
                let new = Q::at(rank, place);
                (slot.dirty, slot.added) = (Some(new), now);
                self.next += 1;
                self.metrics.adds += 1;
                self.metrics.depth += 1;
                match met {
                    _ if slot.processing => {}
                    Some((_, done, order)) => self.late.push(Reverse((done, order, at))),
                    None => self.ready.push(at, new),
                }
            }
        }
    }

    pub(super) fn add_after(&mut self, item: T, deadline: Moment, mut rank: Q::Rank) {
        if let Some((known, at, known_rank)) = self.waiting.get(&item).copied() {
            rank = rank.max(known_rank);
            if known <= deadline {
                self.waiting.insert(item, (known, at, rank));
                return;
            }
            self.deadlines.remove(&(known, at));
        }
        let at = self.next;
        self.next += 1;
        self.waiting.insert(item.clone(), (deadline, at, rank));
        self.deadlines.insert((deadline, at), item);
    }

    /// When the next item's time comes.
    pub(super) fn deadline(&self) -> Option<Moment> {
        self.deadlines.first_key_value().map(|(first, _)| first.0)
    }

    /// Adds those whose time has come.
    pub(super) fn promote(&mut self, now: Moment, hash: impl Fn(&T) -> u32) {
        while let Some(first) = self.deadlines.first_entry().filter(|first| first.key().0 <= now) {
            let item = first.remove();
            let rank = self.waiting.remove(&item).map(|(_, _, rank)| rank).unwrap_or_default();
            let hash = hash(&item);
            self.add(item, hash, rank, stamp(now));
        }
    }

    /// Nothing's time comes any more.
    pub(super) fn forget_waiting(&mut self) {
        self.waiting.clear();
        self.deadlines.clear();
    }

    /// Takes the next item. So many have come that are not sorted in.
    pub(super) fn pop(&mut self, now: Stamp, arrived: usize) -> Option<(T, Q::Rank)> {
        let at = self.ready.pop()?;
        if arrived > 0 {
            self.meet(at).taken = number(arrived);
        }
        let slot = &mut self.slots[at as usize];
        let dirty = slot.dirty.take()?;
        let item = slot.item.clone()?;
        slot.processing = true;
        self.in_work.push((slot.hash, at, now));
        self.metrics.depth -= 1;
        observe(&mut self.metrics.queue_duration, slot.added, now);
        Some((item, Q::rank(dirty)))
    }

    /// An item that is in work, and whether it is known that it has come again.
    pub(super) fn in_work(&self, item: &T, hash: u32) -> Option<(usize, bool)> {
        let slot = |of: &InWork| &self.slots[of.1 as usize];
        let found = self.in_work.iter().position(|of| of.0 == hash && slot(of).item.as_ref() == Some(item))?;
        Some((found, slot(&self.in_work[found]).dirty.is_some()))
    }

    /// The work on the item is over. So many have come that are not sorted in: none, if it is known that it has come
    /// again.
    pub(super) fn done(&mut self, in_work: usize, now: Stamp, arrived: usize) {
        let (_, at, started) = self.in_work.swap_remove(in_work);
        observe(&mut self.metrics.work_duration, started, now);
        let slot = &mut self.slots[at as usize];
        slot.processing = false;
        if let Some(dirty) = slot.dirty {
            self.ready.push(at, dirty);
            return;
        }
        if !slot.kept {
            slot.kept = true;
            self.kept.push(at);
        }
        if arrived > 0 {
            let order = self.ended;
            self.ended += 1;
            let met = self.meet(at);
            (met.done, met.order) = (number(arrived), order);
        }
    }

    /// Whether nothing is in work, or could be.
    pub(super) fn is_idle(&self) -> bool {
        self.in_work.is_empty() && self.ready.len() == 0
    }

    /// Since when items are in work.
    pub(super) fn since(&self) -> impl Iterator<Item = Stamp> {
        self.in_work.iter().map(|(_, _, since)| *since)
    }

    /// How many items are to be worked on, by priority. What is in work and has come again is among them.
    pub(super) fn depth_by_priority(&self) -> BTreeMap<i32, usize> {
        let again = self.in_work.iter().filter_map(|(_, at, _)| Some((Q::rank(self.slots[*at as usize].dirty?), 1)));
        let mut depths = BTreeMap::new();
        for (rank, count) in self.ready.counts().into_iter().chain(again) {
            if let Some(priority) = Q::priority(rank) {
                *depths.entry(priority).or_default() += count;
            }
        }
        depths
    }

    /// Whether so many items were done with that their slots are to be taken away: the others may be as many as are not
    /// done.
    pub(super) fn is_full(&self) -> bool {
        self.kept.len() >= KEPT && self.kept.len() * 2 >= self.slots.len() - self.free.len()
    }

    /// Takes the slots of items that were done with away, except from those that have come back. All that has arrived
    /// must have been sorted in: it may be about those.
    pub(super) fn sweep(&mut self) {
        // A bit for each slot: the table is gone through in no order, and this fits a cache where the slots do not.
        let mut gone = vec![0_u64; self.slots.len().div_ceil(64)];
        for at in self.kept.drain(..) {
            let slot = &mut self.slots[at as usize];
            slot.kept = false;
            if slot.dirty.is_none() && !slot.processing {
                slot.item = None;
                gone[at as usize / 64] |= 1 << (at % 64);
                self.free.push(at);
            }
        }
        let left = self.slots.len() - self.free.len();
        self.table.retain(left, |at| gone[at as usize / 64] & (1 << (at % 64)) == 0);
    }
}

/// The number of a slot, or of so many items.
fn number(at: usize) -> u32 {
    u32::try_from(at).ok().filter(|at| *at < u32::MAX).expect("memory ends before four billion items")
}
