//! A client of one server: it sends requests, reads answers and knows what failed.

use std::{fmt, sync::Arc, time::Duration};

use bytes::Bytes;
use capstan_api::{
    GroupVersionKind, GroupVersionResource, builtin,
    object::{Scope, path},
    options::ListOptions,
    protobuf,
    value::to_value,
};
use capstan_clock::{OsIds, RealClock, SharedClock, SharedIds};
use http::{HeaderValue, Method, Request, Response, StatusCode, header};
use serde::Serialize;

use crate::{
    BoxFuture, Error, ListPage, ListerWatcher, WatchStream,
    beat::{Either, race},
    factory::ListerWatchers,
    failure::Asked,
    query,
    rate::RateLimiter,
    reflector::backoff::Backoff,
    transport::{Body, BodyError, ServiceTransport, SharedTransport, Transport},
    warning::{Warning, WarningHandler, warnings},
    watch::{EventFrames, EventLines},
};

/// How often a request is sent again when the server asks to wait.
pub const MAX_RETRIES: u32 = 10;

/// A client of one server. Clones share everything.
///
/// A request that the server turns away with 429 was not looked at, so it is sent again after the time that the server
/// names; so are reads that it turns away with a 5xx and a time. Everything else is the caller's to try again.
#[derive(Clone)]
pub struct Client {
    inner: Arc<Inner>,
}

#[derive(Clone)]
struct Inner {
    transport: SharedTransport,
    user_agent: String,
    default_namespace: String,
    clock: SharedClock,
    ids: SharedIds,
    limiter: Option<Arc<RateLimiter>>,
    timeout: Option<Duration>,
    max_retries: u32,
    protobuf: bool,
    on_warning: Option<WarningHandler>,
}

impl fmt::Debug for Client {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Client").field("user_agent", &self.inner.user_agent).finish_non_exhaustive()
    }
}

impl Client {
    /// A client over any transport.
    pub fn new(transport: impl Transport) -> Self {
        let inner = Inner {
            transport: Arc::new(transport),
            user_agent: concat!("capstan/", env!("CARGO_PKG_VERSION")).to_owned(),
            default_namespace: "default".to_owned(),
            clock: Arc::new(RealClock::new()),
            ids: Arc::new(OsIds),
            limiter: None,
            timeout: None,
            max_retries: MAX_RETRIES,
            protobuf: false,
            on_warning: None,
        };
        Client { inner: Arc::new(inner) }
    }

    /// A client of a `tower` service: a server in this process, without a port and without TLS.
    pub fn from_service<S, I, O>(service: S) -> Self
    where
        S: tower_service::Service<Request<I>, Response = Response<O>, Error: fmt::Display, Future: Send>
            + Clone
            + Send
            + Sync
            + 'static,
        I: From<Bytes> + Send + 'static,
        O: http_body::Body<Data = Bytes, Error: Into<BodyError>> + Send + 'static,
    {
        Client::new(ServiceTransport::new(service))
    }

    /// The same, under another name in the server's records.
    #[must_use]
    pub fn with_user_agent(&self, user_agent: &str) -> Self {
        self.with(|inner| user_agent.clone_into(&mut inner.user_agent))
    }

    /// The same, with another namespace for those who name none.
    #[must_use]
    pub fn with_default_namespace(&self, namespace: &str) -> Self {
        self.with(|inner| namespace.clone_into(&mut inner.default_namespace))
    }

    /// The same, on another clock: all waiting is on it.
    #[must_use]
    pub fn with_clock(&self, clock: SharedClock, ids: SharedIds) -> Self {
        self.with(|inner| (inner.clock, inner.ids) = (clock, ids))
    }

    /// The same, with at most `qps` requests a second and `burst` at once. Without this, how much is too much is the
    /// server's to say.
    #[must_use]
    pub fn with_rate_limit(&self, qps: f32, burst: u32) -> Self {
        self.with(|inner| inner.limiter = Some(Arc::new(RateLimiter::new(qps, burst))))
    }

    /// The same, with a bucket of its own if requests are limited: those of others do not keep its own waiting.
    #[must_use]
    pub fn with_own_rate_limit(&self) -> Self {
        self.with(|inner| inner.limiter = inner.limiter.as_ref().map(|limiter| Arc::new(limiter.another())))
    }

    /// The same, over what `around` makes of its road: each attempt passes there, after all waiting.
    #[must_use]
    pub fn with_transport<T: Transport>(&self, around: impl FnOnce(SharedTransport) -> T) -> Self {
        self.with(|inner| inner.transport = Arc::new(around(Arc::clone(&inner.transport))))
    }

    /// The same, giving up requests that take longer. Watches and other streams are given up only if they do not begin.
    #[must_use]
    pub fn with_timeout(&self, timeout: Duration) -> Self {
        self.with(|inner| inner.timeout = Some(timeout))
    }

    /// The same, sending a request again at most so often when the server asks to wait; else [`MAX_RETRIES`].
    #[must_use]
    pub fn with_max_retries(&self, retries: u32) -> Self {
        self.with(|inner| inner.max_retries = retries)
    }

    /// The same, asking for protobuf where objects of built-in kinds are read. Clients over the network do.
    #[must_use]
    pub fn with_protobuf(&self, protobuf: bool) -> Self {
        self.with(|inner| inner.protobuf = protobuf)
    }

    /// The same, telling what servers say besides their answers: that a version is deprecated, for instance. Without
    /// this nobody hears of that.
    #[must_use]
    pub fn with_warning_handler(&self, handler: impl Fn(&Warning) + Send + Sync + 'static) -> Self {
        self.with(|inner| inner.on_warning = Some(Arc::new(handler)))
    }

    /// Who hears what servers say besides their answers.
    #[must_use]
    pub fn warning_handler(&self) -> Option<&WarningHandler> {
        self.inner.on_warning.as_ref()
    }

    /// Whether it asks for protobuf.
    #[must_use]
    pub fn protobuf(&self) -> bool {
        self.inner.protobuf
    }

    /// The server's host and port; empty for one in this process.
    #[must_use]
    pub fn host(&self) -> &str {
        self.inner.transport.host()
    }

    fn with(&self, change: impl FnOnce(&mut Inner)) -> Self {
        let mut inner = Inner::clone(&self.inner);
        change(&mut inner);
        Client { inner: Arc::new(inner) }
    }

    /// The namespace for those who name none.
    #[must_use]
    pub fn default_namespace(&self) -> &str {
        &self.inner.default_namespace
    }

    /// The clock that all waiting is on.
    #[must_use]
    pub fn clock(&self) -> &SharedClock {
        &self.inner.clock
    }

    /// Where chance comes from.
    #[must_use]
    pub fn ids(&self) -> &SharedIds {
        &self.inner.ids
    }

    pub(crate) fn backoff(&self) -> Waits {
        Waits { client: self.clone(), backoff: Backoff::default() }
    }

    /// What to ask for when a resource is read.
    pub(crate) fn accept_of(&self, resource: &GroupVersionResource) -> Accept {
        if self.inner.protobuf && builtin::resource(resource).is_some() { Accept::Protobuf } else { Accept::Json }
    }

    /// Sends a request and gives the answer whatever its status. It is sent again when the server asks for that and it
    /// is safe.
    ///
    /// # Errors
    /// The server cannot be reached.
    pub async fn send(&self, mut request: Request<Bytes>) -> Result<Response<Body>, Error> {
        if !request.headers().contains_key(header::USER_AGENT)
            && let Ok(user_agent) = self.inner.user_agent.parse()
        {
            request.headers_mut().insert(header::USER_AGENT, user_agent);
        }
        let mut retries = 0;
        loop {
            if let Some(limiter) = &self.inner.limiter {
                limiter.wait(&*self.inner.clock).await;
            }
            let response = self.in_time(self.inner.transport.send(request.clone())).await?;
            match retry_after(request.method(), &response) {
                Some(wait) if retries < self.inner.max_retries => {
                    drop(response);
                    retries += 1;
                    self.inner.clock.sleep(wait).await;
                }
                _ => {
                    if let Some(handler) = &self.inner.on_warning {
                        warnings(response.headers()).iter().for_each(|warning| handler(warning));
                    }
                    return Ok(response);
                }
            }
        }
    }

    async fn in_time<T>(&self, work: impl Future<Output = Result<T, Error>>) -> Result<T, Error> {
        let Some(timeout) = self.inner.timeout else { return work.await };
        match race(work, self.inner.clock.sleep(timeout)).await {
            Either::First(done) => done,
            Either::Second(()) => Err(Error::Transport(format!("no answer within {timeout:?}"))),
        }
    }

    /// Sends a request; an answer that is not a success is an error.
    ///
    /// # Errors
    /// The server cannot be reached, or refuses.
    pub async fn call(&self, request: Request<Bytes>) -> Result<Response<Body>, Error> {
        let asked = Asked::of(&request);
        let response = self.send(request).await?;
        if response.status().is_success() {
            return Ok(response);
        }
        let (head, body) = response.into_parts();
        let text = self.in_time(body.bytes()).await?;
        Err(asked.failure(head.status, &head.headers, &text))
    }

    /// Sends a request and reads all of the answer, which has to be a success.
    ///
    /// # Errors
    /// The server cannot be reached, or refuses.
    pub async fn bytes(&self, request: Request<Bytes>) -> Result<Bytes, Error> {
        let response = self.call(request).await?;
        self.in_time(response.into_body().bytes()).await
    }

    /// Asks for JSON; `path` may carry a query.
    ///
    /// # Errors
    /// The server cannot be reached, or refuses.
    pub async fn get_raw(&self, path: &str) -> Result<Bytes, Error> {
        self.bytes(self.request(Method::GET, path)?).await
    }

    /// A request that takes JSON, without a body.
    pub(crate) fn request(&self, method: Method, path: &str) -> Result<Request<Bytes>, Error> {
        Request::builder()
            .method(method)
            .uri(path)
            .header(header::ACCEPT, JSON)
            .body(Bytes::new())
            .map_err(|error| Error::Transport(format!("{path}: {error}")))
    }

    /// A request with a body of JSON.
    pub(crate) fn request_with<T: Serialize + ?Sized>(
        &self,
        method: Method,
        path: &str,
        content_type: &'static str,
        body: &T,
    ) -> Result<Request<Bytes>, Error> {
        let body = serde_json::to_vec(body).map_err(|error| Error::Decode(error.to_string()))?;
        let mut request = self.request(method, path)?.map(|_| Bytes::from(body));
        request.headers_mut().insert(header::CONTENT_TYPE, HeaderValue::from_static(content_type));
        Ok(request)
    }

    /// A request with an object, in the form in which the answer is asked for.
    pub(crate) fn object_request<T: Serialize + ?Sized>(
        &self,
        method: Method,
        path: &str,
        accept: Accept,
        object: &T,
    ) -> Result<Request<Bytes>, Error> {
        let message = if accept == Accept::Protobuf { message_of(object) } else { None };
        let Some(message) = message else { return self.request_with(method, path, JSON, object) };
        let mut request = self.request(method, path)?.map(|_| Bytes::from(message));
        request.headers_mut().insert(header::CONTENT_TYPE, HeaderValue::from_static(PROTOBUF));
        Ok(request)
    }

    /// A request for something that can be read in several forms.
    pub(crate) fn read_request(&self, path: &str, accept: HeaderValue) -> Result<Request<Bytes>, Error> {
        let mut request = self.request(Method::GET, path)?;
        request.headers_mut().insert(header::ACCEPT, accept);
        Ok(request)
    }

    /// A page of a list at a path.
    pub(crate) async fn list_path(&self, path: &str, options: &ListOptions, accept: Accept) -> Result<ListPage, Error> {
        let request = self.read_request(&query::with_options(path, options), accept.of_list())?;
        ListPage::parse(&self.bytes(request).await?)
    }

    /// Begins a watch at a path.
    pub(crate) async fn watch_path(
        &self,
        path: &str,
        options: &ListOptions,
        accept: Accept,
    ) -> Result<WatchStream, Error> {
        let path = query::with_options(path, &ListOptions { watch: true, ..options.clone() });
        self.begin_watch(self.read_request(&path, accept.of_watch())?).await
    }

    /// Begins a watch by a request for one.
    pub(crate) async fn begin_watch(&self, request: Request<Bytes>) -> Result<WatchStream, Error> {
        let response = self.call(request).await?;
        let content_type = response.headers().get(header::CONTENT_TYPE).and_then(|value| value.to_str().ok());
        let frames = content_type.is_some_and(|content_type| content_type.starts_with(PROTOBUF));
        let body = response.into_body();
        Ok(if frames { WatchStream::new(EventFrames::new(body)) } else { WatchStream::new(EventLines::new(body)) })
    }
}

/// Waits that become longer, between attempts at the same thing.
pub(crate) struct Waits {
    client: Client,
    backoff: Backoff,
}

impl Waits {
    pub(crate) async fn wait(&mut self, error: Option<&Error>) {
        let inner = &self.client.inner;
        let wait = self.backoff.next(inner.clock.monotonic(), &*inner.ids);
        inner.clock.sleep(error.and_then(Error::retry_after).map_or(wait, |asked| wait.max(asked))).await;
    }
}

/// How long to wait before the same request is sent again; nothing if it must not be.
fn retry_after(method: &Method, response: &Response<Body>) -> Option<Duration> {
    let safe = match response.status() {
        StatusCode::TOO_MANY_REQUESTS => true,
        status => status.is_server_error() && method.is_safe(),
    };
    let seconds: u64 = response.headers().get(header::RETRY_AFTER)?.to_str().ok()?.parse().ok()?;
    safe.then(|| Duration::from_secs(seconds))
}

/// In which form objects are asked for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Accept {
    Json,
    Protobuf,
    /// Their metadata alone.
    Metadata,
}

impl Accept {
    pub(crate) fn of_object(self) -> HeaderValue {
        HeaderValue::from_static(match self {
            Accept::Json => JSON,
            Accept::Protobuf => "application/vnd.kubernetes.protobuf,application/json",
            Accept::Metadata => "application/json;as=PartialObjectMetadata;g=meta.k8s.io;v=v1",
        })
    }

    fn of_list(self) -> HeaderValue {
        match self {
            Accept::Metadata => {
                HeaderValue::from_static("application/json;as=PartialObjectMetadataList;g=meta.k8s.io;v=v1")
            }
            other => other.of_object(),
        }
    }

    pub(crate) fn of_watch(self) -> HeaderValue {
        match self {
            Accept::Protobuf => HeaderValue::from_static(
                "application/vnd.kubernetes.protobuf;stream=watch,application/json;stream=watch",
            ),
            other => other.of_object(),
        }
    }
}

/// An object of a built-in kind as a message in its envelope; nothing for other kinds.
fn message_of<T: Serialize + ?Sized>(object: &T) -> Option<Vec<u8>> {
    let value = to_value(object).ok()?;
    let text = |field: &str| value.as_object()?.get(field)?.as_str();
    let gvk = GroupVersionKind::from_api_version_and_kind(text("apiVersion")?, text("kind")?);
    // Schemas in definitions of kinds have fields of several types; servers read those best as they were written.
    let schema = builtin::schema(&gvk).filter(|_| gvk.group != "apiextensions.k8s.io")?;
    Some(protobuf::encode_object(&gvk, &schema, &value))
}

const PROTOBUF: &str = "application/vnd.kubernetes.protobuf";

/// The media type that both sides always speak.
pub(crate) const JSON: &str = "application/json";

/// The objects of a resource in a place, as a client reaches them.
#[derive(Clone, Debug)]
struct ResourceSource {
    client: Client,
    path: String,
    accept: Accept,
}

impl ListerWatcher for ResourceSource {
    fn list(&self, options: ListOptions) -> BoxFuture<'_, Result<ListPage, Error>> {
        Box::pin(async move { self.client.list_path(&self.path, &options, self.accept).await })
    }

    fn watch(&self, options: ListOptions) -> BoxFuture<'_, Result<WatchStream, Error>> {
        Box::pin(async move { self.client.watch_path(&self.path, &options, self.accept).await })
    }
}

impl ListerWatchers for Client {
    fn lister_watcher(&self, resource: &GroupVersionResource, namespace: &str) -> Arc<dyn ListerWatcher> {
        // Without a namespace the paths of both scopes are the same.
        let path = path(resource, Scope::Namespaced, namespace, "");
        Arc::new(ResourceSource { client: self.clone(), path, accept: self.accept_of(resource) })
    }

    fn metadata_lister_watcher(&self, resource: &GroupVersionResource, namespace: &str) -> Arc<dyn ListerWatcher> {
        let path = path(resource, Scope::Namespaced, namespace, "");
        Arc::new(ResourceSource { client: self.clone(), path, accept: Accept::Metadata })
    }
}
