//! Network policies, and the addresses of services.

use capstan_api::{
    Map, Value,
    field::{Error, ErrorList, Path},
    selector::LabelSelector,
    validation::{
        Messages, is_dns1123_subdomain, is_path_segment_name, is_valid_cidr, is_valid_ip, is_valid_port_name,
        is_valid_port_num,
    },
};

use super::{
    address::{Known, legacy_cidr, parse_cidr},
    read::{at, int, is_set, list, object, objects, text},
    rules::{IMMUTABLE, invalid, optional, required},
    shape::{Field, TEXT, show},
};

const SPEC: Path<'static> = Path::new("spec");
const DIRECTIONS: [(&str, &str); 2] = [("ingress", "from"), ("egress", "to")];

pub(super) fn policy(policy: &Map, errors: &mut ErrorList) {
    policy_spec(at(policy, "spec"), &Known::new(), errors);
}

/// Networks that are there already may stay.
pub(super) fn policy_update(new: &Map, old: &Map, errors: &mut ErrorList) {
    let mut known = Known::new();
    for (direction, peers) in DIRECTIONS {
        for (_, rule) in objects(at(old, "spec"), direction) {
            for (_, peer) in objects(rule, peers) {
                let block = at(peer, "ipBlock");
                known.insert(text(block, "cidr"));
                known.extend(list(block, "except").iter().filter_map(Value::as_str));
            }
        }
    }
    policy_spec(at(new, "spec"), &known, errors);
}

fn policy_spec(spec: &Map, known: &Known<'_>, errors: &mut ErrorList) {
    errors.extend(LabelSelector::from_map(at(spec, "podSelector")).validate(&SPEC.child("podSelector")));
    for (direction, peers) in DIRECTIONS {
        let path = SPEC.child(direction);
        for (i, rule) in objects(spec, direction) {
            let path = path.index(i);
            let ports_path = path.child("ports");
            for (i, port) in objects(rule, "ports") {
                policy_port(port, &ports_path.index(i), errors);
            }
            let peers_path = path.child(peers);
            for (i, one) in objects(rule, peers) {
                peer(one, known, &peers_path.index(i), errors);
            }
        }
    }
    policy_types(spec, errors);
}

fn policy_types(spec: &Map, errors: &mut ErrorList) {
    let (path, known) = (SPEC.child("policyTypes"), ["Egress", "Ingress"]);
    let types = list(spec, "policyTypes");
    if types.len() > known.len() {
        let shown = spec.get("policyTypes").cloned().unwrap_or_default();
        return errors.push(Error::invalid(path, shown, "may not specify more than two policyTypes"));
    }
    for (i, ty) in types.iter().enumerate() {
        let ty = ty.as_str().unwrap_or("");
        if !known.contains(&ty) {
            errors.push(Error::not_supported(path.index(i), ty, &["Ingress", "Egress"]));
        }
    }
}

fn policy_port(port: &Map, path: &Path<'_>, errors: &mut ErrorList) {
    let known = ["TCP", "UDP", "SCTP"];
    if is_set(port, "protocol") && !known.contains(&text(port, "protocol")) {
        errors.push(Error::not_supported(path.child("protocol"), text(port, "protocol"), &known));
    }
    let end = int(port, "endPort");
    let end_path = path.child("endPort");
    match port.get("port") {
        Some(Value::Int(number)) => {
            invalid(errors, &path.child("port"), *number, is_valid_port_num(*number));
            if let Some(end) = end {
                if end < *number {
                    errors.push(Error::invalid(end_path, *number, "must be greater than or equal to `port`"));
                }
                invalid(errors, &end_path, end, is_valid_port_num(end));
            }
        }
        Some(Value::String(name)) => {
            if let Some(end) = end {
                errors.push(Error::invalid(end_path, end, "may not be specified when `port` is non-numeric"));
            }
            invalid(errors, &path.child("port"), name.as_str(), is_valid_port_name(name));
        }
        _ => {
            if let Some(end) = end {
                errors.push(Error::invalid(end_path, end, "may not be specified when `port` is not specified"));
            }
        }
    }
}

fn peer(peer: &Map, known: &Known<'_>, path: &Path<'_>, errors: &mut ErrorList) {
    let mut selectors = 0;
    for key in ["podSelector", "namespaceSelector"] {
        if let Some(selector) = object(peer, key) {
            selectors += 1;
            errors.extend(LabelSelector::from_map(selector).validate(&path.child(key)));
        }
    }
    match object(peer, "ipBlock") {
        Some(block) => {
            ip_block(block, known, &path.child("ipBlock"), errors);
            if selectors > 0 {
                errors.push(Error::forbidden(path, "may not specify both ipBlock and another peer"));
            }
        }
        None if selectors == 0 => errors.push(Error::required(path, "must specify a peer")),
        None => {}
    }
}

fn ip_block(block: &Map, known: &Known<'_>, path: &Path<'_>, errors: &mut ErrorList) {
    let cidr = text(block, "cidr");
    if cidr.is_empty() {
        return errors.push(Error::required(path.child("cidr"), ""));
    }
    legacy_cidr(errors, &path.child("cidr"), cidr, known);
    let Some(network) = parse_cidr(cidr) else { return };
    let path = path.child("except");
    for (i, except) in list(block, "except").iter().enumerate() {
        let (path, except) = (path.index(i), except.as_str().unwrap_or(""));
        legacy_cidr(errors, &path, except, known);
        let Some(part) = parse_cidr(except) else { continue };
        if !network.contains(part) || network.length >= part.length {
            errors.push(Error::invalid(path, except, "must be a strict subset of `cidr`"));
        }
    }
}

/// The name of an IP address is the address.
pub(super) fn ip_address_name(name: &str, _: bool) -> Messages {
    is_valid_ip(&Path::new(""), name).into_iter().map(|error| error.detail).collect()
}

const PARENT: &[Field] = &[
    ("Group", "group", TEXT),
    ("Resource", "resource", TEXT),
    ("Namespace", "namespace", TEXT),
    ("Name", "name", TEXT),
];

pub(super) fn ip_address(address: &Map, errors: &mut ErrorList) {
    let path = SPEC.child("parentRef");
    let Some(parent) = object(at(address, "spec"), "parentRef") else {
        return errors.push(Error::required(path, ""));
    };
    optional(errors, parent, "group", &path, is_dns1123_subdomain);
    for key in ["resource", "name"] {
        required(errors, parent, key, &path, is_path_segment_name);
    }
    optional(errors, parent, "namespace", &path, is_path_segment_name);
}

/// An address keeps its parent.
pub(super) fn ip_address_update(new: &Map, old: &Map, errors: &mut ErrorList) {
    let [parent, before] = [new, old].map(|address| object(at(address, "spec"), "parentRef"));
    if parent != before {
        ip_address(new, errors);
        let shown = parent.map_or_else(|| "null".to_owned(), |parent| show(parent, PARENT));
        errors.push(Error::invalid_shown(SPEC.child("parentRef"), shown, IMMUTABLE));
    }
}

pub(super) fn service_cidr(object: &Map, errors: &mut ErrorList) {
    let path = SPEC.child("cidrs");
    let cidrs = list(at(object, "spec"), "cidrs");
    let shown = || at(object, "spec").get("cidrs").cloned().unwrap_or_default();
    if cidrs.is_empty() {
        return errors.push(Error::required(path, "at least one CIDR required"));
    }
    if cidrs.len() > 2 {
        let shown = format!("{{\"CIDRs\":{}}}", shown());
        return errors.push(Error::invalid_shown(path, shown, "may only hold up to 2 values"));
    }
    for (i, cidr) in cidrs.iter().enumerate() {
        errors.extend(is_valid_cidr(&path.index(i), cidr.as_str().unwrap_or("")));
    }
    let families: Vec<_> = cidrs.iter().map(|cidr| Some(parse_cidr(cidr.as_str()?)?.is_ipv6())).collect();
    if let [Some(first), Some(second)] = families[..]
        && first == second
    {
        let detail = "may specify no more than one IP for each IP family, i.e 192.168.0.0/24 and 2001:db8::/64";
        errors.push(Error::invalid(path, shown(), detail));
    }
}

/// Networks stay; a second one may come.
pub(super) fn service_cidr_update(new: &Map, old: &Map, errors: &mut ErrorList) {
    let path = SPEC.child("cidrs");
    let [cidrs, before] = [new, old].map(|object| list(at(object, "spec"), "cidrs"));
    let mut changed = |i: usize, cidr: &Value| errors.push(Error::invalid(path.index(i), cidr.clone(), IMMUTABLE));
    if cidrs.len() == before.len() || (before.len() == 1 && cidrs.len() == 2) {
        for (i, (cidr, _)) in cidrs.iter().zip(before).enumerate().filter(|(_, (cidr, before))| cidr != before) {
            changed(i, cidr);
        }
        if cidrs.len() > before.len() {
            service_cidr(new, errors);
        }
    } else {
        errors.push(Error::invalid(path, at(new, "spec").get("cidrs").cloned().unwrap_or_default(), IMMUTABLE));
    }
}
