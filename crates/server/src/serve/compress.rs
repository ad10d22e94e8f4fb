//! Compresses large answers while they are sent.

use std::{
    io::{self, Write},
    pin::Pin,
    task::{Context, Poll, ready},
};

use bytes::{Buf, Bytes};
use flate2::{Compression, write::GzEncoder};
use http::{HeaderMap, HeaderValue, header};
use http_body::{Body as _, Frame};

use super::limits::GZIP_THRESHOLD;
use crate::http::{Body, Response};

/// The level: the least work, as upstream found that more is not worth it.
const LEVEL: u32 = 1;

/// How many bytes are compressed in one go, so that other tasks get their turn.
const CHUNK: usize = 256 * 1024;

/// How many compressed bytes are collected before they are sent.
const FRAME: usize = 16 * 1024;

/// Compresses an answer if `request_headers` say that the client wants that and it is larger than [`GZIP_THRESHOLD`].
///
/// An answer whose length is not known is a watch and stays as it is, or its events would be held back.
#[must_use]
pub fn gzip(request_headers: &HeaderMap, mut response: Response) -> Response {
    let large = response.body().size_hint().exact().is_some_and(|length| length > GZIP_THRESHOLD);
    if !large || !accepts_gzip(request_headers) || response.headers().contains_key(header::CONTENT_ENCODING) {
        return response;
    }
    let headers = response.headers_mut();
    headers.remove(header::CONTENT_LENGTH);
    headers.insert(header::CONTENT_ENCODING, HeaderValue::from_static("gzip"));
    headers.append(header::VARY, HeaderValue::from_static("Accept-Encoding"));
    response.map(|body| {
        let encoder = Some(GzEncoder::new(Vec::with_capacity(FRAME), Compression::new(LEVEL)));
        Body::stream(Gzip { body, input: Bytes::new(), encoder })
    })
}

/// Whether the client wants gzip. As upstream, this knows no weights: `gzip;q=1` is another word.
fn accepts_gzip(headers: &HeaderMap) -> bool {
    let accepted = headers.get(header::ACCEPT_ENCODING).map(HeaderValue::as_bytes).unwrap_or_default();
    accepted.split(|&byte| byte == b',').any(|token| token.trim_ascii() == b"gzip")
}

/// A body that is compressed while it is sent.
struct Gzip {
    body: Body,
    /// What has been taken from the body and is not compressed yet.
    input: Bytes,
    /// None when all has been sent.
    encoder: Option<GzEncoder<Vec<u8>>>,
}

impl http_body::Body for Gzip {
    type Data = Bytes;
    type Error = io::Error;

    fn poll_frame(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Option<io::Result<Frame<Bytes>>>> {
        let this = self.get_mut();
        let Some(encoder) = &mut this.encoder else { return Poll::Ready(None) };
        let mut budget = CHUNK;
        while encoder.get_ref().len() < FRAME {
            if this.input.has_remaining() {
                if budget == 0 {
                    cx.waker().wake_by_ref();
                    return Poll::Pending;
                }
                let chunk = this.input.split_to(this.input.len().min(budget));
                budget -= chunk.len();
                encoder.write_all(&chunk)?;
                continue;
            }
            match ready!(Pin::new(&mut this.body).poll_frame(cx)) {
                // A body that is compressed has no trailers.
                Some(frame) => this.input = frame?.into_data().unwrap_or_default(),
                None => {
                    let last = this.encoder.take().map(GzEncoder::finish).transpose()?;
                    return Poll::Ready(last.map(|last| Ok(Frame::data(last.into()))));
                }
            }
        }
        let full = std::mem::replace(encoder.get_mut(), Vec::with_capacity(FRAME));
        Poll::Ready(Some(Ok(Frame::data(full.into()))))
    }

    fn is_end_stream(&self) -> bool {
        self.encoder.is_none()
    }
}
