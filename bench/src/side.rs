//! The sides of a comparison: how each one's server is started, both with tokens, TLS and stores that sync.

use std::{
    fs,
    net::{Ipv4Addr, SocketAddr, TcpListener},
    path::{Path, PathBuf},
    sync::{
        Arc, Mutex, PoisonError,
        atomic::{AtomicU64, Ordering},
    },
    time::Duration,
};

use capstan_clock::{Clock, Ids as _, Moment, OsIds, RealClock};
use capstan_server::pki::{self, Pki};
use tokio::{net::TcpStream, task::JoinHandle};

use crate::{
    client::{Call, Connection, Endpoint},
    process::{Process, Usage},
};

/// How long a server may take to answer its first request.
const PATIENCE: Duration = Duration::from_secs(120);
/// How often it is tried.
const TRY: Duration = Duration::from_millis(1);
/// How often memory is looked at for the plots.
const SAMPLE: Duration = Duration::from_millis(250);

/// A kind of server, and its binaries.
#[derive(Clone, Debug)]
pub(crate) enum Side {
    /// Ours.
    Capstan { binary: PathBuf },
    /// Ours with all that belongs to a cluster, and so many simulated nodes.
    Cluster { binary: PathBuf, nodes: u64 },
    /// kube-apiserver and etcd.
    Upstream { binaries: PathBuf },
}

/// How fast a manager may ask.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Pace {
    /// As it is without flags.
    Shipped,
    /// As fast as it can.
    Unthrottled,
}

/// Memory over time: seconds since the start and MB.
pub(crate) type Series = Arc<Mutex<Vec<(f64, f64)>>>;

/// A server that runs.
pub(crate) struct Running {
    pub(crate) side: Side,
    pub(crate) endpoint: Endpoint,
    pub(crate) memory: Series,
    directory: PathBuf,
    processes: Arc<Vec<Process>>,
    sampler: JoinHandle<()>,
    next: AtomicU64,
}

impl Side {
    pub(crate) fn name(&self) -> &'static str {
        match self {
            Side::Capstan { .. } | Side::Cluster { .. } => "capstan",
            Side::Upstream { .. } => "upstream",
        }
    }

    /// The binaries, as they are called.
    pub(crate) fn binaries(&self) -> Vec<PathBuf> {
        match self {
            Side::Capstan { binary } | Side::Cluster { binary, .. } => vec![binary.clone()],
            Side::Upstream { binaries } => vec![binaries.join("etcd"), binaries.join("kube-apiserver")],
        }
    }

    /// How many bytes they are.
    pub(crate) fn binary_bytes(&self) -> Result<u64, String> {
        let length = |file: &PathBuf| match fs::metadata(file) {
            Ok(metadata) => Ok(metadata.len()),
            Err(error) => Err(format!("{}: {error}", file.display())),
        };
        self.binaries().iter().map(length).sum()
    }

    /// The flags, with what differs from run to run left out.
    pub(crate) fn flags(&self) -> String {
        let place = Path::new("DIR");
        let all = match self {
            Side::Capstan { .. } => capstan_flags(place, 0),
            Side::Cluster { nodes, .. } => cluster_flags(place, 0, *nodes),
            Side::Upstream { .. } => [etcd_flags(place, 0, 0), apiserver_flags(place, 0, 0)].concat(),
        };
        all.join(" ")
    }

    /// Starts a server with its state in `directory`, where there may be one already, and waits until it has answered
    /// `first`. Says how long that took from the spawn of its process (of the first of its processes).
    pub(crate) async fn start(&self, directory: &Path, first: &Call) -> Result<(Running, Duration), String> {
        let fail = |error: std::io::Error| format!("{}: {error}", directory.display());
        fs::create_dir_all(directory).map_err(fail)?;
        let mut random = [0; 16];
        OsIds.fill(&mut random);
        let token = random.map(|byte| format!("{byte:02x}")).concat();
        fs::write(directory.join("tokens.csv"), format!("{token},admin,admin,system:masters\n")).map_err(fail)?;
        let port = free_port().map_err(fail)?;
        let address = SocketAddr::from((Ipv4Addr::LOCALHOST, port));
        let clock = RealClock::new();
        let mut processes = Vec::new();
        let began = match self {
            Side::Capstan { binary } => {
                let began = clock.monotonic();
                processes.push(Process::start(binary, &capstan_flags(directory, port), directory)?);
                began
            }
            Side::Cluster { binary, nodes } => {
                let began = clock.monotonic();
                processes.push(Process::start(binary, &cluster_flags(directory, port, *nodes), directory)?);
                began
            }
            Side::Upstream { binaries } => {
                let options = pki::Options {
                    host: "localhost".to_owned(),
                    service_ip: Ipv4Addr::new(10, 0, 0, 1).into(),
                    extra: Vec::new(),
                };
                Pki::open(&directory.join("pki"), &options, clock.now(), &OsIds).map_err(|error| error.to_string())?;
                let (client, peer) = (free_port().map_err(fail)?, free_port().map_err(fail)?);
                let began = clock.monotonic();
                processes.push(Process::start(
                    &binaries.join("etcd"),
                    &etcd_flags(directory, client, peer),
                    directory,
                )?);
                // kube-apiserver waits a second when etcd isn't there at its first try, so it is started after it.
                until_open(&clock, client, &mut processes[0]).await?;
                let flags = apiserver_flags(directory, port, client);
                processes.push(Process::start(&binaries.join("kube-apiserver"), &flags, directory)?);
                began
            }
        };
        let endpoint =
            until_answered(&clock, address, &directory.join("pki/ca.crt"), &token, first, &mut processes).await?;
        let took = clock.monotonic().since(began);
        let (processes, memory) = (Arc::new(processes), Series::default());
        let sampler = tokio::spawn(sample(Arc::clone(&processes), Arc::clone(&memory)));
        let (side, directory, next) = (self.clone(), directory.to_owned(), AtomicU64::new(0));
        Ok((Running { side, endpoint, memory, directory, processes, sampler, next }, took))
    }
}

impl Running {
    /// A number that this server has not given yet, for names.
    pub(crate) fn next(&self) -> u64 {
        self.next.fetch_add(1, Ordering::Relaxed)
    }

    /// What all its processes use.
    pub(crate) fn usage(&self) -> Usage {
        self.processes.iter().map(Process::usage).fold(Usage::default(), |sum, each| sum + each)
    }

    /// From now on the peak of memory is counted anew.
    pub(crate) fn forget_peak(&self) {
        for process in self.processes.iter() {
            process.forget_peak();
        }
    }

    /// The number of its process; of the last one that was started when there are several.
    pub(crate) fn process(&self) -> Option<u32> {
        self.processes.last().map(Process::id)
    }

    /// Starts a controller manager of this side against this server.
    pub(crate) fn manager(&self, pace: Pace) -> Result<Process, String> {
        let fail = |error: std::io::Error| format!("{}: {error}", self.directory.display());
        let directory = self.directory.display();
        let tokens = fs::read_to_string(self.directory.join("tokens.csv")).map_err(fail)?;
        let token = tokens.split(',').next().unwrap_or_default();
        let kubeconfig = pki::kubeconfig(
            "bench",
            &format!("https://{}", self.endpoint.address()),
            &fs::read_to_string(self.directory.join("pki/ca.crt")).map_err(fail)?,
            "admin",
            pki::Credential::Token(token),
        );
        fs::write(self.directory.join("kubeconfig"), kubeconfig).map_err(fail)?;
        let mut flags =
            vec![format!("--kubeconfig={directory}/kubeconfig"), format!("--root-ca-file={directory}/pki/ca.crt")];
        match &self.side {
            Side::Capstan { binary } | Side::Cluster { binary, .. } => {
                flags.insert(0, "controllers".to_owned());
                Process::start(binary, &flags, &self.directory)
            }
            Side::Upstream { binaries } => {
                flags.push("--secure-port=0".to_owned());
                if pace == Pace::Unthrottled {
                    flags.extend(["--kube-api-qps=10000".to_owned(), "--kube-api-burst=10000".to_owned()]);
                }
                Process::start(&binaries.join("kube-controller-manager"), &flags, &self.directory)
            }
        }
    }

    /// Where its state is.
    pub(crate) fn directory(&self) -> &Path {
        &self.directory
    }

    /// One more connection.
    pub(crate) async fn connect(&self) -> Result<Connection, String> {
        self.endpoint.connect().await.map_err(|error| format!("{}: {error}", self.side.name()))
    }

    /// A kubeconfig of this server, for programs of others.
    pub(crate) fn kubeconfig(&self) -> Result<PathBuf, String> {
        let path = self.directory.join("bench.kubeconfig");
        let fail = |error: std::io::Error| format!("{}: {error}", path.display());
        let tokens = fs::read_to_string(self.directory.join("tokens.csv")).map_err(fail)?;
        let token = tokens.split(',').next().unwrap_or_default();
        let (address, ca) = (self.endpoint.address(), self.directory.join("pki/ca.crt"));
        let text = format!(
            "apiVersion: v1\nkind: Config\ncurrent-context: bench\n\
             clusters: [{{name: bench, cluster: {{server: 'https://{address}', certificate-authority: '{}'}}}}]\n\
             users: [{{name: bench, user: {{token: {token}}}}}]\n\
             contexts: [{{name: bench, context: {{cluster: bench, user: bench}}}}]\n",
            ca.display(),
        );
        fs::write(&path, text).map_err(fail)?;
        Ok(path)
    }

    /// Ends it in order, with its state left where it is; says where.
    pub(crate) async fn stop(self) -> PathBuf {
        self.sampler.abort();
        let directory = self.directory.clone();
        let mut processes = Arc::clone(&self.processes);
        drop(self);
        // The sampler lets go of them as soon as it has been ended.
        let processes = loop {
            match Arc::try_unwrap(processes) {
                Ok(processes) => break processes,
                Err(shared) => processes = shared,
            }
            tokio::task::yield_now().await;
        };
        // What uses a part ends before it.
        for process in processes.into_iter().rev() {
            process.stop().await;
        }
        directory
    }
}

impl Drop for Running {
    fn drop(&mut self) {
        self.sampler.abort();
    }
}

async fn sample(processes: Arc<Vec<Process>>, series: Series) {
    let clock = RealClock::new();
    loop {
        let rss = processes.iter().map(|process| process.usage().rss).sum();
        series.lock().unwrap_or_else(PoisonError::into_inner).push((clock.monotonic().0.as_secs_f64(), rss));
        clock.sleep(SAMPLE).await;
    }
}

fn free_port() -> std::io::Result<u16> {
    Ok(TcpListener::bind((Ipv4Addr::LOCALHOST, 0))?.local_addr()?.port())
}

async fn until_open(clock: &RealClock, port: u16, process: &mut Process) -> Result<(), String> {
    let end = clock.monotonic().plus(PATIENCE);
    while TcpStream::connect((Ipv4Addr::LOCALHOST, port)).await.is_err() {
        process.check()?;
        give_up(clock, end, "it does not listen")?;
        clock.sleep(TRY).await;
    }
    Ok(())
}

async fn until_answered(
    clock: &RealClock,
    address: SocketAddr,
    ca: &Path,
    token: &str,
    first: &Call,
    processes: &mut [Process],
) -> Result<Endpoint, String> {
    let end = clock.monotonic().plus(PATIENCE);
    loop {
        let mut problem = "it does not listen".to_owned();
        if TcpStream::connect(address).await.is_ok() {
            match answered(address, ca, token, first).await {
                Ok(endpoint) => return Ok(endpoint),
                Err(error) => problem = error,
            }
        }
        for process in &mut *processes {
            process.check()?;
        }
        give_up(clock, end, &problem)?;
        clock.sleep(TRY).await;
    }
}

/// One try. The certificate of the authority may not be there yet either.
async fn answered(address: SocketAddr, ca: &Path, token: &str, first: &Call) -> Result<Endpoint, String> {
    let endpoint = Endpoint::new(address, ca, token)?;
    let connection = endpoint.connect().await.map_err(|error| error.to_string())?;
    connection.call(first.clone()).await.map_err(|error| error.to_string())?;
    Ok(endpoint)
}

fn give_up(clock: &RealClock, end: Moment, problem: &str) -> Result<(), String> {
    if clock.monotonic() < end {
        return Ok(());
    }
    Err(format!("the server was not ready after {} s: {problem}", PATIENCE.as_secs()))
}

fn strings<const N: usize>(flags: [String; N]) -> Vec<String> {
    flags.into()
}

fn capstan_flags(directory: &Path, port: u16) -> Vec<String> {
    let directory = directory.display();
    strings([
        "server".to_owned(),
        format!("--data-dir={directory}"),
        format!("--secure-port={port}"),
        "--bind-address=127.0.0.1".to_owned(),
        format!("--token-auth-file={directory}/tokens.csv"),
        "--authorization-mode=Node,RBAC".to_owned(),
        "--disable-admission-plugins=ServiceAccount".to_owned(),
    ])
}

fn cluster_flags(directory: &Path, port: u16, nodes: u64) -> Vec<String> {
    let directory = directory.display();
    strings([
        "up".to_owned(),
        format!("--data-dir={directory}"),
        format!("--secure-port={port}"),
        format!("--write-kubeconfig={directory}/kubeconfig.bench"),
        format!("--token-auth-file={directory}/tokens.csv"),
        format!("--nodes={nodes}"),
        "--runtime=simulated".to_owned(),
    ])
}

pub(crate) fn etcd_flags(directory: &Path, client: u16, peer: u16) -> Vec<String> {
    strings([
        format!("--data-dir={}/etcd", directory.display()),
        format!("--listen-client-urls=http://127.0.0.1:{client}"),
        format!("--advertise-client-urls=http://127.0.0.1:{client}"),
        format!("--listen-peer-urls=http://127.0.0.1:{peer}"),
        format!("--initial-advertise-peer-urls=http://127.0.0.1:{peer}"),
        format!("--initial-cluster=default=http://127.0.0.1:{peer}"),
        "--log-level=warn".to_owned(),
        // The default of 2 GiB is too little for the largest counts.
        format!("--quota-backend-bytes={}", 8_u64 << 30),
    ])
}

fn apiserver_flags(directory: &Path, port: u16, etcd: u16) -> Vec<String> {
    let directory = directory.display();
    strings([
        format!("--etcd-servers=http://127.0.0.1:{etcd}"),
        "--bind-address=127.0.0.1".to_owned(),
        format!("--secure-port={port}"),
        format!("--tls-cert-file={directory}/pki/apiserver.crt"),
        format!("--tls-private-key-file={directory}/pki/apiserver.key"),
        format!("--client-ca-file={directory}/pki/ca.crt"),
        format!("--token-auth-file={directory}/tokens.csv"),
        "--authorization-mode=Node,RBAC".to_owned(),
        "--disable-admission-plugins=ServiceAccount".to_owned(),
        "--allow-privileged".to_owned(),
        "--service-cluster-ip-range=10.0.0.0/24".to_owned(),
        "--service-account-issuer=https://kubernetes.default.svc".to_owned(),
        format!("--service-account-key-file={directory}/pki/sa.pub"),
        format!("--service-account-signing-key-file={directory}/pki/sa.key"),
    ])
}
