//! Simulated nodes on the real server.

use std::sync::Arc;

use capstan_api::options::{DeleteOptions, ListOptions};
use capstan_client::{Api, Client};
use capstan_clock::{OsIds, RealClock};
use capstan_kubelet::simulated::{Nodes, RUN_FOR};
use capstan_runtime::Stopper;
use capstan_server::{Config, Server, authorization::UserInfo};
use capstan_storage::{Memory, Options};
use k8s_openapi::api::{
    coordination::v1::Lease,
    core::v1::{Node, Pod},
};
use serde_json::json;

use crate::world::{phase, ready};

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
