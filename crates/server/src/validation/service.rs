//! Services.

use std::collections::BTreeSet;

use capstan_api::{
    Map, Value,
    field::{Error, ErrorList, Path},
    validation::{is_dns1123_label, is_dns1123_subdomain, is_qualified_name, is_valid_port_num, validate_labels},
};

use super::{
    address::{Known, endpoint_ip, legacy_cidr, legacy_ip},
    read::{at, int, is_set, list, object, objects, strings, text},
    rules::{invalid, one_of, one_of_pointer, port},
    service_ips::{self, is_headless, load_balancer_class, needs_health_check},
};

const TYPES: &[&str] = &["ClusterIP", "ExternalName", "LoadBalancer", "NodePort"];
/// How long a client may stick to a backend: a day.
const MAX_AFFINITY_SECONDS: i64 = 86_400;
pub(super) const ONLY_LOAD_BALANCER: &str = "may only be used when `type` is 'LoadBalancer'";

/// Annotations that mean the same as each other or as a field.
const HINTS: &str = "service.kubernetes.io/topology-aware-hints";
const MODE: &str = "service.kubernetes.io/topology-mode";
const SOURCE_RANGES: &str = "service.beta.kubernetes.io/load-balancer-source-ranges";

pub(super) fn service(service: &Map, errors: &mut ErrorList) {
    body(service, None, errors);
}

pub(super) fn update(new: &Map, old: &Map, errors: &mut ErrorList) {
    service_ips::changes(at(new, "spec"), at(old, "spec"), errors);
    body(new, Some(old), errors);
}

fn annotation<'a>(service: &'a Map, key: &str) -> Option<&'a str> {
    at(at(service, "metadata"), "annotations").get(key).and_then(Value::as_str)
}

fn body(service: &Map, old: Option<&Map>, errors: &mut ErrorList) {
    let metadata = Path::new("metadata");
    if let (Some(hints), Some(mode)) = (annotation(service, HINTS), annotation(service, MODE))
        && hints != mode
    {
        let detail = format!("must match annotations[{HINTS}] when both are specified");
        errors.push(Error::invalid(metadata.child("annotations").key(MODE), mode, detail));
    }
    let path = Path::new("spec");
    let spec = at(service, "spec");
    let ty = text(spec, "type");
    let headless = is_headless(spec);
    if list(spec, "ports").is_empty() && !headless && ty != "ExternalName" {
        errors.push(Error::required(path.child("ports"), ""));
    }
    match ty {
        "LoadBalancer" | "NodePort" if headless => {
            let detail = format!("may not be set to 'None' for {ty} services");
            errors.push(Error::invalid(path.child("clusterIPs").index(0), "None", detail));
        }
        "ExternalName" => external_name(spec, &path, errors),
        _ => {}
    }
    let mut names = BTreeSet::new();
    let ports_path = path.child("ports");
    for (i, one) in objects(spec, "ports") {
        service_port(one, list(spec, "ports").len() > 1, &mut names, &ports_path.index(i), errors);
    }
    errors.extend(validate_labels(strings(spec, "selector"), &path.child("selector")));
    affinity(spec, &path, errors);
    let old_spec = old.map(|old| at(old, "spec"));
    service_ips::validate(spec, old_spec, errors);
    external_ips(spec, old_spec, &path.child("externalIPs"), errors);
    one_of(errors, spec, "type", &path, TYPES);
    repeated_ports(spec, ty, &ports_path, errors);
    source_ranges(service, old, errors);
    load_balancer(spec, ty, &path, errors);
    traffic(spec, ty, &path, errors);
}

fn external_ips(spec: &Map, old: Option<&Map>, path: &Path<'_>, errors: &mut ErrorList) {
    let known = list(old.unwrap_or(super::read::empty()), "externalIPs");
    let known: Known<'_> = known.iter().filter_map(Value::as_str).collect();
    for (i, ip) in list(spec, "externalIPs").iter().enumerate() {
        let (path, ip) = (path.index(i), ip.as_str().unwrap_or(""));
        let before = errors.len();
        legacy_ip(errors, &path, ip, &known);
        if errors.len() == before {
            endpoint_ip(errors, &path, ip);
        }
    }
}

/// Who may use a load balancer, by field or else by annotation.
fn source_ranges(service: &Map, old: Option<&Map>, errors: &mut ErrorList) {
    const KEY: &str = "loadBalancerSourceRanges";
    let spec = at(service, "spec");
    let ranges = |service| list(at(service, "spec"), KEY).iter().map(|range| range.as_str().unwrap_or("").trim());
    let mut only_balancers = |path: Path<'_>| {
        if text(spec, "type") != "LoadBalancer" {
            errors.push(Error::forbidden(path, ONLY_LOAD_BALANCER));
        }
    };
    if !list(spec, KEY).is_empty() {
        let path = Path::new("spec");
        let path = path.child("LoadBalancerSourceRanges");
        only_balancers(path);
        let known: Known<'_> = old.into_iter().flat_map(ranges).collect();
        for (i, range) in ranges(service).enumerate() {
            legacy_cidr(errors, &path.index(i), range, &known);
        }
    } else if let Some(value) = annotation(service, SOURCE_RANGES) {
        let path = Path::new("metadata");
        let path = path.child("annotations");
        let path = path.key(SOURCE_RANGES);
        only_balancers(path);
        let unchanged = old.is_some_and(|old| annotation(old, SOURCE_RANGES).unwrap_or("") == value);
        if !unchanged && !value.trim().is_empty() {
            value.split(',').for_each(|range| legacy_cidr(errors, &path, range.trim(), &Known::new()));
        }
    }
}

fn external_name(spec: &Map, path: &Path<'_>, errors: &mut ErrorList) {
    for key in ["clusterIPs", "ipFamilies"] {
        if !list(spec, key).is_empty() {
            errors.push(Error::forbidden(path.child(key), "may not be set for ExternalName services"));
        }
    }
    if is_set(spec, "ipFamilyPolicy") {
        errors.push(Error::forbidden(path.child("ipFamilyPolicy"), "may not be set for ExternalName services"));
    }
    let name = text(spec, "externalName");
    match name.strip_suffix('.').unwrap_or(name) {
        "" => errors.push(Error::required(path.child("externalName"), "")),
        name => invalid(errors, &path.child("externalName"), name, is_dns1123_subdomain(name)),
    }
}

fn service_port<'a>(
    one: &'a Map,
    need_name: bool,
    names: &mut BTreeSet<&'a str>,
    path: &Path<'_>,
    errors: &mut ErrorList,
) {
    match text(one, "name") {
        "" if need_name => errors.push(Error::required(path.child("name"), "")),
        "" => {}
        name => {
            invalid(errors, &path.child("name"), name, is_dns1123_label(name));
            if !names.insert(name) {
                errors.push(Error::duplicate(path.child("name"), name));
            }
        }
    }
    let number = int(one, "port").unwrap_or(0);
    invalid(errors, &path.child("port"), number, is_valid_port_num(number));
    one_of(errors, one, "protocol", path, &["SCTP", "TCP", "UDP"]);
    port(errors, one, "targetPort", path);
    if is_set(one, "appProtocol") {
        let protocol = text(one, "appProtocol");
        invalid(errors, &path.child("appProtocol"), protocol, is_qualified_name(protocol));
    }
}

fn affinity(spec: &Map, path: &Path<'_>, errors: &mut ErrorList) {
    one_of(errors, spec, "sessionAffinity", path, &["ClientIP", "None"]);
    let config = object(spec, "sessionAffinityConfig");
    let path = path.child("sessionAffinityConfig");
    match text(spec, "sessionAffinity") {
        "None" if config.is_some() => {
            errors.push(Error::forbidden(path, "must not be set when session affinity is None"));
        }
        "ClientIP" => {
            let client = path.child("clientIP");
            let detail = "when session affinity type is ClientIP";
            let Some(config) = config else { return errors.push(Error::required(path, detail)) };
            let Some(config) = object(config, "clientIP") else { return errors.push(Error::required(client, detail)) };
            let path = client.child("timeoutSeconds");
            match int(config, "timeoutSeconds") {
                None => errors.push(Error::required(path, detail)),
                Some(1..=MAX_AFFINITY_SECONDS) => {}
                Some(seconds) => {
                    let detail = format!("must be greater than 0 and less than {MAX_AFFINITY_SECONDS}");
                    errors.push(Error::invalid(path, seconds, detail));
                }
            }
        }
        _ => {}
    }
}

/// Ports of nodes only where they are meant, and no port twice.
fn repeated_ports(spec: &Map, ty: &str, path: &Path<'_>, errors: &mut ErrorList) {
    let node_port = |port: &Map| int(port, "nodePort").filter(|number| *number != 0);
    if ty == "ClusterIP" {
        for (i, _) in objects(spec, "ports").filter(|(_, port)| node_port(port).is_some()) {
            let detail = "may not be used when `type` is 'ClusterIP'";
            errors.push(Error::forbidden(path.index(i).child("nodePort"), detail));
        }
    }
    let mut seen = BTreeSet::new();
    for (i, port) in objects(spec, "ports") {
        let Some(number) = node_port(port) else { continue };
        if !seen.insert((text(port, "protocol"), number)) {
            errors.push(Error::duplicate(path.index(i).child("nodePort"), number));
        }
    }
    seen.clear();
    for (i, port) in objects(spec, "ports") {
        let (protocol, n) = (text(port, "protocol"), int(port, "port").unwrap_or(0));
        if !seen.insert((protocol, n)) {
            // What Go prints of the struct that is compared.
            let shown = format!(
                r#"{{"Name":"","Protocol":"{protocol}","AppProtocol":null,"Port":{n},"TargetPort":0,"NodePort":0}}"#
            );
            errors.push(Error { bad_value: None, detail: shown, ..Error::duplicate(path.index(i), 0) });
        }
    }
}

fn load_balancer(spec: &Map, ty: &str, path: &Path<'_>, errors: &mut ErrorList) {
    let is_balancer = ty == "LoadBalancer";
    let allocates = is_set(spec, "allocateLoadBalancerNodePorts");
    if allocates && !is_balancer {
        errors.push(Error::forbidden(path.child("allocateLoadBalancerNodePorts"), ONLY_LOAD_BALANCER));
    }
    if !allocates && is_balancer {
        errors.push(Error::required("allocateLoadBalancerNodePorts", ""));
    }
    load_balancer_class(spec, None, errors);
}

fn traffic(spec: &Map, ty: &str, path: &Path<'_>, errors: &mut ErrorList) {
    let has_external_ips = ty == "ClusterIP" && !list(spec, "externalIPs").is_empty();
    if matches!(ty, "LoadBalancer" | "NodePort") || has_external_ips {
        one_of(errors, spec, "externalTrafficPolicy", path, &["Cluster", "Local"]);
    } else if !text(spec, "externalTrafficPolicy").is_empty() {
        let detail = "may only be set for externally-accessible services";
        let policy = text(spec, "externalTrafficPolicy");
        errors.push(Error::invalid(path.child("externalTrafficPolicy"), policy, detail));
    }
    let port = int(spec, "healthCheckNodePort").unwrap_or(0);
    let port_path = path.child("healthCheckNodePort");
    match (needs_health_check(spec), port) {
        (true, 0) => errors.push(Error::required(port_path, "")),
        (true, _) => invalid(errors, &port_path, port, is_valid_port_num(port)),
        (false, 0) => {}
        (false, _) => {
            let detail = "may only be set when `type` is 'LoadBalancer' and `externalTrafficPolicy` is 'Local'";
            errors.push(Error::invalid(port_path, port, detail));
        }
    }
    if is_set(spec, "internalTrafficPolicy") || matches!(ty, "NodePort" | "LoadBalancer" | "ClusterIP") {
        one_of_pointer(errors, spec, "internalTrafficPolicy", path, &["Cluster", "Local"]);
    }
    if is_set(spec, "trafficDistribution") {
        let known = ["PreferClose", "PreferSameZone", "PreferSameNode"];
        let distribution = text(spec, "trafficDistribution");
        if !known.contains(&distribution) {
            errors.push(Error::not_supported(path.child("trafficDistribution"), distribution, &known));
        }
    }
}
