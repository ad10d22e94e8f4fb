//! Waiting for the first of two things, and for one that may panic.

use std::{
    future::{Future, poll_fn},
    panic::{AssertUnwindSafe, catch_unwind},
    pin::pin,
    task::Poll,
};

/// Which of two came first.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Either<A, B> {
    /// The first.
    First(A),
    /// The second.
    Second(B),
}

impl<A, B> Either<A, B> {
    /// Whether it was the first.
    #[must_use]
    pub fn is_first(&self) -> bool {
        matches!(self, Either::First(_))
    }
}

/// Waits for the first of two; the first wins a draw. The other one is dropped.
pub async fn race<A, B>(first: impl Future<Output = A>, second: impl Future<Output = B>) -> Either<A, B> {
    let (mut first, mut second) = (pin!(first), pin!(second));
    poll_fn(|cx| {
        if let Poll::Ready(answer) = first.as_mut().poll(cx) {
            return Poll::Ready(Either::First(answer));
        }
        second.as_mut().poll(cx).map(Either::Second)
    })
    .await
}

/// What the future says, or nothing when it panics.
pub async fn caught<F: Future>(make: impl FnOnce() -> F) -> Option<F::Output> {
    // A future that panicked is never polled again, and what it shares with others is behind locks of their own.
    let mut future = pin!(catch_unwind(AssertUnwindSafe(make)).ok()?);
    poll_fn(|cx| match catch_unwind(AssertUnwindSafe(|| future.as_mut().poll(cx))) {
        Ok(Poll::Pending) => Poll::Pending,
        Ok(Poll::Ready(answer)) => Poll::Ready(Some(answer)),
        Err(_) => Poll::Ready(None),
    })
    .await
}
