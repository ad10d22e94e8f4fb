//! Objects of any kind, without a Rust type: a tree with accessors.

mod decode;
mod list;
mod meta;
pub mod nested;
mod print;

use std::{collections::BTreeMap, fmt};

use serde::{Serialize, de::DeserializeOwned};

pub(crate) use decode::word as go_word;
pub use decode::{DecodeError, Decoded, decode};
pub use list::{ListError, UnstructuredList};
pub use nested::NestedError;

use crate::{Array, GroupVersionKind, Map, Resource, Value, json, value};

/// An object of any kind.
///
/// Getters of metadata return nothing when a field is missing or of the wrong type, setters of metadata do nothing when
/// `metadata` is not a map; who wants to know reads and writes with the nested accessors, which say what is wrong.
///
/// ```
/// use capstan_api::Unstructured;
///
/// let at = Unstructured::decode(br#"{"kind":"At","metadata":{"name":"example-at"},"spec":{"schedule":3}}"#)?;
/// assert_eq!(at.name(), "example-at");
/// assert_eq!(at.nested_str(["spec", "command"])?, None);
/// let error = at.nested_str(["spec", "schedule"]).unwrap_err();
/// assert_eq!(error.to_string(), ".spec.schedule accessor error: 3 is of the type int64, expected string");
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Unstructured {
    object: Map,
}

impl From<Map> for Unstructured {
    fn from(object: Map) -> Self {
        Unstructured { object }
    }
}

impl From<Unstructured> for Value {
    fn from(from: Unstructured) -> Self {
        from.object.into()
    }
}

impl Serialize for Unstructured {
    fn serialize<S: serde::Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        self.object.serialize(serializer)
    }
}

/// Prints compact JSON.
impl fmt::Display for Unstructured {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let mut out = Vec::new();
        self.write(&mut out);
        f.write_str(&String::from_utf8_lossy(&out))
    }
}

/// A Rust type and a tree that do not fit together.
#[derive(Debug)]
pub struct ConvertError(String);

impl fmt::Display for ConvertError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

impl std::error::Error for ConvertError {}

impl Unstructured {
    /// An object of which nothing is known but its kind.
    #[must_use]
    pub fn new(gvk: &GroupVersionKind) -> Self {
        let mut object = Unstructured::default();
        object.set_gvk(gvk);
        object
    }

    /// Reads an object from JSON. Its kind is required.
    ///
    /// # Errors
    /// The bytes are not JSON, not a map, or have no kind.
    pub fn decode(data: &[u8]) -> Result<Self, DecodeError> {
        decode::object(data)
    }

    /// Appends compact JSON.
    pub fn write(&self, out: &mut Vec<u8>) {
        json::write_map(&self.object, out);
    }

    /// From an object of a Rust type. Its kind is written into it.
    ///
    /// # Errors
    /// The type does not serialize to a map.
    pub fn from_typed<T: Resource + Serialize>(object: &T) -> Result<Self, ConvertError> {
        let gvk = T::gvk();
        match value::to_value(object) {
            Ok(Value::Object(map)) => {
                let mut object = Unstructured::from(map);
                object.set_gvk(&gvk);
                Ok(object)
            }
            Ok(other) => Err(ConvertError(format!("{gvk} is a {} and not an object", other.type_name()))),
            Err(error) => Err(ConvertError(error.to_string())),
        }
    }

    /// To an object of a Rust type.
    ///
    /// # Errors
    /// The tree is not what the type expects; upstream's words, and what serde says.
    pub fn to_typed<T: DeserializeOwned>(&self) -> Result<T, ConvertError> {
        value::from_value(self.object.clone().into())
            .map_err(|error| ConvertError(format!("unable to convert unstructured object to {}: {error}", self.gvk())))
    }

    /// The tree.
    #[must_use]
    pub fn content(&self) -> &Map {
        &self.object
    }

    /// The tree, to be changed.
    pub fn content_mut(&mut self) -> &mut Map {
        &mut self.object
    }

    /// The tree, taken out.
    #[must_use]
    pub fn into_content(self) -> Map {
        self.object
    }
}

/// Nested accessors. A path names fields: `["spec", "schedule"]`. See [`nested`] for what is an error and what is
/// nothing.
impl Unstructured {
    /// The value at `path`, whatever it is.
    ///
    /// # Errors
    /// Something on the way is not a map.
    pub fn nested_field<'p>(&self, path: impl AsRef<[&'p str]>) -> Result<Option<&Value>, NestedError> {
        nested::field(&self.object, path.as_ref())
    }

    /// The string at `path`.
    ///
    /// # Errors
    /// It is not a string, or something on the way is not a map.
    pub fn nested_str<'p>(&self, path: impl AsRef<[&'p str]>) -> Result<Option<&str>, NestedError> {
        nested::str(&self.object, path.as_ref())
    }

    /// The boolean at `path`.
    ///
    /// # Errors
    /// It is not a boolean, or something on the way is not a map.
    pub fn nested_bool<'p>(&self, path: impl AsRef<[&'p str]>) -> Result<Option<bool>, NestedError> {
        nested::bool(&self.object, path.as_ref())
    }

    /// The integer at `path`.
    ///
    /// # Errors
    /// It is not an integer, or something on the way is not a map.
    pub fn nested_i64<'p>(&self, path: impl AsRef<[&'p str]>) -> Result<Option<i64>, NestedError> {
        nested::i64(&self.object, path.as_ref())
    }

    /// The float at `path`.
    ///
    /// # Errors
    /// It is not a float, or something on the way is not a map.
    pub fn nested_f64<'p>(&self, path: impl AsRef<[&'p str]>) -> Result<Option<f64>, NestedError> {
        nested::f64(&self.object, path.as_ref())
    }

    /// The number at `path`, be it an integer or not.
    ///
    /// # Errors
    /// It is not a number, or an integer that no float is equal to, or something on the way is not a map.
    pub fn nested_number_as_f64<'p>(&self, path: impl AsRef<[&'p str]>) -> Result<Option<f64>, NestedError> {
        nested::number_as_f64(&self.object, path.as_ref())
    }

    /// The list at `path`.
    ///
    /// # Errors
    /// It is not a list, or something on the way is not a map.
    pub fn nested_slice<'p>(&self, path: impl AsRef<[&'p str]>) -> Result<Option<&Array>, NestedError> {
        nested::slice(&self.object, path.as_ref())
    }

    /// The map at `path`.
    ///
    /// # Errors
    /// It is not a map, or something on the way is not.
    pub fn nested_map<'p>(&self, path: impl AsRef<[&'p str]>) -> Result<Option<&Map>, NestedError> {
        nested::map(&self.object, path.as_ref())
    }

    /// The strings of the list at `path`.
    ///
    /// # Errors
    /// It is not a list of strings, or something on the way is not a map.
    pub fn nested_string_slice<'p>(&self, path: impl AsRef<[&'p str]>) -> Result<Option<Vec<String>>, NestedError> {
        nested::string_slice(&self.object, path.as_ref())
    }

    /// The strings of the map at `path`.
    ///
    /// # Errors
    /// It is not a map of strings, or something on the way is not a map.
    pub fn nested_string_map<'p>(
        &self,
        path: impl AsRef<[&'p str]>,
    ) -> Result<Option<BTreeMap<String, String>>, NestedError> {
        nested::string_map(&self.object, path.as_ref())
    }

    /// Sets the value at `path`; maps that are missing on the way are made.
    ///
    /// # Errors
    /// Something on the way is not a map; then nothing has changed.
    pub fn set_nested<'p>(&mut self, path: impl AsRef<[&'p str]>, value: impl Into<Value>) -> Result<(), NestedError> {
        nested::set(&mut self.object, path.as_ref(), value)
    }

    /// Removes the value at `path` and returns it; nothing if it is not there.
    pub fn remove_nested<'p>(&mut self, path: impl AsRef<[&'p str]>) -> Option<Value> {
        nested::remove(&mut self.object, path.as_ref())
    }
}

#[cfg(test)]
mod tests;
