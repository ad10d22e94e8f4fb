//! What a node is made of, before it runs.

use std::{
    collections::BTreeMap,
    net::SocketAddr,
    path::{Path, PathBuf},
    sync::{Arc, Mutex},
    time::Duration,
};

use capstan_client::{Client, SharedInformerFactory, reflector::machine::Config};
use capstan_clock::{SharedClock, SharedIds};
use capstan_runtime::EventRecorder;
use k8s_openapi::{
    api::core::v1::{Node as NodeObject, Pod, Service, Taint},
    apimachinery::pkg::api::resource::Quantity,
};

use super::{
    Node, SHUTDOWN_GRACE_PERIOD, SYNC_FREQUENCY,
    dns::Dns,
    eviction::Thresholds,
    machine::{self, Signals},
    shared::{Log, Shared},
};
use crate::{qos::quantity, runtime::Runtime};

/// Where the machine's signals come from; tests bring their own.
pub type SignalSource = Arc<dyn Fn() -> Signals + Send + Sync>;

/// How many pods a node takes when nobody says.
const MAX_PODS: u32 = 110;

/// What a node is made of.
pub struct NodeBuilder {
    client: Client,
    clock: SharedClock,
    ids: SharedIds,
    name: String,
    root: PathBuf,
    runtime: Option<Arc<dyn Runtime>>,
    ips: Vec<String>,
    port: u16,
    labels: BTreeMap<String, String>,
    taints: Vec<Taint>,
    max_pods: u32,
    static_pods: Option<PathBuf>,
    sync_frequency: Duration,
    signals: Option<SignalSource>,
    thresholds: Thresholds,
    dns: Dns,
    api_server: Option<SocketAddr>,
    shutdown_grace_period: Duration,
    log: Log,
}

impl std::fmt::Debug for NodeBuilder {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("NodeBuilder").field("name", &self.name).finish_non_exhaustive()
    }
}

impl Node {
    /// A node that reaches the cluster by `client`.
    #[must_use]
    pub fn builder(client: Client, clock: SharedClock, ids: SharedIds) -> NodeBuilder {
        NodeBuilder {
            client,
            clock,
            ids,
            name: "capstan-0".to_owned(),
            root: PathBuf::from("/var/lib/capstan/kubelet"),
            runtime: None,
            ips: vec!["127.0.0.1".to_owned()],
            port: 0,
            labels: BTreeMap::new(),
            taints: Vec::new(),
            max_pods: MAX_PODS,
            static_pods: None,
            sync_frequency: SYNC_FREQUENCY,
            signals: None,
            thresholds: Thresholds::default(),
            dns: Dns::default(),
            api_server: None,
            shutdown_grace_period: SHUTDOWN_GRACE_PERIOD,
            log: Arc::new(|_| {}),
        }
    }
}

impl NodeBuilder {
    /// Its name.
    #[must_use]
    pub fn name(mut self, name: &str) -> Self {
        name.clone_into(&mut self.name);
        self
    }

    /// Where it keeps its files.
    #[must_use]
    pub fn root_dir(mut self, root: &Path) -> Self {
        root.clone_into(&mut self.root);
        self
    }

    /// What runs its containers.
    #[must_use]
    pub fn runtime(mut self, runtime: Arc<dyn Runtime>) -> Self {
        self.runtime = Some(runtime);
        self
    }

    /// Its addresses, the primary one first.
    #[must_use]
    pub fn ips(mut self, ips: Vec<String>) -> Self {
        self.ips = ips;
        self
    }

    /// The port of its server, for the API server to find.
    #[must_use]
    pub fn port(mut self, port: u16) -> Self {
        self.port = port;
        self
    }

    /// A label of its own.
    #[must_use]
    pub fn label(mut self, key: &str, value: &str) -> Self {
        self.labels.insert(key.to_owned(), value.to_owned());
        self
    }

    /// Taints that it registers with; a node that is there already keeps its own.
    #[must_use]
    pub fn taints(mut self, taints: Vec<Taint>) -> Self {
        self.taints = taints;
        self
    }

    /// How many pods it takes; 110 when not said.
    #[must_use]
    pub fn max_pods(mut self, pods: u32) -> Self {
        self.max_pods = pods;
        self
    }

    /// Where manifests of static pods are.
    #[must_use]
    pub fn static_pods(mut self, dir: &Path) -> Self {
        self.static_pods = Some(dir.to_owned());
        self
    }

    /// How often volumes that show objects are made anew; a minute when not said.
    #[must_use]
    pub fn sync_frequency(mut self, every: Duration) -> Self {
        self.sync_frequency = every;
        self
    }

    /// Where signals of pressure come from; this machine when not said.
    #[must_use]
    pub fn signals(mut self, source: SignalSource) -> Self {
        self.signals = Some(source);
        self
    }

    /// What must stay free on this machine; upstream's thresholds when not said.
    #[must_use]
    pub fn eviction(mut self, thresholds: Thresholds) -> Self {
        self.thresholds = thresholds;
        self
    }

    /// Where pods on the node's network find the API server, for machines on which nothing leads from the addresses of
    /// Services to anywhere.
    #[must_use]
    pub fn api_server(mut self, address: SocketAddr) -> Self {
        self.api_server = Some(address);
        self
    }

    /// The longest that its end waits for pods with longer grace periods; two minutes when not said.
    #[must_use]
    pub fn shutdown_grace_period(mut self, most: Duration) -> Self {
        self.shutdown_grace_period = most;
        self
    }

    /// Who resolves names for pods; the node's own servers when not said.
    #[must_use]
    pub fn dns(mut self, dns: Dns) -> Self {
        self.dns = dns;
        self
    }

    /// Where it says what goes wrong with nobody's pod; nowhere when not said.
    #[must_use]
    pub fn log(mut self, log: Log) -> Self {
        self.log = log;
        self
    }

    /// The node. To be called within a tokio runtime.
    ///
    /// # Panics
    /// When no runtime was given.
    #[must_use]
    pub fn build(self) -> Node {
        let runtime = self.runtime.expect("a node needs a runtime");
        let mut info = machine::info(&self.name, &self.root, &self.thresholds);
        info.ips.clone_from(&self.ips);
        info.port = self.port;
        info.labels = self.labels;
        info.taints = self.taints;
        for map in [&mut info.capacity, &mut info.allocatable] {
            map.insert("pods".to_owned(), self.max_pods.to_string());
        }
        info.runtime_version = format!("{}://{}", runtime.name(), runtime.version());
        info.limitations = runtime.limitations();
        let source = Arc::new(self.client.clone());
        let only = |field: &str| Config { field_selector: format!("{field}={}", self.name), ..Config::default() };
        let factory = |config: Config| {
            SharedInformerFactory::new(source.clone(), self.clock.clone(), self.ids.clone())
                .config(config)
                .without_managed_fields()
        };
        // The factories are kept: informers end with the factory that made them.
        let factories = [factory(only("spec.nodeName")), factory(Config::default()), factory(only("metadata.name"))];
        let (pods, services) = (factories[0].informer::<Pod>(), factories[1].informer::<Service>());
        let nodes = factories[2].informer::<NodeObject>();
        let of = |name: &str| info.allocatable.get(name).map(|text| quantity(&Quantity(text.clone())));
        let allocatable = (of("cpu").map_or(0, |q| q.milli_value()), of("memory").map_or(0, |q| q.value()));
        let recorder =
            EventRecorder::for_host(&self.client, "kubelet", &self.name, self.clock.clone(), self.ids.clone());
        let shared = Shared {
            name: self.name,
            client: self.client,
            runtime,
            clock: self.clock,
            ids: self.ids,
            root: self.root,
            host_ips: self.ips,
            recorder,
            services: services.lister(),
            sync_frequency: self.sync_frequency,
            allocatable,
            dns: self.dns,
            api_server: self.api_server,
            log: self.log,
            users: Mutex::default(),
            pods: Mutex::default(),
            usage: Mutex::default(),
            left_over: Mutex::default(),
        };
        Node {
            shared: Arc::new(shared),
            info,
            pods,
            services,
            nodes,
            _factories: factories,
            static_pods: self.static_pods,
            signals: self.signals,
            thresholds: self.thresholds,
            shutdown_grace_period: self.shutdown_grace_period,
        }
    }
}
