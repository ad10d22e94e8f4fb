//! Objects under their keys, with indices that follow them.
//!
//! Here is what knows the type of the objects; `state` does not, and is there once for all types.

mod state;

use std::{collections::BTreeMap, fmt, marker::PhantomData, sync::Arc};

use capstan_api::{Str, object::Object};

use crate::{
    Kept, Key,
    kept::{typed, typed_ref},
};
use state::{AnyIndexFunc, State, Store};

/// The name of the index by namespace, which every store has.
pub const NAMESPACE_INDEX: &str = "namespace";

/// What an object is found by: any number of values.
pub type IndexFunc<K> = Arc<dyn Fn(&K) -> Vec<Str> + Send + Sync>;

/// Index functions by their names.
pub type Indexers<K> = BTreeMap<Str, IndexFunc<K>>;

/// An index that was asked for and is not there.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct IndexError(Str);

impl fmt::Display for IndexError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Index with name {} does not exist", self.0)
    }
}

impl std::error::Error for IndexError {}

/// All objects at one time. It does not change, costs nothing to make, and shares its objects with the store.
///
/// Objects that are [kept](Kept) packed are unpacked as they are handed out.
pub struct Snapshot<K> {
    state: Arc<State>,
    of: PhantomData<fn() -> K>,
}

impl<K> Clone for Snapshot<K> {
    fn clone(&self) -> Self {
        Snapshot { state: Arc::clone(&self.state), of: PhantomData }
    }
}

impl<K> Default for Snapshot<K> {
    fn default() -> Self {
        Snapshot { state: Arc::default(), of: PhantomData }
    }
}

impl<K> fmt::Debug for Snapshot<K> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Snapshot").field("items", &self.len()).finish_non_exhaustive()
    }
}

impl<K> Snapshot<K> {
    /// How many objects there are.
    #[must_use]
    pub fn len(&self) -> usize {
        self.state.items.len()
    }

    /// Whether there are none.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.state.items.is_empty()
    }

    /// All objects as they are kept, in the order of their keys.
    pub fn iter_kept(&self) -> impl Iterator<Item = (&Key, Kept<K>)> {
        self.state.namespace("").map(|(key, kept)| (key, kept.clone().cast()))
    }

    /// The values that an index has.
    ///
    /// # Errors
    /// There is no such index.
    pub fn index_values(&self, index: &str) -> Result<Vec<Str>, IndexError> {
        self.state.index_values(index)
    }
}

impl<K: Object> Snapshot<K> {
    /// The object under a key.
    #[must_use]
    pub fn get(&self, key: &str) -> Option<Arc<K>> {
        self.state.get(key)?.any().and_then(typed)
    }

    /// All objects, in the order of their keys.
    pub fn iter(&self) -> impl Iterator<Item = (&Key, Arc<K>)> {
        self.namespace("")
    }

    /// The objects of a namespace; of all of them when it is empty.
    pub fn namespace<'a>(&'a self, namespace: &'a str) -> impl Iterator<Item = (&'a Key, Arc<K>)> + use<'a, K> {
        self.state.namespace(namespace).filter_map(|(key, kept)| Some((key, typed(kept.any()?)?)))
    }

    /// The objects with a value of an index.
    ///
    /// # Errors
    /// There is no such index.
    pub fn by_index(&self, index: &str, value: &str) -> Result<Vec<Arc<K>>, IndexError> {
        let mut found = Vec::new();
        self.state.by_index(index, value, &mut |object| found.extend(typed(object)))?;
        Ok(found)
    }
}

/// Objects under their keys, with indices, shared between tasks.
///
/// A change and what it means for the indices are seen together. Readers get shared objects that nobody can change;
/// who wants several answers that fit together takes one [`snapshot`](Indexer::snapshot).
pub struct Indexer<K> {
    store: Arc<Store>,
    of: PhantomData<fn() -> K>,
}

/// client-go's name for what the indexer is built on.
pub type ThreadSafeStore<K> = Indexer<K>;

impl<K> Default for Indexer<K> {
    fn default() -> Self {
        Indexer { store: Arc::default(), of: PhantomData }
    }
}

impl<K> fmt::Debug for Indexer<K> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Indexer").finish_non_exhaustive()
    }
}

impl<K> Indexer<K> {
    /// The same store. Who reads it as another type than its objects are of finds none.
    pub(crate) fn cast<T>(&self) -> Indexer<T> {
        Indexer { store: Arc::clone(&self.store), of: PhantomData }
    }

    /// Everything as it is now.
    #[must_use]
    pub fn snapshot(&self) -> Snapshot<K> {
        Snapshot { state: self.store.state(), of: PhantomData }
    }

    /// Puts an object under a key and returns the one that was there.
    pub fn insert(&self, key: &Key, object: impl Into<Kept<K>>) -> Option<Kept<K>> {
        self.store.insert(key, object.into().cast()).map(Kept::cast)
    }

    /// Takes the object from a key.
    pub fn remove(&self, key: &Key) -> Option<Kept<K>> {
        self.store.remove(key).map(Kept::cast)
    }

    /// The object under a key, as it is kept.
    #[must_use]
    pub fn kept(&self, key: &str) -> Option<Kept<K>> {
        self.store.get(key).map(Kept::cast)
    }

    /// Whether there are no objects.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.snapshot().is_empty()
    }

    /// All keys, in order.
    #[must_use]
    pub fn list_keys(&self) -> Vec<Key> {
        self.store.state().keys()
    }
}

impl<K: Object> Indexer<K> {
    /// An empty store with these indices.
    #[must_use]
    pub fn new(indexers: Indexers<K>) -> Self {
        let indexer = Indexer::default();
        indexer.add_indexers(indexers);
        indexer
    }

    /// Adds indices, or puts others in their places. Those that are there already stay.
    pub fn add_indexers(&self, indexers: Indexers<K>) {
        let any = |func: IndexFunc<K>| -> AnyIndexFunc {
            Arc::new(move |object| typed_ref(object).map(|object| func(object)).unwrap_or_default())
        };
        self.store.add_indices(indexers.into_iter().map(|(name, func)| (name, any(func))).collect());
    }

    /// The object under a key.
    #[must_use]
    pub fn get_by_key(&self, key: &str) -> Option<Arc<K>> {
        self.store.get(key)?.any().and_then(typed)
    }

    /// All objects, in the order of their keys.
    #[must_use]
    pub fn list(&self) -> Vec<Arc<K>> {
        self.snapshot().iter().map(|(_, object)| object).collect()
    }

    /// The objects with a value of an index.
    ///
    /// # Errors
    /// There is no such index.
    pub fn by_index(&self, index: &str, value: &str) -> Result<Vec<Arc<K>>, IndexError> {
        self.snapshot().by_index(index, value)
    }
}

#[cfg(test)]
mod tests {
    use capstan_api::Unstructured;

    use super::*;
    use crate::testing::object;

    fn put(indexer: &Indexer<Unstructured>, namespace: &str, name: &str, team: &str) {
        let mut thing = Unstructured::decode(object(name, 1).as_bytes()).expect("it is an object");
        thing.set_namespace(namespace);
        thing.set_uid(team);
        indexer.insert(&Key::of(&thing), Arc::new(thing));
    }

    fn names(found: &[Arc<Unstructured>]) -> String {
        found.iter().map(|object| object.name()).collect::<Vec<_>>().join(" ")
    }

    #[test]
    fn indices_follow() {
        let by_team: IndexFunc<Unstructured> =
            Arc::new(|object| object.uid().split(',').filter(|team| !team.is_empty()).map(Str::from).collect());
        let indexer = Indexer::new(Indexers::from([("early".into(), Arc::clone(&by_team))]));
        let check = |index: &str, value: &str, expected: &str| {
            assert_eq!(names(&indexer.by_index(index, value).unwrap()), expected, "{index} {value}");
        };
        put(&indexer, "one", "a", "red");
        put(&indexer, "one", "b", "red,blue");
        put(&indexer, "one0", "c", "");
        put(&indexer, "", "node", "red");
        let before = indexer.snapshot();
        indexer.add_indexers(Indexers::from([("late".into(), by_team)]));
        for index in ["early", "late"] {
            check(index, "red", "node a b");
            check(index, "blue", "b");
            check(index, "green", "");
        }
        check(NAMESPACE_INDEX, "one", "a b");
        check(NAMESPACE_INDEX, "one0", "c");
        check(NAMESPACE_INDEX, "on", "");
        put(&indexer, "one", "a", "blue");
        indexer.remove(&Key::new("one", "b"));
        indexer.remove(&Key::new("one", "never there"));
        for index in ["early", "late"] {
            check(index, "red", "node");
            check(index, "blue", "a");
        }
        assert_eq!(names(&before.by_index("early", "red").unwrap()), "node a b", "what was seen stays");
        assert_eq!(before.by_index("late", "red").unwrap_err().to_string(), "Index with name late does not exist");
        assert_eq!(indexer.snapshot().index_values("early").unwrap(), ["blue", "red"]);
        assert_eq!(before.index_values(NAMESPACE_INDEX).unwrap(), ["", "one", "one0"]);
        assert_eq!((before.len(), indexer.list_keys().len(), before.is_empty()), (4, 3, false));
    }
}
