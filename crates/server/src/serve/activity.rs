//! What a connection is doing, and by when it has to do something else.

use std::{
    error::Error as _,
    io::ErrorKind,
    pin::Pin,
    sync::{Arc, Mutex, MutexGuard, PoisonError},
    task::{Context, Poll, ready},
};

use bytes::Bytes;
use capstan_clock::{Moment, SharedClock};
use http_body::{Body as _, Frame, SizeHint};

use super::Limits;
use crate::http::Body;

/// What a connection is doing: shared by its socket, its requests and the task that looks at the deadline.
#[derive(Debug)]
pub(super) struct Activity {
    clock: SharedClock,
    limits: Limits,
    state: Mutex<State>,
}

#[derive(Debug)]
struct State {
    /// How many requests are under way, up to the last byte of the answer.
    requests: usize,
    /// By when the next request has to be there, while none is under way.
    deadline: Moment,
    /// Whether bytes of the next request have come.
    head: bool,
    /// HTTP/2 clients send frames that begin no request, so bytes say nothing about heads.
    http2: bool,
    /// Whether the client still sends a body that nobody will read.
    unread: bool,
}

impl Activity {
    pub(super) fn new(clock: SharedClock, limits: Limits, http2: bool) -> Arc<Self> {
        let deadline = clock.monotonic().plus(limits.header_timeout);
        let state = State { requests: 0, deadline, head: false, http2, unread: false };
        Arc::new(Activity { clock, limits, state: Mutex::new(state) })
    }

    /// By when the next request has to be there. None while one is under way.
    pub(super) fn deadline(&self) -> Option<Moment> {
        let state = self.lock();
        (state.requests == 0).then_some(state.deadline)
    }

    pub(super) fn idle_timeout(&self) -> std::time::Duration {
        self.limits.idle_timeout
    }

    pub(super) fn is_http2(&self) -> bool {
        self.lock().http2
    }

    /// Whether the client may still be sending what nobody will read.
    pub(super) fn has_unread(&self) -> bool {
        let state = self.lock();
        (state.unread || (state.head && state.requests == 0)) && !state.http2
    }

    /// Bytes came in.
    pub(super) fn received(&self) {
        let mut state = self.lock();
        if state.requests == 0 && !state.head && !state.http2 {
            state.head = true;
            state.deadline = state.deadline.min(self.clock.monotonic().plus(self.limits.header_timeout));
        }
    }

    /// A request begins.
    pub(super) fn begin(self: &Arc<Self>, http2: bool) -> Busy {
        let mut state = self.lock();
        state.requests += 1;
        state.http2 |= http2;
        // Over HTTP/1 the next request begins only where the body of the last one has ended.
        state.unread = false;
        Busy(self.clone())
    }

    fn lock(&self) -> MutexGuard<'_, State> {
        // Nothing panics while it holds the lock, so a poisoned one is still whole.
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// A request is under way until this is dropped.
#[derive(Debug)]
pub(super) struct Busy(Arc<Activity>);

impl Drop for Busy {
    fn drop(&mut self) {
        let mut state = self.0.lock();
        state.requests -= 1;
        state.head = false;
        state.deadline = self.0.clock.monotonic().plus(self.0.limits.idle_timeout);
    }
}

/// The body of a request, which notes when it was not read to its end.
pub(super) struct Upload {
    body: hyper::body::Incoming,
    activity: Arc<Activity>,
    ended: bool,
}

impl Upload {
    pub(super) fn wrap(body: hyper::body::Incoming, activity: &Arc<Activity>) -> Body {
        if body.is_end_stream() {
            return Body::empty();
        }
        Body::stream(Upload { body, activity: activity.clone(), ended: false })
    }
}

impl http_body::Body for Upload {
    type Data = Bytes;
    type Error = std::io::Error;

    fn poll_frame(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Option<std::io::Result<Frame<Bytes>>>> {
        let this = self.get_mut();
        let frame = ready!(Pin::new(&mut this.body).poll_frame(cx));
        this.ended = frame.is_none() || this.body.is_end_stream();
        Poll::Ready(frame.map(|frame| frame.map_err(|error| broken(&error))))
    }

    fn is_end_stream(&self) -> bool {
        self.body.is_end_stream()
    }

    fn size_hint(&self) -> SizeHint {
        self.body.size_hint()
    }
}

/// Why a body cannot be read, as far as it matters: [`InvalidData`](ErrorKind::InvalidData) if it is not HTTP.
fn broken(error: &hyper::Error) -> std::io::Error {
    let source = error.source().and_then(|source| source.downcast_ref::<std::io::Error>());
    match source.map(std::io::Error::kind) {
        Some(ErrorKind::InvalidInput | ErrorKind::InvalidData) => ErrorKind::InvalidData.into(),
        _ => ErrorKind::UnexpectedEof.into(),
    }
}

impl Drop for Upload {
    fn drop(&mut self) {
        if !self.ended {
            self.activity.lock().unread = true;
        }
    }
}

/// The body of an answer, which keeps its request under way until all is sent.
pub(super) struct Download {
    pub(super) body: Body,
    pub(super) _busy: Busy,
}

impl http_body::Body for Download {
    type Data = Bytes;
    type Error = std::io::Error;

    fn poll_frame(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Option<std::io::Result<Frame<Bytes>>>> {
        Pin::new(&mut self.get_mut().body).poll_frame(cx)
    }

    fn is_end_stream(&self) -> bool {
        self.body.is_end_stream()
    }

    fn size_hint(&self) -> SizeHint {
        self.body.size_hint()
    }
}
