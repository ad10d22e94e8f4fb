//! A state of the objects under a prefix, and the few past states that are kept.

use std::{collections::VecDeque, sync::Arc};

use capstan_clock::Moment;
use capstan_storage::Revision;
use imbl::OrdMap;

use super::{limits::SNAPSHOT_AGE, object::Object};

/// A state that does not change any more; a clone costs nothing.
#[derive(Clone, Debug, Default)]
pub struct Snapshot {
    /// The revision of the state.
    pub revision: Revision,
    /// The revision of the last change in it: the state has been the same since then.
    pub changed: Revision,
    /// The objects, by key.
    pub objects: OrdMap<Arc<str>, Arc<Object>>,
}

impl Snapshot {
    /// Whether this is also the state at `revision`.
    #[must_use]
    pub fn covers(&self, revision: Revision) -> bool {
        self.changed <= revision && revision <= self.revision
    }
}

/// Past states for lists that go on page by page: few, and not for long.
#[derive(Debug)]
pub(super) struct Kept {
    limit: usize,
    snapshots: VecDeque<(Moment, Snapshot)>,
}

impl Kept {
    pub(super) fn new(limit: usize) -> Self {
        Kept { limit, snapshots: VecDeque::new() }
    }

    pub(super) fn keep(&mut self, snapshot: Snapshot, now: Moment) {
        if self.find(snapshot.revision).is_none() && self.limit > 0 {
            self.snapshots.truncate(self.limit - 1);
            self.snapshots.push_front((now, snapshot));
        }
    }

    pub(super) fn find(&self, revision: Revision) -> Option<Snapshot> {
        self.snapshots.iter().map(|(_, snapshot)| snapshot).find(|snapshot| snapshot.covers(revision)).cloned()
    }

    pub(super) fn forget_old(&mut self, now: Moment) {
        while self.snapshots.pop_back_if(|(since, _)| now.since(*since) > SNAPSHOT_AGE).is_some() {}
    }
}
