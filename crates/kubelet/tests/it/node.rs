//! A node on the real server, with real processes.

use capstan_api::options::DeleteOptions;
use capstan_client::{Api, Patch};
use capstan_runtime::Stopper;
use k8s_openapi::api::core::v1::{ConfigMap, Node as NodeObject};
use serde_json::{Value, json};

use crate::{
    server::Reach,
    world::{World, build, phase, processes, ready, sh, waiting},
};

#[tokio::test(flavor = "multi_thread")]
async fn from_a_pod_to_its_words_and_its_end() {
    let Some(world) = World::new("words").await else { return };
    world
        .create(
            "hello",
            json!({"restartPolicy": "Never",
            "initContainers": [{"name": "first", "image": "busybox", "command": sh("echo made > /work/file"),
                "volumeMounts": [{"name": "w", "mountPath": "/work"}]}],
            "containers": [{"name": "c", "image": "busybox",
                "command": sh("cat /work/file; echo $POD; cat /var/run/secrets/kubernetes.io/serviceaccount/ca.crt; \
                               cat /var/run/secrets/kubernetes.io/serviceaccount/namespace; echo; \
                               test -s /var/run/secrets/kubernetes.io/serviceaccount/token && echo token; \
                               echo $KUBERNETES_SERVICE_PORT; echo last words > /dev/termination-log; exit 3"),
                "env": [{"name": "POD", "valueFrom": {"fieldRef": {"fieldPath": "metadata.name"}}}],
                "volumeMounts": [{"name": "w", "mountPath": "/work"}]}],
            "volumes": [{"name": "w", "emptyDir": {}}]}),
        )
        .await;
    let pod = world.until("hello", |pod| phase(pod) == "Failed").await;
    let container = &pod.status.as_ref().unwrap().container_statuses.as_ref().unwrap()[0];
    let end = container.state.clone().unwrap().terminated.unwrap();
    assert_eq!(
        (end.exit_code, end.reason.as_deref(), end.message.as_deref()),
        (3, Some("Error"), Some("last words\n"))
    );
    assert!(container.container_id.as_ref().unwrap().starts_with("process://"));
    assert_eq!(world.log("hello", "c", 0), "made\nhello\na certificate\ndefault\ntoken\n443\n");
    assert_eq!(world.event("hello", "Started").await, "Container started");
    // A pod that has ended goes at once, and the node may be the one who takes it away.
    let deleted = world.pods().delete("hello", &DeleteOptions::default()).await;
    assert!(deleted.err().is_none_or(|error| error.is_not_found()));
    world.until_gone("hello").await;
    let node = Api::<NodeObject>::all(&world.client).get("node-1").await.unwrap();
    assert!(node.status.unwrap().conditions.unwrap().iter().any(|c| c.type_ == "Ready" && c.status == "True"));
    world.end().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn probed_updated_and_gracefully_ended() {
    let Some(world) = World::new("probed").await else { return };
    let maps = Api::<ConfigMap>::namespaced(&world.client, "default");
    let map = json!({"metadata": {"name": "settings"}, "data": {"colour": "red"}});
    maps.create(&serde_json::from_value(map).unwrap()).await.unwrap();
    std::fs::create_dir_all(world.dir.join("out")).unwrap();
    world
        .create(
            "server",
            json!({"terminationGracePeriodSeconds": 20,
            "containers": [{"name": "c", "image": "busybox",
                "command": sh("trap 'echo term >> /out/trace; exit 0' TERM; echo up > /tmp/up; \
                               until grep -q blue /etc/settings/colour; do sleep 0.05; done; echo blue >> /out/trace; \
                               while :; do sleep 0.05; done"),
                "readinessProbe": {"periodSeconds": 1,
                    "exec": {"command": ["grep", "-q", "blue", "/etc/settings/colour"]}},
                "lifecycle": {"postStart": {"exec": {"command": sh("echo post >> /out/trace")}},
                              "preStop": {"exec": {"command": sh("echo pre >> /out/trace")}}},
                "volumeMounts": [{"name": "s", "mountPath": "/etc/settings"}, {"name": "o", "mountPath": "/out"}]}],
            "volumes": [{"name": "s", "configMap": {"name": "settings"}},
                        {"name": "o", "hostPath": {"path": world.dir.join("out")}}]}),
        )
        .await;
    let pod = world.until("server", |pod| phase(pod) == "Running").await;
    assert!(!ready(&pod));
    assert_eq!(world.event("server", "Unhealthy").await, "Readiness probe failed: ");
    maps.patch("settings", &Patch::Merge(json!({"data": {"colour": "blue"}}))).await.unwrap();
    let pod = world.until("server", ready).await;
    assert_eq!(pod.status.unwrap().pod_ip.as_deref(), Some("127.0.0.1"));
    world.pods().delete("server", &DeleteOptions::default()).await.unwrap();
    world.until_gone("server").await;
    let trace = std::fs::read_to_string(world.dir.join("out/trace")).unwrap();
    assert_eq!(trace.split_whitespace().collect::<Vec<_>>(), ["post", "blue", "pre", "term"]);
    assert_eq!(world.event("server", "Killing").await, "Stopping container c");
    world.end().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn what_goes_wrong_is_said_and_the_node_goes_on() {
    let Some(world) = World::new("wrong").await else { return };
    let container = |extra: Value| {
        let mut container = json!({"name": "c", "image": "busybox", "command": sh("exit 1")});
        container.as_object_mut().unwrap().extend(extra.as_object().unwrap().clone());
        json!({"automountServiceAccountToken": false, "containers": [container]})
    };
    world.create("crash", container(json!({}))).await;
    world.create("image", container(json!({"image": "example.com/no-such-thing:v1", "command": null}))).await;
    world.create("command", container(json!({"command": ["no-such-command"]}))).await;
    world.create("config", container(json!({"envFrom": [{"configMapRef": {"name": "none"}}]}))).await;
    world.create("big", container(json!({"resources": {"requests": {"cpu": "10000"}}}))).await;
    let mut volume = container(json!({"volumeMounts": [{"name": "v", "mountPath": "/v"}]}));
    volume["volumes"] = json!([{"name": "v", "secret": {"secretName": "none"}}]);
    world.create("volume", volume).await;

    let crash = world.until("crash", |pod| waiting(pod).0 == "CrashLoopBackOff").await;
    assert_eq!(phase(&crash), "Running");
    let image = world.until("image", |pod| waiting(pod).0 == "ErrImagePull").await;
    assert!(waiting(&image).1.contains("no images"), "{:?}", waiting(&image));
    world.until("image", |pod| waiting(pod).0 == "ImagePullBackOff").await;
    let command = world.until("command", |pod| waiting(pod).0 == "CrashLoopBackOff").await;
    let status = &command.status.as_ref().unwrap().container_statuses.as_ref().unwrap()[0];
    let last = status.last_state.clone().unwrap().terminated.unwrap();
    assert_eq!((last.exit_code, last.reason.as_deref()), (128, Some("StartError")));
    assert!(last.message.unwrap().contains("executable file not found in $PATH"));
    let config = world.until("config", |pod| waiting(pod).0 == "CreateContainerConfigError").await;
    assert_eq!(waiting(&config).1, "configmap \"none\" not found");
    let big = world.until("big", |pod| phase(pod) == "Failed").await;
    assert_eq!(big.status.as_ref().unwrap().reason.as_deref(), Some("OutOfcpu"));
    assert!(
        big.status.unwrap().message.unwrap().starts_with("Pod was rejected: Node didn't have enough resource: cpu")
    );
    let mount = world.event("volume", "FailedMount").await;
    assert_eq!(mount, "MountVolume.SetUp failed for volume \"v\" : secret \"none\" not found");
    // After all that, a pod is run as ever.
    world
        .create(
            "fine",
            json!({"restartPolicy": "Never", "automountServiceAccountToken": false,
        "containers": [{"name": "c", "image": "busybox", "command": ["true"]}]}),
        )
        .await;
    world.until("fine", |pod| phase(pod) == "Succeeded").await;
    world.end().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn static_pods_are_mirrored_and_a_node_that_returns_goes_on() {
    let Some(mut world) = World::new("static").await else { return };
    world
        .create(
            "web",
            json!({"terminationGracePeriodSeconds": 1, "automountServiceAccountToken": false,
        "volumes": [{"name": "m", "emptyDir": {"medium": "Memory"}}],
        "containers": [{"name": "c", "image": "busybox", "command": ["sleep", "1000"]}]}),
        )
        .await;
    let uid = world.until("web", ready).await.metadata.uid.unwrap();
    let memory = world.dir.join("pods").join(uid).join("volumes/kubernetes.io~empty-dir/m");
    let mounted = || std::fs::read_to_string("/proc/self/mounts").unwrap().contains(memory.to_str().unwrap());
    let allowed = mounted();
    let done = json!({"restartPolicy": "Never", "automountServiceAccountToken": false, "containers": [{"name": "c",
        "image": "busybox", "command": sh("echo said")}]});
    world.create("done", done).await;
    world.until("done", |pod| phase(pod) == "Succeeded").await;
    world.stopper.stop();
    world.node.take().unwrap().await.unwrap();
    // As after a reboot.
    let _ = rustix::mount::unmount(&memory, rustix::mount::UnmountFlags::DETACH);

    let manifest = "apiVersion: v1\nkind: Pod\nmetadata: {name: fixed}\nspec: {terminationGracePeriodSeconds: 1, \
                    containers: [{name: c, image: busybox, command: [sleep, '1000']}]}\n";
    std::fs::write(world.dir.join("manifests/fixed.yaml"), manifest).unwrap();
    let runtime = processes(&world.dir).await.unwrap();
    let node = build(&world.client, &world.dir, runtime);
    let (stopper, stop) = Stopper::new();
    world.shared = node.shared();
    world.node = Some(tokio::spawn(node.run(stop)));
    world.stopper = stopper;
    let mirror = world.until("fixed-node-1", ready).await;
    assert!(mirror.metadata.annotations.unwrap().contains_key("kubernetes.io/config.mirror"));
    let web = world.until("web", |pod| {
        ready(pod) && pod.status.as_ref().unwrap().container_statuses.as_ref().unwrap()[0].restart_count == 1
    });
    web.await;
    assert_eq!(mounted(), allowed, "what was in memory is in memory again");
    world.pods().delete("web", &DeleteOptions::default()).await.unwrap();
    world.until_gone("web").await;
    // What has ended before the node did can still be read.
    let reach = Reach::new(&world).await;
    let said = reach.get("/containerLogs/default/done/c").await;
    assert!(said.contains("200 OK") && said.contains("said"), "{said}");
    world.end().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn who_it_is_and_what_it_sees_is_as_the_pod_says() {
    let Some(world) = World::new("sees").await else { return };
    let script = "id -u; id -g; touch /etc/x 2>/dev/null || echo read-only; cat /me/name; echo; cat /me/labels; echo; \
                  echo kept > /deep/file; ls /whole; cat /whole/$POD/file";
    let mount = |name: &str, path: &str| json!({"name": name, "mountPath": path});
    let (whole, mut deep) = (mount("v", "/whole"), mount("v", "/deep"));
    deep["subPathExpr"] = json!("$(POD)");
    let field = |path: &str| json!({"fieldPath": path});
    let items = json!([{"path": "name", "fieldRef": field("metadata.name")},
                       {"path": "labels", "fieldRef": field("metadata.labels")}]);
    let spec = json!({"restartPolicy": "Never", "automountServiceAccountToken": false,
        "securityContext": {"runAsUser": 1234, "runAsGroup": 2345, "fsGroup": 2345},
        "containers": [{"name": "c", "image": "busybox", "command": sh(script),
            "env": [{"name": "POD", "valueFrom": {"fieldRef": field("metadata.name")}}],
            "securityContext": {"readOnlyRootFilesystem": true},
            "volumeMounts": [mount("me", "/me"), whole, deep]}],
        "volumes": [{"name": "me", "downwardAPI": {"items": items}}, {"name": "v", "emptyDir": {}}]});
    world.create("sees", spec).await;
    let pod = world.until("sees", |pod| matches!(phase(pod), "Succeeded" | "Failed")).await;
    if world.shared.runtime().limitations().iter().any(|text| text.starts_with("no user namespaces")) {
        let expected = "1234\n2345\nread-only\nsees\napp=\"sees\"\nsees\nkept\n";
        assert_eq!((phase(&pod), world.log("sees", "c", 0).as_str()), ("Succeeded", expected), "{:?}", pod.status);
    }
    world.end().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn names_handlers_and_users_are_as_the_pod_says() {
    let Some(world) = World::new("names").await else { return };
    let script = "hostname; echo $HOSTNAME";
    let container = json!([{"name": "c", "image": "busybox", "command": sh(script)}]);
    let spec = |extra: Value| {
        let mut spec = json!({"restartPolicy": "Never", "automountServiceAccountToken": false,
            "containers": container});
        spec.as_object_mut().unwrap().extend(extra.as_object().unwrap().clone());
        spec
    };
    world.create("plain", spec(json!({"hostname": "host", "subdomain": "sub"}))).await;
    world.create("full", spec(json!({"hostname": "host", "subdomain": "sub", "setHostnameAsFQDN": true}))).await;
    let long = json!({"subdomain": "s".repeat(50), "setHostnameAsFQDN": true});
    world.create("long", spec(long)).await;
    world.create("users", spec(json!({"hostUsers": false}))).await;
    let class = json!({"metadata": {"name": "other"}, "handler": "kata"});
    let classes = Api::<k8s_openapi::api::node::v1::RuntimeClass>::all(&world.client);
    classes.create(&serde_json::from_value(class).unwrap()).await.unwrap();
    world.create("class", spec(json!({"runtimeClassName": "other"}))).await;

    world.until("plain", |pod| phase(pod) == "Succeeded").await;
    let fqdn = "host.sub.default.svc.cluster.local";
    assert_eq!(world.log("plain", "c", 0).lines().collect::<Vec<_>>(), ["host", "host"]);
    world.until("full", |pod| phase(pod) == "Succeeded").await;
    assert_eq!(world.log("full", "c", 0).lines().collect::<Vec<_>>(), [fqdn, fqdn]);
    for (pod, why) in [
        ("long", "is too long (64 characters is the max, 81 characters requested)"),
        ("users", "can't set `spec.hostUsers: false`, runtime does not support user namespaces"),
        ("class", "no runtime for \"kata\" is configured"),
    ] {
        let said = world.event(pod, "FailedCreatePodSandBox").await;
        assert!(said.starts_with("Failed to create pod sandbox: ") && said.contains(why), "{said}");
    }
    world.end().await;
}
