//! The environment of a container.

use capstan_api::{
    Map,
    field::{Error, ErrorList, Path},
    validation::{is_config_map_key, is_qualified_name, is_relaxed_env_var_name, name_is_dns_subdomain},
};

use crate::validation::{
    read::{is_set, object, objects, text},
    rules::{invalid, optional, required},
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
        field_ref(field, &path.child("fieldRef"), errors);
    }
    if let Some(resource) = object(source, "resourceFieldRef") {
        resource_ref(resource, &path.child("resourceFieldRef"), errors);
    }
    for key in ["configMapKeyRef", "secretKeyRef"] {
        if let Some(selector) = object(source, key) {
            let path = path.child(key);
            let name = text(selector, "name");
            invalid(errors, &path.child("name"), name, name_is_dns_subdomain(name, false));
            required(errors, selector, "key", &path, is_config_map_key);
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

fn field_ref(field: &Map, path: &Path<'_>, errors: &mut ErrorList) {
    for key in ["apiVersion", "fieldPath"] {
        if text(field, key).is_empty() {
            errors.push(Error::required(path.child(key), ""));
            return;
        }
    }
    let name = text(field, "fieldPath");
    let subscript = name.strip_suffix("']").and_then(|name| name.split_once("['"));
    match subscript {
        Some(("metadata.annotations", key)) => {
            let key = key.to_lowercase();
            invalid(errors, path, key.as_str(), is_qualified_name(&key));
        }
        Some(("metadata.labels", key)) => invalid(errors, path, key, is_qualified_name(key)),
        _ if FIELDS.contains(&name) => {}
        // Fields that are known, but only to volumes.
        _ if ["metadata.annotations", "metadata.labels"].contains(&name) => {
            errors.push(Error::not_supported(path.child("fieldPath"), name, FIELDS));
        }
        _ => {
            let detail = format!("error converting fieldPath: field label not supported: {name}");
            errors.push(Error::invalid(path.child("fieldPath"), name, detail));
        }
    }
}

fn resource_ref(field: &Map, path: &Path<'_>, errors: &mut ErrorList) {
    match text(field, "resource") {
        "" => errors.push(Error::required(path.child("resource"), "")),
        name if RESOURCES.contains(&name) || HUGE_PAGES.iter().any(|prefix| name.starts_with(prefix)) => {}
        name => errors.push(Error::not_supported(path.child("resource"), name, RESOURCES)),
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
