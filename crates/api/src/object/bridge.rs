//! Between [`Value`] and types that serde knows.

use serde::{Serialize, de::DeserializeOwned};

use crate::{Map, Value, json};

/// Reads a type out of a tree.
pub(crate) fn from_value<T: DeserializeOwned>(value: &Value) -> Result<T, serde_json::Error> {
    serde_json::from_str(&json::to_string(value))
}

/// Writes a type as a tree.
pub(crate) fn to_value<T: Serialize + ?Sized>(object: &T) -> Result<Value, serde_json::Error> {
    let text = serde_json::to_vec(object)?;
    json::parse(&text).map_err(serde::de::Error::custom)
}

/// Reads a type out of a map.
pub(crate) fn from_map<T: DeserializeOwned>(map: &Map) -> Result<T, serde_json::Error> {
    let mut text = Vec::new();
    write_map(map, &mut text);
    serde_json::from_slice(&text)
}

/// Appends the compact JSON of a map.
pub(crate) fn write_map(map: &Map, out: &mut Vec<u8>) {
    out.push(b'{');
    for (at, (key, value)) in map.iter().enumerate() {
        if at > 0 {
            out.push(b',');
        }
        json::write_str(key, out);
        out.push(b':');
        json::write(value, out);
    }
    out.push(b'}');
}
