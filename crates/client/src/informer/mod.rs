//! One copy of the objects of a kind, and any number of those who want to know what changes.

mod any;
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
    marker::PhantomData,
    ops::Deref,
    sync::{Arc, PoisonError, Weak},
    time::Duration,
};

use capstan_api::object::Object;
use capstan_clock::{SharedClock, SharedIds};
use serde::Serialize;

pub use any::AnyInformer;
pub use handler::{Change, HandlerFuncs, ResourceEventHandler};
pub use notification::{Deleted, Gone};
pub use part::{Part, Territory};

use crate::{
    Lister, ListerWatcher,
    kept::{Packing, decoder},
    reflector::machine::Config,
    store::{Indexer, Indexers},
};
use buffer::Buffer;
use handler::Typed;
use shared::Shared;

/// Keeps a copy of the objects of one kind and tells handlers of changes.
///
/// The store is up to date before any handler hears of a change. Handlers may come and go at any time; who comes late
/// first hears of all that is there. Each has its own task and its own pace. Clones are the same informer.
///
/// This is what has to do with the type of the objects. All else is [`AnyInformer`], to which it dereferences.
pub struct SharedIndexInformer<K> {
    any: AnyInformer,
    indexer: Arc<Indexer<K>>,
}

/// client-go's name for an informer whose indices nobody asks for.
pub type SharedInformer<K> = SharedIndexInformer<K>;

impl<K> Clone for SharedIndexInformer<K> {
    fn clone(&self) -> Self {
        SharedIndexInformer { any: self.any.clone(), indexer: Arc::clone(&self.indexer) }
    }
}

impl<K> fmt::Debug for SharedIndexInformer<K> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("SharedIndexInformer").field(&self.any).finish()
    }
}

impl<K> Deref for SharedIndexInformer<K> {
    type Target = AnyInformer;

    fn deref(&self) -> &AnyInformer {
        &self.any
    }
}

impl<K: Object> SharedIndexInformer<K> {
    /// An informer on what `source` has. It does nothing until it [runs](AnyInformer::run).
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
        let any = AnyInformer::new(decoder::<K>(None), parts, clock, ids, default_resync);
        SharedIndexInformer { indexer: Arc::new(any.inner.shared.indexer.cast()), any }
    }

    /// Changes every object before anybody sees it. Counts for runs that begin later.
    pub fn set_transform(&self, transform: impl Fn(K) -> Result<K, String> + Send + Sync + 'static) {
        *self.inner.decode.lock().unwrap_or_else(PoisonError::into_inner) = decoder::<K>(Some(Arc::new(transform)));
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
        *self.inner.packing.lock().unwrap_or_else(PoisonError::into_inner) = Some(Packing::of::<K>());
    }

    /// Adds indices, at any time.
    pub fn add_indexers(&self, indexers: Indexers<K>) {
        self.indexer.add_indexers(indexers);
    }

    /// The store.
    #[must_use]
    pub fn indexer(&self) -> &Arc<Indexer<K>> {
        &self.indexer
    }

    /// Reads the store.
    #[must_use]
    pub fn lister(&self) -> Lister<K> {
        Lister::new(Arc::clone(&self.indexer))
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
        let (id, buffer) = self.listen(Box::new(Typed::new(handler)), period);
        Registration { id, buffer, shared: Arc::downgrade(&self.inner.shared), of: PhantomData }
    }
}

/// A handler that was added. Dropping this does not remove it.
pub struct Registration<K> {
    id: u64,
    buffer: Arc<Buffer>,
    shared: Weak<Shared>,
    of: PhantomData<fn() -> K>,
}

impl<K> fmt::Debug for Registration<K> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Registration").field("id", &self.id).finish_non_exhaustive()
    }
}

impl<K> Registration<K> {
    /// Whether the handler has heard of all objects that were there first.
    #[must_use]
    pub fn has_synced(&self) -> bool {
        self.buffer.has_synced()
    }

    /// Waits until the handler has heard of all objects that were there first. False when it never will: the informer
    /// was shut down, or the handler removed, before.
    pub fn wait_for_sync(&self) -> impl Future<Output = bool> + Send {
        self.buffer.wait_for_sync()
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
