//! Claims and volumes: binding, provisioning, protection, expansion, ephemeral volumes.

use k8s_openapi::api::{
    core::v1::{Node, PersistentVolume, PersistentVolumeClaim, Pod},
    storage::v1::{CSIDriver, StorageClass, VolumeAttachment},
};
use serde_json::{Value, json};

use crate::harness::Cluster;

const BINDER: &[&str] = &["persistentvolume-binder-controller"];
const ALL: &[&str] = &[
    "persistentvolume-binder-controller",
    "persistentvolume-protection-controller",
    "persistentvolumeclaim-protection-controller",
    "persistentvolume-expander-controller",
    "ephemeral-volume-controller",
];

async fn class(cluster: &Cluster, name: &str, provisioner: &str, mode: &str, default: bool) {
    let _: StorageClass = cluster
        .create(json!({
            "metadata": {"name": name, "annotations":
                {"storageclass.kubernetes.io/is-default-class": default.to_string()}},
            "provisioner": provisioner, "volumeBindingMode": mode, "reclaimPolicy": "Delete",
            "allowVolumeExpansion": true,
        }))
        .await;
}

async fn volume(cluster: &Cluster, name: &str, size: &str, policy: &str, extra: Value) {
    let mut spec = json!({"capacity": {"storage": size}, "accessModes": ["ReadWriteOnce"],
        "hostPath": {"path": format!("/data/{name}")}, "persistentVolumeReclaimPolicy": policy});
    for (key, value) in extra.as_object().unwrap() {
        spec[key] = value.clone();
    }
    let _: PersistentVolume = cluster.create(json!({"metadata": {"name": name}, "spec": spec})).await;
}

async fn claim(cluster: &Cluster, name: &str, size: &str, extra: Value) -> PersistentVolumeClaim {
    let mut spec = json!({"accessModes": ["ReadWriteOnce"], "resources": {"requests": {"storage": size}}});
    for (key, value) in extra.as_object().unwrap() {
        spec[key] = value.clone();
    }
    cluster.create(json!({"metadata": {"name": name}, "spec": spec})).await
}

async fn get_claim(cluster: &Cluster, name: &str) -> Value {
    serde_json::to_value(cluster.get::<PersistentVolumeClaim>("default", name).await).unwrap()
}

async fn get_volume(cluster: &Cluster, name: &str) -> Value {
    serde_json::to_value(cluster.get::<PersistentVolume>("", name).await).unwrap()
}

async fn until_claim(cluster: &Cluster, name: &str, phase: &str) -> Value {
    cluster
        .until(&format!("{name} is {phase}"), || async {
            let claim = get_claim(cluster, name).await;
            (claim["status"]["phase"] == phase).then_some(claim)
        })
        .await
}

async fn until_volume(cluster: &Cluster, name: &str, phase: &str) -> Value {
    cluster
        .until(&format!("{name} is {phase}"), || async {
            let volume = get_volume(cluster, name).await;
            (volume["status"]["phase"] == phase).then_some(volume)
        })
        .await
}

#[tokio::test]
async fn a_claim_gets_the_smallest_volume_that_will_do() {
    let cluster = Cluster::start().await;
    let running = cluster.run(BINDER);
    volume(&cluster, "small", "1Gi", "Retain", json!({})).await;
    volume(&cluster, "large", "50Gi", "Retain", json!({})).await;
    volume(&cluster, "fits", "10Gi", "Retain", json!({})).await;
    for name in ["small", "large", "fits"] {
        until_volume(&cluster, name, "Available").await;
    }
    claim(&cluster, "c", "5Gi", json!({"storageClassName": ""})).await;
    let bound = until_claim(&cluster, "c", "Bound").await;
    assert_eq!(bound["spec"]["volumeName"], "fits");
    assert_eq!(bound["status"]["capacity"], json!({"storage": "10Gi"}));
    assert_eq!(bound["status"]["accessModes"], json!(["ReadWriteOnce"]));
    let annotations = json!({"pv.kubernetes.io/bind-completed": "yes", "pv.kubernetes.io/bound-by-controller": "yes"});
    assert_eq!(bound["metadata"]["annotations"], annotations);
    let volume_ = until_volume(&cluster, "fits", "Bound").await;
    assert_eq!(volume_["spec"]["claimRef"]["uid"], bound["metadata"]["uid"]);
    assert_eq!(volume_["metadata"]["annotations"], json!({"pv.kubernetes.io/bound-by-controller": "yes"}));

    // None is left: it says so, and takes the next that comes.
    claim(&cluster, "d", "60Gi", json!({"storageClassName": ""})).await;
    cluster
        .event(
            "default",
            "Normal FailedBinding no persistent volumes available for this claim and no storage \
                              class is set",
        )
        .await;
    assert_eq!(until_claim(&cluster, "d", "Pending").await["spec"]["volumeName"], Value::Null);
    volume(&cluster, "huge", "70Gi", "Retain", json!({})).await;
    assert_eq!(until_claim(&cluster, "d", "Bound").await["spec"]["volumeName"], "huge");

    // A volume whose claim is gone is kept, or cannot be deleted.
    cluster.merge::<PersistentVolumeClaim>("default", "c", json!({"metadata": {"finalizers": null}})).await;
    cluster.delete::<PersistentVolumeClaim>("default", "c").await;
    until_volume(&cluster, "fits", "Released").await;
    let _: PersistentVolume =
        cluster.merge("", "huge", json!({"spec": {"persistentVolumeReclaimPolicy": "Delete"}})).await;
    cluster.merge::<PersistentVolumeClaim>("default", "d", json!({"metadata": {"finalizers": null}})).await;
    cluster.delete::<PersistentVolumeClaim>("default", "d").await;
    let failed = until_volume(&cluster, "huge", "Failed").await;
    let message = "host_path deleter only supports /tmp/.+ but received provided /data/huge";
    assert_eq!(failed["status"]["message"], message);
    cluster.event("default", &format!("Warning VolumeFailedDelete {message}")).await;
    // Unless it was for a while only.
    let passing = json!({"hostPath": {"path": "/tmp/passing"}});
    volume(&cluster, "passing", "70Gi", "Delete", passing).await;
    claim(&cluster, "e", "60Gi", json!({"storageClassName": ""})).await;
    until_claim(&cluster, "e", "Bound").await;
    cluster.merge::<PersistentVolumeClaim>("default", "e", json!({"metadata": {"finalizers": null}})).await;
    cluster.delete::<PersistentVolumeClaim>("default", "e").await;
    let goes = |volume: Value| volume.is_null() || volume["metadata"]["deletionTimestamp"].is_string();
    cluster.until("it goes", || async { goes(get_volume(&cluster, "passing").await).then_some(()) }).await;

    cluster.pass(&running, 5).await;
    let before = running.requests();
    cluster.pass(&running, 60).await;
    assert!(running.requests() - before <= 12, "{} requests in a minute of nothing", running.requests() - before);
    running.kill();
}

#[tokio::test]
async fn asking_for_a_volume_by_name() {
    let cluster = Cluster::start().await;
    let running = cluster.run(BINDER);
    claim(&cluster, "c", "5Gi", json!({"storageClassName": "", "volumeName": "v"})).await;
    until_claim(&cluster, "c", "Pending").await;
    volume(&cluster, "v", "1Gi", "Retain", json!({})).await;
    cluster
        .event("default", "Warning VolumeMismatch Cannot bind to requested volume \"v\": requested PV is too small")
        .await;
    cluster.delete::<PersistentVolume>("", "v").await;
    cluster.merge::<PersistentVolume>("", "v", json!({"metadata": {"finalizers": null}})).await;
    volume(&cluster, "v", "6Gi", "Retain", json!({})).await;
    let bound = until_claim(&cluster, "c", "Bound").await;
    assert_eq!(bound["metadata"]["annotations"], json!({"pv.kubernetes.io/bind-completed": "yes"}), "the user chose");
    claim(&cluster, "late", "5Gi", json!({"storageClassName": "", "volumeName": "v"})).await;
    cluster.event("default", "Warning FailedBinding volume \"v\" already bound to a different claim.").await;

    // The volume is taken away.
    cluster.merge::<PersistentVolume>("", "v", json!({"metadata": {"finalizers": null}})).await;
    cluster.delete::<PersistentVolume>("", "v").await;
    until_claim(&cluster, "c", "Lost").await;
    cluster
        .event("default", "Warning ClaimLost Bound claim has lost its PersistentVolume. Data on the volume is lost!")
        .await;
    running.kill();
}

async fn node(cluster: &Cluster, name: &str) {
    let _: Node =
        cluster.create(json!({"metadata": {"name": name, "labels": {"kubernetes.io/hostname": "host-1"}}})).await;
}

fn pod(name: &str, volume: &Value) -> Value {
    json!({"metadata": {"name": name}, "spec": {"containers": [{"name": "c", "image": "i"}], "volumes": [volume]}})
}

#[tokio::test]
async fn the_default_class_makes_directories_of_nodes() {
    let cluster = Cluster::start().await;
    let running = cluster.run(ALL);
    node(&cluster, "n1").await;
    // The claim leaves its class open and is older than the default class.
    claim(&cluster, "c", "5Gi", json!({})).await;
    until_claim(&cluster, "c", "Pending").await;
    class(&cluster, "local", "capstan.dev/local-path", "WaitForFirstConsumer", true).await;
    cluster
        .event("default", "Normal WaitForFirstConsumer waiting for first consumer to be created before binding")
        .await;
    let source = json!({"name": "v", "persistentVolumeClaim": {"claimName": "c"}});
    let _: Pod = cluster.create(pod("p", &source)).await;
    cluster.event("default", "Normal WaitForPodScheduled waiting for pod p to be scheduled").await;
    assert_eq!(cluster.list::<PersistentVolume>("").await.len(), 0);

    // What the scheduler does.
    let selected = json!({"metadata": {"annotations": {"volume.kubernetes.io/selected-node": "n1"}}});
    cluster.merge::<PersistentVolumeClaim>("default", "c", selected).await;
    let bound = until_claim(&cluster, "c", "Bound").await;
    assert_eq!(bound["spec"]["storageClassName"], "local");
    let name = format!("pvc-{}", bound["metadata"]["uid"].as_str().unwrap());
    cluster
        .event(
            "default",
            &format!(
                "Normal ProvisioningSucceeded Successfully provisioned volume {name} using \
                                       capstan.dev/local-path"
            ),
        )
        .await;
    let volume = until_volume(&cluster, &name, "Bound").await;
    assert_eq!(
        volume["spec"]["hostPath"],
        json!({"path": format!("/var/lib/capstan/local-path/{name}_default_c"), "type": "DirectoryOrCreate"})
    );
    assert_eq!(
        volume["spec"]["nodeAffinity"]["required"]["nodeSelectorTerms"][0]["matchExpressions"][0],
        json!({"key": "kubernetes.io/hostname", "operator": "In", "values": ["host-1"]})
    );
    assert_eq!(volume["spec"]["persistentVolumeReclaimPolicy"], "Delete");
    assert_eq!(volume["metadata"]["annotations"]["pv.kubernetes.io/provisioned-by"], "capstan.dev/local-path");

    // More room.
    cluster
        .merge::<PersistentVolumeClaim>(
            "default",
            "c",
            json!({"spec": {"resources": {"requests": {"storage": "8Gi"}}}}),
        )
        .await;
    cluster
        .until("expanded", || async {
            (get_claim(&cluster, "c").await["status"]["capacity"]["storage"] == "8Gi").then_some(())
        })
        .await;
    assert_eq!(get_volume(&cluster, &name).await["spec"]["capacity"]["storage"], "8Gi");

    // The claim stays while the pod is on its node; then all of it goes.
    let binding = json!({"apiVersion": "v1", "kind": "Binding", "metadata": {"name": "p"},
                         "target": {"kind": "Node", "name": "n1"}});
    cluster.api::<Pod>("default").create_subresource("p", "binding", &binding).await.unwrap();
    cluster.delete::<PersistentVolumeClaim>("default", "c").await;
    cluster.pass(&running, 10).await;
    assert_ne!(get_claim(&cluster, "c").await, Value::Null, "protected");
    cluster.delete_now::<Pod>("default", "p").await;
    cluster.until("claim gone", || async { get_claim(&cluster, "c").await.is_null().then_some(()) }).await;
    cluster.until("volume gone", || async { get_volume(&cluster, &name).await.is_null().then_some(()) }).await;
    running.kill();
}

#[tokio::test]
async fn what_cannot_be_provisioned_is_said() {
    let cluster = Cluster::start().await;
    let running = cluster.run(ALL);
    class(&cluster, "other", "example.com/disk", "Immediate", false).await;
    class(&cluster, "now", "capstan.dev/local-path", "Immediate", false).await;
    class(&cluster, "tree", "kubernetes.io/nothing", "Immediate", false).await;
    claim(&cluster, "a", "5Gi", json!({"storageClassName": "missing"})).await;
    cluster.event("default", "Warning ProvisioningFailed storageclass.storage.k8s.io \"missing\" not found").await;
    claim(&cluster, "b", "5Gi", json!({"storageClassName": "other"})).await;
    cluster
        .event(
            "default",
            "Normal ExternalProvisioning Waiting for a volume to be created either by the external \
        provisioner 'example.com/disk' or manually by the system administrator. If volume creation is delayed, please \
        verify that the provisioner is running and correctly registered.",
        )
        .await;
    let b = get_claim(&cluster, "b").await;
    assert_eq!(b["metadata"]["annotations"]["volume.kubernetes.io/storage-provisioner"], "example.com/disk");
    assert_eq!(b["metadata"]["annotations"]["volume.beta.kubernetes.io/storage-provisioner"], "example.com/disk");
    claim(&cluster, "c", "5Gi", json!({"storageClassName": "now"})).await;
    cluster
        .event(
            "default",
            "Warning ProvisioningFailed Failed to provision volume with StorageClass \"now\": no node \
                              was specified",
        )
        .await;
    claim(&cluster, "d", "5Gi", json!({"storageClassName": "tree"})).await;
    cluster.event("default", "Warning ProvisioningFailed no volume plugin matched name: kubernetes.io/nothing").await;
    cluster.pass(&running, 5).await;
    let before = running.requests();
    cluster.pass(&running, 60).await;
    assert!(running.requests() - before <= 20, "{} requests in a minute of nothing", running.requests() - before);
    running.kill();
}

#[tokio::test]
async fn ephemeral_volumes_get_claims() {
    let cluster = Cluster::start().await;
    let running = cluster.run(ALL);
    let template = json!({"metadata": {"labels": {"a": "b"}}, "spec": {"accessModes": ["ReadWriteOnce"],
        "storageClassName": "", "resources": {"requests": {"storage": "1Gi"}}}});
    let source = json!({"name": "scratch", "ephemeral": {"volumeClaimTemplate": template}});
    let p: Pod = cluster.create(pod("p", &source)).await;
    let made = until_claim(&cluster, "p-scratch", "Pending").await;
    assert_eq!(made["metadata"]["labels"], json!({"a": "b"}));
    assert_eq!(made["metadata"]["ownerReferences"][0]["uid"], json!(p.metadata.uid));
    assert_eq!(made["metadata"]["ownerReferences"][0]["controller"], true);
    claim(&cluster, "q-scratch", "1Gi", json!({"storageClassName": ""})).await;
    cluster.settle(&running).await;
    let _: Pod = cluster.create(pod("q", &source)).await;
    cluster
        .event(
            "default",
            "Warning FailedBinding ephemeral volume scratch: PVC default/q-scratch was not created for \
                              pod default/q (pod is not owner)",
        )
        .await;
    running.kill();
}

/// The same end whatever write is the last of a manager.
#[tokio::test]
async fn killed_between_any_two_writes() {
    for last_write in 0..12 {
        let cluster = Cluster::start().await;
        class(&cluster, "local", "capstan.dev/local-path", "WaitForFirstConsumer", true).await;
        node(&cluster, "n1").await;
        let running = cluster.run_until(ALL, last_write);
        volume(&cluster, "v", "9Gi", "Retain", json!({})).await;
        claim(&cluster, "fixed", "5Gi", json!({"storageClassName": ""})).await;
        let made = claim(&cluster, "made", "5Gi", json!({})).await;
        let selected = json!({"metadata": {"annotations": {"volume.kubernetes.io/selected-node": "n1"}}});
        cluster.merge::<PersistentVolumeClaim>("default", "made", selected).await;
        cluster.pass(&running, 2).await;
        running.kill();
        let running = cluster.run(ALL);
        assert_eq!(until_claim(&cluster, "fixed", "Bound").await["spec"]["volumeName"], "v", "after {last_write}");
        let name = format!("pvc-{}", made.metadata.uid.unwrap());
        assert_eq!(until_claim(&cluster, "made", "Bound").await["spec"]["volumeName"], name.as_str());
        until_volume(&cluster, &name, "Bound").await;
        until_volume(&cluster, "v", "Bound").await;
        assert_eq!(cluster.list::<PersistentVolume>("").await.len(), 2);
        cluster.delete::<PersistentVolumeClaim>("default", "made").await;
        cluster.until("volume gone", || async { get_volume(&cluster, &name).await.is_null().then_some(()) }).await;
        running.kill();
    }
}

#[tokio::test]
async fn drivers_are_told_where_volumes_have_to_be() {
    let cluster = Cluster::start().await;
    let names = ["persistentvolume-attach-detach-controller", "persistentvolume-binder-controller"];
    let running = cluster.run(&names);
    for name in ["n1", "n2"] {
        let _: Node = cluster
            .create(json!({"metadata": {"name": name, "annotations":
                {"volumes.kubernetes.io/controller-managed-attach-detach": "true"}},
                "status": {"conditions": [{"type": "Ready", "status": "True"}]}}))
            .await;
    }
    let csi = |driver: &str| json!({"hostPath": null, "csi": {"driver": driver, "volumeHandle": "h"}});
    let _: CSIDriver = cluster.create(json!({"metadata": {"name": "easy"}, "spec": {"attachRequired": false}})).await;
    volume(&cluster, "hard", "5Gi", "Retain", csi("disk")).await;
    volume(&cluster, "easy", "5Gi", "Retain", csi("easy")).await;
    for name in ["hard", "easy"] {
        claim(&cluster, name, "5Gi", json!({"storageClassName": "", "volumeName": name})).await;
        until_claim(&cluster, name, "Bound").await;
        let mut pod = pod(name, &json!({"name": "v", "persistentVolumeClaim": {"claimName": name}}));
        pod["spec"]["nodeName"] = json!("n1");
        let _: Pod = cluster.create(pod).await;
    }
    let made = cluster
        .until("an attachment", || async { cluster.list::<VolumeAttachment>("").await.into_iter().next() })
        .await;
    assert_eq!(made.spec.attacher, "disk");
    assert_eq!(made.spec.node_name, "n1");
    assert_eq!(made.spec.source.persistent_volume_name.as_deref(), Some("hard"));
    cluster.set_status(&made, json!({"attached": true})).await;
    cluster.event("default", "Normal SuccessfulAttachVolume AttachVolume.Attach succeeded for volume \"hard\"").await;
    let node: Node = cluster.get("", "n1").await.unwrap();
    assert_eq!(
        serde_json::to_value(node.status.as_ref().unwrap().volumes_attached.as_ref()).unwrap(),
        json!([{"name": "kubernetes.io/csi/disk^h", "devicePath": ""}])
    );

    // It can be on one node only, and leaves this one when that has let go of it.
    let mut second = pod("second", &json!({"name": "v", "persistentVolumeClaim": {"claimName": "hard"}}));
    second["spec"]["nodeName"] = json!("n2");
    let _: Pod = cluster.create(second).await;
    cluster
        .event(
            "default",
            "Warning FailedAttachVolume Multi-Attach error for volume \"hard\" Volume is already used \
                              by pod(s) hard",
        )
        .await;
    cluster.set_status(&node, json!({"volumesInUse": ["kubernetes.io/csi/disk^h"]})).await;
    cluster.delete_now::<Pod>("default", "hard").await;
    cluster.pass(&running, 30).await;
    assert_eq!(cluster.list::<VolumeAttachment>("").await[0].spec.node_name, "n1");
    cluster.set_status(&node, json!({"volumesInUse": null})).await;
    cluster
        .until("it moves", || async {
            let all = cluster.list::<VolumeAttachment>("").await;
            (all.len() == 1 && all[0].spec.node_name == "n2").then_some(())
        })
        .await;
    cluster
        .until("the node knows", || async {
            let node: Node = cluster.get("", "n1").await?;
            node.status?.volumes_attached.unwrap_or_default().is_empty().then_some(())
        })
        .await;
    running.kill();
}
