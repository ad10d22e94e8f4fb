//! Between [`Value`] and types that serde knows.

use serde::{Serialize, de::DeserializeOwned};

use crate::{Value, json};

/// Reads a type out of a tree.
pub(crate) fn from_value<T: DeserializeOwned>(value: &Value) -> Result<T, serde_json::Error> {
    serde_json::from_str(&json::to_string(value))
}

/// Writes a type as a tree.
pub(crate) fn to_value<T: Serialize + ?Sized>(object: &T) -> Result<Value, serde_json::Error> {
    let text = serde_json::to_vec(object)?;
    json::parse(&text).map_err(serde::de::Error::custom)
}
