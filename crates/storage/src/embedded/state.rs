//! What the engine knows without reading values: a snapshot of it is a clone, which never changes.

use std::sync::Arc;

use capstan_clock::Timestamp;
use imbl::OrdMap;

use super::{
    index::{Index, Scan},
    leaf::Place,
    segment::Segment,
};
use crate::{
    At, Fault, FaultKind, Key, KeyValue, Page, Range, ReadError, Retention, Revision,
    expiry::Deadline,
    limits::{MAX_PAGE_ITEMS, PAGE_BYTES},
};

/// What a superseded value counts beside its key and bytes.
const PAST_OVERHEAD: u64 = 64;

/// How much log lies between two marks at most; a watch that is behind reads so much to find its place.
const MARK_BYTES: u64 = 256 * 1024;

/// Into how many steps retention divides what it keeps.
const RETENTION_STEPS: u32 = 8;

/// Where in the log the next batch goes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct LogEnd {
    pub(super) segment: u32,
    pub(super) offset: u64,
    pub(super) sequence: u64,
}

/// A batch that is remembered, so that history can be found and let go of.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Mark {
    pub(super) place: LogEnd,
    /// When it was committed, in milliseconds since 1970.
    pub(super) at: i64,
    /// How much had ever been superseded before it.
    pub(super) superseded: u64,
}

/// What the engine knows.
#[derive(Clone, Debug)]
pub(super) struct State {
    pub(super) revision: Revision,
    pub(super) compacted: Revision,
    pub(super) present: Index,
    /// What the present has superseded, under its key and the revision that superseded it (see [`past_key`]). So what
    /// was under a key at revision R is what is there at present if that was put by then; otherwise it is what is found
    /// under the least of its revisions after R, if that was put by then.
    pub(super) past: Index,
    pub(super) segments: OrdMap<u32, Arc<Segment>>,
    /// Some batches, by the revision of their first commit; the first is not after the first commit of the history.
    pub(super) marks: OrdMap<Revision, Mark>,
    /// The bytes that were ever superseded.
    pub(super) superseded: u64,
    pub(super) end: LogEnd,
}

/// A key and a revision as one key, ordered like the pair: zeros in the key are followed by 0xff, its end is two zeros.
pub(super) fn past_key(key: &[u8], revision: Revision) -> Vec<u8> {
    let mut bytes = escaped(key);
    bytes.extend_from_slice(&[0, 0]);
    bytes.extend_from_slice(&revision.0.to_be_bytes());
    bytes
}

fn escaped(key: &[u8]) -> Vec<u8> {
    let mut bytes = Vec::with_capacity(key.len() + 10);
    for byte in key {
        bytes.push(*byte);
        if *byte == 0 {
            bytes.push(0xff);
        }
    }
    bytes
}

/// The key and revision of a [`past_key`].
pub(super) fn past_parts(bytes: &[u8]) -> (Vec<u8>, Revision) {
    let (escaped, revision) = bytes.split_last_chunk::<8>().unwrap_or((bytes, &[0; 8]));
    let escaped = escaped.strip_suffix(&[0, 0]).unwrap_or(escaped);
    let mut key = Vec::with_capacity(escaped.len());
    let mut zero = false;
    for byte in escaped {
        if !zero {
            key.push(*byte);
        }
        zero = !zero && *byte == 0;
    }
    (key, Revision(u64::from_be_bytes(*revision)))
}

impl State {
    /// A state without keys, at `revision`.
    pub(super) fn new(revision: Revision, end: LogEnd) -> Self {
        State {
            revision,
            compacted: revision,
            present: Index::default(),
            past: Index::default(),
            segments: OrdMap::new(),
            marks: OrdMap::new(),
            superseded: 0,
            end,
        }
    }

    /// The revision that a read at `at` reads, when no wait is left to do.
    pub(super) fn resolve(&self, at: At) -> Result<Revision, ReadError> {
        at.resolve(self.revision, self.compacted)
    }

    /// Puts a value under a key, or nothing, at the next revision or one that `revision` has reached already.
    pub(super) fn set(&mut self, key: &[u8], revision: Revision, place: Option<&Place>) {
        if let Some(old) = self.present.set(key, place) {
            self.superseded += PAST_OVERHEAD + key.len() as u64 + u64::from(old.value_len);
            self.past.set(&past_key(key, revision), Some(&old));
        }
        self.revision = self.revision.max(revision);
    }

    /// Where what was under the key at a revision that `resolve` gave is.
    pub(super) fn locate(&self, key: &[u8], revision: Revision) -> Option<Place> {
        let present = self.present.get(key).filter(|place| place.revision <= revision);
        if present.is_some() || revision == self.revision {
            return present;
        }
        let scan = self.past.scan(&past_key(key, revision.next()));
        let (found, place) = scan.item()?;
        (past_parts(found).0 == key && place.revision <= revision).then_some(place)
    }

    /// Whether nothing under the prefix has changed after a revision that is not compacted; `false` when that is not
    /// plain after so many keys.
    pub(super) fn unchanged(&self, prefix: &[u8], after: Revision, keys: usize) -> bool {
        let mut left = keys;
        let mut unchanged = |index: &Index, prefix: &[u8], put: fn(&[u8], Place) -> Revision| {
            let mut scan = index.scan(prefix);
            while let Some((key, place)) = scan.item().filter(|(key, _)| key.starts_with(prefix)) {
                if left == 0 || put(key, place) > after {
                    return false;
                }
                left -= 1;
                scan.next();
            }
            true
        };
        unchanged(&self.present, prefix, |_, place| place.revision)
            && unchanged(&self.past, &escaped(prefix), |key, _| past_parts(key).1)
    }

    /// What `revision` superseded under the key.
    pub(super) fn superseded_by(&self, key: &[u8], revision: Revision) -> Option<Place> {
        self.past.get(&past_key(key, revision))
    }

    /// The keys under a prefix from `start` on, with their places, at a revision that `resolve` gave.
    pub(super) fn scan<'a>(&'a self, prefix: &'a [u8], start: &[u8], revision: Revision) -> Places<'a> {
        let from = prefix.max(start);
        // At present nothing is superseded, so the past need not be looked through.
        let past = (revision < self.revision).then(|| self.past.scan(&escaped(from)));
        let mut places = Places { prefix, revision, present: self.present.scan(from), past, superseded: None };
        places.next_superseded();
        places
    }

    /// Reads a value.
    pub(super) fn read(&self, key: &Key, place: &Place) -> Result<KeyValue, Fault> {
        let segment = self.segments.get(&place.segment).ok_or_else(|| {
            let missing = format_args!("segment {:08x} of the value at {} is missing", place.segment, place.offset);
            Fault::new(FaultKind::Corrupt, missing)
        })?;
        segment.read(key, place)
    }

    /// A page of the state at a revision that `resolve` gave.
    pub(super) fn page(&self, range: &Range, revision: Revision) -> Result<Page, Fault> {
        let limit = range.limit.map_or(MAX_PAGE_ITEMS, |limit| MAX_PAGE_ITEMS.min(limit.get() as usize));
        let mut found = self.scan(&range.prefix, &range.start, revision);
        let (mut items, mut bytes) = (Vec::new(), 0);
        while items.len() < limit && bytes < PAGE_BYTES {
            let Some((key, place)) = found.next() else { break };
            let item = self.read(&key, &place)?;
            bytes += item.key.len() + item.value.len();
            items.push(item);
        }
        let more = found.next().is_some();
        let count = range.count.then(|| match revision == self.revision {
            true => self.present.count(&range.prefix, &range.start),
            false => items.len() + usize::from(more) + found.count(),
        });
        Ok(Page { revision, items, more, count: count.map(|count| count as u64) })
    }

    /// Remembers the batch that begins at `end`, with its first commit, if the last one remembered is long ago.
    pub(super) fn mark(&mut self, revision: Revision, at: i64, retention: Retention) {
        let age = millis(retention.age / RETENTION_STEPS);
        let far = self.marks.get_max().is_none_or(|(_, last)| {
            last.place.segment != self.end.segment
                || self.end.offset - last.place.offset >= MARK_BYTES
                || at.saturating_sub(last.at) >= age
                || self.superseded - last.superseded >= retention.bytes / u64::from(RETENTION_STEPS)
        });
        if far {
            self.marks.insert(revision, Mark { place: self.end, at, superseded: self.superseded });
        }
    }

    /// The revision that retention compacts to.
    pub(super) fn retained_from(&self, retention: Retention, now: Timestamp) -> Revision {
        let kept_since = now.as_millisecond().saturating_sub(millis(retention.age));
        let mut from = self.compacted;
        for (revision, mark) in self.marks.range(self.compacted.next()..) {
            if mark.at > kept_since && !self.overfull(from, retention) {
                break;
            }
            from = (*revision).min(self.revision);
        }
        from
    }

    /// Whether more than retention allows has been superseded since `revision`.
    fn overfull(&self, revision: Revision, retention: Retention) -> bool {
        let since = self.marks.get_prev(&revision).map_or(0, |(_, mark)| mark.superseded);
        self.superseded - since > retention.bytes
    }

    /// Forgets the states before `revision`.
    pub(super) fn compact(&mut self, revision: Revision) {
        self.compacted = self.compacted.max(revision);
        while self.marks.range(..=self.compacted).nth(1).is_some() {
            let Some((first, _)) = self.marks.get_min() else { return };
            let first = *first;
            self.marks.remove(&first);
        }
    }

    /// The earliest end of a lifetime.
    pub(super) fn next_deadline(&self) -> Option<Deadline> {
        let earliest = self.present.leaves().map(|(_, leaf)| leaf.earliest()).min()?;
        (earliest != i64::MAX).then_some(Deadline(earliest))
    }

    /// Up to `limit` keys whose lifetime has passed, in order.
    pub(super) fn expired(&self, now: Timestamp, limit: usize) -> Vec<Key> {
        let mut keys = Vec::new();
        for (_, leaf) in self.present.leaves().filter(|(_, leaf)| Deadline(leaf.earliest()).passed(now)) {
            let mut walk = leaf.walk();
            while let Some(place) = walk.next() {
                if place.deadline.is_some_and(|deadline| deadline.passed(now)) {
                    keys.push(Key::copy_from_slice(walk.key()));
                }
                if keys.len() == limit {
                    return keys;
                }
            }
        }
        keys
    }
}

fn millis(duration: std::time::Duration) -> i64 {
    i64::try_from(duration.as_millis()).unwrap_or(i64::MAX)
}

/// Goes through the keys of a state that may be past.
pub(super) struct Places<'a> {
    prefix: &'a [u8],
    revision: Revision,
    present: Scan<'a>,
    past: Option<Scan<'a>>,
    /// The next key that has since been superseded, with what was there.
    superseded: Option<(Vec<u8>, Place)>,
}

impl Places<'_> {
    /// Goes to the next superseded value that was there at the revision.
    fn next_superseded(&mut self) {
        self.superseded = None;
        let Some(past) = &mut self.past else { return };
        while let Some((bytes, place)) = past.item() {
            let (key, until) = past_parts(bytes);
            let there = place.revision <= self.revision && until > self.revision;
            past.next();
            if there {
                self.superseded = Some((key, place));
                return;
            }
        }
    }
}

impl Iterator for Places<'_> {
    type Item = (Key, Place);

    fn next(&mut self) -> Option<(Key, Place)> {
        while self.present.item().is_some_and(|(_, place)| place.revision > self.revision) {
            self.present.next();
        }
        let before = match (self.present.key(), &self.superseded) {
            (Some(present), Some((past, _))) => past.as_slice() < present,
            (present, past) => present.is_none() && past.is_some(),
        };
        let found = if before {
            let (key, place) = self.superseded.take()?;
            self.next_superseded();
            (Key::from(key), place)
        } else {
            let (key, place) = self.present.item()?;
            let found = (Key::copy_from_slice(key), place);
            self.present.next();
            found
        };
        found.0.starts_with(self.prefix).then_some(found)
    }
}
