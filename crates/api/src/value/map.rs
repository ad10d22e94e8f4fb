//! A map with sorted keys, kept in one piece of memory.

use std::{fmt, mem};

use super::{Value, dismantle};
use crate::Str;

/// Up to so many fields are looked through one by one: most differ in length, which is cheaper to see than which of two
/// comes first.
const FEW: usize = 16;

/// The fields of an object, sorted by key.
///
/// Kubernetes' objects have few fields each, so a sorted vector is smaller and faster than a tree: looking up is a
/// search in place, inserting moves what comes after.
#[derive(Default)]
pub struct Map(Vec<(Str, Value)>);

impl Map {
    /// The empty map.
    #[must_use]
    pub const fn new() -> Self {
        Map(Vec::new())
    }

    /// From entries in any order; of entries with the same key the last one counts. Calls `duplicate` with each key
    /// that stood there before.
    pub fn from_entries(mut entries: Vec<(Str, Value)>, mut duplicate: impl FnMut(&str)) -> Self {
        // Most documents are written by programs that sort.
        if !entries.is_sorted_by(|(a, _), (b, _)| a < b) {
            entries.sort_by(|(a, _), (b, _)| a.cmp(b));
            // The sort is stable: the later of two is behind. Swapping before removing keeps the later one.
            entries.dedup_by(|later, earlier| {
                let same = later.0 == earlier.0;
                if same {
                    duplicate(&later.0);
                    mem::swap(later, earlier);
                }
                same
            });
        }
        Map(entries)
    }

    fn find(&self, key: &str) -> Result<usize, usize> {
        self.0.binary_search_by(|(k, _)| k.as_str().cmp(key))
    }

    /// Where `key` is, for those who don't want to know where it would be.
    fn position(&self, key: &str) -> Option<usize> {
        if self.0.len() > FEW {
            return self.find(key).ok();
        }
        self.0.iter().position(|(k, _)| k.as_bytes() == key.as_bytes())
    }

    /// How many fields there are.
    #[must_use]
    pub fn len(&self) -> usize {
        self.0.len()
    }

    /// Whether there is no field.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// Whether there is a field `key`.
    #[must_use]
    pub fn contains_key(&self, key: &str) -> bool {
        self.position(key).is_some()
    }

    /// The value of `key`.
    #[must_use]
    pub fn get(&self, key: &str) -> Option<&Value> {
        self.position(key).map(|at| &self.0[at].1)
    }

    /// The value of `key`.
    pub fn get_mut(&mut self, key: &str) -> Option<&mut Value> {
        self.position(key).map(|at| &mut self.0[at].1)
    }

    /// Sets `key` and returns what it was.
    pub fn insert(&mut self, key: impl AsRef<str> + Into<Str>, value: impl Into<Value>) -> Option<Value> {
        match self.find(key.as_ref()) {
            Ok(at) => Some(mem::replace(&mut self.0[at].1, value.into())),
            Err(at) => {
                self.0.insert(at, (key.into(), value.into()));
                None
            }
        }
    }

    /// Removes `key` and returns what it was.
    pub fn remove(&mut self, key: &str) -> Option<Value> {
        self.position(key).map(|at| self.0.remove(at).1)
    }

    /// The value of `key`, made by `make` if there was none.
    pub fn get_or_insert_with(&mut self, key: &str, make: impl FnOnce() -> Value) -> &mut Value {
        let at = self.find(key).unwrap_or_else(|at| {
            self.0.insert(at, (key.into(), make()));
            at
        });
        &mut self.0[at].1
    }

    /// Keeps the fields for which `keep` says so.
    pub fn retain(&mut self, mut keep: impl FnMut(&str, &mut Value) -> bool) {
        self.0.retain_mut(|(key, value)| keep(key, value));
    }

    /// The entries in the order of their keys.
    #[must_use]
    pub fn entries(&self) -> &[(Str, Value)] {
        &self.0
    }

    /// The entries in the order of their keys, with values that can be changed.
    pub fn iter_mut(&mut self) -> impl DoubleEndedIterator<Item = (&str, &mut Value)> + ExactSizeIterator {
        self.0.iter_mut().map(|(key, value)| (key.as_str(), value))
    }

    /// The entries in the order of their keys.
    pub fn iter(&self) -> impl DoubleEndedIterator<Item = (&str, &Value)> + ExactSizeIterator {
        self.0.iter().map(|(key, value)| (key.as_str(), value))
    }

    /// The keys in order.
    pub fn keys(&self) -> impl DoubleEndedIterator<Item = &str> + ExactSizeIterator {
        self.0.iter().map(|(key, _)| key.as_str())
    }

    /// The values in the order of their keys.
    pub fn values(&self) -> impl DoubleEndedIterator<Item = &Value> + ExactSizeIterator {
        self.0.iter().map(|(_, value)| value)
    }

    /// The values in the order of their keys, taken out.
    pub fn into_values(self) -> impl Iterator<Item = Value> {
        self.into_entries().into_iter().map(|(_, value)| value)
    }

    /// A map of the same keys with other values.
    pub(super) fn map_values(&self, value: impl Fn(&Value) -> Value) -> Map {
        Map(self.0.iter().map(|(key, old)| (key.clone(), value(old))).collect())
    }

    /// The entries in the order of their keys, taken out.
    #[must_use]
    pub fn into_entries(mut self) -> Vec<(Str, Value)> {
        mem::take(&mut self.0)
    }
}

impl FromIterator<(Str, Value)> for Map {
    fn from_iter<I: IntoIterator<Item = (Str, Value)>>(entries: I) -> Self {
        Map::from_entries(entries.into_iter().collect(), |_| {})
    }
}

impl IntoIterator for Map {
    type Item = (Str, Value);
    type IntoIter = std::vec::IntoIter<(Str, Value)>;

    fn into_iter(self) -> Self::IntoIter {
        self.into_entries().into_iter()
    }
}

impl Drop for Map {
    fn drop(&mut self) {
        if self.0.iter().any(|(_, value)| value.is_container()) {
            dismantle(self.0.iter_mut().map(|(_, value)| value));
        }
    }
}

impl Clone for Map {
    fn clone(&self) -> Self {
        Map(self.0.clone())
    }
}

impl PartialEq for Map {
    fn eq(&self, other: &Self) -> bool {
        self.0 == other.0
    }
}

impl fmt::Debug for Map {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_map().entries(self.iter()).finish()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_last_of_equal_keys_counts_and_the_others_are_told() {
        let entries = ["b", "a", "b", "c", "b"].iter().zip(0..).map(|(&k, v)| (k.into(), Value::Int(v))).collect();
        let mut told = Vec::new();
        let map = Map::from_entries(entries, |key| told.push(key.to_owned()));
        assert_eq!(
            map.iter().map(|(k, v)| (k, v.as_i64().unwrap())).collect::<Vec<_>>(),
            [("a", 1), ("b", 4), ("c", 3)]
        );
        assert_eq!(told, ["b", "b"]);
    }

    #[test]
    fn insert_get_remove() {
        let mut map = Map::new();
        assert_eq!(map.insert("b", 1), None);
        assert_eq!(map.insert("a", 2), None);
        assert_eq!(map.insert("b", 3), Some(Value::Int(1)));
        assert_eq!(map.keys().collect::<Vec<_>>(), ["a", "b"]);
        assert_eq!(map.get("b"), Some(&Value::Int(3)));
        assert_eq!(map.remove("a"), Some(Value::Int(2)));
        assert_eq!(map.remove("a"), None);
        *map.get_or_insert_with("z", || Value::Null) = true.into();
        assert_eq!(map.get("z"), Some(&Value::Bool(true)));
    }
}
