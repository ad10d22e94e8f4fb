//! StatefulSets.

use capstan_api::options::DeleteOptions;
use k8s_openapi::api::{
    apps::v1::{ControllerRevision, StatefulSet},
    core::v1::{PersistentVolumeClaim, Pod},
};

use crate::cluster::Cluster;

pub(crate) fn web(more: &str) -> String {
    format!(
        "{{apiVersion: apps/v1, kind: StatefulSet, metadata: {{name: web}},
           spec: {{replicas: 3, serviceName: web, {more}
           selector: {{matchLabels: {{app: web}}}}, template: {{metadata: {{labels: {{app: web}}}},
           spec: {{containers: [{{name: c, image: one}}]}}}},
           volumeClaimTemplates: [{{metadata: {{name: data}}, spec: {{accessModes: [ReadWriteOnce],
             resources: {{requests: {{storage: 1Gi}}}}}}}}]}}}}"
    )
}

/// The pods and their images.
pub(crate) async fn pods(cluster: &Cluster) -> Vec<String> {
    let mut pods: Vec<_> = cluster.list::<Pod>().await;
    pods.retain(|pod| pod.metadata.deletion_timestamp.is_none());
    let mut pods: Vec<_> = pods
        .into_iter()
        .map(|pod| {
            format!("{} {}", pod.metadata.name.unwrap(), pod.spec.unwrap().containers[0].image.as_ref().unwrap())
        })
        .collect();
    pods.sort();
    pods
}

async fn claims(cluster: &Cluster) -> Vec<(String, Vec<String>)> {
    let claims = cluster.list::<PersistentVolumeClaim>().await.into_iter();
    let owners = |claim: &PersistentVolumeClaim| {
        claim.metadata.owner_references.iter().flatten().map(|owner| owner.name.clone()).collect()
    };
    let mut claims: Vec<_> = claims.map(|claim| (claim.metadata.name.clone().unwrap(), owners(&claim))).collect();
    claims.sort();
    claims
}

pub(crate) fn is_done(set: &StatefulSet) -> bool {
    let status = set.status.clone().unwrap_or_default();
    let wanted = set.spec.as_ref().unwrap().replicas.unwrap();
    status.observed_generation == set.metadata.generation
        && (status.replicas, status.ready_replicas.unwrap_or_default()) == (wanted, wanted)
        && status.current_revision == status.update_revision
}

pub(crate) async fn change(cluster: &Cluster, image: &str, partition: i32) {
    cluster
        .change::<StatefulSet>("web", |set| {
            let spec = set.spec.as_mut().unwrap();
            spec.template.spec.as_mut().unwrap().containers[0].image = Some(image.to_owned());
            let strategy = spec.update_strategy.get_or_insert_default();
            strategy.rolling_update.get_or_insert_default().partition = Some(partition);
        })
        .await;
}

#[tokio::test]
async fn one_after_the_other() {
    let cluster = Cluster::start(&["statefulset-controller"]).await;
    cluster.create::<StatefulSet>(&web("")).await;
    cluster.until("the first is there", || async { pods(&cluster).await.len() == 1 }).await;
    cluster.settle().await;
    assert_eq!(pods(&cluster).await, ["web-0 one"], "the others wait for it");
    assert_eq!(claims(&cluster).await, [("data-web-0".to_owned(), vec![])]);
    let _node = cluster.play_node();
    cluster.until_object("web", is_done).await;
    assert_eq!(pods(&cluster).await, ["web-0 one", "web-1 one", "web-2 one"]);
    let pod = cluster.get::<Pod>("web-1").await;
    let labels = pod.metadata.labels.unwrap();
    assert_eq!(labels["statefulset.kubernetes.io/pod-name"], "web-1");
    assert_eq!(labels["apps.kubernetes.io/pod-index"], "1");
    let spec = pod.spec.unwrap();
    assert_eq!((spec.hostname.as_deref(), spec.subdomain.as_deref()), (Some("web-1"), Some("web")));
    let volume = &spec.volumes.unwrap()[0];
    assert_eq!(volume.persistent_volume_claim.as_ref().unwrap().claim_name, "data-web-1");

    // A label that somebody took away comes back, and all else of the pod stays.
    cluster
        .change::<Pod>("web-1", |pod| {
            pod.metadata.labels.get_or_insert_default().remove("statefulset.kubernetes.io/pod-name");
            pod.metadata.annotations.get_or_insert_default().insert("note".to_owned(), "kept".to_owned());
        })
        .await;
    let before = cluster.get::<Pod>("web-1").await;
    cluster
        .until("the label is back", || async {
            let labels = cluster.get::<Pod>("web-1").await.metadata.labels.unwrap();
            labels.contains_key("statefulset.kubernetes.io/pod-name")
        })
        .await;
    let after = cluster.get::<Pod>("web-1").await;
    assert_eq!((after.spec, after.status), (before.spec, before.status));
    assert_eq!(after.metadata.annotations.unwrap()["note"], "kept");

    // An update, first only above a partition, then of all.
    change(&cluster, "two", 2).await;
    cluster.until("the last is new", || async { pods(&cluster).await.contains(&"web-2 two".to_owned()) }).await;
    cluster.settle().await;
    assert_eq!(pods(&cluster).await, ["web-0 one", "web-1 one", "web-2 two"]);
    let partly = cluster.get::<StatefulSet>("web").await.status.unwrap();
    assert_eq!((partly.updated_replicas, partly.current_replicas), (Some(1), Some(2)));
    assert_ne!(partly.current_revision, partly.update_revision);
    change(&cluster, "two", 0).await;
    cluster.until_object("web", is_done).await;
    cluster.until("all are new", || async { pods(&cluster).await == ["web-0 two", "web-1 two", "web-2 two"] }).await;
    assert_eq!(cluster.list::<ControllerRevision>().await.len(), 2);

    // Back to what was: the revision of then is the newest again.
    change(&cluster, "one", 0).await;
    cluster
        .until("all are as before", || async { pods(&cluster).await == ["web-0 one", "web-1 one", "web-2 one"] })
        .await;
    let mut numbers: Vec<i64> = cluster.list::<ControllerRevision>().await.iter().map(|r| r.revision).collect();
    numbers.sort_unstable();
    assert_eq!(numbers, [2, 3]);

    // Fewer: the last goes first, and the claims stay.
    cluster.change::<StatefulSet>("web", |set| set.spec.as_mut().unwrap().replicas = Some(1)).await;
    cluster.until("one is left", || async { pods(&cluster).await == ["web-0 one"] }).await;
    assert_eq!(claims(&cluster).await.len(), 3);
    cluster.until_object("web", is_done).await;
}

#[tokio::test]
async fn all_at_once_and_claims_that_go() {
    let cluster = Cluster::start(&["statefulset-controller"]).await;
    let policy = "podManagementPolicy: Parallel, ordinals: {start: 5},
                  persistentVolumeClaimRetentionPolicy: {whenScaled: Delete, whenDeleted: Delete},";
    cluster.create::<StatefulSet>(&web(policy)).await;
    cluster.until("all are there", || async { pods(&cluster).await == ["web-5 one", "web-6 one", "web-7 one"] }).await;
    let owned = |owner: &'static str| move |claims: &[(String, Vec<String>)]| claims.iter().all(|(_, o)| o == &[owner]);
    let of_set = owned("web");
    let _node = cluster.play_node();
    cluster
        .until("the claims go with the set", || async {
            let claims = claims(&cluster).await;
            claims.len() == 3 && of_set(&claims)
        })
        .await;
    cluster.change::<StatefulSet>("web", |set| set.spec.as_mut().unwrap().replicas = Some(2)).await;
    cluster
        .until("one goes, and its claim with it", || async {
            let claims = claims(&cluster).await;
            pods(&cluster).await.len() == 2 && claims[2] == ("data-web-7".to_owned(), vec!["web-7".to_owned()])
        })
        .await;
}

#[tokio::test]
async fn what_is_broken_does_not_stop_its_own_replacement() {
    let cluster = Cluster::start(&["statefulset-controller"]).await;
    cluster.create::<StatefulSet>(&web("podManagementPolicy: Parallel,")).await;
    cluster.until("all are there", || async { pods(&cluster).await.len() == 3 }).await;
    // None of them ever becomes ready. The last is replaced, and the others wait for it.
    change(&cluster, "two", 0).await;
    cluster.until("the last is new", || async { pods(&cluster).await.contains(&"web-2 two".to_owned()) }).await;
    cluster.settle().await;
    assert_eq!(pods(&cluster).await, ["web-0 one", "web-1 one", "web-2 two"]);
    let _node = cluster.play_node();
    cluster.until_object("web", is_done).await;
    assert_eq!(pods(&cluster).await, ["web-0 two", "web-1 two", "web-2 two"]);
}

#[tokio::test]
async fn a_claim_that_is_about_to_go_is_not_used_again() {
    let loops =
        ["statefulset-controller", "garbage-collector-controller", "persistentvolumeclaim-protection-controller"];
    let cluster = Cluster::start(&loops).await;
    // On a node, so that who is deleted is given time.
    let text = web("persistentVolumeClaimRetentionPolicy: {whenScaled: Delete, whenDeleted: Retain},")
        .replace("spec: {containers", "spec: {nodeName: some, containers")
        .replace("replicas: 3", "replicas: 2");
    let node = cluster.play_node();
    cluster.create::<StatefulSet>(&text).await;
    cluster.until_object("web", is_done).await;
    let before = cluster.get::<PersistentVolumeClaim>("data-web-1").await.metadata.uid;
    drop(node);
    let scale = async |count| {
        cluster.change::<StatefulSet>("web", |set| set.spec.as_mut().unwrap().replicas = Some(count)).await;
    };
    scale(1).await;
    cluster.until_object("web-1", |pod: &Pod| pod.metadata.deletion_timestamp.is_some()).await;
    scale(2).await;
    cluster.settle().await;
    assert_eq!(claims(&cluster).await[1], ("data-web-1".to_owned(), vec!["web-1".to_owned()]));

    cluster.refuse(http::Method::DELETE, "/persistentvolumeclaims/");
    let now = DeleteOptions { grace_period_seconds: Some(0), ..DeleteOptions::default() };
    cluster.api::<Pod>().delete("web-1", &now).await.unwrap();
    cluster.settle().await;
    assert_eq!(pods(&cluster).await, ["web-0 one"], "it would lose its claim");
    cluster.relent();
    cluster.clock.advance(std::time::Duration::from_secs(60));
    cluster.until("it is made again", || async { pods(&cluster).await.len() == 2 }).await;
    assert_ne!(
        cluster.get::<PersistentVolumeClaim>("data-web-1").await.metadata.uid,
        before,
        "with a claim of its own"
    );
    cluster.settle().await;
    assert_eq!(claims(&cluster).await[1], ("data-web-1".to_owned(), vec![]));
}

#[tokio::test]
async fn volumes_that_are_not_as_they_must_be_are_told_of() {
    let cluster = Cluster::start(&["statefulset-controller"]).await;
    cluster
        .create::<Pod>(
            "{apiVersion: v1, kind: Pod, metadata: {name: web-0, labels: {app: web}},
              spec: {containers: [{name: c, image: one}]}}",
        )
        .await;
    let _node = cluster.play_node();
    cluster.create::<StatefulSet>(&web("")).await;
    cluster.until("it is told", || cluster.is_told("FailedUpdate")).await;
    assert!(!cluster.is_told("SuccessfulUpdate").await);
    assert_eq!(claims(&cluster).await[0].0, "data-web-0");
}

#[tokio::test]
async fn replaced_only_when_deleted_and_revisions_that_are_kept() {
    let cluster = Cluster::start(&["statefulset-controller"]).await;
    let _node = cluster.play_node();
    cluster.create::<StatefulSet>(&web("updateStrategy: {type: OnDelete}, revisionHistoryLimit: 1,")).await;
    cluster.until_object("web", is_done).await;
    let set_image = async |image: &str| {
        cluster
            .change::<StatefulSet>("web", |set| {
                let spec = set.spec.as_mut().unwrap().template.spec.as_mut().unwrap();
                spec.containers[0].image = Some(image.to_owned());
            })
            .await;
        cluster.settle().await;
    };
    set_image("two").await;
    assert_eq!(pods(&cluster).await, ["web-0 one", "web-1 one", "web-2 one"]);
    cluster.api::<Pod>().delete("web-1", &DeleteOptions::default()).await.unwrap();
    cluster.until("it is replaced", || async { pods(&cluster).await == ["web-0 one", "web-1 two", "web-2 one"] }).await;
    cluster.settle().await;
    let status = cluster.get::<StatefulSet>("web").await.status.unwrap();
    assert_eq!((status.current_replicas, status.updated_replicas), (Some(2), Some(1)));
    // Those that pods are of are kept, and of the others the newest.
    for image in ["three", "four", "five"] {
        set_image(image).await;
    }
    let mut numbers: Vec<i64> = cluster.list::<ControllerRevision>().await.iter().map(|r| r.revision).collect();
    numbers.sort_unstable();
    assert_eq!(numbers, [1, 2, 4, 5]);
}

#[tokio::test]
async fn a_claim_that_somebody_else_controls_is_left_to_them() {
    let cluster = Cluster::start(&["statefulset-controller"]).await;
    cluster
        .create::<PersistentVolumeClaim>(
            "{apiVersion: v1, kind: PersistentVolumeClaim, metadata: {name: data-web-0,
                ownerReferences: [{apiVersion: v1, kind: ConfigMap, name: other, uid: u, controller: true}]},
              spec: {accessModes: [ReadWriteOnce], resources: {requests: {storage: 1Gi}}}}",
        )
        .await;
    cluster.settle().await;
    let _node = cluster.play_node();
    let policy = "persistentVolumeClaimRetentionPolicy: {whenScaled: Retain, whenDeleted: Delete},";
    cluster.create::<StatefulSet>(&web(policy)).await;
    cluster.until_object("web", is_done).await;
    let message = "PersistentVolumeClaim data-web-0 has a conflicting OwnerReference that acts as a manging controller, \
                   the retention policy is ignored for this claim";
    cluster.until("it is told", || cluster.is_told("ConflictingController")).await;
    assert!(cluster.told().await.contains(&("ConflictingController".to_owned(), message.to_owned())));
    cluster.settle().await;
    assert_eq!(claims(&cluster).await[0].1, ["other"]);
    assert_eq!(claims(&cluster).await[1].1, ["web"]);
}
