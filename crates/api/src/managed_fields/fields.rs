//! Which fields an object has, and what the schema says about a set of them.

use super::{
    FieldSet, PathElement,
    set::Node,
    types::{Fields, List, Relation, Shape, Ty},
    validate::{TypeErrors, validate},
};
use crate::{Map, Value};

/// All fields that an object has: leaves, elements of lists, and keys of maps.
///
/// # Errors
/// If an element of a list cannot be told from the others.
pub(super) fn field_set(ty: Ty<'_>, object: &Value) -> Result<FieldSet, String> {
    walk::<false>(ty, object, 0).map(|(_, set)| set)
}

/// All fields that an object has, which is checked on the way as [`validate`] does.
///
/// # Errors
/// If it does not fit its type.
pub(super) fn valid_field_set(ty: Ty<'_>, object: &Value) -> Result<FieldSet, TypeErrors> {
    // What is wrong is said by those who know all the words.
    if let Ok((_, set)) = walk::<true>(ty, object, 0) {
        return Ok(set);
    }
    validate(ty, object)?;
    field_set(ty, object).map_err(TypeErrors::one)
}

/// Whether the value itself is a field of its own, and the fields in it. If it is to be checked, what does not fit its
/// type is an error without words.
fn walk<const CHECKED: bool>(ty: Ty<'_>, value: &Value, depth: usize) -> Result<(bool, FieldSet), String> {
    let wrong = |wrong: bool| if CHECKED && wrong { Err(String::new()) } else { Ok(()) };
    let mut set = FieldSet::new();
    match (ty.shape(Some(value), depth), value) {
        (Shape::Scalar(scalar), _) => {
            wrong(!scalar.takes(value))?;
            return Ok((true, set));
        }
        (Shape::Map(Fields { atomic: true, .. }) | Shape::List(List { relation: Relation::Atomic, .. }), _) => {
            wrong(CHECKED && validate(ty, value).is_err())?;
            return Ok((true, set));
        }
        (Shape::Map(fields), Value::Object(map)) => {
            set.nodes.reserve_exact(map.len());
            let mut from = 0;
            for (key, value) in map.entries() {
                let field = fields.at_from(&mut from, key);
                wrong(field.is_none())?;
                let (ty, known) = field.unwrap_or((Ty::Deduced, false));
                let (leaf, below) = walk::<CHECKED>(ty, value, depth + 1)?;
                let empty = value.is_null() || value.as_object().is_some_and(Map::is_empty);
                set.push(|| PathElement::Field(key.clone()), leaf || empty || !known, below);
            }
        }
        (Shape::List(list), Value::Array(items)) => {
            let items = items.iter().map(|item| Ok((list.path_element(item)?, item)));
            let mut items = items.collect::<Result<Vec<_>, String>>()?;
            if !items.is_sorted_by(|(a, _), (b, _)| a <= b) {
                items.sort_by(|(a, _), (b, _)| a.cmp(b));
            }
            set.nodes.reserve_exact(items.len());
            let mut items = items.into_iter().peekable();
            while let Some((element, item)) = items.next() {
                // What cannot be told apart is one value.
                let mut below = walk::<CHECKED>(list.element, item, depth + 1)?.1;
                while items.next_if(|(other, _)| *other == element).is_some() {
                    wrong(true)?;
                    below = FieldSet::new();
                }
                set.push(|| element, true, below);
            }
        }
        (Shape::Map(_) | Shape::List(_), value) => wrong(!value.is_null())?,
    }
    Ok((false, set))
}

/// Adds the known fields that something in the set is below of. What is not a known field, a key of a map or an element
/// of a list, is not added: it can be there without being owned.
pub(super) fn ensure_named(set: &mut FieldSet, ty: Option<Ty<'_>>, depth: usize) {
    let shape = |value| ty.map(|ty| ty.shape(Some(value), depth));
    let map = match shape(&EMPTY_MAP) {
        Some(Shape::Map(fields)) => Some(fields),
        _ => None,
    };
    let list = match shape(&EMPTY_LIST) {
        Some(Shape::List(list)) => Some(list),
        _ => None,
    };
    for Node { element, member, children } in &mut set.nodes {
        if children.is_empty() {
            continue;
        }
        let below = match (&*element, &map, &list) {
            (PathElement::Field(name), Some(fields), _) => {
                let field = fields.field(name);
                *member |= field.is_some();
                field.or(fields.element)
            }
            (PathElement::Key(_), _, Some(list)) => Some(list.element),
            _ => None,
        };
        ensure_named(children, below, depth + 1);
    }
}

static EMPTY_MAP: Value = Value::Object(Map::new());
static EMPTY_LIST: Value = Value::Array(crate::Array::new());

/// Fits a set to the schema: where something has become one value since the set was written, whoever owned a part of it
/// owns it all.
pub(super) fn reconcile(set: &mut FieldSet, ty: Ty<'_>) {
    walk_set(set, ty.shape(None, 0), 0);
}

fn walk_set(set: &mut FieldSet, shape: Shape<'_>, depth: usize) {
    match shape {
        Shape::Map(fields) if !fields.is_deduced() => {
            let mut from = 0;
            for node in set.nodes.iter_mut().filter(|node| !node.children.is_empty()) {
                let ty = match &node.element {
                    PathElement::Field(name) => fields.at_from(&mut from, name).map(|(ty, _)| ty),
                    _ => fields.element,
                };
                if let Some(ty) = ty {
                    fit(node, ty, depth + 1);
                }
            }
        }
        Shape::List(list) => {
            set.nodes.iter_mut().filter(|node| !node.children.is_empty()).for_each(|node| {
                fit(node, list.element, depth + 1);
            });
        }
        Shape::Map(_) | Shape::Scalar(_) => {}
    }
}

fn fit(node: &mut Node, ty: Ty<'_>, depth: usize) {
    let shape = ty.shape(None, depth);
    let atomic = match &shape {
        Shape::Map(fields) => fields.atomic && !fields.is_deduced(),
        Shape::List(list) => matches!(list.relation, Relation::Atomic),
        Shape::Scalar(_) => false,
    };
    if atomic {
        node.member = true;
        node.children = FieldSet::new();
    } else {
        walk_set(&mut node.children, shape, depth);
    }
}
