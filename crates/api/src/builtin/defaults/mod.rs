//! Defaults of built-in kinds: what upstream fills in, and the shape that Go gives an object.
//!
//! One walk over the object, parents first. In each object it drops the zero values that Go would not print, applies the
//! [`rules`] of the type, then the static defaults of the schema, then adds the fields that Go always prints
//! (`resources: {}`, `status: {}`). What comes out is what the real server would have stored.

mod hooks;
mod pod_resources;
mod rules;

use rules::{RULES, Rule, When};

use crate::{
    Map, Value,
    schema::{FieldRef, Format, NodeRef, Presence, Schema, Type},
};
pub(super) use pod_resources::pod_level_resources;

/// Fills in what upstream fills in.
///
/// The value must have been decoded by the same schema: what has the wrong type is left alone.
pub fn apply(schema: &Schema, value: &mut Value) {
    let mut rest = vec![(schema.root(), value)];
    while let Some((node, value)) = rest.pop() {
        match value {
            Value::Object(map) => {
                if node.fields().len() > 0 {
                    shape(node, map);
                }
                for (key, value) in map.iter_mut() {
                    if let Some(child) = node.field(key).map(|field| field.node).or_else(|| node.additional()) {
                        push(&mut rest, child, value);
                    }
                }
            }
            Value::Array(items) => {
                if let Some(child) = node.items() {
                    items.iter_mut().for_each(|value| push(&mut rest, child, value));
                }
            }
            _ => {}
        }
    }
}

fn push<'a, 'v>(rest: &mut Vec<(NodeRef<'a>, &'v mut Value)>, node: NodeRef<'a>, value: &'v mut Value) {
    if matches!(value, Value::Object(_) | Value::Array(_)) {
        rest.push((node, value));
    }
}

fn shape(node: NodeRef<'_>, map: &mut Map) {
    map.retain(|key, value| {
        let field = node.field(key);
        !(value.is_null() || field.is_some_and(|field| field.presence == Presence::OmitEmpty && is_zero(value)))
    });
    if let Some(rules) = node.type_name().and_then(|name| rules_of(name)) {
        for rule in rules {
            run(rule, node, map);
        }
    }
    for field in node.fields() {
        if let Some(default) = field.node.default()
            && is_unset(field, map.get(field.name))
        {
            map.insert(field.name.as_str(), default.clone());
        }
        if !map.contains_key(field.name)
            && let Some(zero) = always(field)
        {
            map.insert(field.name.as_str(), zero);
        }
    }
}

fn rules_of(type_name: &str) -> Option<&'static [Rule]> {
    RULES.binary_search_by(|(name, _)| (*name).cmp(type_name)).ok().map(|at| RULES[at].1)
}

fn run(rule: &Rule, node: NodeRef<'_>, map: &mut Map) {
    match *rule {
        Rule::Call(hook) => hook(map),
        Rule::Fill(path, literal, when) => {
            let applies = match when {
                When::Always => true,
                When::Is(path, expected) => find(map, path).and_then(Value::as_str) == Some(expected),
                When::Set(path) => find(map, path).is_some_and(|value| !is_zero(value)),
                When::Unset(path) => find(map, path).is_none_or(is_zero),
            };
            if applies {
                fill(node, map, path, || literal.into());
            }
        }
    }
}

fn find<'a>(map: &'a Map, path: &str) -> Option<&'a Value> {
    let mut parts = path.split('.');
    let first = map.get(parts.next()?)?;
    parts.try_fold(first, |value, part| value.get(part))
}

/// Sets the field at `path` if it is not set; makes the objects on the way, which Go always has.
fn fill(node: NodeRef<'_>, map: &mut Map, path: &str, value: impl FnOnce() -> Value) {
    let (mut node, mut map) = (node, map);
    let (way, last) = path.rsplit_once('.').map_or(("", path), |(way, last)| (way, last));
    for part in way.split('.').filter(|part| !part.is_empty()) {
        let Some(field) = node.field(part) else { return };
        let Some(next) = map.get_or_insert_with(part, || Map::new().into()).as_object_mut() else { return };
        (node, map) = (field.node, next);
    }
    if node.field(last).is_some_and(|field| is_unset(field, map.get(last))) {
        map.insert(last, value());
    }
}

/// Whether Go would see no value: none, null, or a zero that is not behind a pointer.
fn is_unset(field: FieldRef<'_>, value: Option<&Value>) -> bool {
    value.is_none_or(|value| value.is_null() || field.presence != Presence::Pointer && is_zero(value))
}

fn is_zero(value: &Value) -> bool {
    match value {
        Value::Null => true,
        Value::Bool(b) => !b,
        Value::Int(n) => *n == 0,
        Value::Float(n) => *n == 0.0,
        Value::String(text) => text.is_empty(),
        Value::Array(items) => items.is_empty(),
        Value::Object(map) => map.is_empty(),
    }
}

/// What Go prints for a field that it always prints and that has no value.
fn always(field: FieldRef<'_>) -> Option<Value> {
    let node = field.node;
    match field.presence {
        Presence::Pointer | Presence::OmitEmpty => None,
        Presence::Null => Some(Value::Null),
        Presence::Always => Some(match (node.ty(), node.format()) {
            (_, Format::DateTime | Format::MicroTime | Format::Byte) => Value::Null,
            (_, Format::Quantity) => "0".into(),
            (_, Format::IntOrString) => 0.into(),
            (_, Format::Duration) => "0s".into(),
            (Type::String, _) => "".into(),
            (Type::Integer | Type::Number, _) => 0.into(),
            (Type::Boolean, _) => false.into(),
            (Type::Object, _) if node.additional().is_none() => Map::new().into(),
            (Type::Object | Type::Array | Type::Any, _) => Value::Null,
        }),
    }
}
