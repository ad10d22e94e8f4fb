//! The watch hub: how engines inside this process hand committed changes to watches.
//!
//! Nothing is queued per watch. The hub keeps the recent batches of each watched prefix once, for all watches of that
//! prefix, within one bound for all; a watch is a position that pulls. To be slow is to have a position that the recent
//! batches have left behind: such a watch reads on from the engine's [`History`] until it is back among the recent
//! ones. So parking and resuming is no special case, a commit does the same work whether readers are fast or slow, and
//! the changes of a commit are filtered once a prefix and not once a watch.

use std::{
    collections::{BTreeMap, VecDeque},
    future::Future,
    pin::Pin,
    sync::Arc,
    task::{Context, Poll, Waker},
};

use crate::{
    Batch, Event, Fault, FaultKind, Key, ReadError, Revision, Watch, WatchItem, WatchRequest, WatchSource,
    limits::MAX_WATCHES,
    sync::{Mutex, MutexGuard},
};

/// How many bytes of recent batches a hub keeps for its watches, over all prefixes.
pub(crate) const RECENT_BYTES: usize = 8 * 1024 * 1024;

/// What an event counts beside its keys and values.
const EVENT_OVERHEAD: usize = 128;

/// A future of the next stretch of history.
pub(crate) type Reading = Pin<Box<dyn Future<Output = Result<Stretch, ReadError>> + Send>>;

/// Where a watch that is behind the recent batches reads on.
pub(crate) trait History: Send + Sync + 'static {
    /// The next batches under `prefix` after `after`: as many as the engine finds handy, bounded. Fails as compacted
    /// when changes after `after` are gone. Must make progress: `through` is after `after`, unless the store stands at
    /// it.
    fn read(&self, prefix: &Key, after: Revision) -> Reading;
}

/// A stretch of history.
#[derive(Debug)]
pub(crate) struct Stretch {
    /// The batches, in order.
    pub(crate) batches: VecDeque<Batch>,
    /// Everything up to this revision is in, not just up to the last batch.
    pub(crate) through: Revision,
}

/// The hub; one per store.
#[derive(Debug)]
pub(crate) struct Hub {
    budget: usize,
    state: Mutex<State>,
}

#[derive(Debug)]
struct State {
    /// The last revision that was published.
    seen: Revision,
    groups: BTreeMap<Key, Group>,
    /// The revisions that some group keeps a batch of, oldest first, with their bytes.
    kept: VecDeque<(Revision, usize)>,
    bytes: usize,
    watches: usize,
    next_watch: u64,
    closed: Option<Fault>,
}

/// All watches of one prefix.
#[derive(Debug)]
struct Group {
    /// Every batch of this prefix after `dropped`.
    recent: VecDeque<Batch>,
    /// The last revision whose changes under this prefix may not be in `recent`.
    dropped: Revision,
    watches: usize,
    /// Who waits for the next batch; ordered, so that a seeded simulation wakes in the same order every time.
    wakers: BTreeMap<u64, Waker>,
}

/// Who is to be woken after a publication, once the engine has let go of its locks.
#[derive(Debug)]
#[must_use = "watches wait until they are woken"]
pub(crate) struct Wakeups(Vec<Waker>);

impl Wakeups {
    pub(crate) fn wake(self) {
        self.0.into_iter().for_each(Waker::wake);
    }
}

impl Hub {
    /// The hub of a store that stands at `revision`; `budget` is [`RECENT_BYTES`] outside tests.
    pub(crate) fn new(revision: Revision, budget: usize) -> Self {
        let state = State {
            seen: revision,
            groups: BTreeMap::new(),
            kept: VecDeque::new(),
            bytes: 0,
            watches: 0,
            next_watch: 0,
            closed: None,
        };
        Hub { budget, state: Mutex::new(state) }
    }

    /// Publishes the next commit. To be called in the order of revisions, when reads see the commit.
    pub(crate) fn publish(&self, revision: Revision, events: &Arc<[Event]>) -> Wakeups {
        let mut state = self.lock();
        debug_assert!(revision > state.seen, "published out of order");
        state.seen = revision;
        let mut wakeups = Vec::new();
        let mut matched = false;
        for (prefix, group) in &mut state.groups {
            if let Some(events) = under(prefix, events) {
                group.recent.push_back(Batch { revision, events });
                wakeups.extend(std::mem::take(&mut group.wakers).into_values());
                matched = true;
            }
        }
        if matched {
            let bytes = events.iter().map(event_bytes).sum();
            state.kept.push_back((revision, bytes));
            state.bytes += bytes;
            while state.bytes > self.budget {
                state.drop_oldest();
            }
        }
        Wakeups(wakeups)
    }

    /// Ends every watch with `fault` when it has delivered what is recent; for engines that cannot go on.
    pub(crate) fn close(&self, fault: Fault) -> Wakeups {
        let mut state = self.lock();
        state.closed.get_or_insert(fault);
        Wakeups(state.groups.values_mut().flat_map(|group| std::mem::take(&mut group.wakers).into_values()).collect())
    }

    /// Puts a watch in place. The engine has checked `request.after` against its present and its compaction revision,
    /// in an order such that no publication lies between the check and this call, or that `history` can make up for it.
    pub(crate) fn watch(
        self: &Arc<Self>,
        request: WatchRequest,
        history: Arc<dyn History>,
    ) -> Result<Watch, ReadError> {
        let mut state = self.lock();
        if state.watches >= MAX_WATCHES {
            return Err(Fault::too_many_watches().into());
        }
        state.watches += 1;
        state.next_watch += 1;
        let (id, seen) = (state.next_watch, state.seen);
        let group = state.groups.entry(request.prefix.clone()).or_insert_with(|| Group {
            recent: VecDeque::new(),
            dropped: seen,
            watches: 0,
            wakers: BTreeMap::new(),
        });
        group.watches += 1;
        drop(state);
        Ok(Watch::new(Position {
            id,
            hub: Arc::clone(self),
            prefix: request.prefix,
            at: request.after,
            history,
            reading: None,
            stretch: None,
            progress: false,
        }))
    }

    fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock().expect("nothing panics while the hub is locked")
    }
}

impl State {
    fn drop_oldest(&mut self) {
        let Some((oldest, bytes)) = self.kept.pop_front() else { return };
        self.bytes -= bytes;
        for group in self.groups.values_mut() {
            if group.recent.pop_front_if(|batch| batch.revision <= oldest).is_some() {
                group.dropped = oldest;
            }
        }
    }
}

/// The events of keys with this prefix; shared when that is all of them, nothing when it is none.
pub(crate) fn under(prefix: &Key, events: &Arc<[Event]>) -> Option<Arc<[Event]>> {
    let matches = |event: &&Event| event.key.starts_with(prefix);
    match events.iter().filter(matches).count() {
        0 => None,
        n if n == events.len() => Some(Arc::clone(events)),
        _ => Some(events.iter().filter(matches).cloned().collect()),
    }
}

fn event_bytes(event: &Event) -> usize {
    let values = [&event.current, &event.previous].into_iter().flatten();
    values.map(|item| item.value.len()).sum::<usize>() + event.key.len() + EVENT_OVERHEAD
}

/// A watch: how far it has come, and the stretch of history that it is reading if it is behind.
struct Position {
    id: u64,
    hub: Arc<Hub>,
    prefix: Key,
    /// Everything up to this revision has been delivered.
    at: Revision,
    history: Arc<dyn History>,
    reading: Option<Reading>,
    stretch: Option<Stretch>,
    progress: bool,
}

/// What a position finds among the recent batches.
enum Recent {
    Item(WatchItem),
    Behind,
    Nothing,
}

impl Position {
    /// Takes the next batch of the stretch; at its end moves to where it reaches.
    fn next_of_stretch(&mut self) -> Option<Batch> {
        let stretch = self.stretch.as_mut()?;
        let batch = stretch.batches.pop_front();
        match &batch {
            Some(batch) => self.at = batch.revision,
            None => {
                self.at = self.at.max(stretch.through);
                self.stretch = None;
            }
        }
        batch
    }

    fn next_of_recent(&mut self, cx: &Context<'_>) -> Result<Recent, ReadError> {
        let mut state = self.hub.lock();
        let State { seen, closed, groups, .. } = &mut *state;
        let Some(group) = groups.get_mut(&self.prefix) else {
            return Err(Fault::new(FaultKind::Closed, "the watch is not registered").into());
        };
        if self.at < group.dropped {
            return Ok(Recent::Behind);
        }
        let next = group.recent.partition_point(|batch| batch.revision <= self.at);
        if let Some(batch) = group.recent.get(next) {
            self.at = batch.revision;
            return Ok(Recent::Item(WatchItem::Batch(batch.clone())));
        }
        self.at = self.at.max(*seen);
        if let Some(fault) = closed {
            return Err(fault.clone().into());
        }
        if std::mem::take(&mut self.progress) {
            return Ok(Recent::Item(WatchItem::Progress(self.at)));
        }
        let replaced = group.wakers.insert(self.id, cx.waker().clone());
        drop(state);
        // Without the lock: what a waker drops may be the last of a task, and that task may hold a watch.
        drop(replaced);
        Ok(Recent::Nothing)
    }
}

impl WatchSource for Position {
    fn poll_next(&mut self, cx: &mut Context<'_>) -> Poll<Result<WatchItem, ReadError>> {
        loop {
            if let Some(batch) = self.next_of_stretch() {
                return Poll::Ready(Ok(WatchItem::Batch(batch)));
            }
            if let Some(reading) = &mut self.reading {
                let Poll::Ready(read) = reading.as_mut().poll(cx) else { return Poll::Pending };
                self.reading = None;
                self.stretch = Some(read?);
                continue;
            }
            match self.next_of_recent(cx)? {
                Recent::Item(item) => return Poll::Ready(Ok(item)),
                Recent::Behind => self.reading = Some(self.history.read(&self.prefix, self.at)),
                Recent::Nothing => return Poll::Pending,
            }
        }
    }

    fn request_progress(&mut self) {
        self.progress = true;
    }
}

impl Drop for Position {
    fn drop(&mut self) {
        let mut state = self.hub.lock();
        state.watches -= 1;
        let Some(group) = state.groups.get_mut(&self.prefix) else { return };
        let waker = group.wakers.remove(&self.id);
        group.watches -= 1;
        let group = if group.watches == 0 { state.groups.remove(&self.prefix) } else { None };
        drop(state);
        // Without the lock: a waker may drop another watch, a group may free many batches.
        drop((waker, group));
    }
}
