//! EndpointSlice mirroring: Endpoints that people write by hand, for services without a selector, as slices.

use std::{collections::BTreeMap, net::IpAddr, sync::Arc, time::Duration};

use capstan_client::{Api, BoxFuture, Client, Deleted, HandlerFuncs, Key, SharedIndexInformer};
use capstan_runtime::{Action, Controller, ReconcileError, Reconciler, handler::enqueue_requests_from_map_func};
use k8s_openapi::{
    api::{
        core::v1::{EndpointAddress, EndpointPort as Port, Endpoints, Service},
        discovery::v1::{Endpoint, EndpointConditions, EndpointPort, EndpointSlice},
    },
    apimachinery::pkg::apis::meta::v1::{ObjectMeta, OwnerReference},
};

use crate::{
    ControllerContext,
    drive::{drive, filled},
    endpoints::{LEADER, repack},
    endpointslice::{
        Changes, EndpointKey, EndpointSet, MANAGED_BY, SERVICE_NAME, port_map_key, prefix, says_the_same,
        slice_handler, slice_queue, sort_ports, write,
    },
    recorder::Recorder,
    service_pods::{LAST_CHANGE_TRIGGER_TIME, from_labels},
    written::Written,
};

/// What this loop writes into the label of its slices.
const MANAGER: &str = "endpointslicemirroring-controller.k8s.io";
/// How many addresses of a subset are mirrored.
const MAX_ENDPOINTS_PER_SUBSET: usize = 1_000;
/// Keeps Endpoints from being mirrored.
const SKIP: &str = "endpointslice.kubernetes.io/skip-mirror";
/// What `kubectl apply` leaves behind; it is about the Endpoints and not about the slices.
const LAST_APPLIED: &str = "kubectl.kubernetes.io/last-applied-configuration";
/// How long a failure waits at first.
const BACKOFF: Duration = Duration::from_secs(1);
/// How long a failure waits at most.
const MAX_BACKOFF: Duration = Duration::from_secs(100);
/// How many Endpoints are worked on at the same time.
const WORKERS: usize = 5;

struct Mirror {
    client: Client,
    endpoints: SharedIndexInformer<Endpoints>,
    services: SharedIndexInformer<Service>,
    slices: SharedIndexInformer<EndpointSlice>,
    written: Arc<Written>,
    recorder: Recorder,
}

/// Mirrors Endpoints of services without a selector.
pub(crate) fn run(context: &ControllerContext) -> BoxFuture<'static, ()> {
    let informers = &context.informers;
    let reconciler = Mirror {
        client: context.client.clone(),
        endpoints: informers.informer(),
        services: informers.informer(),
        slices: informers.informer(),
        written: Arc::default(),
        recorder: Recorder::new(context, "endpoint-slice-mirroring-controller"),
    };
    let (endpoints, services, slices) =
        (reconciler.endpoints.clone(), reconciler.services.clone(), reconciler.slices.clone());
    let written = Arc::clone(&reconciler.written);
    let controller = Controller::new(reconciler, Arc::clone(&context.clock))
        .with_queue(slice_queue(context, BACKOFF, MAX_BACKOFF))
        .max_concurrent_reconciles(WORKERS);
    let queue = controller.queue().clone();
    endpoints.add_event_handler(enqueue_requests_from_map_func(queue.clone(), |endpoints: &Endpoints| {
        Vec::from_iter(should_mirror(endpoints).then(|| Key::of(endpoints)))
    }));
    let (added, updated, deleted) = (queue.clone(), queue.clone(), queue.clone());
    services.add_event_handler(
        HandlerFuncs::new()
            .on_add(move |service: &Arc<Service>, _| {
                if !has_selector(service) {
                    added.add(Key::of(&**service));
                }
            })
            .on_update(move |old: &Arc<Service>, new: &Arc<Service>| {
                if has_selector(old) != has_selector(new) {
                    updated.add(Key::of(&**new));
                }
            })
            .on_delete(move |service: &Deleted<Service>| {
                if !has_selector(service.object()) {
                    deleted.add(Key::of(&**service.object()));
                }
            }),
    );
    slices.add_event_handler(slice_handler(MANAGER, Duration::ZERO, written, queue));
    let caches = vec![filled(&endpoints), filled(&services), filled(&slices)];
    drive(context, "endpoint_slice_mirroring", caches, controller)
}

fn has_selector(service: &Service) -> bool {
    service.spec.as_ref().is_some_and(|spec| spec.selector.is_some())
}

fn should_mirror(endpoints: &Endpoints) -> bool {
    let labels = endpoints.metadata.labels.as_ref();
    let skip = labels.is_some_and(|labels| labels.get(SKIP).is_some_and(|skip| skip == "true"));
    let leads = endpoints.metadata.annotations.as_ref().is_some_and(|all| all.contains_key(LEADER));
    !skip && !leads
}

impl Reconciler for Mirror {
    async fn reconcile(&self, key: Key) -> Result<Action, ReconcileError> {
        let labels = [(SERVICE_NAME.to_owned(), key.name().to_owned()), (MANAGED_BY.to_owned(), MANAGER.to_owned())];
        let slices = self.slices.lister().namespace(key.namespace()).list(&from_labels(&labels.into()));
        let endpoints = self.endpoints.lister().get(&key).filter(|endpoints| should_mirror(endpoints));
        let service = self.services.lister().get(&key).filter(|service| !has_selector(service));
        let (Some(endpoints), Some(_)) = (endpoints, service) else {
            self.written.forget(&key);
            return self.delete(&key, &slices).await;
        };
        if self.written.is_ahead(&key, &self.slices) {
            return Ok(Action::RequeueAfter(BACKOFF));
        }
        let Mirrored { changes, invalid, skipped } = mirror(&endpoints, &slices);
        if invalid > 0 {
            let message = format!("Skipped {invalid} invalid IP addresses when mirroring to EndpointSlices");
            self.recorder.warning(&*endpoints, "InvalidIPAddress", message);
        }
        if skipped > invalid {
            let message = format!(
                "A max of {MAX_ENDPOINTS_PER_SUBSET} addresses can be mirrored to EndpointSlices per Endpoints subset. \
                 {skipped} addresses were skipped"
            );
            self.recorder.warning(&*endpoints, "TooManyAddressesToMirror", message);
        }
        match write(&self.client, &key, "Endpoints", changes, &self.written, |_| {}).await {
            Ok(()) => Ok(Action::Done),
            Err(failed) => Err(ReconcileError::Retry(failed)),
        }
    }
}

impl Mirror {
    async fn delete(&self, key: &Key, slices: &[Arc<EndpointSlice>]) -> Result<Action, ReconcileError> {
        let api = Api::<EndpointSlice>::namespaced(&self.client, key.namespace());
        for slice in slices {
            match api.delete(slice.metadata.name.as_deref().unwrap_or_default(), &Default::default()).await {
                Err(error) if !error.is_not_found() => return Err(error.into()),
                _ => {}
            }
        }
        Ok(Action::Done)
    }
}

/// What mirroring comes to.
#[derive(Debug, Default)]
struct Mirrored {
    changes: Changes,
    /// How many addresses make no sense.
    invalid: usize,
    /// How many addresses are left out, for whatever reason.
    skipped: usize,
}

/// What has to be written so that the slices say what the Endpoints say: one slice for each set of ports and each type
/// of addresses.
fn mirror(endpoints: &Endpoints, slices: &[Arc<EndpointSlice>]) -> Mirrored {
    let mut mirrored = Mirrored::default();
    let mut desired: BTreeMap<(&str, String), (Vec<EndpointPort>, EndpointSet)> = BTreeMap::new();
    for subset in repack(endpoints.subsets.as_deref().unwrap_or_default()) {
        let mut ports: Vec<_> = subset.ports.iter().flatten().map(slice_port).collect();
        sort_ports(&mut ports);
        let key = port_map_key(&ports);
        let ready = subset.addresses.iter().flatten().map(|address| (address, true));
        let all: Vec<_> = ready.chain(subset.not_ready_addresses.iter().flatten().map(|a| (a, false))).collect();
        let mut added = 0;
        for (address, ready) in &all {
            if added >= MAX_ENDPOINTS_PER_SUBSET {
                break;
            }
            let Some((address_type, endpoint)) = endpoint(address, *ready) else {
                mirrored.invalid += 1;
                continue;
            };
            let entry = desired.entry((address_type, key.clone()));
            let (_, set) = entry.or_insert_with(|| (ports.clone(), EndpointSet::new()));
            set.insert(EndpointKey::of(&endpoint), endpoint);
            added += 1;
        }
        mirrored.skipped += all.len() - added;
    }
    let mut existing: BTreeMap<(&str, String), Vec<Arc<EndpointSlice>>> = BTreeMap::new();
    for slice in slices {
        let key = port_map_key(slice.ports.as_deref().unwrap_or_default());
        existing.entry((&slice.address_type, key)).or_default().push(Arc::clone(slice));
    }
    for (key, (ports, set)) in desired {
        let mut slices = existing.remove(&key).unwrap_or_default().into_iter();
        let first = slices.next();
        mirrored.changes.delete.extend(slices);
        if first.as_deref().is_some_and(|first| is_mirrored(endpoints, first, &set)) {
            continue;
        }
        let mut slice = new_slice(endpoints, ports, key.0);
        slice.endpoints = Some(set.into_values().take(MAX_ENDPOINTS_PER_SUBSET).collect());
        match first {
            None => mirrored.changes.create.push(slice),
            Some(first) => {
                slice.metadata.name.clone_from(&first.metadata.name);
                slice.metadata.generate_name = None;
                mirrored.changes.update.push(slice);
            }
        }
    }
    mirrored.changes.delete.extend(existing.into_values().flatten());
    mirrored.changes.recycle(|_| true);
    if endpoints.metadata.deletion_timestamp.is_some() {
        mirrored.changes.create.clear();
    }
    mirrored
}

fn is_mirrored(endpoints: &Endpoints, slice: &EndpointSlice, desired: &EndpointSet) -> bool {
    let present = slice.endpoints.as_deref().unwrap_or_default();
    let same = |endpoint: &Endpoint| {
        desired.get(&EndpointKey::of(endpoint)).is_some_and(|wanted| says_the_same(wanted, endpoint))
    };
    let wanted = new_slice(endpoints, Vec::new(), &slice.address_type).metadata;
    let others = slice.metadata.owner_references.iter().flatten().any(|owner| {
        owner.kind == "Endpoints"
            && Some(&owner.name) == endpoints.metadata.name.as_ref()
            && Some(&owner.uid) != endpoints.metadata.uid.as_ref()
    });
    present.len() == desired.len()
        && present.iter().all(same)
        && slice.metadata.labels == wanted.labels
        && slice.metadata.annotations.clone().unwrap_or_default() == wanted.annotations.unwrap_or_default()
        && !others
}

fn slice_port(port: &Port) -> EndpointPort {
    EndpointPort {
        name: Some(port.name.clone().unwrap_or_default()),
        port: Some(port.port),
        protocol: Some(port.protocol.clone().unwrap_or_else(|| "TCP".to_owned())),
        app_protocol: port.app_protocol.clone(),
    }
}

fn endpoint(address: &EndpointAddress, ready: bool) -> Option<(&'static str, Endpoint)> {
    let ip = address.ip.parse::<IpAddr>().ok()?.to_canonical();
    let endpoint = Endpoint {
        addresses: vec![ip.to_string()],
        conditions: Some(EndpointConditions { ready: Some(ready), ..EndpointConditions::default() }),
        target_ref: address.target_ref.clone(),
        node_name: address.node_name.clone(),
        hostname: address.hostname.clone().filter(|hostname| !hostname.is_empty()),
        ..Endpoint::default()
    };
    Some((if ip.is_ipv6() { "IPv6" } else { "IPv4" }, endpoint))
}

fn new_slice(endpoints: &Endpoints, ports: Vec<EndpointPort>, address_type: &str) -> EndpointSlice {
    let name = endpoints.metadata.name.clone().unwrap_or_default();
    let mut labels = endpoints.metadata.labels.clone().unwrap_or_default();
    labels.insert(SERVICE_NAME.to_owned(), name.clone());
    labels.insert(MANAGED_BY.to_owned(), MANAGER.to_owned());
    let mut annotations = endpoints.metadata.annotations.clone().unwrap_or_default();
    annotations.retain(|key, _| key != LAST_CHANGE_TRIGGER_TIME && key != LAST_APPLIED);
    let owner = OwnerReference {
        api_version: "v1".to_owned(),
        kind: "Endpoints".to_owned(),
        name: name.clone(),
        uid: endpoints.metadata.uid.clone().unwrap_or_default(),
        controller: Some(true),
        block_owner_deletion: Some(true),
    };
    EndpointSlice {
        metadata: ObjectMeta {
            generate_name: Some(prefix(&name)),
            namespace: endpoints.metadata.namespace.clone(),
            labels: Some(labels),
            annotations: Some(annotations),
            owner_references: Some(vec![owner]),
            ..ObjectMeta::default()
        },
        address_type: address_type.to_owned(),
        ports: Some(ports),
        endpoints: Some(Vec::new()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn endpoints(subsets: serde_json::Value) -> Endpoints {
        serde_json::from_value(serde_json::json!({
            "metadata": {"name": "db", "namespace": "ns", "uid": "e", "labels": {"a": "b"}, "annotations": {
                "kept": "yes", LAST_APPLIED: "{}", LAST_CHANGE_TRIGGER_TIME: "now"}},
            "subsets": subsets,
        }))
        .unwrap()
    }

    #[test]
    fn one_slice_for_each_type_of_addresses() {
        let given = endpoints(serde_json::json!([{
            "addresses": [{"ip": "10.0.0.1"}, {"ip": "fd00::1"}, {"ip": "no"}],
            "notReadyAddresses": [{"ip": "10.0.0.2", "hostname": "h"}],
            "ports": [{"port": 5432}],
        }]));
        let first = mirror(&given, &[]);
        assert_eq!((first.invalid, first.skipped, first.changes.create.len()), (1, 1, 2));
        let v4 = &first.changes.create[0];
        assert_eq!(v4.address_type, "IPv4");
        let metadata = serde_json::to_value(&v4.metadata).unwrap();
        assert_eq!(metadata["labels"][SERVICE_NAME], "db");
        assert_eq!(metadata["labels"]["a"], "b");
        assert_eq!(metadata["annotations"], serde_json::json!({"kept": "yes"}));
        assert_eq!(metadata["generateName"], "db-");
        let shown: Vec<_> = v4
            .endpoints
            .as_ref()
            .unwrap()
            .iter()
            .map(|e| (e.addresses.concat(), e.conditions.clone().unwrap().ready, e.hostname.clone()))
            .collect();
        assert_eq!(
            shown,
            [("10.0.0.1".to_owned(), Some(true), None), ("10.0.0.2".to_owned(), Some(false), Some("h".to_owned())),]
        );

        // What is mirrored already is left alone; what is no longer wanted becomes something that is.
        let named = |mut slice: EndpointSlice, name: &str| {
            slice.metadata.name = Some(name.to_owned());
            Arc::new(slice)
        };
        let mut create = first.changes.create.into_iter();
        let slices = [named(create.next().unwrap(), "four"), named(create.next().unwrap(), "six")];
        let again = mirror(&given, &slices).changes;
        assert_eq!((again.create.len(), again.update.len(), again.delete.len()), (0, 0, 0));
        let other = endpoints(serde_json::json!([{"addresses": [{"ip": "10.0.0.1"}], "ports": [{"port": 1}]}]));
        let changed = mirror(&other, &slices).changes;
        assert_eq!((changed.create.len(), changed.update.len(), changed.delete.len()), (0, 1, 1));
        assert_eq!(changed.update[0].metadata.name.as_deref(), Some("four"));
        assert_eq!(changed.delete[0].metadata.name.as_deref(), Some("six"));
    }
}
