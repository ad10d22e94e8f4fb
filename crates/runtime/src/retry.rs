//! Writing although others write too.

use std::{future::Future, time::Duration};

use capstan_client::Error;
use capstan_clock::{Clock, Ids};

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

/// Writes until nobody else was quicker. `write` must read the object anew each time.
///
/// # Errors
/// What `write` says, if it is no conflict; the last conflict when all attempts have met one.
pub async fn retry_on_conflict<T, F: Future<Output = Result<T, Error>>>(
    backoff: Backoff,
    clock: &dyn Clock,
    ids: &dyn Ids,
    mut write: impl FnMut() -> F,
) -> Result<T, Error> {
    let mut wait = backoff.duration.as_secs_f64();
    for _ in 1..backoff.steps {
        match write().await {
            Err(error) if error.is_conflict() => {}
            other => return other,
        }
        let seconds = wait * (1.0 + backoff.jitter * ids.fraction());
        clock.sleep(Duration::try_from_secs_f64(seconds).unwrap_or(backoff.duration)).await;
        wait *= backoff.factor;
    }
    write().await
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use capstan_api::{GroupResource, Status};
    use capstan_clock::{ManualClock, SeededIds};

    use super::*;

    /// Attempts answer as the letters say: `c`onflict, `n`ot found, `o`k.
    async fn check(answers: &str, attempts: usize, expected: &str) {
        let clock = ManualClock::at("2026-01-01T00:00:00Z".parse().unwrap());
        let ticking = clock.clone();
        let ticker = tokio::spawn(async move {
            loop {
                ticking.advance(Duration::from_secs(1));
                tokio::task::yield_now().await;
            }
        });
        let resource = GroupResource::new("", "pods");
        let asked = Arc::new(std::sync::atomic::AtomicUsize::new(0));
        let answer = retry_on_conflict(DEFAULT_RETRY, &clock, &SeededIds::new(1), || {
            let at = asked.fetch_add(1, std::sync::atomic::Ordering::SeqCst);
            let answer = answers.chars().nth(at).unwrap();
            let resource = resource.clone();
            async move {
                match answer {
                    'c' => Err(Status::conflict(&resource, "a", "b").into()),
                    'n' => Err(Status::not_found(&resource, "a").into()),
                    _ => Ok(()),
                }
            }
        })
        .await;
        ticker.abort();
        let found = match answer {
            Ok(()) => "ok",
            Err(error) if error.is_conflict() => "conflict",
            Err(_) => "other",
        };
        assert_eq!((found, asked.load(std::sync::atomic::Ordering::SeqCst)), (expected, attempts), "{answers}");
    }

    #[tokio::test]
    async fn conflicts_are_tried_again() {
        check("o", 1, "ok").await;
        check("ccco", 4, "ok").await;
        check("cccccc", 5, "conflict").await;
        check("cn", 2, "other").await;
    }
}
