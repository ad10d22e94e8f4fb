//! The operating system's clock.

use std::time::{Duration, Instant};

use jiff::Timestamp;

use crate::{Clock, Moment, Sleep};

/// The furthest a timer is set: about 30 years. Beyond it the runtime's timer wheel overflows.
const FURTHEST: Duration = Duration::from_secs(30 * 365 * 24 * 3600);

/// The operating system's clock; waiting uses tokio's timers.
#[derive(Clone, Copy, Debug)]
pub struct RealClock {
    origin: Instant,
}

impl RealClock {
    /// A clock whose origin is this instant.
    #[must_use]
    #[expect(clippy::disallowed_methods, reason = "the one place where the operating system is asked")]
    pub fn new() -> Self {
        RealClock { origin: Instant::now() }
    }
}

impl Default for RealClock {
    fn default() -> Self {
        RealClock::new()
    }
}

#[expect(clippy::disallowed_methods, reason = "the one place where the operating system is asked")]
impl Clock for RealClock {
    fn now(&self) -> Timestamp {
        Timestamp::now()
    }

    fn monotonic(&self) -> Moment {
        Moment(self.origin.elapsed())
    }

    fn sleep_until(&self, deadline: Moment) -> Sleep {
        let wait = deadline.since(self.monotonic()).min(FURTHEST);
        // The timer is made when first polled, so that a sleep can be created outside a runtime.
        Box::pin(async move { tokio::time::sleep(wait).await })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn monotonic_never_goes_back() {
        let clock = RealClock::new();
        let first = clock.monotonic();
        assert!(clock.monotonic() >= first);
    }

    #[tokio::test]
    async fn a_deadline_in_the_past_is_ready_at_once() {
        let clock = RealClock::new();
        clock.sleep_until(Moment::default()).await;
    }
}
