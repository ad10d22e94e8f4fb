//! Objects under their keys, with indices that follow them.
//!
//! The [`Indexer`] and its [`Snapshot`] know the type of the objects; what they are made of does not, and is there once
//! for all types.

use std::{
    borrow::Cow,
    collections::BTreeMap,
    fmt,
    marker::PhantomData,
    ops::Bound,
    panic::{AssertUnwindSafe, catch_unwind},
    sync::{Arc, PoisonError, RwLock},
};

use capstan_api::{Str, object::Object};
use imbl::{OrdMap, OrdSet, ordmap::RangedIter, shared_ptr::DefaultSharedPtr};

use crate::{
    Kept, Key,
    kept::{AnyObject, Erased, typed, typed_ref},
};

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

/// An index function, whatever its objects are.
type AnyIndexFunc = Arc<dyn Fn(&dyn AnyObject) -> Vec<Str> + Send + Sync>;

fn any_index_func<K: Object>(func: IndexFunc<K>) -> AnyIndexFunc {
    Arc::new(move |object| typed_ref(object).map(|object| func(object)).unwrap_or_default())
}

#[derive(Clone)]
struct Index {
    func: AnyIndexFunc,
    keys: OrdMap<Str, OrdSet<Key>>,
}

impl Index {
    /// The values of an object: none if the function panics over it, of which the panic hook has told.
    fn values(&self, object: &dyn AnyObject) -> Vec<Str> {
        catch_unwind(AssertUnwindSafe(|| (self.func)(object))).unwrap_or_default()
    }

    fn insert(&mut self, key: &Key, object: &dyn AnyObject) {
        for value in self.values(object) {
            self.keys.entry(value).or_default().insert(key.clone());
        }
    }

    fn remove(&mut self, key: &Key, object: &dyn AnyObject) {
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

/// All objects at one time, and the indices.
#[derive(Clone, Default)]
struct State {
    items: OrdMap<Key, Kept<Erased>>,
    indices: BTreeMap<Str, Index>,
}

impl State {
    fn get(&self, key: &str) -> Option<&Kept<Erased>> {
        self.items.get(key)
    }

    /// The objects of a namespace; of all of them when it is empty.
    fn namespace<'a>(&'a self, namespace: &'a str) -> Namespace<'a> {
        // Keys are sorted and begin with the namespace, so a namespace is a range. A slash ends the namespace.
        let prefix: Cow<'a, str> =
            if namespace.is_empty() { Cow::Borrowed("") } else { Cow::Owned(format!("{namespace}/")) };
        let items = self.items.range::<_, str>((Bound::Included(prefix.as_ref()), Bound::Unbounded));
        Namespace { items, prefix }
    }

    /// Shows the objects with a value of an index.
    fn by_index(&self, index: &str, value: &str, show: &mut dyn FnMut(Arc<dyn AnyObject>)) -> Result<(), IndexError> {
        if let Some(index) = self.indices.get(index) {
            let keys = index.keys.get(value).into_iter().flatten();
            keys.filter_map(|key| self.items.get(key)?.any()).for_each(show);
            return Ok(());
        }
        if index == NAMESPACE_INDEX {
            self.namespace(value).filter_map(|(_, kept)| kept.any()).for_each(show);
            return Ok(());
        }
        Err(IndexError(index.into()))
    }

    fn index_values(&self, index: &str) -> Result<Vec<Str>, IndexError> {
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

    fn add_indices(&mut self, funcs: BTreeMap<Str, AnyIndexFunc>) {
        for (name, func) in funcs {
            let mut index = Index { func, keys: OrdMap::new() };
            for (key, object) in self.items.iter().filter_map(|(key, kept)| Some((key, kept.any()?))) {
                index.insert(key, &*object);
            }
            self.indices.insert(name, index);
        }
    }

    fn insert(&mut self, key: &Key, object: Kept<Erased>) -> Option<Kept<Erased>> {
        let old = self.items.insert(key.clone(), object.clone());
        if !self.indices.is_empty() && !old.as_ref().is_some_and(|old| old.ptr_eq(&object)) {
            let (before, after) = (old.as_ref().and_then(Kept::any), object.any());
            for index in self.indices.values_mut() {
                before.iter().for_each(|before| index.remove(key, &**before));
                after.iter().for_each(|after| index.insert(key, &**after));
            }
        }
        old
    }

    fn remove(&mut self, key: &Key) -> Option<Kept<Erased>> {
        let old = self.items.remove(key)?;
        if !self.indices.is_empty()
            && let Some(object) = old.any()
        {
            self.indices.values_mut().for_each(|index| index.remove(key, &*object));
        }
        Some(old)
    }
}

/// The objects of a namespace, in the order of their keys.
struct Namespace<'a> {
    items: RangedIter<'a, Key, Kept<Erased>, DefaultSharedPtr>,
    prefix: Cow<'a, str>,
}

impl<'a> Iterator for Namespace<'a> {
    type Item = (&'a Key, &'a Kept<Erased>);

    fn next(&mut self) -> Option<Self::Item> {
        self.items.next().filter(|(key, _)| key.as_str().starts_with(&*self.prefix))
    }
}

/// A state that changes.
#[derive(Default)]
struct Store(RwLock<Arc<State>>);

impl Store {
    fn state(&self) -> Arc<State> {
        // Nothing panics under the lock.
        Arc::clone(&self.0.read().unwrap_or_else(PoisonError::into_inner))
    }

    /// Changes the state. Who has looked at it keeps what was seen.
    fn change<R>(&self, change: impl FnOnce(&mut State) -> R) -> R {
        change(Arc::make_mut(&mut self.0.write().unwrap_or_else(PoisonError::into_inner)))
    }

    fn get(&self, key: &str) -> Option<Kept<Erased>> {
        self.0.read().unwrap_or_else(PoisonError::into_inner).get(key).cloned()
    }

    fn add_indices(&self, funcs: BTreeMap<Str, AnyIndexFunc>) {
        self.change(|state| state.add_indices(funcs));
    }

    fn insert(&self, key: &Key, object: Kept<Erased>) -> Option<Kept<Erased>> {
        self.warm(key, Some(&object));
        self.change(|state| state.insert(key, object))
    }

    fn remove(&self, key: &Key) -> Option<Kept<Erased>> {
        self.warm(key, None);
        self.change(|state| state.remove(key))
    }

    /// Unpacks what indices will be asked about, so that nobody has to wait for that behind the lock.
    fn warm(&self, key: &Key, object: Option<&Kept<Erased>>) {
        let state = self.0.read().unwrap_or_else(PoisonError::into_inner);
        if state.indices.is_empty() {
            return;
        }
        let old = state.items.get(key).cloned();
        drop(state);
        for kept in old.iter().chain(object) {
            let _ = kept.any();
        }
    }
}

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

    /// All keys, in order.
    pub(crate) fn keys(&self) -> impl Iterator<Item = &Key> {
        self.state.items.keys()
    }

    /// The object under a key, as it is kept.
    pub(crate) fn kept(&self, key: &str) -> Option<Kept<K>> {
        self.state.get(key).cloned().map(Kept::cast)
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
        self.snapshot().keys().cloned().collect()
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
        let indexers = indexers.into_iter().map(|(name, func)| (name, any_index_func(func))).collect();
        self.store.add_indices(indexers);
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
