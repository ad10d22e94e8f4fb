//! From values to Rust types, and from other formats to values.

use std::fmt;

use serde::{
    Deserialize, Deserializer,
    de::{
        DeserializeOwned, DeserializeSeed, EnumAccess, Error as _, IntoDeserializer, MapAccess, SeqAccess, Unexpected,
        VariantAccess, Visitor,
        value::{MapDeserializer, SeqDeserializer},
    },
    forward_to_deserialize_any,
};

use super::{Map, SerdeError, Value, serde_error::deeper};
use crate::Str;

/// Makes a `T` of a value.
///
/// # Errors
/// When the value is not of the type, or nests deeper than [`MAX_SERDE_DEPTH`](super::MAX_SERDE_DEPTH).
pub fn from_value<T: DeserializeOwned>(value: Value) -> Result<T, SerdeError> {
    T::deserialize(Part { value, depth: 0 })
}

/// A value, and how deep it is in the one that was given.
struct Part {
    value: Value,
    depth: usize,
}

impl IntoDeserializer<'_, SerdeError> for Part {
    type Deserializer = Self;

    fn into_deserializer(self) -> Self {
        self
    }
}

impl<'de> Deserializer<'de> for Part {
    type Error = SerdeError;

    fn deserialize_any<V: Visitor<'de>>(self, visitor: V) -> Result<V::Value, SerdeError> {
        match self.value {
            Value::Null => visitor.visit_unit(),
            Value::Bool(b) => visitor.visit_bool(b),
            Value::Int(n) => visitor.visit_i64(n),
            Value::Float(n) => visitor.visit_f64(n),
            Value::String(s) => visitor.visit_string(s.into()),
            Value::Array(items) => {
                let depth = deeper(self.depth, |error| error)?;
                let mut seq = SeqDeserializer::new(items.into_iter().map(|value| Part { value, depth }));
                let value = visitor.visit_seq(&mut seq)?;
                seq.end()?;
                Ok(value)
            }
            Value::Object(map) => {
                let depth = deeper(self.depth, |error| error)?;
                let entries = map.into_iter().map(|(key, value)| (Key(key), Part { value, depth }));
                let mut entries = MapDeserializer::new(entries);
                let value = visitor.visit_map(&mut entries)?;
                entries.end()?;
                Ok(value)
            }
        }
    }

    fn deserialize_option<V: Visitor<'de>>(self, visitor: V) -> Result<V::Value, SerdeError> {
        if self.value.is_null() { visitor.visit_none() } else { visitor.visit_some(self) }
    }

    fn deserialize_newtype_struct<V: Visitor<'de>>(self, _: &'static str, visitor: V) -> Result<V::Value, SerdeError> {
        visitor.visit_newtype_struct(self)
    }

    fn deserialize_enum<V: Visitor<'de>>(
        self,
        _: &'static str,
        _: &'static [&'static str],
        visitor: V,
    ) -> Result<V::Value, SerdeError> {
        let (variant, content) = match self.value {
            Value::String(name) => (name, None),
            Value::Object(map) if map.len() == 1 => {
                let (name, value) = map.into_iter().next().expect("it has one entry");
                (name, Some(Part { value, depth: deeper(self.depth, |error| error)? }))
            }
            _ => return Err(SerdeError::invalid_type(Unexpected::Other(self.value.type_name()), &"a variant")),
        };
        visitor.visit_enum(Variant { name: variant, content })
    }

    forward_to_deserialize_any! {
        bool i8 i16 i32 i64 i128 u8 u16 u32 u64 u128 f32 f64 char str string bytes byte_buf unit unit_struct seq tuple
        tuple_struct map struct identifier ignored_any
    }
}

/// The key of an entry: a string, or what the type makes of it.
struct Key(Str);

impl IntoDeserializer<'_, SerdeError> for Key {
    type Deserializer = Self;

    fn into_deserializer(self) -> Self {
        self
    }
}

/// Keys that are numbers or booleans for the type are read as such.
macro_rules! parsed {
    ($($method:ident => $visit:ident),*) => {
        $(fn $method<V: Visitor<'de>>(self, visitor: V) -> Result<V::Value, SerdeError> {
            match self.0.parse() {
                Ok(key) => visitor.$visit(key),
                Err(_) => self.deserialize_any(visitor),
            }
        })*
    };
}

impl<'de> Deserializer<'de> for Key {
    type Error = SerdeError;

    fn deserialize_any<V: Visitor<'de>>(self, visitor: V) -> Result<V::Value, SerdeError> {
        visitor.visit_string(self.0.into())
    }

    parsed! {
        deserialize_bool => visit_bool,
        deserialize_i8 => visit_i8, deserialize_i16 => visit_i16,
        deserialize_i32 => visit_i32, deserialize_i64 => visit_i64,
        deserialize_u8 => visit_u8, deserialize_u16 => visit_u16,
        deserialize_u32 => visit_u32, deserialize_u64 => visit_u64
    }

    fn deserialize_option<V: Visitor<'de>>(self, visitor: V) -> Result<V::Value, SerdeError> {
        visitor.visit_some(self)
    }

    fn deserialize_newtype_struct<V: Visitor<'de>>(self, _: &'static str, visitor: V) -> Result<V::Value, SerdeError> {
        visitor.visit_newtype_struct(self)
    }

    fn deserialize_enum<V: Visitor<'de>>(
        self,
        _: &'static str,
        _: &'static [&'static str],
        visitor: V,
    ) -> Result<V::Value, SerdeError> {
        visitor.visit_enum(Variant { name: self.0, content: None })
    }

    forward_to_deserialize_any! {
        i128 u128 f32 f64 char str string bytes byte_buf unit unit_struct seq tuple tuple_struct map struct identifier
        ignored_any
    }
}

/// A variant of an enum: `"Name"` or `{"Name": content}`.
struct Variant {
    name: Str,
    content: Option<Part>,
}

impl<'de> EnumAccess<'de> for Variant {
    type Error = SerdeError;
    type Variant = Self;

    fn variant_seed<V: DeserializeSeed<'de>>(self, seed: V) -> Result<(V::Value, Self), SerdeError> {
        let name: serde::de::value::StrDeserializer<'_, SerdeError> = self.name.as_str().into_deserializer();
        Ok((seed.deserialize(name)?, self))
    }
}

impl<'de> VariantAccess<'de> for Variant {
    type Error = SerdeError;

    fn unit_variant(self) -> Result<(), SerdeError> {
        match self.content {
            None => Ok(()),
            Some(content) => Deserialize::deserialize(content),
        }
    }

    fn newtype_variant_seed<T: DeserializeSeed<'de>>(self, seed: T) -> Result<T::Value, SerdeError> {
        seed.deserialize(self.content.unwrap_or(Part { value: Value::Null, depth: 0 }))
    }

    fn tuple_variant<V: Visitor<'de>>(self, _: usize, visitor: V) -> Result<V::Value, SerdeError> {
        self.content.unwrap_or(Part { value: Value::Null, depth: 0 }).deserialize_any(visitor)
    }

    fn struct_variant<V: Visitor<'de>>(self, _: &'static [&'static str], visitor: V) -> Result<V::Value, SerdeError> {
        self.tuple_variant(0, visitor)
    }
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
