//! Opening a directory: whose it is, what it holds, and where the log ends.
//!
//! A store's first segment is durable before the file [`IDENTITY`] is, which tells that the rest can be relied on. The
//! end of the log is the first batch of its last segment that is not whole, provided that none follows: a batch is
//! written only when the one before is durable, so one that is damaged and followed by another was acknowledged, and
//! nothing is served then.

use std::sync::Arc;

use capstan_clock::{Ids, OsIds};

use super::{
    Tuning, checkpoint,
    files::{Files, fault, read_up_to, write_all},
    format::{EntryKind, ReadEntry, SEGMENT_HEAD, SegmentHead, SegmentKind, entries, get_words, put_words},
    leaf::Place,
    moved::MovedWriter,
    segment::{self, Next, OpenError, Segment},
    state::{LogEnd, State},
};
use crate::{Fault, FaultKind, Retention, Revision, snapshot::SnapshotReader};

/// The file that says that a directory is a store, and which.
pub(super) const IDENTITY: &str = "STORE";

const IDENTITY_PARTIAL: &str = "STORE.partial";
const IDENTITY_BYTES: usize = 32;
const MAGIC: u64 = u64::from_le_bytes(*b"CAPSTORE");
const VERSION: u64 = 1;

/// How the names of files of zeros begin.
pub(super) const SPARE: &str = "spare-";

/// What was found in a directory.
pub(super) struct Opened {
    pub(super) store: u64,
    pub(super) state: State,
    /// The segment that the log goes on in.
    pub(super) segment: Arc<Segment>,
    /// The highest number that a segment has.
    pub(super) last_id: u32,
    /// The number of the checkpoint in place; 0: none.
    pub(super) checkpoint: u32,
    /// How much log there is after it.
    pub(super) replayed: u64,
}

/// Opens the store in a directory, or makes one if that is empty.
pub(super) fn open(files: &dyn Files, retention: Retention) -> Result<Opened, Fault> {
    let names = list(files)?;
    let Some(store) = identity(files, &names)? else {
        let made = create(files)?;
        identify(files, made.store)?;
        return Ok(made);
    };
    let checkpoint = names.iter().filter_map(|name| checkpoint::parse_name(name)).max().unwrap_or(0);
    let state = match checkpoint {
        0 => None,
        number => Some(checkpoint::read(files, &checkpoint::name(number), store)?),
    };
    let mut replay = Replay { files, store, retention, replayed: 0, last: None };
    let state = replay.run(state, &names)?;
    let segment = replay.last.take().ok_or_else(|| corrupt(files, "the last segment of the log is missing"))?;
    // What was found may have been written and not synced by whoever was killed: it is durable before anybody sees it.
    segment.file.sync().map_err(|error| fault("sync", &segment.name(), &error))?;
    let last_id = state.segments.get_max().map_or(0, |(id, _)| *id);
    tidy(files, &names, &state, checkpoint)?;
    Ok(Opened { store, state, segment, last_id, checkpoint, replayed: replay.replayed })
}

fn list(files: &dyn Files) -> Result<Vec<String>, Fault> {
    let mut names = files.list().map_err(|error| fault("list", &files.place(), &error))?;
    names.sort_unstable();
    Ok(names)
}

fn corrupt(files: &dyn Files, what: &str) -> Fault {
    Fault::new(FaultKind::Corrupt, format_args!("{}: {what}", files.place()))
}

/// The id of the store; `None` when the directory is empty, or as good as.
fn identity(files: &dyn Files, names: &[String]) -> Result<Option<u64>, Fault> {
    if names.iter().any(|name| name == IDENTITY) {
        let mut bytes = [0; IDENTITY_BYTES];
        let read = files.open(IDENTITY).and_then(|file| read_up_to(&*file, &mut bytes, 0));
        read.map_err(|error| fault("read", IDENTITY, &error))?;
        return match get_words::<3>(&bytes) {
            Some([MAGIC, VERSION, store]) => Ok(Some(store)),
            Some([MAGIC, version, _]) => {
                let made = format_args!("{} is of format {version}, this is {VERSION}", files.place()).to_string();
                Err(Fault::new(FaultKind::NotAStore, made))
            }
            _ if bytes.starts_with(&MAGIC.to_le_bytes()) => Err(corrupt(files, "STORE is damaged at offset 0")),
            _ => {
                let foreign = format_args!("{}: STORE is not a file of ours", files.place()).to_string();
                Err(Fault::new(FaultKind::NotAStore, foreign))
            }
        };
    }
    let first = segment::name(SegmentKind::Log, 1);
    for name in names.iter().filter(|name| *name != IDENTITY_PARTIAL) {
        // Whoever began to make this store got no further than an empty first segment.
        let begun =
            *name == first && files.open(name).and_then(|file| file.len()).is_ok_and(|len| len <= SEGMENT_HEAD as u64);
        if !begun {
            let foreign = format_args!("{} has no STORE, but has {name}", files.place()).to_string();
            return Err(Fault::new(FaultKind::NotAStore, foreign));
        }
    }
    Ok(None)
}

/// Makes an empty store, but for its identity.
fn create(files: &dyn Files) -> Result<Opened, Fault> {
    let store = OsIds.number();
    let end = LogEnd { segment: 1, offset: SEGMENT_HEAD as u64, sequence: 1 };
    let mut state = State::new(Revision::INITIAL, end);
    let segment = begin_log(files, store, &mut state)?;
    Ok(Opened { store, state, segment, last_id: 1, checkpoint: 0, replayed: 0 })
}

/// Begins the first segment of a log, at `state.end`.
pub(super) fn begin_log(files: &dyn Files, store: u64, state: &mut State) -> Result<Arc<Segment>, Fault> {
    let head = SegmentHead {
        kind: SegmentKind::Log,
        id: state.end.segment,
        previous: 0,
        previous_end: 0,
        sequence: state.end.sequence,
        revision: state.revision.next(),
    };
    let segment = Segment::begin(files, None, head, store)?;
    state.segments.insert(head.id, Arc::clone(&segment));
    Ok(segment)
}

/// Says that the directory is a store.
pub(super) fn identify(files: &dyn Files, store: u64) -> Result<(), Fault> {
    let identify = || {
        let file = files.create(IDENTITY_PARTIAL)?;
        let mut bytes = [0; IDENTITY_BYTES];
        put_words(&mut bytes, &[MAGIC, VERSION, store]);
        write_all(&*file, &bytes, 0)?;
        file.sync()?;
        files.rename(IDENTITY_PARTIAL, IDENTITY)?;
        files.sync_names()
    };
    identify().map_err(|error| fault("write", IDENTITY, &error))
}

struct Replay<'a> {
    files: &'a dyn Files,
    store: u64,
    retention: Retention,
    replayed: u64,
    last: Option<Arc<Segment>>,
}

impl Replay<'_> {
    /// Brings the state up to the end of the log.
    fn run(&mut self, state: Option<State>, names: &[String]) -> Result<State, Fault> {
        let logs = names.iter().filter_map(|name| segment::parse_name(name));
        let mut ids: Vec<u32> = logs.filter(|(kind, _)| *kind == SegmentKind::Log).map(|(_, id)| id).collect();
        ids.sort_unstable();
        let from = state.as_ref().map_or(1, |state| state.end.segment);
        ids.retain(|id| *id >= from);
        if ids.first() != Some(&from) {
            let missing = segment::name(SegmentKind::Log, from);
            return Err(corrupt(self.files, &format!("{missing} is missing")));
        }
        let mut segments = Vec::new();
        for (n, id) in ids.iter().enumerate() {
            match Segment::open(self.files, SegmentKind::Log, *id, self.store) {
                Ok(segment) => segments.push(segment),
                Err(OpenError::NeverBegun) if n > 0 && n + 1 == ids.len() => {
                    let name = segment::name(SegmentKind::Log, *id);
                    self.files.remove(&name).map_err(|error| fault("remove", &name, &error))?;
                }
                Err(OpenError::NeverBegun) => {
                    let name = segment::name(SegmentKind::Log, *id);
                    return Err(corrupt(self.files, &format!("{name} is damaged at offset 0: its head is missing")));
                }
                Err(OpenError::Fault(fault)) => return Err(fault),
            }
        }
        let mut state = state.unwrap_or_else(|| {
            let end = LogEnd { segment: 1, offset: SEGMENT_HEAD as u64, sequence: 1 };
            State::new(Revision::INITIAL, end)
        });
        for (n, segment) in segments.iter().enumerate() {
            state.segments.insert(segment.head.id, Arc::clone(segment));
            let next = segments.get(n + 1).map(|next| next.head);
            if let Some(next) = next.filter(|next| next.previous != segment.head.id) {
                let missing = segment::name(SegmentKind::Log, next.previous);
                return Err(corrupt(self.files, &format!("{missing} is missing")));
            }
            self.segment(&mut state, segment, next)?;
        }
        self.last = segments.pop();
        Ok(state)
    }

    /// Replays a segment from where the state ends, up to where the next one says that it ends, or to the end of the
    /// log.
    fn segment(&mut self, state: &mut State, segment: &Segment, next: Option<SegmentHead>) -> Result<(), Fault> {
        while next.is_none_or(|next| state.end.offset < next.previous_end) {
            let (offset, sequence) = (state.end.offset, state.end.sequence);
            let bad = match segment.batch(offset, sequence)? {
                Next::Nothing => 0,
                Next::Batch(head, bytes) => match entries(&head, &bytes, self.store) {
                    Ok(entries) => {
                        state.mark(head.revision, head.at, self.retention);
                        entries.iter().for_each(|entry| apply(state, entry));
                        state.end.offset += head.whole();
                        state.end.sequence += 1;
                        self.replayed += head.whole();
                        continue;
                    }
                    Err(bad) => bad,
                },
            };
            if next.is_some() || segment.search(offset, sequence)?.is_some() {
                return Err(segment.damaged(offset + bad as u64));
            }
            return Ok(());
        }
        if let Some(next) = next {
            if (state.end.offset, state.end.sequence) != (next.previous_end, next.sequence) {
                return Err(segment.damaged(next.previous_end));
            }
            state.end = LogEnd { segment: next.id, offset: SEGMENT_HEAD as u64, sequence: next.sequence };
        }
        Ok(())
    }
}

fn apply(state: &mut State, entry: &ReadEntry<'_>) {
    let head = &entry.head;
    let offset = state.end.offset + entry.offset as u64;
    let place = Place {
        revision: head.revision,
        segment: state.end.segment,
        offset: u32::try_from(offset).unwrap_or(u32::MAX),
        value_len: head.value_len,
        deadline: head.deadline,
    };
    match head.kind {
        EntryKind::Put => state.set(entry.key, head.revision, Some(&place)),
        EntryKind::Delete => state.set(entry.key, head.revision, None),
        EntryKind::Compact => state.compact(head.revision),
    }
}

/// Removes what a crash left behind and nothing refers to.
fn tidy(files: &dyn Files, names: &[String], state: &State, checkpoint: u32) -> Result<(), Fault> {
    for name in names {
        let superfluous = match (segment::parse_name(name), checkpoint::parse_name(name)) {
            (Some((_, id)), _) => !state.segments.contains_key(&id),
            (_, Some(number)) => number != checkpoint,
            _ => name == checkpoint::PARTIAL || name == IDENTITY_PARTIAL || name.starts_with(SPARE),
        };
        if superfluous {
            match files.remove(name) {
                Err(error) if error.kind() != std::io::ErrorKind::NotFound => {
                    return Err(fault("remove", name, &error));
                }
                _ => {}
            }
        }
    }
    Ok(())
}

/// Makes a store with what a snapshot holds: segments of its values, a checkpoint of where they are, an empty log, and
/// last its identity.
pub(super) fn restore(files: &Arc<dyn Files>, snapshot: &mut SnapshotReader, tuning: Tuning) -> Result<Opened, Fault> {
    let names = list(&**files)?;
    if let Some(name) = names.first() {
        let occupied = format_args!("{} is not empty: it has {name}", files.place()).to_string();
        return Err(Fault::new(FaultKind::NotAStore, occupied));
    }
    let store = OsIds.number();
    let end = LogEnd { segment: 1, offset: SEGMENT_HEAD as u64, sequence: 1 };
    let mut state = State::new(snapshot.revision(), end);
    let segment = begin_log(&**files, store, &mut state)?;
    let (mut last_id, mut writer) = (1, None::<MovedWriter>);
    while let Some((item, deadline)) = snapshot.next()? {
        if let Some(full) = writer.take_if(|writer| writer.bytes() >= tuning.segment_bytes) {
            state.segments.insert(last_id, full.finish()?);
        }
        if writer.is_none() {
            last_id += 1;
            writer = Some(MovedWriter::begin(Arc::clone(files), last_id, store)?);
        }
        if let Some(writer) = &mut writer {
            let place = writer.add(&item, deadline)?;
            state.present.set(&item.key, Some(&place));
        }
    }
    if let Some(writer) = writer {
        state.segments.insert(last_id, writer.finish()?);
    }
    checkpoint::write(&**files, &state, store, 1)?;
    checkpoint::install(&**files, 1)?;
    identify(&**files, store)?;
    Ok(Opened { store, state, segment, last_id, checkpoint: 1, replayed: 0 })
}
