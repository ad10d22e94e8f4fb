//! Doing something many times: carefully, or all at once.

use std::panic::resume_unwind;

use tokio::task::{JoinError, JoinSet};

/// With how many at once to begin.
pub const SLOW_START_INITIAL_BATCH_SIZE: usize = 1;

/// Does something `count` times, in batches of `initial`, twice that, four times that and so on; those of a batch at
/// the same time, each in its own task. After a batch in which one failed no other begins: a quota that is used up
/// costs a few requests, not all of them. `work` is given numbers from 0.
///
/// Returns how many went well, and the first failure. A panic of one goes on in the caller.
///
/// ```
/// # tokio::runtime::Builder::new_current_thread().build().unwrap().block_on(async {
/// use capstan_runtime::slow_start_batch;
///
/// let create = |at| async move { if at < 4 { Ok(()) } else { Err("quota") } };
/// let (went_well, error) = slow_start_batch(10, 1, create).await;
/// assert_eq!((went_well, error), (3 + 1, Err("quota"))); // 1, 2, then four at once of which three fail
/// # });
/// ```
pub async fn slow_start_batch<E, F>(
    count: usize,
    initial: usize,
    mut work: impl FnMut(usize) -> F,
) -> (usize, Result<(), E>)
where
    E: Send + 'static,
    F: Future<Output = Result<(), E>> + Send + 'static,
{
    let (mut begun, mut went_well, mut size) = (0, 0, initial.max(1));
    while begun < count {
        let batch = size.min(count - begun);
        let (good, result) = batch_of((begun..begun + batch).map(&mut work)).await;
        begun += batch;
        went_well += good;
        if result.is_err() {
            return (went_well, result);
        }
        size = size.saturating_mul(2);
    }
    (went_well, Ok(()))
}

/// Does all of them at the same time, each in its own task, and waits for all. Returns the first failure.
///
/// # Errors
/// One failed.
pub async fn at_once<E, F>(work: impl IntoIterator<Item = F>) -> Result<(), E>
where
    E: Send + 'static,
    F: Future<Output = Result<(), E>> + Send + 'static,
{
    batch_of(work).await.1
}

async fn batch_of<E, F>(work: impl IntoIterator<Item = F>) -> (usize, Result<(), E>)
where
    E: Send + 'static,
    F: Future<Output = Result<(), E>> + Send + 'static,
{
    let mut running: JoinSet<_> = work.into_iter().collect();
    let (mut good, mut result) = (0, Ok(()));
    while let Some(ended) = running.join_next().await {
        match ended.map_err(JoinError::into_panic) {
            Ok(Ok(())) => good += 1,
            Ok(Err(error)) if result.is_ok() => result = Err(error),
            Ok(Err(_)) => {}
            // Nobody cancels them but who drops all of this.
            Err(panic) => resume_unwind(panic),
        }
    }
    (good, result)
}

#[cfg(test)]
mod tests {
    use std::sync::{Arc, Mutex};

    use super::*;

    /// How many had begun when each one ended, and what came of it.
    async fn check(count: usize, initial: usize, fails_from: usize, expected: &[usize], good: usize) {
        let (begun, seen): (Arc<Mutex<usize>>, Arc<Mutex<Vec<usize>>>) = Default::default();
        let (went_well, answer) = slow_start_batch(count, initial, |at| {
            let (begun, seen) = (Arc::clone(&begun), Arc::clone(&seen));
            async move {
                *begun.lock().unwrap() += 1;
                tokio::task::yield_now().await;
                let together = *begun.lock().unwrap();
                seen.lock().unwrap().push(together);
                if at >= fails_from { Err(at) } else { Ok(()) }
            }
        })
        .await;
        assert_eq!((&**seen.lock().unwrap(), went_well), (expected, good), "{count} {initial} {fails_from}");
        // Which of a batch ends first is not ours to say.
        assert_eq!(answer.is_err(), fails_from < count);
    }

    #[tokio::test]
    async fn batches() {
        check(0, 1, 9, &[], 0).await;
        check(1, 1, 9, &[1], 1).await;
        check(5, 1, 9, &[1, 3, 3, 5, 5], 5).await;
        check(4, 4, 9, &[4, 4, 4, 4], 4).await;
        check(9, 1, 0, &[1], 0).await;
        check(9, 1, 2, &[1, 3, 3], 2).await;
        check(9, 0, 4, &[1, 3, 3, 7, 7, 7, 7], 4).await;
    }

    #[tokio::test]
    async fn all_at_once() {
        let done: Arc<Mutex<usize>> = Arc::default();
        let all = at_once((0..5).map(|at| {
            let done = Arc::clone(&done);
            async move {
                *done.lock().unwrap() += 1;
                if at == 2 { Err(at) } else { Ok(()) }
            }
        }));
        assert_eq!((all.await, *done.lock().unwrap()), (Err(2), 5));
    }
}
