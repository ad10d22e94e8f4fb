//! What a device is made of: attributes, capacities, taints, conditions; and what tolerates taints.

use std::{borrow::Cow, collections::BTreeSet};

use capstan_api::{
    Map, Value,
    field::{Error, ErrorList, Path},
    go,
    validation::{is_c_identifier, is_dns1123_subdomain, is_valid_label_value, validate_label_name},
};

use super::{
    device::{each, map},
    device_capacity,
    read::{is_set, list, object, text},
    rules::invalid,
    show::{Field, json, show},
    volume::driver_name,
};

const MAX_ID: usize = 32;
const MAX_VALUE: usize = 64;
const MAX_PARTS: usize = 32;
const MAX_ATTRIBUTE_VALUES: usize = 48;
const MAX_TAINTS: usize = 16;
const MAX_BINDING_CONDITIONS: usize = 4;
const MAX_POOL_NAME: usize = 253;
/// A domain, a slash and a name.
const MAX_SHOWN_KEY: usize = 63 + 1 + MAX_ID;
/// How long an identifier is that is written as usual.
const UUID: usize = 36;
const EFFECTS: [&str; 3] = ["NoExecute", "NoSchedule", "None"];
/// How Go prints an attribute. Nothing has the lists.
const ATTRIBUTE: &[Field] = &[
    ("IntValue", "int", "null"),
    ("BoolValue", "bool", "null"),
    ("StringValue", "string", "null"),
    ("VersionValue", "version", "null"),
    ("IntValues", "", "null"),
    ("BoolValues", "", "null"),
    ("StringValues", "", "null"),
    ("VersionValues", "", "null"),
];

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
        // A type of its own in Go, which is printed as JSON.
        errors.push(Error::invalid_shown(path, json(&name.into()), detail));
    }
}

fn c_identifier(id: &str, path: &Path<'_>, errors: &mut ErrorList) {
    if id.len() > MAX_ID {
        errors.push(Error::too_long(path, MAX_ID));
    }
    invalid(errors, path, id, is_c_identifier(id));
}

pub(super) fn entries<'a>(map: &'a Map, key: &str) -> impl ExactSizeIterator<Item = (&'a str, &'a Map)> {
    let empty = super::read::empty();
    object(map, key).unwrap_or(empty).iter().map(move |(name, value)| (name, value.as_object().unwrap_or(empty)))
}

/// The parts of a pool's name are those of a domain's.
pub(super) fn pool_name(name: &str, path: &Path<'_>, errors: &mut ErrorList) {
    if name.is_empty() {
        return errors.push(Error::required(path, ""));
    }
    if name.len() > MAX_POOL_NAME {
        errors.push(Error::too_long(path, MAX_POOL_NAME));
    }
    for part in name.split('/') {
        invalid(errors, path, part, is_dns1123_subdomain(part));
    }
}

/// A key as it is told in a path: of a long one the middle is left out.
fn short(key: &str) -> Cow<'_, str> {
    if key.len() <= MAX_SHOWN_KEY {
        return key.into();
    }
    let rest = MAX_SHOWN_KEY - "...".len();
    let (bytes, end) = (key.as_bytes(), key.len() - rest / 2);
    String::from_utf8_lossy(&[&bytes[..rest.div_ceil(2)], b"...", &bytes[end..]].concat()).into_owned().into()
}

/// The attributes and capacities of a device.
pub(super) fn attributes(device: &Map, path: &Path<'_>, errors: &mut ErrorList) {
    let attributes = entries(device, "attributes");
    for (count, max, what) in [
        (attributes.len() + entries(device, "capacity").len(), MAX_PARTS, "attributes and capacities"),
        (attributes.len(), MAX_ATTRIBUTE_VALUES, "attribute values"),
    ] {
        if count > max {
            let detail = format!("the total number of {what} must not exceed {max}");
            errors.push(Error::invalid(path, count as i64, detail));
        }
    }
    let path_of = path.child("attributes");
    for (name, value) in attributes {
        qualified_name(name, &path_of, errors);
        attribute(value, &path_of.key(&short(name)), errors);
    }
    let shared = super::read::flag(device, "allowMultipleAllocations");
    let path_of = path.child("capacity");
    for (name, capacity) in entries(device, "capacity") {
        qualified_name(name, &path_of, errors);
        let Some(policy) = object(capacity, "requestPolicy") else { continue };
        let name = short(name);
        let path = path_of.key(&name);
        let path = path.child("requestPolicy");
        if shared {
            device_capacity::policy(policy, capacity, &path, errors);
        } else {
            errors.push(Error::forbidden(path, "allowMultipleAllocations must be true"));
        }
    }
}

/// An attribute has one value. Lists of values are of a feature that is off: upstream drops them before it looks.
fn attribute(attribute: &Map, path: &Path<'_>, errors: &mut ErrorList) {
    if text(attribute, "string").len() > MAX_VALUE {
        errors.push(Error::too_long(path.child("string"), MAX_VALUE));
    }
    if is_set(attribute, "version") {
        let (version, path) = (text(attribute, "version"), path.child("version"));
        if !is_semver(version) {
            errors.push(Error::invalid(path, version, "must be a string compatible with semver.org spec 2.0.0"));
        }
        if version.len() > MAX_VALUE {
            errors.push(Error::too_long(path, MAX_VALUE));
        }
    }
    let detail = "exactly one value must be specified";
    match ATTRIBUTE.iter().filter(|(_, key, _)| is_set(attribute, key)).count() {
        1 => {}
        0 => errors.push(Error::invalid(path, "", detail)),
        _ => errors.push(Error::invalid_shown(path, show(attribute, ATTRIBUTE), detail)),
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

/// Conditions that a device waits for, and those that end the wait: none twice, and neither without the other.
pub(super) fn binding(of: &Map, path: &Path<'_>, errors: &mut ErrorList) {
    const KEYS: [&str; 2] = ["bindingConditions", "bindingFailureConditions"];
    for key in KEYS {
        each(list(of, key), MAX_BINDING_CONDITIONS, &path.child(key), errors, |one, path, errors| {
            errors.extend(validate_label_name(one.as_str().unwrap_or(""), path));
        });
    }
    let [good, bad] = KEYS.map(|key| list(of, key));
    for (items, key) in [(good, KEYS[0]), (bad, KEYS[1])] {
        let path = path.child(key);
        let mut seen = BTreeSet::new();
        for (i, one) in items.iter().enumerate() {
            let text = one.as_str().unwrap_or("");
            if !seen.insert(text) {
                errors.push(Error::duplicate(path.index(i), text));
            }
            if key == KEYS[1] && good.contains(one) {
                let detail = "bindingFailureConditions must not overlap with bindingConditions";
                errors.push(Error::invalid(path.index(i), text, detail));
            }
        }
    }
    for (missing, there) in [(KEYS[0], KEYS[1]), (KEYS[1], KEYS[0])] {
        if list(of, missing).is_empty() && !list(of, there).is_empty() {
            let detail = format!("{missing} are required to use {there}");
            errors.push(Error::invalid(path.child(missing), Value::Null, detail));
        }
    }
}

/// An identifier in its usual form.
pub(super) fn uid(uid: &str, path: &Path<'_>, errors: &mut ErrorList) {
    if let Err(why) = is_uuid(uid.as_bytes()) {
        errors.push(Error::invalid(path, uid, format!("error validating uid: {why}")));
    } else if uid.len() != UUID || uid != uid.to_lowercase() {
        let detail = "uid must be in RFC 4122 normalized form, `xxxxxxxx-xxxx-xxxx-xxxx-xxxxxxxxxxxx` with lowercase \
                      hexadecimal characters";
        errors.push(Error::invalid(path, uid, detail));
    }
}

/// All the forms that Go's parser takes: also in braces, as a URN, and without hyphens.
fn is_uuid(uid: &[u8]) -> Result<(), String> {
    const URN: &[u8] = b"urn:uuid:";
    let plain = match uid.len() {
        UUID | 32 => uid,
        45 if uid[..URN.len()].eq_ignore_ascii_case(URN) => &uid[URN.len()..],
        45 => {
            let prefix = String::from_utf8_lossy(&uid[..URN.len()]);
            return Err(format!("invalid urn prefix: {}", go::quote(&prefix)));
        }
        38 if uid.starts_with(b"{") && uid.ends_with(b"}") => &uid[1..=UUID],
        38 => return Err("invalid bracketed UUID format".to_owned()),
        length => return Err(format!("invalid UUID length: {length}")),
    };
    let fits = |(i, c): (usize, &u8)| match i {
        8 | 13 | 18 | 23 if plain.len() == UUID => *c == b'-',
        _ => c.is_ascii_hexdigit(),
    };
    if plain.iter().enumerate().all(fits) { Ok(()) } else { Err("invalid UUID format".to_owned()) }
}

pub(super) fn taints(device: &Map, path: &Path<'_>, errors: &mut ErrorList) {
    each(list(device, "taints"), MAX_TAINTS, &path.child("taints"), errors, |one, path, errors| {
        taint(map(one), path, errors);
    });
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
