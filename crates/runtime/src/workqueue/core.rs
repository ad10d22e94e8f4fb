//! What all queues have in common: the sets, the waiting, the clock.

use std::{
    fmt,
    future::poll_fn,
    hash::{BuildHasher as _, Hash},
    hint, mem,
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
use tokio::{sync::Notify, task::yield_now};

use super::{
    Metrics,
    hall::{Hall, MAX_ARRIVED},
    metrics::{Stamp, stamp},
    ready::Ready,
    state::{Arrival, State},
};
use crate::sync::{AtomicUsize, Mutex, MutexGuard};

/// How often a worker that finds nothing looks again before it falls asleep, and how many turns it gives others before
/// each look. Where keys come fast that is enough for the next ones to come, and much less work than falling asleep and
/// being woken.
const LOOKS: usize = 2;
const TURNS: usize = 4;

/// How many turns a worker gives others while the queue is held by one of them.
const PATIENCE: usize = 64;

/// How often one tries to get the queue before it lets the lock put it to sleep, and for how long it stays away after
/// each: who has it then works on what is in its cache, for many items, instead of handing it over after each.
const TRIES: usize = 16;
const STEPS: usize = 64;

fn step_back() {
    (0..STEPS).for_each(|_| hint::spin_loop());
}

/// What can be in a queue.
pub trait Item: Clone + Eq + Hash + Send + 'static {}

impl<T: Clone + Eq + Hash + Send + 'static> Item for T {}

/// What one writes often and others read is not beside what others write.
#[repr(align(128))]
struct Apart<T>(T);

/// A queue, seen from inside. Every method may be called from any task; none but those that are async waits.
///
/// Items arrive in the hall, whose lock is held for an instant, and are sorted in by whoever finds nothing else there,
/// or many of them. Who needs both locks takes that of the state first. Always: if there is something to hand out and
/// somebody sleeps, then somebody looks; and if an item waits for its time and somebody sleeps, then one who sleeps
/// wakes by then.
pub(super) struct Core<T, Q: Ready> {
    state: Mutex<State<T, Q>>,
    hall: Mutex<Hall<Arrival<T, Q::Rank>>>,
    /// How many are in the hall, to be asked without its lock.
    arrived: Apart<AtomicUsize>,
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

/// What a worker that looks for an item comes to.
enum Looked<T, R> {
    /// An item, or that there will be none.
    Answer(Option<(T, R)>),
    /// It sleeps, under this number, and wakes by itself at this time.
    Asleep(u64, Option<Moment>),
}

impl<T: Item, Q: Ready> Core<T, Q> {
    pub(super) fn new(clock: SharedClock) -> Self {
        let measured = AtomicBool::new(false);
        let (state, hall, hashes) = (Mutex::default(), Mutex::default(), RandomState::default());
        Core { state, hall, arrived: Apart(AtomicUsize::new(0)), hashes, clock, measured, done: Notify::new() }
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
        for _ in 0..TRIES {
            if let Ok(state) = self.state.try_lock() {
                return state;
            }
            step_back();
        }
        // Only `Clone`, `Eq` and `Hash` of items are foreign under the lock; one that panics loses its own item.
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn hall(&self) -> MutexGuard<'_, Hall<Arrival<T, Q::Rank>>> {
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
            hall.arrived.push(Arrival { item, hash, rank, at: now });
            self.arrived.0.store(hall.arrived.len(), Ordering::Release);
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
        if self.arrived.0.load(Ordering::Acquire) == 0 {
            return;
        }
        let mut arriving = mem::take(&mut state.arriving);
        {
            let mut hall = self.hall();
            mem::swap(&mut hall.arrived, &mut arriving);
            self.arrived.0.store(0, Ordering::Release);
        }
        state.sort_in(&mut arriving);
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
        let mut arrived = self.arrived.0.load(Ordering::Acquire);
        if due.is_some() || state.wants(arrived) {
            self.sort_in(state);
            arrived = 0;
        }
        if let Some(now) = due {
            state.promote(now, |item| self.hash(item));
        }
        let found = state.pop(now, arrived);
        if found.is_none() && !state.shutting_down { None } else { Some(found) }
    }

    fn try_get(&self, mut state: MutexGuard<'_, State<T, Q>>, now: Stamp) -> Option<Option<(T, Q::Rank)>> {
        let timed = state.deadline().is_some();
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
        for left in (0..=PATIENCE).rev() {
            let now = self.stamp();
            let state = match self.state.try_lock() {
                Err(TryLockError::WouldBlock) if left > 0 => {
                    step_back();
                    None
                }
                Ok(state) => Some(state),
                Err(_) => Some(self.lock()),
            };
            match state.map(|state| self.try_get(state, now)) {
                Some(Some(answer)) => return answer,
                Some(None) => break,
                None => yield_now().await,
            }
        }
        let mut search = Search::begin(self);
        loop {
            for _ in 0..LOOKS {
                for _ in 0..TURNS {
                    yield_now().await;
                }
                let now = self.stamp();
                if let Some(answer) = self.try_get(self.lock(), now) {
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
        let Some((in_work, again)) = state.in_work(item, hash) else { return };
        let mut arrived = self.arrived.0.load(Ordering::Acquire);
        if again {
            // It stands behind all that came while it was in work.
            self.sort_in(&mut state);
            arrived = 0;
        }
        state.done(in_work, now, arrived);
        if state.is_full() {
            self.sort_in(&mut state);
            state.sweep();
        }
        let drain = state.drain;
        if again {
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
        state.forget_waiting();
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
                if !state.drain || state.is_idle() {
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
        let running = || state.since().filter_map(since);
        Metrics {
            unfinished_work: running().sum(),
            longest_running_processor: running().max().unwrap_or_default(),
            depth_by_priority: state.depth_by_priority(),
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
