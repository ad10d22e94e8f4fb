//! When the lifetime of a key ends, in a form that survives a restart.

use std::time::Duration;

use capstan_clock::{Clock, Moment, Timestamp};

use crate::Ttl;

/// The end of a lifetime: milliseconds since 1970 by the store's clock, rounded up so that no key goes early.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct Deadline(pub(crate) i64);

impl Deadline {
    /// The end of a lifetime that begins now.
    pub(crate) fn after(now: Timestamp, ttl: Ttl) -> Self {
        let millis = i64::try_from(ttl.duration().as_millis()).unwrap_or(i64::MAX);
        Deadline(now.as_millisecond().saturating_add(1).saturating_add(millis))
    }

    /// Whether it is over.
    pub(crate) fn passed(self, now: Timestamp) -> bool {
        self.0 <= now.as_millisecond()
    }

    /// The moment to sleep until; it may come a little before the deadline, so look again.
    pub(crate) fn moment(self, clock: &dyn Clock) -> Moment {
        // The monotonic time is read first: if the clock moves in between, the sleep is too short and not too long.
        let monotonic = clock.monotonic();
        let millis = u64::try_from(self.0.saturating_sub(clock.now().as_millisecond())).unwrap_or(0);
        monotonic.plus(Duration::from_millis(millis))
    }
}
