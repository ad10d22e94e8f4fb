//! EndpointSlices: which addresses are behind a service, in slices of at most a hundred.

mod pack;
mod plan;
mod topology;
mod traffic;

#[cfg(test)]
mod tests;

use std::{
    sync::{Arc, Mutex, PoisonError},
    time::Duration,
};

use capstan_api::selector::Selector;
use capstan_client::{Api, BoxFuture, Client, Deleted, Error, HandlerFuncs, Key, SharedIndexInformer};
use capstan_runtime::{
    Action, Controller, ReconcileError, Reconciler,
    handler::enqueue_request_for_object,
    workqueue::{AddOpts, BucketRateLimiter, ItemExponentialFailureRateLimiter, MaxOfRateLimiter, PriorityQueue},
};
use k8s_openapi::api::{
    core::v1::{Node, Service},
    discovery::v1::EndpointSlice,
};

pub(crate) use pack::{Changes, EndpointKey, EndpointSet, port_map_key, says_the_same, sort_ports};
pub(crate) use plan::{MANAGED_BY, SERVICE_NAME, Said, prefix};
use plan::{MANAGER, Plan, Present};
use topology::TopologyCache;

use crate::{
    ControllerContext,
    drive::{drive, filled},
    pod::Pod,
    recorder::Recorder,
    service_pods::{TriggerTimes, annotate, from_labels, pod_handler, selector},
    written::Written,
};

/// How long others' changes of slices wait, so that two who disagree do not do so at full speed.
const SLICE_CHANGE_DELAY: Duration = Duration::from_secs(1);
/// How long a failure waits at first.
const BACKOFF: Duration = Duration::from_secs(1);
/// How long a failure waits at most.
const MAX_BACKOFF: Duration = Duration::from_secs(1_000);
/// How many services are worked on at the same time.
const WORKERS: usize = 5;

struct Slices {
    client: Client,
    services: SharedIndexInformer<Service>,
    pods: SharedIndexInformer<Pod>,
    nodes: SharedIndexInformer<Node>,
    slices: SharedIndexInformer<EndpointSlice>,
    topology: Arc<Mutex<TopologyCache>>,
    triggers: TriggerTimes,
    written: Arc<Written>,
    recorder: Recorder,
}

/// Keeps the slices of all services with a selector.
pub(crate) fn run(context: &ControllerContext) -> BoxFuture<'static, ()> {
    let informers = &context.informers;
    let reconciler = Slices {
        client: context.client.clone(),
        services: informers.informer(),
        pods: informers.informer(),
        nodes: informers.informer(),
        slices: informers.informer(),
        topology: Arc::default(),
        triggers: TriggerTimes::default(),
        written: Arc::default(),
        recorder: Recorder::new(context, "endpoint-slice-controller"),
    };
    let (services, pods) = (reconciler.services.clone(), reconciler.pods.clone());
    let (nodes, slices) = (reconciler.nodes.clone(), reconciler.slices.clone());
    let (topology, written) = (Arc::clone(&reconciler.topology), Arc::clone(&reconciler.written));
    let controller = Controller::new(reconciler, Arc::clone(&context.clock))
        .with_queue(slice_queue(context, BACKOFF, MAX_BACKOFF))
        .max_concurrent_reconciles(WORKERS);
    let queue = controller.queue().clone();
    services.add_event_handler(enqueue_request_for_object::<Service>(queue.clone()));
    pods.add_event_handler(pod_handler(services.lister(), queue.clone()));
    nodes.add_event_handler(node_handler(&nodes, topology, queue.clone()));
    slices.add_event_handler(slice_handler(MANAGER, SLICE_CHANGE_DELAY, written, queue));
    let caches = vec![filled(&services), filled(&pods), filled(&nodes), filled(&slices)];
    drive(context, "endpoint_slice", caches, controller)
}

/// A queue whose failures wait from `first` to `most`, and no more than ten of them a second come back.
pub(crate) fn slice_queue(context: &ControllerContext, first: Duration, most: Duration) -> PriorityQueue<Key> {
    let clock = &context.clock;
    let limiter = MaxOfRateLimiter::new(vec![
        Arc::new(ItemExponentialFailureRateLimiter::new(first, most)),
        Arc::new(BucketRateLimiter::new(Arc::clone(clock), 10.0, 100)),
    ]);
    PriorityQueue::new(Arc::clone(clock), Arc::new(limiter))
}

/// The service that a slice is of, if this manager keeps it.
fn service_of(slice: &EndpointSlice) -> Option<Key> {
    let name = slice.metadata.labels.as_ref()?.get(SERVICE_NAME).filter(|name| !name.is_empty())?;
    Some(Key::new(slice.metadata.namespace.as_deref().unwrap_or_default(), name))
}

/// Puts the service of a slice that `manager` keeps, or kept, into the queue.
pub(crate) fn slice_handler(
    manager: &'static str,
    delay: Duration,
    written: Arc<Written>,
    queue: PriorityQueue<Key>,
) -> HandlerFuncs<EndpointSlice> {
    let managed = move |slice: &EndpointSlice| {
        slice.metadata.labels.as_ref().is_some_and(|labels| labels.get(MANAGED_BY).is_some_and(|by| by == manager))
    };
    let tell = move |slice: &EndpointSlice| {
        if let Some(key) = service_of(slice) {
            let after = if written.was_awaited(&key) { Duration::ZERO } else { delay };
            queue.add_with_opts(AddOpts { after, ..AddOpts::default() }, key);
        }
    };
    let (added, deleted) = (tell.clone(), tell.clone());
    HandlerFuncs::new()
        .on_add(move |slice: &Arc<EndpointSlice>, _| {
            if managed(slice) {
                added(slice);
            }
        })
        .on_update(move |old: &Arc<EndpointSlice>, new: &Arc<EndpointSlice>| {
            if service_of(old) != service_of(new) {
                tell(old);
                tell(new);
            } else if managed(old) || managed(new) {
                tell(new);
            }
        })
        .on_delete(move |slice: &Deleted<EndpointSlice>| {
            if managed(slice.object()) {
                deleted(slice.object());
            }
        })
}

/// A change of zones or of readiness may leave zones with too few endpoints.
fn node_handler(
    nodes: &SharedIndexInformer<Node>,
    topology: Arc<Mutex<TopologyCache>>,
    queue: PriorityQueue<Key>,
) -> HandlerFuncs<Node> {
    let lister = nodes.lister();
    let check = move || {
        let ratios = topology::ratios(&lister.list(&Selector::default()));
        let overloaded = topology.lock().unwrap_or_else(PoisonError::into_inner).overloaded(ratios.as_ref());
        overloaded.into_iter().for_each(|key| queue.add(key));
    };
    let (added, deleted) = (check.clone(), check.clone());
    HandlerFuncs::new()
        .on_add(move |_: &Arc<Node>, _| added())
        .on_update(move |old: &Arc<Node>, new: &Arc<Node>| {
            let of = |node: &Node| (topology::is_node_ready(node), topology::zone(node).map(str::to_owned));
            if of(old) != of(new) {
                check();
            }
        })
        .on_delete(move |_| deleted())
}

impl Reconciler for Slices {
    async fn reconcile(&self, key: Key) -> Result<Action, ReconcileError> {
        let Some(service) = self.services.lister().get(&key) else {
            self.triggers.forget(&key);
            self.written.forget(&key);
            self.topology.lock().unwrap_or_else(PoisonError::into_inner).forget(&key);
            return Ok(Action::Done);
        };
        let Some(selector) = selector(&service) else { return Ok(Action::Done) };
        if self.written.is_ahead(&key, &self.slices) {
            return Ok(Action::RequeueAfter(SLICE_CHANGE_DELAY));
        }
        let pods = self.pods.lister().namespace(key.namespace()).list(&selector);
        let trigger = self.triggers.compute(&key, &service, &pods);
        let Plan { changes, events, errors } = self.plan(&key, &service, &pods);
        let mut failed = errors;
        failed.extend(
            write(&self.client, &key, "Service", changes, &self.written, |slice| {
                annotate(&mut slice.metadata, trigger);
            })
            .await
            .err(),
        );
        for Said { type_, reason, message } in events {
            self.recorder.tell(type_ == "Warning", &*service, reason, message);
        }
        if failed.is_empty() {
            return Ok(Action::Done);
        }
        let failed = if failed.len() == 1 { failed.concat() } else { format!("[{}]", failed.join(", ")) };
        let message = format!("Error updating Endpoint Slices for Service {key}: {failed}");
        self.recorder.warning(&*service, "FailedToUpdateEndpointSlices", message);
        Err(ReconcileError::Retry(failed))
    }
}

impl Slices {
    fn plan(&self, key: &Key, service: &Service, pods: &[Arc<Pod>]) -> Plan {
        let labels = [(SERVICE_NAME.to_owned(), key.name().to_owned()), (MANAGED_BY.to_owned(), MANAGER.to_owned())];
        let mut slices = self.slices.lister().namespace(key.namespace()).list(&from_labels(&labels.into()));
        slices.retain(|slice| slice.metadata.deletion_timestamp.is_none());
        let nodes = self.nodes.lister();
        let present = Present {
            key,
            service,
            pods,
            slices: &slices,
            node: &|name| nodes.get(&Key::new("", name)),
            nodes: &|| nodes.list(&Selector::default()),
        };
        plan::plan(&present, &mut self.topology.lock().unwrap_or_else(PoisonError::into_inner))
    }
}

/// Writes what has to be written for the slices of a service, or of Endpoints.
pub(crate) async fn write(
    client: &Client,
    key: &Key,
    of: &str,
    changes: Changes,
    written: &Written,
    prepare: impl Fn(&mut EndpointSlice),
) -> Result<(), String> {
    let api = Api::<EndpointSlice>::namespaced(client, key.namespace());
    let failed = |verb: String, error: Error| format!("failed to {verb} EndpointSlice for {of} {key}: {error}");
    for mut slice in changes.create {
        prepare(&mut slice);
        match api.create(&slice).await {
            Ok(slice) => written.note(key, &slice),
            Err(error) if is_namespace_terminating(&error) => return Ok(()),
            Err(error) => return Err(failed("create".to_owned(), error)),
        }
    }
    for mut slice in changes.update {
        prepare(&mut slice);
        let name = slice.metadata.name.clone().unwrap_or_default();
        let slice = api.update(&slice).await.map_err(|error| failed(format!("update {name}"), error))?;
        written.note(key, &slice);
    }
    for slice in changes.delete {
        let name = slice.metadata.name.as_deref().unwrap_or_default();
        match api.delete(name, &Default::default()).await {
            Err(error) if !error.is_not_found() => return Err(failed(format!("delete {name}"), error)),
            _ => {}
        }
    }
    Ok(())
}

/// Whether nothing can be created because the namespace is going away.
pub(crate) fn is_namespace_terminating(error: &Error) -> bool {
    error.status().is_some_and(|status| status.cause("NamespaceTerminating").is_some())
}
