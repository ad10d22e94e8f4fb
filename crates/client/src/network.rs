//! Servers over the network: TLS and credentials from kube's config, connections of our own.
//!
//! kube-client speaks HTTP/1 alone, a connection for each watch. Here requests share connections by HTTP/2 where the
//! server offers it; requests that turn into something else (exec, port-forward) take HTTP/1, which can.

use std::{
    net::IpAddr,
    path::Path,
    pin::Pin,
    sync::{
        Arc, Mutex, PoisonError,
        atomic::{AtomicUsize, Ordering},
    },
    task::{Context, Poll},
    time::Duration,
};

use bytes::Bytes;
use http::{HeaderValue, Request, Response, StatusCode, Uri, header};
use hyper::{
    body::Incoming,
    rt::{Read, Write},
};
use hyper_rustls::{FixedServerNameResolver, HttpsConnectorBuilder};
use hyper_timeout::TimeoutConnector;
use hyper_util::{
    client::legacy::{
        self,
        connect::{Connection, HttpConnector, proxy},
    },
    rt::{TokioExecutor, TokioTimer},
};
use kube_client::client::{Body as KubeBody, ConfigExt as _};
use rustls::pki_types::ServerName;
use tower::{Layer, Service, ServiceExt as _, util::BoxCloneSyncService};

use crate::{
    BoxFuture, Client, Error,
    config::{Config, ConfigError, chain},
    gzip,
    rotated::{CaFile, Stamp, TokenFile, stamp},
    transport::{Body, BodyError, Transport},
};

/// How many requests and watches share a connection. Servers allow more, and answer late those that are too many.
pub const MAX_STREAMS: usize = 100;

/// How many connections there are at most; what is more than they take shares the one that has least to do.
pub const MAX_CONNECTIONS: usize = 32;

/// A connection on which nothing comes is asked after this time whether it is still there.
const KEEP_ALIVE: Duration = Duration::from_secs(30);

/// A connection that does not answer that within this time is given up.
const KEEP_ALIVE_TIMEOUT: Duration = Duration::from_secs(15);

/// How often one that does not answer is asked, where it is the kernel that asks.
const KEEP_ALIVE_PROBES: u32 = 3;

/// How much of an answer may be on its way, per request and per connection.
const WINDOW: u32 = 4 << 20;

type Road = BoxCloneSyncService<Request<KubeBody>, Response<Incoming>, BodyError>;

/// Makes roads to a server: one that may share connections, or one whose connections may be upgraded.
type MakeRoad = Box<dyn Fn(Protocol) -> Road + Send + Sync>;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Protocol {
    Any,
    Http1,
}

/// A server over the network.
struct Network {
    roads: Arc<Roads>,
    place: String,
    host: String,
    /// Whether long answers are to come compressed.
    compression: bool,
    token: Option<TokenFile>,
}

/// The roads to a server. They are made anew when what proves who asks is another: when the files of the client's
/// certificate change, and when the server does not believe what a plugin told. What is on its way stays there.
struct Roads {
    config: Config,
    made: Mutex<Made>,
    /// Only one asks a plugin again.
    renewing: tokio::sync::Mutex<()>,
}

struct Made {
    make: MakeRoad,
    upgrades: Road,
    lanes: Vec<Lane>,
    /// The files of the client's certificate as they were before they were read.
    stamps: Vec<Option<Stamp>>,
}

#[derive(Clone)]
struct Lane {
    road: Road,
    busy: Arc<AtomicUsize>,
}

impl Made {
    fn of(config: &Config) -> Result<Self, ConfigError> {
        let stamps = stamps(config);
        let make = road_maker(config)?;
        let upgrades = make(Protocol::Http1);
        Ok(Made { make, upgrades, lanes: Vec::new(), stamps })
    }

    /// The road for a request: the first that is not full, a new one, or the least busy.
    fn lane(&mut self) -> Lane {
        let busy = |lane: &&Lane| lane.busy.load(Ordering::Relaxed);
        let lane = match self.lanes.iter().find(|lane| busy(lane) < MAX_STREAMS) {
            Some(lane) => lane.clone(),
            None if self.lanes.len() < MAX_CONNECTIONS => {
                self.lanes.push(Lane { road: (self.make)(Protocol::Any), busy: Arc::default() });
                self.lanes[self.lanes.len() - 1].clone()
            }
            None => self.lanes.iter().min_by_key(busy).expect("there are some").clone(),
        };
        lane.busy.fetch_add(1, Ordering::Relaxed);
        lane
    }
}

fn stamps(config: &Config) -> Vec<Option<Stamp>> {
    let user = &config.kube.auth_info;
    let files = [&user.client_certificate, &user.client_key].into_iter().flatten();
    files.map(|path| stamp(Path::new(path)).ok()).collect()
}

impl Roads {
    fn new(config: Config) -> Result<Self, ConfigError> {
        let made = Mutex::new(Made::of(&config)?);
        Ok(Roads { config, made, renewing: tokio::sync::Mutex::default() })
    }

    fn with<R>(&self, look: impl FnOnce(&mut Made) -> R) -> R {
        let mut made = self.made.lock().unwrap_or_else(PoisonError::into_inner);
        // While only one of the files is new, what they said last counts.
        if made.stamps != stamps(&self.config)
            && let Ok(new) = Made::of(&self.config)
        {
            *made = new;
        }
        look(&mut made)
    }

    /// Asks the plugin again, if there is one. What it says counts for requests that come later.
    async fn refused(self: Arc<Self>) {
        if self.config.kube.auth_info.exec.is_none() {
            return;
        }
        let Ok(_renewing) = self.renewing.try_lock() else { return };
        let this = Arc::clone(&self);
        // It fails only with the runtime; a plugin that fails changes nothing.
        let _ = tokio::task::spawn_blocking(move || {
            if let Ok(new) = Made::of(&this.config) {
                *this.made.lock().unwrap_or_else(PoisonError::into_inner) = new;
            }
        })
        .await;
    }
}

impl Client {
    /// A client of the server that the user's surroundings name: the files of `KUBECONFIG`, else `~/.kube/config`,
    /// else the cluster that this runs in.
    ///
    /// # Errors
    /// There is nothing of that, or it does not make sense, or credentials fail.
    pub async fn from_default_config() -> Result<Self, ConfigError> {
        Client::from_config(&Config::from_default().await?)
    }

    /// A client of the server of a kubeconfig, and of a context of it if not of the one that is current.
    ///
    /// # Errors
    /// The file cannot be read, or what it says does not make sense, or credentials fail.
    pub async fn from_kubeconfig(path: impl AsRef<Path>, context: Option<&str>) -> Result<Self, ConfigError> {
        Client::from_config(&Config::from_kubeconfig(path, context).await?)
    }

    /// A client of the server of a config. Plugins that tell credentials run now, again when a token of theirs expires,
    /// and whenever the server no longer believes what they told: the request that shows it fails, and the next ones
    /// have the new credentials. Files with certificates and tokens are read again when they change.
    ///
    /// # Errors
    /// Credentials fail.
    pub fn from_config(config: &Config) -> Result<Self, ConfigError> {
        let client = Client::new(Network::new(config)?).with_protobuf(true);
        Ok(client.with_default_namespace(config.default_namespace()))
    }
}

impl From<kube_client::Client> for Client {
    fn from(client: kube_client::Client) -> Self {
        let namespace = client.default_namespace().to_owned();
        Client::new(KubeTransport(client)).with_default_namespace(&namespace)
    }
}

struct KubeTransport(kube_client::Client);

impl Transport for KubeTransport {
    fn send(&self, request: Request<Bytes>) -> BoxFuture<'static, Result<Response<Body>, Error>> {
        let client = self.0.clone();
        Box::pin(async move {
            let answer = client.send(request.map(KubeBody::from)).await;
            answer.map(|response| response.map(Body::new)).map_err(|error| Error::Transport(chain(&error)))
        })
    }
}

impl Network {
    fn new(config: &Config) -> Result<Self, ConfigError> {
        let mut config = config.clone();
        let mut token = None;
        if let Some(path) = config.kube.auth_info.token_file.take() {
            match TokenFile::open(path.clone().into()) {
                // As client-go has it, the file counts if both are there.
                Ok(file) => (token, config.kube.auth_info.token) = (Some(file), None),
                Err(_) if config.kube.auth_info.token.is_some() => {}
                Err(error) => return Err(ConfigError::token_file(&config.place, &path, &error)),
            }
        }
        let place = format!("{} ({})", config.server().trim_end_matches('/'), config.place);
        let authority = config.kube.cluster_url.authority();
        let host = authority.map(ToString::to_string).unwrap_or_default();
        // To the same machine bytes travel faster than they can be compressed.
        let near = authority.map_or("", http::uri::Authority::host).trim_matches(['[', ']']);
        let near = near == "localhost" || near.parse().is_ok_and(|address: IpAddr| address.is_loopback());
        let compression = !near && !config.kube.disable_compression;
        Ok(Network { roads: Arc::new(Roads::new(config)?), place, host, compression, token })
    }
}

impl Transport for Network {
    fn host(&self) -> &str {
        &self.host
    }

    fn send(&self, mut request: Request<Bytes>) -> BoxFuture<'static, Result<Response<Body>, Error>> {
        if let Some(token) = &self.token
            && !request.headers().contains_key(header::AUTHORIZATION)
        {
            request.headers_mut().insert(header::AUTHORIZATION, token.header());
        }
        let (road, busy) = if request.headers().contains_key(header::UPGRADE) {
            (self.roads.with(|made| made.upgrades.clone()), None)
        } else {
            if self.compression && !request.headers().contains_key(header::ACCEPT_ENCODING) {
                request.headers_mut().insert(header::ACCEPT_ENCODING, HeaderValue::from_static("gzip"));
            }
            let lane = self.roads.with(Made::lane);
            (lane.road, Some(Busy(lane.busy)))
        };
        let (place, roads) = (self.place.clone(), Arc::clone(&self.roads));
        Box::pin(async move {
            let answer = road.oneshot(request.map(KubeBody::from)).await;
            let answer = answer.map_err(|error| {
                let text = format!("{place}: {}", chain(&*error));
                if is_of_certificates(&*error) { Error::Certificate(text) } else { Error::Transport(text) }
            });
            match &answer {
                Err(Error::Certificate(_)) => roads.refused().await,
                Ok(response) if response.status() == StatusCode::UNAUTHORIZED => roads.refused().await,
                _ => {}
            }
            Ok(gzip::inflated(answer?.map(|body| Body::new(Counted { body, _busy: busy }))))
        })
    }
}

/// Whether it is about certificates, which do not become right by trying again.
fn is_of_certificates(error: &(dyn std::error::Error + 'static)) -> bool {
    use rustls::AlertDescription as Alert;
    let tls = error.downcast_ref::<rustls::Error>();
    // An I/O error says what is behind what it carries, not what it carries.
    let carried = error.downcast_ref::<std::io::Error>().and_then(std::io::Error::get_ref);
    match tls {
        Some(rustls::Error::InvalidCertificate(_)) => true,
        Some(rustls::Error::AlertReceived(alert)) => matches!(
            alert,
            Alert::BadCertificate
                | Alert::UnsupportedCertificate
                | Alert::CertificateRevoked
                | Alert::CertificateExpired
                | Alert::CertificateUnknown
                | Alert::CertificateRequired
                | Alert::UnknownCA
        ),
        _ => match (carried, error.source()) {
            (Some(carried), _) => is_of_certificates(carried),
            (None, Some(source)) => is_of_certificates(source),
            (None, None) => false,
        },
    }
}

/// Whether a file that is needed is not there.
fn is_not_found(error: &(dyn std::error::Error + 'static)) -> bool {
    let is_it = |error: &std::io::Error| error.kind() == std::io::ErrorKind::NotFound;
    error.downcast_ref().is_some_and(is_it) || error.source().is_some_and(is_not_found)
}

/// A place on a road, until it is dropped.
struct Busy(Arc<AtomicUsize>);

impl Drop for Busy {
    fn drop(&mut self) {
        self.0.fetch_sub(1, Ordering::Relaxed);
    }
}

/// A body that has its place on the road until it is read or given up.
struct Counted {
    body: Incoming,
    _busy: Option<Busy>,
}

impl http_body::Body for Counted {
    type Data = Bytes;
    type Error = hyper::Error;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
    ) -> Poll<Option<Result<http_body::Frame<Bytes>, hyper::Error>>> {
        Pin::new(&mut self.body).poll_frame(cx)
    }
}

/// Goes through the proxy, if there is one.
fn road_maker(config: &Config) -> Result<MakeRoad, ConfigError> {
    install_crypto();
    let mut direct = HttpConnector::new();
    direct.enforce_http(false);
    direct.set_nodelay(true);
    // Over HTTP/1 nothing else notices that the other side is gone while nothing is sent.
    direct.set_keepalive(Some(KEEP_ALIVE));
    direct.set_keepalive_interval(Some(KEEP_ALIVE_TIMEOUT));
    direct.set_keepalive_retries(Some(KEEP_ALIVE_PROBES));
    let Some(proxy_url) = config.kube.proxy_url.clone() else { return roads(config, direct) };
    match proxy_url.scheme_str() {
        Some("socks5") => roads(config, proxy::SocksV5::new(proxy_url, direct)),
        Some("http") => {
            let tunnel = proxy::Tunnel::new(proxy_url.clone(), direct);
            roads(config, with_auth(&proxy_url, tunnel))
        }
        Some("https") => {
            let tls = config.kube.rustls_https_connector_with_connector(direct);
            let tls = tls.map_err(|error| ConfigError::user(&config.place, &error))?;
            let tunnel = proxy::Tunnel::new(proxy_url.clone(), tls);
            roads(config, with_auth(&proxy_url, tunnel))
        }
        _ => Err(ConfigError::Context {
            file: config.place.file.clone(),
            context: config.place.context.clone(),
            reason: format!("proxy {proxy_url}: only http, https and socks5 are known"),
        }),
    }
}

fn with_auth<C>(proxy_url: &Uri, tunnel: proxy::Tunnel<C>) -> proxy::Tunnel<C> {
    use base64::{Engine as _, engine::general_purpose::STANDARD};
    let user = proxy_url.authority().and_then(|authority| authority.as_str().split_once('@'));
    let auth = user.map(|(user, _)| format!("Basic {}", STANDARD.encode(user)));
    match auth.and_then(|auth| auth.parse().ok()) {
        Some(auth) => tunnel.with_auth(auth),
        None => tunnel,
    }
}

fn roads<H>(config: &Config, connector: H) -> Result<MakeRoad, ConfigError>
where
    H: Service<Uri, Response: Connection + Read + Write + Send + Unpin, Future: Send, Error: Into<BodyError>>
        + Clone
        + Send
        + Sync
        + 'static,
    H::Response: 'static,
{
    let plugin = config.kube.auth_info.exec.as_ref();
    let wrong = |error: &(dyn std::error::Error + 'static)| match plugin {
        Some(plugin) if is_not_found(error) => {
            let command = plugin.command.as_deref().unwrap_or_default();
            ConfigError::plugin_missing(&config.place, command, plugin.install_hint.as_deref().unwrap_or_default())
        }
        _ => ConfigError::user(&config.place, error),
    };
    // A plugin that tells a certificate runs in the first of these, one that tells a token in the second.
    let mut tls = config.kube.rustls_client_config().map_err(|error| wrong(&error))?;
    if let Some(path) = config.kube.root_cert_file.clone().filter(|_| !config.kube.accept_invalid_certs) {
        // kube reads it again too, once a minute.
        let file = CaFile::open(path.clone()).map_err(|error| ConfigError::ca_file(&config.place, &path, &error))?;
        tls.dangerous().set_certificate_verifier(Arc::new(file));
    }
    let auth = config.kube.auth_layer().map_err(|error| wrong(&error))?;
    let headers = config.kube.extra_headers_layer().map_err(|error| wrong(&error))?;
    let server_name = match &config.kube.tls_server_name {
        None => None,
        Some(name) => Some(ServerName::try_from(name.clone()).map_err(|error| wrong(&error))?),
    };
    let base_uri = config.kube.base_uri_layer();
    let (connect, read, write) = (config.kube.connect_timeout, config.kube.read_timeout, config.kube.write_timeout);
    Ok(Box::new(move |protocol| {
        let mut builder = HttpsConnectorBuilder::new().with_tls_config(tls.clone()).https_or_http();
        if let Some(name) = &server_name {
            builder = builder.with_server_name_resolver(FixedServerNameResolver::new(name.clone()));
        }
        let builder = builder.enable_http1();
        let https = match protocol {
            Protocol::Any => builder.enable_http2().wrap_connector(connector.clone()),
            Protocol::Http1 => builder.wrap_connector(connector.clone()),
        };
        let mut connector = TimeoutConnector::new(https);
        connector.set_connect_timeout(connect);
        connector.set_read_timeout(read);
        connector.set_write_timeout(write);
        let client: legacy::Client<_, KubeBody> = legacy::Client::builder(TokioExecutor::new())
            .timer(TokioTimer::new())
            .pool_timer(TokioTimer::new())
            .http2_keep_alive_interval(KEEP_ALIVE)
            .http2_keep_alive_timeout(KEEP_ALIVE_TIMEOUT)
            .http2_initial_stream_window_size(WINDOW)
            .http2_initial_connection_window_size(WINDOW)
            .build(connector);
        let client = headers.layer(client.map_err(BodyError::from as fn(_) -> _));
        match &auth {
            Some(auth) => BoxCloneSyncService::new(base_uri.layer(auth.layer(client))),
            None => BoxCloneSyncService::new(base_uri.layer(client)),
        }
    }))
}

/// One library does all cryptography here; who has chosen already stays with their choice.
fn install_crypto() {
    if rustls::crypto::CryptoProvider::get_default().is_none() {
        // It fails only if somebody was quicker.
        let _ = rustls::crypto::aws_lc_rs::default_provider().install_default();
    }
}
