//! Laying a configuration over an object.

use std::{borrow::Cow, collections::BTreeMap, mem};

use super::{
    PathElement,
    types::{Fields, List, Relation, Shape, Ty},
};
use crate::{Map, Str, Value};

/// `config` laid over `object`: maps are merged, lists are as the type says, all else is taken from `config`. Nothing
/// is taken away but the entries in the object's metadata.
///
/// Only what `config` does not have is copied: most of an object that is applied again is what is applied.
///
/// # Errors
/// If an element of a list cannot be told from the others.
pub(super) fn merge(ty: Ty<'_>, object: &Map, config: Value) -> Result<Value, String> {
    match (ty.shape(Some(&config), 0), config) {
        (Shape::Map(fields), Value::Object(config)) if !fields.atomic => {
            maps(&fields, object, config, 0).map(Value::Object)
        }
        (_, config) => Ok(config),
    }
}

fn values(ty: Ty<'_>, object: &Value, config: Value, depth: usize) -> Result<Value, String> {
    Ok(match (ty.shape(Some(&config), depth), object, config) {
        (Shape::Map(fields), Value::Object(object), config) if !fields.atomic && !object.is_empty() => match config {
            Value::Object(config) => Value::Object(maps(&fields, object, config, depth)?),
            Value::Null => Value::Object(object.clone()),
            config => config,
        },
        (Shape::List(list), Value::Array(object), config)
            if !matches!(list.relation, Relation::Atomic) && !object.is_empty() =>
        {
            match config {
                Value::Array(config) if !config.is_empty() => lists(&list, object, config.into_vec(), depth)?.into(),
                Value::Array(_) | Value::Null => Value::Array(object.clone()),
                config => config,
            }
        }
        (_, _, config) => config,
    })
}

fn maps(fields: &Fields<'_>, object: &Map, config: Map, depth: usize) -> Result<Map, String> {
    let mut out: Vec<(Str, Value)> = Vec::with_capacity(object.len().max(config.len()));
    let mut from = 0;
    let mut old = object.entries().iter().peekable();
    for (key, new) in config {
        while let Some((key, value)) = old.next_if(|(other, _)| *other < key) {
            out.push((key.clone(), without_entries(key, value, depth).into_owned()));
        }
        let value = match old.next_if(|(other, _)| *other == key) {
            // The type matters only to what has parts.
            Some((_, old)) if has_parts(old) && (has_parts(&new) || new.is_null()) => {
                match fields.at_from(&mut from, &key) {
                    Some((ty, _)) => values(ty, &without_entries(&key, old, depth), new, depth + 1)?,
                    None => new,
                }
            }
            _ => new,
        };
        out.push((key, value));
    }
    out.extend(old.map(|(key, value)| (key.clone(), without_entries(key, value, depth).into_owned())));
    Ok(out.into_iter().collect())
}

fn has_parts(value: &Value) -> bool {
    matches!(value, Value::Array(_) | Value::Object(_))
}

/// A field of an object; if it is the object's metadata, without entries.
fn without_entries<'v>(key: &str, value: &'v Value, depth: usize) -> Cow<'v, Value> {
    match value {
        Value::Object(metadata) if depth == 0 && key == "metadata" => {
            let stays = |(key, _): &&(Str, Value)| key != "managedFields";
            Cow::Owned(Value::Object(metadata.entries().iter().filter(stays).cloned().collect()))
        }
        value => Cow::Borrowed(value),
    }
}

/// A list's elements with what tells them apart.
fn indexed(list: &List<'_>, items: &[Value]) -> Result<Vec<PathElement>, String> {
    let element = |(at, item)| list.path_element(item).map_err(|message| format!("element {at}: {message}"));
    items.iter().enumerate().map(element).collect()
}

/// Merges elements. Those that both have come in the order of `config`, each other one stays behind the one that it
/// stood behind.
fn lists(list: &List<'_>, lhs: &[Value], rhs: Vec<Value>, depth: usize) -> Result<Vec<Value>, String> {
    // Most lists that are applied again have the same elements in the same order.
    if lhs.len() == rhs.len() && lhs.iter().zip(&rhs).all(|(old, new)| list.has_same_keys(old, new)) {
        return lhs.iter().zip(rhs).map(|(old, new)| values(list.element, old, new, depth + 1)).collect();
    }
    let (left, right) = (indexed(list, lhs)?, indexed(list, &rhs)?);
    // Elements of the object that cannot be told apart are not merged with anything.
    let mut in_left: BTreeMap<&PathElement, Option<usize>> = BTreeMap::new();
    for (at, element) in left.iter().enumerate() {
        in_left.entry(element).and_modify(|place| *place = None).or_insert(Some(at));
    }
    let in_right: BTreeMap<&PathElement, usize> = right.iter().zip(0..).collect();
    let mut shared = right.iter().filter(|element| in_left.contains_key(element)).peekable();

    let mut rhs: Vec<Option<Value>> = rhs.into_iter().map(Some).collect();
    let mut merged = vec![false; right.len()];
    let mut out = Vec::with_capacity(left.len().max(right.len()));
    let (mut l, mut r) = (0, 0);
    while l < left.len() || r < right.len() {
        if l < left.len() && r < right.len() && left[l] != right[r] {
            let wanted = shared.peek().is_some_and(|next| **next != left[l]);
            if in_right.contains_key(&left[l]) && wanted {
                l += 1;
                continue;
            }
        }
        let both = l < left.len() && r < right.len() && left[l] == right[r];
        if l < left.len() && !both {
            match in_right.get(&left[l]) {
                None => {
                    out.push(lhs[l].clone());
                    l += 1;
                    continue;
                }
                Some(&at) if merged[at] => l += 1,
                Some(_) => {}
            }
        }
        if r < right.len() {
            let element = &right[r];
            merged[r] = true;
            let new = rhs[r].take().unwrap_or_default();
            out.push(match in_left.get(element) {
                Some(Some(old)) => values(list.element, &lhs[*old], new, depth + 1)?,
                _ => new,
            });
            if both {
                l += 1;
                shared.next();
            } else {
                shared.next_if(|next| *next == element);
            }
            r += 1;
        }
    }
    Ok(out)
}

/// Takes the items of `set` out of a value. What is left empty becomes `null`.
pub(super) fn remove_items(ty: Ty<'_>, value: &mut Value, set: &super::FieldSet, depth: usize) {
    match (ty.shape(Some(value), depth), &mut *value) {
        (Shape::Scalar(_), _) => {}
        (Shape::Map(fields), Value::Object(map)) if !fields.atomic => {
            let mut kept = Vec::with_capacity(map.len());
            for (key, mut value) in mem::replace(map, Map::new()) {
                let element = PathElement::Field(key);
                let node = set.find(&element);
                if node.is_some_and(|node| node.member) {
                    continue;
                }
                if let (Some(node), PathElement::Field(key)) = (node, &element) {
                    let ty = fields.at(key).map_or(Ty::Deduced, |(ty, _)| ty);
                    remove_items(ty, &mut value, &node.children, depth + 1);
                }
                if let PathElement::Field(key) = element {
                    kept.push((key, value));
                }
            }
            *value = if kept.is_empty() { Value::Null } else { Value::Object(kept.into_iter().collect()) };
        }
        (Shape::List(list), Value::Array(items)) if !matches!(list.relation, Relation::Atomic) => {
            let mut kept = Vec::with_capacity(items.len());
            for mut item in mem::take(items).into_vec() {
                let element = list.path_element(&item).ok();
                let node = element.and_then(|element| set.find(&element));
                if node.is_some_and(|node| node.member) {
                    continue;
                }
                if let Some(node) = node {
                    remove_items(list.element, &mut item, &node.children, depth + 1);
                }
                kept.push(item);
            }
            *value = if kept.is_empty() { Value::Null } else { kept.into() };
        }
        _ => *value = Value::Null,
    }
}
