//! The environment of a container.

use capstan_api::{
    Map,
    field::{Error, ErrorList, Path},
    validation::{
        is_config_map_key, is_dns1123_label, is_qualified_name, is_relaxed_env_var_name, name_is_dns_subdomain,
    },
};

use crate::validation::{
    read::{is_set, object, objects, quantity, text},
    rules::{invalid, no_backsteps, optional, required},
};

const FIELDS: &[&str] = &[
    "metadata.name",
    "metadata.namespace",
    "metadata.uid",
    "spec.nodeName",
    "spec.serviceAccountName",
    "status.hostIP",
    "status.hostIPs",
    "status.podIP",
    "status.podIPs",
];
const RESOURCES: &[&str] = &[
    "limits.cpu",
    "limits.ephemeral-storage",
    "limits.memory",
    "requests.cpu",
    "requests.ephemeral-storage",
    "requests.memory",
];
/// The fields that files can tell of.
pub(super) const VOLUME_FIELDS: &[&str] =
    &["metadata.annotations", "metadata.labels", "metadata.name", "metadata.namespace", "metadata.uid"];
const HUGE_PAGES: &[&str] = &["requests.hugepages-", "limits.hugepages-"];
const SOURCES: &[&str] = &["fieldRef", "resourceFieldRef", "configMapKeyRef", "secretKeyRef", "fileKeyRef"];
const MORE_THAN_ONE: &str = "may not have more than one field specified at a time";

pub(super) fn env(container: &Map, path: &Path<'_>, errors: &mut ErrorList) {
    let path = path.child("env");
    for (i, variable) in objects(container, "env") {
        let path = path.index(i);
        required(errors, variable, "name", &path, is_relaxed_env_var_name);
        if let Some(source) = object(variable, "valueFrom") {
            value_from(source, !text(variable, "value").is_empty(), &path.child("valueFrom"), errors);
        }
    }
}

fn value_from(source: &Map, has_value: bool, path: &Path<'_>, errors: &mut ErrorList) {
    if let Some(field) = object(source, "fieldRef") {
        field_ref(field, FIELDS, &path.child("fieldRef"), errors);
    }
    if let Some(resource) = object(source, "resourceFieldRef") {
        resource_ref(resource, false, &path.child("resourceFieldRef"), errors);
    }
    for key in ["configMapKeyRef", "secretKeyRef"] {
        if let Some(selector) = object(source, key) {
            let path = path.child(key);
            let name = text(selector, "name");
            invalid(errors, &path.child("name"), name, name_is_dns_subdomain(name, false));
            required(errors, selector, "key", &path, is_config_map_key);
        }
    }
    if let Some(file) = object(source, "fileKeyRef") {
        let path = path.child("fileKeyRef");
        required(errors, file, "key", &path, is_relaxed_env_var_name);
        required(errors, file, "volumeName", &path, is_dns1123_label);
        match text(file, "path") {
            "" => errors.push(Error::required(path.child("path"), "")),
            place => no_backsteps(errors, place, &path.child("path")),
        }
    }
    let detail = match SOURCES.iter().filter(|key| is_set(source, key)).count() {
        0 => "must specify one of: `fieldRef`, `resourceFieldRef`, `configMapKeyRef`, `secretKeyRef` or `fileKeyRef`",
        _ if has_value => "may not be specified when `value` is not empty",
        1 => return,
        _ => MORE_THAN_ONE,
    };
    errors.push(Error::invalid(path, "", detail));
}

/// A field of the pod, one of `fields`.
pub(super) fn field_ref(field: &Map, fields: &[&str], path: &Path<'_>, errors: &mut ErrorList) {
    for key in ["apiVersion", "fieldPath"] {
        if text(field, key).is_empty() {
            errors.push(Error::required(path.child(key), ""));
            return;
        }
    }
    let name = text(field, "fieldPath");
    let version = text(field, "apiVersion");
    if version != "v1" {
        let detail = format!("error converting fieldPath: unsupported pod version: {version}");
        return errors.push(Error::invalid(path.child("fieldPath"), name, detail));
    }
    let subscript = name.strip_suffix("']").and_then(|name| name.split_once("['"));
    match subscript {
        Some(("metadata.annotations", key)) => {
            let key = key.to_lowercase();
            invalid(errors, path, key.as_str(), is_qualified_name(&key));
        }
        Some(("metadata.labels", key)) => invalid(errors, path, key, is_qualified_name(key)),
        _ if fields.contains(&name) => {}
        // Fields that are known, but only to others.
        _ if FIELDS.contains(&name) || VOLUME_FIELDS.contains(&name) => {
            errors.push(Error::not_supported(path.child("fieldPath"), name, fields));
        }
        _ => {
            let detail = format!("error converting fieldPath: field label not supported: {name}");
            errors.push(Error::invalid(path.child("fieldPath"), name, detail));
        }
    }
}

const MEMORY_DIVISORS: &[&str] = &["1", "1k", "1M", "1G", "1T", "1P", "1E", "1Ki", "1Mi", "1Gi", "1Ti", "1Pi", "1Ei"];
/// What resources are divided by, and what they are called then.
const DIVISORS: &[(&str, &[&str], &str)] = &[
    ("cpu", &["1m", "1"], "cpu"),
    ("memory", MEMORY_DIVISORS, "memory"),
    ("ephemeral-storage", MEMORY_DIVISORS, "local ephemeral storage"),
    ("hugepages-", MEMORY_DIVISORS, "hugepages"),
];

/// A resource of a container, whose name is needed in a volume.
pub(super) fn resource_ref(field: &Map, volume: bool, path: &Path<'_>, errors: &mut ErrorList) {
    let name = text(field, "resource");
    if volume && text(field, "containerName").is_empty() {
        errors.push(Error::required(path.child("containerName"), ""));
    } else if name.is_empty() {
        errors.push(Error::required(path.child("resource"), ""));
    } else if !RESOURCES.contains(&name) && !HUGE_PAGES.iter().any(|prefix| name.starts_with(prefix)) {
        errors.push(Error::not_supported(path.child("resource"), name, RESOURCES));
    }
    let Some(divisor) = field.get("divisor").and_then(quantity).filter(|divisor| !divisor.is_zero()) else { return };
    let resource = name.strip_prefix("limits.").or_else(|| name.strip_prefix("requests.")).unwrap_or("");
    let row = DIVISORS.iter().find(|row| row.0 == resource || (row.0.ends_with('-') && resource.starts_with(row.0)));
    if let Some((_, known, called)) = row.filter(|row| !row.1.contains(&divisor.to_string().as_str())) {
        let list = known.join(if known.len() == 2 { " and " } else { ", " });
        let detail = format!("only divisor's values {list} are supported with the {called} resource");
        errors.push(Error::invalid(path.child("divisor"), name, detail));
    }
}

pub(super) fn env_from(container: &Map, path: &Path<'_>, errors: &mut ErrorList) {
    let path = path.child("envFrom");
    for (i, source) in objects(container, "envFrom") {
        let item = path.index(i);
        optional(errors, source, "prefix", &item, is_relaxed_env_var_name);
        let mut sources = 0;
        for key in ["configMapRef", "secretRef"] {
            if let Some(reference) = object(source, key) {
                sources += 1;
                required(errors, reference, "name", &item.child(key), |name| name_is_dns_subdomain(name, true));
            }
        }
        // Told of the list, as upstream does.
        match sources {
            0 => errors.push(Error::invalid(path, "", "must specify one of: `configMapRef` or `secretRef`")),
            1 => {}
            _ => errors.push(Error::invalid(path, "", MORE_THAN_ONE)),
        }
    }
}
