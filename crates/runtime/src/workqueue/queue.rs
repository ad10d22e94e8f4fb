//! The queues of client-go: plain, delaying, rate limiting.

use std::{ops::Deref, sync::Arc, time::Duration};

use capstan_clock::SharedClock;

use super::{
    Metrics,
    core::{Core, Item},
    rate_limiters::RateLimiter,
    ready::Fifo,
};

/// A queue in which an item is at most once, however often it is added, and which hands out no item that is in work.
///
/// Items come in the order in which they were added. One that is added while it is in work is handed out again when
/// that is done. Clones are the same queue; any task may call any method, and none but [`get`](Self::get) and
/// [`shut_down_with_drain`](Self::shut_down_with_drain) waits.
#[derive(Debug)]
pub struct WorkQueue<T: Item> {
    core: Arc<Core<T, Fifo>>,
}

impl<T: Item> Clone for WorkQueue<T> {
    fn clone(&self) -> Self {
        WorkQueue { core: Arc::clone(&self.core) }
    }
}

impl<T: Item> WorkQueue<T> {
    /// An empty queue.
    #[must_use]
    pub fn new(clock: SharedClock) -> Self {
        WorkQueue { core: Arc::new(Core::new(clock)) }
    }

    /// Adds an item, unless it is there. After the shutdown nothing is added.
    pub fn add(&self, item: T) {
        self.core.add(item, ());
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

    /// Takes an item, once there is one; [`done`](Self::done) must be told afterwards. None when the queue is shut down
    /// and nothing is left. May be dropped without losing an item.
    pub async fn get(&self) -> Option<T> {
        self.core.get().await.map(|(item, ())| item)
    }

    /// The work on an item is over.
    pub fn done(&self, item: &T) {
        self.core.done(item);
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

/// A queue to which items can be added later. Of two times the earlier counts.
#[derive(Debug)]
pub struct DelayingQueue<T: Item> {
    queue: WorkQueue<T>,
}

impl<T: Item> Clone for DelayingQueue<T> {
    fn clone(&self) -> Self {
        DelayingQueue { queue: self.queue.clone() }
    }
}

impl<T: Item> Deref for DelayingQueue<T> {
    type Target = WorkQueue<T>;

    fn deref(&self) -> &WorkQueue<T> {
        &self.queue
    }
}

impl<T: Item> DelayingQueue<T> {
    /// An empty queue.
    #[must_use]
    pub fn new(clock: SharedClock) -> Self {
        DelayingQueue { queue: WorkQueue::new(clock) }
    }

    /// Adds an item after some time.
    pub fn add_after(&self, item: T, after: Duration) {
        self.queue.core.add_after(item, after, ());
    }
}

/// A queue that knows how long to wait with items that failed.
#[derive(Debug)]
pub struct RateLimitingQueue<T: Item> {
    queue: DelayingQueue<T>,
    limiter: Arc<dyn RateLimiter<T>>,
}

impl<T: Item> Clone for RateLimitingQueue<T> {
    fn clone(&self) -> Self {
        RateLimitingQueue { queue: self.queue.clone(), limiter: Arc::clone(&self.limiter) }
    }
}

impl<T: Item> Deref for RateLimitingQueue<T> {
    type Target = DelayingQueue<T>;

    fn deref(&self) -> &DelayingQueue<T> {
        &self.queue
    }
}

impl<T: Item> RateLimitingQueue<T> {
    /// An empty queue.
    #[must_use]
    pub fn new(clock: SharedClock, limiter: Arc<dyn RateLimiter<T>>) -> Self {
        RateLimitingQueue { queue: DelayingQueue::new(clock), limiter }
    }

    /// Adds an item when the limiter says it is time.
    pub fn add_rate_limited(&self, item: T) {
        let after = self.limiter.when(&item);
        self.queue.add_after(item, after);
    }

    /// The item did well: what the limiter knows of it is over. [`done`](WorkQueue::done) must be told all the same.
    pub fn forget(&self, item: &T) {
        self.limiter.forget(item);
    }

    /// How often the item has been added by the limiter.
    #[must_use]
    pub fn num_requeues(&self, item: &T) -> u32 {
        self.limiter.num_requeues(item)
    }
}
