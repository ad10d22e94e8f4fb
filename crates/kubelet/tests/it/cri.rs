//! Real containers by containerd, where `CAPSTAN_CONTAINERD` names its socket and `CAPSTAN_IMAGE` an image that it has.

use std::{path::Path, sync::Arc, time::Duration};

use capstan_clock::{Ids as _, OsIds, RealClock};
use capstan_kubelet::runtime::{ContainerConfig, ImageRequest, Runtime as _, SandboxConfig, cri::Cri};

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
