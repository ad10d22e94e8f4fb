//! The status of a pod, as its node tells it.

use std::{collections::BTreeSet, net::IpAddr};

use capstan_api::{
    Map, Value,
    field::{Error, ErrorList, Path},
    validation::{is_dns1123_label, is_dns1123_subdomain, is_qualified_name, validate_legacy_ip},
};

use crate::validation::{
    read::{at, int, list, object, objects, text},
    rules::{IMMUTABLE, invalid, required},
};

const STATUS: Path<'static> = Path::new("status");
const NO_CONTAINER: &str = "must match the name of an entry in spec.initContainers.name or spec.containers.name";
const NO_RESOURCE: &str = "must match the extended resource name of an entry in \
                           spec.initContainers.resources.requests or spec.containers.resources.requests";

pub(in crate::validation) fn status(new: &Map, old: &Map, errors: &mut ErrorList) {
    let spec = at(old, "spec");
    let (now, before) = (at(new, "status"), at(old, "status"));
    conditions(now, errors);
    if text(at(new, "spec"), "nodeName") != text(spec, "nodeName") {
        errors.push(Error::forbidden(STATUS.child("nodeName"), "may not be changed directly"));
    }
    let node = text(now, "nominatedNodeName");
    if !node.is_empty() && node != text(before, "nominatedNodeName") {
        let path = STATUS.child("nominatedNodeName");
        invalid(errors, &path, node, is_dns1123_subdomain(node));
        if !text(spec, "nodeName").is_empty() {
            errors.push(Error::forbidden(path, "may not be set on pods that are already bound to a node"));
        }
    }
    generation(now, &STATUS, errors);
    if text(now, "qosClass") != text(before, "qosClass") {
        let shown = crate::validation::show::json(&text(now, "qosClass").into());
        errors.push(Error::invalid_shown(STATUS.child("qosClass"), shown, IMMUTABLE));
    }
    for (key, of) in [("containerStatuses", "containers"), ("initContainerStatuses", "initContainers")] {
        transitions(now, before, key, errors, |name, code| {
            let container = objects(spec, of).find(|(_, container)| text(container, "name") == name);
            container.is_some_and(|(_, container)| restarts(container, spec, code))
        });
    }
    transitions(now, before, "ephemeralContainerStatuses", errors, |_, _| false);
    claim_statuses(now, at(new, "spec"), errors);
    if let Some(claim) = object(now, "extendedResourceClaimStatus") {
        extended_claim(claim, at(new, "spec"), &STATUS.child("extendedResourceClaimStatus"), errors);
    }
    ips(now, before, "podIPs", errors);
    if let Some(first) = objects(now, "hostIPs").next().map(|(_, ip)| text(ip, "ip")) {
        if text(now, "hostIP") != first {
            let path = STATUS.child("hostIPs");
            errors.push(Error::invalid(path.index(0).child("ip"), first, "must be equal to `hostIP`"));
        }
        ips(now, before, "hostIPs", errors);
    }
    super::container_status::all(now, at(new, "spec"), errors);
}

/// The claim for resources that are no claims in the spec.
fn extended_claim(claim: &Map, spec: &Map, path: &Path<'_>, errors: &mut ErrorList) {
    let mappings = path.child("requestMappings");
    if list(claim, "requestMappings").is_empty() {
        errors.push(Error::required(mappings, "at least one request mapping is required"));
    }
    let mut seen = BTreeSet::new();
    for (i, mapping) in objects(claim, "requestMappings") {
        let place = mappings.index(i);
        let keys = ["containerName", "resourceName", "requestName"];
        let names @ [container, resource, request] = keys.map(|key| text(mapping, key));
        let containers = || ["containers", "initContainers"].into_iter().flat_map(|key| objects(spec, key));
        match containers().find(|(_, one)| text(one, "name") == container) {
            None => errors.push(Error::invalid(place.child("containerName"), container, NO_CONTAINER)),
            Some((_, one)) if !at(at(one, "resources"), "requests").contains_key(resource) => {
                errors.push(Error::invalid(place.child("resourceName"), resource, NO_RESOURCE));
            }
            Some(_) => {}
        }
        invalid(errors, &path.child("requestName"), request, is_dns1123_label(request));
        if !seen.insert(names) {
            for (key, name) in keys.into_iter().zip(names) {
                errors.push(Error::duplicate(place.child(key), name));
            }
        }
    }
    required(errors, claim, "resourceClaimName", path, is_dns1123_subdomain);
}

fn generation(map: &Map, path: &Path<'_>, errors: &mut ErrorList) {
    if let Some(generation) = int(map, "observedGeneration").filter(|generation| *generation < 0) {
        let detail = "must be a non-negative integer";
        errors.push(Error::invalid(path.child("observedGeneration"), generation, detail));
    }
}

fn conditions(status: &Map, errors: &mut ErrorList) {
    let path = STATUS.child("conditions");
    for (i, condition) in objects(status, "conditions") {
        let path = path.index(i);
        generation(condition, &path, errors);
        let ty = text(condition, "type");
        if !["PodScheduled", "Ready", "Initialized"].contains(&ty) {
            invalid(errors, &path.child("Type"), ty, is_qualified_name(ty));
        }
    }
}

/// Whether a container that ended with `code` is started again.
fn restarts(container: &Map, spec: &Map, code: i64) -> bool {
    for (_, rule) in objects(container, "restartPolicyRules") {
        let codes = at(rule, "exitCodes");
        let listed = list(codes, "values").iter().any(|value| value.as_i64() == Some(code));
        let applies = match text(codes, "operator") {
            "In" => listed,
            "NotIn" => !listed,
            _ => false,
        };
        if applies {
            return text(rule, "action").starts_with("Restart");
        }
    }
    let own = text(container, "restartPolicy");
    match if own.is_empty() { text(spec, "restartPolicy") } else { own } {
        "Always" => true,
        "OnFailure" => code != 0,
        _ => false,
    }
}

/// What has ended stays so unless it may be started again.
fn transitions(now: &Map, before: &Map, key: &str, errors: &mut ErrorList, may_restart: impl Fn(&str, i64) -> bool) {
    let path = STATUS.child(key);
    let ended = |status: &Map| at(status, "state").get("terminated").and_then(Value::as_object).cloned();
    for (i, old) in objects(before, key) {
        let Some(end) = ended(old) else { continue };
        let name = text(old, "name");
        let revived = objects(now, key).any(|(_, new)| text(new, "name") == name && ended(new).is_none());
        if revived && !may_restart(name, int(&end, "exitCode").unwrap_or(0)) {
            let detail = "may not be transitioned to non-terminated state";
            errors.push(Error::forbidden(path.index(i).child("state"), detail));
        }
    }
}

fn claim_statuses(status: &Map, spec: &Map, errors: &mut ErrorList) {
    let path = STATUS.child("resourceClaimStatuses");
    let mut seen = BTreeSet::new();
    for (i, claim) in objects(status, "resourceClaimStatuses") {
        let path = path.index(i);
        let name = text(claim, "name");
        if !objects(spec, "resourceClaims").any(|(_, claim)| text(claim, "name") == name) {
            let detail = "must match the name of an entry in `spec.resourceClaims`";
            errors.push(Error::invalid(path.child("name"), name, detail));
        }
        if !seen.insert(name) {
            errors.push(Error::duplicate(path.child("name"), name));
        }
        if let Some(claim) = claim.get("resourceClaimName").and_then(Value::as_str) {
            invalid(errors, &path.child("resourceClaimName"), claim, is_dns1123_subdomain(claim));
        }
    }
}

/// Addresses: one for each family at most.
fn ips(now: &Map, before: &Map, key: &str, errors: &mut ErrorList) {
    let path = STATUS.child(key);
    let of = |status| objects(status, key).map(|(_, ip)| text(ip, "ip")).collect::<Vec<_>>();
    let (ips, known): (Vec<&str>, Vec<&str>) = (of(now), of(before));
    for (i, ip) in ips.iter().enumerate() {
        errors.extend(validate_legacy_ip(&path.index(i), ip, false, &known));
    }
    if ips.len() < 2 {
        return;
    }
    let parsed: Vec<_> = ips.iter().map(|ip| ip.parse::<IpAddr>()).collect();
    if let Some(i) = parsed.iter().position(Result::is_err) {
        let error = format!("invalid IP[{i}]: {}", ips[i]);
        errors.push(Error::internal(path, format!("failed to check for dual stack with error:{error}")));
    }
    let families = [IpAddr::is_ipv4, IpAddr::is_ipv6];
    let dual = families.iter().all(|of| parsed.iter().flatten().any(of)) && parsed.iter().all(Result::is_ok);
    if !dual || ips.len() > 2 {
        let shown: Vec<_> =
            ips.iter().map(|ip| format!(r#"{{"IP":{}}}"#, crate::validation::show::json(&(*ip).into()))).collect();
        let detail = "may specify no more than one IP for each IP family";
        errors.push(Error::invalid_shown(path, format!("[{}]", shown.join(",")), detail));
    }
}
