//! Conversions between types, and optionals.

use std::rc::Rc;

use super::{Call, Impl, fail, int, made, time::Stamp, yes};
use crate::value::{Outcome, Val, go_float};

pub(super) fn find(name: &str) -> Option<Impl> {
    Some(match name {
        "int" => to_int,
        "uint" => to_uint,
        "double" => to_double,
        "string" => to_string,
        "bytes" => |call| match call.args {
            [Val::Bytes(_)] => Some(Ok(call.args[0].clone())),
            [Val::String(text)] => Some(Ok(Val::Bytes(text.as_bytes().into()))),
            _ => None,
        },
        "bool" => |call| match call.args {
            [Val::Bool(b)] => yes(*b),
            [Val::String(text)] => match &**text {
                "1" | "t" | "T" | "true" | "TRUE" | "True" => yes(true),
                "0" | "f" | "F" | "false" | "FALSE" | "False" => yes(false),
                _ => fail("type conversion error from 'string' to 'bool'"),
            },
            _ => None,
        },
        "duration" => |call| match call.args {
            [Val::Duration(_)] => Some(Ok(call.args[0].clone())),
            [Val::Int(_)] => fail("type conversion error from 'int' to 'google.protobuf.Duration'"),
            [Val::String(text)] => match text.parse::<capstan_api::Duration>() {
                Ok(duration) => Some(Ok(Val::Duration(duration.0))),
                Err(_) => fail("type conversion error from 'string' to 'google.protobuf.Duration'"),
            },
            _ => None,
        },
        "timestamp" => |call| match call.args {
            [Val::Timestamp(_)] => Some(Ok(call.args[0].clone())),
            [Val::Int(seconds)] => stamp(Stamp::new(*seconds, 0, 0)),
            [Val::String(text)] => match super::time::parse(text) {
                Ok(parsed) => stamp(parsed.in_range()),
                Err(_) => fail("type conversion error from 'string' to 'google.protobuf.Timestamp'"),
            },
            _ => None,
        },
        "dyn" => |call| Some(Ok(call.args[0].clone())),
        "type" => |call| Some(Ok(Val::Type(call.args[0].type_name().into()))),
        "optional.of" => |call| Some(Ok(Val::some(call.args[0].clone()))),
        "optional.none" => |_| Some(Ok(Val::Optional(None))),
        "optional.ofNonZeroValue" => |call| {
            let value = &call.args[0];
            Some(Ok(if is_zero(value) { Val::Optional(None) } else { Val::some(value.clone()) }))
        },
        "value" => |call| match call.args {
            [Val::Optional(Some(value))] => Some(Ok(Val::clone(value))),
            [Val::Optional(None)] => fail("optional.none() dereference"),
            _ => None,
        },
        "hasValue" => |call| match call.args {
            [Val::Optional(value)] => yes(value.is_some()),
            _ => None,
        },
        "optional.unwrap" | "unwrapOpt" => unwrap,
        "first" => |call| match call.args {
            [Val::List(list)] => Some(list.get(0).transpose().map(|value| Val::Optional(value.map(Rc::new)))),
            _ => None,
        },
        "last" => |call| match call.args {
            [Val::List(list)] => {
                let last = list.len().checked_sub(1).and_then(|last| list.get(last));
                Some(last.transpose().map(|value| Val::Optional(value.map(Rc::new))))
            }
            _ => None,
        },
        _ => return None,
    })
}

fn stamp<'a>(stamp: Option<Stamp>) -> Option<Outcome<'a>> {
    stamp.map_or_else(|| fail("timestamp overflow"), |stamp| Some(Ok(Val::Timestamp(stamp))))
}

fn is_zero(value: &Val<'_>) -> bool {
    match value {
        Val::Null => true,
        Val::Bool(b) => !b,
        Val::Int(n) => *n == 0,
        Val::Uint(n) => *n == 0,
        Val::Double(d) => *d == 0.0,
        Val::Duration(d) => *d == 0,
        Val::Timestamp(stamp) => stamp.is_zero(),
        Val::String(text) => text.is_empty(),
        Val::Bytes(bytes) => bytes.is_empty(),
        Val::List(crate::value::List::Made(items)) => items.is_empty(),
        Val::Map(crate::value::Map::Made(map)) => map.0.is_empty(),
        _ => false,
    }
}

fn unwrap<'a>(call: &Call<'_, 'a>) -> Option<Outcome<'a>> {
    let [Val::List(list)] = call.args else { return None };
    let mut values = Vec::new();
    for item in list.iter() {
        match item {
            Ok(Val::Optional(Some(value))) => values.push(Val::clone(&value)),
            Ok(Val::Optional(None)) => {}
            Ok(other) => return fail(format!("value {} is not optional", other.show())),
            Err(error) => return Some(Err(error)),
        }
    }
    Some(Ok(Val::list(values)))
}

#[expect(clippy::cast_possible_truncation, clippy::cast_precision_loss, reason = "the bounds are looked at first")]
fn to_int<'a>(call: &Call<'_, 'a>) -> Option<Outcome<'a>> {
    match call.args {
        [Val::Int(n)] => int(*n),
        [Val::Uint(n)] => i64::try_from(*n).map_or_else(|_| fail("integer overflow"), int),
        [Val::Double(d)] if d.is_finite() && *d > i64::MIN as f64 && *d < i64::MAX as f64 => int(*d as i64),
        [Val::Double(_)] => fail("integer overflow"),
        [Val::Duration(nanos)] => int(*nanos),
        [Val::Timestamp(stamp)] => int(stamp.seconds),
        [Val::String(text)] => match text.parse::<i64>() {
            Ok(n) => int(n),
            Err(_) => fail("type conversion error from 'string' to 'int'"),
        },
        _ => None,
    }
}

#[expect(
    clippy::cast_possible_truncation,
    clippy::cast_precision_loss,
    clippy::cast_sign_loss,
    reason = "the bounds are looked at first"
)]
fn to_uint<'a>(call: &Call<'_, 'a>) -> Option<Outcome<'a>> {
    match call.args {
        [Val::Uint(_)] => Some(Ok(call.args[0].clone())),
        [Val::Int(n)] => {
            u64::try_from(*n).map_or_else(|_| fail("unsigned integer overflow"), |n| Some(Ok(Val::Uint(n))))
        }
        [Val::Double(d)] if d.is_finite() && *d >= 0.0 && *d < u64::MAX as f64 => Some(Ok(Val::Uint(*d as u64))),
        [Val::Double(_)] => fail("unsigned integer overflow"),
        [Val::String(text)] if !text.starts_with('+') => match text.parse::<u64>() {
            Ok(n) => Some(Ok(Val::Uint(n))),
            Err(_) => fail("type conversion error from 'string' to 'uint'"),
        },
        [Val::String(_)] => fail("type conversion error from 'string' to 'uint'"),
        _ => None,
    }
}

#[expect(clippy::cast_precision_loss, reason = "that is what a double is")]
fn to_double<'a>(call: &Call<'_, 'a>) -> Option<Outcome<'a>> {
    match call.args {
        [Val::Double(_)] => Some(Ok(call.args[0].clone())),
        [Val::Int(n)] => Some(Ok(Val::Double(*n as f64))),
        [Val::Uint(n)] => Some(Ok(Val::Double(*n as f64))),
        [Val::String(text)] => match parse_float(text) {
            Some(d) => Some(Ok(Val::Double(d))),
            None => fail("type conversion error from 'string' to 'double'"),
        },
        _ => None,
    }
}

/// Reads a number as Go reads it: with words for what is not finite, and no number too large.
pub(super) fn parse_float(text: &str) -> Option<f64> {
    let bare = text.trim_start_matches(['+', '-']);
    let named = matches!(bare.to_ascii_lowercase().as_str(), "inf" | "infinity" | "nan");
    let number: f64 = text.parse().ok()?;
    (named || number.is_finite()).then_some(number)
}

fn to_string<'a>(call: &Call<'_, 'a>) -> Option<Outcome<'a>> {
    match call.args {
        [Val::String(_)] => Some(Ok(call.args[0].clone())),
        [Val::Ip(ip)] => made(ip.to_string()),
        [Val::Cidr(cidr)] => made(cidr.to_string()),
        [Val::Bytes(bytes)] => match std::str::from_utf8(bytes) {
            Ok(text) => made(text),
            Err(_) => fail("invalid UTF-8 in bytes, cannot convert to string"),
        },
        [value @ (Val::Bool(_) | Val::Int(_) | Val::Uint(_))] => made(value.show()),
        [Val::Double(d)] => made(go_float(*d)),
        [Val::Duration(nanos)] => made(duration_text(*nanos)),
        [Val::Timestamp(stamp)] => made(stamp.to_string()),
        _ => None,
    }
}

/// Seconds with a fraction: `1.5s`.
#[expect(clippy::cast_precision_loss, reason = "Go loses it too")]
pub(super) fn duration_text(nanos: i64) -> String {
    let (seconds, rest) = (nanos / 1_000_000_000, nanos % 1_000_000_000);
    format!("{}s", seconds as f64 + rest as f64 / 1e9)
}
