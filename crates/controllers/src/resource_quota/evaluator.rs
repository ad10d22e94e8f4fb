//! What objects use of a quota. Pure, by the same rules as the server's admission.

use capstan_api::{GroupResource, Quantity, quantity::Format};
use capstan_clock::Timestamp;
use serde_json::Value;

use super::amounts::{Amounts, add, is_best_effort, items, of_pod, read, text};

const REQUESTS: &str = "requests.";
const HUGE_PAGES: &str = "hugepages-";
const DEVICE_CLASS: &str = "deviceclass.resource.kubernetes.io/";
const STORAGE_CLASS_INFIX: &str = ".storageclass.storage.k8s.io/";
const PER_DEVICE_CLASS: &str = ".deviceclass.resource.k8s.io/devices";
/// How many devices a request for all of them may get.
const MAX_DEVICES: i64 = 32;

const POD_RESOURCES: [&str; 11] = [
    "count/pods",
    "cpu",
    "ephemeral-storage",
    "limits.cpu",
    "limits.ephemeral-storage",
    "limits.memory",
    "memory",
    "pods",
    "requests.cpu",
    "requests.ephemeral-storage",
    "requests.memory",
];
const SERVICE_RESOURCES: [&str; 4] = ["count/services", "services", "services.loadbalancers", "services.nodeports"];
const CLAIM_RESOURCES: [&str; 2] = ["persistentvolumeclaims", "requests.storage"];
/// What is also counted under its plain name.
const ALIASED: [&str; 4] = ["configmaps", "replicationcontrollers", "resourcequotas", "secrets"];

/// How the objects of one resource are counted.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Evaluator {
    Pods,
    Services,
    PersistentVolumeClaims,
    ResourceClaims,
    /// Only their number.
    Count(GroupResource),
}

fn number(count: i64) -> Quantity {
    Quantity::new(count, Format::DecimalSI)
}

fn count_name(resource: &GroupResource) -> String {
    let GroupResource { group, resource } = resource;
    if group.is_empty() { format!("count/{resource}") } else { format!("count/{resource}.{group}") }
}

fn is_native(name: &str) -> bool {
    !name.contains('/') || name.contains("kubernetes.io/")
}

fn is_pod_resource(name: &str) -> bool {
    let of_requests = name.strip_prefix(REQUESTS);
    POD_RESOURCES.contains(&name)
        || name.starts_with(HUGE_PAGES)
        || of_requests
            .is_some_and(|rest| rest.starts_with(HUGE_PAGES) || rest.starts_with(DEVICE_CLASS) || !is_native(name))
}

impl Evaluator {
    pub(super) fn of(resource: &GroupResource) -> Option<Self> {
        Some(match (&*resource.group, &*resource.resource) {
            ("" | "events.k8s.io", "events") => return None,
            ("", "pods") => Evaluator::Pods,
            ("", "services") => Evaluator::Services,
            ("", "persistentvolumeclaims") => Evaluator::PersistentVolumeClaims,
            ("resource.k8s.io", "resourceclaims") => Evaluator::ResourceClaims,
            _ => Evaluator::Count(resource.clone()),
        })
    }

    /// The evaluators that a quota with these names needs.
    pub(super) fn for_names<'a>(names: impl Iterator<Item = &'a String> + Clone) -> Vec<Self> {
        let special =
            [Evaluator::Pods, Evaluator::Services, Evaluator::PersistentVolumeClaims, Evaluator::ResourceClaims];
        let counted = names.clone().filter_map(|name| {
            let name = if ALIASED.contains(&name.as_str()) { name } else { name.strip_prefix("count/")? };
            let (resource, group) = name.split_once('.').unwrap_or((name, ""));
            Evaluator::of(&GroupResource::new(group.to_owned(), resource.to_owned()))
        });
        let mut found: Vec<Evaluator> = Vec::new();
        for evaluator in special.into_iter().chain(counted) {
            if !found.contains(&evaluator) && names.clone().any(|name| evaluator.counts(name)) {
                found.push(evaluator);
            }
        }
        found
    }

    /// Whether objects of this kind use what has this name.
    pub(super) fn counts(&self, name: &str) -> bool {
        match self {
            Evaluator::Pods => is_pod_resource(name),
            Evaluator::Services => SERVICE_RESOURCES.contains(&name),
            Evaluator::PersistentVolumeClaims => {
                let plain = name.split_once(STORAGE_CLASS_INFIX).map_or(name, |(_, plain)| plain);
                name == "count/persistentvolumeclaims" || CLAIM_RESOURCES.contains(&plain)
            }
            Evaluator::ResourceClaims => {
                name == "count/resourceclaims.resource.k8s.io" || name.ends_with(PER_DEVICE_CLASS)
            }
            Evaluator::Count(resource) => {
                name == count_name(resource)
                    || (resource.group.is_empty() && *resource.resource == *name && ALIASED.contains(&name))
            }
        }
    }

    /// What an object uses.
    pub(super) fn usage(&self, object: &Value, now: Timestamp) -> Amounts {
        match self {
            Evaluator::Pods => pod(object, now),
            Evaluator::Services => service(object),
            Evaluator::PersistentVolumeClaims => claim(object),
            Evaluator::ResourceClaims => devices(object),
            // Names that are not asked for are dropped by who adds up.
            Evaluator::Count(resource) => {
                Amounts::from([(count_name(resource), number(1)), (resource.resource.to_string(), number(1))])
            }
        }
    }

    /// Whether the object is in a scope of a quota.
    pub(super) fn is_in_scope(&self, scope: &Scope, object: &Value) -> bool {
        match self {
            Evaluator::Pods => scope.has_pod(object),
            Evaluator::PersistentVolumeClaims => scope.has_claim(object),
            _ => false,
        }
    }
}

/// Whether a pod takes anything but its place.
pub(super) fn has_ended(pod: &Value, now: Timestamp) -> bool {
    if ["Failed", "Succeeded"].contains(&text(&pod["status"], "phase")) {
        return true;
    }
    let metadata = &pod["metadata"];
    let deleted = text(metadata, "deletionTimestamp").parse::<Timestamp>().ok();
    let grace = metadata["deletionGracePeriodSeconds"].as_i64();
    deleted.zip(grace).is_some_and(|(deleted, grace)| now.as_second() > deleted.as_second().saturating_add(grace))
}

fn pod(pod: &Value, now: Timestamp) -> Amounts {
    let mut usage = Amounts::from([("count/pods".to_owned(), number(1))]);
    if has_ended(pod, now) {
        return usage;
    }
    usage.insert("pods".to_owned(), number(1));
    for (name, amount) in of_pod(pod, "requests") {
        let compute = ["cpu", "memory", "ephemeral-storage"].contains(&name.as_str()) || name.starts_with(HUGE_PAGES);
        if compute || name.starts_with(DEVICE_CLASS) || !is_native(&name) {
            usage.insert(format!("{REQUESTS}{name}"), amount.clone());
        }
        if compute {
            usage.insert(name, amount);
        }
    }
    let limits = of_pod(pod, "limits");
    for name in ["cpu", "memory", "ephemeral-storage"] {
        if let Some(amount) = limits.get(name) {
            usage.insert(format!("limits.{name}"), amount.clone());
        }
    }
    usage
}

fn service(service: &Value) -> Amounts {
    let spec = &service["spec"];
    let ports = items(spec, "ports").count();
    let assigned = items(spec, "ports").filter(|port| port["nodePort"].as_i64().is_some_and(|port| port != 0)).count();
    let (balancers, node_ports) = match text(spec, "type") {
        "NodePort" => (0, ports),
        "LoadBalancer" if spec["allocateLoadBalancerNodePorts"] == false => (1, assigned),
        "LoadBalancer" => (1, ports),
        _ => (0, 0),
    };
    let counts = [1, 1, balancers, i64::try_from(node_ports).unwrap_or(i64::MAX)];
    SERVICE_RESOURCES.into_iter().zip(counts).map(|(name, count)| (name.to_owned(), number(count))).collect()
}

fn claim(claim: &Value) -> Amounts {
    let annotation = claim["metadata"]["annotations"]["volume.beta.kubernetes.io/storage-class"].as_str();
    let class = annotation.unwrap_or_else(|| text(&claim["spec"], "storageClassName"));
    let mut usage = Amounts::from([("count/persistentvolumeclaims".to_owned(), number(1))]);
    let requested = read(&claim["spec"]["resources"], "requests").remove("storage");
    // While a volume grows, or when that has failed, the larger size counts.
    let allocated = read(&claim["status"], "allocatedResources").remove("storage");
    let storage = requested.map(|requested| allocated.filter(|allocated| *allocated > requested).unwrap_or(requested));
    let storage = storage.map(|mut storage| {
        storage.round_up(0);
        storage
    });
    for (name, amount) in CLAIM_RESOURCES.into_iter().zip([Some(number(1)), storage]) {
        let Some(amount) = amount else { continue };
        if !class.is_empty() {
            usage.insert(format!("{class}{STORAGE_CLASS_INFIX}{name}"), amount.clone());
        }
        usage.insert(name.to_owned(), amount);
    }
    usage
}

fn devices(claim: &Value) -> Amounts {
    let of = |request: &Value| {
        let count = match text(request, "allocationMode") {
            "ExactCount" => request["count"].as_i64().unwrap_or(0),
            "All" => MAX_DEVICES,
            _ => 0,
        };
        (format!("{}{PER_DEVICE_CLASS}", text(request, "deviceClassName")), count)
    };
    let mut usage = Amounts::from([("count/resourceclaims.resource.k8s.io".to_owned(), number(1))]);
    for request in items(&claim["spec"]["devices"], "requests") {
        let mut most: std::collections::BTreeMap<String, i64> = items(request, "firstAvailable").map(of).fold(
            std::collections::BTreeMap::new(),
            |mut most, (class, count)| {
                let own = most.entry(class).or_default();
                *own = count.max(*own);
                most
            },
        );
        if most.is_empty() {
            most.extend([of(if request["exactly"].is_object() { &request["exactly"] } else { request })]);
        }
        add(&mut usage, &most.into_iter().map(|(class, count)| (class, number(count))).collect());
    }
    usage
}

/// One scope that an object must be in.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Scope {
    name: String,
    operator: String,
    values: Vec<String>,
}

impl Scope {
    /// The scopes of a quota, of both fields that have some.
    pub(super) fn of(quota: &Value) -> Vec<Self> {
        let spec = &quota["spec"];
        let plain = items(spec, "scopes").filter_map(Value::as_str);
        let plain = plain.map(|name| Scope { name: name.into(), operator: "Exists".into(), values: Vec::new() });
        let selected = items(&spec["scopeSelector"], "matchExpressions").map(|expression| Scope {
            name: text(expression, "scopeName").into(),
            operator: text(expression, "operator").into(),
            values: items(expression, "values").filter_map(Value::as_str).map(str::to_owned).collect(),
        });
        plain.chain(selected).collect()
    }

    /// Whether a value, or that there is none, is what is asked for.
    fn admits(&self, value: Option<&str>) -> bool {
        let is_in = || value.is_some_and(|value| self.values.iter().any(|own| own == value));
        match self.operator.as_str() {
            "Exists" => value.is_some(),
            "DoesNotExist" => value.is_none(),
            "In" => is_in(),
            "NotIn" => !is_in(),
            _ => false,
        }
    }

    fn has_pod(&self, pod: &Value) -> bool {
        let spec = &pod["spec"];
        let is_terminating = || spec["activeDeadlineSeconds"].as_i64().is_some_and(|seconds| seconds >= 0);
        match self.name.as_str() {
            "Terminating" => is_terminating(),
            "NotTerminating" => !is_terminating(),
            "BestEffort" => is_best_effort(pod),
            "NotBestEffort" => !is_best_effort(pod),
            "PriorityClass" => self.admits(Some(text(spec, "priorityClassName")).filter(|class| !class.is_empty())),
            "CrossNamespacePodAffinity" => ["podAffinity", "podAntiAffinity"].iter().any(|kind| {
                let affinity = &spec["affinity"][kind];
                let crosses =
                    |term: &Value| items(term, "namespaces").next().is_some() || term["namespaceSelector"].is_object();
                items(affinity, "requiredDuringSchedulingIgnoredDuringExecution").any(crosses)
                    || items(affinity, "preferredDuringSchedulingIgnoredDuringExecution")
                        .any(|term| crosses(&term["podAffinityTerm"]))
            }),
            _ => false,
        }
    }

    fn has_claim(&self, claim: &Value) -> bool {
        if self.name != "VolumeAttributesClass" {
            return false;
        }
        let status = &claim["status"];
        let classes = [
            text(&claim["spec"], "volumeAttributesClassName"),
            text(status, "currentVolumeAttributesClassName"),
            text(&status["modifyVolumeStatus"], "targetVolumeAttributesClassName"),
        ];
        let mut classes = classes.into_iter().filter(|class| !class.is_empty()).peekable();
        if classes.peek().is_none() {
            return self.admits(None);
        }
        classes.any(|class| self.admits(Some(class)))
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn words(usage: &Amounts) -> String {
        usage.iter().map(|(name, amount)| format!("{name}={amount}")).collect::<Vec<_>>().join(" ")
    }

    fn check(evaluator: &Evaluator, object: &Value, expected: &str) {
        let now = "2026-01-01T00:10:00Z".parse().unwrap();
        assert_eq!(words(&evaluator.usage(object, now)), expected, "{object}");
    }

    #[test]
    fn pods() {
        let container = |cpu: &str| json!({"name": cpu, "resources": {"requests": {"cpu": cpu, "x.io/gpu": "1"}, "limits": {"memory": "1Gi"}}});
        let one =
            json!({"spec": {"containers": [container("1"), container("500m")], "initContainers": [container("2")]}});
        let expected = "count/pods=1 cpu=2 limits.memory=2Gi pods=1 requests.cpu=2 requests.x.io/gpu=2";
        check(&Evaluator::Pods, &one, expected);
        let ended = json!({"spec": one["spec"], "status": {"phase": "Succeeded"}});
        check(&Evaluator::Pods, &ended, "count/pods=1");
        let going = |deleted: &str| json!({"metadata": {"deletionTimestamp": deleted, "deletionGracePeriodSeconds": 30}, "spec": {"containers": []}});
        check(&Evaluator::Pods, &going("2026-01-01T00:09:00Z"), "count/pods=1");
        check(&Evaluator::Pods, &going("2026-01-01T00:09:50Z"), "count/pods=1 pods=1");
        let sidecar = json!({"name": "s", "restartPolicy": "Always", "resources": {"requests": {"cpu": "1"}}});
        let with_sidecar =
            json!({"spec": {"containers": [container("1")], "initContainers": [sidecar], "overhead": {"cpu": "100m"}}});
        let expected = "count/pods=1 cpu=2100m limits.memory=1Gi pods=1 requests.cpu=2100m requests.x.io/gpu=1";
        check(&Evaluator::Pods, &with_sidecar, expected);
    }

    #[test]
    fn others() {
        let service =
            |type_: &str| json!({"spec": {"type": type_, "ports": [{"port": 1}, {"port": 2, "nodePort": 30000}]}});
        for (type_, balancers, ports) in [("ClusterIP", 0, 0), ("NodePort", 0, 2), ("LoadBalancer", 1, 2)] {
            let expected =
                format!("count/services=1 services=1 services.loadbalancers={balancers} services.nodeports={ports}");
            check(&Evaluator::Services, &service(type_), &expected);
        }
        let claim = json!({"spec": {"storageClassName": "fast", "resources": {"requests": {"storage": "1Gi"}}}, "status": {"allocatedResources": {"storage": "2Gi"}}});
        check(
            &Evaluator::PersistentVolumeClaims,
            &claim,
            "count/persistentvolumeclaims=1 fast.storageclass.storage.k8s.io/persistentvolumeclaims=1 \
             fast.storageclass.storage.k8s.io/requests.storage=2Gi persistentvolumeclaims=1 requests.storage=2Gi",
        );
        let exactly = json!({"deviceClassName": "gpu", "allocationMode": "ExactCount", "count": 2});
        let claim = json!({"spec": {"devices": {"requests": [{"exactly": exactly}, {"exactly": exactly}]}}});
        check(
            &Evaluator::ResourceClaims,
            &claim,
            "count/resourceclaims.resource.k8s.io=1 gpu.deviceclass.resource.k8s.io/devices=4",
        );
    }

    #[test]
    fn names() {
        let check = |name: &str, expected: &str| {
            let names = [name.to_owned()];
            let found: Vec<_> = Evaluator::for_names(names.iter()).iter().map(|found| format!("{found:?}")).collect();
            let found = found.join(" ");
            assert!(found.starts_with(expected) && (expected.is_empty() == found.is_empty()), "{name}: {found}");
        };
        check("requests.cpu", "Pods");
        check("requests.x.io/gpu", "Pods");
        check("services.nodeports", "Services");
        check("fast.storageclass.storage.k8s.io/requests.storage", "PersistentVolumeClaims");
        check("count/pods", "Pods");
        check("count/deployments.apps", "Count");
        check("configmaps", "Count");
        check("count/widgets.x.io", "Count");
        check("nonsense", "");
    }

    #[test]
    fn scopes() {
        fn check(spec: Value, pod: Value, expected: bool) {
            let scopes = Scope::of(&json!({"spec": spec}));
            assert_eq!(scopes.iter().all(|scope| Evaluator::Pods.is_in_scope(scope, &pod)), expected, "{spec} {pod}");
        }
        let class = |class: &str| json!({"spec": {"priorityClassName": class}});
        let selector = |operator: &str, values: &[&str]| json!({"scopeSelector": {"matchExpressions": [{"scopeName": "PriorityClass", "operator": operator, "values": values}]}});
        check(json!({}), json!({}), true);
        check(json!({"scopes": ["Terminating"]}), json!({"spec": {"activeDeadlineSeconds": 5}}), true);
        check(json!({"scopes": ["NotTerminating"]}), json!({"spec": {"activeDeadlineSeconds": 5}}), false);
        check(json!({"scopes": ["BestEffort"]}), json!({"spec": {"containers": [{}]}}), true);
        check(
            json!({"scopes": ["NotBestEffort"]}),
            json!({"spec": {"containers": [{"resources": {"limits": {"cpu": "1"}}}]}}),
            true,
        );
        check(selector("In", &["high"]), class("high"), true);
        check(selector("In", &["high"]), class("low"), false);
        check(selector("NotIn", &["high"]), class("low"), true);
        check(selector("DoesNotExist", &[]), class(""), true);
        check(selector("Exists", &[]), class("any"), true);
    }
}
