//! What the scheduler counts, under upstream's names.

use std::{collections::BTreeMap, fmt::Write as _, time::Duration};

use crate::queue::Sizes;

/// The limits of the buckets of durations, in seconds: each twice the one before.
const DURATION_BUCKETS: [f64; 15] =
    [0.001, 0.002, 0.004, 0.008, 0.016, 0.032, 0.064, 0.128, 0.256, 0.512, 1.024, 2.048, 4.096, 8.192, 16.384];
/// The limits of the buckets of how often a pod was tried.
const ATTEMPT_BUCKETS: [f64; 5] = [1.0, 2.0, 4.0, 8.0, 16.0];
/// The limits of the buckets of how many pods were evicted at once.
const VICTIM_BUCKETS: [f64; 7] = [1.0, 2.0, 4.0, 8.0, 16.0, 32.0, 64.0];

#[derive(Clone, Debug, Default)]
struct Histogram {
    buckets: Vec<u64>,
    sum: f64,
    count: u64,
}

impl Histogram {
    fn observe(&mut self, limits: &[f64], value: f64) {
        self.buckets.resize(limits.len(), 0);
        for (bucket, limit) in self.buckets.iter_mut().zip(limits) {
            *bucket += u64::from(value <= *limit);
        }
        self.sum += value;
        self.count += 1;
    }

    fn write(&self, out: &mut String, name: &str, labels: &str, limits: &[f64]) {
        let comma = if labels.is_empty() { "" } else { "," };
        for (bucket, limit) in self.buckets.iter().zip(limits) {
            let _ = writeln!(out, "{name}_bucket{{{labels}{comma}le=\"{limit}\"}} {bucket}");
        }
        let _ = writeln!(out, "{name}_bucket{{{labels}{comma}le=\"+Inf\"}} {}", self.count);
        let braced = if labels.is_empty() { String::new() } else { format!("{{{labels}}}") };
        let _ = writeln!(out, "{name}_sum{braced} {}", self.sum);
        let _ = writeln!(out, "{name}_count{braced} {}", self.count);
    }
}

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
#[derive(Debug, Default)]
pub(crate) struct Metrics {
    attempts: BTreeMap<(Attempt, String), Histogram>,
    algorithm: Histogram,
    pod_attempts: Histogram,
    victims: Histogram,
    preemption_attempts: u64,
}

impl Metrics {
    pub(crate) fn attempt(&mut self, result: Attempt, profile: &str, took: Duration) {
        let histogram = self.attempts.entry((result, profile.to_owned())).or_default();
        histogram.observe(&DURATION_BUCKETS, took.as_secs_f64());
    }

    pub(crate) fn algorithm(&mut self, took: Duration) {
        self.algorithm.observe(&DURATION_BUCKETS, took.as_secs_f64());
    }

    pub(crate) fn scheduled(&mut self, attempts: u32) {
        self.pod_attempts.observe(&ATTEMPT_BUCKETS, attempts.into());
    }

    pub(crate) fn preemption(&mut self, victims: Option<usize>) {
        self.preemption_attempts += 1;
        if let Some(victims) = victims {
            self.victims.observe(&VICTIM_BUCKETS, victims as f64);
        }
    }

    /// The text that is scraped.
    pub(crate) fn render(
        &self,
        sizes: Sizes,
        incoming: &BTreeMap<(&'static str, String), u64>,
        cache: [(&str, usize); 3],
    ) -> String {
        let mut out = String::new();
        let _ = writeln!(out, "# TYPE scheduler_schedule_attempts_total counter");
        for ((result, profile), histogram) in &self.attempts {
            let (result, count) = (result.label(), histogram.count);
            let _ =
                writeln!(out, "scheduler_schedule_attempts_total{{profile=\"{profile}\",result=\"{result}\"}} {count}");
        }
        let _ = writeln!(out, "# TYPE scheduler_scheduling_attempt_duration_seconds histogram");
        for ((result, profile), histogram) in &self.attempts {
            let labels = format!("profile=\"{profile}\",result=\"{}\"", result.label());
            let name = "scheduler_scheduling_attempt_duration_seconds";
            histogram.write(&mut out, name, &labels, &DURATION_BUCKETS);
        }
        for (name, histogram, limits) in [
            ("scheduler_scheduling_algorithm_duration_seconds", &self.algorithm, &DURATION_BUCKETS[..]),
            ("scheduler_pod_scheduling_attempts", &self.pod_attempts, &ATTEMPT_BUCKETS[..]),
            ("scheduler_preemption_victims", &self.victims, &VICTIM_BUCKETS[..]),
        ] {
            let _ = writeln!(out, "# TYPE {name} histogram");
            histogram.write(&mut out, name, "", limits);
        }
        let _ = writeln!(out, "# TYPE scheduler_preemption_attempts_total counter");
        let _ = writeln!(out, "scheduler_preemption_attempts_total {}", self.preemption_attempts);
        let _ = writeln!(out, "# TYPE scheduler_pending_pods gauge");
        for (queue, count) in [
            ("active", sizes.active),
            ("backoff", sizes.backoff),
            ("gated", sizes.gated),
            ("unschedulable", sizes.unschedulable),
        ] {
            let _ = writeln!(out, "scheduler_pending_pods{{queue=\"{queue}\"}} {count}");
        }
        let _ = writeln!(out, "# TYPE scheduler_queue_incoming_pods_total counter");
        for ((queue, event), count) in incoming {
            let _ = writeln!(out, "scheduler_queue_incoming_pods_total{{event=\"{event}\",queue=\"{queue}\"}} {count}");
        }
        let _ = writeln!(out, "# TYPE scheduler_cache_size gauge");
        for (kind, count) in cache {
            let _ = writeln!(out, "scheduler_cache_size{{type=\"{kind}\"}} {count}");
        }
        out
    }
}
