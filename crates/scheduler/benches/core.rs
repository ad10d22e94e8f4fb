//! Decisions a second of the core alone, on the workloads that upstream's scheduler_perf names.
//!
//! `cargo bench -p capstan-scheduler --bench core`, or with sizes and workloads: `… -- 500 5000 Preemption`. A decision
//! is looking for a node and assuming the pod there; reading the pod is shown apart. Times are those on a processor, so
//! that it does not matter much what else the machine does.

#![expect(clippy::unwrap_used, reason = "a program that prints what it has measured")]

use std::{sync::Arc, time::Duration};

use capstan_clock::{Clock, RealClock, SeededIds};
use capstan_scheduler::{
    core::{Core, Outcome},
    pod_info::PodInfo,
    profile::Profile,
};
use k8s_openapi::{
    api::core::v1::{Node, Pod},
    serde::de::DeserializeOwned,
};

fn object<K: DeserializeOwned>(json: &str) -> K {
    serde_json::from_str(json).unwrap_or_else(|error| panic!("{json}: {error}"))
}

fn node(at: usize) -> Node {
    object(&format!(
        r#"{{"metadata": {{"name": "node-{at}", "labels": {{"kubernetes.io/hostname": "node-{at}",
        "topology.kubernetes.io/zone": "zone{}", "kubernetes.io/os": "linux"}}}},
        "status": {{"allocatable": {{"cpu": "4", "memory": "32Gi", "pods": "110"}}}}}}"#,
        at % 3
    ))
}

/// A pod: its labels, what it asks for, and the rest of its spec.
fn pod(name: &str, labels: &str, requests: &str, spec: &str) -> Pod {
    object(&format!(
        r#"{{"metadata": {{"name": "{name}", "namespace": "default", "uid": "{name}", "labels": {{{labels}}}}},
        "spec": {{{spec} "containers": [{{"name": "pause", "image": "registry.k8s.io/pause:3.10.1",
        "resources": {{"requests": {{{requests}}}}}}}]}}}}"#
    ))
}

struct Workload {
    name: &'static str,
    labels: &'static str,
    requests: &'static str,
    spec: &'static str,
    /// Pods that are on each node before, and what they ask for.
    before: (usize, &'static str),
    /// How many pods are measured, at most as many as there are nodes times this.
    per_node: usize,
}

const BASIC: &str = r#""cpu": "100m", "memory": "500Mi""#;

const WORKLOADS: [Workload; 7] = [
    Workload { name: "SchedulingBasic", labels: "", requests: BASIC, spec: "", before: (1, BASIC), per_node: 10 },
    Workload {
        name: "NodeAffinity",
        labels: "",
        requests: BASIC,
        spec: r#""affinity": {"nodeAffinity": {"requiredDuringSchedulingIgnoredDuringExecution": {"nodeSelectorTerms":
            [{"matchExpressions": [{"key": "topology.kubernetes.io/zone", "operator": "In",
            "values": ["zone0", "zone1"]}]}]}}},"#,
        before: (1, BASIC),
        per_node: 10,
    },
    Workload {
        name: "PodAntiAffinity",
        labels: r#""color": "green""#,
        requests: BASIC,
        spec: r#""affinity": {"podAntiAffinity": {"requiredDuringSchedulingIgnoredDuringExecution": [{"labelSelector":
            {"matchLabels": {"color": "green"}}, "topologyKey": "kubernetes.io/hostname"}]}},"#,
        before: (1, BASIC),
        per_node: 1,
    },
    Workload {
        name: "PodAffinity",
        labels: r#""foo": """#,
        requests: BASIC,
        spec: r#""affinity": {"podAffinity": {"requiredDuringSchedulingIgnoredDuringExecution": [{"labelSelector":
            {"matchLabels": {"foo": ""}}, "topologyKey": "topology.kubernetes.io/zone"}]}},"#,
        before: (1, BASIC),
        per_node: 5,
    },
    Workload {
        name: "TopologySpreading",
        labels: r#""color": "blue""#,
        requests: BASIC,
        spec: r#""topologySpreadConstraints": [{"maxSkew": 5, "topologyKey": "topology.kubernetes.io/zone",
            "whenUnsatisfiable": "DoNotSchedule", "labelSelector": {"matchLabels": {"color": "blue"}}}],"#,
        before: (1, BASIC),
        per_node: 10,
    },
    Workload {
        name: "Preemption",
        labels: "",
        requests: r#""cpu": "3", "memory": "500Mi""#,
        spec: r#""priority": 10,"#,
        before: (4, r#""cpu": "900m", "memory": "500Mi""#),
        per_node: 1,
    },
    Workload {
        name: "Unschedulable",
        labels: "",
        requests: r#""cpu": "9", "memory": "500Mi""#,
        spec: "",
        before: (1, BASIC),
        per_node: 1,
    },
];

/// How long this process has been on a processor.
fn on_cpu() -> Duration {
    let text = std::fs::read_to_string("/proc/self/schedstat").unwrap();
    Duration::from_nanos(text.split_whitespace().next().unwrap().parse().unwrap())
}

fn resident() -> Option<u64> {
    let text = std::fs::read_to_string("/proc/self/statm").ok()?;
    text.split_whitespace().nth(1)?.parse::<u64>().ok().map(|pages| pages * 4096)
}

fn run(workload: &Workload, nodes: usize, clock: &RealClock) {
    let profile = Profile::default();
    let mut core = Core::new(Arc::new(SeededIds::new(1)));
    for at in 0..nodes {
        core.cache.put_node(Arc::new(node(at)));
        for n in 0..workload.before.0 {
            let mut pod = pod(&format!("before-{at}-{n}"), "", workload.before.1, "");
            pod.spec.as_mut().unwrap().node_name = Some(format!("node-{at}"));
            core.cache.put_pod(&Arc::new(PodInfo::new(Arc::new(pod))));
        }
    }
    let count = (nodes * workload.per_node).min(20_000);
    let raw: Vec<_> = (0..count)
        .map(|n| Arc::new(pod(&format!("pod-{n}"), workload.labels, workload.requests, workload.spec)))
        .collect();
    let begun = on_cpu();
    let pods: Vec<_> = raw.into_iter().map(|pod| Arc::new(PodInfo::new(pod))).collect();
    let read = on_cpu().saturating_sub(begun);

    let (mut placed, mut evicted) = (0, 0);
    let limit = Duration::from_secs(10);
    let (begun, since) = (on_cpu(), clock.monotonic());
    let mut decided = 0;
    for pod in &pods {
        decided += 1;
        match core.schedule(&profile, pod) {
            Outcome::Placed { slot, .. } => {
                core.cache.assume(pod, slot);
                placed += 1;
            }
            Outcome::Unschedulable { victims: Some(victims), .. } => {
                // As if the evicted were gone at once, and the pod looked again.
                for victim in &victims.pods {
                    core.cache.remove_pod(&victim.uid);
                    evicted += 1;
                }
                core.cache.assume(pod, victims.slot);
                placed += 1;
            }
            _ => {}
        }
        if clock.monotonic().since(since) > limit {
            break;
        }
    }
    let took = on_cpu().saturating_sub(begun);
    println!(
        "{:<18} {nodes:>6} nodes {decided:>6} pods {:>10.0} decisions/s  {:>8.2} us each  placed {placed}, evicted \
         {evicted}  (reading a pod {:.2} us)",
        workload.name,
        f64::from(decided) / took.as_secs_f64(),
        took.as_secs_f64() * 1e6 / f64::from(decided),
        read.as_secs_f64() * 1e6 / count as f64,
    );
}

fn memory(nodes: usize) {
    let mut core = Core::new(Arc::new(SeededIds::new(1)));
    let start = resident().unwrap_or_default();
    for at in 0..nodes {
        core.cache.put_node(Arc::new(node(at)));
    }
    let with_nodes = resident().unwrap_or_default();
    for n in 0..nodes * 10 {
        let mut pod = pod(&format!("pod-{n}"), r#""app": "web""#, BASIC, "");
        pod.spec.as_mut().unwrap().node_name = Some(format!("node-{}", n % nodes));
        core.cache.put_pod(&Arc::new(PodInfo::new(Arc::new(pod))));
    }
    let with_pods = resident().unwrap_or_default();
    println!(
        "memory: {} bytes a node, {} bytes a pod (both with the object itself)",
        (with_nodes - start) / nodes as u64,
        (with_pods - with_nodes) / (nodes as u64 * 10)
    );
}

fn main() {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    let sizes: Vec<usize> = arguments.iter().filter_map(|argument| argument.parse().ok()).collect();
    let sizes = if sizes.is_empty() { vec![500, 5000] } else { sizes };
    let named = |workload: &&Workload| arguments.iter().any(|argument| argument == workload.name);
    let all = !WORKLOADS.iter().any(|workload| named(&workload));
    let clock = RealClock::new();
    if all {
        memory(sizes.iter().copied().max().unwrap_or(5000));
    }
    for nodes in sizes {
        for workload in WORKLOADS.iter().filter(|workload| all || named(workload)) {
            run(workload, nodes, &clock);
        }
    }
}
