//! Attaching and detaching: VolumeAttachments, which tell CSI drivers where volumes have to be.
//!
//! Drivers that need none of this (`attachRequired: false`) get none. A node is looked at as a whole: what its pods
//! want against what is attached to it.

mod plan;

use std::{
    collections::{BTreeMap, BTreeSet, HashMap},
    sync::{Arc, Mutex, PoisonError},
    time::Duration,
};

use capstan_api::{Str, selector::Selector};
use capstan_client::{
    Api, BoxFuture, Client, Deleted, Error, HandlerFuncs, Key, Patch, SharedIndexInformer, store::Indexers,
};
use capstan_clock::{Moment, SharedClock};
use capstan_runtime::{
    Action, Controller, ReconcileError, Reconciler, handler::enqueue_requests_from_map_func, workqueue::PriorityQueue,
};
use k8s_openapi::{
    api::{
        core::v1::{Node, PersistentVolume, PersistentVolumeClaim},
        storage::v1::{CSIDriver, VolumeAttachment, VolumeAttachmentSource, VolumeAttachmentSpec},
    },
    apimachinery::pkg::apis::meta::v1::ObjectMeta,
};

use crate::{
    ControllerContext,
    drive::{drive, filled},
    persistentvolume::volume_name,
    pod::Pod,
    pod_claims,
    recorder::Recorder,
};
use plan::{Step, Wanted, is_managed, plan, unique_name};

/// How long a node that is not ready keeps its volumes.
const MAX_WAIT_FOR_UNMOUNT: Duration = Duration::from_mins(6);
/// The index of pods by their nodes.
const BY_NODE: &str = "attach-detach-node";
/// How many nodes are worked on at the same time.
const WORKERS: usize = 5;

struct Attacher {
    client: Client,
    clock: SharedClock,
    nodes: SharedIndexInformer<Node>,
    pods: SharedIndexInformer<Pod>,
    claims: SharedIndexInformer<PersistentVolumeClaim>,
    volumes: SharedIndexInformer<PersistentVolume>,
    drivers: SharedIndexInformer<CSIDriver>,
    attachments: SharedIndexInformer<VolumeAttachment>,
    /// Since when attachments wait for their nodes.
    waiting: Mutex<HashMap<String, Moment>>,
    recorder: Recorder,
}

fn node_of(pod: &Pod) -> Option<&str> {
    pod.spec.as_ref()?.node_name.as_deref().filter(|name| !name.is_empty())
}

/// Keeps the attachments of all nodes.
pub(crate) fn run(context: &ControllerContext) -> BoxFuture<'static, ()> {
    let informers = &context.informers;
    let reconciler = Attacher {
        client: context.client.clone(),
        clock: Arc::clone(&context.clock),
        nodes: informers.informer(),
        pods: informers.informer(),
        claims: informers.informer(),
        volumes: informers.informer(),
        drivers: informers.informer(),
        attachments: informers.informer(),
        waiting: Mutex::default(),
        recorder: Recorder::new(context, "attachdetach-controller"),
    };
    let (nodes, pods, claims) = (reconciler.nodes.clone(), reconciler.pods.clone(), reconciler.claims.clone());
    let (volumes, drivers) = (reconciler.volumes.clone(), reconciler.drivers.clone());
    let attachments = reconciler.attachments.clone();
    pod_claims::index(&pods);
    let by_node = |pod: &Pod| node_of(pod).map(Str::from).into_iter().collect();
    pods.add_indexers(Indexers::from([(BY_NODE.into(), Arc::new(by_node) as _)]));
    let controller = Controller::new(reconciler, Arc::clone(&context.clock)).max_concurrent_reconciles(WORKERS);
    let queue = controller.queue().clone();
    nodes.add_event_handler(node_handler(queue.clone()));
    pods.add_event_handler(pod_handler(queue.clone()));
    let users = pods.clone();
    claims.add_event_handler(enqueue_requests_from_map_func(queue.clone(), move |claim: &PersistentVolumeClaim| {
        let pods = pod_claims::pods_of(&users, &Key::of(claim));
        pods.iter().filter_map(|pod| Some(Key::new("", node_of(pod)?))).collect()
    }));
    // A volume that is given free on one node may be wanted on another.
    let (users, bound) = (pods.clone(), volumes.lister());
    attachments.add_event_handler(enqueue_requests_from_map_func(queue, move |attachment: &VolumeAttachment| {
        let mut keys = vec![Key::new("", &attachment.spec.node_name)];
        let volume = attachment.spec.source.persistent_volume_name.as_deref().unwrap_or_default();
        let claim = bound.get(&Key::new("", volume)).and_then(|volume| volume.spec.as_ref()?.claim_ref.clone());
        if let Some(claim) = claim {
            let claim = Key::new(&claim.namespace.unwrap_or_default(), &claim.name.unwrap_or_default());
            let pods = pod_claims::pods_of(&users, &claim);
            keys.extend(pods.iter().filter_map(|pod| Some(Key::new("", node_of(pod)?))));
        }
        keys
    }));
    let mut caches = vec![filled(&nodes), filled(&pods), filled(&claims)];
    caches.extend([filled(&volumes), filled(&drivers), filled(&attachments)]);
    drive(context, "attachdetach", caches, controller)
}

fn node_handler(queue: PriorityQueue<Key>) -> HandlerFuncs<Node> {
    let updated = queue.clone();
    HandlerFuncs::new().on_add(move |node: &Arc<Node>, _| queue.add(Key::of(&**node))).on_update(
        move |old: &Arc<Node>, new: &Arc<Node>| {
            // Heartbeats say nothing of volumes.
            let of = |node: &Node| {
                let status = node.status.as_ref();
                let volumes = status.map(|status| (status.volumes_in_use.clone(), status.volumes_attached.clone()));
                (volumes, is_managed(node), plan::is_out_of_service(node), is_ready(node))
            };
            if of(old) != of(new) {
                updated.add(Key::of(&**new));
            }
        },
    )
}

fn pod_handler(queue: PriorityQueue<Key>) -> HandlerFuncs<Pod> {
    let tell = move |pod: &Pod| {
        if let Some(node) = node_of(pod)
            && !pod_claims::claims_of(pod).is_empty()
        {
            queue.add(Key::new("", node));
        }
    };
    let (added, deleted) = (tell.clone(), tell.clone());
    HandlerFuncs::new()
        .on_add(move |pod: &Arc<Pod>, _| added(pod))
        .on_update(move |old: &Arc<Pod>, new: &Arc<Pod>| {
            if node_of(old) != node_of(new) || pod_claims::is_terminated(old) != pod_claims::is_terminated(new) {
                tell(new);
            }
        })
        .on_delete(move |pod: &Deleted<Pod>| deleted(pod.object()))
}

fn is_ready(node: &Node) -> bool {
    let conditions = node.status.as_ref().and_then(|status| status.conditions.as_ref());
    conditions.into_iter().flatten().any(|condition| condition.type_ == "Ready" && condition.status == "True")
}

impl Reconciler for Attacher {
    async fn reconcile(&self, key: Key) -> Result<Action, ReconcileError> {
        let Some(node) = self.nodes.lister().get(&key) else { return Ok(Action::Done) };
        if !is_managed(&node) {
            return Ok(Action::Done);
        }
        let wanted = self.wanted(key.name());
        let attachments = self.attachments.lister().list(&Selector::default());
        let volumes = self.volumes.lister();
        let overdue = self.overdue(&node);
        let plan = plan(&node, &wanted, &attachments, &|name| volumes.get(&Key::new("", name)), &overdue);
        if let Some(attached) = &plan.attached {
            self.report(key.name(), attached).await?;
            for wanted in wanted.values() {
                if unique_name(&wanted.volume).is_some_and(|name| plan.new.contains(&name)) {
                    let volume = wanted.volume.metadata.name.as_deref().unwrap_or_default();
                    let message = format!("AttachVolume.Attach succeeded for volume {volume:?} ");
                    self.tell(wanted, |pod| self.recorder.normal(pod, "SuccessfulAttachVolume", message.clone()));
                }
            }
        }
        let mut again = None;
        for step in plan.steps {
            again = self.take(&key, step, &wanted).await?.or(again);
        }
        Ok(again.map_or(Action::Done, Action::RequeueAfter))
    }
}

impl Attacher {
    /// The volumes that pods of a node want and whose drivers want to be told.
    fn wanted(&self, node: &str) -> BTreeMap<String, Wanted> {
        let mut wanted: BTreeMap<String, Wanted> = BTreeMap::new();
        for pod in self.pods.indexer().by_index(BY_NODE, node).unwrap_or_default() {
            if pod_claims::is_terminated(&pod) {
                continue;
            }
            for claim in pod_claims::claims_of(&pod) {
                let Some(claim) = self.claims.lister().get(&claim) else { continue };
                let name = volume_name(&claim);
                let Some(volume) = self.volumes.lister().get(&Key::new("", name)) else { continue };
                let Some(csi) = volume.spec.as_ref().and_then(|spec| spec.csi.as_ref()) else { continue };
                let driver = self.drivers.lister().get(&Key::new("", &csi.driver));
                if driver.is_some_and(|driver| driver.spec.attach_required == Some(false)) {
                    continue;
                }
                let entry = wanted.entry(name.to_owned());
                entry
                    .or_insert_with(|| Wanted { volume: Arc::clone(&volume), pods: Vec::new() })
                    .pods
                    .push(Arc::clone(&pod));
            }
        }
        wanted
    }

    /// The attachments of a node that is not ready which have waited long enough.
    fn overdue(&self, node: &Node) -> BTreeSet<String> {
        if is_ready(node) {
            return BTreeSet::new();
        }
        let now = self.clock.monotonic();
        let waiting = self.waiting.lock().unwrap_or_else(PoisonError::into_inner);
        let late = waiting.iter().filter(|(_, since)| now.since(**since) >= MAX_WAIT_FOR_UNMOUNT);
        late.map(|(name, _)| name.clone()).collect()
    }

    fn tell(&self, wanted: &Wanted, say: impl Fn(&Pod)) {
        wanted.pods.iter().for_each(|pod| say(pod));
    }

    async fn report(&self, node: &str, attached: &BTreeSet<String>) -> Result<(), ReconcileError> {
        let volumes: Vec<_> = attached.iter().map(|name| serde_json::json!({"name": name, "devicePath": ""})).collect();
        let patch = Patch::Merge(serde_json::json!({"status": {"volumesAttached": volumes}}));
        match Api::<Node>::all(&self.client).patch_status(node, &patch).await {
            Err(error) if !error.is_not_found() => Err(error.into()),
            _ => Ok(()),
        }
    }

    async fn take(
        &self,
        node: &Key,
        step: Step,
        wanted: &BTreeMap<String, Wanted>,
    ) -> Result<Option<Duration>, ReconcileError> {
        let api = Api::<VolumeAttachment>::all(&self.client);
        let unless = |error: Error, fine: bool| if fine { Ok(None) } else { Err(error.into()) };
        match step {
            Step::Attach { attachment, driver, volume } => {
                let attachment = VolumeAttachment {
                    metadata: ObjectMeta { name: Some(attachment), ..ObjectMeta::default() },
                    spec: VolumeAttachmentSpec {
                        attacher: driver,
                        node_name: node.name().to_owned(),
                        source: VolumeAttachmentSource {
                            persistent_volume_name: Some(volume),
                            inline_volume_spec: None,
                        },
                    },
                    status: None,
                };
                match api.create(&attachment).await {
                    Err(error) => {
                        let exists = error.is_already_exists();
                        unless(error, exists)
                    }
                    Ok(_) => Ok(None),
                }
            }
            Step::Detach { attachment } => {
                self.waiting.lock().unwrap_or_else(PoisonError::into_inner).remove(&attachment);
                match api.delete(&attachment, &Default::default()).await {
                    Err(error) => {
                        let gone = error.is_not_found();
                        unless(error, gone)
                    }
                    Ok(()) => Ok(None),
                }
            }
            Step::InUse { attachment } => {
                let now = self.clock.monotonic();
                let mut waiting = self.waiting.lock().unwrap_or_else(PoisonError::into_inner);
                let since = *waiting.entry(attachment).or_insert(now);
                let left = MAX_WAIT_FOR_UNMOUNT.saturating_sub(now.since(since));
                Ok((!left.is_zero()).then_some(left))
            }
            Step::Failed { volume, why } => {
                let message = format!("AttachVolume.Attach failed for volume {volume:?} : {why}");
                self.tell(&wanted[&volume], |pod| {
                    self.recorder.warning(pod, "FailedAttachVolume", message.clone());
                });
                Ok(None)
            }
            Step::Elsewhere { volume, nodes } => {
                let users: Vec<_> = nodes.iter().flat_map(|node| self.wanted(node).remove(&volume)).collect();
                let users: Vec<Arc<Pod>> = users.into_iter().flat_map(|wanted| wanted.pods).collect();
                self.tell(&wanted[&volume], |pod| {
                    let why = used_by(pod, &users);
                    let message = format!("Multi-Attach error for volume {volume:?} {why}");
                    self.recorder.warning(pod, "FailedAttachVolume", message);
                });
                Ok(None)
            }
        }
    }
}

/// Who has a volume that this pod wants, as far as its users may know.
fn used_by(pod: &Pod, users: &[Arc<Pod>]) -> String {
    let (near, far): (Vec<_>, Vec<_>) =
        users.iter().partition(|user| user.metadata.namespace == pod.metadata.namespace);
    let names: Vec<_> = near.iter().filter_map(|user| user.metadata.name.as_deref()).collect();
    match (names.as_slice(), far.len()) {
        ([], 0) => "Volume is already exclusively attached to one node and can't be attached to another".to_owned(),
        ([], count) => format!("Volume is already used by {count} pod(s) in different namespaces"),
        (names, 0) => format!("Volume is already used by pod(s) {}", names.join(", ")),
        (names, count) => {
            let names = names.join(", ");
            format!("Volume is already used by pod(s) {names} and {count} pod(s) in different namespaces")
        }
    }
}
