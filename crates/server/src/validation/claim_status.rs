//! The status of claims: which devices one got, for whom, and what the drivers say of them.

use std::{collections::BTreeSet, net::IpAddr};

use capstan_api::{
    Map, Value,
    field::{Error, ErrorList, Path},
    go,
    validation::is_dns1123_label,
};

use super::{
    address::{parse_cidr, parse_ip},
    device::{self, Requests, each, map, opaque, raw, reference, references, set},
    device_parts::{binding, pool_name, uid},
    read::{at, is_set, list, object, objects, text},
    rules::{IMMUTABLE, invalid, one_of},
    shape::{self, Field, NIL, Shape, TEXT},
    show::{self, json},
    status::conditions,
    volume::{TERM, driver_name, node_selector},
};

const STATUS: Path<'static> = Path::new("status");
const MAX_CONSUMERS: usize = 256;
const MAX_RESULTS: usize = 32;
/// Those of the class and those of the claim.
const MAX_CONFIGS: usize = 64;
const MAX_CONDITIONS: usize = 8;
const MAX_IPS: usize = 16;
const MAX_INTERFACE_NAME: usize = 256;
const MAX_HARDWARE_ADDRESS: usize = 128;

const TOLERATION: &[Field] = &[
    ("Key", "key", TEXT),
    ("Operator", "operator", TEXT),
    ("Value", "value", TEXT),
    ("Effect", "effect", TEXT),
    ("TolerationSeconds", "tolerationSeconds", NIL),
];
const RESULT: &[Field] = &[
    ("Request", "request", TEXT),
    ("Driver", "driver", TEXT),
    ("Pool", "pool", TEXT),
    ("Device", "device", TEXT),
    ("AdminAccess", "adminAccess", NIL),
    ("Tolerations", "tolerations", Shape::List(TOLERATION)),
    ("BindingConditions", "bindingConditions", NIL),
    ("BindingFailureConditions", "bindingFailureConditions", NIL),
    ("ShareID", "shareID", NIL),
    ("ConsumedCapacity", "consumedCapacity", NIL),
];
const CONFIG: &[Field] = &[
    ("Source", "source", TEXT),
    ("Requests", "requests", NIL),
    ("Opaque", "opaque", Shape::Pointer(&[("Driver", "driver", TEXT), ("Parameters", "parameters", NIL)])),
];
/// How Go prints an allocation.
const ALLOCATION: &[Field] = &[
    (
        "Devices",
        "devices",
        Shape::Struct(&[("Results", "results", Shape::List(RESULT)), ("Config", "config", Shape::List(CONFIG))]),
    ),
    ("NodeSelector", "nodeSelector", Shape::Pointer(&[("NodeSelectorTerms", "nodeSelectorTerms", Shape::List(TERM))])),
    ("AllocationTimestamp", "allocationTimestamp", NIL),
];

pub(super) fn update(new: &Map, old: &Map, errors: &mut ErrorList) {
    let requests = device::requests(at(at(new, "spec"), "devices"));
    let (now, before) = (at(new, "status"), at(old, "status"));
    let path = STATUS.child("reservedFor");
    // A type of its own in Go, which is printed as JSON.
    let key = |one: &Value| json(&text(map(one), "uid").into());
    set(list(now, "reservedFor"), MAX_CONSUMERS, &path, errors, key, |one, path, errors| {
        for key in ["resource", "name", "uid"] {
            if text(map(one), key).is_empty() {
                errors.push(Error::required(path.child(key), ""));
            }
        }
    });
    devices(now, before, errors);
    let allocation = object(now, "allocation");
    if !list(now, "reservedFor").is_empty() {
        if allocation.is_none() {
            errors.push(Error::forbidden(path, "may not be specified when `allocated` is not set"));
        } else if is_set(at(new, "metadata"), "deletionTimestamp") && !consumers(now).is_subset(&consumers(before)) {
            let detail = "new entries may not be added while `deallocationRequested` or `deletionTimestamp` are set";
            errors.push(Error::forbidden(path, detail));
        }
    }
    let path = STATUS.child("allocation");
    match (allocation, object(before, "allocation")) {
        (Some(now), Some(before)) => {
            let [now, before] = [now, before].map(|one| shape::show(one, ALLOCATION));
            if now != before {
                errors.push(Error::invalid_shown(path, now, IMMUTABLE));
            }
        }
        (Some(now), None) => allocated(now, &requests, &path, errors),
        (None, _) => {}
    }
}

fn consumers(status: &Map) -> BTreeSet<[&str; 4]> {
    let consumer = |one| ["apiGroup", "resource", "name", "uid"].map(|key| text(one, key));
    objects(status, "reservedFor").map(|(_, one)| consumer(one)).collect()
}

/// What tells devices apart, as Go prints it.
fn id(device: &Value) -> String {
    const NONE: &str = "\"\"";
    const ID: &[show::Field] =
        &[("Driver", "driver", NONE), ("Pool", "pool", NONE), ("Device", "device", NONE), ("ShareID", "shareID", NONE)];
    show::show(map(device), ID)
}

fn allocated_ids(status: &Map) -> BTreeSet<String> {
    list(at(at(status, "allocation"), "devices"), "results").iter().map(id).collect()
}

/// What is said of devices. Those that the claim has lost with this change are not looked at: nothing has to be said of
/// them any more.
fn devices(now: &Map, before: &Map, errors: &mut ErrorList) {
    let (has, had) = (allocated_ids(now), allocated_ids(before));
    let lost = |device: &&Value| had.contains(&id(device)) && !has.contains(&id(device));
    let kept: Vec<Value> = list(now, "devices").iter().filter(|device| !lost(device)).cloned().collect();
    set(&kept, usize::MAX, &STATUS.child("devices"), errors, id, |one, path, errors| {
        let device = map(one);
        driver_name(text(device, "driver"), &path.child("driver"), errors);
        pool_name(text(device, "pool"), &path.child("pool"), errors);
        let name = text(device, "device");
        invalid(errors, &path.child("device"), name, is_dns1123_label(name));
        share(device, path, errors);
        if !has.contains(&id(one)) {
            errors.push(Error::invalid_shown(path, id(one), "must be an allocated device in the claim"));
        }
        let count = list(device, "conditions").len();
        if count > MAX_CONDITIONS {
            errors.push(Error::too_many(path.child("conditions"), count, MAX_CONDITIONS));
        }
        conditions(device, &path.child("conditions"), errors);
        if is_set(device, "data") {
            raw(device.get("data"), &path.child("data"), errors);
        }
        network(at(device, "networkData"), &path.child("networkData"), errors);
    });
}

fn share(of: &Map, path: &Path<'_>, errors: &mut ErrorList) {
    if is_set(of, "shareID") {
        uid(text(of, "shareID"), &path.child("shareID"), errors);
    }
}

fn network(data: &Map, path: &Path<'_>, errors: &mut ErrorList) {
    for (key, max) in [("interfaceName", MAX_INTERFACE_NAME), ("hardwareAddress", MAX_HARDWARE_ADDRESS)] {
        if text(data, key).len() > max {
            errors.push(Error::too_long(path.child(key), max));
        }
    }
    let key = |one: &Value| go::quote(one.as_str().unwrap_or(""));
    set(list(data, "ips"), MAX_IPS, &path.child("ips"), errors, key, |one, path, errors| {
        interface_address(one.as_str().unwrap_or(""), path, errors);
    });
}

/// An address with the size of its network, in the one form that is usual.
fn interface_address(value: &str, path: &Path<'_>, errors: &mut ErrorList) {
    let parsed = parse_cidr(value).zip(value.split_once('/').and_then(|(ip, _)| parse_ip(ip)));
    let Some((cidr, ip)) = parsed else {
        let detail = "must be a valid address in CIDR form, (e.g. 10.9.8.7/24 or 2001:db8::1/64)";
        return errors.push(Error::invalid(path, value, detail));
    };
    // An IPv4 address that is written as one of IPv6 counts the bits of that.
    let length = match ip {
        IpAddr::V4(_) if cidr.length > 32 => cidr.length - 96,
        _ => cidr.length,
    };
    let usual = format!("{ip}/{length}");
    if value != usual {
        errors.push(Error::invalid(path, value, format!("must be in canonical form ({})", go::quote(&usual))));
    }
}

/// What a claim gets.
fn allocated(allocation: &Map, requests: &Requests<'_>, path: &Path<'_>, errors: &mut ErrorList) {
    let (devices, within) = (at(allocation, "devices"), path.child("devices"));
    each(list(devices, "results"), MAX_RESULTS, &within.child("results"), errors, |one, path, errors| {
        let result = map(one);
        reference(text(result, "request"), requests, &path.child("request"), errors);
        driver_name(text(result, "driver"), &path.child("driver"), errors);
        pool_name(text(result, "pool"), &path.child("pool"), errors);
        let name = text(result, "device");
        invalid(errors, &path.child("device"), name, is_dns1123_label(name));
        binding(result, path, errors);
        share(result, path, errors);
    });
    each(list(devices, "config"), MAX_CONFIGS, &within.child("config"), errors, |one, path, errors| {
        one_of(errors, map(one), "source", path, &["FromClaim", "FromClass"]);
        references(map(one), requests, path, errors);
        opaque(map(one), path, errors);
    });
    if let Some(selector) = object(allocation, "nodeSelector") {
        node_selector(selector, &path.child("nodeSelector"), errors);
    }
}
