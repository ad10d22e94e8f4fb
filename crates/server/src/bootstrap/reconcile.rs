//! Brings roles and bindings of the policy up to date: what is missing is added back, what somebody added stays.

use capstan_api::{Map, Value};

use super::{AUTO_UPDATE, list_in, map_in};
use crate::authorization::rbac::{PolicyRule, RoleRef, Subject, covers};

/// What is to be done about an object of the policy.
#[derive(Clone, Debug, PartialEq)]
pub enum Reconciled {
    /// Nothing: it is as it should be, or it has opted out.
    Unchanged,
    /// Write this in its place.
    Update(Value),
    /// Delete it and create this: the role of a binding can't be changed.
    Recreate(Value),
}

/// Brings a Role or ClusterRole up to date.
#[must_use]
pub fn reconcile_role(existing: &Value, expected: &Value) -> Reconciled {
    if is_protected(existing) {
        return Reconciled::Unchanged;
    }
    let mut role = existing.clone();
    merge_metadata(&mut role, expected);

    let missing = covers(&PolicyRule::list_of(existing), &PolicyRule::list_of(expected));
    append(&mut role, "rules", missing.iter().map(PolicyRule::to_value));

    let aggregation = |role: &Value| role.get("aggregationRule").filter(|rule| !rule.is_null()).cloned();
    match (aggregation(existing), aggregation(expected)) {
        (None, None) => {}
        (Some(_), None) => _ = role.as_object_mut().and_then(|role| role.remove("aggregationRule")),
        (own, Some(expected)) => {
            let mut own = own.unwrap_or_else(|| Map::new().into());
            let missing = missing_items(&own, &expected, "clusterRoleSelectors", Value::clone);
            if !missing.is_empty() {
                append(&mut own, "clusterRoleSelectors", missing);
                _ = role.as_object_mut().and_then(|role| role.insert("aggregationRule", own));
            }
        }
    }
    updated(existing, role)
}

/// Brings a RoleBinding or ClusterRoleBinding up to date.
#[must_use]
pub fn reconcile_binding(existing: &Value, expected: &Value) -> Reconciled {
    if is_protected(existing) {
        return Reconciled::Unchanged;
    }
    if RoleRef::of(existing) != RoleRef::of(expected) {
        return Reconciled::Recreate(expected.clone());
    }
    let mut binding = existing.clone();
    merge_metadata(&mut binding, expected);
    let missing = missing_items(existing, expected, "subjects", Subject::from_value);
    append(&mut binding, "subjects", missing);
    updated(existing, binding)
}

fn updated(existing: &Value, new: Value) -> Reconciled {
    if new == *existing { Reconciled::Unchanged } else { Reconciled::Update(new) }
}

fn is_protected(object: &Value) -> bool {
    let annotations = object.get("metadata").and_then(|metadata| metadata.get("annotations"));
    annotations.and_then(|annotations| annotations.get(AUTO_UPDATE)).and_then(Value::as_str) == Some("false")
}

/// Adds labels and annotations that are missing; those that are there keep their values.
fn merge_metadata(object: &mut Value, expected: &Value) {
    let Some(metadata) = object.get_mut("metadata").and_then(Value::as_object_mut) else { return };
    for field in ["annotations", "labels"] {
        let expected = expected.get("metadata").and_then(|metadata| metadata.get(field)).and_then(Value::as_object);
        for (key, value) in expected.into_iter().flat_map(Map::iter) {
            if let Some(own) = map_in(metadata, field) {
                own.get_or_insert_with(key, || value.clone());
            }
        }
    }
}

/// The items of a list in `expected` that `own` does not have, each once; `read` makes what is compared.
fn missing_items<T: PartialEq>(own: &Value, expected: &Value, field: &str, read: fn(&Value) -> T) -> Vec<Value> {
    let items = |value: &Value| value.get(field).and_then(Value::as_array).map_or_else(Vec::new, |list| list.to_vec());
    let mut known: Vec<T> = items(own).iter().map(read).collect();
    let mut missing = items(expected);
    missing.retain(|item| {
        let item = read(item);
        let new = !known.contains(&item);
        known.push(item);
        new
    });
    missing
}

fn append(object: &mut Value, field: &str, items: impl IntoIterator<Item = Value>) {
    for item in items {
        if let Some(list) = object.as_object_mut().and_then(|object| list_in(object, field)) {
            list.push(item);
        }
    }
}
