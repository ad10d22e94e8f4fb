//! What a container requests and what it is limited to.

use capstan_api::{
    Map,
    field::{Error, ErrorList, Path},
    validation::is_qualified_name,
};

use crate::validation::{
    read::{at, quantity},
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

fn name_errors(name: &str, path: &Path<'_>, errors: &mut ErrorList) {
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

fn amounts(list: &Map, path: &Path<'_>, errors: &mut ErrorList, mut also: impl FnMut(&str, &mut ErrorList)) {
    for (name, value) in list.iter() {
        let path = path.key(name);
        name_errors(name, &path, errors);
        let Some(amount) = quantity(value) else { continue };
        if amount.signum() < 0 {
            errors.push(Error::invalid(path, amount.to_string(), NEGATIVE));
        }
        if (COUNTED.contains(&name) || is_extended(name)) && amount.milli_value() % 1000 != 0 {
            errors.push(Error::invalid(path, amount.to_string(), "must be an integer"));
        }
        also(name, errors);
        if let Some(size) = name.strip_prefix(HUGE_PAGES).and_then(|size| size.parse::<capstan_api::Quantity>().ok()) {
            let (page, amount_bytes) = (size.value(), amount.value());
            if page <= 0 || amount_bytes % page != 0 {
                let detail = format!("{amount} is not positive integer multiple of {name}");
                errors.push(Error::invalid(path, amount.to_string(), detail));
            }
        }
    }
}

pub(super) fn validate(resources: &Map, path: &Path<'_>, errors: &mut ErrorList) {
    let (limits, requests) = (at(resources, "limits"), at(resources, "requests"));
    let (limits_path, requests_path) = (path.child("limits"), path.child("requests"));
    amounts(limits, &limits_path, errors, |_, _| {});
    amounts(requests, &requests_path, errors, |name, errors| {
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
