//! `capstan kubelet`: this machine as a node of any Kubernetes cluster.

use std::{
    env, fs,
    net::{IpAddr, Ipv4Addr, SocketAddr},
    path::{Path, PathBuf},
    str::FromStr,
    sync::Arc,
};

use capstan_client::{Api, Client, Config};
use capstan_clock::{Clock as _, OsIds, RealClock, SharedClock, SharedIds};
use capstan_kubelet::{
    node::{Node, dns::Dns, eviction::Thresholds},
    runtime::{
        Runtime,
        cri::Cri,
        process::{Network, NetworkConfig, Process, Range},
    },
    server::{Authorizer, Everybody, KubeletServer, Webhook},
};
use capstan_runtime::operator::setup_signal_handler;
use capstan_server::pki::{self, Certified, Pki, PrivateKey};
use k8s_openapi::api::core::v1::{ConfigMap, Service, Taint};
use rustls::pki_types::{CertificateDer, pem::PemObject as _};
use tokio::net::TcpListener;

use crate::server::{block_on, reachable};

/// The flags with what they are for.
pub(crate) const HELP: &str = "\
  --kubeconfig FILE                       how to reach the server; KUBECONFIG or ~/.kube/config if not given
  --hostname-override NAME                what the node is called (the name of this machine); --node-name is the same
  --node-labels KEY=VALUE,…               labels that it registers with
  --register-with-taints KEY=VALUE:EFFECT,…
                                          taints that it registers with
  --root-dir DIR                          where it keeps its files (/var/lib/capstan/kubelet)
  --container-runtime-endpoint SOCKET     run containers by the CRI of this socket; otherwise they are processes
  --pod-cidr RANGE                        pods that are processes: each a network of its own on a bridge of this node
                                          with addresses of this range, instead of the node's network
  --pod-manifest-path DIR                 manifests of static pods
  --max-pods N                            how many pods it takes (110)
  --eviction-hard SIGNAL<VALUE,…          what must stay free (memory.available<100Mi,nodefs.available<10%,
                                          nodefs.inodesFree<5%,imagefs.available<15%,imagefs.inodesFree<5%);
                                          pid.available can be named too
  --cluster-dns ADDRESS,…                 who resolves names for pods (the node's own servers)
  --cluster-domain DOMAIN                 where services are found (cluster.local)
  --resolv-conf FILE                      the node's own servers (/etc/resolv.conf)
  --node-ip ADDRESS                       the address of the node
  --address ADDRESS, --port PORT          where its server listens (the node's address, 10250; 0 for a free one)
  --client-ca-file FILE                   who signs for those that may ask it, the API server among them (as the server
                                          says in kube-system/extension-apiserver-authentication)
  --authorization-mode MODE               Webhook: who may is asked of the API server; AlwaysAllow (Webhook)
  --tls-cert-file FILE, --tls-private-key-file FILE
                                          what its server shows, instead of a certificate of its own
";

struct Flags {
    kubeconfig: Option<PathBuf>,
    name: Option<String>,
    labels: Vec<(String, String)>,
    taints: Vec<Taint>,
    root: PathBuf,
    endpoint: Option<String>,
    pod_range: Option<Range>,
    manifests: Option<PathBuf>,
    max_pods: Option<u32>,
    eviction: Thresholds,
    dns: Dns,
    ip: Option<IpAddr>,
    address: Option<IpAddr>,
    port: u16,
    client_ca: Option<PathBuf>,
    webhook: bool,
    certificate: Option<PathBuf>,
    key: Option<PathBuf>,
}

impl Default for Flags {
    fn default() -> Self {
        Flags {
            kubeconfig: None,
            name: None,
            labels: Vec::new(),
            taints: Vec::new(),
            root: "/var/lib/capstan/kubelet".into(),
            endpoint: None,
            pod_range: None,
            manifests: None,
            max_pods: None,
            eviction: Thresholds::default(),
            dns: Dns::default(),
            ip: None,
            address: None,
            port: 10250,
            client_ca: None,
            webhook: true,
            certificate: None,
            key: None,
        }
    }
}

impl Flags {
    fn parse(arguments: &[&str]) -> Result<Self, String> {
        let mut flags = Flags::default();
        let mut rest = arguments.iter();
        while let Some(argument) = rest.next() {
            let (name, value) = match argument.split_once('=') {
                Some((name, value)) => (name, value),
                None => (*argument, *rest.next().ok_or_else(|| format!("flag needs an argument: {argument}"))?),
            };
            flags.set(name, value)?;
        }
        Ok(flags)
    }

    fn set(&mut self, name: &str, value: &str) -> Result<(), String> {
        fn parsed<T: FromStr<Err: std::fmt::Display>>(name: &str, value: &str) -> Result<T, String> {
            value.parse().map_err(|error| format!("invalid argument {value:?} for {name}: {error}"))
        }
        let wrong = |what: &str| format!("invalid argument {value:?} for {name}: {what}");
        let list = || value.split(',').map(str::trim).filter(|part| !part.is_empty());
        match name {
            "--kubeconfig" => self.kubeconfig = Some(value.into()),
            "--hostname-override" | "--node-name" => self.name = Some(value.to_owned()),
            "--node-labels" => {
                for pair in list() {
                    let (key, value) = pair.split_once('=').ok_or_else(|| wrong("a label is KEY=VALUE"))?;
                    self.labels.push((key.to_owned(), value.to_owned()));
                }
            }
            "--register-with-taints" => {
                for text in list() {
                    self.taints.push(taint(text).ok_or_else(|| wrong("a taint is KEY=VALUE:EFFECT"))?);
                }
            }
            "--root-dir" => self.root = value.into(),
            "--container-runtime-endpoint" => self.endpoint = Some(value.to_owned()).filter(|text| !text.is_empty()),
            "--pod-cidr" => {
                let range = range(value).ok_or_else(|| wrong("a range is ADDRESS/BITS of IPv4, at most 30 bits"))?;
                self.pod_range = Some(range);
            }
            "--pod-manifest-path" => self.manifests = Some(value.into()),
            "--max-pods" => self.max_pods = Some(parsed(name, value)?),
            "--eviction-hard" => self.eviction = parsed(name, value)?,
            "--cluster-dns" => {
                self.dns.cluster = list()
                    .map(|text| parsed::<IpAddr>(name, text).map(|ip| ip.to_string()))
                    .collect::<Result<_, _>>()?;
            }
            "--cluster-domain" => value.clone_into(&mut self.dns.domain),
            "--resolv-conf" => self.dns.resolv_conf = Some(value.into()).filter(|_| !value.is_empty()),
            "--node-ip" => self.ip = Some(parsed(name, value)?),
            "--address" => self.address = Some(parsed(name, value)?),
            "--port" => self.port = parsed(name, value)?,
            "--client-ca-file" => self.client_ca = Some(value.into()),
            "--authorization-mode" => {
                self.webhook = match value {
                    "Webhook" => true,
                    "AlwaysAllow" => false,
                    _ => return Err(wrong("there are Webhook and AlwaysAllow")),
                }
            }
            "--tls-cert-file" => self.certificate = Some(value.into()),
            "--tls-private-key-file" => self.key = Some(value.into()),
            _ => return Err(format!("unknown flag: {name}")),
        }
        Ok(())
    }

    /// What the server of the node shows, and whom it believes.
    async fn tls(&self, client: &Client, name: &str, ip: IpAddr) -> Result<rustls::ServerConfig, String> {
        let own = || {
            let options = pki::Options { host: name.to_owned(), service_ip: ip, extra: Vec::new() };
            let pki = Pki::open(&self.root.join("pki"), &options, RealClock::new().now(), &OsIds);
            pki.map(|pki| pki.serving).map_err(|error| error.to_string())
        };
        let serving = match (&self.certificate, &self.key) {
            (Some(certificate), Some(key)) => Certified {
                certificate: String::from_utf8_lossy(&read(certificate)?).into_owned(),
                key: PrivateKey::from_pem(&read(key)?).map_err(|error| format!("{}: {error}", key.display()))?,
            },
            (None, None) => own()?,
            _ => return Err("--tls-cert-file and --tls-private-key-file go together".to_owned()),
        };
        let authorities = match &self.client_ca {
            Some(file) => certificates(&read(file)?).map_err(|error| format!("{}: {error}", file.display()))?,
            None => match published(client).await {
                Some(found) => found,
                None => {
                    println!("nobody can ask this node for logs: --client-ca-file names who signs for the API server");
                    serving.chain()
                }
            },
        };
        pki::server_config(&serving, &authorities).map_err(|error| error.to_string())
    }

    async fn runtime(
        &self,
        ip: IpAddr,
        api_server: Option<(SocketAddr, SocketAddr)>,
        clock: &SharedClock,
        ids: &SharedIds,
    ) -> Result<Arc<dyn Runtime>, String> {
        if let Some(endpoint) = &self.endpoint {
            let socket = Path::new(endpoint.strip_prefix("unix://").unwrap_or(endpoint));
            if !socket.exists() {
                return Err(format!("--container-runtime-endpoint: there is no socket {}", socket.display()));
            }
            let cri = Cri::connect(socket, Arc::clone(clock)).await;
            return Ok(Arc::new(cri.map_err(|error| format!("{}: {error}", socket.display()))?));
        }
        let shim = env::current_exe().map_err(|error| error.to_string())?;
        let addresses = vec![ip.to_string()];
        let process = Process::new(&self.root, &shim, addresses, Arc::clone(clock), Arc::clone(ids)).await;
        let mut process = process.map_err(|error| format!("{}: {error}", self.root.display()))?;
        if self.pod_range.is_some() {
            let config = NetworkConfig { range: self.pod_range, api_server };
            let network = Network::open(config, Arc::clone(clock));
            process = process.with_network(Ok(network.map_err(|error| format!("--pod-cidr: {error}"))?));
        }
        Ok(Arc::new(process))
    }
}

fn certificates(pem: &[u8]) -> Result<Vec<CertificateDer<'static>>, String> {
    CertificateDer::pem_slice_iter(pem).collect::<Result<_, _>>().map_err(|error| error.to_string())
}

/// Who signs for users, as the API server tells those who extend it.
async fn published(client: &Client) -> Option<Vec<CertificateDer<'static>>> {
    let maps = Api::<ConfigMap>::namespaced(client, "kube-system");
    let data = maps.get("extension-apiserver-authentication").await.ok()?.data?;
    certificates(data.get("client-ca-file")?.as_bytes()).ok().filter(|found| !found.is_empty())
}

/// Where pods look for the API server, and where this node finds it; nothing where that can't be found out.
async fn api_server(client: &Client, url: &str) -> Option<(SocketAddr, SocketAddr)> {
    let spec = Api::<Service>::namespaced(client, "default").get("kubernetes").await.ok()?.spec?;
    let port = u16::try_from(spec.ports?.first()?.port).ok()?;
    let told = SocketAddr::new(spec.cluster_ip?.parse().ok()?, port);
    let authority = url.split("://").last()?.split('/').next()?;
    let default = if url.starts_with("http://") { 80 } else { 443 };
    let with_port = [authority.to_owned(), format!("{authority}:{default}")];
    let real = with_port.iter().find_map(|name| std::net::ToSocketAddrs::to_socket_addrs(name).ok()?.next())?;
    Some((told, real))
}

/// `10.244.0.0/24`.
fn range(text: &str) -> Option<Range> {
    let (address, bits) = text.split_once('/')?;
    let (address, bits) = (address.parse::<Ipv4Addr>().ok()?, bits.parse::<u8>().ok()?);
    let rest = u32::MAX.checked_shr(bits.into()).unwrap_or(0);
    ((1..=30).contains(&bits) && u32::from(address) & rest == 0).then_some((address, bits))
}

/// `key=value:Effect` or `key:Effect`.
fn taint(text: &str) -> Option<Taint> {
    let (pair, effect) = text.rsplit_once(':')?;
    let (key, value) = pair.split_once('=').unwrap_or((pair, ""));
    let known = ["NoSchedule", "PreferNoSchedule", "NoExecute"].contains(&effect);
    (known && !key.is_empty()).then(|| Taint {
        key: key.to_owned(),
        value: Some(value.to_owned()).filter(|value| !value.is_empty()),
        effect: effect.to_owned(),
        ..Taint::default()
    })
}

fn read(file: &Path) -> Result<Vec<u8>, String> {
    fs::read(file).map_err(|error| format!("cannot read {}: {error}", file.display()))
}

/// Runs the node until it is told to end; its containers end with it, its pods stay bound to it.
pub(crate) fn run(arguments: &[&str]) -> Result<(), String> {
    let flags = Flags::parse(arguments)?;
    block_on(async {
        let config = match &flags.kubeconfig {
            Some(file) => Config::from_kubeconfig(file, None).await,
            None => Config::from_default().await,
        };
        let config = config.map_err(|error| error.to_string())?;
        let client = Client::from_config(&config).map_err(|error| error.to_string())?.with_user_agent("kubelet");
        let hostname = fs::read_to_string("/proc/sys/kernel/hostname").unwrap_or_default().trim().to_lowercase();
        let name = flags.name.clone().unwrap_or(hostname);
        let ip = flags.ip.unwrap_or_else(|| reachable(IpAddr::from([0, 0, 0, 0])));
        let (clock, ids): (SharedClock, SharedIds) = (Arc::new(RealClock::new()), Arc::new(OsIds));
        fs::create_dir_all(&flags.root).map_err(|error| format!("--root-dir {}: {error}", flags.root.display()))?;
        let address = SocketAddr::new(flags.address.unwrap_or(ip), flags.port);
        let listener =
            TcpListener::bind(address).await.map_err(|error| format!("cannot listen on {address}: {error}"))?;
        let port = listener.local_addr().map_err(|error| error.to_string())?.port();
        let tls = Arc::new(flags.tls(&client, &name, ip).await?);
        let api_server = match flags.pod_range {
            Some(_) => api_server(&client, &config.server()).await,
            None => None,
        };
        let runtime = flags.runtime(ip, api_server, &clock, &ids).await?;
        let authorizer: Arc<dyn Authorizer> = match flags.webhook {
            true => Arc::new(Webhook::new(client.clone(), Arc::clone(&clock), &name)),
            false => Arc::new(Everybody),
        };
        let mut node = Node::builder(client, clock, ids)
            .name(&name)
            .root_dir(&flags.root)
            .runtime(Arc::clone(&runtime))
            .taints(flags.taints)
            .eviction(flags.eviction)
            .dns(if runtime.shares_host_network() { flags.dns } else { flags.dns.without_loopback() })
            .log(Arc::new(|text| eprintln!("{text}")))
            .ips(vec![ip.to_string()])
            .port(port);
        for (key, value) in &flags.labels {
            node = node.label(key, value);
        }
        if let Some(pods) = flags.max_pods {
            node = node.max_pods(pods);
        }
        if let Some(manifests) = &flags.manifests {
            node = node.static_pods(manifests);
        }
        let node = node.build();
        let stop = setup_signal_handler().map_err(|error| error.to_string())?;
        let server = KubeletServer::new(node.shared(), authorizer);
        let serving = tokio::spawn(server.serve(listener, Some(tls), stop.clone()));
        println!("node {name} runs by {} {}, its server listens on {ip}:{port}", runtime.name(), runtime.version());
        for limitation in runtime.limitations() {
            println!("  {limitation}");
        }
        node.run(stop).await;
        serving.abort();
        Ok(())
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn flags_as_the_kubelet_has_them() {
        let flags = Flags::parse(&[
            "--hostname-override=n",
            "--node-labels",
            "a=b,c=",
            "--register-with-taints=k=v:NoSchedule,x:NoExecute",
            "--eviction-hard=memory.available<50Mi",
            "--cluster-dns=10.0.0.10",
        ])
        .unwrap_or_else(|error| panic!("{error}"));
        assert_eq!(flags.labels, [("a".to_owned(), "b".to_owned()), ("c".to_owned(), String::new())]);
        let taints: Vec<_> = flags.taints.iter().map(|t| (t.key.as_str(), t.value.as_deref(), &*t.effect)).collect();
        assert_eq!(taints, [("k", Some("v"), "NoSchedule"), ("x", None, "NoExecute")]);
        assert_eq!(flags.dns.cluster, ["10.0.0.10"]);
        for (wrong, words) in [
            (["--port", "x"], "invalid argument \"x\" for --port: invalid digit found in string"),
            (["--pod-cidr", "10.1.2.3/24"], "a range is ADDRESS/BITS"),
            (["--node-labels", "a"], "invalid argument \"a\" for --node-labels: a label is KEY=VALUE"),
            (["--register-with-taints", "a=b:Never"], "a taint is KEY=VALUE:EFFECT"),
            (["--eviction-hard", "nodefs.available"], "is not SIGNAL<VALUE"),
            (["--nonsense", "1"], "unknown flag: --nonsense"),
        ] {
            let error = Flags::parse(&wrong).err().unwrap_or_default();
            assert!(error.contains(words), "{error}");
        }
        assert_eq!(Flags::parse(&["--port"]).err().unwrap_or_default(), "flag needs an argument: --port");
    }
}
