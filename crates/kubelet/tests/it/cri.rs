//! Real containers by containerd, where `CAPSTAN_CONTAINERD` names its socket and `CAPSTAN_IMAGE` an image that it has:
//! `interop/containerd` starts one and runs these.

use std::{path::PathBuf, sync::Arc, time::Duration};

use capstan_api::options::DeleteOptions;
use capstan_client::{Api, Patch};
use capstan_clock::{Ids as _, OsIds, RealClock};
use capstan_kubelet::{
    logs::MAX_LOG_SIZE,
    runtime::{ContainerConfig, ImageRequest, Limits, Runtime, SandboxConfig, cri::Cri},
};
use capstan_runtime::Stopper;
use k8s_openapi::api::core::v1::{ConfigMap, Pod};
use serde_json::{Value, json};
use tokio::sync::{Mutex, MutexGuard};

use crate::{
    server::{Reach, collect},
    world::{World, build, directory, ready, sh, waiting},
};

/// A node takes over or ends whatever it finds in its containerd: one test at a time.
static ONE: Mutex<()> = Mutex::const_new(());

struct Engine {
    socket: PathBuf,
    image: String,
    _alone: MutexGuard<'static, ()>,
}

impl Engine {
    async fn find() -> Option<Self> {
        let (Ok(socket), Ok(image)) = (std::env::var("CAPSTAN_CONTAINERD"), std::env::var("CAPSTAN_IMAGE")) else {
            eprintln!("skipped: CAPSTAN_CONTAINERD and CAPSTAN_IMAGE are not set");
            return None;
        };
        Some(Engine { socket: socket.into(), image, _alone: ONE.lock().await })
    }

    async fn connect(&self) -> Arc<dyn Runtime> {
        Arc::new(Cri::connect(&self.socket, Arc::new(RealClock::new())).await.unwrap())
    }

    fn container(&self, script: &str) -> Value {
        json!({"name": "c", "image": self.image, "imagePullPolicy": "Never", "command": sh(script)})
    }
}

fn status(pod: &Pod) -> &k8s_openapi::api::core::v1::ContainerStatus {
    &pod.status.as_ref().unwrap().container_statuses.as_ref().unwrap()[0]
}

fn id(pod: &Pod) -> String {
    status(pod).container_id.as_deref().unwrap().trim_start_matches("containerd://").to_owned()
}

#[tokio::test]
async fn a_container_of_an_image() {
    let Some(engine) = Engine::find().await else { return };
    let (runtime, image) = (engine.connect().await, engine.image.clone());
    runtime.ready().await.unwrap();
    let dir = directory("engine");
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
    let limits = Limits { memory_bytes: 64 << 20, cpu_limit_milli: 200, cpu_request_milli: 100, oom_score_adj: 0 };
    runtime.update_limits(&id, &limits).await.unwrap();
    let images = runtime.images().await.unwrap().unwrap();
    assert!(images.images.iter().any(|there| there.id == config.image_ref), "{images:?}");
    assert!(images.place.is_dir(), "{images:?}");
    runtime.stop_container(&id, Duration::from_secs(10)).await.unwrap();
    assert_eq!(runtime.wait(&id).await.unwrap().code, 3);
    let log = std::fs::read_to_string(dir.join("logs/c/0.log")).unwrap();
    assert!(log.contains("stdout F hello from an image"), "{log}");
    runtime.stop_sandbox(&sandbox.id).await.unwrap();
}

#[tokio::test(flavor = "multi_thread")]
async fn a_pod_of_an_image_is_probed_execed_killed_and_restarted() {
    let Some(engine) = Engine::find().await else { return };
    let world = World::with(directory("cri"), engine.connect().await).await;
    let script = "test -s /var/run/secrets/kubernetes.io/serviceaccount/token && echo token; cat /etc/resolv.conf; \
                  trap 'exit 1' TERM; while test ! -e /tmp/die; do sleep 0.1; done; exit 5";
    let mut container = engine.container(script);
    container["readinessProbe"] = json!({"exec": {"command": ["true"]}, "periodSeconds": 1});
    let dns = json!({"nameservers": ["192.0.2.53"], "searches": ["here.example"]});
    let spec = json!({"hostNetwork": true, "dnsPolicy": "None", "dnsConfig": dns, "containers": [container]});
    world.create("p", spec).await;
    world.until("p", ready).await;
    let reach = Reach::new(&world).await;
    let path = "/exec/default/p/c?command=sh&command=-c&command=echo+here%3B+touch+%2Ftmp%2Fdie&output=1&error=1";
    let mut socket = reach.websocket(path, "v4.channel.k8s.io").await;
    let [_, out, _, said] = collect(&mut socket).await;
    assert_eq!(out, "here\n");
    assert!(said.contains("Success"), "{said}");
    let pod = world.until("p", |pod| ready(pod) && status(pod).restart_count == 1).await;
    assert_eq!(status(&pod).last_state.as_ref().unwrap().terminated.as_ref().unwrap().exit_code, 5);
    assert!(status(&pod).container_id.as_ref().unwrap().starts_with("containerd://"));
    assert_eq!(world.log("p", "c", 0), "token\nsearch here.example\nnameserver 192.0.2.53\n");
    // Killed behind the node's back, it is started again; this time after a back-off.
    world.shared.runtime().stop_container(&id(&pod), Duration::ZERO).await.unwrap();
    let pod = world.until("p", |pod| ready(pod) && status(pod).restart_count == 2).await;
    assert_eq!(status(&pod).last_state.as_ref().unwrap().terminated.as_ref().unwrap().exit_code, 137);
    world.pods().delete("p", &DeleteOptions::default()).await.unwrap();
    world.until_gone("p").await;
    world.end().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_node_that_was_killed_finds_its_containers_again() {
    let Some(engine) = Engine::find().await else { return };
    let mut world = World::with(directory("adopt"), engine.connect().await).await;
    world.stopper.stop();
    world.node.take().unwrap().await.unwrap();
    let maps = Api::<ConfigMap>::namespaced(&world.client, "default");
    let map = json!({"metadata": {"name": "settings"}, "data": {"colour": "red"}});
    maps.create(&serde_json::from_value(map).unwrap()).await.unwrap();
    // A life of the node that ends as by SIGKILL: its runtime is gone with all tasks, none of which gets to do more.
    let life = tokio::runtime::Builder::new_multi_thread().enable_all().build().unwrap();
    let (client, dir, socket) = (world.client.clone(), world.dir.to_path_buf(), engine.socket.clone());
    let (stopper, stop) = Stopper::new();
    life.spawn(async move {
        let runtime = Arc::new(Cri::connect(&socket, Arc::new(RealClock::new())).await.unwrap());
        build(&client, &dir, runtime).run(stop).await;
    });
    let mut container = engine.container("trap 'exit 3' TERM; while :; do sleep 0.1; done");
    container["volumeMounts"] = json!([{"name": "s", "mountPath": "/etc/settings"}]);
    let volumes = json!([{"name": "s", "configMap": {"name": "settings"}}]);
    for name in ["kept", "deleted"] {
        let spec = json!({"hostNetwork": true, "volumes": volumes, "containers": [container],
                          "terminationGracePeriodSeconds": 5});
        world.create(name, spec).await;
    }
    let before = world.until("kept", ready).await;
    world.until("deleted", ready).await;
    life.shutdown_background();
    drop(stopper);
    let force = DeleteOptions { grace_period_seconds: Some(0), ..DeleteOptions::default() };
    world.pods().delete("deleted", &force).await.unwrap();
    maps.patch("settings", &Patch::Merge(json!({"data": {"colour": "blue"}}))).await.unwrap();

    let runtime = engine.connect().await;
    let node = build(&world.client, &world.dir, runtime.clone());
    let (stopper, stop) = Stopper::new();
    world.shared = node.shared();
    world.node = Some(tokio::spawn(node.run(stop)));
    world.stopper = stopper;
    // The same container, whose volume is kept up to date by the new life.
    let command = ["sh", "-c", "until grep -q blue /etc/settings/colour; do sleep 0.1; done"].map(str::to_owned);
    let (exit, _) = runtime.exec_sync(&id(&before), &command, Duration::from_secs(30)).await.unwrap();
    assert_eq!(exit.code, 0);
    let after = world.pods().get("kept").await.unwrap();
    assert_eq!((id(&after), status(&after).restart_count), (id(&before), 0));
    let there = runtime.containers().await.unwrap();
    assert_eq!(there.len(), 1, "what belongs to no pod is gone: {there:?}");
    world.pods().delete("kept", &DeleteOptions::default()).await.unwrap();
    world.until_gone("kept").await;
    assert!(runtime.containers().await.unwrap().is_empty());
    world.end().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_log_that_grows_is_begun_anew() {
    let Some(engine) = Engine::find().await else { return };
    let world = World::with(directory("logs"), engine.connect().await).await;
    let script = format!(
        "yes 0123456789012345678901234567890123456789012345678901234567890123456789 | head -c {MAX_LOG_SIZE}; \
         while :; do echo after; sleep 0.2; done"
    );
    let mut spec = json!({"hostNetwork": true, "containers": [engine.container(&script)]});
    spec["terminationGracePeriodSeconds"] = json!(0);
    world.create("p", spec).await;
    world.until("p", ready).await;
    let logs = world.shared.pod("default", "p").unwrap().logs.join("c");
    let files = || std::fs::read_dir(&logs).map_or(0, Iterator::count);
    while files() < 2 || !world.log("p", "c", 0).starts_with("after") {
        tokio::task::yield_now().await;
    }
    assert!(std::fs::metadata(logs.join("0.log")).unwrap().len() < MAX_LOG_SIZE);
    world.end().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_pod_with_a_network_of_its_own() {
    let Some(engine) = Engine::find().await else { return };
    let Ok(network) = std::env::var("CAPSTAN_CNI") else {
        eprintln!("skipped: CAPSTAN_CNI does not name a network");
        return;
    };
    let world = World::with(directory("cni"), engine.connect().await).await;
    let mut container = engine.container("echo hello > /tmp/index.html; httpd -f -p 80 -h /tmp");
    container["ports"] = json!([{"name": "web", "containerPort": 80}]);
    let probe = json!({"httpGet": {"port": "web", "path": "/index.html"}, "periodSeconds": 1});
    container["readinessProbe"] = probe.clone();
    container["livenessProbe"] = probe;
    for name in ["one", "two"] {
        // Both listen on the same port: each on an address of its own.
        let spec = json!({"containers": [container], "terminationGracePeriodSeconds": 0, "hostname": name});
        world.create(name, spec).await;
    }
    let address = |pod: &Pod| pod.status.as_ref().unwrap().pod_ip.clone().unwrap();
    let (one, two) = (world.until("one", ready).await, world.until("two", ready).await);
    assert!(address(&one).starts_with(&network) && address(&two).starts_with(&network), "{}", address(&one));
    assert_ne!(address(&one), address(&two));
    let script = format!("hostname; wget -q -O - http://{}/index.html", address(&two));
    let command = ["sh".to_owned(), "-c".to_owned(), script];
    let answer = world.shared.runtime().exec_sync(&id(&one), &command, Duration::from_secs(20)).await.unwrap();
    assert_eq!(String::from_utf8_lossy(&answer.1), "one\nhello\n");
    world.end().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn what_a_container_is_kept_from() {
    let Some(engine) = Engine::find().await else { return };
    let world = World::with(directory("security"), engine.connect().await).await;
    // The kernel's settings are mounted once more, so that nobody writes to them; and calls may be filtered.
    let script = "grep -c ' /proc/sys ' /proc/mounts; grep Seccomp: /proc/self/status; sleep 1000";
    let cases = [
        ("usual", json!({}), "1\nSeccomp:\t0\n"),
        ("careful", json!({"seccompProfile": {"type": "RuntimeDefault"}}), "1\nSeccomp:\t2\n"),
        ("privileged", json!({"privileged": true}), "0\nSeccomp:\t0\n"),
    ];
    for (name, security, said) in cases {
        let mut container = engine.container(script);
        container["securityContext"] = security;
        let spec = json!({"hostNetwork": true, "terminationGracePeriodSeconds": 0, "containers": [container]});
        world.create(name, spec).await;
        world.until(name, ready).await;
        while world.log(name, "c", 0).lines().count() < 2 {
            tokio::task::yield_now().await;
        }
        assert_eq!(world.log(name, "c", 0), said, "{name}");
    }
    let node = Api::<k8s_openapi::api::core::v1::Node>::all(&world.client).get("node-1").await.unwrap();
    let images = node.status.unwrap().images.unwrap_or_default();
    assert!(images.iter().any(|image| image.names.iter().flatten().any(|name| *name == engine.image)), "{images:?}");
    let mut root = engine.container("sleep 1000");
    root["securityContext"] = json!({"runAsNonRoot": true});
    world.create("root", json!({"hostNetwork": true, "containers": [root]})).await;
    let pod = world.until("root", |pod| waiting(pod).0 == "CreateContainerConfigError").await;
    assert!(waiting(&pod).1.starts_with("container has runAsNonRoot and image will run as root"), "{pod:?}");
    world.end().await;
}
