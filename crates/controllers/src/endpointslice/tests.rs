//! Packing and planning without a server.

use std::{collections::BTreeMap, sync::Arc};

use capstan_client::Key;
use k8s_openapi::api::{
    core::v1::{Node, Service},
    discovery::v1::{Endpoint, EndpointPort, EndpointSlice},
};
use serde_json::{Value, json};

use super::{
    pack::{Changes, EndpointKey, EndpointSet, pack, port_map_key, sort_ports},
    plan::{Plan, Present, plan},
    topology::TopologyCache,
};

use crate::pod::Pod;

fn endpoint(number: usize) -> Endpoint {
    Endpoint { addresses: vec![format!("10.0.{}.{}", number / 250, number % 250)], ..Endpoint::default() }
}

fn slice(name: &str, numbers: std::ops::Range<usize>) -> Arc<EndpointSlice> {
    let mut slice = EndpointSlice { endpoints: Some(numbers.map(endpoint).collect()), ..EndpointSlice::default() };
    slice.metadata.name = Some(name.to_owned());
    Arc::new(slice)
}

fn set(numbers: impl IntoIterator<Item = usize>) -> EndpointSet {
    numbers.into_iter().map(endpoint).map(|endpoint| (EndpointKey::of(&endpoint), endpoint)).collect()
}

/// What is written, as `new:size`, `name:size` and `-name`, sorted.
fn shown(changes: &Changes) -> Vec<String> {
    let size = |slice: &EndpointSlice| slice.endpoints.as_ref().map_or(0, Vec::len);
    let name = |slice: &EndpointSlice| slice.metadata.name.clone().unwrap_or_else(|| "new".to_owned());
    let mut all: Vec<_> = (changes.create.iter().chain(&changes.update))
        .map(|slice| format!("{}:{}", name(slice), size(slice)))
        .chain(changes.delete.iter().map(|slice| format!("-{}", name(slice))))
        .collect();
    all.sort();
    all
}

#[test]
fn packing() {
    fn check(existing: &[Arc<EndpointSlice>], desired: EndpointSet, expected: &[&str]) {
        let labels = |_: &EndpointSlice| (BTreeMap::new(), false);
        let changes = pack(existing, desired, 10, labels, EndpointSlice::default);
        assert_eq!(shown(&changes), expected);
    }
    check(&[], set(0..25), &["new:10", "new:10", "new:5"]);
    check(&[slice("a", 0..5)], set(0..5), &[]);
    // What is new goes where something changes anyway.
    check(&[slice("a", 0..5), slice("b", 5..9)], set((0..8).chain([20])), &["b:4"]);
    // Or into the one slice that it fills best, if all of it fits.
    check(&[slice("a", 0..5), slice("b", 5..12)], set(0..14), &["b:9"]);
    check(&[slice("a", 0..5), slice("b", 5..12)], set(0..16), &["a:9"]);
    // Or into a new one: no slice is changed only to be filled up.
    check(&[slice("a", 0..5), slice("b", 5..12)], set(0..20), &["new:8"]);
    // What is empty goes.
    check(&[slice("a", 0..5), slice("b", 5..9)], set(0..5), &["-b"]);
    check(&[slice("a", 0..3)], set(50..52), &["-a", "new:2"]);
}

#[test]
fn packing_writes_labels() {
    let labels = |_: &EndpointSlice| (BTreeMap::from([("a".to_owned(), "b".to_owned())]), true);
    let changes = pack(&[slice("a", 0..5)], set(0..5), 10, labels, EndpointSlice::default);
    assert_eq!(shown(&changes), ["a:5"]);
    assert_eq!(changes.update[0].metadata.labels.as_ref().unwrap()["a"], "b");
}

#[test]
fn ports_come_in_the_order_of_their_hashes() {
    let port = |name: &str, number, app: Option<&str>| EndpointPort {
        name: Some(name.to_owned()),
        port: Some(number),
        protocol: Some("TCP".to_owned()),
        app_protocol: app.map(str::to_owned),
    };
    // Go: b6c4… for the first, 9cff… for the second.
    let mut ports = [port("http", 80, None), port("", 443, Some("h2c"))];
    sort_ports(&mut ports);
    assert_eq!(ports[0].port, Some(443));
    let reversed = [ports[1].clone(), ports[0].clone()];
    assert_eq!(port_map_key(&ports), port_map_key(&reversed));
    assert_ne!(port_map_key(&ports), port_map_key(&ports[..1]));
}

fn planned(service: Value, pods: &[Value], slices: &[Arc<EndpointSlice>]) -> Plan {
    let service: Service = serde_json::from_value(service).unwrap();
    let pods: Vec<Arc<Pod>> = pods.iter().map(|pod| Arc::new(serde_json::from_value(pod.clone()).unwrap())).collect();
    let node: Node = serde_json::from_value(json!({"metadata": {"name": "n"}})).unwrap();
    let node = Arc::new(node);
    let present = Present {
        key: &Key::new("ns", "s"),
        service: &service,
        pods: &pods,
        slices,
        node: &|name| (name == "n").then(|| Arc::clone(&node)),
        nodes: &Vec::new,
    };
    plan(&present, &mut TopologyCache::default())
}

fn service(spec: Value) -> Value {
    let mut service = json!({"metadata": {"name": "s", "namespace": "ns", "uid": "u"},
        "spec": {"clusterIP": "10.0.0.1", "ipFamilies": ["IPv4"], "ports": [{"port": 80, "targetPort": "web"}]}});
    for (key, value) in spec.as_object().unwrap() {
        service["spec"][key] = value.clone();
    }
    service
}

fn pod(name: &str, ips: &[&str], port: i32) -> Value {
    let ips: Vec<_> = ips.iter().map(|ip| json!({"ip": ip})).collect();
    json!({"metadata": {"name": name, "namespace": "ns", "uid": name},
        "spec": {"nodeName": "n", "hostname": "h", "subdomain": "s",
                 "containers": [{"name": "c", "ports": [{"name": "web", "containerPort": port}]}]},
        "status": {"phase": "Running", "podIP": "x", "podIPs": ips, "conditions": [{"type": "Ready", "status": "True"}]}})
}

#[test]
fn families_and_ports_have_slices_of_their_own() {
    let both = service(json!({"ipFamilies": ["IPv4", "IPv6"]}));
    let pods = [pod("a", &["10.1.0.1", "fd00::1"], 8080), pod("b", &["10.1.0.2"], 9090)];
    let made = planned(both, &pods, &[]);
    let mut found: Vec<_> = (made.changes.create.iter())
        .map(|slice| {
            let addresses: Vec<_> = slice.endpoints.iter().flatten().flat_map(|e| e.addresses.clone()).collect();
            let port = slice.ports.as_ref().unwrap()[0].port.unwrap();
            format!("{} {port} {}", slice.address_type, addresses.join(","))
        })
        .collect();
    found.sort();
    assert_eq!(found, ["IPv4 8080 10.1.0.1", "IPv4 9090 10.1.0.2", "IPv6 8080 fd00::1"]);
    assert_eq!(made.changes.create[0].endpoints.as_ref().unwrap()[0].hostname.as_deref(), Some("h"));
}

#[test]
fn pods_that_end_and_nodes_that_are_not_there() {
    let addresses = |plan: &Plan| -> Vec<(String, bool, bool)> {
        let endpoints = plan.changes.create.iter().flat_map(|slice| slice.endpoints.iter().flatten());
        let each = |endpoint: &Endpoint| {
            let conditions = endpoint.conditions.clone().unwrap();
            (endpoint.addresses.concat(), conditions.ready.unwrap(), conditions.terminating.unwrap())
        };
        endpoints.map(each).collect()
    };
    let mut going = pod("a", &["10.1.0.1"], 80);
    going["metadata"]["deletionTimestamp"] = json!("2026-01-01T00:00:00Z");
    let mut ended = pod("b", &["10.1.0.2"], 80);
    ended["status"]["phase"] = json!("Succeeded");
    let mut lost = pod("c", &["10.1.0.3"], 80);
    lost["spec"]["nodeName"] = json!("gone");
    let pods = [going, ended, lost];
    let found = planned(service(json!({})), &pods, &[]);
    assert_eq!(addresses(&found), [("10.1.0.1".to_owned(), false, true)]);
    assert_eq!(found.errors, ["skipping Pod c for Service ns/s: Node gone Not Found"]);
    let found = planned(service(json!({"publishNotReadyAddresses": true})), &pods, &[]);
    assert_eq!(addresses(&found), [("10.1.0.1".to_owned(), true, true), ("10.1.0.3".to_owned(), true, false)]);
    assert!(found.errors.is_empty());
}

#[test]
fn a_placeholder_stays_and_is_used_again() {
    let empty = planned(service(json!({})), &[], &[]).changes;
    assert_eq!(shown(&empty), ["new:0"]);
    let mut placeholder = empty.create.into_iter().next().unwrap();
    placeholder.metadata.name = Some("p".to_owned());
    let placeholder = [Arc::new(placeholder)];
    assert_eq!(shown(&planned(service(json!({})), &[], &placeholder).changes), Vec::<String>::new());
    let used = planned(service(json!({})), &[pod("a", &["10.1.0.1"], 80)], &placeholder).changes;
    assert_eq!(shown(&used), ["p:1"]);
    // A slice of a service of that name that is gone is not used again.
    let mut other = EndpointSlice::clone(&placeholder[0]);
    other.metadata.owner_references.as_mut().unwrap()[0].uid = "old".to_owned();
    let used = planned(service(json!({})), &[pod("a", &["10.1.0.1"], 80)], &[Arc::new(other)]).changes;
    assert_eq!(shown(&used), ["-p", "new:1"]);
}
