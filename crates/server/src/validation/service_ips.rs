//! The addresses of services, and what must not change in services.

use std::collections::BTreeSet;

use capstan_api::{
    Map, Value,
    field::{Error, ErrorList, Path},
    validation::{is_dns1123_subdomain, is_qualified_name},
};

use super::{
    address::{Known, legacy_ip, parse_ip},
    read::{at, int, is_set, list, objects, text},
    rules::invalid,
    service::ONLY_LOAD_BALANCER,
};

const SPEC: Path<'static> = Path::new("spec");
const FIXED: &str = "may not change once set";
const POLICIES: &[&str] = &["PreferDualStack", "RequireDualStack", "SingleStack"];

pub(super) fn is_headless(spec: &Map) -> bool {
    matches!(list(spec, "clusterIPs"), [one] if one.as_str() == Some("None"))
}

fn texts<'a>(spec: &'a Map, key: &str) -> Vec<&'a str> {
    list(spec, key).iter().map(|value| value.as_str().unwrap_or("")).collect()
}

fn shown(spec: &Map, key: &str) -> Value {
    spec.get(key).cloned().unwrap_or_default()
}

/// The addresses and their families.
pub(super) fn validate(spec: &Map, old: Option<&Map>, errors: &mut ErrorList) {
    if text(spec, "type") == "ExternalName" {
        return;
    }
    let (ips, families) = (texts(spec, "clusterIPs"), texts(spec, "ipFamilies"));
    let path = SPEC.child("clusterIPs");
    let all_wrong = |detail: &str| Error::invalid(path, shown(spec, "clusterIPs"), detail);
    match (text(spec, "clusterIP"), ips.first()) {
        ("", Some(_)) => errors.push(all_wrong("must be empty when `clusterIP` is not specified")),
        ("", None) => {}
        (_, None) => errors.push(Error::required(path, "")),
        (ip, Some(first)) if ip != *first => errors.push(all_wrong("first value must match `clusterIP`")),
        _ => {}
    }
    family_names(spec, &families, errors);
    let known: Known<'_> = old.map(|old| texts(old, "clusterIPs")).unwrap_or_default().into_iter().collect();
    let mut has_wrong = false;
    for (i, ip) in ips.iter().enumerate() {
        let before = errors.len();
        if i == 0 && *ip == "None" {
            if ips.len() > 1 {
                errors.push(all_wrong("'None' must be the first and only value"));
            }
        } else {
            legacy_ip(errors, &path.index(i), ip, &known);
        }
        has_wrong |= errors.len() > before;
    }
    if ips.len() > 2 {
        errors.push(all_wrong("may only hold up to 2 values"));
    }
    if has_wrong {
        return;
    }
    let is_ipv6 = |ip: &str| parse_ip(ip).is_some_and(|ip| ip.is_ipv6());
    if ips.len() > 1 && ips.iter().all(|ip| is_ipv6(ip) == is_ipv6(ips[0])) {
        errors.push(all_wrong("may specify no more than one IP for each IP family"));
    }
    if is_headless(spec) {
        return;
    }
    for (i, (ip, family)) in ips.iter().zip(&families).enumerate() {
        if (*family == "IPv4" && is_ipv6(ip)) || (*family == "IPv6" && !is_ipv6(ip)) {
            let detail = format!("expected an {family} value as indicated by `ipFamilies[{i}]`");
            errors.push(Error::invalid(path.index(i), *ip, detail));
        }
    }
}

fn family_names(spec: &Map, families: &[&str], errors: &mut ErrorList) {
    let path = SPEC.child("ipFamilies");
    let mut seen = BTreeSet::new();
    for (i, family) in families.iter().enumerate() {
        if !["IPv4", "IPv6"].contains(family) {
            errors.push(Error::not_supported(path.index(i), *family, &["IPv4", "IPv6"]));
        }
        if !seen.insert(family) {
            errors.push(Error::duplicate(path.index(i), *family));
        }
    }
    let policy = text(spec, "ipFamilyPolicy");
    if is_set(spec, "ipFamilyPolicy") && !POLICIES.contains(&policy) {
        errors.push(Error::not_supported(SPEC.child("ipFamilyPolicy"), policy, POLICIES));
    }
}

/// What must not change in a service.
pub(super) fn changes(new: &Map, old: &Map, errors: &mut ErrorList) {
    if ![new, old].iter().any(|spec| text(spec, "type") == "ExternalName") {
        let (headless, was_headless) = (is_headless(new), is_headless(old));
        if !(headless && was_headless) {
            changed_ips(new, old, errors);
        }
        if !headless && !was_headless {
            changed_families(new, old, errors);
        }
    }
    load_balancer_class(new, Some(old), errors);
    if needs_health_check(new) && needs_health_check(old) && port(new) != port(old) {
        errors.push(Error::forbidden(SPEC.child("healthCheckNodePort"), "field is immutable"));
    }
}

fn port(spec: &Map) -> i64 {
    int(spec, "healthCheckNodePort").unwrap_or(0)
}

pub(super) fn needs_health_check(spec: &Map) -> bool {
    text(spec, "type") == "LoadBalancer" && text(spec, "externalTrafficPolicy") == "Local"
}

fn changed_ips(new: &Map, old: &Map, errors: &mut ErrorList) {
    let (ips, before) = (list(new, "clusterIPs"), list(old, "clusterIPs"));
    let path = SPEC.child("clusterIPs");
    let wrong = |i: usize, detail: &str| Error::invalid(path.index(i), shown(new, "clusterIPs"), detail);
    if ips.len() == before.len() {
        let changed = ips.iter().zip(before).enumerate().filter(|(_, (ip, before))| ip != before);
        return errors.extend(changed.map(|(i, _)| wrong(i, FIXED)));
    }
    if ips.is_empty() {
        errors.push(wrong(0, "primary clusterIP can not be unset"));
    } else if before.first().is_some_and(|before| Some(before) != ips.first()) {
        errors.push(wrong(0, FIXED));
    }
    single_stack(new, (ips.len(), before.len()), "clusterIP", errors);
}

/// What gives up its second family must say so.
fn single_stack(new: &Map, (count, before): (usize, usize), what: &str, errors: &mut ErrorList) {
    if before > count && count == 1 && text(new, "ipFamilyPolicy") != "SingleStack" {
        let detail = format!("must be set to 'SingleStack' when releasing the secondary {what}");
        errors.push(Error::invalid(SPEC.child("ipFamilyPolicy"), shown(new, "ipFamilyPolicy"), detail));
    }
}

fn changed_families(new: &Map, old: &Map, errors: &mut ErrorList) {
    let (families, before) = (list(new, "ipFamilies"), list(old, "ipFamilies"));
    let path = SPEC.child("ipFamilies");
    // Some of these show the addresses instead of the families.
    let wrong = |key: &str, detail: &str| Error::invalid(path.index(0), shown(new, key), detail);
    if families.len() == before.len() {
        let changed = families.iter().zip(before).filter(|(family, before)| family != before);
        return errors.extend(changed.map(|_| wrong("ipFamilies", FIXED)));
    }
    if families.len() < before.len() && list(new, "clusterIPs").is_empty() {
        errors.push(wrong("ipFamilies", "primary ipFamily can not be unset"));
    }
    if let (Some(first), Some(before)) = (families.first(), before.first())
        && first != before
    {
        errors.push(wrong("clusterIPs", FIXED));
    }
    single_stack(new, (families.len(), before.len()), "ipFamily", errors);
}

pub(super) fn load_balancer_class(spec: &Map, old: Option<&Map>, errors: &mut ErrorList) {
    let path = SPEC.child("loadBalancerClass");
    let is_balancer = |spec: &Map| text(spec, "type") == "LoadBalancer";
    let class = |spec: &Map| spec.get("loadBalancerClass").and_then(Value::as_str).map(str::to_owned);
    if let Some(old) = old
        && is_balancer(old)
        && is_balancer(spec)
        && class(old) != class(spec)
    {
        errors.push(Error::invalid(path, shown(spec, "loadBalancerClass"), FIXED));
    }
    match class(spec) {
        Some(class) if is_balancer(spec) => {
            let messages = is_qualified_name(&class);
            invalid(errors, &path, class, messages);
        }
        Some(_) => errors.push(Error::forbidden(path, ONLY_LOAD_BALANCER)),
        None => {}
    }
}

/// The addresses under which a service is found from outside.
pub(super) fn status(new: &Map, old: &Map, errors: &mut ErrorList) {
    let balancer = |service| at(at(service, "status"), "loadBalancer");
    let path = Path::new("status");
    let path = path.child("loadBalancer");
    let path = path.child("ingress");
    if text(at(new, "spec"), "type") != "LoadBalancer" && !list(balancer(new), "ingress").is_empty() {
        return errors.push(Error::forbidden(path, "may only be used when `spec.type` is 'LoadBalancer'"));
    }
    let known: Known<'_> = objects(balancer(old), "ingress").map(|(_, one)| text(one, "ip")).collect();
    for (i, one) in objects(balancer(new), "ingress") {
        let path = path.index(i);
        let (ip, mode, host) = (text(one, "ip"), text(one, "ipMode"), text(one, "hostname"));
        if !ip.is_empty() {
            legacy_ip(errors, &path.child("ip"), ip, &known);
        }
        match (is_set(one, "ipMode"), ip.is_empty()) {
            (false, false) => {
                errors.push(Error::required(path.child("ipMode"), "must be specified when `ip` is set"));
            }
            (true, true) => {
                errors.push(Error::forbidden(path.child("ipMode"), "may not be specified when `ip` is not set"));
            }
            (true, false) if !["Proxy", "VIP"].contains(&mode) => {
                errors.push(Error::not_supported(path.child("ipMode"), mode, &["Proxy", "VIP"]));
            }
            _ => {}
        }
        if !host.is_empty() {
            invalid(errors, &path.child("hostname"), host, is_dns1123_subdomain(host));
            if parse_ip(host).is_some() {
                let detail = "must be a DNS name, not an IP address";
                errors.push(Error::invalid(path.child("hostname"), host, detail));
            }
        }
    }
}
