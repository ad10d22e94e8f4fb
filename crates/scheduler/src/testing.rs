//! Objects from a few lines of YAML, for tests.

use k8s_openapi::{
    api::core::v1::{Node, Pod},
    serde::de::DeserializeOwned,
};

/// Any object.
#[track_caller]
pub(crate) fn object<K: DeserializeOwned>(yaml: &str) -> K {
    let value = capstan_api::yaml::parse(yaml.as_bytes()).unwrap_or_else(|error| panic!("{yaml}: {error}"));
    capstan_api::value::from_value(value).unwrap_or_else(|error| panic!("{yaml}: {error}"))
}

/// A pod.
#[track_caller]
pub(crate) fn pod(yaml: &str) -> Pod {
    object(yaml)
}

/// A node.
#[track_caller]
pub(crate) fn node(yaml: &str) -> Node {
    object(yaml)
}

/// `key=value` as YAML.
fn quoted(pair: &str) -> String {
    let (key, value) = pair.split_once('=').unwrap();
    format!("'{key}': '{value}'")
}

/// A node from one line: its name, then `cpu=4 mem=8Gi pods=10 label:k=v taint:k=v:NoSchedule unschedulable`, and
/// `yaml:` for what else there is.
#[track_caller]
pub(crate) fn node_line(line: &str) -> Node {
    let (words, rest) = line.split_once(" yaml:").unwrap_or((line, ""));
    let mut words = words.split_whitespace();
    let name = words.next().unwrap();
    let mut labels = vec![format!("kubernetes.io/hostname: '{name}'")];
    let (mut taints, mut allocatable, mut unschedulable) = (vec![], vec![], false);
    let mut pods = "110".to_owned();
    for word in words {
        match word.split_once(['=', ':']) {
            Some(("cpu", amount)) => allocatable.push(format!("cpu: '{amount}'")),
            Some(("mem", amount)) => allocatable.push(format!("memory: '{amount}'")),
            Some(("gpu", amount)) => allocatable.push(format!("example.com/gpu: '{amount}'")),
            Some(("pods", amount)) => amount.clone_into(&mut pods),
            Some(("zone", zone)) => labels.push(format!("topology.kubernetes.io/zone: '{zone}'")),
            Some(("label", pair)) => labels.push(quoted(pair)),
            Some(("taint", taint)) => {
                let (pair, effect) = taint.split_once(':').unwrap();
                let (key, value) = pair.split_once('=').unwrap();
                taints.push(format!("{{key: {key}, value: '{value}', effect: {effect}}}"));
            }
            _ if word == "unschedulable" => unschedulable = true,
            _ => panic!("{line}: {word}"),
        }
    }
    allocatable.push(format!("pods: '{pods}'"));
    let rest = if rest.is_empty() { String::new() } else { format!(", {rest}") };
    node(&format!(
        "{{metadata: {{name: '{name}', labels: {{{}}}}}, spec: {{unschedulable: {unschedulable}, taints: [{}]}}, \
         status: {{allocatable: {{{}}}{rest}}}}}",
        labels.join(", "),
        taints.join(", "),
        allocatable.join(", ")
    ))
}

/// A pod from one line: its name, then what it asks for:
/// `cpu=1 mem=1Gi gpu=1 prio=5 ns=x on=node port=80 label:k=v select:k=v tolerate:k=v started=9 never deleted`,
/// `near:app=web@zone`, `far:…`, `like-near:…`, `like-far:…` for rules about pods nearby, `spread:app=web@zone:1`
/// and `like-spread:…`, and `yaml:` for the rest of its spec.
#[track_caller]
pub(crate) fn pod_line(line: &str) -> Pod {
    let (words, rest) = line.split_once(" yaml:").unwrap_or((line, ""));
    let mut words = words.split_whitespace();
    let name = words.next().unwrap();
    let key = |key: &str| match key {
        "zone" => "topology.kubernetes.io/zone".to_owned(),
        "host" => "kubernetes.io/hostname".to_owned(),
        other => other.to_owned(),
    };
    let term = |text: &str| {
        let (pair, at) = text.split_once('@').unwrap();
        let pair = quoted(pair);
        format!("{{labelSelector: {{matchLabels: {{{pair}}}}}, topologyKey: {}}}", key(at))
    };
    let (mut namespace, mut labels, mut requests, mut spec) = ("default".to_owned(), vec![], vec![], vec![]);
    let (mut ports, mut tolerations, mut selector, mut spread) = (vec![], vec![], vec![], vec![]);
    let (mut near, mut far, mut like_near, mut like_far) = (vec![], vec![], vec![], vec![]);
    let (mut status, mut deleted) = (vec![], "");
    for word in words {
        let (what, of) = word.split_once(['=', ':']).unwrap_or((word, ""));
        match what {
            "cpu" => requests.push(format!("cpu: '{of}'")),
            "mem" => requests.push(format!("memory: '{of}'")),
            "gpu" => requests.push(format!("example.com/gpu: '{of}'")),
            "prio" => spec.push(format!("priority: {of}")),
            "never" => spec.push("preemptionPolicy: Never".to_owned()),
            "ns" => of.clone_into(&mut namespace),
            "on" => spec.push(format!("nodeName: '{of}'")),
            "port" => ports.push(format!("{{containerPort: {of}, hostPort: {of}}}")),
            "label" => labels.push(quoted(of)),
            "select" => selector.push(quoted(of)),
            "tolerate" => {
                let (key, value) = of.split_once('=').unwrap();
                tolerations.push(format!("{{key: {key}, value: '{value}'}}"));
            }
            "near" => near.push(term(of)),
            "far" => far.push(term(of)),
            "like-near" => like_near.push(format!("{{weight: 1, podAffinityTerm: {}}}", term(of))),
            "like-far" => like_far.push(format!("{{weight: 1, podAffinityTerm: {}}}", term(of))),
            "spread" | "like-spread" => {
                let (pair, at) = of.split_once('@').unwrap();
                let (at, skew) = at.split_once(':').unwrap();
                let action = if what == "spread" { "DoNotSchedule" } else { "ScheduleAnyway" };
                spread.push(format!(
                    "{{labelSelector: {{matchLabels: {{{}}}}}, topologyKey: {}, maxSkew: {skew}, \
                     whenUnsatisfiable: {action}}}",
                    quoted(pair),
                    key(at)
                ));
            }
            "started" => status.push(format!("startTime: 2026-01-01T00:00:{of:0>2}Z")),
            "nominated" => status.push(format!("nominatedNodeName: {of}")),
            "deleted" => deleted = ", deletionTimestamp: 2026-01-01T00:00:00Z",
            _ => panic!("{line}: {word}"),
        }
    }
    if !rest.is_empty() {
        spec.push(rest.to_owned());
    }
    let affinity = |name: &str, required: &[String], preferred: &[String]| {
        format!(
            "{name}: {{requiredDuringSchedulingIgnoredDuringExecution: [{}], \
             preferredDuringSchedulingIgnoredDuringExecution: [{}]}}",
            required.join(", "),
            preferred.join(", ")
        )
    };
    if !(near.is_empty() && far.is_empty() && like_near.is_empty() && like_far.is_empty()) {
        let (near, far) = (affinity("podAffinity", &near, &like_near), affinity("podAntiAffinity", &far, &like_far));
        spec.push(format!("affinity: {{{near}, {far}}}"));
    }
    for (field, list) in [("tolerations", &tolerations), ("topologySpreadConstraints", &spread)] {
        if !list.is_empty() {
            spec.push(format!("{field}: [{}]", list.join(", ")));
        }
    }
    if !selector.is_empty() {
        spec.push(format!("nodeSelector: {{{}}}", selector.join(", ")));
    }
    spec.push(format!(
        "containers: [{{name: c, image: img, ports: [{}], resources: {{requests: {{{}}}}}}}]",
        ports.join(", "),
        requests.join(", ")
    ));
    pod(&format!(
        "{{metadata: {{name: '{name}', namespace: '{namespace}', uid: '{namespace}/{name}', labels: {{{}}}{deleted}}}, \
         spec: {{{}}}, status: {{{}}}}}",
        labels.join(", "),
        spec.join(", "),
        status.join(", ")
    ))
}

/// A core with nodes and pods, one a line: `node …`, `pod …`, or a kind of its own in YAML: `budget …`.
#[track_caller]
pub(crate) fn cluster(lines: &str) -> crate::core::Core {
    let mut core = crate::core::Core::new(std::sync::Arc::new(capstan_clock::SeededIds::new(1)));
    for line in lines.lines().map(str::trim).filter(|line| !line.is_empty()) {
        match line.split_once(' ').unwrap() {
            ("node", line) => core.cache.put_node(std::sync::Arc::new(node_line(line))),
            ("pod", line) => core.cache.put_pod(&info(line)),
            ("budget", yaml) => put::<k8s_openapi::api::policy::v1::PodDisruptionBudget>(&mut core, yaml),
            ("service", yaml) => put::<k8s_openapi::api::core::v1::Service>(&mut core, yaml),
            ("namespace", yaml) => put::<k8s_openapi::api::core::v1::Namespace>(&mut core, yaml),
            ("claim", yaml) => put::<k8s_openapi::api::core::v1::PersistentVolumeClaim>(&mut core, yaml),
            ("volume", yaml) => put::<k8s_openapi::api::core::v1::PersistentVolume>(&mut core, yaml),
            ("class", yaml) => put::<k8s_openapi::api::storage::v1::StorageClass>(&mut core, yaml),
            ("slice", yaml) => put::<k8s_openapi::api::resource::v1::ResourceSlice>(&mut core, yaml),
            ("devices", yaml) => put::<k8s_openapi::api::resource::v1::DeviceClass>(&mut core, yaml),
            ("resourceclaim", yaml) => put::<k8s_openapi::api::resource::v1::ResourceClaim>(&mut core, yaml),
            ("csinode", yaml) => put::<k8s_openapi::api::storage::v1::CSINode>(&mut core, yaml),
            _ => panic!("{line}"),
        }
    }
    core
}

fn put<K: crate::world::Known + DeserializeOwned>(core: &mut crate::core::Core, yaml: &str) {
    core.cache.world.put(std::sync::Arc::new(object::<K>(yaml)));
}

/// A pod from one line, read.
#[track_caller]
pub(crate) fn info(line: &str) -> std::sync::Arc<crate::pod_info::PodInfo> {
    std::sync::Arc::new(crate::pod_info::PodInfo::new(std::sync::Arc::new(pod_line(line))))
}
