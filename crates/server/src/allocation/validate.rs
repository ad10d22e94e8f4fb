//! What the address fields of a Service must be, alone and against what they were.

use capstan_api::{
    Map, Value,
    field::{Error, ErrorList, Path},
    validation::validate_legacy_ip,
};

use super::fields::{Family, Fields, NONE};

const FAMILIES: &[&str] = &["IPv4", "IPv6"];
const POLICIES: &[&str] = &["PreferDualStack", "RequireDualStack", "SingleStack"];
const FIXED: &str = "may not change once set";
const SPEC: Path<'static> = Path::new("spec");

pub(super) fn list(texts: &[String]) -> Value {
    texts.iter().map(|text| Value::from(text.as_str())).collect::<Vec<_>>().into()
}

pub(super) fn policy(service: &Fields) -> Value {
    service.policy.as_deref().map_or(Value::Null, Value::from)
}

/// What is wrong with `clusterIP`, `clusterIPs`, `ipFamilies`, `ipFamilyPolicy` and `healthCheckNodePort`, for the
/// validation of Services.
#[must_use]
pub fn validate_allocated(new: &Map, old: Option<&Map>) -> ErrorList {
    let old = old.map(Fields::read);
    let new = Fields::read(new);
    let mut errors = fields(&new, old.as_ref());
    if new.health_check_port != 0 && !new.wants_health_check() {
        let detail = "may only be set when `type` is 'LoadBalancer' and `externalTrafficPolicy` is 'Local'";
        errors.push(Error::invalid(SPEC.child("healthCheckNodePort"), new.health_check_port, detail));
    }
    errors
}

/// What may not change in the same fields, for the validation of Services.
#[must_use]
pub fn validate_allocated_update(new: &Map, old: &Map) -> ErrorList {
    let (new, old) = (Fields::read(new), Fields::read(old));
    let mut errors = ErrorList::new();
    if new.needs_cluster_ip() && old.needs_cluster_ip() {
        changed_ips(&new, &old, &mut errors);
        changed_families(&new, &old, &mut errors);
    }
    if new.wants_health_check() && old.wants_health_check() && new.health_check_port != old.health_check_port {
        errors.push(Error::forbidden(SPEC.child("healthCheckNodePort"), "field is immutable"));
    }
    errors
}

pub(super) fn fields(service: &Fields, old: Option<&Fields>) -> ErrorList {
    let mut errors = ErrorList::new();
    if !service.needs_cluster_ip() {
        return errors;
    }
    let ips_path = SPEC.child("clusterIPs");
    let families_path = SPEC.child("ipFamilies");
    let ips = || list(&service.cluster_ips);
    match service.cluster_ips.first() {
        None if !service.cluster_ip.is_empty() => errors.push(Error::required(ips_path, "")),
        Some(_) if service.cluster_ip.is_empty() => {
            errors.push(Error::invalid(ips_path, ips(), "must be empty when `clusterIP` is not specified"));
        }
        Some(first) if *first != service.cluster_ip => {
            errors.push(Error::invalid(ips_path, ips(), "first value must match `clusterIP`"));
        }
        _ => {}
    }
    for (i, family) in service.families.iter().enumerate() {
        if !FAMILIES.contains(&family.as_str()) {
            errors.push(Error::not_supported(families_path.index(i), family.as_str(), FAMILIES));
        }
        if service.families[..i].contains(family) {
            errors.push(Error::duplicate(families_path.index(i), family.as_str()));
        }
    }
    if let Some(policy) = service.policy.as_deref().filter(|policy| !POLICIES.contains(policy)) {
        errors.push(Error::not_supported(SPEC.child("ipFamilyPolicy"), policy, POLICIES));
    }
    if !valid_ips(service, old, &ips_path, &mut errors) {
        return errors;
    }
    one_of_each_family(service, &ips_path, &mut errors);
    errors
}

/// Whether each is an address, or the only one is `None`.
fn valid_ips(service: &Fields, old: Option<&Fields>, path: &Path<'_>, errors: &mut ErrorList) -> bool {
    let old: Vec<&str> = old.into_iter().flat_map(|old| &old.cluster_ips).map(String::as_str).collect();
    let mut valid = true;
    for (i, ip) in service.cluster_ips.iter().enumerate() {
        let wrong = if i == 0 && ip == NONE {
            let alone = service.cluster_ips.len() == 1;
            let error = || Error::invalid(path, list(&service.cluster_ips), "'None' must be the first and only value");
            if alone { ErrorList::new() } else { vec![error()] }
        } else {
            validate_legacy_ip(&path.index(i), ip, true, &old)
        };
        valid &= wrong.is_empty();
        errors.extend(wrong);
    }
    if service.cluster_ips.len() > 2 {
        errors.push(Error::invalid(path, list(&service.cluster_ips), "may only hold up to 2 values"));
    }
    valid
}

fn one_of_each_family(service: &Fields, path: &Path<'_>, errors: &mut ErrorList) {
    let families: Vec<_> = service.cluster_ips.iter().map(|ip| Family::of_text(ip)).collect();
    // Upstream asks whether both families are there, however many addresses there are.
    if families.len() > 1 && families.iter().all(|family| *family == families[0]) {
        let detail = "may specify no more than one IP for each IP family";
        errors.push(Error::invalid(path, list(&service.cluster_ips), detail));
    }
    if service.is_headless() {
        return;
    }
    for (i, (ip, name)) in service.cluster_ips.iter().zip(&service.families).enumerate() {
        let Some(expected) = Family::from_name(name).filter(|family| families[i] != Some(*family)) else { continue };
        let detail = format!("expected an {} value as indicated by `ipFamilies[{i}]`", expected.as_str());
        errors.push(Error::invalid(path.index(i), ip.as_str(), detail));
    }
}

fn changed_ips(new: &Fields, old: &Fields, errors: &mut ErrorList) {
    let headless = |service: &Fields| service.cluster_ips == [NONE];
    if headless(new) && headless(old) {
        return;
    }
    let path = SPEC.child("clusterIPs");
    let shown = || list(&new.cluster_ips);
    if new.cluster_ips.len() == old.cluster_ips.len() {
        for (i, _) in new.cluster_ips.iter().zip(&old.cluster_ips).enumerate().filter(|(_, (new, old))| new != old) {
            errors.push(Error::invalid(path.index(i), shown(), FIXED));
        }
        return;
    }
    match (new.cluster_ips.first(), old.cluster_ips.first()) {
        (None, _) => errors.push(Error::invalid(path.index(0), shown(), "primary clusterIP can not be unset")),
        (Some(new), Some(old)) if new != old => errors.push(Error::invalid(path.index(0), shown(), FIXED)),
        _ => {}
    }
    if new.cluster_ips.len() == 1 && old.cluster_ips.len() > 1 {
        must_be_single(new, "clusterIP", errors);
    }
}

fn changed_families(new: &Fields, old: &Fields, errors: &mut ErrorList) {
    let headless = |service: &Fields| service.cluster_ips == [NONE];
    if headless(new) || headless(old) {
        return;
    }
    let path = SPEC.child("ipFamilies");
    let first = path.index(0);
    if new.families.len() == old.families.len() {
        for _ in new.families.iter().zip(&old.families).filter(|(new, old)| new != old) {
            errors.push(Error::invalid(first, list(&new.families), FIXED));
        }
        return;
    }
    let released = new.families.len() < old.families.len();
    if released && new.cluster_ips.is_empty() {
        errors.push(Error::invalid(first, list(&new.families), "primary ipFamily can not be unset"));
    }
    let primary = (new.families.first(), old.families.first());
    if matches!(primary, (Some(new), Some(old)) if new != old) {
        errors.push(Error::invalid(first, list(&new.cluster_ips), FIXED));
    }
    if released && new.families.len() == 1 {
        must_be_single(new, "ipFamily", errors);
    }
}

fn must_be_single(new: &Fields, what: &str, errors: &mut ErrorList) {
    if new.policy.as_deref() != Some("SingleStack") {
        let detail = format!("must be set to 'SingleStack' when releasing the secondary {what}");
        errors.push(Error::invalid(SPEC.child("ipFamilyPolicy"), policy(new), detail));
    }
}
