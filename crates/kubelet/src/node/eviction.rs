//! Who has to go when the machine runs out of something. Pure: signals and pods in, a victim out.

use std::{fmt, str::FromStr};

use k8s_openapi::api::core::v1::Pod;

use super::{machine::Signals, register::Health, start::memory_request};
use crate::qos::qos_class;

/// How much of something must stay available.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Threshold {
    /// So many bytes.
    Bytes(u64),
    /// Such a share of what there is, in percent.
    Percent(u64),
}

impl Threshold {
    /// In bytes, of so many.
    #[must_use]
    pub fn of(self, capacity: u64) -> u64 {
        match self {
            Threshold::Bytes(bytes) => bytes,
            Threshold::Percent(percent) => capacity / 100 * percent,
        }
    }
}

impl fmt::Display for Threshold {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Threshold::Bytes(bytes) if bytes % (1 << 20) == 0 => write!(f, "{}Mi", bytes >> 20),
            Threshold::Bytes(bytes) => write!(f, "{bytes}"),
            Threshold::Percent(percent) => write!(f, "{percent}%"),
        }
    }
}

/// What must stay available: below it, pods are evicted and new ones not taken. Upstream's values when not said; a
/// threshold of 0 turns a signal off.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Thresholds {
    /// `memory.available`.
    pub memory: Threshold,
    /// `nodefs.available`: of the file system that the node's files are on.
    pub disk: Threshold,
}

impl Default for Thresholds {
    fn default() -> Self {
        Thresholds { memory: Threshold::Bytes(100 << 20), disk: Threshold::Percent(10) }
    }
}

/// As the kubelet's `--eviction-hard` has them: `memory.available<100Mi,nodefs.available<5%`. What is not named is off.
impl FromStr for Thresholds {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let mut all = Thresholds { memory: Threshold::Bytes(0), disk: Threshold::Bytes(0) };
        for part in text.split(',').map(str::trim).filter(|part| !part.is_empty()) {
            let (signal, value) = part.split_once('<').ok_or_else(|| format!("{part:?} is not SIGNAL<VALUE"))?;
            let bad = || format!("{value:?} is neither a quantity nor a percentage");
            let threshold = match value.strip_suffix('%') {
                Some(percent) => {
                    Threshold::Percent(percent.parse().ok().filter(|percent| *percent <= 100).ok_or_else(bad)?)
                }
                None => {
                    let quantity: capstan_api::Quantity = value.parse().map_err(|_| bad())?;
                    Threshold::Bytes(u64::try_from(quantity.value()).map_err(|_| bad())?)
                }
            };
            match signal {
                "memory.available" => all.memory = threshold,
                "nodefs.available" => all.disk = threshold,
                _ => return Err(format!("{signal:?} is not watched here: memory.available and nodefs.available are")),
            }
        }
        Ok(all)
    }
}

/// What presses.
#[must_use]
pub fn health(signals: &Signals, thresholds: &Thresholds, not_ready: Option<String>) -> Health {
    let low = |available: u64, capacity: u64, threshold: Threshold| capacity > 0 && available < threshold.of(capacity);
    Health {
        memory_pressure: low(signals.memory_available, signals.memory_capacity, thresholds.memory),
        disk_pressure: low(signals.disk_available, signals.disk_capacity, thresholds.disk),
        pid_pressure: false,
        not_ready,
    }
}

/// The pod that goes, with the message of its status. `usage` is memory in bytes.
///
/// First those that use more than they asked for, then by priority, then by how much more; who is critical stays.
#[must_use]
pub fn victim<'a>(
    health: &Health,
    signals: &Signals,
    thresholds: &Thresholds,
    pods: &[(&'a Pod, u64)],
) -> Option<(&'a Pod, String)> {
    /// System pods.
    const CRITICAL: i32 = 2_000_000_000;
    if !health.memory_pressure && !health.disk_pressure {
        return None;
    }
    let priority = |pod: &Pod| pod.spec.as_ref().and_then(|spec| spec.priority).unwrap_or(0);
    let over = |pod: &Pod, usage: u64| i64::try_from(usage).unwrap_or(i64::MAX) - memory_request(pod);
    let candidates = pods.iter().filter(|(pod, _)| priority(pod) < CRITICAL && !is_static(pod));
    let (pod, usage) = candidates.max_by_key(|(pod, usage)| {
        let more = over(pod, *usage);
        (more > 0, -i64::from(priority(pod)), more)
    })?;
    let (resource, threshold, available) = if health.memory_pressure {
        ("memory", thresholds.memory, format!("{}Ki", signals.memory_available / 1024))
    } else {
        ("ephemeral-storage", thresholds.disk, format!("{}Ki", signals.disk_available / 1024))
    };
    let mut message =
        format!("The node was low on resource: {resource}. Threshold quantity: {threshold}, available: {available}. ");
    if health.memory_pressure {
        let request = memory_request(pod);
        for container in pod.spec.iter().flat_map(|spec| spec.containers.iter()) {
            message.push_str(&format!(
                "Container {} was using {}Ki, request is {request}, has larger consumption of {resource}. ",
                container.name,
                usage / 1024
            ));
        }
    }
    Some((*pod, message))
}

/// Whether a pod comes from a file of the node.
pub(super) fn is_static(pod: &Pod) -> bool {
    pod.metadata.annotations.as_ref().is_some_and(|all| all.contains_key("kubernetes.io/config.source"))
}

/// Whether a node that is under pressure takes a pod all the same.
#[must_use]
pub fn takes_under_pressure(health: &Health, pod: &Pod) -> bool {
    if is_static(pod) {
        return true;
    }
    let best_effort = pod.spec.as_ref().is_some_and(|spec| qos_class(spec) == "BestEffort");
    !(health.disk_pressure || health.memory_pressure && best_effort)
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn who_uses_more_than_it_asked_for_goes_first() {
        let pod = |name: &str, request: &str, priority: i32| -> Pod {
            serde_json::from_value(json!({"metadata": {"name": name}, "spec": {"priority": priority, "containers": [
                {"name": "c", "resources": {"requests": {"memory": request}}}]}}))
            .unwrap()
        };
        let (modest, greedy, important, system) = (
            pod("modest", "500Mi", 0),
            pod("greedy", "10Mi", 0),
            pod("important", "10Mi", 9),
            pod("s", "0", 2_000_001_000),
        );
        let pods = [(&modest, 400 << 20), (&greedy, 200 << 20), (&important, 900 << 20), (&system, 1 << 32)];
        let signals =
            Signals { memory_available: 50 << 20, memory_capacity: 1 << 30, disk_available: 1, disk_capacity: 1 };
        let usual = Thresholds::default();
        let pressed = health(&signals, &usual, None);
        let (victim, message) = victim(&pressed, &signals, &usual, &pods).unwrap();
        assert_eq!(victim.metadata.name.as_deref(), Some("greedy"));
        assert!(
            message
                .starts_with("The node was low on resource: memory. Threshold quantity: 100Mi, available: 51200Ki. ")
        );
        assert!(!takes_under_pressure(&pressed, &serde_json::from_value(json!({"spec": {"containers": []}})).unwrap()));
        let fine = Signals { memory_available: 1 << 29, ..signals };
        assert_eq!(super::victim(&health(&fine, &usual, None), &fine, &usual, &pods), None);
    }

    #[test]
    fn thresholds_as_the_flag_has_them() {
        let full = Signals { disk_available: 8 << 30, disk_capacity: 100 << 30, ..Signals::default() };
        assert!(health(&full, &Thresholds::default(), None).disk_pressure, "upstream's 10%");
        let parsed: Thresholds = "memory.available<200Mi,nodefs.available<5%".parse().unwrap();
        assert_eq!(parsed, Thresholds { memory: Threshold::Bytes(200 << 20), disk: Threshold::Percent(5) });
        assert!(!health(&full, &parsed, None).disk_pressure);
        let parsed: Thresholds = "nodefs.available<10Gi".parse().unwrap();
        assert!(health(&full, &parsed, None).disk_pressure);
        assert!("nodefs.available".parse::<Thresholds>().unwrap_err().contains("SIGNAL<VALUE"));
        assert!("pid.available<10%".parse::<Thresholds>().is_err());
        assert!("nodefs.available<x".parse::<Thresholds>().is_err());
    }
}
