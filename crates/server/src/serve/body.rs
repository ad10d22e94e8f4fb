//! Reads the body of a request, within bounds.

use std::{future::poll_fn, io, pin::Pin, time::Duration};

use bytes::{Bytes, BytesMut};
use capstan_api::{codec::MAX_BODY_BYTES, status::Status};
use capstan_clock::Clock;
use http_body::Body as _;

use crate::http::Body;

/// How much room is made in advance for a body whose length the client only claims.
const FIRST_CAPACITY: u64 = 64 * 1024;

/// Reads a whole body of at most [`MAX_BODY_BYTES`].
///
/// # Errors
/// 413 if there is more, without reading it when the client says so itself; 504 if it does not come within `timeout`;
/// 500 if it breaks off or is no HTTP.
pub async fn read_body(body: Body, clock: &dyn Clock, timeout: Duration) -> Result<Bytes, Status> {
    if let Body::Slices(mut slices) = body {
        if slices.len() == 1 && slices[0].len() <= MAX_BODY_BYTES {
            return Ok(slices.pop_front().unwrap_or_default());
        }
        return read(Body::Slices(slices)).await;
    }
    tokio::select! {
        biased;
        result = read(body) => result,
        () = clock.sleep(timeout) => {
            Err(Status::timeout("request did not complete within the allotted timeout", 0))
        }
    }
}

async fn read(mut body: Body) -> Result<Bytes, Status> {
    let too_large = || Status::request_entity_too_large(format_args!("limit is {MAX_BODY_BYTES}"));
    // What the client claims by a content length is a lower bound here.
    let claimed = body.size_hint().lower();
    if claimed > MAX_BODY_BYTES as u64 {
        return Err(too_large());
    }
    let mut whole = BytesMut::new();
    while let Some(frame) = poll_fn(|cx| Pin::new(&mut body).poll_frame(cx)).await {
        let frame = frame.map_err(|error| {
            let not_http = error.kind() == io::ErrorKind::InvalidData;
            Status::unknown(if not_http { "invalid byte in chunk length" } else { "unexpected EOF" })
        })?;
        // Trailers are of no interest.
        let Ok(data) = frame.into_data() else { continue };
        if whole.len() + data.len() > MAX_BODY_BYTES {
            return Err(too_large());
        }
        if whole.is_empty() {
            if body.is_end_stream() {
                return Ok(data);
            }
            whole.reserve(usize::try_from(claimed.min(FIRST_CAPACITY)).unwrap_or_default());
        }
        whole.extend_from_slice(&data);
    }
    Ok(whole.freeze())
}
