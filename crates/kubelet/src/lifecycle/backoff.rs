//! How long to wait before what failed is tried again: 10 s, doubled each time up to 5 min, forgotten after 10 min of
//! health.

use std::time::Duration;

use capstan_clock::Timestamp;

use super::{plus, since};

const INITIAL: Duration = Duration::from_secs(10);
const MAXIMUM: Duration = Duration::from_secs(300);

/// One thing's back-off. Starts out empty: the first failure is tried again at once.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Backoff {
    entry: Option<(Duration, Timestamp)>,
}

impl Backoff {
    /// Until when to wait after a failure at `failed`, and how long that wait is in all.
    #[must_use]
    pub fn until(&self, failed: Timestamp) -> Option<(Timestamp, Duration)> {
        let (delay, updated) = self.entry?;
        (since(failed, updated) <= MAXIMUM * 2).then(|| (plus(failed, delay), delay))
    }

    /// It is tried again now, after a failure at `failed`.
    pub fn next(&mut self, failed: Timestamp, now: Timestamp) {
        let delay = match self.until(failed) {
            Some((_, delay)) => (delay * 2).min(MAXIMUM),
            None => INITIAL,
        };
        self.entry = Some((delay, now));
    }
}
