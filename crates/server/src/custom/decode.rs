//! From the body of a request to a custom resource.

use capstan_api::{
    Map, Status, Value,
    codec::{self, Format, StrictError, StrictErrors},
    go, json,
    schema::{
        default::{default, drop_nulls},
        prune::prune,
    },
};

use super::{coerce, definition::Served};

/// What becomes of a `null` where the schema has no place for one.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Nulls {
    /// It is as if it was not there: in what a client sends.
    Dropped,
    /// It stays, to be refused: in what an applied configuration makes of an object.
    Kept,
}

/// Why a body is not such an object.
pub(crate) enum Refused {
    /// It cannot be read at all; the words.
    Unrecognized(String),
    /// It is something, but not this; the kind and version that it claims, and the words.
    Other(String, String, String),
}

/// Reads an object. What is unknown or comes twice is in the second part.
pub(crate) fn object(
    served: &Served,
    body: &[u8],
    format: Format,
    nulls: Nulls,
) -> Result<(Map, StrictErrors), Refused> {
    let (value, strict) = codec::decode_strict(body, format)
        .map_err(|error| Refused::Unrecognized(format!("couldn't get version/kind; json parse error: {error}")))?;
    let text = || match format {
        Format::Json => String::from_utf8_lossy(body).into_owned(),
        Format::Yaml => json::to_string(&value),
    };
    if value.is_null() {
        return Err(Refused::Unrecognized(format!("Object 'Kind' is missing in '{}'", text())));
    }
    let Value::Object(map) = &value else {
        let ty = crate::handlers::decode::TYPE_META;
        let what = go_kind(&value);
        let words = format!("json: cannot unmarshal {what} into Go value of type {ty}");
        return Err(Refused::Unrecognized(format!("couldn't get version/kind; json parse error: {words}")));
    };
    for key in ["kind", "apiVersion"] {
        if let Some(value) = map.get(key).filter(|value| !value.is_null() && value.as_str().is_none()) {
            let what = go_kind(value);
            let words = format!("json: cannot unmarshal {what} into Go struct field .{key} of type string");
            return Err(Refused::Unrecognized(format!("couldn't get version/kind; json parse error: {words}")));
        }
    }
    let field = |key: &str| map.get(key).and_then(Value::as_str).unwrap_or_default().to_owned();
    let (kind, api_version) = (field("kind"), field("apiVersion"));
    if api_version.matches('/').count() > 1 {
        return Err(Refused::Unrecognized(format!("unexpected GroupVersion string: {api_version}")));
    }
    if kind.is_empty() {
        return Err(Refused::Unrecognized(format!("Object 'Kind' is missing in '{}'", text())));
    }
    let version = api_version.rsplit('/').next().unwrap_or_default().to_owned();
    let Value::Object(mut object) = value else { return Err(Refused::Unrecognized(String::new())) };
    let mut strict = strict;
    fit(served, &mut object, &mut strict, nulls).map_err(|words| Refused::Other(kind, version, words))?;
    Ok((object, strict))
}

/// Makes what was sent into what is kept: metadata as it must be, nothing that the schema does not know, defaults.
///
/// # Errors
/// What is not metadata.
pub(crate) fn fit(served: &Served, object: &mut Map, strict: &mut StrictErrors, nulls: Nulls) -> Result<(), String> {
    coerce::metadata(object, "", strict)?;
    let gvk = served.gvk();
    let text = |key: &str| object.get(key).and_then(Value::as_str).unwrap_or_default();
    let group = text("apiVersion").rsplit_once('/').map_or("", |(group, _)| group);
    if text("kind") != gvk.kind.as_str() || group != gvk.group.as_str() {
        return Ok(());
    }
    let definition = served.definition();
    let version = text("apiVersion").rsplit('/').next().unwrap_or_default();
    let Some(at) = definition.versions.iter().position(|known| *known.name == *version) else {
        // Of a version that is not there nothing is known but what all have.
        object.retain(|key, _| {
            let known = matches!(key, "apiVersion" | "kind" | "metadata");
            if !known {
                strict.push(StrictError::Unknown(key.to_owned()));
            }
            known
        });
        return Ok(());
    };
    let schema = definition.schema(at);
    let mut value = Value::Object(std::mem::take(object));
    for path in prune(&mut value, schema) {
        strict.push(StrictError::Unknown(path));
    }
    if nulls == Nulls::Dropped {
        drop_nulls(&mut value, schema);
    }
    if let Value::Object(map) = &mut value {
        coerce::embedded(map, schema, strict)?;
    }
    default(&mut value, schema);
    if let Value::Object(map) = value {
        *object = map;
    }
    Ok(())
}

/// What Go calls a value.
fn go_kind(value: &Value) -> &'static str {
    match value {
        Value::Bool(_) => "bool",
        Value::Int(_) | Value::Float(_) => "number",
        Value::String(_) => "string",
        Value::Array(_) => "array",
        Value::Object(_) => "object",
        Value::Null => "null",
    }
}

/// The object is of the version that the endpoint serves.
pub(crate) fn check_version(served: &Served, object: &Map) -> Result<(), Status> {
    let found = object.get("apiVersion").and_then(Value::as_str).unwrap_or_default();
    let expected = served.gvk().api_version();
    if *found == *expected {
        return Ok(());
    }
    Err(Status::bad_request(format!(
        "the API version in the data ({found}) does not match the expected API version ({expected})"
    )))
}

/// The words of a refusal.
pub(crate) fn refusal(served: &Served, kind: &str, version: &str, words: &str) -> Status {
    let version = go::quote(version);
    Status::bad_request(format!("{kind} in version {version} cannot be handled as a {}: {words}", served.gvk().kind))
}
