//! What the drivers of control loops share: waiting for informers, working until told to stop, and reading one's own
//! writes.

use std::{
    collections::{HashMap, HashSet},
    future::Future,
    sync::{Mutex, MutexGuard, PoisonError},
};

use capstan_api::object::Object;
use capstan_client::{
    BoxFuture, Key, SharedIndexInformer,
    beat::{Either, race},
};
use capstan_runtime::{Controller, Reconciler, Stop};

/// Informers that have to know everything before work begins.
#[derive(Default)]
pub(crate) struct Synced(Vec<BoxFuture<'static, bool>>);

impl Synced {
    /// Waits for this one too.
    pub(crate) fn and<K: Object>(mut self, informer: &SharedIndexInformer<K>) -> Self {
        let informer = informer.clone();
        self.0.push(Box::pin(async move { informer.wait_for_sync().await }));
        self
    }

    /// Waits for all; false when one is shut down before.
    async fn wait(self) -> bool {
        for informer in self.0 {
            if !informer.await {
                return false;
            }
        }
        true
    }
}

/// Works once the informers know everything, until it is time to stop.
pub(crate) async fn work<R: Reconciler>(controller: Controller<R>, synced: Synced, stop: Stop) {
    let queue = controller.queue().clone();
    let stopped = stop.clone();
    let all = async move {
        if synced.wait().await {
            controller.run().await;
        }
    };
    until_stopped(all, &stopped).await;
    // Workers are tasks of their own: they end with the queue.
    queue.shut_down();
}

/// Does something until it is time to stop. False when the time came first.
pub(crate) async fn until_stopped(work: impl Future<Output = ()>, stop: &Stop) -> bool {
    matches!(race(work, stop.stopped()).await, Either::First(()))
}

/// The versions that this loop wrote and that its informer may not have seen yet, by the key that was worked on.
///
/// Whoever decides by a copy that lacks its own last write does it a second time. Versions are numbers that grow, so
/// "has the informer come that far" is a comparison. An entry goes when it has been caught up with, so there are never
/// more than keys in work.
#[derive(Debug, Default)]
pub(crate) struct Written(Mutex<State>);

#[derive(Debug, Default)]
struct State {
    versions: HashMap<Key, u64>,
    waiting: HashSet<Key>,
}

impl Written {
    fn lock(&self) -> MutexGuard<'_, State> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// This object was written for `key`.
    pub(crate) fn note<K: Object>(&self, key: &Key, object: &K) {
        if let Ok(version) = object.identity().resource_version.parse::<u64>() {
            let mut state = self.lock();
            let newest = state.versions.entry(key.clone()).or_default();
            *newest = version.max(*newest);
        }
    }

    /// Whether the informer has not yet seen all that was written for `key`. If so, the next event about it is urgent.
    pub(crate) fn is_ahead<K: Object>(&self, key: &Key, informer: &SharedIndexInformer<K>) -> bool {
        let mut state = self.lock();
        let Some(&version) = state.versions.get(key) else { return false };
        let seen = informer.last_sync_resource_version().parse::<u64>().unwrap_or(u64::MAX);
        if seen >= version {
            state.versions.remove(key);
            state.waiting.remove(key);
            return false;
        }
        state.waiting.insert(key.clone());
        true
    }

    /// Whether somebody waited for an event about `key`.
    pub(crate) fn was_awaited(&self, key: &Key) -> bool {
        self.lock().waiting.remove(key)
    }

    /// Nothing was written for `key` that counts any more.
    pub(crate) fn forget(&self, key: &Key) {
        let mut state = self.lock();
        state.versions.remove(key);
        state.waiting.remove(key);
    }
}
