//! The read side of the server: what GET, LIST and WATCH are answered from.
//!
//! One [`ResourceCache`] holds the objects under one prefix of the store, each encoded once when it came. A GET is the
//! clone of a reference, a LIST goes through a snapshot that nobody changes any more, a WATCH is a position in the
//! history of recent events, whose frames all watchers share. No read decodes, waits for a writer, or holds one up. The
//! cache knows prefixes and metadata but no kinds; what can be selected by is given by [`SelectableFields`].
//!
//! Not for: writing (commits go to the store), versions and other forms of an object (made above, from the bytes here).

mod error;
mod event;
mod fields;
mod fill;
pub mod limits;
mod log;
mod object;
mod read;
mod snapshot;
#[cfg(test)]
mod tests;
mod watcher;

use std::{
    fmt,
    sync::{
        Arc, Mutex, PoisonError, RwLock,
        atomic::{AtomicU64, Ordering},
    },
    time::Duration,
};

use capstan_api::Name;
use capstan_clock::SharedClock;
use capstan_storage::{Revision, SharedStore};
use tokio::{
    sync::{Notify, watch},
    task::JoinHandle,
};

pub use error::CacheError;
pub use event::{INITIAL_EVENTS_END, WatchedEvent, bookmark_frame};
pub use fields::{FieldPaths, SelectableFields};
pub(crate) use object::part;
pub use object::{Malformed, Object, OwnerReference};
pub use read::{Found, ListPage, ListQuery, ReadAt};
pub use snapshot::Snapshot;
pub use watcher::{WatchItem, WatchQuery, WatchStart, Watcher};

use log::Log;
use snapshot::Kept;

/// What a cache needs to know of a resource.
#[derive(Clone)]
pub struct CachedResource {
    /// Where its objects are in the store, with the closing slash: `/registry/pods/`.
    pub prefix: String,
    /// Whether keys are `namespace/name`.
    pub namespaced: bool,
    /// What can be selected by.
    pub fields: Arc<dyn SelectableFields>,
    /// The field whose watchers are found by its value, such as a pod's `spec.nodeName`.
    pub indexed: Option<Name>,
}

impl CachedResource {
    /// A resource without selectable fields of its own.
    #[must_use]
    pub fn new(prefix: &str, namespaced: bool) -> Self {
        let fields = Arc::new(FieldPaths::default());
        CachedResource { prefix: prefix.to_owned(), namespaced, fields, indexed: None }
    }

    /// The same with selectable fields.
    #[must_use]
    pub fn with_fields(mut self, fields: impl SelectableFields) -> Self {
        self.fields = Arc::new(fields);
        self
    }

    /// The same with watchers found by the value of this field.
    #[must_use]
    pub fn indexed_by(mut self, field: impl Into<Name>) -> Self {
        self.indexed = Some(field.into());
        self
    }
}

/// How a cache behaves; the bounds are those of [`limits`] unless told otherwise.
#[derive(Clone, Debug)]
pub struct CacheOptions {
    /// What waits and bookmarks go by.
    pub clock: SharedClock,
    /// How long a read waits for a revision.
    pub freshness_wait: Duration,
    /// How often watchers that want bookmarks get one; not below two seconds.
    pub bookmark_every: Duration,
    /// How many events are remembered.
    pub history_events: usize,
    /// About how many bytes of events are remembered.
    pub history_bytes: usize,
    /// How many states are kept for lists that go on.
    pub snapshots: usize,
    /// How many revisions before the present the cache begins.
    pub seed_revisions: u64,
}

impl CacheOptions {
    /// The usual ones, on this clock.
    #[must_use]
    pub fn with_clock(clock: SharedClock) -> Self {
        CacheOptions {
            clock,
            freshness_wait: limits::FRESHNESS_WAIT,
            bookmark_every: limits::BOOKMARK_EVERY,
            history_events: limits::HISTORY_EVENTS,
            history_bytes: limits::HISTORY_BYTES,
            snapshots: limits::SNAPSHOTS,
            seed_revisions: limits::SEED_REVISIONS,
        }
    }
}

/// The objects under one prefix of a store, as reads need them.
///
/// A task follows the store; it goes on after faults, and after a compaction that it missed it finds the differences.
/// Reads see states of the store, each whole, in the order of revisions, and by default not older than the store's at
/// the question. Dropping the cache ends its task and its watches.
pub struct ResourceCache {
    shared: Arc<Shared>,
    task: JoinHandle<()>,
}

/// What the task, the reads and the watchers share.
struct Shared {
    store: SharedStore,
    resource: CachedResource,
    options: CacheOptions,
    current: RwLock<Snapshot>,
    kept: Mutex<Kept>,
    log: Log,
    /// How far reads may rely on the cache; zero before it is filled.
    reached: watch::Sender<Revision>,
    /// Tells the task to ask the store how far it has come.
    asked: Notify,
    malformed: AtomicU64,
}

impl ResourceCache {
    /// Starts to follow the store, on the runtime of the caller. Reads wait until the cache is filled.
    #[must_use]
    pub fn start(store: SharedStore, resource: CachedResource, options: CacheOptions) -> Self {
        let shared = Arc::new(Shared {
            store,
            log: Log::new(options.history_events, options.history_bytes, resource.indexed.clone()),
            kept: Mutex::new(Kept::new(options.snapshots)),
            resource,
            options,
            current: RwLock::default(),
            reached: watch::Sender::default(),
            asked: Notify::new(),
            malformed: AtomicU64::new(0),
        });
        let task = tokio::spawn(fill::run(Arc::clone(&shared)));
        ResourceCache { shared, task }
    }

    /// Ends the cache and its watches; when this returns, its task has let go of the store. (Watchers that are still
    /// held have not.)
    pub async fn close(mut self) {
        self.task.abort();
        // What is awaited is the end; that it was brought about is no error.
        let _ = (&mut self.task).await;
    }

    /// How far the cache has come; zero before it is filled.
    #[must_use]
    pub fn revision(&self) -> Revision {
        *self.shared.reached.borrow()
    }

    /// Ends the watches, and lets nobody watch any more. Reads go on.
    pub fn end_watches(&self) {
        self.shared.log.close().wake();
    }

    /// How many objects there are.
    #[must_use]
    pub fn len(&self) -> usize {
        self.shared.current().objects.len()
    }

    /// Whether there are none.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// How many watch.
    #[must_use]
    pub fn watchers(&self) -> usize {
        self.shared.log.size().1
    }

    /// How many events are remembered.
    #[must_use]
    pub fn history(&self) -> usize {
        self.shared.log.size().0
    }

    /// How many values that came from the store were no objects. They are not served: other than an object that cannot
    /// be read, nothing under the prefix suffers from them.
    #[must_use]
    pub fn malformed(&self) -> u64 {
        self.shared.malformed.load(Ordering::Relaxed)
    }
}

impl Shared {
    fn current(&self) -> Snapshot {
        // A snapshot is replaced whole, so one that a panic left behind is whole.
        self.current.read().unwrap_or_else(PoisonError::into_inner).clone()
    }

    fn ask_progress(&self) {
        self.asked.notify_one();
    }
}

impl Drop for ResourceCache {
    fn drop(&mut self) {
        self.task.abort();
        self.shared.log.close().wake();
    }
}

impl fmt::Debug for ResourceCache {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (prefix, revision, objects) = (&self.shared.resource.prefix, self.revision(), self.len());
        f.debug_struct("ResourceCache")
            .field("prefix", prefix)
            .field("revision", &revision)
            .field("objects", &objects)
            .finish_non_exhaustive()
    }
}
