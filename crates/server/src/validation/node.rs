//! Nodes, and what finishes namespaces.

use std::collections::BTreeSet;

use capstan_api::{
    Map, Value,
    field::{Error, ErrorList, Path},
    validation::{is_valid_label_value, validate_finalizer_name, validate_label_name},
};

use super::{
    address::{Known, legacy_cidr, parse_cidr},
    config::finalizer,
    limits::amount,
    read::{at, int, is_set, list, objects, text},
    shape::{Field, NIL, TEXT, show},
    volume::NOT_POSITIVE,
};

const META: Path<'static> = Path::new("metadata");
const SPEC: Path<'static> = Path::new("spec");
const STATUS: Path<'static> = Path::new("status");
const EFFECTS: &[&str] = &["NoSchedule", "PreferNoSchedule", "NoExecute"];
const MAX_FEATURE: usize = 253;
const TAINT: &[Field] =
    &[("Key", "key", TEXT), ("Value", "value", TEXT), ("Effect", "effect", TEXT), ("TimeAdded", "timeAdded", NIL)];
const ADDRESS: &[Field] = &[("Type", "type", TEXT), ("Address", "address", TEXT)];

/// A value that is there twice, shown as Go shows the struct.
fn duplicate(path: &Path<'_>, shown: String) -> Error {
    Error { bad_value: None, detail: shown, ..Error::duplicate(path, 0) }
}

fn taints(spec: &Map, errors: &mut ErrorList) {
    let path = META.child("taints");
    let mut seen = BTreeSet::new();
    for (i, taint) in objects(spec, "taints") {
        let path = path.index(i);
        errors.extend(validate_label_name(text(taint, "key"), &path.child("key")));
        let value = text(taint, "value");
        let messages = is_valid_label_value(value);
        if !messages.is_empty() {
            errors.push(Error::invalid(path.child("value"), value, messages.join(";")));
        }
        match text(taint, "effect") {
            "" => errors.push(Error::required(path.child("effect"), "")),
            effect if EFFECTS.contains(&effect) => {}
            effect => errors.push(Error::not_supported(path.child("effect"), effect, EFFECTS)),
        }
        if !seen.insert((text(taint, "effect"), text(taint, "key"))) {
            let shown = format!("{}: taints must be unique by key and effect pair", show(taint, TAINT));
            errors.push(duplicate(&path, shown));
        }
    }
}

fn resources(node: &Map, errors: &mut ErrorList) {
    for key in ["capacity", "allocatable"] {
        let path = STATUS.child(key);
        for (name, value) in at(at(node, "status"), key).iter() {
            amount(name, value, &path.child(name), errors);
        }
    }
}

/// Whether a name is one or more parts in camel case, the first of which begins large.
fn is_feature(name: &str) -> bool {
    let part = |part: &str, first: fn(&u8) -> bool| {
        part.as_bytes().first().is_some_and(first) && part.bytes().all(|c| c.is_ascii_alphanumeric())
    };
    let mut parts = name.split('/');
    parts.next().is_some_and(|first| part(first, u8::is_ascii_uppercase)) && parts.all(|one| part(one, |_| true))
}

fn features(node: &Map, errors: &mut ErrorList) {
    let path = STATUS.child("declaredFeatures");
    let names: Vec<_> = list(at(node, "status"), "declaredFeatures").iter().filter_map(Value::as_str).collect();
    for (i, name) in names.iter().enumerate() {
        let wrong = match name.len() {
            MAX_FEATURE.. if name.len() > MAX_FEATURE => format!("must be no more than {MAX_FEATURE} characters"),
            _ if is_feature(name) => String::new(),
            _ => {
                "must start with an UpperCamelCase segment, with subsequent segments separated by '/' (e.g., MyFeature \
                  or MyFeature/mySubFeature), and contain only alphanumeric characters and slashes"
                    .to_owned()
            }
        };
        if !wrong.is_empty() {
            let detail = format!("invalid feature name {}: {wrong}", capstan_api::go::quote(name));
            errors.push(Error::invalid(path.index(i), *name, detail));
        }
        match names.get(i + 1) {
            Some(next) if next == name => errors.push(Error::duplicate(path.index(i + 1), *next)),
            Some(next) if next < name => {
                errors.push(Error::invalid(path.index(i + 1), *next, "list must be sorted alphabetically"));
            }
            _ => {}
        }
    }
}

pub(super) fn node(node: &Map, errors: &mut ErrorList) {
    let spec = at(node, "spec");
    taints(spec, errors);
    resources(node, errors);
    let swap = at(at(at(node, "status"), "nodeInfo"), "swap");
    if let Some(capacity) = int(swap, "capacity").filter(|capacity| *capacity <= 0) {
        let path = META.child("nodeSwapStatus");
        errors.push(Error::invalid(path.child("capacity"), capacity, NOT_POSITIVE));
    }
    features(node, errors);
    let path = SPEC.child("podCIDRs");
    let cidrs: Vec<_> = list(spec, "podCIDRs").iter().map(|cidr| cidr.as_str().unwrap_or("")).collect();
    for (i, cidr) in cidrs.iter().enumerate() {
        legacy_cidr(errors, &path.index(i), cidr, &Known::new());
    }
    if cidrs.len() > 1 {
        if let Some((i, cidr)) = cidrs.iter().enumerate().find(|(_, cidr)| parse_cidr(cidr).is_none()) {
            let error = format!("invalid CIDR[{i}]: <nil> (invalid CIDR address: {cidr})");
            let detail = format!("invalid PodCIDRs. failed to check with dual stack with error:{error}");
            errors.push(Error::internal(path, detail));
        }
        let families: Option<BTreeSet<_>> = cidrs.iter().map(|cidr| Some(parse_cidr(cidr)?.is_ipv6())).collect();
        if families.is_none_or(|families| families.len() < 2) || cidrs.len() > 2 {
            let shown = spec.get("podCIDRs").cloned().unwrap_or_default();
            errors.push(Error::invalid(path, shown, "may specify no more than one CIDR for each IP family"));
        }
    }
}

/// What may come but not change.
pub(super) fn node_update(new: &Map, old: &Map, errors: &mut ErrorList) {
    resources(new, errors);
    features(new, errors);
    let path = STATUS.child("addresses");
    let mut seen = BTreeSet::new();
    for (i, address) in objects(at(new, "status"), "addresses") {
        if !seen.insert((text(address, "type"), text(address, "address"))) {
            errors.push(duplicate(&path.index(i), show(address, ADDRESS)));
        }
    }
    let (spec, before) = (at(new, "spec"), at(old, "spec"));
    let (cidrs, cidrs_before) = (list(spec, "podCIDRs"), list(before, "podCIDRs"));
    let changed = if cidrs.len() == cidrs_before.len() {
        cidrs.iter().zip(cidrs_before).filter(|(cidr, before)| cidr != before).count()
    } else {
        usize::from(!cidrs_before.is_empty())
    };
    for _ in 0..changed {
        let detail = "node updates may not change podCIDR except from \"\" to valid";
        errors.push(Error::forbidden(SPEC.child("podCIDRs"), detail));
    }
    let provider = text(before, "providerID");
    if !provider.is_empty() && text(spec, "providerID") != provider {
        let detail = "node updates may not change providerID except from \"\" to valid";
        errors.push(Error::forbidden(SPEC.child("providerID"), detail));
    }
    taints(spec, errors);
    if text(spec, "externalID") != text(before, "externalID") {
        errors.push(Error::forbidden(SPEC.child("externalID"), "may not be updated"));
    }
}

pub(super) fn namespace_finalize(new: &Map, _: &Map, errors: &mut ErrorList) {
    let path = SPEC.child("finalizers");
    for (i, name) in list(at(new, "spec"), "finalizers").iter().enumerate() {
        let (name, path) = (name.as_str().unwrap_or(""), path.index(i));
        errors.extend(validate_finalizer_name(name, &path));
        finalizer(name, &path, errors);
    }
}

pub(super) fn namespace_status(new: &Map, _: &Map, errors: &mut ErrorList) {
    let phase = text(at(new, "status"), "phase");
    let (expected, how) =
        if is_set(at(new, "metadata"), "deletionTimestamp") { ("Terminating", "not ") } else { ("Active", "") };
    if phase != expected {
        let detail = format!("may only be '{expected}' if `deletionTimestamp` is {how}empty");
        errors.push(Error::invalid(STATUS.child("Phase"), phase, detail));
    }
}
