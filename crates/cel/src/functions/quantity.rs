//! Quantities.

use std::cmp::Ordering;

use capstan_api::{Quantity, quantity::Format};

use super::{Call, Impl, fail, int, yes};
use crate::value::{Outcome, Val};

pub(super) fn find(name: &str) -> Option<Impl> {
    Some(match name {
        "quantity" => |call| match call.args[0].as_str()?.parse::<Quantity>() {
            Ok(quantity) => Some(Ok(Val::Quantity(quantity.into()))),
            Err(error) => fail(error.to_string()),
        },
        "isQuantity" => |call| call.args[0].as_str().and_then(|text| yes(text.parse::<Quantity>().is_ok())),
        "sign" => |call| one(call).and_then(|quantity| int(quantity.signum())),
        "isInteger" => |call| one(call).and_then(|quantity| yes(quantity.as_i64().is_some())),
        "asInteger" => |call| match one(call)?.as_i64() {
            Some(n) => int(n),
            None => fail("cannot convert value to integer"),
        },
        "asApproximateFloat" => |call| one(call).map(|quantity| Ok(Val::Double(quantity.as_f64()))),
        "isGreaterThan" => |call| order(call).and_then(|order| yes(order == Ordering::Greater)),
        "isLessThan" => |call| order(call).and_then(|order| yes(order == Ordering::Less)),
        "compareTo" => |call| order(call).and_then(|order| int(order as i8)),
        "add" => |call| change(call, Quantity::add),
        "sub" => |call| change(call, Quantity::sub),
        _ => return None,
    })
}

fn one<'c>(call: &'c Call<'_, '_>) -> Option<&'c Quantity> {
    match call.args {
        [Val::Quantity(quantity)] => Some(quantity),
        _ => None,
    }
}

/// The order of quantities or of versions.
fn order(call: &Call<'_, '_>) -> Option<Ordering> {
    match call.args {
        [Val::Quantity(a), Val::Quantity(b)] => Some((**a).cmp(b)),
        [Val::Semver(a), Val::Semver(b)] => Some(a.compare(b)),
        _ => None,
    }
}

fn change<'a>(call: &Call<'_, 'a>, by: fn(&mut Quantity, &Quantity)) -> Option<Outcome<'a>> {
    let (quantity, other) = match call.args {
        [Val::Quantity(a), Val::Quantity(b)] => (a, Quantity::clone(b)),
        [Val::Quantity(a), Val::Int(n)] => (a, Quantity::new(*n, Format::DecimalExponent)),
        _ => return None,
    };
    let mut result = Quantity::clone(quantity);
    by(&mut result, &other);
    Some(Ok(Val::Quantity(result.into())))
}
