//! An informer, whatever its objects are: all of it but what its users see of their types.

use std::{
    fmt,
    panic::{AssertUnwindSafe, catch_unwind},
    sync::{
        Arc, Mutex, PoisonError,
        atomic::{AtomicBool, Ordering},
    },
    time::Duration,
};

use capstan_clock::{SharedClock, SharedIds};
use tokio::{sync::watch, task::JoinSet};

use super::{
    Part,
    buffer::Buffer,
    handler::{AnyHandler, tell},
    shared::{PartStore, Shared},
};
use crate::{
    beat::{caught, race},
    kept::{Decode, Packing},
    reflector::{Reflector, WatchErrorHandler, backoff},
};

/// What a [`SharedIndexInformer`](super::SharedIndexInformer) is apart from the type of its objects. Clones are one
/// and the same.
#[derive(Clone)]
pub struct AnyInformer {
    pub(super) inner: Arc<Inner>,
}

impl fmt::Debug for AnyInformer {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("AnyInformer").field("parts", &self.inner.parts).finish_non_exhaustive()
    }
}

pub(super) struct Inner {
    parts: Vec<Part>,
    clock: SharedClock,
    ids: SharedIds,
    pub(super) shared: Arc<Shared>,
    pub(super) decode: Mutex<Decode>,
    pub(super) packing: Mutex<Option<Packing>>,
    on_error: Mutex<Option<WatchErrorHandler>>,
    started: AtomicBool,
    stop: watch::Sender<bool>,
    pub(super) default_resync: Option<Duration>,
}

impl Drop for Inner {
    fn drop(&mut self) {
        self.shared.close();
    }
}

impl AnyInformer {
    /// An informer of objects that are read so.
    pub(super) fn new(
        decode: Decode,
        parts: Vec<Part>,
        clock: SharedClock,
        ids: SharedIds,
        default_resync: Option<Duration>,
    ) -> Self {
        let territories = parts.iter().map(|part| part.territory.clone()).collect();
        let inner = Inner {
            parts,
            shared: Arc::new(Shared::new(Arc::clone(&clock), territories)),
            clock,
            ids,
            decode: Mutex::new(decode),
            packing: Mutex::default(),
            on_error: Mutex::default(),
            started: AtomicBool::new(false),
            stop: watch::Sender::new(false),
            default_resync,
        };
        AnyInformer { inner: Arc::new(inner) }
    }

    /// Tells of failures. Counts for runs that begin later.
    pub fn set_watch_error_handler(&self, handler: WatchErrorHandler) {
        // The panic hook has told of one that panics.
        let handler: WatchErrorHandler = Arc::new(move |error| drop(catch_unwind(AssertUnwindSafe(|| handler(error)))));
        *self.inner.on_error.lock().unwrap_or_else(PoisonError::into_inner) = Some(handler);
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

    /// Tells a handler, in a task of its own.
    pub(super) fn listen(&self, handler: Box<dyn AnyHandler>, period: Option<Duration>) -> (u64, Arc<Buffer>) {
        let buffer = Arc::new(Buffer::default());
        let id = self.inner.shared.register(&buffer, period);
        tokio::spawn(tell(Arc::clone(&buffer), handler));
        (id, buffer)
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
        let decode = inner.decode.lock().unwrap_or_else(PoisonError::into_inner).clone();
        let on_error = inner.on_error.lock().unwrap_or_else(PoisonError::into_inner).clone();
        let packing = {
            let packing = inner.packing.lock().unwrap_or_else(PoisonError::into_inner);
            packing.as_ref().map(|packing| packing.with_error_handler(on_error.clone()))
        };
        let reflector = || {
            let (clock, ids) = (Arc::clone(&inner.clock), Arc::clone(&inner.ids));
            let store = PartStore { shared: Arc::clone(&inner.shared), part: at };
            Reflector::with_decode(Arc::clone(source), store, config.clone(), clock, ids, Arc::clone(&decode))
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
