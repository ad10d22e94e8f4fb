//! The queues as they are, in many orders of their threads: `cargo test --features shuttle --lib interleavings`.

use std::{
    collections::HashSet,
    sync::{Arc, Mutex},
    time::Duration,
};

use capstan_client::beat::{Either, race};
use capstan_clock::ManualClock;
use shuttle::{
    Config, Runner,
    future::block_on,
    scheduler::{PctScheduler, RandomScheduler},
    thread,
};

use super::{AddOpts, PriorityQueue, WorkQueue, default_item_based_rate_limiter};

/// How many orders are tried by each of the two schedulers.
const ORDERS: usize = 2_000;
const SEED: u64 = 20_260_101;
/// How many times the second scheduler takes the turn from whoever it favours.
const SWITCHES: usize = 3;
/// What a thread of the scheduler has for its frames; those of debug builds are large.
const STACK_BYTES: usize = 512 * 1024;

fn clock() -> ManualClock {
    ManualClock::at("2026-01-01T00:00:00Z".parse().unwrap())
}

/// Runs `body` in many orders.
fn check(body: impl Fn() + Send + Sync + 'static) {
    let body = Arc::new(body);
    let mut config = Config::new();
    config.stack_size = STACK_BYTES;
    config.silence_warnings = true;
    let again = Arc::clone(&body);
    Runner::new(RandomScheduler::new_from_seed(SEED, ORDERS), config.clone()).run(move || again());
    Runner::new(PctScheduler::new_from_seed(SEED, SWITCHES, ORDERS), config).run(move || body());
}

/// Takes and finishes what comes until the end; the list of it.
fn worker(queue: &WorkQueue<u8>, busy: &Arc<Mutex<HashSet<u8>>>) -> thread::JoinHandle<Vec<u8>> {
    let (queue, busy) = (queue.clone(), Arc::clone(busy));
    thread::spawn(move || {
        let mut seen = Vec::new();
        while let Some(item) = block_on(queue.get()) {
            assert!(busy.lock().unwrap().insert(item), "two on one key");
            thread::yield_now();
            seen.push(item);
            busy.lock().unwrap().remove(&item);
            queue.done(&item);
        }
        seen
    })
}

#[test]
fn nothing_is_lost_and_nobody_sleeps_for_ever() {
    check(|| {
        let queue = WorkQueue::new(Arc::new(clock()));
        let busy: Arc<Mutex<HashSet<u8>>> = Arc::default();
        let workers: Vec<_> = (0..2).map(|_| worker(&queue, &busy)).collect();
        let adders: Vec<_> = [[1, 2], [2, 3]]
            .into_iter()
            .map(|items| {
                let queue = queue.clone();
                thread::spawn(move || items.into_iter().for_each(|item| queue.add(item)))
            })
            .collect();
        adders.into_iter().for_each(|adder| adder.join().unwrap());
        block_on(queue.shut_down_with_drain());
        let seen: HashSet<u8> = workers.into_iter().flat_map(|worker| worker.join().unwrap()).collect();
        assert_eq!(seen, HashSet::from([1, 2, 3]));
    });
}

/// Two items and two who wait: both are handed out while nobody is done with either.
#[test]
fn each_item_wakes_one_who_waits() {
    check(|| {
        let queue = WorkQueue::new(Arc::new(clock()));
        let takers: Vec<_> = (0..2)
            .map(|_| {
                let queue = queue.clone();
                thread::spawn(move || block_on(queue.get()))
            })
            .collect();
        queue.add(1);
        queue.add(2);
        let seen: HashSet<_> = takers.into_iter().map(|taker| taker.join().unwrap()).collect();
        assert_eq!(seen, HashSet::from([Some(1), Some(2)]));
    });
}

/// What comes back because it was added while it was in work, and what comes because its time has come.
#[test]
fn again_and_later() {
    check(|| {
        let clock = clock();
        let queue = PriorityQueue::new(Arc::new(clock.clone()), default_item_based_rate_limiter());
        queue.add(1);
        assert_eq!(block_on(queue.get()), Some(1));
        let takers: Vec<_> = (0..2)
            .map(|_| {
                let queue = queue.clone();
                thread::spawn(move || block_on(queue.get()))
            })
            .collect();
        queue.add_with_opts(AddOpts { after: Duration::from_secs(5), ..AddOpts::default() }, 2);
        queue.add(1);
        let finisher = {
            let queue = queue.clone();
            thread::spawn(move || queue.done(&1))
        };
        clock.advance(Duration::from_secs(5));
        let seen: HashSet<_> = takers.into_iter().map(|taker| taker.join().unwrap()).collect();
        assert_eq!(seen, HashSet::from([Some(1), Some(2)]));
        finisher.join().unwrap();
    });
}

/// One gives up at any time, awake, asleep or just being woken: what it was to look at is looked at by the other.
#[test]
fn who_gives_up_passes_it_on() {
    check(|| {
        let queue = WorkQueue::new(Arc::new(clock()));
        let impatient = {
            let queue = queue.clone();
            thread::spawn(move || {
                block_on(async {
                    let give_up = async {
                        for _ in 0..7 {
                            shuttle::future::yield_now().await;
                        }
                    };
                    if let Either::First(Some(item)) = race(queue.get(), give_up).await {
                        queue.done(&item);
                        queue.add(item);
                    }
                });
            })
        };
        let patient = {
            let queue = queue.clone();
            thread::spawn(move || block_on(queue.get()))
        };
        queue.add(1);
        assert_eq!(patient.join().unwrap(), Some(1));
        impatient.join().unwrap();
    });
}

/// A queue that wakes only one for two items must be found: the proof that the orders matter.
#[test]
#[should_panic(expected = "deadlock")]
fn a_queue_that_forgets_to_wake_is_found() {
    use shuttle::sync::Mutex;
    use tokio::sync::Notify;

    check(|| {
        let queue = Arc::new((Mutex::new(Vec::new()), Notify::new()));
        let takers: Vec<_> = (0..2)
            .map(|_| {
                let queue = Arc::clone(&queue);
                thread::spawn(move || {
                    block_on(async {
                        while queue.0.lock().unwrap().pop().is_none() {
                            // Both have looked, and neither says that it waits.
                            thread::yield_now();
                            queue.1.notified().await;
                        }
                    });
                })
            })
            .collect();
        for item in 0..2 {
            queue.0.lock().unwrap().push(item);
            queue.1.notify_one();
        }
        takers.into_iter().for_each(|taker| taker.join().unwrap());
    });
}
