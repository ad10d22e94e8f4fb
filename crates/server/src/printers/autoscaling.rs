//! Autoscalers: what they scale, and what by.
//!
//! Version 1 does not tell where among the other metrics the use of processors stood; whoever has version 2 shows that.

use capstan_api::{Map, Time, Value, json};

use super::view::{View, cell, quantity, with_more};

/// Where version 1 keeps the metrics that it has no fields for.
const METRICS: &str = "autoscaling.alpha.kubernetes.io/metrics";
/// The same for what was measured.
const CURRENT_METRICS: &str = "autoscaling.alpha.kubernetes.io/current-metrics";
/// The target, in percent, of an autoscaler that names none.
const DEFAULT_CPU_UTILIZATION: i64 = 80;
/// How many metrics are shown.
const MAX_METRICS: usize = 2;

/// The reference, targets, least, most and present number of replicas.
pub(super) fn cells(view: View<'_>, _now: Time) -> Vec<Value> {
    let reference = format!("{}/{}", view.text("spec.scaleTargetRef.kind"), view.text("spec.scaleTargetRef.name"));
    let least = view.get("spec.minReplicas").and_then(Value::as_i64);
    // Only version 1 has no metrics here, since defaulting fills them in.
    let targets = if view.count("spec.metrics") == 0 {
        let (specs, statuses) = first_version(view);
        targets(views(&specs), &views(&statuses))
    } else {
        targets(view.items("spec.metrics").collect(), &view.items("status.currentMetrics").collect::<Vec<_>>())
    };
    vec![
        cell(reference),
        cell(targets),
        cell(least.map_or_else(|| "<unset>".to_owned(), |least| least.to_string())),
        Value::Int(view.int("spec.maxReplicas")),
        Value::Int(view.int("status.currentReplicas")),
    ]
}

fn views(values: &[Value]) -> Vec<View<'_>> {
    values.iter().map(|value| View::of(Some(value))).collect()
}

fn targets(specs: Vec<View<'_>>, statuses: &[View<'_>]) -> String {
    let pair = |(at, spec): (usize, View<'_>)| target(spec, statuses.get(at).copied());
    let pairs: Vec<String> = specs.into_iter().enumerate().map(pair).collect();
    with_more(&pairs, ", ", MAX_METRICS, pairs.len())
}

/// The metrics of version 1, and what was measured: annotations, and fields for the use of processors.
fn first_version(view: View<'_>) -> (Vec<Value>, Vec<Value>) {
    let percent = |path| view.get(path).and_then(Value::as_i64);
    let mut specs = annotated(view, METRICS).unwrap_or_default();
    let default = specs.is_empty().then_some(DEFAULT_CPU_UTILIZATION);
    let cpu = percent("spec.targetCPUUtilizationPercentage").or(default);
    specs.extend(cpu.map(|percent| cpu_metric("targetAverageUtilization", percent)));
    let statuses = annotated(view, CURRENT_METRICS).unwrap_or_else(|| {
        let current = percent("status.currentCPUUtilizationPercentage");
        current.map(|percent| cpu_metric("currentAverageUtilization", percent)).into_iter().collect()
    });
    (specs, statuses)
}

fn annotated(view: View<'_>, key: &str) -> Option<Vec<Value>> {
    match json::parse(view.annotation(key)?.as_bytes()).ok()? {
        Value::Array(items) => Some(items.into_vec()),
        _ => None,
    }
}

fn cpu_metric(field: &str, percent: i64) -> Value {
    let (mut metric, mut resource) = (Map::default(), Map::default());
    resource.insert("name", cell("cpu"));
    resource.insert(field, Value::Int(percent));
    metric.insert("type", cell("Resource"));
    metric.insert("resource", Value::Object(resource));
    Value::Object(metric)
}

/// The names of a field in version 2 and version 1.
const TARGET_AVERAGE: &[&str] = &["target.averageValue", "targetAverageValue", "averageValue"];
const TARGET_VALUE: &[&str] = &["target.value", "targetValue"];
const TARGET_UTILIZATION: &[&str] = &["target.averageUtilization", "targetAverageUtilization"];
const AVERAGE: &[&str] = &["current.averageValue", "currentAverageValue", "averageValue"];
const VALUE: &[&str] = &["current.value", "currentValue"];
const UTILIZATION: &[&str] = &["current.averageUtilization", "currentAverageUtilization"];

fn first<'a>(view: View<'a>, paths: &[&str]) -> Option<&'a Value> {
    paths.iter().find_map(|path| view.get(path))
}

/// An amount, or what Go prints where there is none.
fn amount(value: Option<&Value>) -> String {
    value.map_or_else(|| "<nil>".to_owned(), |value| quantity(Some(value)))
}

/// A metric: what was measured, a slash, and what is aimed at.
fn target(spec: View<'_>, status: Option<View<'_>>) -> String {
    let (source, of_resource) = match spec.text("type") {
        "External" => ("external", false),
        "Object" => ("object", false),
        "Pods" => ("pods", false),
        "Resource" => ("resource", true),
        "ContainerResource" => ("containerResource", true),
        _ => return "<unknown type>".to_owned(),
    };
    let status = status.filter(|status| status.has(source)).map(|status| status.at(source));
    let spec = spec.at(source);
    let average = first(spec, TARGET_AVERAGE);
    let unknown = || "<unknown>".to_owned();
    if of_resource {
        let name = spec.text("name");
        if average.is_some() {
            let current = status.map_or_else(unknown, |status| amount(first(status, AVERAGE)));
            return format!("{name}: {current}/{}", amount(average));
        }
        let percent = |value: Option<&Value>| value.and_then(Value::as_i64).map(|percent| format!("{percent}%"));
        let current = status.and_then(|status| percent(first(status, UTILIZATION))).unwrap_or_else(unknown);
        let target = percent(first(spec, TARGET_UTILIZATION)).unwrap_or_else(|| "<auto>".to_owned());
        return format!("{name}: {current}/{target}");
    }
    if source == "pods" {
        let current = status.map_or_else(unknown, |status| amount(first(status, AVERAGE)));
        return format!("{current}/{}", amount(average));
    }
    if average.is_some() {
        let current = status.and_then(|status| first(status, AVERAGE));
        let current = current.map_or_else(unknown, |current| amount(Some(current)));
        return format!("{current}/{} (avg)", amount(average));
    }
    let current = status.map_or_else(unknown, |status| amount(first(status, VALUE)));
    format!("{current}/{}", amount(first(spec, TARGET_VALUE)))
}
