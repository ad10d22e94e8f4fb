//! Upkeep: a thread that prepares spare segments, forgets what was compacted, moves live values out of old segments,
//! writes checkpoints and removes what they make superfluous.
//!
//! It works on snapshots and asks the leader for every change of the state, in small steps, so that commits go on. No
//! file is removed before a checkpoint that does not need it is durable.

use std::{
    collections::{HashMap, HashSet},
    sync::{Arc, PoisonError},
};

use tokio::sync::{mpsc, oneshot};

use super::{
    Shared, Tuning, checkpoint,
    files::{Files, Point, write_all},
    format::{ENTRY_HEAD, SegmentKind},
    leader::{Relocation, Request, Upkeep},
    leaf::Place,
    log::{SegmentIds, Spare},
    moved::MovedWriter,
    open::SPARE,
    segment,
    state::{State, past_parts},
};
use crate::{
    Fault, Key, Revision,
    sync::{
        self, Condvar, Mutex, MutexGuard,
        atomic::{AtomicBool, Ordering},
    },
};

/// How many changes of the state the leader is asked for at a time.
const STEP: usize = 512;

/// How many times live values are looked for in segments that are to go: a commit may supersede one while it is moved.
const ROUNDS: usize = 3;

/// How much is moved in one go at most.
const MOVED_BYTES: u64 = 512 * 1024 * 1024;

/// A checkpoint is due when the log has grown by so many times its size.
const CHECKPOINT_GROWTH: u64 = 4;

/// How the leader asks for upkeep.
#[derive(Debug, Default)]
pub(super) struct UpkeepSignal {
    wanted: Mutex<Wanted>,
    changed: Condvar,
    failed: AtomicBool,
}

/// All under one lock: if the count began anew apart from where it leads to, bytes that come between would be taken by
/// the old measure, and the checkpoint that they make due by the new one would never be asked for.
#[derive(Debug, Default)]
struct Wanted {
    look: bool,
    stop: bool,
    /// The bytes of log since the count last began.
    appended: u64,
    /// With how many of them a checkpoint is due.
    due: u64,
}

impl UpkeepSignal {
    /// Asks the thread to look.
    pub(super) fn nudge(&self) {
        self.lock().look = true;
        self.changed.notify_one();
    }

    /// Tells how much was written to the log.
    pub(super) fn appended(&self, bytes: u64) {
        let mut wanted = self.lock();
        let was_due = wanted.is_due();
        wanted.appended += bytes;
        let becomes_due = !was_due && wanted.is_due();
        drop(wanted);
        if becomes_due {
            self.nudge();
        }
    }

    /// Whether a checkpoint is due.
    pub(super) fn is_due(&self) -> bool {
        self.lock().is_due()
    }

    /// Counts anew: the next checkpoint is due after so many bytes.
    pub(super) fn schedule(&self, bytes: u64) {
        let mut wanted = self.lock();
        (wanted.appended, wanted.due) = (0, bytes);
    }

    /// Whether the thread ended by a panic.
    pub(super) fn has_failed(&self) -> bool {
        self.failed.load(Ordering::Relaxed)
    }

    pub(super) fn stop(&self) {
        self.lock().stop = true;
        self.changed.notify_one();
    }

    fn stopping(&self) -> bool {
        self.lock().stop
    }

    /// Waits to be asked; false when it is over.
    pub(super) fn wait(&self) -> bool {
        let waited = self.changed.wait_while(self.lock(), |wanted| !wanted.look && !wanted.stop);
        let mut wanted = waited.unwrap_or_else(PoisonError::into_inner);
        if !wanted.stop {
            wanted.look = false;
        }
        !wanted.stop
    }

    fn lock(&self) -> MutexGuard<'_, Wanted> {
        self.wanted.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Wanted {
    fn is_due(&self) -> bool {
        self.appended >= self.due
    }
}

#[cfg(test)]
#[cfg(feature = "shuttle")]
impl UpkeepSignal {
    /// Whether the thread will look.
    pub(super) fn is_asked(&self) -> bool {
        self.lock().look
    }
}

pub(super) struct Keeper {
    pub(super) shared: Arc<Shared>,
    pub(super) files: Arc<dyn Files>,
    pub(super) store: u64,
    pub(super) queue: mpsc::Sender<Request>,
    pub(super) ids: Arc<SegmentIds>,
    pub(super) spare: Arc<Spare>,
    pub(super) tuning: Tuning,
    pub(super) checkpoint: u32,
    /// How long the next spare will be.
    pub(super) spare_bytes: u64,
    pub(super) spares: u32,
    /// Up to where the past was cleared.
    pub(super) swept: Revision,
    /// Segments that the state does not refer to, but the last checkpoint does.
    pub(super) released: Vec<u32>,
}

/// The store is closing, or what was tried has to wait: a full disk, a damaged value.
enum Stopped {
    Closing,
    Fault(#[expect(dead_code, reason = "told by whoever reads or writes next")] Fault),
}

impl From<Fault> for Stopped {
    fn from(fault: Fault) -> Self {
        Stopped::Fault(fault)
    }
}

/// Tells the leader when the thread panics.
struct TellPanic(Arc<Shared>);

impl Drop for TellPanic {
    fn drop(&mut self) {
        if std::thread::panicking() {
            self.0.upkeep.failed.store(true, Ordering::Relaxed);
        }
    }
}

impl Keeper {
    pub(super) fn run(mut self, replayed: u64) {
        let _tell = TellPanic(Arc::clone(&self.shared));
        self.shared.upkeep.schedule(self.tuning.checkpoint_bytes);
        self.shared.upkeep.appended(replayed);
        self.shared.upkeep.nudge();
        while self.shared.upkeep.wait() {
            // What fails now is tried again with the next look; meanwhile the log grows, and the disk shows why.
            if let Err(Stopped::Closing) = self.look() {
                return;
            }
        }
    }

    fn look(&mut self) -> Result<(), Stopped> {
        let spared = self.prepare_spare();
        self.sweep()?;
        if self.shared.upkeep.is_due() {
            let done = self.compact_and_checkpoint();
            if let Err(Stopped::Fault(_)) = &done {
                // Not at every commit again.
                self.shared.upkeep.schedule(self.tuning.checkpoint_bytes / 4);
            }
            done?;
        }
        spared.map_err(Stopped::Fault)
    }

    /// Makes a file of zeros, if one is wanted.
    fn prepare_spare(&mut self) -> Result<(), Fault> {
        if !self.spare.is_wanted() {
            return Ok(());
        }
        self.spares += 1;
        let name = format!("{SPARE}{:08x}", self.spares);
        let zeros = vec![0; self.spare_bytes.min(1024 * 1024) as usize];
        let made = self.files.create(&name).and_then(|file| {
            let mut at = 0;
            while at < self.spare_bytes {
                let length = zeros.len().min((self.spare_bytes - at) as usize);
                write_all(&*file, &zeros[..length], at)?;
                at += length as u64;
                // In steps: one long sync would hold up those of the log.
                file.sync()?;
            }
            self.files.sync_names()
        });
        if let Err(error) = made {
            let _ = self.files.remove(&name);
            return Err(super::files::fault("prepare", &name, &error));
        }
        self.spare_bytes = (self.spare_bytes * 4).min(self.tuning.segment_bytes);
        self.spare.put(name);
        Ok(())
    }

    /// Forgets superseded values that nobody can ask for any more.
    fn sweep(&mut self) -> Result<(), Stopped> {
        let state = self.shared.lock().clone();
        if state.compacted <= self.swept {
            return Ok(());
        }
        let mut forgotten = Vec::new();
        for (_, leaf) in state.past.leaves() {
            let mut walk = leaf.walk();
            while walk.next().is_some() {
                if past_parts(walk.key()).1 <= state.compacted {
                    forgotten.push(walk.key().to_vec());
                }
            }
            if forgotten.len() >= STEP {
                self.ask(Upkeep::Forget(std::mem::take(&mut forgotten)))?;
            }
        }
        self.ask(Upkeep::Forget(forgotten))?;
        self.swept = state.compacted;
        Ok(())
    }

    fn compact_and_checkpoint(&mut self) -> Result<(), Stopped> {
        self.files.pass(Point::BeforeCompaction);
        let cleared = self.clear_segments()?;
        self.files.pass(Point::AfterCompaction);
        self.ask(Upkeep::Release(cleared.clone()))?;
        self.released.extend(cleared);
        let state = self.shared.lock().clone();
        let number = self.checkpoint + 1;
        self.files.pass(Point::BeforeCheckpoint);
        let bytes = checkpoint::write(&*self.files, &state, self.store, number)?;
        self.files.pass(Point::DuringCheckpoint);
        checkpoint::install(&*self.files, number)?;
        self.files.pass(Point::AfterCheckpoint);
        let before = std::mem::replace(&mut self.checkpoint, number);
        self.shared.upkeep.schedule(self.tuning.checkpoint_bytes.max(CHECKPOINT_GROWTH * bytes));
        // What cannot be removed now is removed when the store is opened next.
        if before > 0 {
            let _ = self.files.remove(&checkpoint::name(before));
        }
        for id in std::mem::take(&mut self.released) {
            for kind in [SegmentKind::Log, SegmentKind::Moved] {
                let _ = self.files.remove(&segment::name(kind, id));
            }
        }
        Ok(())
    }

    /// Moves live values out of segments that are mostly dead; returns those that nothing refers to any more.
    fn clear_segments(&mut self) -> Result<Vec<u32>, Stopped> {
        let mut leaving = self.mostly_dead(&self.shared.lock().clone());
        for _ in 0..ROUNDS {
            let state = self.shared.lock().clone();
            let found = references(&state, &leaving);
            if found.is_empty() {
                break;
            }
            self.move_values(&state, found, &mut leaving)?;
        }
        let state = self.shared.lock().clone();
        for reference in references(&state, &leaving) {
            leaving.remove(&reference.place.segment);
        }
        Ok(leaving.into_iter().collect())
    }

    /// Segments that history does not need and of which less than half is alive.
    fn mostly_dead(&self, state: &State) -> HashSet<u32> {
        let mut alive: HashMap<u32, u64> = HashMap::new();
        for (index, past) in [(&state.present, false), (&state.past, true)] {
            for (_, leaf) in index.leaves() {
                let mut walk = leaf.walk();
                while let Some(place) = walk.next() {
                    let key = if past { past_parts(walk.key()).0.len() } else { walk.key().len() };
                    *alive.entry(place.segment).or_default() += entry_bytes(key, &place);
                }
            }
        }
        let logs: Vec<_> = state.segments.values().filter(|segment| segment.head.kind == SegmentKind::Log).collect();
        let past = logs.windows(2).filter(|pair| pair[1].head.revision <= state.compacted.next());
        let past = past.map(|pair| pair[0]);
        let moved = state.segments.values().filter(|segment| segment.head.kind == SegmentKind::Moved);
        let mut candidates: Vec<_> = past.chain(moved).collect();
        candidates.sort_by_key(|segment| alive.get(&segment.head.id).copied().unwrap_or(0));
        let mut moving = 0;
        let dead = candidates.into_iter().filter(|segment| {
            let alive = alive.get(&segment.head.id).copied().unwrap_or(0);
            let dead = segment.file.len().is_ok_and(|bytes| alive * 2 < bytes) && moving + alive <= MOVED_BYTES;
            moving += if dead { alive } else { 0 };
            dead
        });
        dead.map(|segment| segment.head.id).collect()
    }

    /// Writes values to a new segment and makes the state refer to them there. A segment with a damaged value stays.
    fn move_values(&mut self, state: &State, found: Vec<Reference>, leaving: &mut HashSet<u32>) -> Result<(), Stopped> {
        let mut writer = MovedWriter::begin(Arc::clone(&self.files), self.ids.next(), self.store)?;
        let mut relocations = Vec::with_capacity(found.len());
        for Reference { key, past, place } in found {
            if self.shared.upkeep.stopping() {
                return Err(Stopped::Closing);
            }
            let user_key = if past { past_parts(&key).0.into() } else { Key::copy_from_slice(&key) };
            let Ok(item) = state.read(&user_key, &place) else {
                leaving.remove(&place.segment);
                continue;
            };
            let to = writer.add(&item, place.deadline)?;
            relocations.push(Relocation { key, past, from: place, to });
        }
        self.ask(Upkeep::Adopt(writer.finish()?))?;
        while !relocations.is_empty() {
            let rest = relocations.split_off(relocations.len().min(STEP));
            self.ask(Upkeep::Relocate(std::mem::replace(&mut relocations, rest)))?;
        }
        Ok(())
    }

    /// Has the leader change the state, and waits until it has.
    fn ask(&self, change: Upkeep) -> Result<(), Stopped> {
        if self.shared.upkeep.stopping() {
            return Err(Stopped::Closing);
        }
        let (reply, answer) = oneshot::channel();
        let sent = sync::send(&self.queue, Request::Upkeep { change, reply });
        sent.map_err(|_| Stopped::Closing)?;
        sync::answer(answer).map_err(|_| Stopped::Closing)?.map_err(|_| Stopped::Closing)?;
        Ok(())
    }
}

/// Who refers to a value.
struct Reference {
    key: Vec<u8>,
    past: bool,
    place: Place,
}

fn references(state: &State, segments: &HashSet<u32>) -> Vec<Reference> {
    let mut found = Vec::new();
    if segments.is_empty() {
        return found;
    }
    for (index, past) in [(&state.present, false), (&state.past, true)] {
        for (_, leaf) in index.leaves() {
            let mut walk = leaf.walk();
            while let Some(place) = walk.next() {
                if segments.contains(&place.segment) {
                    found.push(Reference { key: walk.key().to_vec(), past, place });
                }
            }
        }
    }
    found
}

fn entry_bytes(key: usize, place: &Place) -> u64 {
    (ENTRY_HEAD + key) as u64 + u64::from(place.value_len)
}
