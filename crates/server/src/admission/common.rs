//! What plugins share: the words of a refusal, and reads of fields and of stored objects.

use std::fmt;

use capstan_api::{GroupResource, Map, Status, Value, json};

use super::{Operation, Request};
use crate::{cache::Object, registry::paths};

pub(super) const PODS: GroupResource = GroupResource::from_static("", "pods");
pub(super) const NAMESPACES: GroupResource = GroupResource::from_static("", "namespaces");
pub(super) const NODES: GroupResource = GroupResource::from_static("", "nodes");
pub(super) const SERVICE_ACCOUNTS: GroupResource = GroupResource::from_static("", "serviceaccounts");
pub(super) const PVCS: GroupResource = GroupResource::from_static("", "persistentvolumeclaims");
pub(super) const STORAGE_CLASSES: GroupResource = GroupResource::from_static("storage.k8s.io", "storageclasses");

/// The annotation of pods that mirror a static one.
pub(super) const MIRROR_POD: &str = "kubernetes.io/config.mirror";

/// The lists of containers of a pod's spec, in the order in which upstream visits them.
pub(super) const CONTAINERS: [&str; 3] = ["spec.initContainers", "spec.containers", "spec.ephemeralContainers"];

static EMPTY: Map = Map::new();

/// Whether the request is about such an object itself, and not about a part of it.
pub(super) fn is_about(request: &Request<'_>, resource: &GroupResource) -> bool {
    request.subresource.is_empty() && is_of(request, resource)
}

/// Whether the request names this resource, with or without a subresource.
pub(super) fn is_of(request: &Request<'_>, resource: &GroupResource) -> bool {
    request.resource.group == resource.group && request.resource.resource == resource.resource
}

pub(super) fn is_write(request: &Request<'_>) -> bool {
    matches!(request.operation, Operation::Create | Operation::Update)
}

/// The new object, or an empty one where there is none.
pub(super) fn object<'a>(request: &'a Request<'_>) -> &'a Map {
    request.object.as_deref().unwrap_or(&EMPTY)
}

/// The object as it is stored, or an empty one where there is none.
pub(super) fn old_object<'a>(request: &Request<'a>) -> &'a Map {
    request.old_object.unwrap_or(&EMPTY)
}

/// A refusal, about the name of the request or, as far as it is known, that of the object.
pub(super) fn forbidden(request: &Request<'_>, error: impl fmt::Display) -> Status {
    let metadata = ["metadata.name", "metadata.generateName"].map(|path| paths::text(object(request), path));
    let name = [request.name, metadata[0], metadata[1]].into_iter().find(|name| !name.is_empty());
    Status::forbidden(&request.resource.group_resource(), name.unwrap_or("Unknown"), error)
}

/// The content of a stored object.
pub(super) fn content(object: &Object) -> Map {
    // The cache has read these bytes before, so they are an object.
    match json::parse(&object.json) {
        Ok(Value::Object(map)) => map,
        _ => Map::new(),
    }
}

/// A stored object.
pub(super) fn stored(request: &Request<'_>, resource: &GroupResource, namespace: &str, name: &str) -> Option<Map> {
    request.objects.get(resource, namespace, name).map(|object| content(&object))
}

/// An answer that a stored object is not there, in the words of upstream's listers, which use the singular.
pub(super) fn lister_not_found(group: &'static str, singular: &'static str, name: &str) -> Status {
    Status::not_found(&GroupResource::from_static(group, singular), name)
}

/// An annotation or label, as its key has dots.
pub(super) fn keyed<'a>(object: &'a Map, path: &str, key: &str) -> Option<&'a str> {
    paths::get(object, path)?.get(key)?.as_str()
}

pub(super) fn annotation<'a>(object: &'a Map, key: &str) -> Option<&'a str> {
    keyed(object, "metadata.annotations", key)
}

/// The pairs of a map of strings, such as labels.
pub(super) fn strings<'a>(object: &'a Map, path: &str) -> impl Iterator<Item = (&'a str, &'a str)> + Clone + use<'a> {
    let map = paths::get(object, path).and_then(Value::as_object).unwrap_or(&EMPTY);
    map.entries().iter().map(|(key, value)| (key.as_str(), value.as_str().unwrap_or_default()))
}

/// The objects of a list.
pub(super) fn each<'a>(object: &'a Map, path: &str) -> impl Iterator<Item = &'a Map> + Clone + use<'a> {
    paths::items(object, path).iter().map(|item| item.as_object().unwrap_or(&EMPTY))
}

/// The objects of a list, to be changed.
pub(super) fn each_mut<'a>(object: &'a mut Map, path: &str) -> impl Iterator<Item = &'a mut Map> + use<'a> {
    paths::array_mut(object, path).into_iter().flat_map(|items| items.iter_mut()).filter_map(Value::as_object_mut)
}

/// Whether a field is there and not null.
pub(super) fn is_set(object: &Map, path: &str) -> bool {
    paths::get(object, path).is_some_and(|value| !value.is_null())
}

pub(super) fn flag(object: &Map, path: &str) -> Option<bool> {
    paths::get(object, path).and_then(Value::as_bool)
}

/// Adds to the end of a list, which is made if need be.
pub(super) fn push(object: &mut Map, path: &str, value: impl Into<Value>) {
    match paths::array_mut(object, path) {
        Some(items) => items.push(value.into()),
        None => paths::set(object, path, vec![value.into()]),
    }
}

/// An object of these fields.
pub(super) fn map<const N: usize>(fields: [(&str, Value); N]) -> Value {
    Value::Object(fields.into_iter().map(|(key, value)| (key.into(), value)).collect())
}

/// Whether two objects mean the same: what is null or empty is as good as absent, as it is in Go.
pub(super) fn same_meaning(a: &Map, b: &Map) -> bool {
    let mut maps = vec![(a, b)];
    let mut values: Vec<(Option<&Value>, Option<&Value>)> = Vec::new();
    loop {
        if let Some((a, b)) = maps.pop() {
            values.extend(a.iter().map(|(key, value)| (Some(value), b.get(key))));
            values.extend(b.iter().filter(|(key, _)| !a.contains_key(key)).map(|(_, value)| (None, Some(value))));
        }
        let Some((a, b)) = values.pop() else {
            // A pair of maps is taken apart before the next pair of values, so none is left either.
            return true;
        };
        match (a.filter(is_full), b.filter(is_full)) {
            (Some(Value::Object(a)), Some(Value::Object(b))) => maps.push((a, b)),
            // All that is in it may be empty in turn.
            (Some(Value::Object(one)), None) | (None, Some(Value::Object(one))) => maps.push((one, &EMPTY)),
            (Some(Value::Array(a)), Some(Value::Array(b))) if a.len() == b.len() => {
                values.extend(a.iter().map(Some).zip(b.iter().map(Some)));
            }
            (a, b) if a == b => {}
            _ => return false,
        }
    }
}

fn is_full(value: &&Value) -> bool {
    match value {
        Value::Null => false,
        Value::String(text) => !text.is_empty(),
        Value::Array(items) => !items.is_empty(),
        Value::Object(map) => !map.is_empty(),
        _ => true,
    }
}
