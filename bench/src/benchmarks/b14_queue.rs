//! B14: work queues and a loop that does nothing, beside those of client-go and controller-runtime.
//!
//! One adds many keys, so many workers take them and are done with them; and a controller looks at ten thousand keys,
//! several times. The peer is a program that does the same, built from `bench/peers/go/workqueue`. Both measure how
//! long things take, but for the plain queue, which is measured with and without that.

use std::{
    collections::HashMap,
    process::Command,
    sync::{
        Arc,
        atomic::{AtomicUsize, Ordering},
    },
    time::Duration,
};

use capstan_client::Key;
use capstan_clock::{Clock as _, RealClock, SharedClock};
use capstan_runtime::{
    Action, Controller, ReconcileError, Reconciler,
    workqueue::{PriorityQueue, WorkQueue, default_item_based_rate_limiter},
};
use tokio::{sync::Notify, task::JoinError};

use crate::{
    bench::Bench,
    peers,
    result::{Case, Sample},
};

const KEYS: usize = 10_000;
const ROUNDS: usize = 20;
const WORKERS: [usize; 4] = [1, 4, 16, 64];

/// What is measured, under the peer's word for it, and the title of its row.
const QUEUE: (&str, &str) = ("client-go-without-metrics", "WorkQueue");
const MEASURED: (&str, &str) = ("client-go", "WorkQueue that measures times");
const PRIORITY: (&str, &str) = ("controller-runtime", "PriorityQueue");
const RECONCILE: (&str, &str) = ("reconcile", "no-op reconcile of 10,000 keys");

pub(super) async fn run(bench: &mut Bench) -> Result<(), String> {
    let items = bench.settings.scale(200_000, 1_000_000);
    let peer = if bench.settings.peer { Some(peers::go("workqueue")) } else { None };
    let (all, few) = (keys(items), keys(KEYS));
    let clock: SharedClock = Arc::new(RealClock::new());
    let failed = |error: JoinError| error.to_string();
    for round in 1..=bench.settings.rounds {
        for workers in WORKERS {
            bench.say(&format!("{workers} workers, round {round} of {}", bench.settings.rounds));
            let took = measure(WorkQueue::new(Arc::clone(&clock)), &all, workers).await.map_err(failed)?;
            add(bench, QUEUE, workers, "capstan", took.as_nanos() as f64 / items as f64);
            let queue = WorkQueue::new(Arc::clone(&clock));
            queue.measure();
            let took = measure(queue, &all, workers).await.map_err(failed)?;
            add(bench, MEASURED, workers, "capstan", took.as_nanos() as f64 / items as f64);
            let queue = PriorityQueue::new(Arc::clone(&clock), default_item_based_rate_limiter());
            queue.measure();
            let took = measure(queue, &all, workers).await.map_err(failed)?;
            add(bench, PRIORITY, workers, "capstan", took.as_nanos() as f64 / items as f64);
            let took = reconciles(&few, workers).await.map_err(failed)?;
            add(bench, RECONCILE, workers, "capstan", took.as_nanos() as f64 / (KEYS * ROUNDS) as f64);
        }
        let Some(peer) = &peer else { continue };
        let theirs = match peer {
            Ok(binary) => peer_figures(binary, items),
            Err(error) => Err(error.clone()),
        };
        match theirs {
            Ok(theirs) => {
                for (what, workers) in
                    [QUEUE, MEASURED, PRIORITY, RECONCILE].into_iter().flat_map(|what| WORKERS.map(|w| (what, w)))
                {
                    if let Some(ns) = theirs.get(&(what.0.to_owned(), workers)) {
                        add(bench, what, workers, "upstream", *ns);
                    }
                }
            }
            Err(error) if round == 1 => bench.failures.push(format!("B14 peer: {error}")),
            Err(_) => {}
        }
    }
    Ok(())
}

fn add(bench: &mut Bench, what: (&str, &str), workers: usize, side: &'static str, ns: f64) {
    let goal = (what != PRIORITY).then_some(5.0);
    let case = Case::less(format!("{}, {workers} workers, {}", what.1, what.0), "ns an item").goal(goal);
    bench.add(&case, side, Sample::of(ns));
}

/// Nanoseconds an item, by what was measured and how many workers there were.
type Figures = HashMap<(String, usize), f64>;

fn peer_figures(binary: &std::path::Path, items: usize) -> Result<Figures, String> {
    let workers = WORKERS.map(|workers| workers.to_string()).join(",");
    let numbers = [items, KEYS, ROUNDS].map(|number| number.to_string());
    let output = Command::new(binary).args(numbers).arg(workers).output().map_err(|error| error.to_string())?;
    if !output.status.success() {
        return Err(String::from_utf8_lossy(&output.stderr).into_owned());
    }
    let read = |line: &str| {
        let mut words = line.split(' ');
        Some(((words.next()?.to_owned(), words.next()?.parse().ok()?), words.next()?.parse().ok()?))
    };
    Ok(String::from_utf8_lossy(&output.stdout).lines().filter_map(read).collect())
}

fn keys(count: usize) -> Vec<Key> {
    (0..count).map(|at| Key::new(&format!("namespace-{}", at % 100), &format!("name-{at}"))).collect()
}

/// What both kinds of queues can do.
trait Queue: Clone + Send + Sync + 'static {
    fn add(&self, key: Key);
    fn get(&self) -> impl Future<Output = Option<Key>> + Send;
    fn done(&self, key: &Key);
    fn shut_down(&self);
}

macro_rules! queue {
    ($type:ty) => {
        impl Queue for $type {
            fn add(&self, key: Key) {
                self.add(key);
            }
            async fn get(&self) -> Option<Key> {
                self.get().await
            }
            fn done(&self, key: &Key) {
                self.done(key);
            }
            fn shut_down(&self) {
                self.shut_down();
            }
        }
    };
}

queue!(WorkQueue<Key>);
queue!(PriorityQueue<Key>);

/// One adds, the workers take; from the first add until all is done.
async fn measure(queue: impl Queue, keys: &[Key], workers: usize) -> Result<Duration, JoinError> {
    let clock = RealClock::new();
    let (count, all) = (Arc::new(AtomicUsize::new(0)), keys.len());
    let keys = keys.to_vec();
    let begun = clock.monotonic();
    let working: Vec<_> = (0..workers)
        .map(|_| {
            let (queue, count) = (queue.clone(), Arc::clone(&count));
            tokio::spawn(async move {
                while let Some(key) = queue.get().await {
                    queue.done(&key);
                    if count.fetch_add(1, Ordering::Relaxed) + 1 == all {
                        queue.shut_down();
                    }
                }
            })
        })
        .collect();
    tokio::task::spawn_blocking(move || keys.into_iter().for_each(|key| queue.add(key))).await?;
    for worker in working {
        worker.await?;
    }
    Ok(clock.monotonic().since(begun))
}

#[derive(Default)]
struct Nothing {
    left: AtomicUsize,
    round: Notify,
}

struct NoOp(Arc<Nothing>);

impl Reconciler for NoOp {
    async fn reconcile(&self, _: Key) -> Result<Action, ReconcileError> {
        if self.0.left.fetch_sub(1, Ordering::Relaxed) == 1 {
            self.0.round.notify_one();
        }
        Ok(Action::Done)
    }
}

/// How long a controller that does nothing takes for all keys, several times over.
async fn reconciles(keys: &[Key], workers: usize) -> Result<Duration, JoinError> {
    let clock: SharedClock = Arc::new(RealClock::new());
    let nothing = Arc::new(Nothing::default());
    let controller = Controller::new(NoOp(Arc::clone(&nothing)), Arc::clone(&clock)).max_concurrent_reconciles(workers);
    let queue = controller.queue().clone();
    queue.measure();
    let running = tokio::spawn(controller.run());
    let begun = clock.monotonic();
    for _ in 0..ROUNDS {
        nothing.left.store(keys.len(), Ordering::Relaxed);
        let (queue, keys) = (queue.clone(), keys.to_vec());
        tokio::task::spawn_blocking(move || keys.into_iter().for_each(|key| queue.add(key))).await?;
        nothing.round.notified().await;
    }
    let took = clock.monotonic().since(begun);
    queue.shut_down();
    running.await?;
    Ok(took)
}
