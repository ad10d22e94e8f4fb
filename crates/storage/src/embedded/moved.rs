//! Segments of values that were moved out of older ones, or came from a snapshot.

use std::sync::Arc;

use super::{
    files::{Files, fault, write_all},
    format::{ALIGN, BATCH_HEAD, BatchHead, EntryKind, NewEntry, SEGMENT_HEAD, SegmentHead, SegmentKind, content},
    leader::length,
    leaf::Place,
    segment::Segment,
};
use crate::{Fault, KeyValue, Revision, expiry::Deadline};

/// About how many bytes are written at a time.
const CHUNK_BYTES: usize = 1024 * 1024;

/// Writes a segment of values; nothing may refer to them before it is finished.
pub(super) struct MovedWriter {
    files: Arc<dyn Files>,
    segment: Arc<Segment>,
    store: u64,
    offset: u64,
    sequence: u64,
    batch: Vec<u8>,
    entries: u32,
}

impl MovedWriter {
    pub(super) fn begin(files: Arc<dyn Files>, id: u32, store: u64) -> Result<Self, Fault> {
        let head = SegmentHead {
            kind: SegmentKind::Moved,
            id,
            previous: 0,
            previous_end: 0,
            sequence: 1,
            revision: Revision::ABSENT,
        };
        let segment = Segment::begin(&*files, None, head, store)?;
        let (offset, batch) = (SEGMENT_HEAD as u64, vec![0; BATCH_HEAD]);
        Ok(MovedWriter { files, segment, store, offset, sequence: 1, batch, entries: 0 })
    }

    /// How long the segment is by now.
    pub(super) fn bytes(&self) -> u64 {
        self.offset + self.batch.len() as u64
    }

    /// Adds a value and returns where it will be.
    pub(super) fn add(&mut self, item: &KeyValue, deadline: Option<Deadline>) -> Result<Place, Fault> {
        let place = Place {
            revision: item.mod_revision,
            segment: self.segment.head.id,
            offset: length(self.bytes() as usize),
            value_len: length(item.value.len()),
            deadline,
        };
        let kind = EntryKind::Put;
        let content = content(self.store, kind, &item.key, &item.value);
        let entry = NewEntry { kind, key: &item.key, value: &item.value, revision: place.revision, deadline, content };
        entry.encode(&mut self.batch);
        self.entries += 1;
        if self.batch.len() >= CHUNK_BYTES {
            self.write()?;
        }
        Ok(place)
    }

    fn write(&mut self) -> Result<(), Fault> {
        let head = BatchHead {
            entries: self.entries,
            sequence: self.sequence,
            bytes: (self.batch.len() - BATCH_HEAD) as u64,
            at: 0,
            revision: Revision::ABSENT,
        };
        self.batch[..BATCH_HEAD].copy_from_slice(&head.encode(self.store, self.segment.head.id));
        self.batch.resize(self.batch.len().next_multiple_of(ALIGN), 0);
        // Synced in steps: one long sync would hold up those of the log.
        let written = write_all(&*self.segment.file, &self.batch, self.offset).and_then(|()| self.segment.file.sync());
        written.map_err(|error| self.failed(&error))?;
        self.offset += self.batch.len() as u64;
        self.sequence += 1;
        self.entries = 0;
        self.batch.truncate(BATCH_HEAD);
        Ok(())
    }

    /// Makes the segment durable.
    pub(super) fn finish(mut self) -> Result<Arc<Segment>, Fault> {
        if self.entries > 0 {
            self.write()?;
        }
        Ok(self.segment)
    }

    fn failed(&self, error: &std::io::Error) -> Fault {
        let name = self.segment.name();
        // Nothing refers to it; if it stays, it goes when the store is opened next.
        let _ = self.files.remove(&name);
        fault("write", &name, error)
    }
}
