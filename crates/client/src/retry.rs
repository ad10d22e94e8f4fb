//! Writing although others write too.

use std::{future::Future, time::Duration};

use capstan_clock::{Clock, Ids, OsIds, RealClock};

use crate::{Client, Error};

/// How often to try, and how long to wait in between.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Backoff {
    /// How many attempts there are.
    pub steps: u32,
    /// The first wait.
    pub duration: Duration,
    /// What the wait is multiplied by each time.
    pub factor: f64,
    /// How much longer a wait may be, as a part of it.
    pub jitter: f64,
}

/// For writers that others disturb now and then.
pub const DEFAULT_RETRY: Backoff = Backoff { steps: 5, duration: Duration::from_millis(10), factor: 1.0, jitter: 0.1 };

/// For writers that others disturb all the time.
pub const DEFAULT_BACKOFF: Backoff =
    Backoff { steps: 4, duration: Duration::from_millis(10), factor: 5.0, jitter: 0.1 };

/// Writes until nobody else was quicker. `write` must read the object anew each time. It waits by the clock of the
/// operating system; see [`Client::retry_on_conflict`].
///
/// # Errors
/// What `write` says, if it is no conflict; the last conflict when all attempts have met one.
pub async fn retry_on_conflict<T, F: Future<Output = Result<T, Error>>>(write: impl FnMut() -> F) -> Result<T, Error> {
    on_error(DEFAULT_RETRY, &RealClock::new(), &OsIds, Error::is_conflict, write).await
}

impl Client {
    /// The same, waiting on the client's clock.
    ///
    /// # Errors
    /// As [`retry_on_conflict`].
    pub async fn retry_on_conflict<T, F: Future<Output = Result<T, Error>>>(
        &self,
        write: impl FnMut() -> F,
    ) -> Result<T, Error> {
        on_error(DEFAULT_RETRY, &**self.clock(), &**self.ids(), Error::is_conflict, write).await
    }
}

/// Tries as long as the errors are such that it may help.
///
/// # Errors
/// The first error that is not, or the last one.
pub async fn on_error<T, F: Future<Output = Result<T, Error>>>(
    backoff: Backoff,
    clock: &dyn Clock,
    ids: &dyn Ids,
    retriable: impl Fn(&Error) -> bool,
    mut attempt: impl FnMut() -> F,
) -> Result<T, Error> {
    let mut wait = backoff.duration.as_secs_f64();
    for _ in 1..backoff.steps {
        match attempt().await {
            Err(error) if retriable(&error) => {}
            other => return other,
        }
        let seconds = wait * (1.0 + backoff.jitter * ids.fraction());
        clock.sleep(Duration::try_from_secs_f64(seconds).unwrap_or(backoff.duration)).await;
        wait *= backoff.factor;
    }
    attempt().await
}
