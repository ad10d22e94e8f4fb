//! One copy of the objects of a kind, and any number of those who want to know what changes.

mod buffer;
mod handler;
#[cfg(test)]
mod hardship;
mod notification;
mod part;
mod shared;
#[cfg(test)]
mod tests;

use std::{
    fmt,
    panic::{AssertUnwindSafe, catch_unwind},
    sync::{
        Arc, Mutex, PoisonError,
        atomic::{AtomicBool, Ordering},
    },
    time::Duration,
};

use capstan_api::object::Object;
use capstan_clock::{SharedClock, SharedIds};
use serde::Serialize;
use tokio::{sync::watch, task::JoinSet};

pub use handler::{Change, HandlerFuncs, ResourceEventHandler};
pub use notification::{Deleted, Gone};
pub use part::{Part, Territory};

use crate::{
    Lister, ListerWatcher,
    beat::{caught, race},
    kept::{self, Packing},
    reflector::{Reflector, TransformFunc, WatchErrorHandler, backoff, machine::Config},
    store::{Indexer, Indexers},
};
use buffer::{Buffer, Phase};
use shared::{PartStore, Shared};

/// Keeps a copy of the objects of one kind and tells handlers of changes.
///
/// The store is up to date before any handler hears of a change. Handlers may come and go at any time; who comes late
/// first hears of all that is there. Each has its own task and its own pace. Clones are the same informer.
pub struct SharedIndexInformer<K> {
    inner: Arc<Inner<K>>,
}

/// client-go's name for an informer whose indices nobody asks for.
pub type SharedInformer<K> = SharedIndexInformer<K>;

impl<K> Clone for SharedIndexInformer<K> {
    fn clone(&self) -> Self {
        SharedIndexInformer { inner: Arc::clone(&self.inner) }
    }
}

impl<K> fmt::Debug for SharedIndexInformer<K> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("SharedIndexInformer").field("parts", &self.inner.parts).finish_non_exhaustive()
    }
}

struct Inner<K> {
    parts: Vec<Part>,
    clock: SharedClock,
    ids: SharedIds,
    shared: Arc<Shared<K>>,
    transform: Mutex<Option<TransformFunc<K>>>,
    packing: Mutex<Option<Packing<K>>>,
    on_error: Mutex<Option<WatchErrorHandler>>,
    started: AtomicBool,
    stop: watch::Sender<bool>,
    default_resync: Option<Duration>,
}

impl<K> Drop for Inner<K> {
    fn drop(&mut self) {
        self.shared.close();
    }
}

impl<K: Object> SharedIndexInformer<K> {
    /// An informer on what `source` has. It does nothing until it [runs](Self::run).
    pub fn new(source: Arc<dyn ListerWatcher>, config: Config, clock: SharedClock, ids: SharedIds) -> Self {
        SharedIndexInformer::with_resync(source, config, clock, ids, None)
    }

    /// The same, with a resync period for handlers that bring none.
    pub fn with_resync(
        source: Arc<dyn ListerWatcher>,
        config: Config,
        clock: SharedClock,
        ids: SharedIds,
        default_resync: Option<Duration>,
    ) -> Self {
        let part = Part { source, config, territory: Territory::everything() };
        SharedIndexInformer::with_parts(vec![part], clock, ids, default_resync)
    }

    /// An informer on what several sources have, such as one for each of several namespaces: who reads it or hears of
    /// changes sees one. It has synced once all of them have.
    pub fn with_parts(parts: Vec<Part>, clock: SharedClock, ids: SharedIds, default_resync: Option<Duration>) -> Self {
        let territories = parts.iter().map(|part| part.territory.clone()).collect();
        let inner = Inner {
            parts,
            shared: Arc::new(Shared::new(Arc::clone(&clock), territories)),
            clock,
            ids,
            transform: Mutex::default(),
            packing: Mutex::default(),
            on_error: Mutex::default(),
            started: AtomicBool::new(false),
            stop: watch::Sender::new(false),
            default_resync,
        };
        SharedIndexInformer { inner: Arc::new(inner) }
    }

    /// Changes every object before anybody sees it. Counts for runs that begin later.
    pub fn set_transform(&self, transform: impl Fn(K) -> Result<K, String> + Send + Sync + 'static) {
        *self.inner.transform.lock().unwrap_or_else(PoisonError::into_inner) = Some(Arc::new(transform));
    }

    /// Keeps the objects packed, and unpacks one when somebody reads it. Counts for runs that begin later.
    ///
    /// Objects as Rust types take several times the room of their bytes: a Pod of 4 KB some 15 KB, so 100,000 of them
    /// 1.5 GB; packed they take 100 to 300 MB. What came as protobuf is not even read before somebody wants it, so that
    /// the first list is in the store sooner. In return each read costs what reading an answer of the server does, tens
    /// of microseconds, unless the object is one of the last few that were read. So this is for large caches that
    /// are read a key at a time, as reconcilers do it; where all objects are listed again and again, leave it out.
    /// Indices are kept up to date, for which each object is unpacked when it comes.
    pub fn compact(&self)
    where
        K: Serialize,
    {
        *self.inner.packing.lock().unwrap_or_else(PoisonError::into_inner) = Some(Packing::new(kept::encode));
    }

    /// Tells of failures. Counts for runs that begin later.
    pub fn set_watch_error_handler(&self, handler: WatchErrorHandler) {
        // The panic hook has told of one that panics.
        let handler: WatchErrorHandler = Arc::new(move |error| drop(catch_unwind(AssertUnwindSafe(|| handler(error)))));
        *self.inner.on_error.lock().unwrap_or_else(PoisonError::into_inner) = Some(handler);
    }

    /// Adds indices, at any time.
    pub fn add_indexers(&self, indexers: Indexers<K>) {
        self.inner.shared.indexer.add_indexers(indexers);
    }

    /// The store.
    #[must_use]
    pub fn indexer(&self) -> &Arc<Indexer<K>> {
        &self.inner.shared.indexer
    }

    /// Reads the store.
    #[must_use]
    pub fn lister(&self) -> Lister<K> {
        Lister::new(Arc::clone(&self.inner.shared.indexer))
    }

    /// Whether all of the first list is in the store.
    #[must_use]
    pub fn has_synced(&self) -> bool {
        *self.inner.shared.synced.borrow()
    }

    /// Waits until all of the first list is in the store. False when the informer is shut down before.
    pub async fn wait_for_sync(&self) -> bool {
        let (mut synced, mut stop) = (self.inner.shared.synced.subscribe(), self.inner.stop.subscribe());
        // Neither sender goes away while `self` is there.
        race(async { synced.wait_for(|synced| *synced).await.is_ok() }, async {
            let _ = stop.wait_for(|stop| *stop).await;
        })
        .await
        .is_first()
    }

    /// Whether the objects of a namespace are here, as far as they are selected; the empty one is that of objects that
    /// live in none.
    #[must_use]
    pub fn has_namespace(&self, namespace: &str) -> bool {
        self.part(namespace).is_some()
    }

    fn part(&self, namespace: &str) -> Option<usize> {
        self.inner.parts.iter().position(|part| part.territory.has(namespace))
    }

    /// The version up to which everything is known.
    #[must_use]
    pub fn last_sync_resource_version(&self) -> String {
        self.inner.shared.versions.borrow().oldest().to_owned()
    }

    /// The version up to which everything of a namespace is known.
    #[must_use]
    pub fn last_sync_resource_version_in(&self, namespace: &str) -> String {
        let versions = self.inner.shared.versions.borrow();
        self.part(namespace).map(|part| versions.0[part].clone()).unwrap_or_default()
    }

    /// Waits until [that](Self::last_sync_resource_version) is another version than this one. The store has all changes
    /// up to it by then. Never, once the informer is shut down.
    pub async fn synced_beyond(&self, resource_version: &str) {
        // The sender does not go away while `self` is there.
        let _ = self.inner.shared.versions.subscribe().wait_for(|of| of.oldest() != resource_version).await;
    }

    /// The same for the [version of a namespace](Self::last_sync_resource_version_in). Never, if it is not here.
    pub async fn synced_beyond_in(&self, namespace: &str, resource_version: &str) {
        match self.part(namespace) {
            None => std::future::pending().await,
            // The sender does not go away while `self` is there.
            Some(part) => {
                let mut versions = self.inner.shared.versions.subscribe();
                let _ = versions.wait_for(|versions| versions.0[part] != resource_version).await;
            }
        }
    }

    /// Tells a handler of all there is and of all changes from now on, in a task of its own on the caller's runtime. It
    /// is told of nothing if the informer was shut down.
    pub fn add_event_handler(&self, handler: impl ResourceEventHandler<K>) -> Registration<K> {
        self.add_event_handler_with_resync_period(handler, self.inner.default_resync)
    }

    /// The same, and of all objects again after each period.
    pub fn add_event_handler_with_resync_period(
        &self,
        handler: impl ResourceEventHandler<K>,
        period: Option<Duration>,
    ) -> Registration<K> {
        let buffer = Arc::new(Buffer::default());
        let id = self.inner.shared.register(&buffer, period);
        tokio::spawn(handler::tell(Arc::clone(&buffer), handler));
        Registration { id, buffer, shared: Arc::downgrade(&self.inner.shared) }
    }

    /// Lists and watches until [`shut_down`](Self::shut_down). A second run, at the same time or later, does nothing.
    pub async fn run(&self) {
        if self.inner.started.swap(true, Ordering::SeqCst) {
            return;
        }
        let inner = &self.inner;
        let mut others = JoinSet::new();
        for part in 1..inner.parts.len() {
            let this = self.clone();
            others.spawn(async move { this.run_part(part).await });
        }
        // The others end when this is dropped.
        let run = race(self.run_part(0), self.again(|| inner.shared.resync()));
        let mut stop = inner.stop.subscribe();
        race(stop.wait_for(|stop| *stop), run).await;
    }

    async fn run_part(&self, at: usize) {
        let inner = &self.inner;
        let Some(Part { source, config, .. }) = inner.parts.get(at) else { return std::future::pending().await };
        let transform = inner.transform.lock().unwrap_or_else(PoisonError::into_inner).clone();
        let on_error = inner.on_error.lock().unwrap_or_else(PoisonError::into_inner).clone();
        let packing = {
            let packing = inner.packing.lock().unwrap_or_else(PoisonError::into_inner);
            packing.as_ref().map(|packing| packing.with_error_handler(on_error.clone()))
        };
        let reflector = || {
            let (clock, ids) = (Arc::clone(&inner.clock), Arc::clone(&inner.ids));
            let store = PartStore { shared: Arc::clone(&inner.shared), part: at };
            Reflector::new(Arc::clone(source), store, config.clone(), clock, ids)
                .with_transform(transform.clone())
                .with_packing(packing.clone())
                .with_error_handler(on_error.clone())
        };
        self.again(|| reflector().run()).await;
    }

    /// Runs something. If it panics, of which the panic hook has told, again as if it had failed for long.
    async fn again<F: Future<Output: Send>>(&self, run: impl Fn() -> F) {
        while caught(&run).await.is_none() {
            self.inner.clock.sleep(backoff::MAX).await;
        }
    }

    /// Ends the run and all handlers. What the store has stays.
    pub fn shut_down(&self) {
        self.inner.stop.send_replace(true);
        self.inner.shared.close();
    }
}

/// A handler that was added. Dropping this does not remove it.
pub struct Registration<K> {
    id: u64,
    buffer: Arc<Buffer<K>>,
    shared: std::sync::Weak<Shared<K>>,
}

impl<K> fmt::Debug for Registration<K> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Registration").field("id", &self.id).finish_non_exhaustive()
    }
}

impl<K: Object> Registration<K> {
    /// Whether the handler has heard of all objects that were there first.
    #[must_use]
    pub fn has_synced(&self) -> bool {
        *self.buffer.phase().borrow() == Phase::Synced
    }

    /// Waits until the handler has heard of all objects that were there first. False when it never will: the informer
    /// was shut down, or the handler removed, before.
    pub async fn wait_for_sync(&self) -> bool {
        // The sender is in the buffer, which is here.
        let mut phase = self.buffer.phase();
        phase.wait_for(|phase| *phase != Phase::Listing).await.is_ok_and(|phase| *phase == Phase::Synced)
    }

    /// How many objects there are that the handler has still to hear of.
    #[must_use]
    pub fn pending(&self) -> usize {
        self.buffer.len()
    }

    /// The handler hears of nothing more. A call that runs is not interrupted.
    pub fn remove(self) {
        self.buffer.close();
        if let Some(shared) = self.shared.upgrade() {
            shared.unregister(self.id);
        }
    }
}
