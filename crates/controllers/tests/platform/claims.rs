//! Resource claims of pods.

use k8s_openapi::api::{
    core::v1::Pod,
    resource::v1::{ResourceClaim, ResourceClaimTemplate},
};
use serde_json::json;

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
