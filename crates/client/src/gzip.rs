//! Answers that come compressed. Servers do that to long ones, if they may; never to watches.

use std::{
    io::Write as _,
    pin::Pin,
    task::{Context, Poll, ready},
};

use bytes::Bytes;
use flate2::write::GzDecoder;
use http::{Response, header};
use http_body::Frame;

use crate::transport::{Body, BodyError};

/// The answer as it was before it was compressed.
pub(crate) fn inflated(response: Response<Body>) -> Response<Body> {
    if response.headers().get(header::CONTENT_ENCODING).is_none_or(|encoding| encoding != "gzip") {
        return response;
    }
    let (mut parts, body) = response.into_parts();
    parts.headers.remove(header::CONTENT_ENCODING);
    parts.headers.remove(header::CONTENT_LENGTH);
    Response::from_parts(parts, Body::new(Inflated { body, decoder: GzDecoder::new(Vec::new()), ended: false }))
}

struct Inflated {
    body: Body,
    decoder: GzDecoder<Vec<u8>>,
    ended: bool,
}

impl http_body::Body for Inflated {
    type Data = Bytes;
    type Error = BodyError;

    fn poll_frame(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Option<Result<Frame<Bytes>, BodyError>>> {
        while !self.ended {
            match ready!(self.body.poll_chunk(cx)) {
                Err(error) => return Poll::Ready(Some(Err(error.into()))),
                Ok(Some(chunk)) => self.decoder.write_all(&chunk)?,
                Ok(None) => {
                    self.ended = true;
                    self.decoder.try_finish()?;
                }
            }
            let plain = std::mem::take(self.decoder.get_mut());
            if !plain.is_empty() {
                return Poll::Ready(Some(Ok(Frame::data(plain.into()))));
            }
        }
        Poll::Ready(None)
    }
}

#[cfg(test)]
mod tests {
    use flate2::{Compression, write::GzEncoder};
    use http_body_util::StreamBody;

    use super::*;

    async fn read(compressed: &[u8]) -> Result<Vec<u8>, String> {
        // In small pieces, as a network may bring it.
        let pieces: Vec<_> =
            compressed.chunks(7).map(|piece| Ok::<_, BodyError>(Frame::data(piece.to_vec().into()))).collect();
        let body = Body::new(StreamBody::new(futures_util::stream::iter(pieces)));
        let response = Response::builder().header(header::CONTENT_ENCODING, "gzip").body(body).unwrap();
        let response = inflated(response);
        assert!(!response.headers().contains_key(header::CONTENT_ENCODING));
        response.into_body().bytes().await.map(Vec::from).map_err(|error| error.to_string())
    }

    #[tokio::test]
    async fn what_was_compressed_comes_out_again() {
        let text = "all of it ".repeat(1000);
        let mut encoder = GzEncoder::new(Vec::new(), Compression::fast());
        encoder.write_all(text.as_bytes()).unwrap();
        let compressed = encoder.finish().unwrap();
        assert_eq!(read(&compressed).await.unwrap(), text.as_bytes());
        assert!(read(&compressed[..compressed.len() - 5]).await.is_err(), "cut off");
        assert!(read(b"not compressed at all").await.unwrap_err().contains("the answer broke off"), "not gzip");
    }
}
