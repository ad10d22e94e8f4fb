//! The `embedded` engine: one machine, one directory, every acknowledged commit on the disk.
//!
//! Values live in a log of checksummed batches (`format`, `segment`, `log`); memory holds a compact index of where
//! (`leaf`, `index`, `state`). One thread, the `leader`, is the commit point: whatever waits for it becomes one batch
//! with one sync. Another, `upkeep`, writes checkpoints and clears old segments. Both work on persistent snapshots,
//! as readers do, so nobody waits for anybody's walk through the keys. Reads of values go to the file, on the runtime's
//! blocking threads, and check what they find. Why it is a log of our own: `docs/designs/0005-embedded-engine.md`.

mod checkpoint;
mod expirer;
#[cfg(feature = "conformance")]
pub mod faults;
mod files;
mod format;
mod history;
mod index;
#[cfg(test)]
#[cfg(feature = "shuttle")]
mod interleavings;
mod leader;
mod leaf;
mod log;
mod moved;
mod open;
mod segment;
mod state;
#[cfg(test)]
#[cfg(not(feature = "shuttle"))]
mod tests;
mod upkeep;

use std::{
    any::Any,
    fmt,
    future::{Future, pending, poll_fn},
    path::Path,
    pin::pin,
    sync::{Arc, Weak},
    task::Poll,
    time::Duration,
};

use capstan_clock::{Clock, RealClock};
use tokio::sync::{mpsc, oneshot};

pub use files::{Disk, Files, Handle, Point};

use self::{
    expirer::Expirer,
    leader::{COMMIT_WAIT, Leader, Prepared, QUEUE, Refusal, Reply, Request, closed},
    log::{Log, SegmentIds, Spare},
    open::Opened,
    state::State,
    upkeep::{Keeper, UpkeepSignal},
};
use crate::{
    Action, Answer, At, CommitError, Committed, Conflict, ConflictingOp, ConsistencyHash, ConsistencyHasher, Fault,
    FaultKind, Found, Key, Op, Options, Page, Range, ReadError, Revision, SnapshotInfo, Store, Watch, WatchRequest,
    freshness::Freshness,
    hub::{self, History, Hub, Reading},
    op::{check_key, check_ops, check_prefix, check_range},
    snapshot::{SnapshotReader, SnapshotWriter},
    sync::{self, Mutex, MutexGuard, thread},
};

/// The sizes that an engine works with. The usual ones are right; tests take small ones to see everything happen.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Tuning {
    /// How long a segment of the log becomes.
    pub segment_bytes: u64,
    /// How long the first spare segment is; each is four times as long as the one before, up to `segment_bytes`.
    pub first_spare_bytes: u64,
    /// After how much log a checkpoint is written at the earliest.
    pub checkpoint_bytes: u64,
}

impl Default for Tuning {
    fn default() -> Self {
        const MIB: u64 = 1024 * 1024;
        Tuning { segment_bytes: 64 * MIB, first_spare_bytes: MIB, checkpoint_bytes: 64 * MIB }
    }
}

/// A store in a directory. See [`Store`] for what it promises.
///
/// Dropping it waits for the commits under way and lets go of the directory. Reads and commits need a tokio runtime.
pub struct Embedded {
    shared: Arc<Shared>,
    store: u64,
    /// There until the store is dropped.
    queue: Option<mpsc::Sender<Request>>,
    threads: Vec<thread::JoinHandle<()>>,
    expirer: Expirer,
    /// The directory is ours as long as this lives.
    _lock: Box<dyn Any + Send + Sync>,
}

/// What the threads of a store share.
struct Shared {
    options: Options,
    /// What is published: durable, and seen by everybody.
    state: Mutex<State>,
    hub: Arc<Hub>,
    freshness: Freshness,
    upkeep: UpkeepSignal,
}

impl Shared {
    fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock().expect("nothing panics while the state is locked")
    }
}

impl Embedded {
    /// Opens the store in a directory, or makes one if there is none.
    ///
    /// # Errors
    /// [`FaultKind::Held`] when another process has it, [`FaultKind::NotAStore`] when it is something else,
    /// [`FaultKind::Corrupt`] when it is damaged (naming file and offset), and what the file system says.
    pub fn open(path: &Path, options: Options) -> Result<Self, Fault> {
        Embedded::open_on(Arc::new(Disk::at(path)?), options, Tuning::default())
    }

    /// As [`open`](Embedded::open), on other files and with other sizes.
    ///
    /// # Errors
    /// As [`open`](Embedded::open).
    pub fn open_on(files: Arc<dyn Files>, options: Options, tuning: Tuning) -> Result<Self, Fault> {
        let lock = lock(&*files, &options)?;
        let opened = open::open(&*files, options.retention)?;
        Embedded::start(files, lock, opened, options, tuning)
    }

    /// Makes a store with what a snapshot holds, in a directory that is empty or not there.
    ///
    /// # Errors
    /// When the snapshot cannot be read or is damaged, and as [`open`](Embedded::open).
    pub fn restore(snapshot: &Path, path: &Path, options: Options) -> Result<Self, Fault> {
        Embedded::restore_on(snapshot, Arc::new(Disk::at(path)?), options, Tuning::default())
    }

    /// As [`restore`](Embedded::restore), on other files and with other sizes.
    ///
    /// # Errors
    /// As [`restore`](Embedded::restore).
    pub fn restore_on(snapshot: &Path, files: Arc<dyn Files>, options: Options, tuning: Tuning) -> Result<Self, Fault> {
        let mut snapshot = SnapshotReader::open(snapshot)?;
        let lock = lock(&*files, &options)?;
        let opened = open::restore(&files, &mut snapshot, tuning)?;
        Embedded::start(files, lock, opened, options, tuning)
    }

    fn start(
        files: Arc<dyn Files>,
        lock: Box<dyn Any + Send + Sync>,
        opened: Opened,
        options: Options,
        tuning: Tuning,
    ) -> Result<Self, Fault> {
        let Opened { store, state, segment, last_id, checkpoint, replayed } = opened;
        let shared = Arc::new(Shared {
            hub: Arc::new(Hub::new(state.revision, hub::RECENT_BYTES)),
            freshness: Freshness::new(state.revision, &options),
            options,
            state: Mutex::new(state.clone()),
            upkeep: UpkeepSignal::default(),
        });
        let (queue, requests) = mpsc::channel(QUEUE);
        let (ids, spare) = (Arc::new(SegmentIds::after(last_id)), Arc::new(Spare::default()));
        let log = Log {
            files: Arc::clone(&files),
            store,
            prepared: segment.file.len().unwrap_or(0),
            segment,
            ids: Arc::clone(&ids),
            spare: Arc::clone(&spare),
            segment_bytes: tuning.segment_bytes,
            broken: false,
            claimed: None,
        };
        let spare_bytes = log.prepared.clamp(tuning.first_spare_bytes, tuning.segment_bytes);
        let leader = Leader::new(Arc::clone(&shared), log, state);
        let keeper = Keeper {
            shared: Arc::clone(&shared),
            files,
            store,
            queue: queue.clone(),
            ids,
            spare,
            tuning,
            checkpoint,
            spare_bytes,
            spares: 0,
            swept: Revision::ABSENT,
            released: Vec::new(),
        };
        let mut embedded = Embedded {
            expirer: Expirer::new(&shared, &queue),
            shared,
            store,
            queue: Some(queue),
            threads: Vec::new(),
            _lock: lock,
        };
        embedded.spawn("capstan-upkeep", move || keeper.run(replayed))?;
        embedded.spawn("capstan-commit", move || leader.run(requests))?;
        embedded.expirer.start();
        Ok(embedded)
    }

    fn spawn(&mut self, name: &str, run: impl FnOnce() + Send + 'static) -> Result<(), Fault> {
        let thread = thread::Builder::new().name(name.to_owned()).spawn(run);
        self.threads.push(thread.map_err(|error| files::fault("start the thread", name, &error))?);
        Ok(())
    }

    /// The state that a read at `at` reads, and the revision at which to read it.
    async fn read(&self, at: At) -> Result<(State, Revision), ReadError> {
        if let At::NotOlderThan(revision) = at {
            self.shared.freshness.wait_for(revision).await?;
        }
        let state = self.shared.lock().clone();
        let revision = state.resolve(at)?;
        Ok((state, revision))
    }

    /// Has the leader do something, and waits for the answer, bounded.
    async fn ask(&self, request: impl FnOnce(Reply) -> Request) -> Result<Committed, Refusal> {
        let queue = self.queue.as_ref().ok_or_else(|| Refusal::Fault(closed()))?;
        let (reply, answer) = oneshot::channel();
        if let Err(full) = queue.try_send(request(reply)) {
            match bounded(queue.send(full.into_inner()), patience()).await {
                Some(Ok(())) => {}
                Some(Err(_)) => return Err(Refusal::Fault(closed())),
                None => return Err(Refusal::Fault(timed_out(COMMIT_WAIT))),
            }
        }
        match bounded(answer, patience()).await {
            Some(Ok(outcome)) => outcome,
            Some(Err(_)) => Err(Refusal::Uncertain(closed())),
            None => Err(Refusal::Uncertain(timed_out(COMMIT_WAIT))),
        }
    }
}

impl Drop for Embedded {
    fn drop(&mut self) {
        self.shared.upkeep.stop();
        self.queue = None;
        for thread in self.threads.drain(..) {
            // One that panicked has told its callers; there is nothing left to do.
            let _ = thread.join();
        }
        self.shared.hub.close(closed()).wake();
    }
}

fn lock(files: &dyn Files, options: &Options) -> Result<Box<dyn Any + Send + Sync>, Fault> {
    let program = std::env::current_exe().ok().and_then(|path| Some(path.file_name()?.to_string_lossy().into_owned()));
    let program = program.unwrap_or_else(|| "unknown program".to_owned());
    files.lock(&format!("process {} ({program}) since {}", std::process::id(), options.clock.now()))
}

fn timed_out(wait: Duration) -> Fault {
    Fault::new(FaultKind::TimedOut, format_args!("the disk did not answer within {} s", wait.as_secs()))
}

/// How long a commit waits. The disk's time is real, whatever the store's clock says.
fn patience() -> capstan_clock::Sleep {
    if sync::SCHEDULED { Box::pin(pending()) } else { RealClock::new().sleep(COMMIT_WAIT) }
}

/// The output of a future, unless `patience` is over first.
async fn bounded<T>(future: impl Future<Output = T>, mut patience: capstan_clock::Sleep) -> Option<T> {
    let mut future = pin!(future);
    poll_fn(|cx| {
        if let Poll::Ready(output) = future.as_mut().poll(cx) {
            return Poll::Ready(Some(output));
        }
        patience.as_mut().poll(cx).map(|()| None)
    })
    .await
}

/// Runs what reads files where it may block.
async fn blocking<T: Send + 'static, E: From<Fault> + Send + 'static>(
    work: impl FnOnce() -> Result<T, E> + Send + 'static,
) -> Result<T, E> {
    if sync::SCHEDULED {
        thread::yield_now();
        return work();
    }
    let done = tokio::task::spawn_blocking(work).await;
    done.unwrap_or_else(|error| Err(Fault::new(FaultKind::Closed, error).into()))
}

/// The history that a watch reads; it does not keep the store alive.
struct Past {
    shared: Weak<Shared>,
    store: u64,
}

impl History for Past {
    fn read(&self, prefix: &Key, after: Revision) -> Reading {
        let (state, prefix, store) =
            (self.shared.upgrade().map(|shared| shared.lock().clone()), prefix.clone(), self.store);
        Box::pin(async move {
            let state = state.ok_or_else(closed)?;
            blocking(move || history::read(&state, store, &prefix, after)).await
        })
    }
}

impl Store for Embedded {
    fn revision(&self) -> Answer<'_, Revision, ReadError> {
        Box::pin(async move { Ok(self.shared.lock().revision) })
    }

    fn get(&self, key: Key, at: At) -> Answer<'_, Found, ReadError> {
        Box::pin(async move {
            check_key(&key)?;
            let (state, revision) = self.read(at).await?;
            let item = match state.locate(&key, revision) {
                Some(place) => Some(blocking(move || state.read(&key, &place)).await?),
                None => None,
            };
            Ok(Found { revision, item })
        })
    }

    fn range(&self, range: Range) -> Answer<'_, Page, ReadError> {
        Box::pin(async move {
            check_range(&range)?;
            let (state, revision) = self.read(range.at).await?;
            if state.scan(&range.prefix, &range.start, revision).next().is_none() {
                // Nothing is read from a file. At a start most kinds are empty, and a thread for each takes longest.
                return Ok(state.page(&range, revision)?);
            }
            Ok(blocking(move || state.page(&range, revision)).await?)
        })
    }

    fn commit(&self, ops: Vec<Op>) -> Answer<'_, Committed, CommitError> {
        Box::pin(async move {
            check_ops(&ops)?;
            let expiring = ops.iter().any(|op| matches!(op.action, Action::Put { expires: Some(_), .. }));
            let ops = ops.into_iter().map(|op| Prepared::new(op, self.store)).collect();
            match self.ask(|reply| Request::Commit { ops, reply }).await {
                Ok(committed) => {
                    if expiring {
                        self.expirer.start();
                    }
                    Ok(committed)
                }
                Err(Refusal::Conflict { state, failed }) => Err(conflict(*state, failed).await),
                Err(Refusal::Uncertain(fault)) => Err(CommitError::Uncertain(fault)),
                Err(Refusal::Fault(fault)) => Err(CommitError::Fault(fault)),
                Err(Refusal::TooNew { .. }) => Err(CommitError::Fault(closed())),
            }
        })
    }

    fn watch(&self, request: WatchRequest) -> Answer<'_, Watch, ReadError> {
        Box::pin(async move {
            check_prefix(&request.prefix)?;
            let state = self.shared.lock();
            state.resolve(At::Exactly(request.after))?;
            let history = Arc::new(Past { shared: Arc::downgrade(&self.shared), store: self.store });
            // Still under the lock, so that no commit comes between.
            self.shared.hub.watch(request, history)
        })
    }

    fn compact(&self, revision: Revision) -> Answer<'_, (), ReadError> {
        Box::pin(async move {
            match self.ask(|reply| Request::Compact { revision, reply }).await {
                Ok(_) => Ok(()),
                Err(Refusal::TooNew { current }) => Err(ReadError::TooNew { asked: revision, current }),
                Err(Refusal::Fault(fault) | Refusal::Uncertain(fault)) => Err(fault.into()),
                Err(Refusal::Conflict { .. }) => Err(closed().into()),
            }
        })
    }

    fn hash(&self, at: At) -> Answer<'_, ConsistencyHash, ReadError> {
        Box::pin(async move {
            let (state, revision) = self.read(at).await?;
            let hash = move || {
                let mut hasher = ConsistencyHasher::default();
                for (key, place) in state.scan(&[], &[], revision) {
                    hasher.add(&state.read(&key, &place)?);
                }
                Ok(hasher.at(revision))
            };
            blocking(hash).await
        })
    }

    fn snapshot<'a>(&'a self, path: &'a Path) -> Answer<'a, SnapshotInfo, Fault> {
        Box::pin(async move {
            let (state, path) = (self.shared.lock().clone(), path.to_owned());
            let write = move || {
                let mut snapshot = SnapshotWriter::create(&path, state.revision)?;
                for (key, place) in state.scan(&[], &[], state.revision) {
                    snapshot.item(&state.read(&key, &place)?, place.deadline)?;
                }
                snapshot.finish()
            };
            blocking(write).await
        })
    }
}

/// Reads what was found instead of what was expected.
async fn conflict(state: State, failed: Vec<(usize, Key, Option<leaf::Place>)>) -> CommitError {
    let read = move || {
        let failed = failed.into_iter().map(|(index, key, place)| {
            let current = place.map(|place| state.read(&key, &place)).transpose()?;
            Ok(ConflictingOp { index, current })
        });
        Ok(Conflict { revision: state.revision, failed: failed.collect::<Result<_, Fault>>()? })
    };
    blocking(read).await.map_or_else(CommitError::Fault, CommitError::Conflict)
}

impl fmt::Debug for Embedded {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let state = self.shared.lock();
        let (revision, keys) = (state.revision, state.present.len());
        f.debug_struct("Embedded").field("revision", &revision).field("keys", &keys).finish_non_exhaustive()
    }
}
