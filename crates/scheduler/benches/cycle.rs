//! Pods a second of the whole loop, with the server in the same process: no sockets, no TLS, one memory store.
//!
//! `cargo bench -p capstan-scheduler --bench cycle`, or with workloads and a number of nodes: `… -- Preemption 500`.
//! What counts is the time from the first create until every measured pod has its node, and the CPU of all of it.

#![expect(clippy::unwrap_used, reason = "a program that prints what it has measured")]

use std::{collections::HashSet, sync::Arc, time::Duration};

use capstan_api::options::ListOptions;
use capstan_client::{Api, Client, Event, Patch};
use capstan_clock::{Clock, OsIds, RealClock};
use capstan_runtime::Stopper;
use capstan_scheduler::{Scheduler, SchedulerConfig};
use capstan_server::{Config, Server, authorization::UserInfo};
use capstan_storage::{Memory, Options};
use k8s_openapi::{
    api::{
        core::v1::{Node, Pod, ServiceAccount},
        scheduling::v1::PriorityClass,
    },
    serde::de::DeserializeOwned,
};

fn object<K: DeserializeOwned>(yaml: &str) -> K {
    capstan_api::value::from_value(capstan_api::yaml::parse(yaml.as_bytes()).unwrap()).unwrap()
}

/// Pods that are there before and pods that are measured: how many for a node, and what they are like.
struct Workload {
    name: &'static str,
    before: (f64, &'static str, &'static str),
    measured: (f64, &'static str, &'static str),
    /// Pods that fit nowhere, among those that are measured.
    hopeless: usize,
}

const NEAR: &str = "affinity: {podAffinity: {requiredDuringSchedulingIgnoredDuringExecution: [{labelSelector: \
                    {matchLabels: {color: blue}}, topologyKey: topology.kubernetes.io/zone}]}},";
const LOW: &str = "terminationGracePeriodSeconds: 0,";
const HIGH: &str = "priorityClassName: high,";

const WORKLOADS: [Workload; 4] = [
    Workload { name: "SchedulingBasic", before: (1.0, "100m", ""), measured: (10.0, "100m", ""), hopeless: 0 },
    Workload { name: "PodAffinity", before: (1.0, "100m", NEAR), measured: (10.0, "100m", NEAR), hopeless: 0 },
    Workload { name: "Preemption", before: (4.0, "900m", LOW), measured: (0.5, "3", HIGH), hopeless: 0 },
    Workload { name: "Unschedulable", before: (1.0, "100m", ""), measured: (10.0, "100m", ""), hopeless: 100 },
];

/// User and system time of this process.
fn cpu() -> Duration {
    let text = std::fs::read_to_string("/proc/self/stat").unwrap();
    let ticks = text.rsplit(')').next().unwrap().split_whitespace();
    Duration::from_millis(ticks.skip(11).take(2).map(|n| n.parse::<u64>().unwrap() * 10).sum())
}

async fn create(client: &Client, prefix: &str, count: usize, cpu: &str, spec: &str) {
    let pods = Api::<Pod>::namespaced(client, "default");
    for at in 0..count {
        let yaml = format!(
            "{{apiVersion: v1, kind: Pod, metadata: {{name: {prefix}-{at}, labels: {{color: blue, set: {prefix}}}}}, spec: {{{spec} \
             containers: [{{name: c, image: i, resources: {{requests: {{cpu: {cpu}, memory: 500Mi}}}}}}]}}}}"
        );
        pods.create(&object(&yaml)).await.unwrap();
    }
}

/// Waits until so many pods of a set have a node, with every change of one.
async fn placed(client: &Client, prefix: &str, count: usize) {
    let pods = Api::<Pod>::namespaced(client, "default");
    let of = ListOptions { label_selector: format!("set={prefix}"), ..ListOptions::default() };
    let mut watch = pods.watch(&of).await.unwrap();
    let mut done = HashSet::new();
    while done.len() < count {
        let event = watch.try_next().await.unwrap().unwrap();
        if let Event::Added(pod) | Event::Modified(pod) = event
            && pod.spec.as_ref().unwrap().node_name.is_some()
        {
            done.insert(pod.metadata.name.unwrap());
        }
    }
}

async fn run(workload: &Workload, nodes: usize) {
    let server = Server::start(Arc::new(Memory::new(Options::default())), Config::default()).await.unwrap();
    let client = Client::from_service(server.as_user(UserInfo::new("admin", ["system:masters"])));
    let account = object("{apiVersion: v1, kind: ServiceAccount, metadata: {name: default}}");
    Api::<ServiceAccount>::namespaced(&client, "default").create(&account).await.unwrap();
    let class = "{apiVersion: scheduling.k8s.io/v1, kind: PriorityClass, metadata: {name: high}, value: 10}";
    Api::<PriorityClass>::all(&client).create(&object(class)).await.unwrap();
    let api = Api::<Node>::all(&client);
    for at in 0..nodes {
        let size = "{cpu: '4', memory: 32Gi, pods: '110'}";
        let yaml = format!(
            "{{apiVersion: v1, kind: Node, metadata: {{name: n{at}, labels: {{topology.kubernetes.io/zone: z}}}}, \
             status: {{capacity: {size}, allocatable: {size}}}}}"
        );
        api.create(&object(&yaml)).await.unwrap();
        let patch = Patch::Merge(serde_json::json!({"spec": {"taints": null}}));
        api.patch(&format!("n{at}"), &patch).await.unwrap();
    }
    let clock = Arc::new(RealClock::new());
    let (_stopper, stop) = Stopper::new();
    let scheduler = Scheduler::new(client.clone(), clock.clone(), Arc::new(OsIds), SchedulerConfig::default());
    let handle = scheduler.handle();
    let running = tokio::spawn(scheduler.run(stop));

    let of = |per_node: f64| (nodes as f64 * per_node) as usize;
    let (each, asks, spec) = workload.before;
    create(&client, "before", of(each), asks, spec).await;
    placed(&client, "before", of(each)).await;
    create(&client, "large", workload.hopeless, "9", HIGH).await;
    let (begun, before) = (clock.monotonic(), cpu());
    let (each, asks, spec) = workload.measured;
    create(&client, "pod", of(each), asks, spec).await;
    let created = clock.monotonic().since(begun);
    placed(&client, "pod", of(each)).await;
    let (took, used) = (clock.monotonic().since(begun), cpu().saturating_sub(before));
    let each = 1.0 / of(each) as f64;
    println!(
        "{:<18} {nodes:>6} nodes {:>6} pods {:>8.0} pods/s  CPU {:>6.0} us each  (creating them took {:.2} of {:.2} s)",
        workload.name,
        of(workload.measured.0),
        1.0 / (took.as_secs_f64() * each),
        used.as_secs_f64() * each * 1e6,
        created.as_secs_f64(),
        took.as_secs_f64(),
    );
    if std::env::args().any(|argument| argument == "metrics") {
        println!("{}", handle.metrics());
    }
    running.abort();
}

fn main() {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    let nodes = arguments.iter().find_map(|argument| argument.parse().ok()).unwrap_or(100);
    let named = |workload: &&Workload| arguments.iter().any(|argument| argument == workload.name);
    let all = !WORKLOADS.iter().any(|workload| named(&workload));
    let runtime = tokio::runtime::Builder::new_multi_thread().worker_threads(2).enable_all().build().unwrap();
    for workload in WORKLOADS.iter().filter(|workload| all || named(workload)) {
        runtime.block_on(run(workload, nodes));
    }
}
