//! What a node refuses to run although it was told to: what doesn't fit, doesn't match, or wants a port that is taken.

use std::collections::BTreeMap;

use k8s_openapi::api::core::v1::{Node, NodeSelectorTerm, Pod};

use crate::qos::{quantity, requested_milli};

/// Why a pod is not run: the reason and the sentence of its status.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Rejection {
    /// One word.
    pub reason: String,
    /// The sentence.
    pub message: String,
}

/// The reason when the node isn't one that the pod wants.
pub(super) const NODE_AFFINITY: &str = "NodeAffinity";

/// Whether the node takes a pod beside those that it has.
///
/// # Errors
/// It doesn't.
pub fn admit<'a>(pod: &Pod, node: &Node, others: impl Iterator<Item = &'a Pod> + Clone) -> Result<(), Rejection> {
    let Some(spec) = pod.spec.as_ref() else { return Ok(()) };
    let empty = BTreeMap::new();
    let allocatable = node.status.as_ref().and_then(|status| status.allocatable.as_ref()).unwrap_or(&empty);
    let reject = |reason: &str, message: String| Err(Rejection { reason: reason.to_owned(), message });
    let predicate = |name: &str, text: &str| Rejection {
        reason: name.to_owned(),
        message: format!("Predicate {name} failed: {text}"),
    };

    let insufficient = |resource: &str, requested: i64, used: i64, capacity: i64| {
        let message = format!(
            "Node didn't have enough resource: {resource}, requested: {requested}, used: {used}, capacity: {capacity}"
        );
        reject(&format!("OutOf{resource}"), message)
    };
    let pods = allocatable.get("pods").map(|q| quantity(q).value());
    let count = i64::try_from(others.clone().count()).unwrap_or(i64::MAX);
    if let Some(capacity) = pods.filter(|capacity| count + 1 > *capacity) {
        return insufficient("pods", 1, count, capacity);
    }
    for (resource, capacity) in allocatable.iter().filter(|(name, _)| *name != "pods") {
        let requested = requested_milli(spec, resource);
        if requested == 0 {
            continue;
        }
        let capacity = quantity(capacity).milli_value();
        let used: i64 = others.clone().filter_map(|pod| pod.spec.as_ref()).map(|s| requested_milli(s, resource)).sum();
        if used + requested > capacity {
            let unit = if resource == "cpu" { 1 } else { 1000 };
            return insufficient(resource, requested / unit, used / unit, capacity / unit);
        }
    }
    if !matches_node(pod, node) {
        return Err(predicate(NODE_AFFINITY, "node(s) didn't match Pod's node affinity/selector"));
    }
    let ports = |pod: &Pod| -> Vec<(i32, String, String)> {
        let containers = pod.spec.iter().flat_map(|spec| spec.containers.iter());
        let ports = containers.flat_map(|container| container.ports.iter().flatten().cloned());
        ports
            .filter_map(|port| {
                let number = port.host_port.filter(|number| *number > 0)?;
                let ip = port.host_ip.filter(|ip| !ip.is_empty()).unwrap_or_else(|| "0.0.0.0".to_owned());
                Some((number, port.protocol.unwrap_or_else(|| "TCP".to_owned()), ip))
            })
            .collect()
    };
    let wanted = ports(pod);
    if !wanted.is_empty() {
        let taken: Vec<_> = others.clone().flat_map(ports).collect();
        let clash = |a: &(i32, String, String), b: &(i32, String, String)| {
            a.0 == b.0 && a.1 == b.1 && (a.2 == b.2 || a.2 == "0.0.0.0" || b.2 == "0.0.0.0")
        };
        if wanted.iter().any(|wanted| taken.iter().any(|taken| clash(wanted, taken))) {
            return Err(predicate("NodePorts", "node(s) didn't have free ports for the requested pod ports"));
        }
    }
    let tolerated = |taint: &k8s_openapi::api::core::v1::Taint| {
        spec.tolerations.iter().flatten().any(|toleration| {
            let key = toleration.key.as_deref().unwrap_or_default();
            let value = toleration.value.as_deref().unwrap_or_default() == taint.value.as_deref().unwrap_or_default();
            let effect = toleration.effect.as_deref().unwrap_or_default();
            (effect.is_empty() || effect == taint.effect)
                && (key.is_empty() || key == taint.key)
                && (toleration.operator.as_deref() == Some("Exists") || (!key.is_empty() && value))
        })
    };
    let is_static = pod.metadata.annotations.as_ref().is_some_and(|a| a.contains_key("kubernetes.io/config.source"));
    let taints = node.spec.iter().flat_map(|spec| spec.taints.iter().flatten());
    if let Some(taint) = taints.filter(|t| t.effect == "NoExecute" && !is_static).find(|taint| !tolerated(taint)) {
        let key = &taint.key;
        let value = taint.value.as_deref().unwrap_or_default();
        return Err(predicate("TaintToleration", &format!("node(s) had untolerated taint(s) {{{key}: {value}}}")));
    }
    Ok(())
}

/// Whether the node is one of those that the pod wants.
fn matches_node(pod: &Pod, node: &Node) -> bool {
    let Some(spec) = pod.spec.as_ref() else { return true };
    let empty = BTreeMap::new();
    let labels = node.metadata.labels.as_ref().unwrap_or(&empty);
    let wanted = spec.node_selector.iter().flatten().all(|(key, value)| labels.get(key) == Some(value));
    let required = spec
        .affinity
        .as_ref()
        .and_then(|affinity| affinity.node_affinity.as_ref())
        .and_then(|affinity| affinity.required_during_scheduling_ignored_during_execution.as_ref());
    let name = node.metadata.name.as_deref().unwrap_or_default();
    wanted
        && required
            .is_none_or(|required| required.node_selector_terms.iter().any(|term| matches_term(term, labels, name)))
}

fn matches_term(term: &NodeSelectorTerm, labels: &BTreeMap<String, String>, name: &str) -> bool {
    let (expressions, fields) = (term.match_expressions.iter().flatten(), term.match_fields.iter().flatten());
    if expressions.clone().count() + fields.clone().count() == 0 {
        return false;
    }
    let holds = |operator: &str, have: Option<&str>, values: &[String]| {
        let number = |text: &str| text.parse::<i64>().ok();
        let compare = |check: fn(i64, i64) -> bool| {
            have.and_then(number).zip(values.first().and_then(|v| number(v))).is_some_and(|(a, b)| check(a, b))
        };
        match operator {
            "In" => have.is_some_and(|have| values.iter().any(|value| value == have)),
            "NotIn" => !have.is_some_and(|have| values.iter().any(|value| value == have)),
            "Exists" => have.is_some(),
            "DoesNotExist" => have.is_none(),
            "Gt" => compare(|a, b| a > b),
            "Lt" => compare(|a, b| a < b),
            _ => false,
        }
    };
    let of_labels = |e: &k8s_openapi::api::core::v1::NodeSelectorRequirement| {
        holds(&e.operator, labels.get(&e.key).map(String::as_str), e.values.as_deref().unwrap_or_default())
    };
    let of_name = |e: &k8s_openapi::api::core::v1::NodeSelectorRequirement| {
        holds(&e.operator, Some(name).filter(|_| e.key == "metadata.name"), e.values.as_deref().unwrap_or_default())
    };
    expressions.clone().all(of_labels) && fields.clone().all(of_name)
}

#[cfg(test)]
mod tests {
    use serde_json::{Value, json};

    use super::*;

    fn check(spec: Value, expected: &str) {
        let node: Node = serde_json::from_value(json!({
            "metadata": {"name": "n", "labels": {"disk": "ssd", "gen": "3"}},
            "status": {"allocatable": {"cpu": "1", "memory": "1Gi", "pods": "3"}}}))
        .unwrap();
        let of = |spec: Value| -> Pod { serde_json::from_value(json!({"metadata": {}, "spec": spec})).unwrap() };
        let there = of(json!({"containers": [{"name": "c", "ports": [{"containerPort": 1, "hostPort": 80}],
            "resources": {"requests": {"cpu": "600m", "memory": "100Mi"}}}]}));
        let got = admit(&of(spec.clone()), &node, [there].iter());
        let got =
            got.map_or_else(|rejection| format!("{}: {}", rejection.reason, rejection.message), |()| "yes".into());
        assert_eq!(got, expected, "{spec}");
    }

    #[test]
    fn what_does_not_fit() {
        let container = |resources: Value| json!({"containers": [{"name": "c", "resources": {"requests": resources}}]});
        check(container(json!({"cpu": "400m"})), "yes");
        check(
            container(json!({"cpu": "401m"})),
            "OutOfcpu: Node didn't have enough resource: cpu, requested: 401, used: 600, capacity: 1000",
        );
        check(
            container(json!({"memory": "1Gi"})),
            "OutOfmemory: Node didn't have enough resource: memory, requested: 1073741824, used: 104857600, capacity: \
             1073741824",
        );
        check(
            json!({"nodeSelector": {"disk": "hdd"}, "containers": []}),
            "NodeAffinity: Predicate NodeAffinity failed: node(s) didn't match Pod's node affinity/selector",
        );
        let affinity = |operator: &str| {
            json!({"containers": [], "affinity": {"nodeAffinity": {"requiredDuringSchedulingIgnoredDuringExecution":
                {"nodeSelectorTerms": [{"matchExpressions": [
                    {"key": "gen", "operator": operator, "values": ["2"]}]}]}}}})
        };
        check(affinity("Gt"), "yes");
        check(
            affinity("Lt"),
            "NodeAffinity: Predicate NodeAffinity failed: node(s) didn't match Pod's node affinity/selector",
        );
        let ports =
            |port: i32| json!({"containers": [{"name": "c", "ports": [{"containerPort": 1, "hostPort": port}]}]});
        check(ports(81), "yes");
        check(
            ports(80),
            "NodePorts: Predicate NodePorts failed: node(s) didn't have free ports for the requested pod ports",
        );
    }
}
