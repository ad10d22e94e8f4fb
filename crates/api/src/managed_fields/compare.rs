//! What differs between two objects of a type.

use std::mem;

use super::{
    FieldSet, PathElement,
    types::{Fields, List, Relation, Shape, Ty},
};
use crate::{Array, Map, Value};

/// The fields in which one object differs from another. No field is in two of the sets.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct Comparison {
    pub(super) removed: FieldSet,
    pub(super) modified: FieldSet,
    pub(super) added: FieldSet,
}

impl Comparison {
    /// Leaves out what `fields` has and all below it.
    pub(super) fn without(self, filter: &super::Filter) -> Self {
        Comparison {
            removed: filter.apply(self.removed),
            modified: filter.apply(self.modified),
            added: filter.apply(self.added),
        }
    }

    fn push(&mut self, element: &dyn Fn() -> PathElement, below: Difference) {
        let Difference { removed, modified, added, inside } = below;
        self.removed.push(element, removed, inside.removed);
        self.modified.push(element, modified, inside.modified);
        self.added.push(element, added, inside.added);
    }
}

/// How a place differs: the value as a whole, and what is in it.
#[derive(Default)]
struct Difference {
    removed: bool,
    modified: bool,
    added: bool,
    inside: Comparison,
}

impl Difference {
    fn leaf(lhs: &Value, rhs: &Value) -> Self {
        Difference { modified: !equal(lhs, rhs), ..Difference::default() }
    }

    fn unite(self, other: Self) -> Self {
        Difference {
            removed: self.removed || other.removed,
            modified: self.modified || other.modified,
            added: self.added || other.added,
            inside: Comparison {
                removed: self.inside.removed.union(other.inside.removed),
                modified: self.inside.modified.union(other.inside.modified),
                added: self.inside.added.union(other.inside.added),
            },
        }
    }
}

/// Whether values are the same; numbers are by their size, be they integers or not.
pub(super) fn equal(a: &Value, b: &Value) -> bool {
    use crate::value::Event;
    a.eq_by(b, |a, b| match (a, b) {
        (Event::Int(a), Event::Float(b)) => a as f64 == b,
        (Event::Float(a), Event::Int(b)) => a == b as f64,
        (a, b) => a == b,
    })
}

/// Compares two objects. Their `metadata.managedFields` are passed over.
///
/// # Errors
/// If a field is not known to the type, or an element of a list cannot be told from the others.
pub(super) fn compare(ty: Ty<'_>, lhs: &Map, rhs: &Map) -> Result<Comparison, String> {
    let Shape::Map(fields) = ty.shape(Some(&EMPTY), 0) else { return Err("not a kind of objects".to_owned()) };
    maps(&fields, Some(lhs), Some(rhs), 0, false)
}

/// How deep it is looked whether all of a value stays the same, before its parts are looked at. Most writes change
/// little; but a hostile one may differ only at its very end, so this is not done on every level.
const EQUAL_DEPTH: usize = 4;

fn is_container(value: &Value) -> bool {
    matches!(value, Value::Array(_) | Value::Object(_))
}

static EMPTY: Value = Value::Object(Map::new());

fn values(ty: Ty<'_>, lhs: Option<&Value>, rhs: Option<&Value>, depth: usize) -> Result<Difference, String> {
    Ok(match (lhs, rhs) {
        (Some(lhs), Some(rhs)) if ty.differ(lhs, rhs) => {
            let first = shaped(ty.shape(Some(lhs), depth), lhs, rhs, depth)?;
            first.unite(shaped(ty.shape(Some(rhs), depth), lhs, rhs, depth)?)
        }
        (Some(lhs), Some(rhs)) => shaped(ty.shape(Some(rhs), depth), lhs, rhs, depth)?,
        (Some(lhs), None) => {
            let inside = Comparison { removed: whole(ty, lhs, depth)?, ..Comparison::default() };
            Difference { removed: true, inside, ..Difference::default() }
        }
        (None, Some(rhs)) => {
            let inside = Comparison { added: whole(ty, rhs, depth)?, ..Comparison::default() };
            Difference { added: true, inside, ..Difference::default() }
        }
        (None, None) => Difference::default(),
    })
}

/// All that is in a value that was not there before, or is there no more: its leaves, and what leads to them.
fn whole(ty: Ty<'_>, value: &Value, depth: usize) -> Result<FieldSet, String> {
    let mut set = FieldSet::new();
    match (ty.shape(Some(value), depth), value) {
        (Shape::Map(fields), Value::Object(map)) if !fields.atomic => {
            set.nodes.reserve_exact(map.len());
            let mut from = 0;
            for (key, value) in map.entries() {
                let Some((ty, _)) = fields.at_from(&mut from, key) else { return Err(undeclared(key)) };
                let below = whole(ty, value, depth + 1)?;
                set.push(|| PathElement::Field(key.clone()), true, below);
            }
        }
        (Shape::List(list), Value::Array(items)) if !matches!(list.relation, Relation::Atomic) => {
            let items = sorted(&list, items)?;
            let mut rest = &*items;
            while let Some((element, item)) = rest.first() {
                // Elements that cannot be told apart are one value.
                let below = match take_equal(&mut rest, element).len() {
                    1 => whole(list.element, item, depth + 1)?,
                    _ => FieldSet::new(),
                };
                set.push(|| element.clone(), true, below);
            }
        }
        _ => {}
    }
    Ok(set)
}

fn undeclared(key: &str) -> String {
    format!(".{key}: field not declared in schema")
}

fn shaped(shape: Shape<'_>, lhs: &Value, rhs: &Value, depth: usize) -> Result<Difference, String> {
    let inside = match shape {
        Shape::Scalar(_) => return Ok(Difference::leaf(lhs, rhs)),
        Shape::Map(fields) => {
            let (old, new) = (lhs.as_object(), rhs.as_object());
            if fields.atomic || old.is_none_or(Map::is_empty) && new.is_none_or(Map::is_empty) {
                return Ok(Difference::leaf(lhs, rhs));
            }
            maps(&fields, old, new, depth, false)?
        }
        Shape::List(list) => {
            let (old, new) = (lhs.as_array(), rhs.as_array());
            let empty = |list: Option<&Array>| list.is_none_or(|list| list.is_empty());
            if matches!(list.relation, Relation::Atomic) || empty(old) && empty(new) {
                return Ok(Difference::leaf(lhs, rhs));
            }
            lists(&list, old.map_or(&[], |list| list), new.map_or(&[], |list| list), depth)?
        }
    };
    Ok(Difference { inside, ..Difference::default() })
}

fn maps(
    fields: &Fields<'_>,
    lhs: Option<&Map>,
    rhs: Option<&Map>,
    depth: usize,
    metadata: bool,
) -> Result<Comparison, String> {
    let mut out = Comparison::default();
    let mut from = 0;
    let mut old = lhs.map_or(&[][..], Map::entries).iter().peekable();
    let mut new = rhs.map_or(&[][..], Map::entries).iter().peekable();
    loop {
        let key = match (old.peek(), new.peek()) {
            (Some((a, _)), Some((b, _))) => a.min(b),
            (Some((key, _)), None) | (None, Some((key, _))) => key,
            (None, None) => return Ok(out),
        };
        let lhs = old.next_if(|(name, _)| name == key).map(|(_, value)| value);
        let rhs = new.next_if(|(name, _)| name == key).map(|(_, value)| value);
        if metadata && key == "managedFields" {
            continue;
        }
        if let (Some(lhs), Some(rhs)) = (lhs, rhs)
            && (depth < EQUAL_DEPTH || !is_container(lhs))
            && equal(lhs, rhs)
        {
            continue;
        }
        let Some((ty, _)) = fields.at_from(&mut from, key) else {
            return Err(undeclared(key));
        };
        let below = match (lhs, rhs) {
            (Some(Value::Object(lhs)), Some(Value::Object(rhs))) if depth == 0 && key == "metadata" => {
                match ty.shape(Some(&EMPTY), 1) {
                    Shape::Map(fields) => {
                        Difference { inside: maps(&fields, Some(lhs), Some(rhs), 1, true)?, ..Difference::default() }
                    }
                    _ => Difference::default(),
                }
            }
            _ => values(ty, lhs, rhs, depth + 1)?,
        };
        out.push(&|| PathElement::Field(key.clone()), below);
    }
}

/// The elements of a list, sorted by what tells them apart; those that cannot be told apart keep their order.
fn sorted<'v>(list: &List<'_>, items: &'v [Value]) -> Result<Vec<(PathElement, &'v Value)>, String> {
    let element = |(at, item)| match list.path_element(item) {
        Ok(element) => Ok((element, item)),
        Err(message) => Err(format!("element {at}: {message}")),
    };
    let mut items = items.iter().enumerate().map(element).collect::<Result<Vec<_>, _>>()?;
    if !items.is_sorted_by(|(a, _), (b, _)| a <= b) {
        items.sort_by(|(a, _), (b, _)| a.cmp(b));
    }
    Ok(items)
}

fn lists(list: &List<'_>, lhs: &[Value], rhs: &[Value], depth: usize) -> Result<Comparison, String> {
    let (lhs, rhs) = (sorted(list, lhs)?, sorted(list, rhs)?);
    let (mut lhs, mut rhs) = (&*lhs, &*rhs);
    let mut out = Comparison::default();
    loop {
        let element = match (lhs.first(), rhs.first()) {
            (Some((a, _)), Some((b, _))) => a.min(b),
            (Some((element, _)), None) | (None, Some((element, _))) => element,
            (None, None) => return Ok(out),
        };
        let old = take_equal(&mut lhs, element);
        let new = take_equal(&mut rhs, element);
        let (a, b) = (old.first().map(|(_, item)| *item), new.first().map(|(_, item)| *item));
        let below = match (old.len(), new.len()) {
            (0 | 1, 0 | 1) => values(list.element, a, b, depth + 1)?,
            // Elements that cannot be told apart are one value.
            (2.., 2..) => {
                let same = old.len() == new.len() && old.iter().zip(new).all(|((_, a), (_, b))| equal(a, b));
                Difference { modified: !same, ..Difference::default() }
            }
            (2.., _) => {
                let below = if b.is_some() { values(list.element, None, b, depth + 1)? } else { Difference::default() };
                Difference { removed: true, ..below }
            }
            (_, _) => {
                let below = if a.is_some() { values(list.element, a, None, depth + 1)? } else { Difference::default() };
                Difference { added: true, ..below }
            }
        };
        out.push(&|| element.clone(), below);
    }
}

fn take_equal<'i, 'v>(
    items: &mut &'i [(PathElement, &'v Value)],
    element: &PathElement,
) -> &'i [(PathElement, &'v Value)] {
    let count = items.iter().take_while(|(other, _)| other == element).count();
    let (equal, rest) = mem::take(items).split_at(count);
    *items = rest;
    equal
}
