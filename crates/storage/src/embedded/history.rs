//! History: the commits after a revision, read back from the log for a watch that is behind.

use std::{collections::VecDeque, sync::Arc};

use super::{
    format::{EntryKind, ReadEntry, SegmentKind, entries},
    segment::Next,
    state::{LogEnd, State},
};
use crate::{Batch, Event, Fault, FaultKind, Key, KeyValue, ReadError, Revision, Value, hub::Stretch};

/// How many bytes of log a watch that is behind looks through at a time.
const STRETCH_BYTES: u64 = 1024 * 1024;

/// How many keys the index is asked about before a watch goes through the log instead.
const ASKED_KEYS: usize = 1024;

/// The next commits under `prefix` after `after`.
pub(super) fn read(state: &State, store: u64, prefix: &Key, after: Revision) -> Result<Stretch, ReadError> {
    if after < state.compacted {
        return Err(ReadError::Compacted { asked: after, compacted: state.compacted });
    }
    let mut stretch = Stretch { batches: VecDeque::new(), through: after };
    if after >= state.revision {
        return Ok(stretch);
    }
    if state.unchanged(prefix, after, ASKED_KEYS) {
        stretch.through = state.revision;
        return Ok(stretch);
    }
    let (_, mark) = state.marks.get_prev(&after.next()).ok_or_else(|| lost(after))?;
    let (mut at, mut read) = (mark.place, 0);
    while read < STRETCH_BYTES || stretch.through == after {
        at = hop(state, at);
        if at == state.end {
            break;
        }
        let segment = state.segments.get(&at.segment).ok_or_else(|| lost(after))?;
        let Next::Batch(head, bytes) = segment.batch(at.offset, at.sequence)? else {
            return Err(segment.damaged(at.offset).into());
        };
        let entries = entries(&head, &bytes, store).map_err(|offset| segment.damaged(at.offset + offset as u64))?;
        for commit in entries.chunk_by(|a, b| same_commit(a) == same_commit(b)) {
            let Some(revision) = same_commit(&commit[0]).filter(|revision| *revision > after) else { continue };
            stretch.through = revision;
            let matching = commit.iter().filter(|entry| entry.key.starts_with(prefix));
            let events = matching.map(|entry| event(state, entry)).collect::<Result<Vec<_>, Fault>>()?;
            if !events.is_empty() {
                stretch.batches.push_back(Batch { revision, events: Arc::from(events) });
            }
        }
        at.offset += head.whole();
        at.sequence += 1;
        read += head.whole();
    }
    Ok(stretch)
}

/// The beginning of the next segment, if `at` is the end of one.
fn hop(state: &State, at: LogEnd) -> LogEnd {
    let mut following = state.segments.range(at.segment.saturating_add(1)..).map(|(_, segment)| segment.head);
    match following.find(|head| head.kind == SegmentKind::Log) {
        Some(next) if next.previous_end == at.offset => {
            hop(state, LogEnd { segment: next.id, offset: super::format::SEGMENT_HEAD as u64, sequence: at.sequence })
        }
        _ => at,
    }
}

/// The revision of the commit that an entry is of, if it is of one.
fn same_commit(entry: &ReadEntry<'_>) -> Option<Revision> {
    (entry.head.kind != EntryKind::Compact).then_some(entry.head.revision)
}

fn event(state: &State, entry: &ReadEntry<'_>) -> Result<Event, Fault> {
    let (key, revision) = (Key::copy_from_slice(entry.key), entry.head.revision);
    let previous = state.superseded_by(&key, revision).map(|place| state.read(&key, &place)).transpose()?;
    let current = (entry.head.kind == EntryKind::Put).then(|| KeyValue {
        key: key.clone(),
        value: Value::copy_from_slice(entry.value),
        mod_revision: revision,
    });
    Ok(Event { key, current, previous })
}

fn lost(after: Revision) -> ReadError {
    Fault::new(FaultKind::Corrupt, format_args!("the log after revision {after} is not where it should be")).into()
}
