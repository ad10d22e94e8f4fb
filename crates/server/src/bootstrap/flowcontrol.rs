//! Brings flow schemas and priority levels up to date.

use capstan_api::Value;

use super::map_in;

/// Says whether the spec of an object follows the server's own.
const AUTO_UPDATE_SPEC: &str = "apf.kubernetes.io/autoupdate-spec";

/// How much a configuration object belongs to the server.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Ensure {
    /// It must be as the server has it.
    Mandatory,
    /// It follows the server's as long as its annotation says so, or nobody has touched it.
    Suggested,
}

impl Ensure {
    /// How the bootstrap object of this name is kept: those that catch what nothing else does are mandatory.
    #[must_use]
    pub fn of(name: &str) -> Self {
        if matches!(name, "exempt" | "catch-all") { Ensure::Mandatory } else { Ensure::Suggested }
    }
}

/// The object to write in place of `existing` to bring it up to date, if it isn't.
#[must_use]
pub fn revise(existing: &Value, expected: &Value, ensure: Ensure) -> Option<Value> {
    let metadata = existing.get("metadata");
    let annotation = metadata.and_then(|metadata| metadata.get("annotations")?.get(AUTO_UPDATE_SPEC)?.as_str());
    let wanted = annotation.and_then(parse_bool);
    let untouched = || metadata.and_then(|metadata| metadata.get("generation")?.as_i64()) == Some(1);
    let auto = ensure == Ensure::Mandatory || wanted.unwrap_or_else(untouched);

    let mut revised = existing.clone();
    if auto && let (Some(object), Some(spec)) = (revised.as_object_mut(), expected.get("spec")) {
        object.insert("spec", spec.clone());
    }
    if wanted != Some(auto) {
        let metadata = revised.get_mut("metadata").and_then(Value::as_object_mut);
        if let Some(annotations) = metadata.and_then(|metadata| map_in(metadata, "annotations")) {
            annotations.insert(AUTO_UPDATE_SPEC, auto.to_string());
        }
    }
    (revised != *existing).then_some(revised)
}

/// Reads a boolean as Go's `strconv.ParseBool` does.
fn parse_bool(text: &str) -> Option<bool> {
    match text {
        "1" | "t" | "T" | "TRUE" | "true" | "True" => Some(true),
        "0" | "f" | "F" | "FALSE" | "false" | "False" => Some(false),
        _ => None,
    }
}
