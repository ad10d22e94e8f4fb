//! Reading objects of any kind from JSON: what is a list, and what is refused.

use std::fmt;

use super::{Unstructured, UnstructuredList, meta::string_at};
use crate::{Map, Value, json};

/// JSON that is not an object. It prints word for word as upstream prints it.
#[derive(Clone, Debug, PartialEq)]
pub enum DecodeError {
    /// The bytes are not JSON.
    Json(json::Error),
    /// A value is not of the type that it must be.
    Type {
        /// What it is, in the words of Go's decoder.
        found: &'static str,
        /// What it should have been.
        expected: &'static str,
    },
    /// There is no kind; the data, as text.
    MissingKind(String),
}

impl fmt::Display for DecodeError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            DecodeError::Json(error) => error.fmt(f),
            DecodeError::Type { found, expected } => write!(f, "json: cannot unmarshal {found} into Go {expected}"),
            DecodeError::MissingKind(data) => write!(f, "Object 'Kind' is missing in '{data}'"),
        }
    }
}

impl std::error::Error for DecodeError {}

impl From<json::Error> for DecodeError {
    fn from(error: json::Error) -> Self {
        DecodeError::Json(error)
    }
}

/// What was read: an object, or a list of objects.
#[derive(Clone, Debug, PartialEq)]
pub enum Decoded {
    /// An object.
    Object(Unstructured),
    /// A list: it has a field `items`.
    List(UnstructuredList),
}

/// Reads an object or a list of objects. The kind is required.
///
/// # Errors
/// The bytes are not JSON, not a map, or have no kind; or the items are not a list of maps.
pub fn decode(data: &[u8]) -> Result<Decoded, DecodeError> {
    let map = root(data, "value of type unstructured.detector")?;
    if map.contains_key("items") {
        return with_kind(list_of(map)?, data).map(Decoded::List);
    }
    with_kind(map.into(), data).map(Decoded::Object)
}

pub(super) fn object(data: &[u8]) -> Result<Unstructured, DecodeError> {
    with_kind(root(data, ANY_MAP)?.into(), data)
}

pub(super) fn list(data: &[u8]) -> Result<UnstructuredList, DecodeError> {
    with_kind(list_of(root(data, "value of type unstructured.decodeList")?)?, data)
}

const ANY_MAP: &str = "value of type map[string]interface {}";

/// The outermost map; `null` is an empty one.
fn root(data: &[u8], expected: &'static str) -> Result<Map, DecodeError> {
    into_map(json::parse(data)?, expected)
}

fn into_map(value: Value, expected: &'static str) -> Result<Map, DecodeError> {
    match value {
        Value::Object(map) => Ok(map),
        Value::Null => Ok(Map::new()),
        other => Err(DecodeError::Type { found: word(&other), expected }),
    }
}

/// What Go's decoder calls such a value.
pub(crate) fn word(value: &Value) -> &'static str {
    match value {
        Value::Null => "null",
        Value::Bool(_) => "bool",
        Value::Int(_) | Value::Float(_) => "number",
        Value::String(_) => "string",
        Value::Array(_) => "array",
        Value::Object(_) => "object",
    }
}

/// Takes the items out. Those of typed lists carry no kind: it is the list's, without `List`.
fn list_of(mut object: Map) -> Result<UnstructuredList, DecodeError> {
    let items = match object.remove("items") {
        None | Some(Value::Null) => Vec::new(),
        Some(Value::Array(items)) => items.into_vec(),
        Some(other) => {
            let expected = "struct field decodeList.items of type []json.RawMessage";
            return Err(DecodeError::Type { found: word(&other), expected });
        }
    };
    let api_version = string_at(&object, &["apiVersion"]);
    let list_kind = string_at(&object, &["kind"]);
    let kind = list_kind.strip_suffix("List").unwrap_or(list_kind);
    let items = items.into_iter().map(|item| {
        let mut item = Unstructured::from(into_map(item, ANY_MAP)?);
        if item.kind().is_empty() && item.api_version().is_empty() {
            item.set_kind(kind);
            item.set_api_version(api_version);
        }
        Ok(item)
    });
    let items = items.collect::<Result<_, DecodeError>>()?;
    Ok(UnstructuredList { object, items })
}

trait Kinded {
    fn has_kind(&self) -> bool;
}

impl Kinded for Unstructured {
    fn has_kind(&self) -> bool {
        !self.gvk().kind.is_empty()
    }
}

impl Kinded for UnstructuredList {
    fn has_kind(&self) -> bool {
        !self.gvk().kind.is_empty()
    }
}

/// An `apiVersion` that cannot be read hides the kind, as upstream has it.
fn with_kind<T: Kinded>(object: T, data: &[u8]) -> Result<T, DecodeError> {
    if object.has_kind() {
        return Ok(object);
    }
    Err(DecodeError::MissingKind(String::from_utf8_lossy(data).into_owned()))
}
