//! A clock that moves only when told.

use std::{
    collections::BTreeMap,
    future::Future,
    pin::Pin,
    sync::{Arc, Mutex, MutexGuard, PoisonError},
    task::{Context, Poll, Waker},
    time::Duration,
};

use jiff::{SignedDuration, Timestamp};

use crate::{Clock, Moment, Sleep};

/// A clock that moves only when told: virtual time.
///
/// Clones share one time. [`advance`](ManualClock::advance) wakes every sleeper whose deadline it passes, in the order
/// of the deadlines, but does not wait for them to run; who wants to stop at each deadline asks
/// [`next_deadline`](ManualClock::next_deadline) and advances step by step.
#[derive(Clone, Debug)]
pub struct ManualClock {
    state: Arc<Mutex<State>>,
}

#[derive(Debug)]
struct State {
    origin: Timestamp,
    elapsed: Duration,
    next_sleeper: u64,
    sleepers: BTreeMap<(Moment, u64), Waker>,
}

impl ManualClock {
    /// A clock that stands at `now`.
    #[must_use]
    pub fn at(now: Timestamp) -> Self {
        let state = State { origin: now, elapsed: Duration::ZERO, next_sleeper: 0, sleepers: BTreeMap::new() };
        ManualClock { state: Arc::new(Mutex::new(state)) }
    }

    /// Moves on by `duration` and wakes who waited for it.
    pub fn advance(&self, duration: Duration) {
        let due = {
            let mut state = self.lock();
            state.elapsed = state.elapsed.saturating_add(duration);
            let now = Moment(state.elapsed);
            let after = state.sleepers.split_off(&(now, u64::MAX));
            std::mem::replace(&mut state.sleepers, after)
        };
        // Woken without the lock: a waker may run its task on the spot, and that task may ask for the time.
        due.into_values().for_each(Waker::wake);
    }

    /// The earliest moment that somebody sleeps until.
    #[must_use]
    pub fn next_deadline(&self) -> Option<Moment> {
        self.lock().sleepers.keys().next().map(|&(deadline, _)| deadline)
    }

    /// How many are asleep.
    #[must_use]
    pub fn sleepers(&self) -> usize {
        self.lock().sleepers.len()
    }

    fn lock(&self) -> MutexGuard<'_, State> {
        // No method panics while it holds the lock, so a poisoned one is still whole.
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Clock for ManualClock {
    fn now(&self) -> Timestamp {
        let state = self.lock();
        SignedDuration::try_from(state.elapsed)
            .ok()
            .and_then(|elapsed| state.origin.checked_add(elapsed).ok())
            .unwrap_or(Timestamp::MAX)
    }

    fn monotonic(&self) -> Moment {
        Moment(self.lock().elapsed)
    }

    fn sleep_until(&self, deadline: Moment) -> Sleep {
        Box::pin(Sleeper { clock: self.clone(), deadline, registered: None })
    }
}

struct Sleeper {
    clock: ManualClock,
    deadline: Moment,
    registered: Option<u64>,
}

impl Future for Sleeper {
    type Output = ();

    fn poll(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<()> {
        let clock = self.clock.clone();
        let mut state = clock.lock();
        if self.deadline.0 <= state.elapsed {
            return Poll::Ready(());
        }
        let number = *self.registered.get_or_insert_with(|| {
            state.next_sleeper += 1;
            state.next_sleeper
        });
        state.sleepers.insert((self.deadline, number), cx.waker().clone());
        Poll::Pending
    }
}

impl Drop for Sleeper {
    fn drop(&mut self) {
        if let Some(number) = self.registered {
            self.clock.lock().sleepers.remove(&(self.deadline, number));
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn clock() -> ManualClock {
        ManualClock::at("2026-01-01T00:00:00Z".parse().unwrap())
    }

    #[test]
    fn a_year_passes_at_once() {
        let clock = clock();
        clock.advance(Duration::from_secs(365 * 24 * 3600));
        assert_eq!(clock.now().to_string(), "2027-01-01T00:00:00Z");
    }

    #[test]
    fn time_stops_at_the_end_of_the_calendar() {
        let clock = clock();
        clock.advance(Duration::MAX);
        assert_eq!(clock.now(), Timestamp::MAX);
    }

    #[tokio::test]
    async fn sleepers_wake_when_their_time_has_come_and_not_before() {
        let clock = clock();
        let long = tokio::spawn(clock.sleep(Duration::from_secs(20)));
        let short = tokio::spawn(clock.sleep(Duration::from_secs(10)));
        while clock.sleepers() < 2 {
            tokio::task::yield_now().await;
        }
        assert_eq!(clock.next_deadline(), Some(Moment(Duration::from_secs(10))));
        clock.advance(Duration::from_secs(10));
        short.await.unwrap();
        assert!(!long.is_finished());
        clock.advance(Duration::from_secs(10));
        long.await.unwrap();
        assert_eq!(clock.sleepers(), 0);
    }

    #[tokio::test]
    async fn a_dropped_sleep_leaves_nothing_behind() {
        let clock = clock();
        let task = tokio::spawn(clock.sleep(Duration::from_secs(1)));
        while clock.sleepers() == 0 {
            tokio::task::yield_now().await;
        }
        task.abort();
        let _ = task.await;
        assert_eq!(clock.next_deadline(), None);
    }
}
