//! Choosing objects by their labels and by their fields.
//!
//! A [`Selector`] is a list of [`Requirement`]s on labels, all of which must hold. A [`LabelSelector`] is how objects
//! carry one. A [`FieldSelector`] is a list of fields that must have a value, or must not.

mod fields;
mod label_selector;
mod labels;
mod parse;
mod requirement;
#[cfg(test)]
mod tests;

use std::{
    borrow::Borrow,
    collections::{BTreeMap, HashMap},
    hash::{BuildHasher, Hash},
};

pub use fields::{FieldError, FieldRequirement, FieldSelector, escape_value, unescape_value};
pub use label_selector::{LabelSelector, LabelSelectorRequirement};
pub use labels::Selector;
pub use parse::ParseError;
pub use requirement::{Operator, Requirement};

use crate::{Map, Value};

/// Where labels, or fields, are looked up.
pub trait Labels {
    /// The value of `key`.
    fn get(&self, key: &str) -> Option<&str>;
}

impl<L: Labels + ?Sized> Labels for &L {
    fn get(&self, key: &str) -> Option<&str> {
        (**self).get(key)
    }
}

/// How many labels are gone through one by one. Comparing the lengths first, that beats a binary search for as many as
/// objects have.
const FEW: usize = 16;

impl Labels for Map {
    fn get(&self, key: &str) -> Option<&str> {
        if self.len() > FEW {
            return Map::get(self, key).and_then(Value::as_str);
        }
        self.entries().iter().find(|(k, _)| k.as_str() == key).and_then(|(_, value)| value.as_str())
    }
}

impl<K: Borrow<str> + Ord, V: AsRef<str>> Labels for BTreeMap<K, V> {
    fn get(&self, key: &str) -> Option<&str> {
        BTreeMap::get(self, key).map(AsRef::as_ref)
    }
}

impl<K: Borrow<str> + Hash + Eq, V: AsRef<str>, S: BuildHasher> Labels for HashMap<K, V, S> {
    fn get(&self, key: &str) -> Option<&str> {
        HashMap::get(self, key).map(AsRef::as_ref)
    }
}

/// Pairs in any order: objects have few labels, and going through them is quick.
impl<K: AsRef<str>, V: AsRef<str>> Labels for [(K, V)] {
    fn get(&self, key: &str) -> Option<&str> {
        self.iter().find(|(k, _)| k.as_ref() == key).map(|(_, value)| value.as_ref())
    }
}

impl<K: AsRef<str>, V: AsRef<str>, const N: usize> Labels for [(K, V); N] {
    fn get(&self, key: &str) -> Option<&str> {
        Labels::get(self.as_slice(), key)
    }
}

impl<K: AsRef<str>, V: AsRef<str>> Labels for Vec<(K, V)> {
    fn get(&self, key: &str) -> Option<&str> {
        Labels::get(self.as_slice(), key)
    }
}
