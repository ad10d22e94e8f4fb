//! Storage classes and what drivers say of themselves.

use std::collections::{BTreeMap, BTreeSet};

use capstan_api::{
    Map, Value,
    field::{Error, ErrorList, Path},
    selector::LabelSelector,
    validation::{is_qualified_name, name_is_dns_subdomain, validate_label_name},
};

use super::{
    read::{at, int, is_set, list, object, objects, quantity, strings, text},
    rules::{IMMUTABLE, NEGATIVE, invalid, nonnegative, one_of_pointer, show_selector},
    shape::{Field, NIL, Shape, TEXT, show},
    volume::{driver_name, volume_spec},
};

const SPEC: Path<'static> = Path::new("spec");
const MAX_PARAMETERS_SIZE: usize = 256 * 1024;
const MAX_PARAMETERS: usize = 512;
const MAX_ATTACHMENT_METADATA: usize = 256 * 1024;
const MAX_ERROR_MESSAGE: usize = 1024;
const MAX_NODE_ID: usize = 256;
/// Ten minutes.
const MIN_TOKEN_SECONDS: i64 = 600;
const MAX_TOKEN_SECONDS: i64 = 1 << 32;
/// How often it is said of one term that it is there already.
const MAX_REPEATED: usize = 100;
const MIN_UPDATE_SECONDS: i64 = 10;

fn provisioner(object: &Map, key: &str, errors: &mut ErrorList) {
    match text(object, key).to_lowercase() {
        name if name.is_empty() => errors.push(Error::required(key, "")),
        name => {
            let messages = is_qualified_name(&name);
            invalid(errors, &Path::new(key), name, messages);
        }
    }
}

fn parameters(object: &Map, may_be_empty: bool, errors: &mut ErrorList) {
    let path = Path::new("parameters");
    let map = at(object, "parameters");
    if map.len() > MAX_PARAMETERS {
        return errors.push(Error::too_long(path, MAX_PARAMETERS));
    }
    if map.contains_key("") {
        errors.push(Error::invalid(path, "", "field can not be empty."));
    }
    if size(object, "parameters") > MAX_PARAMETERS_SIZE {
        errors.push(Error::too_long(path, MAX_PARAMETERS_SIZE));
    }
    if map.is_empty() && !may_be_empty {
        errors.push(Error::required(path, "must contain at least one key/value pair"));
    }
}

fn size(object: &Map, key: &str) -> usize {
    strings(object, key).map(|(key, value)| key.len() + value.len()).sum()
}

pub(super) fn class(class: &Map, errors: &mut ErrorList) {
    provisioner(class, "provisioner", errors);
    parameters(class, true, errors);
    let policy = text(class, "reclaimPolicy");
    if !["", "Delete", "Retain"].contains(&policy) {
        errors.push(Error::not_supported("reclaimPolicy", policy, &["Delete", "Retain"]));
    }
    if is_set(class, "volumeBindingMode") {
        let (mode, known) = (text(class, "volumeBindingMode"), ["Immediate", "WaitForFirstConsumer"]);
        if !known.contains(&mode) {
            errors.push(Error::not_supported("volumeBindingMode", mode, &known));
        }
    } else {
        errors.push(Error::required("volumeBindingMode", ""));
    }
    topologies(class, errors);
}

fn topologies(class: &Map, errors: &mut ErrorList) {
    let path = Path::new("allowedTopologies");
    let mut seen: BTreeMap<BTreeMap<&str, BTreeSet<&str>>, usize> = BTreeMap::new();
    for (i, term) in objects(class, "allowedTopologies") {
        let path = path.index(i);
        let path = path.child("matchLabelExpressions");
        let mut keys = BTreeMap::new();
        for (i, one) in objects(term, "matchLabelExpressions") {
            let path = path.index(i);
            let values_path = path.child("values");
            if list(one, "values").is_empty() {
                errors.push(Error::required(values_path, ""));
            }
            let mut values = BTreeSet::new();
            for (i, value) in list(one, "values").iter().filter_map(Value::as_str).enumerate() {
                if !values.insert(value) {
                    errors.push(Error::duplicate(values_path.index(i), value));
                }
            }
            let key = text(one, "key");
            errors.extend(validate_label_name(key, &path.child("key")));
            if keys.insert(key, values).is_some() {
                errors.push(Error::duplicate(path.child("key"), key));
            }
        }
        // Upstream begins with as many empty terms as there are terms.
        let empty = if keys.is_empty() { list(class, "allowedTopologies").len() } else { 0 };
        let times = seen.entry(keys).or_default();
        for _ in 0..(*times + empty).min(MAX_REPEATED) {
            errors.push(Error::duplicate(path, ""));
        }
        *times += 1;
    }
}

/// A field at the top that stays as it is.
fn fixed(new: &Map, old: &Map, key: &str, path: impl ToString, errors: &mut ErrorList) {
    let is_empty = |value: &Value| matches!(value, Value::Object(map) if map.is_empty()) || value.is_null();
    let [after, before] = [new, old].map(|map| map.get(key).filter(|value| !is_empty(value)));
    if after != before {
        errors.push(Error::invalid(path, new.get(key).cloned().unwrap_or_default(), IMMUTABLE));
    }
}

pub(super) fn class_update(new: &Map, old: &Map, errors: &mut ErrorList) {
    for key in ["parameters", "provisioner", "reclaimPolicy", "volumeBindingMode"] {
        fixed(new, old, key, key, errors);
    }
}

pub(super) fn attributes_class(class: &Map, errors: &mut ErrorList) {
    provisioner(class, "driverName", errors);
    parameters(class, false, errors);
}

pub(super) fn attributes_class_update(new: &Map, old: &Map, errors: &mut ErrorList) {
    for key in ["driverName", "parameters"].into_iter().filter(|key| new.get(key) != old.get(key)) {
        errors.push(Error::forbidden(key, format!("updates to {key} are forbidden.")));
    }
}

pub(super) fn attachment(attachment: &Map, errors: &mut ErrorList) {
    let spec = at(attachment, "spec");
    driver_name(text(spec, "attacher"), &SPEC.child("attacher"), errors);
    let path = SPEC.child("source");
    let source = at(spec, "source");
    let detail = "must specify exactly one of inlineVolumeSpec and persistentVolumeName";
    let (inline, name) =
        (object(source, "inlineVolumeSpec"), source.get("persistentVolumeName").and_then(Value::as_str));
    match (inline, name) {
        (None, None) => errors.push(Error::required(path, detail)),
        (Some(_), Some(_)) => errors.push(Error::forbidden(path, detail)),
        (None, Some("")) => {
            let detail = "must specify non empty persistentVolumeName";
            errors.push(Error::required(path.child("persistentVolumeName"), detail));
        }
        (None, Some(_)) => {}
        (Some(inline), None) => volume_spec(inline, None, &path.child("inlineVolumeSpec"), errors),
    }
    let node = text(spec, "nodeName");
    invalid(errors, &SPEC.child("nodeName"), node, name_is_dns_subdomain(node, false));
    attachment_status(at(attachment, "status"), errors);
    if let Some(name) = name {
        let path = path.child("persistentVolumeName");
        invalid(errors, &path, name, name_is_dns_subdomain(name, false));
    }
}

fn attachment_status(status: &Map, errors: &mut ErrorList) {
    let path = Path::new("status");
    if size(status, "attachmentMetadata") > MAX_ATTACHMENT_METADATA {
        errors.push(Error::too_long(path.child("attachmentMetadata"), MAX_ATTACHMENT_METADATA));
    }
    for key in ["attachError", "detachError"] {
        let (path, error) = (path.child(key), at(status, key));
        if text(error, "message").len() > MAX_ERROR_MESSAGE {
            // What is told is another limit.
            errors.push(Error::too_long(path.child("message"), MAX_ATTACHMENT_METADATA));
        }
        if let Some(code) = int(error, "errorCode").filter(|code| *code < 0) {
            let detail = format!("must be between 0 and {}, inclusive", i32::MAX);
            errors.push(Error::invalid(path.child("errorCode"), code, detail));
        }
    }
}

const ATTACHMENT: &[Field] = &[
    ("Attacher", "attacher", TEXT),
    (
        "Source",
        "source",
        Shape::Struct(&[
            ("PersistentVolumeName", "persistentVolumeName", NIL),
            ("InlineVolumeSpec", "inlineVolumeSpec", NIL),
        ]),
    ),
    ("NodeName", "nodeName", TEXT),
];

pub(super) fn attachment_update(new: &Map, old: &Map, errors: &mut ErrorList) {
    attachment(new, errors);
    if at(new, "spec") != at(old, "spec") {
        errors.push(Error::invalid_shown(SPEC, show(at(new, "spec"), ATTACHMENT), IMMUTABLE));
    }
}

pub(super) fn driver(driver: &Map, errors: &mut ErrorList) {
    let spec = at(driver, "spec");
    for (key, name) in [
        ("attachRequired", "attachedRequired"),
        ("podInfoOnMount", "podInfoOnMount"),
        ("storageCapacity", "storageCapacity"),
    ] {
        if !is_set(spec, key) {
            errors.push(Error::required(SPEC.child(name), ""));
        }
    }
    if is_set(spec, "fsGroupPolicy") {
        one_of_pointer(errors, spec, "fsGroupPolicy", &SPEC, &["File", "None", "ReadWriteOnceWithFSType"]);
    }
    let path = SPEC.child("tokenRequests");
    let mut audiences = BTreeSet::new();
    for (i, request) in objects(spec, "tokenRequests") {
        let path = path.index(i);
        let audience = text(request, "audience");
        if !audiences.insert(audience) {
            errors.push(Error::duplicate(path.child("audience"), audience));
            continue;
        }
        let Some(seconds) = int(request, "expirationSeconds") else { continue };
        if seconds < MIN_TOKEN_SECONDS {
            let detail = "may not specify a duration less than 10 minutes";
            errors.push(Error::invalid(path.child("expirationSeconds"), seconds, detail));
        }
        if seconds > MAX_TOKEN_SECONDS {
            let detail = "may not specify a duration larger than 2^32 seconds";
            errors.push(Error::invalid(path.child("expirationSeconds"), seconds, detail));
        }
    }
    let modes = ["Persistent", "Ephemeral"];
    for mode in list(spec, "volumeLifecycleModes").iter().filter_map(Value::as_str) {
        if !modes.contains(&mode) {
            errors.push(Error::not_supported(SPEC.child("volumeLifecycleModes"), mode, &modes));
        }
    }
    if !is_set(spec, "seLinuxMount") {
        errors.push(Error::required(SPEC.child("seLinuxMount"), ""));
    }
    const PERIOD: &str = "nodeAllocatableUpdatePeriodSeconds";
    if let Some(period) = int(spec, PERIOD).filter(|period| *period < MIN_UPDATE_SECONDS) {
        errors.push(Error::invalid(SPEC.child(PERIOD), period, "must be greater than or equal to 10 seconds"));
    }
    const IN_SECRETS: &str = "serviceAccountTokenInSecrets";
    if is_set(spec, IN_SECRETS) && list(spec, "tokenRequests").is_empty() {
        let detail = "serviceAccountTokenInSecrets is set but no tokenRequests are specified";
        let value = spec.get(IN_SECRETS).cloned().unwrap_or_default();
        errors.push(Error::invalid(SPEC.child(IN_SECRETS), value, detail));
    }
}

pub(super) fn driver_update(new: &Map, old: &Map, errors: &mut ErrorList) {
    let (new, old) = (at(new, "spec"), at(old, "spec"));
    fixed(new, old, "attachRequired", SPEC.child("attachedRequired"), errors);
    fixed(new, old, "volumeLifecycleModes", SPEC.child("volumeLifecycleModes"), errors);
}

pub(super) fn node(node: &Map, errors: &mut ErrorList) {
    let path = SPEC.child("drivers");
    let mut names = BTreeSet::new();
    for (i, driver) in objects(at(node, "spec"), "drivers") {
        let path = path.index(i);
        let name = text(driver, "name");
        driver_name(name, &path.child("name"), errors);
        match text(driver, "nodeID") {
            "" => errors.push(Error::required(path.child("nodeID"), "")),
            id if id.len() > MAX_NODE_ID => {
                let detail = format!("must be {MAX_NODE_ID} characters or less");
                errors.push(Error::invalid(path.child("nodeID"), id, detail));
            }
            _ => {}
        }
        nonnegative(errors, at(driver, "allocatable"), &["count"], &path.child("allocatable"));
        if !names.insert(name) {
            errors.push(Error::duplicate(path.child("name"), name));
        }
        let mut keys = BTreeSet::new();
        for key in list(driver, "topologyKeys").iter().filter_map(Value::as_str) {
            if key.is_empty() {
                errors.push(Error::required(path, ""));
            }
            if !keys.insert(key) {
                errors.push(Error::duplicate(path, key));
            }
            invalid(errors, &path, key, is_qualified_name(key));
        }
    }
}

const NODE_DRIVER: &[Field] = &[
    ("Name", "name", TEXT),
    ("NodeID", "nodeID", TEXT),
    ("TopologyKeys", "topologyKeys", NIL),
    ("Allocatable", "", NIL),
];

/// A driver stays as it is on a node, but for how much it can take.
pub(super) fn node_update(new: &Map, old: &Map, errors: &mut ErrorList) {
    node(new, errors);
    for (_, before) in objects(at(old, "spec"), "drivers") {
        for (_, driver) in objects(at(new, "spec"), "drivers") {
            let shown = show(driver, NODE_DRIVER);
            if text(driver, "name") == text(before, "name") && shown != show(before, NODE_DRIVER) {
                errors.push(Error::invalid_shown(SPEC.child("drivers"), shown, IMMUTABLE));
            }
        }
    }
}

pub(super) fn capacity(capacity: &Map, errors: &mut ErrorList) {
    if let Some(selector) = object(capacity, "nodeTopology") {
        errors.extend(LabelSelector::from_map(selector).validate(&Path::new("nodeTopology")));
    }
    let class = text(capacity, "storageClassName");
    invalid(errors, &Path::new("storageClassName"), class, name_is_dns_subdomain(class, false));
    let amount = capacity.get("capacity").and_then(quantity).filter(|amount| amount.signum() < 0);
    if let Some(amount) = amount {
        errors.push(Error::invalid("capacity", amount.to_string(), NEGATIVE));
    }
}

pub(super) fn capacity_update(new: &Map, old: &Map, errors: &mut ErrorList) {
    let [topology, before] = [new, old].map(|capacity| object(capacity, "nodeTopology"));
    if topology != before {
        errors.push(Error::invalid_shown("nodeTopology", show_selector(topology), IMMUTABLE));
    }
    fixed(new, old, "storageClassName", "storageClassName", errors);
}
