//! Locks, threads and the places where a thread waits: the real ones, or with the feature `shuttle` those of a
//! scheduler that tries interleavings (see `interleavings`).
//!
//! Only what can hold a thread up needs a second form. What tokio's channels do without waiting is tokio's own, and
//! works under either.

use tokio::sync::{mpsc, oneshot};

pub(crate) use form::*;

/// Whether a scheduler decides who runs: then there is no runtime, no real time, and no second thread.
pub(crate) const SCHEDULED: bool = cfg!(feature = "shuttle");

#[cfg(not(feature = "shuttle"))]
mod form {
    pub(crate) use std::{
        sync::{Condvar, Mutex, MutexGuard, atomic},
        thread,
    };

    use super::{mpsc, oneshot};

    /// Waits for the next of a queue.
    pub(crate) fn receive<T>(queue: &mut mpsc::Receiver<T>) -> Option<T> {
        queue.blocking_recv()
    }

    /// Waits until there is room in a queue.
    pub(crate) fn send<T>(queue: &mpsc::Sender<T>, item: T) -> Result<(), mpsc::error::SendError<T>> {
        queue.blocking_send(item)
    }

    /// Waits for an answer.
    pub(crate) fn answer<T>(answer: oneshot::Receiver<T>) -> Result<T, oneshot::error::RecvError> {
        answer.blocking_recv()
    }
}

#[cfg(feature = "shuttle")]
mod form {
    use shuttle::future::block_on;
    pub(crate) use shuttle::{
        sync::{Condvar, Mutex, MutexGuard, atomic},
        thread,
    };

    use super::{mpsc, oneshot};

    pub(crate) fn receive<T>(queue: &mut mpsc::Receiver<T>) -> Option<T> {
        block_on(queue.recv())
    }

    pub(crate) fn send<T>(queue: &mpsc::Sender<T>, item: T) -> Result<(), mpsc::error::SendError<T>> {
        block_on(queue.send(item))
    }

    pub(crate) fn answer<T>(answer: oneshot::Receiver<T>) -> Result<T, oneshot::error::RecvError> {
        block_on(answer)
    }
}
