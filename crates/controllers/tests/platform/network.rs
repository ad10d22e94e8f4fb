//! Endpoints, EndpointSlices, their mirrors and ServiceCIDRs.

use std::collections::BTreeMap;

use k8s_openapi::api::{
    core::v1::{Endpoints, Namespace, Node, Pod, Service},
    discovery::v1::EndpointSlice,
    networking::v1::ServiceCIDR,
};
use serde_json::{Value, json};

use crate::harness::Cluster;

const SLICES: &[&str] = &["endpointslice-controller"];

async fn node(cluster: &Cluster, name: &str, zone: &str) {
    let _: Node = cluster
        .create(json!({
            "metadata": {"name": name, "labels": {"topology.kubernetes.io/zone": zone}},
            "status": {"allocatable": {"cpu": "4"}, "conditions": [{"type": "Ready", "status": "True"}]},
        }))
        .await;
}

async fn service(cluster: &Cluster, name: &str, extra: Value) -> Service {
    let mut spec = json!({"selector": {"app": name}, "ports": [
        {"name": "http", "port": 80, "targetPort": "web"}, {"name": "admin", "port": 81, "targetPort": 8081}]});
    for (key, value) in extra.as_object().unwrap() {
        spec[key] = value.clone();
    }
    cluster.create(json!({"metadata": {"name": name, "labels": {"team": "a"}}, "spec": spec})).await
}

async fn pod(cluster: &Cluster, name: &str, app: &str, node: &str, ip: &str, ready: bool) -> Pod {
    cluster
        .create(json!({
            "metadata": {"name": name, "labels": {"app": app}},
            "spec": {"nodeName": node, "containers": [
                {"name": "c", "image": "i", "ports": [{"name": "web", "containerPort": 8080}]}]},
            "status": {"phase": "Running", "podIP": ip, "podIPs": [{"ip": ip}], "conditions": [
                {"type": "Ready", "status": if ready { "True" } else { "False" },
                 "lastTransitionTime": "2026-01-01T00:00:05Z"}]},
        }))
        .await
}

async fn slices(cluster: &Cluster, service: &str) -> Vec<EndpointSlice> {
    let of = |slice: &EndpointSlice| {
        slice.metadata.labels.as_ref().is_some_and(|labels| labels["kubernetes.io/service-name"] == service)
    };
    cluster.list::<EndpointSlice>("default").await.into_iter().filter(of).collect()
}

/// Addresses with their readiness, as `ip` or `ip!`.
fn shown(slices: &[EndpointSlice]) -> Vec<String> {
    let mut all: Vec<_> = slices
        .iter()
        .flat_map(|slice| slice.endpoints.iter().flatten())
        .map(|endpoint| {
            let ready = endpoint.conditions.as_ref().unwrap().ready == Some(true);
            format!("{}{}", endpoint.addresses.join(","), if ready { "" } else { "!" })
        })
        .collect();
    all.sort();
    all
}

async fn until_shown(cluster: &Cluster, service: &str, expected: &[&str]) -> Vec<EndpointSlice> {
    cluster
        .until(&format!("{expected:?}"), || async {
            let slices = slices(cluster, service).await;
            (shown(&slices) == expected && !slices.is_empty()).then_some(slices)
        })
        .await
}

#[tokio::test]
async fn slices_follow_pods() {
    let cluster = Cluster::start().await;
    node(&cluster, "n1", "z1").await;
    let running = cluster.run(SLICES);
    service(&cluster, "web", json!({})).await;
    let empty = until_shown(&cluster, "web", &[]).await;
    assert_eq!(empty.len(), 1, "a service without pods has one empty slice");
    assert!(empty[0].ports.iter().flatten().next().is_none());

    pod(&cluster, "a", "web", "n1", "10.9.0.1", true).await;
    pod(&cluster, "b", "web", "n1", "10.9.0.2", false).await;
    pod(&cluster, "other", "other", "n1", "10.9.0.3", true).await;
    let found = until_shown(&cluster, "web", &["10.9.0.1", "10.9.0.2!"]).await;
    assert_eq!(found.len(), 1);
    assert_eq!(found[0].metadata.name, empty[0].metadata.name, "the empty slice is used again");
    let slice = serde_json::to_value(&found[0]).unwrap();
    assert_eq!(slice["addressType"], "IPv4");
    assert_eq!(slice["metadata"]["generateName"], "web-");
    assert_eq!(
        slice["metadata"]["labels"],
        json!({"team": "a", "kubernetes.io/service-name": "web",
               "endpointslice.kubernetes.io/managed-by": "endpointslice-controller.k8s.io"})
    );
    assert_eq!(slice["metadata"]["ownerReferences"][0]["kind"], "Service");
    assert_eq!(slice["metadata"]["ownerReferences"][0]["controller"], true);
    let ports: BTreeMap<_, _> = slice["ports"]
        .as_array()
        .unwrap()
        .iter()
        .map(|port| (port["name"].as_str().unwrap(), port["port"].as_i64().unwrap()))
        .collect();
    assert_eq!(ports, BTreeMap::from([("http", 8080), ("admin", 8081)]));
    let endpoint =
        slice["endpoints"].as_array().unwrap().iter().find(|endpoint| endpoint["addresses"][0] == "10.9.0.1").unwrap();
    assert_eq!(endpoint["zone"], "z1");
    assert_eq!(endpoint["nodeName"], "n1");
    assert_eq!(endpoint["conditions"], json!({"ready": true, "serving": true, "terminating": false}));
    assert_eq!(endpoint["targetRef"]["name"], "a");

    // Readiness, labels and deletion change it; the change of the service's labels reaches the slice.
    let b: Pod = cluster.get("default", "b").await.unwrap();
    cluster.set_status(&b, json!({"conditions": [{"type": "Ready", "status": "True"}]})).await;
    until_shown(&cluster, "web", &["10.9.0.1", "10.9.0.2"]).await;
    let _: Pod = cluster.merge("default", "a", json!({"metadata": {"labels": {"app": "gone"}}})).await;
    until_shown(&cluster, "web", &["10.9.0.2"]).await;
    let _: Service = cluster.merge("default", "web", json!({"metadata": {"labels": {"team": "b"}}})).await;
    cluster
        .until("labels", || async {
            let slices = slices(&cluster, "web").await;
            (slices[0].metadata.labels.as_ref().unwrap()["team"] == "b").then_some(())
        })
        .await;
    cluster.set_status(&b, json!({"phase": "Failed"})).await;
    until_shown(&cluster, "web", &[]).await;

    // Somebody deletes or breaks a slice.
    let name = slices(&cluster, "web").await[0].metadata.name.clone().unwrap();
    cluster.delete::<EndpointSlice>("default", &name).await;
    cluster.until("it comes back", || async { (!slices(&cluster, "web").await.is_empty()).then_some(()) }).await;

    // Nothing happens by itself.
    cluster.pass(&running, 5).await;
    let before = running.requests();
    cluster.pass(&running, 60).await;
    assert!(running.requests() - before <= 8, "{} requests in a minute of nothing", running.requests() - before);
    running.kill();
}

#[tokio::test]
async fn slices_hold_a_hundred() {
    let cluster = Cluster::start().await;
    node(&cluster, "n1", "z1").await;
    for index in 0..120 {
        pod(&cluster, &format!("p{index}"), "web", "n1", &format!("10.9.1.{index}"), true).await;
    }
    service(&cluster, "web", json!({})).await;
    let running = cluster.run(SLICES);
    let sizes = |slices: &[EndpointSlice]| {
        let mut sizes: Vec<_> = slices.iter().map(|slice| slice.endpoints.as_ref().map_or(0, Vec::len)).collect();
        sizes.sort_unstable();
        sizes
    };
    cluster.until("two slices", || async { (sizes(&slices(&cluster, "web").await) == [20, 100]).then_some(()) }).await;
    // What is new goes where something changes anyway, not into a new slice.
    cluster.delete_now::<Pod>("default", "p0").await;
    pod(&cluster, "q", "web", "n1", "10.9.2.1", true).await;
    cluster
        .until("still two slices", || async {
            let slices = slices(&cluster, "web").await;
            let has_new = shown(&slices).contains(&"10.9.2.1".to_owned());
            (has_new && sizes(&slices).iter().sum::<usize>() == 120).then(|| assert_eq!(slices.len(), 2))
        })
        .await;
    running.kill();
}

#[tokio::test]
async fn traffic_distribution_gives_hints() {
    let cluster = Cluster::start().await;
    node(&cluster, "n1", "z1").await;
    pod(&cluster, "a", "web", "n1", "10.9.0.1", true).await;
    service(&cluster, "web", json!({"trafficDistribution": "PreferSameNode"})).await;
    let running = cluster.run(SLICES);
    let hints = |expected: Value| {
        let cluster = &cluster;
        async move {
            cluster
                .until(&expected.to_string(), || async {
                    let slices = slices(cluster, "web").await;
                    let endpoint = slices.first()?.endpoints.as_ref()?.first()?.clone();
                    (serde_json::to_value(&endpoint.hints).unwrap() == expected).then_some(())
                })
                .await;
        }
    };
    hints(json!({"forZones": [{"name": "z1"}], "forNodes": [{"name": "n1"}]})).await;
    let _: Service = cluster.merge("default", "web", json!({"spec": {"trafficDistribution": "PreferClose"}})).await;
    hints(json!({"forZones": [{"name": "z1"}]})).await;
    let _: Service = cluster.merge("default", "web", json!({"spec": {"trafficDistribution": null}})).await;
    hints(Value::Null).await;
    running.kill();
}

#[tokio::test]
async fn topology_hints_and_their_events() {
    let cluster = Cluster::start().await;
    let _: Service = cluster
        .create(json!({
        "metadata": {"name": "web", "annotations": {"service.kubernetes.io/topology-mode": "Auto"}},
        "spec": {"selector": {"app": "web"}, "ports": [{"port": 80}]}}))
        .await;
    node(&cluster, "n1", "z1").await;
    for index in 1..=4 {
        pod(&cluster, &format!("p{index}"), "web", "n1", &format!("10.9.0.{index}"), true).await;
    }
    let running = cluster.run(SLICES);
    cluster
        .event(
            "default",
            "Warning TopologyAwareHintsDisabled Insufficient Node information: allocatable CPU or \
                              zone not specified on one or more nodes, addressType: IPv4",
        )
        .await;
    node(&cluster, "n2", "z2").await;
    pod(&cluster, "p5", "web", "n2", "10.9.0.5", true).await;
    let zones = || async {
        let mut zones = BTreeMap::<String, usize>::new();
        for endpoint in slices(&cluster, "web").await.into_iter().flat_map(|slice| slice.endpoints.unwrap()) {
            let hints = endpoint.hints?.for_zones?;
            *zones.entry(hints[0].name.clone()).or_default() += 1;
        }
        Some(zones)
    };
    let found = cluster.until("hints", || async { zones().await.filter(|zones| zones.len() == 2) }).await;
    assert!(found.values().all(|&count| count >= 2), "both zones have as many CPUs: {found:?}");
    cluster
        .event(
            "default",
            "Normal TopologyAwareHintsEnabled Topology Aware Hints has been enabled, \
                              addressType: IPv4",
        )
        .await;
    running.kill();
}

#[tokio::test]
async fn a_pod_without_its_node_is_said() {
    let cluster = Cluster::start().await;
    service(&cluster, "web", json!({})).await;
    pod(&cluster, "a", "web", "n1", "10.9.0.1", true).await;
    let running = cluster.run(SLICES);
    cluster
        .event(
            "default",
            "Warning FailedToUpdateEndpointSlices Error updating Endpoint Slices for Service \
                              default/web: skipping Pod a for Service default/web: Node n1 Not Found",
        )
        .await;
    // It is tried again, but ever more seldom: no hot loop.
    let before = running.requests();
    cluster.pass(&running, 60).await;
    assert!(running.requests() - before < 20, "{}", running.requests() - before);
    node(&cluster, "n1", "z1").await;
    until_shown(&cluster, "web", &["10.9.0.1"]).await;
    running.kill();
}

#[tokio::test]
async fn endpoints_follow_pods() {
    let cluster = Cluster::start().await;
    let running = cluster.run(&["endpoints-controller"]);
    service(&cluster, "web", json!({"clusterIP": "None"})).await;
    pod(&cluster, "a", "web", "n1", "10.9.0.1", true).await;
    pod(&cluster, "b", "web", "n1", "10.9.0.2", false).await;
    let endpoints = cluster
        .until("both", || async {
            let endpoints: Endpoints = cluster.get("default", "web").await?;
            let found = serde_json::to_value(&endpoints).unwrap();
            (found["subsets"][0]["addresses"][0]["ip"] == "10.9.0.1"
                && found["subsets"][0]["notReadyAddresses"][0]["ip"] == "10.9.0.2")
                .then_some(found)
        })
        .await;
    assert_eq!(endpoints["subsets"].as_array().unwrap().len(), 1);
    assert_eq!(endpoints["subsets"][0]["ports"].as_array().unwrap().len(), 2);
    assert_eq!(
        endpoints["metadata"]["labels"],
        json!({"team": "a", "service.kubernetes.io/headless": "",
        "endpoints.kubernetes.io/managed-by": "endpoint-controller"})
    );
    assert!(endpoints["metadata"]["annotations"]["endpoints.kubernetes.io/last-change-trigger-time"].is_string());
    cluster.delete::<Endpoints>("default", "web").await;
    cluster.until("it comes back", || async { cluster.get::<Endpoints>("default", "web").await.map(drop) }).await;
    cluster.pass(&running, 5).await;
    let before = running.requests();
    cluster.pass(&running, 60).await;
    assert!(running.requests() - before <= 8, "{}", running.requests() - before);
    cluster.delete::<Service>("default", "web").await;
    cluster.until("gone", || async { cluster.get::<Endpoints>("default", "web").await.is_none().then_some(()) }).await;
    running.kill();
}

#[tokio::test]
async fn endpoints_are_mirrored() {
    let cluster = Cluster::start().await;
    let running = cluster.run(&["endpointslice-mirroring-controller"]);
    let _: Service = cluster.create(json!({"metadata": {"name": "db"}, "spec": {"ports": [{"port": 5432}]}})).await;
    let _: Endpoints = cluster
        .create(json!({"metadata": {"name": "db"}, "subsets": [
        {"addresses": [{"ip": "192.0.2.1"}], "ports": [{"port": 5432}]}]}))
        .await;
    let found = until_shown(&cluster, "db", &["192.0.2.1"]).await;
    let metadata = serde_json::to_value(&found[0].metadata).unwrap();
    assert_eq!(
        metadata["labels"]["endpointslice.kubernetes.io/managed-by"],
        "endpointslicemirroring-controller.k8s.io"
    );
    assert_eq!(metadata["ownerReferences"][0]["kind"], "Endpoints");
    let _: Endpoints = cluster
        .merge(
            "default",
            "db",
            json!({"subsets": [
        {"addresses": [{"ip": "192.0.2.1"}, {"ip": "192.0.2.2"}], "ports": [{"port": 5432}]}]}),
        )
        .await;
    until_shown(&cluster, "db", &["192.0.2.1", "192.0.2.2"]).await;
    let _: Endpoints = cluster
        .merge("default", "db", json!({"metadata": {"labels": {"endpointslice.kubernetes.io/skip-mirror": "true"}}}))
        .await;
    cluster.until("no mirror", || async { slices(&cluster, "db").await.is_empty().then_some(()) }).await;
    cluster.pass(&running, 5).await;
    let before = running.requests();
    cluster.pass(&running, 60).await;
    assert!(running.requests() - before <= 8, "{}", running.requests() - before);
    running.kill();
}

#[tokio::test]
async fn service_cidrs_are_kept_while_needed() {
    let cluster = Cluster::start().await;
    let running = cluster.run(&["service-cidr-controller"]);
    let _: ServiceCIDR =
        cluster.create(json!({"metadata": {"name": "more"}, "spec": {"cidrs": ["10.44.0.0/24"]}})).await;
    let ready = || async {
        let range: ServiceCIDR = cluster.get("", "more").await?;
        let conditions = serde_json::to_value(range.status?.conditions?).unwrap();
        Some((conditions[0]["status"].clone(), conditions[0]["reason"].clone(), conditions[0]["message"].clone()))
    };
    let is = |status: &str, reason: &str, message: &str| (json!(status), json!(reason), json!(message));
    cluster
        .until("ready", || async {
            (ready().await? == is("True", "", "Kubernetes Service CIDR is ready")).then_some(())
        })
        .await;
    let service = cluster
        .until("an address from there", || async {
            let service = json!({"metadata": {"name": "s"},
            "spec": {"clusterIP": "10.44.0.7", "ports": [{"port": 80}]}});
            let service: Service = serde_json::from_value(service).unwrap();
            cluster.api::<Service>("default").create(&service).await.ok()
        })
        .await;
    assert_eq!(service.spec.unwrap().cluster_ip.as_deref(), Some("10.44.0.7"));
    cluster.settle(&running).await;
    cluster.delete::<ServiceCIDR>("", "more").await;
    cluster
        .until("terminating", || async {
            (ready().await? == is("False", "Terminating",
            "There are still IPAddresses referencing the ServiceCIDR, please remove them or create a new ServiceCIDR"))
        .then_some(())
        })
        .await;
    cluster.delete::<Service>("default", "s").await;
    cluster.until("gone", || async { cluster.get::<ServiceCIDR>("", "more").await.is_none().then_some(()) }).await;
    running.kill();
}

/// The same end whatever write is the last of a manager.
#[tokio::test]
async fn killed_between_any_two_writes() {
    let names = ["endpointslice-controller", "endpoints-controller", "endpointslice-mirroring-controller"];
    for last_write in 0..8 {
        let cluster = Cluster::start().await;
        node(&cluster, "n1", "z1").await;
        let running = cluster.run_until(&names, last_write);
        service(&cluster, "web", json!({})).await;
        let _: Service = cluster.create(json!({"metadata": {"name": "db"}, "spec": {"ports": [{"port": 1}]}})).await;
        let _: Endpoints = cluster
            .create(json!({"metadata": {"name": "db"}, "subsets": [
            {"addresses": [{"ip": "192.0.2.1"}], "ports": [{"port": 1}]}]}))
            .await;
        cluster.settle(&running).await;
        pod(&cluster, "a", "web", "n1", "10.9.0.1", true).await;
        cluster.settle(&running).await;
        cluster.delete_now::<Pod>("default", "a").await;
        pod(&cluster, "b", "web", "n1", "10.9.0.2", true).await;
        cluster.pass(&running, 2).await;
        running.kill();
        let running = cluster.run(&names);
        let web = until_shown(&cluster, "web", &["10.9.0.2"]).await;
        let db = until_shown(&cluster, "db", &["192.0.2.1"]).await;
        assert_eq!((web.len(), db.len()), (1, 1), "after {last_write} writes");
        cluster
            .until("endpoints", || async {
                let endpoints: Endpoints = cluster.get("default", "web").await?;
                let found = serde_json::to_value(&endpoints.subsets).unwrap();
                (found[0]["addresses"] != Value::Null
                    && found[0]["addresses"].as_array()?.len() == 1
                    && found[0]["addresses"][0]["ip"] == "10.9.0.2")
                    .then_some(())
            })
            .await;
        running.kill();
    }
}

#[tokio::test]
async fn a_namespace_that_goes_away_is_left_alone() {
    let cluster = Cluster::start().await;
    let _: Namespace = cluster.create(json!({"metadata": {"name": "going"}})).await;
    let _: Service = cluster
        .create(json!({"metadata": {"name": "web", "namespace": "going"},
        "spec": {"selector": {"a": "b"}, "ports": [{"port": 80}]}}))
        .await;
    cluster.delete::<Namespace>("", "going").await;
    let running = cluster.run(&["endpointslice-controller", "endpoints-controller"]);
    cluster.pass(&running, 30).await;
    assert!(running.writes() <= 4, "{}", running.writes());
    running.kill();
}
