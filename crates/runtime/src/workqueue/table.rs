//! Where each item's slot is, found by the item's hash.
//!
//! With many items this is what does not fit a cache: an entry takes eight bytes, and looking one up reads one line of
//! memory. Entries stand where their hash says or in the next free place behind it.

use std::hint::black_box;

/// The fewest places.
const MIN_PLACES: usize = 16;

/// Hashes and slots. An entry is a hash and the number of a slot plus one; zero is a free place.
#[derive(Debug, Default)]
pub(super) struct Table {
    /// A power of two of them, or none.
    places: Vec<u64>,
    len: usize,
}

impl Table {
    fn place(&self, hash: u32) -> usize {
        hash as usize & (self.places.len() - 1)
    }

    /// What stands where this hash says, and behind it.
    fn chain(&self, hash: u32) -> impl Iterator<Item = u64> {
        let (after, before) = match self.places.len() {
            0 => (&[][..], &[][..]),
            _ => (&self.places[self.place(hash)..], &self.places[..self.place(hash)]),
        };
        after.iter().chain(before).copied().take_while(|entry| *entry != 0)
    }

    /// The slot of the hash that is the right one.
    pub(super) fn find(&self, hash: u32, is_it: impl Fn(u32) -> bool) -> Option<u32> {
        let slots = self.chain(hash).filter(|entry| (entry >> 32) as u32 == hash).map(|entry| entry as u32 - 1);
        slots.into_iter().find(|slot| is_it(*slot))
    }

    /// Adds a slot that is not in it.
    pub(super) fn insert(&mut self, hash: u32, slot: u32) {
        self.len += 1;
        if self.len * 3 > self.places.len() * 2 {
            self.rebuild(|_| true);
        }
        self.put(u64::from(hash) << 32 | u64::from(slot + 1));
    }

    fn put(&mut self, entry: u64) {
        let mut at = self.place((entry >> 32) as u32);
        while self.places[at] != 0 {
            at = (at + 1) & (self.places.len() - 1);
        }
        self.places[at] = entry;
    }

    /// Keeps some slots; there are `len` of them.
    pub(super) fn retain(&mut self, len: usize, keep: impl Fn(u32) -> bool) {
        self.len = len;
        self.rebuild(|entry| keep(entry as u32 - 1));
    }

    /// Makes room for as many entries as there are, and as many again. Those that go on are met in nearly the order in
    /// which they will stand.
    fn rebuild(&mut self, keep: impl Fn(u64) -> bool) {
        let places = (self.len * 2).next_power_of_two().max(MIN_PLACES);
        let old = std::mem::replace(&mut self.places, vec![0; places]);
        old.into_iter().filter(|entry| *entry != 0 && keep(*entry)).for_each(|entry| self.put(entry));
    }

    /// Fetches the places of these hashes. The processor waits for all of them at once, where it would wait for one
    /// after the other when they are looked up.
    pub(super) fn fetch(&self, hashes: impl Iterator<Item = u32>) {
        if !self.places.is_empty() {
            black_box(hashes.fold(0, |seen, hash| seen ^ self.places[self.place(hash)]));
        }
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;

    use proptest::prelude::*;

    use super::*;

    proptest! {
        /// Hashes that are often equal, or stand at the end and go on at the beginning.
        #[test]
        fn it_is_a_map(ops in proptest::collection::vec((0..3u8, 0..40u32), 0..200)) {
            let (mut table, mut model) = (Table::default(), BTreeMap::new());
            let hash = |slot: u32| 0xFFFF_FFF0_u32.wrapping_add(slot / 3);
            for (op, slot) in ops {
                match op {
                    0 => {
                        if model.insert(slot, ()).is_none() {
                            table.insert(hash(slot), slot);
                        }
                    }
                    1 => {
                        let found = table.find(hash(slot), |other| other == slot);
                        prop_assert_eq!(found.is_some(), model.contains_key(&slot));
                    }
                    _ => {
                        model.retain(|other, ()| other % 5 != slot % 5);
                        table.retain(model.len(), |other| other % 5 != slot % 5);
                    }
                }
            }
            for slot in 0..40 {
                let found = table.find(hash(slot), |other| other == slot);
                prop_assert_eq!(found.is_some(), model.contains_key(&slot));
            }
        }
    }
}
