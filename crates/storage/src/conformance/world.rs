//! What a case lives in: an engine, time that passes when told, a directory, and short forms of the operations.

use std::{
    fs,
    future::{Future, poll_fn},
    path::{Path, PathBuf},
    pin::pin,
    sync::{
        Arc,
        atomic::{AtomicU64, Ordering},
    },
    task::Poll,
    time::Duration,
};

use capstan_clock::{ManualClock, RealClock, SharedClock, Timestamp};

use crate::{
    Answer, At, Batch, CommitError, Conflict, Fault, KeyValue, Op, Options, Range, ReadError, Revision, SharedStore,
    Watch, WatchItem, WatchRequest,
};

/// An engine as the suite sees it.
pub trait Engine: Send + Sync + 'static {
    /// A new store without keys. `directory` is there, empty, and the case's own.
    fn open(&self, directory: &Path, options: Options) -> Answer<'_, SharedStore, Fault>;

    /// A new store from a snapshot. `directory` is there, empty, and the case's own.
    fn restore(&self, snapshot: &Path, directory: &Path, options: Options) -> Answer<'_, SharedStore, Fault>;

    /// The store of `directory` again, after it was dropped; `None` when nothing outlives it.
    fn reopen(&self, directory: &Path, options: Options) -> Option<Answer<'_, SharedStore, Fault>>;

    /// Whether lifetimes and retention go by the clock of the options. If not, cases wait instead of moving the clock.
    fn virtual_time(&self) -> bool {
        true
    }

    /// Whether retention goes by bytes too.
    fn compacts_by_size(&self) -> bool {
        true
    }

    /// Whether a restored store has the revisions of the snapshot.
    fn restores_revisions(&self) -> bool {
        true
    }
}

/// The most virtual time that passes while a case waits. Without a bound, a busy machine would let hours pass before
/// the engine's tasks have had a turn, and lifetimes would end that the case wants to last.
const MOST_PASSING: Duration = Duration::from_secs(60);

/// The world of one case.
pub struct World {
    engine: Arc<dyn Engine>,
    clock: ManualClock,
    directory: PathBuf,
    directories: AtomicU64,
}

impl World {
    /// A world of its own.
    ///
    /// # Panics
    /// When there is no room for its directory.
    #[must_use]
    pub fn new(engine: Arc<dyn Engine>) -> Self {
        static NEXT: AtomicU64 = AtomicU64::new(0);
        let name = format!("capstan-storage-{}-{}", std::process::id(), NEXT.fetch_add(1, Ordering::Relaxed));
        let directory = std::env::temp_dir().join(name);
        fs::create_dir_all(&directory).expect("a directory for the case");
        let clock = ManualClock::at("2026-01-01T00:00:00Z".parse::<Timestamp>().expect("a date"));
        World { engine, clock, directory, directories: AtomicU64::new(0) }
    }

    pub(crate) fn engine(&self) -> &dyn Engine {
        &*self.engine
    }

    /// The usual options, on this world's clock.
    #[must_use]
    pub fn options(&self) -> Options {
        let clock: SharedClock =
            if self.engine.virtual_time() { Arc::new(self.clock.clone()) } else { Arc::new(RealClock::new()) };
        Options::with_clock(clock)
    }

    /// A path in the case's directory.
    pub(crate) fn path(&self, name: &str) -> PathBuf {
        self.directory.join(name)
    }

    /// A new empty directory.
    pub(crate) fn directory(&self) -> PathBuf {
        let path = self.path(&format!("store-{}", self.directories.fetch_add(1, Ordering::Relaxed)));
        fs::create_dir_all(&path).expect("a directory for the store");
        path
    }

    /// A new store with the usual options.
    pub async fn open(&self) -> SharedStore {
        self.open_with(self.options()).await
    }

    pub(crate) async fn open_with(&self, options: Options) -> SharedStore {
        self.engine.open(&self.directory(), options).await.expect("an empty store opens")
    }

    pub(crate) async fn restore(&self, snapshot: &Path) -> Result<SharedStore, Fault> {
        self.engine.restore(snapshot, &self.directory(), self.options()).await
    }

    /// Lets virtual time pass. Where time is real, cases wait for what they expect anyway.
    pub fn advance(&self, duration: Duration) {
        self.clock.advance(duration);
    }

    /// Waits for `future` while virtual time passes in steps, up to a minute.
    pub(crate) async fn passing<T>(&self, step: Duration, future: impl Future<Output = T>) -> T {
        let (mut future, mut passed) = (pin!(future), Duration::ZERO);
        loop {
            let polled = poll_fn(|cx| Poll::Ready(future.as_mut().poll(cx))).await;
            if let Poll::Ready(output) = polled {
                return output;
            }
            if passed < MOST_PASSING {
                self.advance(step);
                passed += step;
            }
            tokio::task::yield_now().await;
        }
    }
}

impl Drop for World {
    fn drop(&mut self) {
        // What is left over is in the system's temporary directory; that it cannot be removed is no failure of the
        // case.
        let _ = fs::remove_dir_all(&self.directory);
    }
}

/// Commits and returns the revision.
pub(crate) async fn commit(store: &SharedStore, ops: impl IntoIterator<Item = Op>) -> Revision {
    let committed = store.commit(ops.into_iter().collect()).await.expect("the commit succeeds");
    assert!(committed.changed, "the commit changes something");
    committed.revision
}

/// Puts a value and returns the revision.
pub(crate) async fn put(store: &SharedStore, key: &str, value: &str) -> Revision {
    commit(store, [op_put(key, value)]).await
}

pub(crate) fn op_put(key: &str, value: &str) -> Op {
    Op::put(key.to_owned(), value.to_owned())
}

pub(crate) fn op_delete(key: &str) -> Op {
    Op::delete(key.to_owned())
}

/// Commits what must fail a precondition.
pub(crate) async fn conflict(store: &SharedStore, ops: impl IntoIterator<Item = Op>) -> Conflict {
    match store.commit(ops.into_iter().collect()).await {
        Err(CommitError::Conflict(conflict)) => conflict,
        other => panic!("a conflict was due: {other:?}"),
    }
}

/// What is under the key.
pub(crate) async fn get(store: &SharedStore, key: &str, at: At) -> Option<KeyValue> {
    store.get(key.to_owned().into(), at).await.expect("the key can be read").item
}

/// The keys and values under a prefix.
pub(crate) async fn list(store: &SharedStore, prefix: &str, at: At) -> Vec<String> {
    let page = store.range(Range::prefix(prefix.to_owned()).at(at)).await.expect("the range can be read");
    page.items.iter().map(show).collect()
}

/// An item as `key=value`.
pub(crate) fn show(item: &KeyValue) -> String {
    format!("{}={}", item.key.escape_ascii(), item.value.escape_ascii())
}

pub(crate) fn item(key: &str, value: &str, mod_revision: Revision) -> KeyValue {
    KeyValue { key: key.to_owned().into(), value: value.to_owned().into(), mod_revision }
}

/// The present revision.
pub(crate) async fn now(store: &SharedStore) -> Revision {
    store.revision().await.expect("the revision can be read")
}

pub(crate) async fn watch(store: &SharedStore, prefix: &str, after: Revision) -> Watch {
    try_watch(store, prefix, after).await.expect("the watch starts")
}

pub(crate) async fn try_watch(store: &SharedStore, prefix: &str, after: Revision) -> Result<Watch, ReadError> {
    store.watch(WatchRequest { prefix: prefix.to_owned().into(), after }).await
}

/// The next batch; progress in between must not be early or go back.
pub(crate) async fn batch(watch: &mut Watch) -> Result<Batch, ReadError> {
    let mut progress = Revision::ABSENT;
    loop {
        match watch.next().await? {
            WatchItem::Progress(revision) => {
                assert!(revision >= progress, "progress goes back");
                progress = revision;
            }
            WatchItem::Batch(batch) => {
                assert!(batch.revision > progress, "progress was early");
                assert!(!batch.events.is_empty(), "a batch without events");
                return Ok(batch);
            }
        }
    }
}

/// All batches up to `revision`, by asking for progress.
pub(crate) async fn batches_through(watch: &mut Watch, revision: Revision) -> Vec<Batch> {
    let mut batches: Vec<Batch> = Vec::new();
    watch.request_progress();
    loop {
        match watch.next().await.expect("the watch goes on") {
            WatchItem::Progress(progress) if progress >= revision => return batches,
            // Asked before the store had come so far, or unasked: once more.
            WatchItem::Progress(_) => {
                watch.request_progress();
                // Whoever commits may be on this thread.
                tokio::task::yield_now().await;
            }
            WatchItem::Batch(batch) => {
                assert!(batches.last().is_none_or(|last| last.revision < batch.revision), "out of order");
                batches.push(batch);
            }
        }
    }
}

/// A batch as `revision: +key=value ~key=value(old) -key(old)`, the revision counted from `base`.
pub(crate) fn show_batch(batch: &Batch, base: Revision) -> String {
    let mut shown = format!("{}:", batch.revision.0 - base.0);
    for event in batch.events.iter() {
        let key = event.key.escape_ascii();
        let value = |item: &KeyValue| item.value.escape_ascii().to_string();
        shown += &match (&event.current, &event.previous) {
            (Some(now), None) => format!(" +{key}={}", value(now)),
            (Some(now), Some(before)) => format!(" ~{key}={}({})", value(now), value(before)),
            (None, Some(before)) => format!(" -{key}({})", value(before)),
            (None, None) => format!(" ?{key}"),
        };
    }
    shown
}
