//! Where items arrive and workers wait.
//!
//! Waking a worker costs more than all the rest, so one is woken only when there is something to look at and nobody is
//! looking: who looks finds what has come meanwhile, and who finds something and leaves more behind wakes the next.

use std::task::Waker;

use capstan_clock::Moment;

/// How many arrived items may wait to be sorted in; who brings one more sorts all of them in.
pub(super) const MAX_ARRIVED: usize = 4096;

/// A worker that is to be woken.
#[derive(Debug)]
struct Sleeper {
    id: u64,
    waker: Waker,
    /// When it wakes by itself. Of all who sleep one has to, at the time of the item whose time comes first.
    until: Option<Moment>,
}

/// What has arrived, and who waits. Behind a lock of its own, that is held for a few instructions at a time.
#[derive(Debug)]
pub(super) struct Hall<A> {
    pub(super) arrived: Vec<A>,
    /// Nothing arrives any more.
    pub(super) closed: bool,
    /// Who fell asleep last is woken first: what it knows is still warm.
    sleepers: Vec<Sleeper>,
    /// How many have found nothing and are awake, or are being woken.
    searching: usize,
    next_id: u64,
}

impl<A> Default for Hall<A> {
    fn default() -> Self {
        Hall { arrived: Vec::new(), closed: false, sleepers: Vec::new(), searching: 0, next_id: 0 }
    }
}

impl<A> Hall<A> {
    /// Somebody found nothing and goes on looking.
    pub(super) fn begin_search(&mut self) {
        self.searching += 1;
    }

    /// Somebody who is awake stops looking.
    pub(super) fn end_search(&mut self) {
        self.searching -= 1;
    }

    /// Whether somebody sleeps who wakes by then.
    pub(super) fn is_watched(&self, deadline: Moment) -> bool {
        self.sleepers.iter().any(|sleeper| sleeper.until.is_some_and(|until| until <= deadline))
    }

    /// Lets somebody who is awake fall asleep, under a number.
    pub(super) fn fall_asleep(&mut self, waker: Waker, until: Option<Moment>) -> u64 {
        let id = self.next_id;
        self.next_id += 1;
        self.searching -= 1;
        self.sleepers.push(Sleeper { id, waker, until });
        id
    }

    /// Whether one sleeps, who is to be woken through this waker from now on.
    pub(super) fn is_asleep(&mut self, id: u64, waker: &Waker) -> bool {
        let sleeper = self.sleepers.iter_mut().find(|sleeper| sleeper.id == id);
        if let Some(sleeper) = sleeper {
            sleeper.waker.clone_from(waker);
            return true;
        }
        false
    }

    /// One who sleeps wakes up by itself. Whoever has been woken already is awake.
    pub(super) fn wake_up(&mut self, id: u64) {
        if let Some(at) = self.sleepers.iter().position(|sleeper| sleeper.id == id) {
            self.sleepers.remove(at);
            self.searching += 1;
        }
    }

    /// Whom to wake because there is something to look at: nobody while somebody looks.
    pub(super) fn wake_one(&mut self) -> Option<Waker> {
        if self.searching > 0 {
            return None;
        }
        let sleeper = self.sleepers.pop()?;
        self.searching = 1;
        Some(sleeper.waker)
    }

    /// Whom to wake when it is over: all of them.
    pub(super) fn wake_all(&mut self) -> Vec<Waker> {
        self.searching += self.sleepers.len();
        self.sleepers.drain(..).map(|sleeper| sleeper.waker).collect()
    }
}
