//! Equality across types, and order.

use std::{
    cmp::Ordering,
    collections::{HashMap, HashSet},
};

use capstan_api::{Value, schema::ListType};

use crate::value::{EvalError, List, Map, Val};

/// How deep values are compared element by element. What is deeper is compared as JSON.
const MAX_DEPTH: u32 = 200;

/// Whether two values are equal.
///
/// # Errors
/// They cannot be compared.
pub(crate) fn equal(a: &Val<'_>, b: &Val<'_>) -> Result<bool, EvalError> {
    equal_at(a, b, 0)
}

fn equal_at(a: &Val<'_>, b: &Val<'_>, depth: u32) -> Result<bool, EvalError> {
    if let (Val::Null, other) | (other, Val::Null) = (a, b) {
        return Ok(matches!(other, Val::Null));
    }
    if depth > MAX_DEPTH {
        return Err(EvalError::no_overload());
    }
    Ok(match (a, b) {
        (Val::Int(_) | Val::Uint(_) | Val::Double(_), Val::Int(_) | Val::Uint(_) | Val::Double(_)) => {
            numbers(a, b) == Some(Ordering::Equal)
        }
        (Val::Bool(a), Val::Bool(b)) => a == b,
        (Val::String(a), Val::String(b)) => **a == **b,
        (Val::Bytes(a), Val::Bytes(b)) => a == b,
        (Val::Duration(a), Val::Duration(b)) => a == b,
        (Val::Timestamp(a), Val::Timestamp(b)) => a.instant() == b.instant(),
        (Val::Type(a), Val::Type(b)) => a == b,
        (Val::List(a), Val::List(b)) => return lists(a, b, depth),
        (Val::Map(a), Val::Map(b)) => return maps(a, b, depth),
        (Val::Optional(a), Val::Optional(b)) => match (a, b) {
            (None, None) => true,
            (Some(a), Some(b)) => return equal_at(a, b, depth + 1),
            _ => false,
        },
        (Val::Ip(a), Val::Ip(b)) => a == b,
        (Val::Cidr(a), Val::Cidr(b)) => a == b,
        (Val::Quantity(a), Val::Quantity(b)) => a == b,
        (Val::Semver(a), Val::Semver(b)) => a.compare(b) == Ordering::Equal,
        (Val::Url(a), Val::Url(b)) => a.text == b.text,
        (Val::Format(a), Val::Format(b)) => a == b,
        (Val::Preserved(a), Val::Preserved(b)) => a == b,
        (Val::Preserved(a), other) => plain(other).is_some_and(|other| **a == other),
        (
            Val::Ip(_)
            | Val::Cidr(_)
            | Val::Quantity(_)
            | Val::Semver(_)
            | Val::Url(_)
            | Val::Format(_)
            | Val::Authz(_)
            | Val::List(List::View(_))
            | Val::Map(Map::View(_)),
            _,
        ) => return Err(EvalError::no_overload()),
        _ => false,
    })
}

/// A scalar as JSON.
fn plain(value: &Val<'_>) -> Option<Value> {
    Some(match value {
        Val::Bool(b) => Value::Bool(*b),
        Val::Int(n) => Value::Int(*n),
        Val::Double(d) => Value::Float(*d),
        Val::String(text) => Value::from(&**text),
        _ => return None,
    })
}

fn lists(a: &List<'_>, b: &List<'_>, depth: u32) -> Result<bool, EvalError> {
    if a.len() != b.len() {
        return Ok(false);
    }
    let List::View(view) = a else {
        for (a, b) in a.iter().zip(b.iter()) {
            // Elements that cannot be compared do not make lists different.
            if let (Ok(a), Ok(b)) = (a, b)
                && equal_at(&a, &b, depth + 1) == Ok(false)
            {
                return Ok(false);
            }
        }
        return Ok(true);
    };
    match view.list_type() {
        ListType::Atomic => {
            for (a, b) in a.iter().zip(b.iter()) {
                if !equal_at(&a?, &b?, depth + 1)? {
                    return Ok(false);
                }
            }
            Ok(true)
        }
        ListType::Set => {
            let own: HashSet<String> = a.iter().flatten().map(|item| key_of(&item, &[])).collect();
            Ok(b.iter().all(|item| item.is_ok_and(|item| own.contains(&key_of(&item, &[])))))
        }
        ListType::Map => keyed(a, b, &view.keys(), depth),
    }
}

/// The values by which an element is told apart: itself, unless there are keys.
pub(crate) fn key_of(item: &Val<'_>, keys: &[&str]) -> String {
    if keys.is_empty() {
        return format!("{} {}", item.type_name(), item.show());
    }
    let part = |key: &str| match item {
        Val::Map(map) => match map.find(&Val::text(key)) {
            Some(Ok(value)) => format!("{} {}", value.type_name(), value.show()),
            _ => String::new(),
        },
        _ => String::new(),
    };
    keys.iter().map(|key| part(key)).collect::<Vec<_>>().join("\0")
}

fn keyed(a: &List<'_>, b: &List<'_>, keys: &[&str], depth: u32) -> Result<bool, EvalError> {
    let mut own = HashMap::new();
    for item in a.iter() {
        let item = item?;
        own.insert(key_of(&item, keys), item);
    }
    for item in b.iter() {
        let item = item?;
        let Some(known) = own.get(&key_of(&item, keys)) else { return Ok(false) };
        if !equal_at(known, &item, depth + 1)? {
            return Ok(false);
        }
    }
    Ok(true)
}

fn maps(a: &Map<'_>, b: &Map<'_>, depth: u32) -> Result<bool, EvalError> {
    if a.len() != b.len() {
        return Ok(false);
    }
    let Map::View(view) = a else {
        for key in a.keys() {
            let (Some(Ok(value)), Some(Ok(other))) = (a.find(&key), b.find(&key)) else { return Ok(false) };
            if equal_at(&value, &other, depth + 1) == Ok(false) {
                return Ok(false);
            }
        }
        return Ok(true);
    };
    for key in view.keys() {
        match (a.find(&key), b.find(&key)) {
            (None, None) => {}
            (Some(value), Some(other)) => {
                if !equal_at(&value?, &other?, depth + 1)? {
                    return Ok(false);
                }
            }
            _ => return Ok(false),
        }
    }
    // What the schema does not know is compared as it is written.
    for (name, value) in view.map.iter().filter(|(name, _)| !view.knows(name)) {
        let Map::View(other) = b else { return Err(EvalError::no_overload()) };
        if other.map.get(name).is_some_and(|other| other != value) {
            return Ok(false);
        }
    }
    Ok(true)
}

/// The order of two numbers, whatever their types; none with NaN.
#[expect(clippy::cast_precision_loss, reason = "as upstream compares")]
pub(crate) fn numbers(a: &Val<'_>, b: &Val<'_>) -> Option<Ordering> {
    let below = |d: f64, low: f64, high: f64| {
        if d < low {
            Some(Ordering::Less)
        } else if d > high {
            Some(Ordering::Greater)
        } else {
            None
        }
    };
    match (a, b) {
        (Val::Int(a), Val::Int(b)) => Some(a.cmp(b)),
        (Val::Uint(a), Val::Uint(b)) => Some(a.cmp(b)),
        (Val::Int(a), Val::Uint(b)) => Some(i128::from(*a).cmp(&i128::from(*b))),
        (Val::Uint(a), Val::Int(b)) => Some(i128::from(*a).cmp(&i128::from(*b))),
        (Val::Double(a), Val::Double(b)) => a.partial_cmp(b),
        (Val::Double(d), Val::Int(n)) => {
            below(*d, i64::MIN as f64, i64::MAX as f64).or_else(|| d.partial_cmp(&(*n as f64)))
        }
        (Val::Double(d), Val::Uint(n)) => below(*d, 0.0, u64::MAX as f64).or_else(|| d.partial_cmp(&(*n as f64))),
        (_, Val::Double(_)) => numbers(b, a).map(Ordering::reverse),
        _ => None,
    }
}

/// Whether values of this kind have an order.
pub(crate) fn is_comparable(value: &Val<'_>) -> bool {
    matches!(
        value,
        Val::Bool(_)
            | Val::Int(_)
            | Val::Uint(_)
            | Val::Double(_)
            | Val::String(_)
            | Val::Bytes(_)
            | Val::Duration(_)
            | Val::Timestamp(_)
    )
}

/// The order of two values.
///
/// # Errors
/// They have none.
pub(crate) fn order(a: &Val<'_>, b: &Val<'_>) -> Result<Ordering, EvalError> {
    Ok(match (a, b) {
        (Val::Bool(a), Val::Bool(b)) => a.cmp(b),
        (Val::String(a), Val::String(b)) => (**a).cmp(&**b),
        (Val::Bytes(a), Val::Bytes(b)) => a.cmp(b),
        (Val::Duration(a), Val::Duration(b)) => a.cmp(b),
        (Val::Timestamp(a), Val::Timestamp(b)) => a.instant().cmp(&b.instant()),
        (Val::Int(_) | Val::Uint(_) | Val::Double(_), Val::Int(_) | Val::Uint(_) | Val::Double(_)) => {
            return numbers(a, b).ok_or_else(|| EvalError::new("NaN values cannot be ordered"));
        }
        _ => return Err(EvalError::no_overload()),
    })
}
