//! Laying a configuration over an object.

use std::{collections::BTreeMap, mem};

use super::{
    PathElement,
    types::{List, Relation, Shape, Ty},
};
use crate::{Map, Value};

/// Lays `config` over `object`: maps are merged, lists are as the type says, all else is taken from `config`. Nothing
/// is taken away.
///
/// # Errors
/// If an element of a list cannot be told from the others.
pub(super) fn merge(ty: Ty<'_>, object: &mut Value, config: Value) -> Result<(), String> {
    values(ty, object, config, 0)
}

fn values(ty: Ty<'_>, object: &mut Value, config: Value, depth: usize) -> Result<(), String> {
    match ty.shape(Some(&config), depth) {
        Shape::Map(fields) if !fields.atomic => match (object, config) {
            (Value::Object(object), Value::Object(config)) if !object.is_empty() => {
                let mut from = 0;
                for (key, value) in config {
                    match (object.get_mut(&key), fields.at_from(&mut from, &key)) {
                        (Some(old), Some((ty, _))) => values(ty, old, value, depth + 1)?,
                        _ => drop(object.insert(key, value)),
                    }
                }
            }
            (Value::Object(object), Value::Null) if !object.is_empty() => {}
            (object, config) => *object = config,
        },
        Shape::List(list) if !matches!(list.relation, Relation::Atomic) => match (object, config) {
            (Value::Array(object), Value::Array(config)) if !object.is_empty() => {
                if !config.is_empty() {
                    let items = mem::take(object).into_vec();
                    *object = lists(&list, items, config.into_vec(), depth)?.into();
                }
            }
            (Value::Array(object), Value::Null) if !object.is_empty() => {}
            (object, config) => *object = config,
        },
        _ => *object = config,
    }
    Ok(())
}

/// A list's elements with what tells them apart.
fn indexed(list: &List<'_>, items: &[Value]) -> Result<Vec<PathElement>, String> {
    let element = |(at, item)| list.path_element(item).map_err(|message| format!("element {at}: {message}"));
    items.iter().enumerate().map(element).collect()
}

/// Merges elements. Those that both have come in the order of `config`, each other one stays behind the one that it
/// stood behind.
fn lists(list: &List<'_>, lhs: Vec<Value>, rhs: Vec<Value>, depth: usize) -> Result<Vec<Value>, String> {
    let (left, right) = (indexed(list, &lhs)?, indexed(list, &rhs)?);
    // Elements of the object that cannot be told apart are not merged with anything.
    let mut in_left: BTreeMap<&PathElement, Option<usize>> = BTreeMap::new();
    for (at, element) in left.iter().enumerate() {
        in_left.entry(element).and_modify(|place| *place = None).or_insert(Some(at));
    }
    let in_right: BTreeMap<&PathElement, usize> = right.iter().zip(0..).collect();
    let mut shared = right.iter().filter(|element| in_left.contains_key(element)).peekable();

    let mut lhs: Vec<Option<Value>> = lhs.into_iter().map(Some).collect();
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
                    out.extend(lhs[l].take());
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
            let old = in_left.get(element).and_then(|place| lhs[(*place)?].take());
            let new = rhs[r].take().unwrap_or_default();
            out.push(match old {
                Some(mut old) => {
                    values(list.element, &mut old, new, depth + 1)?;
                    old
                }
                None => new,
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
