//! What a memory store holds, as persistent maps: a clone costs nothing and shares everything.

use std::sync::Arc;

use capstan_clock::Timestamp;
use imbl::{OrdMap, OrdSet};

use crate::{
    Action, At, Committed, Conflict, ConflictingOp, Event, Key, KeyValue, Op, ReadError, Retention, Revision,
    expiry::Deadline,
};

/// The most commits whose leftovers one step of compaction clears away, so that no commit pays for a long pause before
/// it.
const COMPACTION_STEP: usize = 256;

/// What a superseded item counts beside its key and value.
const PAST_OVERHEAD: u64 = 128;

/// A key with its value and the end of its lifetime.
#[derive(Debug)]
pub(super) struct Item {
    pub(super) stored: KeyValue,
    pub(super) deadline: Option<Deadline>,
}

/// A commit that is still in the history.
#[derive(Clone, Debug)]
pub(super) struct Logged {
    pub(super) events: Arc<[Event]>,
    /// When it was committed, in milliseconds since 1970. The date and not the monotonic time: a fork may have another
    /// clock.
    at: i64,
    bytes: u64,
}

/// All that a store holds.
#[derive(Clone, Debug)]
pub(super) struct State {
    pub(super) revision: Revision,
    pub(super) compacted: Revision,
    pub(super) present: OrdMap<Key, Arc<Item>>,
    /// What the present has superseded: under a key and the revision of a commit that changed it, what was there
    /// before. So what was under a key at revision R is found under the least of its revisions after R; if there is
    /// none, it is what is there at present.
    past: OrdMap<(Key, Revision), Option<Arc<Item>>>,
    /// The commits after `compacted`, and before it those that compaction has not cleared away yet.
    pub(super) log: OrdMap<Revision, Logged>,
    expiring: OrdSet<(Deadline, Key)>,
    /// The bytes of `past`.
    bytes: u64,
}

impl State {
    pub(super) fn new(revision: Revision) -> Self {
        State {
            revision,
            compacted: revision,
            present: OrdMap::new(),
            past: OrdMap::new(),
            log: OrdMap::new(),
            expiring: OrdSet::new(),
            bytes: 0,
        }
    }

    /// Adds an item of a snapshot.
    pub(super) fn restore(&mut self, stored: KeyValue, deadline: Option<Deadline>) {
        self.set(stored.key.clone(), Some(Arc::new(Item { stored, deadline })));
    }

    /// The revision that a read at `at` reads, when no wait is left to do.
    pub(super) fn resolve(&self, at: At) -> Result<Revision, ReadError> {
        at.resolve(self.revision, self.compacted)
    }

    /// What was under the key at a revision that `resolve` gave.
    pub(super) fn get(&self, key: &Key, revision: Revision) -> Option<&Arc<Item>> {
        if revision < self.revision {
            let (changed, superseded) = self.past.get_next(&(key.clone(), revision.next())).unzip();
            if changed.is_some_and(|(changed, _)| changed == key) {
                return superseded.and_then(Option::as_ref);
            }
        }
        self.present.get(key)
    }

    /// The items under a prefix from `start` on, at a revision that `resolve` gave.
    pub(super) fn scan(&self, prefix: &Key, start: &Key, revision: Revision) -> impl Iterator<Item = &Arc<Item>> {
        let from = prefix.max(start).clone();
        let mut present = self.present.range(from.clone()..).peekable();
        // At present nothing is superseded, so the past need not be looked through.
        let past = (revision < self.revision).then(|| self.past.range((from, Revision::ABSENT)..));
        let mut past = past.into_iter().flatten().filter(move |((_, changed), _)| *changed > revision).peekable();
        std::iter::from_fn(move || {
            loop {
                let superseded = past.peek().map(|((key, _), _)| key);
                let key = match (present.peek().map(|(key, _)| *key), superseded) {
                    (Some(present), Some(past)) => present.min(past),
                    (Some(key), None) | (None, Some(key)) => key,
                    (None, None) => return None,
                };
                if !key.starts_with(prefix) {
                    return None;
                }
                let now = present.next_if(|(other, _)| *other == key).map(|(_, item)| item);
                let before = if superseded == Some(key) { past.next() } else { None };
                while before.is_some() && past.next_if(|((other, _), _)| other == key).is_some() {}
                let item = match before {
                    Some((_, item)) => item.as_ref(),
                    None => now,
                };
                if item.is_some() {
                    return item;
                }
            }
        })
    }

    /// Applies the operations in one revision, or none. The events are empty when nothing changed.
    pub(super) fn commit(&mut self, ops: Vec<Op>, now: Timestamp) -> Result<(Committed, Arc<[Event]>), Conflict> {
        let current = |op: &Op| self.present.get(&op.key).map(|item| item.stored.clone());
        let failed: Vec<_> = (ops.iter().enumerate())
            .filter(|(_, op)| op.expected.is_some_and(|expected| expected != self.mod_revision(&op.key)))
            .map(|(index, op)| ConflictingOp { index, current: current(op) })
            .collect();
        if !failed.is_empty() {
            return Err(Conflict { revision: self.revision, failed });
        }
        let revision = self.revision.next();
        let events: Arc<[Event]> = ops.into_iter().filter_map(|op| self.apply(op, revision, now)).collect();
        if events.is_empty() {
            return Ok((Committed { revision: self.revision, changed: false }, events));
        }
        self.revision = revision;
        let superseded = events.iter().map(|event| {
            PAST_OVERHEAD + (event.key.len() + event.previous.as_ref().map_or(0, |item| item.value.len())) as u64
        });
        let bytes = superseded.sum();
        self.bytes += bytes;
        self.log.insert(revision, Logged { events: Arc::clone(&events), at: now.as_millisecond(), bytes });
        Ok((Committed { revision, changed: true }, events))
    }

    fn apply(&mut self, op: Op, revision: Revision, now: Timestamp) -> Option<Event> {
        let item = match op.action {
            Action::Check => return None,
            Action::Delete if !self.present.contains_key(&op.key) => return None,
            Action::Delete => None,
            Action::Put { value, expires } => Some(Arc::new(Item {
                stored: KeyValue { key: op.key.clone(), value, mod_revision: revision },
                deadline: expires.map(|ttl| Deadline::after(now, ttl)),
            })),
        };
        let current = item.as_ref().map(|item| item.stored.clone());
        let previous = self.set(op.key.clone(), item);
        let event = Event { key: op.key.clone(), current, previous: previous.as_ref().map(|item| item.stored.clone()) };
        self.past.insert((op.key, revision), previous);
        Some(event)
    }

    /// Sets what is under the key at present and returns what was.
    fn set(&mut self, key: Key, item: Option<Arc<Item>>) -> Option<Arc<Item>> {
        if let Some(deadline) = item.as_ref().and_then(|item| item.deadline) {
            self.expiring.insert((deadline, key.clone()));
        }
        let deadline = item.as_ref().and_then(|item| item.deadline);
        let previous = match item {
            Some(item) => self.present.insert(key.clone(), item),
            None => self.present.remove(&key),
        };
        if let Some(before) =
            previous.as_ref().and_then(|item| item.deadline).filter(|before| Some(*before) != deadline)
        {
            self.expiring.remove(&(before, key));
        }
        previous
    }

    fn mod_revision(&self, key: &Key) -> Revision {
        self.present.get(key).map_or(Revision::ABSENT, |item| item.stored.mod_revision)
    }

    /// The earliest end of a lifetime.
    pub(super) fn next_deadline(&self) -> Option<Deadline> {
        self.expiring.get_min().map(|(deadline, _)| *deadline)
    }

    /// The deletions of up to `limit` keys whose lifetime has passed, by key.
    pub(super) fn expired(&self, now: Timestamp, limit: usize) -> Vec<Op> {
        let due = self.expiring.iter().take_while(|(deadline, _)| deadline.passed(now)).take(limit);
        let mut keys: Vec<&Key> = due.map(|(_, key)| key).collect();
        keys.sort_unstable();
        keys.into_iter().map(|key| Op::delete(key.clone())).collect()
    }

    /// Forgets the states before `revision`, which is not after the present. What they held is cleared away step by
    /// step.
    pub(super) fn compact(&mut self, revision: Revision) {
        self.compacted = self.compacted.max(revision);
    }

    /// Compacts what has been kept for long enough, and clears away a step's worth. Returns whether more is left.
    pub(super) fn tidy(&mut self, retention: Retention, now: Timestamp) -> bool {
        let age = i64::try_from(retention.age.as_millis()).unwrap_or(i64::MAX);
        let kept_since = now.as_millisecond().saturating_sub(age);
        for _ in 0..COMPACTION_STEP {
            let Some((revision, logged)) = self.log.get_min() else { return false };
            let (revision, old) = (*revision, logged.at <= kept_since);
            if revision > self.compacted && !old && self.bytes <= retention.bytes {
                return false;
            }
            self.compacted = self.compacted.max(revision);
            if let Some(logged) = self.log.remove(&revision) {
                self.bytes -= logged.bytes;
                for event in logged.events.iter() {
                    self.past.remove(&(event.key.clone(), revision));
                }
            }
        }
        true
    }
}

#[cfg(test)]
#[cfg(not(feature = "shuttle"))]
impl State {
    /// How many superseded items are kept.
    pub(super) fn past_len(&self) -> usize {
        assert_eq!(self.past.is_empty(), self.bytes == 0, "the bytes are counted");
        self.past.len()
    }
}
