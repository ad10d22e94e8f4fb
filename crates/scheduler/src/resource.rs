//! Amounts of resources as integers, and what a pod asks for.

use std::{
    collections::{BTreeMap, HashMap},
    sync::{Arc, Mutex, PoisonError},
};

use k8s_openapi::{
    api::core::v1::{Container, Pod, PodSpec},
    apimachinery::pkg::api::resource::Quantity,
};

/// What a container that asks for no CPU counts for when nodes are ranked, in thousandths.
pub const DEFAULT_MILLI_CPU_REQUEST: i64 = 100;
/// What a container that asks for no memory counts for when nodes are ranked, in bytes.
pub const DEFAULT_MEMORY_REQUEST: i64 = 200 * 1024 * 1024;

type List = BTreeMap<String, Quantity>;

/// Amounts of CPU in thousandths, of the rest in whole units.
#[derive(Clone, Debug, Default, PartialEq, Eq, Hash)]
pub struct Resource {
    /// Thousandths of a CPU.
    pub milli_cpu: i64,
    /// Bytes of memory.
    pub memory: i64,
    /// Bytes of disk.
    pub ephemeral_storage: i64,
    /// Extended resources, huge pages and attachable volumes, by name.
    pub scalars: Vec<(Arc<str>, i64)>,
}

/// Whether a resource is counted by its own name: extended ones, huge pages, volumes to attach.
#[must_use]
pub fn is_scalar(name: &str) -> bool {
    is_extended(name)
        || name.starts_with("hugepages-")
        || name.starts_with("attachable-volumes-")
        || is_native_prefixed(name)
}

fn is_native(name: &str) -> bool {
    !name.contains('/') || name.contains("kubernetes.io/")
}

fn is_native_prefixed(name: &str) -> bool {
    name.contains("kubernetes.io/")
}

/// Whether a resource is one that Kubernetes does not know itself.
#[must_use]
pub fn is_extended(name: &str) -> bool {
    !is_native(name) && !name.starts_with("requests.")
}

/// What is before the name of a device class in the resource that always stands for it.
pub(crate) const CLASS_PREFIX: &str = "deviceclass.resource.kubernetes.io/";

/// Whether a resource is one that a device class can stand for.
pub(crate) fn is_served_by_devices(name: &str) -> bool {
    is_extended(name) || name.starts_with(CLASS_PREFIX)
}

fn value(quantity: &Quantity) -> capstan_api::Quantity {
    quantity.0.parse().unwrap_or_default()
}

impl Resource {
    /// Whether nothing is asked for.
    #[must_use]
    pub fn is_zero(&self) -> bool {
        self.milli_cpu == 0 && self.memory == 0 && self.ephemeral_storage == 0 && self.scalars.is_empty()
    }

    /// How much of a resource counted by its own name.
    #[must_use]
    pub fn scalar(&self, name: &str) -> i64 {
        self.scalars.iter().find(|(n, _)| &**n == name).map_or(0, |(_, amount)| *amount)
    }

    /// How much of any resource.
    #[must_use]
    pub fn get(&self, name: &str) -> i64 {
        match name {
            "cpu" => self.milli_cpu,
            "memory" => self.memory,
            "ephemeral-storage" => self.ephemeral_storage,
            other => self.scalar(other),
        }
    }

    /// Adds `other` as often as `times` says.
    pub fn add(&mut self, other: &Resource, times: i64) {
        self.milli_cpu = self.milli_cpu.saturating_add(other.milli_cpu.saturating_mul(times));
        self.memory = self.memory.saturating_add(other.memory.saturating_mul(times));
        self.ephemeral_storage = self.ephemeral_storage.saturating_add(other.ephemeral_storage.saturating_mul(times));
        for (name, amount) in &other.scalars {
            let amount = amount.saturating_mul(times);
            match self.scalars.iter_mut().find(|(n, _)| n == name) {
                Some((_, mine)) => *mine = mine.saturating_add(amount),
                None => self.scalars.push((Arc::clone(name), amount)),
            }
        }
    }

    /// From a list of quantities, and the number of pods in it.
    #[must_use]
    pub fn read(list: Option<&List>) -> (Self, i64) {
        let (mut resource, mut pods) = (Resource::default(), 0);
        for (name, quantity) in list.into_iter().flatten() {
            let quantity = value(quantity);
            match name.as_str() {
                "cpu" => resource.milli_cpu = quantity.milli_value(),
                "memory" => resource.memory = quantity.value(),
                "ephemeral-storage" => resource.ephemeral_storage = quantity.value(),
                "pods" => pods = quantity.value(),
                other if is_scalar(other) => resource.scalars.push((shared(other), quantity.value())),
                _ => {}
            }
        }
        resource.scalars.sort();
        (resource, pods)
    }
}

/// How many names of resources are kept for sharing. Names beyond that work, but are not shared.
const MAX_SHARED_NAMES: usize = 1024;

/// One copy of a name, however many pods and nodes use it.
fn shared(name: &str) -> Arc<str> {
    static NAMES: Mutex<Option<HashMap<Box<str>, Arc<str>>>> = Mutex::new(None);
    let mut names = NAMES.lock().unwrap_or_else(PoisonError::into_inner);
    let names = names.get_or_insert_with(HashMap::new);
    if let Some(known) = names.get(name) {
        return Arc::clone(known);
    }
    let new: Arc<str> = name.into();
    if names.len() < MAX_SHARED_NAMES {
        names.insert(name.into(), Arc::clone(&new));
    }
    new
}

/// A list while it is summed up, exactly.
type Sum<'a> = BTreeMap<&'a str, capstan_api::Quantity>;

fn add<'a>(sum: &mut Sum<'a>, list: &Sum<'a>) {
    for (name, quantity) in list {
        sum.entry(name).or_default().add(quantity);
    }
}

fn max<'a>(sum: &mut Sum<'a>, list: &Sum<'a>) {
    for (name, quantity) in list {
        match sum.get_mut(name) {
            Some(mine) if *mine >= *quantity => {}
            _ => drop(sum.insert(name, quantity.clone())),
        }
    }
}

fn requests<'a>(list: Option<&'a List>, out: &mut Sum<'a>) {
    for (name, quantity) in list.into_iter().flatten() {
        out.insert(name, value(quantity));
    }
}

/// What a container asks for; with the defaults that count when nodes are ranked, if `non_zero`. While a container is
/// resized it counts for the most of what is wanted, given and in use.
fn of_container<'a>(pod: &'a Pod, container: &'a Container, non_zero: bool, infeasible: bool) -> Sum<'a> {
    let mut sum = Sum::new();
    let status = pod.status.as_ref().and_then(|status| {
        let all = status.container_statuses.iter().flatten().chain(status.init_container_statuses.iter().flatten());
        all.into_iter().find(|status| status.name == container.name)
    });
    let in_use = status.and_then(|status| status.resources.as_ref());
    if in_use.is_none() || !infeasible {
        requests(container.resources.as_ref().and_then(|r| r.requests.as_ref()), &mut sum);
    }
    if let (Some(status), Some(in_use)) = (status, in_use) {
        for list in [in_use.requests.as_ref(), status.allocated_resources.as_ref()] {
            let mut other = Sum::new();
            requests(list, &mut other);
            max(&mut sum, &other);
        }
    }
    if non_zero {
        let default = |text: String| text.parse().unwrap_or_default();
        sum.entry("cpu").or_insert_with(|| default(format!("{DEFAULT_MILLI_CPU_REQUEST}m")));
        sum.entry("memory").or_insert_with(|| default(DEFAULT_MEMORY_REQUEST.to_string()));
    }
    sum
}

/// What a pod asks for in all: its containers together or its largest step of initialization, whichever is more, what
/// the pod itself says of CPU, memory and huge pages, and its overhead.
fn of_pod(pod: &Pod, spec: &PodSpec, non_zero: bool) -> Resource {
    let infeasible =
        pod.status.iter().flat_map(|status| status.conditions.iter().flatten()).any(|condition| {
            condition.type_ == "PodResizePending" && condition.reason.as_deref() == Some("Infeasible")
        });
    let mut sum = Sum::new();
    for container in &spec.containers {
        add(&mut sum, &of_container(pod, container, non_zero, infeasible));
    }
    let (mut restartable, mut largest) = (Sum::new(), Sum::new());
    for container in spec.init_containers.iter().flatten() {
        let mut step = of_container(pod, container, non_zero, infeasible);
        if container.restart_policy.as_deref() == Some("Always") {
            add(&mut sum, &step);
            add(&mut restartable, &step);
            step = restartable.clone();
        } else {
            add(&mut step, &restartable);
        }
        max(&mut largest, &step);
    }
    max(&mut sum, &largest);
    for (name, quantity) in spec.resources.iter().flat_map(|r| r.requests.iter().flatten()) {
        if name == "cpu" || name == "memory" || name.starts_with("hugepages-") {
            sum.insert(name, value(quantity));
        }
    }
    let mut overhead = Sum::new();
    requests(spec.overhead.as_ref(), &mut overhead);
    add(&mut sum, &overhead);

    let mut resource = Resource::default();
    for (name, quantity) in sum {
        match name {
            "cpu" => resource.milli_cpu = quantity.milli_value(),
            "memory" => resource.memory = quantity.value(),
            "ephemeral-storage" => resource.ephemeral_storage = quantity.value(),
            other if is_scalar(other) => resource.scalars.push((shared(other), quantity.value())),
            _ => {}
        }
    }
    resource
}

/// What a pod asks for, and what it counts for when nodes are ranked.
#[must_use]
pub fn pod_requests(pod: &Pod) -> (Resource, Resource) {
    let Some(spec) = &pod.spec else { return Default::default() };
    (of_pod(pod, spec, false), of_pod(pod, spec, true))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::testing::pod;

    #[track_caller]
    fn check(yaml: &str, expected: &str) {
        let (r, n) = pod_requests(&pod(yaml));
        let scalars: Vec<_> = r.scalars.iter().map(|(name, amount)| format!(" {name}={amount}")).collect();
        let text = format!(
            "cpu={} mem={} disk={}{} / {} {}",
            r.milli_cpu,
            r.memory,
            r.ephemeral_storage,
            scalars.concat(),
            n.milli_cpu,
            n.memory
        );
        assert_eq!(text, expected, "{yaml}");
    }

    #[test]
    fn requests() {
        check("spec: {containers: [{name: a}]}", "cpu=0 mem=0 disk=0 / 100 209715200");
        check(
            "spec: {containers: [{name: a, resources: {requests: {cpu: 100m, memory: 1Ki, example.com/gpu: 2}}}, \
             {name: b, resources: {requests: {cpu: 1, ephemeral-storage: 5}}}]}",
            "cpu=1100 mem=1024 disk=5 example.com/gpu=2 / 1100 209716224",
        );
        // A step of initialization that needs more than the containers together; a sidecar runs beside both.
        check(
            "spec: {initContainers: [{name: s, restartPolicy: Always, resources: {requests: {cpu: 1}}}, {name: i, \
             resources: {requests: {cpu: 3}}}], containers: [{name: a, resources: {requests: {cpu: 2}}}]}",
            "cpu=4000 mem=0 disk=0 / 4000 419430400",
        );
        check(
            "spec: {overhead: {cpu: 10m}, resources: {requests: {cpu: 3}}, containers: [{name: a, resources: \
             {requests: {cpu: 2, hugepages-2Mi: 4Mi}}}]}",
            "cpu=3010 mem=0 disk=0 hugepages-2Mi=4194304 / 3010 209715200",
        );
    }
}
