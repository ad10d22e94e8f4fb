//! What drivers have: slices of pools of devices, and the counters that devices share.

use capstan_api::{
    Map, Value,
    field::{Error, ErrorList, Path},
    go,
    validation::{is_dns1123_label, name_is_dns_subdomain},
};

use super::{
    device::{map, quoted_name, set},
    device_parts::{attributes, binding, entries, pool_name, taints},
    read::{at, flag, int, is_set, list, object, objects, text},
    rules::{IMMUTABLE, invalid, required},
    shape::list as show_list,
    volume::{NOT_POSITIVE, TERM, driver_name, node_selector},
};

const SPEC: Path<'static> = Path::new("spec");
const MAX_DEVICES: usize = 128;
/// If one of the devices has taints or counters.
const MAX_ADVANCED_DEVICES: usize = 64;
const MAX_COUNTER_SETS: usize = 8;
const MAX_CONSUMED_SETS: usize = 2;
const MAX_COUNTERS: usize = 32;

pub(super) fn create(slice: &Map, errors: &mut ErrorList) {
    validate(at(slice, "spec"), None, errors);
}

pub(super) fn update(new: &Map, old: &Map, errors: &mut ErrorList) {
    validate(at(new, "spec"), Some(at(old, "spec")), errors);
}

fn validate(spec: &Map, old: Option<&Map>, errors: &mut ErrorList) {
    driver_name(text(spec, "driver"), &SPEC.child("driver"), errors);
    pool(at(spec, "pool"), errors);
    if let Some(old) = old {
        stays(spec, old, errors);
    }
    placement(spec, errors);
    if is_set(spec, "sharedCounters") && is_set(spec, "devices") {
        errors.push(Error::invalid(SPEC, "", "only one of `sharedCounters` or `devices` is allowed"));
    }
    let has = |device: &Map, key: &str| !list(device, key).is_empty();
    let advanced = |(_, device): (_, &Map)| has(device, "taints") || has(device, "consumesCounters");
    let max = if objects(spec, "devices").any(advanced) { MAX_ADVANCED_DEVICES } else { MAX_DEVICES };
    let per_device = flag(spec, "perDeviceNodeSelection");
    set(list(spec, "devices"), max, &SPEC.child("devices"), errors, quoted_name, |device, path, errors| {
        let device = map(device);
        let same_name = |(_, old): &(_, &Map)| text(old, "name") == text(device, "name");
        let before = old.and_then(|old| objects(old, "devices").find(same_name));
        validate_device(device, before.map(|(_, old)| old), per_device, path, errors);
    });
    let counter_sets = list(spec, "sharedCounters");
    set(counter_sets, MAX_COUNTER_SETS, &SPEC.child("sharedCounters"), errors, quoted_name, |one, path, errors| {
        counters(map(one), "name", path, errors);
    });
}

fn pool(pool: &Map, errors: &mut ErrorList) {
    let path = SPEC.child("pool");
    pool_name(text(pool, "name"), &path.child("name"), errors);
    let count = int(pool, "resourceSliceCount").unwrap_or(0);
    if count <= 0 {
        errors.push(Error::invalid(path.child("resourceSliceCount"), count, NOT_POSITIVE));
    }
    let generation = int(pool, "generation").unwrap_or(0);
    if generation < 0 {
        errors.push(Error::invalid(path.child("generation"), generation, "must be greater than or equal to zero"));
    }
}

/// Whose slice it is does not change.
fn stays(spec: &Map, old: &Map, errors: &mut ErrorList) {
    let [pool, old_pool] = [spec, old].map(|spec| text(at(spec, "pool"), "name"));
    if pool != old_pool {
        errors.push(Error::invalid(SPEC.child("pool").child("name"), pool, IMMUTABLE));
    }
    if text(spec, "driver") != text(old, "driver") {
        errors.push(Error::invalid(SPEC.child("driver"), text(spec, "driver"), IMMUTABLE));
    }
    let [node, old_node] = [spec, old].map(|spec| spec.get("nodeName").cloned().unwrap_or_default());
    if node != old_node {
        errors.push(Error::invalid(SPEC.child("nodeName"), node, IMMUTABLE));
    }
}

/// Adds to `chosen` what is said of the nodes from which devices can be reached.
fn nodes(of: &Map, path: &Path<'_>, empty: &str, chosen: &mut Vec<&str>, errors: &mut ErrorList) {
    match text(of, "nodeName") {
        "" if is_set(of, "nodeName") => errors.push(Error::invalid(path.child("nodeName"), "", empty)),
        "" => {}
        node => {
            chosen.push("`nodeName`");
            invalid(errors, &path.child("nodeName"), node, name_is_dns_subdomain(node, false));
        }
    }
    if let Some(selector) = object(of, "nodeSelector") {
        chosen.push("`nodeSelector`");
        node_selector(selector, &path.child("nodeSelector"), errors);
    }
}

fn true_or_unset<'a>(
    of: &Map,
    (key, told): (&str, &'a str),
    path: &Path<'_>,
    chosen: &mut Vec<&'a str>,
    errors: &mut ErrorList,
) {
    if flag(of, key) {
        chosen.push(told);
    } else if is_set(of, key) {
        errors.push(Error::invalid(path.child(key), false, "must be either unset or set to true"));
    }
}

/// From which nodes the devices can be reached.
fn placement(spec: &Map, errors: &mut ErrorList) {
    let mut chosen = Vec::new();
    nodes(spec, &SPEC, "must be either unset or set to a non-empty string", &mut chosen, errors);
    if let Some(selector) = object(spec, "nodeSelector").filter(|one| list(one, "nodeSelectorTerms").len() != 1) {
        let shown = show_list(selector.get("nodeSelectorTerms"), TERM);
        let path = SPEC.child("nodeSelector");
        let detail = "must have exactly one node selector term";
        errors.push(Error::invalid_shown(path.child("nodeSelectorTerms"), shown, detail));
    }
    for flag in [("allNodes", "`allNodes`"), ("perDeviceNodeSelection", "`perDeviceNodeSelection`")] {
        true_or_unset(spec, flag, &SPEC, &mut chosen, errors);
    }
    let rule = "exactly one of `nodeName`, `nodeSelector`, `allNodes`, `perDeviceNodeSelection` is required";
    match chosen.len() {
        0 => errors.push(Error::required(SPEC, rule)),
        1 => {}
        _ => {
            let detail = format!("{rule}, but multiple fields are set");
            errors.push(Error::invalid(SPEC, format!("{{{}}}", chosen.join(", ")), detail));
        }
    }
}

fn validate_device(device: &Map, old: Option<&Map>, per_device: bool, path: &Path<'_>, errors: &mut ErrorList) {
    let name = text(device, "name");
    invalid(errors, &path.child("name"), name, is_dns1123_label(name));
    attributes(device, path, errors);
    if old.is_none_or(|old| old.get("taints") != device.get("taints")) {
        taints(device, path, errors);
    }
    let consumed = list(device, "consumesCounters");
    let key = |one: &Value| go::quote(text(map(one), "counterSet"));
    set(consumed, MAX_CONSUMED_SETS, &path.child("consumesCounters"), errors, key, |one, path, errors| {
        counters(map(one), "counterSet", path, errors);
    });
    device_placement(device, per_device, path, errors);
    binding(device, path, errors);
}

/// A device says from where it can be reached if the slice leaves it to the devices, and only then.
fn device_placement(device: &Map, per_device: bool, path: &Path<'_>, errors: &mut ErrorList) {
    if !per_device {
        if ["nodeName", "nodeSelector", "allNodes"].iter().any(|key| is_set(device, key)) {
            let detail = "`nodeName`, `nodeSelector` and `allNodes` can only be set if `perDeviceNodeSelection` is set \
                          to true in the ResourceSlice spec";
            errors.push(Error::invalid(path, Value::Null, detail));
        }
        return;
    }
    let mut chosen = Vec::new();
    nodes(device, path, "must not be empty", &mut chosen, errors);
    true_or_unset(device, ("allNodes", "`allNodes`"), path, &mut chosen, errors);
    let rule = "exactly one of `nodeName`, `nodeSelector`, or `allNodes` is required when `perDeviceNodeSelection` is \
                set to true in the ResourceSlice spec";
    match chosen.len() {
        0 => errors.push(Error::required(path, rule)),
        1 => {}
        _ => errors.push(Error::invalid(path, format!("{{{}}}", chosen.join(", ")), rule)),
    }
}

/// Counters of a set that has a name, or of which a device takes some.
fn counters(of: &Map, name: &str, path: &Path<'_>, errors: &mut ErrorList) {
    required(errors, of, name, path, is_dns1123_label);
    let path = path.child("counters");
    let counters = entries(of, "counters");
    match counters.len() {
        0 => errors.push(Error::required(path, "")),
        1..=MAX_COUNTERS => counters.for_each(|(name, _)| invalid(errors, &path, name, is_dns1123_label(name))),
        many => errors.push(Error::too_many(path, many, MAX_COUNTERS)),
    }
}
