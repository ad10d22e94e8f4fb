//! A leaf of the index: some keys in order, each with its place in the log, packed into one run of bytes.
//!
//! A key is written as how many bytes it shares with the key before it, and the rest; numbers take as many bytes as
//! they need. A Kubernetes key of 40 bytes with its place takes about 20 this way. A leaf is never changed: an edit
//! makes a new one.

use std::cmp::Ordering;

use crate::{Revision, expiry::Deadline};

/// The most keys of a leaf: a look-up goes through half of them on average.
pub(super) const LEAF_KEYS: usize = 64;

/// A leaf with more than one key is split above this size, so that long keys do not make edits slow.
const LEAF_BYTES: usize = 8 * 1024;

/// Room for an entry beside its key.
const ENTRY_ROOM: usize = 64;

/// Where a value is, and what there is to know about it without reading it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Place {
    /// The revision that put it.
    pub(super) revision: Revision,
    pub(super) segment: u32,
    /// Where its entry begins.
    pub(super) offset: u32,
    pub(super) value_len: u32,
    pub(super) deadline: Option<Deadline>,
}

/// Some keys in order.
#[derive(Debug)]
pub(super) struct Leaf {
    bytes: Box<[u8]>,
    count: u32,
    /// The earliest deadline of its keys; `i64::MAX`: none.
    earliest: i64,
}

impl Leaf {
    pub(super) fn empty() -> Self {
        Leaf { bytes: Box::default(), count: 0, earliest: i64::MAX }
    }

    /// The leaf with these bytes, if they are those of one whose keys are in order and after `after`; and its last key.
    pub(super) fn check(bytes: &[u8], after: Option<&[u8]>) -> Option<(Self, Vec<u8>)> {
        let mut walk = Walk { bytes, at: 0, key: Vec::new() };
        let (mut count, mut earliest) = (0, i64::MAX);
        let mut last = after.map(<[u8]>::to_vec);
        while walk.at < bytes.len() {
            let place = walk.advance()?;
            if last.as_ref().is_some_and(|last| *last >= walk.key) {
                return None;
            }
            count += 1;
            earliest = earliest.min(place.deadline.map_or(i64::MAX, |deadline| deadline.0));
            last = Some(walk.key.clone());
        }
        Some((Leaf { bytes: bytes.into(), count, earliest }, last.unwrap_or_default()))
    }

    pub(super) fn bytes(&self) -> &[u8] {
        &self.bytes
    }

    pub(super) fn len(&self) -> usize {
        self.count as usize
    }

    pub(super) fn earliest(&self) -> i64 {
        self.earliest
    }

    pub(super) fn walk(&self) -> Walk<'_> {
        Walk { bytes: &self.bytes, at: 0, key: Vec::new() }
    }

    /// The first key.
    pub(super) fn first_key(&self) -> Option<Vec<u8>> {
        let mut walk = self.walk();
        walk.next().map(|_| walk.key)
    }

    pub(super) fn get(&self, key: &[u8]) -> Option<Place> {
        let mut walk = self.walk();
        while let Some(place) = walk.next() {
            if walk.key() >= key {
                return (walk.key() == key).then_some(place);
            }
        }
        None
    }

    /// The leaf with `place` under the key, or nothing; what was there; and whether the key is not the last one.
    pub(super) fn edit(&self, key: &[u8], place: Option<&Place>) -> (Self, Option<Place>, bool) {
        let mut walk = self.walk();
        // What is replaced: from the end of the last lesser key to the end of the first greater one, whose shared bytes
        // change.
        let (mut start, mut before, mut old, mut next) = (0, Vec::new(), None, None);
        while let Some(found) = walk.next() {
            match walk.key().cmp(key) {
                Ordering::Less => {
                    before.clone_from(&walk.key);
                    start = walk.at;
                }
                Ordering::Equal => old = Some(found),
                Ordering::Greater => {
                    next = Some(found);
                    break;
                }
            }
        }
        let mut bytes = Vec::with_capacity(self.bytes.len() + key.len() + ENTRY_ROOM);
        bytes.extend_from_slice(&self.bytes[..start]);
        let mut previous = before.as_slice();
        if let Some(place) = place {
            put_entry(&mut bytes, previous, key, place);
            previous = key;
        }
        if let Some(place) = &next {
            put_entry(&mut bytes, previous, walk.key(), place);
        }
        bytes.extend_from_slice(&self.bytes[walk.at..]);
        let count = self.count + u32::from(place.is_some()) - u32::from(old.is_some());
        let leaf = match old.as_ref().map(deadline) {
            Some(gone) if gone == self.earliest && gone != i64::MAX => Leaf::of(bytes),
            _ => Leaf { earliest: self.earliest.min(place.map_or(i64::MAX, deadline)), bytes: bytes.into(), count },
        };
        (leaf, old, next.is_some())
    }

    /// Whether it has become too large.
    pub(super) fn overfull(&self) -> bool {
        self.len() > LEAF_KEYS || self.bytes.len() > LEAF_BYTES && self.count > 1
    }

    /// Two leaves of one, and the first key of the second, which holds `count` keys.
    pub(super) fn split(&self, count: usize) -> (Self, Vec<u8>, Self) {
        let mut walk = self.walk();
        for _ in count..self.len() {
            walk.next();
        }
        let middle = walk.at;
        let first = walk.next().expect("the second half has a key");
        let mut right = Vec::with_capacity(self.bytes.len() - middle + ENTRY_ROOM + walk.key.len());
        put_entry(&mut right, &[], walk.key(), &first);
        right.extend_from_slice(&self.bytes[walk.at..]);
        (Leaf::of(self.bytes[..middle].to_vec()), walk.key, Leaf::of(right))
    }

    /// One leaf of two that follow each other.
    pub(super) fn join(&self, right: &Leaf) -> Self {
        let mut left = self.walk();
        while left.next().is_some() {}
        let mut walk = right.walk();
        let mut bytes = self.bytes.to_vec();
        if let Some(first) = walk.next() {
            put_entry(&mut bytes, left.key(), walk.key(), &first);
            bytes.extend_from_slice(&right.bytes[walk.at..]);
        }
        let (count, earliest) = (self.count + right.count, self.earliest.min(right.earliest));
        Leaf { bytes: bytes.into(), count, earliest }
    }

    /// The leaf with these bytes, which are those of one.
    fn of(bytes: Vec<u8>) -> Self {
        let mut walk = Walk { bytes: &bytes, at: 0, key: Vec::new() };
        let (mut count, mut earliest) = (0, i64::MAX);
        while let Some(place) = walk.next() {
            count += 1;
            earliest = earliest.min(deadline(&place));
        }
        Leaf { bytes: bytes.into(), count, earliest }
    }
}

fn deadline(place: &Place) -> i64 {
    place.deadline.map_or(i64::MAX, |deadline| deadline.0)
}

/// Goes through a leaf, key by key.
#[derive(Clone, Debug)]
pub(super) struct Walk<'a> {
    bytes: &'a [u8],
    at: usize,
    key: Vec<u8>,
}

impl Walk<'_> {
    /// The key that the last call of `next` came to.
    pub(super) fn key(&self) -> &[u8] {
        &self.key
    }

    /// Goes to the next key and returns its place.
    pub(super) fn next(&mut self) -> Option<Place> {
        (self.at < self.bytes.len()).then(|| self.advance().expect("leaves are checked when they are read"))
    }

    /// As `next`, on bytes that may be anything.
    fn advance(&mut self) -> Option<Place> {
        let shared = usize::try_from(self.number()?).ok().filter(|shared| *shared <= self.key.len())?;
        let rest = usize::try_from(self.number()?).ok()?;
        let rest = self.bytes.get(self.at..self.at.checked_add(rest)?)?;
        self.at += rest.len();
        self.key.truncate(shared);
        self.key.extend_from_slice(rest);
        let revision = Revision(self.number()?);
        let segment = u32::try_from(self.number()?).ok()?;
        let offset = u32::try_from(self.number()?).ok()?;
        let length = self.number()?;
        let value_len = u32::try_from(length >> 1).ok()?;
        let deadline = if length & 1 == 1 { Some(Deadline(self.number()?.cast_signed())) } else { None };
        Some(Place { revision, segment, offset, value_len, deadline })
    }

    fn number(&mut self) -> Option<u64> {
        let mut number = 0;
        for shift in (0..64).step_by(7) {
            let byte = *self.bytes.get(self.at)?;
            self.at += 1;
            number |= u64::from(byte & 0x7f) << shift;
            if byte < 0x80 {
                return Some(number);
            }
        }
        None
    }
}

fn put_entry(bytes: &mut Vec<u8>, previous: &[u8], key: &[u8], place: &Place) {
    let shared = previous.iter().zip(key).take_while(|(a, b)| a == b).count();
    put_number(bytes, shared as u64);
    put_number(bytes, (key.len() - shared) as u64);
    bytes.extend_from_slice(&key[shared..]);
    put_number(bytes, place.revision.0);
    put_number(bytes, place.segment.into());
    put_number(bytes, place.offset.into());
    put_number(bytes, u64::from(place.value_len) << 1 | u64::from(place.deadline.is_some()));
    if let Some(deadline) = place.deadline {
        put_number(bytes, deadline.0.cast_unsigned());
    }
}

fn put_number(bytes: &mut Vec<u8>, mut number: u64) {
    while number >= 0x80 {
        bytes.push(number as u8 | 0x80);
        number >>= 7;
    }
    bytes.push(number as u8);
}
