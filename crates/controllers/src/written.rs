//! Reading one's own writes.

use std::{
    collections::{HashMap, HashSet},
    sync::{Mutex, MutexGuard, PoisonError},
};

use capstan_api::object::Object;
use capstan_client::{Key, SharedIndexInformer};

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
