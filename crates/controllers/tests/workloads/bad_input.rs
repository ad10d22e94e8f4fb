//! What cannot be done is told of, and tried less and less.

use std::time::Duration;

use k8s_openapi::api::{
    apps::v1::{DaemonSet, StatefulSet},
    batch::v1::Job,
    core::v1::{Event, Pod, ResourceQuota},
};

use crate::{cluster::Cluster, daemonset::add_node, job::job, statefulset};

/// Whether somebody told that pods of an object of this kind could not be made.
async fn is_told(cluster: &Cluster, kind: &str) -> bool {
    let events = cluster.list::<Event>().await;
    events.iter().any(|event| {
        event.involved_object.kind.as_deref() == Some(kind)
            && event.reason.as_deref() == Some("FailedCreate")
            && event.message.as_deref().is_some_and(|message| message.contains("exceeded quota: none"))
    })
}

#[tokio::test]
async fn pods_that_no_quota_allows() {
    let loops = ["daemonset-controller", "job-controller", "resourcequota-controller", "statefulset-controller"];
    let cluster = Cluster::start(&loops).await;
    cluster
        .create::<ResourceQuota>(
            "{apiVersion: v1, kind: ResourceQuota, metadata: {name: none}, spec: {hard: {pods: 0}}}",
        )
        .await;
    cluster.until_object("none", |quota: &ResourceQuota| quota.status.as_ref().is_some_and(|s| s.used.is_some())).await;
    add_node(&cluster, "node", "linux").await;
    cluster.create::<Job>(&job("")).await;
    cluster.create::<StatefulSet>(&statefulset::web("")).await;
    cluster
        .create::<DaemonSet>(
            "{apiVersion: apps/v1, kind: DaemonSet, metadata: {name: agent},
              spec: {selector: {matchLabels: {app: agent}}, template: {metadata: {labels: {app: agent}},
              spec: {containers: [{name: c, image: i}]}}}}",
        )
        .await;
    for kind in ["Job", "StatefulSet", "DaemonSet"] {
        cluster.until(&format!("it is told of the {kind}"), || is_told(&cluster, kind)).await;
    }
    for _ in 0..600 {
        cluster.clock.advance(Duration::from_secs(1));
        cluster.breathe().await;
    }
    let requests = cluster.requests_in_a_minute().await;
    // Two pairs are discovery: which kinds there are to count.
    assert!(requests <= 13, "{requests} requests in a minute");
    assert_eq!(cluster.list::<Pod>().await.len(), 0);
}
