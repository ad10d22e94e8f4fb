//! What all queues have in common: the sets, the waiting, the clock.

use std::{
    collections::{BTreeMap, HashMap},
    fmt,
    future::poll_fn,
    hash::{BuildHasher as _, Hash},
    mem,
    pin::pin,
    sync::PoisonError,
    task::{Poll, Waker},
    time::Duration,
};

use capstan_client::beat::race;
use capstan_clock::{Moment, SharedClock};
use foldhash::fast::RandomState;
use hashbrown::HashTable;
use tokio::{sync::Notify, task::yield_now};

use super::{
    Metrics,
    hall::{Hall, MAX_ARRIVED},
    ready::Ready,
};
use crate::sync::{Mutex, MutexGuard};

/// How often a worker that finds nothing gives others a turn and looks again before it falls asleep. Where keys come
/// fast that is enough for the next ones to come, and much less work than falling asleep and being woken.
const TURNS: usize = 4;

/// What can be in a queue.
pub trait Item: Clone + Eq + Hash + Send + 'static {}

impl<T: Clone + Eq + Hash + Send + 'static> Item for T {}

/// An item that is to be worked on, or is being worked on, or both.
#[derive(Debug)]
struct Slot<T, R> {
    hash: u64,
    /// None when the slot is free.
    item: Option<T>,
    /// To be worked on: its rank, its place, and since when. While it is in work it is not handed out.
    dirty: Option<(R, u64, Moment)>,
    /// In work: since when.
    processing: Option<Moment>,
}

struct State<T, Q: Ready> {
    ready: Q,
    /// Where each item is in `slots`, found by the item's hash: twice a round, when it is added and when it is done. It
    /// is looked at in no order, so it is kept small: with many items what it takes is what does not fit a cache.
    entries: HashTable<u32>,
    hashes: RandomState,
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
    /// The room for what has arrived while it is sorted in.
    arriving: Vec<Arrival<T, Q>>,
}

/// An item that was added: its rank, and when.
type Arrival<T, Q> = (T, <Q as Ready>::Rank, Moment);

/// A queue, seen from inside. Every method may be called from any task; none but those that are async waits.
///
/// Items arrive in the hall, whose lock is held for an instant, and are sorted in by whoever next looks for one. Who
/// needs both locks takes that of the state first. Always: if there is something to hand out and somebody sleeps, then
/// somebody looks; and if an item waits for its time and somebody sleeps, then one who sleeps wakes by then.
pub(super) struct Core<T, Q: Ready> {
    state: Mutex<State<T, Q>>,
    hall: Mutex<Hall<Arrival<T, Q>>>,
    clock: SharedClock,
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
        let hash = self.hashes.hash_one(&item);
        let slots = &mut self.slots;
        let is_it = |at: &u32| slots[*at as usize].item.as_ref() == Some(&item);
        if let Some(at) = self.entries.find(hash, is_it) {
            return *at as usize;
        }
        let new = Slot { hash, item: Some(item), dirty: None, processing: None };
        let at = match self.free.pop() {
            Some(at) => {
                slots[at] = new;
                at
            }
            None => {
                slots.push(new);
                slots.len() - 1
            }
        };
        let number = u32::try_from(at).expect("memory ends before four billion items");
        self.entries.insert_unique(hash, number, |at| slots[*at as usize].hash);
        at
    }

    fn is_dirty(&self, item: &T) -> bool {
        let slot = |at: &u32| &self.slots[*at as usize];
        let found = self.entries.find(self.hashes.hash_one(item), |at| slot(at).item.as_ref() == Some(item));
        found.is_some_and(|at| slot(at).dirty.is_some())
    }

    fn add(&mut self, item: T, mut rank: Q::Rank, now: Moment) {
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
            }
            dirty => {
                *dirty = Some((rank, place, now));
                self.next += 1;
                self.metrics.adds += 1;
                self.metrics.depth += 1;
                if slot.processing.is_none() {
                    self.ready.push(at, (rank, place));
                }
            }
        }
    }

    fn add_after(&mut self, item: T, deadline: Moment, mut rank: Q::Rank) {
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
    fn deadline(&self) -> Option<Moment> {
        self.deadlines.first_key_value().map(|(first, _)| first.0)
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
        let slots = &mut self.slots;
        let is_it = |at: &u32| slots[*at as usize].item.as_ref() == Some(item);
        let Ok(entry) = self.entries.find_entry(self.hashes.hash_one(item), is_it) else { return false };
        let at = *entry.get() as usize;
        let slot = &mut slots[at];
        let Some(started) = slot.processing.take() else { return false };
        self.processing -= 1;
        self.metrics.work_duration.observe(now.since(started));
        match slot.dirty {
            Some((rank, place, _)) => {
                self.ready.push(at, (rank, place));
                true
            }
            None => {
                entry.remove();
                slot.item = None;
                self.free.push(at);
                false
            }
        }
    }
}

/// What a worker that looks for an item comes to.
enum Looked<T, R> {
    /// An item, or that there will be none.
    Answer(Option<(T, R)>),
    /// It sleeps, under this number, and wakes by itself at this time.
    Asleep(u64, Option<Moment>),
}

impl<T: Item, Q: Ready> Core<T, Q> {
    pub(super) fn new(clock: SharedClock) -> Self {
        let state = State {
            ready: Q::default(),
            entries: HashTable::new(),
            hashes: RandomState::default(),
            slots: Vec::new(),
            free: Vec::new(),
            waiting: HashMap::default(),
            deadlines: BTreeMap::new(),
            next: 0,
            processing: 0,
            shutting_down: false,
            drain: false,
            metrics: Metrics::default(),
            arriving: Vec::new(),
        };
        Core { state: Mutex::new(state), hall: Mutex::default(), clock, done: Notify::new() }
    }

    fn lock(&self) -> MutexGuard<'_, State<T, Q>> {
        // Only `Clone`, `Eq` and `Hash` of items are foreign under the lock; one that panics loses its own item.
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn hall(&self) -> MutexGuard<'_, Hall<Arrival<T, Q>>> {
        // Nothing panics under this lock.
        self.hall.lock().unwrap_or_else(PoisonError::into_inner)
    }

    pub(super) fn add(&self, item: T, rank: Q::Rank) {
        let now = self.clock.monotonic();
        let mut hall = self.hall();
        if hall.closed {
            return;
        }
        if hall.arrived.len() < MAX_ARRIVED {
            hall.arrived.push((item, rank, now));
            let sleeper = hall.wake_one();
            drop(hall);
            wake(sleeper);
            return;
        }
        drop(hall);
        let mut state = self.lock();
        self.sort_in(&mut state);
        state.add(item, rank, now);
        self.unlock(state);
    }

    /// Adds what has arrived.
    fn sort_in(&self, state: &mut State<T, Q>) {
        let mut arriving = mem::take(&mut state.arriving);
        mem::swap(&mut self.hall().arrived, &mut arriving);
        for (item, rank, at) in arriving.drain(..) {
            state.add(item, rank, at);
        }
        state.arriving = arriving;
    }

    /// Lets go of the state, and wakes one if there is something to look at, and somebody sleeps and nobody looks.
    fn unlock(&self, state: MutexGuard<'_, State<T, Q>>) {
        let mut hall = self.hall();
        let something = state.ready.len() > 0
            || !hall.arrived.is_empty()
            || state.deadline().is_some_and(|deadline| !hall.is_watched(deadline));
        let sleeper = if something { hall.wake_one() } else { None };
        drop(hall);
        drop(state);
        wake(sleeper);
    }

    pub(super) fn add_after(&self, item: T, after: Duration, rank: Q::Rank) {
        let now = self.clock.monotonic();
        let mut state = self.lock();
        if state.shutting_down {
            return;
        }
        self.sort_in(&mut state);
        state.metrics.retries += 1;
        if after.is_zero() || (Q::MERGES_WAITING && state.is_dirty(&item)) {
            state.add(item, rank, now);
        } else {
            state.add_after(item, now.plus(after), rank);
        }
        self.unlock(state);
    }

    pub(super) fn len(&self) -> usize {
        let now = self.clock.monotonic();
        let mut state = self.lock();
        self.sort_in(&mut state);
        state.promote(now);
        let len = state.ready.len();
        self.unlock(state);
        len
    }

    /// What can be said at once: an item, or that there will be none.
    fn answer(&self, state: &mut State<T, Q>, now: Moment) -> Option<Option<(T, Q::Rank)>> {
        let due = state.deadline().is_some_and(|deadline| deadline <= now);
        if due || !Q::IN_ORDER || state.ready.len() == 0 {
            self.sort_in(state);
        }
        if due {
            state.promote(now);
        }
        let found = state.pop(now);
        if found.is_none() && !state.shutting_down { None } else { Some(found) }
    }

    fn try_get(&self) -> Option<Option<(T, Q::Rank)>> {
        let now = self.clock.monotonic();
        let mut state = self.lock();
        let timed = !state.deadlines.is_empty();
        let answer = self.answer(&mut state, now)?;
        // What comes because of its time has been announced to nobody.
        if timed {
            self.unlock(state);
        } else {
            drop(state);
        }
        Some(answer)
    }

    /// Looks for the last time, and falls asleep before anybody can add anything.
    fn try_get_or_sleep(&self, waker: Waker) -> Looked<T, Q::Rank> {
        let now = self.clock.monotonic();
        let mut state = self.lock();
        self.sort_in(&mut state);
        if let Some(answer) = self.answer(&mut state, now) {
            return Looked::Answer(answer);
        }
        let mut hall = self.hall();
        if !hall.arrived.is_empty() {
            // Something came between the two locks: it is looked at as if one had been woken for it.
            drop((hall, state));
            return self.try_get_or_sleep(waker);
        }
        let until = state.deadline().filter(|deadline| !hall.is_watched(*deadline));
        Looked::Asleep(hall.fall_asleep(waker, until), until)
    }

    pub(super) async fn get(&self) -> Option<(T, Q::Rank)> {
        if let Some(answer) = self.try_get() {
            return answer;
        }
        let mut search = Search::begin(self);
        loop {
            for _ in 0..TURNS {
                yield_now().await;
                if let Some(answer) = self.try_get() {
                    return answer;
                }
            }
            let waker = poll_fn(|cx| Poll::Ready(cx.waker().clone())).await;
            match self.try_get_or_sleep(waker) {
                Looked::Answer(answer) => return answer,
                Looked::Asleep(id, until) => {
                    search.asleep = Some(id);
                    match until {
                        None => search.woken(id).await,
                        Some(until) => drop(race(search.woken(id), self.clock.sleep_until(until)).await),
                    }
                    search.wake_up();
                }
            }
        }
    }

    pub(super) fn done(&self, item: &T) {
        let now = self.clock.monotonic();
        let mut state = self.lock();
        let more = state.done(item, now);
        let drain = state.drain;
        if more {
            self.unlock(state);
        } else {
            drop(state);
        }
        if drain {
            self.done.notify_waiters();
        }
    }

    pub(super) fn shut_down(&self) {
        let mut state = self.lock();
        self.hall().closed = true;
        self.sort_in(&mut state);
        state.shutting_down = true;
        state.drain = false;
        state.waiting.clear();
        state.deadlines.clear();
        let sleepers = self.hall().wake_all();
        drop(state);
        sleepers.into_iter().for_each(Waker::wake);
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
        let mut state = self.lock();
        self.sort_in(&mut state);
        let running = || state.slots.iter().filter_map(|slot| Some(now.since(slot.processing?)));
        Metrics {
            unfinished_work: running().sum(),
            longest_running_processor: running().max().unwrap_or_default(),
            ..state.metrics.clone()
        }
    }
}

fn wake(sleeper: Option<Waker>) {
    if let Some(sleeper) = sleeper {
        sleeper.wake();
    }
}

/// A worker that found nothing, until it has an answer or gives up. Whatever it was to look at is looked at by another.
struct Search<'a, T: Item, Q: Ready> {
    core: &'a Core<T, Q>,
    /// Its number while it sleeps, or has been woken and does not know yet.
    asleep: Option<u64>,
}

impl<'a, T: Item, Q: Ready> Search<'a, T, Q> {
    fn begin(core: &'a Core<T, Q>) -> Self {
        core.hall().begin_search();
        Search { core, asleep: None }
    }

    /// Ready once somebody has woken it.
    async fn woken(&self, id: u64) {
        poll_fn(|cx| if self.core.hall().is_asleep(id, cx.waker()) { Poll::Pending } else { Poll::Ready(()) }).await;
    }

    fn wake_up(&mut self) {
        if let Some(id) = self.asleep.take() {
            self.core.hall().wake_up(id);
        }
    }
}

impl<T: Item, Q: Ready> Drop for Search<'_, T, Q> {
    fn drop(&mut self) {
        self.wake_up();
        let state = self.core.lock();
        self.core.hall().end_search();
        self.core.unlock(state);
    }
}
