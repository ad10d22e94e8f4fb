//! An informer's objects with one's own writes laid over them, until the informer has them too.

use std::{
    collections::HashMap,
    sync::{Arc, Mutex, PoisonError},
};

use capstan_api::{object::Object, selector::Selector};
use capstan_client::{Key, SharedIndexInformer};

/// Reads an informer and what was written since. What has been caught up with is dropped on reading, so the overlay
/// holds no more than the writes that are on their way.
pub(crate) struct Overlay<K> {
    informer: SharedIndexInformer<K>,
    written: Mutex<HashMap<Key, Arc<K>>>,
}

fn version<K: Object>(object: &K) -> u64 {
    object.identity().resource_version.parse().unwrap_or_default()
}

impl<K: Object> Overlay<K> {
    /// Over this informer.
    pub(crate) fn new(informer: SharedIndexInformer<K>) -> Self {
        Overlay { informer, written: Mutex::default() }
    }

    /// The informer below.
    pub(crate) fn informer(&self) -> &SharedIndexInformer<K> {
        &self.informer
    }

    /// This was written.
    pub(crate) fn note(&self, object: K) -> Arc<K> {
        let object = Arc::new(object);
        let mut written = self.written.lock().unwrap_or_else(PoisonError::into_inner);
        written.insert(Key::of(&*object), Arc::clone(&object));
        object
    }

    /// The newest that is known of an object.
    pub(crate) fn get(&self, key: &Key) -> Option<Arc<K>> {
        let seen = self.informer.last_sync_resource_version().parse::<u64>().unwrap_or(u64::MAX);
        let known = self.informer.lister().get(key);
        let mut written = self.written.lock().unwrap_or_else(PoisonError::into_inner);
        match written.get(key) {
            Some(own) if version(&**own) > seen => Some(Arc::clone(own)),
            Some(_) => {
                written.remove(key);
                known
            }
            None => known,
        }
    }

    /// All objects, each as it is newest.
    pub(crate) fn list(&self) -> Vec<Arc<K>> {
        let mut objects: HashMap<Key, Arc<K>> = (self.informer.lister().list(&Selector::default()).into_iter())
            .map(|object| (Key::of(&*object), object))
            .collect();
        let own: Vec<Key> = self.written.lock().unwrap_or_else(PoisonError::into_inner).keys().cloned().collect();
        for key in own {
            match self.get(&key) {
                Some(object) => objects.insert(key, object),
                None => objects.remove(&key),
            };
        }
        let mut objects: Vec<_> = objects.into_iter().collect();
        objects.sort_by(|(one, _), (other, _)| one.cmp(other));
        objects.into_iter().map(|(_, object)| object).collect()
    }
}
