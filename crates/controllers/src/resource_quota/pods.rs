//! What counts of a pod, as the JSON that it was once: the evaluator reads all objects in one way.

use serde_json::{Map, Value, json};

use crate::pod::{Amounts, Container, ContainerStatus, Pod, PodSpec, ResourceRequirements};

/// Sets what there is.
fn set(map: &mut Map<String, Value>, name: &str, value: Option<Value>) {
    map.extend(value.map(|value| (name.to_owned(), value)));
}

fn amounts(amounts: &Amounts) -> Value {
    json!(amounts)
}

fn resources(of: &ResourceRequirements) -> Value {
    let mut map = Map::new();
    set(&mut map, "limits", of.limits.as_deref().map(amounts));
    set(&mut map, "requests", of.requests.as_deref().map(amounts));
    Value::Object(map)
}

fn container(of: &Container) -> Value {
    let mut map = Map::from_iter([("name".to_owned(), json!(of.name))]);
    set(&mut map, "restartPolicy", of.restart_policy.as_ref().map(|policy| json!(policy)));
    set(&mut map, "resources", of.resources.as_ref().map(resources));
    Value::Object(map)
}

fn container_status(of: &ContainerStatus) -> Value {
    let mut map = Map::from_iter([("name".to_owned(), json!(of.name))]);
    set(&mut map, "resources", of.resources.as_deref().map(resources));
    set(&mut map, "allocatedResources", of.allocated_resources.as_deref().map(amounts));
    Value::Object(map)
}

/// What counts of what a pod is to be.
pub(crate) fn spec(of: &PodSpec) -> Value {
    let containers = |list: &[Container]| list.iter().map(container).collect::<Value>();
    let mut map = Map::from_iter([("containers".to_owned(), containers(&of.containers))]);
    set(&mut map, "initContainers", of.init_containers.as_ref().map(|list| containers(list)));
    set(&mut map, "resources", of.resources.as_deref().map(resources));
    set(&mut map, "overhead", of.overhead.as_deref().map(amounts));
    set(&mut map, "activeDeadlineSeconds", of.active_deadline_seconds.map(|seconds| json!(seconds)));
    set(&mut map, "priorityClassName", of.priority_class_name.as_ref().map(|class| json!(class)));
    if of.affinity.as_ref().is_some_and(|affinity| affinity.crosses_namespaces) {
        // Which pods these are does not count.
        let term = json!({"namespaceSelector": {}});
        let affinity = json!({"podAffinity": {"requiredDuringSchedulingIgnoredDuringExecution": [term]}});
        map.insert("affinity".to_owned(), affinity);
    }
    Value::Object(map)
}

/// What counts of a pod.
pub(super) fn pod(of: &Pod) -> Value {
    let metadata = json!({
        "deletionTimestamp": of.metadata.deletion_timestamp,
        "deletionGracePeriodSeconds": of.metadata.deletion_grace_period_seconds,
    });
    let Some(status) = &of.status else { return json!({"metadata": metadata, "spec": of.spec.as_ref().map(spec)}) };
    let statuses =
        |list: &Option<Box<[ContainerStatus]>>| list.iter().flatten().map(container_status).collect::<Value>();
    let conditions = status.conditions.iter().flatten();
    let conditions = conditions.map(|condition| json!({"type": condition.type_, "reason": condition.reason}));
    json!({
        "metadata": metadata,
        "spec": of.spec.as_ref().map(spec),
        "status": {
            "phase": status.phase,
            "qosClass": status.qos_class,
            "resize": status.resize,
            "conditions": conditions.collect::<Value>(),
            "containerStatuses": statuses(&status.container_statuses),
            "initContainerStatuses": statuses(&status.init_container_statuses),
        },
    })
}

#[cfg(test)]
mod tests {
    use capstan_clock::Timestamp;

    use super::super::evaluator::{Evaluator, Scope};
    use super::*;

    /// What a pod uses and whether it is in a scope is the same, whether all of it is read or only what is kept.
    #[track_caller]
    fn check(whole: Value, scope: &str, expected: bool) {
        let now: Timestamp = "2026-01-01T00:00:00Z".parse().unwrap();
        let kept = pod(&serde_json::from_value::<Pod>(whole.clone()).unwrap());
        assert_eq!(Evaluator::Pods.usage(&kept, now), Evaluator::Pods.usage(&whole, now), "{whole}");
        for scope in &Scope::of(&json!({"spec": {"scopes": [scope]}})) {
            assert_eq!(Evaluator::Pods.is_in_scope(scope, &whole), expected, "{whole}");
            assert_eq!(Evaluator::Pods.is_in_scope(scope, &kept), expected, "{whole}");
        }
    }

    #[test]
    fn what_is_kept_is_what_counts() {
        let asks = |cpu: &str| json!({"requests": {"cpu": cpu, "memory": "1Gi"}, "limits": {"cpu": "2", "example.com/gpu": "1"}});
        let containers = json!([{"name": "a", "image": "x", "resources": asks("100m")}, {"name": "b"}]);
        check(json!({"spec": {"containers": containers}}), "NotBestEffort", true);
        check(json!({"spec": {"containers": [{"name": "a"}]}}), "BestEffort", true);
        check(
            json!({"spec": {"containers": [{"name": "a"}]}, "status": {"qosClass": "Burstable"}}),
            "BestEffort",
            false,
        );
        let init = json!([{"name": "i", "resources": asks("3")},
            {"name": "s", "restartPolicy": "Always", "resources": asks("1")}]);
        check(
            json!({"spec": {"containers": containers, "initContainers": init, "overhead": {"cpu": "50m"},
                "resources": {"requests": {"cpu": "5"}}, "activeDeadlineSeconds": 5}}),
            "Terminating",
            true,
        );
        let resized = json!([{"name": "a", "allocatedResources": {"cpu": "700m"}, "resources": asks("600m")}]);
        let infeasible = json!([{"type": "PodResizePending", "status": "True", "reason": "Infeasible"}]);
        check(
            json!({"spec": {"containers": containers}, "status": {"containerStatuses": resized}}),
            "NotTerminating",
            true,
        );
        check(
            json!({"spec": {"containers": containers},
                "status": {"containerStatuses": resized, "conditions": infeasible}}),
            "BestEffort",
            false,
        );
        check(json!({"spec": {"containers": containers}, "status": {"phase": "Failed"}}), "BestEffort", false);
        let deleted = json!({"deletionTimestamp": "2025-12-31T23:59:00Z", "deletionGracePeriodSeconds": 30});
        check(json!({"metadata": deleted, "spec": {"containers": containers}}), "BestEffort", false);
        check(json!({"spec": {"priorityClassName": "high"}}), "PriorityClass", true);
        check(json!({"spec": {"containers": []}}), "PriorityClass", false);
        let term = |more: Value| {
            let mut term = json!({"topologyKey": "zone"});
            term.as_object_mut().unwrap().extend(more.as_object().unwrap().clone());
            term
        };
        for (term, expected) in [
            (term(json!({})), false),
            (term(json!({"namespaces": []})), false),
            (term(json!({"namespaces": ["other"]})), true),
            (term(json!({"namespaceSelector": {}})), true),
        ] {
            let required = json!({"requiredDuringSchedulingIgnoredDuringExecution": [term]});
            let preferred = json!({"preferredDuringSchedulingIgnoredDuringExecution":
                [{"weight": 1, "podAffinityTerm": term}]});
            for (kind, terms) in [("podAffinity", &required), ("podAntiAffinity", &preferred)] {
                check(json!({"spec": {"affinity": {kind: terms}}}), "CrossNamespacePodAffinity", expected);
            }
        }
    }
}
