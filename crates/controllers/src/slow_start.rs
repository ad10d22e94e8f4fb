//! Many writes at the same time.

use capstan_client::Error;
use tokio::task::JoinSet;

/// How many writes are tried first.
const INITIAL_BATCH_SIZE: usize = 1;

/// Calls `write` with the numbers below `count`, first once, then in batches of twice the size of the one before, all
/// of a batch at the same time, until one fails: a quota that is used up costs a few requests, not all of them.
///
/// Gives how many succeeded, and the first failure.
pub(crate) async fn slow_start_batch<F: Future<Output = Result<(), Error>> + Send + 'static>(
    count: usize,
    mut write: impl FnMut(usize) -> F,
) -> (usize, Result<(), Error>) {
    let (mut done, mut size) = (0, INITIAL_BATCH_SIZE);
    while done < count {
        let batch = size.min(count - done);
        let mut running: JoinSet<_> = (done..done + batch).map(&mut write).collect();
        let (mut succeeded, mut failed) = (0, None);
        while let Some(ended) = running.join_next().await {
            match ended {
                Ok(Ok(())) => succeeded += 1,
                Ok(Err(error)) => failed = failed.or(Some(error)),
                Err(panic) => failed = failed.or(Some(Error::Transport(panic.to_string()))),
            }
        }
        done += succeeded;
        if let Some(error) = failed {
            return (done, Err(error));
        }
        size *= 2;
    }
    (done, Ok(()))
}

/// Does all writes at the same time; gives the first failure once all have ended.
pub(crate) async fn at_once<F: Future<Output = Result<(), Error>> + Send + 'static>(
    writes: impl Iterator<Item = F>,
) -> Result<(), Error> {
    let mut running: JoinSet<_> = writes.collect();
    let mut result = Ok(());
    while let Some(ended) = running.join_next().await {
        let ended = ended.unwrap_or_else(|panic| Err(Error::Transport(panic.to_string())));
        result = result.and(ended);
    }
    result
}

#[cfg(test)]
mod tests {
    use std::sync::{Arc, Mutex};

    use super::*;

    #[tokio::test]
    async fn batches_grow_until_one_fails() {
        for (count, fails_at, attempts, succeeded) in
            [(0, 9, 0, 0), (1, 9, 1, 1), (10, 99, 10, 10), (10, 0, 1, 0), (20, 5, 7, 6), (20, 7, 15, 14)]
        {
            let tried: Arc<Mutex<Vec<usize>>> = Arc::default();
            let (done, result) = slow_start_batch(count, |n| {
                tried.lock().unwrap().push(n);
                async move { if n == fails_at { Err(Error::Decode("no".to_owned())) } else { Ok(()) } }
            })
            .await;
            let tried = tried.lock().unwrap().len();
            assert_eq!((tried, done, result.is_err()), (attempts, succeeded, fails_at < count), "{count} {fails_at}");
        }
    }
}
