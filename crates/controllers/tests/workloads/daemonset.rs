//! DaemonSets.

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

/// The nodes that pods are for, and the images.
async fn pods(cluster: &Cluster) -> Vec<String> {
    let mut pods: Vec<_> = cluster.list::<Pod>().await;
    pods.retain(|pod| pod.metadata.deletion_timestamp.is_none());
    let mut pods: Vec<_> = pods
        .into_iter()
        .map(|pod| {
            let spec = pod.spec.unwrap();
            let affinity = spec.affinity.unwrap().node_affinity.unwrap();
            let terms = affinity.required_during_scheduling_ignored_during_execution.unwrap().node_selector_terms;
            let node = terms[0].match_fields.as_ref().unwrap()[0].values.as_ref().unwrap()[0].clone();
            format!("{node} {}", spec.containers[0].image.as_ref().unwrap())
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
    cluster.api::<Node>().delete("d", &capstan_api::options::DeleteOptions::default()).await.unwrap();
    cluster.until_object("agent", |set| is_done(set, 2)).await;
}

async fn update(more: &str, most: usize, least: usize) {
    let cluster = Cluster::start(&["daemonset-controller"]).await;
    for name in ["a", "b", "c"] {
        add_node(&cluster, name, "linux").await;
    }
    let _node = cluster.play_node();
    cluster.create::<DaemonSet>(&agent(more)).await;
    cluster.until_object("agent", |set| is_done(set, 3)).await;
    cluster
        .change::<DaemonSet>("agent", |set| {
            let spec = set.spec.as_mut().unwrap().template.spec.as_mut().unwrap();
            spec.containers[0].image = Some("two".to_owned());
        })
        .await;
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
