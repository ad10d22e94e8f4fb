//! Reading a cache as one would read the server.

use std::{fmt, sync::Arc};

use capstan_api::{object::Object, selector::Selector};

use crate::{Key, store::Indexer};

/// Reads the objects of an informer. What it returns is shared and cannot be changed: clone an object to change it.
pub struct Lister<K> {
    indexer: Arc<Indexer<K>>,
}

impl<K> Clone for Lister<K> {
    fn clone(&self) -> Self {
        Lister { indexer: Arc::clone(&self.indexer) }
    }
}

impl<K> fmt::Debug for Lister<K> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Lister")
    }
}

impl<K: Object> Lister<K> {
    /// Reads from this store.
    #[must_use]
    pub fn new(indexer: Arc<Indexer<K>>) -> Self {
        Lister { indexer }
    }

    /// The selected objects of all namespaces, in the order of their keys.
    #[must_use]
    pub fn list(&self, selector: &Selector) -> Vec<Arc<K>> {
        self.namespace("").list(selector)
    }

    /// The object under a key.
    #[must_use]
    pub fn get(&self, key: &Key) -> Option<Arc<K>> {
        self.indexer.get_by_key(key.as_str())
    }

    /// Reads one namespace.
    #[must_use]
    pub fn namespace<'a>(&'a self, namespace: &'a str) -> NamespaceLister<'a, K> {
        NamespaceLister { indexer: &self.indexer, namespace }
    }
}

/// Reads the objects of one namespace.
#[derive(Debug)]
pub struct NamespaceLister<'a, K> {
    indexer: &'a Indexer<K>,
    namespace: &'a str,
}

impl<K: Object> NamespaceLister<'_, K> {
    /// The selected objects of the namespace, in the order of their names.
    #[must_use]
    pub fn list(&self, selector: &Selector) -> Vec<Arc<K>> {
        let snapshot = self.indexer.snapshot();
        let objects = snapshot.namespace(self.namespace).map(|(_, object)| object);
        objects.filter(|object| object.is_selected(selector)).collect()
    }

    /// The object of this name.
    #[must_use]
    pub fn get(&self, name: &str) -> Option<Arc<K>> {
        self.indexer.get_by_key(Key::new(self.namespace, name).as_str())
    }
}
