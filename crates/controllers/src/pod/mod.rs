//! Pods as loops keep them: what loops read of a pod, and nothing else. There are many pods, and a whole one is large.
//!
//! The names of fields are those of the API. A pod that is kept like this cannot be written, for the rest of it would
//! be lost: it has no `Serialize`. Who has to write one gets the [whole](whole) of it, or sends a patch.

mod metadata;
mod spec;
mod status;

use capstan_api::{
    GroupVersionKind, GroupVersionResource, Resource, Scope, Status,
    object::{Metadata as _, Object as _},
};
use capstan_client::{Api, Client, Error};
use serde::Deserialize;

pub(crate) use k8s_openapi::api::core::v1::Pod as WholePod;
pub(crate) use metadata::Metadata;
pub(crate) use spec::{Amounts, Container, PodResourceClaim, PodSpec, ResourceRequirements, Toleration, Volume};
pub(crate) use status::{About, ContainerStatus, PodCondition, PodResourceClaimStatus, PodStatus};

/// What loops read of a pod.
#[derive(Clone, Debug, Default, PartialEq, Deserialize)]
#[serde(default)]
pub(crate) struct Pod {
    pub(crate) metadata: Metadata,
    pub(crate) spec: Option<PodSpec>,
    pub(crate) status: Option<PodStatus>,
}

impl Resource for Pod {
    const SCOPE: Scope = Scope::Namespaced;
    type Meta = Metadata;

    fn gvk() -> GroupVersionKind {
        GroupVersionKind::from_static("", "v1", "Pod")
    }

    fn gvr() -> GroupVersionResource {
        GroupVersionResource::from_static("", "v1", "pods")
    }

    fn meta(&self) -> &Metadata {
        &self.metadata
    }

    fn meta_mut(&mut self) -> &mut Metadata {
        &mut self.metadata
    }
}

/// The whole of a pod as it is known, for those who write it: the server is asked for it.
///
/// # Errors
/// It cannot be had, or is a newer one by now. Then writing the one that is known would have been a conflict too.
pub(crate) async fn whole(client: &Client, pod: &Pod) -> Result<WholePod, Error> {
    let known = pod.metadata.resource_version();
    let whole = Api::<WholePod>::namespaced(client, pod.metadata.namespace()).get(pod.metadata.name()).await?;
    if whole.identity().resource_version == known {
        return Ok(whole);
    }
    let why = "the object has been modified; please apply your changes to the latest version and try again";
    let conflict = Status::conflict(&Pod::gvr().group_resource(), pod.metadata.name(), why);
    Err(Error::Api(Box::new(conflict)))
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use capstan_api::{builtin, json, object::Encoded, protobuf};

    use super::*;

    /// A pod as a server sends it; of what is in it loops read about a half.
    const SENT: &str = r#"{
        "apiVersion": "v1", "kind": "Pod",
        "metadata": {"name": "web-5d7f9c-x7k2p", "generateName": "web-5d7f9c-", "namespace": "shop",
            "uid": "5a0c7e0e-1c5b-4f6e-9d39-0a8f4e2b7c11", "resourceVersion": "1234567", "generation": 1,
            "creationTimestamp": "2026-01-02T03:04:05Z", "labels": {"app": "web", "pod-template-hash": "5d7f9c"},
            "annotations": {"note": "long", "controller.kubernetes.io/pod-deletion-cost": "5"},
            "ownerReferences": [{"apiVersion": "apps/v1", "kind": "ReplicaSet", "name": "web-5d7f9c", "controller": true,
                "uid": "6b1d8f1f-2d6c-4a7f-8e4a-1b9a5f3c8d22", "blockOwnerDeletion": true}],
            "managedFields": [{"manager": "m", "operation": "Update", "apiVersion": "v1"}]},
        "spec": {"nodeName": "node-1", "hostname": null, "serviceAccountName": "default", "priority": 0,
            "containers": [{"name": "c", "image": "registry.k8s.io/pause:3.10",
                "ports": [{"name": "http", "containerPort": 8080, "protocol": "TCP"}],
                "resources": {"requests": {"cpu": "10m"}}, "volumeMounts": [{"name": "token", "mountPath": "/t"}]}],
            "tolerations": [{"key": "node.kubernetes.io/not-ready", "operator": "Exists", "effect": "NoExecute",
                "tolerationSeconds": 300}],
            "volumes": [{"name": "token", "projected": {"sources": [{"serviceAccountToken": {"path": "token"}}]}},
                {"name": "data", "persistentVolumeClaim": {"claimName": "data-0"}}]},
        "status": {"phase": "Running", "podIP": "10.0.0.7", "podIPs": [{"ip": "10.0.0.7"}], "hostIP": "192.168.0.1",
            "qosClass": "Burstable", "startTime": "2026-01-02T03:04:06Z",
            "conditions": [{"type": "Ready", "status": "True", "lastTransitionTime": "2026-01-02T03:04:07Z",
                    "message": "nobody reads this"},
                {"type": "DisruptionTarget", "status": "True", "reason": "PreemptionByScheduler", "message": "why"}],
            "containerStatuses": [{"name": "c", "restartCount": 2, "image": "i", "imageID": "", "ready": true,
                "state": {"terminated": {"exitCode": 3, "finishedAt": "2026-01-02T03:04:08Z", "reason": "Error"}}}]}
    }"#;

    fn check(pod: &Pod) {
        let (metadata, spec, status) = (&pod.metadata, pod.spec.as_ref().unwrap(), pod.status.as_ref().unwrap());
        let found = pod.identity();
        assert_eq!((found.namespace, found.name, found.resource_version), ("shop", "web-5d7f9c-x7k2p", "1234567"));
        assert_eq!(pod.controller().unwrap().name, "web-5d7f9c");
        assert_eq!(metadata.labels()["app"], "web");
        assert_eq!(metadata.annotations.len(), 1, "others are not kept");
        assert_eq!((spec.node_name.as_deref(), spec.hostname.as_deref()), (Some("node-1"), None));
        assert_eq!(spec.containers[0].ports.as_ref().unwrap()[0].container_port, 8080);
        assert_eq!(spec.containers[0].resources.as_ref().unwrap().requests.as_ref().unwrap()["cpu"], "10m");
        assert_eq!(spec.tolerations.as_ref().unwrap()[0].toleration_seconds, Some(300));
        let volumes: Vec<_> = spec.volumes.iter().flatten().map(|volume| volume.name.as_str()).collect();
        assert_eq!(volumes, ["data"]);
        assert_eq!(status.pod_ips.as_ref().unwrap()[0].ip, "10.0.0.7");
        let messages: Vec<_> =
            status.conditions.iter().flatten().map(|condition| condition.message.as_deref()).collect();
        assert_eq!(messages, [None, Some("why")]);
        let container = &status.container_statuses.as_ref().unwrap()[0];
        let state = container.state.as_ref().unwrap();
        assert_eq!((container.restart_count, state.terminated.as_ref().unwrap().exit_code), (2, 3));
        assert!(state.running.is_none() && state.waiting.is_none());
    }

    #[test]
    fn what_loops_read_is_kept() {
        let pod = Pod::decode_as(SENT.as_bytes(), None).unwrap();
        check(&pod);
        let schema = builtin::schema(&Pod::gvk()).unwrap();
        let message = protobuf::encode_object(&Pod::gvk(), &schema, &json::parse(SENT.as_bytes()).unwrap());
        let same = Pod::decode(Encoded::new(&message).without_managed_fields(), None).unwrap();
        check(&same);
        assert_eq!(pod, same);
        let shared = (&pod.spec.as_ref().unwrap().containers, &same.spec.as_ref().unwrap().containers);
        assert!(std::ptr::eq(&**shared.0, &**shared.1), "what two pods have in common is there once");
        Pod::decode_as(br#"{"metadata": {"labels": null}, "spec": {"containers": null, "volumes": null}}"#, None)
            .unwrap();
    }

    /// There are many of them.
    #[test]
    fn pods_are_small() {
        let size = size_of::<Arc<Pod>>() + size_of::<Pod>();
        assert!(size <= 700, "a pod takes {size} bytes before its texts and lists");
        let (condition, container) = (size_of::<PodCondition>(), size_of::<ContainerStatus>());
        assert!(condition <= 32 && container <= 64, "{condition} {container}");
    }
}
