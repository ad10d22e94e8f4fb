//! What a container requests and what it is limited to.

use std::collections::BTreeSet;

use capstan_api::{
    Map, Quantity,
    field::{Error, ErrorList, Path},
    validation::{is_dns1123_label, is_qualified_name},
};

use crate::validation::{
    read::{at, is_set, object, objects, quantity, text},
    rules::{NEGATIVE, invalid},
};

const STANDARD: &[&str] = &["cpu", "memory", "ephemeral-storage"];
/// Resources that are counted, or are known but not to containers.
const COUNTED: &[&str] = &[
    "pods",
    "resourcequotas",
    "services",
    "replicationcontrollers",
    "secrets",
    "configmaps",
    "persistentvolumeclaims",
    "services.nodeports",
    "services.loadbalancers",
];
const FOR_QUOTA: &[&str] = &[
    "requests.cpu",
    "requests.memory",
    "requests.ephemeral-storage",
    "limits.cpu",
    "limits.memory",
    "limits.ephemeral-storage",
    "storage",
    "requests.storage",
];
const HUGE_PAGES: &str = "hugepages-";

fn is_native(name: &str) -> bool {
    !name.contains('/') || name.contains("kubernetes.io/")
}

fn is_extended(name: &str) -> bool {
    !is_native(name) && !name.starts_with("requests.") && is_qualified_name(&format!("requests.{name}")).is_empty()
}

fn may_overcommit(name: &str) -> bool {
    is_native(name) && !name.starts_with(HUGE_PAGES)
}

/// Whose resources they are.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(super) enum Of {
    /// A container's.
    Container,
    /// All containers' of a pod together.
    Pod,
}

/// A resource that a container can have.
pub(in crate::validation) fn name_errors(name: &str, path: &Path<'_>, errors: &mut ErrorList) {
    let messages = is_qualified_name(name);
    let is_wrong = !messages.is_empty();
    invalid(errors, path, name, messages);
    let huge = name.starts_with(HUGE_PAGES);
    let mut wrong = |detail: &str| errors.push(Error::invalid(path, name, detail));
    if !name.contains('/') {
        let quota_huge = huge || name.starts_with("requests.hugepages-");
        let known = [STANDARD, COUNTED, FOR_QUOTA].into_iter().any(|names| names.contains(&name)) || quota_huge;
        if !is_wrong && !known {
            wrong("must be a standard resource type or fully qualified");
        }
        if !STANDARD.contains(&name) && !huge {
            wrong("must be a standard resource for containers");
        }
    } else if !is_native(name) && !is_extended(name) {
        wrong("doesn't follow extended resource name standard");
    }
}

/// A resource that a pod can have for all its containers.
fn pod_name_errors(name: &str, path: &Path<'_>, errors: &mut ErrorList) {
    let before = errors.len();
    invalid(errors, path, name, is_qualified_name(name));
    let huge = name.starts_with(HUGE_PAGES);
    if errors.len() == before && !name.contains('/') {
        let known = [STANDARD, COUNTED, FOR_QUOTA].into_iter().any(|names| names.contains(&name));
        if !known && !huge && !name.starts_with("requests.hugepages-") {
            errors.push(Error::invalid(path, name, "must be a standard resource type or fully qualified"));
        }
    }
    if errors.len() == before && !huge && !["cpu", "memory"].contains(&name) {
        errors.push(Error::not_supported(path, name, &["cpu", "hugepages-", "memory"]));
    }
}

fn amounts(list: &Map, of: Of, path: &Path<'_>, errors: &mut ErrorList, mut also: impl FnMut(&str, &mut ErrorList)) {
    for (name, value) in list.iter() {
        let path = path.key(name);
        match of {
            Of::Container => name_errors(name, &path, errors),
            Of::Pod => pod_name_errors(name, &path, errors),
        }
        let Some(amount) = quantity(value) else { continue };
        if amount.signum() < 0 {
            errors.push(Error::invalid(path, amount.to_string(), NEGATIVE));
        }
        if (COUNTED.contains(&name) || is_extended(name)) && amount.milli_value() % 1000 != 0 {
            errors.push(Error::invalid(path, amount.to_string(), "must be an integer"));
        }
        also(name, errors);
        if let Some(size) = name.strip_prefix(HUGE_PAGES).and_then(|size| size.parse::<Quantity>().ok()) {
            let (page, amount_bytes) = (size.value(), amount.value());
            if page <= 0 || amount_bytes % page != 0 {
                let detail = format!("{amount} is not positive integer multiple of {name}");
                errors.push(Error::invalid(path, amount.to_string(), detail));
            }
        }
    }
}

pub(super) fn validate(resources: &Map, of: Of, path: &Path<'_>, errors: &mut ErrorList) {
    let (limits, requests) = (at(resources, "limits"), at(resources, "requests"));
    let (limits_path, requests_path) = (path.child("limits"), path.child("requests"));
    amounts(limits, of, &limits_path, errors, |_, _| {});
    amounts(requests, of, &requests_path, errors, |name, errors| {
        let of = |list: &Map| list.get(name).and_then(quantity);
        let Some(request) = of(requests) else { return };
        let bound = match of(limits) {
            None if may_overcommit(name) => return,
            None => {
                let detail = "Limit must be set for non overcommitable resources";
                errors.push(Error::required(limits_path, detail));
                return;
            }
            Some(limit) if request != limit && !may_overcommit(name) => ("equal to", limit),
            Some(limit) if request > limit => ("less than or equal to", limit),
            Some(_) => return,
        };
        let detail = format!("must be {} {name} limit of {}", bound.0, bound.1);
        errors.push(Error::invalid(requests_path, request.to_string(), detail));
    });
    let any = |test: fn(&str) -> bool| limits.keys().chain(requests.keys()).any(test);
    if any(|name| name.starts_with(HUGE_PAGES)) && !any(|name| ["cpu", "memory"].contains(&name)) {
        errors.push(Error::forbidden(path, "HugePages require cpu or memory"));
    }
}

/// The claims of a container, which must be among those of its pod.
pub(super) fn claims(resources: &Map, of_pod: &BTreeSet<&str>, path: &Path<'_>, errors: &mut ErrorList) {
    let path = path.child("claims");
    let mut seen: BTreeSet<(&str, &str)> = BTreeSet::new();
    for (i, claim) in objects(resources, "claims") {
        let path = path.index(i);
        let [name, request] = ["name", "request"].map(|key| text(claim, key));
        if name.is_empty() {
            errors.push(Error::required(path, ""));
            continue;
        }
        if seen.contains(&(name, "")) {
            errors.push(Error::duplicate(path, name));
        } else {
            if !request.is_empty() {
                invalid(errors, &path.child("request"), request, is_dns1123_label(request));
            }
            if seen.contains(&(name, request)) {
                errors.push(Error::duplicate(path, format!("{name}/{request}")));
            } else if request.is_empty() {
                for _ in seen.iter().filter(|(other, _)| *other == name) {
                    errors.push(Error::duplicate(path, name));
                }
            }
            seen.insert((name, request));
        }
        if !of_pod.contains(name) {
            let mut detail = "must be one of the names in pod.spec.resourceClaims".to_owned();
            if of_pod.is_empty() {
                detail.push_str(" which is empty");
            } else {
                let names: Vec<_> = of_pod.iter().copied().collect();
                detail.push_str(&format!(": {}", names.join(", ")));
            }
            errors.push(Error { detail, ..Error::not_found(path, name) });
        }
    }
}

/// The resources of a pod as a whole, which must be enough for its containers.
pub(super) fn of_pod(spec: &Map, path: &Path<'_>, errors: &mut ErrorList) {
    let Some(resources) = object(spec, "resources") else { return };
    let path = path.child("resources");
    if object(spec, "os").is_some_and(|os| text(os, "name") == "windows") {
        errors.push(Error::forbidden(path, "may not be set for a windows pod"));
        return;
    }
    if is_set(resources, "claims") {
        errors.push(Error::forbidden(path.child("claims"), "claims may not be set for Resources at pod-level"));
    }
    validate(resources, Of::Pod, &path, errors);
    let known = objects(spec, "resourceClaims").map(|(_, claim)| text(claim, "name"));
    claims(resources, &known.filter(|name| !name.is_empty()).collect(), &path, errors);
    for key in ["requests", "limits"] {
        let given = at(resources, key);
        for (name, value) in given.iter().filter(|(name, _)| key == "requests" || name.starts_with(HUGE_PAGES)) {
            let (Some(given), Some(needed)) = (quantity(value), needed(spec, key, name)) else { continue };
            if needed > given {
                let detail = format!("must be greater than or equal to aggregate container {key} of {needed}");
                errors.push(Error::invalid(path.child(key).key(name), given.to_string(), detail));
            }
        }
    }
    let limits = at(resources, "limits");
    let containers = path.child("containers");
    for (i, container) in objects(spec, "containers") {
        for (name, value) in at(at(container, "resources"), "limits").iter() {
            let (Some(limit), Some(all)) = (quantity(value), limits.get(name).and_then(quantity)) else { continue };
            if limit > all {
                let place = containers.index(i);
                let place = place.key(name);
                let detail = format!("must be less than or equal to pod limits of {all}");
                errors.push(Error::invalid(place.child("limits"), limit.to_string(), detail));
            }
        }
    }
}

/// What all containers need together: those that run at once, and the most that starting them needs.
fn needed(spec: &Map, key: &str, name: &str) -> Option<Quantity> {
    let of = |container: &Map| at(at(container, "resources"), key).get(name).and_then(quantity);
    let sum = |total: &mut Option<Quantity>, amount: Option<Quantity>| match (total.as_mut(), amount) {
        (Some(total), Some(amount)) => total.add(&amount),
        (None, Some(amount)) => *total = Some(amount),
        (_, None) => {}
    };
    let mut running = None;
    for (_, container) in objects(spec, "containers") {
        sum(&mut running, of(container));
    }
    let (mut sidecars, mut most) = (None, None::<Quantity>);
    for (_, container) in objects(spec, "initContainers") {
        let mut amount = of(container);
        if text(container, "restartPolicy") == "Always" {
            sum(&mut running, amount.clone());
            sum(&mut sidecars, amount);
            amount = sidecars.clone();
        } else {
            sum(&mut amount, sidecars.clone());
        }
        most = most.max(amount);
    }
    running.max(most)
}
