//! The writing end of the log.

use std::sync::{Arc, PoisonError};

use super::{
    files::{Files, Point, fault, write_all},
    format::{SEGMENT_HEAD, SegmentHead, SegmentKind},
    segment::Segment,
    state::LogEnd,
};
use crate::{
    Fault, Revision,
    sync::{
        Mutex, MutexGuard,
        atomic::{AtomicU32, Ordering},
    },
};

/// A file of zeros that waits to become a segment: to overwrite blocks that are there takes half the time of adding
/// some. Making one holds up the syncs of the log, so it waits until one is wanted; the first is, at once.
#[derive(Debug)]
pub(super) struct Spare(Mutex<SpareState>);

#[derive(Clone, Debug)]
enum SpareState {
    NotWanted,
    Wanted,
    There(String),
}

impl Default for Spare {
    fn default() -> Self {
        Spare(Mutex::new(SpareState::Wanted))
    }
}

impl Spare {
    fn lock(&self) -> MutexGuard<'_, SpareState> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    pub(super) fn put(&self, name: String) {
        *self.lock() = SpareState::There(name);
    }

    pub(super) fn take(&self) -> Option<String> {
        let mut state = self.lock();
        match &*state {
            SpareState::There(name) => {
                let name = name.clone();
                *state = SpareState::NotWanted;
                Some(name)
            }
            _ => None,
        }
    }

    pub(super) fn is_there(&self) -> bool {
        matches!(*self.lock(), SpareState::There(_))
    }

    pub(super) fn is_wanted(&self) -> bool {
        matches!(*self.lock(), SpareState::Wanted)
    }

    /// Asks for one, unless there is one or it was asked for. Returns whether it did.
    fn want(&self) -> bool {
        let mut state = self.lock();
        let news = matches!(*state, SpareState::NotWanted);
        if news {
            *state = SpareState::Wanted;
        }
        news
    }
}

/// What gives segments their numbers.
#[derive(Debug)]
pub(super) struct SegmentIds(AtomicU32);

impl SegmentIds {
    pub(super) fn after(last: u32) -> Self {
        SegmentIds(AtomicU32::new(last + 1))
    }

    pub(super) fn next(&self) -> u32 {
        self.0.fetch_add(1, Ordering::Relaxed)
    }
}

/// Why a batch was not made durable.
#[derive(Clone, Debug)]
pub(super) enum AppendError {
    /// It is not in the log and never will be.
    Not(Fault),
    /// It may be found in the log after a restart.
    Perhaps(Fault),
}

/// The writing end of the log. After a sync that failed nobody knows what is on the disk, and a later sync of the same
/// file may succeed without it. So the segment is left as it is, and nothing is written before a new one, which says
/// where the old one ends, is durable.
pub(super) struct Log {
    pub(super) files: Arc<dyn Files>,
    pub(super) store: u64,
    pub(super) segment: Arc<Segment>,
    /// How far the segment's blocks are on the disk already.
    pub(super) prepared: u64,
    pub(super) ids: Arc<SegmentIds>,
    pub(super) spare: Arc<Spare>,
    pub(super) segment_bytes: u64,
    /// Whether nothing may be written to the segment any more.
    pub(super) broken: bool,
    /// The number of the segment that could not be begun yet.
    pub(super) claimed: Option<u32>,
}

impl Log {
    /// Begins a new segment if `bytes` more do not belong into the present one. Returns whether it did.
    pub(super) fn make_room(&mut self, end: &mut LogEnd, revision: Revision, bytes: u64) -> Result<bool, Fault> {
        let after = end.offset + bytes;
        let full = after > self.segment_bytes && end.offset > SEGMENT_HEAD as u64;
        if !self.broken && !full && (after <= self.prepared || !self.spare.is_there()) {
            return Ok(false);
        }
        // From here on the old segment ends where it ends: the new one may be found after a crash, and it says so. A
        // second attempt takes the same name, so that only one ever says so.
        self.broken = true;
        let id = *self.claimed.get_or_insert_with(|| self.ids.next());
        let head = SegmentHead {
            kind: SegmentKind::Log,
            id,
            previous: end.segment,
            previous_end: end.offset,
            sequence: end.sequence,
            revision: revision.next(),
        };
        let spare = self.spare.take();
        let segment = Segment::begin(&*self.files, spare.as_deref(), head, self.store)?;
        self.prepared = segment.file.len().unwrap_or(0);
        self.segment = segment;
        (self.broken, self.claimed) = (false, None);
        *end = LogEnd { segment: head.id, offset: SEGMENT_HEAD as u64, sequence: end.sequence };
        self.files.pass(Point::AfterRoll);
        Ok(true)
    }

    /// Asks for a spare when half of what was prepared is used. Returns whether it did.
    pub(super) fn look_ahead(&self, end: &LogEnd) -> bool {
        end.offset * 2 >= self.prepared && self.spare.want()
    }

    /// Writes a batch at the end and makes it durable.
    pub(super) fn append(&mut self, end: &LogEnd, batch: &[u8]) -> Result<(), AppendError> {
        self.files.pass(Point::BeforeAppend);
        // A batch that was written in part is no batch, and the next one goes over it.
        write_all(&*self.segment.file, batch, end.offset)
            .map_err(|error| AppendError::Not(fault("write", &self.segment.name(), &error)))?;
        self.files.pass(Point::AfterAppend);
        self.segment.file.sync().map_err(|error| {
            self.broken = true;
            AppendError::Perhaps(fault("sync", &self.segment.name(), &error))
        })?;
        self.files.pass(Point::AfterSync);
        self.prepared = self.prepared.max(end.offset + batch.len() as u64);
        Ok(())
    }
}
