//! Fields of features that are off in this version: what is sent in them is dropped, unless the object has them
//! already.

use capstan_api::{Map, Value};

use super::strategy::Strategy;

/// Fields of the specs of pods, wherever these stand. `[]` stands for every element of a list, `{}` for every
/// entry of a map.
const POD_SPEC: &[&str] = &[
    "schedulingGroup",
    "volumes[].projected.sources[].clusterTrustBundle",
    "volumes[].projected.sources[].podCertificate",
    "containers[].lifecycle.stopSignal",
    "initContainers[].lifecycle.stopSignal",
    "ephemeralContainers[].lifecycle.stopSignal",
];

/// Fields of other objects.
const FIELDS: &[(&str, &str, &[&str])] = &[
    ("", "nodes", &["spec.configSource", "status.config"]),
    (
        "",
        "pods",
        &[
            "status.nodeAllocatableResourceClaimStatuses",
            "status.containerStatuses[].volumeMounts[].volumeStatus",
            "status.initContainerStatuses[].volumeMounts[].volumeStatus",
            "status.ephemeralContainerStatuses[].volumeMounts[].volumeStatus",
        ],
    ),
    ("apps", "statefulsets", &["spec.updateStrategy.rollingUpdate.maxUnavailable"]),
    ("coordination.k8s.io", "leases", &["spec.preferredHolder", "spec.strategy"]),
    ("discovery.k8s.io", "endpointslices", &["endpoints[].deprecatedTopology"]),
    (
        "resource.k8s.io",
        "resourceslices",
        &[
            "spec.devices[].nodeAllocatableResourceMappings",
            "spec.devices[].attributes{}.bools",
            "spec.devices[].attributes{}.ints",
            "spec.devices[].attributes{}.strings",
            "spec.devices[].attributes{}.versions",
        ],
    ),
    ("storage.k8s.io", "csidrivers", &["spec.preventPodSchedulingIfMissing"]),
];

/// Where the spec of a pod stands in objects of a resource.
fn pod_spec(group: &str, resource: &str) -> Option<&'static str> {
    match (group, resource) {
        ("", "pods") => Some("spec"),
        ("", "podtemplates") => Some("template.spec"),
        ("", "replicationcontrollers")
        | ("apps", "daemonsets" | "deployments" | "replicasets" | "statefulsets")
        | ("batch", "jobs") => Some("spec.template.spec"),
        ("batch", "cronjobs") => Some("spec.jobTemplate.spec.template.spec"),
        _ => None,
    }
}

/// Drops what the object must not have and `old` has not.
pub(super) fn drop_fields(strategy: &Strategy, object: &mut Map, old: Option<&Map>) {
    let (group, resource) = (strategy.group, strategy.resource);
    let own = FIELDS.iter().find(|(in_group, name, _)| (*in_group, *name) == (group, resource));
    for path in own.map_or(&[][..], |(.., fields)| fields) {
        drop_field(object, old, path);
    }
    let Some(spec) = pod_spec(group, resource) else { return };
    for path in POD_SPEC {
        drop_field(object, old, &format!("{spec}.{path}"));
    }
}

fn drop_field(object: &mut Map, old: Option<&Map>, path: &str) {
    if !old.is_some_and(|old| has(old, path)) {
        remove(object, path);
    }
}

/// What a name in a path stands for.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Each {
    Field,
    Element,
    Entry,
}

/// The first name of a path, what it stands for, and the rest of the path.
fn split(path: &str) -> (&str, Each, Option<&str>) {
    let (first, rest) = path.split_once('.').map_or((path, None), |(first, rest)| (first, Some(rest)));
    match (first.strip_suffix("[]"), first.strip_suffix("{}")) {
        (Some(name), _) => (name, Each::Element, rest),
        (_, Some(name)) => (name, Each::Entry, rest),
        _ => (first, Each::Field, rest),
    }
}

fn has(object: &Map, path: &str) -> bool {
    let (name, each, rest) = split(path);
    let within = |value: &Value| rest.is_none_or(|rest| value.as_object().is_some_and(|object| has(object, rest)));
    match object.get(name) {
        Some(Value::Array(items)) if each == Each::Element => items.iter().any(within),
        Some(Value::Object(entries)) if each == Each::Entry => entries.iter().any(|(_, value)| within(value)),
        Some(Value::Null) | None => false,
        Some(value) => each == Each::Field && within(value),
    }
}

fn remove(object: &mut Map, path: &str) {
    let (name, each, rest) = split(path);
    let Some(rest) = rest else {
        object.remove(name);
        return;
    };
    match object.get_mut(name) {
        Some(Value::Array(items)) if each == Each::Element => {
            items.iter_mut().filter_map(Value::as_object_mut).for_each(|item| remove(item, rest));
        }
        Some(Value::Object(entries)) if each == Each::Entry => {
            let entries = entries.iter_mut().filter_map(|(_, value)| value.as_object_mut());
            entries.for_each(|entry| remove(entry, rest));
        }
        Some(Value::Object(inner)) if each == Each::Field && has(inner, rest) => {
            remove(inner, rest);
            // A life cycle in which nothing happens is none.
            if name == "lifecycle" && inner.is_empty() {
                object.remove(name);
            }
        }
        _ => {}
    }
}

#[cfg(test)]
mod tests {
    use capstan_api::json;

    use super::*;

    fn map(text: &str) -> Map {
        json::parse(text.as_bytes()).expect("valid JSON").as_object().expect("an object").clone()
    }

    #[test]
    fn fields_go_unless_they_were_there() {
        let path = "spec.containers[].lifecycle.stopSignal";
        let old = map(r#"{"spec":{"containers":[{"lifecycle":{"stopSignal":"SIGUSR1"}}]}}"#);
        for (sent, kept, dropped) in [
            (r#"{"spec":{"containers":[{"lifecycle":{"stopSignal":"A"}}]}}"#, true, r#"{"spec":{"containers":[{}]}}"#),
            (
                r#"{"spec":{"containers":[{"lifecycle":{"stopSignal":"A","preStop":{}}},{"name":"b"}]}}"#,
                true,
                r#"{"spec":{"containers":[{"lifecycle":{"preStop":{}}},{"name":"b"}]}}"#,
            ),
            (r#"{"spec":{"containers":[{"lifecycle":{}}]}}"#, true, r#"{"spec":{"containers":[{"lifecycle":{}}]}}"#),
            (r#"{"spec":{"containers":null}}"#, true, r#"{"spec":{"containers":null}}"#),
        ] {
            let mut object = map(sent);
            drop_field(&mut object, Some(&old), path);
            assert_eq!(object == map(sent), kept);
            drop_field(&mut object, None, path);
            assert_eq!(object, map(dropped));
        }
        let mut object = map(r#"{"a":{"x":{"bools":[],"int":1},"y":{},"z":null}}"#);
        drop_field(&mut object, Some(&old), "a{}.bools");
        assert_eq!(object, map(r#"{"a":{"x":{"int":1},"y":{},"z":null}}"#));
    }
}
