//! Checkpoints: the state without the values, in a file, so that opening a store does not read its whole log.
//!
//! A head, then blocks: each its length and kind, a checksum, and the payload. The leaves of the indexes go in as they
//! are in memory. A checkpoint is written under another name, synced and renamed.

use std::io;

use imbl::OrdMap;

use super::{
    files::{Files, Handle, fault, read_up_to, write_all},
    format::{SegmentKind, get_words, put_words},
    index::Index,
    leaf::Leaf,
    segment::{OpenError, Segment},
    state::{LogEnd, Mark, State},
};
use crate::{Fault, FaultKind, Key, Revision, hash::Mix};

const MAGIC: u64 = u64::from_le_bytes(*b"CAPCHKP\x01");

/// About how many bytes of leaves go into one block.
const BLOCK_BYTES: usize = 256 * 1024;

/// The most that a block can be long: that many leaves and one more of the longest keys.
const MAX_BLOCK_BYTES: usize = 64 * 1024 * 1024;

/// The length of the head: magic, store, number and their checksum.
const HEAD: usize = 32;

/// Length and kind, checksum.
const BLOCK_HEAD: usize = 16;

const META: u32 = 0;
const PRESENT: u32 = 1;
const PAST: u32 = 2;
const END: u32 = 3;

/// The name of a checkpoint.
pub(super) fn name(number: u32) -> String {
    format!("checkpoint-{number:08x}")
}

/// The number of the checkpoint with this name.
pub(super) fn parse_name(name: &str) -> Option<u32> {
    let number = name.strip_prefix("checkpoint-")?;
    (number.len() == 8).then(|| u32::from_str_radix(number, 16).ok())?
}

/// The name under which a checkpoint is written.
pub(super) const PARTIAL: &str = "checkpoint.partial";

/// Writes the state under [`PARTIAL`] and syncs it. Returns its size.
pub(super) fn write(files: &dyn Files, state: &State, store: u64, number: u32) -> Result<u64, Fault> {
    let writer = || -> io::Result<u64> {
        let mut writer = Writer { file: files.create(PARTIAL)?, at: HEAD as u64 };
        let mut head = [0; HEAD];
        put_words(&mut head, &[MAGIC, store, number.into()]);
        write_all(&*writer.file, &head, 0)?;
        writer.block(META, &meta(state))?;
        writer.index(PRESENT, &state.present)?;
        writer.index(PAST, &state.past)?;
        writer.block(END, &[])?;
        writer.file.sync()?;
        Ok(writer.at)
    };
    writer().map_err(|error| fault("write", PARTIAL, &error))
}

struct Writer {
    file: Box<dyn Handle>,
    at: u64,
}

impl Writer {
    fn block(&mut self, kind: u32, payload: &[u8]) -> io::Result<()> {
        let mut block = Vec::with_capacity(BLOCK_HEAD + payload.len());
        let length = u64::from(kind) << 32 | payload.len() as u64;
        block.extend_from_slice(&length.to_le_bytes());
        block.extend_from_slice(&block_sum(length, payload).to_le_bytes());
        block.extend_from_slice(payload);
        write_all(&*self.file, &block, self.at)?;
        self.at += block.len() as u64;
        Ok(())
    }

    fn index(&mut self, kind: u32, index: &Index) -> io::Result<()> {
        let mut payload = Vec::with_capacity(2 * BLOCK_BYTES);
        for (under, leaf) in index.leaves() {
            for bytes in [under, leaf.bytes()] {
                payload.extend_from_slice(&(bytes.len() as u32).to_le_bytes());
                payload.extend_from_slice(bytes);
            }
            if payload.len() >= BLOCK_BYTES {
                self.block(kind, &payload)?;
                payload.clear();
            }
        }
        if payload.is_empty() { Ok(()) } else { self.block(kind, &payload) }
    }
}

fn block_sum(length: u64, payload: &[u8]) -> u64 {
    let mut mix = Mix::new();
    mix.number(length);
    mix.bytes(payload);
    mix.finish()
}

/// Revision, compacted, superseded, end; segments; marks. All as words.
fn meta(state: &State) -> Vec<u8> {
    let mut words = vec![
        state.revision.0,
        state.compacted.0,
        state.superseded,
        state.end.segment.into(),
        state.end.offset,
        state.end.sequence,
        state.segments.len() as u64,
        state.marks.len() as u64,
    ];
    for (id, segment) in &state.segments {
        words.push(u64::from(*id) << 1 | u64::from(segment.head.kind == SegmentKind::Moved));
    }
    for (revision, mark) in &state.marks {
        let LogEnd { segment, offset, sequence } = mark.place;
        words.extend([revision.0, segment.into(), offset, sequence, mark.at.cast_unsigned(), mark.superseded]);
    }
    words.into_iter().flat_map(u64::to_le_bytes).collect()
}

/// Reads a checkpoint and opens the segments that it names.
pub(super) fn read(files: &dyn Files, name: &str, store: u64) -> Result<State, Fault> {
    let failed = |error: io::Error| fault("read", name, &error);
    let damaged = |offset: u64, how: &str| {
        let place = files.place();
        Fault::new(FaultKind::Corrupt, format_args!("{place}: {name} is damaged at offset {offset}: {how}"))
    };
    let file = files.open(name).map_err(failed)?;
    let mut head = [0; HEAD];
    read_up_to(&*file, &mut head, 0).map_err(failed)?;
    match get_words::<3>(&head) {
        Some([MAGIC, of, _]) if of == store => {}
        Some([MAGIC, ..]) => return Err(damaged(0, "it belongs to another store")),
        _ => return Err(damaged(0, "it does not begin like a checkpoint")),
    }
    let mut at = HEAD as u64;
    let (mut state, mut present, mut past) = (None, Leaves::default(), Leaves::default());
    loop {
        let (kind, payload) = block(&*file, at).map_err(failed)?.ok_or_else(|| damaged(at, "a block is not whole"))?;
        let done = match kind {
            META if state.is_none() => {
                state = Some(read_meta(&payload).ok_or_else(|| damaged(at, "the first block makes no sense"))?);
                true
            }
            PRESENT => present.add(&payload),
            PAST => past.add(&payload),
            END => break,
            _ => false,
        };
        if !done {
            return Err(damaged(at, "a block makes no sense"));
        }
        at += (BLOCK_HEAD + payload.len()) as u64;
    }
    let (mut state, segments) = state.ok_or_else(|| damaged(at, "the first block is missing"))?;
    state.present = Index::of(present.leaves);
    state.past = Index::of(past.leaves);
    for (kind, id) in segments {
        let segment = Segment::open(files, kind, id, store).map_err(|error| match error {
            OpenError::Fault(fault) => fault,
            OpenError::NeverBegun => damaged(at, "a segment that it names has no head"),
        })?;
        state.segments.insert(id, segment);
    }
    Ok(state)
}

fn block(file: &dyn Handle, at: u64) -> io::Result<Option<(u32, Vec<u8>)>> {
    let mut head = [0; BLOCK_HEAD];
    read_up_to(file, &mut head, at)?;
    let (words, _) = head.as_chunks::<8>();
    let (length, sum) = (u64::from_le_bytes(words[0]), u64::from_le_bytes(words[1]));
    let (kind, bytes) = ((length >> 32) as u32, length as u32 as usize);
    if bytes > MAX_BLOCK_BYTES {
        return Ok(None);
    }
    let mut payload = vec![0; bytes];
    let read = read_up_to(file, &mut payload, at + BLOCK_HEAD as u64)?;
    Ok((read == bytes && block_sum(length, &payload) == sum).then_some((kind, payload)))
}

type Named = Vec<(SegmentKind, u32)>;

fn read_meta(payload: &[u8]) -> Option<(State, Named)> {
    let mut words = payload.as_chunks::<8>().0.iter().map(|word| u64::from_le_bytes(*word));
    let mut next = || words.next();
    let (revision, compacted, superseded) = (Revision(next()?), Revision(next()?), next()?);
    let end = LogEnd { segment: u32::try_from(next()?).ok()?, offset: next()?, sequence: next()? };
    let (segments, marks) = (next()?, next()?);
    let mut named = Named::new();
    for _ in 0..segments {
        let word = next()?;
        let kind = if word & 1 == 1 { SegmentKind::Moved } else { SegmentKind::Log };
        named.push((kind, u32::try_from(word >> 1).ok()?));
    }
    let mut read = OrdMap::new();
    for _ in 0..marks {
        let revision = Revision(next()?);
        let place = LogEnd { segment: u32::try_from(next()?).ok()?, offset: next()?, sequence: next()? };
        read.insert(revision, Mark { place, at: next()?.cast_signed(), superseded: next()? });
    }
    let state = State { compacted, superseded, marks: read, ..State::new(revision, end) };
    Some((state, named))
}

/// The leaves of an index as they are read.
#[derive(Default)]
struct Leaves {
    leaves: Vec<(Key, Leaf)>,
    last: Option<Vec<u8>>,
}

impl Leaves {
    /// Takes a block in; false if it makes no sense.
    fn add(&mut self, mut payload: &[u8]) -> bool {
        while !payload.is_empty() {
            let Some((under, leaf)) = part(&mut payload).zip(part(&mut payload)) else { return false };
            let Some((leaf, last)) = Leaf::check(leaf, self.last.as_deref()) else { return false };
            let in_order = self.leaves.last().is_none_or(|(before, _)| before[..] < *under);
            let above = self.last.as_ref().is_none_or(|last| last[..] < *under);
            let below = leaf.first_key().is_none_or(|first| *under <= first[..]);
            if !in_order || !above || !below || self.leaves.is_empty() != under.is_empty() {
                return false;
            }
            if leaf.len() > 0 {
                self.last = Some(last);
            }
            self.leaves.push((Key::copy_from_slice(under), leaf));
        }
        true
    }
}

fn part<'a>(payload: &mut &'a [u8]) -> Option<&'a [u8]> {
    let (length, rest) = payload.split_first_chunk::<4>()?;
    let (part, rest) = rest.split_at_checked(u32::from_le_bytes(*length) as usize)?;
    *payload = rest;
    Some(part)
}

/// Gives a written checkpoint its name.
pub(super) fn install(files: &dyn Files, number: u32) -> Result<(), Fault> {
    let name = name(number);
    let installed = files.rename(PARTIAL, &name).and_then(|()| files.sync_names());
    installed.map_err(|error| fault("install", &name, &error))
}
