//! Config maps, secrets and namespaces.

use capstan_api::{
    Map, Value,
    field::{Error, ErrorList, Path},
    json,
    validation::{is_config_map_key, validate_finalizer_name},
};

use super::{
    read::{at, flag, list, strings, text},
    rules::{IMMUTABLE, invalid},
};
use crate::base64;

/// How many bytes the values of a secret or a config map may have.
const MAX_SIZE: usize = 1024 * 1024;
const SEALED: &str = "field is immutable when `immutable` is set";

/// How many bytes some base64 stands for.
fn decoded_len(text: &str) -> usize {
    let padding = text.bytes().rev().take_while(|c| *c == b'=').count();
    text.len().saturating_sub(padding) * 3 / 4
}

fn keys(errors: &mut ErrorList, object: &Map, field: &str, other: Option<&Map>) {
    let path = Path::new(field);
    for key in at(object, field).keys() {
        invalid(errors, &path.key(key), key, is_config_map_key(key));
        if other.is_some_and(|other| other.contains_key(key)) {
            errors.push(Error::invalid(path.key(key), key, "duplicate of key present in binaryData"));
        }
    }
}

pub(super) fn config_map(object: &Map, errors: &mut ErrorList) {
    keys(errors, object, "data", Some(at(object, "binaryData")));
    keys(errors, object, "binaryData", None);
    let data: usize = strings(object, "data").map(|(_, value)| value.len()).sum();
    let binary: usize = strings(object, "binaryData").map(|(_, value)| decoded_len(value)).sum();
    if data + binary > MAX_SIZE {
        errors.push(Error::too_long("[]", MAX_SIZE));
    }
}

/// An object that is sealed stays so, and its data too.
fn sealed(new: &Map, old: &Map, fields: &[&str], errors: &mut ErrorList) {
    if !flag(old, "immutable") {
        return;
    }
    if !flag(new, "immutable") {
        errors.push(Error::forbidden("immutable", SEALED));
    }
    let changed = fields.iter().filter(|field| at(new, field) != at(old, field));
    errors.extend(changed.map(|field| Error::forbidden(field, SEALED)));
}

pub(super) fn config_map_update(new: &Map, old: &Map, errors: &mut ErrorList) {
    sealed(new, old, &["data", "binaryData"], errors);
}

/// The keys that secrets of some types must have.
const SECRET_KEYS: &[(&str, &[&str])] = &[
    ("kubernetes.io/dockercfg", &[".dockercfg"]),
    ("kubernetes.io/dockerconfigjson", &[".dockerconfigjson"]),
    ("kubernetes.io/ssh-auth", &["ssh-privatekey"]),
    ("kubernetes.io/tls", &["tls.crt", "tls.key"]),
];
const BASIC_AUTH: &str = "kubernetes.io/basic-auth";
const TOKEN: &str = "kubernetes.io/service-account-token";
const ACCOUNT_NAME: &str = "kubernetes.io/service-account.name";

/// Why a text is no JSON object.
fn not_an_object(text: &[u8]) -> Option<String> {
    let what = match json::parse(text) {
        Err(error) => return Some(error.to_string()),
        Ok(Value::Object(_) | Value::Null) => return None,
        Ok(Value::Array(_)) => "array",
        Ok(Value::String(_)) => "string",
        Ok(Value::Bool(_)) => "bool",
        Ok(Value::Int(_) | Value::Float(_)) => "number",
    };
    Some(format!("json: cannot unmarshal {what} into Go value of type map[string]interface {{}}"))
}

pub(super) fn secret(object: &Map, errors: &mut ErrorList) {
    keys(errors, object, "data", None);
    let path = Path::new("data");
    if strings(object, "data").map(|(_, value)| decoded_len(value)).sum::<usize>() > MAX_SIZE {
        errors.push(Error::too_long(path, MAX_SIZE));
    }
    let data = at(object, "data");
    let ty = text(object, "type");
    // A private key must not be empty either.
    let missing = |key: &str| match data.get(key) {
        None => true,
        Some(value) => key == "ssh-privatekey" && value.as_str().unwrap_or("").is_empty(),
    };
    let required = SECRET_KEYS.iter().find(|(name, _)| *name == ty).map_or(&[][..], |(_, keys)| keys);
    for key in required.iter().filter(|key| missing(key)) {
        errors.push(Error::required(path.key(key), ""));
    }
    for key in required.iter().filter(|key| key.starts_with(".docker") && !missing(key)) {
        let text = data.get(key).and_then(Value::as_str).unwrap_or_default();
        if let Some(error) = not_an_object(&base64::decode(text).unwrap_or_default()) {
            errors.push(Error::invalid(path.key(key), "<secret contents redacted>", error));
        }
    }
    let basic = ["username", "password"];
    if ty == BASIC_AUTH && basic.into_iter().all(missing) {
        errors.extend(basic.map(|key| Error::required(path.key(key), "")));
    }
    let metadata = Path::new("metadata");
    if ty == TOKEN && text(at(at(object, "metadata"), "annotations"), ACCOUNT_NAME).is_empty() {
        errors.push(Error::required(metadata.child("annotations").key(ACCOUNT_NAME), ""));
    }
}

pub(super) fn secret_update(new: &Map, old: &Map, errors: &mut ErrorList) {
    if text(new, "type") != text(old, "type") {
        errors.push(Error::invalid("type", text(new, "type"), IMMUTABLE));
    }
    sealed(new, old, &["data"], errors);
}

/// A finalizer without a domain must be one of the standard ones.
pub(super) fn finalizer(name: &str, path: &Path<'_>, errors: &mut ErrorList) {
    if !name.contains('/') && !["kubernetes", "orphan", "foregroundDeletion"].contains(&name) {
        let detail = "name is neither a standard finalizer name nor is it fully qualified";
        errors.push(Error::invalid(path, name, detail));
    }
}

/// The finalizers in the metadata of any kind.
pub(super) fn finalizers(metadata: &Map, path: &Path<'_>, errors: &mut ErrorList) {
    for (i, name) in list(metadata, "finalizers").iter().enumerate() {
        finalizer(name.as_str().unwrap_or(""), &path.index(i), errors);
    }
}

pub(super) fn namespace(object: &Map, errors: &mut ErrorList) {
    let path = Path::new("spec");
    let path = path.child("finalizers");
    for name in list(at(object, "spec"), "finalizers").iter().filter_map(Value::as_str) {
        errors.extend(validate_finalizer_name(name, &path));
        finalizer(name, &path, errors);
    }
}
