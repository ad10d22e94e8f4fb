//! How long to wait with an item.

use std::{
    collections::HashMap,
    fmt,
    hash::Hash,
    sync::{Arc, Mutex, MutexGuard, PoisonError},
    time::Duration,
};

use capstan_clock::{Moment, SharedClock, SharedIds};

use super::core::Item;

/// Says how long an item has to wait. May be called from any task; never blocks.
pub trait RateLimiter<T>: fmt::Debug + Send + Sync {
    /// How long this item has to wait, this time. Asking counts.
    fn when(&self, item: &T) -> Duration;

    /// The item did well, or is given up: it begins from the start.
    fn forget(&self, item: &T);

    /// How often has been asked for the item since it was forgotten.
    fn num_requeues(&self, item: &T) -> u32;
}

/// How often each item failed. Those that are forgotten take no memory.
#[derive(Debug)]
struct Failures<T>(Mutex<HashMap<T, u32>>);

impl<T: Clone + Eq + Hash> Failures<T> {
    fn new() -> Self {
        Failures(Mutex::default())
    }

    fn lock(&self) -> MutexGuard<'_, HashMap<T, u32>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Counts one more, and says how many there were before.
    fn count(&self, item: &T) -> u32 {
        let mut failures = self.lock();
        let count = failures.entry(item.clone()).or_default();
        *count = count.saturating_add(1);
        *count - 1
    }

    fn forget(&self, item: &T) {
        self.lock().remove(item);
    }

    fn get(&self, item: &T) -> u32 {
        self.lock().get(item).copied().unwrap_or_default()
    }
}

/// Each failure of an item doubles its wait, up to a maximum.
#[derive(Debug)]
pub struct ItemExponentialFailureRateLimiter<T> {
    failures: Failures<T>,
    base_delay: Duration,
    max_delay: Duration,
}

impl<T: Item> ItemExponentialFailureRateLimiter<T> {
    /// Waits `base_delay` first and never more than `max_delay`.
    #[must_use]
    pub fn new(base_delay: Duration, max_delay: Duration) -> Self {
        ItemExponentialFailureRateLimiter { failures: Failures::new(), base_delay, max_delay }
    }
}

impl<T: Item + fmt::Debug> RateLimiter<T> for ItemExponentialFailureRateLimiter<T> {
    fn when(&self, item: &T) -> Duration {
        let factor = 1u128 << self.failures.count(item).min(63);
        let nanos = u64::try_from(self.base_delay.as_nanos().saturating_mul(factor)).unwrap_or(u64::MAX);
        Duration::from_nanos(nanos).min(self.max_delay)
    }

    fn forget(&self, item: &T) {
        self.failures.forget(item);
    }

    fn num_requeues(&self, item: &T) -> u32 {
        self.failures.get(item)
    }
}

/// The first failures of an item cost a short wait, the others a long one.
#[derive(Debug)]
pub struct ItemFastSlowRateLimiter<T> {
    failures: Failures<T>,
    fast_delay: Duration,
    slow_delay: Duration,
    max_fast_attempts: u32,
}

impl<T: Item> ItemFastSlowRateLimiter<T> {
    /// Waits `fast_delay` so many times, then `slow_delay`.
    #[must_use]
    pub fn new(fast_delay: Duration, slow_delay: Duration, max_fast_attempts: u32) -> Self {
        ItemFastSlowRateLimiter { failures: Failures::new(), fast_delay, slow_delay, max_fast_attempts }
    }
}

impl<T: Item + fmt::Debug> RateLimiter<T> for ItemFastSlowRateLimiter<T> {
    fn when(&self, item: &T) -> Duration {
        if self.failures.count(item) < self.max_fast_attempts { self.fast_delay } else { self.slow_delay }
    }

    fn forget(&self, item: &T) {
        self.failures.forget(item);
    }

    fn num_requeues(&self, item: &T) -> u32 {
        self.failures.get(item)
    }
}

/// So many a second for all items together, and some at once.
#[derive(Debug)]
pub struct BucketRateLimiter {
    clock: SharedClock,
    /// The time that one costs.
    interval: Duration,
    burst: u32,
    /// When the bucket was, or will be, full but for one that is taken now: tokens as time.
    free_at: Mutex<Option<Moment>>,
}

impl BucketRateLimiter {
    /// `qps` a second, and `burst` at once. No more than one a nanosecond; at least one at once.
    #[must_use]
    pub fn new(clock: SharedClock, qps: f64, burst: u32) -> Self {
        let interval = Duration::try_from_secs_f64(1.0 / qps).unwrap_or(Duration::MAX);
        BucketRateLimiter { clock, interval, burst: burst.max(1), free_at: Mutex::new(None) }
    }
}

impl<T> RateLimiter<T> for BucketRateLimiter {
    fn when(&self, _: &T) -> Duration {
        let now = self.clock.monotonic();
        let mut free_at = self.free_at.lock().unwrap_or_else(PoisonError::into_inner);
        // Taken ones are given back one after the other; so many may be out as the bucket holds.
        let start = free_at.map_or(now, |at| at.max(now));
        let end = start.plus(self.interval);
        *free_at = Some(end);
        end.since(now).saturating_sub(self.interval.saturating_mul(self.burst))
    }

    fn forget(&self, _: &T) {}

    fn num_requeues(&self, _: &T) -> u32 {
        0
    }
}

/// The longest wait of several.
#[derive(Debug)]
pub struct MaxOfRateLimiter<T>(Vec<Arc<dyn RateLimiter<T>>>);

impl<T> MaxOfRateLimiter<T> {
    /// All of these together.
    #[must_use]
    pub fn new(limiters: Vec<Arc<dyn RateLimiter<T>>>) -> Self {
        MaxOfRateLimiter(limiters)
    }
}

impl<T: fmt::Debug> RateLimiter<T> for MaxOfRateLimiter<T> {
    fn when(&self, item: &T) -> Duration {
        self.0.iter().map(|limiter| limiter.when(item)).max().unwrap_or_default()
    }

    fn forget(&self, item: &T) {
        self.0.iter().for_each(|limiter| limiter.forget(item));
    }

    fn num_requeues(&self, item: &T) -> u32 {
        self.0.iter().map(|limiter| limiter.num_requeues(item)).max().unwrap_or_default()
    }
}

/// Waits of another limiter, but none longer than this.
#[derive(Debug)]
pub struct WithMaxWaitRateLimiter<L> {
    limiter: L,
    max_delay: Duration,
}

impl<L> WithMaxWaitRateLimiter<L> {
    /// None longer than `max_delay`.
    #[must_use]
    pub fn new(limiter: L, max_delay: Duration) -> Self {
        WithMaxWaitRateLimiter { limiter, max_delay }
    }
}

impl<T, L: RateLimiter<T>> RateLimiter<T> for WithMaxWaitRateLimiter<L> {
    fn when(&self, item: &T) -> Duration {
        self.limiter.when(item).min(self.max_delay)
    }

    fn forget(&self, item: &T) {
        self.limiter.forget(item);
    }

    fn num_requeues(&self, item: &T) -> u32 {
        self.limiter.num_requeues(item)
    }
}

/// Waits of another limiter, each longer by a random part of itself: items that failed together come back apart.
#[derive(Debug)]
pub struct JitterRateLimiter<L> {
    limiter: L,
    factor: f64,
    ids: SharedIds,
}

impl<L> JitterRateLimiter<L> {
    /// Longer by at most `factor` times the wait.
    #[must_use]
    pub fn new(limiter: L, factor: f64, ids: SharedIds) -> Self {
        JitterRateLimiter { limiter, factor: factor.clamp(0.0, 10.0), ids }
    }
}

impl<T, L: RateLimiter<T>> RateLimiter<T> for JitterRateLimiter<L> {
    fn when(&self, item: &T) -> Duration {
        let wait = self.limiter.when(item);
        let seconds = wait.as_secs_f64() * (1.0 + self.factor * self.ids.fraction());
        Duration::try_from_secs_f64(seconds).unwrap_or(Duration::MAX)
    }

    fn forget(&self, item: &T) {
        self.limiter.forget(item);
    }

    fn num_requeues(&self, item: &T) -> u32 {
        self.limiter.num_requeues(item)
    }
}

/// What controllers use: 5 ms doubling up to 1,000 s for each item, and 10 a second, 100 at once, for all.
#[must_use]
pub fn default_controller_rate_limiter<T: Item + Sync + fmt::Debug>(clock: SharedClock) -> Arc<dyn RateLimiter<T>> {
    let items = ItemExponentialFailureRateLimiter::new(Duration::from_millis(5), Duration::from_secs(1000));
    Arc::new(MaxOfRateLimiter::new(vec![Arc::new(items), Arc::new(BucketRateLimiter::new(clock, 10.0, 100))]))
}

/// What needs no limit for all: 1 ms doubling up to 1,000 s for each item.
#[must_use]
pub fn default_item_based_rate_limiter<T: Item + Sync + fmt::Debug>() -> Arc<dyn RateLimiter<T>> {
    Arc::new(ItemExponentialFailureRateLimiter::new(Duration::from_millis(1), Duration::from_secs(1000)))
}
