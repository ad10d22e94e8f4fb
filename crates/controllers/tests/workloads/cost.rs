//! What loops ask of the server: as little as can be.

use std::sync::atomic::Ordering;

use k8s_openapi::api::apps::v1::ReplicaSet;

use crate::cluster::Cluster;

#[tokio::test]
async fn a_pod_costs_one_request() {
    const PODS: i32 = 120;
    let cluster = Cluster::start(&["replicaset-controller"]).await;
    let _node = cluster.play_node();
    let before = cluster.writes.load(Ordering::SeqCst);
    cluster
        .create::<ReplicaSet>(&format!(
            "{{apiVersion: apps/v1, kind: ReplicaSet, metadata: {{name: web}},
               spec: {{replicas: {PODS}, selector: {{matchLabels: {{app: web}}}},
               template: {{metadata: {{labels: {{app: web}}}}, spec: {{containers: [{{name: c, image: i}}]}}}}}}}}"
        ))
        .await;
    let ready = |set: &ReplicaSet| set.status.as_ref().is_some_and(|status| status.ready_replicas == Some(PODS));
    cluster.until_object("web", ready).await;
    cluster.settle().await;
    // One for each pod; and some for the status, which does not tell of each pod by itself.
    let writes = cluster.writes.load(Ordering::SeqCst) - before;
    assert!((120..=140).contains(&writes), "{writes} writes for {PODS} pods");
    assert_eq!(cluster.requests_in_a_minute().await, 0);
}
