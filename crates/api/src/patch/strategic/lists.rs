//! Merging two lists, and bringing what comes out in order.

use std::collections::{BTreeMap, BTreeSet};

use super::{DIRECTIVE, Error, Merge, Mode, error, is_deleted, meta, meta::Meta};
use crate::{Map, Str, Value};

/// A scalar that can be compared: an element, or the value of a merge key.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum Scalar {
    Null,
    Bool(bool),
    Int(i64),
    Float(u64),
    String(Str),
}

impl Scalar {
    pub(super) fn new(value: &Value) -> Option<Self> {
        Some(match value {
            Value::Null => Scalar::Null,
            Value::Bool(b) => Scalar::Bool(*b),
            Value::Int(n) => Scalar::Int(*n),
            // Adding zero makes the negative one positive: they are equal.
            Value::Float(n) => Scalar::Float((n + 0.0).to_bits()),
            Value::String(s) => Scalar::String(s.clone()),
            Value::Array(_) | Value::Object(_) => return None,
        })
    }
}

/// The type of the elements.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) enum Kind {
    Scalar,
    Object,
}

/// The type that all elements of both lists have.
pub(super) fn element_kind(one: &[Value], other: &[Value]) -> Result<Kind, Error> {
    let mut all = one.iter().chain(other);
    let kind = match all.next() {
        None => return Err(Error::NoElements),
        Some(Value::Array(_)) => return Err(Error::ListOfLists),
        Some(Value::Object(_)) => Kind::Object,
        Some(_) => Kind::Scalar,
    };
    let mut types = one.iter().chain(other).map(std::mem::discriminant);
    let first = types.next();
    // Go has no type for null; a list that begins with one makes upstream panic.
    let null = one.first().or(other.first()).is_some_and(Value::is_null);
    if null || types.any(|ty| Some(ty) != first) {
        let lists = format!("[{} {}]", error::print_list(one), error::print_list(other));
        return Err(Error::ElementTypes(lists));
    }
    Ok(kind)
}

/// The place of each element, by what tells it from others. Of equals the first one counts.
#[derive(Debug, Default)]
pub(super) struct Places(BTreeMap<Scalar, usize>);

impl Places {
    pub(super) fn new(keys: impl IntoIterator<Item = Option<Scalar>>) -> Self {
        let mut places = Places::default();
        for (at, key) in keys.into_iter().enumerate() {
            places.add(key, at);
        }
        places
    }

    pub(super) fn of(items: &[Value], by: By<'_>) -> Self {
        Places::new(items.iter().map(|item| by.key(item)))
    }

    fn add(&mut self, key: Option<Scalar>, at: usize) {
        if let Some(key) = key {
            self.0.entry(key).or_insert(at);
        }
    }

    pub(super) fn get(&self, key: &Option<Scalar>) -> Option<usize> {
        self.0.get(key.as_ref()?).copied()
    }
}

/// What tells elements apart.
#[derive(Clone, Copy, Debug)]
pub(super) enum By<'a> {
    Itself,
    Key(&'a str),
}

impl By<'_> {
    pub(super) fn key(self, item: &Value) -> Option<Scalar> {
        match self {
            By::Itself => Scalar::new(item),
            By::Key(key) => item.get(key).and_then(Scalar::new),
        }
    }
}

/// A merged list.
#[derive(Debug)]
pub(super) struct Merged {
    pub(super) items: Vec<Value>,
    /// What upstream takes for the order of the original when it orders the outcome again: it shares memory with the
    /// list that has been merged, so new elements stand where deleted ones made room.
    pub(super) order: Vec<Option<Scalar>>,
}

impl Merge<'_> {
    /// Merges two lists; if `deletes`, deletes scalars of one from the other.
    pub(super) fn lists(
        self,
        original: Vec<Value>,
        patch: Vec<Value>,
        meta: &Meta<'_>,
        deletes: bool,
    ) -> Result<Merged, Error> {
        if original.is_empty() && patch.is_empty() {
            return Ok(Merged { items: original, order: Vec::new() });
        }
        self.account(original.len())?;
        match (element_kind(&original, &patch)?, meta.merge_key) {
            (Kind::Scalar, _) if deletes && self.mode == Mode::Apply => {
                let gone: BTreeSet<_> = patch.iter().filter_map(Scalar::new).collect();
                let mut items = original;
                items.retain(|item| Scalar::new(item).is_none_or(|item| !gone.contains(&item)));
                Ok(Merged { items, order: Vec::new() })
            }
            (Kind::Scalar, None) => Ok(merge_scalars(original, patch)),
            (Kind::Scalar, Some(_)) => {
                Err(Error::not_a_map(original.first().or(patch.first()).unwrap_or(&Value::Null)))
            }
            (Kind::Object, None) => Err(Error::NotMergeable(meta::kind(meta.node))),
            (Kind::Object, Some(key)) => self.merge_objects(original, patch, meta, key),
        }
    }

    fn merge_objects(
        self,
        original: Vec<Value>,
        patch: Vec<Value>,
        meta: &Meta<'_>,
        merge_key: &str,
    ) -> Result<Merged, Error> {
        let by = By::Key(merge_key);
        let all = original.len();
        let (original, patch) = obey(original, patch, merge_key)?;
        let order: Vec<_> = original.iter().map(|item| by.key(item)).collect();
        let mut places = Places::new(order.iter().cloned());
        let mut shared = order.clone();
        let patch_keys: Vec<_> = patch.iter().map(|item| by.key(item)).collect();
        let mut merged = original;
        for (item, key) in patch.into_iter().zip(&patch_keys) {
            let Value::Object(item) = item else { return Err(Error::not_a_map(&item)) };
            if key.is_none() {
                let missing = !item.contains_key(merge_key);
                return Err(if missing { Error::no_merge_key(&item, merge_key) } else { Error::Incomparable });
            }
            match places.get(key) {
                Some(at) => {
                    let Value::Object(old) = merged[at].take() else { return Err(Error::NotAnObject(at)) };
                    merged[at] = self.objects(old, item, meta.node)?.into();
                }
                None => {
                    if shared.len() < all {
                        shared.push(key.clone());
                    }
                    places.add(key.clone(), merged.len());
                    merged.push(item.into());
                }
            }
        }
        let patch_places = Places::new(patch_keys);
        let (from_patch, others) = partition(merged, merge_key, |key| Ok(patch_places.get(key).is_some()))?;
        let items = arrange(from_patch, others, &patch_places, &Places::new(order), by);
        Ok(Merged { items, order: shared })
    }
}

/// Obeys the `$patch` directives of the patch's elements; returns what is left of both lists.
fn obey(mut original: Vec<Value>, patch: Vec<Value>, merge_key: &str) -> Result<(Vec<Value>, Vec<Value>), Error> {
    let mut plain = Vec::with_capacity(patch.len());
    let mut gone = BTreeSet::new();
    let mut replace = false;
    for item in patch {
        let Some(directive) = item.get(DIRECTIVE) else {
            plain.push(item);
            continue;
        };
        let map = item.as_object().ok_or_else(|| Error::not_a_map(&item))?;
        match directive.as_str() {
            Some("delete") => {
                let key = map.get(merge_key).ok_or_else(|| Error::no_merge_key(map, merge_key))?;
                gone.extend(Scalar::new(key));
            }
            Some("replace") => replace = true,
            Some("merge") => return Err(Error::MergeList),
            _ => return Err(Error::unknown_directive(directive, map)),
        }
    }
    if replace {
        return Ok((plain, Vec::new()));
    }
    if !gone.is_empty() {
        original.retain(|item| By::Key(merge_key).key(item).is_none_or(|key| !gone.contains(&key)));
    }
    Ok((original, plain))
}

fn merge_scalars(original: Vec<Value>, patch: Vec<Value>) -> Merged {
    let (original, merged) = if patch.is_empty() {
        let merged = deduplicate(original);
        (merged.clone(), merged)
    } else {
        let both = original.iter().chain(&patch).cloned().collect();
        (original, deduplicate(both))
    };
    let patch = Places::of(&patch, By::Itself);
    let order: Vec<_> = original.iter().map(Scalar::new).collect();
    let (from_patch, others) = merged.into_iter().partition(|item| patch.get(&Scalar::new(item)).is_some());
    let items = arrange(from_patch, others, &patch, &Places::new(order.iter().cloned()), By::Itself);
    Merged { items, order }
}

/// Up to here equal elements go as upstream's algorithm lets them go, each filled by the last of the list. It takes
/// quadratic time; in longer lists the first of equals remains in place.
const MAX_SWAPPED: usize = 1000;

pub(super) fn deduplicate(mut items: Vec<Value>) -> Vec<Value> {
    if items.len() > MAX_SWAPPED {
        let mut seen = BTreeSet::new();
        items.retain(|item| Scalar::new(item).is_none_or(|item| seen.insert(item)));
        return items;
    }
    let mut at = 0;
    while at < items.len() {
        let mut other = at + 1;
        while other < items.len() {
            if items[at] == items[other] {
                items.swap_remove(other);
            } else {
                other += 1;
            }
        }
        at += 1;
    }
    items
}

/// Splits a list of objects by what `chosen` says to the values of their merge keys.
pub(super) fn partition(
    items: Vec<Value>,
    merge_key: &str,
    mut chosen: impl FnMut(&Option<Scalar>) -> Result<bool, Error>,
) -> Result<(Vec<Value>, Vec<Value>), Error> {
    let (mut yes, mut no) = (Vec::new(), Vec::new());
    for item in items {
        let map = item.as_object().ok_or_else(|| Error::not_a_map(&item))?;
        let key = map.get(merge_key).ok_or_else(|| Error::no_merge_key(map, merge_key))?;
        if chosen(&Scalar::new(key))? { yes.push(item) } else { no.push(item) }
    }
    Ok((yes, no))
}

/// One list of the elements that a patch has and of those that it has not, each in its own order, with as much as
/// possible of the original's order between them.
pub(super) fn arrange(
    from_patch: Vec<Value>,
    others: Vec<Value>,
    patch_order: &Places,
    original_order: &Places,
    by: By<'_>,
) -> Vec<Value> {
    let mut all = Vec::with_capacity(from_patch.len() + others.len());
    let mut others = sort(others, original_order, by).into_iter().peekable();
    for item in sort(from_patch, patch_order, by) {
        if let Some(place) = original_order.get(&by.key(&item)) {
            while let Some(other) =
                others.next_if(|other| original_order.get(&by.key(other)).is_some_and(|other| other < place))
            {
                all.push(other);
            }
        }
        all.push(item);
    }
    all.extend(others);
    all
}

/// How many elements upstream sorts by insertion.
const INSERTION: usize = 20;

/// Sorts by the places; what is to be deleted goes to the end.
pub(super) fn sort(items: Vec<Value>, order: &Places, by: By<'_>) -> Vec<Value> {
    let (deleted, kept): (Vec<_>, Vec<_>) =
        items.into_iter().partition(|item| matches!(by, By::Key(_)) && is_deleted(item));
    let mut kept: Vec<_> = kept.into_iter().map(|item| (order.get(&by.key(&item)), item)).collect();
    if kept.iter().all(|(place, _)| place.is_some()) {
        kept.sort_by_key(|(place, _)| *place);
    } else if kept.len() <= INSERTION {
        // Upstream says "less" whenever one of two has no place, so what comes out depends on how it sorts.
        for end in 1..kept.len() {
            let less = |at: usize, kept: &[(Option<usize>, Value)]| match (kept[at].0, kept[at - 1].0) {
                (Some(one), Some(other)) => one < other,
                _ => true,
            };
            let mut at = end;
            while at > 0 && less(at, &kept) {
                kept.swap(at, at - 1);
                at -= 1;
            }
        }
    }
    kept.into_iter().map(|(_, item)| item).chain(deleted).collect()
}

/// The merge key's value of each object.
pub(super) fn merge_key_of<'a>(item: &'a Value, merge_key: &str) -> Result<&'a Value, Error> {
    let map: &Map = item.as_object().ok_or_else(|| Error::not_a_map(item))?;
    map.get(merge_key).ok_or_else(|| Error::no_merge_key(map, merge_key))
}
