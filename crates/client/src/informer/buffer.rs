//! What a handler has not heard yet.

use std::{
    collections::{BTreeMap, HashMap, hash_map::Entry},
    sync::{Mutex, MutexGuard, PoisonError},
};

use tokio::sync::{Notify, watch};

use super::notification::Notification;
use crate::Key;

/// What a handler has not heard yet: at most one entry a key, so no more than there are keys.
///
/// Filling it never waits, so a slow handler is nobody's trouble but its own: it hears less often, and then of the
/// newest state. For each key what it hears fits together: add, any number of updates, delete, and so on. Keys come in
/// the order in which the first thing happened to them that was not heard yet.
#[derive(Debug)]
pub(crate) struct Buffer {
    state: Mutex<State>,
    wake: Notify,
    phase: watch::Sender<Phase>,
}

/// How far a handler is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Phase {
    /// It has not heard all of the first list.
    Listing,
    /// It has.
    Synced,
    /// It never will.
    Closed,
}

#[derive(Debug)]
struct State {
    entries: HashMap<Key, (u64, Notification)>,
    order: BTreeMap<u64, Key>,
    next: u64,
    /// What came before this belongs to the first list.
    sync_at: Option<u64>,
    /// What the handler is being told.
    telling: Option<u64>,
    closed: bool,
}

impl State {
    fn is_synced(&self) -> bool {
        let first = self.telling.or_else(|| self.order.keys().next().copied());
        self.sync_at.is_some_and(|sync_at| first.is_none_or(|first| first >= sync_at))
    }
}

impl Default for Buffer {
    fn default() -> Self {
        let state = State {
            entries: HashMap::new(),
            order: BTreeMap::new(),
            next: 0,
            sync_at: None,
            telling: None,
            closed: false,
        };
        Buffer { state: Mutex::new(state), wake: Notify::new(), phase: watch::Sender::new(Phase::Listing) }
    }
}

impl Buffer {
    fn lock(&self) -> MutexGuard<'_, State> {
        // Nothing panics under the lock.
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Adds what is to be told.
    pub(crate) fn push(&self, key: &Key, notification: Notification) {
        let mut state = self.lock();
        let State { entries, order, next, .. } = &mut *state;
        match entries.entry(key.clone()) {
            Entry::Vacant(entry) => {
                order.insert(*next, key.clone());
                entry.insert((*next, notification));
                *next += 1;
            }
            Entry::Occupied(entry) => {
                let (at, earlier) = entry.remove();
                match earlier.then(notification) {
                    Some(both) => drop(entries.insert(key.clone(), (at, both))),
                    None => drop(order.remove(&at)),
                }
            }
        }
        drop(state);
        self.wake.notify_one();
    }

    /// Adds what is to be told again, unless there is something newer to tell.
    pub(crate) fn push_sync(&self, key: &Key, notification: Notification) {
        if !self.lock().entries.contains_key(key) {
            self.push(key, notification);
        }
    }

    /// All of the first list is in it.
    pub(crate) fn mark_synced(&self) {
        let mut state = self.lock();
        let next = state.next;
        state.sync_at.get_or_insert(next);
        self.publish(&state);
    }

    fn publish(&self, state: &State) {
        if state.is_synced() {
            self.enter(Phase::Synced);
        }
    }

    /// The first that comes after the list stays.
    fn enter(&self, phase: Phase) {
        self.phase.send_if_modified(|now| {
            let listing = *now == Phase::Listing;
            if listing {
                *now = phase;
            }
            listing
        });
    }

    /// Whether the handler has heard all of the first list.
    pub(crate) fn has_synced(&self) -> bool {
        *self.phase.borrow() == Phase::Synced
    }

    /// Waits until it has. False when it never will.
    pub(crate) async fn wait_for_sync(&self) -> bool {
        // The sender is here.
        let mut phase = self.phase.subscribe();
        phase.wait_for(|phase| *phase != Phase::Listing).await.is_ok_and(|phase| *phase == Phase::Synced)
    }

    /// Nothing will be told any more, and what waits is forgotten.
    pub(crate) fn close(&self) {
        let mut state = self.lock();
        state.closed = true;
        state.entries.clear();
        state.order.clear();
        self.enter(Phase::Closed);
        drop(state);
        self.wake.notify_one();
    }

    /// What to tell next, once there is something; none when it is closed. What was told before is done with.
    pub(crate) async fn next(&self) -> Option<(Key, Notification)> {
        loop {
            {
                let mut state = self.lock();
                state.telling = None;
                if state.closed {
                    return None;
                }
                if let Some((at, key)) = state.order.pop_first() {
                    state.telling = Some(at);
                    if let Some((_, notification)) = state.entries.remove(&key) {
                        return Some((key, notification));
                    }
                    continue;
                }
                self.publish(&state);
            }
            self.wake.notified().await;
        }
    }

    /// How many keys wait.
    pub(crate) fn len(&self) -> usize {
        self.lock().order.len()
    }

    /// What was told is done with.
    pub(crate) fn told(&self) {
        let mut state = self.lock();
        state.telling = None;
        self.publish(&state);
    }
}
