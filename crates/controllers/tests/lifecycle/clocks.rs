//! Dates that somebody sets: nothing is done twice, nothing stands still for ever.

use std::collections::BTreeSet;

use serde_json::{Value, json};

use crate::{
    harness::{Cluster, named, with},
    nodes::{node, renew, taints},
};

const JOBS: &str = "batch/v1/jobs";
const HOUR: u64 = 3600;

fn template() -> Value {
    let pod = json!({"restartPolicy": "Never", "containers": [{"name": "c", "image": "i"}]});
    json!({"template": {"spec": pod}})
}

#[tokio::test]
async fn a_schedule_when_the_date_goes_back() {
    let cluster = Cluster::new().await;
    let _manager = cluster.manager(&["cronjob-controller"]);
    let cron = json!({"spec": {"schedule": "@hourly", "jobTemplate": {"spec": template()}}});
    cluster.create("batch/v1/cronjobs", "default", with(named("batch/v1", "CronJob", "tick"), cron)).await;
    let jobs = || async { cluster.names(JOBS, "default").await.into_iter().collect::<BTreeSet<_>>() };
    cluster.advance(2 * HOUR + 5).await;
    let before = jobs().await;
    assert_eq!(before.len(), 2);
    // Half past twelve again: one o'clock and two o'clock have had their Jobs.
    cluster.clock.jump(-5400);
    cluster.advance(5400).await;
    assert_eq!(jobs().await, before);
    cluster.advance(HOUR).await;
    assert_eq!(jobs().await.len(), 3, "three o'clock comes once");
    // Forward: only the last of those that were missed.
    cluster.clock.jump(5 * 3600);
    cluster.advance(HOUR).await;
    assert_eq!(jobs().await.len(), 4);
}

#[tokio::test]
async fn what_goes_after_a_while_when_the_date_goes_back() {
    let cluster = Cluster::new().await;
    let _manager = cluster.manager(&["ttl-after-finished-controller"]);
    let job = with(named("batch/v1", "Job", "done"), json!({"spec": template()}));
    cluster.create(JOBS, "default", with(job, json!({"spec": {"ttlSecondsAfterFinished": 100}}))).await;
    let now = cluster.now();
    let condition = |kind: &str| json!({"type": kind, "status": "True", "lastTransitionTime": now});
    let status = json!({"status": {"startTime": now, "completionTime": now, "succeeded": 1,
        "uncountedTerminatedPods": {}, "conditions": [condition("SuccessCriteriaMet"), condition("Complete")]}});
    cluster.api(JOBS, "default").patch_status("done", &capstan_client::Patch::Merge(status)).await.unwrap();
    cluster.advance(50).await;
    cluster.clock.jump(-600);
    // Nobody collects garbage here: what goes is marked, and waits for its pods.
    let goes = || async {
        let job = cluster.get(JOBS, "default", "done").await;
        job.is_none_or(|job| !job["metadata"]["deletionTimestamp"].is_null())
    };
    cluster.advance(600).await;
    assert!(!goes().await, "a hundred seconds of its own dates have not gone by");
    cluster.until("it goes", goes).await;
}

#[tokio::test]
async fn nodes_when_the_date_jumps() {
    let cluster = Cluster::new().await;
    let _manager = cluster.manager(&["node-lifecycle-controller"]);
    for name in ["well", "lost"] {
        node(&cluster, name).await;
    }
    let live = |rounds: u64, names: &'static [&'static str]| {
        let cluster = &cluster;
        async move {
            for _ in 0..rounds {
                cluster.advance(10).await;
                for name in names {
                    renew(cluster, name).await;
                }
            }
        }
    };
    live(3, &["well", "lost"]).await;
    // Whoever renews lives, whatever the date.
    for jump in [3600, -7200, 86_400] {
        cluster.clock.jump(jump);
        live(12, &["well", "lost"]).await;
        assert_eq!((taints(&cluster, "well").await, taints(&cluster, "lost").await), Default::default(), "{jump}");
    }
    // And whoever does not is lost in time, though the date says that it was just heard of.
    cluster.clock.jump(-3600);
    live(8, &["well"]).await;
    assert_eq!(taints(&cluster, "lost").await, "unreachable:NoExecute unreachable:NoSchedule");
    assert_eq!(taints(&cluster, "well").await, "");
}
