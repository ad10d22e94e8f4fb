//! `$setElementOrder`: a list is merged and brought in the order that the patch gives.

use super::{
    Error, Fields, Merge, Mode, SET_ORDER, drop_directives, error, has_directive, is_deleted,
    lists::{self, By, Kind, Merged, Places, Scalar, merge_key_of},
    meta,
};
use crate::{Array, Str, Value, schema::NodeRef};

impl Merge<'_> {
    /// Merges the lists for which the patch gives an order, and takes them out of the patch.
    pub(super) fn ordered_lists(
        self,
        original: &mut Fields,
        patch: &mut Fields,
        node: NodeRef<'_>,
    ) -> Result<(), Error> {
        let from = Str::const_new(SET_ORDER);
        let directives: Vec<Str> =
            patch.range(from..).map(|(key, _)| key).take_while(|key| key.starts_with(SET_ORDER)).cloned().collect();
        for directive in directives {
            let Some(order) = patch.remove(&directive) else { continue };
            if self.mode == Mode::Combine {
                match original.get(&directive) {
                    Some(other) if *other != order => return Err(Error::SetElementOrder),
                    _ => original.insert(directive.clone(), order.clone()),
                };
            }
            let Value::Array(order) = order else { return Err(Error::not_a_list(&order)) };
            let key = directive
                .strip_prefix(SET_ORDER)
                .and_then(|rest| rest.strip_prefix('/'))
                .ok_or(Error::SetElementOrder)?;
            self.ordered_list(original, patch, key, &order, node)?;
        }
        Ok(())
    }

    fn ordered_list(
        self,
        original: &mut Fields,
        patch: &mut Fields,
        key: &str,
        order: &[Value],
        node: NodeRef<'_>,
    ) -> Result<(), Error> {
        let old = original.remove(key).map(into_list).transpose()?;
        let new = patch.remove(key).map(into_list).transpose()?;
        let meta = meta::of_list(node, key)?;
        check_order(slice(&new), order, meta.merge_key)?;
        if old.is_none() && new.is_none() {
            return Ok(());
        }
        let by = meta.merge_key.map_or(By::Itself, By::Key);
        let keys = |items: &[Value]| items.iter().map(|item| by.key(item)).collect();
        let kind = lists::element_kind(slice(&old), slice(&new));
        let merged = match (old, new) {
            (Some(old), Some(new)) if meta.strategy.merge => {
                self.lists(old.into_vec(), new.into_vec(), &meta, false)?
            }
            (Some(old), Some(new)) => Merged { order: keys(&old), items: new.into_vec() },
            (Some(old), None) => Merged { order: keys(&old), items: old.into_vec() },
            (None, new) => {
                let mut new = new.unwrap_or_default().into_vec();
                new.retain(|item| !has_directive(item));
                new.iter_mut().for_each(drop_directives);
                Merged { items: new, order: Vec::new() }
            }
        };
        let places = Places::of(order, by);
        let (ordered, others) = split(merged.items, order, &places, by)?;
        if kind? == Kind::Object {
            for item in order {
                merge_key_of(item, meta.merge_key.unwrap_or_default())?;
            }
        }
        let items = lists::arrange(ordered, others, &places, &Places::new(merged.order), by);
        original.insert(key.into(), items.into());
        Ok(())
    }
}

/// The elements that the order names, and the others.
fn split(items: Vec<Value>, order: &[Value], places: &Places, by: By<'_>) -> Result<(Vec<Value>, Vec<Value>), Error> {
    match by {
        By::Itself if order.iter().chain(&items).any(|item| Scalar::new(item).is_none()) => Err(Error::Incomparable),
        By::Itself => Ok(items.into_iter().partition(|item| places.get(&Scalar::new(item)).is_some())),
        By::Key(merge_key) => {
            // Upstream looks from the front, and stumbles over the first that is not an object.
            let stop = order.iter().position(|item| item.as_object().is_none());
            lists::partition(items, merge_key, |key| match (places.get(key), stop) {
                (Some(place), Some(stop)) if stop < place => Err(Error::NotAnObject(stop)),
                (None, Some(stop)) => Err(Error::NotAnObject(stop)),
                (place, _) => Ok(place.is_some()),
            })
        }
    }
}

fn slice(list: &Option<Array>) -> &[Value] {
    list.as_ref().map_or(&[], |list| list.as_slice())
}

fn into_list(value: Value) -> Result<Array, Error> {
    if let Value::Array(items) = value { Ok(items) } else { Err(Error::not_a_list(&value)) }
}

/// Whether the patch's elements, but those with directives, are in the order that it gives, and all of them in it.
fn check_order(patch: &[Value], order: &[Value], merge_key: Option<&str>) -> Result<(), Error> {
    if patch.is_empty() || order.is_empty() {
        return Ok(());
    }
    if merge_key.is_some()
        && let Some(other) = patch.iter().find(|item| item.as_object().is_none())
    {
        return Err(Error::not_a_map(other));
    }
    let deleted = |item: &&Value| merge_key.is_some() && is_deleted(item);
    let mut rest = patch.iter().filter(|item| !deleted(item)).peekable();
    let mut order_rest = order.iter().peekable();
    while let (Some(item), Some(next)) = (rest.peek(), order_rest.peek()) {
        if has_directive(item) {
            rest.next();
            continue;
        }
        let same = match merge_key {
            None => Scalar::new(item).is_some_and(|item| Some(item) == Scalar::new(next)),
            Some(key) => {
                let (one, other) = (Scalar::new(merge_key_of(item, key)?), Scalar::new(merge_key_of(next, key)?));
                one.is_some() && one == other
            }
        };
        if same {
            rest.next();
        }
        order_rest.next();
    }
    // Also what has a directive must not come after the last one of the order, by accident of upstream's loop.
    match rest.peek() {
        Some(_) => Err(Error::Order(error::print_list(patch), error::print_list(order))),
        None => Ok(()),
    }
}
