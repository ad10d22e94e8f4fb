//! The checks that many kinds share.

use capstan_api::{
    Map, Value,
    field::{Error, ErrorList, Path},
    go,
    validation::{Messages, is_valid_port_name, is_valid_port_num},
};

use super::read::{int, is_set, text};

pub(super) const NEGATIVE: &str = "must be greater than or equal to 0";
pub(super) const IMMUTABLE: &str = "field is immutable";

/// One error for each of the messages about `value`.
pub(super) fn invalid(errors: &mut ErrorList, path: &Path<'_>, value: impl Into<Value>, messages: Messages) {
    let value = value.into();
    errors.extend(messages.into_iter().map(|message| Error::invalid(path, value.clone(), message)));
}

/// A string that must be there and obey `rule`.
pub(super) fn required(
    errors: &mut ErrorList,
    map: &Map,
    key: &str,
    path: &Path<'_>,
    rule: impl FnOnce(&str) -> Messages,
) {
    match text(map, key) {
        "" => errors.push(Error::required(path.child(key), "")),
        value => invalid(errors, &path.child(key), value, rule(value)),
    }
}

/// A string that obeys `rule` if it is there.
pub(super) fn optional(
    errors: &mut ErrorList,
    map: &Map,
    key: &str,
    path: &Path<'_>,
    rule: impl FnOnce(&str) -> Messages,
) {
    if !text(map, key).is_empty() {
        required(errors, map, key, path, rule);
    }
}

/// A string that must be one of `supported`.
pub(super) fn one_of(errors: &mut ErrorList, map: &Map, key: &str, path: &Path<'_>, supported: &[&str]) {
    match text(map, key) {
        "" => errors.push(Error::required(path.child(key), "")),
        value if supported.contains(&value) => {}
        value => errors.push(Error::not_supported(path.child(key), value, supported)),
    }
}

/// The same for what is a pointer in Go: an empty word that was sent is a wrong one.
pub(super) fn one_of_pointer(errors: &mut ErrorList, map: &Map, key: &str, path: &Path<'_>, supported: &[&str]) {
    match is_set(map, key) && text(map, key).is_empty() {
        true => errors.push(Error::not_supported(path.child(key), "", supported)),
        false => one_of(errors, map, key, path, supported),
    }
}

/// Numbers that must not be negative.
pub(super) fn nonnegative(errors: &mut ErrorList, map: &Map, keys: &[&str], path: &Path<'_>) {
    for key in keys {
        if let Some(value) = int(map, key).filter(|value| *value < 0) {
            errors.push(Error::invalid(path.child(key), value, NEGATIVE));
        }
    }
}

/// A port by number or name.
pub(super) fn port(errors: &mut ErrorList, map: &Map, key: &str, path: &Path<'_>) {
    match map.get(key) {
        Some(Value::String(name)) => {
            invalid(errors, &path.child(key), name.as_str(), is_valid_port_name(name));
        }
        value => {
            let number = value.and_then(Value::as_i64).unwrap_or(0);
            invalid(errors, &path.child(key), number, is_valid_port_num(number));
        }
    }
}

/// A label selector as Go prints it, whose labels come before its expressions.
pub(super) fn show_selector(selector: Option<&Map>) -> String {
    let Some(selector) = selector else { return "null".to_owned() };
    let shown = |key: &str| {
        let value = selector.get(key)?;
        is_set(selector, key).then(|| format!("\"{key}\":{}", go::show(value)))
    };
    let parts: Vec<_> = ["matchLabels", "matchExpressions"].into_iter().filter_map(shown).collect();
    format!("{{{}}}", parts.join(","))
}

/// A path without steps to the root or up.
pub(super) fn relative_path(errors: &mut ErrorList, value: &str, path: &Path<'_>) {
    if value.starts_with('/') {
        errors.push(Error::invalid(path, value, "must be a relative path"));
    }
    no_backsteps(errors, value, path);
}

/// A path without steps up.
pub(super) fn no_backsteps(errors: &mut ErrorList, value: &str, path: &Path<'_>) {
    if value.split('/').any(|part| part == "..") {
        errors.push(Error::invalid(path, value, "must not contain '..'"));
    }
}
