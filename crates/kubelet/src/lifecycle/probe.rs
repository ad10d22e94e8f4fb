//! The counting of probes: when the next is due, and what several in a row mean.

use std::time::Duration;

use capstan_clock::Timestamp;
use k8s_openapi::api::core::v1::{Container, Probe};

use super::{Outcome, plus};

/// Which of a container's probes.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum ProbeKind {
    /// Whether it has come up; the other two wait for it.
    Startup,
    /// Whether it is to be restarted.
    Liveness,
    /// Whether it may get traffic.
    Readiness,
}

impl ProbeKind {
    /// All of them.
    pub const ALL: [ProbeKind; 3] = [ProbeKind::Startup, ProbeKind::Liveness, ProbeKind::Readiness];

    /// The probe of this kind that a container has.
    #[must_use]
    pub fn of(self, container: &Container) -> Option<&Probe> {
        match self {
            ProbeKind::Startup => container.startup_probe.as_ref(),
            ProbeKind::Liveness => container.liveness_probe.as_ref(),
            ProbeKind::Readiness => container.readiness_probe.as_ref(),
        }
    }

    /// The word that events begin with.
    #[must_use]
    pub fn word(self) -> &'static str {
        match self {
            ProbeKind::Startup => "Startup",
            ProbeKind::Liveness => "Liveness",
            ProbeKind::Readiness => "Readiness",
        }
    }
}

/// One probe of one running container.
#[derive(Clone, Debug)]
pub(super) struct Prober {
    pub(super) kind: ProbeKind,
    pub(super) due: Timestamp,
    pub(super) in_flight: bool,
    /// A startup probe that is decided and a liveness probe that has failed ask no more of this container.
    on_hold: bool,
    /// What holds, once enough answers in a row have said so.
    pub(super) result: Option<bool>,
    last: Option<bool>,
    run: i32,
}

impl Prober {
    pub(super) fn new(kind: ProbeKind, probe: &Probe, started: Timestamp) -> Self {
        let delay = u64::try_from(probe.initial_delay_seconds.unwrap_or(0)).unwrap_or(0);
        Prober {
            kind,
            due: plus(started, Duration::from_secs(delay)),
            in_flight: false,
            on_hold: false,
            result: match kind {
                ProbeKind::Startup => None,
                ProbeKind::Liveness => Some(true),
                ProbeKind::Readiness => Some(false),
            },
            last: None,
            run: 0,
        }
    }

    /// Whether it asks now, given whether the container has come up.
    pub(super) fn asks(&self, started: bool) -> bool {
        !self.in_flight && !self.on_hold && started == (self.kind != ProbeKind::Startup)
    }

    /// It is asked now.
    pub(super) fn ask(&mut self, probe: &Probe, now: Timestamp) {
        let period = u64::try_from(probe.period_seconds.unwrap_or(10)).unwrap_or(10).max(1);
        self.in_flight = true;
        self.due = plus(now, Duration::from_secs(period));
    }

    /// An answer. A sentence for the user when it is a bad one.
    pub(super) fn answer(&mut self, probe: &Probe, outcome: Outcome) -> Option<String> {
        self.in_flight = false;
        let word = self.kind.word();
        let (well, sentence) = match outcome {
            Outcome::Success => (true, None),
            Outcome::Failure(said) => (false, Some(format!("{word} probe failed: {said}"))),
            Outcome::Error(error) => {
                return Some(format!("{word} probe errored and resulted in unknown state: {error}"));
            }
        };
        if self.last == Some(well) {
            self.run += 1;
        } else {
            (self.last, self.run) = (Some(well), 1);
        }
        let threshold = if well { probe.success_threshold.unwrap_or(1) } else { probe.failure_threshold.unwrap_or(3) };
        if self.run >= threshold {
            self.result = Some(well);
            if self.kind == ProbeKind::Startup || (self.kind == ProbeKind::Liveness && !well) {
                self.on_hold = true;
                self.run = 0;
            }
        }
        sentence
    }
}
