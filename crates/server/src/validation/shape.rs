//! How Go prints the structs that upstream shows in messages: by its own names, in its own order, with what is not set.

use std::fmt::Write;

use capstan_api::{Map, Value, go};

use super::rules::show_selector;

/// How a field is printed.
pub(super) enum Shape {
    /// As it is; the text stands for what is not set.
    Plain(&'static str),
    /// A struct, whose fields are printed even if nothing is set.
    Struct(&'static [Field]),
    /// A struct that may be missing.
    Pointer(&'static [Field]),
    /// A list of structs.
    List(&'static [Field]),
    /// A label selector, which has names for its fields.
    Selector,
}

/// Go's name, ours, and the shape.
pub(super) type Field = (&'static str, &'static str, Shape);

pub(super) const TEXT: Shape = Shape::Plain("\"\"");
pub(super) const NIL: Shape = Shape::Plain("null");
pub(super) const FLAG: Shape = Shape::Plain("false");

/// A struct as compact JSON. The shapes bound how deep it goes.
pub(super) fn show(map: &Map, fields: &[Field]) -> String {
    let mut out = String::from("{");
    for (i, (name, key, shape)) in fields.iter().enumerate() {
        let comma = if i == 0 { "" } else { "," };
        let value = map.get(key).filter(|value| !value.is_null());
        // Writing to a string cannot fail.
        let _ = write!(out, "{comma}\"{name}\":{}", field(value, shape));
    }
    out.push('}');
    out
}

fn field(value: Option<&Value>, shape: &Shape) -> String {
    let map = value.and_then(Value::as_object);
    match shape {
        Shape::Plain(missing) => {
            value.map_or_else(|| (*missing).to_owned(), |value| go::escape_html(&value.to_string()))
        }
        Shape::Struct(fields) => show(map.unwrap_or(super::read::empty()), fields),
        Shape::Pointer(fields) => map.map_or_else(|| "null".to_owned(), |map| show(map, fields)),
        Shape::Selector => show_selector(map),
        Shape::List(fields) => list(value, fields),
    }
}

/// A list of structs as compact JSON.
pub(super) fn list(value: Option<&Value>, fields: &[Field]) -> String {
    let Some(items) = value.and_then(Value::as_array) else { return "null".to_owned() };
    let empty = super::read::empty();
    let items: Vec<_> = items.iter().map(|item| show(item.as_object().unwrap_or(empty), fields)).collect();
    format!("[{}]", items.join(","))
}
