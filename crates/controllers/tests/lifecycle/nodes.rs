//! Nodes that are lost, and the pods on them.

use capstan_client::Patch;
use serde_json::{Value, json};

use crate::harness::{Cluster, named, pod, with};

const LIFECYCLE: &str = "node-lifecycle-controller";
const EVICTION: &str = "taint-eviction-controller";
const POD_GC: &str = "pod-garbage-collector-controller";

/// A node that is well, and its lease.
pub(crate) async fn node(cluster: &Cluster, name: &str) {
    let now = cluster.now();
    let condition = |type_: &str, status: &str| json!({"type": type_, "status": status, "lastHeartbeatTime": now, "lastTransitionTime": now, "reason": "R"});
    cluster.create("v1/nodes", "", named("v1", "Node", name)).await;
    let patch = json!({"status": {"conditions": [condition("Ready", "True"), condition("MemoryPressure", "False")]}});
    cluster.api("v1/nodes", "").patch_status(name, &Patch::Strategic(patch)).await.unwrap();
    // The server taints new nodes, and a kubelet takes that off.
    let untainted = Patch::Merge(json!({"spec": {"taints": null}}));
    cluster.api("v1/nodes", "").patch(name, &untainted).await.unwrap();
    let lease = named("coordination.k8s.io/v1", "Lease", name);
    let lease = with(lease, json!({"spec": {"renewTime": micro(&now), "holderIdentity": name}}));
    cluster.create("coordination.k8s.io/v1/leases", "kube-node-lease", lease).await;
}

fn micro(time: &str) -> String {
    time.replace('Z', ".000000Z")
}

/// The node is heard of.
pub(crate) async fn renew(cluster: &Cluster, name: &str) {
    let patch = Patch::Merge(json!({"spec": {"renewTime": micro(&cluster.now())}}));
    cluster.api("coordination.k8s.io/v1/leases", "kube-node-lease").patch(name, &patch).await.unwrap();
}

async fn pod_on(cluster: &Cluster, name: &str, node: &str, tolerations: Value) {
    let spec = json!({"spec": {"nodeName": node, "tolerations": tolerations}});
    cluster.create("v1/pods", "default", with(pod(name), spec)).await;
    let ready = json!({"type": "Ready", "status": "True", "lastTransitionTime": cluster.now()});
    let patch = Patch::Strategic(json!({"status": {"phase": "Running", "conditions": [ready]}}));
    cluster.api("v1/pods", "default").patch_status(name, &patch).await.unwrap();
}

pub(crate) async fn taints(cluster: &Cluster, name: &str) -> String {
    let node = cluster.get("v1/nodes", "", name).await.unwrap();
    let taints = node["spec"]["taints"].as_array().cloned().unwrap_or_default();
    let each = |taint: &Value| format!("{}:{}", taint["key"].as_str().unwrap(), taint["effect"].as_str().unwrap());
    let mut taints: Vec<_> = taints.iter().map(each).collect();
    taints.sort();
    taints.join(" ").replace("node.kubernetes.io/", "")
}

async fn condition(cluster: &Cluster, resource: &str, namespace: &str, name: &str, type_: &str) -> Value {
    let object = cluster.get(resource, namespace, name).await.unwrap();
    let conditions = object["status"]["conditions"].as_array().cloned().unwrap_or_default();
    conditions.into_iter().find(|condition| condition["type"] == type_).unwrap_or_default()
}

async fn is_leaving(cluster: &Cluster, pod: &str) -> bool {
    let pod = cluster.get("v1/pods", "default", pod).await;
    pod.is_none_or(|pod| !pod["metadata"]["deletionTimestamp"].is_null())
}

#[tokio::test]
async fn a_node_is_lost_and_comes_back() {
    let cluster = Cluster::new().await;
    let manager = cluster.manager(&[LIFECYCLE, EVICTION]);
    node(&cluster, "lost").await;
    node(&cluster, "well").await;
    pod_on(
        &cluster,
        "patient",
        "lost",
        json!([{"operator": "Exists", "effect": "NoExecute", "tolerationSeconds": 30}]),
    )
    .await;
    pod_on(&cluster, "staying", "lost", json!([{"operator": "Exists"}])).await;
    for _ in 0..4 {
        cluster.advance(10).await;
        renew(&cluster, "lost").await;
        renew(&cluster, "well").await;
    }
    assert_eq!(taints(&cluster, "lost").await, "");
    // From here on only one of them is heard of.
    cluster.advance(30).await;
    renew(&cluster, "well").await;
    assert_eq!(taints(&cluster, "lost").await, "", "it has fifty seconds");
    let lost = "unreachable:NoExecute unreachable:NoSchedule";
    cluster.advance(20).await;
    renew(&cluster, "well").await;
    cluster.advance(15).await;
    assert_eq!(taints(&cluster, "lost").await, lost, "and five until it is looked at, and some to be tainted");
    let ready = condition(&cluster, "v1/nodes", "", "lost", "Ready").await;
    assert_eq!((&ready["status"], &ready["reason"]), (&json!("Unknown"), &json!("NodeStatusUnknown")));
    assert_eq!(ready["message"], "Kubelet stopped posting node status.");
    let pressure = condition(&cluster, "v1/nodes", "", "lost", "MemoryPressure").await;
    assert_eq!(pressure["status"], "Unknown");
    let disk = condition(&cluster, "v1/nodes", "", "lost", "DiskPressure").await;
    assert_eq!(disk["reason"], "NodeStatusNeverUpdated");
    assert_eq!(condition(&cluster, "v1/pods", "default", "staying", "Ready").await["status"], "False");
    assert_eq!(taints(&cluster, "well").await, "");

    // Then the pod's patience ends.
    cluster.until("the pod leaves", || is_leaving(&cluster, "patient")).await;
    let why = condition(&cluster, "v1/pods", "default", "patient", "DisruptionTarget").await;
    assert_eq!((&why["status"], &why["reason"]), (&json!("True"), &json!("DeletionByTaintManager")));
    assert_eq!(why["message"], "Taint manager: deleting due to NoExecute taint");
    assert!(!is_leaving(&cluster, "staying").await);
    for event in [
        "Normal RegisteredNode lost: Node lost event: Registered Node lost in Controller",
        "Normal NodeNotReady lost: Node lost status is now: NodeNotReady",
        "Warning NodeNotReady staying: Node is not ready",
        "Normal TaintManagerEviction patient: Marking for deletion Pod default/patient",
    ] {
        cluster.until(event, || cluster.has_event(event)).await;
    }

    // Nothing is written while nothing changes.
    renew(&cluster, "well").await;
    cluster.advance(5).await;
    manager.requests.take();
    for _ in 0..3 {
        cluster.advance(20).await;
        renew(&cluster, "well").await;
    }
    assert_eq!(manager.requests.besides_discovery(), [""; 0]);

    // It comes back.
    renew(&cluster, "lost").await;
    let now = cluster.now();
    let ready = json!({"type": "Ready", "status": "True", "lastHeartbeatTime": now, "lastTransitionTime": now});
    let patch = Patch::Strategic(json!({"status": {"conditions": [ready]}}));
    cluster.api("v1/nodes", "").patch_status("lost", &patch).await.unwrap();
    cluster.until("the taints are gone", || async { taints(&cluster, "lost").await.is_empty() }).await;
}

#[tokio::test]
async fn nodes_that_are_not_well_are_tainted() {
    let cluster = Cluster::new().await;
    let _manager = cluster.manager(&[LIFECYCLE]);
    node(&cluster, "one").await;
    node(&cluster, "two").await;
    let set = async |type_: &str, status: &str| {
        let now = cluster.now();
        let condition = json!({"type": type_, "status": status, "lastHeartbeatTime": now, "lastTransitionTime": now});
        let patch = Patch::Strategic(json!({"status": {"conditions": [condition]}}));
        cluster.api("v1/nodes", "").patch_status("one", &patch).await.unwrap();
    };
    let expect = async |expected: &str| {
        cluster.until(expected, || async { taints(&cluster, "one").await == expected }).await;
    };
    set("DiskPressure", "True").await;
    expect("disk-pressure:NoSchedule").await;
    set("NetworkUnavailable", "True").await;
    expect("disk-pressure:NoSchedule network-unavailable:NoSchedule").await;
    set("DiskPressure", "False").await;
    set("NetworkUnavailable", "False").await;
    expect("").await;
    set("Ready", "False").await;
    expect("not-ready:NoExecute not-ready:NoSchedule").await;
    set("Ready", "True").await;
    expect("").await;
    let patch =
        Patch::Merge(json!({"spec": {"unschedulable": true}, "metadata": {"labels": {"kubernetes.io/os": "linux"}}}));
    cluster.api("v1/nodes", "").patch("one", &patch).await.unwrap();
    expect("unschedulable:NoSchedule").await;
    let node = cluster.get("v1/nodes", "", "one").await.unwrap();
    assert_eq!(node["metadata"]["labels"]["beta.kubernetes.io/os"], "linux");
}

#[tokio::test]
async fn taints_whose_time_is_cancelled() {
    let cluster = Cluster::new().await;
    let _manager = cluster.manager(&[EVICTION]);
    node(&cluster, "one").await;
    pod_on(
        &cluster,
        "a",
        "one",
        json!([{"key": "x", "operator": "Exists", "effect": "NoExecute", "tolerationSeconds": 60}]),
    )
    .await;
    let taint = async |taints: Value| {
        let patch = Patch::Merge(json!({"spec": {"taints": taints}}));
        cluster.api("v1/nodes", "").patch("one", &patch).await.unwrap();
    };
    taint(json!([{"key": "x", "effect": "NoExecute"}])).await;
    cluster.advance(50).await;
    taint(json!([])).await;
    cluster.advance(30).await;
    assert!(!is_leaving(&cluster, "a").await);
    let event = "Normal TaintManagerEviction a: Cancelling deletion of Pod default/a";
    cluster.until(event, || cluster.has_event(event)).await;
    // The time begins anew.
    taint(json!([{"key": "x", "effect": "NoExecute"}])).await;
    cluster.advance(58).await;
    assert!(!is_leaving(&cluster, "a").await);
    cluster.advance(5).await;
    assert!(is_leaving(&cluster, "a").await);
}

#[tokio::test]
async fn pods_that_nobody_will_end() {
    let cluster = Cluster::new().await;
    let manager = cluster.manager(&[POD_GC]);
    node(&cluster, "here").await;
    node(&cluster, "gone").await;
    node(&cluster, "off").await;
    for (name, node) in [("stays", "here"), ("orphan", "gone"), ("stuck", "off"), ("kept", "gone")] {
        pod_on(&cluster, name, node, json!([])).await;
    }
    let finalizer = Patch::Merge(json!({"metadata": {"finalizers": ["x.io/keep"]}}));
    cluster.api("v1/pods", "default").patch("kept", &finalizer).await.unwrap();
    cluster.delete("v1/nodes", "", "gone", "").await;
    cluster.advance(35).await;
    assert!(cluster.exists("v1/pods", "default", "orphan").await, "a node may come back");
    cluster.until("the orphan goes", || async { !cluster.exists("v1/pods", "default", "orphan").await }).await;
    let kept = cluster.get("v1/pods", "default", "kept").await.unwrap();
    assert_eq!(kept["status"]["phase"], "Failed");
    let why = condition(&cluster, "v1/pods", "default", "kept", "DisruptionTarget").await;
    assert_eq!((&why["reason"], &why["message"]), (&json!("DeletionByPodGC"), &json!("PodGC: node no longer exists")));

    // A pod on a node that somebody has taken out of service.
    cluster.delete("v1/pods", "default", "stuck", "").await;
    cluster.advance(45).await;
    assert!(cluster.exists("v1/pods", "default", "stuck").await);
    let taint = json!([{"key": "node.kubernetes.io/out-of-service", "effect": "NoExecute"}]);
    cluster.api("v1/nodes", "").patch("off", &Patch::Merge(json!({"spec": {"taints": taint}}))).await.unwrap();
    let off = json!({"type": "Ready", "status": "Unknown", "lastHeartbeatTime": cluster.now(), "lastTransitionTime": cluster.now()});
    let off = Patch::Strategic(json!({"status": {"conditions": [off]}}));
    cluster.api("v1/nodes", "").patch_status("off", &off).await.unwrap();
    cluster.until("it goes", || async { !cluster.exists("v1/pods", "default", "stuck").await }).await;
    assert!(cluster.exists("v1/pods", "default", "stays").await);

    cluster
        .api("v1/pods", "default")
        .patch("kept", &Patch::Merge(json!({"metadata": {"finalizers": null}})))
        .await
        .unwrap();
    cluster.advance(60).await;
    manager.requests.take();
    cluster.advance(60).await;
    assert_eq!(manager.requests.besides_discovery(), [""; 0]);
}
