//! B14: work queues and a loop that does nothing, beside those of client-go and controller-runtime.
//!
//! One adds a million keys, so many workers take them and are done with them; and a controller looks at ten thousand
//! keys, twenty times. The peer is built by the Go toolchain from `bench/peers/workqueue`. All sides run in turn on the
//! same machine; only the ratios mean something.

#![expect(clippy::unwrap_used, reason = "a benchmark ends at the first surprise")]

use std::{
    collections::HashMap,
    path::Path,
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
use tokio::sync::Notify;

const ITEMS: usize = 1_000_000;
const KEYS: usize = 10_000;
const ROUNDS: usize = 20;
const WORKERS: [usize; 4] = [1, 4, 16, 64];

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
async fn measure(queue: impl Queue, keys: &[Key], workers: usize) -> Duration {
    let clock = RealClock::new();
    let (count, all) = (Arc::new(AtomicUsize::new(0)), keys.len());
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
    let keys = keys.to_vec();
    tokio::task::spawn_blocking(move || keys.into_iter().for_each(|key| queue.add(key))).await.unwrap();
    for worker in working {
        worker.await.unwrap();
    }
    clock.monotonic().since(begun)
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
async fn reconciles(keys: &[Key], workers: usize) -> Duration {
    let clock: SharedClock = Arc::new(RealClock::new());
    let nothing = Arc::new(Nothing::default());
    let controller = Controller::new(NoOp(Arc::clone(&nothing)), Arc::clone(&clock)).max_concurrent_reconciles(workers);
    let queue = controller.queue().clone();
    let running = tokio::spawn(controller.run());
    let begun = clock.monotonic();
    for _ in 0..ROUNDS {
        nothing.left.store(keys.len(), Ordering::Relaxed);
        let (queue, keys) = (queue.clone(), keys.to_vec());
        tokio::task::spawn_blocking(move || keys.into_iter().for_each(|key| queue.add(key))).await.unwrap();
        nothing.round.notified().await;
    }
    let took = clock.monotonic().since(begun);
    queue.shut_down();
    running.await.unwrap();
    took
}

/// Nanoseconds an item, by what was measured and how many workers there were.
type Results = HashMap<(String, usize), f64>;

fn peer() -> Option<Results> {
    let sources = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../bench/peers/workqueue");
    let binary = Path::new(env!("CARGO_TARGET_TMPDIR")).join("workqueue-peer");
    let built = Command::new("go").args(["build", "-o"]).arg(&binary).arg(".").current_dir(sources).status();
    if !built.is_ok_and(|status| status.success()) {
        println!("no peer: it needs a Go toolchain");
        return None;
    }
    let workers = WORKERS.map(|workers| workers.to_string()).join(",");
    let numbers = [ITEMS, KEYS, ROUNDS].map(|number| number.to_string());
    let output = Command::new(binary).args(numbers).arg(workers).output().unwrap();
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    let read = |line: &str| {
        let words: Vec<_> = line.split(' ').collect();
        Some(((words[0].to_owned(), words[1].parse().ok()?), words[2].parse().ok()?))
    };
    Some(String::from_utf8(output.stdout).unwrap().lines().filter_map(read).collect())
}

fn main() {
    let runtime = tokio::runtime::Builder::new_multi_thread().enable_all().build().unwrap();
    let (items, few) = (keys(ITEMS), keys(KEYS));
    let clock: SharedClock = Arc::new(RealClock::new());
    let mut ours = Results::new();
    for workers in WORKERS {
        let queue = WorkQueue::new(Arc::clone(&clock));
        let took = runtime.block_on(measure(queue, &items, workers));
        ours.insert(("queue".to_owned(), workers), took.as_nanos() as f64 / ITEMS as f64);
        let queue = PriorityQueue::new(Arc::clone(&clock), default_item_based_rate_limiter());
        let took = runtime.block_on(measure(queue, &items, workers));
        ours.insert(("priority".to_owned(), workers), took.as_nanos() as f64 / ITEMS as f64);
        let took = runtime.block_on(reconciles(&few, workers));
        ours.insert(("reconcile".to_owned(), workers), took.as_nanos() as f64 / (KEYS * ROUNDS) as f64);
    }
    let theirs = peer().unwrap_or_default();
    println!("{:34} {:>7} {:>10} {:>10} {:>7}", "B14, ns an item", "workers", "ours", "theirs", "ratio");
    for (what, peer, title) in [
        ("queue", "client-go", "WorkQueue : client-go"),
        ("queue", "client-go-without-metrics", "WorkQueue : client-go, no metrics"),
        ("priority", "controller-runtime", "PriorityQueue : controller-runtime"),
        ("reconcile", "reconcile", "no-op reconcile, 10,000 keys"),
    ] {
        for workers in WORKERS {
            let ours = ours[&(what.to_owned(), workers)];
            let theirs = theirs.get(&(peer.to_owned(), workers)).copied().unwrap_or(f64::NAN);
            println!("{title:34} {workers:>7} {ours:>10.1} {theirs:>10.1} {:>6.1}x", theirs / ours);
        }
    }
}
