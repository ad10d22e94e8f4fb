//! The downward API: what a pod may know of itself.

use capstan_api::{go, quantity::Format};
use k8s_openapi::api::core::v1::{Container, Pod, ResourceFieldSelector};

use crate::qos::quantity;

/// What of the node a pod may know.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Facts {
    /// The pod's addresses.
    pub pod_ips: Vec<String>,
    /// The node's addresses.
    pub host_ips: Vec<String>,
    /// Processor time that pods can have, in thousandths: the limit of those that have none.
    pub allocatable_cpu_milli: i64,
    /// Memory that pods can have, in bytes.
    pub allocatable_memory: i64,
}

/// A field of the pod as text.
///
/// # Errors
/// There is no such field.
pub fn field(pod: &Pod, path: &str, facts: &Facts) -> Result<String, String> {
    let (metadata, spec) = (&pod.metadata, pod.spec.as_ref());
    let first = |list: &[String]| list.first().cloned().unwrap_or_default();
    let map = |map: &Option<std::collections::BTreeMap<String, String>>| {
        let lines = map.iter().flatten().map(|(key, value)| format!("{key}={}", go::quote(value)));
        lines.collect::<Vec<_>>().join("\n")
    };
    if let Some((name, key)) = path.strip_suffix("']").and_then(|path| path.split_once("['")) {
        let of = match name {
            "metadata.labels" => &metadata.labels,
            "metadata.annotations" => &metadata.annotations,
            _ => return Err(format!("fieldPath {} does not support subscript", go::quote(path))),
        };
        return Ok(of.as_ref().and_then(|map| map.get(key)).cloned().unwrap_or_default());
    }
    Ok(match path {
        "metadata.name" => metadata.name.clone().unwrap_or_default(),
        "metadata.namespace" => metadata.namespace.clone().unwrap_or_default(),
        "metadata.uid" => metadata.uid.clone().unwrap_or_default(),
        "metadata.labels" => map(&metadata.labels),
        "metadata.annotations" => map(&metadata.annotations),
        "spec.nodeName" => spec.and_then(|spec| spec.node_name.clone()).unwrap_or_default(),
        "spec.serviceAccountName" => spec.and_then(|spec| spec.service_account_name.clone()).unwrap_or_default(),
        "status.hostIP" => first(&facts.host_ips),
        "status.hostIPs" => facts.host_ips.join(","),
        "status.podIP" => first(&facts.pod_ips),
        "status.podIPs" => facts.pod_ips.join(","),
        _ => return Err(format!("unsupported fieldPath: {path}")),
    })
}

/// A request or limit of a container as a whole number of divisors, rounded up.
///
/// # Errors
/// There is no such container or resource.
pub fn resource(
    pod: &Pod,
    container: Option<&Container>,
    selector: &ResourceFieldSelector,
    facts: &Facts,
) -> Result<String, String> {
    let named = selector.container_name.as_deref().filter(|name| !name.is_empty());
    let spec = pod.spec.as_ref();
    let all = || spec.iter().flat_map(|spec| spec.containers.iter().chain(spec.init_containers.iter().flatten()));
    let container = match named {
        Some(name) => all().find(|c| c.name == name).ok_or_else(|| format!("container {name} not found"))?,
        None => container.ok_or("container name is required")?,
    };
    let (kind, resource) = selector.resource.split_once('.').unwrap_or_default();
    let resources = container.resources.as_ref();
    let (requests, limits) =
        (resources.and_then(|r| r.requests.as_ref()), resources.and_then(|r| r.limits.as_ref()));
    let get = |map: Option<&std::collections::BTreeMap<_, _>>| map.and_then(|map| map.get(resource)).map(quantity);
    let value = match kind {
        "limits" => get(limits).filter(|q| !q.is_zero()),
        "requests" => get(requests).or_else(|| get(limits)),
        _ => return Err(format!("unsupported container resource : {}", selector.resource)),
    };
    let value = value.unwrap_or_else(|| match (kind, resource) {
        ("limits", "cpu") => capstan_api::Quantity::new_milli(facts.allocatable_cpu_milli, Format::DecimalSI),
        ("limits", "memory") => capstan_api::Quantity::new(facts.allocatable_memory, Format::BinarySI),
        _ => capstan_api::Quantity::default(),
    });
    let divisor = selector.divisor.as_ref().map(quantity).filter(|q| !q.is_zero());
    if resource == "cpu" {
        let divisor = divisor.map_or(1000, |q| q.milli_value()).max(1);
        return Ok(value.milli_value().div_ceil_to(divisor).to_string());
    }
    Ok(value.value().div_ceil_to(divisor.map_or(1, |q| q.value()).max(1)).to_string())
}

/// Division that rounds up.
trait DivCeil {
    fn div_ceil_to(self, divisor: i64) -> i64;
}

impl DivCeil for i64 {
    fn div_ceil_to(self, divisor: i64) -> i64 {
        self / divisor + i64::from(self % divisor > 0)
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn requests_and_limits_in_parts_of_a_divisor() {
        let pod: Pod = serde_json::from_value(json!({"spec": {"containers": [{"name": "c",
            "resources": {"requests": {"cpu": "250m", "memory": "100Mi"}, "limits": {"memory": "200Mi"}}}]}}))
        .unwrap();
        let facts = Facts { allocatable_cpu_milli: 2000, ..Facts::default() };
        let cases = [
            ("requests.cpu", "0", "1"),
            ("requests.cpu", "1m", "250"),
            ("requests.memory", "1Mi", "100"),
            ("limits.memory", "0", "209715200"),
            ("limits.cpu", "1", "2"),
        ];
        for (name, divisor, expected) in cases {
            let selector = json!({"containerName": "c", "resource": name, "divisor": divisor});
            let selector: ResourceFieldSelector = serde_json::from_value(selector).unwrap();
            assert_eq!(resource(&pod, None, &selector, &facts).as_deref(), Ok(expected), "{name} {divisor}");
        }
    }
}
