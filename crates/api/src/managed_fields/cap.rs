//! Keeping the number of entries small.

use super::{FieldSet, ManagedFieldsEntry};
use crate::Str;

/// How many entries of updates an object has at most; the oldest are put together.
pub const MAX_UPDATE_MANAGERS: usize = 10;

/// The manager of entries that were put together.
const OLD_UPDATES: &str = "ancient-changes";

/// Puts the oldest entries of updates together, by version, until there are few enough.
pub(super) fn cap(entries: &mut Vec<ManagedFieldsEntry>) {
    let mut updates = entries.iter().filter(|entry| entry.operation.is_update()).count();
    if updates <= MAX_UPDATE_MANAGERS {
        return;
    }
    let (updaters, mut rest): (Vec<_>, Vec<_>) =
        std::mem::take(entries).into_iter().partition(|entry| entry.operation.is_update());
    let mut updaters = updaters;
    updaters.sort_by_cached_key(|entry| (entry.seconds(), entry.identifier()));
    let bucket_of = |entry: &ManagedFieldsEntry| ManagedFieldsEntry {
        manager: OLD_UPDATES.into(),
        subresource: Str::default(),
        fields: FieldSet::new(),
        ..entry.clone()
    };
    // The first of a version is put together with the second, not before.
    let mut kept: Vec<Option<ManagedFieldsEntry>> = updaters.into_iter().map(Some).collect();
    let mut firsts: Vec<(Str, usize)> = Vec::new();
    for at in 0..kept.len() {
        if updates <= MAX_UPDATE_MANAGERS {
            break;
        }
        let Some(entry) = &kept[at] else { continue };
        let version = entry.api_version.clone();
        let Some(&(_, first)) = firsts.iter().find(|(known, _)| *known == version) else {
            firsts.push((version, at));
            continue;
        };
        let bucket = bucket_of(entry);
        let time = entry.time.clone();
        let place = kept.iter().position(|other| other.as_ref().is_some_and(|other| other.is_same(&bucket)));
        let place = place.unwrap_or(first);
        // Upstream forgets what was put together before when that is not the oldest entry; so do we.
        let fields = kept[at].take().map(|entry| entry.fields).unwrap_or_default();
        if let Some(into) = &mut kept[place] {
            let before = std::mem::take(&mut into.fields);
            *into = ManagedFieldsEntry { fields: before.union(fields), time, ..bucket };
        }
        updates -= 1;
    }
    rest.extend(kept.into_iter().flatten());
    *entries = rest;
}
