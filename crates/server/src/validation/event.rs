//! Events, under their old and their new name.

use capstan_api::{
    Map, Value,
    field::{Error, ErrorList, Path},
    validation::{is_dns1123_subdomain, is_qualified_name},
};

use super::{
    read::{at, int, is_set, object, text},
    rules::{IMMUTABLE, invalid},
    shape::{Field, TEXT, show},
};

const MAX_SHORT: usize = 128;
const MAX_NOTE: usize = 1024;

/// What fields are called under one of the names.
struct Names {
    regarding: &'static str,
    controller: &'static str,
    note: &'static str,
}

const OLD: Names = Names { regarding: "involvedObject", controller: "reportingComponent", note: "message" };
const NEW: Names = Names { regarding: "regarding", controller: "reportingController", note: "note" };

fn legacy(event: &Map, names: &Names, errors: &mut ErrorList) {
    let namespace = text(at(event, "metadata"), "namespace");
    let about = text(at(event, names.regarding), "namespace");
    let is_new = is_set(event, "eventTime");
    let fits = match about {
        "" => ["", "default"].contains(&namespace) || (is_new && namespace == "kube-system"),
        about => is_new || about == namespace,
    };
    if !fits {
        let path = Path::new("involvedObject");
        errors.push(Error::invalid(path.child("namespace"), about, "does not match event.namespace"));
    }
    if is_new {
        let controller = text(event, names.controller);
        if controller.is_empty() {
            errors.push(Error::required(names.controller, ""));
        }
        invalid(errors, &Path::new(names.controller), controller, is_qualified_name(controller));
        for key in ["reportingInstance", "action", "reason"] {
            let value = text(event, key);
            if value.is_empty() {
                errors.push(Error::required(key, ""));
            }
            too_long(value, key, MAX_SHORT, errors);
        }
        too_long(text(event, names.note), "message", MAX_NOTE, errors);
    }
    invalid(errors, &Path::new("namespace"), namespace, is_dns1123_subdomain(namespace));
}

fn too_long(value: &str, key: &str, max: usize, errors: &mut ErrorList) {
    if value.len() > max {
        errors.push(Error::invalid(key, "", format!("can have at most {max} characters")));
    }
}

/// An event of the core group, to which only the old rules apply.
pub(super) fn core(event: &Map, errors: &mut ErrorList) {
    legacy(event, &OLD, errors);
}

fn series(event: &Map, errors: &mut ErrorList) {
    let Some(series) = object(event, "series") else { return };
    if int(series, "count").unwrap_or(0) < 2 {
        errors.push(Error::invalid("series.count", "", "should be at least 2"));
    }
    if !is_set(series, "lastObservedTime") {
        errors.push(Error::required("series.lastObservedTime", ""));
    }
}

pub(super) fn event(event: &Map, errors: &mut ErrorList) {
    legacy(event, &NEW, errors);
    series(event, errors);
    if !is_set(event, "eventTime") {
        errors.push(Error::required("eventTime", ""));
    }
    let ty = text(event, "type");
    if !["Normal", "Warning"].contains(&ty) {
        errors.push(Error::invalid("type", "", format!("has invalid value: {ty}")));
    }
    let source = at(event, "deprecatedSource");
    let has_source = ["component", "host"].iter().any(|key| !text(source, key).is_empty());
    for (name, is_there) in [
        ("firstTimestamp", is_set(event, "deprecatedFirstTimestamp")),
        ("lastTimestamp", is_set(event, "deprecatedLastTimestamp")),
        ("count", int(event, "deprecatedCount").is_some_and(|count| count != 0)),
        ("source", has_source),
    ] {
        if is_there {
            errors.push(Error::invalid(name, "", "needs to be unset"));
        }
    }
}

const REFERENCE: &[Field] = &[
    ("Kind", "kind", TEXT),
    ("Namespace", "namespace", TEXT),
    ("Name", "name", TEXT),
    ("UID", "uid", TEXT),
    ("APIVersion", "apiVersion", TEXT),
    ("ResourceVersion", "resourceVersion", TEXT),
    ("FieldPath", "fieldPath", TEXT),
];
const SOURCE: &[Field] = &[("Component", "component", TEXT), ("Host", "host", TEXT)];

/// What holds for any event is told before the metadata.
pub(super) fn event_legacy(new: &Map, _: &Map, errors: &mut ErrorList) {
    legacy(new, &NEW, errors);
}

/// Nothing may change but the series.
pub(super) fn event_update(new: &Map, old: &Map, errors: &mut ErrorList) {
    if new.get("series") != old.get("series") {
        series(new, errors);
    }
    let plain = |key: &str, name: &str, missing: Value| {
        let of = |event: &Map| event.get(key).filter(|value| !value.is_null()).unwrap_or(&missing).clone();
        (of(new) != of(old)).then(|| Error::invalid(name, of(new), IMMUTABLE))
    };
    let texts = |keys: &[(&str, &str)]| -> ErrorList {
        keys.iter().filter_map(|(key, name)| plain(key, name, "".into())).collect()
    };
    let structure = |key: &str, name: &str, fields: &[Field]| {
        let shown = show(at(new, key), fields);
        (shown != show(at(old, key), fields)).then(|| Error::invalid_shown(name, shown, IMMUTABLE))
    };
    errors.extend(structure("regarding", "involvedObject", REFERENCE));
    errors.extend(texts(&[("reason", "reason"), ("note", "message")]));
    errors.extend(structure("deprecatedSource", "source", SOURCE));
    let null = Value::Null;
    errors.extend(plain("deprecatedFirstTimestamp", "firstTimestamp", null.clone()));
    errors.extend(plain("deprecatedLastTimestamp", "lastTimestamp", null.clone()));
    errors.extend(plain("deprecatedCount", "count", 0.into()));
    errors.extend(texts(&[("reason", "reason"), ("type", "type")]));
    errors.extend(plain("eventTime", "eventTime", null));
    errors.extend(texts(&[("action", "action")]));
    let related = |event: &Map| object(event, "related").map_or_else(|| "null".to_owned(), |map| show(map, REFERENCE));
    if related(new) != related(old) {
        errors.push(Error::invalid_shown("related", related(new), IMMUTABLE));
    }
    errors.extend(texts(&[("reportingController", "reportingController"), ("reportingInstance", "reportingInstance")]));
}
