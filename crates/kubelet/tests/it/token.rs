//! The token of a pod's account in its volume, as time goes by.

use std::{path::PathBuf, sync::Arc, time::Duration};

use base64::{Engine as _, prelude::BASE64_URL_SAFE_NO_PAD};
use capstan_client::{Api, Patch};
use capstan_clock::{Clock as _, ManualClock, Timestamp};
use k8s_openapi::api::core::v1::ConfigMap;
use serde_json::{Value, json};

use crate::world::{World, builder_on, directory, processes, ready};

/// When a token expires, in seconds.
fn expires(token: &str) -> i64 {
    let claims = BASE64_URL_SAFE_NO_PAD.decode(token.split('.').nth(1).unwrap()).unwrap();
    serde_json::from_slice::<Value>(&claims).unwrap()["exp"].as_i64().unwrap()
}

/// How often the node looks at volumes.
const SYNC: Duration = Duration::from_secs(1);

/// Waits until a file is not as it was. Time goes on meanwhile, but not beyond `until`: the node may have looked just
/// before there was anything to see.
async fn changed(file: &PathBuf, from: &str, clock: &ManualClock, until: Timestamp) -> String {
    let mut looks = 0_u32;
    loop {
        match std::fs::read_to_string(file) {
            Ok(text) if text != from => return text,
            _ => tokio::task::yield_now().await,
        }
        looks += 1;
        if looks.is_multiple_of(1000) && clock.now() < until {
            clock.advance(SYNC);
        }
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn it_is_replaced_before_it_expires() {
    let dir = directory("token");
    let Some(runtime) = processes(&dir).await else { return };
    let clock = Arc::new(ManualClock::at("2026-01-01T00:00:00Z".parse().unwrap()));
    let (own, minute) = (clock.clone(), Duration::from_secs(60));
    let world = World::built_on(dir, clock.clone(), |client, dir| {
        builder_on(own, &client, dir, runtime).sync_frequency(SYNC).build()
    })
    .await;
    let maps = Api::<ConfigMap>::namespaced(&world.client, "default");
    let map = json!({"metadata": {"name": "clock"}, "data": {"hand": "first"}});
    maps.create(&serde_json::from_value(map).unwrap()).await.unwrap();
    let sources = json!([{"serviceAccountToken": {"path": "token", "expirationSeconds": 3600}},
                         {"configMap": {"name": "clock"}}]);
    world
        .create(
            "p",
            json!({"automountServiceAccountToken": false, "terminationGracePeriodSeconds": 0,
        "containers": [{"name": "c", "image": "busybox", "command": ["sleep", "1000"],
            "volumeMounts": [{"name": "v", "mountPath": "/v"}]}],
        "volumes": [{"name": "v", "projected": {"sources": sources}}]}),
        )
        .await;
    let uid = world.until("p", ready).await.metadata.uid.unwrap();
    let volume = world.dir.join("pods").join(uid).join("volumes/kubernetes.io~projected/v");
    let read = |name: &str| std::fs::read_to_string(volume.join(name)).unwrap();
    let first = read("token");
    let begun = clock.now();
    assert_eq!(expires(&first) - begun.as_second(), 3600);

    // After two thirds of its life it is the same, though the volume has been made anew. (It is another one after 48
    // minutes.)
    maps.patch("clock", &Patch::Merge(json!({"data": {"hand": "second"}}))).await.unwrap();
    clock.advance(40 * minute);
    let hand = changed(&volume.join("hand"), "first", &clock, begun + 45 * minute).await;
    assert_eq!(hand, "second");
    assert_eq!(read("token"), first);

    // After four fifths it is another one, and the old one would still be believed.
    clock.advance(10 * minute);
    let second = changed(&volume.join("token"), &first, &clock, begun + 59 * minute).await;
    let now = clock.now().as_second();
    assert!(now < expires(&first), "{now}");
    assert!(expires(&second) - now > 3000, "{now}");
    world.end().await;
}
