//! Defaulting: what is missing is filled in from the schema.

use super::{NodeRef, Schema};
use crate::{Map, Value};

/// Fills in the defaults of a whole object.
///
/// A field gets its default when it is not there, or is `null` and `null` is not a value of its own. Defaults that are
/// filled in get defaults of their own.
pub fn default(object: &mut Value, schema: &Schema) {
    default_at(object, schema.root());
}

/// Fills in the defaults of a value that is described by `node`.
pub fn default_at(value: &mut Value, node: NodeRef<'_>) {
    if !node.has_defaults_below() {
        return;
    }
    let mut waiting = vec![(value, node)];
    while let Some((value, node)) = waiting.pop() {
        match value {
            Value::Object(map) => {
                insert_missing(map, node);
                let mut from = 0;
                for (name, value) in map.iter_mut() {
                    let child = match node.field_from(&mut from, name) {
                        Some(field) => Some(field.node),
                        None => node.additional().inspect(|child| fill_null(value, *child)),
                    };
                    wait(&mut waiting, value, child);
                }
            }
            Value::Array(items) => {
                let Some(child) = node.items() else { continue };
                for value in items.iter_mut() {
                    fill_null(value, child);
                    wait(&mut waiting, value, Some(child));
                }
            }
            _ => {}
        }
    }
}

type Waiting<'v, 's> = Vec<(&'v mut Value, NodeRef<'s>)>;

fn wait<'v, 's>(waiting: &mut Waiting<'v, 's>, value: &'v mut Value, node: Option<NodeRef<'s>>) {
    if let Some(node) = node
        && matches!(value, Value::Array(_) | Value::Object(_))
        && node.has_defaults_below()
    {
        waiting.push((value, node));
    }
}

fn insert_missing(map: &mut Map, node: NodeRef<'_>) {
    for field in node.defaulted_fields() {
        let Some(default) = field.node.default() else { continue };
        match map.get_mut(field.name) {
            None => {
                map.insert(field.name.as_str(), default.clone());
            }
            Some(value) if value.is_null() && !field.node.is_nullable() => *value = default.clone(),
            Some(_) => {}
        }
    }
}

fn fill_null(value: &mut Value, node: NodeRef<'_>) {
    if value.is_null()
        && !node.is_nullable()
        && let Some(default) = node.default()
    {
        *value = default.clone();
    }
}

/// Takes out fields that are `null` where `null` is not a value of its own and there is no default to take its place.
///
/// This happens to what users send, behind pruning and before defaulting.
pub fn drop_nulls(object: &mut Value, schema: &Schema) {
    let mut waiting = vec![(object, schema.root())];
    while let Some((value, node)) = waiting.pop() {
        match value {
            Value::Object(map) => {
                let child = |name: &str| node.field(name).map(|field| field.node).or_else(|| node.additional());
                if map.values().any(Value::is_null) {
                    let stays = |node: NodeRef<'_>| node.is_nullable() || node.default().is_some();
                    map.retain(|name, value| !value.is_null() || child(name).is_none_or(stays));
                }
                for (name, value) in map.iter_mut() {
                    if let Some(child) = container(value).and_then(|()| child(name)) {
                        waiting.push((value, child));
                    }
                }
            }
            Value::Array(items) => {
                let Some(child) = node.items() else { continue };
                for value in items.iter_mut() {
                    if container(value).is_some() {
                        waiting.push((value, child));
                    }
                }
            }
            _ => {}
        }
    }
}

fn container(value: &Value) -> Option<()> {
    matches!(value, Value::Array(_) | Value::Object(_)).then_some(())
}
