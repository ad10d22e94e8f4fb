//! A store whose watches can be broken.

use std::{
    path::Path,
    sync::{
        Arc,
        atomic::{AtomicBool, AtomicUsize, Ordering},
    },
    task::{Context, Poll},
};

use capstan_storage::{
    Answer, At, CommitError, Committed, ConsistencyHash, Fault, FaultKind, Found, Key, Memory, Op, Page, Range,
    ReadError, Revision, SnapshotInfo, Store, Watch, WatchItem, WatchRequest, WatchSource,
};

pub(super) struct Flaky {
    inner: Memory,
    broken: Arc<AtomicBool>,
    open: Arc<AtomicUsize>,
    ranges: AtomicUsize,
}

struct Source {
    inner: Watch,
    broken: Arc<AtomicBool>,
    open: Arc<AtomicUsize>,
}

impl Flaky {
    pub(super) fn new(inner: Memory) -> Self {
        Flaky { inner, broken: Arc::default(), open: Arc::default(), ranges: AtomicUsize::new(0) }
    }

    /// From now on, until mended, watches fail when they are polled, and none can be opened.
    pub(super) fn break_watches(&self, broken: bool) {
        self.broken.store(broken, Ordering::Relaxed);
    }

    pub(super) fn open_watches(&self) -> usize {
        self.open.load(Ordering::Relaxed)
    }

    pub(super) fn ranges(&self) -> usize {
        self.ranges.load(Ordering::Relaxed)
    }
}

fn unreachable() -> ReadError {
    Fault::new(FaultKind::Unreachable, "broken by the test").into()
}

impl WatchSource for Source {
    fn poll_next(&mut self, cx: &mut Context<'_>) -> Poll<Result<WatchItem, ReadError>> {
        if self.broken.load(Ordering::Relaxed) {
            return Poll::Ready(Err(unreachable()));
        }
        self.inner.poll_next(cx)
    }

    fn request_progress(&mut self) {
        self.inner.request_progress();
    }
}

impl Drop for Source {
    fn drop(&mut self) {
        self.open.fetch_sub(1, Ordering::Relaxed);
    }
}

impl Store for Flaky {
    fn revision(&self) -> Answer<'_, Revision, ReadError> {
        self.inner.revision()
    }

    fn get(&self, key: Key, at: At) -> Answer<'_, Found, ReadError> {
        self.inner.get(key, at)
    }

    fn range(&self, range: Range) -> Answer<'_, Page, ReadError> {
        self.ranges.fetch_add(1, Ordering::Relaxed);
        // Small pages, so that what is read is read in many.
        self.inner.range(range.limited(2))
    }

    fn commit(&self, ops: Vec<Op>) -> Answer<'_, Committed, CommitError> {
        self.inner.commit(ops)
    }

    fn watch(&self, request: WatchRequest) -> Answer<'_, Watch, ReadError> {
        Box::pin(async move {
            if self.broken.load(Ordering::Relaxed) {
                return Err(unreachable());
            }
            let inner = self.inner.watch(request).await?;
            self.open.fetch_add(1, Ordering::Relaxed);
            Ok(Watch::new(Source { inner, broken: Arc::clone(&self.broken), open: Arc::clone(&self.open) }))
        })
    }

    fn compact(&self, revision: Revision) -> Answer<'_, (), ReadError> {
        self.inner.compact(revision)
    }

    fn hash(&self, at: At) -> Answer<'_, ConsistencyHash, ReadError> {
        self.inner.hash(at)
    }

    fn snapshot<'a>(&'a self, path: &'a Path) -> Answer<'a, SnapshotInfo, Fault> {
        self.inner.snapshot(path)
    }
}
