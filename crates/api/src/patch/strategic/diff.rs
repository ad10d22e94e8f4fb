//! Making strategic merge patches out of the objects before and after, as clients do.

use std::{borrow::Cow, cell::Cell, cmp::Ordering};

use super::{
    DELETE_LIST, DIRECTIVE, Error, MAX_DEPTH, Merge, Mode, RETAIN_KEYS, SET_ORDER, conflict, error,
    lists::{self, By, Kind, Places, merge_key_of},
    meta::{self, Meta},
};
use crate::{Map, Str, Value, json, schema::NodeRef};

/// The patch that makes `modified` of `original`.
///
/// # Errors
/// The objects have lists that cannot be merged as the schema wants it, or fields that it does not know.
pub fn diff(original: &Map, modified: &Map, schema: NodeRef<'_>) -> Result<Map, Error> {
    Diff { set_order: true, ..Diff::default() }.maps(original, modified, schema, false)
}

/// The patch that brings `current` to `modified` where they differ, and removes what `original` had and `modified` no
/// longer has. What others have added to `current` stays.
///
/// # Errors
/// As [`diff`]; and unless it may `overwrite` what others have changed since `original`, the [`Error::Conflict`] with
/// that.
pub fn three_way(
    original: &Map,
    modified: &Map,
    current: &Map,
    schema: NodeRef<'_>,
    overwrite: bool,
) -> Result<Map, Error> {
    let changes = Diff { set_order: true, no_deletions: true, ..Diff::default() };
    let deletions = Diff { set_order: true, no_changes: true, ..Diff::default() };
    let changes = changes.maps(current, modified, schema, false)?;
    let deletions = deletions.maps(original, modified, schema, false)?;
    let patch = Merge::new(Mode::Combine, &Cell::new(0)).objects(deletions, changes, schema)?;
    if !overwrite {
        let others = Diff::default().maps(original, current, schema, false)?;
        if conflict::maps(&patch, &others, schema, 0)? {
            let print = |map: Map| json::to_string(&map.into());
            return Err(Error::Conflict(print(patch), print(others)));
        }
    }
    Ok(patch)
}

/// What is to be in the patch.
#[derive(Clone, Copy, Debug, Default)]
struct Diff {
    /// Say the order of merged lists.
    set_order: bool,
    /// Leave out what is new or different.
    no_changes: bool,
    /// Leave out what is gone.
    no_deletions: bool,
    depth: usize,
}

type Entries = Vec<(Str, Value)>;

impl Diff {
    fn maps(self, original: &Map, modified: &Map, node: NodeRef<'_>, retain_keys: bool) -> Result<Map, Error> {
        if self.depth == MAX_DEPTH {
            return Err(Error::TooDeep);
        }
        let inner = Diff { depth: self.depth + 1, ..self };
        let mut patch = Entries::new();
        for (key, new) in modified.iter() {
            match original.get(key) {
                None if self.no_changes => {}
                None => patch.push((key.into(), new.clone())),
                Some(old) if key == DIRECTIVE => {
                    let (old, new) = old.as_str().zip(new.as_str()).ok_or(Error::DirectiveValue)?;
                    if old != new {
                        patch.push((key.into(), new.into()));
                    }
                }
                Some(old) => inner.field(key, old, new, &mut patch, node)?,
            }
        }
        let gone = || original.iter().filter(|(key, _)| !modified.contains_key(key));
        if !self.no_deletions {
            patch.extend(gone().map(|(key, _)| (key.into(), Value::Null)));
        }
        if retain_keys && (!patch.is_empty() || gone().any(|(_, value)| !value.is_null())) {
            let keys: Vec<Value> =
                modified.iter().filter(|(_, value)| !value.is_null()).map(|(key, _)| key.into()).collect();
            if !keys.is_empty() {
                patch.push((RETAIN_KEYS.into(), keys.into()));
            }
        }
        Ok(Map::from_entries(patch, |_| {}))
    }

    fn field(self, key: &str, old: &Value, new: &Value, patch: &mut Entries, node: NodeRef<'_>) -> Result<(), Error> {
        match (old, new) {
            (Value::Object(old), Value::Object(new)) => match meta::of_object(node, key) {
                // Nothing needs to be known about what has not changed.
                Err(_) if old == new => {}
                Err(error) => return Err(error),
                Ok(meta) if meta.strategy.replace => {
                    if !self.no_changes {
                        patch.push((key.into(), new.clone().into()));
                    }
                }
                Ok(meta) => {
                    let inner = self.maps(old, new, meta.node, meta.strategy.retain_keys)?;
                    if !inner.is_empty() {
                        patch.push((key.into(), inner.into()));
                    }
                }
            },
            (Value::Array(old), Value::Array(new)) => match meta::of_list(node, key) {
                Err(_) if old == new => {}
                Err(error) => return Err(error),
                Ok(meta) if meta.strategy.merge => {
                    let lists = self.lists(old, new, &meta)?;
                    let delete = format!("{DELETE_LIST}/{key}");
                    let order = format!("{SET_ORDER}/{key}");
                    for (key, list) in [(key, lists.patch), (&delete, lists.delete), (&order, lists.order)] {
                        if !list.is_empty() {
                            patch.push((key.into(), list.into()));
                        }
                    }
                }
                Ok(_) if self.no_changes || old == new => {}
                Ok(_) => patch.push((key.into(), new.clone().into())),
            },
            _ if self.no_changes || old == new => {}
            _ => patch.push((key.into(), new.clone())),
        }
        Ok(())
    }

    fn lists(self, old: &[Value], new: &[Value], meta: &Meta<'_>) -> Result<Lists, Error> {
        if old.is_empty() {
            return Ok(Lists { patch: if self.no_changes { Vec::new() } else { new.to_vec() }, ..Lists::default() });
        }
        match lists::element_kind(old, new)? {
            Kind::Object => self.objects(old, new, meta),
            Kind::Scalar => Ok(self.scalars(old, new)),
        }
    }

    fn objects(self, old: &[Value], new: &[Value], meta: &Meta<'_>) -> Result<Lists, Error> {
        let merge_key = meta.merge_key.unwrap_or_default();
        let by = By::Key(merge_key);
        let (mut patch, mut deleted) = (Vec::new(), Vec::new());
        let sorted = (sorted(old, Some(merge_key)), sorted(new, Some(merge_key)));
        for pair in pairs(&sorted.0, &sorted.1) {
            for item in [pair.0, pair.1].into_iter().flatten() {
                merge_key_of(item, merge_key)?;
            }
            match pair {
                (Some(Value::Object(old)), Some(Value::Object(new))) => {
                    let mut inner = self.maps(old, new, meta.node, meta.strategy.retain_keys)?;
                    if !inner.is_empty() {
                        inner.insert(merge_key, new.get(merge_key).cloned().unwrap_or_default());
                        patch.push(inner.into());
                    }
                }
                (None, Some(new)) if !self.no_changes => patch.push(new.clone()),
                (Some(old), None) if !self.no_deletions => {
                    let mut directive = Map::from_iter([(DIRECTIVE.into(), "delete".into())]);
                    directive.insert(merge_key, merge_key_of(old, merge_key)?.clone());
                    deleted.push(directive.into());
                }
                _ => {}
            }
        }
        patch = lists::sort(patch, &Places::of(new, by), by);
        patch.append(&mut deleted);
        let keys = |items: &[Value]| items.iter().map(|item| by.key(item)).collect::<Vec<_>>();
        let moved = !self.no_changes && keys(old) != keys(new);
        let mut order = Vec::new();
        if self.set_order && (moved || !patch.is_empty()) {
            for item in new {
                let key = merge_key_of(item, merge_key)?.clone();
                order.push(Map::from_iter([(merge_key.into(), key)]).into());
            }
        }
        Ok(Lists { patch, order, ..Lists::default() })
    }

    fn scalars(self, old: &[Value], new: &[Value]) -> Lists {
        let (mut patch, mut delete) = (Vec::new(), Vec::new());
        let sorted = (sorted(old, None), sorted(new, None));
        for pair in pairs(&sorted.0, &sorted.1) {
            match pair {
                (None, Some(new)) if !self.no_changes => patch.push(new.clone()),
                (Some(old), None) if !self.no_deletions => delete.push(old.clone()),
                _ => {}
            }
        }
        let delete = lists::deduplicate(delete);
        // Upstream has sorted the original in place by now, and so finds an order changed that was not.
        let moved = !self.no_changes && !sorted.0.iter().map(|(_, item)| *item).eq(new);
        let order = if self.set_order && (!delete.is_empty() || moved) { new.to_vec() } else { Vec::new() };
        Lists { patch: lists::sort(patch, &Places::of(new, By::Itself), By::Itself), delete, order }
    }
}

/// What a patch says about a list.
#[derive(Debug, Default)]
struct Lists {
    patch: Vec<Value>,
    delete: Vec<Value>,
    order: Vec<Value>,
}

type Sorted<'a> = Vec<(Cow<'a, str>, &'a Value)>;

/// The elements in the order of their merge keys or of themselves as they print; of equals, the last one comes first.
fn sorted<'a>(items: &'a [Value], merge_key: Option<&str>) -> Sorted<'a> {
    let print = |item: &'a Value| match merge_key.map_or(Some(item), |key| item.get(key)) {
        Some(Value::String(text)) => Cow::Borrowed(text.as_str()),
        Some(other) => error::print_value(other).into(),
        None => "<nil>".into(),
    };
    let mut sorted: Sorted<'_> = items.iter().rev().map(|item| (print(item), item)).collect();
    sorted.sort_by(|(one, _), (other, _)| one.cmp(other));
    sorted
}

/// The elements of both lists, those together that print the same.
fn pairs<'a>(old: &'a Sorted<'a>, new: &'a Sorted<'a>) -> impl Iterator<Item = (Option<&'a Value>, Option<&'a Value>)> {
    let (mut old, mut new) = (old.iter().peekable(), new.iter().peekable());
    std::iter::from_fn(move || {
        let order = match (old.peek(), new.peek()) {
            (None, None) => return None,
            (Some(_), None) => Ordering::Less,
            (None, Some(_)) => Ordering::Greater,
            (Some((old, _)), Some((new, _))) => old.cmp(new),
        };
        let old = if order.is_le() { old.next() } else { None };
        let new = if order.is_ge() { new.next() } else { None };
        Some((old.map(|(_, item)| *item), new.map(|(_, item)| *item)))
    })
}
