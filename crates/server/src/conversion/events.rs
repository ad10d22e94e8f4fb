//! Events of the core group and of `events.k8s.io`: the same objects with other names for some fields.

use capstan_api::{Map, Value};

/// The names that differ, the core group's first.
const NAMES: &[(&str, &str)] = &[
    ("involvedObject", "regarding"),
    ("message", "note"),
    ("source", "deprecatedSource"),
    ("firstTimestamp", "deprecatedFirstTimestamp"),
    ("lastTimestamp", "deprecatedLastTimestamp"),
    ("count", "deprecatedCount"),
    ("reportingComponent", "reportingController"),
];

/// Fields that the core group writes even when they are empty, and the other group leaves out.
const WRITTEN_EMPTY: &[&str] = &["reportingComponent", "reportingInstance"];

pub(super) fn to_core(mut event: Map) -> Map {
    for (core, other) in NAMES {
        if let Some(value) = event.remove(other) {
            event.insert(*core, value);
        }
    }
    for key in WRITTEN_EMPTY {
        event.get_or_insert_with(key, || "".into());
    }
    event
}

pub(super) fn from_core(mut event: Map) -> Map {
    for key in WRITTEN_EMPTY {
        if event.get(key).and_then(Value::as_str) == Some("") {
            event.remove(key);
        }
    }
    for (core, other) in NAMES {
        if let Some(value) = event.remove(core) {
            event.insert(*other, value);
        }
    }
    event
}
