//! What the scheduler counts, under upstream's names.

use std::{collections::BTreeMap, time::Duration};

use capstan_runtime::metrics::{Families, Histogram};

use crate::queue::SchedulingQueue;

/// The limits of the buckets of durations, in seconds: each twice the one before.
const DURATION_BUCKETS: &[f64] =
    &[0.001, 0.002, 0.004, 0.008, 0.016, 0.032, 0.064, 0.128, 0.256, 0.512, 1.024, 2.048, 4.096, 8.192, 16.384];
/// The same for how long a pod waited from when it was first seen.
const SLI_BUCKETS: &[f64] = &[
    0.01, 0.02, 0.04, 0.08, 0.16, 0.32, 0.64, 1.28, 2.56, 5.12, 10.24, 20.48, 40.96, 81.92, 163.84, 327.68, 655.36,
    1310.72, 2621.44, 5242.88,
];
/// The limits of the buckets of how often a pod was tried.
const ATTEMPT_BUCKETS: &[f64] = &[1.0, 2.0, 4.0, 8.0, 16.0];
/// The limits of the buckets of how many pods were evicted at once.
const VICTIM_BUCKETS: &[f64] = &[1.0, 2.0, 4.0, 8.0, 16.0, 32.0, 64.0];
/// So many attempts are told apart; more are as many.
const MAX_ATTEMPTS_LABEL: u32 = 15;

/// What came of an attempt.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Attempt {
    Scheduled,
    Unschedulable,
    Error,
}

impl Attempt {
    fn label(self) -> &'static str {
        match self {
            Attempt::Scheduled => "scheduled",
            Attempt::Unschedulable => "unschedulable",
            Attempt::Error => "error",
        }
    }
}

/// What the scheduler counts.
#[derive(Debug)]
pub(crate) struct Metrics {
    attempts: BTreeMap<(Attempt, String), Histogram>,
    waited: BTreeMap<u32, Histogram>,
    algorithm: Histogram,
    pod_attempts: Histogram,
    victims: Histogram,
    preemption_attempts: u64,
}

impl Default for Metrics {
    fn default() -> Self {
        Metrics {
            attempts: BTreeMap::new(),
            waited: BTreeMap::new(),
            algorithm: Histogram::new(DURATION_BUCKETS),
            pod_attempts: Histogram::new(ATTEMPT_BUCKETS),
            victims: Histogram::new(VICTIM_BUCKETS),
            preemption_attempts: 0,
        }
    }
}

/// A number where a duration is expected: as many seconds.
fn number(number: u64) -> Duration {
    Duration::from_secs(number)
}

impl Metrics {
    pub(crate) fn attempt(&mut self, result: Attempt, profile: &str, took: Duration) {
        let histogram = self.attempts.entry((result, profile.to_owned()));
        histogram.or_insert_with(|| Histogram::new(DURATION_BUCKETS)).observe(took);
    }

    pub(crate) fn algorithm(&mut self, took: Duration) {
        self.algorithm.observe(took);
    }

    /// A pod has its node after so many attempts, so long after it was first seen.
    pub(crate) fn scheduled(&mut self, attempts: u32, waited: Duration) {
        self.pod_attempts.observe(number(attempts.into()));
        let histogram = self.waited.entry(attempts.min(MAX_ATTEMPTS_LABEL + 1));
        histogram.or_insert_with(|| Histogram::new(SLI_BUCKETS)).observe(waited);
    }

    pub(crate) fn preemption(&mut self, victims: Option<usize>) {
        self.preemption_attempts += 1;
        if let Some(victims) = victims {
            self.victims.observe(number(victims as u64));
        }
    }

    /// Tells it all.
    pub(crate) fn collect(&self, families: &mut Families, queue: &SchedulingQueue, cache: [(&str, usize); 3]) {
        for ((result, profile), histogram) in &self.attempts {
            let labels = [("profile", profile.as_str()), ("result", result.label())];
            let help = "Attempts to find a node, by what came of them.";
            families.counter("scheduler_schedule_attempts_total", help, &labels, histogram.count);
            let help = "How long an attempt took, binding included.";
            families.histogram("scheduler_scheduling_attempt_duration_seconds", help, &labels, histogram);
        }
        for (attempts, histogram) in &self.waited {
            let attempts =
                if *attempts > MAX_ATTEMPTS_LABEL { format!("{MAX_ATTEMPTS_LABEL}+") } else { attempts.to_string() };
            let (name, help) = (
                "scheduler_pod_scheduling_sli_duration_seconds",
                "How long pods waited from when they were first seen.",
            );
            families.histogram(name, help, &[("attempts", &attempts)], histogram);
        }
        for (name, help, histogram) in [
            ("scheduler_scheduling_algorithm_duration_seconds", "How long a decision took.", &self.algorithm),
            ("scheduler_pod_scheduling_attempts", "How often a pod was tried.", &self.pod_attempts),
            ("scheduler_preemption_victims", "How many pods were evicted for one.", &self.victims),
        ] {
            families.histogram(name, help, &[], histogram);
        }
        let help = "How often it was tried to make room.";
        families.counter("scheduler_preemption_attempts_total", help, &[], self.preemption_attempts);
        let sizes = queue.sizes();
        for (kind, count) in [
            ("active", sizes.active),
            ("backoff", sizes.backoff),
            ("gated", sizes.gated),
            ("unschedulable", sizes.unschedulable),
        ] {
            let help = "Pods that wait, and how.";
            families.gauge("scheduler_pending_pods", help, &[("queue", kind)], count as f64);
        }
        for ((plugin, profile), count) in queue.refused() {
            let labels = [("plugin", plugin), ("profile", profile)];
            let help = "Pods that wait, by who refused them.";
            families.gauge("scheduler_unschedulable_pods", help, &labels, count as f64);
        }
        for ((queue, event), count) in &queue.incoming {
            let labels = [("event", event.as_str()), ("queue", queue)];
            let help = "Pods that came into a queue, and why.";
            families.counter("scheduler_queue_incoming_pods_total", help, &labels, *count);
        }
        for (kind, count) in cache {
            let help = "What the scheduler remembers.";
            families.gauge("scheduler_cache_size", help, &[("type", kind)], count as f64);
        }
    }
}
