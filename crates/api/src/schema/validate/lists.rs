//! Lists that are sets, or maps from the values of their key fields: nothing comes twice.

use std::collections::HashMap;

use crate::{
    Map, Name, Value,
    field::{Error, ErrorList},
    json,
};

/// Up to this many elements are compared with each other; more are put in a table.
const FEW: usize = 16;

/// Which elements come twice in a set.
pub(super) fn check_set(items: &[Value], path: impl Fn(usize) -> String, errors: &mut ErrorList) {
    for at in repeated(items.len(), |at| Key::One(&items[at])) {
        errors.push(Error::duplicate(path(at), items[at].clone()));
    }
}

/// Which keys come twice in a list that is a map.
pub(super) fn check_map(items: &[Value], keys: &[Name], path: impl Fn(usize) -> String, errors: &mut ErrorList) {
    let strange = items.iter().position(|item| !matches!(item, Value::Null | Value::Object(_)));
    if let Some(at) = strange {
        let detail = "must be an object for an array of list-type map";
        errors.push(Error::invalid(path(at), items[at].clone(), detail));
        return;
    }
    let key = |at: usize| match keys {
        [key] => items[at].get(key).map_or(Key::None, Key::One),
        keys => Key::Many(&items[at], keys),
    };
    for at in repeated(items.len(), key) {
        let shown: Map =
            keys.iter().filter_map(|key| Some((key.as_str().into(), items[at].get(key)?.clone()))).collect();
        errors.push(Error::duplicate(path(at), shown));
    }
}

/// What tells one element from another.
#[derive(Clone, Copy)]
enum Key<'a> {
    None,
    One(&'a Value),
    Many(&'a Value, &'a [Name]),
}

impl Key<'_> {
    fn is(self, other: Key<'_>) -> bool {
        match (self, other) {
            (Key::None, Key::None) => true,
            // An integer is not the float of the same text.
            (Key::One(Value::Int(_)), Key::One(Value::Float(_))) => false,
            (Key::One(Value::Float(_)), Key::One(Value::Int(_))) => false,
            (Key::One(a), Key::One(b)) => prints_as(a, b),
            (Key::Many(a, keys), Key::Many(b, _)) => keys.iter().all(|key| match (a.get(key), b.get(key)) {
                (None, None) => true,
                (Some(a), Some(b)) => prints_as(a, b),
                _ => false,
            }),
            _ => false,
        }
    }

    /// Equal keys have equal texts, others different ones.
    fn text(self) -> String {
        match self {
            Key::None => String::new(),
            // An integer is not the float of the same text.
            Key::One(value @ Value::Float(_)) => format!("f{value}"),
            Key::One(value) => value.to_string(),
            Key::Many(value, keys) => {
                let text = |key: &Name| value.get(key).map(json::to_string).unwrap_or_default();
                keys.iter().map(text).collect::<Vec<_>>().join("\n")
            }
        }
    }
}

/// Whether two values are the same JSON.
fn prints_as(a: &Value, b: &Value) -> bool {
    match (a, b) {
        (Value::String(a), Value::String(b)) => a == b,
        (Value::Int(a), Value::Int(b)) => a == b,
        (Value::Bool(a), Value::Bool(b)) => a == b,
        (Value::String(_), _) | (_, Value::String(_)) => false,
        (a, b) => a.to_string() == b.to_string(),
    }
}

/// The places where a key stands for the second time; further times are not told.
fn repeated<'a>(length: usize, key: impl Fn(usize) -> Key<'a>) -> Vec<usize> {
    if length <= FEW {
        let mut keys = [Key::None; FEW];
        for (at, slot) in keys[..length].iter_mut().enumerate() {
            *slot = key(at);
        }
        let times_before = |at: usize| keys[..at].iter().filter(|before| before.is(keys[at])).count();
        return (1..length).filter(|&at| times_before(at) == 1).collect();
    }
    let mut times: HashMap<String, usize> = HashMap::with_capacity(length);
    (0..length)
        .filter(|&at| {
            let times = times.entry(key(at).text()).or_default();
            *times += 1;
            *times == 2
        })
        .collect()
}
