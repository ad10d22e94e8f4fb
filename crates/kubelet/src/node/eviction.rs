//! Who has to go when the machine runs out of something. Pure: signals and pods in, a victim out.

use std::{collections::BTreeMap, str::FromStr};

use capstan_api::{Quantity, quantity::Format};
use k8s_openapi::api::core::v1::Pod;

use super::{machine::Signals, register::Health, start::memory_request};
use crate::qos::qos_class;

/// System pods.
const CRITICAL: i32 = 2_000_000_000;

/// What is watched, in the order in which it is given back.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Signal {
    /// Memory.
    MemoryAvailable,
    /// Bytes of the file system that the node's files are on.
    NodeFsAvailable,
    /// Inodes of that.
    NodeFsInodesFree,
    /// Bytes of the file system that images are on.
    ImageFsAvailable,
    /// Inodes of that.
    ImageFsInodesFree,
    /// Processes.
    PidAvailable,
}

impl Signal {
    /// All of them: the signal, its name in flags, and the resource that runs out.
    const ALL: [(Signal, &'static str, &'static str); 6] = [
        (Signal::MemoryAvailable, "memory.available", "memory"),
        (Signal::NodeFsAvailable, "nodefs.available", "ephemeral-storage"),
        (Signal::NodeFsInodesFree, "nodefs.inodesFree", "inodes"),
        (Signal::ImageFsAvailable, "imagefs.available", "ephemeral-storage"),
        (Signal::ImageFsInodesFree, "imagefs.inodesFree", "inodes"),
        (Signal::PidAvailable, "pid.available", "pids"),
    ];

    fn resource(self) -> &'static str {
        Signal::ALL.iter().find(|(signal, ..)| *signal == self).map_or("", |(.., resource)| resource)
    }
}

/// How much of something must stay available.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Threshold {
    /// So much: bytes, inodes, processes.
    Amount(u64),
    /// Such a share of what there is, in percent.
    Percent(u64),
}

impl Threshold {
    /// So much, of what there is.
    #[must_use]
    pub fn of(self, capacity: u64) -> u64 {
        match self {
            Threshold::Amount(amount) => amount,
            Threshold::Percent(percent) => {
                // Twice as wide, for a share of much is less than much.
                u64::try_from(u128::from(capacity) * u128::from(percent) / 100).unwrap_or(u64::MAX)
            }
        }
    }
}

/// What must stay available: below it, pods are evicted and new ones not taken. Upstream's values when not said; what
/// is not named is not watched.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Thresholds(BTreeMap<Signal, Threshold>);

impl Default for Thresholds {
    fn default() -> Self {
        Thresholds(BTreeMap::from([
            (Signal::MemoryAvailable, Threshold::Amount(100 << 20)),
            (Signal::NodeFsAvailable, Threshold::Percent(10)),
            (Signal::NodeFsInodesFree, Threshold::Percent(5)),
            (Signal::ImageFsAvailable, Threshold::Percent(15)),
            (Signal::ImageFsInodesFree, Threshold::Percent(5)),
        ]))
    }
}

impl Thresholds {
    /// How much of something must stay available, of so much.
    #[must_use]
    pub fn of(&self, signal: Signal, capacity: u64) -> u64 {
        self.0.get(&signal).map_or(0, |threshold| threshold.of(capacity))
    }

    /// What has run out, first what is given back first.
    fn met<'a>(&'a self, signals: &'a Signals) -> impl Iterator<Item = Signal> + 'a {
        let all = self.0.iter().filter(|(signal, threshold)| {
            let (available, capacity) = signals.of(**signal);
            capacity > 0 && available < threshold.of(capacity)
        });
        all.map(|(signal, _)| *signal)
    }
}

/// As the kubelet's `--eviction-hard` has them: `memory.available<100Mi,nodefs.available<5%`. What is not named is off.
impl FromStr for Thresholds {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let mut all = BTreeMap::new();
        for part in text.split(',').map(str::trim).filter(|part| !part.is_empty()) {
            let (name, value) = part.split_once('<').ok_or_else(|| format!("{part:?} is not SIGNAL<VALUE"))?;
            let bad = || format!("{value:?} is neither a quantity nor a percentage");
            let threshold = match value.strip_suffix('%') {
                Some(percent) => {
                    Threshold::Percent(percent.parse().ok().filter(|percent| *percent <= 100).ok_or_else(bad)?)
                }
                None => {
                    let quantity: Quantity = value.parse().map_err(|_| bad())?;
                    Threshold::Amount(u64::try_from(quantity.value()).map_err(|_| bad())?)
                }
            };
            let known = Signal::ALL.iter().find(|(_, known, _)| *known == name);
            let (signal, ..) = known.ok_or_else(|| {
                let names: Vec<&str> = Signal::ALL.iter().map(|(_, name, _)| *name).collect();
                format!("{name:?} is not watched here: there are {}", names.join(", "))
            })?;
            all.insert(*signal, threshold);
        }
        Ok(Thresholds(all))
    }
}

/// What presses.
#[must_use]
pub fn health(signals: &Signals, thresholds: &Thresholds, not_ready: Option<String>) -> Health {
    let mut health = Health { not_ready, ..Health::default() };
    for signal in thresholds.met(signals) {
        match signal {
            Signal::MemoryAvailable => health.memory_pressure = true,
            Signal::PidAvailable => health.pid_pressure = true,
            _ => health.disk_pressure = true,
        }
    }
    health
}

/// A pod that may have to go, with what it uses.
#[derive(Clone, Debug)]
pub struct Candidate<'a> {
    /// The pod.
    pub pod: &'a Pod,
    /// The memory of its containers in bytes, by name.
    pub memory: Vec<(String, u64)>,
    /// Its processes.
    pub processes: u64,
}

impl Candidate<'_> {
    fn priority(&self) -> i32 {
        priority(self.pod)
    }

    fn memory_used(&self) -> u64 {
        self.memory.iter().map(|(_, bytes)| bytes).sum()
    }

    /// Who goes first: the greatest. More than was asked for, then the least important, then who uses most.
    fn rank(&self, signal: Signal) -> (bool, i64, i64) {
        let important = -i64::from(self.priority());
        let number = |amount: u64| i64::try_from(amount).unwrap_or(i64::MAX);
        match signal {
            Signal::MemoryAvailable => {
                let more = number(self.memory_used()).saturating_sub(memory_request(self.pod));
                (more > 0, important, more)
            }
            Signal::PidAvailable => (false, important, number(self.processes)),
            // What each has on the disk nobody has measured.
            _ => (false, important, 0),
        }
    }
}

fn priority(pod: &Pod) -> i32 {
    pod.spec.as_ref().and_then(|spec| spec.priority).unwrap_or(0)
}

/// Whether a pod may be ended for what it uses: not who is critical, nor who nobody would start again.
pub(super) fn may_go(pod: &Pod) -> bool {
    priority(pod) < CRITICAL && !is_static(pod)
}

/// The pod that goes, with the message of its status; who is critical stays.
#[must_use]
pub fn victim<'a>(signals: &Signals, thresholds: &Thresholds, pods: &'a [Candidate<'a>]) -> Option<(&'a Pod, String)> {
    let signal = thresholds.met(signals).next()?;
    let candidates = pods.iter().filter(|one| may_go(one.pod));
    let one = candidates.max_by_key(|one| one.rank(signal))?;
    let (available, capacity) = signals.of(signal);
    let (resource, threshold) = (signal.resource(), thresholds.of(signal, capacity));
    let format = if matches!(resource, "inodes" | "pids") { Format::DecimalSI } else { Format::BinarySI };
    let shown = |amount: u64, format| Quantity::new(i64::try_from(amount).unwrap_or(i64::MAX), format).to_string();
    let mut message = format!(
        "The node was low on resource: {resource}. Threshold quantity: {}, available: {}. ",
        shown(threshold, Format::BinarySI),
        shown(available, format)
    );
    if signal == Signal::MemoryAvailable {
        let spec = one.pod.spec.iter();
        let containers = spec.flat_map(|spec| spec.containers.iter().chain(spec.init_containers.iter().flatten()));
        for container in containers {
            let used = one.memory.iter().find(|(name, _)| *name == container.name).map_or(0, |(_, bytes)| *bytes);
            let requests = container.resources.as_ref().and_then(|resources| resources.requests.as_ref());
            let request = requests.and_then(|all| all.get(resource)).map_or("0", |quantity| quantity.0.as_str());
            let asked: i64 = request.parse::<Quantity>().map_or(0, |quantity| quantity.value());
            if i64::try_from(used).unwrap_or(i64::MAX) > asked {
                message.push_str(&format!(
                    "Container {} was using {}, request is {request}, has larger consumption of {resource}. ",
                    container.name,
                    shown(used, format)
                ));
            }
        }
    }
    Some((one.pod, message))
}

/// Whether a pod comes from a file of the node.
pub(super) fn is_static(pod: &Pod) -> bool {
    pod.metadata.annotations.as_ref().is_some_and(|all| all.contains_key("kubernetes.io/config.source"))
}

/// Why a node that is under pressure does not take a pod.
#[must_use]
pub fn refusal(health: &Health, pod: &Pod) -> Option<String> {
    let priority = pod.spec.as_ref().and_then(|spec| spec.priority).unwrap_or(0);
    if is_static(pod) || priority >= CRITICAL {
        return None;
    }
    let conditions = [
        ("MemoryPressure", health.memory_pressure),
        ("DiskPressure", health.disk_pressure),
        ("PIDPressure", health.pid_pressure),
    ];
    let conditions: Vec<&str> = conditions.into_iter().filter(|(_, holds)| *holds).map(|(name, _)| name).collect();
    let takes = match *conditions {
        [] => true,
        ["MemoryPressure"] => {
            pod.spec.as_ref().is_none_or(|spec| qos_class(spec) != "BestEffort") || tolerates_memory_pressure(pod)
        }
        _ => false,
    };
    (!takes).then(|| format!("The node had condition: [{}]. ", conditions.join(" ")))
}

fn tolerates_memory_pressure(pod: &Pod) -> bool {
    let tolerations = pod.spec.iter().flat_map(|spec| spec.tolerations.iter().flatten());
    tolerations.into_iter().any(|toleration| {
        let key = toleration.key.as_deref().unwrap_or_default();
        let operator = toleration.operator.as_deref().unwrap_or("Equal");
        let effect = toleration.effect.as_deref().unwrap_or_default();
        (key == "node.kubernetes.io/memory-pressure" || (key.is_empty() && operator == "Exists"))
            && (operator == "Exists" || toleration.value.as_deref().unwrap_or_default().is_empty())
            && matches!(effect, "" | "NoSchedule")
    })
}

#[cfg(test)]
mod tests {
    use serde_json::{Value, json};

    use super::*;

    fn pod(name: &str, request: &str, priority: i32) -> Pod {
        serde_json::from_value(json!({"metadata": {"name": name}, "spec": {"priority": priority, "containers": [
            {"name": "c", "resources": {"requests": {"memory": request}}}]}}))
        .unwrap()
    }

    fn uses(pod: &Pod, memory: u64, processes: u64) -> Candidate<'_> {
        Candidate { pod, memory: vec![("c".to_owned(), memory)], processes }
    }

    fn check(signals: Signals, thresholds: &str, pods: &[Candidate<'_>], expected: Option<(&str, &str)>) {
        let thresholds: Thresholds = thresholds.parse().unwrap();
        let found = victim(&signals, &thresholds, pods);
        let found = found.map(|(pod, message)| (pod.metadata.name.clone().unwrap_or_default(), message));
        let expected = expected.map(|(name, message)| (name.to_owned(), message.to_owned()));
        assert_eq!(found, expected);
    }

    #[test]
    fn who_goes_first_and_why() {
        let (modest, greedy, important, system) = (
            pod("modest", "500Mi", 0),
            pod("greedy", "10Mi", 0),
            pod("important", "10Mi", 9),
            pod("s", "0", 2_000_001_000),
        );
        let pods = [
            uses(&modest, 400 << 20, 90),
            uses(&greedy, 200 << 20, 20),
            uses(&important, 900 << 20, 99),
            uses(&system, 1 << 32, 999),
        ];
        let memory = Signals { memory_available: 50 << 20, memory_capacity: 1 << 30, ..Signals::default() };
        check(
            memory,
            "memory.available<100Mi",
            &pods,
            Some((
                "greedy",
                "The node was low on resource: memory. Threshold quantity: 100Mi, available: 50Mi. Container c was \
                 using 200Mi, request is 10Mi, has larger consumption of memory. ",
            )),
        );
        check(memory, "memory.available<10Mi", &pods, None);
        let pids = Signals { pids_available: 5, pids_capacity: 1000, ..Signals::default() };
        let words = "The node was low on resource: pids. Threshold quantity: 100, available: 5. ";
        check(pids, "pid.available<10%", &pods, Some(("modest", words)));
        let inodes = Signals { inodes_free: 10, inodes_capacity: 1000, ..Signals::default() };
        let words = "The node was low on resource: inodes. Threshold quantity: 50, available: 10. ";
        check(inodes, "nodefs.inodesFree<5%,pid.available<10%", &pods[..1], Some(("modest", words)));
        let images = Signals { image_available: 1 << 30, image_capacity: 10 << 30, ..Signals::default() };
        let words = "The node was low on resource: ephemeral-storage. Threshold quantity: 1536Mi, available: 1Gi. ";
        check(images, "imagefs.available<15%", &pods[..1], Some(("modest", words)));
    }

    #[test]
    fn who_is_still_taken() {
        let of = |spec: Value| -> Pod { serde_json::from_value(json!({"spec": spec})).unwrap() };
        let best_effort = of(json!({"containers": []}));
        let tolerant = of(json!({"containers": [], "tolerations": [{"operator": "Exists"}]}));
        let burstable = pod("b", "1Mi", 0);
        let critical = pod("c", "1Mi", 2_000_000_000);
        let memory = Health { memory_pressure: true, ..Health::default() };
        let all = Health { pid_pressure: true, ..memory.clone() };
        let words = Some("The node had condition: [MemoryPressure]. ".to_owned());
        assert_eq!(refusal(&Health::default(), &best_effort), None);
        assert_eq!(refusal(&memory, &best_effort), words);
        assert_eq!((refusal(&memory, &tolerant), refusal(&memory, &burstable)), (None, None));
        let words = Some("The node had condition: [MemoryPressure PIDPressure]. ".to_owned());
        assert_eq!((refusal(&all, &burstable), refusal(&all, &critical)), (words, None));
    }

    #[test]
    fn thresholds_as_the_flag_has_them() {
        let full = Signals { disk_available: 8 << 30, disk_capacity: 100 << 30, ..Signals::default() };
        assert!(health(&full, &Thresholds::default(), None).disk_pressure, "upstream's 10%");
        let parsed: Thresholds = "memory.available<200Mi,nodefs.available<5%".parse().unwrap();
        assert_eq!(parsed.of(Signal::MemoryAvailable, 1 << 40), 200 << 20);
        assert_eq!((parsed.of(Signal::NodeFsAvailable, 1000), parsed.of(Signal::PidAvailable, 1000)), (50, 0));
        assert!(!health(&full, &parsed, None).disk_pressure);
        let parsed: Thresholds = "nodefs.available<10Gi".parse().unwrap();
        assert!(health(&full, &parsed, None).disk_pressure);
        let few = Signals { pids_available: 1, pids_capacity: 100, ..Signals::default() };
        assert!(!health(&few, &Thresholds::default(), None).pid_pressure, "not watched unless somebody says");
        assert!(health(&few, &"pid.available<10%".parse().unwrap(), None).pid_pressure);
        assert!("nodefs.available".parse::<Thresholds>().unwrap_err().contains("SIGNAL<VALUE"));
        assert!("swap.available<10%".parse::<Thresholds>().unwrap_err().contains("pid.available"));
        assert!("nodefs.available<x".parse::<Thresholds>().is_err());
    }
}
