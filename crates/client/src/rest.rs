//! Requests put together piece by piece: client-go's RESTClient.

use std::time::Duration;

use bytes::Bytes;
use capstan_api::{
    GroupVersionResource,
    object::{Encoded, Object, Scope, path},
    options::ListOptions,
};
use http::{HeaderName, HeaderValue, Method, header};
use serde::Serialize;

use crate::{
    Client, Error, ListPage, Patch,
    api::{checked, named},
    beat::{Either, race},
    client::{Accept, JSON},
    error::decode,
    query,
    transport::Body,
    watch::TypedWatch,
};

/// Makes requests of any verb, on any path.
///
/// ```no_run
/// # async fn f(client: capstan_client::Client) -> Result<(), capstan_client::Error> {
/// use capstan_api::{GroupVersionResource, Unstructured};
///
/// let pods = GroupVersionResource::new("", "v1", "pods");
/// let pod: Unstructured = client.rest().get().resource(&pods).namespace("default").name("web").into().await?;
/// # Ok(())
/// # }
/// ```
#[derive(Clone, Debug)]
pub struct RESTClient {
    client: Client,
}

impl Client {
    /// Requests put together piece by piece.
    #[must_use]
    pub fn rest(&self) -> RESTClient {
        RESTClient { client: self.clone() }
    }
}

impl RESTClient {
    /// A request of any verb.
    pub fn verb(&self, method: Method) -> Request {
        Request {
            client: self.client.clone(),
            method,
            resource: None,
            namespace: String::new(),
            name: None,
            subresource: String::new(),
            path: String::new(),
            query: Vec::new(),
            headers: Vec::new(),
            body: Ok(Bytes::new()),
            timeout: None,
        }
    }

    /// Reads.
    pub fn get(&self) -> Request {
        self.verb(Method::GET)
    }

    /// Creates.
    pub fn post(&self) -> Request {
        self.verb(Method::POST)
    }

    /// Writes.
    pub fn put(&self) -> Request {
        self.verb(Method::PUT)
    }

    /// Changes.
    pub fn patch<P: Serialize>(&self, patch: &Patch<P>) -> Request {
        let (content_type, patch) = patch.parts();
        self.verb(Method::PATCH).body(patch).header(header::CONTENT_TYPE, HeaderValue::from_static(content_type))
    }

    /// Deletes.
    pub fn delete(&self) -> Request {
        self.verb(Method::DELETE)
    }
}

/// A request that is being put together.
#[derive(Debug)]
#[must_use = "a request does nothing until it is sent"]
pub struct Request {
    client: Client,
    method: Method,
    resource: Option<GroupVersionResource>,
    namespace: String,
    name: Option<String>,
    subresource: String,
    path: String,
    query: Vec<String>,
    headers: Vec<(HeaderName, HeaderValue)>,
    body: Result<Bytes, Error>,
    timeout: Option<Duration>,
}

impl Request {
    /// On this resource.
    pub fn resource(mut self, resource: &GroupVersionResource) -> Self {
        self.resource = Some(resource.clone());
        self
    }

    /// In this namespace.
    pub fn namespace(mut self, namespace: &str) -> Self {
        namespace.clone_into(&mut self.namespace);
        self
    }

    /// On the object of this name.
    pub fn name(mut self, name: &str) -> Self {
        self.name = Some(name.to_owned());
        self
    }

    /// On this subresource of it.
    pub fn subresource(mut self, subresource: &str) -> Self {
        subresource.clone_into(&mut self.subresource);
        self
    }

    /// At this path and no other.
    pub fn abs_path(mut self, path: &str) -> Self {
        path.clone_into(&mut self.path);
        self
    }

    /// With these options; those that are as by default are left out.
    pub fn options<T: Serialize>(mut self, options: &T) -> Self {
        let query = query::with_options("", options);
        self.query.extend(query.strip_prefix('?').map(str::to_owned));
        self
    }

    /// With this parameter.
    pub fn param(self, name: &str, value: &str) -> Self {
        self.options(&std::collections::BTreeMap::from([(name, value)]))
    }

    /// With this header.
    pub fn header(mut self, name: HeaderName, value: HeaderValue) -> Self {
        self.headers.push((name, value));
        self
    }

    /// With this document, as JSON.
    pub fn body<T: Serialize + ?Sized>(mut self, body: &T) -> Self {
        let text = serde_json::to_vec(body).map_err(|error| Error::Decode(error.to_string()));
        self.body = text.map(Bytes::from);
        self.header(header::CONTENT_TYPE, HeaderValue::from_static(JSON))
    }

    /// With these bytes of this type.
    pub fn raw_body(mut self, content_type: HeaderValue, body: Bytes) -> Self {
        self.body = Ok(body);
        self.header(header::CONTENT_TYPE, content_type)
    }

    /// Given up if it takes longer.
    pub fn timeout(mut self, timeout: Duration) -> Self {
        self.timeout = Some(timeout);
        self
    }

    /// The path and the query.
    #[must_use]
    pub fn url(&self) -> String {
        let mut url = match &self.resource {
            _ if !self.path.is_empty() => self.path.clone(),
            Some(resource) => {
                path(resource, Scope::Namespaced, &self.namespace, self.name.as_deref().unwrap_or_default())
            }
            None => "/".to_owned(),
        };
        if !self.subresource.is_empty() {
            url.push('/');
            url.push_str(&self.subresource);
        }
        if !self.query.is_empty() {
            url.push(if url.contains('?') { '&' } else { '?' });
            url.push_str(&self.query.join("&"));
        }
        url
    }

    fn accept(&self) -> Accept {
        self.resource.as_ref().map_or(Accept::Json, |resource| self.client.accept_of(resource))
    }

    fn http(&mut self, accept: HeaderValue) -> Result<http::Request<Bytes>, Error> {
        self.name.as_deref().map_or(Ok(()), named)?;
        checked("namespace", &self.namespace)?;
        let mut request = self.client.read_request(&self.url(), accept)?;
        request.method_mut().clone_from(&self.method);
        // What is said last counts, also against what was said before it here.
        for (name, value) in self.headers.drain(..) {
            request.headers_mut().insert(name, value);
        }
        let body = std::mem::replace(&mut self.body, Ok(Bytes::new()))?;
        Ok(request.map(|_| body))
    }

    async fn in_time<T>(&self, work: impl Future<Output = Result<T, Error>>) -> Result<T, Error> {
        let Some(timeout) = self.timeout else { return work.await };
        match race(work, self.client.clock().sleep(timeout)).await {
            Either::First(done) => done,
            Either::Second(()) => {
                Err(Error::Transport(format!("{} {}: no answer within {timeout:?}", self.method, self.url())))
            }
        }
    }

    /// Sends it and reads the answer as an object.
    ///
    /// # Errors
    /// The server refuses or cannot be reached, or the answer is not an object of the type.
    pub async fn into<K: Object>(mut self) -> Result<K, Error> {
        let request = self.http(self.accept().of_object())?;
        let bytes = self.in_time(self.client.bytes(request)).await?;
        decode(Encoded::new(&bytes), None)
    }

    /// Sends it and reads the answer as a page of a list.
    ///
    /// # Errors
    /// The server refuses or cannot be reached, or the answer is no list.
    pub async fn list(mut self) -> Result<ListPage, Error> {
        let request = self.http(self.accept().of_object())?;
        ListPage::parse(&self.in_time(self.client.bytes(request)).await?)
    }

    /// Sends it and reads the answer as it is.
    ///
    /// # Errors
    /// The server refuses or cannot be reached.
    pub async fn raw(mut self) -> Result<Bytes, Error> {
        let request = self.http(Accept::Json.of_object())?;
        self.in_time(self.client.bytes(request)).await
    }

    /// Sends it and gives the answer as it comes.
    ///
    /// # Errors
    /// The server refuses or cannot be reached.
    pub async fn stream(mut self) -> Result<Body, Error> {
        let request = self.http(Accept::Json.of_object())?;
        Ok(self.in_time(self.client.call(request)).await?.into_body())
    }

    /// Begins a watch of the resource.
    ///
    /// # Errors
    /// The server refuses or cannot be reached.
    pub async fn watch<K: Object>(self, options: &ListOptions) -> Result<TypedWatch<K>, Error> {
        let mut this = self.options(&ListOptions { watch: true, ..options.clone() });
        let request = this.http(this.accept().of_watch())?;
        Ok(TypedWatch::new(this.in_time(this.client.begin_watch(request)).await?))
    }
}
