//! The nodes of `capstan up`: this machine, or many that only pretend.

use std::{
    env,
    net::{IpAddr, SocketAddr},
    path::Path,
    sync::Arc,
    time::Duration,
};

use capstan_clock::{Clock as _, OsIds, RealClock};
use capstan_kubelet::{
    node::{Node, SHUTDOWN_GRACE_PERIOD, dns::Dns},
    runtime::{
        Runtime as _,
        cri::Cri,
        process::{Network, NetworkConfig, Process},
    },
    server::{KubeletServer, Webhook},
    simulated,
};
use capstan_runtime::{Stop, Stopper};
use capstan_server::pki;
use tokio::{net::TcpListener, task::JoinSet};

use super::{
    clock_and_ids,
    flags::{Place, PodNetwork, Runtime, UpFlags},
    inside::{self, Inside},
};
use crate::server::{Running, reachable};

/// Where containerd listens.
const CONTAINERD: &str = "/run/containerd/containerd.sock";

/// When pods have to go. The disks of machines that people work on are often almost full, and what fills them is
/// theirs: that is no reason to send pods away.
const MEMORY_ONLY: &str = "memory.available<100Mi";

/// How long the pods of all nodes have to end: as long as a node waits for them, and a little to tell of it.
const PODS_END_WITHIN: Duration = SHUTDOWN_GRACE_PERIOD.saturating_add(Duration::from_secs(10));

/// How long the certificate of a node's server is valid; each start makes a new one.
const SERVING_VALIDITY: Duration = Duration::from_hours(365 * 24);

/// The nodes of a cluster.
pub(super) struct Nodes {
    /// What they are, in words.
    pub(super) what: String,
    stopper: Stopper,
    running: JoinSet<()>,
}

impl Nodes {
    /// Ends their containers; the pods stay bound to them.
    pub(super) async fn shut_down(mut self) {
        self.stopper.stop();
        tokio::select! {
            () = async { while self.running.join_next().await.is_some() {} } => {}
            () = RealClock::new().sleep(PODS_END_WITHIN) => self.running.shutdown().await,
        }
    }
}

/// Starts as many nodes as the flags say.
pub(super) async fn start(inside: &Inside<'_>, flags: &UpFlags, place: &Place) -> Result<Nodes, String> {
    let (stopper, stop) = Stopper::new();
    let mut tasks = JoinSet::new();
    let what = match flags.runtime {
        _ if flags.nodes == 0 => "none".to_owned(),
        Runtime::Simulated => {
            let names = (0..flags.nodes).map(|number| format!("{}-{number}", place.name)).collect();
            let (clock, ids) = clock_and_ids();
            let client = inside.simulated_nodes().await?;
            let nodes = simulated::Nodes::new(client, clock, ids, names).informers(Arc::clone(&inside.informers));
            let nodes = if flags.simulated_events { nodes.events() } else { nodes };
            tasks.spawn(nodes.run(stop));
            format!("{}, simulated", flags.nodes)
        }
        _ if flags.nodes > 1 => {
            return Err("one machine is one node: more of them have to be --runtime simulated".to_owned());
        }
        Runtime::Auto | Runtime::Process | Runtime::Containerd => {
            this_machine(inside, flags, place, &stop, &mut tasks).await?
        }
    };
    Ok(Nodes { what, stopper, running: tasks })
}

/// This machine as a node, with its server.
async fn this_machine(
    inside: &Inside<'_>,
    flags: &UpFlags,
    place: &Place,
    stop: &Stop,
    tasks: &mut JoinSet<()>,
) -> Result<String, String> {
    let (running, runtime) = (inside.running, flags.runtime);
    let name = format!("{}-0", place.name);
    let root = place.directory.join("nodes").join(&name);
    let (clock, ids) = clock_and_ids();
    let mut address = running.address;
    let found = Path::new(CONTAINERD).exists();
    let (mut api_server, mut dns) = (None, Dns::default());
    let (runtime, what): (Arc<dyn capstan_kubelet::runtime::Runtime>, _) = match runtime {
        Runtime::Containerd | Runtime::Auto if found || runtime == Runtime::Containerd => {
            let cri = Cri::connect(Path::new(CONTAINERD), Arc::clone(&clock)).await;
            (Arc::new(cri.map_err(|error| format!("{CONTAINERD}: {error}"))?), "containerd".to_owned())
        }
        _ => {
            let shim = env::current_exe().map_err(|error| error.to_string())?;
            // Where pods share this machine's network: one of the loopback is none that Endpoints may have.
            let pods = vec![reachable(IpAddr::from([0, 0, 0, 0])).to_string()];
            let process = Process::new(&root, &shim, pods, Arc::clone(&clock), Arc::clone(&ids)).await;
            let process = process.map_err(|error| format!("{}: {error}", root.display()))?;
            let process = process.with_network(pod_network(running, flags.pod_network));
            match process.gateway() {
                Ok(gateway) => {
                    // Pods have to reach the node, and the loopback of this machine is not theirs.
                    if address.is_loopback() {
                        address = gateway.into();
                    }
                    dns = dns.without_loopback();
                }
                Err(why) => inside.journal.say("kubelet", format_args!("pods use the network of this machine: {why}")),
            }
            api_server = Some(SocketAddr::new(running.address, running.port));
            let why = if runtime == Runtime::Auto { " (no containerd found)" } else { "" };
            let what = format!("{} runtime{why}", process.name());
            (Arc::new(process), what)
        }
    };
    let listener = TcpListener::bind(SocketAddr::new(address, 0)).await;
    let listener = listener.map_err(|error| format!("the node cannot listen on {address}: {error}"))?;
    let port = listener.local_addr().map_err(|error| error.to_string())?.port();
    let client = inside.client(&format!("kubelet {name}"), inside::node(&name), "kubelet");
    let authorizer = Webhook::new(client.clone(), Arc::clone(&clock), &name);
    let mut node = Node::builder(client, clock, ids);
    if let Some(address) = api_server {
        node = node.api_server(address);
    }
    let node = node
        .name(&name)
        .root_dir(&root)
        .ips(vec![address.to_string()])
        .dns(dns)
        .port(port)
        .eviction(MEMORY_ONLY.parse()?)
        .runtime(runtime)
        .build();
    let server = KubeletServer::new(node.shared(), Arc::new(authorizer));
    let tls = Arc::new(serving(running, &name, address)?);
    tasks.spawn(server.serve(listener, Some(tls), stop.clone()));
    tasks.spawn(node.run(stop.clone()));
    Ok(format!("{name}, {what}"))
}

/// Networks of pods' own, where they are wanted and this machine allows it.
fn pod_network(running: &Running, wanted: PodNetwork) -> Result<Network, String> {
    if wanted == PodNetwork::Host {
        return Err("--pod-network host".to_owned());
    }
    let real = SocketAddr::new(running.address, running.port);
    let config = NetworkConfig { api_server: Some((running.service, real)), ..NetworkConfig::default() };
    Network::open(config, Arc::new(RealClock::new()))
}

/// What the server of a node shows, and whom it believes.
fn serving(running: &Running, name: &str, address: IpAddr) -> Result<rustls::ServerConfig, String> {
    let address = address.to_string();
    let request = pki::Request {
        common_name: &format!("system:node:{name}"),
        organizations: &["system:nodes"],
        alt_names: &[name, &address],
        usages: &["digital signature", "key encipherment", "server auth"],
        validity: SERVING_VALIDITY,
    };
    let certified =
        running.pki.ca.issue(&request, RealClock::new().now(), &OsIds).map_err(|error| error.to_string())?;
    pki::server_config(&certified, &running.pki.ca.own.chain()).map_err(|error| error.to_string())
}
