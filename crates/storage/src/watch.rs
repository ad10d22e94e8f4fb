//! Watches: what is asked, what comes, and the stream in between.

use std::{
    fmt,
    future::poll_fn,
    sync::Arc,
    task::{Context, Poll},
};

use crate::{Key, KeyValue, ReadError, Revision};

/// A question for the changes under a prefix.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct WatchRequest {
    /// Only changes of keys that begin with this; empty: all.
    pub prefix: Key,
    /// Only changes after this revision, which the caller has seen already (of a page, or of an earlier watch).
    pub after: Revision,
}

/// One change of one key.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Event {
    /// The key.
    pub key: Key,
    /// What is under it now; `None`: it was deleted, or its lifetime ended.
    pub current: Option<KeyValue>,
    /// What was under it before; `None`: it was created.
    pub previous: Option<KeyValue>,
}

/// All changes of one commit that the watch asked for.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Batch {
    /// The revision that the commit took.
    pub revision: Revision,
    /// The changes, in the order of the commit's operations; at least one. Shared between watchers where the engine
    /// can.
    pub events: Arc<[Event]>,
}

/// What a watch delivers.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum WatchItem {
    /// The changes of the next commit.
    Batch(Batch),
    /// Every change up to and including this revision has been delivered before.
    Progress(Revision),
}

/// The engine's side of a [`Watch`].
pub trait WatchSource: Send + 'static {
    /// The next item, or why there will be no more. Not called again after an error.
    fn poll_next(&mut self, cx: &mut Context<'_>) -> Poll<Result<WatchItem, ReadError>>;

    /// See [`Watch::request_progress`].
    fn request_progress(&mut self);
}

/// A stream of changes; see [`Store::watch`](crate::Store::watch) for what it promises. Dropping it ends the watch.
pub struct Watch {
    source: Box<dyn WatchSource>,
    ended: Option<ReadError>,
}

impl Watch {
    /// A watch that is fed by `source`.
    #[must_use]
    pub fn new(source: impl WatchSource) -> Self {
        Watch { source: Box::new(source), ended: None }
    }

    /// Waits for the next item. An error ends the watch: it is the answer from then on.
    ///
    /// May be cancelled (in a `select!`) without loss.
    ///
    /// # Errors
    /// [`ReadError::Compacted`] when this reader was so slow that what it has not seen yet is gone: read again and
    /// watch from there. [`ReadError::Fault`] when the engine cannot go on: watch again from the last revision that was
    /// seen.
    pub async fn next(&mut self) -> Result<WatchItem, ReadError> {
        poll_fn(|cx| self.poll_next(cx)).await
    }

    /// As [`next`](Watch::next), to be polled.
    pub fn poll_next(&mut self, cx: &mut Context<'_>) -> Poll<Result<WatchItem, ReadError>> {
        if let Some(error) = &self.ended {
            return Poll::Ready(Err(error.clone()));
        }
        let polled = self.source.poll_next(cx);
        if let Poll::Ready(Err(error)) = &polled {
            self.ended = Some(error.clone());
        }
        polled
    }

    /// Asks that a [`WatchItem::Progress`] follows soon, of a revision not older than the store's at this moment.
    ///
    /// This is how a reader that holds a cache learns that it has caught up. Does not wait; several requests may be
    /// answered by one item. Engines may also send progress unasked.
    pub fn request_progress(&mut self) {
        if self.ended.is_none() {
            self.source.request_progress();
        }
    }
}

impl fmt::Debug for Watch {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Watch").field("ended", &self.ended).finish_non_exhaustive()
    }
}
