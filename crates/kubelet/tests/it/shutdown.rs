//! The end of a node: hooks run, grace periods count, and there is a bound to them.

use std::time::Duration;

use serde_json::json;

use crate::world::{World, builder, directory, processes, ready, sh};

#[tokio::test(flavor = "multi_thread")]
async fn containers_end_as_if_their_pods_were_deleted() {
    let dir = directory("shutdown");
    let Some(runtime) = processes(&dir).await else { return };
    let most = Duration::from_secs(3);
    let mut world =
        World::built(dir, |client, dir| builder(&client, dir, runtime).shutdown_grace_period(most).build()).await;
    std::fs::create_dir_all(world.dir.join("out")).unwrap();
    let out = json!([{"name": "o", "mountPath": "/out"}]);
    let ends = |name: &str| {
        sh(&format!("trap 'echo {name} >> /out/trace; exit 0' TERM; touch /tmp/up; while :; do sleep 0.05; done"))
    };
    let up = json!({"exec": {"command": ["test", "-e", "/tmp/up"]}, "periodSeconds": 1});
    let hook = json!({"preStop": {"exec": {"command": sh("echo hook >> /out/trace")}}});
    world
        .create(
            "polite",
            json!({"terminationGracePeriodSeconds": 60, "automountServiceAccountToken": false,
        "initContainers": [{"name": "sidecar", "image": "busybox", "command": ends("sidecar"), "volumeMounts": out,
            "restartPolicy": "Always", "startupProbe": up}],
        "containers": [{"name": "c", "image": "busybox", "command": ends("container"), "volumeMounts": out,
            "readinessProbe": up, "lifecycle": hook}],
        "volumes": [{"name": "o", "hostPath": {"path": world.dir.join("out")}}]}),
        )
        .await;
    // One that would not end for an hour.
    world
        .create(
            "stubborn",
            json!({"terminationGracePeriodSeconds": 3600, "automountServiceAccountToken": false,
        "containers": [{"name": "c", "image": "busybox", "readinessProbe": up,
            "command": sh("trap '' TERM; touch /tmp/up; while :; do sleep 0.05; done")}]}),
        )
        .await;
    world.until("polite", ready).await;
    world.until("stubborn", ready).await;
    world.stopper.stop();
    world.node.take().unwrap().await.unwrap();
    let words = std::fs::read_to_string(world.dir.join("out/trace")).unwrap();
    assert_eq!(words.split_whitespace().collect::<Vec<_>>(), ["hook", "container", "sidecar"]);
    // The pods are there as before.
    assert!(ready(&world.pods().get("polite").await.unwrap()));
}
