//! What is on the disk, byte by byte.
//!
//! A segment begins with a [`SegmentHead`]; batches follow without gaps, each at a multiple of [`ALIGN`]. A batch is a
//! [`BatchHead`] and the entries of one or more commits; an entry is an [`EntryHead`], a key and a value. Every head
//! has a checksum of its own kind, which the store's random id goes into as well: bytes of another store, of an earlier
//! life of the disk, or made up by who writes values are never taken for ours. All numbers are little-endian.

use crate::{Key, Revision, expiry::Deadline, hash::Mix, limits};

/// Batches begin at multiples of this.
pub(super) const ALIGN: usize = 8;

/// The length of a [`SegmentHead`].
pub(super) const SEGMENT_HEAD: usize = 64;

/// The length of a [`BatchHead`].
pub(super) const BATCH_HEAD: usize = 56;

/// The length of an [`EntryHead`].
pub(super) const ENTRY_HEAD: usize = 32;

const SEGMENT_MAGIC: u64 = u64::from_le_bytes(*b"CAPSLOG\x01");
const BATCH_MAGIC: u32 = u32::from_le_bytes(*b"\xb1CAP");

/// The deadline of a key that does not expire.
const NEVER: i64 = i64::MAX;

/// What a segment is for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum SegmentKind {
    /// Commits, in order.
    Log,
    /// Values that were moved out of older segments.
    Moved,
}

/// The beginning of a segment.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct SegmentHead {
    pub(super) kind: SegmentKind,
    pub(super) id: u32,
    /// The log segment before this one; 0: none.
    pub(super) previous: u32,
    /// Where that one ends. Whatever it holds from there on was never acknowledged and does not count.
    pub(super) previous_end: u64,
    /// The number of its first batch.
    pub(super) sequence: u64,
    /// The revision of its first commit.
    pub(super) revision: Revision,
}

/// Why bytes are not the head of a segment.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum NotASegment {
    /// They are something else.
    Foreign,
    /// They are of a store with another id.
    OtherStore,
    /// They were one and are damaged, or were never written.
    Damaged,
}

impl SegmentHead {
    pub(super) fn encode(&self, store: u64) -> [u8; SEGMENT_HEAD] {
        let kind = match self.kind {
            SegmentKind::Log => 0,
            SegmentKind::Moved => 1,
        };
        let words = [
            SEGMENT_MAGIC,
            store,
            u64::from(self.id) << 32 | kind,
            u64::from(self.previous),
            self.previous_end,
            self.sequence,
            self.revision.0,
        ];
        let mut bytes = [0; SEGMENT_HEAD];
        put_words(&mut bytes, &words);
        bytes
    }

    pub(super) fn decode(bytes: &[u8; SEGMENT_HEAD], store: u64) -> Result<Self, NotASegment> {
        let [magic, of, id, previous, previous_end, sequence, revision] = match get_words::<7>(bytes) {
            Some(words) => words,
            None if bytes.starts_with(&SEGMENT_MAGIC.to_le_bytes()) || bytes.iter().all(|byte| *byte == 0) => {
                return Err(NotASegment::Damaged);
            }
            None => return Err(NotASegment::Foreign),
        };
        if magic != SEGMENT_MAGIC {
            return Err(NotASegment::Foreign);
        }
        if of != store {
            return Err(NotASegment::OtherStore);
        }
        let kind = match id as u32 {
            0 => SegmentKind::Log,
            1 => SegmentKind::Moved,
            _ => return Err(NotASegment::Damaged),
        };
        let id = (id >> 32) as u32;
        let previous = u32::try_from(previous).map_err(|_| NotASegment::Damaged)?;
        Ok(SegmentHead { kind, id, previous, previous_end, sequence, revision: Revision(revision) })
    }
}

/// Writes words and, behind them, their checksum.
pub(super) fn put_words(bytes: &mut [u8], words: &[u64]) {
    let mut mix = Mix::new();
    for (bytes, word) in bytes.chunks_exact_mut(8).zip(words) {
        mix.number(*word);
        bytes.copy_from_slice(&word.to_le_bytes());
    }
    bytes[words.len() * 8..][..8].copy_from_slice(&mix.finish().to_le_bytes());
}

/// Reads words that are followed by their checksum.
pub(super) fn get_words<const N: usize>(bytes: &[u8]) -> Option<[u64; N]> {
    let (words, _) = bytes.get(..N * 8 + 8)?.as_chunks::<8>();
    let mut mix = Mix::new();
    let read: [u64; N] = std::array::from_fn(|n| u64::from_le_bytes(words[n]));
    read.iter().for_each(|word| mix.number(*word));
    (mix.finish() == u64::from_le_bytes(words[N])).then_some(read)
}

/// The beginning of a batch.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct BatchHead {
    /// How many entries there are.
    pub(super) entries: u32,
    /// Batches of one log are numbered without gaps.
    pub(super) sequence: u64,
    /// How many bytes of entries follow; the next batch begins at the next multiple of [`ALIGN`].
    pub(super) bytes: u64,
    /// When, in milliseconds since 1970.
    pub(super) at: i64,
    /// The revision of its first commit, or of the next one when it has none.
    pub(super) revision: Revision,
}

impl BatchHead {
    pub(super) fn encode(&self, store: u64, segment: u32) -> [u8; BATCH_HEAD] {
        let words = [
            u64::from(BATCH_MAGIC) << 32 | u64::from(self.entries),
            self.sequence,
            self.bytes,
            self.at.cast_unsigned(),
            self.revision.0,
        ];
        let mut bytes = [0; BATCH_HEAD];
        for (bytes, word) in bytes.chunks_exact_mut(8).zip(words) {
            bytes.copy_from_slice(&word.to_le_bytes());
        }
        bytes[40..48].copy_from_slice(&u64::from(segment).to_le_bytes());
        bytes[48..].copy_from_slice(&batch_sum(&words, store, segment).to_le_bytes());
        bytes
    }

    pub(super) fn decode(bytes: &[u8], store: u64, segment: u32) -> Option<Self> {
        let (words, _) = bytes.get(..BATCH_HEAD)?.as_chunks::<8>();
        let [magic, sequence, length, at, revision, of, sum] = std::array::from_fn(|n| u64::from_le_bytes(words[n]));
        let right = (magic >> 32) as u32 == BATCH_MAGIC
            && of == u64::from(segment)
            && sum == batch_sum(&[magic, sequence, length, at, revision], store, segment);
        right.then(|| BatchHead {
            entries: magic as u32,
            sequence,
            bytes: length,
            at: at.cast_signed(),
            revision: Revision(revision),
        })
    }

    /// From the beginning of this batch to that of the next.
    pub(super) fn whole(&self) -> u64 {
        (BATCH_HEAD as u64).saturating_add(self.bytes).saturating_add(ALIGN as u64 - 1) / ALIGN as u64 * ALIGN as u64
    }
}

fn batch_sum(words: &[u64; 5], store: u64, segment: u32) -> u64 {
    let mut mix = Mix::new();
    mix.number(store);
    mix.number(segment.into());
    words.iter().for_each(|word| mix.number(*word));
    mix.finish()
}

/// What an entry says.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum EntryKind {
    /// The key has the value from the revision on.
    Put,
    /// The key is gone from the revision on.
    Delete,
    /// The states before the revision are forgotten.
    Compact,
}

/// The beginning of an entry.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct EntryHead {
    pub(super) kind: EntryKind,
    pub(super) key_len: u16,
    pub(super) value_len: u32,
    pub(super) revision: Revision,
    pub(super) deadline: Option<Deadline>,
    sum: u64,
}

impl EntryHead {
    /// The length of the entry with key and value.
    pub(super) fn whole(&self) -> usize {
        ENTRY_HEAD + usize::from(self.key_len) + self.value_len as usize
    }

    /// Reads a head; whether key and value belong to it is for [`matches`](EntryHead::matches) to say.
    pub(super) fn decode(bytes: &[u8]) -> Option<Self> {
        let (words, _) = bytes.get(..ENTRY_HEAD)?.as_chunks::<8>();
        let [lengths, revision, deadline, sum] = std::array::from_fn(|n| u64::from_le_bytes(words[n]));
        let kind = match lengths >> 48 {
            1 => EntryKind::Put,
            2 => EntryKind::Delete,
            3 => EntryKind::Compact,
            _ => return None,
        };
        let (key_len, value_len) = ((lengths >> 32) as u16, lengths as u32);
        if usize::from(key_len) > limits::MAX_KEY_BYTES || value_len as usize > limits::MAX_VALUE_BYTES {
            return None;
        }
        let deadline = Some(deadline.cast_signed()).filter(|deadline| *deadline != NEVER).map(Deadline);
        Some(EntryHead { kind, key_len, value_len, revision: Revision(revision), deadline, sum })
    }

    /// Whether this is what was written.
    pub(super) fn matches(&self, store: u64, key: &[u8], value: &[u8]) -> bool {
        self.sum == seal(content(store, self.kind, key, value), self.revision, self.deadline)
    }
}

/// The part of an entry's checksum that needs neither revision nor deadline: callers take it before they queue.
pub(super) fn content(store: u64, kind: EntryKind, key: &[u8], value: &[u8]) -> Mix {
    let mut mix = Mix::new();
    mix.number(store);
    mix.number(lengths(kind, key, value));
    mix.bytes(key);
    mix.bytes(value);
    mix
}

fn seal(mut content: Mix, revision: Revision, deadline: Option<Deadline>) -> u64 {
    content.number(revision.0);
    content.number(deadline.map_or(NEVER, |deadline| deadline.0).cast_unsigned());
    content.finish()
}

fn lengths(kind: EntryKind, key: &[u8], value: &[u8]) -> u64 {
    let kind = match kind {
        EntryKind::Put => 1,
        EntryKind::Delete => 2,
        EntryKind::Compact => 3,
    };
    kind << 48 | (key.len() as u64) << 32 | value.len() as u64
}

/// An entry that is to be written.
#[derive(Clone, Debug)]
pub(super) struct NewEntry<'a> {
    pub(super) kind: EntryKind,
    pub(super) key: &'a Key,
    pub(super) value: &'a [u8],
    pub(super) revision: Revision,
    pub(super) deadline: Option<Deadline>,
    /// As [`content`] gave it.
    pub(super) content: Mix,
}

impl NewEntry<'_> {
    pub(super) fn encode(&self, bytes: &mut Vec<u8>) {
        let deadline = self.deadline.map_or(NEVER, |deadline| deadline.0);
        bytes.extend_from_slice(&lengths(self.kind, self.key, self.value).to_le_bytes());
        bytes.extend_from_slice(&self.revision.0.to_le_bytes());
        bytes.extend_from_slice(&deadline.to_le_bytes());
        bytes.extend_from_slice(&seal(self.content, self.revision, self.deadline).to_le_bytes());
        bytes.extend_from_slice(self.key);
        bytes.extend_from_slice(self.value);
    }
}

/// An entry of a batch that was read.
#[derive(Clone, Debug)]
pub(super) struct ReadEntry<'a> {
    pub(super) head: EntryHead,
    /// Where it begins, from the beginning of the batch.
    pub(super) offset: usize,
    pub(super) key: &'a [u8],
    pub(super) value: &'a [u8],
}

/// The entries of a batch (`bytes` begin with its head), or where the first one that is not as it was written begins.
pub(super) fn entries<'a>(head: &BatchHead, bytes: &'a [u8], store: u64) -> Result<Vec<ReadEntry<'a>>, usize> {
    let mut read = Vec::with_capacity((head.entries as usize).min(bytes.len() / ENTRY_HEAD));
    let mut at = BATCH_HEAD;
    for _ in 0..head.entries {
        let entry = bytes.get(at..).and_then(|rest| {
            let head = EntryHead::decode(rest)?;
            let (key, value) = rest.get(ENTRY_HEAD..head.whole())?.split_at(head.key_len.into());
            head.matches(store, key, value).then_some(ReadEntry { head, offset: at, key, value })
        });
        let entry = entry.ok_or(at)?;
        at += entry.head.whole();
        read.push(entry);
    }
    if (at - BATCH_HEAD) as u64 == head.bytes { Ok(read) } else { Err(0) }
}
