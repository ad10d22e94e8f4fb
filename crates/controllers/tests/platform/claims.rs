//! Resource claims of pods.

use k8s_openapi::api::{
    core::v1::Pod,
    resource::v1::{ResourceClaim, ResourceClaimTemplate, ResourceSlice},
};
use serde_json::{Value, json};

use crate::harness::Cluster;

const LOOP: &[&str] = &["resourceclaim-controller"];

#[tokio::test]
async fn pods_get_their_claims_and_leave_them() {
    for last_write in [0, 1, 2, 3, usize::MAX] {
        let cluster = Cluster::start().await;
        let running = cluster.run_until(LOOP, last_write);
        let pod: Pod = cluster
            .create(json!({"metadata": {"name": "p"}, "spec": {
                "resourceClaims": [{"name": "gpu", "resourceClaimTemplateName": "t"}],
                "containers": [{"name": "c", "image": "i", "resources": {"claims": [{"name": "gpu"}]}}]}}))
            .await;
        cluster
            .event(
                "default",
                "Warning FailedResourceClaimCreation PodResourceClaim gpu: resource claim template \
            \"t\": resourceclaimtemplate.resource.k8s.io \"t\" not found",
            )
            .await;
        let request = json!({"name": "one", "exactly": {"deviceClassName": "gpus"}});
        let _: ResourceClaimTemplate = cluster
            .create(json!({"metadata": {"name": "t"}, "spec": {
                "metadata": {"labels": {"a": "b"}}, "spec": {"devices": {"requests": [request]}}}}))
            .await;
        cluster.pass(&running, 3).await;
        running.kill();
        let running = cluster.run(LOOP);
        let name = cluster
            .until("the pod knows its claim", || async {
                let pod: Pod = cluster.get("default", "p").await?;
                pod.status?.resource_claim_statuses?.first()?.resource_claim_name.clone()
            })
            .await;
        let claims = cluster.list::<ResourceClaim>("default").await;
        assert_eq!(claims.len(), 1, "after {last_write} writes");
        let claim = serde_json::to_value(&claims[0]).unwrap();
        assert_eq!(claim["metadata"]["name"], name.as_str());
        assert_eq!(claim["metadata"]["generateName"], "p-gpu-");
        assert_eq!(claim["metadata"]["labels"], json!({"a": "b"}));
        assert_eq!(claim["metadata"]["annotations"], json!({"resource.kubernetes.io/pod-claim-name": "gpu"}));
        assert_eq!(claim["metadata"]["ownerReferences"][0]["uid"], json!(pod.metadata.uid));

        // It is allocated and reserved, as the scheduler does it; then the pod ends.
        let reserved = json!([{"resource": "pods", "name": "p", "uid": pod.metadata.uid}]);
        let status = json!({"allocation": {"devices": {}}, "reservedFor": reserved});
        let _: ResourceClaim = cluster
            .merge("default", &name, json!({"metadata": {"finalizers": ["resource.kubernetes.io/delete-protection"]}}))
            .await;
        cluster.set_status(&claims[0], status).await;
        cluster.pass(&running, 3).await;
        let held: ResourceClaim = cluster.get("default", &name).await.unwrap();
        assert_eq!(held.status.unwrap().reserved_for.unwrap().len(), 1, "the pod needs it");
        cluster.set_status(&pod, json!({"phase": "Succeeded"})).await;
        cluster
            .until("the claim is gone", || async {
                cluster.list::<ResourceClaim>("default").await.is_empty().then_some(())
            })
            .await;
        cluster.pass(&running, 3).await;
        let before = running.requests();
        cluster.pass(&running, 60).await;
        assert!(running.requests() - before <= 8, "{}", running.requests() - before);
        running.kill();
    }
}

#[tokio::test]
async fn pods_leave_tainted_devices() {
    let cluster = Cluster::start().await;
    let running = cluster.run(&["device-taint-eviction-controller"]);
    let slice = |generation: u64, taints: Value| {
        json!({"driver": "d", "allNodes": true, "devices": [{"name": "one", "taints": taints}, {"name": "two"}],
               "pool": {"name": "p", "generation": generation, "resourceSliceCount": 1}})
    };
    let _: ResourceSlice = cluster.create(json!({"metadata": {"name": "s"}, "spec": slice(1, json!([]))})).await;
    let patient = json!([{"key": "broken", "operator": "Exists", "effect": "NoExecute", "tolerationSeconds": 60}]);
    for (name, device, tolerations) in
        [("hasty", "one", json!([])), ("patient", "one", patient), ("elsewhere", "two", json!([]))]
    {
        let request = json!({"name": "r", "exactly": {"deviceClassName": "c"}});
        let claim: ResourceClaim =
            cluster.create(json!({"metadata": {"name": name}, "spec": {"devices": {"requests": [request]}}})).await;
        let pod: Pod = cluster
            .create(json!({"metadata": {"name": name}, "spec": {
                "nodeName": "n", "resourceClaims": [{"name": "dev", "resourceClaimName": name}],
                "containers": [{"name": "c", "image": "i"}]}}))
            .await;
        let result = json!({"request": "r", "driver": "d", "pool": "p", "device": device, "tolerations": tolerations});
        cluster
            .set_status(
                &claim,
                json!({"allocation": {"devices": {"results": [result]}},
                       "reservedFor": [{"resource": "pods", "name": name, "uid": pod.metadata.uid}]}),
            )
            .await;
    }
    let is_leaving = |pod: &Pod| pod.metadata.deletion_timestamp.is_some();
    let leaving = || async {
        let pods = cluster.list::<Pod>("default").await;
        pods.iter().filter(|pod| is_leaving(pod)).filter_map(|pod| pod.metadata.name.clone()).collect::<Vec<_>>()
    };
    cluster.pass(&running, 3).await;
    assert!(leaving().await.is_empty());

    let broken = json!([{"key": "broken", "effect": "NoExecute"}, {"key": "slow", "effect": "NoSchedule"}]);
    let _: ResourceSlice = cluster.merge("", "s", json!({"spec": slice(2, broken)})).await;
    cluster.pass(&running, 30).await;
    assert_eq!(leaving().await, ["hasty"]);
    let hasty: Pod = cluster.get("default", "hasty").await.unwrap();
    let conditions = hasty.status.unwrap().conditions.unwrap();
    let why = conditions.iter().find(|condition| condition.type_ == "DisruptionTarget").unwrap();
    assert_eq!(why.reason.as_deref(), Some("DeletionByDeviceTaintManager"));
    cluster.event("default", "Normal DeviceTaintManagerEviction Marking for deletion").await;

    // The device is mended before the patient one has to go.
    let _: ResourceSlice = cluster.merge("", "s", json!({"spec": slice(3, json!([]))})).await;
    cluster.event("default", "Normal DeviceTaintManagerEviction Cancelling deletion").await;
    cluster.pass(&running, 60).await;
    assert_eq!(leaving().await, ["hasty"]);
    let before = running.requests();
    cluster.pass(&running, 60).await;
    assert!(running.requests() - before <= 6, "{}", running.requests() - before);
    running.kill();
}
