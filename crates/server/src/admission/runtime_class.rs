//! RuntimeClass: a pod carries the overhead of its runtime, and goes where that runs.

use capstan_api::{GroupResource, Map, Quantity, Status, Value, go, validation::is_path_segment_name};

use super::{
    Operation, Plugin, Request,
    common::{PODS, forbidden, is_about, is_set, object, stored, strings},
    tolerations,
};
use crate::{handlers::write::as_it_is, registry::paths};

const RUNTIME_CLASSES: GroupResource = GroupResource::from_static("node.k8s.io", "runtimeclasses");
const MISMATCH: &str = "pod rejected: Pod's Overhead doesn't match RuntimeClass's defined Overhead";

/// The plugin.
#[derive(Debug, Default)]
pub struct RuntimeClass;

impl Plugin for RuntimeClass {
    fn name(&self) -> &'static str {
        "RuntimeClass"
    }

    fn admit(&self, request: &mut Request<'_>) -> Result<(), Status> {
        let Some(class) = class(request)? else {
            return Ok(());
        };
        let pod = object(request);
        let overhead = overhead(&class);
        let own = paths::get(pod, "spec.overhead").and_then(Value::as_object).filter(|own| !own.is_empty());
        if let (Some(overhead), Some(own)) = (overhead, own)
            && !same_quantities(overhead, own)
        {
            return Err(forbidden(request, MISMATCH));
        }
        let scheduling = is_set(&class, "scheduling");
        for (key, value) in strings(&class, "scheduling.nodeSelector") {
            let own = super::common::keyed(pod, "spec.nodeSelector", key);
            if let Some(own) = own.filter(|own| *own != value) {
                return Err(forbidden(
                    request,
                    format!(
                        "conflict: runtimeClass.scheduling.nodeSelector[{key}] = {value}; \
                         pod.spec.nodeSelector[{key}] = {own}"
                    ),
                ));
            }
        }
        let Some(pod) = request.object.as_deref_mut() else {
            return Ok(());
        };
        if let Some(overhead) = overhead {
            paths::set(pod, "spec.overhead", overhead.clone());
        }
        if scheduling {
            let selector: Map = strings(pod, "spec.nodeSelector")
                .chain(strings(&class, "scheduling.nodeSelector"))
                .map(|(key, value)| (key.into(), value.into()))
                .collect();
            if !selector.is_empty() {
                paths::set(pod, "spec.nodeSelector", selector);
            }
            let own = paths::items(pod, "spec.tolerations");
            let merged = tolerations::merge(own, paths::items(&class, "scheduling.tolerations"));
            if !merged.is_empty() {
                paths::set(pod, "spec.tolerations", merged);
            }
        }
        Ok(())
    }

    fn validate(&self, request: &mut Request<'_>) -> Result<(), Status> {
        let class = class(request)?;
        if !applies(request) {
            return Ok(());
        }
        let own = paths::get(object(request), "spec.overhead").and_then(Value::as_object);
        match (class.as_ref().and_then(overhead), own) {
            (Some(overhead), own) if !same_quantities(overhead, own.unwrap_or(&Map::new())) => {
                Err(forbidden(request, MISMATCH))
            }
            (None, Some(_)) => Err(forbidden(
                request,
                "pod rejected: Pod Overhead set without corresponding RuntimeClass defined Overhead",
            )),
            _ => Ok(()),
        }
    }
}

fn applies(request: &Request<'_>) -> bool {
    is_about(request, &PODS) && request.operation == Operation::Create
}

/// The class that a new pod names.
fn class(request: &Request<'_>) -> Result<Option<Map>, Status> {
    let name = paths::get(object(request), "spec.runtimeClassName").and_then(Value::as_str);
    let Some(name) = name.filter(|_| applies(request)) else {
        return Ok(None);
    };
    // Upstream asks for it by its path.
    if name.is_empty() {
        return Err(as_it_is("resource name may not be empty"));
    }
    let messages = is_path_segment_name(name);
    if !messages.is_empty() {
        let quoted = go::quote(name);
        return Err(as_it_is(format!("invalid resource name {quoted}: [{}]", messages.join(" "))));
    }
    match stored(request, &RUNTIME_CLASSES, "", name) {
        None => Err(forbidden(request, format!("pod rejected: RuntimeClass {} not found", go::quote(name)))),
        class => Ok(class),
    }
}

/// What a class says of overhead; an overhead of nothing is one too.
fn overhead(class: &Map) -> Option<&Map> {
    static NOTHING: Map = Map::new();
    let overhead = class.get("overhead")?.as_object()?;
    Some(overhead.get("podFixed").and_then(Value::as_object).unwrap_or(&NOTHING))
}

fn same_quantities(a: &Map, b: &Map) -> bool {
    let read = |value: &Value| value.as_str().and_then(|text| text.parse::<Quantity>().ok());
    a.len() == b.len()
        && a.iter().all(|(key, a)| b.get(key).is_some_and(|b| a == b || read(a).is_some_and(|a| Some(a) == read(b))))
}
