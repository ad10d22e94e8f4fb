//! Strategic merge patch: a merge patch that knows from the schema how lists are to be merged.
//!
//! A patch is an object that is laid over the other, with these additions:
//! - Lists whose field says `merge` are merged: scalars as sets, objects by their merge key. Other lists are replaced.
//! - `$patch: replace` and `$patch: delete` in an object replace and empty it; in an element of a merged list, they
//!   make the list anew and delete the element.
//! - `$deleteFromPrimitiveList/x` deletes scalars from the list `x`.
//! - `$setElementOrder/x` says in which order the list `x` is to be.
//! - `$retainKeys` names the fields that remain.
//!
//! The order in which a list comes out is upstream's: elements of the patch in the patch's order, the others in theirs,
//! and new ones before old ones where nothing else is said. Fields are visited in the order of their names, where
//! upstream leaves it to chance; so `$deleteFromPrimitiveList/x` comes before `x`.

mod conflict;
mod diff;
mod error;
mod lists;
mod meta;
mod order;

use std::{cell::Cell, collections::BTreeMap, mem};

pub use diff::{diff, three_way};
pub use error::Error;

use super::drop_null_fields;
use crate::{Map, Str, Value, schema::NodeRef};

/// How many objects in each other are merged at most. Only types that contain themselves go as deep.
pub const MAX_DEPTH: usize = 128;

/// How many fields and elements a patch may be merged into, counting those that it comes back to. No document has as
/// many, but a patch may name the same element of a list over and over.
pub const MAX_WORK: usize = 1 << 23;

const DIRECTIVE: &str = "$patch";
const RETAIN_KEYS: &str = "$retainKeys";
const DELETE_LIST: &str = "$deleteFromPrimitiveList";
const SET_ORDER: &str = "$setElementOrder";

/// The fields of an object while they are merged. A map in one piece would be moved with every new field.
type Fields = BTreeMap<Str, Value>;

/// The object with the patch laid over it, as the server does.
///
/// # Errors
/// See [`Error`], also for what the server makes of it.
pub fn apply(original: Map, patch: Map, schema: NodeRef<'_>) -> Result<Map, Error> {
    Merge::new(Mode::Apply, &Cell::new(0)).objects(original, patch, schema)
}

#[derive(Clone, Copy, Debug, PartialEq)]
enum Mode {
    /// A patch is laid over an object: directives are obeyed.
    Apply,
    /// A patch is laid over a patch: directives are kept for later.
    Combine,
}

/// A merge on its way down the schema.
#[derive(Clone, Copy, Debug)]
struct Merge<'w> {
    mode: Mode,
    depth: usize,
    /// How many fields and elements have been merged into.
    work: &'w Cell<usize>,
}

impl<'w> Merge<'w> {
    fn new(mode: Mode, work: &'w Cell<usize>) -> Self {
        Merge { mode, depth: 0, work }
    }

    fn account(self, work: usize) -> Result<(), Error> {
        self.work.set(self.work.get() + work);
        if self.work.get() > MAX_WORK { Err(Error::TooMuchWork) } else { Ok(()) }
    }

    fn objects(self, original: Map, mut patch: Map, node: NodeRef<'_>) -> Result<Map, Error> {
        if self.depth == MAX_DEPTH {
            return Err(Error::TooDeep);
        }
        self.account(original.len())?;
        let inner = Merge { depth: self.depth + 1, ..self };
        match patch.get(DIRECTIVE) {
            None => {}
            Some(Value::String(directive)) if directive == "replace" => {
                patch.remove(DIRECTIVE);
                return Ok(patch);
            }
            Some(Value::String(directive)) if directive == "delete" => return Ok(Map::new()),
            Some(directive) => return Err(Error::unknown_directive(directive, &patch)),
        }
        let mut original: Fields = original.into_iter().collect();
        let mut patch: Fields = patch.into_iter().collect();
        retain_keys(&mut original, &mut patch, self.mode)?;
        inner.ordered_lists(&mut original, &mut patch, node)?;
        for (key, value) in patch {
            inner.field(&mut original, key, value, node)?;
        }
        Ok(Map::from_entries(original.into_iter().collect(), |_| {}))
    }

    fn field(self, original: &mut Fields, mut key: Str, mut patch: Value, node: NodeRef<'_>) -> Result<(), Error> {
        let deletes = key.starts_with(DELETE_LIST);
        if deletes {
            if self.mode == Mode::Combine {
                original.insert(key, patch);
                return Ok(());
            }
            let list =
                key.strip_prefix(DELETE_LIST).and_then(|rest| rest.strip_prefix('/')).ok_or(Error::PrimitiveList)?;
            if !list.is_empty() {
                key = list.into();
            }
        }
        if patch.is_null() {
            original.remove(&key);
            if self.mode == Mode::Apply {
                return Ok(());
            }
        }
        match (original.get_mut(&key), patch) {
            (Some(Value::Object(old)), Value::Object(patch)) => {
                let meta = meta::of_object(node, &key)?;
                *old = if meta.strategy.replace {
                    patch
                } else {
                    self.objects(mem::take(old), patch, meta.node).map_err(|error| meta::complete(error, node, &key))?
                };
            }
            (Some(Value::Array(old)), Value::Array(patch)) => {
                let meta = meta::of_list(node, &key)?;
                // Deleting from a list is the same whatever is said about it.
                *old = if meta.strategy.merge || deletes {
                    self.lists(mem::take(old).into_vec(), patch.into_vec(), &meta, deletes)?.items.into()
                } else {
                    patch
                };
            }
            // By accident of upstream's, a scalar of the same type replaces the other even here.
            (ref old, ref new) if deletes && old.as_deref().map(mem::discriminant) != Some(mem::discriminant(new)) => {}
            (_, new) => {
                patch = new;
                if self.mode == Mode::Apply {
                    drop_null_fields(&mut patch);
                }
                if has_directive(&patch) {
                    original.remove(&key);
                } else {
                    drop_directives(&mut patch);
                    original.insert(key, patch);
                }
            }
        }
        Ok(())
    }
}

/// Drops from `original` what `$retainKeys` does not name.
fn retain_keys(original: &mut Fields, patch: &mut Fields, mode: Mode) -> Result<(), Error> {
    let Some(keys) = patch.remove(RETAIN_KEYS) else { return Ok(()) };
    if mode == Mode::Combine {
        match original.get(RETAIN_KEYS) {
            Some(others) if *others != keys => {
                return Err(Error::RetainKeysDiffer(error::print_value(others), error::print_value(&keys)));
            }
            _ => original.insert(RETAIN_KEYS.into(), keys),
        };
        return Ok(());
    }
    let Value::Array(keys) = keys else { return Err(Error::RetainKeys) };
    let keys: std::collections::BTreeSet<&str> = keys.iter().filter_map(Value::as_str).collect();
    let named = |(key, value): (&Str, &Value)| {
        value.is_null() || key.starts_with(DELETE_LIST) || key.starts_with(SET_ORDER) || keys.contains(key.as_str())
    };
    if !patch.iter().all(named) {
        return Err(Error::RetainKeys);
    }
    original.retain(|key, _| keys.contains(key.as_str()));
    Ok(())
}

fn has_directive(value: &Value) -> bool {
    value.get(DIRECTIVE).is_some()
}

fn is_deleted(value: &Value) -> bool {
    value.get(DIRECTIVE).and_then(Value::as_str).is_some_and(|directive| directive == "delete")
}

/// Drops what has a `$patch` from inside of a value.
fn drop_directives(value: &mut Value) {
    let mut rest = vec![value];
    while let Some(value) = rest.pop() {
        match value {
            Value::Object(map) => {
                map.retain(|_, value| !has_directive(value));
                rest.extend(map.iter_mut().map(|(_, value)| value));
            }
            Value::Array(items) => {
                items.retain(|value| !has_directive(value));
                rest.extend(items.iter_mut());
            }
            _ => {}
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{
        json,
        schema::{Node, Schema},
    };

    #[test]
    fn work_is_counted() {
        let schema = Schema::from_nodes(vec![Node::default()]);
        let object = |text: &str| match json::parse(text.as_bytes()).unwrap() {
            Value::Object(map) => map,
            other => panic!("{other}"),
        };
        let check = |left: usize| {
            let work = Cell::new(MAX_WORK - left);
            Merge::new(Mode::Apply, &work).objects(object(r#"{"a":1,"b":2}"#), object(r#"{"a":3}"#), schema.root())
        };
        assert_eq!(check(2), Ok(object(r#"{"a":3,"b":2}"#)));
        assert_eq!(check(1), Err(Error::TooMuchWork));
    }
}
