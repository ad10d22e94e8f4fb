//! Budgets and quotas.

use capstan_client::Patch;
use serde_json::{Value, json};

use crate::harness::{Cluster, named, owned, owner, pod, with};

const DISRUPTION: &str = "disruption-controller";
const BUDGETS: &str = "policy/v1/poddisruptionbudgets";

async fn budget(cluster: &Cluster, name: &str, spec: Value) {
    let spec = with(json!({"selector": {"matchLabels": {"app": name}}}), spec);
    let budget = with(named("policy/v1", "PodDisruptionBudget", name), json!({"spec": spec}));
    cluster.create(BUDGETS, "default", budget).await;
}

async fn set_ready(cluster: &Cluster, name: &str, is_ready: bool) {
    let status = if is_ready { "True" } else { "False" };
    let ready = json!({"type": "Ready", "status": status, "lastTransitionTime": cluster.now()});
    let patch = Patch::Strategic(json!({"status": {"phase": "Running", "conditions": [ready]}}));
    cluster.api("v1/pods", "default").patch_status(name, &patch).await.unwrap();
}

async fn pod_of(cluster: &Cluster, name: &str, app: &str, owners: &[Value]) {
    let labelled = with(pod(name), json!({"metadata": {"labels": {"app": app}}, "spec": {"nodeName": "n"}}));
    cluster.create("v1/pods", "default", owned(labelled, owners)).await;
    set_ready(cluster, name, true).await;
}

/// Expected, desired, healthy, allowed, and why.
async fn shows(cluster: &Cluster, name: &str) -> String {
    let status = cluster.get(BUDGETS, "default", name).await.unwrap()["status"].clone();
    let number = |field: &str| status[field].as_i64().unwrap_or(0);
    let reason = status["conditions"][0]["reason"].as_str().unwrap_or_default().to_owned();
    let numbers = ["expectedPods", "desiredHealthy", "currentHealthy", "disruptionsAllowed"].map(number);
    format!("{} {reason}", numbers.map(|n| n.to_string()).join(" "))
}

async fn expect(cluster: &Cluster, name: &str, expected: &str) {
    let mut last = String::new();
    for _ in 0..120 {
        last = shows(cluster, name).await;
        if last == expected {
            return;
        }
        cluster.advance(1).await;
    }
    assert_eq!(last, expected, "{name}");
}

fn controls(of: &capstan_api::Unstructured) -> Value {
    with(owner(of, true), json!({"controller": true}))
}

#[tokio::test]
async fn budgets_follow_their_pods() {
    let cluster = Cluster::new().await;
    let manager = cluster.manager(&[DISRUPTION]);
    budget(&cluster, "plain", json!({"minAvailable": 2})).await;
    expect(&cluster, "plain", "0 2 0 0 InsufficientPods").await;
    let event = "Normal NoPods plain: No matching pods found";
    cluster.until(event, || cluster.has_event(event)).await;
    for name in ["a", "b", "c"] {
        pod_of(&cluster, name, "plain", &[]).await;
    }
    expect(&cluster, "plain", "3 2 3 1 SufficientPods").await;
    set_ready(&cluster, "c", false).await;
    expect(&cluster, "plain", "3 2 2 0 InsufficientPods").await;
    set_ready(&cluster, "c", true).await;
    expect(&cluster, "plain", "3 2 3 1 SufficientPods").await;

    // An owner says how many there should be.
    let spec = json!({"spec": {
        "replicas": 4, "selector": {"matchLabels": {"app": "owned"}},
        "template": {"metadata": {"labels": {"app": "owned"}}, "spec": {"containers": [{"name": "c", "image": "i"}]}},
    }});
    let deployment = cluster
        .create("apps/v1/deployments", "default", with(named("apps/v1", "Deployment", "owned"), spec.clone()))
        .await;
    let set = owned(with(named("apps/v1", "ReplicaSet", "owned-1"), spec), &[controls(&deployment)]);
    let set = cluster.create("apps/v1/replicasets", "default", set).await;
    for name in ["x", "y"] {
        pod_of(&cluster, name, "owned", &[controls(&set)]).await;
    }
    budget(&cluster, "owned", json!({"maxUnavailable": "50%"})).await;
    expect(&cluster, "owned", "4 2 2 0 InsufficientPods").await;
    pod_of(&cluster, "z", "owned", &[controls(&set)]).await;
    expect(&cluster, "owned", "4 2 3 1 SufficientPods").await;
    let patch = Patch::Merge(json!({"spec": {"replicas": 2}}));
    cluster.api("apps/v1/deployments", "default").patch("owned", &patch).await.unwrap();
    expect(&cluster, "owned", "2 1 3 2 SufficientPods").await;

    // Nobody wants the pod: the status cannot be known, and says so.
    let gone = json!({"apiVersion": "apps/v1", "kind": "StatefulSet", "name": "no", "uid": "no", "controller": true});
    pod_of(&cluster, "lone", "lone", &[gone]).await;
    budget(&cluster, "lone", json!({"maxUnavailable": 1})).await;
    expect(&cluster, "lone", "0 0 0 0 SyncFailed").await;
    let lone = cluster.get(BUDGETS, "default", "lone").await.unwrap();
    assert_eq!(lone["status"]["conditions"][0]["message"], "found no controllers for pod \"lone\"");
    pod_of(&cluster, "free", "free", &[]).await;
    budget(&cluster, "free", json!({"maxUnavailable": 1})).await;
    let event = "Warning UnmanagedPods free: Pods selected by this PodDisruptionBudget (selector: \
                 &LabelSelector{MatchLabels:map[string]string{app: free,},MatchExpressions:[]LabelSelectorRequirement{},}) \
                 were found to be unmanaged. As a result, the status of the PDB cannot be calculated correctly, which may \
                 result in undefined behavior. To account for these pods please set \".spec.minAvailable\" field of the PDB \
                 to an integer value.";
    cluster.until(event, || cluster.has_event(event)).await;

    cluster.delete(BUDGETS, "default", "lone", "").await;
    cluster.advance(60).await;
    manager.requests.take();
    cluster.advance(60).await;
    assert_eq!(manager.requests.besides_discovery(), [""; 0]);
}

#[tokio::test]
async fn pods_of_several_budgets() {
    let cluster = Cluster::new().await;
    let _manager = cluster.manager(&[DISRUPTION]);
    budget(&cluster, "one", json!({"minAvailable": 1})).await;
    budget(&cluster, "two", json!({"minAvailable": 2, "selector": {"matchLabels": {"app": "one"}}})).await;
    for name in ["a", "b"] {
        pod_of(&cluster, name, "one", &[]).await;
    }
    let chosen = |name: &str, budget: &str| {
        format!(
            "Warning MultiplePodDisruptionBudgets {name}: Pod \"default\"/\"{name}\" matches multiple \
             PodDisruptionBudgets.  Chose \"{budget}\" arbitrarily."
        )
    };
    let (one, two) = (chosen("a", "one"), chosen("a", "two"));
    cluster.until(&one, || async { cluster.has_event(&one).await || cluster.has_event(&two).await }).await;
    // Whoever of them is looked at counts all of its pods.
    let patch = Patch::Merge(json!({"metadata": {"labels": {"look": "again"}}}));
    for name in ["one", "two"] {
        cluster.api(BUDGETS, "default").patch(name, &patch).await.unwrap();
    }
    expect(&cluster, "one", "2 1 2 1 SufficientPods").await;
    expect(&cluster, "two", "2 2 2 0 InsufficientPods").await;
}

#[tokio::test]
async fn evictions_that_nobody_carries_out_are_forgotten() {
    let cluster = Cluster::new().await;
    let _manager = cluster.manager(&[DISRUPTION]);
    budget(&cluster, "b", json!({"minAvailable": 1})).await;
    for name in ["a", "c"] {
        pod_of(&cluster, name, "b", &[]).await;
    }
    expect(&cluster, "b", "2 1 2 1 SufficientPods").await;
    let patch = Patch::Merge(json!({"status": {"disruptedPods": {"a": cluster.now()}, "disruptionsAllowed": 0}}));
    cluster.api(BUDGETS, "default").patch_status("b", &patch).await.unwrap();
    expect(&cluster, "b", "2 1 1 0 InsufficientPods").await;
    let target = json!({"type": "DisruptionTarget", "status": "True", "reason": "EvictionByEvictionAPI",
        "message": "Eviction API: evicting", "lastTransitionTime": cluster.now()});
    let patch = Patch::Strategic(json!({"status": {"conditions": [target]}}));
    cluster.api("v1/pods", "default").patch_status("a", &patch).await.unwrap();
    cluster.advance(110).await;
    expect(&cluster, "b", "2 1 2 1 SufficientPods").await;
    cluster
        .until("the pod is left in peace", || async {
            let pod = cluster.get("v1/pods", "default", "a").await.unwrap();
            let conditions = pod["status"]["conditions"].as_array().unwrap().clone();
            let of = |kind: &str| conditions.iter().find(|condition| condition["type"] == kind).cloned();
            let is_ready = of("Ready").is_some_and(|ready| ready["status"] == "True");
            let target = of("DisruptionTarget").filter(|_| is_ready).filter(|target| target["status"] == "False");
            target.is_some_and(|target| target["reason"].is_null() && target["message"].is_null())
        })
        .await;
}

const QUOTA: &str = "resourcequota-controller";

async fn used(cluster: &Cluster, name: &str) -> String {
    let quota = cluster.get("v1/resourcequotas", "default", name).await.unwrap();
    let used = quota["status"]["used"].as_object().cloned().unwrap_or_default();
    let each = used.iter().map(|(name, amount)| format!("{name}={}", amount.as_str().unwrap()));
    each.collect::<Vec<_>>().join(" ")
}

async fn expect_used(cluster: &Cluster, name: &str, expected: &str) {
    let mut last = String::new();
    for _ in 0..20 {
        last = used(cluster, name).await;
        if last == expected {
            return;
        }
        cluster.advance(1).await;
    }
    assert_eq!(last, expected, "{name}");
}

#[tokio::test]
async fn quotas_are_counted() {
    let cluster = Cluster::new().await;
    cluster.widgets().await;
    let requests =
        json!({"spec": {"containers": [{"name": "c", "image": "i", "resources": {"requests": {"cpu": "250m"}}}]}});
    cluster.create("v1/pods", "default", with(named("v1", "Pod", "before"), requests.clone())).await;
    cluster.create("x.io/v1/widgets", "default", named("x.io/v1", "Widget", "w")).await;
    let hard =
        json!({"pods": "10", "requests.cpu": "4", "configmaps": "5", "count/widgets.x.io": "3", "services": "2"});
    let quota = with(named("v1", "ResourceQuota", "q"), json!({"spec": {"hard": hard}}));
    cluster.create("v1/resourcequotas", "default", quota).await;
    let manager = cluster.manager(&[QUOTA]);
    expect_used(&cluster, "q", "configmaps=0 count/widgets.x.io=1 pods=1 requests.cpu=250m services=1").await;
    let quota = cluster.get("v1/resourcequotas", "default", "q").await.unwrap();
    assert_eq!(quota["status"]["hard"], hard);

    cluster.create("v1/pods", "default", with(named("v1", "Pod", "after"), requests)).await;
    cluster.create("v1/configmaps", "default", named("v1", "ConfigMap", "c")).await;
    expect_used(&cluster, "q", "configmaps=1 count/widgets.x.io=1 pods=2 requests.cpu=500m services=1").await;
    cluster.delete("v1/pods", "default", "before", "").await;
    cluster.delete("x.io/v1/widgets", "default", "w", "").await;
    expect_used(&cluster, "q", "configmaps=1 count/widgets.x.io=0 pods=1 requests.cpu=250m services=1").await;
    let done = Patch::Strategic(json!({"status": {"phase": "Succeeded"}}));
    cluster.api("v1/pods", "default").patch_status("after", &done).await.unwrap();
    expect_used(&cluster, "q", "configmaps=1 count/widgets.x.io=0 pods=0 requests.cpu=0 services=1").await;

    // What somebody has spoilt is mended within five minutes, and until then nobody asks.
    cluster.advance(5).await;
    manager.requests.take();
    let spoilt = Patch::Merge(json!({"status": {"used": {"pods": "7"}}}));
    cluster.api("v1/resourcequotas", "default").patch_status("q", &spoilt).await.unwrap();
    cluster.advance(60).await;
    assert_eq!(manager.requests.besides_discovery(), [""; 0]);
    cluster.advance(250).await;
    assert_eq!(used(&cluster, "q").await, "configmaps=1 count/widgets.x.io=0 pods=0 requests.cpu=0 services=1");
}

#[tokio::test]
async fn devices_are_counted_by_their_class() {
    let cluster = Cluster::new().await;
    let hard = json!({"gpu.example.com.deviceclass.resource.k8s.io/devices": "5",
        "count/resourceclaims.resource.k8s.io": "3"});
    let quota = with(named("v1", "ResourceQuota", "q"), json!({"spec": {"hard": hard}}));
    cluster.create("v1/resourcequotas", "default", quota).await;
    let _manager = cluster.manager(&[QUOTA]);
    let count = "count/resourceclaims.resource.k8s.io";
    let devices = "gpu.example.com.deviceclass.resource.k8s.io/devices";
    expect_used(&cluster, "q", &format!("{count}=0 {devices}=0")).await;
    let exactly = json!({"deviceClassName": "gpu.example.com", "allocationMode": "ExactCount", "count": 2});
    let first = json!([{"deviceClassName": "gpu.example.com", "name": "one", "count": 1},
        {"deviceClassName": "other.example.com", "name": "two", "count": 4}]);
    for (name, request) in
        [("a", json!({"name": "r", "exactly": exactly})), ("b", json!({"name": "r", "firstAvailable": first}))]
    {
        let claim = with(
            named("resource.k8s.io/v1", "ResourceClaim", name),
            json!({"spec": {"devices": {"requests": [request]}}}),
        );
        cluster.create("resource.k8s.io/v1/resourceclaims", "default", claim).await;
    }
    expect_used(&cluster, "q", &format!("{count}=2 {devices}=3")).await;
    cluster.delete("resource.k8s.io/v1/resourceclaims", "default", "a", "").await;
    expect_used(&cluster, "q", &format!("{count}=1 {devices}=1")).await;
}
