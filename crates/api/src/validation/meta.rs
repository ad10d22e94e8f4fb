//! The rules for metadata that hold for all kinds.

use std::collections::BTreeSet;

use super::{Messages, is_qualified_name, name_is_dns_label, text::unprintable, validate_labels};
use crate::{
    Array, Map, Time, Value,
    field::{Error, ErrorList, Path},
    go, json,
    names::GroupVersionKind,
};

/// How many bytes all annotations of an object may have.
pub const TOTAL_ANNOTATION_SIZE_LIMIT: usize = 256 * 1024;
/// How long the name of a field manager may be.
const FIELD_MANAGER_MAX: usize = 128;
/// How long the name of a subresource may be.
const SUBRESOURCE_MAX: usize = 256;
/// The finalizer that lets dependents live on.
const ORPHAN_DEPENDENTS: &str = "orphan";
/// The finalizer that waits for dependents.
const DELETE_DEPENDENTS: &str = "foregroundDeletion";

fn text<'a>(map: &'a Map, key: &str) -> &'a str {
    map.get(key).and_then(Value::as_str).unwrap_or("")
}

fn int(map: &Map, key: &str) -> i64 {
    map.get(key).and_then(Value::as_i64).unwrap_or(0)
}

fn array<'a>(map: &'a Map, key: &str) -> &'a [Value] {
    map.get(key).and_then(Value::as_array).map_or(&[], |items| items)
}

/// A map of strings, such as labels.
fn strings<'a>(map: &'a Map, key: &str) -> impl Iterator<Item = (&'a str, &'a str)> + Clone + use<'a> {
    let entries = map.get(key).and_then(Value::as_object).map_or(&[][..], Map::entries);
    entries.iter().map(|(key, value)| (key.as_str(), value.as_str().unwrap_or("")))
}

/// The metadata of an object that is created, once it has its name.
///
/// `name_rule` says what is wrong with a name, or with the prefix of one; fields of the wrong type count as not set,
/// since decoding has refused them before.
pub fn validate_object_meta(
    metadata: &Map,
    namespaced: bool,
    name_rule: impl Fn(&str, bool) -> Messages,
    path: &Path<'_>,
) -> ErrorList {
    let invalid = |key: &str, value: &str, messages: Messages| {
        let errors = messages.into_iter().map(|message| Error::invalid(path.child(key), value, message));
        errors.collect::<ErrorList>()
    };
    let mut errors = ErrorList::new();
    let generate_name = text(metadata, "generateName");
    if !generate_name.is_empty() {
        errors.extend(invalid("generateName", generate_name, name_rule(generate_name, true)));
    }
    match text(metadata, "name") {
        "" => errors.push(Error::required(path.child("name"), "name or generateName is required")),
        name => errors.extend(invalid("name", name, name_rule(name, false))),
    }
    match (namespaced, text(metadata, "namespace")) {
        (true, "") => errors.push(Error::required(path.child("namespace"), "")),
        (true, namespace) => errors.extend(invalid("namespace", namespace, name_is_dns_label(namespace, false))),
        (false, "") => {}
        (false, _) => errors.push(Error::forbidden(path.child("namespace"), "not allowed on this type")),
    }
    let generation = int(metadata, "generation");
    if generation < 0 {
        errors.push(Error::invalid(path.child("generation"), generation, "must be greater than or equal to 0"));
    }
    errors.extend(validate_labels(strings(metadata, "labels"), &path.child("labels")));
    errors.extend(validate_annotations(strings(metadata, "annotations"), &path.child("annotations")));
    errors.extend(validate_owner_references(array(metadata, "ownerReferences"), &path.child("ownerReferences")));
    errors.extend(validate_finalizers(array(metadata, "finalizers"), &path.child("finalizers")));
    errors.extend(validate_managed_fields(array(metadata, "managedFields"), &path.child("managedFields")));
    errors
}

/// The metadata of an object that is updated: what must not change, and what must be right whatever it was.
#[must_use]
pub fn validate_object_meta_update(new: &Map, old: &Map, path: &Path<'_>) -> ErrorList {
    let mut errors = ErrorList::new();
    if !matches!(old.get("deletionTimestamp"), None | Some(Value::Null)) {
        errors.extend(no_new_finalizers(new, old, &path.child("finalizers")));
    }
    if text(new, "resourceVersion").is_empty() {
        errors.push(Error::invalid(path.child("resourceVersion"), "", "must be specified for an update"));
    }
    let generation = int(new, "generation");
    if generation < int(old, "generation") {
        errors.push(Error::invalid(path.child("generation"), generation, "must not be decremented"));
    }
    for key in ["name", "namespace"] {
        if text(new, key) != text(old, key) {
            errors.push(Error::invalid(path.child(key), text(new, key), IMMUTABLE));
        }
    }
    if text(new, "uid") != text(old, "uid") {
        // A type of its own in Go, which is printed as JSON.
        let shown = go::escape_html(&json::to_string(&text(new, "uid").into()));
        errors.push(Error::invalid_shown(path.child("uid"), shown, IMMUTABLE));
    }
    for key in ["creationTimestamp", "deletionTimestamp", "deletionGracePeriodSeconds"] {
        let (new, old) = (comparable(new.get(key)), comparable(old.get(key)));
        if new != old {
            errors.push(Error::invalid(path.child(key), new, IMMUTABLE));
        }
    }
    errors.extend(validate_labels(strings(new, "labels"), &path.child("labels")));
    errors.extend(validate_annotations(strings(new, "annotations"), &path.child("annotations")));
    errors.extend(validate_owner_references(array(new, "ownerReferences"), &path.child("ownerReferences")));
    errors.extend(validate_managed_fields(array(new, "managedFields"), &path.child("managedFields")));
    errors
}

const IMMUTABLE: &str = "field is immutable";

/// A time in the one form in which it is written, anything else as it is.
fn comparable(value: Option<&Value>) -> Value {
    let time = value.and_then(Value::as_str).and_then(|text| text.parse::<Time>().ok());
    time.map_or_else(|| value.cloned().unwrap_or_default(), Value::from)
}

/// An object that is being deleted gets no more finalizers.
fn no_new_finalizers(new: &Map, old: &Map, path: &Path<'_>) -> Option<Error> {
    let names = |metadata| array(metadata, "finalizers").iter().filter_map(Value::as_str).collect::<BTreeSet<_>>();
    let (new, old) = (names(new), names(old));
    let extra: Vec<_> = new.difference(&old).map(|name| go::quote(name)).collect();
    let found = format!("[]string{{{}}}", extra.join(", "));
    let detail = format!("no new finalizers can be added if the object is being deleted, found new finalizers {found}");
    (!extra.is_empty()).then(|| Error::forbidden(path, detail))
}

/// Keys of annotations, and the size of all of them.
#[must_use]
pub fn validate_annotations<'a>(
    annotations: impl IntoIterator<Item = (&'a str, &'a str)> + Clone,
    path: &Path<'_>,
) -> ErrorList {
    let mut errors = ErrorList::new();
    let mut size = 0;
    for (key, value) in annotations {
        // Qualified names, but whatever the case.
        let messages = is_qualified_name(&key.to_lowercase());
        errors.extend(messages.into_iter().map(|message| Error::invalid(path, key, message)));
        size += key.len() + value.len();
    }
    if size > TOTAL_ANNOTATION_SIZE_LIMIT {
        errors.push(Error::too_long(path, TOTAL_ANNOTATION_SIZE_LIMIT));
    }
    errors
}

/// The owners of an object; at most one of them controls it.
#[must_use]
pub fn validate_owner_references(references: &[Value], path: &Path<'_>) -> ErrorList {
    let mut errors = ErrorList::new();
    let mut controller: Option<String> = None;
    for reference in references.iter().filter_map(Value::as_object) {
        errors.extend(owner_reference(reference, path));
        if reference.get("controller").and_then(Value::as_bool) != Some(true) {
            continue;
        }
        let this = format!("{}/{}", text(reference, "kind"), text(reference, "name"));
        match &controller {
            None => controller = Some(this),
            Some(first) => {
                let all: Vec<_> = references.iter().filter_map(Value::as_object).map(show_owner).collect();
                let detail = format!(
                    "Only one reference can have Controller set to true. Found \"true\" in references for {first} and {this}"
                );
                errors.push(Error::invalid_shown(path, format!("[{}]", all.join(",")), detail));
            }
        }
    }
    errors
}

fn owner_reference(reference: &Map, path: &Path<'_>) -> ErrorList {
    let kind = GroupVersionKind::from_api_version_and_kind(text(reference, "apiVersion"), text(reference, "kind"));
    let mut errors = ErrorList::new();
    if kind.version.is_empty() {
        let version = text(reference, "apiVersion");
        errors.push(Error::invalid(path.child("apiVersion"), version, "version must not be empty"));
    }
    for key in ["kind", "name", "uid"] {
        if text(reference, key).is_empty() {
            errors.push(Error::invalid(path.child(key), "", "must not be empty"));
        }
    }
    // Events are too many and too short-lived to own anything.
    if kind == GroupVersionKind::from_static("", "v1", "Event") {
        let detail = format!("{kind} is disallowed from being an owner");
        errors.push(Error::invalid_shown(path, show_owner(reference), detail));
    }
    errors
}

/// An owner as Go prints the struct: the fields in the order of their declaration.
fn show_owner(reference: &Map) -> String {
    let mut fields: Vec<_> = ["apiVersion", "kind", "name", "uid"]
        .iter()
        .map(|key| format!("\"{key}\":{}", json::to_string(&text(reference, key).into())))
        .collect();
    for key in ["controller", "blockOwnerDeletion"] {
        let value = reference.get(key).and_then(Value::as_bool);
        fields.extend(value.map(|value| format!("\"{key}\":{value}")));
    }
    go::escape_html(&format!("{{{}}}", fields.join(",")))
}

/// The name of a finalizer.
#[must_use]
pub fn validate_finalizer_name(name: &str, path: &Path<'_>) -> ErrorList {
    super::validate_label_name(name, path)
}

/// The finalizers of an object, two of which exclude each other.
#[must_use]
pub fn validate_finalizers(finalizers: &[Value], path: &Path<'_>) -> ErrorList {
    let names: Vec<_> = finalizers.iter().filter_map(Value::as_str).collect();
    let mut errors: ErrorList = names.iter().flat_map(|name| validate_finalizer_name(name, path)).collect();
    if names.contains(&ORPHAN_DEPENDENTS) && names.contains(&DELETE_DEPENDENTS) {
        let all = Value::Array(Array::from_iter(finalizers.iter().cloned()));
        let detail = format!("finalizer {ORPHAN_DEPENDENTS} and {DELETE_DEPENDENTS} cannot be both set");
        errors.push(Error::invalid(path, all, detail));
    }
    errors
}

/// The name of a field manager: not too long, and nothing in it that cannot be printed.
#[must_use]
pub fn validate_field_manager(manager: &str, path: &Path<'_>) -> ErrorList {
    let long = (manager.len() > FIELD_MANAGER_MAX).then(|| Error::too_long(path, FIELD_MANAGER_MAX));
    let wrong = unprintable(manager).map(|message| Error::invalid(path, manager, message));
    long.into_iter().chain(wrong).collect()
}

/// The entries of managed fields, but for the sets of fields themselves.
#[must_use]
pub fn validate_managed_fields(entries: &[Value], path: &Path<'_>) -> ErrorList {
    let mut errors = ErrorList::new();
    for (at, entry) in entries.iter().enumerate() {
        let Some(entry) = entry.as_object() else { continue };
        let path = path.index(at);
        let (operation, fields_type) = (text(entry, "operation"), text(entry, "fieldsType"));
        if !matches!(operation, "Apply" | "Update") {
            errors.push(Error::invalid(path.child("operation"), operation, "must be `Apply` or `Update`"));
        }
        if !matches!(fields_type, "" | "FieldsV1") {
            errors.push(Error::invalid(path.child("fieldsType"), fields_type, "must be `FieldsV1`"));
        }
        errors.extend(validate_field_manager(text(entry, "manager"), &path.child("manager")));
        if text(entry, "subresource").len() > SUBRESOURCE_MAX {
            errors.push(Error::too_long(path.child("subresource"), SUBRESOURCE_MAX));
        }
    }
    errors
}
