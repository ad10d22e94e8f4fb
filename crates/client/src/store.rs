//! Objects under their keys, with indices that follow them.

use std::{
    borrow::Cow,
    collections::BTreeMap,
    fmt,
    ops::Bound,
    panic::{AssertUnwindSafe, catch_unwind},
    sync::{Arc, PoisonError, RwLock},
};

use capstan_api::{Str, object::Object};
use imbl::{OrdMap, OrdSet};

use crate::{Kept, Key};

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

struct Index<K> {
    func: IndexFunc<K>,
    keys: OrdMap<Str, OrdSet<Key>>,
}

impl<K> Clone for Index<K> {
    fn clone(&self) -> Self {
        Index { func: Arc::clone(&self.func), keys: self.keys.clone() }
    }
}

impl<K> Index<K> {
    /// The values of an object: none if the function panics over it, of which the panic hook has told.
    fn values(&self, object: &K) -> Vec<Str> {
        catch_unwind(AssertUnwindSafe(|| (self.func)(object))).unwrap_or_default()
    }

    fn insert(&mut self, key: &Key, object: &K) {
        for value in self.values(object) {
            self.keys.entry(value).or_default().insert(key.clone());
        }
    }

    fn remove(&mut self, key: &Key, object: &K) {
        for value in self.values(object) {
            if let Some(keys) = self.keys.get_mut(&value) {
                keys.remove(key);
                if keys.is_empty() {
                    self.keys.remove(&value);
                }
            }
        }
    }
}

/// All objects at one time. It does not change, costs nothing to make, and shares its objects with the store.
///
/// Objects that are [kept](Kept) packed are unpacked as they are handed out.
pub struct Snapshot<K> {
    items: OrdMap<Key, Kept<K>>,
    indices: BTreeMap<Str, Index<K>>,
}

impl<K> Clone for Snapshot<K> {
    fn clone(&self) -> Self {
        Snapshot { items: self.items.clone(), indices: self.indices.clone() }
    }
}

impl<K> Default for Snapshot<K> {
    fn default() -> Self {
        Snapshot { items: OrdMap::new(), indices: BTreeMap::new() }
    }
}

impl<K> fmt::Debug for Snapshot<K> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Snapshot").field("items", &self.items.len()).finish_non_exhaustive()
    }
}

impl<K: Object> Snapshot<K> {
    /// How many objects there are.
    #[must_use]
    pub fn len(&self) -> usize {
        self.items.len()
    }

    /// Whether there are none.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.items.is_empty()
    }

    /// The object under a key.
    #[must_use]
    pub fn get(&self, key: &str) -> Option<Arc<K>> {
        self.items.get(key)?.object()
    }

    /// All objects, in the order of their keys.
    pub fn iter(&self) -> impl Iterator<Item = (&Key, Arc<K>)> {
        self.iter_kept().filter_map(unpacked)
    }

    /// The same, as they are kept.
    pub fn iter_kept(&self) -> impl Iterator<Item = (&Key, &Kept<K>)> {
        self.items.iter()
    }

    /// The objects of a namespace; of all of them when it is empty.
    pub fn namespace<'a>(&'a self, namespace: &'a str) -> impl Iterator<Item = (&'a Key, Arc<K>)> + use<'a, K> {
        // Keys are sorted and begin with the namespace, so a namespace is a range. A slash ends the namespace.
        let prefix: Cow<'a, str> =
            if namespace.is_empty() { Cow::Borrowed("") } else { Cow::Owned(format!("{namespace}/")) };
        let start = prefix.clone();
        let range = (Bound::Included(start.as_ref()), Bound::Unbounded);
        let objects = self.items.range::<_, str>(range).take_while(move |(key, _)| key.as_str().starts_with(&*prefix));
        objects.filter_map(unpacked)
    }

    /// The objects with a value of an index.
    ///
    /// # Errors
    /// There is no such index.
    pub fn by_index(&self, index: &str, value: &str) -> Result<Vec<Arc<K>>, IndexError> {
        if let Some(index) = self.indices.get(index) {
            let keys = index.keys.get(value).into_iter().flatten();
            return Ok(keys.filter_map(|key| self.items.get(key)?.object()).collect());
        }
        if index == NAMESPACE_INDEX {
            return Ok(self.namespace(value).map(|(_, object)| object).collect());
        }
        Err(IndexError(index.into()))
    }

    /// The values that an index has.
    ///
    /// # Errors
    /// There is no such index.
    pub fn index_values(&self, index: &str) -> Result<Vec<Str>, IndexError> {
        if let Some(index) = self.indices.get(index) {
            return Ok(index.keys.keys().cloned().collect());
        }
        if index == NAMESPACE_INDEX {
            let mut values: Vec<Str> = self.items.keys().map(|key| key.namespace().into()).collect();
            values.dedup();
            return Ok(values);
        }
        Err(IndexError(index.into()))
    }
}

fn unpacked<'a, K: Object>((key, kept): (&'a Key, &'a Kept<K>)) -> Option<(&'a Key, Arc<K>)> {
    Some((key, kept.object()?))
}

/// Objects under their keys, with indices, shared between tasks.
///
/// A change and what it means for the indices are seen together. Readers get shared objects that nobody can change;
/// who wants several answers that fit together takes one [`snapshot`](Indexer::snapshot).
pub struct Indexer<K> {
    state: RwLock<Snapshot<K>>,
}

/// client-go's name for what the indexer is built on.
pub type ThreadSafeStore<K> = Indexer<K>;

impl<K> Default for Indexer<K> {
    fn default() -> Self {
        Indexer { state: RwLock::default() }
    }
}

impl<K> fmt::Debug for Indexer<K> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Indexer").finish_non_exhaustive()
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
        self.change(|state| {
            for (name, func) in indexers {
                let mut index = Index { func, keys: OrdMap::new() };
                state.iter().for_each(|(key, object)| index.insert(key, &object));
                state.indices.insert(name, index);
            }
        });
    }

    /// Everything as it is now.
    #[must_use]
    pub fn snapshot(&self) -> Snapshot<K> {
        // Nothing panics under the lock.
        self.state.read().unwrap_or_else(PoisonError::into_inner).clone()
    }

    fn change<R>(&self, change: impl FnOnce(&mut Snapshot<K>) -> R) -> R {
        change(&mut self.state.write().unwrap_or_else(PoisonError::into_inner))
    }

    /// Puts an object under a key and returns the one that was there.
    pub fn insert(&self, key: &Key, object: impl Into<Kept<K>>) -> Option<Kept<K>> {
        let object = object.into();
        self.warm(key, Some(&object));
        self.change(|state| {
            let old = state.items.insert(key.clone(), object.clone());
            if !state.indices.is_empty() && !old.as_ref().is_some_and(|old| old.ptr_eq(&object)) {
                let (before, after) = (old.as_ref().and_then(Kept::object), object.object());
                for index in state.indices.values_mut() {
                    before.iter().for_each(|before| index.remove(key, before));
                    after.iter().for_each(|after| index.insert(key, after));
                }
            }
            old
        })
    }

    /// Unpacks what indices will be asked about, so that nobody has to wait for that behind the lock.
    fn warm(&self, key: &Key, object: Option<&Kept<K>>) {
        let state = self.state.read().unwrap_or_else(PoisonError::into_inner);
        if state.indices.is_empty() {
            return;
        }
        let old = state.items.get(key).cloned();
        drop(state);
        for kept in old.iter().chain(object) {
            let _ = kept.object();
        }
    }

    /// Takes the object from a key.
    pub fn remove(&self, key: &Key) -> Option<Kept<K>> {
        self.warm(key, None);
        self.change(|state| {
            let old = state.items.remove(key)?;
            if !state.indices.is_empty()
                && let Some(object) = old.object()
            {
                state.indices.values_mut().for_each(|index| index.remove(key, &object));
            }
            Some(old)
        })
    }

    /// The object under a key.
    #[must_use]
    pub fn get_by_key(&self, key: &str) -> Option<Arc<K>> {
        self.kept(key)?.object()
    }

    /// The object under a key, as it is kept.
    #[must_use]
    pub fn kept(&self, key: &str) -> Option<Kept<K>> {
        self.state.read().unwrap_or_else(PoisonError::into_inner).items.get(key).cloned()
    }

    /// Whether there are no objects.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.state.read().unwrap_or_else(PoisonError::into_inner).is_empty()
    }

    /// All keys, in order.
    #[must_use]
    pub fn list_keys(&self) -> Vec<Key> {
        self.snapshot().items.keys().cloned().collect()
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
