//! B11: pods get nodes. The workloads are those that upstream's scheduler_perf measures, under its names. Each
//! scheduler runs as a process of its own on its own server, and what counts is how many pods a second have a node,
//! from the first create on.

use std::{
    collections::HashSet,
    fs,
    sync::{
        Arc,
        atomic::{AtomicU64, Ordering},
    },
    time::Duration,
};

use bytes::BytesMut;
use capstan_clock::{Clock, RealClock};
use http_body_util::BodyExt as _;
use hyper::body::Incoming;
use tokio::task::JoinHandle;

use crate::{
    bench::Bench,
    client::{Call, Connection},
    load,
    process::Process,
    result::{Case, Sample},
    side::{Running, Side},
};

/// How many times better ours is to be.
const GOAL: f64 = 5.0;
/// How long pods may take to get their nodes.
const PATIENCE: Duration = Duration::from_secs(300);
/// How often it is looked whether all have theirs.
const LOOK: Duration = Duration::from_millis(1);
/// How long a scheduler that was just started is left alone, so that its own size is not counted as what it keeps.
const SETTLE: Duration = Duration::from_secs(1);
/// How often a pod comes that fits nowhere, where that is part of the workload.
const CHURN: Duration = Duration::from_millis(200);
/// The namespaces of the pods that are there before, and of those that are measured.
const BEFORE: &str = "sched-0";
const MEASURED: &str = "sched-1";

/// What pods are like.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Pods {
    Default,
    NodeAffinity,
    AntiAffinity,
    Affinity,
    Spread,
    Low,
    High,
    TooLarge,
}

/// What is measured.
#[derive(Clone, Copy, Debug)]
struct Workload {
    name: &'static str,
    /// Over how many zones the nodes are spread; 0 for none.
    zones: u64,
    before: Pods,
    measured: Pods,
    /// Whether pods that fit nowhere come meanwhile.
    churn: bool,
}

const fn workload(name: &'static str, zones: u64, before: Pods, measured: Pods) -> Workload {
    Workload { name, zones, before, measured, churn: false }
}

const WORKLOADS: [Workload; 7] = [
    workload("SchedulingBasic", 0, Pods::Default, Pods::Default),
    workload("SchedulingNodeAffinity", 1, Pods::NodeAffinity, Pods::NodeAffinity),
    workload("SchedulingPodAntiAffinity", 0, Pods::AntiAffinity, Pods::AntiAffinity),
    workload("SchedulingPodAffinity", 1, Pods::Affinity, Pods::Affinity),
    workload("TopologySpreading", 3, Pods::Default, Pods::Spread),
    workload("PreemptionBasic", 0, Pods::Low, Pods::High),
    Workload { churn: true, ..workload("Unschedulable", 0, Pods::Default, Pods::Default) },
];

impl Workload {
    /// How many pods there are before, and how many are measured.
    fn counts(&self, nodes: u64) -> (u64, u64) {
        match (self.measured, nodes) {
            // Every node is full, so that each pod has to evict.
            (Pods::High, 5_000..) => (4 * nodes, 1_000),
            (Pods::High, _) => (4 * nodes, nodes / 2),
            // No two of them on a node.
            (Pods::AntiAffinity, ..5_000) => (nodes / 5, nodes * 3 / 5),
            (Pods::AntiAffinity | Pods::Spread, _) => (1_000, 2_000),
            (_, 5_000..) => (1_000, 5_000),
            _ => (nodes, 2 * nodes),
        }
    }
}

pub(super) async fn run(bench: &mut Bench) -> Result<(), String> {
    let sizes: &[u64] = bench.settings.scale(&[100], &[500, 5_000]);
    let rounds = bench.settings.scale(1, bench.settings.rounds);
    for &nodes in sizes {
        for workload in WORKLOADS {
            for round in 1..=rounds {
                for side in bench.sides.clone() {
                    bench.say(&format!("{}, {nodes} nodes, {}, round {round} of {rounds}", workload.name, side.name()));
                    if let Err(error) = measure(bench, &side, workload, nodes).await {
                        let name = workload.name;
                        bench.failures.push(format!("B11 {name}, {nodes} nodes: {}: {error}", side.name()));
                    }
                }
            }
        }
    }
    Ok(())
}

async fn measure(bench: &mut Bench, side: &Side, workload: Workload, nodes: u64) -> Result<(), String> {
    let server = bench.server(side).await?;
    let measured = on_server(bench, &server, workload, nodes).await;
    bench.end(vec![server]).await;
    measured
}

async fn on_server(bench: &mut Bench, server: &Running, workload: Workload, nodes: u64) -> Result<(), String> {
    let (side, clock) = (server.side.name(), RealClock::new());
    load::fill(server, 0, 2, |number| {
        let body = format!(r#"{{"apiVersion":"v1","kind":"Namespace","metadata":{{"name":"sched-{number}"}}}}"#);
        Call::post("/api/v1/namespaces", body)
    })
    .await?;
    load::fill(server, 0, 1, |_| {
        let body =
            r#"{"apiVersion":"scheduling.k8s.io/v1","kind":"PriorityClass","metadata":{"name":"high"},"value":10}"#;
        Call::post("/apis/scheduling.k8s.io/v1/priorityclasses", body)
    })
    .await?;
    let mut scheduler = start(server)?;
    clock.sleep(SETTLE).await;
    scheduler.check()?;
    let empty = scheduler.usage();
    let zones = workload.zones;
    load::fill(server, 0, nodes, move |number| Call::post("/api/v1/nodes", node(number, zones))).await?;
    // New nodes are closed until somebody says that they are ready, and nobody does here.
    load::fill(server, 0, nodes, |number| {
        Call::merge_patch(format!("/api/v1/nodes/node-{number}"), r#"{"spec":{"taints":null}}"#)
    })
    .await?;

    let (before, measured) = workload.counts(nodes);
    let bound = Bound::watch(server, BEFORE).await?;
    create(server, BEFORE, workload.before, before).await?;
    bound.until(before, &mut scheduler).await?;
    let full = scheduler.usage();

    let bound = Bound::watch(server, MEASURED).await?;
    let churn = if workload.churn { Some(churn(server).await?) } else { None };
    let begin = clock.monotonic();
    create(server, MEASURED, workload.measured, measured).await?;
    bound.until(measured, &mut scheduler).await?;
    let took = clock.monotonic().since(begin);
    let after = scheduler.usage();
    if let Some(churn) = churn {
        churn.abort();
    }
    scheduler.stop().await;

    let name = workload.name;
    let rate = Case::more(format!("{name}, {nodes} nodes"), "pods/s").goal(GOAL);
    let sample = Sample::of(measured as f64 / took.as_secs_f64()).used(full, after, measured);
    bench.add(&rate, side, sample);
    let memory = Case::less(format!("{name}, {nodes} nodes, memory for each node and pod"), "KB");
    let each = (full.rss - empty.rss).max(0.0) * 1e3 / (nodes + before) as f64;
    bench.add(&memory, side, Sample::of(each));
    Ok(())
}

/// Starts the scheduler of a side, with nothing that would slow it down.
fn start(server: &Running) -> Result<Process, String> {
    let directory = server.directory();
    let fail = |error: std::io::Error| format!("{}: {error}", directory.display());
    let tokens = fs::read_to_string(directory.join("tokens.csv")).map_err(fail)?;
    let token = tokens.split(',').next().unwrap_or_default();
    let (address, at) = (server.endpoint.address(), directory.display());
    let kubeconfig = format!(
        "apiVersion: v1\nkind: Config\ncurrent-context: it\n\
         clusters: [{{name: it, cluster: {{server: \"https://{address}\", \
         certificate-authority: \"{at}/pki/ca.crt\"}}}}]\n\
         users: [{{name: it, user: {{token: \"{token}\"}}}}]\n\
         contexts: [{{name: it, context: {{cluster: it, user: it}}}}]\n"
    );
    fs::write(directory.join("kubeconfig"), kubeconfig).map_err(fail)?;
    let config = format!(
        "apiVersion: kubescheduler.config.k8s.io/v1\nkind: KubeSchedulerConfiguration\n\
         leaderElection: {{leaderElect: false}}\n\
         clientConnection: {{kubeconfig: \"{at}/kubeconfig\", qps: 10000, burst: 10000}}\n"
    );
    fs::write(directory.join("scheduler.yaml"), config).map_err(fail)?;
    match &server.side {
        Side::Capstan { binary } | Side::Cluster { binary, .. } => {
            let arguments =
                ["scheduler".to_owned(), format!("--kubeconfig={at}/kubeconfig"), "--leader-elect=false".to_owned()];
            Process::start(binary, &arguments, directory)
        }
        Side::Upstream { binaries } => {
            let arguments = [format!("--config={at}/scheduler.yaml"), "--secure-port=0".to_owned()];
            Process::start(&binaries.join("kube-scheduler"), &arguments, directory)
        }
    }
}

fn node(number: u64, zones: u64) -> String {
    let zone = match zones {
        0 => String::new(),
        zones => format!(r#","topology.kubernetes.io/zone":"zone{}""#, number % zones + 1),
    };
    let has = r#"{"cpu":"4","memory":"32Gi","pods":"110"}"#;
    format!(
        r#"{{"apiVersion":"v1","kind":"Node","metadata":{{"name":"node-{number}","labels":{{"kubernetes.io/hostname":"node-{number}"{zone}}}}},"spec":{{}},"status":{{"capacity":{has},"allocatable":{has},"conditions":[{{"type":"Ready","status":"True"}}]}}}}"#
    )
}

fn pod(kind: Pods, name: &str) -> String {
    let near = |rule: &str, color: &str, key: &str| {
        format!(
            r#""affinity":{{"{rule}":{{"requiredDuringSchedulingIgnoredDuringExecution":[{{"labelSelector":{{"matchLabels":{{"color":"{color}"}}}},"topologyKey":"{key}","namespaces":["{MEASURED}","{BEFORE}"]}}]}}}},"#
        )
    };
    let (labels, rules) = match kind {
        Pods::Default => ("", String::new()),
        Pods::TooLarge => ("", r#""priorityClassName":"high","#.to_owned()),
        Pods::Low => ("", r#""terminationGracePeriodSeconds":0,"#.to_owned()),
        Pods::High => ("", r#""priorityClassName":"high","#.to_owned()),
        Pods::NodeAffinity => (
            "",
            r#""affinity":{"nodeAffinity":{"requiredDuringSchedulingIgnoredDuringExecution":{"nodeSelectorTerms":[{"matchExpressions":[{"key":"topology.kubernetes.io/zone","operator":"In","values":["zone1","zone2"]}]}]}}},"#.to_owned(),
        ),
        Pods::AntiAffinity => (r#""color":"green""#, near("podAntiAffinity", "green", "kubernetes.io/hostname")),
        Pods::Affinity => (r#""color":"blue""#, near("podAffinity", "blue", "topology.kubernetes.io/zone")),
        Pods::Spread => (
            r#""color":"blue""#,
            r#""topologySpreadConstraints":[{"maxSkew":5,"topologyKey":"topology.kubernetes.io/zone","whenUnsatisfiable":"DoNotSchedule","labelSelector":{"matchLabels":{"color":"blue"}}}],"#.to_owned(),
        ),
    };
    let cpu = match kind {
        Pods::Low => "900m",
        Pods::High => "3000m",
        Pods::TooLarge => "9",
        _ => "100m",
    };
    let amounts = format!(r#"{{"cpu":"{cpu}","memory":"500Mi"}}"#);
    format!(
        r#"{{"apiVersion":"v1","kind":"Pod","metadata":{{"name":"{name}","labels":{{{labels}}}}},"spec":{{{rules}"containers":[{{"name":"pause","image":"registry.k8s.io/pause:3.10","ports":[{{"containerPort":80}}],"resources":{{"requests":{amounts},"limits":{amounts}}}}}]}}}}"#
    )
}

async fn create(server: &Running, namespace: &'static str, kind: Pods, count: u64) -> Result<(), String> {
    let path = format!("/api/v1/namespaces/{namespace}/pods");
    load::fill(server, 0, count, move |number| Call::post(path.clone(), pod(kind, &format!("pod-{number}")))).await
}

/// Pods that fit nowhere, one after the other, until this is ended.
async fn churn(server: &Running) -> Result<JoinHandle<()>, String> {
    let connection = server.connect().await?;
    Ok(tokio::spawn(async move {
        let clock = RealClock::new();
        for number in 0.. {
            let body = pod(Pods::TooLarge, &format!("large-{number}"));
            // One more or less does not matter.
            let _ = connection.call(Call::post(format!("/api/v1/namespaces/{BEFORE}/pods"), body)).await;
            clock.sleep(CHURN).await;
        }
    }))
}

/// How many pods of a namespace have got a node since.
struct Bound {
    count: Arc<AtomicU64>,
    reader: JoinHandle<()>,
}

impl Bound {
    async fn watch(server: &Running, namespace: &str) -> Result<Self, String> {
        let path = format!("/api/v1/namespaces/{namespace}/pods?watch=true&fieldSelector=spec.nodeName%21%3D");
        let connection = server.connect().await?;
        let mut body = Some(open(&connection, &path).await?);
        let count = Arc::new(AtomicU64::new(0));
        let counter = Arc::clone(&count);
        let reader = tokio::spawn(async move {
            let mut names = HashSet::new();
            loop {
                // A server may end a watch that it finds too slow; the next one begins with all that there is.
                let Some(mut body) = body.take() else {
                    RealClock::new().sleep(LOOK).await;
                    body = open(&connection, &path).await.ok();
                    continue;
                };
                let mut text = BytesMut::new();
                while let Some(Ok(frame)) = body.frame().await {
                    let Ok(data) = frame.into_data() else { continue };
                    text.extend_from_slice(&data);
                    while let Some(end) = text.iter().position(|byte| *byte == b'\n') {
                        names.extend(name(&text.split_to(end + 1)));
                        counter.store(names.len() as u64, Ordering::Relaxed);
                    }
                }
            }
        });
        Ok(Bound { count, reader })
    }

    /// Waits until so many have one.
    async fn until(self, wanted: u64, scheduler: &mut Process) -> Result<(), String> {
        let clock = RealClock::new();
        loop {
            let count = self.count.load(Ordering::Relaxed);
            if count >= wanted {
                return Ok(());
            }
            scheduler.check()?;
            if clock.monotonic().0 > PATIENCE {
                return Err(format!("after {} s only {count} of {wanted} pods have a node", PATIENCE.as_secs()));
            }
            clock.sleep(LOOK).await;
        }
    }
}

impl Drop for Bound {
    fn drop(&mut self) {
        self.reader.abort();
    }
}

async fn open(connection: &Connection, path: &str) -> Result<Incoming, String> {
    connection.open(Call::get(path)).await.map_err(|error| format!("watching: {error}"))
}

/// The name of the pod of an event: the first name in it that is one of ours.
fn name(event: &[u8]) -> Option<Vec<u8>> {
    const MARK: &[u8] = br#""name":"pod-"#;
    let at = event.windows(MARK.len()).position(|window| window == MARK)? + MARK.len();
    Some(event[at..].iter().copied().take_while(|byte| *byte != b'"').collect())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn bodies_are_json() {
        let kinds = [
            Pods::Default,
            Pods::NodeAffinity,
            Pods::AntiAffinity,
            Pods::Affinity,
            Pods::Spread,
            Pods::Low,
            Pods::High,
            Pods::TooLarge,
        ];
        let pods = kinds.into_iter().map(|kind| pod(kind, "p"));
        for body in pods.chain([node(1, 0), node(1, 3)]) {
            assert!(capstan_api::json::parse(body.as_bytes()).is_ok(), "{body}");
        }
    }

    #[test]
    fn names_of_events() {
        let event = br#"{"type":"ADDED","object":{"metadata":{"name":"pod-17","labels":{}},"spec":{"name":"pod-1"}}}"#;
        assert_eq!(name(event).as_deref(), Some(&b"17"[..]));
        assert_eq!(name(b"{}"), None);
    }

    #[test]
    fn all_pods_fit() {
        for nodes in [100, 500, 5_000] {
            for workload in WORKLOADS {
                let (before, measured) = workload.counts(nodes);
                let room = match workload.measured {
                    Pods::AntiAffinity => nodes,
                    Pods::High => 4 * nodes + nodes,
                    // 40 of them take all CPU of a node.
                    _ => 40 * nodes,
                };
                assert!(before + measured <= room, "{workload:?} {nodes}");
            }
        }
    }
}
