//! Defaults of built-in kinds: what upstream fills in, and the shape that Go gives an object.
//!
//! One walk over the object, parents first. In each object it applies the [`rules`] of the type, then the static
//! defaults of the schema, among them what Go always prints (`resources: {}`, `status: {}`). Decoding has dropped the
//! zero values that Go would not print, so what comes out is what the real server would have stored.

mod hooks;
mod pod_resources;
mod rules;

use rules::{RULES, Rule, When};

use crate::{
    Map, Quantity, Value,
    schema::{Absent, FieldRef, Format, NodeRef, Schema, Type},
};

/// Resources are counted in thousandths; what is finer is rounded up.
const RESOURCE_SCALE: i32 = -3;

/// Fills in what upstream fills in.
///
/// The value must have been decoded by the same schema: what has the wrong type is left alone.
pub fn default(schema: &Schema, value: &mut Value) {
    let mut rest = vec![(schema.root(), value)];
    while let Some((node, value)) = rest.pop() {
        match value {
            Value::Object(map) => {
                if let Some(child) = node.additional() {
                    if child.format() == Format::Quantity {
                        map.iter_mut().for_each(|(_, amount)| round(amount));
                    }
                    rest.extend(
                        map.iter_mut().map(|(_, value)| (child, value)).filter(|(_, value)| is_container(value)),
                    );
                } else {
                    shape(node, map);
                    let mut from = 0;
                    for (key, value) in map.iter_mut().filter(|(_, value)| is_container(value)) {
                        if let Some(field) = node.field_from(&mut from, key) {
                            rest.push((field.node, value));
                        }
                    }
                }
            }
            Value::Array(items) => {
                if let Some(child) = node.items() {
                    rest.extend(items.iter_mut().map(|value| (child, value)).filter(|(_, value)| is_container(value)));
                }
            }
            _ => {}
        }
    }
}

/// What Go encodes of an object that nothing was ever set in.
#[must_use]
pub fn blank(schema: &Schema) -> Map {
    let mut root = Map::new();
    let mut rest = vec![(schema.root(), &mut root)];
    while let Some((node, map)) = rest.pop() {
        for field in node.defaulted_fields() {
            let zero = match (field.node.absent(), field.node.ty()) {
                (Absent::Null, _) => Value::Null,
                (Absent::Zero, Type::Object) => Map::new().into(),
                (Absent::Zero, Type::String) => "".into(),
                (Absent::Zero, Type::Integer | Type::Number) => 0.into(),
                (Absent::Zero, Type::Boolean) => false.into(),
                _ => continue,
            };
            map.insert(field.name.as_str(), zero);
        }
        for (key, value) in map.iter_mut() {
            if let (Some(field), Value::Object(map)) = (node.field(key), value) {
                rest.push((field.node, map));
            }
        }
    }
    root
}

fn is_container(value: &Value) -> bool {
    matches!(value, Value::Object(_) | Value::Array(_))
}

/// What is finer than [`RESOURCE_SCALE`] is rounded up, in maps of resources.
fn round(amount: &mut Value) {
    let Some(mut quantity) = amount.as_str().and_then(|text| text.parse::<Quantity>().ok()) else { return };
    if !quantity.round_up(RESOURCE_SCALE) {
        *amount = (&quantity).into();
    }
}

/// Gives the object the fields that it would have upstream.
fn shape(node: NodeRef<'_>, map: &mut Map) {
    if let Some(rules) = node.full_type_name().and_then(rules_of) {
        for rule in rules {
            run(rule, node, map);
        }
    }
    for field in node.defaulted_fields() {
        let present = map.get(field.name);
        if let Some(default) = field.node.default() {
            if is_unset(field, present) {
                map.insert(field.name.as_str(), default.clone());
            }
        } else if field.node.absent() == Absent::Null && present.is_none_or(is_empty_list) {
            // Upstream stores protobuf, which does not tell an empty list from none.
            map.insert(field.name.as_str(), Value::Null);
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
                When::Set(path) => find(map, path).is_some_and(|value| match value {
                    Value::Array(items) => !items.is_empty(),
                    value => !value.is_null(),
                }),
                When::Unset(path) => find(map, path).is_none_or(Value::is_null),
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
    let (way, last) = path.rsplit_once('.').unwrap_or(("", path));
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
    value.is_none_or(|value| {
        value.is_null() || drops(field, value) || field.node.absent() == Absent::Zero && is_zero_of(field, value)
    })
}

/// Whether Go would take the value for none. An empty text in the place of a number is one of its own.
fn is_zero_of(field: FieldRef<'_>, value: &Value) -> bool {
    is_zero(value) && !(field.node.is_int_or_string() && value.as_str().is_some())
}

/// Whether Go would not print the value.
fn drops(field: FieldRef<'_>, value: &Value) -> bool {
    field.node.drops_zero() && is_zero(value)
}

fn is_empty_list(value: &Value) -> bool {
    value.as_array().is_some_and(|items| items.is_empty())
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

#[cfg(test)]
mod tests;
