//! A node: it registers, says that it is there, runs the pods that are bound to it, and tells how they are.

mod admit;
mod builder;
pub mod dns;
pub mod eviction;
mod grpc;
mod housekeeping;
mod images;
pub(crate) mod insecure;
pub mod machine;
mod probe;
mod publish;
pub mod register;
mod sandbox;
mod security;
mod shared;
mod shutdown;
mod start;
pub mod statics;
pub(crate) mod storage;
mod worker;

use std::{
    collections::{BTreeMap, BTreeSet},
    path::{Path, PathBuf},
    sync::{Arc, PoisonError},
    time::Duration,
};

use admit::NODE_AFFINITY;
pub use admit::{Rejection, admit};
pub use builder::{NodeBuilder, SignalSource};
use capstan_api::selector::Selector;
use capstan_client::{Api, Error, SharedIndexInformer, SharedInformerFactory};
use capstan_runtime::{EventType, ObjectReference, Stop};
use eviction::Thresholds;
use images::ImageGc;
use k8s_openapi::api::core::v1::{Node as NodeObject, Pod, Service};
use register::{Health, NodeInfo};
pub(crate) use shared::reference;
pub use shared::{ContainerHandle, Log, PodHandle, Shared};
pub use shutdown::SHUTDOWN_GRACE_PERIOD;
use tokio::{sync::watch, task::JoinHandle};
use worker::{Desired, Worker};

use crate::{
    dirty::Dirty,
    lifecycle::{resize_message, same_resources, with_resources_of},
    runtime::RuntimeError,
};

/// How long after a registration that failed, or an engine that did not answer, it is tried again.
const REGISTER_RETRY: Duration = Duration::from_secs(1);
/// How often volumes that show objects are made anew.
pub const SYNC_FREQUENCY: Duration = Duration::from_secs(60);
/// How often pressure is looked for and usage measured.
const HOUSEKEEPING: Duration = Duration::from_secs(10);
/// How often images are looked at.
const IMAGE_GC: Duration = Duration::from_secs(300);

/// A node that can be run.
pub struct Node {
    shared: Arc<Shared>,
    info: NodeInfo,
    pods: SharedIndexInformer<Pod>,
    services: SharedIndexInformer<Service>,
    /// Its own object: others label and taint it.
    nodes: SharedIndexInformer<NodeObject>,
    _factories: [SharedInformerFactory; 3],
    static_pods: Option<PathBuf>,
    signals: Option<SignalSource>,
    thresholds: Thresholds,
    shutdown_grace_period: Duration,
}

impl std::fmt::Debug for Node {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Node").field("name", &self.shared.name).finish_non_exhaustive()
    }
}

/// The workers by uid.
type Workers = BTreeMap<String, (watch::Sender<Desired>, JoinHandle<()>)>;

impl Node {
    /// What its server needs.
    #[must_use]
    pub fn shared(&self) -> Arc<Shared> {
        self.shared.clone()
    }

    /// Runs until it is told to stop; then the containers are ended, each after its hook and within the grace period of
    /// its pod, but the pods stay bound to the node and go on when it is run again.
    pub async fn run(self, stop: Stop) {
        let shared = self.shared.clone();
        let clock = shared.clock.clone();
        let dirty = Dirty::of(&self.pods);
        let informers = [
            tokio::spawn({
                let pods = self.pods.clone();
                async move { pods.run().await }
            }),
            tokio::spawn({
                let services = self.services.clone();
                async move { services.run().await }
            }),
            tokio::spawn({
                let nodes = self.nodes.clone();
                async move { nodes.run().await }
            }),
        ];
        let (_, mut health) = self.look_at_machine().await;
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
        tokio::join!(self.pods.wait_for_sync(), self.services.wait_for_sync(), self.nodes.wait_for_sync());
        // Who doesn't know what runs already must not start it a second time.
        let sorted = async {
            while let Err(error) = self.sort_left_over().await {
                shared.log(&format!("cannot find out what runs already, trying again: {error}"));
                clock.sleep(REGISTER_RETRY).await;
            }
        };
        let mut goes_on = tokio::select! {
            () = sorted => true,
            () = stop.stopped() => false,
        };

        let mut workers = Workers::new();
        let mut conditions = registered.status.clone().and_then(|status| status.conditions).unwrap_or_default();
        let mut reported = clock.monotonic();
        let mut node = registered;
        let mut look_at_files = clock.sleep(Duration::ZERO);
        let mut keep_house = clock.sleep(Duration::ZERO);
        let mut look_at_images = clock.sleep(IMAGE_GC);
        let mut images = ImageGc::default();
        let mut statics = BTreeMap::new();
        while goes_on {
            tokio::select! {
                () = stop.stopped() => goes_on = false,
                () = dirty.notified() => {
                    for (namespace, name) in dirty.take() {
                        self.reconcile(&namespace, &name, &node, &health, &mut workers).await;
                    }
                }
                () = &mut look_at_files => {
                    if let Some(dir) = &self.static_pods {
                        self.reconcile_files(dir, &node_uid, &mut statics, &mut workers).await;
                    }
                    look_at_files = clock.sleep(statics::CHECK_FREQUENCY);
                }
                () = &mut look_at_images => {
                    self.collect_images(&mut images, &reference).await;
                    look_at_images = clock.sleep(IMAGE_GC);
                }
                () = &mut keep_house => {
                    self.measure().await;
                    self.rotate_logs().await;
                    for (namespace, name) in deferred(&workers) {
                        self.reconcile(&namespace, &name, &node, &health, &mut workers).await;
                    }
                    let (signals, now) = self.look_at_machine().await;
                    if !self.evict_for_storage(&workers).await {
                        self.evict(&signals, &workers);
                    }
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
        self.nodes.shut_down();
        informers.iter().for_each(JoinHandle::abort);
        workers.values().for_each(|(_, task)| task.abort());
        shutdown::end(&shared, self.shutdown_grace_period).await;
        if let Err(error) = shared.runtime.close().await {
            shared.log(&format!("cannot take away what pods shared: {error}"));
        }
        shared.recorder.flush().await;
    }

    async fn register(&self, health: &Health) -> NodeObject {
        loop {
            let clock = &self.shared.clock;
            let done: Result<NodeObject, Error> =
                register::register(&self.shared.client, &self.info, health, clock.now()).await;
            match done {
                Ok(node) => return node,
                Err(error) => {
                    self.shared.log(&format!("cannot register the node, trying again: {error}"));
                    clock.sleep(REGISTER_RETRY).await;
                }
            }
        }
    }

    /// Makes the workers of one name be what the API says.
    async fn reconcile(&self, namespace: &str, name: &str, node: &NodeObject, health: &Health, workers: &mut Workers) {
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
            let over = pod.metadata.deletion_timestamp.is_some();
            let resized = !over && !same_resources(&pod, &desired.borrow().pod);
            let verdict = if resized { self.verdict(&pod, node, &self.active(workers, &uid)).await } else { Ok(()) };
            desired.send_modify(|desired| self.update(desired, &pod, resized, verdict));
            return;
        }
        let phase = pod.status.as_ref().and_then(|status| status.phase.as_deref()).unwrap_or_default();
        let over = matches!(phase, "Succeeded" | "Failed");
        let mut fail = None;
        if !over && pod.metadata.deletion_timestamp.is_none() {
            let verdict = match eviction::refusal(health, &pod) {
                None => self.verdict(&pod, node, &self.active(workers, &uid)).await,
                Some(message) => Err(Rejection { reason: "Evicted".to_owned(), message }),
            };
            if let Err(Rejection { reason, message }) = verdict {
                self.shared.event(&pod, None, true, &reason, message.clone());
                fail = Some((reason, format!("Pod was rejected: {message}"), None, false));
            }
        }
        let (sender, desired) = watch::channel(Desired { pod, pending: None, gone: false, fail });
        let task = tokio::spawn(Worker::run(self.shared.clone(), desired));
        workers.insert(uid, (sender, task));
    }

    /// Whether the node, as it is now, takes the pod; `registered` is it until it has been heard of.
    async fn verdict(&self, pod: &Pod, registered: &NodeObject, others: &[Pod]) -> Result<(), Rejection> {
        let known = self.nodes.lister().namespace("").get(&self.shared.name);
        let verdict = admit(pod, known.as_deref().unwrap_or(registered), others.iter());
        if !verdict.as_ref().is_err_and(|rejection| rejection.reason == NODE_AFFINITY) {
            return verdict;
        }
        // Whoever bound the pod may have seen labels that are not known here yet.
        match Api::<NodeObject>::all(&self.shared.client).get(&self.shared.name).await {
            Ok(node) => admit(pod, &node, others.iter()),
            Err(_) => verdict,
        }
    }

    /// A new version of a pod that is here: it gets other resources if they fit, or keeps those that it has.
    fn update(&self, desired: &mut Desired, pod: &Arc<Pod>, resized: bool, verdict: Result<(), Rejection>) {
        match verdict {
            Ok(()) => {
                if resized {
                    let message = resize_message(pod, "started", "");
                    self.shared.event(pod, None, false, "ResizeStarted", message);
                }
                desired.pod = pod.clone();
                desired.pending = None;
            }
            Err(Rejection { message, .. }) => {
                let told = desired.pending.is_some() && desired.pod.metadata.generation == pod.metadata.generation;
                if !told {
                    let text = resize_message(pod, "Deferred", &message);
                    self.shared.event(pod, None, true, "ResizeDeferred", text);
                }
                desired.pod = Arc::new(with_resources_of(pod, &desired.pod));
                desired.pending = Some(("Deferred".to_owned(), message));
            }
        }
    }

    /// What an earlier life of the node has left: what belongs to a pod of now waits for its worker, the rest ends.
    async fn sort_left_over(&self) -> Result<(), RuntimeError> {
        let runtime = &self.shared.runtime;
        let left = runtime.left_over().await?;
        let pods = self.pods.lister().list(&Selector::default());
        let mut wanted: BTreeSet<String> = pods.iter().filter_map(|pod| pod.metadata.uid.clone()).collect();
        wanted.extend(self.static_pods.iter().flat_map(|dir| statics::read(dir, &self.shared.name).into_keys()));
        for one in left {
            if wanted.contains(&one.pod_uid) {
                let mut kept = self.shared.left_over.lock().unwrap_or_else(PoisonError::into_inner);
                kept.insert(one.pod_uid.clone(), one);
            } else if let Err(error) = runtime.stop_sandbox(&one.sandbox.id).await {
                self.shared.log(&format!("cannot end what runs of pod {}, which is gone: {error}", one.pod_uid));
            }
        }
        Ok(())
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
                let desired = Desired { pod: Arc::new(pod.clone()), pending: None, gone: false, fail: None };
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
}

/// The pods that did not get the resources that they want.
fn deferred(workers: &Workers) -> Vec<(String, String)> {
    let of = |desired: &Desired| {
        let meta = &desired.pod.metadata;
        desired.pending.as_ref()?;
        Some((meta.namespace.clone()?, meta.name.clone()?))
    };
    workers.values().filter_map(|(desired, _)| of(&desired.borrow())).collect()
}

fn annotated(pod: &Pod, name: &str) -> bool {
    pod.metadata.annotations.as_ref().is_some_and(|annotations| annotations.contains_key(name))
}
