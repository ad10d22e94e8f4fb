//! What a device is made of: attributes, capacities, taints; and what tolerates them.

use capstan_api::{
    Map, Value,
    field::{Error, ErrorList, Path},
    validation::{is_c_identifier, is_valid_label_value, validate_label_name},
};

use super::{
    read::{is_set, list, object, objects, text},
    rules::invalid,
    volume::driver_name,
};

const MAX_ID: usize = 32;
const MAX_VALUE: usize = 64;
const MAX_PARTS: usize = 32;
const MAX_TAINTS: usize = 16;
const EFFECTS: [&str; 3] = ["NoExecute", "NoSchedule", "None"];
const VALUES: [&str; 8] = ["bool", "int", "string", "version", "bools", "ints", "strings", "versions"];

/// A name that may have a domain in front.
pub(super) fn qualified_name(name: &str, path: &Path<'_>, errors: &mut ErrorList) {
    match name.split('/').collect::<Vec<_>>().as_slice() {
        [id] => c_identifier(id, path, errors),
        [domain, id] => {
            match *domain {
                "" => errors.push(Error::invalid(path, "", "the domain must not be empty")),
                domain => driver_name(domain, path, errors),
            }
            match *id {
                "" => errors.push(Error::invalid(path, "", "the name must not be empty")),
                id => c_identifier(id, path, errors),
            }
        }
        _ => {}
    }
}

/// A name that must have a domain in front.
pub(super) fn fully_qualified_name(name: &str, path: &Path<'_>, errors: &mut ErrorList) {
    qualified_name(name, path, errors);
    if !name.contains('/') {
        let detail = "a fully qualified name must be a domain and a name separated by a slash";
        errors.push(Error::invalid(path, name, detail));
    }
}

fn c_identifier(id: &str, path: &Path<'_>, errors: &mut ErrorList) {
    if id.len() > MAX_ID {
        errors.push(Error::too_long(path, MAX_ID));
    }
    invalid(errors, path, id, is_c_identifier(id));
}

fn entries<'a>(map: &'a Map, key: &str) -> impl Iterator<Item = (&'a str, &'a Map)> {
    let empty = super::read::empty();
    object(map, key).unwrap_or(empty).iter().map(move |(name, value)| (name, value.as_object().unwrap_or(empty)))
}

/// All but the name of a device.
pub(super) fn device(device: &Map, old: Option<&Map>, path: &Path<'_>, errors: &mut ErrorList) {
    let count = entries(device, "attributes").count() + entries(device, "capacity").count();
    if count > MAX_PARTS {
        let detail = format!("the total number of attributes and capacities must not exceed {MAX_PARTS}");
        errors.push(Error::invalid(path, count as i64, detail));
    }
    let attributes = path.child("attributes");
    for (name, value) in entries(device, "attributes") {
        qualified_name(name, &attributes, errors);
        attribute(value, &attributes.key(name), errors);
    }
    let shared = super::read::flag(device, "allowMultipleAllocations");
    let capacities = path.child("capacity");
    for (name, capacity) in entries(device, "capacity") {
        qualified_name(name, &capacities, errors);
        if is_set(capacity, "requestPolicy") && !shared {
            let path = capacities.key(name);
            errors.push(Error::forbidden(path.child("requestPolicy"), "allowMultipleAllocations must be true"));
        }
    }
    if old.is_none_or(|old| old.get("taints") != device.get("taints")) {
        let path = path.child("taints");
        let count = list(device, "taints").len();
        if count > MAX_TAINTS {
            return errors.push(Error::too_many(path, count, MAX_TAINTS));
        }
        for (i, one) in objects(device, "taints") {
            taint(one, &path.index(i), errors);
        }
    }
}

fn attribute(attribute: &Map, path: &Path<'_>, errors: &mut ErrorList) {
    let mut short = |value: &str, is_version: bool, path: &Path<'_>| {
        if is_version && !is_semver(value) {
            errors.push(Error::invalid(path, value, "must be a string compatible with semver.org spec 2.0.0"));
        }
        if value.len() > MAX_VALUE {
            errors.push(Error::too_long(path, MAX_VALUE));
        }
    };
    for (one, many) in [("string", "strings"), ("version", "versions")] {
        if is_set(attribute, one) {
            short(text(attribute, one), one == "version", &path.child(one));
        }
        let path = path.child(many);
        for (i, value) in list(attribute, many).iter().filter_map(Value::as_str).enumerate() {
            short(value, many == "versions", &path.index(i));
        }
    }
    match VALUES.iter().filter(|key| is_set(attribute, key)).count() {
        1 => {}
        0 => errors.push(Error::invalid(path, "", "exactly one value must be specified")),
        _ => errors.push(Error::invalid(path, attribute.clone(), "exactly one value must be specified")),
    }
}

/// Three numbers without zeros in front, and what may follow them.
fn is_semver(text: &str) -> bool {
    let (rest, build) = text.split_once('+').map_or((text, None), |(rest, build)| (rest, Some(build)));
    let (numbers, before) = rest.split_once('-').map_or((rest, None), |(numbers, before)| (numbers, Some(before)));
    let digits = |part: &str| !part.is_empty() && part.bytes().all(|byte| byte.is_ascii_digit());
    let number = |part: &str| digits(part) && (part == "0" || !part.starts_with('0'));
    let word = |part: &str| !part.is_empty() && part.bytes().all(|byte| byte.is_ascii_alphanumeric() || byte == b'-');
    let numbers: Vec<&str> = numbers.split('.').collect();
    numbers.len() == 3
        && numbers.iter().all(|part| number(part))
        && before.is_none_or(|before| before.split('.').all(|part| word(part) && (!digits(part) || number(part))))
        && build.is_none_or(|build| build.split('.').all(word))
}

fn taint(taint: &Map, path: &Path<'_>, errors: &mut ErrorList) {
    errors.extend(validate_label_name(text(taint, "key"), &path.child("key")));
    let value = text(taint, "value");
    invalid(errors, &path.child("value"), value, is_valid_label_value(value));
    match text(taint, "effect") {
        "" => errors.push(Error::required(path.child("effect"), "")),
        effect if EFFECTS.contains(&effect) => {}
        effect => errors.push(Error::not_supported(path.child("effect"), effect, &EFFECTS)),
    }
}

pub(super) fn toleration(toleration: &Map, path: &Path<'_>, errors: &mut ErrorList) {
    let (key, value) = (text(toleration, "key"), text(toleration, "value"));
    if !key.is_empty() {
        errors.extend(validate_label_name(key, &path.child("key")));
    }
    match text(toleration, "operator") {
        "Exists" if value.is_empty() => {}
        "Exists" => errors.push(Error::invalid(path.child("value"), value, "must be empty for operator `Exists`")),
        "Equal" => invalid(errors, &path.child("value"), value, is_valid_label_value(value)),
        "" => errors.push(Error::required(path.child("operator"), "")),
        operator => errors.push(Error::not_supported(path.child("operator"), operator, &["Equal", "Exists"])),
    }
    match text(toleration, "effect") {
        "" => {}
        effect if EFFECTS.contains(&effect) => {}
        effect => errors.push(Error::not_supported(path.child("effect"), effect, &EFFECTS)),
    }
}
