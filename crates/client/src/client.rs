//! A client of one server: it sends requests, reads answers and knows what failed.

use std::{fmt, sync::Arc};

use bytes::Bytes;
use capstan_api::{
    GroupVersionResource, Status, json,
    object::{Scope, path},
    options::ListOptions,
    value::from_value,
};
use http::{Method, Request, Response, header};
use serde::Serialize;

use crate::{
    BoxFuture, Error, ListPage, ListerWatcher, WatchStream,
    factory::ListerWatchers,
    query,
    transport::{Body, BodyError, ServiceTransport, SharedTransport, Transport},
    watch::EventLines,
};

/// A client of one server. Clones share everything.
#[derive(Clone)]
pub struct Client {
    inner: Arc<Inner>,
}

struct Inner {
    transport: SharedTransport,
    user_agent: String,
    default_namespace: String,
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

    fn with(&self, change: impl FnOnce(&mut Inner)) -> Self {
        let mut inner = Inner {
            transport: Arc::clone(&self.inner.transport),
            user_agent: self.inner.user_agent.clone(),
            default_namespace: self.inner.default_namespace.clone(),
        };
        change(&mut inner);
        Client { inner: Arc::new(inner) }
    }

    /// The namespace for those who name none.
    #[must_use]
    pub fn default_namespace(&self) -> &str {
        &self.inner.default_namespace
    }

    /// Sends a request as it is and gives the answer whatever its status.
    ///
    /// # Errors
    /// The server cannot be reached.
    pub async fn send(&self, mut request: Request<Bytes>) -> Result<Response<Body>, Error> {
        if !request.headers().contains_key(header::USER_AGENT)
            && let Ok(user_agent) = self.inner.user_agent.parse()
        {
            request.headers_mut().insert(header::USER_AGENT, user_agent);
        }
        self.inner.transport.send(request).await
    }

    /// Sends a request; an answer that is not a success is an error.
    ///
    /// # Errors
    /// The server cannot be reached, or refuses.
    pub async fn call(&self, request: Request<Bytes>) -> Result<Response<Body>, Error> {
        let response = self.send(request).await?;
        if response.status().is_success() {
            return Ok(response);
        }
        let code = response.status().as_u16();
        let text = response.into_body().bytes().await?;
        Err(failure(code, &text))
    }

    /// Asks for JSON; `path` may carry a query.
    ///
    /// # Errors
    /// The server cannot be reached, or refuses.
    pub async fn get_raw(&self, path: &str) -> Result<Bytes, Error> {
        self.call(self.request(Method::GET, path)?).await?.into_body().bytes().await
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
        request.headers_mut().insert(header::CONTENT_TYPE, http::HeaderValue::from_static(content_type));
        Ok(request)
    }

    /// Begins a watch at a path.
    pub(crate) async fn watch_path(&self, path: &str, options: &ListOptions) -> Result<WatchStream, Error> {
        let path = query::with_options(path, &ListOptions { watch: true, ..options.clone() });
        let response = self.call(self.request(Method::GET, &path)?).await?;
        Ok(WatchStream::new(EventLines::new(response.into_body())))
    }
}

/// The media type that both sides always speak.
pub(crate) const JSON: &str = "application/json";

/// What a failed answer says. Not all that is between a client and a server speaks in statuses.
pub(crate) fn failure(code: u16, text: &[u8]) -> Error {
    let status = json::parse(text).ok().and_then(|value| from_value::<Status>(value).ok());
    let said = status.filter(|status| status.code != 0 || status.reason.is_known());
    Error::from(said.unwrap_or_else(|| {
        let text = String::from_utf8_lossy(text).trim().to_owned();
        let message = if text.is_empty() { format!("the server answered with {code}") } else { text };
        Status { code: code.into(), ..Status::unknown(message) }
    }))
}

/// The objects of a resource in a place, as a client reaches them.
#[derive(Clone, Debug)]
struct ResourceSource {
    client: Client,
    path: String,
}

impl ListerWatcher for ResourceSource {
    fn list(&self, options: ListOptions) -> BoxFuture<'_, Result<ListPage, Error>> {
        Box::pin(async move {
            let path = query::with_options(&self.path, &options);
            ListPage::parse(&self.client.get_raw(&path).await?)
        })
    }

    fn watch(&self, options: ListOptions) -> BoxFuture<'_, Result<WatchStream, Error>> {
        Box::pin(async move { self.client.watch_path(&self.path, &options).await })
    }
}

impl ListerWatchers for Client {
    fn lister_watcher(&self, resource: &GroupVersionResource, namespace: &str) -> Arc<dyn ListerWatcher> {
        // Without a namespace the paths of both scopes are the same.
        let path = path(resource, Scope::Namespaced, namespace, "");
        Arc::new(ResourceSource { client: self.clone(), path })
    }
}
