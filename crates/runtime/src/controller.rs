//! The loop: take a key, look at the present state, do something about it.

use std::{fmt, future::Future, sync::Arc, time::Duration};

use capstan_client::{
    Key,
    beat::{Either, caught, race},
};
use capstan_clock::{SharedClock, Timestamp};
use tokio::task::JoinSet;

use crate::{
    controllerutil::OwnerError,
    workqueue::{AddOpts, PriorityQueue, default_controller_rate_limiter},
};

/// What is to happen to a key after a success.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Action {
    /// Nothing, until something changes.
    Done,
    /// Look again after this time; without a time, as [`Done`](Action::Done).
    RequeueAfter(Duration),
    /// Look again at this time; at once if it has passed.
    RequeueAt(Timestamp),
}

impl Action {
    /// Nothing, until something changes.
    #[must_use]
    pub fn done() -> Self {
        Action::Done
    }

    /// Look again after this time; without a time, as [`done`](Action::done).
    #[must_use]
    pub fn requeue_after(after: Duration) -> Self {
        Action::RequeueAfter(after)
    }

    /// Look again at this time; at once if it has passed.
    pub fn requeue_at(at: impl Into<Timestamp>) -> Self {
        Action::RequeueAt(at.into())
    }
}

/// Why a reconcile failed.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum ReconcileError {
    /// It is to be tried again.
    Retry(String),
    /// Trying again would not help.
    Terminal(String),
}

impl fmt::Display for ReconcileError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            ReconcileError::Retry(reason) => f.write_str(reason),
            ReconcileError::Terminal(reason) => write!(f, "terminal error: {reason}"),
        }
    }
}

impl std::error::Error for ReconcileError {}

impl ReconcileError {
    /// It is to be tried again.
    pub fn retry(reason: impl fmt::Display) -> Self {
        ReconcileError::Retry(reason.to_string())
    }

    /// Trying again would not help.
    pub fn terminal(reason: impl fmt::Display) -> Self {
        ReconcileError::Terminal(reason.to_string())
    }
}

impl From<OwnerError> for ReconcileError {
    fn from(error: OwnerError) -> Self {
        ReconcileError::retry(error)
    }
}

impl From<capstan_client::Error> for ReconcileError {
    fn from(error: capstan_client::Error) -> Self {
        ReconcileError::Retry(error.to_string())
    }
}

/// Makes the world as an object wants it.
///
/// It is given a key and no event: whatever happened, the present state counts. It is never called for a key that it is
/// working on.
pub trait Reconciler: Send + Sync + 'static {
    /// Looks at the object of this key, which may be gone, and does the next thing.
    fn reconcile(&self, key: Key) -> impl Future<Output = Result<Action, ReconcileError>> + Send;
}

/// How a reconcile ended.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Outcome {
    /// It said what is next.
    Action(Action),
    /// It failed.
    Error(ReconcileError),
    /// It took too long.
    TimedOut,
    /// It panicked.
    Panicked,
}

type Observer = Arc<dyn Fn(&Key, &Outcome, Duration) + Send + Sync>;

/// Takes keys from a queue and lets a reconciler look at them, so many at a time.
pub struct Controller<R> {
    reconciler: Arc<R>,
    queue: PriorityQueue<Key>,
    clock: SharedClock,
    max_concurrent_reconciles: usize,
    timeout: Option<Duration>,
    observer: Option<Observer>,
}

impl<R> fmt::Debug for Controller<R> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Controller").field("workers", &self.max_concurrent_reconciles).finish_non_exhaustive()
    }
}

impl<R: Reconciler> Controller<R> {
    /// One worker, and the usual rate limits.
    pub fn new(reconciler: R, clock: SharedClock) -> Self {
        let queue = PriorityQueue::new(Arc::clone(&clock), default_controller_rate_limiter(Arc::clone(&clock)));
        let reconciler = Arc::new(reconciler);
        Controller { reconciler, queue, clock, max_concurrent_reconciles: 1, timeout: None, observer: None }
    }

    /// Another queue, with other rate limits for instance.
    #[must_use]
    pub fn with_queue(mut self, queue: PriorityQueue<Key>) -> Self {
        self.queue = queue;
        self
    }

    /// So many keys at a time, at least one.
    #[must_use]
    pub fn max_concurrent_reconciles(mut self, count: usize) -> Self {
        self.max_concurrent_reconciles = count.max(1);
        self
    }

    /// A reconcile that takes longer is dropped and tried again.
    #[must_use]
    pub fn reconciliation_timeout(mut self, timeout: Duration) -> Self {
        self.timeout = Some(timeout);
        self
    }

    /// Hears how each reconcile ended.
    #[must_use]
    pub fn on_outcome(self, observer: impl Fn(&Key, &Outcome) + Send + Sync + 'static) -> Self {
        self.on_outcome_timed(move |key, outcome, _| observer(key, outcome))
    }

    /// The same, and how long it took.
    #[must_use]
    pub fn on_outcome_timed(mut self, observer: impl Fn(&Key, &Outcome, Duration) + Send + Sync + 'static) -> Self {
        self.observer = Some(Arc::new(observer));
        self
    }

    /// Where handlers put keys.
    #[must_use]
    pub fn queue(&self) -> &PriorityQueue<Key> {
        &self.queue
    }

    /// Works until the queue is shut down and nothing is left in it. The workers are tasks on the caller's runtime, and
    /// end with this when it is dropped.
    pub async fn run(self) {
        let this = Arc::new(self);
        let mut workers = JoinSet::new();
        for _ in 0..this.max_concurrent_reconciles {
            let this = Arc::clone(&this);
            workers.spawn(async move { this.work().await });
        }
        // A worker catches the panics of its reconciler, so it ends only with the queue.
        while workers.join_next().await.is_some() {}
    }

    async fn work(&self) {
        while let Some((key, priority)) = self.queue.get_with_priority().await {
            let begun = self.clock.monotonic();
            let outcome = self.reconcile(&key).await;
            let again = |after, rate_limited| {
                self.queue.add_with_opts(AddOpts { after, rate_limited, priority }, key.clone());
            };
            match &outcome {
                Outcome::Action(Action::Done) => self.queue.forget(&key),
                Outcome::Action(Action::RequeueAfter(after)) => {
                    self.queue.forget(&key);
                    again(*after, false);
                }
                Outcome::Action(Action::RequeueAt(at)) => {
                    self.queue.forget(&key);
                    let wait = at.duration_since(self.clock.now());
                    again(Duration::try_from(wait).unwrap_or_default(), false);
                }
                // It is not tried again by itself; a change begins anew.
                Outcome::Error(ReconcileError::Terminal(_)) => self.queue.forget(&key),
                Outcome::Error(ReconcileError::Retry(_)) | Outcome::TimedOut | Outcome::Panicked => {
                    again(Duration::ZERO, true);
                }
            }
            self.queue.done(&key);
            if let Some(observer) = &self.observer {
                observer(&key, &outcome, self.clock.monotonic().since(begun));
            }
        }
    }

    async fn reconcile(&self, key: &Key) -> Outcome {
        let reconcile = caught(|| self.reconciler.reconcile(key.clone()));
        let ended = match self.timeout {
            None => reconcile.await,
            Some(timeout) => match race(reconcile, self.clock.sleep(timeout)).await {
                Either::First(ended) => ended,
                Either::Second(()) => return Outcome::TimedOut,
            },
        };
        match ended {
            None => Outcome::Panicked,
            // As in Go, after no time is not at all: else a reconciler could keep its worker to itself for ever.
            Some(Ok(Action::RequeueAfter(Duration::ZERO))) => Outcome::Action(Action::Done),
            Some(Ok(action)) => Outcome::Action(action),
            Some(Err(error)) => Outcome::Error(error),
        }
    }
}

#[cfg(test)]
mod tests {
    use std::{
        collections::{HashMap, HashSet},
        sync::Mutex,
    };

    use capstan_clock::{ManualClock, Timestamp};

    use super::*;

    /// Does what the key says: its words are what each attempt does.
    #[derive(Default)]
    struct Script {
        attempts: Mutex<HashMap<Key, usize>>,
        busy: Mutex<HashSet<Key>>,
        later: Timestamp,
    }

    impl Reconciler for Arc<Script> {
        async fn reconcile(&self, key: Key) -> Result<Action, ReconcileError> {
            assert!(self.busy.lock().unwrap().insert(key.clone()), "never two at once");
            tokio::task::yield_now().await;
            self.busy.lock().unwrap().remove(&key);
            let attempt = {
                let mut attempts = self.attempts.lock().unwrap();
                let attempt = attempts.entry(key.clone()).or_default();
                *attempt += 1;
                *attempt - 1
            };
            match key.name().split('-').nth(attempt).unwrap_or("ok") {
                "fail" => Err(ReconcileError::Retry("fail".to_owned())),
                "terminal" => Err(ReconcileError::Terminal("terminal".to_owned())),
                "panic" => panic!("a panic that the test wants"),
                "hang" => std::future::pending().await,
                "again" => Ok(Action::requeue_after(Duration::from_secs(60))),
                "zero" => Ok(Action::requeue_after(Duration::ZERO)),
                "later" => Ok(Action::requeue_at(self.later)),
                "past" => Ok(Action::requeue_at(Timestamp::MIN)),
                _ => Ok(Action::Done),
            }
        }
    }

    #[tokio::test]
    async fn outcomes() {
        let clock = ManualClock::at("2026-01-01T00:00:00Z".parse::<Timestamp>().unwrap());
        let seen: Arc<Mutex<HashMap<Key, Vec<&'static str>>>> = Arc::default();
        let to = Arc::clone(&seen);
        let later = "2026-01-01T00:01:00Z".parse().unwrap();
        let script = Script { later, ..Script::default() };
        let controller = Controller::new(Arc::new(script), Arc::new(clock.clone()))
            .max_concurrent_reconciles(3)
            .reconciliation_timeout(Duration::from_secs(30))
            .on_outcome(move |key, outcome| {
                to.lock().unwrap().entry(key.clone()).or_default().push(match outcome {
                    Outcome::Action(Action::Done) => "done",
                    Outcome::Action(_) => "again",
                    Outcome::Error(ReconcileError::Retry(_)) => "retry",
                    Outcome::Error(ReconcileError::Terminal(_)) => "terminal",
                    Outcome::TimedOut => "late",
                    Outcome::Panicked => "panicked",
                });
            });
        let cases: [(&str, &[&str]); 8] = [
            ("ok", &["done"]),
            ("zero-fail", &["done"]),
            ("fail-fail", &["retry", "retry", "done"]),
            ("panic-ok", &["panicked", "done"]),
            ("terminal", &["terminal"]),
            ("hang-again-fail", &["late", "again", "retry", "done"]),
            ("later-past-ok", &["again", "again", "done"]),
            ("again-panic-terminal", &["again", "panicked", "terminal"]),
        ];
        let queue = controller.queue().clone();
        for (name, _) in cases {
            queue.add(Key::new("ns", name));
        }
        let running = tokio::spawn(controller.run());
        for _ in 0..300 {
            for _ in 0..20 {
                tokio::task::yield_now().await;
            }
            clock.advance(Duration::from_secs(1));
        }
        for (name, expected) in cases {
            assert_eq!(seen.lock().unwrap()[&Key::new("ns", name)], expected, "{name}");
            assert_eq!(queue.num_requeues(&Key::new("ns", name)), 0, "{name}");
        }
        queue.shut_down_with_drain().await;
        running.await.unwrap();
    }
}
