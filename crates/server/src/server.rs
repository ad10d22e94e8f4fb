//! The server as a value: what all requests share, and how it comes to be.

use std::{
    collections::BTreeMap,
    convert::Infallible,
    fmt,
    net::{IpAddr, Ipv4Addr},
    pin::Pin,
    sync::{Arc, OnceLock},
    task::{Context, Poll},
};

use capstan_api::{Scope, Status, Str, builtin, mapper::DefaultRESTMapper};
use capstan_clock::{OsIds, RealClock, SharedClock, SharedIds};
use capstan_storage::{SharedStore, Ttl};
use tokio::task::JoinSet;

use crate::{
    admission::{self, ChoiceError},
    aggregation::{Aggregator, ProxyClient},
    allocation::{self, Allocator},
    audit::{self, Audit},
    authentication::{self, Authenticator, OpenIdDocuments, TokenIssuer},
    authorization::{Attributes, Authorizer, Chain, Decision, NodeAuthorizer, Rbac, RbacAuthorizer},
    bootstrap,
    cache::CacheError,
    custom,
    discovery::{self, Discovery},
    extension::Extensions,
    flowcontrol::FlowControl,
    handlers::connect::KubeletClient,
    health::{Endpoint, Health, StoreCheck},
    http::{Request, Response},
    index,
    metrics::Metrics,
    openapi::OpenApi,
    pki::Certified,
    registry::Registry,
    road,
    serve::InFlight,
    start, upkeep,
    zpages::ZPages,
};

/// The steps of a start under the names that are asked for, in upstream's order.
const START_STEPS: [&str; 29] = [
    "start-apiserver-admission-initializer",
    "generic-apiserver-start-informers",
    "priority-and-fairness-config-consumer",
    "priority-and-fairness-filter",
    "storage-object-count-tracker-hook",
    "start-apiextensions-informers",
    "start-apiextensions-controllers",
    "crd-informer-synced",
    "start-system-namespaces-controller",
    "peer-endpoint-reconciler-controller",
    "start-cluster-authentication-info-controller",
    "start-kube-apiserver-identity-lease-controller",
    "start-kube-apiserver-identity-lease-garbage-collector",
    "storage-readiness",
    "start-legacy-token-tracking-controller",
    "start-service-ip-repair-controllers",
    "rbac/bootstrap-roles",
    "scheduling/bootstrap-system-priority-classes",
    "priority-and-fairness-config-producer",
    "bootstrap-controller",
    "start-kubernetes-service-cidr-controller",
    "start-kube-aggregator-informers",
    "apiservice-status-local-available-controller",
    "apiservice-status-remote-available-controller",
    "apiservice-registration-controller",
    "apiservice-discovery-controller",
    "kube-apiserver-autoregistration",
    "apiservice-openapi-controller",
    "apiservice-openapiv3-controller",
];

/// Who decides what may be done.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum AuthorizationMode {
    /// Everybody may do everything.
    AlwaysAllow,
    /// Nobody may do anything.
    AlwaysDeny,
    /// Nodes may do what their pods need.
    Node,
    /// Roles and bindings.
    Rbac,
}

/// How a server behaves.
pub struct Config {
    /// The time.
    pub clock: SharedClock,
    /// Names and identities.
    pub ids: SharedIds,
    /// Where clients reach the server.
    pub advertise_address: IpAddr,
    /// The port on which they do.
    pub secure_port: u16,
    /// The name of the machine.
    pub hostname: String,
    /// How long Events live.
    pub event_ttl: Option<Ttl>,
    /// Where services get their addresses and ports.
    pub services: allocation::Config,
    /// How users show who they are.
    pub authentication: authentication::Config,
    /// Who signs tokens of service accounts.
    pub token_issuer: Option<TokenIssuer>,
    /// What others need to check those tokens.
    pub openid: Option<OpenIdDocuments>,
    /// Who decides what users may do, in their order.
    pub authorization: Vec<AuthorizationMode>,
    /// Admission plugins that are off by themselves and shall be on.
    pub enable_admission: Vec<String>,
    /// Admission plugins that are on by themselves and shall be off.
    pub disable_admission: Vec<String>,
    /// The certificates of client authorities as PEM, for those who extend this server.
    pub client_ca: String,
    /// Whom those are to believe who extend this server, and where they find for whom it asks.
    pub request_header: Option<bootstrap::RequestHeader>,
    /// What is shown to those who extend this server: a certificate of the front proxies' authority.
    pub proxy_client: Option<Certified>,
    /// What is recorded of requests, and where that goes.
    pub audit: Option<audit::Recording>,
    /// Who the server is to kubelets; nobody, unless it is said.
    pub kubelet_client: Option<KubeletClient>,
    /// Whether the server keeps a lease that says that it is alive. One inside of something else needs none.
    pub identity_lease: bool,
    /// How the server was started, as `/flagz` tells it.
    pub flags: BTreeMap<String, String>,
}

impl Default for Config {
    fn default() -> Self {
        Config {
            clock: Arc::new(RealClock::new()),
            ids: Arc::new(OsIds),
            advertise_address: Ipv4Addr::LOCALHOST.into(),
            secure_port: 6443,
            hostname: "localhost".to_owned(),
            event_ttl: Ttl::seconds(3600),
            services: allocation::Config {
                primary: "10.0.0.0/24".parse().expect("it is a range"),
                secondary: None,
                node_ports: 30000..=32767,
            },
            authentication: authentication::Config { anonymous: true, ..authentication::Config::default() },
            token_issuer: None,
            openid: None,
            authorization: vec![AuthorizationMode::Node, AuthorizationMode::Rbac],
            enable_admission: Vec::new(),
            disable_admission: Vec::new(),
            client_ca: String::new(),
            request_header: None,
            proxy_client: None,
            audit: None,
            kubelet_client: None,
            identity_lease: false,
            flags: BTreeMap::new(),
        }
    }
}

/// What all requests share.
pub(crate) struct Inner {
    pub(crate) registry: Arc<Registry>,
    pub(crate) in_flight: InFlight,
    pub(crate) discovery: Arc<Discovery>,
    pub(crate) openapi: Arc<OpenApi>,
    pub(crate) aggregator: Arc<Aggregator>,
    pub(crate) extensions: Extensions,
    pub(crate) authenticator: Authenticator,
    pub(crate) token_issuer: Option<TokenIssuer>,
    pub(crate) openid: Option<OpenIdDocuments>,
    pub(crate) authorizer: Arc<dyn Authorizer>,
    /// What everybody may read, whatever the authorizer says; reviews do not count it.
    pub(crate) rbac: Arc<RbacAuthorizer>,
    pub(crate) admission: admission::Chain,
    pub(crate) counts_quota: bool,
    pub(crate) allocator: Allocator,
    pub(crate) flow_control: Arc<FlowControl>,
    pub(crate) health: Health,
    pub(crate) store_check: Arc<StoreCheck>,
    pub(crate) metrics: Arc<Metrics>,
    pub(crate) audit: Option<Arc<Audit>>,
    kubelet_client: OnceLock<KubeletClient>,
    pub(crate) zpages: ZPages,
}

impl Inner {
    /// Who the server is to kubelets.
    pub(crate) fn kubelet_client(&self) -> &KubeletClient {
        let nobody = || KubeletClient::new(None, None).expect("nothing is shown that could be wrong");
        self.kubelet_client.get_or_init(nobody)
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
    /// When the store cannot be read or written, or the configuration makes no sense.
    pub async fn start(store: SharedStore, mut config: Config) -> Result<Self, StartError> {
        let (clock, ids) = (Arc::clone(&config.clock), Arc::clone(&config.ids));
        let store_check = Arc::new(StoreCheck::new(Arc::clone(&store), Arc::clone(&clock)));
        let registry = Arc::new(Registry::start(store, Arc::clone(&clock), Arc::clone(&ids), config.event_ttl));
        registry.filled().await?;
        let allocator = Allocator::new(&config.services, Arc::clone(&ids));
        start::bootstrap(&registry, &allocator, &config).await?;

        let mut tasks = JoinSet::new();
        let rbac = Arc::new(RbacAuthorizer::new(Rbac::default()));
        let node = Arc::new(NodeAuthorizer::default());
        let flow_control = Arc::new(FlowControl::default());
        start::follow_rbac(&registry, &rbac, &mut tasks).await?;
        start::follow_nodes(&registry, &node, &mut tasks).await?;
        start::follow_flow_control(&registry, &flow_control, &mut tasks).await?;
        start::follow_service_cidrs(&registry, &allocator, &mut tasks).await?;
        start::aggregate_cluster_roles(&registry, &mut tasks).await?;
        start::follow_flow_schemas(&registry, &mut tasks).await?;
        upkeep::start(&registry, &allocator, &config, &mut tasks);

        let authorizer = authorizer(&config.authorization, &rbac, &node);
        let mut plugins =
            admission::Parts { authorizer: Arc::clone(&authorizer), mapper: Arc::new(mapper()), ids: Arc::clone(&ids) }
                .plugins();
        plugins.push(Arc::new(admission::limit_ranger::LimitRanger));
        plugins.push(Arc::new(admission::pod_security::PodSecurity::default()));
        let strs = |names: &[String]| names.iter().map(|name| Str::from(name.as_str())).collect::<Vec<_>>();
        let (enable, disable) = (strs(&config.enable_admission), strs(&config.disable_admission));
        let counts_quota = !config.disable_admission.iter().any(|name| name == admission::resource_quota::NAME);
        let admission = admission::Chain::new(plugins, &enable, &disable).map_err(StartError::Admission)?;

        let start_time = crate::metrics::start_time(clock.now());
        let health = Health::new(start_time);
        health.add("loopback-serving-certificate", &[Endpoint::Healthz, Endpoint::Livez], || Ok(()));
        for (name, endpoints) in [("etcd", &Endpoint::ALL[..]), ("etcd-readiness", &[Endpoint::Readyz])] {
            let store = Arc::clone(&store_check);
            health.add(name, endpoints, move || store.last());
        }
        // Nobody is answered before all that is read has been read and all steps are done.
        health.add("informer-sync", &[Endpoint::Readyz], || Ok(()));
        for name in START_STEPS {
            health.start_step(name).finish();
            if name == "kube-apiserver-autoregistration" {
                health.add("autoregister-completion", &Endpoint::ALL, || Ok(()));
            }
        }
        let discovery = Arc::new(Discovery::new(discovery::Config {
            server_address: std::net::SocketAddr::new(config.advertise_address, config.secure_port).to_string(),
            other_paths: index::other_paths(&health),
            ..discovery::Config::default()
        }));
        custom::controller::start(&registry, &discovery, &mut tasks).await?;
        let openapi = Arc::new(OpenApi::new());
        let metrics = Arc::new(Metrics::new(start_time));
        let proxy_client = config.proxy_client.take().as_ref().map(ProxyClient::new);
        let parts = (&registry, &discovery, &openapi, &metrics);
        let aggregator = Aggregator::start(parts, proxy_client, &mut tasks).await?;
        let objects = Arc::clone(&registry) as Arc<dyn crate::objects::Objects>;
        let authentication = std::mem::take(&mut config.authentication);
        let recorder = |(policy, sink)| Arc::new(Audit::new(policy, sink, Arc::clone(&clock), &metrics));
        let audit = config.audit.take().map(recorder);
        let inner = Inner {
            authenticator: Authenticator::new(authentication, objects, clock),
            token_issuer: config.token_issuer.take(),
            openid: config.openid.take(),
            registry,
            in_flight: InFlight::default(),
            discovery,
            openapi,
            aggregator,
            extensions: Extensions::default(),
            authorizer,
            rbac,
            admission,
            counts_quota,
            allocator,
            flow_control,
            health,
            store_check,
            metrics,
            audit,
            zpages: ZPages { started: config.clock.now(), flags: std::mem::take(&mut config.flags) },
            kubelet_client: config.kubelet_client.take().map_or_else(OnceLock::new, OnceLock::from),
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

    pub(crate) fn inner(&self) -> &Inner {
        &self.inner
    }

    /// From now on `/readyz` says that no more requests should come.
    pub fn shut_down(&self) {
        self.inner.health.shut_down();
    }
}

/// The kinds that there are, for those who look for owners.
fn mapper() -> DefaultRESTMapper {
    let mut mapper = DefaultRESTMapper::new(Vec::new());
    for row in builtin::kinds() {
        let scope = if row.namespaced { Scope::Namespaced } else { Scope::Cluster };
        let singular = row.group_version.with_resource(row.singular.clone());
        mapper.add_specific(row.gvk(), row.gvr(), singular, scope);
    }
    mapper
}

/// One who always decides the same.
struct Always(bool);

impl Authorizer for Always {
    fn authorize(&self, _: &Attributes<'_>) -> Decision {
        if self.0 { Decision::Allow(String::new()) } else { Decision::NoOpinion("Everything is forbidden.".to_owned()) }
    }
}

fn authorizer(
    modes: &[AuthorizationMode],
    rbac: &Arc<RbacAuthorizer>,
    node: &Arc<NodeAuthorizer>,
) -> Arc<dyn Authorizer> {
    let mut all: Vec<Arc<dyn Authorizer>> = Vec::new();
    for mode in modes {
        all.push(match mode {
            AuthorizationMode::AlwaysAllow => Arc::new(Always(true)),
            AuthorizationMode::AlwaysDeny => Arc::new(Always(false)),
            AuthorizationMode::Node => Arc::clone(node) as Arc<dyn Authorizer>,
            AuthorizationMode::Rbac => Arc::clone(rbac) as Arc<dyn Authorizer>,
        });
    }
    Arc::new(Chain::new(all))
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
    /// The choice of admission plugins makes no sense.
    Admission(Vec<ChoiceError>),
}

impl fmt::Display for StartError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            StartError::Read(error) => write!(f, "the store cannot be read: {error}"),
            StartError::Bootstrap(status) => write!(f, "what every cluster has cannot be written: {status}"),
            StartError::Admission(errors) => {
                let errors: Vec<_> = errors.iter().map(ToString::to_string).collect();
                f.write_str(&errors.join(", "))
            }
        }
    }
}

impl std::error::Error for StartError {}

impl From<CacheError> for StartError {
    fn from(error: CacheError) -> Self {
        StartError::Read(error)
    }
}
