//! From values to Rust types, and from other formats to values.

use std::fmt;

use serde::{
    Deserialize, Deserializer,
    de::{DeserializeOwned, DeserializeSeed, Error as _, MapAccess, SeqAccess, Unexpected, Visitor},
};

use super::{Map, SerdeError, Value, serde_error::deeper};
use crate::{
    Str,
    typed::{self, Source},
};

/// Makes a `T` of a value.
///
/// # Errors
/// When the value is not of the type, or nests deeper than [`MAX_SERDE_DEPTH`](super::MAX_SERDE_DEPTH).
pub fn from_value<T: DeserializeOwned>(value: Value) -> Result<T, SerdeError> {
    typed::read(Source::Value(value, 0))
}

/// Reads any format that describes itself; not deeper than [`MAX_SERDE_DEPTH`](super::MAX_SERDE_DEPTH).
impl<'de> Deserialize<'de> for Value {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        Build { depth: 0 }.deserialize(deserializer)
    }
}

impl<'de> Deserialize<'de> for Map {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        match Value::deserialize(deserializer)? {
            Value::Object(map) => Ok(map),
            other => Err(D::Error::invalid_type(Unexpected::Other(other.type_name()), &"an object")),
        }
    }
}

/// Builds a value that is so deep in another one.
#[derive(Clone, Copy)]
struct Build {
    depth: usize,
}

impl<'de> DeserializeSeed<'de> for Build {
    type Value = Value;

    fn deserialize<D: Deserializer<'de>>(self, deserializer: D) -> Result<Value, D::Error> {
        deserializer.deserialize_any(self)
    }
}

impl<'de> Visitor<'de> for Build {
    type Value = Value;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("any JSON value")
    }

    fn visit_unit<E>(self) -> Result<Value, E> {
        Ok(Value::Null)
    }

    fn visit_none<E>(self) -> Result<Value, E> {
        Ok(Value::Null)
    }

    fn visit_some<D: Deserializer<'de>>(self, deserializer: D) -> Result<Value, D::Error> {
        self.deserialize(deserializer)
    }

    fn visit_bool<E>(self, b: bool) -> Result<Value, E> {
        Ok(Value::Bool(b))
    }

    fn visit_i64<E>(self, n: i64) -> Result<Value, E> {
        Ok(Value::Int(n))
    }

    fn visit_u64<E>(self, n: u64) -> Result<Value, E> {
        Ok(i64::try_from(n).map_or(Value::Float(n as f64), Value::Int))
    }

    fn visit_f64<E: serde::de::Error>(self, n: f64) -> Result<Value, E> {
        if n.is_finite() { Ok(Value::Float(n)) } else { Err(E::custom(SerdeError::Number)) }
    }

    fn visit_str<E>(self, s: &str) -> Result<Value, E> {
        Ok(Value::String(s.into()))
    }

    fn visit_string<E>(self, s: String) -> Result<Value, E> {
        Ok(Value::String(s.into()))
    }

    fn visit_seq<A: SeqAccess<'de>>(self, mut seq: A) -> Result<Value, A::Error> {
        let inside = Build { depth: deeper(self.depth, A::Error::custom)? };
        let mut items = Vec::new();
        while let Some(item) = seq.next_element_seed(inside)? {
            items.push(item);
        }
        Ok(items.into())
    }

    fn visit_map<A: MapAccess<'de>>(self, mut map: A) -> Result<Value, A::Error> {
        let inside = Build { depth: deeper(self.depth, A::Error::custom)? };
        let mut entries = Vec::new();
        while let Some(key) = map.next_key::<Str>()? {
            entries.push((key, map.next_value_seed(inside)?));
        }
        Ok(Map::from_iter(entries).into())
    }
}
