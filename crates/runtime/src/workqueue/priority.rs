//! controller-runtime's queue: some items are more urgent than others.

use std::{sync::Arc, time::Duration};

use capstan_clock::SharedClock;

use super::{
    Metrics,
    core::{Core, Item},
    rate_limiters::RateLimiter,
    ready::ByPriority,
};

/// The priority of what is looked at only because it was listed, or again.
pub const LOW_PRIORITY: i32 = -100;

/// How an item is added.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct AddOpts {
    /// Not before this time has passed.
    pub after: Duration,
    /// Not before the rate limiter allows it.
    pub rate_limited: bool,
    /// How urgent it is; more is sooner.
    pub priority: i32,
}

/// A queue that hands out the most urgent items first.
///
/// It keeps the promises of [`WorkQueue`](super::WorkQueue). An item that is added again keeps the highest of its
/// priorities and the earliest of its times, and comes once. Clones are the same queue.
#[derive(Debug)]
pub struct PriorityQueue<T: Item> {
    core: Arc<Core<T, ByPriority>>,
    limiter: Arc<dyn RateLimiter<T>>,
}

impl<T: Item> Clone for PriorityQueue<T> {
    fn clone(&self) -> Self {
        PriorityQueue { core: Arc::clone(&self.core), limiter: Arc::clone(&self.limiter) }
    }
}

impl<T: Item> PriorityQueue<T> {
    /// An empty queue.
    #[must_use]
    pub fn new(clock: SharedClock, limiter: Arc<dyn RateLimiter<T>>) -> Self {
        PriorityQueue { core: Arc::new(Core::new(clock)), limiter }
    }

    /// Adds an item.
    pub fn add_with_opts(&self, opts: AddOpts, item: T) {
        let mut after = opts.after;
        if opts.rate_limited {
            let limited = self.limiter.when(&item);
            // The earlier of the two, if two are given, as upstream has it.
            after = if after.is_zero() { limited } else { after.min(limited) };
        }
        // What a limiter lets through at once is no retry, as upstream counts them.
        if !after.is_zero() {
            self.core.add_after(item, after, opts.priority);
        } else {
            self.core.add(item, opts.priority);
        }
    }

    /// Adds an item with priority 0.
    pub fn add(&self, item: T) {
        self.add_with_opts(AddOpts::default(), item);
    }

    /// Takes the most urgent item, once there is one, with its priority; see [`get`](super::WorkQueue::get).
    pub async fn get_with_priority(&self) -> Option<(T, i32)> {
        self.core.get().await
    }

    /// Takes the most urgent item, once there is one.
    pub async fn get(&self) -> Option<T> {
        self.core.get().await.map(|(item, _)| item)
    }

    /// The work on an item is over.
    pub fn done(&self, item: &T) {
        self.core.done(item);
    }

    /// The item did well: what the limiter knows of it is over.
    pub fn forget(&self, item: &T) {
        self.limiter.forget(item);
    }

    /// How often the item has been added by the limiter.
    #[must_use]
    pub fn num_requeues(&self, item: &T) -> u32 {
        self.limiter.num_requeues(item)
    }

    /// How many items could be handed out.
    #[must_use]
    pub fn len(&self) -> usize {
        self.core.len()
    }

    /// Whether no item could be handed out.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// Takes nothing more. What is in it is still handed out, what waits for its time is not.
    pub fn shut_down(&self) {
        self.core.shut_down();
    }

    /// The same, and waits until all is handed out and done, or somebody calls [`shut_down`](Self::shut_down).
    pub async fn shut_down_with_drain(&self) {
        self.core.shut_down_with_drain().await;
    }

    /// Whether it takes nothing more.
    #[must_use]
    pub fn shutting_down(&self) -> bool {
        self.core.is_shutting_down()
    }

    /// Measures from now on how long items wait and are worked on. Who never asks for [`metrics`](Self::metrics) does
    /// not pay for that, as in client-go without a provider of metrics.
    pub fn measure(&self) {
        self.core.measure();
    }

    /// The queue in numbers. Times are those since [`measure`](Self::measure), or since this was first asked for.
    #[must_use]
    pub fn metrics(&self) -> Metrics {
        self.core.metrics()
    }
}
