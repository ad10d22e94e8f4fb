//! Endpoints: which addresses are behind a service, in one object, for those who do not read EndpointSlices yet.

mod subsets;

use std::{collections::BTreeMap, sync::Arc, time::Duration};

use capstan_client::{Api, BoxFuture, Client, Deleted, HandlerFuncs, Key, SharedIndexInformer};
use capstan_clock::Timestamp;
use capstan_runtime::{
    Action, Controller, ReconcileError, Reconciler, handler::enqueue_request_for_object, workqueue::PriorityQueue,
};
use k8s_openapi::{
    api::core::v1::{EndpointAddress, EndpointPort, EndpointSubset, Endpoints, ObjectReference, Service},
    apimachinery::pkg::apis::meta::v1::ObjectMeta,
};

pub(crate) use subsets::repack;
use subsets::truncate;

use crate::{
    ControllerContext,
    drive::{drive, filled},
    endpointslice::is_namespace_terminating,
    pod::Pod,
    recorder::Recorder,
    service_pods::{self, HEADLESS, TriggerTimes, annotate, has_cluster_ip, pod_handler, selector},
    written::Written,
};

/// How many addresses there are at most.
const MAX_CAPACITY: usize = 1_000;
/// How long to wait for the informer, if no event comes.
const STALE_DELAY: Duration = Duration::from_secs(1);
/// Tells that there would be more.
const OVER_CAPACITY: &str = "endpoints.kubernetes.io/over-capacity";
/// The label with the name of whoever keeps Endpoints.
const MANAGED_BY: &str = "endpoints.kubernetes.io/managed-by";
/// What this loop puts there.
const MANAGER: &str = "endpoint-controller";
/// Marks what leaders are elected by, which is no list of endpoints.
pub(crate) const LEADER: &str = "control-plane.alpha.kubernetes.io/leader";
/// How many services are worked on at the same time.
const WORKERS: usize = 5;

struct Loop {
    client: Client,
    services: SharedIndexInformer<Service>,
    pods: SharedIndexInformer<Pod>,
    endpoints: SharedIndexInformer<Endpoints>,
    triggers: TriggerTimes,
    written: Arc<Written>,
    recorder: Recorder,
}

/// Keeps the Endpoints of all services with a selector.
pub(crate) fn run(context: &ControllerContext) -> BoxFuture<'static, ()> {
    let informers = &context.informers;
    let reconciler = Loop {
        client: context.client.clone(),
        services: informers.informer(),
        pods: informers.informer(),
        endpoints: informers.informer(),
        triggers: TriggerTimes::default(),
        written: Arc::default(),
        recorder: Recorder::new(context, MANAGER),
    };
    let (services, pods, endpoints) =
        (reconciler.services.clone(), reconciler.pods.clone(), reconciler.endpoints.clone());
    let written = Arc::clone(&reconciler.written);
    let controller = Controller::new(reconciler, Arc::clone(&context.clock)).max_concurrent_reconciles(WORKERS);
    let queue = controller.queue().clone();
    services.add_event_handler(enqueue_request_for_object::<Service>(queue.clone()));
    pods.add_event_handler(pod_handler(services.lister(), queue.clone()));
    endpoints.add_event_handler(endpoints_handler(written, queue));
    let caches = vec![filled(&services), filled(&pods), filled(&endpoints)];
    drive(context, "endpoint", caches, controller)
}

/// What is gone may have to come back, what is there at first may be of a service that is gone, and somebody may wait
/// to see an own write.
fn endpoints_handler(written: Arc<Written>, queue: PriorityQueue<Key>) -> HandlerFuncs<Endpoints> {
    let awaited = {
        let queue = queue.clone();
        move |endpoints: &Endpoints| {
            let key = Key::of(endpoints);
            if written.was_awaited(&key) {
                queue.add(key);
            }
        }
    };
    let (added, first, deleted) = (awaited.clone(), queue.clone(), queue);
    HandlerFuncs::new()
        .on_add(move |endpoints: &Arc<Endpoints>, is_in_initial_list| {
            let leads = endpoints.metadata.annotations.as_ref().is_some_and(|all| all.contains_key(LEADER));
            if is_in_initial_list && !leads {
                first.add(Key::of(&**endpoints));
            }
            added(endpoints);
        })
        .on_update(move |_: &Arc<Endpoints>, new: &Arc<Endpoints>| awaited(new))
        .on_delete(move |endpoints: &Deleted<Endpoints>| deleted.add(Key::of(&**endpoints.object())))
}

impl Reconciler for Loop {
    async fn reconcile(&self, key: Key) -> Result<Action, ReconcileError> {
        let api = Api::<Endpoints>::namespaced(&self.client, key.namespace());
        let current = self.endpoints.lister().get(&key);
        let Some(service) = self.services.lister().get(&key) else {
            self.triggers.forget(&key);
            self.written.forget(&key);
            if current.is_some() {
                match api.delete(key.name(), &Default::default()).await {
                    Err(error) if !error.is_not_found() => return Err(error.into()),
                    _ => {}
                }
            }
            return Ok(Action::Done);
        };
        let Some(selector) = selector(&service) else { return Ok(Action::Done) };
        if self.written.is_ahead(&key, &self.endpoints) {
            return Ok(Action::RequeueAfter(STALE_DELAY));
        }
        let pods = self.pods.lister().namespace(key.namespace()).list(&selector);
        let trigger = self.triggers.compute(&key, &service, &pods);
        let Some(wanted) = desired(&service, &pods, current.as_deref(), trigger) else { return Ok(Action::Done) };
        let created = current.is_none();
        let result = if created { api.create(&wanted).await } else { api.update(&wanted).await };
        match result {
            Ok(endpoints) => {
                self.written.note(&key, &endpoints);
                Ok(Action::Done)
            }
            Err(error) if created && is_namespace_terminating(&error) => Ok(Action::Done),
            Err(error) => {
                if created {
                    let message = format!("Failed to create endpoint for service {key}: {error}");
                    self.recorder.warning(&wanted, "FailedToCreateEndpoint", message);
                } else {
                    let message = format!("Failed to update endpoint {key}: {error}");
                    self.recorder.warning(&wanted, "FailedToUpdateEndpoint", message);
                }
                Err(error.into())
            }
        }
    }
}

/// What Endpoints should be, if that is not what they are.
fn desired(
    service: &Service,
    pods: &[Arc<Pod>],
    current: Option<&Endpoints>,
    trigger: Option<Timestamp>,
) -> Option<Endpoints> {
    let subsets = repack(&subsets_of(service, pods));
    let none = BTreeMap::new();
    let service_labels = service.metadata.labels.as_ref().unwrap_or(&none);
    if let Some(current) = current {
        let present = current.subsets.as_deref().unwrap_or_default();
        let same = same_subsets(present, &subsets) || same_subsets(&repack(present), &subsets);
        if same && labels_are_right(current, service_labels) && capacity_is_right(current) {
            return None;
        }
    }
    let mut endpoints = current.cloned().unwrap_or_else(|| Endpoints {
        metadata: ObjectMeta {
            name: service.metadata.name.clone(),
            namespace: service.metadata.namespace.clone(),
            ..ObjectMeta::default()
        },
        subsets: None,
    });
    endpoints.subsets = Some(subsets);
    annotate(&mut endpoints.metadata, trigger);
    let truncated = truncate(endpoints.subsets.as_deref_mut().unwrap_or_default(), MAX_CAPACITY);
    let annotations = endpoints.metadata.annotations.get_or_insert_default();
    if truncated {
        annotations.insert(OVER_CAPACITY.to_owned(), "truncated".to_owned());
    } else {
        annotations.remove(OVER_CAPACITY);
    }
    let mut labels = service_labels.clone();
    if has_cluster_ip(service) {
        labels.remove(HEADLESS);
    } else {
        labels.insert(HEADLESS.to_owned(), String::new());
    }
    labels.insert(MANAGED_BY.to_owned(), MANAGER.to_owned());
    endpoints.metadata.labels = Some(labels);
    Some(endpoints)
}

fn subsets_of(service: &Service, pods: &[Arc<Pod>]) -> Vec<EndpointSubset> {
    let Some(spec) = &service.spec else { return Vec::new() };
    let publish_not_ready = spec.publish_not_ready_addresses == Some(true);
    let service_ports = spec.ports.as_deref().unwrap_or_default();
    let mut subsets = Vec::new();
    for pod in pods.iter().filter(|pod| service_pods::belongs_in_endpoints(pod, publish_not_ready)) {
        let Some(address) = address(service, pod) else { continue };
        let mut add = |ports: Option<Vec<EndpointPort>>| {
            let (one, none) = (Some(vec![address.clone()]), None);
            let ready = publish_not_ready || service_pods::is_ready(pod);
            let (addresses, not_ready_addresses) = if ready { (one, none) } else { (none, one) };
            subsets.push(EndpointSubset { addresses, not_ready_addresses, ports });
        };
        if service_ports.is_empty() && spec.cluster_ip.as_deref() == Some("None") {
            add(None);
        }
        for port in service_ports {
            let Some(number) = service_pods::find_port(pod, port) else { continue };
            add(Some(vec![EndpointPort {
                name: port.name.clone().filter(|name| !name.is_empty()),
                port: number,
                protocol: Some(service_pods::protocol(port).to_owned()),
                app_protocol: port.app_protocol.clone(),
            }]));
        }
    }
    subsets
}

/// The pod's address of the service's first family.
fn address(service: &Service, pod: &Pod) -> Option<EndpointAddress> {
    let spec = service.spec.as_ref()?;
    let first = spec.ip_families.as_ref().and_then(|families| families.first());
    let wants_v6 = match first {
        Some(family) => family == "IPv6",
        None if has_cluster_ip(service) => spec.cluster_ip.as_ref().is_some_and(|ip| ip.contains(':')),
        None => pod.status.as_ref()?.pod_ip.as_ref().is_some_and(|ip| ip.contains(':')),
    };
    let ip = service_pods::addresses(pod).find(|ip| ip.is_ipv6() == wants_v6)?;
    Some(EndpointAddress {
        ip: ip.to_string(),
        hostname: service_pods::hostname(pod, service).map(str::to_owned),
        node_name: pod.spec.as_ref().and_then(|spec| spec.node_name.as_ref()).map(ToString::to_string),
        target_ref: Some(service_pods::reference(pod)),
    })
}

fn same_subsets(one: &[EndpointSubset], other: &[EndpointSubset]) -> bool {
    let plain = |subsets: &[EndpointSubset]| {
        let mut subsets = subsets.to_vec();
        for subset in &mut subsets {
            let all = subset.addresses.iter_mut().chain(subset.not_ready_addresses.iter_mut()).flatten();
            for target in all.filter_map(|address| address.target_ref.as_mut()) {
                *target = ObjectReference { resource_version: None, ..std::mem::take(target) };
            }
        }
        subsets
    };
    plain(one) == plain(other)
}

fn labels_are_right(endpoints: &Endpoints, service_labels: &BTreeMap<String, String>) -> bool {
    let Some(labels) = &endpoints.metadata.labels else { return false };
    let own = |key: &&String| *key == HEADLESS || *key == MANAGED_BY;
    labels.get(MANAGED_BY).is_some_and(|by| by == MANAGER)
        && labels.iter().filter(|(key, _)| !own(key)).all(|(key, value)| service_labels.get(key) == Some(value))
        && service_labels.len() == labels.len() - labels.keys().filter(own).count()
}

fn capacity_is_right(endpoints: &Endpoints) -> bool {
    let length = |list: &Option<Vec<EndpointAddress>>| list.as_ref().map_or(0, Vec::len);
    let subsets = endpoints.subsets.iter().flatten();
    let count: usize = subsets.map(|subset| length(&subset.addresses) + length(&subset.not_ready_addresses)).sum();
    let marked = endpoints.metadata.annotations.as_ref().is_some_and(|all| all.contains_key(OVER_CAPACITY));
    count <= MAX_CAPACITY && !marked
}
