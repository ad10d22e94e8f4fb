//! Whether two patches change the same thing differently.

use std::collections::BTreeMap;

use super::{
    DIRECTIVE, Error, MAX_DEPTH, RETAIN_KEYS, error,
    lists::{Kind, Scalar, deduplicate, element_kind, merge_key_of},
    meta,
};
use crate::{Map, Value, schema::NodeRef};

/// Whether two patches of one object conflict.
pub(super) fn maps(left: &Map, right: &Map, node: NodeRef<'_>, depth: usize) -> Result<bool, Error> {
    if depth == MAX_DEPTH {
        return Err(Error::TooDeep);
    }
    // A directive is about the whole object, so both must have the same.
    if left.get(DIRECTIVE) != right.get(DIRECTIVE) {
        return Ok(true);
    }
    for (key, left) in left.iter().filter(|(key, _)| !matches!(*key, DIRECTIVE | RETAIN_KEYS)) {
        let Some(right) = right.get(key) else { continue };
        let conflict = match left {
            Value::Object(left) => {
                let meta = meta::of_object(node, key)?;
                match right.as_object() {
                    None => true,
                    Some(right) if meta.strategy.replace => left.get(DIRECTIVE) != right.get(DIRECTIVE),
                    Some(right) => maps(left, right, meta.node, depth + 1)?,
                }
            }
            Value::Array(left) => {
                let meta = meta::of_list(node, key)?;
                match right.as_array() {
                    None => true,
                    Some(right) if meta.strategy.merge => merged_lists(left, right, &meta, depth + 1)?,
                    Some(right) => replaced_lists(left, right, meta.node, depth + 1)?,
                }
            }
            left => left != right,
        };
        if conflict {
            return Ok(true);
        }
    }
    Ok(false)
}

fn merged_lists(left: &[Value], right: &[Value], meta: &meta::Meta<'_>, depth: usize) -> Result<bool, Error> {
    if element_kind(left, right)? == Kind::Scalar {
        return Ok(false);
    }
    let by_key = |items| keyed(items, meta.merge_key.unwrap_or_default());
    let right = by_key(right)?;
    for (key, left) in by_key(left)? {
        if let Some(right) = right.get(&key)
            && maps(left, right, meta.node, depth)?
        {
            return Ok(true);
        }
    }
    Ok(false)
}

fn keyed<'a>(items: &'a [Value], merge_key: &str) -> Result<BTreeMap<Option<Scalar>, &'a Map>, Error> {
    let entry = |item: &'a Value| {
        let key = Scalar::new(merge_key_of(item, merge_key)?);
        Ok((key, item.as_object().ok_or_else(|| Error::not_a_map(item))?))
    };
    items.iter().map(entry).collect()
}

fn replaced_lists(left: &[Value], right: &[Value], node: NodeRef<'_>, depth: usize) -> Result<bool, Error> {
    let kind = element_kind(left, right)?;
    if left.len() != right.len() {
        return Ok(true);
    }
    if kind == Kind::Scalar {
        return Ok(sorted(left) != sorted(right));
    }
    for (left, right) in left.iter().zip(right) {
        if let (Some(left), Some(right)) = (left.as_object(), right.as_object())
            && maps(left, right, node, depth)?
        {
            return Ok(true);
        }
    }
    Ok(false)
}

fn sorted(items: &[Value]) -> Vec<String> {
    let mut printed: Vec<_> = deduplicate(items.to_vec()).iter().map(error::print_value).collect();
    printed.sort_unstable();
    printed
}
