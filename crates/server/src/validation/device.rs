//! Devices: claims, classes and what drivers have.

use std::collections::{BTreeMap, BTreeSet};

use capstan_api::{
    Map, Value,
    field::{Error, ErrorList, Path},
    validation::{
        is_dns1123_label, is_dns1123_subdomain, is_qualified_name, name_is_dns_subdomain, validate_annotations,
        validate_labels,
    },
};

use super::{
    device_parts, expressions, internal,
    read::{at, flag, int, is_set, list, object, objects, strings, text},
    rules::{IMMUTABLE, invalid, required},
    volume::{NOT_POSITIVE, driver_name, node_selector},
};

const SPEC: Path<'static> = Path::new("spec");
const MAX_REQUESTS: usize = 32;
const MAX_CONSTRAINTS: usize = 32;
const MAX_CONFIGS: usize = 32;
const MAX_SELECTORS: usize = 32;
const MAX_ALTERNATIVES: usize = 8;
const MAX_DEVICES: usize = 128;
const MAX_POOL_NAME: usize = 253;
const MAX_EXPRESSION: usize = 10 * 1024;
const NOT_A_REQUEST: &str =
    "must be the name of a request in the claim or the name of a request and a subrequest separated by '/'";

/// The requests of a claim with their alternatives.
type Requests<'a> = BTreeMap<&'a str, BTreeSet<&'a str>>;

/// No more than `max`, and none twice.
fn set<'a>(
    items: &'a [Value],
    max: usize,
    path: &Path<'_>,
    errors: &mut ErrorList,
    key: impl Fn(&'a Value) -> &'a str,
    mut check: impl FnMut(&'a Value, &Path<'_>, &mut ErrorList),
) {
    let mut seen = BTreeSet::new();
    for (i, item) in items.iter().enumerate() {
        let path = path.index(i);
        check(item, &path, errors);
        let key = key(item);
        if !seen.insert(key) {
            errors.push(Error::duplicate(path, key));
        }
    }
    if items.len() > max {
        errors.push(Error::too_many(path, items.len(), max));
    }
}

fn map(value: &Value) -> &Map {
    value.as_object().unwrap_or(super::read::empty())
}

fn name(value: &Value) -> &str {
    text(map(value), "name")
}

pub(super) fn claim(claim: &Map, errors: &mut ErrorList) {
    devices(at(at(claim, "spec"), "devices"), &SPEC.child("devices"), errors);
}

fn devices(devices: &Map, path: &Path<'_>, errors: &mut ErrorList) {
    let names_of = |request| objects(request, "firstAvailable").map(|(_, one)| text(one, "name")).collect();
    let requests: Requests<'_> =
        objects(devices, "requests").map(|(_, request)| (text(request, "name"), names_of(request))).collect();
    set(list(devices, "requests"), MAX_REQUESTS, &path.child("requests"), errors, name, |one, path, errors| {
        request(map(one), path, errors);
    });
    let constraints = path.child("constraints");
    for (i, one) in objects(devices, "constraints") {
        let path = constraints.index(i);
        references(one, &requests, &path, errors);
        if !is_set(one, "matchAttribute") && !is_set(one, "distinctAttribute") {
            let detail = "exactly one of \"matchAttribute\" or \"distinctAttribute\" is required, but multiple fields \
                          are set";
            errors.push(Error::required(path, detail));
        }
        for key in ["matchAttribute", "distinctAttribute"].into_iter().filter(|key| is_set(one, key)).take(1) {
            device_parts::fully_qualified_name(text(one, key), &path.child(key), errors);
        }
    }
    let count = list(devices, "constraints").len();
    if count > MAX_CONSTRAINTS {
        errors.push(Error::too_many(constraints, count, MAX_CONSTRAINTS));
    }
    let configs = path.child("config");
    for (i, one) in objects(devices, "config") {
        references(one, &requests, &configs.index(i), errors);
        opaque(one, &configs.index(i), errors);
    }
    let count = list(devices, "config").len();
    if count > MAX_CONFIGS {
        errors.push(Error::too_many(configs, count, MAX_CONFIGS));
    }
}

fn references(one: &Map, requests: &Requests<'_>, path: &Path<'_>, errors: &mut ErrorList) {
    let path = path.child("requests");
    let key = |value| Value::as_str(value).unwrap_or("");
    set(list(one, "requests"), MAX_REQUESTS, &path, errors, key, |value, path, errors| {
        let reference = value.as_str().unwrap_or("");
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
    });
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
            set(alternatives, MAX_ALTERNATIVES, &path, errors, name, |one, path, errors| {
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
fn selectors(map: &Map, path: &Path<'_>, errors: &mut ErrorList) {
    let path = path.child("selectors");
    for (i, selector) in objects(map, "selectors") {
        let path = path.index(i);
        let path = path.child("cel");
        match object(selector, "cel").map(|cel| text(cel, "expression")) {
            None => errors.push(Error::required(path, "")),
            Some(long) if long.len() > MAX_EXPRESSION => {
                errors.push(Error::too_long(path.child("expression"), MAX_EXPRESSION));
            }
            Some(text) => expressions::device(text, &path.child("expression"), errors),
        }
    }
    let count = list(map, "selectors").len();
    if count > MAX_SELECTORS {
        errors.push(Error::too_many(path, count, MAX_SELECTORS));
    }
}

fn opaque(config: &Map, path: &Path<'_>, errors: &mut ErrorList) {
    let path = path.child("opaque");
    match object(config, "opaque") {
        None => errors.push(Error::required(path, "")),
        Some(opaque) => {
            driver_name(text(opaque, "driver"), &path.child("driver"), errors);
            let path = path.child("parameters");
            match opaque.get("parameters") {
                None | Some(Value::Null) => errors.push(Error::required(path, "")),
                Some(Value::Object(_)) => {}
                Some(_) => errors.push(Error::invalid(path, "<value omitted>", "must be a valid JSON object")),
            }
        }
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
    let metadata = SPEC.child("metadata");
    errors.extend(validate_labels(strings(at(spec, "metadata"), "labels"), &metadata.child("labels")));
    errors.extend(validate_annotations(strings(at(spec, "metadata"), "annotations"), &metadata.child("annotations")));
    let path = SPEC.child("spec");
    devices(at(at(spec, "spec"), "devices"), &path.child("devices"), errors);
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
    let path = SPEC.child("config");
    for (i, config) in objects(spec, "config") {
        opaque(config, &path.index(i), errors);
    }
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

pub(super) fn slice(slice: &Map, errors: &mut ErrorList) {
    slice_spec(at(slice, "spec"), None, errors);
}

pub(super) fn slice_update(new: &Map, old: &Map, errors: &mut ErrorList) {
    slice_spec(at(new, "spec"), Some(at(old, "spec")), errors);
}

fn slice_spec(spec: &Map, old: Option<&Map>, errors: &mut ErrorList) {
    driver_name(text(spec, "driver"), &SPEC.child("driver"), errors);
    let (pool, path) = (at(spec, "pool"), SPEC.child("pool"));
    let pool_name = text(pool, "name");
    if pool_name.is_empty() {
        errors.push(Error::required(path.child("name"), ""));
    } else {
        if pool_name.len() > MAX_POOL_NAME {
            errors.push(Error::too_long(path.child("name"), MAX_POOL_NAME));
        }
        for part in pool_name.split('/') {
            invalid(errors, &path.child("name"), part, is_dns1123_subdomain(part));
        }
    }
    let count = int(pool, "resourceSliceCount").unwrap_or(0);
    if count <= 0 {
        errors.push(Error::invalid(path.child("resourceSliceCount"), count, NOT_POSITIVE));
    }
    let generation = int(pool, "generation").unwrap_or(0);
    if generation < 0 {
        errors.push(Error::invalid(path.child("generation"), generation, "must be greater than or equal to zero"));
    }
    if let Some(old) = old {
        if pool_name != text(at(old, "pool"), "name") {
            errors.push(Error::invalid(path.child("name"), pool_name, IMMUTABLE));
        }
        for key in ["driver", "nodeName"].into_iter().filter(|key| spec.get(key) != old.get(key)) {
            errors.push(Error::invalid(SPEC.child(key), spec.get(key).cloned().unwrap_or_default(), IMMUTABLE));
        }
    }
    placement(spec, errors);
    let path = SPEC.child("devices");
    set(list(spec, "devices"), MAX_DEVICES, &path, errors, name, |device, path, errors| {
        invalid(errors, &path.child("name"), name(device), is_dns1123_label(name(device)));
        let before = old.and_then(|old| objects(old, "devices").find(|(_, old)| text(old, "name") == name(device)));
        device_parts::device(map(device), before.map(|(_, old)| old), path, errors);
    });
}

/// From which nodes the devices can be reached.
fn placement(spec: &Map, errors: &mut ErrorList) {
    let mut set = Vec::new();
    match text(spec, "nodeName") {
        "" if is_set(spec, "nodeName") => {
            let detail = "must be either unset or set to a non-empty string";
            errors.push(Error::invalid(SPEC.child("nodeName"), "", detail));
        }
        "" => {}
        node => {
            set.push("`nodeName`");
            invalid(errors, &SPEC.child("nodeName"), node, name_is_dns_subdomain(node, false));
        }
    }
    if let Some(selector) = object(spec, "nodeSelector") {
        set.push("`nodeSelector`");
        let path = SPEC.child("nodeSelector");
        node_selector(selector, &path, errors);
        if list(selector, "nodeSelectorTerms").len() != 1 {
            let shown = selector.get("nodeSelectorTerms").cloned().unwrap_or_default();
            let detail = "must have exactly one node selector term";
            errors.push(Error::invalid(path.child("nodeSelectorTerms"), shown, detail));
        }
    }
    for (key, told) in [("allNodes", "`allNodes`"), ("perDeviceNodeSelection", "`perDeviceNodeSelection`")] {
        if flag(spec, key) {
            set.push(told);
        } else if is_set(spec, key) {
            errors.push(Error::invalid(SPEC.child(key), false, "must be either unset or set to true"));
        }
    }
    let rule = "exactly one of `nodeName`, `nodeSelector`, `allNodes`, `perDeviceNodeSelection` is required";
    match set.len() {
        0 => errors.push(Error::required(SPEC, rule)),
        1 => {}
        _ => {
            let detail = format!("{rule}, but multiple fields are set");
            errors.push(Error::invalid(SPEC, format!("{{{}}}", set.join(", ")), detail));
        }
    }
}
