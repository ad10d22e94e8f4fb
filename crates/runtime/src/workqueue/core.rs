//! What all queues have in common: the sets, the waiting, the clock.

use std::{
    collections::{BTreeMap, HashMap},
    fmt,
    future::poll_fn,
    hash::{BuildHasher as _, Hash},
    mem,
    pin::pin,
    sync::{
        PoisonError, TryLockError,
        atomic::{AtomicBool, Ordering},
    },
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
    metrics::{Stamp, observe, stamp},
    ready::Ready,
};
use crate::sync::{Mutex, MutexGuard};

/// How often a worker that finds nothing looks again before it falls asleep, and how many turns it gives others before
/// each look. Where keys come fast that is enough for the next ones to come, and much less work than falling asleep and
/// being woken.
const LOOKS: usize = 2;
const TURNS: usize = 4;

/// How many turns a worker gives others while the queue is held by one of them.
const PATIENCE: usize = 64;

/// What can be in a queue.
pub trait Item: Clone + Eq + Hash + Send + 'static {}

impl<T: Clone + Eq + Hash + Send + 'static> Item for T {}

/// How many items that are done keep their slots, if fewer than that are not done. Items come back: one that finds its
/// slot needs no new one, and taking many slots away at once costs much less than one at a time.
pub(super) const KEPT: usize = if cfg!(test) { 4 } else { 1024 };

/// An item that is to be worked on, or is being worked on, or both; or one that was not long ago.
#[derive(Debug)]
struct Slot<T, A> {
    /// None when the slot is free.
    item: Option<T>,
    /// To be worked on: where it stands. While it is in work it is not handed out.
    dirty: Option<A>,
    /// Since when it is to be worked on.
    added: Stamp,
    hash: u32,
    /// In work.
    processing: bool,
    /// Among those that were done with and not taken away since.
    kept: bool,
}

/// Half of an item's hash, and its slot. The table grows without a look at the slots.
type Entry = (u32, u32);

/// An item in work: its hash, its slot, and since when. There are no more than workers, so they are looked through.
type InWork = (u32, u32, Stamp);

struct State<T, Q: Ready> {
    ready: Q,
    /// Where each item is in `slots`, found by the item's hash when it is added. It is looked at in no order, so it is
    /// kept small: with many items what it takes is what does not fit a cache.
    entries: HashTable<Entry>,
    slots: Vec<Slot<T, Q::At>>,
    free: Vec<usize>,
    in_work: Vec<InWork>,
    /// The slots of items that were done with. Those that have come back since are among them.
    kept: Vec<u32>,
    /// Items whose time has not come.
    waiting: HashMap<T, (Moment, u64, Q::Rank), RandomState>,
    deadlines: BTreeMap<(Moment, u64), T>,
    next: u64,
    shutting_down: bool,
    /// Somebody waits until nothing is left.
    drain: bool,
    metrics: Metrics,
    /// The room for what has arrived while it is sorted in.
    arriving: Vec<Arrival<T, Q>>,
}

/// An item that was added: its hash, its rank, and when.
type Arrival<T, Q> = (T, u32, <Q as Ready>::Rank, Stamp);

/// A queue, seen from inside. Every method may be called from any task; none but those that are async waits.
///
/// Items arrive in the hall, whose lock is held for an instant, and are sorted in by whoever next looks for one. Who
/// needs both locks takes that of the state first. Always: if there is something to hand out and somebody sleeps, then
/// somebody looks; and if an item waits for its time and somebody sleeps, then one who sleeps wakes by then.
pub(super) struct Core<T, Q: Ready> {
    state: Mutex<State<T, Q>>,
    hall: Mutex<Hall<Arrival<T, Q>>>,
    hashes: RandomState,
    clock: SharedClock,
    /// Whether somebody wants to know how long things take.
    measured: AtomicBool,
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
    fn slot(&mut self, item: T, hash: u32) -> usize {
        let slots = &mut self.slots;
        let is_it = |entry: &Entry| entry.0 == hash && slots[entry.1 as usize].item.as_ref() == Some(&item);
        if let Some((_, at)) = self.entries.find(spread(hash), is_it) {
            return *at as usize;
        }
        // Filled in where it is: a copy of what was just put together waits for all that is still on its way to memory.
        let at = self.free.pop().unwrap_or_else(|| {
            slots.push(Slot { item: None, dirty: None, added: None, hash: 0, processing: false, kept: false });
            slots.len() - 1
        });
        slots[at].hash = hash;
        slots[at].item = Some(item);
        self.entries.insert_unique(spread(hash), (hash, number(at)), |entry| spread(entry.0));
        at
    }

    fn is_dirty(&self, item: &T, hash: u32) -> bool {
        let slot = |entry: &Entry| &self.slots[entry.1 as usize];
        let found = self.entries.find(spread(hash), |entry| slot(entry).item.as_ref() == Some(item));
        found.is_some_and(|entry| slot(entry).dirty.is_some())
    }

    fn add(&mut self, item: T, hash: u32, mut rank: Q::Rank, now: Stamp) {
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
        let slot = &mut self.slots[at];
        match slot.dirty {
            Some(known) => {
                if rank > Q::rank(known) {
                    let to = Q::reranked(known, rank);
                    slot.dirty = Some(to);
                    if !slot.processing {
                        self.ready.rerank(known, to);
                    }
                }
            }
            None => {
                let new = Q::at(rank, place);
                (slot.dirty, slot.added) = (Some(new), now);
                self.next += 1;
                self.metrics.adds += 1;
                self.metrics.depth += 1;
                if !slot.processing {
                    self.ready.push(number(at), new);
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
    fn promote(&mut self, now: Moment, hash: impl Fn(&T) -> u32) {
        while let Some(first) = self.deadlines.first_entry().filter(|first| first.key().0 <= now) {
            let item = first.remove();
            let rank = self.waiting.remove(&item).map(|(_, _, rank)| rank).unwrap_or_default();
            let hash = hash(&item);
            self.add(item, hash, rank, stamp(now));
        }
    }

    fn pop(&mut self, now: Stamp) -> Option<(T, Q::Rank)> {
        let at = self.ready.pop()?;
        let slot = &mut self.slots[at as usize];
        let dirty = slot.dirty.take()?;
        let item = slot.item.clone()?;
        slot.processing = true;
        self.in_work.push((slot.hash, at, now));
        self.metrics.depth -= 1;
        observe(&mut self.metrics.queue_duration, slot.added, now);
        Some((item, Q::rank(dirty)))
    }

    /// Whether there is more to hand out than before.
    fn done(&mut self, item: &T, hash: u32, now: Stamp) -> bool {
        let slots = &mut self.slots;
        let is_it = |of: &InWork| of.0 == hash && slots[of.1 as usize].item.as_ref() == Some(item);
        let Some(found) = self.in_work.iter().position(is_it) else { return false };
        let (_, at, started) = self.in_work.swap_remove(found);
        observe(&mut self.metrics.work_duration, started, now);
        let slot = &mut slots[at as usize];
        slot.processing = false;
        if let Some(dirty) = slot.dirty {
            self.ready.push(at, dirty);
            return true;
        }
        if !slot.kept {
            slot.kept = true;
            self.kept.push(at);
            // The others may be as many as are not done.
            if self.kept.len() >= KEPT && self.kept.len() * 2 >= self.slots.len() - self.free.len() {
                self.sweep();
            }
        }
        false
    }

    /// Takes the slots of items that were done with away, except from those that have come back.
    fn sweep(&mut self) {
        let slots = &mut self.slots;
        // A bit for each slot: the table is gone through in no order, and this fits a cache where the slots do not.
        let mut gone = vec![0_u64; slots.len().div_ceil(64)];
        for at in self.kept.drain(..).map(|at| at as usize) {
            let slot = &mut slots[at];
            slot.kept = false;
            if slot.dirty.is_none() && !slot.processing {
                slot.item = None;
                gone[at / 64] |= 1 << (at % 64);
                self.free.push(at);
            }
        }
        self.entries.retain(|(_, at)| gone[*at as usize / 64] & (1 << (*at % 64)) == 0);
        if self.entries.capacity() > 4 * (self.entries.len() + KEPT) {
            self.entries.shrink_to(self.entries.len() + KEPT, |entry| spread(entry.0));
        }
    }
}

/// The hash as the table wants it, which looks at both ends.
fn spread(hash: u32) -> u64 {
    u64::from(hash) << 32 | u64::from(hash)
}

/// The number of a slot.
fn number(at: usize) -> u32 {
    u32::try_from(at).expect("memory ends before four billion items")
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
            slots: Vec::new(),
            free: Vec::new(),
            in_work: Vec::new(),
            kept: Vec::new(),
            waiting: HashMap::default(),
            deadlines: BTreeMap::new(),
            next: 0,
            shutting_down: false,
            drain: false,
            metrics: Metrics::default(),
            arriving: Vec::new(),
        };
        let measured = AtomicBool::new(false);
        let (state, hall, hashes) = (Mutex::new(state), Mutex::default(), RandomState::default());
        Core { state, hall, hashes, clock, measured, done: Notify::new() }
    }

    /// Half of the hash: enough for as many items as there are slots.
    fn hash(&self, item: &T) -> u32 {
        self.hashes.hash_one(item) as u32
    }

    /// Asks the clock from now on.
    pub(super) fn measure(&self) {
        self.measured.store(true, Ordering::Relaxed);
    }

    fn stamp(&self) -> Stamp {
        if self.measured.load(Ordering::Relaxed) { stamp(self.clock.monotonic()) } else { None }
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
        let (now, hash) = (self.stamp(), self.hash(&item));
        let mut hall = self.hall();
        if hall.closed {
            return;
        }
        if hall.arrived.len() < MAX_ARRIVED {
            hall.arrived.push((item, hash, rank, now));
            let sleeper = hall.wake_one();
            drop(hall);
            wake(sleeper);
            return;
        }
        drop(hall);
        let mut state = self.lock();
        self.sort_in(&mut state);
        state.add(item, hash, rank, now);
        self.unlock(state);
    }

    /// Adds what has arrived.
    fn sort_in(&self, state: &mut State<T, Q>) {
        let mut arriving = mem::take(&mut state.arriving);
        mem::swap(&mut self.hall().arrived, &mut arriving);
        for (item, hash, rank, at) in arriving.drain(..) {
            state.add(item, hash, rank, at);
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
        let (now, hash) = (self.clock.monotonic(), self.hash(&item));
        let mut state = self.lock();
        if state.shutting_down {
            return;
        }
        self.sort_in(&mut state);
        state.metrics.retries += 1;
        if after.is_zero() || (Q::MERGES_WAITING && state.is_dirty(&item, hash)) {
            state.add(item, hash, rank, stamp(now));
        } else {
            state.add_after(item, now.plus(after), rank);
        }
        self.unlock(state);
    }

    pub(super) fn len(&self) -> usize {
        let mut state = self.lock();
        self.sort_in(&mut state);
        if state.deadline().is_some() {
            state.promote(self.clock.monotonic(), |item| self.hash(item));
        }
        let len = state.ready.len();
        self.unlock(state);
        len
    }

    /// What can be said at once: an item, or that there will be none.
    fn answer(&self, state: &mut State<T, Q>, now: Stamp) -> Option<Option<(T, Q::Rank)>> {
        let due = state.deadline().and_then(|deadline| {
            let now = self.clock.monotonic();
            (deadline <= now).then_some(now)
        });
        // Whatever came before counts: an item that has come again since is still one.
        self.sort_in(state);
        if let Some(now) = due {
            state.promote(now, |item| self.hash(item));
        }
        let found = state.pop(now);
        if found.is_none() && !state.shutting_down { None } else { Some(found) }
    }

    fn try_get(&self) -> Option<Option<(T, Q::Rank)>> {
        let now = self.stamp();
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
        let now = self.stamp();
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
        // While others are in each other's way here, one waits outside: being put to sleep by the lock costs more.
        for _ in 0..PATIENCE {
            if !matches!(self.state.try_lock(), Err(TryLockError::WouldBlock)) {
                break;
            }
            yield_now().await;
        }
        if let Some(answer) = self.try_get() {
            return answer;
        }
        let mut search = Search::begin(self);
        loop {
            for _ in 0..LOOKS {
                for _ in 0..TURNS {
                    yield_now().await;
                }
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
        let (now, hash) = (self.stamp(), self.hash(item));
        let mut state = self.lock();
        let more = state.done(item, hash, now);
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
                if !state.drain || (state.in_work.is_empty() && state.ready.len() == 0) {
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
        self.measure();
        let now = self.clock.monotonic();
        let mut state = self.lock();
        self.sort_in(&mut state);
        let since = |since: Stamp| Some(now.since(Moment(Duration::from_nanos(since?.get()))));
        let running = || state.in_work.iter().filter_map(|(_, _, started)| since(*started));
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
