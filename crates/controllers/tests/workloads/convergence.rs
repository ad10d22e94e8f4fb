//! Whatever moment the loops are ended at, who goes on after them ends in the same state.

use std::collections::BTreeSet;

use k8s_openapi::api::{
    apps::v1::{Deployment, ReplicaSet},
    batch::v1::Job,
    core::v1::Pod,
};

use crate::{
    cluster::Cluster,
    deployment::{image, is_done, set_image, web},
    job::{end, job},
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
