//! Writes that change nothing but times.

use super::entry::raw_entries;
use crate::{Map, Value};

/// Puts the old times of entries back if `new` differs from `old` in nothing else, so that nothing is written.
pub fn keep_timestamps(old: &Map, new: &mut Map) {
    let (Some(before), Some(after)) = (raw_entries(old), raw_entries(new)) else { return };
    if before.len() != after.len() || after.is_empty() {
        return;
    }
    let same_entry = |a: &Value, b: &Value| match (a.as_object(), b.as_object()) {
        (Some(a), Some(b)) => without(a, "time").eq(without(b, "time")),
        _ => a == b,
    };
    if !before.iter().zip(after).all(|(a, b)| same_entry(a, b)) {
        return;
    }
    let metadata = |object: &Map| object.get("metadata").and_then(Value::as_object).cloned().unwrap_or_default();
    if !without(old, "metadata").eq(without(new, "metadata"))
        || !without(&metadata(old), "managedFields").eq(without(&metadata(new), "managedFields"))
    {
        return;
    }
    let before: Value = before.to_vec().into();
    if let Some(metadata) = new.get_mut("metadata").and_then(Value::as_object_mut) {
        metadata.insert("managedFields", before);
    }
}

fn without<'v>(map: &'v Map, name: &'v str) -> impl Iterator<Item = (&'v str, &'v Value)> {
    map.iter().filter(move |(key, _)| *key != name)
}
