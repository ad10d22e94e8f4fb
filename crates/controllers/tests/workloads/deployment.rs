//! Deployments and their ReplicaSets.

use std::time::Duration;

use k8s_openapi::api::{
    apps::v1::{Deployment, DeploymentCondition, ReplicaSet},
    core::v1::Pod,
};

use crate::cluster::Cluster;

const LOOPS: [&str; 2] = ["deployment-controller", "replicaset-controller"];

pub(crate) fn web(replicas: i32, image: &str, more: &str) -> String {
    format!(
        "{{apiVersion: apps/v1, kind: Deployment, metadata: {{name: web}}, spec: {{replicas: {replicas}, {more}
           selector: {{matchLabels: {{app: web}}}}, template: {{metadata: {{labels: {{app: web}}}},
           spec: {{containers: [{{name: c, image: {image}}}]}}}}}}}}"
    )
}

pub(crate) fn image(pod: &Pod) -> &str {
    pod.spec.as_ref().unwrap().containers[0].image.as_deref().unwrap()
}

pub(crate) fn is_done(deployment: &Deployment) -> bool {
    let status = deployment.status.clone().unwrap_or_default();
    let wanted = deployment.spec.as_ref().unwrap().replicas;
    status.observed_generation == deployment.metadata.generation
        && (status.replicas, status.updated_replicas, status.available_replicas) == (wanted, wanted, wanted)
        && condition(deployment, "Progressing").is_some_and(|c| c.reason.as_deref() == Some("NewReplicaSetAvailable"))
}

fn condition<'a>(deployment: &'a Deployment, kind: &str) -> Option<&'a DeploymentCondition> {
    deployment.status.as_ref()?.conditions.iter().flatten().find(|condition| condition.type_ == kind)
}

fn reason(deployment: &Deployment, kind: &str) -> String {
    condition(deployment, kind).and_then(|condition| condition.reason.clone()).unwrap_or_default()
}

pub(crate) async fn set_image(cluster: &Cluster, image: &str) {
    cluster
        .change::<Deployment>("web", |deployment| {
            let spec = deployment.spec.as_mut().unwrap().template.spec.as_mut().unwrap();
            spec.containers[0].image = Some(image.to_owned());
        })
        .await;
}

/// The sizes of the ReplicaSets by their revisions.
async fn sizes(cluster: &Cluster) -> Vec<(String, i32)> {
    let mut sizes: Vec<_> = cluster
        .list::<ReplicaSet>()
        .await
        .into_iter()
        .map(|set| {
            let revision = set.metadata.annotations.unwrap()["deployment.kubernetes.io/revision"].clone();
            (revision, set.spec.unwrap().replicas.unwrap())
        })
        .collect();
    sizes.sort();
    sizes
}

fn of(sizes: &[(&str, i32)]) -> Vec<(String, i32)> {
    sizes.iter().map(|(revision, size)| ((*revision).to_owned(), *size)).collect()
}

#[tokio::test]
async fn rolls_out_rolls_back_and_pauses() {
    let cluster = Cluster::start(&LOOPS).await;
    let _node = cluster.play_node();
    cluster.create::<Deployment>(&web(10, "one", "")).await;
    let deployment = cluster.until_object("web", is_done).await;
    assert_eq!(deployment.metadata.annotations.unwrap()["deployment.kubernetes.io/revision"], "1");
    assert_eq!(sizes(&cluster).await, of(&[("1", 10)]));

    // Replaced a few at a time: never fewer than 8, never more than 13 wanted (25% of 10, down and up).
    set_image(&cluster, "two").await;
    cluster
        .until("all pods are new", || async {
            let pods = cluster.list::<Pod>().await;
            let living = pods.iter().filter(|pod| pod.metadata.deletion_timestamp.is_none()).count();
            assert!(living >= 8, "{living} pods");
            let wanted: i32 = sizes(&cluster).await.iter().map(|(_, size)| size).sum();
            assert!(wanted <= 13, "{wanted} pods wanted");
            pods.iter().all(|pod| image(pod) == "two")
        })
        .await;
    cluster.until_object("web", is_done).await;
    assert_eq!(sizes(&cluster).await, of(&[("1", 0), ("2", 10)]));

    // As `kubectl rollout undo` does it: the old template comes back, and its ReplicaSet with a new number.
    set_image(&cluster, "one").await;
    cluster.until_object("web", is_done).await;
    assert_eq!(sizes(&cluster).await, of(&[("2", 0), ("3", 10)]));
    let sets = cluster.list::<ReplicaSet>().await;
    let back = sets.iter().find(|set| set.spec.as_ref().unwrap().replicas == Some(10)).unwrap();
    let annotations = back.metadata.annotations.as_ref().unwrap();
    assert_eq!(annotations["deployment.kubernetes.io/revision-history"], "1");

    // As clients of old did it: by an annotation.
    cluster
        .change::<Deployment>("web", |deployment| {
            let annotations = deployment.metadata.annotations.get_or_insert_default();
            annotations.insert("deprecated.deployment.rollback.to".to_owned(), "2".to_owned());
        })
        .await;
    cluster
        .until_object("web", |deployment: &Deployment| {
            let template = deployment.spec.as_ref().unwrap().template.spec.as_ref().unwrap();
            is_done(deployment) && template.containers[0].image.as_deref() == Some("two")
        })
        .await;
    assert_eq!(sizes(&cluster).await, of(&[("3", 0), ("4", 10)]));

    // A pause: the template may change and nothing follows, but the size does.
    cluster.change::<Deployment>("web", |deployment| deployment.spec.as_mut().unwrap().paused = Some(true)).await;
    set_image(&cluster, "three").await;
    cluster.change::<Deployment>("web", |deployment| deployment.spec.as_mut().unwrap().replicas = Some(4)).await;
    let paused = cluster
        .until_object("web", |deployment: &Deployment| {
            let status = deployment.status.as_ref().unwrap();
            status.replicas == Some(4) && status.observed_generation == deployment.metadata.generation
        })
        .await;
    assert_eq!(reason(&paused, "Progressing"), "DeploymentPaused");
    assert_eq!(sizes(&cluster).await, of(&[("3", 0), ("4", 4)]));
    cluster.change::<Deployment>("web", |deployment| deployment.spec.as_mut().unwrap().paused = None).await;
    cluster.until_object("web", is_done).await;
    assert_eq!(sizes(&cluster).await, of(&[("3", 0), ("4", 0), ("5", 4)]));

    // When all is as it shall be nobody asks for anything.
    cluster.settle().await;
    let before = cluster.requests.load(std::sync::atomic::Ordering::SeqCst);
    cluster.clock.advance(Duration::from_secs(3600));
    cluster.settle().await;
    assert_eq!(cluster.requests.load(std::sync::atomic::Ordering::SeqCst), before);
}

#[tokio::test]
async fn misses_its_deadline() {
    let cluster = Cluster::start(&LOOPS).await;
    cluster.create::<Deployment>(&web(2, "one", "progressDeadlineSeconds: 60,")).await;
    let stuck = cluster
        .until_object("web", |deployment: &Deployment| {
            deployment.status.as_ref().is_some_and(|status| status.updated_replicas == Some(2))
        })
        .await;
    assert_eq!(
        (reason(&stuck, "Progressing"), reason(&stuck, "Available")),
        ("ReplicaSetUpdated".to_owned(), "MinimumReplicasUnavailable".to_owned())
    );
    cluster.settle().await;
    cluster.clock.advance(Duration::from_secs(90));
    let late = cluster
        .until_object("web", |deployment: &Deployment| reason(deployment, "Progressing") == "ProgressDeadlineExceeded")
        .await;
    let condition = condition(&late, "Progressing").unwrap();
    let name = cluster.list::<ReplicaSet>().await[0].metadata.name.clone().unwrap();
    assert_eq!(condition.status, "False");
    assert_eq!(condition.message, Some(format!("ReplicaSet \"{name}\" has timed out progressing.")));
    // Late is not never.
    let _node = cluster.play_node();
    cluster.until_object("web", is_done).await;
}

#[tokio::test]
async fn recreates() {
    let cluster = Cluster::start(&LOOPS).await;
    let _node = cluster.play_node();
    cluster.create::<Deployment>(&web(3, "one", "strategy: {type: Recreate},")).await;
    cluster.until_object("web", is_done).await;
    set_image(&cluster, "two").await;
    cluster
        .until("all pods are new", || async {
            let pods = cluster.list::<Pod>().await;
            let old = pods.iter().filter(|pod| image(pod) == "one").count();
            assert!(old == 0 || old == pods.len(), "old and new never run side by side");
            pods.len() == 3 && old == 0
        })
        .await;
    cluster.until_object("web", is_done).await;
    assert_eq!(sizes(&cluster).await, of(&[("1", 0), ("2", 3)]));
}

#[tokio::test]
async fn the_dead_are_replaced_and_strangers_adopted() {
    let cluster = Cluster::start(&LOOPS).await;
    let _node = cluster.play_node();
    cluster
        .create::<Pod>(
            "{apiVersion: v1, kind: Pod, metadata: {name: stray, labels: {app: a}},
              spec: {containers: [{name: c, image: i}]}}",
        )
        .await;
    cluster
        .create::<ReplicaSet>(
            "{apiVersion: apps/v1, kind: ReplicaSet, metadata: {name: a},
              spec: {replicas: 3, selector: {matchLabels: {app: a}},
              template: {metadata: {labels: {app: a}}, spec: {containers: [{name: c, image: i}]}}}}",
        )
        .await;
    let ready = |set: &ReplicaSet| set.status.as_ref().is_some_and(|status| status.ready_replicas == Some(3));
    cluster.until_object("a", ready).await;
    cluster.settle().await;
    let pods = cluster.list::<Pod>().await;
    assert_eq!(pods.len(), 3, "the stray one counts");
    assert!(pods.iter().any(|pod| pod.metadata.name.as_deref() == Some("stray")), "and is the oldest");
    assert!(pods.iter().all(|pod| pod.metadata.owner_references.iter().flatten().any(|owner| owner.name == "a")));
    let victim = pods.iter().find(|pod| pod.metadata.name.as_deref() != Some("stray")).unwrap();
    let name = victim.metadata.name.clone().unwrap();
    cluster.api::<Pod>().delete(&name, &capstan_api::options::DeleteOptions::default()).await.unwrap();
    cluster
        .until("another one is there", || async {
            let pods = cluster.list::<Pod>().await;
            pods.len() == 3 && pods.iter().all(|pod| pod.metadata.name.as_deref() != Some(&name))
        })
        .await;
    // Who does not fit any more is let go, and replaced.
    cluster.change::<Pod>("stray", |pod| pod.metadata.labels = Some([("app".to_owned(), "b".to_owned())].into())).await;
    cluster
        .until("it is let go and replaced", || async {
            let pods = cluster.list::<Pod>().await;
            let stray = pods.iter().find(|pod| pod.metadata.name.as_deref() == Some("stray")).unwrap();
            pods.len() == 4 && stray.metadata.owner_references.is_none()
        })
        .await;
}

#[tokio::test]
async fn what_cannot_be_made_is_told_and_tried_less_and_less() {
    let cluster = Cluster::start(&LOOPS).await;
    let text = web(3, "one", "").replace("spec: {containers", "spec: {priorityClassName: none-such, containers");
    cluster.create::<Deployment>(&text).await;
    let failed = cluster.until_object("web", |deployment| condition(deployment, "ReplicaFailure").is_some()).await;
    let failure = condition(&failed, "ReplicaFailure").unwrap();
    assert_eq!((failure.status.as_str(), failure.reason.as_deref()), ("True", Some("FailedCreate")));
    assert!(failure.message.as_ref().unwrap().contains("none-such"), "{:?}", failure.message);
    let before = cluster.requests.load(std::sync::atomic::Ordering::SeqCst);
    for _ in 0..600 {
        cluster.clock.advance(Duration::from_secs(1));
        for _ in 0..20 {
            tokio::task::yield_now().await;
        }
    }
    let requests = cluster.requests.load(std::sync::atomic::Ordering::SeqCst) - before;
    assert!(requests < 40, "{requests} requests in ten minutes");
    cluster.settle().await;
    let events = cluster.list::<k8s_openapi::api::core::v1::Event>().await;
    assert!(events.iter().any(|event| event.reason.as_deref() == Some("FailedCreate")));
}

#[tokio::test]
async fn replication_controllers_do_the_same() {
    use k8s_openapi::api::core::v1::ReplicationController;
    let cluster = Cluster::start(&["replicationcontroller-controller"]).await;
    let _node = cluster.play_node();
    cluster
        .create::<ReplicationController>(
            "{apiVersion: v1, kind: ReplicationController, metadata: {name: a}, spec: {replicas: 2, selector: {app: a},
              template: {metadata: {labels: {app: a}}, spec: {containers: [{name: c, image: i}]}}}}",
        )
        .await;
    let has = |count| {
        move |rc: &ReplicationController| {
            let status = rc.status.clone().unwrap_or_default();
            (status.replicas, status.ready_replicas, status.observed_generation)
                == (count, (count > 0).then_some(count), rc.metadata.generation)
        }
    };
    cluster.until_object("a", has(2)).await;
    let pods = cluster.list::<Pod>().await;
    let owner = &pods[0].metadata.owner_references.as_ref().unwrap()[0];
    assert_eq!((owner.api_version.as_str(), owner.kind.as_str()), ("v1", "ReplicationController"));
    cluster.change::<ReplicationController>("a", |rc| rc.spec.as_mut().unwrap().replicas = Some(0)).await;
    cluster.until_object("a", has(0)).await;
    cluster.until("all pods are gone", || async { cluster.list::<Pod>().await.is_empty() }).await;
}

#[tokio::test]
async fn selectors_that_overlap_do_not_fight() {
    let cluster = Cluster::start(&LOOPS).await;
    let _node = cluster.play_node();
    for name in ["a", "b"] {
        cluster
            .create::<ReplicaSet>(&format!(
                "{{apiVersion: apps/v1, kind: ReplicaSet, metadata: {{name: {name}}},
                  spec: {{replicas: 2, selector: {{matchLabels: {{app: both}}}},
                  template: {{metadata: {{labels: {{app: both}}}}, spec: {{containers: [{{name: c, image: i}}]}}}}}}}}"
            ))
            .await;
    }
    let ready = |set: &ReplicaSet| set.status.as_ref().is_some_and(|status| status.ready_replicas == Some(2));
    for name in ["a", "b"] {
        cluster.until_object(name, ready).await;
    }
    cluster.settle().await;
    assert_eq!(cluster.list::<Pod>().await.len(), 4, "each has its own");
    assert_eq!(cluster.requests_in_a_minute().await, 0);
}

#[tokio::test]
async fn a_quota_that_is_used_up_is_told_and_costs_little() {
    use k8s_openapi::api::core::v1::ResourceQuota;
    let cluster = Cluster::start(&["deployment-controller", "replicaset-controller", "resourcequota-controller"]).await;
    let _node = cluster.play_node();
    cluster
        .create::<ResourceQuota>(
            "{apiVersion: v1, kind: ResourceQuota, metadata: {name: few}, spec: {hard: {pods: 2}}}",
        )
        .await;
    cluster.until_object("few", |quota: &ResourceQuota| quota.status.as_ref().is_some_and(|s| s.used.is_some())).await;
    cluster.create::<Deployment>(&web(5, "one", "")).await;
    let failed = cluster.until_object("web", |deployment| condition(deployment, "ReplicaFailure").is_some()).await;
    let message = condition(&failed, "ReplicaFailure").unwrap().message.clone().unwrap();
    assert!(message.contains("exceeded quota: few, requested: pods=1, used: pods=2, limited: pods=2"), "{message}");
    cluster.until("two are there", || async { cluster.list::<Pod>().await.len() == 2 }).await;
    for _ in 0..300 {
        cluster.clock.advance(Duration::from_secs(1));
        cluster.breathe().await;
    }
    let requests = cluster.requests_in_a_minute().await;
    // Two pairs are discovery: which kinds there are to count.
    assert!(requests <= 8, "{requests} requests in a minute");
    // There is room again: it goes on by itself.
    cluster
        .change::<ResourceQuota>("few", |quota| {
            quota.spec.as_mut().unwrap().hard = serde_json::from_value(serde_json::json!({"pods": "5"})).unwrap();
        })
        .await;
    cluster.clock.advance(Duration::from_secs(1_000));
    cluster.until_object("web", is_done).await;
}

#[tokio::test]
async fn a_replica_set_that_cannot_be_made_is_told_of() {
    let cluster = Cluster::start(&LOOPS).await;
    let _node = cluster.play_node();
    cluster.refuse(http::Method::POST, "/replicasets");
    cluster.create::<Deployment>(&web(1, "one", "")).await;
    let failed = cluster
        .until_object("web", |deployment: &Deployment| reason(deployment, "Progressing") == "ReplicaSetCreateError")
        .await;
    let failure = condition(&failed, "Progressing").unwrap();
    let message = failure.message.clone().unwrap();
    assert_eq!(failure.status, "False");
    assert!(message.starts_with("Failed to create new replica set \"web-"), "{message}");
    cluster.until("it is told", || cluster.is_told("ReplicaSetCreateError")).await;
    assert!(cluster.told().await.contains(&("ReplicaSetCreateError".to_owned(), message)));
    cluster.relent();
    cluster.clock.advance(Duration::from_secs(60));
    cluster.until_object("web", is_done).await;
}

#[tokio::test]
async fn a_name_that_is_taken_makes_another() {
    let first = Cluster::start(&LOOPS).await;
    first.create::<Deployment>(&web(1, "one", "")).await;
    first.until("its ReplicaSet is there", || async { first.list::<ReplicaSet>().await.len() == 1 }).await;
    let taken = first.list::<ReplicaSet>().await[0].metadata.name.clone().unwrap();

    let cluster = Cluster::start(&LOOPS).await;
    let _node = cluster.play_node();
    cluster
        .create::<ReplicaSet>(&format!(
            "{{apiVersion: apps/v1, kind: ReplicaSet, metadata: {{name: {taken}}},
               spec: {{replicas: 0, selector: {{matchLabels: {{app: other}}}},
               template: {{metadata: {{labels: {{app: other}}}}, spec: {{containers: [{{name: c, image: i}}]}}}}}}}}"
        ))
        .await;
    cluster.create::<Deployment>(&web(1, "one", "")).await;
    let done = cluster.until_object("web", is_done).await;
    assert_eq!(done.status.unwrap().collision_count, Some(1));
    let names = cluster.list::<ReplicaSet>().await.into_iter().filter_map(|set| set.metadata.name);
    assert_eq!(names.filter(|name| name.starts_with("web-") && *name != taken).count(), 1);
}

#[tokio::test]
async fn ready_for_long_enough() {
    let cluster = Cluster::start(&LOOPS).await;
    let _node = cluster.play_node();
    let careful = "minReadySeconds: 30, strategy: {rollingUpdate: {maxSurge: 1, maxUnavailable: 0}},";
    cluster.create::<Deployment>(&web(2, "one", careful)).await;
    let ready = |count| {
        move |deployment: &Deployment| {
            let status = deployment.status.clone().unwrap_or_default();
            status.ready_replicas == Some(count) && status.observed_generation == deployment.metadata.generation
        }
    };
    let waiting = cluster.until_object("web", ready(2)).await;
    assert_eq!(waiting.status.unwrap().available_replicas, None);
    cluster.clock.advance(Duration::from_secs(20));
    cluster.settle().await;
    assert_eq!(reason(&cluster.get("web").await, "Available"), "MinimumReplicasUnavailable");
    cluster.clock.advance(Duration::from_secs(11));
    cluster.until_object("web", is_done).await;
    // None of the old ones goes before a new one is available.
    set_image(&cluster, "two").await;
    cluster.until_object("web", ready(3)).await;
    cluster.clock.advance(Duration::from_secs(20));
    cluster.settle().await;
    assert_eq!(sizes(&cluster).await, of(&[("1", 2), ("2", 1)]));
    for _ in 0..2 {
        cluster.clock.advance(Duration::from_secs(31));
        cluster.settle().await;
    }
    cluster.until_object("web", is_done).await;
    assert_eq!(sizes(&cluster).await, of(&[("1", 0), ("2", 2)]));
}
