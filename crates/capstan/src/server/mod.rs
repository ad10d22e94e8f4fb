//! `capstan server`: the API server behind a socket, put together from its flags.

mod flags;
mod front_proxy;

use std::{
    fs,
    net::{IpAddr, SocketAddr, TcpListener, UdpSocket},
    path::{Path, PathBuf},
    sync::Arc,
    time::Duration,
};

use capstan_clock::{Ids as _, OsIds, RealClock, SharedClock};
use capstan_server::{
    Config, KubeletClient, Server, allocation,
    audit::{LogConfig, LogFile, Policy, Recording},
    authentication::{
        self, CertificatePool, JWKS_PATH, OpenIdDocuments, ServiceAccountConfig, StaticTokens, TokenIssuer,
    },
    authorization::{SYSTEM_MASTERS, UserInfo},
    pki::{self, Certified, Credential, Pki, PrivateKey, PublicKey},
    serve::{self, Limits},
};
use capstan_storage::{Bytes, Embedded, Etcd, EtcdConfig, EtcdTls, Memory, Options, SharedStore, Ttl};
pub(crate) use flags::{Flags, HELP, Storage};
use front_proxy::FrontProxy;

/// Who signs tokens when the flags do not say.
const ISSUER: &str = "https://kubernetes.default.svc.cluster.local";

/// The administrator.
const ADMIN: &str = "kubernetes-admin";

/// Who the server is to kubelets.
const KUBELET_CLIENT: &str = "kube-apiserver-kubelet-client";

/// How many threads wait for the disk at most. More would only wait for each other, and each has its heap.
const BLOCKING_THREADS: usize = 4;

/// The port of the Service that leads to the server.
const SERVICE_PORT: u16 = 443;

/// How long requests under way have when the server is to end.
const SHUTDOWN: Duration = Duration::from_secs(10);

/// A server that runs.
pub(crate) struct Running {
    handle: serve::Handle,
    /// The server itself, for those in the same process.
    pub(crate) server: Server,
    /// Where clients reach it.
    pub(crate) url: String,
    /// The address and port of that.
    pub(crate) address: IpAddr,
    pub(crate) port: u16,
    /// Where pods look for it: the Service `kubernetes`.
    pub(crate) service: SocketAddr,
    /// Its keys and certificates.
    pub(crate) pki: Arc<Pki>,
    admin_token: String,
    /// What the store is.
    pub(crate) store: String,
    /// How long it took to open it.
    pub(crate) store_took: Duration,
}

/// Runs the server until it is told to end.
pub(crate) fn run(arguments: &[&str]) -> Result<(), String> {
    let flags = Flags::default().parse(arguments)?;
    block_on(async {
        let running = start(&flags).await?;
        if let Some(file) = &flags.write_kubeconfig {
            write_private(file, &running.kubeconfig("capstan", ADMIN))?;
        }
        if flags.serve_metrics {
            crate::metrics::serve(&running, &flags).await?;
        }
        println!("capstan is ready: {} ({})", running.url, running.store);
        until_told().await?;
        running.shut_down().await;
        Ok(())
    })
}

/// Runs a future on a runtime of its own.
pub(crate) fn block_on<T>(work: impl Future<Output = Result<T, String>>) -> Result<T, String> {
    let runtime =
        tokio::runtime::Builder::new_multi_thread().enable_all().max_blocking_threads(BLOCKING_THREADS).build();
    runtime.map_err(|error| format!("cannot start: {error}"))?.block_on(work)
}

impl Running {
    /// A kubeconfig of the administrator; the cluster, its context and the user go by these names.
    pub(crate) fn kubeconfig(&self, name: &str, user: &str) -> String {
        pki::kubeconfig(name, &self.url, &self.pki.ca.own.certificate, user, Credential::Token(&self.admin_token))
    }

    /// Ends it: requests under way are answered, watches are ended.
    pub(crate) async fn shut_down(self) {
        self.server.shut_down();
        self.handle.shutdown(SHUTDOWN).await;
    }
}

/// Waits for SIGTERM or SIGINT.
pub(crate) async fn until_told() -> Result<(), String> {
    use tokio::signal::unix::{SignalKind, signal};
    let mut terminate = signal(SignalKind::terminate()).map_err(|error| error.to_string())?;
    let mut interrupt = signal(SignalKind::interrupt()).map_err(|error| error.to_string())?;
    tokio::select! {
        _ = terminate.recv() => {}
        _ = interrupt.recv() => {}
    }
    Ok(())
}

/// Writes a file that only its owner reads.
pub(crate) fn write_private(file: &Path, text: &str) -> Result<(), String> {
    use std::{io::Write as _, os::unix::fs::OpenOptionsExt as _};
    let fail = |error: std::io::Error| format!("cannot write {}: {error}", file.display());
    if let Some(directory) = file.parent().filter(|directory| !directory.as_os_str().is_empty()) {
        fs::create_dir_all(directory).map_err(fail)?;
    }
    let mut options = fs::OpenOptions::new();
    let mut open = options.write(true).create(true).truncate(true).mode(0o600).open(file).map_err(fail)?;
    open.write_all(text.as_bytes()).map_err(fail)
}

/// What a file holds.
pub(crate) fn read(file: &Path) -> Result<Vec<u8>, String> {
    fs::read(file).map_err(|error| format!("cannot read {}: {error}", file.display()))
}

/// Starts a server as the flags say.
pub(crate) async fn start(flags: &Flags) -> Result<Running, String> {
    let clock: SharedClock = Arc::new(RealClock::new());
    let data_dir = flags.data_dir.clone().ok_or("name a directory for what the server keeps: --data-dir DIR")?;
    let began = clock.monotonic();
    let (store, kind) = open_store(flags, &data_dir, &clock).await?;
    let store_took = clock.monotonic().since(began);
    let listener = listen(flags)?;
    let port = listener.local_addr().map_err(|error| error.to_string())?.port();
    let advertise = flags.advertise_address.unwrap_or_else(|| reachable(flags.bind_address));
    let hostname = fs::read_to_string("/proc/sys/kernel/hostname").unwrap_or_default().trim().to_owned();
    let primary = *flags.service_ranges.first().ok_or("--service-cluster-ip-range is empty")?;

    let mut extra = vec![advertise.to_string()];
    extra.extend(flags.external_hostname.clone());
    let options = pki::Options { host: hostname.clone(), service_ip: primary.first(), extra };
    let cert_dir = flags.cert_dir.clone().unwrap_or_else(|| data_dir.join("pki"));
    let pki = Pki::open(&cert_dir, &options, clock.now(), &OsIds).map_err(|error| error.to_string())?;

    let mut client_ca = pki.ca.own.certificate.clone();
    if let Some(file) = &flags.client_ca_file {
        client_ca.push_str(&String::from_utf8_lossy(&read(file)?));
    }
    let admin = admin_token(&cert_dir)?;
    let mut static_tokens = match &flags.token_auth_file {
        Some(file) => tokens_of(file)?,
        None => StaticTokens::default(),
    };
    static_tokens.insert(&admin, UserInfo::new(ADMIN, [SYSTEM_MASTERS]));
    let (accounts, issuer, openid) = service_accounts(flags, &pki, SocketAddr::new(advertise, port))?;
    let front_proxy = FrontProxy::new(flags, &pki, &clock)?;
    let config = Config {
        clock: Arc::clone(&clock),
        advertise_address: advertise,
        secure_port: port,
        hostname,
        event_ttl: u32::try_from(seconds(flags.event_ttl)).ok().and_then(Ttl::seconds),
        services: allocation::Config {
            primary,
            secondary: flags.service_ranges.get(1).copied(),
            node_ports: flags.node_ports.clone(),
        },
        authentication: authentication::Config {
            api_audiences: issuer.api_audiences.clone(),
            request_headers: front_proxy.believed,
            client_ca: Some(pool("client-ca-file", client_ca.as_bytes())?),
            static_tokens: Some(static_tokens),
            service_accounts: Some(accounts),
            bootstrap_tokens: flags.bootstrap_tokens,
            anonymous: flags.anonymous_auth,
        },
        token_issuer: Some(issuer),
        openid,
        authorization: flags.authorization.clone(),
        enable_admission: flags.enable_admission.clone(),
        disable_admission: flags.disable_admission.clone(),
        client_ca,
        request_header: front_proxy.told,
        proxy_client: front_proxy.shown,
        audit: audit_of(flags, &clock)?,
        kubelet_client: Some(kubelet_client(flags, &pki, &clock)?),
        identity_lease: true,
        flags: flags.shown(),
        ..Config::default()
    };
    let server = Server::start(store, config).await.map_err(|error| error.to_string())?;
    let serving = serving(flags)?;
    let tls = pki::server_config(serving.as_ref().unwrap_or(&pki.serving), &pki.ca.own.chain());
    let tls = tls.map_err(|error| format!("the serving certificate cannot be used: {error}"))?;
    let listener = tokio::net::TcpListener::from_std(listener).map_err(|error| error.to_string())?;
    let handle = serve::serve(vec![listener], Some(Arc::new(tls)), server.clone(), Limits::default(), clock)
        .map_err(|error| error.to_string())?;
    let host = if flags.bind_address.is_loopback() { flags.bind_address } else { advertise };
    let url = format!("https://{}", SocketAddr::new(host, port));
    let pki = Arc::new(pki);
    let service = SocketAddr::new(primary.first(), SERVICE_PORT);
    Ok(Running { handle, server, url, address: host, port, service, pki, admin_token: admin, store: kind, store_took })
}

async fn open_store(flags: &Flags, data_dir: &Path, clock: &SharedClock) -> Result<(SharedStore, String), String> {
    let options = Options::with_clock(Arc::clone(clock));
    let storage = match flags.storage {
        Some(storage) => storage,
        None if flags.etcd_servers.is_empty() => Storage::Embedded,
        None => Storage::Etcd,
    };
    Ok(match storage {
        Storage::Memory => (Arc::new(Memory::new(options)), "objects in memory, gone with the process".to_owned()),
        Storage::Embedded => {
            let directory = data_dir.join("store");
            let store = Embedded::open(&directory, options).map_err(|fault| fault.to_string())?;
            (Arc::new(store), format!("objects in {}", directory.display()))
        }
        Storage::Etcd => {
            if flags.etcd_servers.is_empty() {
                return Err("--storage etcd needs --etcd-servers".to_owned());
            }
            let mut config = EtcdConfig::new(flags.etcd_servers.clone());
            if let Some(ca) = &flags.etcd_ca {
                let identity = match (&flags.etcd_cert, &flags.etcd_key) {
                    (Some(certificate), Some(key)) => Some((Bytes::from(read(certificate)?), Bytes::from(read(key)?))),
                    (None, None) => None,
                    _ => return Err("--etcd-certfile and --etcd-keyfile go together".to_owned()),
                };
                config.tls = Some(EtcdTls { ca: read(ca)?.into(), identity, server_name: None });
            }
            let store = Etcd::connect(config, options).await.map_err(|fault| fault.to_string())?;
            (Arc::new(store), format!("objects in etcd at {}", flags.etcd_servers.join(", ")))
        }
    })
}

fn listen(flags: &Flags) -> Result<TcpListener, String> {
    let address = SocketAddr::new(flags.bind_address, flags.secure_port);
    let listener = TcpListener::bind(address).map_err(|error| {
        let hint = match error.kind() {
            std::io::ErrorKind::AddrInUse => ": name another with --secure-port, or 0 for a free one",
            _ => "",
        };
        format!("cannot listen on {address}: {error}{hint}")
    })?;
    listener.set_nonblocking(true).map_err(|error| error.to_string())?;
    Ok(listener)
}

/// The address of this machine that others see, when it listens on all.
pub(crate) fn reachable(bound: IpAddr) -> IpAddr {
    if !bound.is_unspecified() {
        return bound;
    }
    // Nothing is sent: this only asks which way a packet would go.
    let way = UdpSocket::bind("0.0.0.0:0").and_then(|socket| {
        socket.connect("192.0.2.1:9")?;
        socket.local_addr()
    });
    way.map_or(IpAddr::from([127, 0, 0, 1]), |address| address.ip())
}

fn serving(flags: &Flags) -> Result<Option<Certified>, String> {
    let files = (&flags.tls_cert_file, &flags.tls_private_key_file);
    certified(files, "--tls-cert-file and --tls-private-key-file")
}

/// Who the server is to kubelets.
fn kubelet_client(flags: &Flags, pki: &Pki, clock: &SharedClock) -> Result<KubeletClient, String> {
    let files = (&flags.kubelet_client_certificate, &flags.kubelet_client_key);
    let own = match certified(files, "--kubelet-client-certificate and --kubelet-client-key")? {
        Some(given) => given,
        None => {
            let own = pki.client(KUBELET_CLIENT, &[SYSTEM_MASTERS], clock.now(), &OsIds);
            own.map_err(|error| error.to_string())?
        }
    };
    let authorities = flags.kubelet_certificate_authority.as_deref().map(read).transpose()?;
    let client = KubeletClient::new(Some(&own), authorities.as_deref())
        .map_err(|error| format!("what is shown to kubelets: {error}"))?;
    Ok(match flags.kubelet_address_types.as_slice() {
        [] => client,
        types => client.prefer_addresses(types.to_vec()),
    })
}

fn certified(files: (&Option<PathBuf>, &Option<PathBuf>), flags: &str) -> Result<Option<Certified>, String> {
    match files {
        (Some(certificate), Some(key)) => {
            let key = PrivateKey::from_pem(&read(key)?).map_err(|error| format!("{}: {error}", key.display()))?;
            let certificate = String::from_utf8_lossy(&read(certificate)?).into_owned();
            Ok(Some(Certified { certificate, key }))
        }
        (None, None) => Ok(None),
        _ => Err(format!("{flags} go together")),
    }
}

fn pool(flag: &str, pem: &[u8]) -> Result<CertificatePool, String> {
    CertificatePool::from_pem(pem).map_err(|error| format!("--{flag}: {error}"))
}

/// The token of the administrator: made on the first start and kept. A token is what every client can show, and what is
/// left out of a request by leaving out one header.
fn admin_token(directory: &Path) -> Result<String, String> {
    let file = directory.join("admin.token");
    match fs::read_to_string(&file) {
        Ok(token) if !token.trim().is_empty() => return Ok(token.trim().to_owned()),
        Ok(_) => {}
        Err(error) if error.kind() == std::io::ErrorKind::NotFound => {}
        Err(error) => return Err(format!("cannot read {}: {error}", file.display())),
    }
    let mut bytes = [0; 32];
    OsIds.fill(&mut bytes);
    let token: String = bytes.iter().map(|byte| format!("{byte:02x}")).collect();
    write_private(&file, &token)?;
    Ok(token)
}

fn tokens_of(file: &Path) -> Result<StaticTokens, String> {
    let text = String::from_utf8_lossy(&read(file)?).into_owned();
    StaticTokens::parse(&text).map_err(|error| format!("{}: {error}", file.display()))
}

/// What is recorded of requests, and where.
fn audit_of(flags: &Flags, clock: &SharedClock) -> Result<Option<Recording>, String> {
    let (Some(policy), Some(path)) = (&flags.audit_policy, &flags.audit_log) else { return Ok(None) };
    let parsed = Policy::parse(&read(policy)?).map_err(|error| format!("{}: {error}", policy.display()))?;
    let config = LogConfig {
        path: path.clone(),
        max_age: flags.audit_max_age,
        max_backup: flags.audit_max_backup,
        max_size: flags.audit_max_size,
    };
    let log = LogFile::open(config, Arc::clone(clock)).map_err(|error| format!("{}: {error}", path.display()))?;
    Ok(Some((parsed, Box::new(log))))
}

fn seconds(duration: capstan_api::Duration) -> i64 {
    duration.as_secs()
}

/// Who is believed about service accounts, who signs for them, and what others need to check that.
fn service_accounts(
    flags: &Flags,
    pki: &Pki,
    address: SocketAddr,
) -> Result<(ServiceAccountConfig, TokenIssuer, Option<OpenIdDocuments>), String> {
    let key = match &flags.signing_key {
        Some(file) => PrivateKey::from_pem(&read(file)?).map_err(|error| format!("{}: {error}", file.display()))?,
        None => PrivateKey::from_pem(pki.service_account.to_pem().as_bytes()).map_err(|error| error.to_string())?,
    };
    let mut keys: Vec<PublicKey> = Vec::new();
    for file in &flags.account_keys {
        let found = PublicKey::all_from_pem(&read(file)?).map_err(|error| format!("{}: {error}", file.display()))?;
        keys.extend(found);
    }
    if keys.is_empty() {
        keys.push(key.public().clone());
    }
    let issuers = if flags.issuers.is_empty() { vec![ISSUER.to_owned()] } else { flags.issuers.clone() };
    let issuer = issuers[0].clone();
    let audiences = if flags.api_audiences.is_empty() { vec![issuer.clone()] } else { flags.api_audiences.clone() };
    let openid = OpenIdDocuments::new(&issuer, &format!("https://{address}{JWKS_PATH}"), &keys).ok();
    let texts = |items: &[String]| items.iter().map(|item| item.as_str().into()).collect::<Vec<_>>();
    let token_issuer = TokenIssuer {
        issuer: issuer.as_str().into(),
        key: Arc::new(key),
        api_audiences: texts(&audiences),
        max_expiration_seconds: flags.max_token_expiration.map(seconds),
        extend_expiration: flags.extend_tokens,
    };
    Ok((ServiceAccountConfig { issuers: texts(&issuers), keys }, token_issuer, openid))
}

/// Where things are kept when nobody says.
pub(crate) fn data_dir() -> Result<PathBuf, String> {
    use std::env;
    let base = env::var_os("XDG_DATA_HOME")
        .map(PathBuf::from)
        .or_else(|| env::var_os("HOME").map(|home| PathBuf::from(home).join(".local/share")));
    base.map(|base| base.join("capstan"))
        .ok_or_else(|| "neither XDG_DATA_HOME nor HOME is set: name a directory with --data-dir".to_owned())
}
