//! Claims for persistent volumes.

use capstan_api::{
    Map, Quantity, Value,
    field::{Error, ErrorList, Path},
    selector::LabelSelector,
    validation::{is_dns1123_subdomain, is_qualified_name, name_is_dns_label, name_is_dns_subdomain},
};

use super::{
    diff::diff,
    read::{at, is_set, list, object, quantity, strings, text},
    rules::{IMMUTABLE, NEGATIVE, invalid, optional, required},
    shape::{Field, NIL, Shape, TEXT, show},
    volume::{NOT_POSITIVE, VOLUME_MODES, access_modes, basic_amount, fixed_mode},
};

const SPEC: Path<'static> = Path::new("spec");
const STATUS: Path<'static> = Path::new("status");
const CLASS: &str = "storageClassName";
const ATTRIBUTES: &str = "volumeAttributesClassName";
/// The annotation that named the class before there was a field.
const OLD_CLASS: &str = "volume.beta.kubernetes.io/storage-class";
const RESIZES: &[&str] = &[
    "ControllerResizeInProgress",
    "ControllerResizeInfeasible",
    "NodeResizeInProgress",
    "NodeResizeInfeasible",
    "NodeResizePending",
];

const REFERENCE: &[Field] = &[("APIGroup", "apiGroup", NIL), ("Kind", "kind", TEXT), ("Name", "name", TEXT)];
const FULL_REFERENCE: &[Field] =
    &[("APIGroup", "apiGroup", NIL), ("Kind", "kind", TEXT), ("Name", "name", TEXT), ("Namespace", "namespace", NIL)];
const CLAIM: &[Field] = &[
    ("AccessModes", "accessModes", NIL),
    ("Selector", "selector", Shape::Selector),
    ("Resources", "resources", Shape::Struct(&[("Limits", "limits", NIL), ("Requests", "requests", NIL)])),
    ("VolumeName", "volumeName", TEXT),
    ("StorageClassName", CLASS, NIL),
    ("VolumeMode", "volumeMode", NIL),
    ("DataSource", "dataSource", Shape::Pointer(REFERENCE)),
    ("DataSourceRef", "dataSourceRef", Shape::Pointer(FULL_REFERENCE)),
    ("VolumeAttributesClassName", ATTRIBUTES, NIL),
];

pub(super) fn claim(claim: &Map, errors: &mut ErrorList) {
    claim_spec(at(claim, "spec"), &SPEC, false, errors);
}

/// The spec of a claim. Groups of sources are let through where they were there before.
pub(super) fn claim_spec(spec: &Map, path: &Path<'_>, any_group: bool, errors: &mut ErrorList) {
    if list(spec, "accessModes").is_empty() {
        errors.push(Error::required(path.child("accessModes"), "at least 1 access mode is required"));
    }
    if let Some(selector) = object(spec, "selector") {
        errors.extend(LabelSelector::from_map(selector).validate(&path.child("selector")));
    }
    access_modes(spec, path, errors);
    let storage_path = path.child("resources");
    let storage_path = storage_path.key("storage");
    match at(at(spec, "resources"), "requests").get("storage").and_then(quantity) {
        None => errors.push(Error::required(storage_path, "")),
        Some(size) if size.signum() <= 0 => {
            errors.push(Error::invalid(storage_path, size.to_string(), NOT_POSITIVE));
        }
        Some(_) => {}
    }
    optional(errors, spec, CLASS, path, |name| name_is_dns_subdomain(name, false));
    let mode = text(spec, "volumeMode");
    if is_set(spec, "volumeMode") && !VOLUME_MODES.contains(&mode) {
        errors.push(Error::not_supported(path.child("volumeMode"), mode, VOLUME_MODES));
    }
    let (source, reference) = (object(spec, "dataSource"), object(spec, "dataSourceRef"));
    for (key, source) in [("dataSource", source), ("dataSourceRef", reference)] {
        if let Some(source) = source {
            data_source(source, any_group, &path.child(key), errors);
        }
    }
    if let (Some(source), Some(reference)) = (source, reference) {
        let same = ["apiGroup", "kind", "name"].iter().all(|key| source.get(key) == reference.get(key));
        // What is shown is a path, which has nothing to show.
        if !text(reference, "namespace").is_empty() {
            let detail = "may not be specified when dataSourceRef.namespace is specified";
            errors.push(Error::invalid_shown(path, "{}", detail));
        } else if !same {
            errors.push(Error::invalid_shown(path, "{}", "must match dataSourceRef"));
        }
    }
    optional(errors, spec, ATTRIBUTES, path, |name| name_is_dns_subdomain(name, false));
}

fn data_source(source: &Map, any_group: bool, path: &Path<'_>, errors: &mut ErrorList) {
    required(errors, source, "name", path, |_| Vec::new());
    required(errors, source, "kind", path, |_| Vec::new());
    let (group, kind) = (text(source, "apiGroup"), text(source, "kind"));
    if group.is_empty() && kind != "PersistentVolumeClaim" {
        let detail = "must be 'PersistentVolumeClaim' when referencing the default apiGroup";
        errors.push(Error::invalid(path, kind, detail));
    }
    if !any_group {
        optional(errors, source, "apiGroup", path, is_dns1123_subdomain);
    }
    optional(errors, source, "namespace", path, |name| name_is_dns_label(name, false));
}

fn size(map: &Map) -> Quantity {
    let zero = || Quantity::new(0, capstan_api::quantity::Format::DecimalSI);
    map.get("storage").and_then(quantity).unwrap_or_else(zero)
}

pub(super) fn claim_update(new: &Map, old: &Map, errors: &mut ErrorList) {
    let (spec, before) = (at(new, "spec"), at(old, "spec"));
    let has_group = |key: &&str| is_set(at(before, key), "apiGroup");
    claim_spec(spec, &SPEC, ["dataSource", "dataSourceRef"].iter().any(has_group), errors);
    let (mut fixed, mut fixed_before) = (spec.clone(), before.clone());
    let keep = |to: &mut Map, from: &Map, key: &str| match from.get(key) {
        Some(value) => drop(to.insert(key, value.clone())),
        None => drop(to.remove(key)),
    };
    if text(before, "volumeName").is_empty() {
        keep(&mut fixed_before, spec, "volumeName");
    }
    let annotation = |claim| at(at(claim, "metadata"), "annotations").get(OLD_CLASS).and_then(Value::as_str);
    let (annotated, annotated_before) = (annotation(new), annotation(old));
    let class = spec.get(CLASS).and_then(Value::as_str);
    let had_class = is_set(before, CLASS);
    let from_annotation = annotated_before.is_some()
        && !had_class
        && class == annotated_before
        && (annotated.is_none() || annotated == annotated_before);
    if from_annotation {
        fixed.remove(CLASS);
    } else {
        if annotated.unwrap_or("") != annotated_before.unwrap_or("") {
            let path = Path::new("metadata");
            let path = path.child("annotations");
            errors.push(Error::invalid(path.child(OLD_CLASS), annotated.unwrap_or(""), IMMUTABLE));
        }
        if class.is_some() && !had_class && (annotated_before.is_none() || class == annotated_before) {
            keep(&mut fixed, before, CLASS);
        }
    }
    let requests = |spec| at(at(spec, "resources"), "requests");
    if text(at(new, "status"), "phase") == "Bound" {
        keep(&mut fixed, before, ATTRIBUTES);
        let asked = fixed.get_mut("resources").and_then(|resources| resources.get_mut("requests"));
        if let Some(asked) = asked.and_then(Value::as_object_mut) {
            keep(asked, requests(before), "storage");
        }
    }
    let (shown, shown_before) = (show(&fixed, CLAIM), show(&fixed_before, CLAIM));
    if shown != shown_before {
        let diff = diff(&shown_before, &shown);
        let rule = "spec is immutable after creation except resources.requests and volumeAttributesClassName for bound";
        errors.push(Error::forbidden(SPEC, format!("{rule} claims\n{diff}")));
    }
    let asked = size(requests(spec));
    if asked < size(requests(before)) && asked <= size(at(at(old, "status"), "capacity")) {
        let path = SPEC.child("resources");
        let path = path.child("requests");
        errors.push(Error::forbidden(path.child("storage"), "field can not be less than status.capacity"));
    }
    fixed_mode(spec, before, errors);
    attributes(spec, before, at(old, "status"), errors);
}

fn attributes(spec: &Map, before: &Map, status: &Map, errors: &mut ErrorList) {
    if spec.get(ATTRIBUTES) == before.get(ATTRIBUTES) || !is_set(status, "currentVolumeAttributesClassName") {
        return;
    }
    let what = match (is_set(spec, ATTRIBUTES), text(spec, ATTRIBUTES)) {
        (false, _) => "nil",
        (true, "") => "empty string",
        _ => return,
    };
    let detail = format!("update to {what} is forbidden when status.currentVolumeAttributesClassName is not nil");
    errors.push(Error::forbidden(SPEC.child(ATTRIBUTES), detail));
}

/// Only storage can be resized, or what is not Kubernetes' own.
fn resized(name: &str, path: &Path<'_>, errors: &mut ErrorList) -> bool {
    let before = errors.len();
    invalid(errors, path, name, is_qualified_name(name));
    let native = !name.contains('/') || name.contains("kubernetes.io/");
    if errors.len() == before && native && name != "storage" {
        errors.push(Error::not_supported(path, name, &["storage"]));
    }
    errors.len() == before
}

pub(super) fn status(new: &Map, _: &Map, errors: &mut ErrorList) {
    if list(at(new, "spec"), "accessModes").is_empty() {
        errors.push(Error::required(Path::new("Spec").child("accessModes"), ""));
    }
    let status = at(new, "status");
    let path = STATUS.child("capacity");
    for (name, value) in at(status, "capacity").iter() {
        basic_amount(value, &path.key(name), errors);
    }
    let path = STATUS.child("allocatedResourceStatuses");
    for (name, value) in strings(status, "allocatedResourceStatuses") {
        resized(name, &path, errors);
        if !RESIZES.contains(&value) {
            errors.push(Error::not_supported(path, name, RESIZES));
        }
    }
    let path = STATUS.child("allocatedResources");
    for (name, value) in at(status, "allocatedResources").iter() {
        if !resized(name, &path, errors) {
            continue;
        }
        let before = errors.len();
        basic_amount(value, &path.key(name), errors);
        let amount = quantity(value).filter(|amount| amount.signum() < 0);
        if let Some(amount) = amount.filter(|_| errors.len() == before) {
            errors.push(Error::invalid(path.key(name), amount.to_string(), NEGATIVE));
        }
    }
}
