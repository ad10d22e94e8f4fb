//! Limit ranges and quotas.

use std::collections::BTreeSet;

use capstan_api::{
    Map, Quantity, Value,
    field::{Error, ErrorList, Path},
    go,
    quantity::Format,
    validation::is_qualified_name,
};

use super::{
    read::{at, list, object, objects, quantity, text},
    rules::{IMMUTABLE, NEGATIVE, invalid},
    shape::{Field, NIL, Shape, TEXT, show},
};

/// The largest quantity whose thousandths can be counted.
const MAX_MILLI_VALUE: i64 = i64::MAX / 1000;
const SPEC: Path<'static> = Path::new("spec");
const COMPUTE: &[&str] = &["cpu", "memory", "ephemeral-storage"];
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
    "requests.storage",
    "requests.ephemeral-storage",
    "limits.cpu",
    "limits.memory",
    "limits.ephemeral-storage",
];
const HUGE_PAGES: &str = "hugepages-";

fn is_huge(name: &str) -> bool {
    name.starts_with(HUGE_PAGES)
}

fn is_for_quota(name: &str) -> bool {
    let huge = is_huge(name) || name.strip_prefix("requests.").is_some_and(is_huge);
    huge || [COMPUTE, COUNTED, FOR_QUOTA].iter().any(|names| names.contains(&name))
}

fn is_native(name: &str) -> bool {
    !name.contains('/') || name.contains("kubernetes.io/")
}

fn is_extended(name: &str) -> bool {
    !is_native(name) && !name.starts_with("requests.") && is_qualified_name(&format!("requests.{name}")).is_empty()
}

fn resource_name(name: &str, path: &Path<'_>, errors: &mut ErrorList) {
    let messages = is_qualified_name(name);
    if messages.is_empty() && !name.contains('/') && !is_for_quota(name) && name != "storage" {
        errors.push(Error::invalid(path, name, "must be a standard resource type or fully qualified"));
    }
    invalid(errors, path, name, messages);
}

/// The amount as a whole number, or the largest there is.
fn whole(quantity: &Quantity) -> i64 {
    if quantity.as_f64() < i64::MAX as f64 { quantity.value() } else { i64::MAX }
}

/// An amount, which is whole for what is counted.
pub(super) fn amount(name: &str, value: &Value, path: &Path<'_>, errors: &mut ErrorList) {
    let Some(amount) = quantity(value) else { return };
    if amount.signum() < 0 {
        errors.push(Error::invalid(path, amount.to_string(), NEGATIVE));
    }
    let fits = whole(&amount) < MAX_MILLI_VALUE;
    if (COUNTED.contains(&name) || is_extended(name)) && !(fits && amount.milli_value() % 1000 == 0) {
        errors.push(Error::invalid(path, amount.to_string(), "must be an integer"));
    }
}

fn limit_name(ty: &str, name: &str, path: &Path<'_>, errors: &mut ErrorList) {
    resource_name(name, path, errors);
    if !["Pod", "Container"].contains(&ty) {
        return;
    }
    if !name.contains('/') && !COMPUTE.contains(&name) && !is_huge(name) {
        errors.push(Error::invalid(path, name, "must be a standard resource for containers"));
    } else if !is_native(name) && !is_extended(name) {
        errors.push(Error::invalid(path, name, "doesn't follow extended resource name standard"));
    }
}

pub(super) fn limit_range(range: &Map, errors: &mut ErrorList) {
    let path = SPEC.child("limits");
    let mut types = BTreeSet::new();
    for (i, limit) in objects(at(range, "spec"), "limits") {
        let path = path.index(i);
        let ty = text(limit, "type");
        let messages = is_qualified_name(ty);
        if messages.is_empty() && !ty.contains('/') && !["Pod", "Container", "PersistentVolumeClaim"].contains(&ty) {
            let detail = "must be a standard limit type or fully qualified";
            errors.push(Error::invalid(path.child("type"), ty, detail));
        }
        invalid(errors, &path.child("type"), ty, messages);
        if !types.insert(ty) {
            errors.push(Error::duplicate(path.child("type"), ty));
        }
        limit_item(limit, ty, &path, errors);
    }
}

fn limit_item(limit: &Map, ty: &str, path: &Path<'_>, errors: &mut ErrorList) {
    let mut names = BTreeSet::new();
    for key in ["max", "min", "default", "defaultRequest", "maxLimitRequestRatio"] {
        let map = at(limit, key);
        if key == "maxLimitRequestRatio" && ty == "PersistentVolumeClaim" {
            let has = |key: &str| at(limit, key).contains_key("storage");
            if !has("min") && !has("max") {
                let detail = "either minimum or maximum storage value is required, but neither was provided";
                errors.push(Error::required(path.child("limits"), detail));
            }
        }
        if ty == "Pod" && key.starts_with("default") {
            if !map.is_empty() {
                errors.push(Error::forbidden(path.child(key), "may not be specified when `type` is 'Pod'"));
            }
            continue;
        }
        let path = path.child(key);
        for name in map.keys() {
            limit_name(ty, name, &path.key(name), errors);
            names.insert(name);
        }
    }
    for name in names {
        relations(limit, ty, name, path, errors);
    }
}

/// How the amounts for one resource must fit each other.
fn relations(limit: &Map, ty: &str, name: &str, path: &Path<'_>, errors: &mut ErrorList) {
    let of = |key: &str| at(limit, key).get(name).and_then(quantity);
    let default_of = |key: &str| of(key).filter(|_| ty != "Pod");
    let (min, max, ratio) = (of("min"), of("max"), of("maxLimitRequestRatio"));
    let (default, request) = (default_of("default"), default_of("defaultRequest"));
    let mut exceeds =
        |key: &str, a: (&str, &Option<Quantity>), b: (&str, &Option<Quantity>), shown: &Option<Quantity>| {
            if let (Some(one), Some(other), Some(shown)) = (a.1, b.1, shown)
                && one > other
            {
                let detail = format!("{} value {one} is greater than {} value {other}", a.0, b.0);
                errors.push(Error::invalid(path.child(key).key(name), shown.to_string(), detail));
            }
        };
    exceeds("min", ("min", &min), ("max", &max), &min);
    exceeds("defaultRequest", ("min", &min), ("default request", &request), &request);
    exceeds("defaultRequest", ("default request", &request), ("max", &max), &request);
    exceeds("defaultRequest", ("default request", &request), ("default limit", &default), &request);
    exceeds("default", ("min", &min), ("default", &default), &min);
    exceeds("default", ("default", &default), ("max", &max), &max);
    if let Some(ratio) = ratio {
        let path = path.child("maxLimitRequestRatio");
        let mut wrong = |detail: String| errors.push(Error::invalid(path.key(name), ratio.to_string(), detail));
        if ratio < Quantity::new(1, Format::DecimalSI) {
            wrong(format!("ratio {ratio} is less than 1"));
        }
        if let (Some(min), Some(max)) = (&min, &max) {
            // In thousandths, unless one of them is so large that only whole numbers are looked at.
            let exact = [&ratio, min, max].iter().all(|quantity| whole(quantity) < MAX_MILLI_VALUE);
            let number = |quantity: &Quantity| if exact { quantity.milli_value() } else { whole(quantity) } as f64;
            let bound = number(max) / number(min);
            if number(&ratio) / if exact { 1000.0 } else { 1.0 } > bound {
                wrong(format!("ratio {ratio} is greater than max/min = {bound:.6}"));
            }
        }
    }
    if let (Some(default), Some(request)) = (&default, &request)
        && (!is_native(name) || is_huge(name))
        && default != request
    {
        let detail = format!("default value {default} must equal to defaultRequest value {request} in {name}");
        errors.push(Error::invalid(path.child("defaultRequest").key(name), request.to_string(), detail));
    }
}

const SCOPES: &[&str] = &[
    "Terminating",
    "NotTerminating",
    "BestEffort",
    "NotBestEffort",
    "PriorityClass",
    "VolumeAttributesClass",
    "CrossNamespacePodAffinity",
];
/// How many scopes of a quota are looked at; there are fewer to choose from.
const MAX_SCOPES: usize = 20;
const POD_COMPUTE: &[&str] =
    &["pods", "cpu", "memory", "limits.cpu", "limits.memory", "requests.cpu", "requests.memory"];
const ONLY_EXISTS: &str = "must be 'Exists' when scope is any of ResourceQuotaScopeTerminating, \
    ResourceQuotaScopeNotTerminating, ResourceQuotaScopeBestEffort, ResourceQuotaScopeNotBestEffort or \
    ResourceQuotaScopeCrossNamespacePodAffinity";
const SELECTOR: &[Field] = &[(
    "MatchExpressions",
    "matchExpressions",
    Shape::List(&[("ScopeName", "scopeName", TEXT), ("Operator", "operator", TEXT), ("Values", "values", NIL)]),
)];

fn fits(scope: &str, name: &str) -> bool {
    match scope {
        "BestEffort" => name == "pods",
        "VolumeAttributesClass" => ["persistentvolumeclaims", "requests.storage"].contains(&name),
        _ => !SCOPES.contains(&scope) || POD_COMPUTE.contains(&name),
    }
}

fn amounts(map: &Map, path: &Path<'_>, errors: &mut ErrorList) {
    for (name, value) in map.iter() {
        let path = path.key(name);
        resource_name(name, &path, errors);
        if !name.contains('/') && !is_for_quota(name) {
            errors.push(Error::invalid(path, name, "must be a standard resource for quota"));
        }
        amount(name, value, &path, errors);
    }
}

pub(super) fn quota(quota: &Map, errors: &mut ErrorList) {
    quota_spec(at(quota, "spec"), errors);
    quota_amounts(quota, errors);
}

fn quota_spec(spec: &Map, errors: &mut ErrorList) {
    amounts(at(spec, "hard"), &SPEC.child("hard"), errors);
    // Every error shows all scopes.
    let misfits = |scope: &str| {
        at(spec, "hard").keys().filter(|name| is_for_quota(name) && !fits(scope, name)).take(MAX_SCOPES).count()
    };
    let path = SPEC.child("scopes");
    let shown = || spec.get("scopes").cloned().unwrap_or_default();
    let mut seen = BTreeSet::new();
    for scope in list(spec, "scopes").iter().filter_map(Value::as_str).take(MAX_SCOPES) {
        if !SCOPES.contains(&scope) {
            errors.push(Error::invalid(path, shown(), "unsupported scope"));
        }
        for _ in 0..misfits(scope) {
            errors.push(Error::invalid(path, shown(), "unsupported scope applied to resource"));
        }
        seen.insert(scope);
    }
    conflicts(&seen, &path, shown(), errors);
    let Some(selector) = object(spec, "scopeSelector") else { return };
    let path = SPEC.child("scopeSelector");
    let path = path.child("matchExpressions");
    let mut seen = BTreeSet::new();
    for (_, one) in objects(selector, "matchExpressions").take(MAX_SCOPES) {
        let scope = text(one, "scopeName");
        if !SCOPES.contains(&scope) {
            errors.push(Error::invalid(path.child("scopeName"), scope, "unsupported scope"));
        }
        for _ in 0..misfits(scope) {
            let shown = show(selector, SELECTOR);
            errors.push(Error::invalid_shown(path, shown, "unsupported scope applied to resource"));
        }
        scope_operator(one, scope, &path, errors);
        seen.insert(scope);
    }
    conflicts(&seen, &path, shown(), errors);
}

fn scope_operator(one: &Map, scope: &str, path: &Path<'_>, errors: &mut ErrorList) {
    let operator = text(one, "operator");
    let needs_exists = SCOPES.contains(&scope) && !["PriorityClass", "VolumeAttributesClass"].contains(&scope);
    if needs_exists && operator != "Exists" {
        errors.push(Error::invalid(path.child("operator"), operator, ONLY_EXISTS));
    }
    match (operator, list(one, "values").len()) {
        ("In" | "NotIn", 0) => {
            let detail = "must be at least one value when `operator` is 'In' or 'NotIn' for scope selector";
            errors.push(Error::required(path.child("values"), detail));
        }
        ("Exists" | "DoesNotExist", 1..) => {
            let detail = "must be no value when `operator` is 'Exist' or 'DoesNotExist' for scope selector";
            let values = one.get("values").cloned().unwrap_or_default();
            errors.push(Error::invalid(path.child("values"), values, detail));
        }
        ("In" | "NotIn" | "Exists" | "DoesNotExist", _) => {}
        _ => errors.push(Error::invalid(path.child("operator"), operator, "not a valid selector operator")),
    }
}

fn conflicts(seen: &BTreeSet<&str>, path: &Path<'_>, shown: Value, errors: &mut ErrorList) {
    for (one, other) in [("BestEffort", "NotBestEffort"), ("Terminating", "NotTerminating")] {
        if seen.contains(one) && seen.contains(other) {
            errors.push(Error::invalid_shown(path, go::show(&shown), "conflicting scopes"));
        }
    }
}

/// A quota keeps its scopes.
pub(super) fn quota_update(new: &Map, old: &Map, errors: &mut ErrorList) {
    quota_spec(at(new, "spec"), errors);
    let scopes = |quota| list(at(quota, "spec"), "scopes").iter().filter_map(Value::as_str).collect::<BTreeSet<_>>();
    if scopes(new) != scopes(old) {
        let shown = at(new, "spec").get("scopes").cloned().unwrap_or_default();
        errors.push(Error::invalid(SPEC.child("scopes"), shown, IMMUTABLE));
    }
}

fn quota_amounts(quota: &Map, errors: &mut ErrorList) {
    let path = Path::new("status");
    for key in ["hard", "used"] {
        amounts(at(at(quota, "status"), key), &path.child(key), errors);
    }
}

pub(super) fn quota_status(new: &Map, _: &Map, errors: &mut ErrorList) {
    quota_amounts(new, errors);
}
