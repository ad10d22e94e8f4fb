//! The election as it happens: a clock, a Lease, and those who want to know.

use std::{
    fmt,
    sync::{
        Arc,
        atomic::{AtomicU64, Ordering},
    },
};

use capstan_client::{
    Error,
    beat::{Either, race},
};
use capstan_clock::{Moment, SharedClock, SharedIds};
use tokio::sync::watch;

use super::{Change, ConfigError, Input, LeaderElectionConfig, LeaderElector, LeaseLock, Next};
use crate::{Stop, metrics::Registry};

type OnError = Box<dyn Fn(&Error) + Send + Sync>;

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
struct Term {
    /// Until when this one leads unless it hears otherwise; none when it does not.
    until: Option<Moment>,
    /// How often the leader has changed: it tells this term from all others.
    number: u64,
}

/// Whether this process leads, by its own clock. Clones tell the same.
///
/// Who asks right before acting never acts after another one could lead, however long the process, its network or the
/// server slept: the term ends by the clock, not by a message.
#[derive(Clone)]
pub struct Leadership {
    clock: SharedClock,
    term: watch::Receiver<Term>,
}

impl fmt::Debug for Leadership {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Leadership").field("leads", &self.is_leader()).finish_non_exhaustive()
    }
}

impl Leadership {
    /// Whether this process may act as the leader now.
    #[must_use]
    pub fn is_leader(&self) -> bool {
        self.fencing_token().is_some()
    }

    /// The number of the term, if this process leads: later leaders have greater ones. Who writes it along with what it
    /// does, and refuses to go back, is safe even from one that falls asleep between asking and acting.
    #[must_use]
    pub fn fencing_token(&self) -> Option<u64> {
        let term = *self.term.borrow();
        term.until.is_some_and(|until| self.clock.monotonic() < until).then_some(term.number)
    }

    /// One that lasts so long, for tests, and what has to be kept for that.
    #[cfg(test)]
    pub(crate) fn fixed(clock: SharedClock, until: Option<Moment>) -> (impl Sized, Self) {
        let (sender, term) = watch::channel(Term { until, number: 1 });
        (sender, Leadership { clock, term })
    }

    /// Waits until this process leads. False when the election is over before.
    pub async fn acquired(&self) -> bool {
        self.term.clone().wait_for(|term| term.until.is_some()).await.is_ok()
    }

    /// Waits until this process does not lead.
    pub async fn lost(&self) {
        let mut term = self.term.clone();
        loop {
            let until = term.borrow_and_update().until;
            let Some(until) = until else { return };
            match race(term.changed(), self.clock.sleep_until(until)).await {
                Either::First(Ok(())) => {}
                Either::First(Err(_)) | Either::Second(()) => return,
            }
        }
    }
}

/// A candidate and its Lease.
pub struct LeaderElection {
    elector: LeaderElector,
    lock: LeaseLock,
    config: LeaderElectionConfig,
    clock: SharedClock,
    term: watch::Sender<Term>,
    on_error: Option<OnError>,
    /// How often a leader had to read the Lease before it could renew it.
    slow: Arc<AtomicU64>,
}

impl fmt::Debug for LeaderElection {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("LeaderElection").field("lock", &self.lock).finish_non_exhaustive()
    }
}

impl LeaderElection {
    /// A candidate that has done nothing yet.
    ///
    /// # Errors
    /// The durations do not go together, or the identity is empty.
    pub fn new(
        config: LeaderElectionConfig,
        lock: LeaseLock,
        clock: SharedClock,
        ids: SharedIds,
    ) -> Result<Self, ConfigError> {
        let elector = LeaderElector::new(config.clone(), ids)?;
        let term = watch::Sender::new(Term::default());
        Ok(LeaderElection { elector, lock, config, clock, term, on_error: None, slow: Arc::default() })
    }

    /// Hears why the Lease could not be read or written. That somebody else was quicker is no failure.
    #[must_use]
    pub fn on_error(mut self, on_error: impl Fn(&Error) + Send + Sync + 'static) -> Self {
        self.on_error = Some(Box::new(on_error));
        self
    }

    /// Tells whether this candidate leads.
    #[must_use]
    pub fn leadership(&self) -> Leadership {
        Leadership { clock: Arc::clone(&self.clock), term: self.term.subscribe() }
    }

    /// Tells the numbers of the election, under upstream's names.
    pub fn register(&self, registry: &Registry) {
        let (name, leadership, slow) = (self.lock.name().to_owned(), self.leadership(), Arc::clone(&self.slow));
        registry.register(move |families| {
            let labels = &[("name", &*name)];
            let leads = if leadership.is_leader() { 1.0 } else { 0.0 };
            families.gauge("leader_election_master_status", "1 for the leader, 0 for others.", labels, leads);
            let help = "Renewals before which the lease had to be read.";
            families.counter("leader_election_slowpath_total", help, labels, slow.load(Ordering::Relaxed));
        });
    }

    /// Takes part until the leadership is lost, or until it is time to go, when the Lease is freed. `changed` is told
    /// first, and must not wait.
    pub async fn run(mut self, stop: Stop, mut changed: impl FnMut(&Change) + Send) {
        let mut input = Input::Waited;
        loop {
            let (changes, next) = self.elector.step(self.clock.monotonic(), self.clock.now(), input);
            let term = Term { until: self.elector.deadline(), number: self.elector.transitions() };
            self.term.send_if_modified(|known| std::mem::replace(known, term) != term);
            changes.iter().for_each(&mut changed);
            if next == Next::Stopped {
                return;
            }
            input = self.act(next, &stop).await;
        }
    }

    /// Does what is next, but no longer than the term lasts, nor than it is to go on.
    async fn act(&mut self, next: Next, stop: &Stop) -> Input {
        let clock = Arc::clone(&self.clock);
        let deadline = self.elector.deadline();
        let patience = clock.monotonic().plus(self.config.renew_deadline);
        // A write is waited for, also when it is time to go: it may have made this one the leader, who frees the Lease.
        let unheard = self.elector.is_releasing() || matches!(next, Next::Create(_) | Next::Update(..));
        let (slow, on_error, lock) = (&self.slow, &self.on_error, &mut self.lock);
        let failed = |error: Error| {
            if let Some(on_error) = on_error.as_ref().filter(|_| !error.is_conflict() && !error.is_already_exists()) {
                on_error(&error);
            }
            Input::Failed
        };
        let answer = async {
            match next {
                Next::Wait(wait) => {
                    clock.sleep(wait).await;
                    Input::Waited
                }
                Next::Get => {
                    if deadline.is_some() {
                        slow.fetch_add(1, Ordering::Relaxed);
                    }
                    match lock.get().await {
                        Ok(Some((record, version))) => Input::Found(record, version),
                        Ok(None) => Input::NotFound,
                        Err(error) => failed(error),
                    }
                }
                Next::Create(record) => lock.write(&record, None).await.map_or_else(failed, Input::Written),
                Next::Update(record, version) => {
                    lock.write(&record, Some(&version)).await.map_or_else(failed, Input::Written)
                }
                Next::Stopped => Input::Stop,
            }
        };
        let end = async {
            match deadline {
                Some(deadline) => {
                    clock.sleep_until(deadline).await;
                    Input::Deadline
                }
                // A candidate does not wait for ever for an answer either. Its own waits are shorter.
                None => {
                    clock.sleep_until(patience).await;
                    Input::Failed
                }
            }
        };
        let ended = race(answer, race(end, stopped(stop, unheard))).await;
        match ended {
            Either::First(input) | Either::Second(Either::First(input)) => input,
            Either::Second(Either::Second(())) => Input::Stop,
        }
    }
}

/// Ready when it is time to go, unless that is to be heard later.
async fn stopped(stop: &Stop, later: bool) {
    if later {
        std::future::pending::<()>().await;
    }
    stop.stopped().await;
}
