//! Rough weather: what can't be mounted, ports that are taken, no namespaces, writes that are refused; and resources
//! that change while a pod runs.

use std::{
    os::unix::fs::PermissionsExt as _,
    sync::{
        Arc,
        atomic::{AtomicBool, AtomicU32, Ordering},
    },
};

use bytes::Bytes;
use capstan_api::options::{DeleteOptions, PatchOptions};
use capstan_client::{Api, Body, BoxFuture, Client, Error, Patch, Transport};
use capstan_clock::{OsIds, RealClock};
use capstan_kubelet::{
    node::{Node, machine::Signals},
    runtime::process::Process,
};
use capstan_runtime::Stopper;
use http::{Method, Request, Response};
use http_body_util::Full;
use k8s_openapi::api::core::v1::{Node as NodeObject, Pod};
use serde_json::{Value, json};

use crate::world::{World, directory, phase, processes, ready, sh, shim, waiting};

fn sleeper(extra: Value) -> Value {
    let mut spec = json!({"automountServiceAccountToken": false, "terminationGracePeriodSeconds": 0,
        "containers": [{"name": "c", "image": "busybox", "command": ["sleep", "1000"]}]});
    for (key, value) in extra.as_object().unwrap() {
        if key == "volumes" || key.starts_with("dns") {
            spec[key] = value.clone();
        } else {
            spec["containers"][0][key] = value.clone();
        }
    }
    spec
}

#[tokio::test(flavor = "multi_thread")]
async fn what_cannot_be_mounted_is_said() {
    let Some(world) = World::new("mounts").await else { return };
    let file = world.dir.join("file");
    std::fs::write(&file, "").unwrap();
    let mounts = json!([{"name": "v", "mountPath": "/v"}]);
    let cases = [
        (
            "kind",
            json!({"hostPath": {"path": file, "type": "Directory"}}),
            format!(
                "MountVolume.SetUp failed for volume \"v\" : hostPath type check failed: {} is not a directory",
                file.display()
            ),
        ),
        (
            "claim",
            json!({"persistentVolumeClaim": {"claimName": "none"}}),
            "Unable to attach or mount volumes: unmounted volumes=[v], unattached volumes=[], failed to process \
             volumes=[v]: error processing PVC default/none: failed to fetch PVC from API server: \
             persistentvolumeclaims \"none\" not found"
                .to_owned(),
        ),
        (
            "nfs",
            json!({"nfs": {"server": "192.0.2.1", "path": "/"}}),
            "MountVolume.SetUp failed for volume \"v\" : no volume plugin matched".to_owned(),
        ),
    ];
    for (name, mut volume, expected) in cases {
        volume["name"] = json!("v");
        world.create(name, sleeper(json!({"volumes": [volume], "volumeMounts": mounts}))).await;
        assert_eq!(world.event(name, "FailedMount").await, expected);
        let pod = world.until(name, |pod| waiting(pod).0 == "ContainerCreating").await;
        assert_eq!(phase(&pod), "Pending");
    }
    world.end().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_port_that_is_taken() {
    let Some(world) = World::new("ports").await else { return };
    let ports = json!([{"containerPort": 8080, "hostPort": 18080}]);
    world.create("first", sleeper(json!({"ports": ports}))).await;
    world.until("first", ready).await;
    world.create("second", sleeper(json!({"ports": ports}))).await;
    let pod = world.until("second", |pod| phase(pod) == "Failed").await;
    let status = pod.status.unwrap();
    assert_eq!(status.reason.as_deref(), Some("NodePorts"));
    let words = "Predicate NodePorts failed: node(s) didn't have free ports for the requested pod ports";
    assert_eq!(status.message.unwrap(), format!("Pod was rejected: {words}"));
    assert_eq!(world.event("second", "NodePorts").await, words);
    world.end().await;
}

/// The node is asked for a pod before it can have heard of the label that the pod wants.
#[tokio::test(flavor = "multi_thread")]
async fn a_node_that_was_just_labelled_takes_the_pod() {
    let Some(world) = World::new("labelled").await else { return };
    let mut spec = sleeper(json!({}));
    world.create("before", spec.clone()).await;
    world.until("before", ready).await;
    spec["nodeSelector"] = json!({"disk": "ssd"});
    world.create("unlabelled", spec.clone()).await;
    let refused = world.until("unlabelled", |pod| phase(pod) == "Failed").await;
    assert_eq!(refused.status.unwrap().reason.as_deref(), Some("NodeAffinity"));
    let label = Patch::Merge(json!({"metadata": {"labels": {"disk": "ssd"}}}));
    Api::<NodeObject>::all(&world.client).patch("node-1", &label).await.unwrap();
    world.create("labelled", spec).await;
    let pod = world.until("labelled", |pod| ready(pod) || phase(pod) == "Failed").await;
    assert!(ready(&pod), "{:?}", pod.status);
    world.end().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn files_of_an_image_need_an_engine() {
    let Some(world) = World::new("image-volume").await else { return };
    let spec = sleeper(json!({"volumes": [{"name": "v", "image": {"reference": "files:v1"}}],
        "volumeMounts": [{"name": "v", "mountPath": "/v", "subPath": "a"}]}));
    world.create("files", spec).await;
    let pod = world.until("files", |pod| waiting(pod).0 == "CreateContainerError").await;
    assert_eq!(waiting(&pod).1, "the process runtime has no images: there are no files of \"files:v1\"");
    world.end().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn who_fills_the_disk_goes() {
    let Some(world) = World::new("fills").await else { return };
    let limits = |size: &str| json!({"limits": {"ephemeral-storage": size}});
    let writes = |file: &str| sh(&format!("head -c 1000000 /dev/zero > {file}; exec sleep 1000"));
    let volume = json!({"volumes": [{"name": "v", "emptyDir": {"sizeLimit": "100k"}}], "command": writes("/v/file"),
        "volumeMounts": [{"name": "v", "mountPath": "/v"}]});
    let volume = ("volume", volume, "Usage of EmptyDir volume \"v\" exceeds the limit \"100k\". ");
    let own = json!({"resources": limits("500Ki"), "command": writes("/var/file")});
    let total = "Pod ephemeral local storage usage exceeds the total limit of containers 500Ki. ";
    world.create("modest", sleeper(json!({"resources": limits("100Mi"), "command": writes("/var/file")}))).await;
    for (name, extra, message) in [volume, ("own", own, total)] {
        world.create(name, sleeper(extra)).await;
        let pod = world.until(name, |pod| phase(pod) == "Failed").await;
        let status = pod.status.unwrap();
        assert_eq!((status.reason.as_deref(), status.message.as_deref()), (Some("Evicted"), Some(message)));
    }
    let modest = world.pods().get("modest").await.unwrap();
    assert_eq!(phase(&modest), "Running");
    world.end().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn names_are_resolved_as_the_pod_says() {
    let Some(world) = World::new("dns").await else { return };
    let mut spec = sleeper(json!({"command": ["cat", "/etc/resolv.conf"], "dnsPolicy": "None", "dnsConfig":
        {"nameservers": ["192.0.2.53"], "searches": ["here.example"], "options": [{"name": "ndots", "value": "3"}]}}));
    spec["restartPolicy"] = json!("Never");
    world.create("p", spec).await;
    world.until("p", |pod| phase(pod) == "Succeeded").await;
    assert_eq!(world.log("p", "c", 0), "search here.example\nnameserver 192.0.2.53\noptions ndots:3\n");
    world.end().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn no_permission_for_namespaces() {
    let dir = directory("denied");
    // A machine that allows none: the shim's question is always answered with no.
    let denied = dir.join("shim");
    let real = shim();
    let script = format!("#!/bin/sh\n[ \"$2\" = try ] && exit 1\nexec {} \"$@\"\n", real.display());
    std::fs::write(&denied, script).unwrap();
    std::fs::set_permissions(&denied, std::fs::Permissions::from_mode(0o755)).unwrap();
    let ips = vec!["127.0.0.1".to_owned()];
    let runtime = Process::new(&dir.join("run"), &denied, ips, Arc::new(RealClock::new()), Arc::new(OsIds)).await;
    let world = World::with(dir, Arc::new(runtime.unwrap())).await;
    world.create("p", sleeper(json!({}))).await;
    let words = "this machine allows no mount namespaces, so that no volume can be at its place";
    let pod = world.until("p", |pod| waiting(pod).0 == "CreateContainerError").await;
    assert_eq!(waiting(&pod).1, words);
    assert_eq!(world.event("p", "Failed").await, format!("Error: {words}"));
    let node = Api::<NodeObject>::all(&world.client).get("node-1").await.unwrap();
    let said = node.metadata.annotations.unwrap()["capstan.dev/runtime-limitations"].clone();
    assert!(said.contains("no mount namespaces"), "{said}");
    world.end().await;
}

/// A server that finds statuses invalid for as long as it is told to.
struct Refusing {
    client: Client,
    refuses: Arc<AtomicBool>,
    refused: Arc<AtomicU32>,
}

impl Transport for Refusing {
    fn send(&self, request: Request<Bytes>) -> BoxFuture<'static, Result<Response<Body>, Error>> {
        let is_status = request.method() == Method::PATCH && request.uri().path().ends_with("/p/status");
        if is_status && self.refuses.load(Ordering::SeqCst) {
            self.refused.fetch_add(1, Ordering::SeqCst);
            let status = json!({"kind": "Status", "apiVersion": "v1", "metadata": {}, "status": "Failure", "code": 422,
                                "reason": "Invalid", "message": "Pod \"p\" is invalid: status: it is not liked"});
            let mut response = Response::new(Body::new(Full::new(Bytes::from(status.to_string()))));
            *response.status_mut() = http::StatusCode::UNPROCESSABLE_ENTITY;
            return Box::pin(async move { Ok(response) });
        }
        let client = self.client.clone();
        Box::pin(async move { client.send(request).await })
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_status_that_is_refused_is_said_and_written_later() {
    let dir = directory("refused");
    let Some(runtime) = processes(&dir).await else { return };
    let (refuses, refused) = (Arc::new(AtomicBool::new(true)), Arc::new(AtomicU32::new(0)));
    let world = World::through(dir, runtime, |client| {
        Client::new(Refusing { client, refuses: refuses.clone(), refused: refused.clone() })
    })
    .await;
    world.create("p", sleeper(json!({}))).await;
    let message = world.event("p", "FailedUpdateStatus").await;
    assert!(message.contains("is invalid: status: it is not liked"), "{message}");
    // The other pods of the node do not wait for it.
    world.create("fine", sleeper(json!({}))).await;
    world.until("fine", ready).await;
    refuses.store(false, Ordering::SeqCst);
    world.until("p", ready).await;
    assert!(refused.load(Ordering::SeqCst) > 0);
    world.end().await;
}

fn condition(pod: &Pod, kind: &str) -> Option<(String, String)> {
    let conditions = pod.status.iter().flat_map(|s| s.conditions.iter().flatten());
    let found = conditions.into_iter().find(|c| c.type_ == kind && c.status == "True")?;
    Some((found.reason.clone().unwrap_or_default(), found.message.clone().unwrap_or_default()))
}

fn has(pod: &Pod, memory: &str) -> bool {
    let status = &pod.status.as_ref().unwrap().container_statuses.as_ref().unwrap()[0];
    let limits = status.resources.as_ref().and_then(|resources| resources.limits.as_ref());
    limits.and_then(|limits| limits.get("memory")).is_some_and(|quantity| quantity.0 == memory)
}

#[tokio::test(flavor = "multi_thread")]
async fn resources_change_while_it_runs() {
    let Some(world) = World::new("resize").await else { return };
    if world.shared.runtime().limitations().iter().any(|text| text.starts_with("no cgroups")) {
        eprintln!("skipped: this machine allows no cgroups");
        return;
    }
    let amounts = |memory: &str, cpu: &str| {
        json!({"requests": {"cpu": cpu, "memory": memory},
                                                   "limits": {"cpu": cpu, "memory": memory}})
    };
    let script = "cat /sys/fs/cgroup/memory$(grep ':memory:' /proc/self/cgroup | cut -d: -f3)/memory.limit_in_bytes \
                  2>/dev/null || cat /sys/fs/cgroup$(grep '^0::' /proc/self/cgroup | cut -d: -f3)/memory.max";
    world.create("p", sleeper(json!({"resources": amounts("64Mi", "100m")}))).await;
    let pod = world.until("p", |pod| ready(pod) && has(pod, "64Mi")).await;
    assert!(pod.status.unwrap().conditions.unwrap().iter().all(|condition| condition.reason.is_none()));
    let resize = |memory: &str, cpu: &str| {
        let patch = json!({"spec": {"containers": [{"name": "c", "resources": amounts(memory, cpu)}]}});
        let pods = world.pods();
        let options = PatchOptions::default();
        async move {
            let patch = Patch::Strategic(patch);
            pods.patch_subresource::<Pod, _>("p", "resize", &patch, &options).await.unwrap()
        }
    };
    resize("96Mi", "200m").await;
    let pod = world.until("p", |pod| has(pod, "96Mi") && condition(pod, "PodResizeInProgress").is_none()).await;
    let status = &pod.status.as_ref().unwrap().container_statuses.as_ref().unwrap()[0];
    assert_eq!(status.restart_count, 0);
    assert!(
        world.event("p", "ResizeStarted").await.starts_with("Pod resize started: {\"containers\":[{\"name\":\"c\"")
    );
    assert!(world.event("p", "ResizeCompleted").await.contains("\"generation\":2"));
    let id = status.container_id.as_deref().unwrap().trim_start_matches("process://").to_owned();
    let command: Vec<String> = serde_json::from_value(sh(script)).unwrap();
    let runtime = world.shared.runtime().clone();
    let seen = runtime.exec_sync(&id, &command, std::time::Duration::from_secs(10)).await.unwrap();
    assert_eq!(String::from_utf8_lossy(&seen.1).trim(), (96 << 20).to_string());

    // What does not fit beside others waits, and what was given before stays.
    let node = Api::<NodeObject>::all(&world.client).get("node-1").await.unwrap();
    let whole = node.status.unwrap().allocatable.unwrap()["memory"].0.clone();
    let most = format!("{}Ki", whole.trim_end_matches("Ki").parse::<u64>().unwrap() / 10 * 6);
    world.create("other", sleeper(json!({"resources": {"requests": {"memory": most}}}))).await;
    world.until("other", ready).await;
    resize(&most, "200m").await;
    let pod = world.until("p", |pod| condition(pod, "PodResizePending").is_some()).await;
    let (reason, message) = condition(&pod, "PodResizePending").unwrap();
    assert_eq!(reason, "Deferred");
    assert!(message.starts_with("Node didn't have enough resource: memory, requested: "), "{message}");
    assert!(has(&pod, "96Mi"));
    assert!(world.event("p", "ResizeDeferred").await.starts_with("Pod resize Deferred: "));
    let force = DeleteOptions { grace_period_seconds: Some(0), ..DeleteOptions::default() };
    world.pods().delete("other", &force).await.unwrap();
    world.until("p", |pod| condition(pod, "PodResizePending").is_none() && has(pod, &most)).await;
    world.end().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_machine_that_runs_out_of_disk_ends_a_pod_and_takes_no_other() {
    let Some(mut world) = World::new("pressure").await else { return };
    world.stopper.stop();
    world.node.take().unwrap().await.unwrap();
    let low = Arc::new(AtomicBool::new(false));
    let signals = {
        let low = low.clone();
        move || Signals {
            disk_available: if low.load(Ordering::SeqCst) { 4 } else { 50 },
            disk_capacity: 100,
            ..Signals::default()
        }
    };
    let runtime = processes(&world.dir).await.unwrap();
    let (clock, ids) = (Arc::new(RealClock::new()), Arc::new(OsIds));
    let thresholds = "nodefs.available<5%".parse().unwrap();
    let node = Node::builder(world.client.clone(), clock, ids).name("node-1").root_dir(&world.dir).runtime(runtime);
    let node = node.signals(Arc::new(signals)).eviction(thresholds).build();
    let (stopper, stop) = Stopper::new();
    world.shared = node.shared();
    world.node = Some(tokio::spawn(node.run(stop)));
    world.stopper = stopper;
    world.create("p", sleeper(json!({}))).await;
    world.until("p", ready).await;
    low.store(true, Ordering::SeqCst);
    let pod = world.until("p", |pod| phase(pod) == "Failed").await;
    assert_eq!(condition(&pod, "DisruptionTarget").unwrap().0, "TerminationByKubelet");
    let status = pod.status.unwrap();
    assert_eq!(status.reason.as_deref(), Some("Evicted"));
    let words = "The node was low on resource: ephemeral-storage. Threshold quantity: 5, available: 4. ";
    assert_eq!(status.message.as_deref(), Some(words));
    assert_eq!(world.event("p", "Evicted").await, words);
    let nodes = Api::<NodeObject>::all(&world.client);
    let pressed = |node: &NodeObject| {
        let conditions = node.status.iter().flat_map(|s| s.conditions.iter().flatten());
        conditions.into_iter().any(|c| c.type_ == "DiskPressure" && c.status == "True")
    };
    while !pressed(&nodes.get("node-1").await.unwrap()) {
        tokio::task::yield_now().await;
    }
    world.create("late", sleeper(json!({}))).await;
    let late = world.until("late", |pod| phase(pod) == "Failed").await.status.unwrap();
    assert_eq!(late.reason.as_deref(), Some("Evicted"));
    assert_eq!(late.message.as_deref(), Some("Pod was rejected: The node had condition: [DiskPressure]. "));
    world.end().await;
}
