//! hyper's timers, on the injected clock.

use std::{
    future::Future,
    pin::Pin,
    task::{Context, Poll},
    time::{Duration, Instant},
};

use capstan_clock::{Moment, SharedClock};

/// A hyper timer that goes by a [`Clock`](capstan_clock::Clock).
#[derive(Clone, Debug)]
pub(super) struct ClockTimer {
    clock: SharedClock,
    /// What stands for the clock's origin: hyper counts in instants, and only the operating system makes those.
    origin: Instant,
}

impl ClockTimer {
    #[expect(clippy::disallowed_methods, reason = "an arbitrary instant; only differences to it are used")]
    pub(super) fn new(clock: SharedClock) -> Self {
        ClockTimer { clock, origin: Instant::now() }
    }
}

impl hyper::rt::Timer for ClockTimer {
    fn sleep(&self, duration: Duration) -> Pin<Box<dyn hyper::rt::Sleep>> {
        Box::pin(ClockSleep(self.clock.sleep(duration)))
    }

    fn sleep_until(&self, deadline: Instant) -> Pin<Box<dyn hyper::rt::Sleep>> {
        let deadline = Moment(deadline.saturating_duration_since(self.origin));
        Box::pin(ClockSleep(self.clock.sleep_until(deadline)))
    }

    fn now(&self) -> Instant {
        self.origin + self.clock.monotonic().0
    }
}

struct ClockSleep(capstan_clock::Sleep);

impl Future for ClockSleep {
    type Output = ();

    fn poll(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<()> {
        self.0.as_mut().poll(cx)
    }
}

impl hyper::rt::Sleep for ClockSleep {}
