//! The bounded wait for a revision.

use std::{
    future::{Future, poll_fn},
    pin::pin,
    sync::Arc,
    task::Poll,
    time::Duration,
};

use capstan_clock::SharedClock;
use tokio::sync::watch;

use crate::{Options, ReadError, Revision};

/// Where a store stands, as far as reads may see: engines inside this process tell it, reads wait on it.
#[derive(Debug)]
pub(crate) struct Freshness {
    reached: watch::Sender<Revision>,
    clock: SharedClock,
    wait: Duration,
}

impl Freshness {
    pub(crate) fn new(revision: Revision, options: &Options) -> Self {
        let wait = options.freshness_wait;
        Freshness { reached: watch::Sender::new(revision), clock: Arc::clone(&options.clock), wait }
    }

    /// Tells that reads now see `revision`.
    pub(crate) fn reached(&self, revision: Revision) {
        self.reached.send_if_modified(|reached| {
            let newer = revision > *reached;
            *reached = revision.max(*reached);
            newer
        });
    }

    /// Ready once reads see `revision`, or too new when that takes too long.
    pub(crate) async fn wait_for(&self, revision: Revision) -> Result<(), ReadError> {
        let mut reached = self.reached.subscribe();
        if *reached.borrow() >= revision {
            return Ok(());
        }
        let mut arrival = pin!(reached.wait_for(|reached| *reached >= revision));
        let mut patience = self.clock.sleep(self.wait);
        let arrived = poll_fn(|cx| {
            if arrival.as_mut().poll(cx).is_ready() {
                return Poll::Ready(true);
            }
            patience.as_mut().poll(cx).map(|()| false)
        });
        if arrived.await {
            return Ok(());
        }
        Err(ReadError::TooNew { asked: revision, current: *self.reached.borrow() })
    }
}
