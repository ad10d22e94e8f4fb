//! Autoscaling by all kinds of metrics.

use k8s_openapi::api::{apps::v1::Deployment, autoscaling::v2::HorizontalPodAutoscaler, core::v1::Pod};
use serde_json::{Value, json};

use crate::harness::{Cluster, Running};

const HPA: &[&str] = &["horizontal-pod-autoscaler-controller"];

async fn deployment(cluster: &Cluster, replicas: i32) {
    let _: Deployment = cluster
        .create(json!({
            "metadata": {"name": "web"},
            "spec": {"replicas": replicas, "selector": {"matchLabels": {"app": "web"}}, "template": {
                "metadata": {"labels": {"app": "web"}}, "spec": {"containers": [{"name": "c", "image": "i"}]}}},
            "status": {"replicas": replicas},
        }))
        .await;
    for index in 0..replicas {
        let _: Pod = cluster
            .create(json!({
                "metadata": {"name": format!("p{index}"), "labels": {"app": "web"}},
                "spec": {"containers": [{"name": "c", "image": "i", "resources": {"requests": {"cpu": "1"}}}]},
                "status": {"phase": "Running", "startTime": "2025-01-01T00:00:00Z", "conditions":
                    [{"type": "Ready", "status": "True", "lastTransitionTime": "2025-01-01T00:00:00Z"}]},
            }))
            .await;
    }
}

async fn autoscaler(cluster: &Cluster, metrics: Value, extra: Value) {
    let mut spec = json!({"scaleTargetRef": {"apiVersion": "apps/v1", "kind": "Deployment", "name": "web"},
        "minReplicas": 1, "maxReplicas": 20, "metrics": metrics});
    for (key, value) in extra.as_object().unwrap() {
        spec[key] = value.clone();
    }
    let _: HorizontalPodAutoscaler = cluster.create(json!({"metadata": {"name": "web"}, "spec": spec})).await;
}

/// All pods use so much CPU.
fn measure(cluster: &Cluster, pods: i32, usage: &str) {
    let items: Vec<_> = (0..pods)
        .map(|index| {
            json!({"metadata": {"name": format!("p{index}")}, "timestamp": "2026-01-01T00:00:00Z", "window": "30s",
                   "containers": [{"name": "c", "usage": {"cpu": usage, "memory": "1Mi"}}]})
        })
        .collect();
    cluster.elsewhere.lock().unwrap().insert(
        "/apis/metrics.k8s.io/v1beta1/namespaces/default/pods".to_owned(),
        json!({"kind": "PodMetricsList", "items": items}),
    );
}

async fn replicas(cluster: &Cluster) -> i32 {
    cluster.get::<Deployment>("default", "web").await.unwrap().spec.unwrap().replicas.unwrap()
}

async fn until_replicas(cluster: &Cluster, wanted: i32) {
    cluster.until(&format!("{wanted} replicas"), || async { (replicas(cluster).await == wanted).then_some(()) }).await;
}

async fn status(cluster: &Cluster) -> Value {
    let hpa: HorizontalPodAutoscaler = cluster.get("default", "web").await.unwrap();
    serde_json::to_value(hpa.status).unwrap()
}

/// `status reason message` of a condition.
async fn condition(cluster: &Cluster, type_: &str) -> String {
    let status = status(cluster).await;
    let found = status["conditions"].as_array().into_iter().flatten().find(|condition| condition["type"] == type_);
    let Some(found) = found else { return String::new() };
    let text = |name: &str| found[name].as_str().unwrap_or_default().to_owned();
    format!("{} {} {}", text("status"), text("reason"), text("message"))
}

async fn until_condition(cluster: &Cluster, type_: &str, expected: &str) {
    cluster.until(expected, || async { (condition(cluster, type_).await == expected).then_some(()) }).await;
}

fn cpu(percent: i32) -> Value {
    json!([{"type": "Resource",
            "resource": {"name": "cpu", "target": {"type": "Utilization", "averageUtilization": percent}}}])
}

async fn scaled_to(cluster: &Cluster, running: &Running, replicas: i32) {
    let deployment: Deployment = cluster.get("default", "web").await.unwrap();
    cluster.set_status(&deployment, json!({"replicas": replicas})).await;
    cluster.settle(running).await;
}

#[tokio::test]
async fn utilization_of_requests() {
    let cluster = Cluster::start().await;
    deployment(&cluster, 3).await;
    measure(&cluster, 3, "600m");
    let running = cluster.run(HPA);
    autoscaler(&cluster, cpu(30), json!({})).await;
    until_replicas(&cluster, 6).await;
    cluster
        .event(
            "default",
            "Normal SuccessfulRescale New size: 6; reason: cpu resource utilization (percentage of \
                              request) above target",
        )
        .await;
    until_condition(
        &cluster,
        "AbleToScale",
        "True SucceededRescale the HPA controller was able to update the target scale to 6",
    )
    .await;
    until_condition(
        &cluster,
        "ScalingActive",
        "True ValidMetricFound the HPA was able to successfully calculate a \
        replica count from cpu resource utilization (percentage of request)",
    )
    .await;
    until_condition(
        &cluster,
        "ScalingLimited",
        "False DesiredWithinRange the desired count is within the acceptable range",
    )
    .await;
    let found = status(&cluster).await;
    assert_eq!(found["currentReplicas"], 3);
    assert_eq!(found["desiredReplicas"], 6);
    assert!(found["lastScaleTime"].is_string());
    assert_eq!(
        found["currentMetrics"],
        json!([{"type": "Resource", "resource": {"name": "cpu", "current":
        {"averageUtilization": 60, "averageValue": "600m"}}}])
    );
    scaled_to(&cluster, &running, 6).await;

    // It calms down: for five minutes nothing shrinks. Three pods of six use nothing that is known.
    measure(&cluster, 3, "30m");
    for index in 3..6 {
        let _: Pod = cluster
            .create(json!({"metadata": {"name": format!("p{index}"), "labels": {"app": "web"}},
            "spec": {"containers": [{"name": "c", "image": "i", "resources": {"requests": {"cpu": "1"}}}]},
            "status": {"phase": "Running", "startTime": "2025-01-01T00:00:00Z", "conditions":
                [{"type": "Ready", "status": "True", "lastTransitionTime": "2025-01-01T00:00:00Z"}]}}))
            .await;
    }
    measure(&cluster, 6, "30m");
    until_condition(
        &cluster,
        "AbleToScale",
        "True ScaleDownStabilized recent recommendations were higher than current \
        one, applying the highest recent recommendation",
    )
    .await;
    cluster.pass(&running, 240).await;
    assert_eq!(replicas(&cluster).await, 6);
    cluster.pass(&running, 120).await;
    assert_eq!(replicas(&cluster).await, 1);
    cluster.event("default", "Normal SuccessfulRescale New size: 1; reason: All metrics below target").await;
    running.kill();
}

#[tokio::test]
async fn what_cannot_be_measured_is_said() {
    let cluster = Cluster::start().await;
    deployment(&cluster, 2).await;
    let running = cluster.run(HPA);
    autoscaler(&cluster, cpu(50), json!({})).await;
    let why = "failed to get cpu utilization: unable to get metrics for resource cpu: unable to fetch metrics from \
               resource metrics API:";
    cluster.event("default", &format!("Warning FailedGetResourceMetric {why}")).await;
    cluster
        .event(
            "default",
            &format!(
                "Warning FailedComputeMetricsReplicas invalid metrics (1 invalid out of 1), first \
        error is: failed to get cpu resource metric value: {why}"
            ),
        )
        .await;
    let begins = format!("False FailedGetResourceMetric the HPA was unable to compute the replica count: {why}");
    cluster
        .until(&begins, || async { condition(&cluster, "ScalingActive").await.starts_with(&begins).then_some(()) })
        .await;
    // Every fifteen seconds, and no more often.
    cluster.pass(&running, 5).await;
    let before = running.requests();
    cluster.pass(&running, 60).await;
    let asked = running.requests() - before;
    assert!((8..=16).contains(&asked), "{asked} requests in a minute");
    assert_eq!(replicas(&cluster).await, 2);

    cluster.delete::<Deployment>("default", "web").await;
    cluster.event("default", "Warning FailedGetScale deployments.apps \"web\" not found").await;
    until_condition(
        &cluster,
        "AbleToScale",
        "False FailedGetScale the HPA controller was unable to get the target's \
        current scale: deployments.apps \"web\" not found",
    )
    .await;
    running.kill();
}

#[tokio::test]
async fn every_kind_of_metric() {
    let value = |name: &str, value: &str| {
        json!({"describedObject": {"kind": "x", "name": name},
        "metric": {"name": "m"}, "timestamp": "2026-01-01T00:00:00Z", "value": value})
    };
    let metric = json!({"name": "m"});
    let cases = [
        (
            json!({"type": "ContainerResource", "containerResource": {"name": "cpu", "container": "c",
            "target": {"type": "Utilization", "averageUtilization": 25}}}),
            "",
            Value::Null,
            4,
            "cpu container resource utilization (percentage of request)",
        ),
        (
            json!({"type": "Resource", "resource": {"name": "cpu",
            "target": {"type": "AverageValue", "averageValue": "250m"}}}),
            "",
            Value::Null,
            4,
            "cpu resource",
        ),
        (
            json!({"type": "Pods", "pods": {"metric": metric, "target": {"type": "AverageValue", "averageValue": "10"}}}),
            "/apis/custom.metrics.k8s.io/v1beta2/namespaces/default/pods/*/m",
            json!({"items": [value("p0", "30"), value("p1", "30")]}),
            6,
            "pods metric m",
        ),
        (
            json!({"type": "Object", "object": {"metric": metric, "target": {"type": "Value", "value": "10"},
            "describedObject": {"apiVersion": "networking.k8s.io/v1", "kind": "Ingress", "name": "front"}}}),
            "/apis/custom.metrics.k8s.io/v1beta2/namespaces/default/ingresses.networking.k8s.io/front/m",
            json!({"items": [value("front", "20")]}),
            4,
            "Ingress metric m",
        ),
        (
            json!({"type": "External", "external": {"metric": {"name": "m", "selector": {"matchLabels": {"q": "a"}}},
            "target": {"type": "AverageValue", "averageValue": "10"}}}),
            "/apis/external.metrics.k8s.io/v1beta1/namespaces/default/m",
            json!({"items": [{"value": "20"}, {"value": "15"}]}),
            4,
            "external metric m(&LabelSelector{MatchLabels:map[string]string{q: a,},\
             MatchExpressions:[]LabelSelectorRequirement{},})",
        ),
    ];
    for (metric, path, answer, expected, name) in cases {
        let cluster = Cluster::start().await;
        deployment(&cluster, 2).await;
        measure(&cluster, 2, "500m");
        if !path.is_empty() {
            cluster.elsewhere.lock().unwrap().insert(path.to_owned(), answer);
        }
        let running = cluster.run(HPA);
        autoscaler(
            &cluster,
            json!([metric]),
            json!({"behavior": {"scaleUp": {"policies":
            [{"type": "Pods", "value": 10, "periodSeconds": 15}]}}}),
        )
        .await;
        until_replicas(&cluster, expected).await;
        let event = format!("Normal SuccessfulRescale New size: {expected}; reason: {name} above target");
        cluster.event("default", &event).await;
        running.kill();
    }
}

#[tokio::test]
async fn limits_count_before_metrics() {
    let cluster = Cluster::start().await;
    deployment(&cluster, 5).await;
    let running = cluster.run(HPA);
    autoscaler(&cluster, cpu(50), json!({"maxReplicas": 3})).await;
    until_replicas(&cluster, 3).await;
    cluster
        .event(
            "default",
            "Normal SuccessfulRescale New size: 3; reason: Current number of replicas above \
                              Spec.MaxReplicas",
        )
        .await;
    let _: HorizontalPodAutoscaler =
        cluster.merge("default", "web", json!({"spec": {"minReplicas": 8, "maxReplicas": 9}})).await;
    until_replicas(&cluster, 8).await;
    cluster
        .event(
            "default",
            "Normal SuccessfulRescale New size: 8; reason: Current number of replicas below \
                              Spec.MinReplicas",
        )
        .await;
    let _: Deployment = cluster.merge("default", "web", json!({"spec": {"replicas": 0}})).await;
    until_condition(
        &cluster,
        "ScalingActive",
        "False ScalingDisabled scaling is disabled since the replica count of the target is zero",
    )
    .await;
    running.kill();
}

/// Events and conditions say why; the whole says for which metric.
#[tokio::test]
async fn every_kind_of_failure() {
    let metric = json!({"name": "m"});
    let object = |target: Value| {
        json!({"type": "Object", "object": {"metric": metric, "target": target,
            "describedObject": {"apiVersion": "networking.k8s.io/v1", "kind": "Ingress", "name": "front"}}})
    };
    let external = |target: Value| json!({"type": "External", "external": {"metric": metric, "target": target}});
    let value = || json!({"type": "Value", "value": "10"});
    let average = || json!({"type": "AverageValue", "averageValue": "10"});
    let custom = "unable to fetch metrics from custom metrics API:";
    let of_object = format!("unable to get metric m: Ingress on default front/{custom}");
    let of_external =
        "unable to get external metric default/m/nil: unable to fetch metrics from external metrics API:".to_owned();
    let cases = [
        (
            json!({"type": "ContainerResource", "containerResource": {"name": "cpu", "container": "c",
                "target": {"type": "Utilization", "averageUtilization": 25}}}),
            "FailedGetContainerResourceMetric",
            "failed to get cpu utilization: unable to get metrics for resource cpu: unable to fetch metrics from \
             resource metrics API:"
                .to_owned(),
            "failed to get c container metric value: ",
        ),
        (
            json!({"type": "Pods", "pods": {"metric": metric, "target": average()}}),
            "FailedGetPodsMetric",
            format!("unable to get metric m: {custom}"),
            "failed to get pods metric value: ",
        ),
        (object(value()), "FailedGetObjectMetric", of_object.clone(), "failed to get object metric value: "),
        (
            object(average()),
            "FailedGetObjectMetric",
            of_object,
            "failed to get object metric value: failed to get m object metric: ",
        ),
        (
            external(value()),
            "FailedGetExternalMetric",
            of_external.clone(),
            "failed to get m external metric value: failed to get external metric m: ",
        ),
        (
            external(average()),
            "FailedGetExternalMetric",
            of_external,
            "failed to get m external metric value: failed to get m external metric: ",
        ),
    ];
    for (metric, reason, why, before) in cases {
        let cluster = Cluster::start().await;
        deployment(&cluster, 2).await;
        let running = cluster.run(HPA);
        autoscaler(&cluster, json!([metric]), json!({})).await;
        cluster.event("default", &format!("Warning {reason} {why}")).await;
        let whole = format!("invalid metrics (1 invalid out of 1), first error is: {before}{why}");
        cluster.event("default", &format!("Warning FailedComputeMetricsReplicas {whole}")).await;
        let begins = format!("False {reason} the HPA was unable to compute the replica count: {why}");
        let so = || async { condition(&cluster, "ScalingActive").await.starts_with(&begins).then_some(()) };
        cluster.until(&begins, so).await;
        running.kill();
    }
}

/// A metric that is not known might ask for more: what others ask for counts only if it is more.
#[tokio::test]
async fn one_of_two_metrics() {
    let metrics = || {
        json!([{"type": "External", "external": {"metric": {"name": "m"}, "target": {"type": "Value", "value": "10"}}},
            {"type": "Resource", "resource": {"name": "cpu",
             "target": {"type": "Utilization", "averageUtilization": 30}}}])
    };
    let cluster = Cluster::start().await;
    deployment(&cluster, 3).await;
    measure(&cluster, 3, "50m");
    let running = cluster.run(HPA);
    autoscaler(&cluster, metrics(), json!({"behavior": {"scaleDown": {"stabilizationWindowSeconds": 0}}})).await;
    let begins = "False FailedGetExternalMetric the HPA was unable to compute the replica count: unable to get external \
                  metric default/m/nil:";
    let so = || async { condition(&cluster, "ScalingActive").await.starts_with(begins).then_some(()) };
    cluster.until(begins, so).await;
    cluster.pass(&running, 60).await;
    assert_eq!(replicas(&cluster).await, 3);
    measure(&cluster, 3, "500m");
    until_replicas(&cluster, 5).await;
    until_condition(
        &cluster,
        "ScalingActive",
        "True ValidMetricFound the HPA was able to successfully calculate a replica count from cpu resource utilization \
         (percentage of request)",
    )
    .await;
    running.kill();
}

#[tokio::test]
async fn no_two_scale_the_same_pods() {
    let cluster = Cluster::start().await;
    deployment(&cluster, 2).await;
    measure(&cluster, 2, "500m");
    let _: Deployment = cluster
        .create(json!({
            "metadata": {"name": "other"},
            "spec": {"replicas": 2, "selector": {"matchLabels": {"app": "web"}}, "template": {
                "metadata": {"labels": {"app": "web"}}, "spec": {"containers": [{"name": "c", "image": "i"}]}}},
        }))
        .await;
    let running = cluster.run(HPA);
    let _: HorizontalPodAutoscaler = cluster
        .create(json!({"metadata": {"name": "other"}, "spec": {"minReplicas": 1, "maxReplicas": 5, "metrics": cpu(50),
            "scaleTargetRef": {"apiVersion": "apps/v1", "kind": "Deployment", "name": "other"}}}))
        .await;
    autoscaler(&cluster, cpu(50), json!({})).await;
    let message = "pods by selector app=web are controlled by multiple HPAs: [{other default} {web default}]";
    until_condition(&cluster, "ScalingActive", &format!("False AmbiguousSelector {message}")).await;
    cluster.event("default", &format!("Warning AmbiguousSelector {message}")).await;
    running.kill();
}

#[tokio::test]
async fn a_size_that_somebody_refuses() {
    let cluster = Cluster::start().await;
    let refusal = json!({"kind": "Status", "apiVersion": "v1", "status": "Failure", "code": 403, "reason": "Forbidden",
        "message": "not today"});
    let scale = "PUT /apis/apps/v1/namespaces/default/deployments/web/scale";
    cluster.elsewhere.lock().unwrap().insert(scale.to_owned(), refusal);
    deployment(&cluster, 3).await;
    measure(&cluster, 3, "600m");
    let running = cluster.run(HPA);
    autoscaler(&cluster, cpu(30), json!({})).await;
    let reason = "New size: 6; reason: cpu resource utilization (percentage of request) above target";
    cluster.event("default", &format!("Warning FailedRescale {reason}; error: not today")).await;
    let condition = cluster
        .until("it says so", || async {
            let condition = condition(&cluster, "AbleToScale").await;
            condition.starts_with("False FailedUpdateScale").then_some(condition)
        })
        .await;
    let begins = "False FailedUpdateScale the HPA controller was unable to update the target scale: ";
    assert!(condition.starts_with(begins) && condition.ends_with("not today"), "{condition}");
    assert_eq!(replicas(&cluster).await, 3);
    assert_eq!(status(&cluster).await["lastScaleTime"], Value::Null);
    // It is tried again each 15 seconds, and not more often.
    cluster.pass(&running, 5).await;
    let before = running.requests();
    cluster.pass(&running, 60).await;
    let requests = running.requests() - before;
    assert!(requests <= 5 * 5, "{requests} requests in a minute");
    running.kill();
}
