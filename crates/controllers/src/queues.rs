//! The queues of all loops, for people to look at: numbers for Prometheus, and a page.

use std::{
    fmt::{self, Write as _},
    sync::{Arc, Mutex, MutexGuard, PoisonError},
};

use capstan_client::Key;
use capstan_runtime::{Outcome, metrics::Families, workqueue::PriorityQueue};

/// Where lines for people go.
pub type Log = Arc<dyn Fn(&str) + Send + Sync>;

/// The queues of loops that run, by upstream's names. Clones are the same.
#[derive(Clone, Default)]
pub struct Queues(Arc<Mutex<Vec<Shown>>>);

impl fmt::Debug for Queues {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_list().entries(self.all().iter().map(|shown| shown.name)).finish()
    }
}

#[derive(Clone)]
struct Shown {
    name: &'static str,
    queue: PriorityQueue<Key>,
    failures: Arc<Failures>,
}

/// How often the work on keys of one queue has failed, and how the last time.
pub(crate) struct Failures {
    of: &'static str,
    noted: Mutex<(u64, String)>,
    log: Option<Log>,
}

impl Failures {
    /// Notes how the work on a key has ended.
    pub(crate) fn note(&self, key: &Key, outcome: &Outcome) {
        let reason = match outcome {
            Outcome::Action(_) => return,
            Outcome::Error(error) => error.to_string(),
            Outcome::TimedOut => "timed out".to_owned(),
            Outcome::Panicked => "panicked".to_owned(),
        };
        // Each failure makes the next attempt later, so these lines become rare by themselves.
        let line = format!("{key}: {reason}");
        if let Some(log) = &self.log {
            log(&format!("{}: {line}", self.of));
        }
        let mut noted = self.lock();
        *noted = (noted.0 + 1, line);
    }

    fn lock(&self) -> MutexGuard<'_, (u64, String)> {
        // Nothing panics under the lock.
        self.noted.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Queues {
    fn all(&self) -> Vec<Shown> {
        // Nothing panics under the lock.
        self.0.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }

    /// One more queue; gives where its failures are to be noted.
    pub(crate) fn add(&self, name: &'static str, queue: PriorityQueue<Key>, log: Option<Log>) -> Arc<Failures> {
        let failures = Arc::new(Failures { of: name, noted: Mutex::default(), log });
        queue.measure();
        let mut all = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        all.push(Shown { name, queue, failures: Arc::clone(&failures) });
        failures
    }

    /// Adds the numbers of all queues, under upstream's names.
    pub fn collect(&self, families: &mut Families) {
        for Shown { name, queue, .. } in self.all() {
            queue.metrics().collect(name, families);
        }
    }

    /// A line for each queue: how much is in it and has been, what is in work, and what failed last.
    #[must_use]
    pub fn page(&self) -> String {
        let mut all = self.all();
        all.sort_by_key(|shown| shown.name);
        let width = all.iter().map(|shown| shown.name.len()).max().unwrap_or_default();
        let mut text = format!(
            "{:width$} {:>8} {:>10} {:>10} {:>10} {:>8}  LAST FAILURE\n",
            "QUEUE", "DEPTH", "ADDS", "RETRIES", "LONGEST", "FAILED"
        );
        for Shown { name, queue, failures } in all {
            let (metrics, failures) = (queue.metrics(), failures.lock());
            let longest = format!("{:.1}s", metrics.longest_running_processor.as_secs_f64());
            // Writing to a String does not fail.
            let _ = writeln!(
                text,
                "{name:width$} {:>8} {:>10} {:>10} {longest:>10} {:>8}  {}",
                metrics.depth, metrics.adds, metrics.retries, failures.0, failures.1
            );
        }
        text
    }
}

#[cfg(test)]
mod tests {
    use capstan_runtime::{Action, ReconcileError};

    use super::*;

    #[test]
    fn failures_are_logged() {
        let lines: Arc<Mutex<Vec<String>>> = Arc::default();
        let log: Log = {
            let lines = Arc::clone(&lines);
            Arc::new(move |line| lines.lock().unwrap().push(line.to_owned()))
        };
        let failures = Failures { of: "replicaset", noted: Mutex::default(), log: Some(log) };
        let key = Key::new("default", "web");
        failures.note(&key, &Outcome::Action(Action::Done));
        failures.note(&key, &Outcome::Error(ReconcileError::retry("no quota")));
        assert_eq!(*lines.lock().unwrap(), ["replicaset: default/web: no quota"]);
        assert_eq!(*failures.lock(), (1, "default/web: no quota".to_owned()));
    }
}
