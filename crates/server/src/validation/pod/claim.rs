//! Claims of storage that are made from a template.

use capstan_api::{
    Map, Value,
    field::{Error, ErrorList, Path},
    selector::LabelSelector,
    validation::{
        is_dns1123_subdomain, name_is_dns_label, name_is_dns_subdomain, validate_annotations, validate_labels,
    },
};

use crate::validation::{
    read::{at, is_set, list, object, quantity, strings, text},
    rules::invalid,
};

const ACCESS_MODES: &[&str] = &["ReadOnlyMany", "ReadWriteMany", "ReadWriteOnce", "ReadWriteOncePod"];
/// What the metadata of a template may have.
const METADATA: &[&str] = &["annotations", "labels"];

pub(super) fn template(template: &Map, path: &Path<'_>, errors: &mut ErrorList) {
    let metadata = at(template, "metadata");
    let metadata_path = path.child("metadata");
    errors.extend(validate_annotations(strings(metadata, "annotations"), &metadata_path.child("annotations")));
    errors.extend(validate_labels(strings(metadata, "labels"), &metadata_path.child("labels")));
    for key in metadata.keys().filter(|key| !METADATA.contains(key) && is_set(metadata, key)) {
        errors.push(Error::forbidden(metadata_path.child(key), "cannot be set"));
    }
    spec(at(template, "spec"), &path.child("spec"), errors);
}

/// The spec of a claim.
pub(in crate::validation) fn spec(spec: &Map, path: &Path<'_>, errors: &mut ErrorList) {
    let modes: Vec<_> = list(spec, "accessModes").iter().filter_map(Value::as_str).collect();
    let modes_path = path.child("accessModes");
    if modes.is_empty() {
        errors.push(Error::required(modes_path, "at least 1 access mode is required"));
    }
    if let Some(selector) = object(spec, "selector") {
        errors.extend(LabelSelector::from_map(selector).validate(&path.child("selector")));
    }
    for mode in modes.iter().filter(|mode| !ACCESS_MODES.contains(mode)) {
        errors.push(Error::not_supported(modes_path, *mode, ACCESS_MODES));
    }
    let single = |mode: &&str| *mode == "ReadWriteOncePod";
    if modes.iter().any(single) && modes.iter().any(|mode| !single(mode) && ACCESS_MODES.contains(mode)) {
        errors.push(Error::forbidden(modes_path, "may not use ReadWriteOncePod with other access modes"));
    }
    let storage_path = path.child("resources");
    let storage_path = storage_path.key("storage");
    match at(at(spec, "resources"), "requests").get("storage").and_then(quantity) {
        None => errors.push(Error::required(storage_path, "")),
        Some(amount) if amount.signum() <= 0 => {
            errors.push(Error::invalid(storage_path, amount.to_string(), "must be greater than zero"));
        }
        Some(_) => {}
    }
    let class = text(spec, "storageClassName");
    if !class.is_empty() {
        invalid(errors, &path.child("storageClassName"), class, name_is_dns_subdomain(class, false));
    }
    let modes = ["Block", "Filesystem"];
    if is_set(spec, "volumeMode") && !modes.contains(&text(spec, "volumeMode")) {
        errors.push(Error::not_supported(path.child("volumeMode"), text(spec, "volumeMode"), &modes));
    }
    sources(spec, path, errors);
    let class = text(spec, "volumeAttributesClassName");
    if !class.is_empty() {
        invalid(errors, &path.child("volumeAttributesClassName"), class, name_is_dns_subdomain(class, false));
    }
}

fn sources(spec: &Map, path: &Path<'_>, errors: &mut ErrorList) {
    for key in ["dataSource", "dataSourceRef"] {
        if let Some(source) = object(spec, key) {
            data_source(source, &path.child(key), errors);
        }
    }
    let (source, reference) = (object(spec, "dataSource"), object(spec, "dataSourceRef"));
    let (Some(source), Some(reference)) = (source, reference) else { return };
    let same = ["apiGroup", "kind", "name"].iter().all(|key| text(source, key) == text(reference, key));
    // The path itself is printed, as a struct without fields that are seen.
    if !text(reference, "namespace").is_empty() {
        let detail = "may not be specified when dataSourceRef.namespace is specified";
        errors.push(Error::invalid_shown(path, "{}", detail));
    } else if !same {
        errors.push(Error::invalid_shown(path, "{}", "must match dataSourceRef"));
    }
}

fn data_source(source: &Map, path: &Path<'_>, errors: &mut ErrorList) {
    for key in ["name", "kind"] {
        if text(source, key).is_empty() {
            errors.push(Error::required(path.child(key), ""));
        }
    }
    let (group, kind) = (text(source, "apiGroup"), text(source, "kind"));
    if group.is_empty() {
        if kind != "PersistentVolumeClaim" {
            let detail = "must be 'PersistentVolumeClaim' when referencing the default apiGroup";
            errors.push(Error::invalid(path, kind, detail));
        }
    } else {
        invalid(errors, &path.child("apiGroup"), group, is_dns1123_subdomain(group));
    }
    let namespace = text(source, "namespace");
    if !namespace.is_empty() {
        invalid(errors, &path.child("namespace"), namespace, name_is_dns_label(namespace, false));
    }
}
