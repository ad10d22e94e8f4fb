//! What all queues have in common: the sets, the waiting, the clock.

use std::{
    cmp::Reverse,
    collections::{BTreeMap, HashMap, VecDeque},
    fmt,
    hash::Hash,
    pin::pin,
    sync::{Mutex, MutexGuard, PoisonError},
    time::Duration,
};

use capstan_client::beat::race;
use capstan_clock::{Moment, SharedClock};
use tokio::sync::Notify;

use super::Metrics;

/// What can be in a queue.
pub trait Item: Clone + Eq + Hash + Send + 'static {}

impl<T: Clone + Eq + Hash + Send + 'static> Item for T {}

/// The order in which items are handed out.
pub(super) trait Ready<T>: Default + Send {
    /// What the order depends on, besides who came first.
    type Rank: Copy + Ord + Default + Send + fmt::Debug;

    /// Whether an item that waits for its time and is added meanwhile comes only once.
    const MERGES_WAITING: bool;

    fn push(&mut self, item: T, at: (Self::Rank, u64));
    fn pop(&mut self) -> Option<T>;
    fn len(&self) -> usize;
    /// Gives an item that is in it another rank.
    fn rerank(&mut self, from: (Self::Rank, u64), to: Self::Rank);
}

/// First come, first served.
#[derive(Debug)]
pub(super) struct Fifo<T>(VecDeque<T>);

impl<T> Default for Fifo<T> {
    fn default() -> Self {
        Fifo(VecDeque::new())
    }
}

impl<T: Send> Ready<T> for Fifo<T> {
    type Rank = ();
    const MERGES_WAITING: bool = false;

    fn push(&mut self, item: T, _: ((), u64)) {
        self.0.push_back(item);
    }

    fn pop(&mut self) -> Option<T> {
        self.0.pop_front()
    }

    fn len(&self) -> usize {
        self.0.len()
    }

    fn rerank(&mut self, _: ((), u64), (): ()) {}
}

/// The highest priority first, and among equals who came first.
#[derive(Debug)]
pub(super) struct ByPriority<T>(BTreeMap<(Reverse<i32>, u64), T>);

impl<T> Default for ByPriority<T> {
    fn default() -> Self {
        ByPriority(BTreeMap::new())
    }
}

impl<T: Send> Ready<T> for ByPriority<T> {
    type Rank = i32;
    const MERGES_WAITING: bool = true;

    fn push(&mut self, item: T, (priority, at): (i32, u64)) {
        self.0.insert((Reverse(priority), at), item);
    }

    fn pop(&mut self) -> Option<T> {
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
struct Entry<R> {
    /// To be worked on: its rank, its place, and since when. While it is in work it is not handed out.
    dirty: Option<(R, u64, Moment)>,
    /// In work: its rank, and since when.
    processing: Option<(R, Moment)>,
}

struct State<T, Q: Ready<T>> {
    ready: Q,
    entries: HashMap<T, Entry<Q::Rank>>,
    /// Items whose time has not come.
    waiting: HashMap<T, (Moment, u64, Q::Rank)>,
    deadlines: BTreeMap<(Moment, u64), T>,
    next: u64,
    processing: usize,
    shutting_down: bool,
    drain: bool,
    metrics: Metrics,
}

/// A queue, seen from inside. Every method may be called from any task; none but those that are async waits.
pub(super) struct Core<T, Q: Ready<T>> {
    state: Mutex<State<T, Q>>,
    clock: SharedClock,
    /// Somebody who waits for an item is to look again. Who finds one wakes the next.
    wake: Notify,
    /// An item is done.
    done: Notify,
}

impl<T, Q: Ready<T>> fmt::Debug for Core<T, Q> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Queue").finish_non_exhaustive()
    }
}

impl<T: Item, Q: Ready<T>> State<T, Q> {
    /// Whether there is more to hand out than before.
    fn add(&mut self, item: T, mut rank: Q::Rank, now: Moment) -> bool {
        if self.shutting_down {
            return false;
        }
        if Q::MERGES_WAITING
            && let Some((deadline, at, waiting)) = self.waiting.remove(&item)
        {
            self.deadlines.remove(&(deadline, at));
            rank = rank.max(waiting);
        }
        let place = self.next;
        let entry = self.entries.entry(item.clone()).or_insert(Entry { dirty: None, processing: None });
        match &mut entry.dirty {
            Some((known, at, _)) => {
                if rank > *known {
                    let from = (*known, *at);
                    *known = rank;
                    if entry.processing.is_none() {
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
                let idle = entry.processing.is_none();
                if idle {
                    self.ready.push(item, (rank, place));
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

    /// Adds those whose time has come.
    fn promote(&mut self, now: Moment) {
        while let Some(first) = self.deadlines.first_entry().filter(|first| first.key().0 <= now) {
            let item = first.remove();
            let rank = self.waiting.remove(&item).map(|(_, _, rank)| rank).unwrap_or_default();
            self.add(item, rank, now);
        }
    }

    fn pop(&mut self, now: Moment) -> Option<(T, Q::Rank)> {
        let item = self.ready.pop()?;
        let entry = self.entries.get_mut(&item)?;
        let (rank, _, added) = entry.dirty.take()?;
        entry.processing = Some((rank, now));
        self.processing += 1;
        self.metrics.depth -= 1;
        self.metrics.queue_duration.observe(now.since(added));
        Some((item, rank))
    }

    /// Whether there is more to hand out than before.
    fn done(&mut self, item: &T, now: Moment) -> bool {
        let Some(entry) = self.entries.get_mut(item) else { return false };
        let Some((_, started)) = entry.processing.take() else { return false };
        self.processing -= 1;
        self.metrics.work_duration.observe(now.since(started));
        match entry.dirty {
            Some((rank, at, _)) => {
                self.ready.push(item.clone(), (rank, at));
                true
            }
            None => {
                self.entries.remove(item);
                false
            }
        }
    }
}

impl<T: Item, Q: Ready<T>> Core<T, Q> {
    pub(super) fn new(clock: SharedClock) -> Self {
        let state = State {
            ready: Q::default(),
            entries: HashMap::new(),
            waiting: HashMap::new(),
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
        if self.lock().add(item, rank, now) {
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
        let is_dirty = Q::MERGES_WAITING && state.entries.get(&item).is_some_and(|entry| entry.dirty.is_some());
        let look = if after.is_zero() || is_dirty {
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
        state.promote(now);
        state.ready.len()
    }

    pub(super) async fn get(&self) -> Option<(T, Q::Rank)> {
        loop {
            let deadline = {
                let now = self.clock.monotonic();
                let mut state = self.lock();
                state.promote(now);
                let found = state.pop(now);
                if found.is_some() || state.shutting_down {
                    // Who leaves passes the watch on: over other items, over the deadlines, or over the end.
                    if state.ready.len() > 0 || !state.deadlines.is_empty() || state.shutting_down {
                        self.wake.notify_one();
                    }
                    return found;
                }
                state.deadlines.first_key_value().map(|(first, _)| first.0)
            };
            match deadline {
                None => self.wake.notified().await,
                Some(deadline) => drop(race(self.wake.notified(), self.clock.sleep_until(deadline)).await),
            }
        }
    }

    pub(super) fn done(&self, item: &T) {
        let now = self.clock.monotonic();
        let more = self.lock().done(item, now);
        if more {
            self.wake.notify_one();
        }
        self.done.notify_waiters();
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
        let running = || state.entries.values().filter_map(|entry| Some(now.since(entry.processing?.1)));
        Metrics {
            unfinished_work: running().sum(),
            longest_running_processor: running().max().unwrap_or_default(),
            ..state.metrics.clone()
        }
    }
}
