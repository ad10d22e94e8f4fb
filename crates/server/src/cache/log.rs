//! The history of recent events, and who waits for the next one.
//!
//! Nothing is queued per watcher: the events are kept once, within one bound, and a watcher is a position that pulls.
//! Watchers with the same interest share a group, which has the batches of that interest alone; so an event touches the
//! groups that it is of interest to, and a watcher never goes through what cannot concern it. To be slow is to have a
//! position that its group has left behind.

use std::{
    collections::{HashMap, VecDeque},
    sync::{Arc, Mutex, MutexGuard},
    task::Waker,
};

use capstan_api::{Name, Str};
use capstan_storage::Revision;

use super::{
    error::CacheError,
    event::{Batch, Event},
    limits::MAX_WATCHERS,
    object::Object,
};

/// Which events can concern a watcher. Selectors come on top.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub(super) enum Interest {
    All,
    Namespace(Str),
    /// One key.
    Object(Str),
    /// One value of the resource's indexed field.
    Field(Str),
}

/// The history of a cache.
#[derive(Debug)]
pub(super) struct Log {
    max_events: usize,
    max_bytes: usize,
    indexed: Option<Name>,
    state: Mutex<State>,
}

#[derive(Debug, Default)]
struct State {
    /// Everything up to this revision has been published.
    seen: Revision,
    /// All that is remembered: the group of [`Interest::All`].
    all: Group,
    events: usize,
    bytes: usize,
    /// Stretches of which only the differences between their ends are known: no watch can start inside.
    gaps: VecDeque<(Revision, Revision)>,
    groups: HashMap<Interest, Group>,
    watchers: usize,
    next_watcher: u64,
    closed: bool,
}

/// The watchers of one interest.
#[derive(Debug, Default)]
struct Group {
    /// Every batch of this interest after `dropped`, with the events of this interest.
    recent: VecDeque<Arc<Batch>>,
    dropped: Revision,
    watchers: usize,
    /// Who waits for the next batch.
    wakers: HashMap<u64, Waker>,
}

/// Who is to be woken once no lock is held.
#[must_use = "watchers wait until they are woken"]
pub(super) struct Wakeups(Vec<Waker>);

impl Wakeups {
    pub(super) fn wake(self) {
        self.0.into_iter().for_each(Waker::wake);
    }
}

/// What a watcher finds.
pub(super) enum Pulled {
    Batch(Arc<Batch>),
    /// Nothing more up to this revision; the watcher will be woken.
    Nothing(Revision),
}

impl Log {
    pub(super) fn new(max_events: usize, max_bytes: usize, indexed: Option<Name>) -> Self {
        Log { max_events, max_bytes, indexed, state: Mutex::default() }
    }

    fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock().expect("nothing panics while the history is locked")
    }

    /// Begins at `revision`; before it there is nothing.
    pub(super) fn begin(&self, revision: Revision) {
        let mut state = self.lock();
        state.seen = revision;
        state.all.dropped = revision;
    }

    /// Tells that nothing up to `revision` will follow.
    pub(super) fn progress(&self, revision: Revision) {
        let mut state = self.lock();
        state.seen = state.seen.max(revision);
    }

    /// Publishes the next batch. After a gap it holds the differences to the last revision that was seen, else all
    /// changes.
    pub(super) fn publish(&self, batch: Batch, gap: bool) -> Wakeups {
        let mut guard = self.lock();
        let state = &mut *guard;
        if gap && state.seen.next() < batch.revision {
            state.gaps.push_back((state.seen, batch.revision));
        }
        state.seen = batch.revision;
        if batch.events.is_empty() {
            return Wakeups(Vec::new());
        }
        state.events += batch.events.len();
        state.bytes += bytes(&batch);
        let batch = Arc::new(batch);
        let mut wakeups = state.all.push(Arc::clone(&batch));
        for (interest, part) in self.parts(&state.groups, &batch) {
            wakeups.extend(state.groups.get_mut(&interest).map(|group| group.push(part)).into_iter().flatten());
        }
        // The newest batch stays, however large.
        while (state.events > self.max_events || state.bytes > self.max_bytes) && state.all.recent.len() > 1 {
            self.drop_oldest(state);
        }
        Wakeups(wakeups)
    }

    /// The batch as each group of those that it is of interest to has it.
    fn parts(&self, groups: &HashMap<Interest, Group>, batch: &Arc<Batch>) -> HashMap<Interest, Arc<Batch>> {
        let mut parts: HashMap<Interest, Vec<Arc<Event>>> = HashMap::new();
        if !groups.is_empty() {
            for event in &batch.events {
                for interest in self.interests(event).filter(|interest| groups.contains_key(interest)) {
                    parts.entry(interest).or_default().push(Arc::clone(event));
                }
            }
        }
        let whole = |events: Vec<_>| {
            if events.len() == batch.events.len() {
                return Arc::clone(batch);
            }
            Arc::new(Batch { revision: batch.revision, events })
        };
        parts.into_iter().map(|(interest, events)| (interest, whole(events))).collect()
    }

    /// The interests beside all that the event is of, each once.
    fn interests(&self, event: &Event) -> impl Iterator<Item = Interest> {
        let object = event.current.as_ref().or(event.previous.as_ref());
        let field = |object: &Arc<Object>| self.field(object);
        let (before, after) = (event.previous.as_ref().and_then(field), event.current.as_ref().and_then(field));
        let after = after.filter(|after| before.as_ref() != Some(after));
        let place = object.into_iter().flat_map(|object| {
            [Interest::Namespace(object.namespace().into()), Interest::Object(Str::from(&*object.key))]
        });
        place.chain(before).chain(after)
    }

    fn field(&self, object: &Object) -> Option<Interest> {
        // As for selectors, a field that is not there has an empty value.
        Some(Interest::Field(object.field(self.indexed.as_deref()?).unwrap_or_default().into()))
    }

    fn drop_oldest(&self, state: &mut State) {
        let Some(batch) = state.all.recent.pop_front() else { return };
        state.events -= batch.events.len();
        state.bytes -= bytes(&batch);
        state.all.dropped = batch.revision;
        state.gaps.retain(|&(_, end)| end > batch.revision);
        if state.groups.is_empty() {
            return;
        }
        for interest in batch.events.iter().flat_map(|event| self.interests(event)) {
            let Some(group) = state.groups.get_mut(&interest) else { continue };
            if group.recent.pop_front_if(|part| part.revision <= batch.revision).is_some() {
                group.dropped = batch.revision;
            }
        }
    }

    /// Puts a watcher in place that has seen everything up to `after`, or up to now. Returns its number and its
    /// position.
    pub(super) fn join(&self, interest: &Interest, after: Option<Revision>) -> Result<(u64, Revision), CacheError> {
        let mut guard = self.lock();
        let state = &mut *guard;
        let after = after.unwrap_or(state.seen);
        state.check(after, state.all.dropped)?;
        if state.watchers >= MAX_WATCHERS {
            return Err(CacheError::TooManyWatchers);
        }
        state.watchers += 1;
        state.next_watcher += 1;
        let seen = state.seen;
        if *interest == Interest::All {
            state.all.watchers += 1;
        } else {
            let new = || Group { dropped: seen, ..Group::default() };
            let group = state.groups.entry(interest.clone()).or_insert_with(new);
            group.watchers += 1;
            // What this watcher has not seen and the group does not have yet.
            let missing = state.all.recent.iter().rev();
            let missing = missing.skip_while(|batch| batch.revision > group.dropped);
            for batch in missing.take_while(|batch| batch.revision > after) {
                let events = batch.events.iter().filter(|event| self.interests(event).any(|other| other == *interest));
                let events: Vec<_> = events.cloned().collect();
                if !events.is_empty() {
                    group.recent.push_front(Arc::new(Batch { revision: batch.revision, events }));
                }
            }
            group.dropped = group.dropped.min(after);
        }
        Ok((state.next_watcher, after))
    }

    /// The next batch after `at`; if there is none, `waker` is woken with the next one.
    pub(super) fn pull(&self, id: u64, interest: &Interest, at: Revision, waker: &Waker) -> Result<Pulled, CacheError> {
        let mut state = self.lock();
        let seen = state.seen;
        let group = state.group(interest).ok_or(CacheError::Closed)?;
        let dropped = group.dropped;
        let next = group.recent.partition_point(|batch| batch.revision <= at);
        let found = group.recent.get(next).cloned();
        state.check(at, dropped)?;
        if let Some(batch) = found {
            return Ok(Pulled::Batch(batch));
        }
        let replaced = state.group(interest).and_then(|group| group.wakers.insert(id, waker.clone()));
        drop(state);
        // Without the lock: what a waker drops may be the last of a task, and that task may hold a watcher.
        drop(replaced);
        Ok(Pulled::Nothing(seen))
    }

    /// Takes the watcher away.
    pub(super) fn leave(&self, id: u64, interest: &Interest) {
        let mut state = self.lock();
        state.watchers -= 1;
        let Some(group) = state.group(interest) else { return };
        group.watchers -= 1;
        let waker = group.wakers.remove(&id);
        let unused = group.watchers == 0;
        let group = if unused { state.groups.remove(interest) } else { None };
        drop(state);
        drop((waker, group));
    }

    /// Ends all watches.
    pub(super) fn close(&self) -> Wakeups {
        let mut state = self.lock();
        state.closed = true;
        let State { all, groups, .. } = &mut *state;
        let groups = groups.values_mut().chain([all]);
        Wakeups(groups.flat_map(|group| group.wakers.drain().map(|(_, waker)| waker)).collect())
    }

    /// How many events are remembered, and how many watch.
    pub(super) fn size(&self) -> (usize, usize) {
        let state = self.lock();
        (state.events, state.watchers)
    }
}

impl State {
    fn group(&mut self, interest: &Interest) -> Option<&mut Group> {
        if *interest == Interest::All { Some(&mut self.all) } else { self.groups.get_mut(interest) }
    }

    /// Whether a watcher can go on from `at`, if what lies before `dropped` is gone.
    fn check(&self, at: Revision, dropped: Revision) -> Result<(), CacheError> {
        if self.closed {
            return Err(CacheError::Closed);
        }
        let inside = |&&(start, end): &&(Revision, Revision)| start < at && at < end;
        let gap = self.gaps.iter().find(inside).map(|&(_, end)| end);
        match gap.or((at < dropped).then_some(dropped)) {
            Some(oldest) => Err(CacheError::Expired { asked: at, oldest }),
            None => Ok(()),
        }
    }
}

impl Group {
    fn push(&mut self, batch: Arc<Batch>) -> Vec<Waker> {
        self.recent.push_back(batch);
        self.wakers.drain().map(|(_, waker)| waker).collect()
    }
}

fn bytes(batch: &Batch) -> usize {
    batch.events.iter().map(|event| event.bytes()).sum()
}
