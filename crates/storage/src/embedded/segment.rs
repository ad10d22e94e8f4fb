//! A segment of the log: reading entries and batches out of it.

use std::{fmt, io, sync::Arc};

use bytes::Bytes;

use super::{
    files::{Files, Handle, fault, read_up_to, write_all},
    format::{
        ALIGN, BATCH_HEAD, BatchHead, ENTRY_HEAD, EntryHead, EntryKind, NotASegment, SEGMENT_HEAD, SegmentHead,
        SegmentKind,
    },
    leaf::Place,
};
use crate::{Fault, FaultKind, Key, KeyValue, limits::MAX_COMMIT_BYTES};

/// The most that a batch may say it is long; a head that says more is damaged.
pub(super) const MAX_BATCH_BYTES: u64 = 4 * MAX_COMMIT_BYTES as u64;

/// How much of a segment is looked through at a time for a batch behind a damaged one.
const SEARCH_BYTES: usize = 1024 * 1024;

/// An open segment. The file stays readable while somebody has one, also after it was removed.
pub(super) struct Segment {
    pub(super) head: SegmentHead,
    pub(super) file: Box<dyn Handle>,
    store: u64,
}

impl fmt::Debug for Segment {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.head.fmt(f)
    }
}

/// The name of a segment's file.
pub(super) fn name(kind: SegmentKind, id: u32) -> String {
    match kind {
        SegmentKind::Log => format!("log-{id:08x}"),
        SegmentKind::Moved => format!("moved-{id:08x}"),
    }
}

/// What a file's name says it is.
pub(super) fn parse_name(name: &str) -> Option<(SegmentKind, u32)> {
    let (kind, id) = name.split_once('-')?;
    let kind = match kind {
        "log" => SegmentKind::Log,
        "moved" => SegmentKind::Moved,
        _ => return None,
    };
    (id.len() == 8).then(|| u32::from_str_radix(id, 16).ok())?.map(|id| (kind, id))
}

/// What is at an offset of a segment.
#[derive(Debug)]
pub(super) enum Next {
    /// A batch as it was written: its bytes, with the head.
    Batch(BatchHead, Vec<u8>),
    /// Nothing that is a batch; damaged, torn or never written.
    Nothing,
}

impl Segment {
    /// Makes a segment of a new file and makes its head durable, under its name.
    pub(super) fn begin(
        files: &dyn Files,
        from: Option<&str>,
        head: SegmentHead,
        store: u64,
    ) -> Result<Arc<Self>, Fault> {
        let name = name(head.kind, head.id);
        let begun = || -> io::Result<Box<dyn Handle>> {
            let file = match from {
                Some(spare) => {
                    files.rename(spare, &name)?;
                    files.open(&name)?
                }
                None => files.create(&name)?,
            };
            write_all(&*file, &head.encode(store), 0)?;
            file.sync()?;
            files.sync_names()?;
            Ok(file)
        };
        let file = begun().map_err(|error| fault("begin", &name, &error))?;
        Ok(Arc::new(Segment { head, file, store }))
    }

    /// Opens a segment that is there.
    pub(super) fn open(files: &dyn Files, kind: SegmentKind, id: u32, store: u64) -> Result<Arc<Self>, OpenError> {
        let name = name(kind, id);
        let failed = |error: io::Error| {
            if error.kind() == io::ErrorKind::NotFound {
                let missing = format_args!("{name} is missing from {}", files.place());
                return OpenError::Fault(Fault::new(FaultKind::Corrupt, missing));
            }
            OpenError::Fault(fault("open", &name, &error))
        };
        let file = files.open(&name).map_err(failed)?;
        let mut bytes = [0; SEGMENT_HEAD];
        read_up_to(&*file, &mut bytes, 0).map_err(failed)?;
        let wrong = |what: &str| {
            OpenError::Fault(Fault::new(FaultKind::Corrupt, format_args!("{}: {name} {what}", files.place())))
        };
        match SegmentHead::decode(&bytes, store) {
            Ok(head) if (head.kind, head.id) == (kind, id) => Ok(Arc::new(Segment { head, file, store })),
            Ok(_) => Err(wrong("has the content of another file of this store")),
            Err(NotASegment::Foreign) => Err(wrong("is not a segment: it does not begin like one")),
            Err(NotASegment::OtherStore) => Err(wrong("belongs to another store")),
            Err(NotASegment::Damaged) => {
                // The name says who it would be; if batches of that segment follow, its head was whole once.
                let head = SegmentHead {
                    kind,
                    id,
                    previous: 0,
                    previous_end: 0,
                    sequence: 0,
                    revision: crate::Revision::ABSENT,
                };
                let segment = Segment { head, file, store };
                match segment.search(SEGMENT_HEAD as u64, 0) {
                    Ok(None) => Err(OpenError::NeverBegun),
                    Ok(Some(_)) => Err(wrong("is damaged at offset 0: its head is not as it was written")),
                    Err(fault) => Err(OpenError::Fault(fault)),
                }
            }
        }
    }

    pub(super) fn name(&self) -> String {
        name(self.head.kind, self.head.id)
    }

    /// Reads an entry and makes sure that it is what was written there for this key.
    pub(super) fn read(&self, key: &Key, place: &Place) -> Result<KeyValue, Fault> {
        let length = ENTRY_HEAD + key.len() + place.value_len as usize;
        let mut bytes = vec![0; length];
        let read = read_up_to(&*self.file, &mut bytes, place.offset.into())
            .map_err(|error| fault("read", &self.name(), &error))?;
        let value = entry_value(&bytes[..read], key, place, self.store);
        let value = value.ok_or_else(|| self.damaged(place.offset.into()))?;
        let value = Bytes::from(bytes).slice(value);
        Ok(KeyValue { key: key.clone(), value, mod_revision: place.revision })
    }

    /// What is at `offset`; batches of another number than `sequence` count as nothing.
    pub(super) fn batch(&self, offset: u64, sequence: u64) -> Result<Next, Fault> {
        let failed = |error: io::Error| fault("read", &self.name(), &error);
        let mut head = [0; BATCH_HEAD];
        read_up_to(&*self.file, &mut head, offset).map_err(failed)?;
        let decoded = BatchHead::decode(&head, self.store, self.head.id)
            .filter(|head| head.sequence == sequence && head.bytes <= MAX_BATCH_BYTES);
        let Some(decoded) = decoded else { return Ok(Next::Nothing) };
        let mut bytes = vec![0; BATCH_HEAD + decoded.bytes as usize];
        if read_up_to(&*self.file, &mut bytes, offset).map_err(failed)? < bytes.len() {
            return Ok(Next::Nothing);
        }
        Ok(Next::Batch(decoded, bytes))
    }

    /// Where the first head of a batch with a number above `sequence` is, from `offset` on. After a torn tail there is
    /// none: a batch is only written when the one before is durable.
    pub(super) fn search(&self, offset: u64, sequence: u64) -> Result<Option<u64>, Fault> {
        let mut bytes = vec![0; SEARCH_BYTES + BATCH_HEAD];
        let mut offset = offset.next_multiple_of(ALIGN as u64);
        loop {
            let read =
                read_up_to(&*self.file, &mut bytes, offset).map_err(|error| fault("read", &self.name(), &error))?;
            let ends = read.saturating_sub(BATCH_HEAD - 1).min(SEARCH_BYTES);
            for at in (0..ends).step_by(ALIGN) {
                let head = BatchHead::decode(&bytes[at..], self.store, self.head.id);
                if head.is_some_and(|head| head.sequence > sequence) {
                    return Ok(Some(offset + at as u64));
                }
            }
            if read < bytes.len() {
                return Ok(None);
            }
            offset += SEARCH_BYTES as u64;
        }
    }

    /// The fault of an entry or batch that is not what was written.
    pub(super) fn damaged(&self, offset: u64) -> Fault {
        let name = self.name();
        Fault::new(
            FaultKind::Corrupt,
            format_args!("{name} is damaged at offset {offset}: it is not as it was written"),
        )
    }
}

/// Why a segment does not open.
#[derive(Debug)]
pub(super) enum OpenError {
    /// Its head was never durable, so it holds nothing.
    NeverBegun,
    Fault(Fault),
}

/// Where in `bytes`, which are those of an entry, its value is, if it is the one that belongs at `place`.
pub(super) fn entry_value(bytes: &[u8], key: &[u8], place: &Place, store: u64) -> Option<std::ops::Range<usize>> {
    let head = EntryHead::decode(bytes)?;
    let start = ENTRY_HEAD + key.len();
    let range = start..start + place.value_len as usize;
    let (found, value) = (bytes.get(ENTRY_HEAD..start)?, bytes.get(range.clone())?);
    let right = head.kind == EntryKind::Put
        && usize::from(head.key_len) == key.len()
        && (head.value_len, head.revision, head.deadline) == (place.value_len, place.revision, place.deadline)
        && found == key
        && head.matches(store, found, value);
    right.then_some(range)
}
