//! Lists, sets and maps.

use std::{cmp::Ordering, rc::Rc};

use super::{Call, Impl, fail, yes};
use crate::{
    compare,
    value::{EvalError, Key, List, MadeMap, Map, Outcome, Val},
};

pub(super) fn find(name: &str) -> Option<Impl> {
    Some(match name {
        "isSorted" => is_sorted,
        "sum" => sum,
        "min" => |call| extreme(call, "min", Ordering::Greater),
        "max" => |call| extreme(call, "max", Ordering::Less),
        "sets.contains" => |call| two(call).map(|(a, b)| includes(a, b).map(Val::Bool)),
        "sets.equivalent" => {
            |call| two(call).map(|(a, b)| includes(a, b).and_then(|yes| Ok(yes && includes(b, a)?)).map(Val::Bool))
        }
        "sets.intersects" => |call| {
            let (a, b) = two(call)?;
            yes(a.iter().flatten().any(|item| contains(b, &item) == Ok(true)))
        },
        "slice" => slice,
        "flatten" => |call| match call.args {
            [Val::List(list)] => flat(list, 1),
            [Val::List(list), Val::Int(depth)] => flat(list, *depth),
            _ => None,
        },
        "sort" => |call| match call.args {
            [Val::List(list)] => Some(sorted(list, list)),
            _ => None,
        },
        "@sortByAssociatedKeys" => |call| two(call).map(|(list, keys)| sorted(list, keys)),
        "lists.range" => |call| match call.args {
            [Val::Int(n)] => Some(Ok(Val::list((0..*n).take(MAX_RANGE).map(Val::Int).collect()))),
            _ => None,
        },
        "reverse" => |call| match call.args {
            [Val::List(list)] => Some(list.all().map(|mut items| {
                items.reverse();
                Val::list(items)
            })),
            _ => None,
        },
        "distinct" => distinct,
        "cel.@mapInsert" => map_insert,
        _ => return None,
    })
}

/// The longest range that is made. What is longer costs more than any evaluation may.
const MAX_RANGE: usize = 2_000_000;
/// How deep nested lists are flattened.
const MAX_FLATTEN: i64 = 200;

fn two<'c, 'a>(call: &'c Call<'_, 'a>) -> Option<(&'c List<'a>, &'c List<'a>)> {
    match call.args {
        [Val::List(a), Val::List(b)] => Some((a, b)),
        _ => None,
    }
}

/// The position that an index means.
pub(crate) fn index(key: &Val<'_>) -> Result<i64, EvalError> {
    match key {
        Val::Int(n) => Ok(*n),
        #[expect(clippy::cast_possible_truncation, reason = "whole numbers of that size fit")]
        Val::Double(d) if d.fract() == 0.0 && d.abs() < 9e15 => Ok(*d as i64),
        Val::Uint(n) if i64::try_from(*n).is_ok() => Ok(n.cast_signed()),
        Val::Double(_) | Val::Uint(_) => Err(EvalError::new(format!("unsupported index value {} in list", key.show()))),
        other => Err(EvalError::new(format!("unsupported index type '{}' in list", other.type_name()))),
    }
}

/// Whether a list has an element.
pub(crate) fn contains(list: &List<'_>, value: &Val<'_>) -> Result<bool, EvalError> {
    let mut failure = None;
    for item in list.iter() {
        match item.and_then(|item| compare::equal(&item, value)) {
            Ok(true) => return Ok(true),
            Ok(false) => {}
            Err(error) => failure = failure.or(Some(error)),
        }
    }
    // Elements of lists that the expression made and that cannot be compared are just not the same.
    match (failure, list) {
        (Some(error), List::View(_)) => Err(error),
        _ => Ok(false),
    }
}

fn includes(list: &List<'_>, other: &List<'_>) -> Result<bool, EvalError> {
    for item in other.iter() {
        if !contains(list, &item?)? {
            return Ok(false);
        }
    }
    Ok(true)
}

fn is_sorted<'a>(call: &Call<'_, 'a>) -> Option<Outcome<'a>> {
    let [Val::List(list)] = call.args else { return None };
    let mut before: Option<Val<'a>> = None;
    for item in list.iter() {
        let item = match item {
            Ok(item) if compare::is_comparable(&item) => item,
            Ok(_) => return fail("no such overload"),
            Err(error) => return Some(Err(error)),
        };
        if before.is_some_and(|before| compare::order(&before, &item) == Ok(Ordering::Greater)) {
            return yes(false);
        }
        before = Some(item);
    }
    yes(true)
}

fn sum<'a>(call: &Call<'_, 'a>) -> Option<Outcome<'a>> {
    let [Val::List(list)] = call.args else { return None };
    let first = list.get(0).and_then(Result::ok);
    let mut total = match (call.step.overload, first) {
        ("list_uint_sum_uint", _) | ("", Some(Val::Uint(_))) => Val::Uint(0),
        ("list_double_sum_double", _) | ("", Some(Val::Double(_))) => Val::Double(0.0),
        ("list_duration_sum_duration", _) | ("", Some(Val::Duration(_))) => Val::Duration(0),
        _ => Val::Int(0),
    };
    let add = super::find("_+_")?;
    for item in list.iter() {
        let args = match item {
            Ok(item) => [total, item],
            Err(error) => return Some(Err(error)),
        };
        total = match add(&Call { step: call.step, args: &args }) {
            Some(Ok(total)) => total,
            Some(Err(error)) => return Some(Err(error)),
            None => return fail("no such overload"),
        };
    }
    Some(Ok(total))
}

fn extreme<'a>(call: &Call<'_, 'a>, name: &str, replace: Ordering) -> Option<Outcome<'a>> {
    let [Val::List(list)] = call.args else { return None };
    let mut best: Option<Val<'a>> = None;
    for item in list.iter() {
        let item = match item {
            Ok(item) if compare::is_comparable(&item) => item,
            Ok(_) => return fail("no such overload"),
            Err(error) => return Some(Err(error)),
        };
        best = match best {
            Some(best) if compare::order(&best, &item) != Ok(replace) => Some(best),
            _ => Some(item),
        };
    }
    match best {
        Some(best) => Some(Ok(best)),
        None => fail(format!("{name} called on empty list")),
    }
}

fn slice<'a>(call: &Call<'_, 'a>) -> Option<Outcome<'a>> {
    let [Val::List(list), Val::Int(start), Val::Int(end)] = call.args else { return None };
    let length = i64::try_from(list.len()).unwrap_or(i64::MAX);
    if *start < 0 || *end < 0 {
        return fail(format!("cannot slice({start}, {end}), negative indexes not supported"));
    }
    if start > end {
        return fail(format!("cannot slice({start}, {end}), start index must be less than or equal to end index"));
    }
    if length < *end {
        return fail(format!("cannot slice({start}, {end}), list is length {length}"));
    }
    let (start, end) = (usize::try_from(*start).unwrap_or(0), usize::try_from(*end).unwrap_or(0));
    Some((start..end).filter_map(|index| list.get(index)).collect::<Result<_, _>>().map(Val::list))
}

fn flat<'a>(list: &List<'a>, depth: i64) -> Option<Outcome<'a>> {
    if depth < 0 {
        return fail("level must be non-negative");
    }
    let mut out = Vec::new();
    Some(flatten(list, depth.min(MAX_FLATTEN), &mut out).map(|()| Val::list(out)))
}

fn flatten<'a>(list: &List<'a>, depth: i64, out: &mut Vec<Val<'a>>) -> Result<(), EvalError> {
    for item in list.iter() {
        match item? {
            Val::List(inner) if depth > 0 => flatten(&inner, depth - 1, out)?,
            other => out.push(other),
        }
    }
    Ok(())
}

fn sorted<'a>(list: &List<'a>, keys: &List<'a>) -> Outcome<'a> {
    if list.len() != keys.len() {
        return Err(EvalError::new(format!(
            "@sortByAssociatedKeys() expected a list of the same size as the associated keys list, but got {} and {} \
             elements respectively",
            list.len(),
            keys.len()
        )));
    }
    let (keys, items) = (keys.all()?, list.all()?);
    let Some(first) = keys.first() else { return Ok(Val::List(list.clone())) };
    if !compare::is_comparable(first) {
        return Err(EvalError::new("list elements must be comparable"));
    }
    if keys.iter().any(|key| key.type_name() != first.type_name()) {
        return Err(EvalError::new("list elements must have the same type"));
    }
    let mut pairs: Vec<_> = keys.iter().zip(items).collect();
    pairs.sort_by(|(a, _), (b, _)| compare::order(a, b).unwrap_or(Ordering::Equal));
    Ok(Val::list(pairs.into_iter().map(|(_, item)| item).collect()))
}

fn distinct<'a>(call: &Call<'_, 'a>) -> Option<Outcome<'a>> {
    let [Val::List(list)] = call.args else { return None };
    let mut unique: Vec<Val<'a>> = Vec::new();
    for item in list.iter() {
        match item {
            Err(error) => return Some(Err(error)),
            Ok(item) => {
                if !unique.iter().any(|known| compare::equal(&item, known) == Ok(true)) {
                    unique.push(item);
                }
            }
        }
    }
    Some(Ok(Val::list(unique)))
}

/// Adds an entry to a map.
pub(crate) fn insert<'a>(map: &mut MadeMap<'a>, key: Val<'a>, value: Val<'a>) -> Result<(), EvalError> {
    let entry = Key::of(&key);
    if map.0.contains_key(&entry) {
        return Err(EvalError::new(format!("insert failed: key {} already exists", key.show())));
    }
    Rc::make_mut(&mut map.0).insert(entry, (key, value));
    Ok(())
}

fn map_insert<'a>(call: &Call<'_, 'a>) -> Option<Outcome<'a>> {
    let Val::Map(Map::Made(map)) = &call.args[0] else { return None };
    let mut map = map.clone();
    let inserted = match &call.args[1..] {
        [key, value] => insert(&mut map, key.clone(), value.clone()),
        [Val::Map(more)] => more.keys().into_iter().try_for_each(|key| match more.find(&key) {
            Some(value) => insert(&mut map, key, value?),
            None => Ok(()),
        }),
        _ => return None,
    };
    Some(inserted.map(|()| Val::Map(Map::Made(map))))
}
