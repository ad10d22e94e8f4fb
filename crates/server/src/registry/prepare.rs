//! What becomes of an object between decoding and validation: the fields that the server fills in and keeps.

use capstan_api::{GroupVersionKind, Map, Time, Value, builtin};

use super::{
    disabled, hooks, paths,
    strategy::{Generation, Strategy},
};

/// Makes a decoded and defaulted object into one that can be created: the fields that only the server fills in, an
/// empty status, and what the kind adds. Its name must have been generated.
pub fn prepare_for_create(strategy: &Strategy, object: &mut Map, uid: &str, now: Time) {
    for path in ["metadata.deletionTimestamp", "metadata.deletionGracePeriodSeconds", "metadata.selfLink"] {
        paths::remove(object, path);
    }
    paths::set(object, "metadata.uid", uid);
    paths::set(object, "metadata.creationTimestamp", now.to_string());
    let status = object.get("status").cloned();
    if strategy.resets_status {
        empty_status(object);
    }
    match strategy.generation {
        Generation::Never | Generation::Unset(_) => {}
        _ => paths::set(object, "metadata.generation", 1),
    }
    disabled::drop_fields(strategy, object, None);
    hooks::create(strategy, object, status.as_ref(), uid, now);
}

/// Makes a decoded and defaulted object into what is stored after `old`: the fields that the endpoint may not change
/// stay as they were, and the generation grows if it has to. `subresource` is empty for the object itself.
pub fn prepare_for_update(strategy: &Strategy, subresource: &str, new: &mut Map, old: &Map, now: Time) {
    paths::copy(new, old, "metadata.generation");
    hooks::before_update(strategy, subresource, new, old, now);
    for path in strategy.keeps(subresource) {
        paths::copy(new, old, path);
    }
    disabled::drop_fields(strategy, new, Some(old));
    hooks::update(strategy, subresource, new, old, now);
    if counts(strategy, subresource) && has_grown(strategy.generation, new, old) {
        let generation = paths::number(old, "metadata.generation");
        paths::set(new, "metadata.generation", generation.saturating_add(1));
    }
    if paths::text(new, "metadata.uid").is_empty() {
        paths::copy(new, old, "metadata.uid");
    }
    // Neither of these can be taken back or changed.
    for path in ["metadata.creationTimestamp", "metadata.deletionTimestamp"] {
        if paths::get(old, path).is_some_and(|time| !time.is_null()) {
            paths::copy(new, old, path);
        }
    }
    if paths::get(new, "metadata.deletionGracePeriodSeconds").is_none_or(Value::is_null) {
        paths::copy(new, old, "metadata.deletionGracePeriodSeconds");
    }
}

/// Whether writing `new` over `old` would change nothing: then nothing is written and the resourceVersion stays.
///
/// The resourceVersion is not compared, nor are the times of managed fields, as upstream takes those back when nothing
/// else has changed.
#[must_use]
pub fn is_unchanged(new: &Map, old: &Map) -> bool {
    new.len() == old.len()
        && new.iter().zip(old.iter()).all(|((key, new), (old_key, old))| {
            key == old_key
                && match (key, new, old) {
                    ("metadata", Value::Object(new), Value::Object(old)) => same_metadata(new, old),
                    _ => new == old,
                }
        })
}

fn same_metadata(new: &Map, old: &Map) -> bool {
    let fields = |map| Map::iter(map).filter(|(key, _)| !matches!(*key, "resourceVersion" | "managedFields"));
    let entries = |map| {
        paths::items(map, "managedFields").iter().map(|entry| {
            let mut entry = entry.clone();
            entry.as_object_mut().map(|entry| entry.remove("time"));
            entry
        })
    };
    fields(new).eq(fields(old)) && entries(new).eq(entries(old))
}

/// The status that Go prints for an object that has none yet.
fn empty_status(object: &mut Map) {
    object.remove("status");
    let gvk =
        GroupVersionKind::from_api_version_and_kind(paths::text(object, "apiVersion"), paths::text(object, "kind"));
    let Some(schema) = builtin::schema(&gvk) else { return };
    let mut empty = Value::from(Map::new());
    builtin::default(&schema, &mut empty);
    if let Some(status) = empty.get_mut("status") {
        object.insert("status", status.take());
    }
}

/// Only writes to the object itself count, and those to pods' subresources that change their spec.
fn counts(strategy: &Strategy, subresource: &str) -> bool {
    subresource.is_empty() || strategy.resource == "pods" && matches!(subresource, "ephemeralcontainers" | "resize")
}

fn has_grown(generation: Generation, new: &Map, old: &Map) -> bool {
    let keys = |but: &'static [&str]| new.keys().chain(old.keys()).filter(|key| !but.contains(key));
    // What has no type is empty or not there, which is not the same.
    let differs = |but| keys(but).any(|key| new.get(key) != old.get(key));
    match generation {
        Generation::Never | Generation::Once => false,
        Generation::When(fields) | Generation::Unset(fields) => fields.iter().any(|path| !paths::same(new, old, path)),
        Generation::ContentOrLabels => {
            keys(&["metadata"]).any(|key| !paths::same(new, old, key)) || !paths::same(new, old, "metadata.labels")
        }
        Generation::Content => differs(&["metadata"]),
        Generation::ContentButStatus => differs(&["metadata", "status"]),
    }
}
