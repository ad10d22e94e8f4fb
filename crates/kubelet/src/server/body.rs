//! Bodies of answers: a text, or what comes through a channel.

use std::{
    convert::Infallible,
    pin::Pin,
    task::{Context, Poll},
};

use bytes::Bytes;
use http_body::{Frame, SizeHint};
use tokio::sync::mpsc;

/// A body.
#[derive(Debug)]
pub(super) enum Body {
    Text(Option<Bytes>),
    Chunks(mpsc::Receiver<Vec<u8>>),
}

impl Body {
    pub(super) fn text(text: String) -> Self {
        Body::Text(Some(text.into()))
    }

    pub(super) fn empty() -> Self {
        Body::Text(None)
    }
}

impl http_body::Body for Body {
    type Data = Bytes;
    type Error = Infallible;

    fn is_end_stream(&self) -> bool {
        matches!(self, Body::Text(None))
    }

    fn size_hint(&self) -> SizeHint {
        match self {
            Body::Text(text) => SizeHint::with_exact(text.as_ref().map_or(0, |text| text.len() as u64)),
            Body::Chunks(_) => SizeHint::default(),
        }
    }

    fn poll_frame(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Option<Result<Frame<Bytes>, Infallible>>> {
        match &mut *self {
            Body::Text(text) => Poll::Ready(text.take().map(|text| Ok(Frame::data(text)))),
            Body::Chunks(chunks) => chunks.poll_recv(cx).map(|chunk| Some(Ok(Frame::data(chunk?.into())))),
        }
    }
}
