//! HorizontalPodAutoscalers: `v1` knows the use of CPU alone; the rest of `v2` travels in annotations.

use capstan_api::{Map, Value, json, unstructured::nested};

use super::metrics::{self, Of};

pub(super) const KIND: &str = "HorizontalPodAutoscaler";

const METRICS: &str = "autoscaling.alpha.kubernetes.io/metrics";
const CURRENT_METRICS: &str = "autoscaling.alpha.kubernetes.io/current-metrics";
const CONDITIONS: &str = "autoscaling.alpha.kubernetes.io/conditions";
const BEHAVIOR: &str = "autoscaling.alpha.kubernetes.io/behavior";

/// All annotations that carry fields.
const CARRIERS: &[&str] = &[
    METRICS,
    CURRENT_METRICS,
    CONDITIONS,
    BEHAVIOR,
    "autoscaling.alpha.kubernetes.io/scale-down-tolerance",
    "autoscaling.alpha.kubernetes.io/scale-up-tolerance",
];

/// The use of CPU that is aimed at where nothing else is said.
const DEFAULT_CPU_UTILIZATION: i64 = 80;

const SHARED_SPEC: &[&str] = &["scaleTargetRef", "minReplicas", "maxReplicas"];
const SHARED_STATUS: &[&str] = &["observedGeneration", "lastScaleTime", "currentReplicas", "desiredReplicas"];

/// The names of the fields of `behavior`, and those that Go's internal type has, which is what the annotation holds.
const BEHAVIOR_NAMES: &[(&str, &str)] = &[
    ("scaleUp", "ScaleUp"),
    ("scaleDown", "ScaleDown"),
    ("stabilizationWindowSeconds", "StabilizationWindowSeconds"),
    ("selectPolicy", "SelectPolicy"),
    ("policies", "Policies"),
    ("type", "Type"),
    ("value", "Value"),
    ("periodSeconds", "PeriodSeconds"),
    ("tolerance", "Tolerance"),
];

fn take(object: &mut Map, key: &str) -> Map {
    match object.remove(key) {
        Some(Value::Object(map)) => map,
        _ => Map::new(),
    }
}

fn pick(from: &mut Map, keys: &[&str]) -> Map {
    let mut to = Map::new();
    for key in keys {
        if let Some(value) = from.remove(key).filter(|value| !value.is_null()) {
            to.insert(*key, value);
        }
    }
    to
}

fn items(map: &Map, key: &str) -> Vec<Value> {
    map.get(key).and_then(Value::as_array).map_or_else(Vec::new, |items| items.to_vec())
}

/// Without the annotations that carry fields; the annotations that there were.
fn take_annotations(object: &mut Map) -> Map {
    let Some(metadata) = object.get_mut("metadata").and_then(Value::as_object_mut) else { return Map::new() };
    let mut carried = Map::new();
    let Some(annotations) = metadata.get_mut("annotations").and_then(Value::as_object_mut) else { return carried };
    for key in CARRIERS {
        if let Some(value) = annotations.remove(key) {
            carried.insert(*key, value);
        }
    }
    if annotations.is_empty() {
        metadata.remove("annotations");
    }
    carried
}

pub(super) fn without_annotations(mut object: Map) -> Map {
    take_annotations(&mut object);
    object
}

/// Without any metric the use of CPU counts.
pub(super) fn default_v1(object: &mut Map) {
    if nested::str(object, &["metadata", "annotations", METRICS]).ok().flatten().is_some() {
        return;
    }
    if let Some(Value::Object(spec)) = object.get_mut("spec") {
        spec.get_or_insert_with("targetCPUUtilizationPercentage", || DEFAULT_CPU_UTILIZATION.into());
    }
}

/// The aim or state of the use of CPU, which `v1` has a field for.
fn cpu_utilization(metric: &Value, part: &str) -> Option<i64> {
    let metric = metric.as_object()?;
    let text = |path: &[&str]| nested::str(metric, path).ok().flatten();
    let is_cpu = text(&["type"]) == Some("Resource") && text(&["resource", "name"]) == Some("cpu");
    nested::i64(metric, &["resource", part, "averageUtilization"]).ok().flatten().filter(|_| is_cpu)
}

fn cpu(part: &str, utilization: i64) -> Value {
    let mut metric = Map::new();
    metric.insert("type", "Resource");
    let mut resource = Map::new();
    resource.insert("name", "cpu");
    let mut values = Map::new();
    values.insert("averageUtilization", utilization);
    if part == "target" {
        values.insert("type", "Utilization");
    }
    resource.insert(part, values);
    metric.insert("resource", resource);
    metric.into()
}

pub(super) fn v2_to_v1(mut object: Map) -> Map {
    take_annotations(&mut object);
    let (mut spec, mut status) = (take(&mut object, "spec"), take(&mut object, "status"));
    let (metrics, current) = (items(&spec, "metrics"), items(&status, "currentMetrics"));
    let mut carried = Map::new();
    let mut carry = |key: &'static str, values: Vec<Value>| {
        if !values.is_empty() {
            carried.insert(key, metrics::print(&values.into()));
        }
    };
    let others = metrics.iter().filter(|metric| cpu_utilization(metric, "target").is_none());
    carry(METRICS, others.map(|metric| metrics::to_v1(metric, Of::Spec)).collect());
    carry(CURRENT_METRICS, current.iter().map(|metric| metrics::to_v1(metric, Of::Status)).collect());
    carry(CONDITIONS, items(&status, "conditions").into_iter().map(condition).collect());
    if let Some(behavior) = spec.get("behavior").and_then(Value::as_object) {
        carried.insert(BEHAVIOR, metrics::print(&internal_behavior(behavior)));
    }

    let mut new_spec = pick(&mut spec, SHARED_SPEC);
    if let Some(percentage) = metrics.iter().find_map(|metric| cpu_utilization(metric, "target")) {
        new_spec.insert("targetCPUUtilizationPercentage", percentage);
    }
    let mut new_status = pick(&mut status, SHARED_STATUS);
    for key in ["currentReplicas", "desiredReplicas"] {
        new_status.get_or_insert_with(key, || 0.into());
    }
    if let Some(percentage) = current.iter().filter_map(|metric| cpu_utilization(metric, "current")).next_back() {
        new_status.insert("currentCPUUtilizationPercentage", percentage);
    }
    object.insert("spec", new_spec);
    object.insert("status", new_status);
    if !carried.is_empty() {
        let metadata = object.get_or_insert_with("metadata", || Map::new().into()).as_object_mut();
        let annotations = metadata.map(|metadata| metadata.get_or_insert_with("annotations", || Map::new().into()));
        if let Some(annotations) = annotations.and_then(Value::as_object_mut) {
            carried.into_iter().for_each(|(key, value)| _ = annotations.insert(key, value));
        }
    }
    object
}

pub(super) fn v1_to_v2(mut object: Map) -> Map {
    let carried = take_annotations(&mut object);
    // What can't be read is as if it were not there.
    let read = |key: &str| json::parse(carried.get(key)?.as_str()?.as_bytes()).ok();
    let list = |key: &str| match read(key) {
        Some(Value::Array(items)) if items.iter().all(|item| item.as_object().is_some()) => Some(items.into_vec()),
        _ => None,
    };
    let (mut spec, mut status) = (take(&mut object, "spec"), take(&mut object, "status"));
    let percentage = |map: &Map, key: &str| map.get(key).and_then(Value::as_i64);

    let mut new_spec = pick(&mut spec, SHARED_SPEC);
    let mut metrics: Vec<Value> =
        list(METRICS).unwrap_or_default().iter().map(|metric| metrics::to_v2(metric, Of::Spec)).collect();
    metrics.extend(percentage(&spec, "targetCPUUtilizationPercentage").map(|aim| cpu("target", aim)));
    if metrics.is_empty() {
        metrics.push(cpu("target", DEFAULT_CPU_UTILIZATION));
    }
    new_spec.insert("metrics", metrics);
    if let Some(behavior) = read(BEHAVIOR).as_ref().and_then(Value::as_object).and_then(external_behavior) {
        new_spec.insert("behavior", behavior);
    }

    let mut new_status = pick(&mut status, SHARED_STATUS);
    // Go leaves out a zero here, and writes it there.
    if percentage(&new_status, "currentReplicas") == Some(0) {
        new_status.remove("currentReplicas");
    }
    new_status.get_or_insert_with("desiredReplicas", || 0.into());
    let current = match list(CURRENT_METRICS) {
        Some(current) => Some(current.iter().map(|metric| metrics::to_v2(metric, Of::Status)).collect()),
        None => percentage(&status, "currentCPUUtilizationPercentage").map(|now| vec![cpu("current", now)]),
    };
    new_status.insert("currentMetrics", current.map_or(Value::Null, Value::from));
    if let Some(conditions) = list(CONDITIONS).filter(|conditions| !conditions.is_empty()) {
        new_status.insert("conditions", conditions.into_iter().map(condition).collect::<Vec<_>>());
    }
    object.insert("spec", new_spec);
    object.insert("status", new_status);
    object
}

/// A condition with the time that Go always writes.
fn condition(mut condition: Value) -> Value {
    if let Some(condition) = condition.as_object_mut() {
        condition.get_or_insert_with("lastTransitionTime", || Value::Null);
    }
    condition
}

/// Go's internal type has no tags, so that all its fields are written, under their own names.
fn internal_behavior(behavior: &Map) -> Value {
    let field = |map: &Map, name: &str| map.get(name).cloned().unwrap_or(Value::Null);
    let rules = |name: &str| match behavior.get(name).and_then(Value::as_object) {
        None => Value::Null,
        Some(rules) => {
            let names = ["stabilizationWindowSeconds", "selectPolicy", "policies", "tolerance"];
            let mut all: Map = names.iter().map(|name| ((*name).into(), field(rules, name))).collect();
            if let Some(policies) = all.get_mut("policies").and_then(Value::as_array_mut) {
                policies.iter_mut().for_each(|policy| rename(policy, |(own, internal)| (*own, *internal)));
            }
            let mut all = Value::from(all);
            rename(&mut all, |(own, internal)| (*own, *internal));
            all
        }
    };
    let mut out = Map::new();
    out.insert("ScaleUp", rules("scaleUp"));
    out.insert("ScaleDown", rules("scaleDown"));
    out.into()
}

/// Nothing if it holds nothing.
fn external_behavior(internal: &Map) -> Option<Value> {
    let mut out = Value::from(internal.clone());
    let back = |(own, internal): &(&'static str, &'static str)| (*internal, *own);
    rename(&mut out, back);
    for rules in ["scaleUp", "scaleDown"] {
        let Some(rules) = out.get_mut(rules) else { continue };
        rename(rules, back);
        let policies = rules.get_mut("policies").and_then(Value::as_array_mut);
        policies.into_iter().flat_map(|policies| policies.iter_mut()).for_each(|policy| rename(policy, back));
    }
    Some(out).filter(|out| out.as_object().is_some_and(|out| !out.is_empty()))
}

/// Gives the fields of an object other names, and drops those that are null on the way back.
fn rename(value: &mut Value, names: impl Fn(&(&'static str, &'static str)) -> (&'static str, &'static str)) {
    let Some(map) = value.as_object_mut() else { return };
    for (from, to) in BEHAVIOR_NAMES.iter().map(names) {
        // Go reads names without regard to case; only what it writes itself is known here.
        if let Some(value) = map.remove(from) {
            let back = to.starts_with(|c: char| c.is_ascii_lowercase());
            if !(back && value.is_null()) {
                map.insert(to, value);
            }
        }
    }
}
