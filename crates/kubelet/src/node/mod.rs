//! A node: it registers, says that it is there, runs the pods that are bound to it, and tells how they are.

mod admit;
pub mod eviction;
mod grpc;
mod insecure;
pub mod machine;
mod probe;
mod publish;
pub mod register;
mod shared;
mod start;
pub mod statics;
mod worker;

use std::{
    collections::{BTreeMap, BTreeSet},
    path::{Path, PathBuf},
    sync::{Arc, Mutex, PoisonError},
    time::Duration,
};

pub use admit::{Rejection, admit};
use capstan_client::{
    Api, Client, Error, HandlerFuncs, SharedIndexInformer, SharedInformerFactory, reflector::machine::Config,
};
use capstan_clock::{SharedClock, SharedIds};
use capstan_runtime::{EventRecorder, EventType, ObjectReference, Stop};
use k8s_openapi::api::core::v1::{Node as NodeObject, Pod, Service};
use machine::Signals;
use register::{Health, NodeInfo};
pub use shared::{ContainerHandle, PodHandle, Shared};
use tokio::{
    sync::{Notify, watch},
    task::JoinHandle,
};
use worker::{Desired, Worker};

use crate::{qos::quantity, runtime::Runtime};

/// How long after a registration that failed it is tried again.
const REGISTER_RETRY: Duration = Duration::from_secs(1);
/// How often volumes that show objects are made anew.
pub const SYNC_FREQUENCY: Duration = Duration::from_secs(60);
/// How often pressure is looked for and usage measured.
const HOUSEKEEPING: Duration = Duration::from_secs(10);
/// The longest that the end of the node waits for the containers' ends.
const MAX_SHUTDOWN: Duration = Duration::from_secs(30);

/// Where the machine's signals come from; tests bring their own.
pub type SignalSource = Arc<dyn Fn() -> Signals + Send + Sync>;

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
    static_pods: Option<PathBuf>,
    sync_frequency: Duration,
    signals: Option<SignalSource>,
}

impl std::fmt::Debug for NodeBuilder {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("NodeBuilder").field("name", &self.name).finish_non_exhaustive()
    }
}

/// A node that can be run.
pub struct Node {
    shared: Arc<Shared>,
    info: NodeInfo,
    pods: SharedIndexInformer<Pod>,
    services: SharedIndexInformer<Service>,
    _factories: [SharedInformerFactory; 2],
    static_pods: Option<PathBuf>,
    signals: SignalSource,
}

impl std::fmt::Debug for Node {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Node").field("name", &self.shared.name).finish_non_exhaustive()
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

    /// The node. To be called within a tokio runtime.
    ///
    /// # Panics
    /// When no runtime was given.
    #[must_use]
    pub fn build(self) -> Node {
        let runtime = self.runtime.expect("a node needs a runtime");
        let mut info = machine::info(&self.name, &self.root);
        info.ips.clone_from(&self.ips);
        info.port = self.port;
        info.labels = self.labels;
        info.runtime_version = format!("{}://{}", runtime.name(), runtime.version());
        info.limitations = runtime.limitations();
        let source = Arc::new(self.client.clone());
        let config = Config { field_selector: format!("spec.nodeName={}", self.name), ..Config::default() };
        let factory = |config: Config| {
            SharedInformerFactory::new(source.clone(), self.clock.clone(), self.ids.clone()).config(config)
        };
        // The factories are kept: informers end with the factory that made them.
        let factories = [factory(config), factory(Config::default())];
        let (pods, services) = (factories[0].informer::<Pod>(), factories[1].informer::<Service>());
        let of = |name: &str| {
            info.allocatable
                .get(name)
                .map(|text| quantity(&k8s_openapi::apimachinery::pkg::api::resource::Quantity(text.clone())))
        };
        let allocatable = (of("cpu").map_or(0, |q| q.milli_value()), of("memory").map_or(0, |q| q.value()));
        let recorder =
            EventRecorder::for_host(&self.client, "kubelet", &self.name, self.clock.clone(), self.ids.clone());
        let root = self.root.clone();
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
            pods: Mutex::default(),
            usage: Mutex::default(),
        };
        Node {
            shared: Arc::new(shared),
            info,
            pods,
            services,
            _factories: factories,
            static_pods: self.static_pods,
            signals: self.signals.unwrap_or_else(|| Arc::new(move || machine::signals(&root))),
        }
    }
}

/// What has changed and has not been looked at yet: names of pods, each once.
#[derive(Debug, Default)]
struct Dirty {
    names: Mutex<BTreeSet<(String, String)>>,
    notify: Notify,
}

impl Dirty {
    fn add(&self, pod: &Pod) {
        let meta = &pod.metadata;
        let key = (meta.namespace.clone().unwrap_or_default(), meta.name.clone().unwrap_or_default());
        self.names.lock().unwrap_or_else(PoisonError::into_inner).insert(key);
        self.notify.notify_one();
    }

    fn take(&self) -> BTreeSet<(String, String)> {
        std::mem::take(&mut *self.names.lock().unwrap_or_else(PoisonError::into_inner))
    }
}

/// The workers by uid.
type Workers = BTreeMap<String, (watch::Sender<Desired>, JoinHandle<()>)>;

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
            static_pods: None,
            sync_frequency: SYNC_FREQUENCY,
            signals: None,
        }
    }

    /// What its server needs.
    #[must_use]
    pub fn shared(&self) -> Arc<Shared> {
        self.shared.clone()
    }

    /// Runs until it is told to stop; then the containers are ended, but the pods stay bound to the node and go on
    /// when it is run again.
    pub async fn run(self, stop: Stop) {
        let shared = self.shared.clone();
        let clock = shared.clock.clone();
        let dirty = Arc::new(Dirty::default());
        self.listen(&dirty);
        let informers = [
            tokio::spawn({
                let pods = self.pods.clone();
                async move { pods.run().await }
            }),
            tokio::spawn({
                let services = self.services.clone();
                async move { services.run().await }
            }),
        ];
        let mut health = eviction::health(&(self.signals)(), self.not_ready().await);
        let registered = tokio::select! {
            node = self.register(&health) => node,
            () = stop.stopped() => return,
        };
        let node_uid = registered.metadata.uid.clone().unwrap_or_default();
        let reference = ObjectReference::new("v1", "Node", "", &shared.name).with_uid(&node_uid);
        shared.recorder.event(&reference, EventType::Normal, "Starting", "Starting kubelet.");
        for text in shared.runtime.limitations() {
            shared.recorder.event(&reference, EventType::Normal, "RuntimeLimitation", text);
        }
        let name: Arc<str> = shared.name.as_str().into();
        let lease = register::keep_lease(shared.client.clone(), name, node_uid.clone(), clock.clone());
        let lease = tokio::spawn(lease);
        tokio::join!(self.pods.wait_for_sync(), self.services.wait_for_sync());

        let mut workers = Workers::new();
        let mut conditions = registered.status.clone().and_then(|status| status.conditions).unwrap_or_default();
        let mut reported = clock.monotonic();
        let mut node = registered;
        let mut look_at_files = clock.sleep(Duration::ZERO);
        let mut keep_house = clock.sleep(Duration::ZERO);
        let mut statics = BTreeMap::new();
        loop {
            tokio::select! {
                () = stop.stopped() => break,
                () = dirty.notify.notified() => {
                    for (namespace, name) in dirty.take() {
                        self.reconcile(&namespace, &name, &node, &health, &mut workers);
                    }
                }
                () = &mut look_at_files => {
                    if let Some(dir) = &self.static_pods {
                        self.reconcile_files(dir, &node_uid, &mut statics, &mut workers).await;
                    }
                    look_at_files = clock.sleep(statics::CHECK_FREQUENCY);
                }
                () = &mut keep_house => {
                    self.measure().await;
                    let signals = (self.signals)();
                    let now = eviction::health(&signals, self.not_ready().await);
                    self.evict(&now, &signals, &workers);
                    let old = clock.monotonic().since(reported) >= register::STATUS_REPORT_FREQUENCY;
                    if now != health || old {
                        let report =
                            register::report(&shared.client, &self.info, &now, &conditions, clock.now()).await;
                        if let Ok(written) = report {
                            conditions = written.status.clone().and_then(|s| s.conditions).unwrap_or_default();
                            node = written;
                            reported = clock.monotonic();
                            health = now;
                        }
                    }
                    workers.retain(|_, (_, task)| !task.is_finished());
                    keep_house = clock.sleep(HOUSEKEEPING);
                }
            }
        }
        lease.abort();
        self.pods.shut_down();
        self.services.shut_down();
        informers.iter().for_each(JoinHandle::abort);
        self.shut_down(workers).await;
        shared.recorder.flush().await;
    }

    fn listen(&self, dirty: &Arc<Dirty>) {
        let (added, updated, deleted) = (dirty.clone(), dirty.clone(), dirty.clone());
        let handler = HandlerFuncs::new()
            .on_add(move |pod: &Arc<Pod>, _| added.add(pod))
            .on_update(move |_, pod: &Arc<Pod>| updated.add(pod))
            .on_delete(move |pod| deleted.add(pod.object()));
        // It lives as long as the informer.
        let _registration = self.pods.add_event_handler(handler);
    }

    async fn not_ready(&self) -> Option<String> {
        let ready = self.shared.runtime.ready().await;
        ready.err().map(|error| format!("container runtime is down: {error}"))
    }

    async fn register(&self, health: &Health) -> NodeObject {
        loop {
            let clock = &self.shared.clock;
            let done: Result<NodeObject, Error> =
                register::register(&self.shared.client, &self.info, health, clock.now()).await;
            match done {
                Ok(node) => return node,
                Err(_) => clock.sleep(REGISTER_RETRY).await,
            }
        }
    }

    /// Makes the workers of one name be what the API says.
    fn reconcile(&self, namespace: &str, name: &str, node: &NodeObject, health: &Health, workers: &mut Workers) {
        let pod = self.pods.lister().namespace(namespace).get(name);
        let pod = pod.filter(|pod| !annotated(pod, statics::MIRROR));
        let uid = pod.as_ref().and_then(|pod| pod.metadata.uid.clone());
        // Workers of that name whose pod is gone, or is another one now.
        for (known, (desired, _)) in workers.iter() {
            let is = {
                let meta = &desired.borrow().pod.metadata;
                meta.namespace.as_deref() == Some(namespace) && meta.name.as_deref() == Some(name)
            };
            if is && Some(known) != uid.as_ref() && !eviction::is_static(&desired.borrow().pod) {
                desired.send_modify(|desired| desired.gone = true);
            }
        }
        let (Some(pod), Some(uid)) = (pod, uid) else { return };
        if let Some((desired, task)) = workers.get(&uid)
            && !task.is_finished()
        {
            desired.send_modify(|desired| desired.pod = pod);
            return;
        }
        let phase = pod.status.as_ref().and_then(|status| status.phase.as_deref()).unwrap_or_default();
        let over = matches!(phase, "Succeeded" | "Failed");
        let mut fail = None;
        if !over && pod.metadata.deletion_timestamp.is_none() {
            let others: Vec<Pod> = self.active(workers, &uid);
            let verdict = if eviction::takes_under_pressure(health, &pod) {
                admit(&pod, node, others.iter())
            } else {
                let pressure = if health.memory_pressure { "MemoryPressure" } else { "DiskPressure" };
                let message = format!("The node had condition: [{pressure}]. ");
                Err(Rejection { reason: "Evicted".to_owned(), message })
            };
            if let Err(Rejection { reason, message }) = verdict {
                self.shared.event(&pod, None, true, &reason, message.clone());
                fail = Some((reason, format!("Pod was rejected: {message}"), None, false));
            }
        }
        let (sender, desired) = watch::channel(Desired { pod, gone: false, fail });
        let task = tokio::spawn(Worker::run(self.shared.clone(), desired));
        workers.insert(uid, (sender, task));
    }

    /// The pods that hold resources of the node.
    fn active(&self, workers: &Workers, but: &str) -> Vec<Pod> {
        let handles = self.shared.pods();
        let over = |uid: &str| {
            let phase = handles.get(uid).and_then(|handle| handle.status.phase.clone());
            matches!(phase.as_deref(), Some("Succeeded" | "Failed"))
        };
        workers
            .iter()
            .filter(|(uid, (desired, task))| {
                *uid != but && !task.is_finished() && desired.borrow().fail.is_none() && !over(uid)
            })
            .map(|(_, (desired, _))| (*desired.borrow().pod).clone())
            .collect()
    }

    /// Makes the workers and mirrors of static pods be what the directory says.
    async fn reconcile_files(
        &self,
        dir: &Path,
        node_uid: &str,
        known: &mut BTreeMap<String, Pod>,
        workers: &mut Workers,
    ) {
        let wanted = statics::read(dir, &self.shared.name);
        for (uid, pod) in known.iter().filter(|(uid, _)| !wanted.contains_key(*uid)) {
            if let Some((desired, _)) = workers.get(uid) {
                desired.send_modify(|desired| desired.gone = true);
            }
            self.delete_mirror(pod).await;
        }
        for (uid, pod) in &wanted {
            if !workers.contains_key(uid) {
                let desired = Desired { pod: Arc::new(pod.clone()), gone: false, fail: None };
                let (sender, desired) = watch::channel(desired);
                workers.insert(uid.clone(), (sender, tokio::spawn(Worker::run(self.shared.clone(), desired))));
            }
            let (Some(namespace), Some(name)) = (&pod.metadata.namespace, &pod.metadata.name) else { continue };
            let there = self.pods.lister().namespace(namespace).get(name);
            let hash = there.as_ref().and_then(|pod| pod.metadata.annotations.as_ref()?.get(statics::MIRROR).cloned());
            if there.is_some() && hash.as_ref() != Some(uid) {
                self.delete_mirror(pod).await;
            }
            if hash.as_ref() != Some(uid) {
                let mirror = statics::mirror(pod, node_uid);
                // Tried again at the next look.
                let _ = Api::<Pod>::namespaced(&self.shared.client, namespace).create(&mirror).await;
            }
        }
        *known = wanted;
    }

    async fn delete_mirror(&self, pod: &Pod) {
        let (Some(namespace), Some(name)) = (&pod.metadata.namespace, &pod.metadata.name) else { return };
        let options = capstan_api::options::DeleteOptions { grace_period_seconds: Some(0), ..Default::default() };
        let _ = Api::<Pod>::namespaced(&self.shared.client, namespace).delete(name, &options).await;
    }

    /// Asks the runtime what containers use.
    async fn measure(&self) {
        if let Ok(stats) = self.shared.runtime.stats().await {
            crate::metrics::keep(&self.shared, stats);
        }
    }

    /// Ends one pod if the machine needs what it uses.
    fn evict(&self, health: &Health, signals: &Signals, workers: &Workers) {
        let active = self.active(workers, "");
        let usage = self.shared.usage.lock().unwrap_or_else(PoisonError::into_inner).clone();
        let memory = |pod: &Pod| {
            let uid = pod.metadata.uid.as_deref().unwrap_or_default();
            usage.iter().filter(|stats| stats.pod_uid == uid).map(|stats| stats.memory_bytes).sum()
        };
        let pods: Vec<(&Pod, u64)> = active.iter().map(|pod| (pod, memory(pod))).collect();
        let Some((victim, message)) = eviction::victim(health, signals, &pods) else { return };
        let uid = victim.metadata.uid.clone().unwrap_or_default();
        if let Some((desired, _)) = workers.get(&uid) {
            self.shared.event(victim, None, true, "Evicted", message.clone());
            let grace = Some(Duration::ZERO);
            desired.send_modify(|desired| desired.fail = Some(("Evicted".to_owned(), message, grace, true)));
        }
    }

    /// Ends what runs, all at once and each within its grace period; what the API knows of the pods stays.
    async fn shut_down(&self, workers: Workers) {
        for (_, task) in workers.values() {
            task.abort();
        }
        let handles: Vec<PodHandle> = self.shared.pods().values().cloned().collect();
        let mut ends = Vec::new();
        for handle in handles {
            let spec = handle.pod.spec.as_ref();
            let seconds = spec.and_then(|spec| spec.termination_grace_period_seconds).unwrap_or(30);
            let grace = Duration::from_secs(u64::try_from(seconds).unwrap_or(0)).min(MAX_SHUTDOWN);
            for container in handle.containers.into_values().filter(|container| container.running) {
                let runtime = self.shared.runtime.clone();
                ends.push(tokio::spawn(async move {
                    let _ = runtime.stop_container(&container.id, grace).await;
                    let _ = runtime.remove_container(&container.id).await;
                }));
            }
            if let Some(sandbox) = handle.sandbox {
                let runtime = self.shared.runtime.clone();
                let before = std::mem::take(&mut ends);
                ends.push(tokio::spawn(async move {
                    for end in before {
                        let _ = end.await;
                    }
                    let _ = runtime.stop_sandbox(&sandbox).await;
                }));
            }
        }
        for end in ends {
            let _ = end.await;
        }
    }
}

fn annotated(pod: &Pod, name: &str) -> bool {
    pod.metadata.annotations.as_ref().is_some_and(|annotations| annotations.contains_key(name))
}
