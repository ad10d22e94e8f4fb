//! Horizontal pod autoscalers, whether they are written as v2 or as v1.

use capstan_api::{
    Map,
    field::{Error, ErrorList, Path},
    validation::{is_dns1123_label, is_path_segment_name},
};

use super::{
    pod,
    read::{at, int, is_set, list, object, objects, quantity, text},
    rules::{NEGATIVE, invalid, required},
};

const MAX_PERIOD: i64 = 1800;
const MAX_WINDOW: i64 = 3600;
/// The sources of metrics by field, in the order in which they are looked at, with their types.
const SOURCES: [(&str, &str); 5] = [
    ("object", "Object"),
    ("external", "External"),
    ("pods", "Pods"),
    ("resource", "Resource"),
    ("containerResource", "ContainerResource"),
];
const TYPES: &[&str] = &["ContainerResource", "External", "Object", "Pods", "Resource"];

pub(super) fn autoscaler(autoscaler: &Map, errors: &mut ErrorList) {
    spec(at(autoscaler, "spec"), None, errors);
}

pub(super) fn update(new: &Map, old: &Map, errors: &mut ErrorList) {
    spec(at(new, "spec"), Some(at(old, "spec")), errors);
}

/// The spec; what was allowed in `old` stays so.
fn spec(spec: &Map, old: Option<&Map>, errors: &mut ErrorList) {
    let path = Path::new("spec");
    let min = int(spec, "minReplicas");
    let max = int(spec, "maxReplicas").unwrap_or(0);
    let lowest = if old.is_some_and(|old| int(old, "minReplicas") == Some(0)) { 0 } else { 1 };
    if let Some(min) = min.filter(|min| *min < lowest) {
        let detail = format!("must be greater than or equal to {lowest}");
        errors.push(Error::invalid(path.child("minReplicas"), min, detail));
    }
    let max_path = path.child("maxReplicas");
    if max == 0 {
        errors.push(Error::required(max_path, "must be set and greater than 0"));
    } else if max < 0 {
        errors.push(Error::invalid(max_path, max, "must be greater than or equal to 1"));
    }
    if min.is_some_and(|min| max < min) {
        errors.push(Error::invalid(max_path, max, "must be greater than or equal to `minReplicas`"));
    }
    let target = at(spec, "scaleTargetRef");
    let kept = old.is_some_and(|old| {
        let old = at(old, "scaleTargetRef");
        ["kind", "apiVersion"].iter().all(|key| text(old, key) == text(target, key))
    });
    let version = match text(target, "kind") {
        _ if kept => Version::Any,
        "ReplicationController" => Version::WithOrWithoutGroup,
        _ => Version::WithGroup,
    };
    reference(target, version, &path.child("scaleTargetRef"), errors);
    metrics(spec, min, &path.child("metrics"), errors);
    if let Some(behavior) = object(spec, "behavior") {
        let path = path.child("behavior");
        for key in ["scaleUp", "scaleDown"] {
            if let Some(rules) = object(behavior, key) {
                scaling_rules(rules, &path.child(key), errors);
            }
        }
    }
}

/// What an `apiVersion` has to be.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Version {
    Any,
    WithOrWithoutGroup,
    WithGroup,
}

fn reference(reference: &Map, wanted: Version, path: &Path<'_>, errors: &mut ErrorList) {
    for key in ["kind", "name"] {
        required(errors, reference, key, path, is_path_segment_name);
    }
    let version = text(reference, "apiVersion");
    let detail = match (version.matches('/').count(), wanted) {
        (_, Version::Any) => return,
        (2.., _) => format!("unexpected GroupVersion string: {version}"),
        (slashes, Version::WithGroup) if slashes == 0 || version.starts_with('/') => {
            "apiVersion must specify API group".to_owned()
        }
        _ => return,
    };
    errors.push(Error::invalid(path.child("apiVersion"), version, detail));
}

fn metrics(spec: &Map, min: Option<i64>, path: &Path<'_>, errors: &mut ErrorList) {
    // In v1 there is but one metric, and it has a field of its own.
    if let Some(percent) = int(spec, "targetCPUUtilizationPercentage").filter(|percent| *percent < 1) {
        let detail = "must be greater than 0";
        errors.push(Error::invalid("spec.metrics[0].resource.target.averageUtilization", percent, detail));
    }
    for (i, metric) in objects(spec, "metrics") {
        metric_spec(metric, &path.index(i), errors);
    }
    let from_outside = |(_, metric): (usize, &Map)| ["Object", "External"].contains(&text(metric, "type"));
    if min == Some(0) && !objects(spec, "metrics").any(from_outside) {
        let detail = "must specify at least one Object or External metric to support scaling to zero replicas";
        errors.push(Error::forbidden(path, detail));
    }
}

fn metric_spec(metric: &Map, path: &Path<'_>, errors: &mut ErrorList) {
    let ty = text(metric, "type");
    if ty.is_empty() {
        errors.push(Error::required(path.child("type"), "must specify a metric source type"));
    }
    let unknown = !TYPES.contains(&ty);
    if unknown {
        errors.push(Error::not_supported(path.child("type"), ty, TYPES));
    }
    let set = || SOURCES.iter().filter_map(|(key, _)| Some((*key, object(metric, key)?)));
    if let Some((key, first)) = set().next() {
        source(key, first, &path.child(key), errors);
    }
    let expected = SOURCES.iter().find(|source| source.1 == ty).map(|source| source.0);
    match expected {
        Some(key) if !is_set(metric, key) => {
            let detail = "must populate information for the given metric source";
            errors.push(Error::required(path.child(key), detail));
        }
        Some(_) => {}
        None => errors.push(Error::not_supported(path.child("type"), ty, TYPES)),
    }
    if set().count() > 1 {
        for (key, _) in set().filter(|(key, _)| Some(*key) != expected) {
            errors.push(Error::forbidden(path.child(key), "must populate the given metric source only"));
        }
    }
}

fn source(key: &str, source: &Map, path: &Path<'_>, errors: &mut ErrorList) {
    let is_resource = matches!(key, "resource" | "containerResource");
    if key == "object" {
        reference(at(source, "describedObject"), Version::WithOrWithoutGroup, &path.child("describedObject"), errors);
    }
    if is_resource {
        match text(source, "name") {
            "" => errors.push(Error::required(path.child("name"), "must specify a resource name")),
            name if key == "containerResource" => pod::container_resource_name(name, &path.child("name"), errors),
            _ => {}
        }
    } else {
        let path = path.child("metric");
        match text(at(source, "metric"), "name") {
            "" => errors.push(Error::required(path.child("name"), "must specify a metric name")),
            name => invalid(errors, &path.child("name"), name, is_path_segment_name(name)),
        }
    }
    if key == "containerResource" {
        match text(source, "container") {
            "" => errors.push(Error::required(path.child("container"), "must specify a container")),
            name => invalid(errors, &path.child("container"), name, is_dns1123_label(name)),
        }
    }
    let path = path.child("target");
    let wanted = at(source, "target");
    target(wanted, &path, errors);
    let [value, average, utilization] = ["value", "averageValue", "averageUtilization"].map(|key| is_set(wanted, key));
    let missing = match key {
        "object" if !value && !average => ("averageValue", "must set either a target value or averageValue"),
        "external" if !value && !average => {
            ("averageValue", "must set either a target value for metric or a per-pod target")
        }
        "pods" if !average => ("averageValue", "must specify a positive target averageValue"),
        _ if is_resource && !utilization && !average => {
            ("averageUtilization", "must set either a target raw value or a target utilization")
        }
        _ => ("", ""),
    };
    if !missing.0.is_empty() {
        errors.push(Error::required(path.child(missing.0), missing.1));
    }
    if key == "external" && value && average {
        let detail = "may not set both a target value for metric and a per-pod target";
        errors.push(Error::forbidden(path.child("value"), detail));
    }
    if is_resource && utilization && average {
        let detail = "may not set both a target raw value and a target utilization";
        errors.push(Error::forbidden(path.child("averageValue"), detail));
    }
}

fn target(target: &Map, path: &Path<'_>, errors: &mut ErrorList) {
    let ty = text(target, "type");
    if ty.is_empty() {
        errors.push(Error::required(path.child("type"), "must specify a metric target type"));
    }
    if !["Utilization", "Value", "AverageValue"].contains(&ty) {
        errors.push(Error::invalid(path.child("type"), ty, "must be either Utilization, Value, or AverageValue"));
    }
    for key in ["value", "averageValue"] {
        if let Some(amount) = target.get(key).and_then(quantity).filter(|amount| amount.signum() != 1) {
            errors.push(Error::invalid(path.child(key), amount.to_string(), "must be positive"));
        }
    }
    if let Some(percent) = int(target, "averageUtilization").filter(|percent| *percent < 1) {
        errors.push(Error::invalid(path.child("averageUtilization"), percent, "must be greater than 0"));
    }
}

fn scaling_rules(rules: &Map, path: &Path<'_>, errors: &mut ErrorList) {
    if let Some(seconds) = int(rules, "stabilizationWindowSeconds") {
        let path = path.child("stabilizationWindowSeconds");
        if seconds < 0 {
            errors.push(Error::invalid(path, seconds, "must be greater than or equal to zero"));
        }
        if seconds > MAX_WINDOW {
            errors.push(Error::invalid(path, seconds, format!("must be less than or equal to {MAX_WINDOW}")));
        }
    }
    let known = ["Disabled", "Max", "Min"];
    if is_set(rules, "selectPolicy") && !known.contains(&text(rules, "selectPolicy")) {
        errors.push(Error::not_supported(path.child("selectPolicy"), text(rules, "selectPolicy"), &known));
    }
    let policies = path.child("policies");
    if list(rules, "policies").is_empty() {
        errors.push(Error::required(policies, "must specify at least one Policy"));
    }
    for (i, policy) in objects(rules, "policies") {
        let path = policies.index(i);
        let known = ["Percent", "Pods"];
        if !known.contains(&text(policy, "type")) {
            errors.push(Error::not_supported(path.child("type"), text(policy, "type"), &known));
        }
        for key in ["value", "periodSeconds"] {
            let value = int(policy, key).unwrap_or(0);
            if value <= 0 {
                errors.push(Error::invalid(path.child(key), value, "must be greater than zero"));
            }
        }
        let period = int(policy, "periodSeconds").unwrap_or(0);
        if period > MAX_PERIOD {
            let detail = format!("must be less than or equal to {MAX_PERIOD}");
            errors.push(Error::invalid(path.child("periodSeconds"), period, detail));
        }
    }
    if let Some(tolerance) = rules.get("tolerance").and_then(quantity).filter(|tolerance| tolerance.signum() < 0) {
        errors.push(Error::invalid(path.child("tolerance"), tolerance.to_string(), NEGATIVE));
    }
}
