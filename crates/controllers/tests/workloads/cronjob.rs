//! CronJobs, and Jobs that go away by themselves.

use std::{collections::BTreeSet, time::Duration};

use k8s_openapi::api::{
    batch::v1::{CronJob, Job},
    core::v1::{Event, Pod},
};

use crate::{cluster::Cluster, job::end};

pub(crate) fn cron(schedule: &str, more: &str) -> String {
    format!(
        "{{apiVersion: batch/v1, kind: CronJob, metadata: {{name: tick}}, spec: {{schedule: '{schedule}', {more}
           jobTemplate: {{spec: {{template:
             {{spec: {{restartPolicy: Never, containers: [{{name: c, image: i}}]}}}}}}}}}}}}"
    )
}

async fn names(cluster: &Cluster) -> BTreeSet<String> {
    cluster.list::<Job>().await.into_iter().map(|job| job.metadata.name.unwrap()).collect()
}

async fn reasons(cluster: &Cluster) -> BTreeSet<String> {
    cluster.list::<Event>().await.into_iter().filter_map(|event| event.reason).collect()
}

#[tokio::test]
async fn a_day() {
    let cluster = Cluster::start(&["cronjob-controller", "job-controller"]).await;
    cluster.create::<CronJob>(&cron("0 */2 * * *", "successfulJobsHistoryLimit: 3,")).await;
    cluster.settle().await;
    let mut seen = BTreeSet::new();
    for _ in 0..12 {
        cluster.clock.advance(Duration::from_secs(2 * 3600));
        cluster
            .until("the next Job is there", || async { names(&cluster).await.iter().any(|n| !seen.contains(n)) })
            .await;
        seen.extend(names(&cluster).await);
        cluster
            .until("its pod is there", || async {
                let pods = cluster.list::<Pod>().await;
                pods.iter().any(|pod| pod.status.as_ref().unwrap().phase.as_deref() == Some("Pending"))
            })
            .await;
        for pod in cluster.list::<Pod>().await {
            if pod.status.as_ref().unwrap().phase.as_deref() == Some("Pending") {
                end(&cluster, &pod, 0).await;
            }
        }
        cluster.until_object("tick", |cron: &CronJob| cron.status.as_ref().is_some_and(|s| s.active.is_none())).await;
    }
    assert_eq!(seen.len(), 12, "{seen:?}");
    cluster.until("only three are kept", || async { names(&cluster).await.len() == 3 }).await;
    // 2026-03-02T12:00:00Z and each two hours after.
    let first = "2026-03-02T12:00:00Z".parse::<capstan_clock::Timestamp>().unwrap().as_second() / 60;
    let expected: BTreeSet<String> = (0..12).map(|n| format!("tick-{}", first + n * 120)).collect();
    assert_eq!(seen, expected);
    let cron = cluster.get::<CronJob>("tick").await;
    let status = cron.status.unwrap();
    assert_eq!(status.last_schedule_time.unwrap().0.to_string(), "2026-03-03T10:00:00Z");
    assert!(status.last_successful_time.is_some());
}

#[tokio::test]
async fn what_cannot_be_cleaned_up_does_not_stop_the_clock() {
    let cluster = Cluster::start(&["cronjob-controller", "job-controller"]).await;
    let limits = "successfulJobsHistoryLimit: 0, failedJobsHistoryLimit: 1,";
    cluster.create::<CronJob>(&cron("@hourly", limits)).await;
    cluster.settle().await;
    cluster.refuse(http::Method::DELETE, "/jobs/");
    for hour in 1..=3 {
        cluster.clock.advance(Duration::from_secs(3600));
        cluster.until("the next Job is there", || async { names(&cluster).await.len() == hour }).await;
        cluster.until("its pod is there", || async { cluster.list::<Pod>().await.len() == hour }).await;
        let pods = cluster.list::<Pod>().await;
        let pending = |pod: &&Pod| pod.status.as_ref().unwrap().phase.as_deref() == Some("Pending");
        end(&cluster, pods.iter().find(pending).unwrap(), 0).await;
        cluster.until_object("tick", |cron: &CronJob| cron.status.as_ref().is_some_and(|s| s.active.is_none())).await;
    }
    let told = cluster.told().await;
    assert!(told.iter().any(|(reason, message)| reason == "FailedDelete" && message.starts_with("Deleted job: ")));
    assert!(cluster.get::<CronJob>("tick").await.status.unwrap().last_successful_time.is_some());
    cluster.relent();
    cluster.clock.advance(Duration::from_secs(3600));
    cluster.until("all but the newest are gone", || async { names(&cluster).await.len() == 1 }).await;
}

#[tokio::test]
async fn what_cannot_be_replaced_is_in_the_way() {
    let cluster = Cluster::start(&["cronjob-controller"]).await;
    cluster.create::<CronJob>(&cron("@hourly", "concurrencyPolicy: Replace,")).await;
    cluster.settle().await;
    cluster.clock.advance(Duration::from_secs(3600));
    cluster.until("the first is there", || async { names(&cluster).await.len() == 1 }).await;
    cluster.settle().await;
    let before = (names(&cluster).await, cluster.get::<CronJob>("tick").await.status);
    cluster.refuse(http::Method::DELETE, "/jobs/");
    cluster.clock.advance(Duration::from_secs(3600));
    cluster.until("it is told", || cluster.is_told("FailedDelete")).await;
    assert_eq!((names(&cluster).await, cluster.get::<CronJob>("tick").await.status), before);
    cluster.relent();
    cluster.clock.advance(Duration::from_secs(60));
    cluster
        .until("it is replaced", || async {
            let names = names(&cluster).await;
            names.len() == 1 && names != before.0
        })
        .await;
}

#[tokio::test]
async fn one_at_a_time() {
    // Whoever takes longer than an hour: is let, is in the way, is replaced.
    for (policy, expected) in [("Allow", 3), ("Forbid", 1), ("Replace", 1)] {
        let cluster = Cluster::start(&["cronjob-controller"]).await;
        cluster.create::<CronJob>(&cron("@hourly", &format!("concurrencyPolicy: {policy},"))).await;
        cluster.settle().await;
        for hour in 1..=3 {
            cluster.clock.advance(Duration::from_secs(3600));
            cluster.settle().await;
            if hour == 3 {
                assert_eq!(names(&cluster).await.len(), expected, "{policy}");
                let first = names(&cluster).await.iter().any(|name| name.ends_with("540"));
                let active = cluster.get::<CronJob>("tick").await.status.unwrap().active.unwrap().len();
                assert_eq!(active, expected, "{policy} {first}");
            }
        }
        assert_eq!(reasons(&cluster).await.contains("JobAlreadyActive"), policy == "Forbid");
    }
}

#[tokio::test]
async fn what_was_missed() {
    let mut cluster = Cluster::start(&["cronjob-controller"]).await;
    cluster.create::<CronJob>(&cron("* * * * *", "")).await;
    cluster.stop_manager().await;
    cluster.clock.advance(Duration::from_secs(3 * 3600));
    cluster.start_manager(u64::MAX);
    cluster.settle().await;
    assert_eq!(names(&cluster).await.len(), 1, "the last one that was missed, not all of them");
    assert!(reasons(&cluster).await.contains("TooManyMissedTimes"));
    // What never comes, and what is no schedule, is told of and left alone.
    let cluster = Cluster::start(&["cronjob-controller"]).await;
    cluster.create::<CronJob>(&cron("59 23 31 2 *", "")).await;
    cluster.clock.advance(Duration::from_secs(3600));
    cluster.until("it is told", || async { reasons(&cluster).await.contains("InvalidSchedule") }).await;
    assert_eq!(names(&cluster).await.len(), 0);
}

#[tokio::test]
async fn gone_after_a_while() {
    let cluster = Cluster::start(&["job-controller", "ttl-after-finished-controller"]).await;
    cluster.create::<Job>(&crate::job::job("ttlSecondsAfterFinished: 100,")).await;
    cluster.until("a pod is there", || async { cluster.list::<Pod>().await.len() == 1 }).await;
    end(&cluster, &cluster.list::<Pod>().await[0], 0).await;
    cluster.settle().await;
    cluster.clock.advance(Duration::from_secs(80));
    cluster.settle().await;
    assert!(cluster.get::<Job>("work").await.metadata.deletion_timestamp.is_none());
    cluster.clock.advance(Duration::from_secs(25));
    // Nobody collects garbage here: it is marked, and waits for its pods.
    cluster.until_object("work", |job: &Job| job.metadata.deletion_timestamp.is_some()).await;
}

#[tokio::test]
async fn too_late_is_never() {
    let mut cluster = Cluster::start(&["cronjob-controller"]).await;
    cluster.create::<CronJob>(&cron("@hourly", "startingDeadlineSeconds: 60,")).await;
    cluster.settle().await;
    cluster.stop_manager().await;
    cluster.clock.advance(Duration::from_secs(3600 + 300));
    cluster.start_manager(u64::MAX);
    cluster.settle().await;
    assert_eq!(names(&cluster).await.len(), 0, "five minutes after its time");
    cluster.stop_manager().await;
    cluster.clock.advance(Duration::from_secs(3300 + 30));
    cluster.start_manager(u64::MAX);
    cluster.until("half a minute is in time", || async { names(&cluster).await.len() == 1 }).await;
}

#[tokio::test]
async fn nine_in_the_morning_is_not_the_same_everywhere() {
    let cluster = Cluster::start(&["cronjob-controller"]).await;
    cluster.create::<CronJob>(&cron("0 9 * * *", "timeZone: Europe/Berlin,")).await;
    cluster.settle().await;
    cluster.clock.advance(Duration::from_secs(21 * 3600));
    cluster.settle().await;
    assert_eq!(names(&cluster).await.len(), 0);
    cluster.clock.advance(Duration::from_secs(3600 + 1));
    cluster.until("it is time", || async { names(&cluster).await.len() == 1 }).await;
    let annotations = cluster.list::<Job>().await[0].metadata.annotations.clone().unwrap();
    assert_eq!(annotations["batch.kubernetes.io/cronjob-scheduled-timestamp"], "2026-03-03T09:00:00+01:00");
    let cron = cluster.until_object("tick", |cron: &CronJob| cron.status.as_ref().unwrap().active.is_some()).await;
    assert_eq!(cron.status.unwrap().last_schedule_time.unwrap().0.to_string(), "2026-03-03T08:00:00Z");
}

#[tokio::test]
async fn failures_are_kept_apart() {
    let cluster = Cluster::start(&["cronjob-controller", "job-controller"]).await;
    let failing =
        cron("@hourly", "failedJobsHistoryLimit: 1,").replace("{spec: {template", "{spec: {backoffLimit: 0, template");
    cluster.create::<CronJob>(&failing).await;
    cluster.settle().await;
    for (hour, code) in [(1, 0), (2, 1), (3, 1), (4, 0)] {
        cluster.clock.advance(Duration::from_secs(3600));
        let pending = async || {
            let pods = cluster.list::<Pod>().await;
            pods.into_iter().find(|pod| pod.status.as_ref().unwrap().phase.as_deref() == Some("Pending"))
        };
        cluster.until("its pod is there", || async { pending().await.is_some() }).await;
        end(&cluster, &pending().await.unwrap(), code).await;
        cluster.until_object("tick", |cron: &CronJob| cron.status.as_ref().is_some_and(|s| s.active.is_none())).await;
        cluster.settle().await;
        assert_eq!(names(&cluster).await.len(), [1, 2, 2, 3][hour - 1], "after {hour} hours");
    }
    let told = cluster.told().await;
    assert!(told.iter().any(|(reason, message)| reason == "SawCompletedJob" && message.ends_with("condition: Failed")));
}
