//! The `memory` engine: everything in persistent maps, nothing on disk; forks in constant time.
//!
//! For tests and for worlds that are thrown away. One lock is held for the few microseconds of a commit or of a clone
//! of the maps; ranges, hashes and snapshots work on such a clone, outside of the lock. Ends of lifetimes are committed
//! by a task, which is started with the first key that has one, on the runtime of whoever put it.

#[cfg(test)]
#[cfg(feature = "shuttle")]
mod interleavings;
mod state;
#[cfg(test)]
#[cfg(not(feature = "shuttle"))]
mod tests;

use std::{
    collections::VecDeque,
    fmt,
    future::{Future, poll_fn, ready},
    path::Path,
    pin::pin,
    sync::{Arc, Weak},
    task::Poll,
};

use capstan_clock::Timestamp;
use tokio::{runtime::Handle, sync::Notify, task::JoinHandle};

use crate::{
    Action, Answer, At, Batch, CommitError, Committed, Conflict, ConsistencyHash, ConsistencyHasher, Fault, FaultKind,
    Found, Key, Op, Options, Page, Range, ReadError, Revision, SnapshotInfo, Store, Watch, WatchRequest,
    expiry::Deadline,
    freshness::Freshness,
    hub::{self, History, Hub, Reading, Stretch},
    limits::{MAX_COMMIT_OPS, MAX_PAGE_ITEMS, PAGE_BYTES},
    op::{check_key, check_ops, check_prefix, check_range},
    snapshot::{SnapshotReader, SnapshotWriter},
    sync::{Mutex, MutexGuard},
};
use state::{Logged, State};

/// How many commits a watch that is behind looks through at a time.
const STRETCH_COMMITS: usize = 256;

/// A store in memory. See [`Store`] for what it promises; durability is the one promise that it does not keep.
pub struct Memory {
    inner: Arc<Inner>,
}

struct Inner {
    options: Options,
    state: Mutex<State>,
    hub: Arc<Hub>,
    freshness: Freshness,
    /// Tells the task that commits ends of lifetimes to look again.
    deadlines: Arc<Notify>,
    /// That task.
    expirer: Mutex<Option<JoinHandle<()>>>,
}

impl Memory {
    /// A new store, at [`Revision::INITIAL`].
    #[must_use]
    pub fn new(options: Options) -> Self {
        Memory::from_state(State::new(Revision::INITIAL), options, hub::RECENT_BYTES)
    }

    /// A store with what a snapshot holds.
    ///
    /// # Errors
    /// When the file cannot be read or is damaged.
    pub fn restore(path: &Path, options: Options) -> Result<Self, Fault> {
        let mut snapshot = SnapshotReader::open(path)?;
        let mut state = State::new(snapshot.revision());
        while let Some((item, deadline)) = snapshot.next()? {
            state.restore(item, deadline);
        }
        Ok(Memory::from_state(state, options, hub::RECENT_BYTES))
    }

    /// A store of its own with the same keys, revision and history, in constant time: the two share what neither has
    /// changed since. Watches stay with the original.
    #[must_use]
    pub fn fork(&self) -> Self {
        self.fork_with(self.inner.options.clone())
    }

    /// As [`fork`](Memory::fork), with other options, such as a clock of its own.
    #[must_use]
    pub fn fork_with(&self, options: Options) -> Self {
        Memory::from_state(self.inner.lock().clone(), options, hub::RECENT_BYTES)
    }

    fn from_state(state: State, options: Options, recent_bytes: usize) -> Self {
        let revision = state.revision;
        let inner = Arc::new(Inner {
            hub: Arc::new(Hub::new(revision, recent_bytes)),
            freshness: Freshness::new(revision, &options),
            state: Mutex::new(state),
            options,
            deadlines: Arc::new(Notify::new()),
            expirer: Mutex::new(None),
        });
        inner.watch_deadlines();
        Memory { inner }
    }
}

impl Inner {
    fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock().expect("nothing panics while the state is locked")
    }

    /// The state that a read at `at` reads, and the revision at which to read it.
    async fn read<T>(&self, at: At, view: impl FnOnce(&State, Revision) -> T) -> Result<T, ReadError> {
        if let At::NotOlderThan(revision) = at {
            self.freshness.wait_for(revision).await?;
        }
        let state = self.lock();
        let revision = state.resolve(at)?;
        Ok(view(&state, revision))
    }

    fn commit(&self, ops: Vec<Op>) -> Result<Committed, CommitError> {
        check_ops(&ops)?;
        let now = self.options.clock.now();
        self.apply(self.lock(), ops, now).map_err(CommitError::Conflict)
    }

    /// Commits, publishes and wakes, in this order.
    fn apply(&self, mut state: MutexGuard<'_, State>, ops: Vec<Op>, now: Timestamp) -> Result<Committed, Conflict> {
        let (committed, events) = state.commit(ops, now)?;
        if !committed.changed {
            return Ok(committed);
        }
        state.tidy(self.options.retention, now);
        // Under the lock, so that the hub gets the commits in their order and a watch finds none missing.
        let wakeups = self.hub.publish(committed.revision, &events);
        drop(state);
        self.freshness.reached(committed.revision);
        wakeups.wake();
        Ok(committed)
    }

    /// Sees to it that a task waits for the ends of lifetimes, if there are any and there is a runtime for it.
    fn watch_deadlines(self: &Arc<Self>) {
        let Ok(runtime) = Handle::try_current() else { return };
        if self.lock().next_deadline().is_none() {
            return;
        }
        let mut expirer = self.expirer.lock().expect("nothing panics while the task is started");
        // The task of a runtime that has been shut down counts as finished: a store may outlive the test that made it.
        if expirer.as_ref().is_none_or(JoinHandle::is_finished) {
            *expirer = Some(runtime.spawn(expire(Arc::downgrade(self), Arc::clone(&self.deadlines))));
        }
    }

    /// Commits the ends of lifetimes that have passed; returns the next one.
    fn expire_due(&self) -> Option<Deadline> {
        loop {
            let now = self.options.clock.now();
            let state = self.lock();
            let due = state.expired(now, MAX_COMMIT_OPS);
            if due.is_empty() {
                return state.next_deadline();
            }
            self.apply(state, due, now).expect("deletions without a precondition do not conflict");
        }
    }

    /// What a watch that has come to `after` has missed.
    fn history(&self, prefix: &Key, after: Revision) -> Result<Stretch, ReadError> {
        let (log, compacted, revision) = {
            let state = self.lock();
            (state.log.clone(), state.compacted, state.revision)
        };
        if after < compacted {
            return Err(ReadError::Compacted { asked: after, compacted });
        }
        let mut stretch = Stretch { batches: VecDeque::new(), through: after };
        for (&at, Logged { events, .. }) in log.range(after.next()..).take(STRETCH_COMMITS) {
            stretch.through = at;
            stretch.batches.extend(hub::under(prefix, events).map(|events| Batch { revision: at, events }));
        }
        debug_assert!(stretch.through > after || after == revision, "no revision is without a commit");
        Ok(stretch)
    }
}

impl Drop for Inner {
    fn drop(&mut self) {
        self.hub.close(closed()).wake();
        self.deadlines.notify_one();
    }
}

fn closed() -> Fault {
    Fault::new(FaultKind::Closed, "the memory store was dropped")
}

/// Waits for ends of lifetimes and commits them, as long as the store is there.
async fn expire(store: Weak<Inner>, deadlines: Arc<Notify>) {
    loop {
        let mut sleep = {
            let Some(store) = store.upgrade() else { return };
            store.expire_due().map(|deadline| {
                let clock = &*store.options.clock;
                clock.sleep_until(deadline.moment(clock))
            })
        };
        let mut changed = pin!(deadlines.notified());
        poll_fn(|cx| {
            let slept = sleep.as_mut().is_some_and(|sleep| sleep.as_mut().poll(cx).is_ready());
            if slept || changed.as_mut().poll(cx).is_ready() { Poll::Ready(()) } else { Poll::Pending }
        })
        .await;
    }
}

/// The history that a watch reads; it does not keep the store alive.
struct Past(Weak<Inner>);

impl History for Past {
    fn read(&self, prefix: &Key, after: Revision) -> Reading {
        let read = match self.0.upgrade() {
            Some(store) => store.history(prefix, after),
            None => Err(closed().into()),
        };
        Box::pin(ready(read))
    }
}

impl Store for Memory {
    fn revision(&self) -> Answer<'_, Revision, ReadError> {
        Box::pin(self.inner.read(At::Present, |_, revision| revision))
    }

    fn get(&self, key: Key, at: At) -> Answer<'_, Found, ReadError> {
        Box::pin(async move {
            check_key(&key)?;
            let find = |state: &State, revision| state.get(&key, revision).map(|item| item.stored.clone());
            self.inner.read(at, |state, revision| Found { revision, item: find(state, revision) }).await
        })
    }

    fn range(&self, range: Range) -> Answer<'_, Page, ReadError> {
        Box::pin(async move {
            check_range(&range)?;
            let (state, revision) = self.inner.read(range.at, |state, revision| (state.clone(), revision)).await?;
            Ok(page(&state, &range, revision))
        })
    }

    fn commit(&self, ops: Vec<Op>) -> Answer<'_, Committed, CommitError> {
        Box::pin(async move {
            let expiring = ops.iter().any(|op| matches!(op.action, Action::Put { expires: Some(_), .. }));
            let committed = self.inner.commit(ops)?;
            if expiring {
                self.inner.watch_deadlines();
                self.inner.deadlines.notify_one();
            }
            Ok(committed)
        })
    }

    fn watch(&self, request: WatchRequest) -> Answer<'_, Watch, ReadError> {
        Box::pin(async move {
            check_prefix(&request.prefix)?;
            let state = self.inner.lock();
            state.resolve(At::Exactly(request.after))?;
            // Still under the lock, so that no commit comes between.
            self.inner.hub.watch(request, Arc::new(Past(Arc::downgrade(&self.inner))))
        })
    }

    fn compact(&self, revision: Revision) -> Answer<'_, (), ReadError> {
        Box::pin(async move {
            let compact = |state: &mut State| {
                if revision > state.revision {
                    return Err(ReadError::TooNew { asked: revision, current: state.revision });
                }
                state.compact(revision);
                Ok(())
            };
            compact(&mut self.inner.lock())?;
            // Between the steps commits and reads get their turn.
            while self.inner.lock().tidy(self.inner.options.retention, self.inner.options.clock.now()) {
                tokio::task::yield_now().await;
            }
            Ok(())
        })
    }

    fn hash(&self, at: At) -> Answer<'_, ConsistencyHash, ReadError> {
        Box::pin(async move {
            let (state, revision) = self.inner.read(at, |state, revision| (state.clone(), revision)).await?;
            let mut hasher = ConsistencyHasher::default();
            state.scan(&Key::new(), &Key::new(), revision).for_each(|item| hasher.add(&item.stored));
            Ok(hasher.at(revision))
        })
    }

    fn snapshot<'a>(&'a self, path: &'a Path) -> Answer<'a, SnapshotInfo, Fault> {
        Box::pin(async move {
            let state = self.inner.lock().clone();
            let path = path.to_owned();
            let written = tokio::task::spawn_blocking(move || {
                let mut snapshot = SnapshotWriter::create(&path, state.revision)?;
                state.present.values().try_for_each(|item| snapshot.item(&item.stored, item.deadline))?;
                snapshot.finish()
            });
            written.await.unwrap_or_else(|error| Err(Fault::new(FaultKind::Closed, error)))
        })
    }
}

/// A page of a state that is no longer changing.
fn page(state: &State, range: &Range, revision: Revision) -> Page {
    let limit = range.limit.map_or(MAX_PAGE_ITEMS, |limit| MAX_PAGE_ITEMS.min(limit.get() as usize));
    let mut found = state.scan(&range.prefix, &range.start, revision).map(|item| &item.stored);
    let (mut items, mut bytes) = (Vec::new(), 0);
    while items.len() < limit && bytes < PAGE_BYTES {
        let Some(item) = found.next() else { break };
        bytes += item.key.len() + item.value.len();
        items.push(item.clone());
    }
    let following = if range.count { found.count() } else { usize::from(found.next().is_some()) };
    let count = range.count.then_some((items.len() + following) as u64);
    Page { revision, items, more: following > 0, count }
}

impl fmt::Debug for Memory {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let state = self.inner.lock();
        let (revision, keys) = (state.revision, state.present.len());
        f.debug_struct("Memory").field("revision", &revision).field("keys", &keys).finish_non_exhaustive()
    }
}
