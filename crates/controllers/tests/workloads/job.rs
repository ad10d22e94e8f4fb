//! Jobs.

use std::time::Duration;

use capstan_api::object::Object;
use k8s_openapi::{
    api::{
        batch::v1::Job,
        core::v1::{ContainerState, ContainerStateTerminated, ContainerStatus, Pod},
    },
    apimachinery::pkg::apis::meta::v1::Time,
};

use crate::cluster::Cluster;

pub(crate) fn job(more: &str) -> String {
    format!(
        "{{apiVersion: batch/v1, kind: Job, metadata: {{name: work}}, spec: {{{more}
           template: {{spec: {{restartPolicy: Never, containers: [{{name: c, image: i}}]}}}}}}}}"
    )
}

/// Ends a pod with an exit code.
pub(crate) async fn end(cluster: &Cluster, pod: &Pod, code: i32) {
    use capstan_clock::Clock as _;
    let now = Time(cluster.clock.now());
    let terminated = ContainerStateTerminated { exit_code: code, finished_at: Some(now), ..Default::default() };
    let state = ContainerState { terminated: Some(terminated), ..ContainerState::default() };
    let mut fresh: Pod = cluster.get(pod.identity().name).await;
    let status = fresh.status.get_or_insert_default();
    status.phase = Some(if code == 0 { "Succeeded" } else { "Failed" }.to_owned());
    status.container_statuses =
        Some(vec![ContainerStatus { name: "c".to_owned(), state: Some(state), ..ContainerStatus::default() }]);
    cluster.api::<Pod>().update_status(&fresh).await.unwrap();
}

/// Those that have not ended.
pub(crate) async fn alive(cluster: &Cluster) -> Vec<Pod> {
    let pods = cluster.list::<Pod>().await;
    let alive = |pod: &Pod| {
        let phase = pod.status.as_ref().and_then(|status| status.phase.clone()).unwrap_or_default();
        pod.metadata.deletion_timestamp.is_none() && phase != "Failed" && phase != "Succeeded"
    };
    pods.into_iter().filter(alive).collect()
}

pub(crate) async fn until_alive(cluster: &Cluster, count: usize) -> Vec<Pod> {
    cluster.until(&format!("{count} pods are alive"), || async { alive(cluster).await.len() == count }).await;
    alive(cluster).await
}

pub(crate) fn conditions(job: &Job) -> Vec<(String, String)> {
    let conditions = job.status.iter().flat_map(|status| status.conditions.iter().flatten());
    conditions.map(|c| (c.type_.clone(), c.reason.clone().unwrap_or_default())).collect()
}

pub(crate) fn has(job: &Job, kind: &str) -> bool {
    conditions(job).iter().any(|(found, _)| found == kind)
}

pub(crate) fn index(pod: &Pod) -> &str {
    &pod.metadata.annotations.as_ref().unwrap()["batch.kubernetes.io/job-completion-index"]
}

#[tokio::test]
async fn runs_until_enough_have_succeeded() {
    let cluster = Cluster::start(&["job-controller"]).await;
    cluster.create::<Job>(&job("completions: 3, parallelism: 2,")).await;
    for left in [2, 2, 1] {
        let pods = until_alive(&cluster, left).await;
        assert!(pods[0].metadata.finalizers.iter().flatten().any(|f| f == "batch.kubernetes.io/job-tracking"));
        end(&cluster, &pods[0], 0).await;
    }
    let done = cluster.until_object("work", |job: &Job| has(job, "Complete")).await;
    let status = done.status.clone().unwrap();
    assert_eq!((status.succeeded, status.failed, status.active), (Some(3), None, None));
    assert_eq!((status.ready, status.terminating), (Some(0), Some(0)));
    assert_eq!(
        conditions(&done),
        [
            ("SuccessCriteriaMet".to_owned(), "CompletionsReached".to_owned()),
            ("Complete".to_owned(), "CompletionsReached".to_owned()),
        ]
    );
    assert!(status.completion_time.is_some() && status.start_time.is_some());
    cluster
        .until("no pod is held back", || async {
            cluster.list::<Pod>().await.iter().all(|pod| pod.metadata.finalizers.is_none())
        })
        .await;
}

#[tokio::test]
async fn backs_off_and_gives_up() {
    use capstan_clock::Clock as _;
    let cluster = Cluster::start(&["job-controller"]).await;
    cluster.create::<Job>(&job("backoffLimit: 3,")).await;
    for expected in [10, 20, 40] {
        let pods = until_alive(&cluster, 1).await;
        end(&cluster, &pods[0], 1).await;
        let failed = cluster.clock.now();
        cluster.settle().await;
        assert_eq!(alive(&cluster).await.len(), 0, "no new one before its time");
        cluster.clock.advance(Duration::from_secs(expected) - Duration::from_secs(3));
        cluster.settle().await;
        assert_eq!(alive(&cluster).await.len(), 0, "nor shortly before it");
        cluster.clock.advance(Duration::from_secs(3));
        until_alive(&cluster, 1).await;
        let waited = cluster.clock.now().duration_since(failed).as_secs();
        assert!((expected.cast_signed()..expected.cast_signed() + 12).contains(&waited), "{waited} for {expected}");
    }
    let pods = until_alive(&cluster, 1).await;
    end(&cluster, &pods[0], 1).await;
    let failed = cluster.until_object("work", |job: &Job| has(job, "Failed")).await;
    assert_eq!(
        conditions(&failed),
        [
            ("FailureTarget".to_owned(), "BackoffLimitExceeded".to_owned()),
            ("Failed".to_owned(), "BackoffLimitExceeded".to_owned()),
        ]
    );
    assert_eq!(failed.status.unwrap().failed, Some(4));
}

#[tokio::test]
async fn each_index_once() {
    let cluster = Cluster::start(&["job-controller"]).await;
    cluster.create::<Job>(&job("completions: 4, parallelism: 4, completionMode: Indexed,")).await;
    let mut pods = until_alive(&cluster, 4).await;
    pods.sort_by_key(|pod| index(pod).to_owned());
    assert_eq!(pods.iter().map(index).collect::<Vec<_>>(), ["0", "1", "2", "3"]);
    let spec = pods[2].spec.as_ref().unwrap();
    assert_eq!(spec.hostname.as_deref(), Some("work-2"));
    assert_eq!(spec.containers[0].env.as_ref().unwrap()[0].name, "JOB_COMPLETION_INDEX");
    assert!(pods[2].metadata.name.as_ref().unwrap().starts_with("work-2-"));
    for at in [0, 2, 3] {
        end(&cluster, &pods[at], 0).await;
    }
    let partly = |job: &Job| job.status.as_ref().unwrap().completed_indexes.as_deref() == Some("0,2,3");
    cluster.until_object("work", partly).await;
    end(&cluster, &pods[1], 7).await;
    cluster.until_object("work", |job: &Job| job.status.as_ref().unwrap().failed == Some(1)).await;
    cluster.clock.advance(Duration::from_secs(11));
    let again = until_alive(&cluster, 1).await;
    assert_eq!(index(&again[0]), "1");
    end(&cluster, &again[0], 0).await;
    let done = cluster.until_object("work", |job: &Job| has(job, "Complete")).await;
    let status = done.status.unwrap();
    assert_eq!((status.completed_indexes.as_deref(), status.succeeded, status.failed), (Some("0-3"), Some(4), Some(1)));
}

#[tokio::test]
async fn indexes_fail_for_themselves() {
    let cluster = Cluster::start(&["job-controller"]).await;
    cluster
        .create::<Job>(&job("completions: 2, parallelism: 2, completionMode: Indexed, backoffLimitPerIndex: 1,"))
        .await;
    for failures in ["0", "1"] {
        let pods = until_alive(&cluster, if failures == "0" { 2 } else { 1 }).await;
        let victim = pods.iter().find(|pod| index(pod) == "1").unwrap();
        let annotations = victim.metadata.annotations.as_ref().unwrap();
        assert_eq!(annotations["batch.kubernetes.io/job-index-failure-count"], failures);
        end(&cluster, victim, 1).await;
        if let Some(other) = pods.iter().find(|pod| index(pod) == "0") {
            end(&cluster, other, 0).await;
        }
        cluster.settle().await;
        cluster.clock.advance(Duration::from_secs(21));
    }
    let failed = cluster.until_object("work", |job: &Job| has(job, "Failed")).await;
    let status = failed.status.clone().unwrap();
    assert_eq!((status.failed_indexes.as_deref(), status.completed_indexes.as_deref()), (Some("1"), Some("0")));
    assert_eq!(conditions(&failed)[1].1, "FailedIndexes");
}

#[tokio::test]
async fn policies() {
    // A failure that must not be, one that does not count, and a success that is enough.
    let cluster = Cluster::start(&["job-controller"]).await;
    let policy = "podFailurePolicy: {rules: [{action: Ignore, onExitCodes: {operator: In, values: [9]}},
                  {action: FailJob, onExitCodes: {operator: In, values: [42]}}]},";
    cluster.create::<Job>(&job(&format!("{policy} backoffLimit: 0, parallelism: 2, completions: 2,"))).await;
    let pods = until_alive(&cluster, 2).await;
    end(&cluster, &pods[0], 9).await;
    cluster.clock.advance(Duration::from_secs(11));
    let pods = until_alive(&cluster, 2).await;
    end(&cluster, &pods[0], 42).await;
    let failed = cluster.until_object("work", |job: &Job| has(job, "Failed")).await;
    let name = pods[0].metadata.name.clone().unwrap();
    let message = failed.status.as_ref().unwrap().conditions.as_ref().unwrap()[1].message.clone().unwrap();
    assert_eq!(
        message,
        format!("Container c for pod default/{name} failed with exit code 42 matching FailJob rule at index 1")
    );
    cluster.until("the other one is stopped", || async { alive(&cluster).await.is_empty() }).await;

    let cluster = Cluster::start(&["job-controller"]).await;
    let policy = "successPolicy: {rules: [{succeededIndexes: '0-1', succeededCount: 1}]},";
    let more = format!("{policy} completionMode: Indexed, parallelism: 3, completions: 3,");
    cluster.create::<Job>(&job(&more)).await;
    let pods = until_alive(&cluster, 3).await;
    let one = pods.iter().find(|pod| index(pod) == "1").unwrap();
    end(&cluster, one, 0).await;
    let done = cluster.until_object("work", |job: &Job| has(job, "Complete")).await;
    assert_eq!(conditions(&done)[0], ("SuccessCriteriaMet".to_owned(), "SuccessPolicy".to_owned()));
    cluster.until("the others are stopped", || async { alive(&cluster).await.is_empty() }).await;
}

#[tokio::test]
async fn waits_while_suspended_and_ends_in_time() {
    let cluster = Cluster::start(&["job-controller"]).await;
    cluster.create::<Job>(&job("suspend: true, parallelism: 2, activeDeadlineSeconds: 60,")).await;
    let suspended = cluster.until_object("work", |job: &Job| has(job, "Suspended")).await;
    assert_eq!(suspended.status.unwrap().start_time, None);
    cluster.settle().await;
    assert_eq!(cluster.list::<Pod>().await.len(), 0);
    let suspend = |value| move |job: &mut Job| job.spec.as_mut().unwrap().suspend = Some(value);
    cluster.change::<Job>("work", suspend(false)).await;
    until_alive(&cluster, 2).await;
    let resumed = cluster.get::<Job>("work").await;
    assert_eq!(conditions(&resumed), [("Suspended".to_owned(), "JobResumed".to_owned())]);
    cluster.change::<Job>("work", suspend(true)).await;
    until_alive(&cluster, 0).await;
    cluster.change::<Job>("work", suspend(false)).await;
    until_alive(&cluster, 2).await;
    cluster.settle().await;
    cluster.clock.advance(Duration::from_secs(61));
    let late = cluster.until_object("work", |job: &Job| has(job, "Failed")).await;
    assert_eq!(conditions(&late).last().unwrap().1, "DeadlineExceeded");
}

#[tokio::test]
async fn indexes_that_grow_and_shrink() {
    let cluster = Cluster::start(&["job-controller"]).await;
    cluster.create::<Job>(&job("completions: 3, parallelism: 3, completionMode: Indexed,")).await;
    let indexes = |mut pods: Vec<Pod>| {
        pods.sort_by_key(|pod| index(pod).to_owned());
        pods.iter().map(|pod| index(pod).to_owned()).collect::<Vec<_>>()
    };
    let size = |count| {
        move |job: &mut Job| {
            let spec = job.spec.as_mut().unwrap();
            (spec.completions, spec.parallelism) = (Some(count), Some(count));
        }
    };
    until_alive(&cluster, 3).await;
    cluster.change::<Job>("work", size(5)).await;
    assert_eq!(indexes(until_alive(&cluster, 5).await), ["0", "1", "2", "3", "4"]);
    cluster.change::<Job>("work", size(2)).await;
    let pods = until_alive(&cluster, 2).await;
    assert_eq!(indexes(pods.clone()), ["0", "1"], "the last indexes go first");
    for pod in pods {
        end(&cluster, &pod, 0).await;
    }
    let done = cluster.until_object("work", |job: &Job| has(job, "Complete")).await;
    assert_eq!(done.status.unwrap().completed_indexes.as_deref(), Some("0,1"));
}

#[tokio::test]
async fn replaced_at_once_or_when_they_have_ended() {
    let delete = async |cluster: &Cluster, pod: &Pod| {
        let options = capstan_api::options::DeleteOptions::default();
        cluster.api::<Pod>().delete(pod.identity().name, &options).await.unwrap();
    };
    let cluster = Cluster::start(&["job-controller"]).await;
    cluster.create::<Job>(&job("podReplacementPolicy: Failed,")).await;
    let pods = until_alive(&cluster, 1).await;
    delete(&cluster, &pods[0]).await;
    // Its finalizer holds it, as a container that runs on would.
    let ends = |job: &Job| job.status.as_ref().is_some_and(|status| status.terminating == Some(1));
    cluster.until_object("work", ends).await;
    cluster.settle().await;
    assert_eq!(alive(&cluster).await.len(), 0, "the next one waits for its end");
    end(&cluster, &pods[0], 1).await;
    cluster.until_object("work", |job: &Job| job.status.as_ref().unwrap().failed == Some(1)).await;
    cluster.clock.advance(Duration::from_secs(11));
    until_alive(&cluster, 1).await;

    let cluster = Cluster::start(&["job-controller"]).await;
    cluster.create::<Job>(&job("podReplacementPolicy: TerminatingOrFailed,")).await;
    let pods = until_alive(&cluster, 1).await;
    delete(&cluster, &pods[0]).await;
    cluster.until_object("work", |job: &Job| job.status.as_ref().unwrap().failed == Some(1)).await;
    cluster.clock.advance(Duration::from_secs(11));
    let next = until_alive(&cluster, 1).await;
    assert_ne!(next[0].identity().name, pods[0].identity().name);
}

#[tokio::test]
async fn somebody_else_manages_it() {
    let cluster = Cluster::start(&["job-controller"]).await;
    cluster.create::<Job>(&job("managedBy: example.com/other,")).await;
    cluster.settle().await;
    let job: Job = cluster.get("work").await;
    assert!(cluster.list::<Pod>().await.is_empty());
    assert_eq!(job.status.unwrap_or_default(), k8s_openapi::api::batch::v1::JobStatus::default());
}

#[tokio::test]
async fn a_pod_without_an_owner_is_taken_and_one_of_another_is_not() {
    let cluster = Cluster::start(&["job-controller"]).await;
    let pod = |name: &str, label: &str| {
        format!(
            "{{apiVersion: v1, kind: Pod, metadata: {{name: {name}, labels: {{app: {label}}},
               finalizers: [batch.kubernetes.io/job-tracking]}},
               spec: {{restartPolicy: Never, containers: [{{name: c, image: i}}]}}}}"
        )
    };
    cluster.create::<Pod>(&pod("stray", "w")).await;
    cluster.create::<Pod>(&pod("stranger", "x")).await;
    let owner = "ownerReferences: [{apiVersion: apps/v1, kind: ReplicaSet, name: a, uid: u, controller: true}],";
    cluster.create::<Pod>(&pod("foreign", "x").replace("labels", &format!("{owner} labels"))).await;
    // The informer of pods has them before there is a Job that could count without them.
    cluster.settle().await;
    let by_hand = "manualSelector: true, selector: {matchLabels: {app: w}},";
    let text = job(by_hand).replace("template: {spec", "template: {metadata: {labels: {app: w}}, spec");
    cluster.create::<Job>(&text).await;
    let owned = |pod: &Pod| pod.metadata.owner_references.iter().flatten().any(|owner| owner.name == "work");
    cluster.until_object("stray", owned).await;
    cluster.settle().await;
    assert!(!owned(&cluster.get::<Pod>("stranger").await));
    let stray: Pod = cluster.get("stray").await;
    assert_eq!(cluster.list::<Pod>().await.len(), 3, "the one that was taken is enough");
    end(&cluster, &stray, 0).await;
    let done = cluster.until_object("work", |job: &Job| has(job, "Complete")).await;
    assert_eq!(done.status.unwrap().succeeded, Some(1));
    // Its finalizer was that of a Job that nobody knows: it goes as well.
    cluster.until_object("stray", |pod: &Pod| pod.metadata.finalizers.is_none()).await;
    cluster.settle().await;
    assert!(cluster.get::<Pod>("stranger").await.metadata.finalizers.is_none(), "nobody will ever count it");
    assert!(cluster.get::<Pod>("foreign").await.metadata.finalizers.is_some(), "that is for its owner to decide");
}

#[tokio::test]
async fn tries_again_within_a_minute() {
    let cluster = Cluster::start(&["job-controller"]).await;
    cluster.refuse(http::Method::POST, "/pods");
    cluster.create::<Job>(&job("")).await;
    for _ in 0..360 {
        cluster.clock.advance(Duration::from_secs(10));
        cluster.breathe().await;
    }
    assert!(cluster.is_told("FailedCreate").await);
    let requests = cluster.requests_in_a_minute().await;
    assert!((1..=3).contains(&requests), "{requests} requests in a minute");
    cluster.relent();
    cluster.clock.advance(Duration::from_secs(60));
    until_alive(&cluster, 1).await;
}
