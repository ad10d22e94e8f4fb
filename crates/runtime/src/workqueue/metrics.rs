//! What a queue tells of itself, under upstream's names.

use std::{collections::BTreeMap, num::NonZero, time::Duration};

use capstan_clock::Moment;

use crate::metrics::{Families, Histogram};

/// The upper bounds of the buckets of durations, in seconds: controller-runtime's, of which Kubernetes' own programs
/// show the first.
const BUCKETS: &[f64] = &[1e-8, 1e-7, 1e-6, 1e-5, 1e-4, 1e-3, 1e-2, 1e-1, 1.0, 10.0, 100.0, 1000.0];
const COMPONENT_BUCKETS: usize = 10;

/// How many priorities are told apart.
const MAX_PRIORITIES: usize = 25;
const TOO_MANY_PRIORITIES: &str = "exceeded_cardinality_limit";

/// The state of a queue in numbers.
#[derive(Clone, Debug, PartialEq)]
pub struct Metrics {
    /// How many items are to be worked on.
    pub depth: usize,
    /// How many of each priority, in queues that have priorities.
    pub depth_by_priority: BTreeMap<i32, usize>,
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

impl Default for Metrics {
    fn default() -> Self {
        Metrics {
            depth: 0,
            depth_by_priority: BTreeMap::new(),
            adds: 0,
            retries: 0,
            queue_duration: Histogram::new(BUCKETS),
            work_duration: Histogram::new(BUCKETS),
            unfinished_work: Duration::ZERO,
            longest_running_processor: Duration::ZERO,
        }
    }
}

impl Metrics {
    /// Adds the numbers of the queue of this name, as Kubernetes' own programs show them.
    pub fn collect(&self, name: &str, families: &mut Families) {
        let labels = &[("name", name)];
        families.gauge("workqueue_depth", DEPTH, labels, self.depth as f64);
        let up_to = |histogram: &Histogram| histogram.with_fewer_bounds(COMPONENT_BUCKETS);
        self.collect_rest(labels, &up_to(&self.queue_duration), &up_to(&self.work_duration), families);
    }

    /// Adds the numbers of the queue of this controller, as controller-runtime shows them.
    pub fn collect_of_controller(&self, name: &str, families: &mut Families) {
        let labels = [("controller", name), ("name", name)];
        let mut depths: BTreeMap<String, usize> = BTreeMap::new();
        for (at, (priority, depth)) in self.depth_by_priority.iter().rev().enumerate() {
            let label = if at < MAX_PRIORITIES { priority.to_string() } else { TOO_MANY_PRIORITIES.to_owned() };
            *depths.entry(label).or_default() += depth;
        }
        if self.depth_by_priority.is_empty() {
            depths.insert(String::new(), self.depth);
        }
        for (priority, depth) in &depths {
            let [controller, name] = labels;
            families.gauge("workqueue_depth", DEPTH, &[controller, name, ("priority", priority)], *depth as f64);
        }
        self.collect_rest(&labels, &self.queue_duration, &self.work_duration, families);
    }

    fn collect_rest(
        &self,
        labels: &[(&str, &str)],
        queue_duration: &Histogram,
        work_duration: &Histogram,
        families: &mut Families,
    ) {
        let help = "Items that were added.";
        families.counter("workqueue_adds_total", help, labels, self.adds);
        let help = "Items that were added with a delay.";
        families.counter("workqueue_retries_total", help, labels, self.retries);
        let help = "Seconds that the items in work have been so, together.";
        families.gauge("workqueue_unfinished_work_seconds", help, labels, self.unfinished_work.as_secs_f64());
        let longest = self.longest_running_processor.as_secs_f64();
        let help = "Seconds that the item longest in work has been so.";
        families.gauge("workqueue_longest_running_processor_seconds", help, labels, longest);
        let help = "Seconds that items waited.";
        families.histogram("workqueue_queue_duration_seconds", help, labels, queue_duration);
        let help = "Seconds that items were worked on.";
        families.histogram("workqueue_work_duration_seconds", help, labels, work_duration);
    }
}

const DEPTH: &str = "Items that are to be worked on.";

/// When something happened, if anybody wants to know. Asking the clock costs more than all else that is done to items.
/// In nanoseconds, because of many items each is kept, and what is kept should be small.
pub(super) type Stamp = Option<NonZero<u64>>;

/// Counts how long something took, if both ends are known.
pub(super) fn observe(histogram: &mut Histogram, from: Stamp, to: Stamp) {
    if let (Some(from), Some(to)) = (from, to) {
        histogram.observe(Duration::from_nanos(to.get().saturating_sub(from.get())));
    }
}

/// A moment as it is kept.
pub(super) fn stamp(at: Moment) -> Stamp {
    NonZero::new(u64::try_from(at.0.as_nanos()).unwrap_or(u64::MAX).max(1))
}
