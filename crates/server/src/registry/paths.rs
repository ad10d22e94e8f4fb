//! Reading and writing the fields of an object by dotted path. What has the wrong type counts as not there.

use capstan_api::{Array, Map, Value, unstructured::nested};

fn parts(path: &str) -> Vec<&str> {
    path.split('.').collect()
}

pub(crate) fn get<'a>(object: &'a Map, path: &str) -> Option<&'a Value> {
    nested::field(object, &parts(path)).ok().flatten()
}

pub(crate) fn text<'a>(object: &'a Map, path: &str) -> &'a str {
    get(object, path).and_then(Value::as_str).unwrap_or_default()
}

pub(crate) fn number(object: &Map, path: &str) -> i64 {
    get(object, path).and_then(Value::as_i64).unwrap_or_default()
}

pub(crate) fn items<'a>(object: &'a Map, path: &str) -> &'a [Value] {
    get(object, path).and_then(Value::as_array).map_or(&[], |items| items)
}

pub(crate) fn array_mut<'a>(object: &'a mut Map, path: &str) -> Option<&'a mut Array> {
    let mut names = path.split('.');
    let first = object.get_mut(names.next()?)?;
    names.try_fold(first, |value, name| value.get_mut(name))?.as_array_mut()
}

/// Sets a field. Nothing happens where something on the way is not an object: validation has refused that by then.
pub(crate) fn set(object: &mut Map, path: &str, value: impl Into<Value>) {
    let value = value.into();
    let parts = parts(path);
    // Go reads `null` as an absent object, so it makes room for one.
    for end in 1..parts.len() {
        if matches!(nested::field(object, &parts[..end]), Ok(Some(Value::Null))) {
            nested::remove(object, &parts[..end]);
        }
    }
    drop(nested::set(object, &parts, value));
}

pub(crate) fn remove(object: &mut Map, path: &str) {
    nested::remove(object, &parts(path));
}

/// Gives a field the value that it has in another object, or none.
pub(crate) fn copy(to: &mut Map, from: &Map, path: &str) {
    match get(from, path) {
        Some(value) => set(to, path, value.clone()),
        None => remove(to, path),
    }
}

/// Whether a field is the same in both; an absent one is the same as an empty one, as in Go.
pub(crate) fn same(a: &Map, b: &Map, path: &str) -> bool {
    let full = |value: &&Value| match value {
        Value::Null => false,
        Value::Object(map) => !map.is_empty(),
        Value::Array(items) => !items.is_empty(),
        _ => true,
    };
    get(a, path).filter(full) == get(b, path).filter(full)
}
