//! kill -9 in the middle of a rolling update.

use capstan_api::options::ListOptions;
use capstan_client::{Api, Patch};
use k8s_openapi::api::{
    apps::v1::{Deployment, DeploymentStatus, ReplicaSet},
    core::v1::{Pod, ServiceAccount},
};
use serde_json::json;

use crate::{Up, directory, until};

const REPLICAS: i32 = 100;

async fn status(up: &Up) -> Option<DeploymentStatus> {
    let deployment = Api::<Deployment>::namespaced(&up.client, "default").get("web").await.ok()?;
    let status = deployment.status?;
    (status.observed_generation == deployment.metadata.generation).then_some(status)
}

async fn whole(up: &Up) {
    until("all pods of the newest template", || async {
        let status = status(up).await?;
        let counts = [status.replicas, status.updated_replicas, status.available_replicas];
        counts.iter().all(|count| *count == Some(REPLICAS)).then_some(())
    })
    .await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_rolling_update_goes_on_after_a_kill() {
    let directory = directory("rolling");
    let mut up = Up::start(&directory).await;
    until("the account of pods", || async {
        Api::<ServiceAccount>::namespaced(&up.client, "default").get("default").await.ok()
    })
    .await;
    let template = |version: usize| {
        json!({
            "metadata": {
                "labels": {"app": "web", "version": format!("v{version}")},
                "annotations": {"capstan.dev/simulated-start-delay": "100ms"},
            },
            "spec": {"containers": [{"name": "web", "image": format!("web:{version}")}], "terminationGracePeriodSeconds": 0},
        })
    };
    let deployment = json!({
        "metadata": {"name": "web"},
        "spec": {"replicas": REPLICAS, "selector": {"matchLabels": {"app": "web"}}, "template": template(0)},
    });
    let deployment = serde_json::from_value(deployment).unwrap();
    Api::<Deployment>::namespaced(&up.client, "default").create(&deployment).await.unwrap();
    whole(&up).await;

    for version in 1..=2 {
        let patch = json!({"spec": {"template": template(version)}});
        let deployments = Api::<Deployment>::namespaced(&up.client, "default");
        deployments.patch("web", &Patch::Merge(&patch)).await.unwrap();
        let updated = until("the update is under way", || async {
            status(&up).await?.updated_replicas.filter(|updated| *updated > 0)
        })
        .await;
        assert!(updated < REPLICAS, "the update was over before it could be disturbed");
        up = up.killed_and_started().await;
        whole(&up).await;
    }

    let all = ListOptions::default();
    let sets = Api::<ReplicaSet>::namespaced(&up.client, "default").list(&all).await.unwrap().items;
    let mut wanted: Vec<i32> =
        sets.iter().map(|set| set.spec.as_ref().and_then(|spec| spec.replicas).unwrap_or_default()).collect();
    wanted.sort_unstable();
    assert_eq!(wanted, [0, 0, REPLICAS]);
    until("no pod of an older template", || async {
        let pods = Api::<Pod>::namespaced(&up.client, "default").list(&all).await.ok()?.items;
        let newest = |pod: &Pod| pod.metadata.labels.as_ref().and_then(|labels| labels.get("version").cloned());
        let newest = pods.iter().filter(|pod| newest(pod) == Some("v2".to_owned())).count();
        (pods.len() == newest && newest == REPLICAS as usize).then_some(())
    })
    .await;
    up.end();
}
