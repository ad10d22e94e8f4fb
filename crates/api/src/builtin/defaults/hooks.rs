//! What upstream fills in where one field decides about another.
//!
//! Each works on the map of its type. None fails: what has the wrong shape is left for validation to name.

use crate::{Map, Str, Value};

/// The metric of an autoscaler that names none.
pub(super) const HPA_METRICS: &str =
    r#"[{"type":"Resource","resource":{"name":"cpu","target":{"type":"Utilization","averageUtilization":80}}}]"#;

const SCALE_UP: &str = r#"{"stabilizationWindowSeconds":0,"selectPolicy":"Max","policies":[{"type":"Pods","value":4,"periodSeconds":15},{"type":"Percent","value":100,"periodSeconds":15}]}"#;

const SCALE_DOWN: &str = r#"{"selectPolicy":"Max","policies":[{"type":"Percent","value":100,"periodSeconds":15}]}"#;

/// The map at `field`, if there is one.
fn object<'a>(map: &'a mut Map, field: &str) -> Option<&'a mut Map> {
    map.get_mut(field)?.as_object_mut()
}

/// The maps in the list at `field`.
fn objects<'a>(map: &'a mut Map, field: &str) -> impl Iterator<Item = &'a mut Map> {
    let items = map.get_mut(field).and_then(Value::as_array_mut);
    items.into_iter().flat_map(|items| items.iter_mut()).filter_map(Value::as_object_mut)
}

/// The map at `field`, made if there is none.
fn make_object<'a>(map: &'a mut Map, field: &str) -> Option<&'a mut Map> {
    map.get_or_insert_with(field, || Map::new().into()).as_object_mut()
}

fn is_empty(map: &Map, field: &str) -> bool {
    match map.get(field) {
        None | Some(Value::Null) => true,
        Some(Value::String(text)) => text.is_empty(),
        Some(Value::Array(items)) => items.is_empty(),
        Some(Value::Object(map)) => map.is_empty(),
        Some(Value::Int(n)) => *n == 0,
        Some(_) => false,
    }
}

fn text<'a>(map: &'a Map, field: &str) -> &'a str {
    map.get(field).and_then(Value::as_str).unwrap_or_default()
}

/// Adds what `from` has and `to` lacks.
fn fill_map(to: &mut Map, from: &Map) {
    for (key, value) in from.iter() {
        if !to.contains_key(key) {
            to.insert(key, value.clone());
        }
    }
}

/// The account of a pod has two names, of which the newer one decides.
pub(super) fn service_account(spec: &mut Map) {
    const NAMES: [&str; 2] = ["serviceAccountName", "serviceAccount"];
    if let Some(name) = NAMES.iter().map(|key| text(spec, key)).find(|name| !name.is_empty()).map(Str::from) {
        NAMES.iter().for_each(|key| drop(spec.insert(*key, name.clone())));
    }
}

/// The first range of a node's addresses is also a field of its own, and that one decides.
pub(super) fn pod_cidrs(spec: &mut Map) {
    let first = text(spec, "podCIDR").to_owned();
    let listed = spec.get("podCIDRs").and_then(Value::as_array).and_then(|ranges| ranges.first());
    match listed.and_then(Value::as_str) {
        Some(listed) if first.is_empty() => {
            let listed = Str::from(listed);
            spec.insert("podCIDR", listed);
        }
        Some(listed) if listed == first => {}
        _ if first.is_empty() => {}
        _ => drop(spec.insert("podCIDRs", vec![first.into()])),
    }
}

/// The longest name of a repository.
const MAX_IMAGE_NAME: usize = 255;

/// Whether what stands before the tag of an image is a name: where it comes from, which may have a port, and
/// lowercase words.
fn is_image_name(name: &str) -> bool {
    if name.len() > MAX_IMAGE_NAME {
        return false;
    }
    let mut parts: Vec<&str> = name.split('/').collect();
    let is_host = |part: &str| part.contains(['.', ':']) || part == "localhost" || part.chars().any(char::is_uppercase);
    if parts.len() > 1 && is_host(parts[0]) {
        let host = parts.remove(0);
        let fits = |c: char| c.is_ascii_alphanumeric() || "-.:[]".contains(c);
        if !host.chars().all(fits) {
            return false;
        }
    }
    let word = |c: char| c.is_ascii_lowercase() || c.is_ascii_digit();
    let edges = |part: &str| part.starts_with(word) && part.ends_with(word);
    parts.iter().all(|part| edges(part) && part.chars().all(|c| word(c) || "._-".contains(c)))
}

/// The policy for an image: `Always` for the tag `latest`, also when it is not written.
fn pull_policy(image: &str) -> &'static str {
    let last = image.rfind('/').map_or(0, |at| at + 1);
    let end = image[last..].find(['@', ':']).map_or(image.len(), |at| last + at);
    // What is not the name of an image has no tag either.
    if !is_image_name(&image[..end]) {
        return "IfNotPresent";
    }
    let name = &image[last..];
    let latest = match (name.split_once('@'), name.split_once(':')) {
        (Some((name, _)), _) => name.ends_with(":latest"),
        (None, Some((_, tag))) => tag == "latest",
        (None, None) => true,
    };
    if latest { "Always" } else { "IfNotPresent" }
}

pub(super) fn container_pull_policy(container: &mut Map) {
    if is_empty(container, "imagePullPolicy") {
        let policy = pull_policy(text(container, "image"));
        container.insert("imagePullPolicy", policy);
    }
}

pub(super) fn volume(volume: &mut Map) {
    if volume.keys().all(|key| key == "name") {
        volume.insert("emptyDir", Map::new());
    }
    if let Some(image) = object(volume, "image")
        && is_empty(image, "pullPolicy")
    {
        let policy = pull_policy(text(image, "reference"));
        image.insert("pullPolicy", policy);
    }
}

/// Limits without requests are requests too; only in a Pod, not in a template.
pub(super) fn pod_requests_from_limits(pod: &mut Map) {
    let Some(spec) = object(pod, "spec") else { return };
    for containers in ["containers", "initContainers"] {
        for container in objects(spec, containers) {
            let Some(resources) = object(container, "resources") else { continue };
            let Some(limits) = resources.get("limits").and_then(Value::as_object).cloned() else { continue };
            if let Some(requests) = make_object(resources, "requests") {
                fill_map(requests, &limits);
            }
        }
    }
}

/// In the host's network every port is a host port.
/// A pod has the first of its addresses under a name of its own, which counts where the two differ.
pub(super) fn pod_ips(status: &mut Map) {
    let first = status.get("podIPs").and_then(Value::as_array).and_then(|ips| ips.first()?.get("ip")?.as_str());
    match (text(status, "podIP"), first) {
        (one, first) if !one.is_empty() && first != Some(one) => {
            let mut ip = Map::new();
            ip.insert("ip", one);
            status.insert("podIPs", vec![Value::from(ip)]);
        }
        (_, Some(first)) => {
            let first = Str::from(first);
            status.insert("podIP", first);
        }
        _ => {}
    }
}

/// Pods end within a second at the soonest when they ask for less than no time; templates keep what they say.
pub(super) fn grace_period(pod: &mut Map) {
    if let Some(seconds) = object(pod, "spec").and_then(|spec| spec.get_mut("terminationGracePeriodSeconds"))
        && seconds.as_i64().is_some_and(|seconds| seconds < 0)
    {
        *seconds = 1.into();
    }
}

pub(super) fn host_network_ports(pod: &mut Map) {
    let Some(spec) = object(pod, "spec") else { return };
    if spec.get("hostNetwork").and_then(Value::as_bool) != Some(true) {
        return;
    }
    for containers in ["containers", "initContainers"] {
        for container in objects(spec, containers) {
            for port in objects(container, "ports") {
                if is_empty(port, "hostPort")
                    && let Some(number) = port.get("containerPort").cloned()
                {
                    port.insert("hostPort", number);
                }
            }
        }
    }
}

pub(super) fn service(service: &mut Map) {
    if let Some(spec) = object(service, "spec") {
        service_affinity(spec);
        for port in objects(spec, "ports") {
            if is_empty(port, "targetPort")
                && let Some(number) = port.get("port").cloned()
            {
                port.insert("targetPort", number);
            }
        }
        service_traffic(spec);
    }
    let load_balancer = object(service, "spec").is_some_and(|spec| text(spec, "type") == "LoadBalancer");
    if load_balancer && let Some(status) = object(service, "status").and_then(|s| object(s, "loadBalancer")) {
        for ingress in objects(status, "ingress") {
            if !is_empty(ingress, "ip") && is_empty(ingress, "ipMode") {
                ingress.insert("ipMode", "VIP");
            }
        }
    }
}

fn service_affinity(spec: &mut Map) {
    match text(spec, "sessionAffinity") {
        "None" => {
            spec.remove("sessionAffinityConfig");
        }
        "ClientIP" => {
            let given = object(spec, "sessionAffinityConfig")
                .and_then(|config| object(config, "clientIP"))
                .is_some_and(|client| client.contains_key("timeoutSeconds"));
            if !given {
                let timeout = Map::from_iter([(Str::const_new("timeoutSeconds"), 10_800.into())]);
                spec.insert("sessionAffinityConfig", Map::from_iter([(Str::const_new("clientIP"), timeout.into())]));
            }
        }
        _ => {}
    }
}

fn service_traffic(spec: &mut Map) {
    let kind: Str = text(spec, "type").into();
    let external =
        matches!(kind.as_str(), "NodePort" | "LoadBalancer") || kind == "ClusterIP" && !is_empty(spec, "externalIPs");
    if external && is_empty(spec, "externalTrafficPolicy") {
        spec.insert("externalTrafficPolicy", "Cluster");
    }
    let internal = matches!(kind.as_str(), "NodePort" | "LoadBalancer" | "ClusterIP");
    if internal && !spec.contains_key("internalTrafficPolicy") {
        spec.insert("internalTrafficPolicy", "Cluster");
    }
    if kind == "LoadBalancer" && !spec.contains_key("allocateLoadBalancerNodePorts") {
        spec.insert("allocateLoadBalancerNodePorts", true);
    }
}

/// Templates of claims always say what they are.
pub(super) fn claim_templates(set: &mut Map) {
    let Some(spec) = object(set, "spec") else { return };
    for claim in objects(spec, "volumeClaimTemplates") {
        claim.insert("apiVersion", "v1");
        claim.insert("kind", "PersistentVolumeClaim");
    }
}

/// Where a namespace is called what it is called, so that selectors can find it.
pub(super) fn namespace_label(namespace: &mut Map) {
    let Some(metadata) = object(namespace, "metadata") else { return };
    let name: Str = text(metadata, "name").into();
    if !name.is_empty()
        && let Some(labels) = make_object(metadata, "labels")
    {
        labels.insert("kubernetes.io/metadata.name", name);
    }
}

pub(super) fn allocatable_from_capacity(status: &mut Map) {
    if !status.contains_key("allocatable")
        && let Some(capacity) = status.get("capacity").cloned()
    {
        status.insert("allocatable", capacity);
    }
}

pub(super) fn limit_range_item(item: &mut Map) {
    if text(item, "type") != "Container" {
        return;
    }
    let field = |item: &Map, name: &str| item.get(name).and_then(Value::as_object).cloned().unwrap_or_default();
    let (mut default, mut request) = (field(item, "default"), field(item, "defaultRequest"));
    fill_map(&mut default, &field(item, "max"));
    fill_map(&mut request, &default);
    fill_map(&mut request, &field(item, "min"));
    for (name, limits) in [("default", default), ("defaultRequest", request)] {
        if limits.is_empty() {
            item.remove(name)
        } else {
            item.insert(name, limits)
        };
    }
}

fn template_labels(object_map: &mut Map) -> Option<Value> {
    let template = object(object(object_map, "spec")?, "template")?;
    object(template, "metadata")?
        .get("labels")
        .filter(|labels| labels.as_object().is_some_and(|l| !l.is_empty()))
        .cloned()
}

pub(super) fn labels_from_template(job: &mut Map) {
    if let Some(labels) = template_labels(job)
        && let Some(metadata) = make_object(job, "metadata")
        && is_empty(metadata, "labels")
    {
        metadata.insert("labels", labels);
    }
}

pub(super) fn selector_and_labels_from_template(controller: &mut Map) {
    if let Some(labels) = template_labels(controller)
        && let Some(spec) = object(controller, "spec")
        && is_empty(spec, "selector")
    {
        spec.insert("selector", labels);
    }
    labels_from_template(controller);
}

pub(super) fn hpa_behavior(autoscaler: &mut Map) {
    let Some(behavior) = object(autoscaler, "spec").and_then(|spec| object(spec, "behavior")) else { return };
    for (direction, defaults) in [("scaleUp", SCALE_UP), ("scaleDown", SCALE_DOWN)] {
        let defaults = crate::json::parse(defaults.as_bytes()).expect("a literal is JSON");
        if let (Some(rules), Some(defaults)) = (make_object(behavior, direction), defaults.as_object()) {
            fill_map(rules, defaults);
        }
    }
}

pub(super) fn custom_resource_definition(definition: &mut Map) {
    let mut stored = None;
    if let Some(spec) = object(definition, "spec") {
        if let Some(names) = object(spec, "names") {
            let kind: Str = text(names, "kind").into();
            if is_empty(names, "singular") {
                names.insert("singular", kind.to_lowercase());
            }
            if is_empty(names, "listKind") && !kind.is_empty() {
                names.insert("listKind", format!("{kind}List"));
            }
        }
        stored = objects(spec, "versions")
            .find(|version| version.get("storage").and_then(Value::as_bool) == Some(true))
            .map(|version| Value::from(text(version, "name")));
    }
    if let Some(stored) = stored
        && let Some(status) = make_object(definition, "status")
        && is_empty(status, "storedVersions")
    {
        status.insert("storedVersions", vec![stored]);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn pull_policies() {
        for (image, expected) in [
            ("nginx", "Always"),
            ("nginx:latest", "Always"),
            ("nginx:1.27", "IfNotPresent"),
            ("registry:5000/a/nginx", "Always"),
            ("registry:5000/a/nginx:1", "IfNotPresent"),
            ("nginx@sha256:0123", "IfNotPresent"),
            ("nginx:latest@sha256:0123", "Always"),
            ("", "IfNotPresent"),
            ("Nginx", "IfNotPresent"),
            ("a b", "IfNotPresent"),
            ("-nginx", "IfNotPresent"),
            ("Registry/nginx", "Always"),
            ("a_b/c.d-e", "Always"),
        ] {
            assert_eq!(pull_policy(image), expected, "{image}");
        }
    }
}
