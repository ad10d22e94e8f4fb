//! How long to wait before trying again.

use std::time::Duration;

use capstan_clock::{Ids, Moment};

/// The first wait.
pub const INITIAL: Duration = Duration::from_millis(800);

/// The longest wait, before jitter.
pub const MAX: Duration = Duration::from_secs(30);

/// After this long without a wait the first one is short again.
pub const RESET: Duration = Duration::from_secs(120);

/// Waits that double, with jitter: each is between one and two times its base.
#[derive(Clone, Debug)]
pub(crate) struct Backoff {
    base: Duration,
    last: Option<Moment>,
}

impl Default for Backoff {
    fn default() -> Self {
        Backoff { base: INITIAL, last: None }
    }
}

impl Backoff {
    /// The next wait.
    pub(crate) fn next(&mut self, now: Moment, ids: &dyn Ids) -> Duration {
        if self.last.is_some_and(|last| now.since(last) > RESET) {
            self.base = INITIAL;
        }
        self.last = Some(now);
        let wait = self.base.mul_f64(1.0 + ids.fraction());
        self.base = (self.base * 2).min(MAX);
        wait
    }
}
