//! PodResizeValidator and NodeDeclaredFeatureValidator: what a running pod is changed to must be what its node can do.

use std::collections::BTreeMap;

use capstan_api::{Map, Quantity, Status, Value, go, status::StatusCause};

use super::{
    Operation, Plugin, Request,
    common::{NODES, PODS, each, forbidden, is_of, keyed, object, old_object, same_meaning, stored},
};
use crate::registry::paths;

/// How much there is of a resource, in the unit of messages.
type Amount = fn(&Quantity) -> i64;

const AMOUNTS: [(&str, Amount); 2] = [("cpu", Quantity::milli_value), ("memory", Quantity::value)];

/// PodResizeValidator: a resized pod fits its node.
#[derive(Debug, Default)]
pub struct PodResizeValidator;

impl Plugin for PodResizeValidator {
    fn name(&self) -> &'static str {
        "PodResizeValidator"
    }

    fn validate(&self, request: &mut Request<'_>) -> Result<(), Status> {
        if request.subresource != "resize" || !changes_bound_pod(request) {
            return Ok(());
        }
        let node = node(request)?;
        if let Some(system) = keyed(&node, "metadata.labels", "kubernetes.io/os").filter(|system| *system != "linux") {
            let name = go::quote(paths::text(&node, "metadata.name"));
            let error = format!("pod resize is only supported on linux nodes, node {name} is {}", go::quote(system));
            return Err(refusal(request, error, "UnsupportedPlatform"));
        }
        let requests = pod_requests(object(request));
        let allocatable = list(&node, "status.allocatable");
        let (none, mut lacking) = (Quantity::default(), Vec::new());
        for (resource, amount) in AMOUNTS {
            let requested = requests.get(resource).unwrap_or(&none);
            let allocatable = allocatable.get(resource).unwrap_or(&none);
            if requested > allocatable {
                lacking.push(format!(
                    "{resource}, requested: {}, allocatable: {}",
                    amount(requested),
                    amount(allocatable)
                ));
            }
        }
        if lacking.is_empty() {
            return Ok(());
        }
        let error = format!("node didn't have enough allocatable resources: {}", lacking.join("; "));
        Err(refusal(request, error, "NodeCapacity"))
    }
}

/// NodeDeclaredFeatureValidator: a change that needs a feature goes only to pods on nodes which declare it.
#[derive(Debug, Default)]
pub struct NodeDeclaredFeatureValidator;

impl Plugin for NodeDeclaredFeatureValidator {
    fn name(&self) -> &'static str {
        "NodeDeclaredFeatureValidator"
    }

    fn validate(&self, request: &mut Request<'_>) -> Result<(), Status> {
        if !matches!(request.subresource, "" | "resize") || !changes_bound_pod(request) {
            return Ok(());
        }
        let required = required_features(object(request), old_object(request));
        if required.is_empty() {
            return Ok(());
        }
        let node = node(request)?;
        let declared = paths::items(&node, "status.declaredFeatures");
        let missing: Vec<&str> = required
            .into_iter()
            .filter(|feature| !declared.iter().any(|declared| declared.as_str() == Some(feature)))
            .collect();
        if missing.is_empty() {
            return Ok(());
        }
        let name = go::quote(paths::text(&node, "metadata.name"));
        let error =
            format!("pod update requires features {} which are not available on node {name}", missing.join(", "));
        Err(forbidden(request, error))
    }
}

/// Whether a pod that has a node gets another spec, which shows in its generation.
fn changes_bound_pod(request: &Request<'_>) -> bool {
    let (new, old) = (object(request), old_object(request));
    request.operation == Operation::Update
        && is_of(request, &PODS)
        && !paths::text(new, "spec.nodeName").is_empty()
        && paths::number(new, "metadata.generation") != paths::number(old, "metadata.generation")
}

fn node(request: &Request<'_>) -> Result<Map, Status> {
    let name = paths::text(object(request), "spec.nodeName");
    stored(request, &NODES, "", name).ok_or_else(|| forbidden(request, format!("node {} not found", go::quote(name))))
}

fn refusal(request: &Request<'_>, error: String, reason: &'static str) -> Status {
    let mut status = forbidden(request, error);
    let cause = StatusCause { reason: reason.into(), ..StatusCause::default() };
    status.details.get_or_insert_default().causes.push(cause);
    status
}

fn required_features(new: &Map, old: &Map) -> Vec<&'static str> {
    let same = |a: Option<&Value>, b: Option<&Value>| {
        let map = |value: Option<&Value>| value.and_then(Value::as_object).cloned().unwrap_or_default();
        same_meaning(&map(a), &map(b))
    };
    let mut features = Vec::new();
    if !same(paths::get(new, "spec.resources"), paths::get(old, "spec.resources")) {
        features.push("InPlacePodLevelResourcesVerticalScaling");
    }
    let mut init = each(old, "spec.initContainers").zip(each(new, "spec.initContainers"));
    if init.any(|(old, new)| !is_sidecar(old) && !same(old.get("resources"), new.get("resources"))) {
        features.push("InPlacePodVerticalScalingInitContainers");
    }
    features
}

fn is_sidecar(container: &Map) -> bool {
    paths::text(container, "restartPolicy") == "Always"
}

type Resources = BTreeMap<String, Quantity>;

fn list(object: &Map, path: &str) -> Resources {
    let entries = paths::get(object, path).and_then(Value::as_object).map(Map::entries).unwrap_or_default();
    let read = |value: &Value| match value {
        Value::String(text) => text.parse().ok(),
        other => other.to_string().parse().ok(),
    };
    entries.iter().filter_map(|(name, value)| Some((name.to_string(), read(value)?))).collect()
}

fn add(to: &mut Resources, more: &Resources) {
    for (name, amount) in more {
        to.entry(name.clone()).or_default().add(amount);
    }
}

fn raise(to: &mut Resources, least: &Resources) {
    for (name, amount) in least {
        let own = to.entry(name.clone()).or_default();
        if *own < *amount {
            *own = amount.clone();
        }
    }
}

/// What a pod asks for: its containers together, or the most that one of its first containers needs beside the sidecars
/// that run by then; what the pod asks for as a whole goes before that.
fn pod_requests(pod: &Map) -> Resources {
    let (mut all, mut sidecars, mut first) = (Resources::new(), Resources::new(), Resources::new());
    for container in each(pod, "spec.containers") {
        add(&mut all, &list(container, "resources.requests"));
    }
    for container in each(pod, "spec.initContainers") {
        let mut requests = list(container, "resources.requests");
        if is_sidecar(container) {
            add(&mut all, &requests);
            add(&mut sidecars, &requests);
            raise(&mut first, &sidecars);
        } else {
            add(&mut requests, &sidecars);
            raise(&mut first, &requests);
        }
    }
    raise(&mut all, &first);
    let of_pod = list(pod, "spec.resources.requests").into_iter();
    all.extend(of_pod.filter(|(name, _)| matches!(&**name, "cpu" | "memory") || name.starts_with("hugepages-")));
    add(&mut all, &list(pod, "spec.overhead"));
    all
}
