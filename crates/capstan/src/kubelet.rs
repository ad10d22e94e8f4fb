//! `capstan kubelet`: this machine as a node of any Kubernetes cluster.

use std::{
    env, fs,
    net::{IpAddr, SocketAddr},
    path::{Path, PathBuf},
    sync::Arc,
};

use capstan_client::Client;
use capstan_clock::{Clock as _, OsIds, RealClock, SharedClock, SharedIds};
use capstan_kubelet::{
    node::Node,
    runtime::{Runtime, cri::Cri, process::Process},
    server::{KubeletServer, Masters},
};
use capstan_runtime::operator::setup_signal_handler;
use capstan_server::pki::{self, Certified, Pki, PrivateKey};
use rustls::pki_types::{CertificateDer, pem::PemObject as _};
use tokio::net::TcpListener;

use crate::server::{block_on, reachable};

/// The flags with what they are for.
pub(crate) const HELP: &str = "\
  --kubeconfig FILE                       how to reach the server; KUBECONFIG or ~/.kube/config if not given
  --hostname-override NAME                what the node is called (the name of this machine)
  --root-dir DIR                          where it keeps its files (/var/lib/capstan/kubelet)
  --container-runtime-endpoint SOCKET     run containers by the CRI of this socket; otherwise they are processes
  --node-ip ADDRESS                       the address of the node
  --port PORT                             where its server listens (10250)
  --client-ca-file FILE                   who signs for those that may ask it; the API server among them
  --tls-cert-file FILE, --tls-private-key-file FILE
                                          what its server shows, instead of a certificate of its own
  --pod-manifest-path DIR                 manifests of static pods
";

struct Flags {
    kubeconfig: Option<PathBuf>,
    name: Option<String>,
    root: PathBuf,
    endpoint: Option<String>,
    ip: Option<IpAddr>,
    port: u16,
    client_ca: Option<PathBuf>,
    certificate: Option<PathBuf>,
    key: Option<PathBuf>,
    manifests: Option<PathBuf>,
}

impl Flags {
    fn parse(arguments: &[&str]) -> Result<Self, String> {
        let mut flags = Flags {
            kubeconfig: None,
            name: None,
            root: "/var/lib/capstan/kubelet".into(),
            endpoint: None,
            ip: None,
            port: 10250,
            client_ca: None,
            certificate: None,
            key: None,
            manifests: None,
        };
        let mut rest = arguments.iter();
        while let Some(argument) = rest.next() {
            let (name, value) = match argument.split_once('=') {
                Some((name, value)) => (name, value),
                None => (*argument, *rest.next().ok_or_else(|| format!("flag needs an argument: {argument}"))?),
            };
            let wrong = |error: &dyn std::fmt::Display| format!("invalid argument {value:?} for {name}: {error}");
            match name {
                "--kubeconfig" => flags.kubeconfig = Some(value.into()),
                "--hostname-override" => flags.name = Some(value.to_owned()),
                "--root-dir" => flags.root = value.into(),
                "--container-runtime-endpoint" => flags.endpoint = Some(value.to_owned()),
                "--node-ip" => flags.ip = Some(value.parse().map_err(|error| wrong(&error))?),
                "--port" => flags.port = value.parse().map_err(|error| wrong(&error))?,
                "--client-ca-file" => flags.client_ca = Some(value.into()),
                "--tls-cert-file" => flags.certificate = Some(value.into()),
                "--tls-private-key-file" => flags.key = Some(value.into()),
                "--pod-manifest-path" => flags.manifests = Some(value.into()),
                _ => return Err(format!("unknown flag: {name}")),
            }
        }
        Ok(flags)
    }

    /// What the server of the node shows, and whom it believes.
    fn tls(&self, name: &str, ip: IpAddr) -> Result<rustls::ServerConfig, String> {
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
        let authorities: Vec<CertificateDer<'static>> = match &self.client_ca {
            Some(file) => CertificateDer::pem_slice_iter(&read(file)?)
                .collect::<Result<_, _>>()
                .map_err(|error| format!("{}: {error}", file.display()))?,
            None => serving.chain(),
        };
        pki::server_config(&serving, &authorities).map_err(|error| error.to_string())
    }
}

fn read(file: &Path) -> Result<Vec<u8>, String> {
    fs::read(file).map_err(|error| format!("cannot read {}: {error}", file.display()))
}

/// Runs the node until it is told to end; its containers end with it, its pods stay bound to it.
pub(crate) fn run(arguments: &[&str]) -> Result<(), String> {
    let flags = Flags::parse(arguments)?;
    block_on(async {
        let client = match &flags.kubeconfig {
            Some(file) => Client::from_kubeconfig(file, None).await,
            None => Client::from_default_config().await,
        };
        let client = client.map_err(|error| error.to_string())?.with_user_agent("kubelet");
        let hostname = fs::read_to_string("/proc/sys/kernel/hostname").unwrap_or_default().trim().to_lowercase();
        let name = flags.name.clone().unwrap_or(hostname);
        let ip = flags.ip.unwrap_or_else(|| reachable(IpAddr::from([0, 0, 0, 0])));
        let (clock, ids): (SharedClock, SharedIds) = (Arc::new(RealClock::new()), Arc::new(OsIds));
        fs::create_dir_all(&flags.root).map_err(|error| format!("{}: {error}", flags.root.display()))?;
        let runtime: Arc<dyn Runtime> = match &flags.endpoint {
            Some(endpoint) => {
                let socket = Path::new(endpoint.strip_prefix("unix://").unwrap_or(endpoint));
                let cri = Cri::connect(socket, Arc::clone(&clock)).await;
                Arc::new(cri.map_err(|error| format!("{}: {error}", socket.display()))?)
            }
            None => {
                let shim = env::current_exe().map_err(|error| error.to_string())?;
                let addresses = vec![ip.to_string()];
                let process = Process::new(&flags.root, &shim, addresses, Arc::clone(&clock), Arc::clone(&ids)).await;
                Arc::new(process.map_err(|error| format!("{}: {error}", flags.root.display()))?)
            }
        };
        let address = SocketAddr::new(ip, flags.port);
        let listener =
            TcpListener::bind(address).await.map_err(|error| format!("cannot listen on {address}: {error}"))?;
        let port = listener.local_addr().map_err(|error| error.to_string())?.port();
        let mut node = Node::builder(client, clock, ids).name(&name).root_dir(&flags.root).runtime(runtime);
        if let Some(manifests) = &flags.manifests {
            node = node.static_pods(manifests);
        }
        let node = node.ips(vec![ip.to_string()]).port(port).build();
        let stop = setup_signal_handler().map_err(|error| error.to_string())?;
        let tls = Arc::new(flags.tls(&name, ip)?);
        let server = KubeletServer::new(node.shared(), Arc::new(Masters));
        let serving = tokio::spawn(server.serve(listener, Some(tls), stop.clone()));
        println!("node {name} runs, its server listens on {ip}:{port}");
        node.run(stop).await;
        serving.abort();
        Ok(())
    })
}
