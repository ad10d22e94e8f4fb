//! Ingresses and their classes.

use capstan_api::{
    Map, Value,
    field::{Error, ErrorList, Path},
    validation::{
        is_dns1123_subdomain, is_domain_prefixed_path, is_path_segment_name, is_valid_port_name, is_valid_port_num,
        is_wildcard_dns1123_subdomain, name_is_dns_label, name_is_dns_subdomain,
    },
};

use super::{
    address::{Known, legacy_ip, parse_ip},
    read::{at, int, is_set, list, object, objects, text},
    rules::{IMMUTABLE, invalid, required},
};

const SPEC: Path<'static> = Path::new("spec");
const CLASS: &str = "kubernetes.io/ingress.class";
const MAX_CONTROLLER: usize = 250;
const NOT_AN_IP: &str = "must be a DNS name, not an IP address";

/// What an ingress may keep because it has it already.
#[derive(Clone, Copy, Default)]
struct Allowed {
    secret_names: bool,
    wildcard_rules: bool,
}

pub(super) fn create(ingress: &Map, errors: &mut ErrorList) {
    ingress_spec(at(ingress, "spec"), Allowed::default(), errors);
    let class = at(at(ingress, "metadata"), "annotations").get(CLASS).and_then(Value::as_str);
    let named = at(ingress, "spec").get("ingressClassName").and_then(Value::as_str);
    if let (Some(class), Some(named)) = (class, named)
        && class != named
    {
        let detail = "must match `ingressClassName` when both are specified";
        errors.push(Error::invalid(Path::new("annotations").child(CLASS), class, detail));
    }
}

pub(super) fn update(new: &Map, old: &Map, errors: &mut ErrorList) {
    let old = at(old, "spec");
    let is_wrong = |rule: &Map| {
        let mut errors = ErrorList::new();
        rule_value(rule, &SPEC, &mut errors);
        text(rule, "host").contains('*') && !errors.is_empty()
    };
    let allowed = Allowed {
        secret_names: objects(old, "tls").any(|(_, tls)| !secret_name(text(tls, "secretName")).is_empty()),
        wildcard_rules: objects(old, "rules").any(|(_, rule)| is_wrong(rule)),
    };
    ingress_spec(at(new, "spec"), allowed, errors);
}

fn secret_name(name: &str) -> Vec<String> {
    if name.is_empty() { Vec::new() } else { name_is_dns_subdomain(name, false) }
}

fn host_name(errors: &mut ErrorList, host: &str, path: &Path<'_>) {
    let rule = if host.contains('*') { is_wildcard_dns1123_subdomain } else { is_dns1123_subdomain };
    invalid(errors, path, host, rule(host));
}

fn ingress_spec(spec: &Map, allowed: Allowed, errors: &mut ErrorList) {
    if list(spec, "rules").is_empty() && !is_set(spec, "defaultBackend") {
        let rules = spec.get("rules").cloned().unwrap_or_default();
        errors.push(Error::invalid(SPEC, rules, "either `defaultBackend` or `rules` must be specified"));
    }
    if let Some(default) = object(spec, "defaultBackend") {
        backend(default, &SPEC.child("defaultBackend"), errors);
    }
    let path = SPEC.child("rules");
    for (i, rule) in objects(spec, "rules") {
        let path = path.index(i);
        let host = text(rule, "host");
        if parse_ip(host).is_some() {
            errors.push(Error::invalid(path.child("host"), host, NOT_AN_IP));
        }
        if !host.is_empty() {
            host_name(errors, host, &path.child("host"));
        }
        if !(allowed.wildcard_rules && host.contains('*')) {
            rule_value(rule, &path, errors);
        }
    }
    let path = SPEC.child("tls");
    for (i, tls) in objects(spec, "tls") {
        let path = path.index(i);
        let hosts = path.child("hosts");
        for (i, host) in list(tls, "hosts").iter().enumerate() {
            host_name(errors, host.as_str().unwrap_or(""), &hosts.index(i));
        }
        if !allowed.secret_names {
            let name = text(tls, "secretName");
            invalid(errors, &path.child("secretName"), name, secret_name(name));
        }
    }
    if is_set(spec, "ingressClassName") {
        let name = text(spec, "ingressClassName");
        invalid(errors, &SPEC.child("ingressClassName"), name, name_is_dns_subdomain(name, false));
    }
}

fn rule_value(rule: &Map, path: &Path<'_>, errors: &mut ErrorList) {
    let Some(http) = object(rule, "http") else { return };
    let path = path.child("http");
    let path = path.child("paths");
    if list(http, "paths").is_empty() {
        errors.push(Error::required(path, ""));
    }
    for (i, one) in objects(http, "paths") {
        http_path(one, &path.index(i), errors);
    }
}

fn http_path(one: &Map, path: &Path<'_>, errors: &mut ErrorList) {
    if !is_set(one, "pathType") {
        return errors.push(Error::required(path.child("pathType"), "pathType must be specified"));
    }
    let place = text(one, "path");
    let mut wrong = |detail: String| errors.push(Error::invalid(path.child("path"), place, detail));
    match text(one, "pathType") {
        "Exact" | "Prefix" => {
            if !place.starts_with('/') {
                wrong("must be an absolute path".to_owned());
            }
            for part in ["//", "/./", "/../", "%2f", "%2F"].into_iter().filter(|part| place.contains(part)) {
                wrong(format!("must not contain '{part}'"));
            }
            for end in ["/..", "/."].into_iter().filter(|end| place.ends_with(end)) {
                wrong(format!("cannot end with '{end}'"));
            }
        }
        "ImplementationSpecific" => {
            if !place.is_empty() && !place.starts_with('/') {
                wrong("must be an absolute path".to_owned());
            }
        }
        ty => {
            let known = ["Exact", "ImplementationSpecific", "Prefix"];
            errors.push(Error::not_supported(path.child("pathType"), ty, &known));
        }
    }
    backend(at(one, "backend"), &path.child("backend"), errors);
}

fn backend(backend: &Map, path: &Path<'_>, errors: &mut ErrorList) {
    let service_path = path.child("service");
    match (object(backend, "resource"), object(backend, "service")) {
        (Some(_), Some(_)) => errors.push(Error::invalid(path, "", "cannot set both resource and service backends")),
        (Some(resource), None) => {
            let path = path.child("resource");
            api_group(resource, &path, errors);
            for key in ["kind", "name"] {
                required(errors, resource, key, &path, is_path_segment_name);
            }
        }
        (None, Some(service)) => {
            required(errors, service, "name", &service_path, |name| name_is_dns_label(name, false));
            let port = at(service, "port");
            let (name, number) = (text(port, "name"), int(port, "number").unwrap_or(0));
            let port_path = service_path.child("port");
            match (name, number) {
                ("", 0) => errors.push(Error::required(path, "port name or number is required")),
                ("", _) => invalid(errors, &port_path.child("number"), number, is_valid_port_num(number)),
                (_, 0) => invalid(errors, &port_path.child("name"), name, is_valid_port_name(name)),
                _ => errors.push(Error::invalid(path, "", "cannot set both port name & port number")),
            }
        }
        (None, None) => errors.push(Error::invalid(path, "", "resource or service backend is required")),
    }
}

fn api_group(reference: &Map, path: &Path<'_>, errors: &mut ErrorList) {
    if is_set(reference, "apiGroup") {
        let group = text(reference, "apiGroup");
        invalid(errors, &path.child("apiGroup"), group, is_dns1123_subdomain(group));
    }
}

/// The addresses under which an ingress is found.
pub(super) fn status(new: &Map, old: &Map, errors: &mut ErrorList) {
    let balancer = |ingress| at(at(ingress, "status"), "loadBalancer");
    let known: Known<'_> = objects(balancer(old), "ingress").map(|(_, one)| text(one, "ip")).collect();
    let path = Path::new("status");
    let path = path.child("loadBalancer");
    let path = path.child("ingress");
    for (i, one) in objects(balancer(new), "ingress") {
        let path = path.index(i);
        if !text(one, "ip").is_empty() {
            legacy_ip(errors, &path.child("ip"), text(one, "ip"), &known);
        }
        let host = text(one, "hostname");
        if !host.is_empty() {
            invalid(errors, &path.child("hostname"), host, is_dns1123_subdomain(host));
            if parse_ip(host).is_some() {
                errors.push(Error::invalid(path.child("hostname"), host, NOT_AN_IP));
            }
        }
    }
}

pub(super) fn class(class: &Map, errors: &mut ErrorList) {
    let spec = at(class, "spec");
    let controller = text(spec, "controller");
    if controller.len() > MAX_CONTROLLER {
        errors.push(Error::too_long(SPEC.child("controller"), MAX_CONTROLLER));
    }
    errors.extend(is_domain_prefixed_path(&SPEC.child("controller"), controller));
    let Some(parameters) = object(spec, "parameters") else { return };
    let path = SPEC.child("parameters");
    api_group(parameters, &path, errors);
    for key in ["kind", "name"] {
        required(errors, parameters, key, &path, is_path_segment_name);
    }
    match (text(parameters, "scope"), is_set(parameters, "namespace")) {
        _ if !is_set(parameters, "scope") => errors.push(Error::required(path.child("scope"), "")),
        ("Namespace", false) => {
            errors.push(Error::required(path.child("namespace"), "`parameters.scope` is set to 'Namespace'"));
        }
        ("Namespace", true) => {
            let namespace = text(parameters, "namespace");
            invalid(errors, &path.child("namespace"), namespace, name_is_dns_label(namespace, false));
        }
        ("Cluster", true) => {
            errors.push(Error::forbidden(path.child("namespace"), "`parameters.scope` is set to 'Cluster'"));
        }
        ("Cluster", false) => {}
        (scope, _) => {
            errors.push(Error::not_supported(path.child("scope"), scope, &["Cluster", "Namespace"]));
        }
    }
}

/// A class keeps its controller.
pub(super) fn class_update(new: &Map, old: &Map, errors: &mut ErrorList) {
    let controller = text(at(new, "spec"), "controller");
    if controller != text(at(old, "spec"), "controller") {
        errors.push(Error::invalid(SPEC.child("controller"), controller, IMMUTABLE));
    }
}
