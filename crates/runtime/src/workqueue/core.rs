//! What all queues have in common: the sets, the waiting, the clock.

use std::{
    cmp::Reverse,
    collections::{BTreeMap, HashMap, VecDeque},
    fmt,
    hash::Hash,
    pin::pin,
    sync::PoisonError,
    time::Duration,
};

use capstan_client::beat::race;
use capstan_clock::{Moment, SharedClock};
use foldhash::fast::RandomState;
use tokio::sync::Notify;

use super::Metrics;
use crate::sync::{Mutex, MutexGuard};

/// What can be in a queue.
pub trait Item: Clone + Eq + Hash + Send + 'static {}

impl<T: Clone + Eq + Hash + Send + 'static> Item for T {}

/// The order in which items are handed out. Items are known by their places in [`State::slots`].
pub(super) trait Ready: Default + Send {
    /// What the order depends on, besides who came first.
    type Rank: Copy + Ord + Default + Send + fmt::Debug;

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
#[derive(Debug, Default)]
pub(super) struct ByPriority(BTreeMap<(Reverse<i32>, u64), usize>);

impl Ready for ByPriority {
    type Rank = i32;
    const MERGES_WAITING: bool = true;

    fn push(&mut self, slot: usize, (priority, at): (i32, u64)) {
        self.0.insert((Reverse(priority), at), slot);
    }

    fn pop(&mut self) -> Option<usize> {
        self.0.pop_first().map(|(_, item)| item)
    }

    fn len(&self) -> usize {
        self.0.len()
    }

    fn rerank(&mut self, (from, at): (i32, u64), to: i32) {
        if let Some(item) = self.0.remove(&(Reverse(from), at)) {
            self.0.insert((Reverse(to), at), item);
        }
    }
}

/// An item that is to be worked on, or is being worked on, or both.
#[derive(Debug)]
struct Slot<T, R> {
    /// None when the slot is free.
    item: Option<T>,
    /// To be worked on: its rank, its place, and since when. While it is in work it is not handed out.
    dirty: Option<(R, u64, Moment)>,
    /// In work: since when.
    processing: Option<Moment>,
}

struct State<T, Q: Ready> {
    ready: Q,
    /// Where each item is in `slots`: found twice a round, when it is added and when it is done.
    entries: HashMap<T, usize, RandomState>,
    slots: Vec<Slot<T, Q::Rank>>,
    free: Vec<usize>,
    /// Items whose time has not come.
    waiting: HashMap<T, (Moment, u64, Q::Rank), RandomState>,
    deadlines: BTreeMap<(Moment, u64), T>,
    next: u64,
    processing: usize,
    shutting_down: bool,
    /// Somebody waits until nothing is left.
    drain: bool,
    metrics: Metrics,
}

/// A queue, seen from inside. Every method may be called from any task; none but those that are async waits.
pub(super) struct Core<T, Q: Ready> {
    state: Mutex<State<T, Q>>,
    clock: SharedClock,
    /// Who waits for an item is to look again. Each item that can be handed out wakes one.
    wake: Notify,
    /// An item is done while somebody waits until nothing is left.
    done: Notify,
}

impl<T, Q: Ready> fmt::Debug for Core<T, Q> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Queue").finish_non_exhaustive()
    }
}

impl<T: Item, Q: Ready> State<T, Q> {
    /// The slot of an item, made if it has none.
    fn slot(&mut self, item: T) -> usize {
        if let Some(slot) = self.entries.get(&item) {
            return *slot;
        }
        let new = Slot { item: Some(item.clone()), dirty: None, processing: None };
        let at = match self.free.pop() {
            Some(at) => {
                self.slots[at] = new;
                at
            }
            None => {
                self.slots.push(new);
                self.slots.len() - 1
            }
        };
        self.entries.insert(item, at);
        at
    }

    fn is_dirty(&self, item: &T) -> bool {
        self.entries.get(item).is_some_and(|slot| self.slots[*slot].dirty.is_some())
    }

    /// Whether there is more to hand out than before.
    fn add(&mut self, item: T, mut rank: Q::Rank, now: Moment) -> bool {
        if self.shutting_down {
            return false;
        }
        if Q::MERGES_WAITING
            && !self.waiting.is_empty()
            && let Some((deadline, at, waiting)) = self.waiting.remove(&item)
        {
            self.deadlines.remove(&(deadline, at));
            rank = rank.max(waiting);
        }
        let (place, at) = (self.next, self.slot(item));
        let slot = &mut self.slots[at];
        match &mut slot.dirty {
            Some((known, place, _)) => {
                if rank > *known {
                    let from = (*known, *place);
                    *known = rank;
                    if slot.processing.is_none() {
                        self.ready.rerank(from, rank);
                    }
                }
                false
            }
            dirty => {
                *dirty = Some((rank, place, now));
                self.next += 1;
                self.metrics.adds += 1;
                self.metrics.depth += 1;
                let idle = slot.processing.is_none();
                if idle {
                    self.ready.push(at, (rank, place));
                }
                idle
            }
        }
    }

    /// Whether somebody has to look at the deadlines again.
    fn add_after(&mut self, item: T, deadline: Moment, mut rank: Q::Rank) -> bool {
        if let Some((known, at, known_rank)) = self.waiting.get(&item).copied() {
            rank = rank.max(known_rank);
            if known <= deadline {
                self.waiting.insert(item, (known, at, rank));
                return false;
            }
            self.deadlines.remove(&(known, at));
        }
        let at = self.next;
        self.next += 1;
        self.waiting.insert(item.clone(), (deadline, at, rank));
        self.deadlines.insert((deadline, at), item);
        self.deadlines.first_key_value().is_some_and(|(first, _)| first.1 == at)
    }

    /// Adds those whose time has come, and says how many more there are to hand out.
    fn promote(&mut self, now: Moment) -> usize {
        let before = self.ready.len();
        while let Some(first) = self.deadlines.first_entry().filter(|first| first.key().0 <= now) {
            let item = first.remove();
            let rank = self.waiting.remove(&item).map(|(_, _, rank)| rank).unwrap_or_default();
            self.add(item, rank, now);
        }
        self.ready.len() - before
    }

    fn pop(&mut self, now: Moment) -> Option<(T, Q::Rank)> {
        let slot = &mut self.slots[self.ready.pop()?];
        let (rank, _, added) = slot.dirty.take()?;
        slot.processing = Some(now);
        let item = slot.item.clone()?;
        self.processing += 1;
        self.metrics.depth -= 1;
        self.metrics.queue_duration.observe(now.since(added));
        Some((item, rank))
    }

    /// Whether there is more to hand out than before.
    fn done(&mut self, item: &T, now: Moment) -> bool {
        let Some(at) = self.entries.get(item).copied() else { return false };
        let slot = &mut self.slots[at];
        let Some(started) = slot.processing.take() else { return false };
        self.processing -= 1;
        self.metrics.work_duration.observe(now.since(started));
        match slot.dirty {
            Some((rank, place, _)) => {
                self.ready.push(at, (rank, place));
                true
            }
            None => {
                slot.item = None;
                self.free.push(at);
                self.entries.remove(item);
                false
            }
        }
    }
}

impl<T: Item, Q: Ready> Core<T, Q> {
    pub(super) fn new(clock: SharedClock) -> Self {
        let state = State {
            ready: Q::default(),
            entries: HashMap::default(),
            slots: Vec::new(),
            free: Vec::new(),
            waiting: HashMap::default(),
            deadlines: BTreeMap::new(),
            next: 0,
            processing: 0,
            shutting_down: false,
            drain: false,
            metrics: Metrics::default(),
        };
        Core { state: Mutex::new(state), clock, wake: Notify::new(), done: Notify::new() }
    }

    fn lock(&self) -> MutexGuard<'_, State<T, Q>> {
        // Only `Clone`, `Eq` and `Hash` of items are foreign under the lock; one that panics loses its own item.
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    pub(super) fn add(&self, item: T, rank: Q::Rank) {
        let now = self.clock.monotonic();
        let more = self.lock().add(item, rank, now);
        if more {
            self.wake.notify_one();
        }
    }

    pub(super) fn add_after(&self, item: T, after: Duration, rank: Q::Rank) {
        let now = self.clock.monotonic();
        let mut state = self.lock();
        if state.shutting_down {
            return;
        }
        state.metrics.retries += 1;
        let look = if after.is_zero() || (Q::MERGES_WAITING && state.is_dirty(&item)) {
            state.add(item, rank, now)
        } else {
            state.add_after(item, now.plus(after), rank)
        };
        drop(state);
        if look {
            self.wake.notify_one();
        }
    }

    pub(super) fn len(&self) -> usize {
        let now = self.clock.monotonic();
        let mut state = self.lock();
        let more = state.promote(now);
        let len = state.ready.len();
        drop(state);
        self.wake(more);
        len
    }

    fn wake(&self, workers: usize) {
        (0..workers).for_each(|_| self.wake.notify_one());
    }

    /// What can be said at once: an item, or that there will be none. Otherwise when to look again, if ever.
    fn try_get(&self) -> Result<Option<(T, Q::Rank)>, Option<Moment>> {
        let now = self.clock.monotonic();
        let mut state = self.lock();
        let more = state.promote(now);
        let found = state.pop(now);
        let (ending, deadline) = (state.shutting_down, state.deadlines.first_key_value().map(|(first, _)| first.0));
        drop(state);
        if found.is_none() && !ending {
            return Err(deadline);
        }
        // Who leaves passes the watch on: over those whose time has come, over the deadlines, or over the end.
        self.wake(more.max(usize::from(ending || deadline.is_some())));
        Ok(found)
    }

    pub(super) async fn get(&self) -> Option<(T, Q::Rank)> {
        loop {
            if let Ok(found) = self.try_get() {
                return found;
            }
            // Whoever is about to wait says so before it looks for the last time: each item that is added from here on
            // wakes one of those who do. One that is woken and finds an item in another way wakes the next.
            let mut wake = pin!(self.wake.notified());
            wake.as_mut().enable();
            match self.try_get() {
                Ok(found) => return found,
                Err(None) => wake.await,
                Err(Some(deadline)) => drop(race(wake, self.clock.sleep_until(deadline)).await),
            }
        }
    }

    pub(super) fn done(&self, item: &T) {
        let now = self.clock.monotonic();
        let mut state = self.lock();
        let more = state.done(item, now);
        let drain = state.drain;
        drop(state);
        if more {
            self.wake.notify_one();
        }
        if drain {
            self.done.notify_waiters();
        }
    }

    pub(super) fn shut_down(&self) {
        let mut state = self.lock();
        state.shutting_down = true;
        state.drain = false;
        state.waiting.clear();
        state.deadlines.clear();
        drop(state);
        self.wake.notify_one();
        self.done.notify_waiters();
    }

    pub(super) async fn shut_down_with_drain(&self) {
        self.shut_down();
        self.lock().drain = true;
        loop {
            let mut done = pin!(self.done.notified());
            done.as_mut().enable();
            {
                let state = self.lock();
                if !state.drain || (state.processing == 0 && state.ready.len() == 0) {
                    return;
                }
            }
            done.await;
        }
    }

    pub(super) fn is_shutting_down(&self) -> bool {
        self.lock().shutting_down
    }

    pub(super) fn metrics(&self) -> Metrics {
        let now = self.clock.monotonic();
        let state = self.lock();
        let running = || state.slots.iter().filter_map(|slot| Some(now.since(slot.processing?)));
        Metrics {
            unfinished_work: running().sum(),
            longest_running_processor: running().max().unwrap_or_default(),
            ..state.metrics.clone()
        }
    }
}
