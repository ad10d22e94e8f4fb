//! `node-lifecycle-controller`: nodes that are not heard of are marked, and so are those that are not well.
//!
//! Health and zones are decided by pure functions; this module looks at all nodes every few seconds and writes what
//! they decide. Pods leave because of the taints: that is `taint-eviction-controller`.

mod health;
mod taints;
mod zones;

use std::{
    collections::{BTreeMap, HashMap},
    sync::{Arc, Mutex, PoisonError},
    time::Duration,
};

use capstan_api::selector::Selector;
use capstan_client::{Api, BoxFuture, Client, Error, HandlerFuncs, Key, Lister, Patch, store::Indexer};
use capstan_clock::SharedClock;
use capstan_runtime::{Action, Controller, EventRecorder, EventType, ObjectReference, ReconcileError, Reconciler};
use k8s_openapi::{
    api::{coordination::v1::Lease, core::v1::Node},
    apimachinery::pkg::apis::meta::v1::Time,
};
use serde_json::json;

use self::{
    health::{Health, Seen},
    taints::{NOT_READY, UNREACHABLE, no_execute},
    zones::{Turn, Zones},
};
use crate::{
    ControllerContext,
    drive::{drive, every, filled, join, synced},
    pod::{Pod, WholePod, whole},
    pod_status::{condition, index_by_node, node_name, of_node},
};

/// How often all nodes are looked at.
const MONITOR_PERIOD: Duration = Duration::from_secs(5);

/// How often waiting nodes are tainted, as far as the rate allows.
const TAINT_PERIOD: Duration = Duration::from_secs(1);

/// How often the status of a node is tried to be written at once.
const MAX_STATUS_TRIES: u32 = 5;

const LEASE_NAMESPACE: &str = "kube-node-lease";

/// Labels that have an old name too.
const OLD_LABELS: [(&str, &str); 2] =
    [("kubernetes.io/os", "beta.kubernetes.io/os"), ("kubernetes.io/arch", "beta.kubernetes.io/arch")];

pub(crate) fn run(context: &ControllerContext) -> BoxFuture<'static, ()> {
    let (pods, nodes) = (context.informers.informer::<Pod>(), context.informers.informer::<Node>());
    let leases = context.informers.informer::<Lease>();
    index_by_node(&pods);
    let (clock, stop) = (Arc::clone(&context.clock), context.stop.clone());
    let shared = Arc::new(Shared {
        client: context.client.clone(),
        clock: Arc::clone(&clock),
        recorder: context.recorder("node-controller"),
        nodes: nodes.lister(),
        leases: leases.lister(),
        pods: Arc::clone(pods.indexer()),
        state: Mutex::default(),
    });
    let nodes_controller =
        Controller::new(NodeWorker(Arc::clone(&shared)), Arc::clone(&clock)).max_concurrent_reconciles(8);
    let (add, update) = (nodes_controller.queue().clone(), nodes_controller.queue().clone());
    nodes.add_event_handler(
        HandlerFuncs::new()
            .on_add(move |new: &Arc<Node>, _| add.add(Key::of(&**new)))
            .on_update(move |_, new| update.add(Key::of(&**new))),
    );
    let pods_controller =
        Controller::new(PodWorker(Arc::clone(&shared)), Arc::clone(&clock)).max_concurrent_reconciles(4);
    let (add, update) = (pods_controller.queue().clone(), pods_controller.queue().clone());
    pods.add_event_handler(
        HandlerFuncs::new()
            .on_add(move |new: &Arc<Pod>, _| {
                if !node_name(new).is_empty() {
                    add.add(Key::of(&**new));
                }
            })
            .on_update(move |old, new| {
                if node_name(old) != node_name(new) {
                    update.add(Key::of(&**new));
                }
            }),
    );
    let caches = || vec![filled(&leases), filled(&nodes), filled(&pods)];
    let workers = join(
        drive(context, "node_lifecycle_controller", caches(), nodes_controller),
        drive(context, "node_lifecycle_controller_pods", caches(), pods_controller),
    );
    let caches = caches();
    Box::pin(async move {
        if !synced(&stop, caches).await {
            return;
        }
        let monitor = every(&stop, &clock, MONITOR_PERIOD, || shared.monitor());
        let taint = every(&stop, &clock, TAINT_PERIOD, || shared.taint());
        join(join(monitor, taint), workers).await;
    })
}

struct Shared {
    client: Client,
    clock: SharedClock,
    recorder: EventRecorder,
    nodes: Lister<Node>,
    leases: Lister<Lease>,
    pods: Arc<Indexer<Pod>>,
    state: Mutex<State>,
}

#[derive(Default)]
struct State {
    known: BTreeMap<String, String>,
    health: HashMap<String, Option<Health>>,
    zones: Zones,
    /// Nodes whose pods could not all be marked.
    unmarked: std::collections::BTreeSet<String>,
}

fn name(node: &Node) -> &str {
    node.metadata.name.as_deref().unwrap_or_default()
}

fn label<'a>(node: &'a Node, keys: [&str; 2]) -> &'a str {
    let labels = node.metadata.labels.as_ref();
    keys.iter().find_map(|key| labels?.get(*key)).map_or("", String::as_str)
}

/// What nodes have in common that are likely to be lost together.
fn zone(node: &Node) -> String {
    let region = label(node, ["topology.kubernetes.io/region", "failure-domain.beta.kubernetes.io/region"]);
    let zone = label(node, ["topology.kubernetes.io/zone", "failure-domain.beta.kubernetes.io/zone"]);
    if region.is_empty() && zone.is_empty() { String::new() } else { format!("{region}:\0:{zone}") }
}

impl Shared {
    fn state<R>(&self, act: impl FnOnce(&mut State) -> R) -> R {
        act(&mut self.state.lock().unwrap_or_else(PoisonError::into_inner))
    }

    fn tell(&self, name: &str, uid: &str, reason: &str, message: String) {
        let about = ObjectReference::new("v1", "Node", "", name).with_uid(uid);
        self.recorder.event(&about, EventType::Normal, reason, message);
    }

    /// Looks at all nodes. What fails is tried again the next time.
    async fn monitor(&self) {
        let nodes = self.nodes.list(&Selector::default());
        for node in self.come_and_go(&nodes) {
            let _ = self.mark_reachable(&node).await;
        }
        let mut counts: BTreeMap<String, (usize, usize)> = BTreeMap::new();
        for node in &nodes {
            let Ok(seen) = self.look_and_write(node).await else { continue };
            let excluded = node.metadata.labels.as_ref();
            if !excluded.is_some_and(|labels| labels.contains_key("node.kubernetes.io/exclude-disruption")) {
                let (ready, lost) = counts.entry(zone(node)).or_default();
                *(if seen.ready.as_deref() == Some("True") { ready } else { lost }) += 1;
            }
            if let Some(ready) = &seen.ready {
                self.evict(node, ready).await;
                self.mark_pods(node, &seen).await;
            }
        }
        let now = self.clock.monotonic();
        match self.state(|state| state.zones.update(&counts, now)) {
            Turn::None => {}
            Turn::AllLost => {
                for node in &nodes {
                    let _ = self.mark_reachable(node).await;
                }
            }
            Turn::Back => {
                self.state(|state| state.health.values_mut().flatten().for_each(|health| health.hear(now)));
            }
        }
    }

    /// Tells of nodes that are new or gone, and gives the new ones.
    fn come_and_go(&self, nodes: &[Arc<Node>]) -> Vec<Arc<Node>> {
        let uid = |node: &Node| node.metadata.uid.clone().unwrap_or_default();
        let (new, gone): (Vec<_>, Vec<_>) = self.state(|state| {
            let new: Vec<_> = nodes.iter().filter(|node| !state.known.contains_key(name(node))).cloned().collect();
            state.known.extend(new.iter().map(|node| (name(node).to_owned(), uid(node))));
            let there: std::collections::BTreeSet<_> = nodes.iter().map(|node| name(node)).collect();
            let gone = state.known.iter().filter(|(name, _)| !there.contains(name.as_str()));
            let gone: Vec<_> = gone.map(|(name, uid)| (name.clone(), uid.clone())).collect();
            for (name, _) in &gone {
                state.known.remove(name);
                state.health.remove(name);
                state.unmarked.remove(name);
                state.zones.forget(name);
            }
            (new, gone)
        });
        for node in &new {
            let name = name(node);
            let message = format!("Node {name} event: Registered Node {name} in Controller");
            self.tell(name, &uid(node), "RegisteredNode", message);
        }
        for (name, uid) in &gone {
            let message = format!("Node {name} event: Removing Node {name} from Controller");
            self.tell(name, uid, "RemovingNode", message);
        }
        new
    }

    /// Looks at a node and writes if it is not heard of.
    async fn look_and_write(&self, node: &Node) -> Result<Seen, Error> {
        let api = Api::<Node>::all(&self.client);
        let mut node = node.clone();
        for attempt in 1.. {
            let renewed = self.leases.namespace(LEASE_NAMESPACE).get(name(&node));
            let renewed = renewed.and_then(|lease| Some(lease.spec.as_ref()?.renew_time.as_ref()?.0));
            let mut health = self.state(|state| state.health.get(name(&node)).cloned().flatten());
            let seen = health::look(&mut health, &node, renewed, self.clock.now(), self.clock.monotonic());
            if let Some(conditions) = &seen.conditions {
                let mut changed = node.clone();
                changed.status.get_or_insert_default().conditions = Some(conditions.clone());
                if let Err(error) = api.update_status(&changed).await {
                    if attempt >= MAX_STATUS_TRIES {
                        return Err(error);
                    }
                    node = api.get(name(&node)).await?;
                    continue;
                }
            }
            self.state(|state| state.health.insert(name(&node).to_owned(), health));
            return Ok(seen);
        }
        unreachable!("attempts end with an answer")
    }

    /// Sees to the taints by which pods leave.
    async fn evict(&self, node: &Node, ready: &str) {
        let (own, opposite) = match ready {
            "True" => {
                let _ = self.mark_reachable(node).await;
                return;
            }
            "False" => (no_execute(NOT_READY), no_execute(UNREACHABLE)),
            _ => (no_execute(UNREACHABLE), no_execute(NOT_READY)),
        };
        if taints::has(node, &opposite) {
            let _ = taints::swap(&self.client, node, &[own], &[opposite], self.clock.now()).await;
            return;
        }
        self.state(|state| {
            let queue = state.zones.queue(&zone(node));
            if !taints::has(node, &own) {
                queue.remove(name(node));
            }
            queue.add(name(node));
        });
    }

    async fn mark_reachable(&self, node: &Node) -> Result<(), Error> {
        let both = [no_execute(UNREACHABLE), no_execute(NOT_READY)];
        if both.iter().any(|taint| taints::has(node, taint)) {
            taints::swap(&self.client, node, &[], &both, self.clock.now()).await?;
        }
        self.state(|state| state.zones.queue(&zone(node)).remove(name(node)));
        Ok(())
    }

    /// Taints nodes that wait for it, as far as the rate allows.
    async fn taint(&self) {
        if !self.state(|state| state.zones.has_work()) {
            return;
        }
        let now = self.clock.monotonic();
        let due: Vec<_> = self.state(|state| state.zones.queues().filter_map(|queue| queue.next(now)).collect());
        for name in due {
            let Some(node) = self.nodes.get(&Key::new("", &name)) else { continue };
            let ready = health::ready(&node).map(|condition| condition.status.as_str());
            let (own, opposite) = match ready {
                Some("False") => (NOT_READY, UNREACHABLE),
                Some("Unknown") => (UNREACHABLE, NOT_READY),
                // Either it is back, which the next look will show, or this is older than what was written of it.
                _ => {
                    self.state(|state| state.zones.queue(&zone(&node)).put_back(name, now));
                    continue;
                }
            };
            let (own, opposite) = ([no_execute(own)], [no_execute(opposite)]);
            if taints::swap(&self.client, &node, &own, &opposite, self.clock.now()).await.is_err() {
                self.state(|state| state.zones.queue(&zone(&node)).again(name));
            }
        }
    }

    /// The pods of a node that is lost are not ready.
    async fn mark_pods(&self, node: &Node, seen: &Seen) {
        let name = name(node);
        let is_lost = seen.ready.as_deref() != Some("True");
        let needs_retry = self.state(|state| state.unmarked.contains(name));
        if is_lost && seen.before == "True" {
            let uid = node.metadata.uid.as_deref().unwrap_or_default();
            self.tell(name, uid, "NodeNotReady", format!("Node {name} status is now: NodeNotReady"));
        } else if !(needs_retry && seen.before != "True") {
            self.state(|state| state.unmarked.remove(name));
            return;
        }
        let mut all = true;
        for pod in of_node(&self.pods, name) {
            all &= self.mark_pod(&pod).await.is_ok();
        }
        self.state(|state| if all { state.unmarked.remove(name) } else { state.unmarked.insert(name.to_owned()) });
    }

    async fn mark_pod(&self, pod: &Pod) -> Result<(), Error> {
        if condition(pod, "Ready").is_none_or(|ready| ready.status == "False") {
            return Ok(());
        }
        match self.write_not_ready(pod).await {
            Err(error) if error.is_not_found() => Ok(()),
            Err(error) => Err(error),
            Ok(pod) => {
                self.recorder.event(&pod, EventType::Warning, "NodeNotReady", "Node is not ready");
                Ok(())
            }
        }
    }

    async fn write_not_ready(&self, pod: &Pod) -> Result<WholePod, Error> {
        let mut whole = whole(&self.client, pod).await?;
        let conditions = whole.status.iter_mut().flat_map(|status| status.conditions.iter_mut().flatten());
        for ready in conditions.filter(|condition| condition.type_ == "Ready") {
            (ready.status, ready.last_transition_time) = ("False".to_owned(), Some(Time(self.clock.now())));
        }
        Api::<WholePod>::namespaced(&self.client, pod.metadata.namespace()).update_status(&whole).await
    }
}

/// The taints that keep new pods away, and labels with old names.
struct NodeWorker(Arc<Shared>);

impl Reconciler for NodeWorker {
    async fn reconcile(&self, key: Key) -> Result<Action, ReconcileError> {
        let Some(node) = self.0.nodes.get(&key) else { return Ok(Action::Done) };
        let (add, remove) = taints::no_schedule(&node);
        if !add.is_empty() || !remove.is_empty() {
            taints::swap(&self.0.client, &node, &add, &remove, self.0.clock.now()).await?;
        }
        let labels = node.metadata.labels.clone().unwrap_or_default();
        let old: BTreeMap<_, _> = OLD_LABELS
            .iter()
            .filter_map(|(label, old)| Some((*old, labels.get(*label)?)))
            .filter(|(old, value)| labels.get(*old) != Some(*value))
            .collect();
        if !old.is_empty() {
            let patch = Patch::Merge(json!({"metadata": {"labels": old}}));
            Api::<Node>::all(&self.0.client).patch(key.name(), &patch).await?;
        }
        Ok(Action::Done)
    }
}

/// Pods that come to a node that is lost.
struct PodWorker(Arc<Shared>);

impl Reconciler for PodWorker {
    async fn reconcile(&self, key: Key) -> Result<Action, ReconcileError> {
        let Some(pod) = self.0.pods.get_by_key(key.as_str()) else { return Ok(Action::Done) };
        let Some(node) = self.0.nodes.get(&Key::new("", node_name(&pod))) else { return Ok(Action::Done) };
        if health::ready(&node).is_some_and(|ready| ready.status != "True") {
            self.0.mark_pod(&pod).await?;
        }
        Ok(Action::Done)
    }
}
