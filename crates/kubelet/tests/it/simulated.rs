//! Simulated nodes on the real server.

use std::sync::Arc;

use capstan_api::options::{DeleteOptions, ListOptions};
use capstan_client::{Api, Client};
use capstan_clock::{Clock as _, OsIds, RealClock};
use capstan_kubelet::{
    metrics_api::MetricsApi,
    simulated::{Nodes, RUN_FOR, USAGE_CPU},
};
use capstan_runtime::Stopper;
use capstan_server::{
    Config, Server,
    authorization::UserInfo,
    pki::{self, Pki},
};
use capstan_storage::{Memory, Options};
use k8s_openapi::api::{
    coordination::v1::Lease,
    core::v1::{Node, Pod},
};
use serde_json::{Value, json};

use crate::world::{directory, phase, ready};

#[tokio::test(flavor = "multi_thread")]
async fn many_nodes_many_pods() {
    const NODES: usize = 20;
    const PODS: usize = 200;
    let server = Server::start(Arc::new(Memory::new(Options::default())), Config::default()).await.unwrap();
    let client = Client::from_service(server.as_user(UserInfo::new("admin", ["system:masters"])));
    let account = serde_json::from_value(json!({"metadata": {"name": "default"}})).unwrap();
    Api::<k8s_openapi::api::core::v1::ServiceAccount>::namespaced(&client, "default").create(&account).await.unwrap();
    let names: Vec<String> = (0..NODES).map(|n| format!("node-{n}")).collect();
    let run = |client: &Client| {
        let (stopper, stop) = Stopper::new();
        let clock = Arc::new(RealClock::new());
        let nodes = Nodes::new(client.clone(), clock, Arc::new(OsIds), names.clone());
        (stopper, tokio::spawn(nodes.run(stop)))
    };
    let (stopper, task) = run(&client);
    let pods = Api::<Pod>::namespaced(&client, "default");
    for n in 0..PODS {
        let pod = json!({"metadata": {"name": format!("p{n}")},
            "spec": {"nodeName": format!("node-{}", n % NODES), "automountServiceAccountToken": false,
                     "containers": [{"name": "c", "image": "x", "readinessProbe": {"tcpSocket": {"port": 1}}}]}});
        pods.create(&serde_json::from_value(pod).unwrap()).await.unwrap();
    }
    let job = json!({"metadata": {"name": "job", "annotations": {RUN_FOR: "10ms"}},
        "spec": {"nodeName": "node-0", "restartPolicy": "Never", "automountServiceAccountToken": false,
                 "initContainers": [{"name": "i", "image": "x"}], "containers": [{"name": "c", "image": "x"}]}});
    pods.create(&serde_json::from_value(job).unwrap()).await.unwrap();
    let all = ListOptions::default();
    loop {
        let list = pods.list(&all).await.unwrap().items;
        if list.iter().filter(|pod| ready(pod)).count() == PODS && list.iter().any(|pod| phase(pod) == "Succeeded") {
            break;
        }
    }
    let nodes = Api::<Node>::all(&client).list(&all).await.unwrap().items;
    assert_eq!(nodes.len(), NODES);
    let leases = Api::<Lease>::namespaced(&client, "kube-node-lease").list(&all).await.unwrap().items;
    assert_eq!(leases.len(), NODES);

    // Another process goes on where this one was, and nothing is restarted.
    stopper.stop();
    task.await.unwrap();
    let (stopper, task) = run(&client);
    pods.delete("p0", &DeleteOptions::default()).await.unwrap();
    while pods.get_opt("p0").await.unwrap().is_some() {
        tokio::task::yield_now().await;
    }
    let list = pods.list(&all).await.unwrap().items;
    let restarts: i32 = list
        .iter()
        .flat_map(|pod| pod.status.iter().flat_map(|s| s.container_statuses.iter().flatten()))
        .map(|c| c.restart_count)
        .sum();
    assert_eq!(restarts, 0);
    stopper.stop();
    task.await.unwrap();
}

#[tokio::test(flavor = "multi_thread")]
async fn what_they_use_follows_from_their_pods() {
    let server = Server::start(Arc::new(Memory::new(Options::default())), Config::default()).await.unwrap();
    let client = Client::from_service(server.as_user(UserInfo::new("admin", ["system:masters"])));
    let account = serde_json::from_value(json!({"metadata": {"name": "default"}})).unwrap();
    Api::<k8s_openapi::api::core::v1::ServiceAccount>::namespaced(&client, "default").create(&account).await.unwrap();
    let (stopper, stop) = Stopper::new();
    let clock = Arc::new(RealClock::new());
    let nodes = Nodes::new(client.clone(), clock.clone(), Arc::new(OsIds), vec!["a".to_owned(), "b".to_owned()]);
    let task = tokio::spawn(nodes.run(stop));
    let pods = Api::<Pod>::namespaced(&client, "default");
    for (name, annotations) in [("asks", json!({})), ("uses", json!({USAGE_CPU: "2"}))] {
        let resources = json!({"requests": {"cpu": "250m", "memory": "64Mi"}});
        let pod = json!({"metadata": {"name": name, "annotations": annotations},
            "spec": {"nodeName": "a", "automountServiceAccountToken": false,
                     "containers": [{"name": "c", "image": "x", "resources": resources}]}});
        pods.create(&serde_json::from_value(pod).unwrap()).await.unwrap();
    }
    let all = ListOptions::default();
    while pods.list(&all).await.unwrap().items.iter().filter(|pod| ready(pod)).count() < 2
        || Api::<Node>::all(&client).list(&all).await.unwrap().items.len() < 2
    {
        tokio::task::yield_now().await;
    }
    let dir = directory("simulated");
    let options = pki::Options { host: "localhost".to_owned(), service_ip: [127, 0, 0, 1].into(), extra: Vec::new() };
    let pki = Pki::open(&dir, &options, clock.now(), &OsIds).unwrap();
    let api = MetricsApi::new(client.clone(), clock, (pki.admin.chain(), pki.admin.key.der()), None).unwrap();
    let get = |path: &str| {
        let request = http::Request::get(format!("/apis/metrics.k8s.io/v1beta1{path}")).body(bytes::Bytes::new());
        let answer = api.answer(request.unwrap());
        async move { serde_json::from_slice::<Value>(answer.await.body()).unwrap() }
    };
    let usage = |cpu: &str, memory: &str| json!({"cpu": cpu, "memory": memory});
    let asks = get("/namespaces/default/pods/asks").await;
    assert_eq!(asks["containers"], json!([{"name": "c", "usage": usage("250000000n", "65536Ki")}]));
    let uses = get("/namespaces/default/pods/uses").await;
    assert_eq!(uses["containers"][0]["usage"], usage("2000000000n", "65536Ki"));
    assert_eq!(get("/nodes/a").await["usage"], usage("2250000000n", "131072Ki"));
    assert_eq!(get("/nodes/b").await["usage"], usage("0n", "0Ki"));
    stopper.stop();
    task.await.unwrap();
}

#[tokio::test(flavor = "multi_thread")]
async fn events_tell_what_happens_when_they_are_wanted() {
    let server = Server::start(Arc::new(Memory::new(Options::default())), Config::default()).await.unwrap();
    let client = Client::from_service(server.as_user(UserInfo::new("admin", ["system:masters"])));
    let (stopper, stop) = Stopper::new();
    let nodes = Nodes::new(client.clone(), Arc::new(RealClock::new()), Arc::new(OsIds), vec!["node-0".to_owned()]);
    let task = tokio::spawn(nodes.events().run(stop));
    let pod = json!({"metadata": {"name": "p"}, "spec": {"nodeName": "node-0", "automountServiceAccountToken": false,
        "serviceAccountName": "default", "containers": [{"name": "c", "image": "x:v1"}]}});
    let account = serde_json::from_value(json!({"metadata": {"name": "default"}})).unwrap();
    Api::<k8s_openapi::api::core::v1::ServiceAccount>::namespaced(&client, "default").create(&account).await.unwrap();
    let pods = Api::<Pod>::namespaced(&client, "default");
    pods.create(&serde_json::from_value(pod).unwrap()).await.unwrap();
    let events = Api::<k8s_openapi::api::core::v1::Event>::namespaced(&client, "default");
    let reasons = async || -> Vec<String> {
        let all = events.list(&ListOptions::default()).await.unwrap().items;
        let of_pod = all.into_iter().filter(|event| event.involved_object.name.as_deref() == Some("p"));
        of_pod.filter_map(|event| event.reason).collect()
    };
    loop {
        let said = reasons().await;
        if ["Pulled", "Created", "Started"].into_iter().all(|reason| said.iter().any(|one| one == reason)) {
            break;
        }
    }
    stopper.stop();
    task.await.unwrap();
}
