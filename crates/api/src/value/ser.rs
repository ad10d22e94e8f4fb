//! From Rust types to values, and from values to other formats.

use serde::{
    Serialize, Serializer,
    ser::{
        Error as _, SerializeMap, SerializeSeq, SerializeStruct, SerializeStructVariant, SerializeTuple,
        SerializeTupleStruct, SerializeTupleVariant,
    },
};

use super::{Array, Map, SerdeError, Value, serde_error::deeper};
use crate::Str;

/// Makes a value of anything that can be serialized.
///
/// # Errors
/// When JSON has no such thing (a key that is no string, a number that is not finite), or it nests deeper than
/// [`MAX_SERDE_DEPTH`](super::MAX_SERDE_DEPTH).
pub fn to_value<T: Serialize + ?Sized>(thing: &T) -> Result<Value, SerdeError> {
    thing.serialize(Make { depth: 0 })
}

/// A value for another format, and how deep it is in the one that was given.
struct Part<'a> {
    value: &'a Value,
    depth: usize,
}

impl Serialize for Part<'_> {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        let depth = self.depth;
        match self.value {
            Value::Null => serializer.serialize_unit(),
            Value::Bool(b) => serializer.serialize_bool(*b),
            Value::Int(n) => serializer.serialize_i64(*n),
            Value::Float(n) => serializer.serialize_f64(*n),
            Value::String(s) => serializer.serialize_str(s),
            Value::Array(items) => {
                let depth = deeper(depth, S::Error::custom)?;
                serializer.collect_seq(items.iter().map(|value| Part { value, depth }))
            }
            Value::Object(map) => {
                let depth = deeper(depth, S::Error::custom)?;
                serializer.collect_map(map.iter().map(|(key, value)| (key, Part { value, depth })))
            }
        }
    }
}

/// Writes any format; not deeper than [`MAX_SERDE_DEPTH`](super::MAX_SERDE_DEPTH).
impl Serialize for Value {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        Part { value: self, depth: 0 }.serialize(serializer)
    }
}

impl Serialize for Map {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.collect_map(self.iter().map(|(key, value)| (key, Part { value, depth: 1 })))
    }
}

impl Serialize for Array {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.collect_seq(self.iter().map(|value| Part { value, depth: 1 }))
    }
}

/// Makes a value that is so deep in another one.
#[derive(Clone, Copy)]
struct Make {
    depth: usize,
}

impl Make {
    fn deeper(self) -> Result<Make, SerdeError> {
        Ok(Make { depth: deeper(self.depth, |error| error)? })
    }
}

/// A list or an object that is being made, under the name of its variant if it has one.
struct Making {
    inside: Make,
    items: Vec<Value>,
    entries: Vec<(Str, Value)>,
    key: Str,
    variant: Option<&'static str>,
}

impl Making {
    fn new(make: Make, variant: Option<&'static str>) -> Result<Self, SerdeError> {
        let outer = if variant.is_some() { make.deeper()? } else { make };
        Ok(Making { inside: outer.deeper()?, items: Vec::new(), entries: Vec::new(), key: Str::default(), variant })
    }

    fn item<T: Serialize + ?Sized>(&mut self, item: &T) -> Result<(), SerdeError> {
        self.items.push(item.serialize(self.inside)?);
        Ok(())
    }

    fn entry<T: Serialize + ?Sized>(&mut self, key: impl Into<Str>, value: &T) -> Result<(), SerdeError> {
        self.entries.push((key.into(), value.serialize(self.inside)?));
        Ok(())
    }

    fn list(self) -> Value {
        in_variant(self.variant, self.items.into())
    }

    fn object(self) -> Value {
        in_variant(self.variant, Map::from_iter(self.entries).into())
    }
}

fn in_variant(variant: Option<&'static str>, value: Value) -> Value {
    match variant {
        Some(name) => Map::from_iter([(name.into(), value)]).into(),
        None => value,
    }
}

impl Serializer for Make {
    type Ok = Value;
    type Error = SerdeError;
    type SerializeSeq = Making;
    type SerializeTuple = Making;
    type SerializeTupleStruct = Making;
    type SerializeTupleVariant = Making;
    type SerializeMap = Making;
    type SerializeStruct = Making;
    type SerializeStructVariant = Making;

    fn serialize_bool(self, b: bool) -> Result<Value, SerdeError> {
        Ok(Value::Bool(b))
    }

    fn serialize_i8(self, n: i8) -> Result<Value, SerdeError> {
        Ok(Value::Int(n.into()))
    }

    fn serialize_i16(self, n: i16) -> Result<Value, SerdeError> {
        Ok(Value::Int(n.into()))
    }

    fn serialize_i32(self, n: i32) -> Result<Value, SerdeError> {
        Ok(Value::Int(n.into()))
    }

    fn serialize_i64(self, n: i64) -> Result<Value, SerdeError> {
        Ok(Value::Int(n))
    }

    fn serialize_u8(self, n: u8) -> Result<Value, SerdeError> {
        Ok(Value::Int(n.into()))
    }

    fn serialize_u16(self, n: u16) -> Result<Value, SerdeError> {
        Ok(Value::Int(n.into()))
    }

    fn serialize_u32(self, n: u32) -> Result<Value, SerdeError> {
        Ok(Value::Int(n.into()))
    }

    /// What no signed integer holds becomes a float, as it does on its way through JSON.
    fn serialize_u64(self, n: u64) -> Result<Value, SerdeError> {
        Ok(i64::try_from(n).map_or(Value::Float(n as f64), Value::Int))
    }

    fn serialize_f32(self, n: f32) -> Result<Value, SerdeError> {
        self.serialize_f64(n.into())
    }

    fn serialize_f64(self, n: f64) -> Result<Value, SerdeError> {
        if n.is_finite() { Ok(Value::Float(n)) } else { Err(SerdeError::Number) }
    }

    fn serialize_char(self, c: char) -> Result<Value, SerdeError> {
        self.serialize_str(c.encode_utf8(&mut [0; 4]))
    }

    fn serialize_str(self, s: &str) -> Result<Value, SerdeError> {
        Ok(Value::String(s.into()))
    }

    fn serialize_bytes(self, bytes: &[u8]) -> Result<Value, SerdeError> {
        Ok(bytes.iter().map(|&byte| Value::Int(byte.into())).collect::<Array>().into())
    }

    fn serialize_none(self) -> Result<Value, SerdeError> {
        Ok(Value::Null)
    }

    fn serialize_some<T: Serialize + ?Sized>(self, thing: &T) -> Result<Value, SerdeError> {
        thing.serialize(self)
    }

    fn serialize_unit(self) -> Result<Value, SerdeError> {
        Ok(Value::Null)
    }

    fn serialize_unit_struct(self, _: &'static str) -> Result<Value, SerdeError> {
        Ok(Value::Null)
    }

    fn serialize_unit_variant(self, _: &'static str, _: u32, name: &'static str) -> Result<Value, SerdeError> {
        Ok(name.into())
    }

    fn serialize_newtype_struct<T: Serialize + ?Sized>(self, _: &'static str, thing: &T) -> Result<Value, SerdeError> {
        thing.serialize(self)
    }

    fn serialize_newtype_variant<T: Serialize + ?Sized>(
        self,
        _: &'static str,
        _: u32,
        name: &'static str,
        thing: &T,
    ) -> Result<Value, SerdeError> {
        Ok(in_variant(Some(name), thing.serialize(self.deeper()?)?))
    }

    fn serialize_seq(self, _: Option<usize>) -> Result<Making, SerdeError> {
        Making::new(self, None)
    }

    fn serialize_tuple(self, _: usize) -> Result<Making, SerdeError> {
        Making::new(self, None)
    }

    fn serialize_tuple_struct(self, _: &'static str, _: usize) -> Result<Making, SerdeError> {
        Making::new(self, None)
    }

    fn serialize_tuple_variant(
        self,
        _: &'static str,
        _: u32,
        name: &'static str,
        _: usize,
    ) -> Result<Making, SerdeError> {
        Making::new(self, Some(name))
    }

    fn serialize_map(self, _: Option<usize>) -> Result<Making, SerdeError> {
        Making::new(self, None)
    }

    fn serialize_struct(self, _: &'static str, _: usize) -> Result<Making, SerdeError> {
        Making::new(self, None)
    }

    fn serialize_struct_variant(
        self,
        _: &'static str,
        _: u32,
        name: &'static str,
        _: usize,
    ) -> Result<Making, SerdeError> {
        Making::new(self, Some(name))
    }
}

impl SerializeSeq for Making {
    type Ok = Value;
    type Error = SerdeError;

    fn serialize_element<T: Serialize + ?Sized>(&mut self, item: &T) -> Result<(), SerdeError> {
        self.item(item)
    }

    fn end(self) -> Result<Value, SerdeError> {
        Ok(self.list())
    }
}

impl SerializeTuple for Making {
    type Ok = Value;
    type Error = SerdeError;

    fn serialize_element<T: Serialize + ?Sized>(&mut self, item: &T) -> Result<(), SerdeError> {
        self.item(item)
    }

    fn end(self) -> Result<Value, SerdeError> {
        Ok(self.list())
    }
}

impl SerializeTupleStruct for Making {
    type Ok = Value;
    type Error = SerdeError;

    fn serialize_field<T: Serialize + ?Sized>(&mut self, item: &T) -> Result<(), SerdeError> {
        self.item(item)
    }

    fn end(self) -> Result<Value, SerdeError> {
        Ok(self.list())
    }
}

impl SerializeTupleVariant for Making {
    type Ok = Value;
    type Error = SerdeError;

    fn serialize_field<T: Serialize + ?Sized>(&mut self, item: &T) -> Result<(), SerdeError> {
        self.item(item)
    }

    fn end(self) -> Result<Value, SerdeError> {
        Ok(self.list())
    }
}

impl SerializeMap for Making {
    type Ok = Value;
    type Error = SerdeError;

    fn serialize_key<T: Serialize + ?Sized>(&mut self, key: &T) -> Result<(), SerdeError> {
        self.key = match key.serialize(self.inside)? {
            Value::String(key) => key,
            Value::Bool(b) => b.to_string().into(),
            Value::Int(n) => n.to_string().into(),
            _ => return Err(SerdeError::Key),
        };
        Ok(())
    }

    fn serialize_value<T: Serialize + ?Sized>(&mut self, value: &T) -> Result<(), SerdeError> {
        let key = std::mem::take(&mut self.key);
        self.entry(key, value)
    }

    fn end(self) -> Result<Value, SerdeError> {
        Ok(self.object())
    }
}

impl SerializeStruct for Making {
    type Ok = Value;
    type Error = SerdeError;

    fn serialize_field<T: Serialize + ?Sized>(&mut self, key: &'static str, value: &T) -> Result<(), SerdeError> {
        self.entry(key, value)
    }

    fn end(self) -> Result<Value, SerdeError> {
        Ok(self.object())
    }
}

impl SerializeStructVariant for Making {
    type Ok = Value;
    type Error = SerdeError;

    fn serialize_field<T: Serialize + ?Sized>(&mut self, key: &'static str, value: &T) -> Result<(), SerdeError> {
        self.entry(key, value)
    }

    fn end(self) -> Result<Value, SerdeError> {
        Ok(self.object())
    }
}
