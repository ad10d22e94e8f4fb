//! Reading fields of decoded objects; a field that is not there reads as empty.

use capstan_api::{Map, Quantity, Value};

static EMPTY: Map = Map::new();

pub(crate) fn empty() -> &'static Map {
    &EMPTY
}

pub(crate) fn text<'a>(map: &'a Map, key: &str) -> &'a str {
    map.get(key).and_then(Value::as_str).unwrap_or("")
}

pub(crate) fn int(map: &Map, key: &str) -> Option<i64> {
    map.get(key).and_then(Value::as_i64)
}

pub(crate) fn flag(map: &Map, key: &str) -> bool {
    map.get(key).and_then(Value::as_bool).unwrap_or(false)
}

/// Whether a field is set, to whatever.
pub(crate) fn is_set(map: &Map, key: &str) -> bool {
    map.get(key).is_some_and(|value| !value.is_null())
}

pub(crate) fn list<'a>(map: &'a Map, key: &str) -> &'a [Value] {
    map.get(key).and_then(Value::as_array).map_or(&[], |items| items)
}

pub(crate) fn object<'a>(map: &'a Map, key: &str) -> Option<&'a Map> {
    map.get(key).and_then(Value::as_object)
}

pub(crate) fn at<'a>(map: &'a Map, key: &str) -> &'a Map {
    object(map, key).unwrap_or(&EMPTY)
}

/// The objects of a list, with their places.
pub(crate) fn objects<'a>(map: &'a Map, key: &str) -> impl Iterator<Item = (usize, &'a Map)> + use<'a> {
    list(map, key).iter().map(|item| item.as_object().unwrap_or(&EMPTY)).enumerate()
}

/// A map of strings, such as labels.
pub(crate) fn strings<'a>(map: &'a Map, key: &str) -> impl Iterator<Item = (&'a str, &'a str)> + Clone + use<'a> {
    at(map, key).entries().iter().map(|(key, value)| (key.as_str(), value.as_str().unwrap_or("")))
}

/// A quantity, which may be written as a number.
pub(crate) fn quantity(value: &Value) -> Option<Quantity> {
    match value {
        Value::String(text) => text.parse().ok(),
        Value::Int(n) => n.to_string().parse().ok(),
        Value::Float(n) => n.to_string().parse().ok(),
        _ => None,
    }
}
