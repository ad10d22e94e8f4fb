//! What keeps one request from harming the others: panics caught, time and number bounded.

use std::{
    future::{Future, poll_fn},
    panic::{AssertUnwindSafe, catch_unwind},
    pin::pin,
    sync::Arc,
    task::Poll,
    time::Duration,
};

use capstan_clock::Clock;
use http::{HeaderValue, StatusCode, header};
use tokio::sync::{OwnedSemaphorePermit, Semaphore};

use super::limits::{READS_IN_FLIGHT, WRITES_IN_FLIGHT};
use crate::{
    http::{Body, Response},
    request::RequestInfo,
};

/// What a request that took too long is answered, byte for byte: upstream writes this one status without its kind.
const TIMED_OUT: &str = concat!(
    r#"{"metadata":{},"status":"Failure","message":"Timeout: request did not complete within the allotted timeout","#,
    r#""reason":"Timeout","details":{},"code":504}"#,
    "\n"
);

/// An answer in plain text, as Go's `http.Error` writes it.
pub fn plain_text(status: StatusCode, text: impl Into<String>) -> Response {
    let mut text = text.into();
    text.push('\n');
    let mut response = Response::new(Body::from(text));
    *response.status_mut() = status;
    let headers = response.headers_mut();
    headers.insert(header::CONTENT_TYPE, HeaderValue::from_static("text/plain; charset=utf-8"));
    headers.insert(header::X_CONTENT_TYPE_OPTIONS, HeaderValue::from_static("nosniff"));
    response
}

/// Answers 500 when `future` panics, and drops what it was doing.
pub async fn catch_panic(future: impl Future<Output = Response>) -> Response {
    caught(future).await.unwrap_or_else(|_| panicked())
}

/// What is answered when something panicked.
pub(crate) fn panicked() -> Response {
    let text = "This request caused apiserver to panic. Look in the logs for details.";
    plain_text(StatusCode::INTERNAL_SERVER_ERROR, text)
}

/// The answer of `future`, or with what words it panicked.
pub(crate) async fn caught(future: impl Future<Output = Response>) -> Result<Response, String> {
    let mut future = pin!(future);
    // After a panic the future is not polled again, so nobody sees what the panic left half done in it.
    let answer = poll_fn(|cx| match catch_unwind(AssertUnwindSafe(|| future.as_mut().poll(cx))) {
        Ok(poll) => poll.map(Ok),
        Err(panic) => Poll::Ready(Err(panic)),
    });
    answer.await.map_err(|panic| {
        let words = panic.downcast_ref::<String>().map(String::as_str);
        let words = words.or_else(|| panic.downcast_ref::<&str>().copied()).unwrap_or_default().to_owned();
        // What was thrown may itself panic when it is dropped; better to leak it than to die of it.
        std::mem::forget(panic);
        words
    })
}

/// Answers 504 when `future` takes longer than `timeout`, and drops it. Long-running requests do without.
pub async fn with_timeout(clock: &dyn Clock, timeout: Duration, future: impl Future<Output = Response>) -> Response {
    tokio::select! {
        biased;
        response = future => response,
        () = clock.sleep(timeout) => {
            let mut response = Response::new(Body::from(TIMED_OUT));
            *response.status_mut() = StatusCode::GATEWAY_TIMEOUT;
            // Upstream sets no type, and Go's guess is not JSON.
            let text = HeaderValue::from_static("text/plain; charset=utf-8");
            response.headers_mut().insert(header::CONTENT_TYPE, text);
            response
        }
    }
}

/// What a request weighs.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Load {
    /// It reads, and is done soon.
    ReadOnly,
    /// It writes, and is done soon.
    Mutating,
    /// It takes as long as it takes: no timeout, no limit of how many.
    LongRunning,
}

impl Load {
    /// What a request weighs.
    #[must_use]
    pub fn of(info: &RequestInfo) -> Self {
        let subresources = ["attach", "exec", "proxy", "log", "portforward"];
        let long_running = matches!(&*info.verb, "watch" | "proxy")
            || (info.is_resource_request && subresources.contains(&&*info.subresource))
            || (!info.is_resource_request && info.path.starts_with("/debug/pprof/"));
        match &*info.verb {
            _ if long_running => Load::LongRunning,
            "get" | "list" | "watch" => Load::ReadOnly,
            _ => Load::Mutating,
        }
    }
}

/// How many requests are under way.
#[derive(Clone, Debug)]
pub struct InFlight {
    reads: Arc<Semaphore>,
    writes: Arc<Semaphore>,
}

/// A request is under way until this is dropped.
#[derive(Debug)]
pub struct InFlightPermit(#[expect(dead_code, reason = "held, not read")] Option<OwnedSemaphorePermit>);

impl Default for InFlight {
    fn default() -> Self {
        InFlight::new(READS_IN_FLIGHT, WRITES_IN_FLIGHT)
    }
}

impl InFlight {
    /// At most so many reads and writes at once.
    #[must_use]
    pub fn new(reads: usize, writes: usize) -> Self {
        InFlight { reads: Arc::new(Semaphore::new(reads)), writes: Arc::new(Semaphore::new(writes)) }
    }

    /// Lets a request in. One that is `exempt` (of `system:masters`) always gets in.
    ///
    /// # Errors
    /// There are too many: the answer to give, 429.
    #[expect(clippy::result_large_err, reason = "the error is the answer, and is sent at once")]
    pub fn enter(&self, load: Load, exempt: bool) -> Result<InFlightPermit, Response> {
        let semaphore = match load {
            Load::LongRunning => return Ok(InFlightPermit(None)),
            Load::ReadOnly => &self.reads,
            Load::Mutating => &self.writes,
        };
        match semaphore.clone().try_acquire_owned() {
            Ok(permit) => Ok(InFlightPermit(Some(permit))),
            Err(_) if exempt => Ok(InFlightPermit(None)),
            Err(_) => {
                let text = "Too many requests, please try again later.";
                let mut response = plain_text(StatusCode::TOO_MANY_REQUESTS, text);
                response.headers_mut().insert(header::RETRY_AFTER, HeaderValue::from_static("1"));
                Err(response)
            }
        }
    }
}
