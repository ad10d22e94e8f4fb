//! metrics.k8s.io from a kubelet's measurements to a client's answer, over TLS.

use std::{sync::Arc, time::Duration};

use capstan_api::GroupVersion;
use capstan_client::{Api, Client, Patch};
use capstan_clock::{Clock as _, OsIds, RealClock};
use capstan_kubelet::{
    metrics_api::{GROUP, MetricsApi, VERSION},
    server::{KubeletServer, Masters},
};
use capstan_runtime::Stopper;
use capstan_server::{
    authorization::UserInfo,
    pki::{self, Pki},
};
use k8s_openapi::api::core::v1::Node;
use serde_json::{Value, json};
use tokio::net::TcpListener;

use crate::world::{World, ready, sh};

#[tokio::test(flavor = "multi_thread")]
async fn what_nodes_and_pods_use() {
    let Some(world) = World::new("metrics").await else { return };
    let clock = Arc::new(RealClock::new());
    let options = pki::Options { host: "localhost".to_owned(), service_ip: [127, 0, 0, 1].into(), extra: Vec::new() };
    let pki = Pki::open(&world.dir.join("pki"), &options, clock.now(), &OsIds).unwrap();
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let port = listener.local_addr().unwrap().port();
    let (_stopper, stop) = Stopper::new();
    let tls = pki::server_config(&pki.serving, &pki.ca.own.chain()).unwrap();
    let server = KubeletServer::new(world.shared.clone(), Arc::new(Masters));
    tokio::spawn(server.serve(listener, Some(Arc::new(tls)), stop));
    world
        .create(
            "busy",
            json!({"automountServiceAccountToken": false, "terminationGracePeriodSeconds": 0,
        "containers": [{"name": "c", "image": "busybox", "command": sh("while :; do :; done")}]}),
        )
        .await;
    world
        .create(
            "idle",
            json!({"automountServiceAccountToken": false, "terminationGracePeriodSeconds": 0,
        "containers": [{"name": "c", "image": "busybox", "command": ["sleep", "1000"]}]}),
        )
        .await;
    world.until("busy", ready).await;
    let endpoint = json!({"status": {"daemonEndpoints": {"kubeletEndpoint": {"Port": port}}}});
    Api::<Node>::all(&world.client).patch_status("node-1", &Patch::Strategic(endpoint)).await.unwrap();

    let own = pki.client("metrics", &["system:masters"], clock.now(), &OsIds).unwrap();
    let api = |authority: &Pki| {
        let (shown, authorities) = ((own.chain(), own.key.der()), Some(authority.ca.own.chain()));
        MetricsApi::new(world.client.clone(), clock.clone(), shown, authorities).unwrap()
    };
    // A kubelet that another authority signed for is not believed.
    let other = Pki::open(&world.dir.join("other-pki"), &options, clock.now(), &OsIds).unwrap();
    let request = http::Request::get("/apis/metrics.k8s.io/v1beta1/nodes").body(bytes::Bytes::new()).unwrap();
    let answer = api(&other).answer(request).await;
    let list: Value = serde_json::from_slice(answer.body()).unwrap();
    assert_eq!(list["items"], json!([]));
    let api = api(&pki);
    let extension = Arc::new(move |request| api.answer(request));
    world.server.extend(GroupVersion::new(GROUP, VERSION), extension).await.unwrap();
    let get = |path: &'static str| {
        let client = world.client.clone();
        async move {
            let bytes = client.get_raw(&format!("/apis/metrics.k8s.io/v1beta1{path}")).await?;
            Ok::<Value, capstan_client::Error>(serde_json::from_slice(&bytes).unwrap())
        }
    };
    let raw = |path: &'static str| {
        let client = world.client.clone();
        async move { String::from_utf8_lossy(&client.get_raw(path).await.unwrap()).into_owned() }
    };
    assert!(raw("/apis").await.contains("\"metrics.k8s.io/v1beta1\""));
    let resources = raw("/apis/metrics.k8s.io/v1beta1").await;
    assert!(resources.contains("\"kind\":\"NodeMetrics\",\"verbs\":[\"get\",\"list\"]"), "{resources}");
    let service = raw("/apis/apiregistration.k8s.io/v1/apiservices/v1beta1.metrics.k8s.io").await;
    assert!(service.contains("Local APIServices are always available"), "{service}");
    let stranger = Client::from_service(world.server.as_user(UserInfo::new("stranger", ["system:authenticated"])));
    let refused = stranger.get_raw("/apis/metrics.k8s.io/v1beta1/nodes").await.unwrap_err();
    let words = "nodes.metrics.k8s.io is forbidden: User \"stranger\" cannot list resource \"nodes\" in API group";
    assert!(refused.to_string().starts_with(words), "{refused}");
    // Two measurements make a rate.
    let list = loop {
        let list = get("/namespaces/default/pods").await.unwrap();
        if list["items"].as_array().unwrap().len() == 2 {
            break list;
        }
        clock.sleep(Duration::from_millis(200)).await;
    };
    let nano = |item: &Value| -> u64 {
        let cpu = item["containers"][0]["usage"]["cpu"].as_str().unwrap();
        cpu.strip_suffix('n').unwrap().parse().unwrap()
    };
    assert_eq!((&list["kind"], &list["items"][0]["metadata"]["name"]), (&json!("PodMetricsList"), &json!("busy")));
    assert!(nano(&list["items"][0]) > 100_000_000, "{list}");
    assert!(nano(&list["items"][1]) < 50_000_000, "{list}");
    let selected = get("/pods?labelSelector=app%3Didle").await.unwrap();
    assert_eq!(selected["items"].as_array().unwrap().len(), 1);
    let one = get("/namespaces/default/pods/busy").await.unwrap();
    assert_eq!((&one["kind"], &one["containers"][0]["name"]), (&json!("PodMetrics"), &json!("c")));
    let node = get("/nodes/node-1").await.unwrap();
    assert_eq!(node["metadata"]["labels"]["kubernetes.io/hostname"], "node-1");
    assert!(node["usage"]["memory"].as_str().unwrap().ends_with("Ki"), "{node}");
    let missing = get("/namespaces/default/pods/none").await.unwrap_err();
    assert_eq!(missing.to_string(), "pods \"none\" not found");
    let missing = get("/nodes/none").await.unwrap_err();
    assert!(missing.is_not_found());
    world.end().await;
}
