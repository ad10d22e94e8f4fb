//! The checkers find bugs: each is put into a store that has none, and must be noticed.
#![expect(
    clippy::unwrap_used,
    reason = "only functions marked as tests are known as such, and this is one file of them"
)]

use std::{
    collections::HashMap,
    path::Path,
    sync::{
        Arc, Mutex,
        atomic::{AtomicU64, Ordering},
    },
};

use capstan_storage::{
    Action, Answer, At, CommitError, Committed, ConsistencyHash, Fault, Found, Key, Memory, Op, Options, Page, Range,
    ReadError, Revision, SharedStore, SnapshotInfo, Store, Watch, WatchItem, WatchRequest, WatchSource,
    conformance::{
        Engine,
        linear::{self, Load},
        model,
    },
};

#[derive(Clone, Copy, Debug, PartialEq)]
enum Bug {
    None,
    /// A read is answered by what an earlier read of the key got.
    StaleRead,
    /// A range is answered from a state before the present.
    StaleRange,
    /// A commit is acknowledged and not made.
    LostWrite,
    /// A failed precondition is answered as success.
    DoubleAck,
    /// The operations of a commit take a revision each.
    TornCommit,
    /// Two commits are told the same revision.
    SharedRevision,
    /// A precondition is not looked at.
    IgnoredPrecondition,
    /// A failed commit tells what was there long ago.
    StaleConflict,
    /// A change is not delivered to watches.
    MissedChange,
    /// Progress tells of more than has been delivered.
    EarlyProgress,
    /// What was compacted is not refused.
    ForgottenCompaction,
}

/// A memory store with a bug that shows now and then.
struct Planted {
    store: Memory,
    bug: Bug,
    turns: AtomicU64,
    earlier: Mutex<HashMap<Key, Found>>,
}

impl Planted {
    fn open(bug: Bug, options: Options) -> SharedStore {
        Arc::new(Planted { store: Memory::new(options), bug, turns: AtomicU64::new(0), earlier: Mutex::default() })
    }

    /// Whether it is this bug's turn.
    fn strikes(&self, bug: Bug) -> bool {
        self.bug == bug && self.turns.fetch_add(1, Ordering::Relaxed) % 2 == 1
    }
}

impl Store for Planted {
    fn revision(&self) -> Answer<'_, Revision, ReadError> {
        self.store.revision()
    }

    fn get(&self, key: Key, at: At) -> Answer<'_, Found, ReadError> {
        Box::pin(async move {
            if self.bug == Bug::ForgottenCompaction && matches!(at, At::Exactly(_)) {
                return self.store.get(key, At::Present).await;
            }
            let found = self.store.get(key.clone(), at).await?;
            let earlier = self.earlier.lock().unwrap().insert(key, found.clone());
            Ok(earlier.filter(|_| self.strikes(Bug::StaleRead)).unwrap_or(found))
        })
    }

    fn range(&self, mut range: Range) -> Answer<'_, Page, ReadError> {
        Box::pin(async move {
            let now = self.store.revision().await?;
            if self.strikes(Bug::StaleRange) && now.0 > 3 {
                range.at = At::Exactly(Revision(now.0 - 2));
            }
            self.store.range(range).await
        })
    }

    fn commit(&self, mut ops: Vec<Op>) -> Answer<'_, Committed, CommitError> {
        Box::pin(async move {
            let puts = !ops.is_empty()
                && ops.iter().all(|op| matches!(op.action, Action::Put { .. }) && op.expected.is_none());
            if puts && self.strikes(Bug::LostWrite) {
                let revision = self.store.revision().await.unwrap().next();
                return Ok(Committed { revision, changed: true });
            }
            if puts && ops.len() > 1 && self.bug == Bug::TornCommit {
                let last = ops.pop().unwrap();
                self.store.commit(ops).await?;
                tokio::task::yield_now().await;
                return self.store.commit(vec![last]).await;
            }
            if self.strikes(Bug::IgnoredPrecondition) {
                ops.iter_mut().for_each(|op| op.expected = None);
            }
            match self.store.commit(ops).await {
                Err(CommitError::Conflict(conflict)) if self.strikes(Bug::DoubleAck) => {
                    Ok(Committed { revision: conflict.revision.next(), changed: true })
                }
                Err(CommitError::Conflict(mut conflict)) if self.bug == Bug::StaleConflict => {
                    conflict.failed[0].current = None;
                    Err(CommitError::Conflict(conflict))
                }
                Ok(committed) if committed.changed && self.strikes(Bug::SharedRevision) => {
                    Ok(Committed { revision: Revision(committed.revision.0 - 1), ..committed })
                }
                answer => answer,
            }
        })
    }

    fn watch(&self, request: WatchRequest) -> Answer<'_, Watch, ReadError> {
        Box::pin(async move {
            let watch = self.store.watch(request).await?;
            Ok(Watch::new(PlantedWatch { watch, bug: self.bug, items: 0 }))
        })
    }

    fn compact(&self, revision: Revision) -> Answer<'_, (), ReadError> {
        self.store.compact(revision)
    }

    fn hash(&self, at: At) -> Answer<'_, ConsistencyHash, ReadError> {
        self.store.hash(at)
    }

    fn snapshot<'a>(&'a self, path: &'a Path) -> Answer<'a, SnapshotInfo, Fault> {
        self.store.snapshot(path)
    }
}

struct PlantedWatch {
    watch: Watch,
    bug: Bug,
    items: u64,
}

impl WatchSource for PlantedWatch {
    fn poll_next(&mut self, cx: &mut std::task::Context<'_>) -> std::task::Poll<Result<WatchItem, ReadError>> {
        let item = std::task::ready!(self.watch.poll_next(cx))?;
        self.items += 1;
        let item = match item {
            WatchItem::Batch(_) if self.bug == Bug::MissedChange && self.items == 4 => {
                cx.waker().wake_by_ref();
                return std::task::Poll::Pending;
            }
            WatchItem::Batch(batch) if self.bug == Bug::EarlyProgress && self.items == 2 => {
                WatchItem::Progress(batch.revision.next())
            }
            item => item,
        };
        std::task::Poll::Ready(Ok(item))
    }

    fn request_progress(&mut self) {
        self.watch.request_progress();
    }
}

/// How many histories are recorded before a bug counts as not found.
const HISTORIES: u64 = 20;

/// Whether the checker finds something in histories of a store with this bug.
async fn found_by_checker(bug: Bug) -> bool {
    for seed in 0..HISTORIES {
        let store = Planted::open(bug, Options::default());
        let history = linear::record(&store, Load { seed, ..Load::default() }).await;
        assert!(history.len() > 100, "little happened");
        if linear::check(&history).is_err() {
            return true;
        }
    }
    false
}

macro_rules! checker_finds {
    ($($name:ident: $bug:ident $found:literal)*) => {
        $(#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
        async fn $name() {
            assert_eq!(found_by_checker(Bug::$bug).await, $found);
        })*
    };
}

checker_finds! {
    a_sound_store_passes: None false
    the_checker_finds_stale_reads: StaleRead true
    the_checker_finds_stale_ranges: StaleRange true
    the_checker_finds_lost_writes: LostWrite true
    the_checker_finds_double_acknowledgements: DoubleAck true
    the_checker_finds_torn_commits: TornCommit true
    the_checker_finds_shared_revisions: SharedRevision true
    the_checker_finds_ignored_preconditions: IgnoredPrecondition true
    the_checker_finds_stale_conflicts: StaleConflict true
}

struct PlantedEngine(Bug);

impl Engine for PlantedEngine {
    fn open(&self, _: &Path, options: Options) -> Answer<'_, SharedStore, Fault> {
        Box::pin(async { Ok(Planted::open(self.0, options)) })
    }

    fn restore(&self, _: &Path, _: &Path, _: Options) -> Answer<'_, SharedStore, Fault> {
        unreachable!("the model restores nothing")
    }

    fn reopen(&self, _: &Path, _: Options) -> Option<Answer<'_, SharedStore, Fault>> {
        None
    }
}

#[test]
fn the_model_finds_every_bug() {
    let bugs = [
        Bug::StaleRead,
        Bug::StaleRange,
        Bug::LostWrite,
        Bug::DoubleAck,
        Bug::TornCommit,
        Bug::SharedRevision,
        Bug::IgnoredPrecondition,
        Bug::StaleConflict,
        Bug::MissedChange,
        Bug::EarlyProgress,
        Bug::ForgottenCompaction,
    ];
    let finds = |bug: Bug, cases| std::panic::catch_unwind(|| model::check(PlantedEngine(bug), cases)).is_err();
    let missed: Vec<_> = bugs.into_iter().filter(|bug| !finds(*bug, 256)).collect();
    assert_eq!(missed, []);
    assert!(!finds(Bug::None, 16));
}
