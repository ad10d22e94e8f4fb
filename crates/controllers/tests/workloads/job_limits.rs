//! How much of a Job may fail, and how much there may be of it.

use std::time::Duration;

use capstan_api::object::Object as _;
use k8s_openapi::api::{
    batch::v1::Job,
    core::v1::{ContainerStatus, Pod, PodCondition},
};

use crate::{
    cluster::{Cluster, running},
    job::{alive, conditions, end, has, index, job, until_alive},
};

/// Ends the pods of these indexes with an exit code.
async fn end_indexes(cluster: &Cluster, indexes: &[&str], code: i32) {
    let pods = alive(cluster).await;
    for pod in pods.iter().filter(|pod| indexes.contains(&index(pod))) {
        end(cluster, pod, code).await;
    }
}

#[tokio::test]
async fn containers_that_are_started_again_too_often() {
    use capstan_clock::Clock as _;
    let cluster = Cluster::start(&["job-controller"]).await;
    let text = job("backoffLimit: 3, parallelism: 2, completions: 2,").replace("Never", "OnFailure");
    cluster.create::<Job>(&text).await;
    let pods = until_alive(&cluster, 2).await;
    for (pod, restarts) in pods.iter().zip([1, 1]).chain([(&pods[0], 2)]) {
        let mut fresh = running(cluster.get(pod.identity().name).await, cluster.clock.now());
        let container = ContainerStatus { name: "c".to_owned(), restart_count: restarts, ..ContainerStatus::default() };
        fresh.status.as_mut().unwrap().container_statuses = Some(vec![container]);
        assert!(!has(&cluster.get("work").await, "FailureTarget"), "two are not too many");
        cluster.api::<Pod>().update_status(&fresh).await.unwrap();
        cluster.settle().await;
    }
    let failed = cluster.until_object("work", |job: &Job| has(job, "Failed")).await;
    assert_eq!(conditions(&failed)[0], ("FailureTarget".to_owned(), "BackoffLimitExceeded".to_owned()));
    until_alive(&cluster, 0).await;
}

#[tokio::test]
async fn too_many_indexes_have_failed() {
    let cluster = Cluster::start(&["job-controller"]).await;
    let limits =
        "completions: 4, parallelism: 4, completionMode: Indexed, backoffLimitPerIndex: 0, maxFailedIndexes: 1,";
    cluster.create::<Job>(&job(limits)).await;
    until_alive(&cluster, 4).await;
    end_indexes(&cluster, &["2"], 1).await;
    let one = |job: &Job| job.status.as_ref().unwrap().failed_indexes.as_deref() == Some("2");
    cluster.until_object("work", one).await;
    cluster.settle().await;
    assert_eq!(alive(&cluster).await.len(), 3, "one may fail, and is not tried again");
    end_indexes(&cluster, &["0"], 1).await;
    let failed = cluster.until_object("work", |job: &Job| has(job, "Failed")).await;
    let condition = failed.status.as_ref().unwrap().conditions.as_ref().unwrap()[1].clone();
    assert_eq!(condition.reason.as_deref(), Some("MaxFailedIndexesExceeded"));
    let message = "Job has exceeded the specified maximal number of failed indexes";
    assert_eq!(condition.message.as_deref(), Some(message));
    until_alive(&cluster, 0).await;
}

#[tokio::test]
async fn an_index_that_is_given_up_at_once() {
    let cluster = Cluster::start(&["job-controller"]).await;
    let policy = "podFailurePolicy: {rules: [{action: FailIndex, onExitCodes: {operator: In, values: [42]}}]},";
    let limits = "completions: 2, parallelism: 2, completionMode: Indexed, backoffLimitPerIndex: 5,";
    cluster.create::<Job>(&job(&format!("{policy} {limits}"))).await;
    until_alive(&cluster, 2).await;
    end_indexes(&cluster, &["1"], 42).await;
    let given_up = |job: &Job| job.status.as_ref().unwrap().failed_indexes.as_deref() == Some("1");
    cluster.until_object("work", given_up).await;
    cluster.clock.advance(Duration::from_secs(60));
    cluster.settle().await;
    assert_eq!(alive(&cluster).await.len(), 1);
    end_indexes(&cluster, &["0"], 0).await;
    let failed = cluster.until_object("work", |job: &Job| has(job, "Failed")).await;
    assert_eq!(conditions(&failed)[1].1, "FailedIndexes");
    let status = failed.status.unwrap();
    assert_eq!((status.completed_indexes.as_deref(), status.failed), (Some("0"), Some(1)));
}

#[tokio::test]
async fn a_disruption_does_not_count() {
    let cluster = Cluster::start(&["job-controller"]).await;
    let policy =
        "podFailurePolicy: {rules: [{action: Ignore, onPodConditions: [{type: DisruptionTarget, status: 'True'}]},
                  {action: FailJob, onPodConditions: [{type: Broken, status: 'True'}]}]},";
    cluster.create::<Job>(&job(&format!("{policy} backoffLimit: 0,"))).await;
    let fail = async |kind: &str| {
        let mut pod = until_alive(&cluster, 1).await.remove(0);
        let status = pod.status.get_or_insert_default();
        status.phase = Some("Failed".to_owned());
        let condition = PodCondition { type_: kind.to_owned(), status: "True".to_owned(), ..PodCondition::default() };
        status.conditions.get_or_insert_default().push(condition);
        cluster.api::<Pod>().update_status(&pod).await.unwrap();
        pod.metadata.name.unwrap()
    };
    fail("DisruptionTarget").await;
    cluster.settle().await;
    cluster.clock.advance(Duration::from_secs(11));
    let name = fail("Broken").await;
    let failed = cluster.until_object("work", |job: &Job| has(job, "Failed")).await;
    assert_eq!(conditions(&failed)[1].1, "PodFailurePolicy");
    let message = failed.status.as_ref().unwrap().conditions.as_ref().unwrap()[1].message.clone().unwrap();
    assert_eq!(message, format!("Pod default/{name} has condition Broken matching FailJob rule at index 1"));
}

#[tokio::test]
async fn more_than_are_counted_at_once() {
    const PODS: i32 = 520;
    let mut cluster = Cluster::start(&["job-controller"]).await;
    cluster.create::<Job>(&job(&format!("completions: {PODS}, parallelism: {PODS},"))).await;
    let pods = until_alive(&cluster, 520).await;
    cluster.stop_manager().await;
    for pod in &pods {
        end(&cluster, pod, 0).await;
    }
    cluster.start_manager(u64::MAX);
    let done = cluster.until_object("work", |job: &Job| has(job, "Complete")).await;
    let status = done.status.unwrap();
    assert_eq!((status.succeeded, status.failed, status.active), (Some(PODS), None, None));
    assert!(status.uncounted_terminated_pods.is_none_or(|left| left == Default::default()));
    cluster
        .until("no pod is held back", || async {
            cluster.list::<Pod>().await.iter().all(|pod| pod.metadata.finalizers.is_none())
        })
        .await;
}

#[tokio::test]
async fn more_have_succeeded_than_were_asked_for() {
    let cluster = Cluster::start(&["job-controller"]).await;
    for name in ["a", "b"] {
        let pod = cluster
            .create::<Pod>(&format!(
                "{{apiVersion: v1, kind: Pod, metadata: {{name: {name}, labels: {{app: w}}}},
                   spec: {{restartPolicy: Never, containers: [{{name: c, image: i}}]}}}}"
            ))
            .await;
        end(&cluster, &pod, 0).await;
    }
    cluster.settle().await;
    let text = job("completions: 1, manualSelector: true, selector: {matchLabels: {app: w}},");
    let text = text.replace("template: {spec", "template: {metadata: {labels: {app: w}}, spec");
    cluster.create::<Job>(&text).await;
    let done = cluster.until_object("work", |job: &Job| has(job, "Complete")).await;
    assert_eq!(done.status.unwrap().succeeded, Some(2));
    cluster.until("it is told", || cluster.is_told("TooManySucceededPods")).await;
    let message = "Too many succeeded pods running after completion count reached";
    assert!(cluster.told().await.contains(&("TooManySucceededPods".to_owned(), message.to_owned())));
}
