//! Electing a leader by Lease: [`LeaderElector`] says what to do next, [`LeaderElection`] does it.
//!
//! Of several candidates at most one leads at any time, whatever the network and the scheduler do, if their clocks run
//! at about the same speed: a leader counts its time from before it asked, others count from after they saw the answer.

mod lease;
mod run;

use std::{fmt, time::Duration};

use capstan_clock::{Moment, SharedIds, Timestamp};

pub use lease::LeaseLock;
pub use run::{LeaderElection, Leadership};

/// How much longer than the retry period the wait of a candidate may be, as a part of it.
pub const JITTER_FACTOR: f64 = 1.2;

/// What a Lease says of the leader.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct LeaderElectionRecord {
    /// Who leads; empty when nobody does.
    pub holder_identity: String,
    /// How long the leader leads after it was last heard of.
    pub lease_duration_seconds: u64,
    /// Since when this one leads.
    pub acquire_time: Timestamp,
    /// When it was last heard of.
    pub renew_time: Timestamp,
    /// How often the leader has changed.
    pub leader_transitions: u64,
}

/// How to elect.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct LeaderElectionConfig {
    /// Who this is. No two candidates may have the same.
    pub identity: String,
    /// How long others wait for a leader that is silent.
    pub lease_duration: Duration,
    /// How long a leader that cannot renew its lease goes on.
    pub renew_deadline: Duration,
    /// How long to wait between attempts.
    pub retry_period: Duration,
}

impl LeaderElectionConfig {
    /// Upstream's durations: 15, 10 and 2 seconds.
    #[must_use]
    pub fn new(identity: &str) -> Self {
        LeaderElectionConfig {
            identity: identity.to_owned(),
            lease_duration: Duration::from_secs(15),
            renew_deadline: Duration::from_secs(10),
            retry_period: Duration::from_secs(2),
        }
    }
}

/// A configuration that would elect two leaders, or none.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ConfigError(&'static str);

impl fmt::Display for ConfigError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.0)
    }
}

impl std::error::Error for ConfigError {}

/// What the world answered.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Input {
    /// The wait is over; also the very first input.
    Waited,
    /// The Lease is there.
    Found(LeaderElectionRecord, String),
    /// There is no Lease.
    NotFound,
    /// The Lease was written and has this version now.
    Written(String),
    /// Reading or writing failed, by a conflict or otherwise. What was written may be there all the same.
    Failed,
    /// The [deadline](LeaderElector::deadline) is over. What was asked is not waited for.
    Deadline,
    /// It is time to go.
    Stop,
}

/// What to do next.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Next {
    /// Read the Lease.
    Get,
    /// Create the Lease.
    Create(LeaderElectionRecord),
    /// Write the Lease, if it still has this version.
    Update(LeaderElectionRecord, String),
    /// Wait.
    Wait(Duration),
    /// Nothing: it is over. Whoever wants to lead again begins anew.
    Stopped,
}

/// What others have to know.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Change {
    /// This one leads from now on.
    StartedLeading,
    /// This one must have stopped by now.
    StoppedLeading,
    /// Somebody leads.
    NewLeader(String),
}

#[derive(Debug)]
enum State {
    Idle,
    Getting,
    Writing {
        record: LeaderElectionRecord,
        asked: Moment,
    },
    /// It goes. The Lease is freed, and if that fails, read and freed once more if it is still this one's.
    Releasing {
        again: bool,
    },
    Stopped,
}

#[derive(Debug)]
struct Observed {
    record: LeaderElectionRecord,
    version: String,
    /// When it was first seen so.
    at: Moment,
}

/// A candidate.
#[derive(Debug)]
pub struct LeaderElector {
    config: LeaderElectionConfig,
    ids: SharedIds,
    state: State,
    observed: Option<Observed>,
    /// Until when this one leads; none when it does not.
    leads_until: Option<Moment>,
    /// Somebody may have written: read before writing.
    must_read: bool,
    reported: String,
}

impl LeaderElector {
    /// A candidate that has done nothing yet.
    ///
    /// # Errors
    /// The durations do not go together, or the identity is empty.
    pub fn new(config: LeaderElectionConfig, ids: SharedIds) -> Result<Self, ConfigError> {
        if config.identity.is_empty() {
            return Err(ConfigError("Lock identity is empty"));
        }
        if config.lease_duration <= config.renew_deadline {
            return Err(ConfigError("leaseDuration must be greater than renewDeadline"));
        }
        if config.renew_deadline <= config.retry_period.mul_f64(JITTER_FACTOR) {
            return Err(ConfigError("renewDeadline must be greater than retryPeriod*JitterFactor"));
        }
        if config.lease_duration < Duration::from_secs(1) || config.lease_duration.subsec_nanos() > 0 {
            return Err(ConfigError("leaseDuration must be whole seconds and not less than one"));
        }
        if config.retry_period.is_zero() {
            return Err(ConfigError("retryPeriod must be greater than zero"));
        }
        let (state, reported) = (State::Idle, String::new());
        Ok(LeaderElector { config, ids, state, observed: None, leads_until: None, must_read: false, reported })
    }

    /// Whether this one may act as the leader now.
    #[must_use]
    pub fn is_leader(&self, now: Moment) -> bool {
        self.leads_until.is_some_and(|until| now < until)
    }

    /// Who leads, as far as is known.
    #[must_use]
    pub fn leader(&self) -> &str {
        self.observed.as_ref().map_or("", |observed| &observed.record.holder_identity)
    }

    /// How often the leader has changed, as far as is known.
    #[must_use]
    pub fn transitions(&self) -> u64 {
        self.observed.as_ref().map_or(0, |observed| observed.record.leader_transitions)
    }

    /// Whether it goes, and frees the Lease.
    #[must_use]
    pub fn is_releasing(&self) -> bool {
        matches!(self.state, State::Releasing { .. })
    }

    /// When to step with [`Input::Deadline`], even if an answer is outstanding.
    #[must_use]
    pub fn deadline(&self) -> Option<Moment> {
        self.leads_until
    }

    /// What to do next, and what others have to know first.
    pub fn step(&mut self, now: Moment, date: Timestamp, input: Input) -> (Vec<Change>, Next) {
        let mut changes = Vec::new();
        let next = self.advance(now, date, input, &mut changes);
        let leader = self.leader();
        if leader != self.reported {
            leader.to_owned().clone_into(&mut self.reported);
            if !self.reported.is_empty() {
                changes.push(Change::NewLeader(self.reported.clone()));
            }
        }
        (changes, next)
    }

    fn advance(&mut self, now: Moment, date: Timestamp, input: Input, changes: &mut Vec<Change>) -> Next {
        let state = std::mem::replace(&mut self.state, State::Idle);
        match (&state, &input) {
            (State::Releasing { again: true }, Input::Failed) => {
                self.state = State::Releasing { again: false };
                return Next::Get;
            }
            (State::Releasing { again: false }, Input::Found(held, version))
                if held.holder_identity == self.config.identity =>
            {
                self.state = State::Releasing { again: false };
                return Next::Update(released(held, date), version.clone());
            }
            (State::Stopped | State::Releasing { .. }, _) => {
                self.state = State::Stopped;
                return Next::Stopped;
            }
            _ => {}
        }
        if input == Input::Stop {
            return self.stop(now, date, changes);
        }
        if self.leads_until.is_some_and(|until| now >= until) {
            return self.lose(changes);
        }
        match (state, input) {
            (State::Getting, Input::Found(record, version)) => {
                self.must_read = false;
                if self.observed.as_ref().is_none_or(|observed| observed.version != version) {
                    self.observed = Some(Observed { record, version, at: now });
                }
                self.take(now, date, changes)
            }
            (State::Getting, Input::NotFound) => {
                self.observed = None;
                let record = self.record(date);
                self.state = State::Writing { record: record.clone(), asked: now };
                Next::Create(record)
            }
            (State::Writing { record, asked }, Input::Written(version)) => {
                self.observed = Some(Observed { record, version, at: now });
                let until = asked.plus(self.config.renew_deadline);
                if until <= now {
                    // The answer took so long that others may soon lead: as if it had failed.
                    return if self.leads_until.is_some() { self.lose(changes) } else { self.wait(now) };
                }
                if self.leads_until.replace(until).is_none() {
                    changes.push(Change::StartedLeading);
                }
                self.wait(now)
            }
            (State::Idle, Input::Waited) => match &self.observed {
                Some(Observed { record, version, .. }) if self.leads_until.is_some() && !self.must_read => {
                    let renewed = LeaderElectionRecord { renew_time: date, ..record.clone() };
                    self.state = State::Writing { record: renewed.clone(), asked: now };
                    Next::Update(renewed, version.clone())
                }
                _ => {
                    self.state = State::Getting;
                    Next::Get
                }
            },
            (State::Getting | State::Writing { .. }, Input::Failed) if self.leads_until.is_some() => {
                self.must_read = true;
                self.wait(now)
            }
            _ => self.wait(now),
        }
    }

    /// Takes the Lease that was seen, if it is free or this one's.
    fn take(&mut self, now: Moment, date: Timestamp, changes: &mut Vec<Change>) -> Next {
        let Some(observed) = &self.observed else { return self.wait(now) };
        let (held, version) = (&observed.record, observed.version.clone());
        let mine = held.holder_identity == self.config.identity;
        if !mine && self.leads_until.is_some() {
            return self.lose(changes);
        }
        let expires = observed.at.plus(Duration::from_secs(held.lease_duration_seconds));
        if !mine && !held.holder_identity.is_empty() && now <= expires {
            return self.wait(now);
        }
        let mut record = self.record(date);
        record.leader_transitions = held.leader_transitions + u64::from(!mine);
        if mine {
            record.acquire_time = held.acquire_time;
        }
        self.state = State::Writing { record: record.clone(), asked: now };
        Next::Update(record, version)
    }

    fn record(&self, date: Timestamp) -> LeaderElectionRecord {
        LeaderElectionRecord {
            holder_identity: self.config.identity.clone(),
            lease_duration_seconds: self.config.lease_duration.as_secs(),
            acquire_time: date,
            renew_time: date,
            leader_transitions: 0,
        }
    }

    fn wait(&mut self, now: Moment) -> Next {
        self.state = State::Idle;
        Next::Wait(match self.leads_until {
            Some(until) => self.config.retry_period.min(until.since(now)),
            None => self.config.retry_period.mul_f64(1.0 + JITTER_FACTOR * self.ids.fraction()),
        })
    }

    fn lose(&mut self, changes: &mut Vec<Change>) -> Next {
        self.leads_until = None;
        self.state = State::Stopped;
        changes.push(Change::StoppedLeading);
        Next::Stopped
    }

    /// Goes, and frees the Lease if it is this one's: others need not wait.
    fn stop(&mut self, now: Moment, date: Timestamp, changes: &mut Vec<Change>) -> Next {
        let led = self.is_leader(now);
        if self.leads_until.is_some() {
            self.lose(changes);
        }
        self.state = State::Stopped;
        match self.observed.take() {
            Some(observed) if led => {
                self.state = State::Releasing { again: true };
                Next::Update(released(&observed.record, date), observed.version)
            }
            _ => Next::Stopped,
        }
    }
}

/// What a Lease says that its holder gave back.
fn released(held: &LeaderElectionRecord, date: Timestamp) -> LeaderElectionRecord {
    LeaderElectionRecord {
        holder_identity: String::new(),
        lease_duration_seconds: 1,
        acquire_time: date,
        renew_time: date,
        leader_transitions: held.leader_transitions,
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use capstan_clock::SeededIds;
    use proptest::prelude::*;

    use super::*;

    const SECOND: Duration = Duration::from_secs(1);

    fn elector(identity: &str) -> LeaderElector {
        LeaderElector::new(LeaderElectionConfig::new(identity), Arc::new(SeededIds::new(1))).unwrap()
    }

    fn date(now: Moment) -> Timestamp {
        "2026-01-01T00:00:00Z".parse::<Timestamp>().unwrap() + now.0
    }

    #[test]
    fn durations_go_together() {
        let check = |change: fn(&mut LeaderElectionConfig), ok: bool| {
            let mut config = LeaderElectionConfig::new("a");
            change(&mut config);
            assert_eq!(LeaderElector::new(config.clone(), Arc::new(SeededIds::new(1))).is_ok(), ok, "{config:?}");
        };
        check(|_| {}, true);
        check(|config| config.identity.clear(), false);
        check(|config| config.renew_deadline = config.lease_duration, false);
        check(|config| config.retry_period = config.renew_deadline, false);
        check(|config| config.retry_period = Duration::ZERO, false);
        check(|config| config.lease_duration = Duration::from_millis(15_500), false);
    }

    #[test]
    fn a_term() {
        let (mut a, mut now) = (elector("a"), Moment::default());
        let mut step = |now: Moment, input: Input| a.step(now, date(now), input);
        assert_eq!(step(now, Input::Waited).1, Next::Get);
        let (_, Next::Create(record)) = step(now, Input::NotFound) else { panic!("it creates") };
        assert_eq!((record.holder_identity.as_str(), record.lease_duration_seconds), ("a", 15));
        let (changes, next) = step(now, Input::Written("1".to_owned()));
        assert_eq!(changes, [Change::StartedLeading, Change::NewLeader("a".to_owned())]);
        assert_eq!(next, Next::Wait(SECOND * 2));
        now = now.plus(SECOND * 2);
        let (_, Next::Update(_, version)) = step(now, Input::Waited) else { panic!("it renews without reading") };
        assert_eq!(version, "1");
        now = now.plus(SECOND * 7);
        assert_eq!(step(now, Input::Failed).1, Next::Wait(SECOND), "until the end of what it has, and no longer");
        now = now.plus(SECOND);
        assert_eq!(step(now, Input::Deadline), (vec![Change::StoppedLeading], Next::Stopped));
        assert_eq!(step(now, Input::Waited).1, Next::Stopped);
    }

    #[test]
    fn who_goes_frees_the_lease() {
        let (mut a, now) = (elector("a"), Moment::default());
        for input in [Input::Waited, Input::NotFound, Input::Written("1".to_owned())] {
            a.step(now, date(now), input);
        }
        let (changes, Next::Update(record, version)) = a.step(now, date(now), Input::Stop) else { panic!("it frees") };
        assert_eq!(changes, [Change::StoppedLeading]);
        assert_eq!((record.holder_identity.as_str(), version.as_str()), ("", "1"));
        assert!(!a.is_leader(now));
        assert_eq!(a.step(now, date(now), Input::Written("2".to_owned())).1, Next::Stopped);
    }

    #[test]
    fn who_fails_to_free_the_lease_tries_once_more() {
        let now = Moment::default();
        for (holder, frees) in [("a", true), ("b", false)] {
            let mut a = elector("a");
            for input in [Input::Waited, Input::NotFound, Input::Written("1".to_owned()), Input::Stop] {
                a.step(now, date(now), input);
            }
            assert_eq!(a.step(now, date(now), Input::Failed).1, Next::Get);
            let held = LeaderElectionRecord { holder_identity: holder.to_owned(), ..Default::default() };
            let next = a.step(now, date(now), Input::Found(held, "2".to_owned())).1;
            assert_eq!(matches!(&next, Next::Update(_, version) if version == "2"), frees, "{next:?}");
            assert_eq!(a.step(now, date(now), Input::Failed).1, Next::Stopped);
        }
    }

    /// A candidate in a bad world: it may stand still, and its requests may take long, be lost, or be done unseen.
    struct Candidate {
        elector: LeaderElector,
        next: Next,
        wakes: Moment,
        /// What the request has led to; the candidate hears of it the next time it is its turn.
        answer: Option<Input>,
    }

    #[derive(Clone, Debug)]
    struct Turn {
        who: usize,
        passes: u64,
        arrives: bool,
        answered: bool,
    }

    fn turn() -> impl Strategy<Value = Turn> {
        let passes = prop_oneof![12 => 0..300u64, 1 => 0..12_000u64];
        (0..3usize, passes, prop::bool::weighted(0.9), prop::bool::weighted(0.9))
            .prop_map(|(who, passes, arrives, answered)| Turn { who, passes, arrives, answered })
    }

    proptest! {
        #[test]
        fn never_two_leaders(turns in proptest::collection::vec(turn(), 0..400)) {
            let mut now = Moment::default();
            let mut lease: Option<(LeaderElectionRecord, u64)> = None;
            let mut writes = 0;
            let new = |name: &str, now| {
                let elector = elector(name);
                Candidate { elector, next: Next::Wait(Duration::ZERO), wakes: now, answer: None }
            };
            let mut all: Vec<Candidate> = ["a", "b", "c"].iter().map(|name| new(name, now)).collect();
            for turn in turns {
                // The request does its work in one turn, and the answer comes in the next: others come in between.
                let candidate = &mut all[turn.who];
                let mut write = |lease: &mut Option<_>, record: &LeaderElectionRecord| {
                    writes += 1;
                    *lease = Some((record.clone(), writes));
                    Input::Written(writes.to_string())
                };
                let asks = matches!(candidate.next, Next::Get | Next::Create(_) | Next::Update(..));
                let answer = candidate.answer.take();
                let input = match &candidate.next {
                    _ if answer.is_some() => answer.clone(),
                    Next::Wait(_) if now < candidate.wakes => None,
                    Next::Wait(_) => Some(Input::Waited),
                    Next::Stopped => {
                        *candidate = new(["a", "b", "c"][turn.who], now);
                        None
                    }
                    _ if !turn.arrives => Some(Input::Failed),
                    Next::Get => Some(match &lease {
                        Some((record, version)) => Input::Found(record.clone(), version.to_string()),
                        None => Input::NotFound,
                    }),
                    Next::Create(record) if lease.is_none() => Some(write(&mut lease, record)),
                    Next::Update(record, version)
                        if lease.as_ref().is_some_and(|(_, current)| current.to_string() == *version) =>
                    {
                        Some(write(&mut lease, record))
                    }
                    Next::Create(_) | Next::Update(..) => Some(Input::Failed),
                };
                now = now.plus(Duration::from_millis(turn.passes));
                if asks && answer.is_none() {
                    candidate.answer = input.map(|input| if turn.answered { input } else { Input::Failed });
                } else if let Some(input) = input {
                    candidate.next = candidate.elector.step(now, date(now), input).1;
                    if let Next::Wait(wait) = candidate.next {
                        candidate.wakes = now.plus(wait);
                    }
                }
                prop_assert!(all.iter().filter(|candidate| candidate.elector.is_leader(now)).count() <= 1);
            }
        }
    }

    #[test]
    fn somebody_leads_in_the_end() {
        let mut now = Moment::default();
        let (mut a, mut b) = (elector("a"), elector("b"));
        for input in [Input::Waited, Input::NotFound, Input::Written("1".to_owned())] {
            a.step(now, date(now), input);
        }
        let mut record = None;
        for _ in 0..10 {
            assert_eq!(b.step(now, date(now), Input::Waited).1, Next::Get);
            let held = LeaderElectionRecord {
                holder_identity: "a".to_owned(),
                lease_duration_seconds: 15,
                ..LeaderElectionRecord::default()
            };
            match b.step(now, date(now), Input::Found(held, "1".to_owned())).1 {
                Next::Wait(wait) => now = now.plus(wait),
                Next::Update(taken, _) => {
                    record = Some(taken);
                    break;
                }
                other => panic!("{other:?}"),
            }
            assert_eq!(b.leader(), "a");
        }
        assert_eq!(record.unwrap().leader_transitions, 1);
        assert!(now > Moment(SECOND * 15) && !a.is_leader(now));
    }
}
