//! The road of a change: queue, store, handlers.

use std::{
    collections::{BTreeMap, BTreeSet},
    sync::{Arc, Mutex, MutexGuard, PoisonError},
    time::Duration,
};

use capstan_clock::{Moment, SharedClock};
use tokio::sync::{Notify, watch};

use super::{
    buffer::Buffer,
    notification::Notification,
    part::{Territory, Versions},
};
use crate::{
    Kept, Key,
    beat::race,
    delta_fifo::{Delta, DeltaFIFO, Popped},
    kept::Erased,
    reflector::ReflectorStore,
    store::Indexer,
};

/// The shortest resync period: below it a resync would never end.
const MIN_RESYNC: Duration = Duration::from_secs(1);

/// What the reflector, the handlers and readers share.
#[derive(Debug)]
pub(super) struct Shared {
    pub(super) indexer: Indexer<Erased>,
    pub(super) synced: watch::Sender<bool>,
    /// Up to which versions the store has everything.
    pub(super) versions: watch::Sender<Versions>,
    /// What the parts are, each of which is listed by itself.
    territories: Vec<Territory>,
    processor: Mutex<Processor>,
    resync_changed: Notify,
    clock: SharedClock,
}

#[derive(Debug)]
struct Processor {
    fifo: DeltaFIFO<Erased>,
    /// Parts of which nothing is known yet.
    unlisted: BTreeSet<usize>,
    listeners: BTreeMap<u64, Listener>,
    next_id: u64,
    closed: bool,
}

impl Processor {
    fn has_synced(&self) -> bool {
        self.unlisted.is_empty() && self.fifo.has_synced()
    }
}

#[derive(Debug)]
struct Listener {
    buffer: Arc<Buffer>,
    resync: Option<Resync>,
}

#[derive(Clone, Copy, Debug)]
struct Resync {
    period: Duration,
    next: Moment,
}

impl Shared {
    pub(super) fn new(clock: SharedClock, territories: Vec<Territory>) -> Self {
        let processor = Processor {
            fifo: DeltaFIFO::default(),
            unlisted: (0..territories.len()).collect(),
            listeners: BTreeMap::new(),
            next_id: 0,
            closed: false,
        };
        Shared {
            indexer: Indexer::default(),
            synced: watch::Sender::new(false),
            versions: watch::Sender::new(Versions(vec![String::new(); territories.len()])),
            territories,
            processor: Mutex::new(processor),
            resync_changed: Notify::new(),
            clock,
        }
    }

    fn lock(&self) -> MutexGuard<'_, Processor> {
        // Nothing panics under the lock.
        self.processor.lock().unwrap_or_else(PoisonError::into_inner)
    }

    pub(super) fn close(&self) {
        let mut processor = self.lock();
        processor.closed = true;
        std::mem::take(&mut processor.listeners).values().for_each(|listener| listener.buffer.close());
    }

    pub(super) fn unregister(&self, id: u64) {
        self.lock().listeners.remove(&id);
    }

    /// Adds a listener, who gets all there is. Nothing happens between the two: the lock is held.
    pub(super) fn register(&self, buffer: &Arc<Buffer>, period: Option<Duration>) -> u64 {
        let mut processor = self.lock();
        for (key, object) in self.indexer.snapshot().iter_kept() {
            buffer.push(key, Notification::Add { new: object, is_in_initial_list: true });
        }
        if processor.has_synced() {
            buffer.mark_synced();
        }
        let id = processor.next_id;
        processor.next_id += 1;
        if processor.closed {
            buffer.close();
            return id;
        }
        let resync = period.filter(|period| !period.is_zero()).map(|period| period.max(MIN_RESYNC));
        let resync = resync.map(|period| Resync { period, next: self.clock.monotonic().plus(period) });
        processor.listeners.insert(id, Listener { buffer: Arc::clone(buffer), resync });
        drop(processor);
        self.resync_changed.notify_one();
        id
    }

    /// Resyncs those whose time has come, for ever.
    pub(super) async fn resync(&self) {
        loop {
            let next = self.lock().listeners.values().filter_map(|listener| Some(listener.resync?.next)).min();
            match next {
                None => self.resync_changed.notified().await,
                Some(next) => drop(race(self.clock.sleep_until(next), self.resync_changed.notified()).await),
            }
            let now = self.clock.monotonic();
            let mut processor = self.lock();
            let mut due = Vec::new();
            for listener in processor.listeners.values_mut() {
                if let Some(resync) = listener.resync.as_mut().filter(|resync| resync.next <= now) {
                    resync.next = now.plus(resync.period);
                    due.push(Arc::clone(&listener.buffer));
                }
            }
            if !due.is_empty() {
                processor.fifo.resync(&self.indexer);
                self.process(&mut processor, &due, false);
            }
        }
    }

    fn change(&self, part: usize, change: impl FnOnce(&mut DeltaFIFO<Erased>)) {
        let mut processor = self.lock();
        change(&mut processor.fifo);
        processor.unlisted.remove(&part);
        self.process(&mut processor, &[], false);
    }

    /// These are all objects of a part.
    fn replace(&self, part: usize, objects: &BTreeMap<Key, Kept<Erased>>) {
        let (mut processor, territory) = (self.lock(), &self.territories[part]);
        processor.fifo.replace_part(objects, &self.indexer, |key| territory.has_key(key));
        let first = processor.unlisted.remove(&part);
        self.process(&mut processor, &[], first);
    }

    /// Empties the queue: into the store first, then to all listeners. Only those who are due hear of a resync.
    fn process(&self, processor: &mut Processor, due: &[Arc<Buffer>], first: bool) {
        while let Some(Popped { key, deltas, is_in_initial_list }) = processor.fifo.pop() {
            for delta in deltas.in_order() {
                if let Delta::Sync(object) = delta {
                    let again = Notification::Update { old: object.clone(), new: object };
                    due.iter().for_each(|buffer| buffer.push_sync(&key, again.clone()));
                    continue;
                }
                if let Some(notification) = self.store(&key, delta, first || is_in_initial_list) {
                    processor.listeners.values().for_each(|to| to.buffer.push(&key, notification.clone()));
                }
            }
        }
        if processor.has_synced() && !*self.synced.borrow() {
            processor.listeners.values().for_each(|listener| listener.buffer.mark_synced());
            self.synced.send_replace(true);
        }
    }

    /// Puts a change into the store, and says what it is to those who knew the store before.
    fn store(&self, key: &Key, delta: Delta<Erased>, is_in_initial_list: bool) -> Option<Notification> {
        let relisted = matches!(delta, Delta::Replaced(_));
        match delta {
            Delta::Deleted(deleted) => self.indexer.remove(key).map(|_| Notification::Delete(deleted)),
            Delta::Added(new) | Delta::Updated(new) | Delta::Replaced(new) | Delta::Sync(new) => {
                match self.indexer.insert(key, new.clone()) {
                    None => Some(Notification::Add { new, is_in_initial_list }),
                    // A list that shows what is known already is no change.
                    Some(old) if relisted && old.is_same(&new) => None,
                    Some(old) => Some(Notification::Update { old, new }),
                }
            }
        }
    }
}

/// What the reflector of one part writes to.
pub(super) struct PartStore {
    pub(super) shared: Arc<Shared>,
    pub(super) part: usize,
}

impl ReflectorStore<Erased> for PartStore {
    fn is_empty(&self) -> bool {
        self.shared.indexer.is_empty()
    }

    fn get(&self, key: &str) -> Option<Kept<Erased>> {
        self.shared.indexer.kept(key)
    }

    fn add(&mut self, key: Key, object: Kept<Erased>) {
        self.shared.change(self.part, |fifo| fifo.add(&key, object));
    }

    fn update(&mut self, key: Key, object: Kept<Erased>) {
        self.shared.change(self.part, |fifo| fifo.update(&key, object));
    }

    fn delete(&mut self, key: Key, object: Option<Kept<Erased>>) {
        self.shared.change(self.part, |fifo| fifo.delete(&key, object, &self.shared.indexer));
    }

    fn replace(&mut self, objects: BTreeMap<Key, Kept<Erased>>) {
        self.shared.replace(self.part, &objects);
    }

    fn synced_to(&mut self, resource_version: &str) {
        self.shared.versions.send_if_modified(|known| {
            let known = &mut known.0[self.part];
            let changed = known != resource_version;
            if changed {
                resource_version.clone_into(known);
            }
            changed
        });
    }
}
