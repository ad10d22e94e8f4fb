//! Which slices a service should have, and what has to be written for that. No I/O.

use std::{
    collections::{BTreeMap, BTreeSet},
    sync::Arc,
};

use capstan_api::validation::name_is_dns_subdomain;
use capstan_client::Key;
use k8s_openapi::{
    api::{
        core::v1::{Node, Service},
        discovery::v1::{Endpoint, EndpointConditions, EndpointPort, EndpointSlice},
    },
    apimachinery::pkg::apis::meta::v1::{ObjectMeta, OwnerReference},
};

use super::{
    pack::{Changes, EndpointKey, EndpointSet, pack, port_map_key, sort_ports},
    topology::{self, TopologyCache},
    traffic::Near,
};
use crate::{
    pod::Pod,
    pod_status,
    service_pods::{self, HEADLESS, has_cluster_ip},
};

/// The label with the name of the service.
pub(crate) const SERVICE_NAME: &str = "kubernetes.io/service-name";
/// The label with the name of whoever keeps a slice.
pub(crate) const MANAGED_BY: &str = "endpointslice.kubernetes.io/managed-by";
/// What this loop puts there.
pub(crate) const MANAGER: &str = "endpointslice-controller.k8s.io";
/// How many endpoints a slice has at most.
pub(crate) const MAX_ENDPOINTS_PER_SLICE: usize = 100;

/// An Event that is to be recorded.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Said {
    /// `Normal` or `Warning`.
    pub(crate) type_: &'static str,
    /// Why, for machines.
    pub(crate) reason: &'static str,
    /// What, for people.
    pub(crate) message: String,
}

/// The slices of a service with addresses of one type, as they will be.
#[derive(Debug)]
pub(crate) struct SliceInfo<'a> {
    pub(crate) key: &'a Key,
    pub(crate) address_type: &'a str,
    pub(crate) create: Vec<EndpointSlice>,
    pub(crate) update: Vec<EndpointSlice>,
    pub(crate) unchanged: Vec<Arc<EndpointSlice>>,
}

/// What is to be done for a service.
#[derive(Debug, Default)]
pub(crate) struct Plan {
    /// What is to be written.
    pub(crate) changes: Changes,
    /// What is to be recorded once that is done.
    pub(crate) events: Vec<Said>,
    /// What keeps the result from being complete.
    pub(crate) errors: Vec<String>,
}

/// The present state of what the slices of a service are made from.
pub(crate) struct Present<'a> {
    pub(crate) key: &'a Key,
    pub(crate) service: &'a Service,
    pub(crate) pods: &'a [Arc<Pod>],
    /// The slices of this loop that are not being deleted.
    pub(crate) slices: &'a [Arc<EndpointSlice>],
    pub(crate) node: &'a dyn Fn(&str) -> Option<Arc<Node>>,
    /// All nodes: asked only where hints are wanted.
    pub(crate) nodes: &'a dyn Fn() -> Vec<Arc<Node>>,
}

/// What has to be done for a service.
pub(crate) fn plan(present: &Present<'_>, topology: &mut TopologyCache) -> Plan {
    let mut plan = Plan::default();
    let types = address_types(present.service);
    for slice in present.slices.iter().filter(|slice| !types.contains(&*slice.address_type)) {
        topology.remove(present.key, &slice.address_type);
        plan.changes.delete.push(Arc::clone(slice));
    }
    for address_type in types {
        let one = by_address_type(present, address_type, topology, &mut plan.errors);
        plan.changes.extend(one.changes);
        plan.events.extend(one.events);
    }
    plan
}

fn by_address_type(
    present: &Present<'_>,
    address_type: &str,
    topology: &mut TopologyCache,
    errors: &mut Vec<String>,
) -> Plan {
    let service = present.service;
    let existing: Vec<_> = present.slices.iter().filter(|slice| slice.address_type == address_type).collect();
    let mut changes = Changes::default();
    let mut by_ports: BTreeMap<String, Vec<Arc<EndpointSlice>>> = BTreeMap::new();
    for slice in &existing {
        if owned_by(slice, service) {
            let key = port_map_key(slice.ports.as_deref().unwrap_or_default());
            by_ports.entry(key).or_default().push(Arc::clone(slice));
        } else {
            changes.delete.push(Arc::clone(slice));
        }
    }
    for (key, (ports, endpoints)) in desired(present, address_type, errors) {
        let slices = by_ports.remove(&key).unwrap_or_default();
        let labels = |slice: &EndpointSlice| slice_labels(slice.metadata.labels.as_ref(), service);
        let new = || new_slice(service, ports.clone(), address_type);
        changes.extend(pack(&slices, endpoints, MAX_ENDPOINTS_PER_SLICE, labels, new));
    }
    changes.delete.extend(by_ports.into_values().flatten());

    // A service without endpoints has one slice that says so.
    if existing.len() == changes.delete.len() && changes.create.is_empty() {
        let placeholder = new_slice(service, Vec::new(), address_type);
        match changes.delete.as_slice() {
            [only] if same_but_for_its_name(only, &placeholder) => changes.delete.clear(),
            _ => changes.create.push(placeholder),
        }
    }

    let changed: BTreeSet<_> = (changes.update.iter())
        .chain(changes.delete.iter().map(|slice| &**slice))
        .map(|slice| slice.metadata.name.clone())
        .collect();
    let unchanged = existing.iter().filter(|slice| !changed.contains(&slice.metadata.name));
    let mut info = SliceInfo {
        key: present.key,
        address_type,
        create: changes.create,
        update: changes.update,
        unchanged: unchanged.map(|slice| Arc::clone(slice)).collect(),
    };
    let mut events = Vec::new();
    set_hints(present, &mut info, topology, &mut events);
    let mut changes = Changes { create: info.create, update: info.update, delete: changes.delete };
    changes.recycle(|slice| owned_by(slice, service));
    if service.metadata.deletion_timestamp.is_some() {
        changes.create.clear();
    }
    Plan { changes, events, errors: Vec::new() }
}

fn set_hints(present: &Present<'_>, info: &mut SliceInfo<'_>, topology: &mut TopologyCache, events: &mut Vec<Said>) {
    if hints_enabled(present.service) {
        let ratios = topology::ratios(&(present.nodes)());
        topology.add_hints(info, ratios.as_ref(), events);
        return;
    }
    if topology.has_hints(info.key) {
        let message = topology::said("Topology Aware Hints has been disabled", info);
        events.push(Said { type_: "Warning", reason: "TopologyAwareHintsDisabled", message });
    }
    topology.remove(info.key, info.address_type);
    let distribution = present.service.spec.as_ref().and_then(|spec| spec.traffic_distribution.as_deref());
    match Near::parse(distribution) {
        None => topology::remove_from(info),
        Some(near) => {
            let (changed, unchanged): (Vec<_>, Vec<_>) =
                info.unchanged.drain(..).partition(|slice| near.needs_update(slice));
            info.unchanged = unchanged;
            info.update.extend(changed.iter().map(|slice| EndpointSlice::clone(slice)));
            info.create.iter_mut().chain(info.update.iter_mut()).for_each(|slice| near.update(slice));
        }
    }
}

fn hints_enabled(service: &Service) -> bool {
    let annotations = service.metadata.annotations.as_ref();
    let value = |name: &str| annotations.and_then(|annotations| annotations.get(name));
    let mode =
        value("service.kubernetes.io/topology-aware-hints").or_else(|| value("service.kubernetes.io/topology-mode"));
    matches!(mode.map(String::as_str), Some("Auto" | "auto"))
}

/// The types of addresses that a service has slices for.
fn address_types(service: &Service) -> BTreeSet<&'static str> {
    let spec = service.spec.as_ref();
    let families = spec.and_then(|spec| spec.ip_families.as_ref()).into_iter().flatten();
    let types: BTreeSet<_> = families
        .filter_map(|family| match family.as_str() {
            "IPv4" => Some("IPv4"),
            "IPv6" => Some("IPv6"),
            _ => None,
        })
        .collect();
    if !types.is_empty() {
        return types;
    }
    if has_cluster_ip(service) {
        let ip = spec.and_then(|spec| spec.cluster_ip.as_deref()).unwrap_or_default();
        return BTreeSet::from([if ip.contains(':') { "IPv6" } else { "IPv4" }]);
    }
    BTreeSet::from(["IPv4", "IPv6"])
}

type Desired = BTreeMap<String, (Vec<EndpointPort>, EndpointSet)>;

fn desired(present: &Present<'_>, address_type: &str, errors: &mut Vec<String>) -> Desired {
    let service = present.service;
    let publish_not_ready = service.spec.as_ref().is_some_and(|spec| spec.publish_not_ready_addresses == Some(true));
    let mut desired = Desired::new();
    for pod in present.pods.iter().filter(|pod| service_pods::belongs_in_endpoints(pod, true)) {
        let ports = endpoint_ports(service, pod);
        let (_, set) = desired.entry(port_map_key(&ports)).or_insert_with(|| (ports, EndpointSet::new()));
        let node_name = pod.spec.as_ref().and_then(|spec| spec.node_name.as_deref()).unwrap_or_default();
        let node = (present.node)(node_name);
        if node.is_none() && !publish_not_ready {
            let pod = pod.metadata.name.as_deref().unwrap_or_default();
            errors.push(format!("skipping Pod {pod} for Service {}: Node {node_name} Not Found", present.key));
            continue;
        }
        let endpoint = endpoint(pod, node.as_deref(), service, address_type, publish_not_ready);
        if !endpoint.addresses.is_empty() {
            set.insert(EndpointKey::of(&endpoint), endpoint);
        }
    }
    desired
}

fn endpoint_ports(service: &Service, pod: &Pod) -> Vec<EndpointPort> {
    let ports = service.spec.as_ref().and_then(|spec| spec.ports.as_ref()).into_iter().flatten();
    let mut ports: Vec<_> = ports
        .filter_map(|port| {
            Some(EndpointPort {
                name: Some(port.name.clone().unwrap_or_default()),
                port: Some(service_pods::find_port(pod, port)?),
                protocol: Some(service_pods::protocol(port).to_owned()),
                app_protocol: port.app_protocol.clone(),
            })
        })
        .collect();
    sort_ports(&mut ports);
    ports
}

fn endpoint(
    pod: &Pod,
    node: Option<&Node>,
    service: &Service,
    address_type: &str,
    publish_not_ready: bool,
) -> Endpoint {
    let serving = service_pods::is_ready(pod);
    let terminating = pod.metadata.deletion_timestamp.is_some();
    let ready = publish_not_ready || (serving && !terminating);
    let of_type = |ip: &std::net::IpAddr| ip.is_ipv6() == (address_type == "IPv6");
    Endpoint {
        addresses: service_pods::addresses(pod).filter(of_type).map(|ip| ip.to_string()).collect(),
        conditions: Some(EndpointConditions {
            ready: Some(ready),
            serving: Some(serving),
            terminating: Some(terminating),
        }),
        target_ref: Some(service_pods::reference(pod)),
        node_name: Some(pod_status::node_name(pod)).filter(|name| !name.is_empty()).map(str::to_owned),
        zone: node.and_then(topology::zone).map(str::to_owned),
        hostname: service_pods::hostname(pod, service).map(str::to_owned),
        ..Endpoint::default()
    }
}

fn new_slice(service: &Service, ports: Vec<EndpointPort>, address_type: &str) -> EndpointSlice {
    let name = service.metadata.name.clone().unwrap_or_default();
    let owner = OwnerReference {
        api_version: "v1".to_owned(),
        kind: "Service".to_owned(),
        name: name.clone(),
        uid: service.metadata.uid.clone().unwrap_or_default(),
        controller: Some(true),
        block_owner_deletion: Some(true),
    };
    EndpointSlice {
        metadata: ObjectMeta {
            generate_name: Some(prefix(&name)),
            namespace: service.metadata.namespace.clone(),
            labels: Some(slice_labels(None, service).0),
            owner_references: Some(vec![owner]),
            ..ObjectMeta::default()
        },
        address_type: address_type.to_owned(),
        ports: Some(ports),
        endpoints: Some(Vec::new()),
    }
}

/// What names of slices begin with. A dash is added if the name is still one then.
pub(crate) fn prefix(name: &str) -> String {
    let prefix = format!("{name}-");
    if name_is_dns_subdomain(&prefix, true).is_empty() { prefix } else { name.to_owned() }
}

fn owned_by(slice: &EndpointSlice, service: &Service) -> bool {
    let owners = slice.metadata.owner_references.iter().flatten();
    owners.into_iter().any(|owner| {
        Some(&owner.uid) == service.metadata.uid.as_ref() && owner.kind == "Service" && owner.api_version == "v1"
    })
}

/// The labels that a slice should have: those of the service and this loop's own. True when those of the service are
/// not what the slice has.
fn slice_labels(present: Option<&BTreeMap<String, String>>, service: &Service) -> (BTreeMap<String, String>, bool) {
    let plain = |labels: Option<&BTreeMap<String, String>>| -> BTreeMap<String, String> {
        let labels = labels.into_iter().flatten();
        let labels = labels.filter(|(key, _)| ![SERVICE_NAME, MANAGED_BY, HEADLESS].contains(&key.as_str()));
        labels.map(|(key, value)| (key.clone(), value.clone())).collect()
    };
    let mut labels = plain(service.metadata.labels.as_ref());
    let changed = plain(present) != labels;
    if !has_cluster_ip(service) {
        labels.insert(HEADLESS.to_owned(), String::new());
    }
    labels.insert(SERVICE_NAME.to_owned(), service.metadata.name.clone().unwrap_or_default());
    labels.insert(MANAGED_BY.to_owned(), MANAGER.to_owned());
    (labels, changed)
}

fn same_but_for_its_name(one: &EndpointSlice, other: &EndpointSlice) -> bool {
    one.metadata.labels == other.metadata.labels
        && one.address_type == other.address_type
        && one.ports.as_deref().unwrap_or_default() == other.ports.as_deref().unwrap_or_default()
        && one.endpoints.as_deref().unwrap_or_default() == other.endpoints.as_deref().unwrap_or_default()
}
