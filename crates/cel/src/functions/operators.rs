//! Arithmetic, comparisons, `in` and `size`.

use std::{cmp::Ordering, collections::HashMap};

use capstan_api::schema::ListType;

use super::{Call, Impl, fail, int, made, yes};
use crate::{
    compare,
    functions::time::Stamp,
    value::{EvalError, List, Outcome, Val},
};

const INT: &str = "integer overflow";
const UINT: &str = "unsigned integer overflow";

pub(super) fn find(name: &str) -> Option<Impl> {
    Some(match name {
        "_+_" => add,
        "_-_" => subtract,
        "_*_" => multiply,
        "_/_" => divide,
        "_%_" => modulo,
        "-_" => negate,
        "!_" => |call| match call.args {
            [Val::Bool(b)] => yes(!b),
            _ => None,
        },
        "@not_strictly_false" => |call| Some(Ok(call.args[0].clone())),
        "_<_" => |call| order(call, |order| order == Ordering::Less),
        "_<=_" => |call| order(call, |order| order != Ordering::Greater),
        "_>_" => |call| order(call, |order| order == Ordering::Greater),
        "_>=_" => |call| order(call, |order| order != Ordering::Less),
        "@in" => contains,
        "size" => |call| match &call.args[0] {
            Val::Ip(_) | Val::Cidr(_) => None,
            other => other.size().and_then(int),
        },
        _ => return None,
    })
}

fn order<'a>(call: &Call<'_, 'a>, is: fn(Ordering) -> bool) -> Option<Outcome<'a>> {
    let [a, b] = call.args else { return None };
    match compare::order(a, b) {
        Ok(order) => yes(is(order)),
        Err(error) if error == EvalError::no_overload() => None,
        Err(error) => Some(Err(error)),
    }
}

fn checked<'a>(n: Option<i64>) -> Option<Outcome<'a>> {
    n.map_or_else(|| fail(INT), int)
}

fn unsigned<'a>(n: Option<u64>) -> Option<Outcome<'a>> {
    n.map_or_else(|| fail(UINT), |n| Some(Ok(Val::Uint(n))))
}

fn span<'a>(n: Option<i64>) -> Option<Outcome<'a>> {
    n.map_or_else(|| fail(INT), |n| Some(Ok(Val::Duration(n))))
}

fn moment<'a>(stamp: Option<Stamp>) -> Option<Outcome<'a>> {
    stamp.map_or_else(|| fail("timestamp overflow"), |stamp| Some(Ok(Val::Timestamp(stamp))))
}

fn add<'a>(call: &Call<'_, 'a>) -> Option<Outcome<'a>> {
    match call.args {
        [Val::Int(a), Val::Int(b)] => checked(a.checked_add(*b)),
        [Val::Uint(a), Val::Uint(b)] => unsigned(a.checked_add(*b)),
        [Val::Double(a), Val::Double(b)] => Some(Ok(Val::Double(a + b))),
        [Val::String(a), Val::String(b)] => made(format!("{}{}", &**a, &**b)),
        [Val::Bytes(a), Val::Bytes(b)] => Some(Ok(Val::Bytes([&a[..], &b[..]].concat().into()))),
        [Val::Duration(a), Val::Duration(b)] => span(a.checked_add(*b)),
        [Val::Duration(d), Val::Timestamp(t)] | [Val::Timestamp(t), Val::Duration(d)] => moment(t.plus(*d)),
        [Val::List(a), Val::List(b)] => Some(concat(a, b)),
        _ => None,
    }
}

fn concat<'a>(a: &List<'a>, b: &List<'a>) -> Outcome<'a> {
    if let List::View(view) = a
        && view.list_type() != ListType::Atomic
    {
        return merge(a, b, &view.keys());
    }
    if a.is_empty() {
        return Ok(Val::List(b.clone()));
    }
    if b.is_empty() {
        return Ok(Val::List(a.clone()));
    }
    let mut items = a.all()?;
    items.extend(b.all()?);
    Ok(Val::list(items))
}

/// Adds to a set what is not in it, and to a list with keys what replaces elements or is new.
fn merge<'a>(a: &List<'a>, b: &List<'a>, keys: &[&str]) -> Outcome<'a> {
    let mut items = a.all()?;
    let mut places: HashMap<String, usize> = HashMap::new();
    for (index, item) in items.iter().enumerate() {
        places.insert(compare::key_of(item, keys), index);
    }
    for item in b.iter() {
        let item = item?;
        let key = compare::key_of(&item, keys);
        match places.get(&key) {
            Some(_) if keys.is_empty() => {}
            Some(&index) => items[index] = item,
            None => {
                places.insert(key, items.len());
                items.push(item);
            }
        }
    }
    Ok(Val::list(items))
}

fn subtract<'a>(call: &Call<'_, 'a>) -> Option<Outcome<'a>> {
    match call.args {
        [Val::Int(a), Val::Int(b)] => checked(a.checked_sub(*b)),
        [Val::Uint(a), Val::Uint(b)] => unsigned(a.checked_sub(*b)),
        [Val::Double(a), Val::Double(b)] => Some(Ok(Val::Double(a - b))),
        [Val::Duration(a), Val::Duration(b)] => span(a.checked_sub(*b)),
        [Val::Timestamp(t), Val::Duration(d)] => match d.checked_neg() {
            None => fail(INT),
            Some(d) => moment(t.plus(d)),
        },
        [Val::Timestamp(a), Val::Timestamp(b)] => span(a.since(*b)),
        _ => None,
    }
}

fn multiply<'a>(call: &Call<'_, 'a>) -> Option<Outcome<'a>> {
    match call.args {
        [Val::Int(a), Val::Int(b)] => checked(a.checked_mul(*b)),
        [Val::Uint(a), Val::Uint(b)] => unsigned(a.checked_mul(*b)),
        [Val::Double(a), Val::Double(b)] => Some(Ok(Val::Double(a * b))),
        _ => None,
    }
}

fn divide<'a>(call: &Call<'_, 'a>) -> Option<Outcome<'a>> {
    match call.args {
        [Val::Int(_), Val::Int(0)] | [Val::Uint(_), Val::Uint(0)] => fail("division by zero"),
        [Val::Int(a), Val::Int(b)] => checked(a.checked_div(*b)),
        [Val::Uint(a), Val::Uint(b)] => unsigned(a.checked_div(*b)),
        [Val::Double(a), Val::Double(b)] => Some(Ok(Val::Double(a / b))),
        _ => None,
    }
}

fn modulo<'a>(call: &Call<'_, 'a>) -> Option<Outcome<'a>> {
    match call.args {
        [Val::Int(_), Val::Int(0)] | [Val::Uint(_), Val::Uint(0)] => fail("modulus by zero"),
        [Val::Int(a), Val::Int(b)] => checked(a.checked_rem(*b)),
        [Val::Uint(a), Val::Uint(b)] => unsigned(a.checked_rem(*b)),
        _ => None,
    }
}

fn negate<'a>(call: &Call<'_, 'a>) -> Option<Outcome<'a>> {
    match call.args {
        [Val::Int(n)] => checked(n.checked_neg()),
        [Val::Double(d)] => Some(Ok(Val::Double(-d))),
        [Val::Duration(d)] => span(d.checked_neg()),
        _ => None,
    }
}

fn contains<'a>(call: &Call<'_, 'a>) -> Option<Outcome<'a>> {
    match call.args {
        [value, Val::List(list)] => Some(super::lists::contains(list, value).map(Val::Bool)),
        [key, Val::Map(map)] => Some(map.contains(key).map(Val::Bool)),
        _ => None,
    }
}
