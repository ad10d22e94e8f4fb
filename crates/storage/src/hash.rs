//! The consistency hash: one number for all that a store holds.

use crate::{KeyValue, Revision};

/// What a store holds at a revision, in one number: equal stores give equal hashes, on whatever engine.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ConsistencyHash {
    /// The revision of the state.
    pub revision: Revision,
    /// How many keys there are.
    pub keys: u64,
    /// The sum (modulo 2⁶⁴) of every item's hash, see [`ConsistencyHasher`].
    pub hash: u64,
}

/// Makes a [`ConsistencyHash`] from items in any order.
///
/// An item's hash is taken over its key, its modification revision and its value, and the hashes are added up. So the
/// order does not matter: an engine may go through its keys as it likes, in parallel, or keep the sum up to date with
/// every commit ([`add`](ConsistencyHasher::add), [`remove`](ConsistencyHasher::remove)). Lifetimes are not part of it,
/// because etcd does not tell them with the key. It finds differences by accident, not those by intent.
///
/// The item's hash, exactly: start at 0x243f6a8885a308d3; take in the length of the key, the key, the modification
/// revision, the length of the value, the value; numbers as one little-endian 64-bit word, bytes as such words with the
/// last filled up with zeros; each word is taken in by `h = fold((h ^ word) × 0x9e3779b97f4a7c15)`, where `fold` is the
/// upper half of the 128-bit product exclusive-or the lower; and a last word of 0x13198a2e03707344.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct ConsistencyHasher {
    keys: u64,
    hash: u64,
}

impl ConsistencyHasher {
    /// Takes an item in.
    pub fn add(&mut self, item: &KeyValue) {
        self.keys = self.keys.wrapping_add(1);
        self.hash = self.hash.wrapping_add(item_hash(item));
    }

    /// Takes an item out that was in.
    pub fn remove(&mut self, item: &KeyValue) {
        self.keys = self.keys.wrapping_sub(1);
        self.hash = self.hash.wrapping_sub(item_hash(item));
    }

    /// The hash of the items that are in.
    #[must_use]
    pub fn at(self, revision: Revision) -> ConsistencyHash {
        ConsistencyHash { revision, keys: self.keys, hash: self.hash }
    }
}

fn item_hash(item: &KeyValue) -> u64 {
    let mut mix = Mix::new();
    mix.number(item.key.len() as u64);
    mix.bytes(&item.key);
    mix.number(item.mod_revision.0);
    mix.number(item.value.len() as u64);
    mix.bytes(&item.value);
    mix.finish()
}

/// The mixing of words that both the hash and the checksum of snapshots use.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Mix(u64);

impl Mix {
    pub(crate) const fn new() -> Self {
        Mix(0x243f_6a88_85a3_08d3)
    }

    pub(crate) fn number(&mut self, word: u64) {
        let product = u128::from(self.0 ^ word) * 0x9e37_79b9_7f4a_7c15;
        self.0 = (product >> 64) as u64 ^ product as u64;
    }

    pub(crate) fn bytes(&mut self, bytes: &[u8]) {
        let (words, rest) = bytes.as_chunks::<8>();
        words.iter().for_each(|word| self.number(u64::from_le_bytes(*word)));
        if !rest.is_empty() {
            let mut word = [0; 8];
            word[..rest.len()].copy_from_slice(rest);
            self.number(u64::from_le_bytes(word));
        }
    }

    pub(crate) fn finish(mut self) -> u64 {
        self.number(0x1319_8a2e_0370_7344);
        self.0
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn item(key: &'static str, value: &'static str, mod_revision: u64) -> KeyValue {
        KeyValue { key: key.into(), value: value.into(), mod_revision: Revision(mod_revision) }
    }

    #[test]
    fn the_definition_does_not_change() {
        // Other engines, other versions and snapshots on disk count on these numbers.
        let cases = [
            (item("a", "", 2), 4_331_566_968_105_358_300),
            (item("a", "1", 2), 6_449_826_368_555_327_049),
            (item("/registry/pods/default/web-0", "{\"kind\":\"Pod\"}", 1_234_567), 17_556_958_179_895_348_002),
        ];
        for (item, hash) in cases {
            assert_eq!(item_hash(&item), hash, "{item:?}");
        }
    }

    #[test]
    fn the_order_does_not_matter_and_what_is_removed_leaves_no_trace() {
        let (a, b, c) = (item("a", "1", 2), item("b", "2", 3), item("c", "3", 4));
        let (mut one, mut other) = (ConsistencyHasher::default(), ConsistencyHasher::default());
        [&a, &b, &c].into_iter().for_each(|item| one.add(item));
        [&c, &a].into_iter().for_each(|item| other.add(item));
        assert_ne!(one, other);
        one.remove(&b);
        assert_eq!(one, other);
    }

    #[test]
    fn lengths_keep_keys_and_values_apart() {
        let alike =
            [item("ab", "c", 2), item("a", "bc", 2), item("a\0", "bc", 2), item("abc", "", 2), item("abc", "\0", 2)];
        let mut hashes = alike.map(|item| item_hash(&item));
        hashes.sort_unstable();
        assert!(hashes.windows(2).all(|pair| pair[0] != pair[1]));
    }
}
