//! DaemonSets.

use capstan_api::options::DeleteOptions;
use capstan_clock::Clock as _;
use k8s_openapi::api::{
    apps::v1::{ControllerRevision, DaemonSet},
    core::v1::{Node, Pod, Taint},
};

use crate::cluster::Cluster;

fn agent(more: &str) -> String {
    format!(
        "{{apiVersion: apps/v1, kind: DaemonSet, metadata: {{name: agent}}, spec: {{{more}
           selector: {{matchLabels: {{app: agent}}}}, template: {{metadata: {{labels: {{app: agent}}}},
           spec: {{nodeSelector: {{os: linux}}, containers: [{{name: c, image: one}}]}}}}}}}}"
    )
}

pub(crate) async fn add_node(cluster: &Cluster, name: &str, os: &str) {
    let text = format!("{{apiVersion: v1, kind: Node, metadata: {{name: {name}, labels: {{os: {os}}}}}}}");
    cluster.create::<Node>(&text).await;
    // A new node is tainted until it is ready.
    taint(cluster, name, None).await;
}

/// The node that a pod is for.
fn target(pod: &Pod) -> String {
    let affinity = pod.spec.as_ref().unwrap().affinity.clone().unwrap().node_affinity.unwrap();
    let terms = affinity.required_during_scheduling_ignored_during_execution.unwrap().node_selector_terms;
    terms[0].match_fields.as_ref().unwrap()[0].values.as_ref().unwrap()[0].clone()
}

/// The nodes that pods are for, and the images.
async fn pods(cluster: &Cluster) -> Vec<String> {
    let mut pods: Vec<_> = cluster.list::<Pod>().await;
    pods.retain(|pod| pod.metadata.deletion_timestamp.is_none());
    let mut pods: Vec<_> = pods
        .into_iter()
        .map(|pod| {
            let node = target(&pod);
            format!("{node} {}", pod.spec.unwrap().containers[0].image.as_ref().unwrap())
        })
        .collect();
    pods.sort();
    pods
}

async fn taint(cluster: &Cluster, node: &str, effect: Option<&str>) {
    cluster
        .change::<Node>(node, |node| {
            let taint = |effect: &str| Taint { key: "k".to_owned(), effect: effect.to_owned(), ..Taint::default() };
            node.spec.get_or_insert_default().taints = effect.map(|effect| vec![taint(effect)]);
        })
        .await;
}

fn is_done(set: &DaemonSet, count: i32) -> bool {
    set.status.as_ref().is_some_and(|status| {
        (status.desired_number_scheduled, status.number_ready) == (count, count)
            && status.updated_number_scheduled == Some(count)
            && status.observed_generation == set.metadata.generation
    })
}

#[tokio::test]
async fn on_every_node_that_fits() {
    let cluster = Cluster::start(&["daemonset-controller"]).await;
    for (name, os) in [("a", "linux"), ("b", "linux"), ("c", "linux"), ("w", "windows")] {
        add_node(&cluster, name, os).await;
    }
    taint(&cluster, "c", Some("NoSchedule")).await;
    let _node = cluster.play_node();
    cluster.create::<DaemonSet>(&agent("")).await;
    cluster.until_object("agent", |set| is_done(set, 2)).await;
    assert_eq!(pods(&cluster).await, ["a one", "b one"]);
    let pod = &cluster.list::<Pod>().await[0];
    let tolerations = pod.spec.as_ref().unwrap().tolerations.clone().unwrap();
    assert!(tolerations.iter().any(|t| t.key.as_deref() == Some("node.kubernetes.io/unschedulable")));

    // Nodes come, change and go.
    taint(&cluster, "c", None).await;
    add_node(&cluster, "d", "linux").await;
    cluster.until_object("agent", |set| is_done(set, 4)).await;
    taint(&cluster, "c", Some("NoSchedule")).await;
    let off = |set: &DaemonSet| set.status.as_ref().unwrap().number_misscheduled == 1;
    cluster.until_object("agent", off).await;
    assert_eq!(pods(&cluster).await.len(), 4, "who is there stays");
    taint(&cluster, "c", Some("NoExecute")).await;
    cluster.until("unless it must go", || async { pods(&cluster).await == ["a one", "b one", "d one"] }).await;
    cluster.api::<Node>().delete("d", &DeleteOptions::default()).await.unwrap();
    cluster.until_object("agent", |set| is_done(set, 2)).await;
}

async fn set_image(cluster: &Cluster, image: &str) {
    cluster
        .change::<DaemonSet>("agent", |set| {
            let spec = set.spec.as_mut().unwrap().template.spec.as_mut().unwrap();
            spec.containers[0].image = Some(image.to_owned());
        })
        .await;
}

/// Puts all pods on the nodes that they are for, as the scheduler does.
async fn bind(cluster: &Cluster) {
    for pod in cluster.list::<Pod>().await {
        let (name, node) = (pod.metadata.name.clone().unwrap(), target(&pod));
        if pod.spec.unwrap().node_name.is_none() {
            let binding = serde_json::json!({"apiVersion": "v1", "kind": "Binding", "metadata": {"name": name},
                "target": {"apiVersion": "v1", "kind": "Node", "name": node}});
            cluster.api::<Pod>().create_subresource(&name, "binding", &binding).await.unwrap();
        }
    }
}

async fn update(more: &str, most: usize, least: usize) {
    let cluster = Cluster::start(&["daemonset-controller"]).await;
    for name in ["a", "b", "c"] {
        add_node(&cluster, name, "linux").await;
    }
    let _node = cluster.play_node();
    cluster.create::<DaemonSet>(&agent(more)).await;
    cluster.until_object("agent", |set| is_done(set, 3)).await;
    set_image(&cluster, "two").await;
    let (mut seen_most, mut seen_least) = (0, usize::MAX);
    for _ in 0..4000 {
        let pods = pods(&cluster).await;
        (seen_most, seen_least) = (seen_most.max(pods.len()), seen_least.min(pods.len()));
        if pods == ["a two", "b two", "c two"] {
            break;
        }
        cluster.breathe().await;
    }
    cluster.until_object("agent", |set| is_done(set, 3)).await;
    assert_eq!(pods(&cluster).await, ["a two", "b two", "c two"]);
    assert!(seen_most <= most && seen_least >= least, "{seen_least}..{seen_most} for {more}");
    assert_eq!(cluster.list::<ControllerRevision>().await.len(), 2);
}

#[tokio::test]
async fn rolls_one_at_a_time() {
    update("", 3, 2).await;
}

#[tokio::test]
async fn surges() {
    update("updateStrategy: {type: RollingUpdate, rollingUpdate: {maxSurge: 1, maxUnavailable: 0}},", 4, 3).await;
}

#[tokio::test]
async fn surges_around_nodes_that_are_tainted_or_gone() {
    let cluster = Cluster::start(&["daemonset-controller"]).await;
    for name in ["a", "b", "c"] {
        add_node(&cluster, name, "linux").await;
    }
    let _node = cluster.play_node();
    let surge = "updateStrategy: {type: RollingUpdate, rollingUpdate: {maxSurge: 1, maxUnavailable: 0}},";
    cluster.create::<DaemonSet>(&agent(surge)).await;
    cluster.until_object("agent", |set| is_done(set, 3)).await;
    bind(&cluster).await;
    taint(&cluster, "a", Some("NoSchedule")).await;
    cluster.api::<Node>().delete("b", &DeleteOptions::default()).await.unwrap();
    cluster.settle().await;
    set_image(&cluster, "two").await;
    cluster.until_object("agent", |set| is_done(set, 1)).await;
    cluster.settle().await;
    // The one that is tainted is left, the one on a node that is gone waits for the collector of garbage.
    assert_eq!(pods(&cluster).await, ["b one", "c two"]);
    assert_eq!(cluster.requests_in_a_minute().await, 0);
}

#[tokio::test]
async fn replaced_only_when_deleted() {
    let cluster = Cluster::start(&["daemonset-controller"]).await;
    for name in ["a", "b"] {
        add_node(&cluster, name, "linux").await;
    }
    let _node = cluster.play_node();
    cluster.create::<DaemonSet>(&agent("updateStrategy: {type: OnDelete},")).await;
    cluster.until_object("agent", |set| is_done(set, 2)).await;
    set_image(&cluster, "two").await;
    cluster.settle().await;
    assert_eq!(pods(&cluster).await, ["a one", "b one"]);
    let all = cluster.list::<Pod>().await;
    let on_b = all.iter().find(|pod| target(pod) == "b").unwrap();
    cluster.api::<Pod>().delete(on_b.metadata.name.as_ref().unwrap(), &DeleteOptions::default()).await.unwrap();
    cluster.until("it is replaced", || async { pods(&cluster).await == ["a one", "b two"] }).await;
}

#[tokio::test]
async fn who_ends_is_replaced_and_who_fails_less_and_less_often() {
    let cluster = Cluster::start(&["daemonset-controller"]).await;
    add_node(&cluster, "a", "linux").await;
    cluster.create::<DaemonSet>(&agent("")).await;
    let pod = async |before: &str| {
        let fresh = async || {
            let pods = cluster.list::<Pod>().await;
            pods.into_iter().find(|pod| pod.metadata.name.as_deref() != Some(before))
        };
        cluster.until("another pod is there", || async { fresh().await.is_some() }).await;
        fresh().await.unwrap()
    };
    let first = pod("").await;
    crate::job::end(&cluster, &first, 0).await;
    let name = |pod: &Pod| pod.metadata.name.clone().unwrap();
    let mut last = pod(&name(&first)).await;
    let message = format!("Found succeeded daemon pod default/{} on node a, will try to delete it", name(&first));
    cluster.settle().await;
    assert!(cluster.told().await.contains(&("SucceededDaemonPod".to_owned(), message)));
    // The first is replaced at once, those after it when 1, 2, 4, 8 seconds have passed.
    for seconds in [0, 1, 2, 4, 8] {
        crate::job::end(&cluster, &last, 1).await;
        let failed = cluster.clock.now();
        let next = pod(&name(&last)).await;
        let waited = cluster.clock.now().duration_since(failed).as_millis();
        assert!(waited >= seconds * 1000 - 500 && waited <= seconds * 1000 + 500, "{waited} ms instead of {seconds} s");
        let message = format!("Found failed daemon pod default/{} on node a, will try to kill it", name(&last));
        cluster.until("it is told", || async { cluster.told().await.iter().any(|(_, told)| *told == message) }).await;
        last = next;
    }
    // Meanwhile nobody asks for anything.
    crate::job::end(&cluster, &last, 1).await;
    let before = cluster.requests.load(std::sync::atomic::Ordering::SeqCst);
    for _ in 0..10 {
        cluster.clock.advance(std::time::Duration::from_secs(1));
        cluster.breathe().await;
    }
    let requests = cluster.requests.load(std::sync::atomic::Ordering::SeqCst) - before;
    assert!(requests <= 1, "{requests} requests");
}
