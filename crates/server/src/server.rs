//! The server as a value: what all requests share, and how it comes to be.

use std::{
    convert::Infallible,
    fmt,
    pin::Pin,
    sync::Arc,
    task::{Context, Poll},
};

use capstan_api::{Map, Status};
use capstan_clock::{OsIds, RealClock, SharedClock, SharedIds};
use capstan_storage::{SharedStore, Ttl};
use http::request::Parts;
use tokio::task::JoinSet;

use crate::{
    admission,
    authorization::{Attributes, Authorizer, Chain, Rbac, RbacAuthorizer, UserInfo},
    cache::CacheError,
    discovery::{self, Discovery},
    handlers::write::Effects,
    http::{Request, Response},
    openapi::OpenApi,
    registry::{Registry, Stored},
    road::{self, InProcessUser},
    serve::InFlight,
    start,
};

/// How a server behaves.
#[derive(Clone)]
pub struct Config {
    /// The time.
    pub clock: SharedClock,
    /// Names and identities.
    pub ids: SharedIds,
    /// Where clients reach the server, as discovery says it.
    pub advertise_address: String,
    /// How long Events live.
    pub event_ttl: Option<Ttl>,
}

impl Default for Config {
    fn default() -> Self {
        Config {
            clock: Arc::new(RealClock::new()),
            ids: Arc::new(OsIds),
            advertise_address: "127.0.0.1:6443".to_owned(),
            event_ttl: Ttl::seconds(3600),
        }
    }
}

/// What all requests share.
pub(crate) struct Inner {
    pub(crate) registry: Arc<Registry>,
    pub(crate) in_flight: InFlight,
    pub(crate) discovery: Discovery,
    pub(crate) openapi: OpenApi,
    pub(crate) authorizer: Arc<dyn Authorizer>,
    pub(crate) rbac: Arc<RbacAuthorizer>,
    pub(crate) admission: Admission,
}

impl Inner {
    /// Who sends this request.
    pub(crate) fn authenticate(&self, parts: &mut Parts, _warnings: &mut Vec<String>) -> Result<UserInfo, Status> {
        match parts.extensions.get::<InProcessUser>() {
            Some(InProcessUser(user)) => Ok(user.clone()),
            None => Ok(UserInfo::new("system:anonymous", ["system:unauthenticated"])),
        }
    }

    /// Answers questions about who somebody is.
    pub(crate) fn identity_review(&self, _user: &UserInfo, _review: Map) -> Result<Map, Status> {
        Err(Status::internal_error("not joined"))
    }

    /// What is given back with an object that is deleted.
    pub(crate) fn released(&self, _stored: &Stored, _old: &Map, _gone: bool) -> Effects {
        Effects::default()
    }
}

/// The plugins in their order.
#[derive(Default)]
pub(crate) struct Admission(pub(crate) Vec<Box<dyn admission::Plugin>>);

impl Admission {
    pub(crate) fn admit(&self, request: &mut admission::Request<'_>) -> Result<(), Status> {
        self.0.iter().try_for_each(|plugin| plugin.admit(request))
    }

    pub(crate) fn validate(&self, request: &mut admission::Request<'_>) -> Result<(), Status> {
        self.0.iter().try_for_each(|plugin| plugin.validate(request))
    }
}

/// A Kubernetes API server, in this process. Sockets are one way to reach it, calling it is another.
#[derive(Clone)]
pub struct Server {
    inner: Arc<Inner>,
    /// Ends with the last clone of the server.
    _tasks: Arc<JoinSet<()>>,
}

impl Server {
    /// Serves what the store has, on the runtime of the caller. When this returns, requests can be answered.
    ///
    /// # Errors
    /// When the store cannot be read or written.
    pub async fn start(store: SharedStore, config: Config) -> Result<Self, StartError> {
        let registry = Registry::start(store, Arc::clone(&config.clock), Arc::clone(&config.ids), config.event_ttl);
        let registry = Arc::new(registry);
        registry.filled().await?;
        start::bootstrap(&registry).await?;
        let rbac = Arc::new(RbacAuthorizer::new(Rbac::default()));
        let mut tasks = JoinSet::new();
        start::follow_rbac(&registry, &rbac, &mut tasks).await?;
        let discovery = Discovery::new(discovery::Config {
            server_address: config.advertise_address.clone(),
            ..discovery::Config::default()
        });
        let inner = Inner {
            registry,
            in_flight: InFlight::default(),
            discovery,
            openapi: OpenApi::new(),
            authorizer: Arc::new(Chain::new(vec![Arc::clone(&rbac) as Arc<dyn Authorizer>])),
            rbac,
            admission: Admission::default(),
        };
        Ok(Server { inner: Arc::new(inner), _tasks: Arc::new(tasks) })
    }

    /// Answers one request.
    pub async fn answer(&self, request: Request) -> Response {
        road::answer_request(&self.inner, request).await
    }

    /// Whether a user may do something.
    #[must_use]
    pub fn may(&self, attributes: &Attributes<'_>) -> bool {
        self.inner.authorizer.authorize(attributes).is_allowed()
    }
}

impl fmt::Debug for Server {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Server").finish_non_exhaustive()
    }
}

impl tower_service::Service<Request> for Server {
    type Response = Response;
    type Error = Infallible;
    type Future = Pin<Box<dyn Future<Output = Result<Response, Infallible>> + Send>>;

    fn poll_ready(&mut self, _: &mut Context<'_>) -> Poll<Result<(), Infallible>> {
        Poll::Ready(Ok(()))
    }

    fn call(&mut self, request: Request) -> Self::Future {
        let server = self.clone();
        Box::pin(async move { Ok(server.answer(request).await) })
    }
}

/// Why a server does not start.
#[derive(Debug)]
pub enum StartError {
    /// The store cannot be read.
    Read(CacheError),
    /// What a new cluster has cannot be written.
    Bootstrap(Status),
}

impl fmt::Display for StartError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            StartError::Read(error) => write!(f, "the store cannot be read: {error}"),
            StartError::Bootstrap(status) => write!(f, "what every cluster has cannot be written: {status}"),
        }
    }
}

impl std::error::Error for StartError {}

impl From<CacheError> for StartError {
    fn from(error: CacheError) -> Self {
        StartError::Read(error)
    }
}
