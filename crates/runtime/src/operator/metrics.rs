//! What controllers tell of themselves, under controller-runtime's names.

use std::{
    sync::{
        Arc, Mutex, PoisonError,
        atomic::{AtomicI64, Ordering},
    },
    time::Duration,
};

use capstan_client::Key;

use crate::{
    Action, Outcome, ReconcileError,
    metrics::{Families, Histogram, Registry},
    workqueue::PriorityQueue,
};

/// The upper bounds of the buckets of durations, in seconds.
const BUCKETS: &[f64] = &[
    0.005, 0.01, 0.025, 0.05, 0.1, 0.15, 0.2, 0.25, 0.3, 0.35, 0.4, 0.45, 0.5, 0.6, 0.7, 0.8, 0.9, 1.0, 1.25, 1.5,
    1.75, 2.0, 2.5, 3.0, 3.5, 4.0, 4.5, 5.0, 6.0, 7.0, 8.0, 9.0, 10.0, 15.0, 20.0, 25.0, 30.0, 40.0, 50.0, 60.0,
];

struct Counts {
    success: u64,
    requeue_after: u64,
    errors: u64,
    terminal_errors: u64,
    panics: u64,
    timeouts: u64,
    took: Histogram,
}

/// The numbers of one controller.
pub(super) struct ReconcileMetrics {
    counts: Mutex<Counts>,
    active: AtomicI64,
}

/// A reconcile that runs.
pub(super) struct Active<'a>(&'a AtomicI64);

impl Drop for Active<'_> {
    fn drop(&mut self) {
        self.0.fetch_sub(1, Ordering::Relaxed);
    }
}

impl ReconcileMetrics {
    pub(super) fn register(
        registry: &Registry,
        name: &str,
        max_concurrent_reconciles: usize,
        queue: PriorityQueue<Key>,
    ) -> Arc<Self> {
        let counts = Counts {
            success: 0,
            requeue_after: 0,
            errors: 0,
            terminal_errors: 0,
            panics: 0,
            timeouts: 0,
            took: Histogram::new(BUCKETS),
        };
        let metrics = Arc::new(ReconcileMetrics { counts: Mutex::new(counts), active: AtomicI64::new(0) });
        let (name, this) = (name.to_owned(), Arc::clone(&metrics));
        queue.measure();
        registry.register(move |families| {
            let labels = &[("controller", &*name)];
            let most = max_concurrent_reconciles as f64;
            families.gauge("controller_runtime_max_concurrent_reconciles", "Workers that there are.", labels, most);
            this.collect(&name, families);
            queue.metrics().collect_of_controller(&name, families);
        });
        metrics
    }

    pub(super) fn active(&self) -> Active<'_> {
        self.active.fetch_add(1, Ordering::Relaxed);
        Active(&self.active)
    }

    pub(super) fn observe(&self, outcome: &Outcome, took: Duration) {
        let mut counts = self.counts.lock().unwrap_or_else(PoisonError::into_inner);
        counts.took.observe(took);
        match outcome {
            Outcome::Action(Action::Done) => counts.success += 1,
            Outcome::Action(Action::RequeueAfter(_) | Action::RequeueAt(_)) => counts.requeue_after += 1,
            Outcome::Error(ReconcileError::Retry(_)) => counts.errors += 1,
            Outcome::Error(ReconcileError::Terminal(_)) => {
                counts.errors += 1;
                counts.terminal_errors += 1;
            }
            Outcome::TimedOut => {
                counts.errors += 1;
                counts.timeouts += 1;
            }
            Outcome::Panicked => {
                counts.errors += 1;
                counts.panics += 1;
            }
        }
    }

    fn collect(&self, name: &str, families: &mut Families) {
        let labels = &[("controller", name)];
        let active = self.active.load(Ordering::Relaxed) as f64;
        families.gauge("controller_runtime_active_workers", "Workers that work.", labels, active);
        let counts = self.counts.lock().unwrap_or_else(PoisonError::into_inner);
        let results = [
            ("error", counts.errors),
            ("requeue_after", counts.requeue_after),
            ("requeue", 0),
            ("success", counts.success),
        ];
        for (result, count) in results {
            let labels = &[("controller", name), ("result", result)];
            families.counter("controller_runtime_reconcile_total", "Reconciles by what came of them.", labels, count);
        }
        for (metric, help, count) in [
            ("controller_runtime_reconcile_errors_total", "Reconciles that failed.", counts.errors),
            (
                "controller_runtime_terminal_reconcile_errors_total",
                "Reconciles that are not tried again.",
                counts.terminal_errors,
            ),
            ("controller_runtime_reconcile_panics_total", "Reconciles that panicked.", counts.panics),
            ("controller_runtime_reconcile_timeouts_total", "Reconciles that took too long.", counts.timeouts),
        ] {
            families.counter(metric, help, labels, count);
        }
        let help = "Seconds that reconciles took.";
        families.histogram("controller_runtime_reconcile_time_seconds", help, labels, &counts.took);
    }
}
