//! The metrics of HorizontalPodAutoscalers: `autoscaling/v1` keeps those that it has no fields for as JSON in
//! annotations, in shapes of its own.

use capstan_api::{Map, Value, json, unstructured::nested};

/// What a metric is of, in the order in which Go writes it.
const SOURCES: &[&str] = &["object", "pods", "resource", "containerResource", "external"];

/// A field of a metric: whose, its name in `v1`, its way in `v2`, and whether `v1` can't leave it out.
type Field = (&'static str, &'static str, &'static [&'static str], bool);

const SPEC: &[Field] = &[
    ("object", "target", &["describedObject"], false),
    ("object", "metricName", &["metric", "name"], false),
    ("object", "selector", &["metric", "selector"], false),
    ("object", "targetValue", &["target", "value"], true),
    ("object", "averageValue", &["target", "averageValue"], false),
    ("pods", "metricName", &["metric", "name"], false),
    ("pods", "selector", &["metric", "selector"], false),
    ("pods", "targetAverageValue", &["target", "averageValue"], true),
    ("resource", "name", &["name"], false),
    ("resource", "targetAverageUtilization", &["target", "averageUtilization"], false),
    ("resource", "targetAverageValue", &["target", "averageValue"], false),
    ("containerResource", "name", &["name"], false),
    ("containerResource", "container", &["container"], false),
    ("containerResource", "targetAverageUtilization", &["target", "averageUtilization"], false),
    ("containerResource", "targetAverageValue", &["target", "averageValue"], false),
    ("external", "metricName", &["metric", "name"], false),
    ("external", "metricSelector", &["metric", "selector"], false),
    ("external", "targetValue", &["target", "value"], false),
    ("external", "targetAverageValue", &["target", "averageValue"], false),
];

const STATUS: &[Field] = &[
    ("object", "target", &["describedObject"], false),
    ("object", "metricName", &["metric", "name"], false),
    ("object", "selector", &["metric", "selector"], false),
    ("object", "currentValue", &["current", "value"], true),
    ("object", "averageValue", &["current", "averageValue"], false),
    ("pods", "metricName", &["metric", "name"], false),
    ("pods", "selector", &["metric", "selector"], false),
    ("pods", "currentAverageValue", &["current", "averageValue"], true),
    ("resource", "name", &["name"], false),
    ("resource", "currentAverageUtilization", &["current", "averageUtilization"], false),
    ("resource", "currentAverageValue", &["current", "averageValue"], true),
    ("containerResource", "name", &["name"], false),
    ("containerResource", "container", &["container"], false),
    ("containerResource", "currentAverageUtilization", &["current", "averageUtilization"], false),
    ("containerResource", "currentAverageValue", &["current", "averageValue"], true),
    ("external", "metricName", &["metric", "name"], false),
    ("external", "metricSelector", &["metric", "selector"], false),
    ("external", "currentValue", &["current", "value"], true),
    ("external", "currentAverageValue", &["current", "averageValue"], false),
];

/// Whether metrics are what is wanted or what is there.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(super) enum Of {
    Spec,
    Status,
}

impl Of {
    fn fields(self, source: &str) -> impl Iterator<Item = &'static Field> {
        let fields = if self == Of::Spec { SPEC } else { STATUS };
        fields.iter().filter(move |(of, ..)| *of == source)
    }
}

fn present<'a>(map: &'a Map, path: &[&str]) -> Option<&'a Value> {
    nested::field(map, path).ok().flatten().filter(|value| !value.is_null())
}

/// A metric of `v2` as `v1` writes it.
pub(super) fn to_v1(metric: &Value, of: Of) -> Value {
    convert(metric, |source, from| {
        let mut to = Map::new();
        for (_, name, path, required) in of.fields(source) {
            match present(from, path) {
                Some(value) => _ = to.insert(*name, value.clone()),
                None if *required => _ = to.insert(*name, "0"),
                None => {}
            }
        }
        to
    })
}

/// A metric of `v1` as `v2` has it.
pub(super) fn to_v2(metric: &Value, of: Of) -> Value {
    convert(metric, |source, from| {
        let mut to = Map::new();
        for (_, name, path, required) in of.fields(source) {
            let zero = || required.then(|| Value::from("0"));
            if let Some(value) = present(from, &[name]).cloned().or_else(zero) {
                drop(nested::set(&mut to, path, value));
            }
        }
        if of == Of::Spec {
            target_type(source, &mut to);
        }
        to
    })
}

/// In `v1`, what kind of target a metric has shows from what is set.
fn target_type(source: &str, metric: &mut Map) {
    let has = |metric: &Map, field: &str| present(metric, &["target", field]).is_some();
    let ty = match source {
        "object" if has(metric, "averageValue") => {
            // v1 can't leave the value out and writes a zero, which nobody has asked for.
            let value = present(metric, &["target", "value"]).and_then(Value::as_str);
            if value.and_then(|value| value.parse::<capstan_api::Quantity>().ok()).is_some_and(|value| value.is_zero())
            {
                nested::remove(metric, &["target", "value"]);
            }
            "AverageValue"
        }
        "object" => "Value",
        "resource" | "containerResource" if has(metric, "averageUtilization") => "Utilization",
        "external" if has(metric, "value") => "Value",
        _ => "AverageValue",
    };
    drop(nested::set(metric, &["target", "type"], ty));
}

fn convert(metric: &Value, source: impl Fn(&str, &Map) -> Map) -> Value {
    let mut out = Map::new();
    let ty = metric.get("type").filter(|ty| !ty.is_null());
    out.insert("type", ty.cloned().unwrap_or_else(|| "".into()));
    for name in SOURCES {
        if let Some(from) = metric.get(name).and_then(Value::as_object) {
            out.insert(*name, source(name, from));
        }
    }
    out.into()
}

/// The fields of all shapes that get into annotations, in an order that is that of Go's structs for each of them.
const ORDER: &[&str] = &[
    "type",
    "status",
    "lastTransitionTime",
    "reason",
    "message",
    "object",
    "pods",
    "resource",
    "containerResource",
    "external",
    "kind",
    "name",
    "apiVersion",
    "target",
    "metricName",
    "metricSelector",
    "targetValue",
    "targetAverageUtilization",
    "targetAverageValue",
    "currentValue",
    "currentAverageUtilization",
    "currentAverageValue",
    "selector",
    "averageValue",
    "container",
    "matchLabels",
    "matchExpressions",
    "key",
    "operator",
    "values",
    "ScaleUp",
    "ScaleDown",
    "StabilizationWindowSeconds",
    "SelectPolicy",
    "Policies",
    "Type",
    "Value",
    "PeriodSeconds",
    "Tolerance",
];

/// How deep the shapes of annotations go at most: beyond that, and in maps of labels, keys are sorted.
const MAX_SHAPE: usize = 16;

/// JSON as Go writes the structs that get into annotations.
pub(super) fn print(value: &Value) -> String {
    let mut out = String::new();
    print_into(value, MAX_SHAPE, &mut out);
    out
}

fn print_into(value: &Value, depth: usize, out: &mut String) {
    let list = |open: char, close: char, out: &mut String, count: usize, item: &mut dyn FnMut(usize, &mut String)| {
        out.push(open);
        for i in 0..count {
            if i > 0 {
                out.push(',');
            }
            item(i, out);
        }
        out.push(close);
    };
    match value {
        Value::Array(items) if depth > 0 => {
            list('[', ']', out, items.len(), &mut |i, out| print_into(&items[i], depth - 1, out));
        }
        Value::Object(map) if depth > 0 => {
            let mut entries: Vec<_> = map.iter().collect();
            let place = |key: &str| ORDER.iter().position(|known| *known == key).unwrap_or(ORDER.len());
            entries.sort_by_key(|(key, _)| place(key));
            list('{', '}', out, entries.len(), &mut |i, out| {
                let (key, value) = entries[i];
                out.push_str(&json::to_string(&Value::from(key)));
                out.push(':');
                print_into(value, if key == "matchLabels" { 0 } else { depth - 1 }, out);
            });
        }
        other => out.push_str(&json::to_string(other)),
    }
}
