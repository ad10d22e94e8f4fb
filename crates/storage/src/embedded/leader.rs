//! The one commit point: a thread that checks preconditions, gives out revisions, makes a batch durable with one sync,
//! publishes it and answers, in this order.
//!
//! It works on a state of its own, ahead of the published one by the batch that it builds. When the batch fails, it
//! goes back to the published one, and nothing has happened.

use std::{sync::Arc, time::Duration};

use capstan_clock::Timestamp;
use tokio::sync::{mpsc, oneshot};

use super::{
    Shared,
    files::Point,
    format::{ALIGN, BATCH_HEAD, BatchHead, ENTRY_HEAD, EntryKind, NewEntry, content},
    leaf::Place,
    log::{AppendError, Log},
    segment::{Segment, entry_value},
    state::State,
};
use crate::{
    Action, Committed, Event, Fault, FaultKind, Key, KeyValue, Op, Revision, Value, expiry::Deadline, hash::Mix,
    limits::MAX_COMMIT_BYTES, sync,
};

/// The most requests that wait for the leader; more wait in their own futures.
pub(super) const QUEUE: usize = 1024;

/// The most requests of one batch.
const BATCH_REQUESTS: usize = 1024;

/// A batch takes no more requests once it has so many bytes.
const BATCH_BYTES: usize = MAX_COMMIT_BYTES;

/// How long a commit waits for its answer.
pub(super) const COMMIT_WAIT: Duration = Duration::from_secs(60);

/// An operation with what could be worked out before it was queued.
#[derive(Debug)]
pub(super) struct Prepared {
    op: Op,
    content: Mix,
}

impl Prepared {
    pub(super) fn new(op: Op, store: u64) -> Self {
        let content = match &op.action {
            Action::Put { value, .. } => content(store, EntryKind::Put, &op.key, value),
            Action::Delete | Action::Check => content(store, EntryKind::Delete, &op.key, &[]),
        };
        Prepared { op, content }
    }

    fn bytes(&self) -> usize {
        let value = match &self.op.action {
            Action::Put { value, .. } => value.len(),
            Action::Delete | Action::Check => 0,
        };
        ENTRY_HEAD + self.op.key.len() + value
    }
}

/// Why a request was not carried out.
#[derive(Debug)]
pub(super) enum Refusal {
    /// Preconditions did not hold: which operation, its key, and where what is there is.
    Conflict {
        state: Box<State>,
        failed: Vec<(usize, Key, Option<Place>)>,
    },
    /// The revision has not happened.
    TooNew {
        current: Revision,
    },
    Fault(Fault),
    Uncertain(Fault),
}

pub(super) type Reply = oneshot::Sender<Result<Committed, Refusal>>;

/// What the leader is asked for.
#[derive(Debug)]
pub(super) enum Request {
    Commit {
        ops: Vec<Prepared>,
        reply: Reply,
    },
    /// Deletes those of the keys whose lifetime has passed.
    Expire {
        keys: Vec<Key>,
        reply: Reply,
    },
    Compact {
        revision: Revision,
        reply: Reply,
    },
    /// Changes that neither the log nor readers see; done between batches.
    Upkeep {
        change: Upkeep,
        reply: Reply,
    },
}

impl Request {
    /// Answers that nothing more is done.
    fn refuse(self) {
        let (Request::Commit { reply, .. }
        | Request::Expire { reply, .. }
        | Request::Compact { reply, .. }
        | Request::Upkeep { reply, .. }) = self;
        let fault = Fault::new(FaultKind::Closed, "the upkeep of the embedded store failed");
        // Whoever no longer waits needs no answer.
        let _ = reply.send(Err(Refusal::Fault(fault)));
    }
}

/// A value that was moved.
#[derive(Debug)]
pub(super) struct Relocation {
    /// Its key in the index that it is of.
    pub(super) key: Vec<u8>,
    pub(super) past: bool,
    pub(super) from: Place,
    pub(super) to: Place,
}

/// What upkeep changes in the state.
#[derive(Debug)]
pub(super) enum Upkeep {
    /// Forgets superseded values, by their key in the past.
    Forget(Vec<Vec<u8>>),
    /// Makes a segment of moved values known.
    Adopt(Arc<Segment>),
    Relocate(Vec<Relocation>),
    /// Lets go of segments that nothing refers to.
    Release(Vec<u32>),
}

/// The batch that is being built.
#[derive(Default)]
struct Pending {
    bytes: Vec<u8>,
    entries: u32,
    commits: Vec<(Revision, Arc<[Event]>)>,
    answers: Vec<(Reply, Result<Committed, Refusal>)>,
}

pub(super) struct Leader {
    pub(super) shared: Arc<Shared>,
    pub(super) log: Log,
    /// The published state, ahead by what is pending.
    pub(super) state: State,
    pub(super) dirty: bool,
    pending: Pending,
}

impl Leader {
    pub(super) fn new(shared: Arc<Shared>, log: Log, state: State) -> Self {
        Leader { shared, log, state, dirty: false, pending: Pending::default() }
    }

    /// Works until nobody can ask any more.
    pub(super) fn run(mut self, mut queue: mpsc::Receiver<Request>) {
        let _closing = CloseOnDrop(Arc::clone(&self.shared));
        let mut requests = Vec::with_capacity(BATCH_REQUESTS);
        while let Some(first) = sync::receive(&mut queue) {
            if self.shared.upkeep.has_failed() {
                // Without upkeep the log would only grow: better to stop than to fill the disk.
                queue.close();
                first.refuse();
                while let Ok(next) = queue.try_recv() {
                    next.refuse();
                }
                return;
            }
            let mut bytes = weight(&first);
            requests.push(first);
            while requests.len() < BATCH_REQUESTS && bytes < BATCH_BYTES {
                let Ok(next) = queue.try_recv() else { break };
                bytes += weight(&next);
                requests.push(next);
            }
            self.serve(requests.drain(..), bytes);
        }
        if self.dirty {
            // A last batch without entries: so damage of the one before it is not taken for a torn tail.
            self.batch(std::iter::empty(), 0);
        }
    }

    fn serve(&mut self, requests: impl Iterator<Item = Request>, bytes: usize) {
        let mut upkeep = Vec::new();
        let requests = requests.filter_map(|request| match request {
            Request::Upkeep { change, reply } => {
                upkeep.push((change, reply));
                None
            }
            other => Some(other),
        });
        let requests: Vec<_> = requests.collect();
        if !requests.is_empty() {
            self.batch(requests.into_iter(), bytes as u64);
        }
        if !upkeep.is_empty() {
            let replies: Vec<_> = upkeep.into_iter().map(|(change, reply)| (self.keep_up(change), reply).1).collect();
            self.publish_quietly();
            let done = Committed { revision: self.state.revision, changed: false };
            replies.into_iter().for_each(|reply| drop(reply.send(Ok(done))));
        }
    }

    /// Carries out requests as one batch.
    fn batch(&mut self, requests: impl Iterator<Item = Request>, bytes: u64) {
        let now = self.shared.options.clock.now();
        let room = bytes + (BATCH_HEAD + ENTRY_HEAD + ALIGN) as u64;
        match self.log.make_room(&mut self.state.end, self.state.revision, room) {
            Ok(false) => {}
            Ok(true) => {
                self.state.segments.insert(self.state.end.segment, Arc::clone(&self.log.segment));
                self.publish_quietly();
                // One that could not be made is tried again.
                if self.log.spare.is_wanted() {
                    self.shared.upkeep.nudge();
                }
            }
            Err(fault) => return refuse(requests, &fault),
        }
        let first = self.state.revision.next();
        self.state.mark(first, now.as_millisecond(), self.shared.options.retention);
        self.pending.bytes.resize(BATCH_HEAD, 0);
        let mut asked = 0;
        for request in requests {
            asked += 1;
            self.carry_out(request, now);
        }
        let retained = self.state.retained_from(self.shared.options.retention, now);
        if self.pending.entries > 0 && retained > self.state.compacted {
            self.compact(retained);
        }
        let changed = self.pending.entries > 0 || asked == 0;
        let written = if changed { self.write(first, now) } else { Ok(()) };
        let mut pending = std::mem::take(&mut self.pending);
        match written {
            Ok(()) => self.publish(&mut pending, changed),
            Err(error) => self.take_back(&mut pending, error),
        }
        pending.bytes.clear();
        self.pending = Pending { bytes: pending.bytes, ..Pending::default() };
    }

    fn carry_out(&mut self, request: Request, now: Timestamp) {
        let (reply, outcome) = match request {
            Request::Commit { ops, reply } => (reply, self.commit(ops, now)),
            Request::Expire { keys, reply } => {
                let due = |key: &Key| {
                    let deadline = self.state.present.get(key).and_then(|place| place.deadline);
                    deadline.is_some_and(|deadline| deadline.passed(now))
                };
                let ops = keys.into_iter().filter(due).map(|key| Prepared::new(Op::delete(key), self.log.store));
                let ops = ops.collect();
                (reply, self.commit(ops, now))
            }
            Request::Compact { revision, reply } if revision > self.state.revision => {
                (reply, Err(Refusal::TooNew { current: self.state.revision }))
            }
            Request::Compact { revision, reply } => {
                if revision > self.state.compacted {
                    self.compact(revision);
                }
                (reply, Ok(Committed { revision: self.state.revision, changed: false }))
            }
            Request::Upkeep { .. } => return,
        };
        self.pending.answers.push((reply, outcome));
    }

    fn commit(&mut self, ops: Vec<Prepared>, now: Timestamp) -> Result<Committed, Refusal> {
        let current: Vec<_> = ops.iter().map(|prepared| self.state.present.get(&prepared.op.key)).collect();
        let failed = |(prepared, place): &(&Prepared, &Option<Place>)| {
            let found = place.map_or(Revision::ABSENT, |place| place.revision);
            prepared.op.expected.is_some_and(|expected| expected != found)
        };
        let failed: Vec<_> = (ops.iter().zip(&current).enumerate())
            .filter(|(_, pair)| failed(pair))
            .map(|(index, (prepared, place))| (index, prepared.op.key.clone(), *place))
            .collect();
        if !failed.is_empty() {
            return Err(Refusal::Conflict { state: Box::new(self.state.clone()), failed });
        }
        let changes = ops.into_iter().zip(current).filter(|(prepared, place)| match prepared.op.action {
            Action::Check => false,
            Action::Delete => place.is_some(),
            Action::Put { .. } => true,
        });
        // All that can fail comes before anything is changed.
        let changes = changes.map(|(prepared, place)| {
            let previous = place.map(|place| self.previous(&prepared.op.key, &place)).transpose()?;
            Ok((prepared, previous))
        });
        let changes = changes.collect::<Result<Vec<_>, Fault>>().map_err(Refusal::Fault)?;
        if changes.is_empty() {
            return Ok(Committed { revision: self.state.revision, changed: false });
        }
        let revision = self.state.revision.next();
        let events = changes.into_iter().map(|(prepared, previous)| self.change(prepared, previous, revision, now));
        let events: Arc<[Event]> = events.collect();
        self.pending.commits.push((revision, events));
        Ok(Committed { revision, changed: true })
    }

    fn change(&mut self, prepared: Prepared, previous: Option<KeyValue>, revision: Revision, now: Timestamp) -> Event {
        let Prepared { op: Op { key, action, .. }, content } = prepared;
        let put = match action {
            Action::Put { value, expires } => Some((value, expires.map(|ttl| Deadline::after(now, ttl)))),
            Action::Delete | Action::Check => None,
        };
        let (kind, value, deadline) = match &put {
            Some((value, deadline)) => (EntryKind::Put, value.clone(), *deadline),
            None => (EntryKind::Delete, Value::new(), None),
        };
        let offset = self.enter(&NewEntry { kind, key: &key, value: &value, revision, deadline, content });
        let (segment, value_len) = (self.state.end.segment, length(value.len()));
        let place = put.as_ref().map(|_| Place { revision, segment, offset, value_len, deadline });
        self.state.set(&key, revision, place.as_ref());
        let current = put.map(|_| KeyValue { key: key.clone(), value, mod_revision: revision });
        Event { key, current, previous }
    }

    /// Adds an entry to the batch and returns where in the segment it begins.
    fn enter(&mut self, entry: &NewEntry<'_>) -> u32 {
        let offset = self.state.end.offset + self.pending.bytes.len() as u64;
        entry.encode(&mut self.pending.bytes);
        self.pending.entries += 1;
        u32::try_from(offset).expect("segments are far below 4 GiB")
    }

    fn compact(&mut self, revision: Revision) {
        let (kind, key) = (EntryKind::Compact, Key::new());
        let content = content(self.log.store, kind, &key, &[]);
        self.enter(&NewEntry { kind, key: &key, value: &[], revision, deadline: None, content });
        self.state.compact(revision);
    }

    /// What is under a key, which may be in the batch itself.
    fn previous(&self, key: &Key, place: &Place) -> Result<KeyValue, Fault> {
        let end = &self.state.end;
        if place.segment != end.segment || u64::from(place.offset) < end.offset {
            return self.state.read(key, place);
        }
        let entry = &self.pending.bytes[(u64::from(place.offset) - end.offset) as usize..];
        let value = entry_value(entry, key, place, self.log.store).expect("the batch is as it was built");
        let value = Value::copy_from_slice(&entry[value]);
        Ok(KeyValue { key: key.clone(), value, mod_revision: place.revision })
    }

    /// Makes the batch durable.
    fn write(&mut self, first: Revision, now: Timestamp) -> Result<(), AppendError> {
        let (bytes, end) = (&mut self.pending.bytes, &mut self.state.end);
        let head = BatchHead {
            entries: self.pending.entries,
            sequence: end.sequence,
            bytes: (bytes.len() - BATCH_HEAD) as u64,
            at: now.as_millisecond(),
            revision: first,
        };
        bytes[..BATCH_HEAD].copy_from_slice(&head.encode(self.log.store, end.segment));
        bytes.resize(bytes.len().next_multiple_of(ALIGN), 0);
        self.log.append(end, bytes)?;
        end.offset += bytes.len() as u64;
        end.sequence += 1;
        self.dirty = self.pending.entries > 0;
        self.shared.upkeep.appended(bytes.len() as u64);
        if self.log.look_ahead(end) {
            self.shared.upkeep.nudge();
        }
        Ok(())
    }

    /// Lets readers and watches see the batch, and answers.
    fn publish(&mut self, pending: &mut Pending, changed: bool) {
        let files = &self.log.files;
        if changed {
            files.pass(Point::BeforePublish);
            let compacted = self.state.compacted;
            let mut published = self.shared.lock();
            let before = std::mem::replace(&mut *published, self.state.clone());
            // Under the lock, so that a watch finds no commit missing between the state and the hub.
            let commits = pending.commits.drain(..);
            let wakeups: Vec<_> =
                commits.map(|(revision, events)| self.shared.hub.publish(revision, &events)).collect();
            drop(published);
            self.shared.freshness.reached(self.state.revision);
            files.pass(Point::AfterPublish);
            answer(pending);
            wakeups.into_iter().for_each(crate::hub::Wakeups::wake);
            if compacted > before.compacted {
                self.shared.upkeep.nudge();
            }
        } else {
            // Nothing changed, but for a mark that may have been set.
            self.state = self.shared.lock().clone();
            answer(pending);
        }
    }

    /// Goes back to what is published. A batch that may be on the disk is ruled out by a new segment, if one can be
    /// had.
    fn take_back(&mut self, pending: &mut Pending, error: AppendError) {
        self.state = self.shared.lock().clone();
        let refusal: fn(Fault) -> Refusal;
        let fault = match error {
            AppendError::Not(fault) => {
                refusal = Refusal::Fault;
                fault
            }
            AppendError::Perhaps(fault) => {
                let ruled_out = self.log.make_room(&mut self.state.end, self.state.revision, 0);
                refusal = if ruled_out.is_ok() { Refusal::Fault } else { Refusal::Uncertain };
                if ruled_out.is_ok() {
                    self.state.segments.insert(self.state.end.segment, Arc::clone(&self.log.segment));
                    self.publish_quietly();
                }
                fault
            }
        };
        for (reply, _) in pending.answers.drain(..) {
            // Who asks may be gone.
            let _ = reply.send(Err(refusal(fault.clone())));
        }
    }

    fn keep_up(&mut self, change: Upkeep) {
        match change {
            Upkeep::Forget(keys) => {
                for key in keys {
                    self.state.past.set(&key, None);
                }
            }
            Upkeep::Adopt(segment) => {
                self.state.segments.insert(segment.head.id, segment);
            }
            Upkeep::Release(ids) => {
                for id in ids {
                    self.state.segments.remove(&id);
                }
            }
            Upkeep::Relocate(relocations) => {
                for Relocation { key, past, from, to } in relocations {
                    let index = if past { &mut self.state.past } else { &mut self.state.present };
                    if index.get(&key) == Some(from) {
                        index.set(&key, Some(&to));
                    }
                }
            }
        }
    }

    /// Publishes a state that differs in nothing that readers could tell.
    fn publish_quietly(&self) {
        let before = std::mem::replace(&mut *self.shared.lock(), self.state.clone());
        drop(before);
    }
}

fn answer(pending: &mut Pending) {
    for (reply, outcome) in pending.answers.drain(..) {
        // Who asks may be gone.
        let _ = reply.send(outcome);
    }
}

fn refuse(requests: impl Iterator<Item = Request>, fault: &Fault) {
    for request in requests {
        let (Request::Commit { reply, .. }
        | Request::Expire { reply, .. }
        | Request::Compact { reply, .. }
        | Request::Upkeep { reply, .. }) = request;
        let _ = reply.send(Err(Refusal::Fault(fault.clone())));
    }
}

fn weight(request: &Request) -> usize {
    match request {
        Request::Commit { ops, .. } => ops.iter().map(Prepared::bytes).sum(),
        Request::Expire { keys, .. } => keys.iter().map(|key| ENTRY_HEAD + key.len()).sum(),
        Request::Compact { .. } => ENTRY_HEAD,
        Request::Upkeep { .. } => 0,
    }
}

pub(super) fn length(bytes: usize) -> u32 {
    u32::try_from(bytes).expect("values are far below 4 GiB")
}

/// However the leader ends, watches learn of it.
struct CloseOnDrop(Arc<Shared>);

impl Drop for CloseOnDrop {
    fn drop(&mut self) {
        self.0.hub.close(closed()).wake();
    }
}

pub(super) fn closed() -> Fault {
    Fault::new(FaultKind::Closed, "the embedded store was closed")
}
