//! Whatever moment the loops are ended at, who goes on after them ends in the same state.

use std::{
    collections::{BTreeMap, BTreeSet},
    time::Duration,
};

use capstan_api::object::Object;
use k8s_openapi::api::{
    apps::v1::{ControllerRevision, Deployment, ReplicaSet, StatefulSet},
    batch::v1::{CronJob, Job},
    core::v1::{PersistentVolumeClaim, Pod},
};

use crate::{
    cluster::Cluster,
    cronjob::cron,
    deployment::{image, is_done, set_image, web},
    job::{end, job},
    statefulset,
};

/// How often the loops are ended before they may finish.
const LIVES: u64 = 40;

/// Ends the loops again and again after one to four writes, and then lets them be.
async fn restarting(cluster: &mut Cluster, seed: u64) {
    for life in 0..=LIVES {
        cluster.stop_manager().await;
        cluster.start_manager(if life < LIVES { 1 + (seed + life * 7) % 4 } else { u64::MAX });
        for _ in 0..30 {
            cluster.breathe().await;
        }
    }
}

#[tokio::test]
async fn a_rolling_update() {
    for seed in 0..3 {
        let mut cluster = Cluster::start(&["deployment-controller", "replicaset-controller"]).await;
        let _node = cluster.play_node();
        cluster.create::<Deployment>(&web(5, "one", "")).await;
        restarting(&mut cluster, seed).await;
        cluster.until_object("web", is_done).await;
        set_image(&cluster, "two").await;
        restarting(&mut cluster, seed).await;
        cluster.until_object("web", is_done).await;
        cluster.settle().await;
        let pods = cluster.list::<Pod>().await;
        assert_eq!(pods.len(), 5, "seed {seed}");
        assert!(pods.iter().all(|pod| image(pod) == "two"), "seed {seed}");
        let sizes: BTreeSet<(String, i32)> = cluster
            .list::<ReplicaSet>()
            .await
            .into_iter()
            .map(|set| {
                let revision = set.metadata.annotations.unwrap()["deployment.kubernetes.io/revision"].clone();
                (revision, set.status.unwrap().replicas)
            })
            .collect();
        assert_eq!(sizes, [("1".to_owned(), 0), ("2".to_owned(), 5)].into(), "seed {seed}");
    }
}

#[tokio::test]
async fn a_job_counts_each_pod_once() {
    for seed in 0..3 {
        let mut cluster = Cluster::start(&["job-controller"]).await;
        cluster.create::<Job>(&job("completions: 6, parallelism: 6,")).await;
        cluster.until("all are there", || async { cluster.list::<Pod>().await.len() == 6 }).await;
        for pod in cluster.list::<Pod>().await {
            end(&cluster, &pod, 0).await;
        }
        restarting(&mut cluster, seed).await;
        let complete = |job: &Job| {
            let conditions = job.status.iter().flat_map(|status| status.conditions.iter().flatten());
            conditions.into_iter().any(|condition| condition.type_ == "Complete")
        };
        let done = cluster.until_object("work", complete).await;
        let status = done.status.unwrap();
        assert_eq!((status.succeeded, status.failed, status.active), (Some(6), None, None), "seed {seed}");
        assert_eq!(cluster.list::<Pod>().await.len(), 6, "seed {seed}: none was made in vain");
    }
}

#[tokio::test]
async fn an_update_in_order() {
    for seed in 0..3 {
        let mut cluster = Cluster::start(&["statefulset-controller"]).await;
        let _node = cluster.play_node();
        cluster.create::<StatefulSet>(&statefulset::web("")).await;
        restarting(&mut cluster, seed).await;
        cluster.until_object("web", statefulset::is_done).await;
        statefulset::change(&cluster, "two", 0).await;
        restarting(&mut cluster, seed).await;
        cluster.until_object("web", statefulset::is_done).await;
        cluster.settle().await;
        let pods = statefulset::pods(&cluster).await;
        assert_eq!(pods, ["web-0 two", "web-1 two", "web-2 two"], "seed {seed}");
        assert_eq!(cluster.list::<ControllerRevision>().await.len(), 2, "seed {seed}");
        assert_eq!(cluster.list::<PersistentVolumeClaim>().await.len(), 3, "seed {seed}");
    }
}

#[tokio::test]
async fn one_job_for_each_time() {
    for seed in 0..3 {
        let mut cluster = Cluster::start(&["cronjob-controller"]).await;
        let mut seen: BTreeMap<String, BTreeSet<String>> = BTreeMap::new();
        cluster.create::<CronJob>(&cron("*/10 * * * *", "successfulJobsHistoryLimit: 0,")).await;
        cluster.settle().await;
        for round in 0..6 {
            cluster.clock.advance(Duration::from_secs(600));
            for life in 0..6 {
                cluster.stop_manager().await;
                // Short lives: between making a Job, writing down its time and deleting it.
                cluster.start_manager((seed + round + life) % 3);
                for _ in 0..30 {
                    cluster.breathe().await;
                }
                // None is deleted before it has ended, so none is missed here.
                for job in cluster.list::<Job>().await {
                    let identity = job.identity();
                    seen.entry(identity.name.to_owned()).or_default().insert(identity.uid.to_owned());
                    if job.status.as_ref().is_none_or(|status| status.conditions.is_none()) {
                        complete(&cluster, &job).await;
                    }
                }
            }
        }
        cluster.stop_manager().await;
        cluster.start_manager(u64::MAX);
        cluster.until("none is kept", || async { cluster.list::<Job>().await.is_empty() }).await;
        cluster.settle().await;
        assert_eq!(seen.len(), 6, "seed {seed}: {seen:?}");
        assert!(seen.values().all(|uids| uids.len() == 1), "seed {seed}: {seen:?}");
    }
}

/// The Job has done its work.
async fn complete(cluster: &Cluster, job: &Job) {
    use capstan_clock::Clock as _;
    let now = cluster.clock.now().strftime("%Y-%m-%dT%H:%M:%SZ").to_string();
    let condition = |kind: &str| serde_json::json!({"type": kind, "status": "True", "lastTransitionTime": now});
    let status = serde_json::json!({"startTime": now, "completionTime": now, "succeeded": 1,
        "uncountedTerminatedPods": {}, "conditions": [condition("SuccessCriteriaMet"), condition("Complete")]});
    let patch = capstan_client::Patch::Merge(serde_json::json!({"status": status}));
    cluster.api::<Job>().patch_status(job.identity().name, &patch).await.unwrap();
}
