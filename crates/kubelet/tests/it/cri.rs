//! Real containers by containerd, where `CAPSTAN_CONTAINERD` names its socket and `CAPSTAN_IMAGE` an image that it has.

use std::{path::Path, sync::Arc, time::Duration};

use capstan_api::options::DeleteOptions;
use capstan_clock::{Ids as _, OsIds, RealClock};
use capstan_kubelet::runtime::{ContainerConfig, ImageRequest, Runtime as _, SandboxConfig, cri::Cri};
use serde_json::json;

use crate::{
    server::{Reach, collect},
    world::{World, ready, sh},
};

#[tokio::test]
async fn a_container_of_an_image() {
    let (Ok(socket), Ok(image)) = (std::env::var("CAPSTAN_CONTAINERD"), std::env::var("CAPSTAN_IMAGE")) else {
        eprintln!("skipped: CAPSTAN_CONTAINERD and CAPSTAN_IMAGE are not set");
        return;
    };
    let runtime = Cri::connect(Path::new(&socket), Arc::new(RealClock::new())).await.unwrap();
    runtime.ready().await.unwrap();
    let dir = std::env::temp_dir().join(format!("capstan-cri-{}", OsIds.suffix(8)));
    let request = ImageRequest { image: image.clone(), ..ImageRequest::default() };
    let image_ref = runtime.image_status(&request).await.unwrap().expect("the image is there");
    let pod = SandboxConfig {
        namespace: "default".into(),
        name: "p".into(),
        uid: OsIds.uid(),
        hostname: "p".into(),
        log_directory: dir.join("logs"),
        host_network: true,
        ..SandboxConfig::default()
    };
    let sandbox = runtime.run_sandbox(&pod).await.unwrap();
    let script = "echo hello from an image; trap 'exit 3' TERM; while :; do sleep 0.1; done";
    let config = ContainerConfig {
        name: "c".into(),
        image,
        image_ref,
        command: ["sh", "-c", script].map(str::to_owned).to_vec(),
        log_path: "c/0.log".into(),
        labels: [("io.kubernetes.pod.uid".to_owned(), pod.uid.clone())].into(),
        ..ContainerConfig::default()
    };
    let id = runtime.create_container(&sandbox.id, &pod, &config).await.unwrap();
    runtime.start_container(&id).await.unwrap();
    let command = ["cat", "/proc/1/comm"].map(str::to_owned);
    let (exit, output) = runtime.exec_sync(&id, &command, Duration::from_secs(10)).await.unwrap();
    assert_eq!((exit.code, String::from_utf8_lossy(&output).trim()), (0, "sh"));
    assert!(runtime.containers().await.unwrap().iter().any(|container| container.id == id && container.running));
    runtime.stop_container(&id, Duration::from_secs(10)).await.unwrap();
    assert_eq!(runtime.wait(&id).await.unwrap().code, 3);
    let log = std::fs::read_to_string(dir.join("logs/c/0.log")).unwrap();
    assert!(log.contains("stdout F hello from an image"), "{log}");
    runtime.stop_sandbox(&sandbox.id).await.unwrap();
    let _ = std::fs::remove_dir_all(dir);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_pod_of_an_image() {
    let (Ok(socket), Ok(image)) = (std::env::var("CAPSTAN_CONTAINERD"), std::env::var("CAPSTAN_IMAGE")) else {
        eprintln!("skipped: CAPSTAN_CONTAINERD and CAPSTAN_IMAGE are not set");
        return;
    };
    let runtime = Cri::connect(Path::new(&socket), Arc::new(RealClock::new())).await.unwrap();
    let dir = std::env::temp_dir().join(format!("capstan-cri-{}", OsIds.suffix(8)));
    std::fs::create_dir_all(dir.join("manifests")).unwrap();
    let world = World::with(dir, Arc::new(runtime)).await;
    let script = "test -s /var/run/secrets/kubernetes.io/serviceaccount/token && echo token; \
                  trap 'exit 1' TERM; while test ! -e /tmp/die; do sleep 0.1; done; exit 5";
    let container = json!({"name": "c", "image": image, "imagePullPolicy": "Never", "command": sh(script),
        "readinessProbe": {"exec": {"command": ["true"]}, "periodSeconds": 1}});
    world.create("p", json!({"hostNetwork": true, "containers": [container]})).await;
    world.until("p", ready).await;
    let reach = Reach::new(&world).await;
    let path = "/exec/default/p/c?command=sh&command=-c&command=echo+here%3B+touch+%2Ftmp%2Fdie&output=1&error=1";
    let mut socket = reach.websocket(path, "v4.channel.k8s.io").await;
    let [_, out, _, status] = collect(&mut socket).await;
    assert_eq!(out, "here\n");
    assert!(status.contains("Success"), "{status}");
    let pod = world.until("p", |pod| {
        ready(pod) && pod.status.as_ref().unwrap().container_statuses.as_ref().unwrap()[0].restart_count == 1
    });
    let pod = pod.await;
    let container = &pod.status.as_ref().unwrap().container_statuses.as_ref().unwrap()[0];
    assert_eq!(container.last_state.as_ref().unwrap().terminated.as_ref().unwrap().exit_code, 5);
    assert!(container.container_id.as_ref().unwrap().starts_with("containerd://"));
    assert_eq!(world.log("p", "c", 0), "token\n");
    world.pods().delete("p", &DeleteOptions::default()).await.unwrap();
    world.until_gone("p").await;
    world.end().await;
}
