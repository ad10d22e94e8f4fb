//! What simulated pods use: what their annotations say, else what they asked for.
//!
//! Nothing measures and nothing is kept: usage follows from the pod as it is, so that it changes with the pod's
//! annotations at once, and an autoscaler can be driven by them.

use k8s_openapi::api::core::v1::{Container, Pod};

/// What the runtime of a simulated node calls itself.
pub(super) const RUNTIME: &str = "simulated://";

/// The annotation that says how much of a processor each container of the pod uses: `250m`.
pub const USAGE_CPU: &str = "capstan.dev/simulated-usage-cpu";
/// The annotation that says how much memory each container of the pod uses: `64Mi`.
pub const USAGE_MEMORY: &str = "capstan.dev/simulated-usage-memory";

/// What a container uses of which nothing is known: a thousandth of a processor, and a mebibyte.
const LITTLE: (u64, u64) = (1_000_000, 1 << 20);

/// What a container uses.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Usage {
    /// Thousand-millionths of a processor.
    pub cpu_nano_cores: u64,
    /// Bytes.
    pub memory_bytes: u64,
}

/// Whether a runtime of this name and version is a simulated one.
#[must_use]
pub fn is_simulated(runtime_version: &str) -> bool {
    runtime_version.starts_with(RUNTIME)
}

/// What the containers of a pod use that run now, by name.
#[must_use]
pub fn usage(pod: &Pod) -> Vec<(&str, Usage)> {
    let (Some(spec), Some(status)) = (&pod.spec, &pod.status) else { return Vec::new() };
    let statuses = [&status.init_container_statuses, &status.container_statuses];
    let runs = |name: &str| {
        let mut all = statuses.into_iter().flatten().flatten();
        let state = all.find(|status| status.name == name).and_then(|status| status.state.as_ref());
        state.is_some_and(|state| state.running.is_some())
    };
    let containers = spec.init_containers.iter().flatten().chain(&spec.containers);
    let running = containers.filter(|container| runs(&container.name));
    running.map(|container| (container.name.as_str(), of_container(pod, container))).collect()
}

fn of_container(pod: &Pod, container: &Container) -> Usage {
    let annotations = pod.metadata.annotations.as_ref();
    let requests = container.resources.as_ref().and_then(|resources| resources.requests.as_ref());
    let amount = |annotation: &str, resource: &str, scale: i32| {
        let said = annotations.and_then(|all| all.get(annotation));
        let text = said.or_else(|| requests?.get(resource).map(|quantity| &quantity.0))?;
        let quantity: capstan_api::Quantity = text.parse().ok()?;
        u64::try_from(quantity.scaled_value(scale)).ok()
    };
    Usage {
        cpu_nano_cores: amount(USAGE_CPU, "cpu", -9).unwrap_or(LITTLE.0),
        memory_bytes: amount(USAGE_MEMORY, "memory", 0).unwrap_or(LITTLE.1),
    }
}

#[cfg(test)]
mod tests {
    use serde_json::{Value, json};

    use super::*;

    fn check(annotations: Value, requests: Value, expected: (u64, u64)) {
        let pod: Pod = serde_json::from_value(json!({
            "metadata": {"annotations": annotations},
            "spec": {"containers": [{"name": "runs", "resources": {"requests": requests}}, {"name": "waits"}]},
            "status": {"containerStatuses": [
                {"name": "runs", "image": "i", "imageID": "", "ready": true, "restartCount": 0, "state": {"running": {}}},
                {"name": "waits", "image": "i", "imageID": "", "ready": false, "restartCount": 0, "state": {}}]},
        }))
        .unwrap();
        let expected = Usage { cpu_nano_cores: expected.0, memory_bytes: expected.1 };
        assert_eq!(usage(&pod), [("runs", expected)]);
    }

    #[test]
    fn what_is_said_else_what_was_asked_for() {
        check(json!({}), json!({}), LITTLE);
        check(json!({}), json!({"cpu": "250m", "memory": "64Mi"}), (250_000_000, 64 << 20));
        check(json!({USAGE_CPU: "2", USAGE_MEMORY: "1Gi"}), json!({"cpu": "250m"}), (2_000_000_000, 1 << 30));
        check(json!({USAGE_CPU: "much"}), json!({"cpu": "250m"}), (LITTLE.0, LITTLE.1));
    }
}
