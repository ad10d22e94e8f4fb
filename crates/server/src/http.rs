//! The bodies of requests and answers: shared bytes where there are some, a stream where there is no end yet.

use std::{
    collections::VecDeque,
    fmt, io,
    pin::Pin,
    task::{Context, Poll},
};

use bytes::{Buf, Bytes, BytesMut};
use http_body::{Frame, SizeHint};

/// Slices below this are joined with their neighbours: a frame and a system call for each would cost more than the
/// copy.
const SMALL_SLICE: usize = 8 * 1024;

/// How much is joined at most.
const JOINED_SLICES: usize = 64 * 1024;

/// What requests are made of.
pub type Request = http::Request<Body>;

/// What answers are made of.
pub type Response = http::Response<Body>;

/// A body that is made while it is sent.
pub type Stream = Pin<Box<dyn http_body::Body<Data = Bytes, Error = io::Error> + Send>>;

/// The body of an answer, or of a request.
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

    /// Whether there is nothing for sure.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.len() == Some(0)
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

impl fmt::Debug for Body {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Body::Slices(slices) => f.debug_tuple("Slices").field(slices).finish(),
            Body::Stream(_) => f.debug_tuple("Stream").finish(),
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
            Body::Slices(slices) => Poll::Ready(next(slices).map(|slice| Ok(Frame::data(slice)))),
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

/// The next piece to send: a large slice as it is, small ones joined.
fn next(slices: &mut VecDeque<Bytes>) -> Option<Bytes> {
    let first = slices.pop_front()?;
    let fits = |joined: usize, next: Option<&Bytes>| {
        next.is_some_and(|next| next.len() < SMALL_SLICE && joined + next.len() <= JOINED_SLICES)
    };
    if first.len() >= SMALL_SLICE || !fits(first.len(), slices.front()) {
        return Some(first);
    }
    let mut joined = BytesMut::with_capacity(JOINED_SLICES);
    joined.extend_from_slice(&first);
    while fits(joined.len(), slices.front()) {
        joined.extend_from_slice(&slices.pop_front()?);
    }
    Some(joined.freeze())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn check(lengths: &[usize], pieces: &[usize]) {
        let mut slices: VecDeque<Bytes> = lengths.iter().map(|&n| Bytes::from(vec![b'x'; n])).collect();
        let sent: Vec<usize> = std::iter::from_fn(|| next(&mut slices)).map(|piece| piece.len()).collect();
        assert_eq!(sent, pieces, "{lengths:?}");
    }

    #[test]
    fn small_slices_are_joined_and_large_ones_are_not_copied() {
        check(&[], &[]);
        check(&[5], &[5]);
        check(&[5, 6, 7], &[18]);
        check(&[5, SMALL_SLICE, 6], &[5, SMALL_SLICE, 6]);
        check(&[SMALL_SLICE, 5, 6], &[SMALL_SLICE, 11]);
        check(&[SMALL_SLICE - 1; 9], &[8 * (SMALL_SLICE - 1), SMALL_SLICE - 1]);
    }
}
