//! Who has to go when the machine runs out of something. Pure: signals and pods in, a victim out.

use k8s_openapi::api::core::v1::Pod;

use super::{machine::Signals, register::Health, start::memory_request};
use crate::qos::qos_class;

/// Memory that must stay available: below it, pods are evicted.
pub const MEMORY_RESERVE: u64 = 100 << 20;
/// The share of the disk that must stay available, in percent.
const DISK_RESERVE_PERCENT: u64 = 10;

/// What presses.
#[must_use]
pub fn health(signals: &Signals, not_ready: Option<String>) -> Health {
    Health {
        memory_pressure: signals.memory_capacity > 0 && signals.memory_available < MEMORY_RESERVE,
        disk_pressure: signals.disk_capacity > 0
            && signals.disk_available < signals.disk_capacity / 100 * DISK_RESERVE_PERCENT,
        pid_pressure: false,
        not_ready,
    }
}

/// The pod that goes, with the message of its status. `usage` is memory in bytes.
///
/// First those that use more than they asked for, then by priority, then by how much more; who is critical stays.
#[must_use]
pub fn victim<'a>(health: &Health, signals: &Signals, pods: &[(&'a Pod, u64)]) -> Option<(&'a Pod, String)> {
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
        ("memory", format!("{}Mi", MEMORY_RESERVE >> 20), format!("{}Ki", signals.memory_available / 1024))
    } else {
        ("ephemeral-storage", format!("{DISK_RESERVE_PERCENT}%"), format!("{}Ki", signals.disk_available / 1024))
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
        let pressed = health(&signals, None);
        let (victim, message) = victim(&pressed, &signals, &pods).unwrap();
        assert_eq!(victim.metadata.name.as_deref(), Some("greedy"));
        assert!(
            message
                .starts_with("The node was low on resource: memory. Threshold quantity: 100Mi, available: 51200Ki. ")
        );
        assert!(!takes_under_pressure(&pressed, &serde_json::from_value(json!({"spec": {"containers": []}})).unwrap()));
        let fine = Signals { memory_available: 1 << 29, ..signals };
        assert_eq!(super::victim(&health(&fine, None), &fine, &pods), None);
    }
}
