//! Endpoints, in their old form and in slices.

use std::collections::BTreeSet;

use capstan_api::{
    Map, Value,
    field::{Error, ErrorList, Path},
    validation::{
        is_dns1123_label, is_fully_qualified_domain_name, is_qualified_name, is_valid_ip, is_valid_label_value,
        is_valid_port_num, name_is_dns_subdomain,
    },
};

use super::{
    address::{Known, endpoint_ip, legacy_ip, parse_ip},
    read::{int, is_set, list, object, objects, text},
    rules::{IMMUTABLE, invalid, one_of, optional},
};

const PROTOCOLS: &[&str] = &["SCTP", "TCP", "UDP"];
const MAX_ADDRESSES: usize = 100;
const MAX_PORTS: usize = 20_000;
const MAX_ENDPOINTS: usize = 1_000;
const MAX_HINTS: usize = 8;

pub(super) fn endpoints(endpoints: &Map, errors: &mut ErrorList) {
    let path = Path::new("subsets");
    for (i, subset) in objects(endpoints, "subsets") {
        let path = path.index(i);
        let kinds = ["addresses", "notReadyAddresses"];
        if kinds.iter().all(|kind| list(subset, kind).is_empty()) {
            errors.push(Error::required(path, "must specify `addresses` or `notReadyAddresses`"));
        }
        for kind in kinds {
            let path = path.child(kind);
            for (i, one) in objects(subset, kind) {
                address(one, &path.index(i), errors);
            }
        }
        let ports_path = path.child("ports");
        for (i, one) in objects(subset, "ports") {
            port(one, list(subset, "ports").len() > 1, &ports_path.index(i), errors);
        }
    }
}

/// What is wrong already may stay as long as nothing changes.
pub(super) fn endpoints_update(new: &Map, old: &Map, errors: &mut ErrorList) {
    if list(new, "subsets") != list(old, "subsets") {
        endpoints(new, errors);
    }
}

fn address(address: &Map, path: &Path<'_>, errors: &mut ErrorList) {
    let ip = text(address, "ip");
    legacy_ip(errors, &path.child("ip"), ip, &Known::new());
    optional(errors, address, "hostname", path, is_dns1123_label);
    node_name(address, path, errors);
    endpoint_ip(errors, &path.child("ip"), ip);
}

fn node_name(address: &Map, path: &Path<'_>, errors: &mut ErrorList) {
    if is_set(address, "nodeName") {
        let name = text(address, "nodeName");
        invalid(errors, &path.child("nodeName"), name, name_is_dns_subdomain(name, false));
    }
}

fn port(port: &Map, need_name: bool, path: &Path<'_>, errors: &mut ErrorList) {
    if need_name && text(port, "name").is_empty() {
        errors.push(Error::required(path.child("name"), ""));
    }
    optional(errors, port, "name", path, is_dns1123_label);
    let number = int(port, "port").unwrap_or(0);
    invalid(errors, &path.child("port"), number, is_valid_port_num(number));
    one_of(errors, port, "protocol", path, PROTOCOLS);
    app_protocol(port, path, errors);
}

fn app_protocol(port: &Map, path: &Path<'_>, errors: &mut ErrorList) {
    if is_set(port, "appProtocol") {
        let protocol = text(port, "appProtocol");
        invalid(errors, &path.child("appProtocol"), protocol, is_qualified_name(protocol));
    }
}

pub(super) fn slice(slice: &Map, errors: &mut ErrorList) {
    address_type(slice, errors);
    slice_ports(slice, errors);
    slice_endpoints(slice, errors);
}

/// What is wrong already may stay as long as nothing changes.
pub(super) fn slice_update(new: &Map, old: &Map, errors: &mut ErrorList) {
    address_type(new, errors);
    slice_ports(new, errors);
    if list(new, "endpoints") != list(old, "endpoints") {
        slice_endpoints(new, errors);
    }
    let ty = text(new, "addressType");
    if ty != text(old, "addressType") {
        errors.push(Error::invalid("addressType", ty, IMMUTABLE));
    }
}

fn address_type(slice: &Map, errors: &mut ErrorList) {
    match text(slice, "addressType") {
        "" => errors.push(Error::required("addressType", "")),
        "IPv4" | "IPv6" | "FQDN" => {}
        ty => errors.push(Error::not_supported("addressType", ty, &["FQDN", "IPv4", "IPv6"])),
    }
}

fn slice_ports(slice: &Map, errors: &mut ErrorList) {
    let path = Path::new("ports");
    let count = list(slice, "ports").len();
    if count > MAX_PORTS {
        return errors.push(Error::too_many(path, count, MAX_PORTS));
    }
    let mut names = BTreeSet::new();
    for (i, port) in objects(slice, "ports") {
        let path = path.index(i);
        optional(errors, port, "name", &path, is_dns1123_label);
        let name = text(port, "name");
        if !names.insert(name) {
            errors.push(Error::duplicate(path.child("name"), name));
        }
        if is_set(port, "protocol") && !PROTOCOLS.contains(&text(port, "protocol")) {
            errors.push(Error::not_supported(path.child("protocol"), text(port, "protocol"), PROTOCOLS));
        } else if !is_set(port, "protocol") {
            errors.push(Error::required(path.child("protocol"), ""));
        }
        app_protocol(port, &path, errors);
    }
}

fn slice_endpoints(slice: &Map, errors: &mut ErrorList) {
    let path = Path::new("endpoints");
    let count = list(slice, "endpoints").len();
    if count > MAX_ENDPOINTS {
        return errors.push(Error::too_many(path, count, MAX_ENDPOINTS));
    }
    for (i, endpoint) in objects(slice, "endpoints") {
        let path = path.index(i);
        let addresses = path.child("addresses");
        match list(endpoint, "addresses").len() {
            0 => errors.push(Error::required(addresses, "must contain at least 1 address")),
            1..=MAX_ADDRESSES => {}
            count => errors.push(Error::too_many(addresses, count, MAX_ADDRESSES)),
        }
        for (i, value) in list(endpoint, "addresses").iter().enumerate() {
            slice_address(text(slice, "addressType"), value, &addresses, i, errors);
        }
        node_name(endpoint, &path, errors);
        if is_set(endpoint, "hostname") {
            let name = text(endpoint, "hostname");
            invalid(errors, &path.child("hostname"), name, is_dns1123_label(name));
        }
        if let Some(hints) = object(endpoint, "hints") {
            let path = path.child("hints");
            if hint(hints, "forZones", is_valid_label_value, &path, errors) {
                hint(hints, "forNodes", |name| name_is_dns_subdomain(name, false), &path, errors);
            }
        }
    }
}

fn slice_address(ty: &str, value: &Value, path: &Path<'_>, i: usize, errors: &mut ErrorList) {
    let (place, value) = (path.index(i), value.as_str().unwrap_or(""));
    let before = errors.len();
    match ty {
        "IPv4" => legacy_ip(errors, &place, value, &Known::new()),
        "IPv6" => errors.extend(is_valid_ip(&place, value)),
        "FQDN" => return errors.extend(is_fully_qualified_domain_name(&place, value)),
        _ => return,
    }
    if errors.len() > before {
        return;
    }
    if parse_ip(value).is_some_and(|ip| ip.is_ipv4() != (ty == "IPv4")) {
        errors.push(Error::invalid(path, value, format!("must be an {ty} address")));
    }
    endpoint_ip(errors, &place, value);
}

/// Whether the rest is worth looking at.
fn hint(hints: &Map, key: &str, rule: impl Fn(&str) -> Vec<String>, path: &Path<'_>, errors: &mut ErrorList) -> bool {
    let path = path.child(key);
    let count = list(hints, key).len();
    if count > MAX_HINTS {
        errors.push(Error::too_many(path, count, MAX_HINTS));
        return false;
    }
    let mut seen = BTreeSet::new();
    for (i, one) in objects(hints, key) {
        let (path, name) = (path.index(i), text(one, "name"));
        if !seen.insert(name) {
            errors.push(Error::duplicate(path.child("name"), name));
        }
        invalid(errors, &path.child("name"), name, rule(name));
    }
    true
}
