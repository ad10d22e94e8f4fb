//! Waiting for the first of two things.

use std::{
    future::{Future, poll_fn},
    pin::pin,
    task::Poll,
};

/// Which of two came first.
pub(crate) enum Either<A, B> {
    First(A),
    Second(B),
}

impl<A, B> Either<A, B> {
    pub(crate) fn is_first(&self) -> bool {
        matches!(self, Either::First(_))
    }
}

/// Waits for the first of two; the first wins a draw. The other one is dropped.
pub(crate) async fn race<A, B>(first: impl Future<Output = A>, second: impl Future<Output = B>) -> Either<A, B> {
    let (mut first, mut second) = (pin!(first), pin!(second));
    poll_fn(|cx| {
        if let Poll::Ready(answer) = first.as_mut().poll(cx) {
            return Poll::Ready(Either::First(answer));
        }
        second.as_mut().poll(cx).map(Either::Second)
    })
    .await
}
