//! Queues on virtual time, against a model.

use std::{
    collections::{BTreeMap, HashMap, HashSet, VecDeque},
    future::Future,
    pin::pin,
    sync::{Arc, Mutex},
    task::{Context, Poll, Waker},
    time::Duration,
};

use capstan_clock::{ManualClock, SeededIds};
use proptest::prelude::*;

use super::{state::KEPT, *};
use crate::metrics::Families;

fn clock() -> ManualClock {
    ManualClock::at("2026-01-01T00:00:00Z".parse().unwrap())
}

fn ms(count: u64) -> Duration {
    Duration::from_millis(count)
}

/// What a future says at once.
fn now<F: Future>(future: F) -> Option<F::Output> {
    match pin!(future).poll(&mut Context::from_waker(Waker::noop())) {
        Poll::Ready(answer) => Some(answer),
        Poll::Pending => None,
    }
}

fn limits(limiter: &impl RateLimiter<&'static str>, item: &'static str, count: usize) -> Vec<u128> {
    (0..count).map(|_| limiter.when(&item).as_millis()).collect()
}

/// Items that are done are let go of, if not at once.
#[test]
fn no_more_is_kept_than_is_there() {
    let queue = WorkQueue::new(Arc::new(clock()));
    let items: Vec<Arc<u32>> = (0..1000).map(Arc::new).collect();
    let known = || items.iter().filter(|item| Arc::strong_count(item) > 1).count();
    for round in 0..3 {
        items.iter().for_each(|item| queue.add(Arc::clone(item)));
        assert_eq!((queue.len(), known()), (1000, 1000), "round {round}");
        for at in 0..1000_u32 {
            let item = now(queue.get()).flatten().unwrap();
            assert_eq!(*item, at, "first come, first served, round {round}");
            queue.done(&item);
            drop(item);
            let left = 999 - at as usize;
            assert!(known() <= left * 2 + KEPT, "{} of {left} left", known());
        }
        assert_eq!(now(queue.get()), None);
    }
    // One that comes again and again needs no other place, and is one all the same.
    for _ in 0..100 {
        (0..3).for_each(|_| queue.add(Arc::clone(&items[0])));
        let item = now(queue.get()).flatten().unwrap();
        queue.add(Arc::clone(&items[0]));
        assert_eq!(now(queue.get()), None, "it is in work");
        queue.done(&item);
        assert_eq!(now(queue.get()).flatten(), Some(item.clone()));
        queue.done(&item);
        assert_eq!(queue.len(), 0);
    }
}

#[test]
fn rate_limiters() {
    let exponential = ItemExponentialFailureRateLimiter::new(ms(1), ms(1000));
    assert_eq!(limits(&exponential, "a", 12), [1, 2, 4, 8, 16, 32, 64, 128, 256, 512, 1000, 1000]);
    assert_eq!((limits(&exponential, "b", 2), exponential.num_requeues(&"a")), (vec![1, 2], 12));
    exponential.forget(&"a");
    assert_eq!((exponential.num_requeues(&"a"), limits(&exponential, "a", 1)), (0, vec![1]));
    let far = ItemExponentialFailureRateLimiter::new(Duration::from_nanos(1), Duration::MAX);
    assert!((0..200).map(|_| far.when(&"a")).is_sorted());

    let fast_slow = ItemFastSlowRateLimiter::new(ms(5), ms(10_000), 3);
    assert_eq!(limits(&fast_slow, "a", 5), [5, 5, 5, 10_000, 10_000]);

    let clock = clock();
    let bucket = BucketRateLimiter::new(Arc::new(clock.clone()), 10.0, 3);
    assert_eq!(limits(&bucket, "a", 5), [0, 0, 0, 100, 200]);
    clock.advance(ms(400));
    assert_eq!(limits(&bucket, "a", 3), [0, 0, 100], "two of three have come back");
    clock.advance(ms(100_000));
    assert_eq!(limits(&bucket, "a", 4), [0, 0, 0, 100], "no more than fit in");

    let both: MaxOfRateLimiter<&str> = MaxOfRateLimiter::new(vec![
        Arc::new(ItemExponentialFailureRateLimiter::new(ms(5), ms(1000))),
        Arc::new(ItemFastSlowRateLimiter::new(ms(50), ms(60), 1)),
    ]);
    assert_eq!((limits(&both, "a", 5), both.num_requeues(&"a")), (vec![50, 60, 60, 60, 80], 5));
    let most = WithMaxWaitRateLimiter::new(ItemExponentialFailureRateLimiter::new(ms(5), ms(1000)), ms(12));
    assert_eq!(limits(&most, "a", 4), [5, 10, 12, 12]);
    let fixed = ItemFastSlowRateLimiter::new(ms(100), ms(100), 1);
    let jitter = JitterRateLimiter::new(fixed, 0.5, Arc::new(SeededIds::new(1)));
    let waits = limits(&jitter, "a", 100);
    assert!(waits.iter().all(|wait| (100..150).contains(wait)));
    assert!(waits.iter().collect::<HashSet<_>>().len() > 10, "they differ");
}

#[test]
fn an_item_is_there_once() {
    let queue = WorkQueue::new(Arc::new(clock()));
    for item in ["a", "b", "a"] {
        queue.add(item);
    }
    assert_eq!((queue.len(), now(queue.get())), (2, Some(Some("a"))));
    queue.add("a");
    assert_eq!((now(queue.get()), now(queue.get())), (Some(Some("b")), None), "what is in work is not handed out");
    queue.done(&"a");
    assert_eq!(now(queue.get()), Some(Some("a")));
    queue.done(&"a");
    queue.done(&"a");
    queue.done(&"never seen");
    assert!(queue.is_empty());
}

#[test]
fn items_whose_time_comes() {
    let clock = clock();
    let queue = DelayingQueue::new(Arc::new(clock.clone()));
    queue.add_after("late", ms(100));
    queue.add_after("soon", ms(50));
    queue.add_after("late", ms(200));
    queue.add_after("soon", ms(10));
    queue.add_after("now", ms(0));
    assert_eq!((now(queue.get()), now(queue.get())), (Some(Some("now")), None));
    clock.advance(ms(10));
    assert_eq!((now(queue.get()), now(queue.get())), (Some(Some("soon")), None));
    clock.advance(ms(90));
    assert_eq!((now(queue.get()), now(queue.get())), (Some(Some("late")), None));
    clock.advance(ms(1000));
    assert_eq!(queue.len(), 0, "the later time is forgotten");
}

#[test]
fn priorities() {
    let clock = clock();
    let queue = PriorityQueue::new(Arc::new(clock.clone()), default_item_based_rate_limiter());
    let add = |item, priority, after| queue.add_with_opts(AddOpts { priority, after, rate_limited: false }, item);
    add("low", LOW_PRIORITY, ms(0));
    add("first", 0, ms(0));
    add("second", 0, ms(0));
    add("raised", LOW_PRIORITY, ms(0));
    add("raised", 5, ms(0));
    add("raised", 1, ms(0));
    add("waits", 9, ms(50));
    add("hurried", 7, ms(50));
    add("hurried", LOW_PRIORITY, ms(0));
    add("second", 6, ms(1));
    let mut order = Vec::new();
    while let Some(Some(found)) = now(queue.get_with_priority()) {
        order.push(found);
    }
    assert_eq!(order, [("hurried", 7), ("second", 6), ("raised", 5), ("first", 0), ("low", LOW_PRIORITY)]);
    add("low", 3, ms(0));
    queue.done(&"low");
    clock.advance(ms(50));
    assert_eq!(now(queue.get_with_priority()), Some(Some(("waits", 9))));
    assert_eq!(now(queue.get_with_priority()), Some(Some(("low", 3))));
    assert_eq!(now(queue.get_with_priority()), None, "the hurried one came once");
    queue.add_with_opts(AddOpts { rate_limited: true, ..AddOpts::default() }, "retry");
    assert_eq!((queue.num_requeues(&"retry"), queue.len()), (1, 0));
    clock.advance(ms(1));
    assert_eq!(queue.len(), 1);
}

#[tokio::test]
async fn shutting_down() {
    let queue = DelayingQueue::new(Arc::new(clock()));
    let waiting: Vec<_> = (0..3)
        .map(|_| {
            tokio::spawn({
                let queue = queue.clone();
                async move { queue.get().await }
            })
        })
        .collect();
    tokio::task::yield_now().await;
    queue.shut_down();
    for worker in waiting {
        assert_eq!(worker.await.unwrap(), None);
    }
    queue.add("a");
    queue.add_after("b", ms(1));
    assert!(queue.is_empty() && queue.shutting_down());

    let queue = WorkQueue::new(Arc::new(clock()));
    queue.add("a");
    queue.add("b");
    assert_eq!(queue.get().await, Some("a"));
    let mut drain = Box::pin(queue.shut_down_with_drain());
    assert!(now(&mut drain).is_none());
    queue.add("c");
    queue.done(&"a");
    assert!(now(&mut drain).is_none(), "one is left");
    assert_eq!(queue.get().await, Some("b"));
    assert!(now(&mut drain).is_none(), "one is in work");
    queue.done(&"b");
    assert!(now(&mut drain).is_some());
    assert_eq!(queue.get().await, None);

    let queue = WorkQueue::new(Arc::new(clock()));
    queue.add("a");
    let mut drain = Box::pin(queue.shut_down_with_drain());
    assert!(now(&mut drain).is_none());
    queue.shut_down();
    assert!(now(&mut drain).is_some(), "who cannot wait ends the waiting of all");
}

#[test]
fn numbers() {
    let clock = clock();
    let queue = DelayingQueue::new(Arc::new(clock.clone()));
    queue.add("before");
    clock.advance(ms(1));
    queue.measure();
    let before = now(queue.get()).flatten().unwrap();
    queue.done(&before);
    assert_eq!(queue.metrics().queue_duration.count, 0, "nobody knows when it came");
    assert_eq!(queue.metrics().work_duration.count, 1);
    let queue = DelayingQueue::new(Arc::new(clock.clone()));
    queue.measure();
    queue.add("a");
    queue.add("a");
    queue.add("b");
    queue.add_after("c", ms(500));
    clock.advance(ms(1000));
    now(queue.get()).unwrap();
    clock.advance(ms(3000));
    now(queue.get()).unwrap();
    clock.advance(ms(2000));
    let metrics = queue.metrics();
    assert_eq!((metrics.depth, metrics.adds, metrics.retries), (1, 3, 1));
    assert_eq!((metrics.unfinished_work, metrics.longest_running_processor), (ms(7000), ms(5000)));
    assert_eq!((metrics.queue_duration.count, metrics.queue_duration.sum), (2, 5.0));
    queue.done(&"a");
    let mut families = Families::default();
    queue.metrics().collect("things", &mut families);
    let text = families.to_string();
    for line in [
        "workqueue_depth{name=\"things\"} 1\n",
        "workqueue_adds_total{name=\"things\"} 3\n",
        "workqueue_retries_total{name=\"things\"} 1\n",
        "workqueue_unfinished_work_seconds{name=\"things\"} 2\n",
        "workqueue_longest_running_processor_seconds{name=\"things\"} 2\n",
        "workqueue_queue_duration_seconds_bucket{name=\"things\",le=\"1\"} 1\n",
        "workqueue_queue_duration_seconds_bucket{name=\"things\",le=\"+Inf\"} 2\n",
        "workqueue_work_duration_seconds_sum{name=\"things\"} 5\n",
        "workqueue_work_duration_seconds_count{name=\"things\"} 1\n",
    ] {
        assert!(text.contains(line), "{line} in\n{text}");
    }
    assert!(!text.contains("le=\"100\""), "the buckets of Kubernetes' own programs end at ten seconds");
}

/// As controller-runtime shows them: by controller and priority, and up to a thousand seconds.
#[test]
fn numbers_of_controllers() {
    let clock = clock();
    let queue = PriorityQueue::new(Arc::new(clock.clone()), default_item_based_rate_limiter());
    queue.measure();
    let shown = || {
        let mut families = Families::default();
        queue.metrics().collect_of_controller("x", &mut families);
        families.to_string()
    };
    let add = |item: u32, priority| queue.add_with_opts(AddOpts { priority, ..AddOpts::default() }, item);
    (0..3).for_each(|item| add(item, LOW_PRIORITY));
    add(3, 0);
    assert_eq!(now(queue.get()), Some(Some(3)));
    // It is to be worked on again, once it is done with.
    add(3, 7);
    clock.advance(ms(50_000));
    now(queue.get()).unwrap();
    let text = shown();
    for line in [
        "workqueue_depth{controller=\"x\",name=\"x\",priority=\"-100\"} 2\n",
        "workqueue_depth{controller=\"x\",name=\"x\",priority=\"0\"} 0\n",
        "workqueue_depth{controller=\"x\",name=\"x\",priority=\"7\"} 1\n",
        "workqueue_adds_total{controller=\"x\",name=\"x\"} 5\n",
        "workqueue_queue_duration_seconds_bucket{controller=\"x\",name=\"x\",le=\"10\"} 1\n",
        "workqueue_queue_duration_seconds_bucket{controller=\"x\",name=\"x\",le=\"100\"} 2\n",
        "workqueue_queue_duration_seconds_bucket{controller=\"x\",name=\"x\",le=\"1000\"} 2\n",
    ] {
        assert!(text.contains(line), "{line} in\n{text}");
    }
    let at_once = PriorityQueue::new(Arc::new(clock), Arc::new(ItemFastSlowRateLimiter::new(ms(0), ms(5), 1)));
    for item in ["a", "a"] {
        at_once.add_with_opts(AddOpts { rate_limited: true, ..AddOpts::default() }, item);
    }
    let metrics = at_once.metrics();
    assert_eq!((metrics.depth, metrics.retries), (1, 1), "only what waits is a retry");
    (0..30).for_each(|item| add(100 + item, i32::try_from(item).unwrap()));
    let text = shown();
    assert!(text.contains("priority=\"exceeded_cardinality_limit\"} "), "{text}");
    assert_eq!(text.matches("workqueue_depth{").count(), 26);
}

#[derive(Clone, Debug)]
enum Op {
    Add(u8, i32),
    After(u8, u64, i32),
    Get,
    Done(u8),
    Advance(u64),
}

fn op() -> impl Strategy<Value = Op> {
    prop_oneof![
        4 => (0..5u8, -2..3i32).prop_map(|(item, priority)| Op::Add(item, priority)),
        2 => (0..5u8, 1..30u64, -2..3i32).prop_map(|(item, after, priority)| Op::After(item, after, priority)),
        5 => Just(Op::Get),
        4 => (0..5u8).prop_map(Op::Done),
        2 => (1..20u64).prop_map(Op::Advance),
    ]
}

/// What a priority queue is, said slowly.
#[derive(Default)]
struct Model {
    now: u64,
    next: u64,
    /// Priority, place.
    dirty: BTreeMap<u8, (i32, u64)>,
    /// Time, place, priority.
    waiting: BTreeMap<u8, (u64, u64, i32)>,
    processing: HashSet<u8>,
}

impl Model {
    fn add(&mut self, item: u8, priority: i32) {
        let waited = self.waiting.remove(&item).map_or(i32::MIN, |(_, _, priority)| priority);
        let priority = priority.max(waited);
        let next = &mut self.next;
        let known = self.dirty.entry(item).or_insert_with(|| {
            *next += 1;
            (priority, *next)
        });
        known.0 = known.0.max(priority);
    }

    fn add_after(&mut self, item: u8, at: u64, priority: i32) {
        if self.dirty.contains_key(&item) {
            return self.add(item, priority);
        }
        self.next += 1;
        let new = (at, self.next, priority);
        let known = self.waiting.entry(item).or_insert(new);
        let priority = known.2.max(priority);
        if at < known.0 {
            *known = new;
        }
        known.2 = priority;
    }

    fn advance(&mut self, by: u64) {
        self.now += by;
        let mut due: Vec<_> = self.waiting.iter().filter(|(_, at)| at.0 <= self.now).map(|(i, at)| (*at, *i)).collect();
        due.sort_unstable();
        due.into_iter().for_each(|((_, _, priority), item)| self.add(item, priority));
    }

    fn idle(&self) -> impl Iterator<Item = (&u8, &(i32, u64))> {
        self.dirty.iter().filter(|(item, _)| !self.processing.contains(item))
    }

    fn get(&mut self) -> Option<(u8, i32)> {
        let (item, (priority, _)) =
            self.idle().min_by_key(|(_, (priority, at))| (-priority, *at)).map(|(i, p)| (*i, *p))?;
        self.dirty.remove(&item);
        self.processing.insert(item);
        Some((item, priority))
    }
}

/// What a plain queue is, as client-go says it.
#[derive(Default)]
struct Plain {
    queue: VecDeque<u8>,
    dirty: HashSet<u8>,
    processing: HashSet<u8>,
}

impl Plain {
    fn add(&mut self, item: u8) {
        if self.dirty.insert(item) && !self.processing.contains(&item) {
            self.queue.push_back(item);
        }
    }

    fn get(&mut self) -> Option<u8> {
        let item = self.queue.pop_front()?;
        self.dirty.remove(&item);
        self.processing.insert(item);
        Some(item)
    }

    fn done(&mut self, item: u8) {
        if self.processing.remove(&item) && self.dirty.contains(&item) {
            self.queue.push_back(item);
        }
    }
}

async fn many_workers(items: Vec<u8>, workers: usize) {
    let queue = WorkQueue::new(Arc::new(clock()));
    let busy: Arc<Mutex<HashSet<u8>>> = Arc::default();
    let seen: Arc<Mutex<HashMap<u8, usize>>> = Arc::default();
    let tasks: Vec<_> = (0..workers)
        .map(|_| {
            let (queue, busy, seen) = (queue.clone(), Arc::clone(&busy), Arc::clone(&seen));
            tokio::spawn(async move {
                while let Some(item) = queue.get().await {
                    assert!(busy.lock().unwrap().insert(item), "two on one key");
                    for _ in 0..item % 4 {
                        tokio::task::yield_now().await;
                    }
                    *seen.lock().unwrap().entry(item).or_default() += 1;
                    busy.lock().unwrap().remove(&item);
                    queue.done(&item);
                }
            })
        })
        .collect();
    for (at, item) in items.iter().enumerate() {
        queue.add(*item);
        if at % 3 == 0 {
            tokio::task::yield_now().await;
        }
    }
    queue.shut_down_with_drain().await;
    for task in tasks {
        task.await.unwrap();
    }
    let seen = seen.lock().unwrap();
    assert_eq!(seen.keys().copied().collect::<HashSet<_>>(), items.iter().copied().collect(), "nothing is lost");
    assert!(seen.values().sum::<usize>() <= items.len());
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(1024))]

    #[test]
    fn a_priority_queue_is_as_its_model(ops in proptest::collection::vec(op(), 0..100)) {
        let clock = clock();
        let queue = PriorityQueue::new(Arc::new(clock.clone()), default_item_based_rate_limiter());
        let mut model = Model::default();
        for op in ops {
            match op {
                Op::Add(item, priority) => {
                    queue.add_with_opts(AddOpts { priority, ..AddOpts::default() }, item);
                    model.add(item, priority);
                }
                Op::After(item, after, priority) => {
                    queue.add_with_opts(AddOpts { priority, after: ms(after), rate_limited: false }, item);
                    model.add_after(item, model.now + after, priority);
                }
                Op::Get => prop_assert_eq!(now(queue.get_with_priority()).flatten(), model.get()),
                Op::Done(item) => {
                    queue.done(&item);
                    model.processing.remove(&item);
                }
                Op::Advance(by) => {
                    clock.advance(ms(by));
                    // Those whose time has come are looked at in the order of their times.
                    let _ = queue.len();
                    model.advance(by);
                }
            }
        }
    }

    #[test]
    fn a_plain_queue_is_as_its_model(ops in proptest::collection::vec(op(), 0..100)) {
        let queue = WorkQueue::new(Arc::new(clock()));
        let mut model = Plain::default();
        for op in ops {
            match op {
                Op::Add(item, _) | Op::After(item, ..) => {
                    queue.add(item);
                    model.add(item);
                }
                Op::Get => prop_assert_eq!(now(queue.get()).flatten(), model.get()),
                Op::Done(item) => {
                    queue.done(&item);
                    model.done(item);
                }
                Op::Advance(by) if by % 4 == 0 => prop_assert_eq!(queue.len(), model.queue.len()),
                Op::Advance(_) => {}
            }
        }
    }

    #[test]
    fn never_two_on_one_key_and_nothing_lost(
        items in proptest::collection::vec(0..12u8, 0..60), workers in 1..6usize
    ) {
        let runtime = tokio::runtime::Builder::new_current_thread().build().unwrap();
        runtime.block_on(many_workers(items, workers));
    }
}
