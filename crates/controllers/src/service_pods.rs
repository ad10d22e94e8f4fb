//! Services and the pods behind them: what the Endpoints and the EndpointSlice loops have in common.

use std::{
    collections::{BTreeMap, HashMap},
    net::IpAddr,
    sync::{Arc, Mutex, PoisonError},
};

use capstan_api::{Str, selector::Selector};
use capstan_client::{HandlerFuncs, Key, Lister};
use capstan_clock::Timestamp;
use capstan_runtime::workqueue::PriorityQueue;
use k8s_openapi::{
    api::core::v1::{ObjectReference, Service, ServicePort},
    apimachinery::pkg::{apis::meta::v1::ObjectMeta, util::intstr::IntOrString},
};

use crate::pod::{Container, Pod, PodCondition};

/// Tells when what caused a change happened, for those who measure how long it takes to take effect.
pub(crate) const LAST_CHANGE_TRIGGER_TIME: &str = "endpoints.kubernetes.io/last-change-trigger-time";
/// Marks what belongs to a service without an address of its own.
pub(crate) const HEADLESS: &str = "service.kubernetes.io/headless";

fn ready_condition(pod: &Pod) -> Option<&PodCondition> {
    pod.status.as_ref()?.conditions.as_ref()?.iter().find(|condition| condition.type_ == "Ready")
}

/// Whether the pod says that it is ready.
pub(crate) fn is_ready(pod: &Pod) -> bool {
    ready_condition(pod).is_some_and(|condition| condition.status == "True")
}

/// The addresses of a pod, in the order of its status.
pub(crate) fn addresses(pod: &Pod) -> impl Iterator<Item = IpAddr> {
    let ips = pod.status.as_ref().and_then(|status| status.pod_ips.as_ref()).into_iter().flatten();
    ips.filter_map(|ip| ip.ip.parse::<IpAddr>().ok()).map(|ip| ip.to_canonical())
}

/// Whether a pod can be behind a service: it has an address and has not ended.
pub(crate) fn belongs_in_endpoints(pod: &Pod, include_terminating: bool) -> bool {
    let Some(status) = &pod.status else { return false };
    let ended = matches!(status.phase.as_deref(), Some("Failed" | "Succeeded"));
    let has_address = status.pod_ip.as_deref().is_some_and(|ip| !ip.is_empty())
        || status.pod_ips.as_ref().is_some_and(|ips| !ips.is_empty());
    !ended && has_address && (include_terminating || pod.metadata.deletion_timestamp.is_none())
}

/// The name under which a pod is found within the service, if it has one.
pub(crate) fn hostname<'a>(pod: &'a Pod, service: &Service) -> Option<&'a str> {
    let spec = pod.spec.as_ref()?;
    let hostname = spec.hostname.as_deref().filter(|hostname| !hostname.is_empty())?;
    let same = spec.subdomain.as_deref() == service.metadata.name.as_deref()
        && pod.metadata.namespace.as_deref() == service.metadata.namespace.as_deref();
    same.then_some(hostname)
}

/// What an endpoint says of its pod.
pub(crate) fn reference(pod: &Pod) -> ObjectReference {
    ObjectReference {
        kind: Some("Pod".to_owned()),
        namespace: pod.metadata.namespace.as_ref().map(ToString::to_string),
        name: pod.metadata.name.as_ref().map(ToString::to_string),
        uid: pod.metadata.uid.as_ref().map(ToString::to_string),
        ..ObjectReference::default()
    }
}

/// The protocol of a port.
pub(crate) fn protocol(port: &ServicePort) -> &str {
    port.protocol.as_deref().unwrap_or("TCP")
}

/// The number that a port of the service has in this pod. A name that no container has gives none.
pub(crate) fn find_port(pod: &Pod, port: &ServicePort) -> Option<i32> {
    let name = match &port.target_port {
        None => return Some(port.port),
        Some(IntOrString::Int(number)) => return Some(*number),
        Some(IntOrString::String(name)) => name,
    };
    let spec = pod.spec.as_ref()?;
    let ports = |container: &Container| {
        let found = container.ports.iter().flatten().find(|candidate| {
            candidate.name.as_deref() == Some(name.as_str())
                && candidate.protocol.as_deref().unwrap_or("TCP") == protocol(port)
        });
        found.map(|found| found.container_port)
    };
    // Only those init containers serve that go on.
    spec.containers.iter().chain(spec.sidecars()).find_map(ports)
}

/// Whether a service has an address of its own.
pub(crate) fn has_cluster_ip(service: &Service) -> bool {
    let ip = service.spec.as_ref().and_then(|spec| spec.cluster_ip.as_deref());
    !matches!(ip, None | Some("" | "None"))
}

/// Which pods a service wants; nothing when its endpoints are not made from pods.
pub(crate) fn selector(service: &Service) -> Option<Selector> {
    let spec = service.spec.as_ref()?;
    if spec.type_.as_deref() == Some("ExternalName") {
        return None;
    }
    spec.selector.as_ref().map(from_labels)
}

/// The selector of exactly these labels.
pub(crate) fn from_labels(labels: &BTreeMap<String, String>) -> Selector {
    Selector::from_labels(labels.iter().map(|(key, value)| (key.as_str(), value.as_str())))
}

/// The services that want these labels.
fn services_of(services: &Lister<Service>, pod: &Pod) -> Vec<Key> {
    let labels = pod.metadata.labels();
    let all = services.namespace(pod.metadata.namespace()).list(&Selector::default());
    let wanted = all.iter().filter(|service| {
        let selector = service.spec.as_ref().and_then(|spec| spec.selector.as_ref());
        selector.is_some_and(|selector| from_labels(selector).matches(labels))
    });
    wanted.map(|service| Key::of(&**service)).collect()
}

/// Whether a change of a pod can change which endpoints there are, beyond its labels.
fn endpoints_changed(old: &Pod, new: &Pod) -> bool {
    old.metadata.deletion_timestamp != new.metadata.deletion_timestamp
        || is_ready(old) != is_ready(new)
        || phase(old) != phase(new)
        || !addresses(old).eq(addresses(new))
}

fn phase(pod: &Pod) -> Option<&str> {
    pod.status.as_ref().and_then(|status| status.phase.as_deref())
}

fn name_in_service(pod: &Pod) -> Option<(&Option<Str>, &Option<Str>)> {
    pod.spec.as_ref().map(|spec| (&spec.hostname, &spec.subdomain))
}

/// Puts the services that a pod is behind, or was, into the queue.
pub(crate) fn pod_handler(services: Lister<Service>, queue: PriorityQueue<Key>) -> HandlerFuncs<Pod> {
    let tell = {
        let services = services.clone();
        move |pod: &Pod| services_of(&services, pod).into_iter().for_each(|key| queue.add(key))
    };
    let (added, deleted) = (tell.clone(), tell.clone());
    HandlerFuncs::new()
        .on_add(move |pod: &Arc<Pod>, _| added(pod))
        .on_update(move |old: &Arc<Pod>, new: &Arc<Pod>| {
            let moved = old.metadata.labels != new.metadata.labels || name_in_service(old) != name_in_service(new);
            if moved || endpoints_changed(old, new) {
                tell(new);
            }
            if moved {
                tell(old);
            }
        })
        .on_delete(move |pod| deleted(pod.object()))
}

/// When what caused the newest change happened.
///
/// It remembers, per service, what it has seen: the age of what changes is measured, not that of what stays.
#[derive(Debug, Default)]
pub(crate) struct TriggerTimes(Mutex<HashMap<Key, Seen>>);

#[derive(Clone, Debug, Default)]
struct Seen {
    service: Option<Timestamp>,
    pods: HashMap<Str, Timestamp>,
}

impl TriggerTimes {
    /// The earliest of the changes since the last time, if there are any.
    pub(crate) fn compute(&self, key: &Key, service: &Service, pods: &[Arc<Pod>]) -> Option<Timestamp> {
        let created = service.metadata.creation_timestamp.as_ref().map(|time| time.0);
        let times: HashMap<Str, Timestamp> = pods
            .iter()
            .filter_map(|pod| {
                let time = ready_condition(pod)?.last_transition_time.as_ref()?.0;
                Some((pod.metadata.name.clone()?, time))
            })
            .collect();
        let mut all = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        let now = Seen { service: created, pods: times };
        let Some(before) = all.insert(key.clone(), now.clone()) else { return created };
        let changed = now.pods.iter().filter(|(name, time)| before.pods.get(*name).is_none_or(|old| *time > old));
        let changed = changed.map(|(_, time)| *time);
        changed.chain(now.service.filter(|time| before.service.is_none_or(|old| *time > old))).min()
    }

    /// The service is gone.
    pub(crate) fn forget(&self, key: &Key) {
        self.0.lock().unwrap_or_else(PoisonError::into_inner).remove(key);
    }
}

/// Writes the trigger time into annotations, or takes an old one out.
pub(crate) fn annotate(meta: &mut ObjectMeta, trigger: Option<Timestamp>) {
    let annotations = meta.annotations.get_or_insert_default();
    match trigger {
        Some(time) => annotations.insert(LAST_CHANGE_TRIGGER_TIME.to_owned(), time.to_string()),
        None => annotations.remove(LAST_CHANGE_TRIGGER_TIME),
    };
}
