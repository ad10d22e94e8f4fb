//! Work queues: a key is in one at most once, and in work at most once.

mod core;
mod hall;
#[cfg(all(test, feature = "shuttle"))]
mod interleavings;
mod metrics;
mod priority;
mod queue;
mod rate_limiters;
mod ready;
mod state;
mod table;
#[cfg(test)]
mod tests;

pub use self::core::Item;
pub use metrics::Metrics;
pub use priority::{AddOpts, LOW_PRIORITY, PriorityQueue};
pub use queue::{DelayingQueue, RateLimitingQueue, WorkQueue};
pub use rate_limiters::{
    BucketRateLimiter, ItemExponentialFailureRateLimiter, ItemFastSlowRateLimiter, JitterRateLimiter, MaxOfRateLimiter,
    RateLimiter, WithMaxWaitRateLimiter, default_controller_rate_limiter, default_item_based_rate_limiter,
};
