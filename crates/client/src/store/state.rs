//! A store, whatever its objects are.

use std::{
    borrow::Cow,
    collections::BTreeMap,
    ops::Bound,
    panic::{AssertUnwindSafe, catch_unwind},
    sync::{Arc, PoisonError, RwLock},
};

use capstan_api::Str;
use imbl::{OrdMap, OrdSet, ordmap::RangedIter, shared_ptr::DefaultSharedPtr};

use super::{IndexError, NAMESPACE_INDEX};
use crate::{
    Kept, Key,
    kept::{AnyObject, Erased},
};

/// An index function, whatever its objects are.
pub(super) type AnyIndexFunc = Arc<dyn Fn(&dyn AnyObject) -> Vec<Str> + Send + Sync>;

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
pub(super) struct State {
    pub(super) items: OrdMap<Key, Kept<Erased>>,
    indices: BTreeMap<Str, Index>,
}

impl State {
    pub(super) fn get(&self, key: &str) -> Option<&Kept<Erased>> {
        self.items.get(key)
    }

    pub(super) fn keys(&self) -> Vec<Key> {
        self.items.keys().cloned().collect()
    }

    /// The objects of a namespace; of all of them when it is empty.
    pub(super) fn namespace<'a>(&'a self, namespace: &'a str) -> Namespace<'a> {
        // Keys are sorted and begin with the namespace, so a namespace is a range. A slash ends the namespace.
        let prefix: Cow<'a, str> =
            if namespace.is_empty() { Cow::Borrowed("") } else { Cow::Owned(format!("{namespace}/")) };
        let items = self.items.range::<_, str>((Bound::Included(prefix.as_ref()), Bound::Unbounded));
        Namespace { items, prefix }
    }

    /// Shows the objects with a value of an index.
    pub(super) fn by_index(
        &self,
        index: &str,
        value: &str,
        show: &mut dyn FnMut(Arc<dyn AnyObject>),
    ) -> Result<(), IndexError> {
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

    pub(super) fn index_values(&self, index: &str) -> Result<Vec<Str>, IndexError> {
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
pub(super) struct Namespace<'a> {
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
pub(super) struct Store(RwLock<Arc<State>>);

impl Store {
    pub(super) fn state(&self) -> Arc<State> {
        // Nothing panics under the lock.
        Arc::clone(&self.0.read().unwrap_or_else(PoisonError::into_inner))
    }

    /// Changes the state. Who has looked at it keeps what was seen.
    fn change<R>(&self, change: impl FnOnce(&mut State) -> R) -> R {
        change(Arc::make_mut(&mut self.0.write().unwrap_or_else(PoisonError::into_inner)))
    }

    pub(super) fn get(&self, key: &str) -> Option<Kept<Erased>> {
        self.0.read().unwrap_or_else(PoisonError::into_inner).get(key).cloned()
    }

    pub(super) fn add_indices(&self, funcs: BTreeMap<Str, AnyIndexFunc>) {
        self.change(|state| state.add_indices(funcs));
    }

    pub(super) fn insert(&self, key: &Key, object: Kept<Erased>) -> Option<Kept<Erased>> {
        self.warm(key, Some(&object));
        self.change(|state| state.insert(key, object))
    }

    pub(super) fn remove(&self, key: &Key) -> Option<Kept<Erased>> {
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
