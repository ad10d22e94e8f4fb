//! The body of an answer: shared bytes where there are some, a stream where there is no end yet.

use std::{
    collections::VecDeque,
    io,
    pin::Pin,
    task::{Context, Poll},
};

use bytes::{Buf, Bytes};
use http_body::{Frame, SizeHint};

/// What answers are made of.
pub type Response = http::Response<Body>;

/// A body that is made while it is sent.
pub type Stream = Pin<Box<dyn http_body::Body<Data = Bytes, Error = io::Error> + Send>>;

/// The body of an answer.
pub enum Body {
    /// All of it is there, in slices that are shared with the cache.
    Slices(VecDeque<Bytes>),
    /// It is made while it is sent.
    Stream(Stream),
}

impl Body {
    /// Nothing.
    #[must_use]
    pub const fn empty() -> Self {
        Body::Slices(VecDeque::new())
    }

    /// A stream.
    pub fn stream(stream: impl http_body::Body<Data = Bytes, Error = io::Error> + Send + 'static) -> Self {
        Body::Stream(Box::pin(stream))
    }

    /// How many bytes there are, if that is known.
    #[must_use]
    pub fn len(&self) -> Option<usize> {
        match self {
            Body::Slices(slices) => Some(slices.iter().map(Buf::remaining).sum()),
            Body::Stream(_) => None,
        }
    }
}

impl Default for Body {
    fn default() -> Self {
        Body::empty()
    }
}

impl From<Bytes> for Body {
    fn from(bytes: Bytes) -> Self {
        Body::Slices(VecDeque::from([bytes]))
    }
}

impl From<Vec<u8>> for Body {
    fn from(bytes: Vec<u8>) -> Self {
        Bytes::from(bytes).into()
    }
}

impl From<String> for Body {
    fn from(text: String) -> Self {
        Bytes::from(text).into()
    }
}

impl From<&'static str> for Body {
    fn from(text: &'static str) -> Self {
        Bytes::from_static(text.as_bytes()).into()
    }
}

impl http_body::Body for Body {
    type Data = Bytes;
    type Error = io::Error;

    fn poll_frame(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Option<io::Result<Frame<Bytes>>>> {
        match self.get_mut() {
            Body::Slices(slices) => Poll::Ready(slices.pop_front().map(|slice| Ok(Frame::data(slice)))),
            Body::Stream(stream) => stream.as_mut().poll_frame(cx),
        }
    }

    fn is_end_stream(&self) -> bool {
        match self {
            Body::Slices(slices) => slices.is_empty(),
            Body::Stream(stream) => stream.is_end_stream(),
        }
    }

    fn size_hint(&self) -> SizeHint {
        match self {
            Body::Slices(slices) => SizeHint::with_exact(slices.iter().map(|slice| slice.len() as u64).sum()),
            Body::Stream(stream) => stream.size_hint(),
        }
    }
}
