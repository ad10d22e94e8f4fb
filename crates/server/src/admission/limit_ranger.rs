//! `LimitRanger`: what containers, pods and claims of a namespace ask for, where they say nothing, at least and at
//! most.

use std::fmt::Display;

use capstan_api::{GroupResource, Map, Quantity, Status, Value, field, json};

use super::{
    Operation, Plugin, Request,
    forbidden::forbidden,
    resources::{ResourceList, Side, of_spec, read, write},
};
use crate::validation::read::{at, is_set, objects, text};

/// Where it is noted what was filled in.
pub const ANNOTATION: &str = "kubernetes.io/limit-ranger";

/// Amounts up to this are compared in thousandths.
const MAX_MILLI_VALUE: i64 = i64::MAX / 1000;

/// The plugin.
#[derive(Clone, Copy, Debug, Default)]
pub struct LimitRanger;

/// What a range can be about.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Kind {
    Pod,
    PersistentVolumeClaim,
}

/// What the request is about, if ranges are.
fn kind_of(request: &Request<'_>) -> Option<Kind> {
    let is_update = match request.operation {
        Operation::Create => false,
        Operation::Update => true,
        Operation::Delete | Operation::Connect => return None,
    };
    if request.old_object.is_some_and(|old| is_set(at(old, "metadata"), "deletionTimestamp")) {
        return None;
    }
    match (&*request.kind.group, &*request.kind.kind, request.subresource) {
        ("", "Pod", "resize") if is_update => Some(Kind::Pod),
        ("", "Pod", "") if !is_update => Some(Kind::Pod),
        ("", "PersistentVolumeClaim", "") => Some(Kind::PersistentVolumeClaim),
        _ => None,
    }
}

/// The ranges of the namespace, each with the limits in its spec.
fn ranges(request: &Request<'_>) -> Vec<Value> {
    let found = request.objects.list(&GroupResource::new("", "limitranges"), request.namespace);
    found.iter().filter_map(|range| json::parse(&range.json).ok()).collect()
}

fn limits_of(range: &Value) -> impl Iterator<Item = &Map> {
    let spec = range.get("spec").and_then(Value::as_object);
    spec.into_iter().flat_map(|spec| objects(spec, "limits").map(|(_, limit)| limit))
}

impl Plugin for LimitRanger {
    fn name(&self) -> &'static str {
        "LimitRanger"
    }

    fn admit(&self, request: &mut Request<'_>) -> Result<(), Status> {
        if kind_of(request) == Some(Kind::Pod) {
            let ranges = ranges(request);
            if let Some(pod) = request.object.as_deref_mut() {
                for range in &ranges {
                    fill_in(range, pod);
                }
            }
        }
        Ok(())
    }

    fn validate(&self, request: &mut Request<'_>) -> Result<(), Status> {
        let Some(kind) = kind_of(request) else { return Ok(()) };
        let Some(object) = request.object.as_deref() else { return Ok(()) };
        let spec = at(object, "spec");
        for range in ranges(request) {
            let mut errors = Vec::new();
            for limit in limits_of(&range) {
                match (kind, text(limit, "type")) {
                    (Kind::Pod, ty @ "Container") => {
                        for (_, container) in
                            ["containers", "initContainers"].iter().flat_map(|list| objects(spec, list))
                        {
                            let resources = at(container, "resources");
                            let [requests, limits] = ["requests", "limits"].map(|side| read(resources, side));
                            Bounds { ty, limit }.check(&requests, &limits, &mut errors);
                        }
                    }
                    (Kind::Pod, ty @ "Pod") => {
                        let [requests, limits] = [Side::Requests, Side::Limits].map(|side| of_spec(spec, side));
                        Bounds { ty, limit }.check(&requests, &limits, &mut errors);
                    }
                    (Kind::PersistentVolumeClaim, ty @ "PersistentVolumeClaim") => {
                        Bounds { ty, limit }.check_claim(&read(at(spec, "resources"), "requests"), &mut errors);
                    }
                    _ => {}
                }
            }
            if !errors.is_empty() {
                return Err(forbidden(request, field::aggregate(errors)));
            }
        }
        Ok(())
    }
}

/// Gives the containers of a pod what a range has for those that do not say.
fn fill_in(range: &Value, pod: &mut Map) {
    let (mut requests, mut limits) = (ResourceList::new(), ResourceList::new());
    for limit in limits_of(range).filter(|limit| text(limit, "type") == "Container") {
        requests.extend(read(limit, "defaultRequest"));
        limits.extend(read(limit, "default"));
    }
    let mut notes = Vec::new();
    let Some(spec) = pod.get_mut("spec").and_then(Value::as_object_mut) else { return };
    for (list, what) in [("containers", "container"), ("initContainers", "init container")] {
        let Some(containers) = spec.get_mut(list).and_then(Value::as_array_mut) else { continue };
        for container in containers.iter_mut().filter_map(Value::as_object_mut) {
            let name = text(container, "name").to_owned();
            for (side, one, defaults) in [("requests", "request", &requests), ("limits", "limit", &limits)] {
                let set = fill(container, side, defaults);
                if !set.is_empty() {
                    notes.push(format!("{} {one} for {what} {name}", set.join(", ")));
                }
            }
        }
    }
    if !notes.is_empty()
        && let Some(metadata) = pod.get_or_insert_with("metadata", || Map::new().into()).as_object_mut()
        && let Some(annotations) = metadata.get_or_insert_with("annotations", || Map::new().into()).as_object_mut()
    {
        annotations.insert(ANNOTATION, format!("LimitRanger plugin set: {}", notes.join("; ")));
    }
}

/// Sets what is not set, and returns what that was.
fn fill(container: &mut Map, side: &str, defaults: &ResourceList) -> Vec<String> {
    let own = at(at(container, "resources"), side);
    let mut missing = defaults.clone();
    missing.retain(|name, _| !own.contains_key(name));
    let names = missing.keys().map(ToString::to_string).collect();
    if !missing.is_empty()
        && let Some(resources) = container.get_or_insert_with("resources", || Map::new().into()).as_object_mut()
        && let Some(list) = resources.get_or_insert_with(side, || Map::new().into()).as_object_mut()
    {
        for (name, amount) in write(&missing) {
            list.insert(name, amount);
        }
    }
    names
}

/// What one entry of a range demands.
struct Bounds<'a> {
    ty: &'a str,
    limit: &'a Map,
}

/// Amounts that can be compared: in thousandths if all of them are small enough.
fn values(amounts: [Option<&Quantity>; 3]) -> [i64; 3] {
    let whole = amounts.map(|amount| amount.map_or(0, Quantity::value));
    if whole.iter().all(|value| *value <= MAX_MILLI_VALUE) {
        return amounts.map(|amount| amount.map_or(0, Quantity::milli_value));
    }
    whole
}

impl Bounds<'_> {
    fn check(&self, requests: &ResourceList, limits: &ResourceList, errors: &mut Vec<String>) {
        for (name, min) in &read(self.limit, "min") {
            errors.extend(self.min(name, min, requests.get(name), limits.get(name)));
        }
        for (name, max) in &read(self.limit, "max") {
            errors.extend(self.max(name, max, requests.get(name), limits.get(name)));
        }
        for (name, ratio) in &read(self.limit, "maxLimitRequestRatio") {
            errors.extend(self.ratio(name, ratio, requests.get(name), limits.get(name)));
        }
    }

    fn check_claim(&self, requests: &ResourceList, errors: &mut Vec<String>) {
        for (name, min) in &read(self.limit, "min") {
            errors.extend(self.min(name, min, requests.get(name), None));
        }
        for (name, max) in &read(self.limit, "max") {
            let words = self.words("maximum", name, max);
            let Some(request) = requests.get(name) else {
                errors.push(format!("{words}.  No request is specified"));
                continue;
            };
            let [value, _, bound] = values([Some(request), None, Some(max)]);
            if value > bound {
                errors.push(format!("{words}, but request is {request}"));
            }
        }
    }

    fn words(&self, what: &str, name: &str, bound: impl Display) -> String {
        format!("{what} {name} usage per {} is {bound}", self.ty)
    }

    fn min(&self, name: &str, min: &Quantity, request: Option<&Quantity>, limit: Option<&Quantity>) -> Option<String> {
        let words = self.words("minimum", name, min);
        let [requested, limited, bound] = values([request, limit, Some(min)]);
        let Some(request) = request else { return Some(format!("{words}.  No request is specified")) };
        if requested < bound {
            return Some(format!("{words}, but request is {request}"));
        }
        limit.filter(|_| limited < bound).map(|limit| format!("{words}, but limit is {limit}"))
    }

    fn max(&self, name: &str, max: &Quantity, request: Option<&Quantity>, limit: Option<&Quantity>) -> Option<String> {
        let words = self.words("maximum", name, max);
        let [requested, limited, bound] = values([request, limit, Some(max)]);
        let Some(limit) = limit else { return Some(format!("{words}.  No limit is specified")) };
        if limited > bound {
            return Some(format!("{words}, but limit is {limit}"));
        }
        request.filter(|_| requested > bound).map(|request| format!("{words}, but request is {request}"))
    }

    #[expect(clippy::cast_precision_loss, reason = "the ratio is a floating point number upstream too")]
    fn ratio(
        &self,
        name: &str,
        most: &Quantity,
        request: Option<&Quantity>,
        limit: Option<&Quantity>,
    ) -> Option<String> {
        let words = format!("{name} max limit to request ratio per {} is {most}", self.ty);
        let [requested, limited, _] = values([request, limit, Some(most)]);
        if requested == 0 {
            return Some(format!("{words}, but no request is specified or request is 0"));
        }
        if limited == 0 {
            return Some(format!("{words}, but no limit is specified or limit is 0"));
        }
        let ratio = limited as f64 / requested as f64;
        let exceeded = if most.value() <= MAX_MILLI_VALUE {
            ratio * 1000.0 > most.milli_value() as f64
        } else {
            ratio > most.value() as f64
        };
        exceeded.then(|| format!("{words}, but provided ratio is {ratio:.6}"))
    }
}
