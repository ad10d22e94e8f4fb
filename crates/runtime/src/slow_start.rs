//! Doing something many times, carefully: few at first, and no more once something fails.

use std::{
    future::{Future, poll_fn},
    pin::Pin,
    task::Poll,
};

/// With how many at once to begin.
pub const SLOW_START_INITIAL_BATCH_SIZE: usize = 1;

/// Does something `count` times, in batches of `initial`, twice that, four times that and so on; those of a batch at
/// the same time. After a batch in which one failed no other begins. `work` is given numbers from 0.
///
/// Returns how many went well, and the first failure. Those that were skipped are `count` less the batches that began:
/// with the other words of upstream, who expected `count` lowers that by what did not go well.
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
pub async fn slow_start_batch<E, F: Future<Output = Result<(), E>>>(
    count: usize,
    initial: usize,
    mut work: impl FnMut(usize) -> F,
) -> (usize, Result<(), E>) {
    let (mut begun, mut went_well, mut size) = (0, 0, initial.max(1));
    while begun < count {
        let batch = size.min(count - begun);
        let answers = join_all((begun..begun + batch).map(&mut work).collect()).await;
        begun += batch;
        let mut first = Ok(());
        for answer in answers {
            match answer {
                Ok(()) => went_well += 1,
                Err(error) if first.is_ok() => first = Err(error),
                Err(_) => {}
            }
        }
        if first.is_err() {
            return (went_well, first);
        }
        size = size.saturating_mul(2);
    }
    (went_well, Ok(()))
}

/// Waits for all of them, which run at the same time.
async fn join_all<F: Future>(futures: Vec<F>) -> Vec<F::Output> {
    let mut running: Vec<Pin<Box<F>>> = futures.into_iter().map(Box::pin).collect();
    let mut answers: Vec<Option<F::Output>> = running.iter().map(|_| None).collect();
    poll_fn(|cx| {
        let mut all = true;
        for (future, answer) in running.iter_mut().zip(&mut answers) {
            if answer.is_none() {
                match future.as_mut().poll(cx) {
                    Poll::Ready(ready) => *answer = Some(ready),
                    Poll::Pending => all = false,
                }
            }
        }
        if all { Poll::Ready(()) } else { Poll::Pending }
    })
    .await;
    answers.into_iter().flatten().collect()
}

#[cfg(test)]
mod tests {
    use std::cell::{Cell, RefCell};

    use super::*;

    /// Which numbers were running at the same time, and what came of it.
    async fn check(count: usize, initial: usize, fails_from: usize, expected: &[usize], good: usize) {
        let batches = RefCell::new(Vec::new());
        let running = Cell::new(0);
        let (went_well, answer) = slow_start_batch(count, initial, |at| {
            let (batches, running) = (&batches, &running);
            async move {
                running.set(running.get() + 1);
                tokio::task::yield_now().await;
                let together = running.get();
                tokio::task::yield_now().await;
                if together > 0 {
                    batches.borrow_mut().push(together);
                }
                running.set(0);
                if at >= fails_from { Err(at) } else { Ok(()) }
            }
        })
        .await;
        assert_eq!((batches.take().as_slice(), went_well), (expected, good), "{count} {initial} {fails_from}");
        assert_eq!(answer, if fails_from < count { Err(fails_from) } else { Ok(()) });
    }

    #[tokio::test]
    async fn batches() {
        check(0, 1, 9, &[], 0).await;
        check(1, 1, 9, &[1], 1).await;
        check(5, 1, 9, &[1, 2, 2, 2, 2], 5).await;
        check(4, 4, 9, &[4, 4, 4, 4], 4).await;
        check(9, 1, 0, &[1], 0).await;
        check(9, 1, 2, &[1, 2, 2], 2).await;
        check(9, 0, 4, &[1, 2, 2, 4, 4, 4, 4], 4).await;
    }
}
