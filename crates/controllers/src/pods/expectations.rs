//! What a loop has written and its cache does not show yet.

use std::{
    any::TypeId,
    collections::HashMap,
    sync::{Arc, Mutex, PoisonError},
    time::Duration,
};

use capstan_api::{
    Resource,
    object::{Metadata as _, Object},
};
use capstan_client::{Key, SharedIndexInformer};
use capstan_clock::{Moment, SharedClock};

/// After this time the cache is believed although it does not show what was written.
const EXPECTATIONS_TIMEOUT: Duration = Duration::from_secs(5 * 60);

/// When to look again if the cache is behind and nothing happens: what came and went may never be told of.
pub(crate) const RECHECK: Duration = Duration::from_secs(1);

/// What a loop has written and its cache does not show yet, by the owner it was written for.
///
/// A loop that decides on a cache from before its own writes does them twice. So it notes them here, and does nothing
/// until the cache has them. The store itself is asked, not the events: handlers may be told of several changes at
/// once.
#[derive(Debug)]
pub(crate) struct Expectations {
    clock: SharedClock,
    pending: Mutex<HashMap<Key, Pending>>,
}

#[derive(Debug, Default)]
struct Pending {
    since: Moment,
    /// Objects that must be seen: their types, keys and versions.
    created: Vec<(TypeId, Key, u64)>,
    /// Objects that must be seen as deleted: their types, keys and uids.
    deleted: Vec<(TypeId, Key, String)>,
    /// The version that the owner itself must have.
    owner: u64,
}

fn version(text: &str) -> u64 {
    text.parse().unwrap_or_default()
}

impl Expectations {
    pub(crate) fn new(clock: SharedClock) -> Self {
        Expectations { clock, pending: Mutex::default() }
    }

    fn change<T>(&self, change: impl FnOnce(&mut HashMap<Key, Pending>) -> T) -> T {
        change(&mut self.pending.lock().unwrap_or_else(PoisonError::into_inner))
    }

    fn note(&self, owner: &Key, note: impl FnOnce(&mut Pending)) {
        let since = self.clock.monotonic();
        self.change(|all| {
            let pending = all.entry(owner.clone()).or_default();
            pending.since = since;
            note(pending);
        });
    }

    /// An object was created, or changed.
    pub(crate) fn created<K: Object + Resource>(&self, owner: &Key, object: &K) {
        self.created_as::<K>(owner, object);
    }

    /// The same of an object of which not all is known.
    pub(crate) fn created_as<K: Resource + 'static>(&self, owner: &Key, object: &impl Object) {
        let written = version(object.identity().resource_version);
        self.note(owner, |pending| pending.created.push((TypeId::of::<K>(), Key::of(object), written)));
    }

    /// An object was deleted.
    pub(crate) fn deleted<K: Object + Resource>(&self, owner: &Key, object: &K) {
        self.note(owner, |pending| {
            pending.deleted.push((TypeId::of::<K>(), Key::of(object), object.identity().uid.to_owned()));
        });
    }

    /// The owner itself was written.
    pub(crate) fn wrote<K: Object>(&self, owner: &Key, written: &K) {
        let written = version(written.identity().resource_version);
        self.note(owner, |pending| pending.owner = pending.owner.max(written));
    }

    /// The owner is gone.
    pub(crate) fn forget(&self, owner: &Key) {
        self.change(|all| all.remove(owner));
    }

    /// Whether the cached owner is as new as what was written of it.
    pub(crate) fn is_current<K: Object>(&self, owner: &Key, cached: &K) -> bool {
        let now = self.clock.monotonic();
        self.change(|all| {
            all.get(owner).is_none_or(|pending| {
                version(cached.identity().resource_version) >= pending.owner
                    || now.since(pending.since) >= EXPECTATIONS_TIMEOUT
            })
        })
    }

    /// Whether the cache shows all objects of its kind as they were written.
    pub(crate) fn satisfied<K: Object + Resource>(&self, owner: &Key, cache: &SharedIndexInformer<K>) -> bool {
        let now = self.clock.monotonic();
        self.change(|all| {
            let Some(pending) = all.get_mut(owner) else { return true };
            let store = cache.indexer();
            if now.since(pending.since) >= EXPECTATIONS_TIMEOUT {
                pending.created.clear();
                pending.deleted.clear();
            }
            if !pending.created.is_empty() {
                let known = version(&cache.last_sync_resource_version());
                pending.created.retain(|(kind, key, written)| {
                    let seen = || store.get_by_key(key.as_str());
                    let is_older = |object: Arc<K>| version(object.identity().resource_version) < *written;
                    *kind != TypeId::of::<K>() || (known < *written && seen().is_none_or(is_older))
                });
            }
            pending.deleted.retain(|(kind, key, uid)| {
                let still = |seen: Arc<K>| seen.identity().uid == uid && seen.meta().deletion_timestamp().is_none();
                *kind != TypeId::of::<K>() || store.get_by_key(key.as_str()).is_some_and(still)
            });
            pending.created.iter().all(|(kind, ..)| *kind != TypeId::of::<K>())
                && pending.deleted.iter().all(|(kind, ..)| *kind != TypeId::of::<K>())
        })
    }
}
