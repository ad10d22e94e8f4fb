//! Devices: claims of them, templates for claims, and classes.

use std::collections::{BTreeMap, BTreeSet};

use capstan_api::{
    Map, Value,
    field::{Error, ErrorList, Path},
    go,
    validation::{is_dns1123_label, is_dns1123_subdomain, is_qualified_name, validate_annotations, validate_labels},
};

use super::{
    device_parts, expressions, internal,
    read::{at, int, is_set, list, object, objects, strings, text},
    rules::{IMMUTABLE, invalid, required},
    volume::{NOT_POSITIVE, driver_name},
};

const SPEC: Path<'static> = Path::new("spec");
const MAX_REQUESTS: usize = 32;
const MAX_CONSTRAINTS: usize = 32;
const MAX_CONFIGS: usize = 32;
const MAX_SELECTORS: usize = 32;
const MAX_ALTERNATIVES: usize = 8;
const MAX_EXPRESSION: usize = 10 * 1024;
const MAX_RAW: usize = 10 * 1024;
/// What the metadata of an object has beside labels and annotations, in the order in which Go has it.
const METADATA: &[&str] = &[
    "name",
    "generateName",
    "namespace",
    "selfLink",
    "uid",
    "resourceVersion",
    "generation",
    "creationTimestamp",
    "deletionTimestamp",
    "deletionGracePeriodSeconds",
    "ownerReferences",
    "finalizers",
    "managedFields",
];
const NOT_A_REQUEST: &str =
    "must be the name of a request in the claim or the name of a request and a subrequest separated by '/'";

/// The requests of a claim with their alternatives.
pub(super) type Requests<'a> = BTreeMap<&'a str, BTreeSet<&'a str>>;

/// No more than `max`: of too many none is looked at. Says whether they were.
pub(super) fn each<'a>(
    items: &'a [Value],
    max: usize,
    path: &Path<'_>,
    errors: &mut ErrorList,
    mut check: impl FnMut(&'a Value, &Path<'_>, &mut ErrorList),
) -> bool {
    if items.len() > max {
        errors.push(Error::too_many(path, items.len(), max));
        return false;
    }
    for (i, item) in items.iter().enumerate() {
        check(item, &path.index(i), errors);
    }
    true
}

/// No more than `max`, and none twice. `key` is what tells them apart, as it is printed.
pub(super) fn set<'a>(
    items: &'a [Value],
    max: usize,
    path: &Path<'_>,
    errors: &mut ErrorList,
    key: impl Fn(&'a Value) -> String,
    check: impl FnMut(&'a Value, &Path<'_>, &mut ErrorList),
) {
    if !each(items, max, path, errors, check) {
        return;
    }
    let mut seen = BTreeSet::new();
    for (i, item) in items.iter().enumerate() {
        let key = key(item);
        if seen.contains(&key) {
            errors.push(Error { bad_value: None, detail: key, ..Error::duplicate(path.index(i), 0) });
        } else {
            seen.insert(key);
        }
    }
}

pub(super) fn map(value: &Value) -> &Map {
    value.as_object().unwrap_or(super::read::empty())
}

fn name(value: &Value) -> &str {
    text(map(value), "name")
}

/// What is told of two elements with one name.
pub(super) fn quoted_name(value: &Value) -> String {
    go::quote(name(value))
}

pub(super) fn claim(claim: &Map, errors: &mut ErrorList) {
    devices(at(at(claim, "spec"), "devices"), &SPEC.child("devices"), errors);
}

/// What is asked for in the spec of a claim.
pub(super) fn requests(devices: &Map) -> Requests<'_> {
    let names_of = |request| objects(request, "firstAvailable").map(|(_, one)| text(one, "name")).collect();
    objects(devices, "requests").map(|(_, request)| (text(request, "name"), names_of(request))).collect()
}

fn devices(devices: &Map, path: &Path<'_>, errors: &mut ErrorList) {
    let requests = requests(devices);
    let of = |key: &str| list(devices, key);
    set(of("requests"), MAX_REQUESTS, &path.child("requests"), errors, quoted_name, |one, path, errors| {
        request(map(one), path, errors);
    });
    each(of("constraints"), MAX_CONSTRAINTS, &path.child("constraints"), errors, |one, path, errors| {
        let one = map(one);
        references(one, &requests, path, errors);
        if !is_set(one, "matchAttribute") && !is_set(one, "distinctAttribute") {
            let detail = "exactly one of \"matchAttribute\" or \"distinctAttribute\" is required, but multiple fields \
                          are set";
            errors.push(Error::required(path, detail));
        }
        for key in ["matchAttribute", "distinctAttribute"].into_iter().filter(|key| is_set(one, key)).take(1) {
            device_parts::fully_qualified_name(text(one, key), &path.child(key), errors);
        }
    });
    each(of("config"), MAX_CONFIGS, &path.child("config"), errors, |one, path, errors| {
        references(map(one), &requests, path, errors);
        opaque(map(one), path, errors);
    });
}

/// The requests that something is for.
pub(super) fn references(one: &Map, requests: &Requests<'_>, path: &Path<'_>, errors: &mut ErrorList) {
    let key = |value: &Value| go::quote(value.as_str().unwrap_or(""));
    set(list(one, "requests"), MAX_REQUESTS, &path.child("requests"), errors, key, |value, path, errors| {
        reference(value.as_str().unwrap_or(""), requests, path, errors);
    });
}

/// The name of a request, or of one with one of its alternatives.
pub(super) fn reference(reference: &str, requests: &Requests<'_>, path: &Path<'_>, errors: &mut ErrorList) {
    let (request, sub) = reference.split_once('/').map_or((reference, None), |(a, b)| (a, Some(b)));
    if sub.is_some_and(|sub| sub.contains('/')) {
        return errors.push(Error::invalid(path, reference, NOT_A_REQUEST));
    }
    for part in [Some(request), sub].into_iter().flatten() {
        invalid(errors, path, part, is_dns1123_label(part));
    }
    let known = requests.get(request).is_some_and(|subs| sub.is_none_or(|sub| subs.contains(sub)));
    if !known {
        errors.push(Error::invalid(path, reference, NOT_A_REQUEST));
    }
}

fn request(request: &Map, path: &Path<'_>, errors: &mut ErrorList) {
    let name_of = text(request, "name");
    invalid(errors, &path.child("name"), name_of, is_dns1123_label(name_of));
    let alternatives = list(request, "firstAvailable");
    match (object(request, "exactly"), alternatives.is_empty()) {
        (None, true) => {
            errors.push(Error::required(path, "exactly one of `exactly` or `firstAvailable` is required"));
        }
        (Some(_), false) => {
            let detail = "exactly one of `exactly` or `firstAvailable` is required, but multiple fields are set";
            errors.push(Error::invalid(path, Value::Null, detail));
        }
        (Some(exactly), true) => exact(exactly, &path.child("exactly"), errors),
        (None, false) => {
            let path = path.child("firstAvailable");
            set(alternatives, MAX_ALTERNATIVES, &path, errors, quoted_name, |one, path, errors| {
                invalid(errors, &path.child("name"), name(one), is_dns1123_label(name(one)));
                exact(map(one), path, errors);
            });
        }
    }
}

fn exact(request: &Map, path: &Path<'_>, errors: &mut ErrorList) {
    required(errors, request, "deviceClassName", path, is_dns1123_subdomain);
    selectors(request, path, errors);
    let count = int(request, "count").unwrap_or(0);
    let known = ["All", "ExactCount"];
    match (text(request, "allocationMode"), count) {
        ("All", 0) | ("ExactCount", 1..) => {}
        ("All", _) => {
            let detail = "must not be specified when allocationMode is 'All'";
            errors.push(Error::invalid(path.child("count"), count, detail));
        }
        ("ExactCount", _) => errors.push(Error::invalid(path.child("count"), count, NOT_POSITIVE)),
        (mode, _) => errors.push(Error::not_supported(path.child("allocationMode"), mode, &known)),
    }
    let path = path.child("tolerations");
    for (i, toleration) in objects(request, "tolerations") {
        device_parts::toleration(toleration, &path.index(i), errors);
    }
}

/// Which devices will do.
fn selectors(of: &Map, path: &Path<'_>, errors: &mut ErrorList) {
    each(list(of, "selectors"), MAX_SELECTORS, &path.child("selectors"), errors, |selector, path, errors| {
        let path = path.child("cel");
        match object(map(selector), "cel").map(|cel| text(cel, "expression")) {
            None => errors.push(Error::required(path, "")),
            Some(long) if long.len() > MAX_EXPRESSION => {
                errors.push(Error::too_long(path.child("expression"), MAX_EXPRESSION));
            }
            Some(text) => expressions::device(text, &path.child("expression"), errors),
        }
    });
}

/// What is only for a driver to understand.
pub(super) fn opaque(config: &Map, path: &Path<'_>, errors: &mut ErrorList) {
    let path = path.child("opaque");
    match object(config, "opaque") {
        None => errors.push(Error::required(path, "")),
        Some(opaque) => {
            driver_name(text(opaque, "driver"), &path.child("driver"), errors);
            raw(opaque.get("parameters"), &path.child("parameters"), errors);
        }
    }
}

/// An object of whatever kind that is not too long.
pub(super) fn raw(value: Option<&Value>, path: &Path<'_>, errors: &mut ErrorList) {
    match value {
        None | Some(Value::Null) => errors.push(Error::required(path, "")),
        Some(long) if long.to_string().len() > MAX_RAW => errors.push(Error::too_long(path, MAX_RAW)),
        Some(Value::Object(_)) => {}
        Some(_) => errors.push(Error::invalid(path, "<value omitted>", "must be a valid JSON object")),
    }
}

/// What was asked for stays.
pub(super) fn claim_update(new: &Map, old: &Map, errors: &mut ErrorList) {
    if at(new, "spec") != at(old, "spec") {
        errors.push(Error::invalid_shown(SPEC, internal::show("ResourceClaimSpec", at(new, "spec")), IMMUTABLE));
    }
}

pub(super) fn template(template: &Map, errors: &mut ErrorList) {
    let spec = at(template, "spec");
    template_metadata(at(spec, "metadata"), &SPEC.child("metadata"), errors);
    let path = SPEC.child("spec");
    devices(at(at(spec, "spec"), "devices"), &path.child("devices"), errors);
}

/// What claims get from their template: labels and annotations, and nothing else.
fn template_metadata(metadata: &Map, path: &Path<'_>, errors: &mut ErrorList) {
    errors.extend(validate_annotations(strings(metadata, "annotations"), &path.child("annotations")));
    errors.extend(validate_labels(strings(metadata, "labels"), &path.child("labels")));
    // What Go cannot tell from nothing.
    let none = |key: &str, value: &Value| match value {
        Value::String(text) => text.is_empty(),
        Value::Int(n) => key == "generation" && *n == 0,
        value => value.is_null(),
    };
    for key in METADATA.iter().filter(|key| metadata.get(key).is_some_and(|value| !none(key, value))) {
        // Upstream makes the key of the name that the field has in Go.
        let told = if *key == "uid" { "uID" } else { key };
        errors.push(Error::forbidden(path.child(told), "cannot be set"));
    }
}

/// A template stays as it is.
pub(super) fn template_update(new: &Map, old: &Map, errors: &mut ErrorList) {
    let (spec, before) = (at(new, "spec"), at(old, "spec"));
    if spec != before {
        errors.push(Error::invalid_shown(SPEC, internal::show("ResourceClaimTemplateSpec", spec), IMMUTABLE));
    }
}

pub(super) fn class(class: &Map, errors: &mut ErrorList) {
    let spec = at(class, "spec");
    selectors(spec, &SPEC, errors);
    each(list(spec, "config"), MAX_CONFIGS, &SPEC.child("config"), errors, |config, path, errors| {
        opaque(map(config), path, errors);
    });
    const NAME: &str = "extendedResourceName";
    let extended = text(spec, NAME);
    let is_extended = extended.contains('/')
        && !extended.contains("kubernetes.io/")
        && !extended.starts_with("requests.")
        && is_qualified_name(&format!("requests.{extended}")).is_empty();
    if is_set(spec, NAME) && !is_extended {
        errors.push(Error::invalid(SPEC.child(NAME), extended, "must be a valid extended resource name"));
    }
}
