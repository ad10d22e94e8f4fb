//! JSON merge patch (RFC 7386), and the patches that lead from one object to another.
//!
//! It follows upstream's library where that departs from the RFC: a patch that is `null` or a scalar is refused, and
//! `null` fields are dropped also from objects inside of new lists, unless the list takes the place of an object.

use std::{cmp::Ordering, fmt, slice};

use super::drop_null_fields;
use crate::{Map, Str, Value};

/// What a merge patch cannot be.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Error {
    /// The document is `null`.
    Document,
    /// The patch is `null` or a scalar. The server answers 400 BadRequest with this message.
    Patch,
}

impl fmt::Display for Error {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Error::Document => "Invalid JSON Document",
            Error::Patch => "Invalid JSON Patch",
        })
    }
}

impl std::error::Error for Error {}

/// The document with the patch laid over it.
///
/// # Errors
/// Neither may be `null`, and the patch must be an object, or a list that takes the document's place.
pub fn apply(document: Value, mut patch: Value) -> Result<Value, Error> {
    match (document, &patch) {
        (Value::Null, _) => Err(Error::Document),
        (Value::Object(document), Value::Object(_)) => {
            let Value::Object(patch) = patch else { return Err(Error::Patch) };
            Ok(apply_map(document, patch).into())
        }
        (_, Value::Object(_) | Value::Array(_)) => {
            drop_null_fields(&mut patch);
            Ok(patch)
        }
        _ => Err(Error::Patch),
    }
}

/// The object with the patch laid over it.
#[must_use]
pub fn apply_map(mut document: Map, patch: Map) -> Map {
    let mut rest = vec![(&mut document, patch)];
    while let Some((document, patch)) = rest.pop() {
        let (merged, nested) = merge_level(std::mem::take(document), patch);
        *document = merged;
        let mut nested = nested.into_iter().peekable();
        for (at, (_, value)) in document.iter_mut().enumerate() {
            if let Value::Object(value) = value
                && let Some((_, patch)) = nested.next_if(|(place, _)| *place == at)
            {
                rest.push((value, patch));
            }
        }
    }
    document
}

/// Lays one level over the other; returns too which fields are left as they are because a patch of their own is due.
fn merge_level(document: Map, patch: Map) -> (Map, Vec<(usize, Map)>) {
    let mut merged = Vec::with_capacity(document.len().max(patch.len()));
    let mut nested = Vec::new();
    let mut old = document.into_iter().peekable();
    for (key, mut value) in patch {
        while let Some(before) = old.next_if(|(old, _)| *old < key) {
            merged.push(before);
        }
        let old = old.next_if(|(old, _)| *old == key).map(|(_, value)| value);
        match (old, &mut value) {
            (_, Value::Null) => {}
            (Some(old @ Value::Object(_)), Value::Object(patch)) => {
                nested.push((merged.len(), std::mem::take(patch)));
                merged.push((key, old));
            }
            (Some(Value::Object(_)), _) => merged.push((key, value)),
            _ => {
                drop_null_fields(&mut value);
                merged.push((key, value));
            }
        }
    }
    merged.extend(old);
    (Map::from_entries(merged, |_| {}), nested)
}

/// The patch that makes `modified` of `original`, provided that `modified` has no `null` fields: a patch cannot set
/// them.
#[must_use]
pub fn diff(original: &Map, modified: &Map) -> Map {
    build(Diff::new(original, modified))
}

/// The patch that brings `current` to `modified` where they differ, and removes what `original` had and `modified` no
/// longer has. What others have added to `current` stays.
///
/// There can be no conflict: both halves of the patch lead to the same `modified`.
#[must_use]
pub fn three_way(original: &Map, modified: &Map, current: &Map) -> Map {
    let changes = build(Nulls { rest: diff(current, modified).into_iter(), keep: false });
    let deletions = build(Nulls { rest: diff(original, modified).into_iter(), keep: true });
    apply_map(deletions, changes)
}

/// An object that is made field by field, where fields that turn out to be empty objects are left out.
trait Source: Sized {
    /// The next field, in the order of the keys.
    fn next(&mut self) -> Option<(Str, Made<Self>)>;
}

enum Made<S> {
    /// A value.
    Value(Value),
    /// An object that is still to be made.
    Object(S),
}

fn build(root: impl Source) -> Map {
    let mut fields = Vec::new();
    let mut open = Vec::new();
    let mut source = root;
    loop {
        match source.next() {
            Some((key, Made::Value(value))) => fields.push((key, value)),
            Some((key, Made::Object(inner))) => {
                open.push((key, std::mem::replace(&mut source, inner), std::mem::take(&mut fields)));
            }
            None => {
                let map = Map::from_entries(std::mem::take(&mut fields), |_| {});
                let Some((key, outer, outer_fields)) = open.pop() else { return map };
                (source, fields) = (outer, outer_fields);
                if !map.is_empty() {
                    fields.push((key, map.into()));
                }
            }
        }
    }
}

struct Diff<'a> {
    original: slice::Iter<'a, (Str, Value)>,
    modified: slice::Iter<'a, (Str, Value)>,
}

impl<'a> Diff<'a> {
    fn new(original: &'a Map, modified: &'a Map) -> Self {
        Diff { original: original.entries().iter(), modified: modified.entries().iter() }
    }
}

impl Source for Diff<'_> {
    fn next(&mut self) -> Option<(Str, Made<Self>)> {
        loop {
            let (old, new) = (self.original.as_slice().first(), self.modified.as_slice().first());
            let order = match (old, new) {
                (None, None) => return None,
                (Some(_), None) => Ordering::Less,
                (None, Some(_)) => Ordering::Greater,
                (Some((old, _)), Some((new, _))) => old.cmp(new),
            };
            let old = if order.is_le() { self.original.next() } else { None };
            let new = if order.is_ge() { self.modified.next() } else { None };
            match (old, new) {
                (Some((key, _)), None) => return Some((key.clone(), Made::Value(Value::Null))),
                (Some((key, Value::Object(old))), Some((_, Value::Object(new)))) => {
                    return Some((key.clone(), Made::Object(Diff::new(old, new))));
                }
                (Some((_, old)), Some((_, new))) if old == new => {}
                (_, Some((key, new))) => return Some((key.clone(), Made::Value(new.clone()))),
                (None, None) => return None,
            }
        }
    }
}

/// Keeps of a patch either nothing but its `null`s or all but them.
struct Nulls {
    rest: std::vec::IntoIter<(Str, Value)>,
    keep: bool,
}

impl Source for Nulls {
    fn next(&mut self) -> Option<(Str, Made<Self>)> {
        loop {
            let (key, value) = self.rest.next()?;
            match value {
                // An empty object in a patch is a value, not a patch that changes nothing.
                Value::Object(map) if !map.is_empty() => {
                    return Some((key, Made::Object(Nulls { rest: map.into_iter(), keep: self.keep })));
                }
                value if value.is_null() == self.keep => return Some((key, Made::Value(value))),
                _ => {}
            }
        }
    }
}
