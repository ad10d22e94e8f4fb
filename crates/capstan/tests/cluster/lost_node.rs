//! A node that stops reporting gets its taints, its pods move, and it is welcome again.

use capstan_client::Api;
use k8s_openapi::api::core::v1::{Node, Pod, ServiceAccount};

use crate::world::World;

/// How long a node may be silent, and how long pods put up with one that is; with some to spare.
const UNTIL_UNKNOWN: usize = 60;
const UNTIL_EVICTED: usize = 330;

const REPLICAS: usize = 6;

async fn taints(nodes: &Api<Node>, name: &str) -> Vec<String> {
    let taints = nodes.get(name).await.unwrap().spec.and_then(|spec| spec.taints).unwrap_or_default();
    let mut taints: Vec<String> = taints.into_iter().map(|taint| format!("{}:{}", taint.key, taint.effect)).collect();
    taints.sort();
    taints
}

fn node_of(pod: &Pod) -> &str {
    pod.spec.as_ref().and_then(|spec| spec.node_name.as_deref()).unwrap_or_default()
}

#[tokio::test]
async fn pods_leave_a_node_that_is_silent() {
    let world = World::start().await;
    let _here = world.nodes(&["here"]);
    let there = world.nodes(&["there"]);
    let nodes = Api::<Node>::all(&world.client);
    world
        .until("the account of pods", || async { world.api::<ServiceAccount>().get_opt("default").await.unwrap() })
        .await;
    for name in ["here", "there"] {
        world
            .until("a node without taints", || async {
                let is_there = nodes.get_opt(name).await.unwrap().is_some();
                (is_there && taints(&nodes, name).await.is_empty()).then_some(())
            })
            .await;
    }
    world.deploy("web", REPLICAS).await;
    world.until_available("web", REPLICAS as i32).await;
    let pods = world.list::<Pod>().await;
    assert!(["here", "there"].iter().all(|name| pods.iter().any(|pod| node_of(pod) == *name)), "both have some");

    there.stop();
    drop(there);
    world.pass(UNTIL_UNKNOWN).await;
    let expected = ["node.kubernetes.io/unreachable:NoExecute", "node.kubernetes.io/unreachable:NoSchedule"];
    // Nodes lose their pods one after the other, a few seconds apart.
    world.until("both taints", || async { (taints(&nodes, "there").await == expected).then_some(()) }).await;
    assert!(taints(&nodes, "here").await.is_empty());
    let ready = nodes.get("there").await.unwrap().status.unwrap().conditions.unwrap();
    let ready = ready.into_iter().find(|condition| condition.type_ == "Ready").unwrap();
    assert_eq!((ready.status.as_str(), ready.reason.as_deref()), ("Unknown", Some("NodeStatusUnknown")));

    world.pass(UNTIL_EVICTED).await;
    world
        .until("all pods are here", || async {
            let pods = world.list::<Pod>().await;
            let live = pods.iter().filter(|pod| pod.metadata.deletion_timestamp.is_none());
            (live.clone().count() == REPLICAS && live.clone().all(|pod| node_of(pod) == "here")).then_some(())
        })
        .await;
    world.until_available("web", REPLICAS as i32).await;

    // It comes back: what was to be ended is ended, and pods are welcome again.
    let _there = world.nodes(&["there"]);
    world
        .until("no taints and no old pods", || async {
            let pods = world.list::<Pod>().await;
            (taints(&nodes, "there").await.is_empty() && pods.len() == REPLICAS).then_some(())
        })
        .await;
}
