//! Time and identity, injected.
//!
//! Whatever needs to know the time, to wait, or to make up a name or a number gets a [`Clock`] or an [`Ids`] handed in.
//! This crate is the only place that asks the operating system for either, so a test can run a year in a millisecond
//! ([`ManualClock`]) and a simulation can be replayed from its seed ([`SeededIds`]). Nothing else lives here.

mod ids;
mod manual;
mod real;

use std::{fmt, future::Future, pin::Pin, sync::Arc, time::Duration};

pub use ids::{Ids, OsIds, SeededIds, SharedIds};
pub use jiff::Timestamp;
pub use manual::ManualClock;
pub use real::RealClock;

/// A clock that can be shared between tasks.
pub type SharedClock = Arc<dyn Clock>;

/// What [`Clock::sleep_until`] returns: a future that is ready once the clock has reached its deadline.
pub type Sleep = Pin<Box<dyn Future<Output = ()> + Send + Sync>>;

/// A point on a clock's monotonic scale: the time since that clock's own origin.
///
/// It never goes back and says nothing about the date. Moments of different clocks must not be compared.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Moment(pub Duration);

impl Moment {
    /// The moment `later` after this one; the far end of the scale when there is none.
    #[must_use]
    pub fn plus(self, later: Duration) -> Self {
        Moment(self.0.saturating_add(later))
    }

    /// How long ago `earlier` was, nothing when it lies ahead.
    #[must_use]
    pub fn since(self, earlier: Moment) -> Duration {
        self.0.saturating_sub(earlier.0)
    }
}

/// Where time comes from.
///
/// `now` is the date and may jump; `monotonic` only grows; waiting is by `monotonic`. All methods may be called from
/// any thread and none blocks. Sleepers of one clock wake in the order of their deadlines, those of one deadline in the
/// order in which they first were polled.
pub trait Clock: fmt::Debug + Send + Sync + 'static {
    /// The date and time.
    fn now(&self) -> Timestamp;

    /// The time since this clock's origin.
    fn monotonic(&self) -> Moment;

    /// Ready once `monotonic` has reached `deadline`, at once when it has already.
    fn sleep_until(&self, deadline: Moment) -> Sleep;

    /// Ready once `duration` has gone by.
    fn sleep(&self, duration: Duration) -> Sleep {
        self.sleep_until(self.monotonic().plus(duration))
    }
}
