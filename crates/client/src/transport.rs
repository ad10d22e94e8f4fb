//! The road to a server: whoever can answer a request, over a socket or in the same process.

use std::{
    fmt,
    future::poll_fn,
    marker::PhantomData,
    pin::Pin,
    sync::Arc,
    task::{Context, Poll, ready},
};

use bytes::{Bytes, BytesMut};
use http::{Request, Response};

use crate::{BoxFuture, Error};

/// Why a body broke off, whatever carried it.
pub type BodyError = Box<dyn std::error::Error + Send + Sync>;

/// The longest answer that is read as a whole.
pub const MAX_ANSWER: usize = 1 << 30;

/// The body of an answer, as it comes.
pub struct Body(Pin<Box<dyn http_body::Body<Data = Bytes, Error = BodyError> + Send>>);

impl Body {
    /// Any body.
    pub fn new<B>(body: B) -> Self
    where
        B: http_body::Body<Data = Bytes, Error: Into<BodyError>> + Send + 'static,
    {
        Body(Box::pin(Erased(Box::pin(body))))
    }

    /// The next bytes; none at the end.
    ///
    /// # Errors
    /// The connection broke.
    pub async fn chunk(&mut self) -> Result<Option<Bytes>, Error> {
        poll_fn(|cx| self.poll_chunk(cx)).await
    }

    /// The next bytes; none at the end.
    pub fn poll_chunk(&mut self, cx: &mut Context<'_>) -> Poll<Result<Option<Bytes>, Error>> {
        loop {
            return match ready!(self.0.as_mut().poll_frame(cx)) {
                None => Ok(None).into(),
                Some(Err(error)) => Err(Error::Transport(format!("the answer broke off: {error}"))).into(),
                Some(Ok(frame)) => match frame.into_data() {
                    Ok(data) => Ok(Some(data)).into(),
                    // Trailers say nothing to us.
                    Err(_) => continue,
                },
            };
        }
    }

    /// All of it.
    ///
    /// # Errors
    /// The connection broke, or the answer is longer than [`MAX_ANSWER`].
    pub async fn bytes(mut self) -> Result<Bytes, Error> {
        let Some(first) = self.chunk().await? else { return Ok(Bytes::new()) };
        let Some(second) = self.chunk().await? else { return Ok(first) };
        let mut all = BytesMut::from(first);
        all.extend_from_slice(&second);
        while let Some(chunk) = self.chunk().await? {
            if all.len() + chunk.len() > MAX_ANSWER {
                return Err(Error::Decode(format!("the answer is longer than {MAX_ANSWER} bytes")));
            }
            all.extend_from_slice(&chunk);
        }
        Ok(all.freeze())
    }
}

impl fmt::Debug for Body {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Body")
    }
}

/// A body whose error can be of any type.
struct Erased<B>(Pin<Box<B>>);

impl<B: http_body::Body<Data = Bytes, Error: Into<BodyError>>> http_body::Body for Erased<B> {
    type Data = Bytes;
    type Error = BodyError;

    fn poll_frame(
        self: Pin<&mut Self>,
        cx: &mut Context<'_>,
    ) -> Poll<Option<Result<http_body::Frame<Bytes>, BodyError>>> {
        self.get_mut().0.as_mut().poll_frame(cx).map(|frame| frame.map(|frame| frame.map_err(Into::into)))
    }
}

/// Takes requests to a server and brings back its answers, whatever their status.
///
/// Requests carry only a path and a query; who the server is and how to prove who asks is the transport's to know.
pub trait Transport: Send + Sync + 'static {
    /// Asks.
    fn send(&self, request: Request<Bytes>) -> BoxFuture<'static, Result<Response<Body>, Error>>;

    /// The server's host and port, for those who count by them. Empty where there is none.
    fn host(&self) -> &str {
        ""
    }
}

/// A transport that can be shared.
pub type SharedTransport = Arc<dyn Transport>;

/// A `tower` service as a transport: a server in this process, for instance.
pub(crate) struct ServiceTransport<S, I, O> {
    service: S,
    bodies: PhantomData<fn(I) -> O>,
}

impl<S, I, O> ServiceTransport<S, I, O> {
    pub(crate) fn new(service: S) -> Self {
        ServiceTransport { service, bodies: PhantomData }
    }
}

impl<S, I, O> Transport for ServiceTransport<S, I, O>
where
    S: tower_service::Service<Request<I>, Response = Response<O>, Error: fmt::Display, Future: Send>
        + Clone
        + Send
        + Sync
        + 'static,
    I: From<Bytes> + Send + 'static,
    O: http_body::Body<Data = Bytes, Error: Into<BodyError>> + Send + 'static,
{
    fn send(&self, request: Request<Bytes>) -> BoxFuture<'static, Result<Response<Body>, Error>> {
        let mut service = self.service.clone();
        Box::pin(async move {
            let failed = |error: S::Error| Error::Transport(error.to_string());
            poll_fn(|cx| service.poll_ready(cx)).await.map_err(failed)?;
            let response = service.call(request.map(I::from)).await.map_err(failed)?;
            Ok(response.map(Body::new))
        })
    }
}
