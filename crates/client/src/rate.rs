//! How fast a client asks: a bucket of tokens, as client-go's flow control.

use std::{
    sync::{Mutex, PoisonError},
    time::Duration,
};

use capstan_clock::{Clock, Moment};

/// So many requests a second, and so many at once after a pause.
///
/// Who comes first goes first; each waits until its token is there.
#[derive(Debug)]
pub struct RateLimiter {
    every: Duration,
    burst: u32,
    /// When the bucket will have been full again if nobody else comes.
    full_at: Mutex<Moment>,
}

impl RateLimiter {
    /// `qps` requests a second, `burst` at once.
    #[must_use]
    pub fn new(qps: f32, burst: u32) -> Self {
        // One in longer than can be said is none at all.
        let every =
            if qps > 0.0 { Duration::try_from_secs_f32(1.0 / qps).unwrap_or(Duration::MAX) } else { Duration::ZERO };
        RateLimiter { every, burst: burst.max(1), full_at: Mutex::default() }
    }

    /// One as fast, whose bucket is full.
    #[must_use]
    pub fn another(&self) -> Self {
        RateLimiter { every: self.every, burst: self.burst, full_at: Mutex::default() }
    }

    /// When the next request may go. The token is taken.
    fn reserve(&self, now: Moment) -> Moment {
        let mut full_at = self.full_at.lock().unwrap_or_else(PoisonError::into_inner);
        let from = (*full_at).max(now);
        *full_at = from.plus(self.every);
        // With a full bucket the time is now; each token that is missing is one step away from that.
        let early = self.every.saturating_mul(self.burst - 1);
        Moment(from.0.saturating_sub(early)).max(now)
    }

    /// Waits for a token.
    pub async fn wait(&self, clock: &dyn Clock) {
        let now = clock.monotonic();
        let at = self.reserve(now);
        if at > now {
            clock.sleep_until(at).await;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn tokens() {
        let limiter = RateLimiter::new(10.0, 3);
        let at = |millis| Moment(Duration::from_millis(millis));
        let go = |now: u64| limiter.reserve(at(now)).0.as_millis();
        assert_eq!([go(0), go(0), go(0), go(0), go(0)], [0, 0, 0, 100, 200], "a burst, then one every 100 ms");
        assert_eq!([go(250), go(250)], [300, 400]);
        assert_eq!([go(5000), go(5000), go(5000), go(5000)], [5000, 5000, 5000, 5100], "full again after a pause");
        assert_eq!(limiter.another().reserve(at(5000)), at(5000), "another bucket");
        let never = RateLimiter::new(1e-30, 1);
        assert_eq!([never.reserve(at(7)), never.reserve(at(7))], [at(7), Moment(Duration::MAX)]);
        let open = RateLimiter::new(0.0, 1);
        assert_eq!([open.reserve(at(7)), open.reserve(at(7))], [at(7), at(7)]);
    }
}
