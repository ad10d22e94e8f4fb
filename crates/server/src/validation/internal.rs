//! How Go prints pods and what is in them, and schemas: the structs of upstream's internal types with all their fields.
//!
//! Upstream's messages about what must not change show them whole, under Go's own names. The table has a line for each
//! type: its fields in the order of their declaration, each as `Name:kind`, or `Name=key:kind` where the key is not the
//! name with a small letter. `metadata` stands for the fields of an object's metadata, which have names of their own.

use std::{collections::HashMap, fmt::Write, sync::OnceLock};

use capstan_api::{Map, Value};

use super::{
    diff::diff,
    read::{at, empty},
    rules::show_selector,
    show::json,
};

const TYPES: &str = include_str!("internal.txt");

/// The fields of metadata in the order in which they are printed, those that are set.
const METADATA: [&str; 12] = [
    "name",
    "generateName",
    "namespace",
    "uid",
    "resourceVersion",
    "generation",
    "creationTimestamp",
    "deletionTimestamp",
    "labels",
    "annotations",
    "ownerReferences",
    "finalizers",
];

/// What a pod says itself and Go keeps with its security context.
const OF_THE_POD: [&str; 5] = ["hostNetwork", "hostPID", "hostIPC", "shareProcessNamespace", "hostUsers"];

/// Name, key, kind.
pub(super) type Field = (&'static str, String, &'static str);

/// The fields of a type in their order: name, key, kind.
pub(super) fn fields(ty: &str) -> &'static [Field] {
    static ALL: OnceLock<HashMap<&str, Vec<Field>>> = OnceLock::new();
    let field = |word: &'static str| {
        let (name, kind) = word.split_once(':').unwrap_or((word, word));
        match name.split_once('=') {
            Some((name, key)) => (name, key.to_owned(), kind),
            None => {
                let (first, rest) = name.split_at(name.len().min(1));
                (name, first.to_lowercase() + rest, kind)
            }
        }
    };
    let line = |line: &'static str| {
        let mut words = line.split(' ');
        (words.next().unwrap_or_default(), words.map(field).collect())
    };
    ALL.get_or_init(|| TYPES.lines().map(line).collect()).get(ty).map_or(&[], Vec::as_slice)
}

/// A struct as compact JSON. The types bound how deep it goes, or the value where a type has parts of its own type.
pub(super) fn show(ty: &str, map: &Map) -> String {
    let mut out = String::from("{");
    for (name, key, kind) in fields(ty) {
        let comma = |out: &mut String| out.push_str(if out.len() > 1 { "," } else { "" });
        if *kind == "metadata" {
            let metadata = at(map, "metadata");
            for key in METADATA {
                let Some(value) = metadata.get(key).filter(|value| !value.is_null()) else { continue };
                comma(&mut out);
                // Writing to a string cannot fail.
                let _ = write!(out, "\"{key}\":{}", json(value));
            }
            continue;
        }
        comma(&mut out);
        let shown = match *kind {
            "*PodSecurityContext" => show("PodSecurityContext", &security_context(map)),
            kind => value(map.get(key).filter(|value| !value.is_null()), kind),
        };
        let _ = write!(out, "\"{name}\":{shown}");
    }
    out.push('}');
    out
}

/// What changed between two structs.
pub(super) fn difference(ty: &str, old: &Map, new: &Map) -> String {
    diff(&show(ty, old), &show(ty, new))
}

fn value(value: Option<&Value>, kind: &str) -> String {
    let map = value.and_then(Value::as_object);
    let missing = match kind {
        "text" => "\"\"",
        "flag" => "false",
        "number" => "0",
        "quantity" => "\"0\"",
        "nil" => "null",
        "selector" => return show_selector(map),
        "schema-or-list" => {
            let one = map.map_or_else(|| "null".to_owned(), |map| show("JSONSchemaProps", map));
            return value.map_or_else(
                || "null".to_owned(),
                |value| format!(r#"{{"Schema":{one},"JSONSchemas":{}}}"#, list(Some(value), "JSONSchemaProps")),
            );
        }
        "schema-or-flag" => {
            return match value {
                None => "null".to_owned(),
                Some(Value::Bool(allows)) => format!(r#"{{"Allows":{allows},"Schema":null}}"#),
                Some(_) => format!(r#"{{"Allows":true,"Schema":{}}}"#, self::value(value, "*JSONSchemaProps")),
            };
        }
        kind => {
            if let Some(ty) = kind.strip_prefix("{}") {
                return entries(map, ty);
            }
            return match (kind.strip_prefix('*'), kind.strip_prefix("[]")) {
                (Some(ty), _) => map.map_or_else(|| "null".to_owned(), |map| show(ty, map)),
                (_, Some(ty)) => list(value, ty),
                _ => show(kind, map.unwrap_or(empty())),
            };
        }
    };
    value.map_or_else(|| missing.to_owned(), json)
}

fn entries(map: Option<&Map>, ty: &str) -> String {
    let Some(map) = map else { return "null".to_owned() };
    let mut all: Vec<_> = map.iter().collect();
    all.sort_by(|a, b| a.0.cmp(b.0));
    let entry = |(key, value): &(&str, &Value)| {
        let value = show(ty, value.as_object().unwrap_or(empty()));
        format!("{}:{value}", json(&(*key).into()))
    };
    let all: Vec<String> = all.iter().map(entry).collect();
    format!("{{{}}}", all.join(","))
}

fn list(value: Option<&Value>, ty: &str) -> String {
    let Some(items) = value.and_then(Value::as_array) else { return "null".to_owned() };
    let items: Vec<_> = items.iter().map(|item| show(ty, item.as_object().unwrap_or(empty()))).collect();
    format!("[{}]", items.join(","))
}

fn security_context(spec: &Map) -> Map {
    let mut context = at(spec, "securityContext").clone();
    for key in OF_THE_POD {
        if let Some(value) = spec.get(key) {
            context.insert(key, value.clone());
        }
    }
    context
}
