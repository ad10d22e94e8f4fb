//! What many objects have in common is kept once: pods of one template differ in little.

use std::{
    any::{Any, TypeId},
    hash::{DefaultHasher, Hash, Hasher},
    ops::Deref,
    sync::{Arc, Mutex, PoisonError, Weak},
};

use capstan_api::object::OwnerReference;
use serde::{Deserialize, Deserializer};

/// How many values are remembered to be shared. A value whose place another one has taken is merely kept once more.
const SLOTS: usize = 2048;

/// What was read last, by its hash. Who reads an object has no place to look for others, so this one is everybody's;
/// nobody is kept by it.
static KNOWN: Mutex<Vec<Option<Box<dyn Any + Send>>>> = Mutex::new(Vec::new());

/// A part of an object that others are likely to have too.
#[derive(Debug, Default, PartialEq, Eq, Hash)]
pub(crate) struct Shared<T>(Arc<T>);

/// A list of which others are likely to have the same.
pub(crate) type List<T> = Shared<Box<[T]>>;

impl<T> Clone for Shared<T> {
    fn clone(&self) -> Self {
        Shared(Arc::clone(&self.0))
    }
}

impl<T> Deref for Shared<T> {
    type Target = T;

    fn deref(&self) -> &T {
        &self.0
    }
}

impl<'a, T> IntoIterator for &'a List<T> {
    type Item = &'a T;
    type IntoIter = std::slice::Iter<'a, T>;

    fn into_iter(self) -> Self::IntoIter {
        self.0.iter()
    }
}

impl<T: Clone> Shared<T> {
    /// The value, to be changed for this one.
    pub(crate) fn to_mut(&mut self) -> &mut T {
        Arc::make_mut(&mut self.0)
    }
}

impl<T: Hash + Eq + Send + Sync + 'static> From<T> for Shared<T> {
    fn from(value: T) -> Self {
        let mut hasher = DefaultHasher::new();
        (TypeId::of::<T>(), &value).hash(&mut hasher);
        // Nothing panics under the lock that would leave it half done.
        let mut known = KNOWN.lock().unwrap_or_else(PoisonError::into_inner);
        known.resize_with(SLOTS, || None);
        let slot = usize::try_from(hasher.finish() % SLOTS as u64).unwrap_or_default();
        let there = known[slot].as_ref().and_then(|there| there.downcast_ref::<Weak<T>>()?.upgrade());
        if let Some(same) = there.filter(|there| **there == value) {
            return Shared(same);
        }
        let value = Arc::new(value);
        known[slot] = Some(Box::new(Arc::downgrade(&value)));
        Shared(value)
    }
}

impl<'de, T: Deserialize<'de> + Hash + Eq + Send + Sync + 'static> Deserialize<'de> for Shared<T> {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        T::deserialize(deserializer).map(Shared::from)
    }
}

/// Whom an object belongs to. Its siblings belong to the same.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Owners(Option<Shared<References>>);

#[derive(Debug, PartialEq, Eq)]
struct References(Box<[OwnerReference]>);

impl Hash for References {
    fn hash<H: Hasher>(&self, state: &mut H) {
        self.0.iter().for_each(|owner| owner.uid.hash(state));
    }
}

impl Deref for Owners {
    type Target = [OwnerReference];

    fn deref(&self) -> &[OwnerReference] {
        self.0.as_ref().map(|owners| &*owners.0.0).unwrap_or_default()
    }
}

impl From<Vec<OwnerReference>> for Owners {
    fn from(owners: Vec<OwnerReference>) -> Self {
        Owners((!owners.is_empty()).then(|| Shared::from(References(owners.into()))))
    }
}

impl<'de> Deserialize<'de> for Owners {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        Option::<Vec<OwnerReference>>::deserialize(deserializer).map(|owners| owners.unwrap_or_default().into())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn equal_values_are_one() {
        let (a, b): (List<u8>, List<u8>) = (Shared::from(Box::from([1, 2])), Shared::from(Box::from([1, 2])));
        assert!(Arc::ptr_eq(&a.0, &b.0));
        let mut c = b.clone();
        c.to_mut()[0] = 7;
        assert_eq!((a[0], b[0], c[0]), (1, 1, 7));
        // Of another type, or with other content, it is another one.
        assert_eq!(*Shared::from(vec![1_u8, 2]), [1, 2]);
        assert_ne!(a, Shared::from(Box::from([1, 3])));
    }
}
