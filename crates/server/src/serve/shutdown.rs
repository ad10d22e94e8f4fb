//! How those who serve a request learn that the server is about to end.

use std::sync::Arc;

use tokio::sync::{OwnedSemaphorePermit, watch};

/// How far the end has come.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum Phase {
    /// Not at all.
    Running,
    /// No new requests; those under way end.
    Draining,
    /// All is cut off.
    Aborted,
}

/// Tells whether the server is shutting down. It is an extension of each request that came over a socket.
///
/// Whoever serves a long-running request keeps a clone and ends the answer cleanly when [`closed`](Self::closed) is
/// ready. A clone counts as work under way: the shutdown waits for it, up to its bound.
#[derive(Clone, Debug)]
pub struct ShutdownSignal {
    phase: watch::Receiver<Phase>,
    _connection: Arc<OwnedSemaphorePermit>,
}

impl ShutdownSignal {
    pub(super) fn new(phase: watch::Receiver<Phase>, connection: OwnedSemaphorePermit) -> Self {
        ShutdownSignal { phase, _connection: Arc::new(connection) }
    }

    /// Ready once the server is shutting down.
    pub async fn closed(&self) {
        reached(self.phase.clone(), Phase::Draining).await;
    }

    /// Whether the server is shutting down.
    #[must_use]
    pub fn is_closed(&self) -> bool {
        self.phase.has_changed().is_err() || *self.phase.borrow() >= Phase::Draining
    }

    /// Ready once there is no time left to end cleanly.
    pub async fn aborted(&self) {
        reached(self.phase.clone(), Phase::Aborted).await;
    }
}

/// Ready once `phase` is reached. A server whose handle is gone is at its end.
pub(super) async fn reached(mut receiver: watch::Receiver<Phase>, phase: Phase) {
    let _ = receiver.wait_for(|&now| now >= phase).await;
}
