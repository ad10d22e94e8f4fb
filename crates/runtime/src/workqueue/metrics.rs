//! What a queue tells of itself, under upstream's names.

use std::{fmt::Write as _, time::Duration};

/// The upper bounds of the buckets of durations, in seconds.
const BUCKETS: [f64; 10] = [1e-8, 1e-7, 1e-6, 1e-5, 1e-4, 1e-3, 1e-2, 1e-1, 1.0, 10.0];

/// How long things took.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Histogram {
    /// How many took at most as long as each bound, not counting those of smaller bounds; the last has no bound.
    buckets: [u64; BUCKETS.len() + 1],
    /// All of them together, in seconds.
    pub sum: f64,
    /// How many.
    pub count: u64,
}

impl Histogram {
    pub(super) fn observe(&mut self, duration: Duration) {
        let seconds = duration.as_secs_f64();
        let bucket = BUCKETS.iter().position(|bound| seconds <= *bound).unwrap_or(BUCKETS.len());
        self.buckets[bucket] += 1;
        self.sum += seconds;
        self.count += 1;
    }

    fn render(&self, metric: &str, name: &str, out: &mut String) {
        let mut sum = 0;
        for (at, count) in self.buckets.iter().enumerate() {
            sum += count;
            let bound = BUCKETS.get(at).map_or("+Inf".to_owned(), |bound| format!("{bound:e}"));
            let _ = writeln!(out, "workqueue_{metric}_bucket{{name=\"{name}\",le=\"{bound}\"}} {sum}");
        }
        let _ = writeln!(out, "workqueue_{metric}_sum{{name=\"{name}\"}} {}", self.sum);
        let _ = writeln!(out, "workqueue_{metric}_count{{name=\"{name}\"}} {}", self.count);
    }
}

/// The state of a queue in numbers.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Metrics {
    /// How many items are to be worked on.
    pub depth: usize,
    /// How many items were added, not counting those that were there.
    pub adds: u64,
    /// How many items were added with a delay or by a rate limit.
    pub retries: u64,
    /// How long items waited.
    pub queue_duration: Histogram,
    /// How long items were worked on.
    pub work_duration: Histogram,
    /// How long all items in work have been so, together.
    pub unfinished_work: Duration,
    /// How long the one that has been in work longest has been so.
    pub longest_running_processor: Duration,
}

impl Metrics {
    /// Appends the lines of Prometheus' text format. `name` is the name of the queue.
    pub fn render(&self, name: &str, out: &mut String) {
        let name = &name.replace('\\', r"\\").replace('"', "\\\"").replace('\n', "\\n");
        let numbers = [
            ("depth", self.depth as f64),
            ("adds_total", self.adds as f64),
            ("retries_total", self.retries as f64),
            ("unfinished_work_seconds", self.unfinished_work.as_secs_f64()),
            ("longest_running_processor_seconds", self.longest_running_processor.as_secs_f64()),
        ];
        for (metric, number) in numbers {
            let _ = writeln!(out, "workqueue_{metric}{{name=\"{name}\"}} {number}");
        }
        self.queue_duration.render("queue_duration_seconds", name, out);
        self.work_duration.render("work_duration_seconds", name, out);
    }
}
