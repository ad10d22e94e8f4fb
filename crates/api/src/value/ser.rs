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

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;

    use k8s_openapi::api::core::v1::Pod;
    use serde::{Deserialize, de::DeserializeOwned};

    use super::super::{MAX_SERDE_DEPTH, from_value};
    use super::*;
    use crate::json;

    const POD: &[u8] = include_bytes!("../../benches/pod.json");

    #[derive(Debug, PartialEq, Serialize, Deserialize)]
    enum Shape {
        Point,
        Circle(f64),
        Line(i32, i32),
        Box {
            width: u64,
            #[serde(skip_serializing_if = "Option::is_none")]
            height: Option<u8>,
        },
    }

    #[derive(Debug, PartialEq, Serialize, Deserialize)]
    struct Nested(Option<Box<Nested>>, Vec<Nested>);

    fn check<T: Serialize + DeserializeOwned + PartialEq + std::fmt::Debug>(thing: &T, expected: &str) {
        let value = to_value(thing).unwrap();
        assert_eq!(json::to_string(&value), expected);
        assert_eq!(&from_value::<T>(value).unwrap(), thing);
    }

    #[test]
    fn types_and_values() {
        check(&(true, -1i8, 2u64, 1.5f32, 'x', "s".to_owned(), ()), r#"[true,-1,2,1.5,"x","s",null]"#);
        check(&vec![Some(1), None], "[1,null]");
        check(&BTreeMap::from([(1, "a".to_owned()), (-2, "b".to_owned())]), r#"{"-2":"b","1":"a"}"#);
        check(
            &vec![Shape::Point, Shape::Circle(0.5), Shape::Line(1, -2), Shape::Box { width: 1, height: None }],
            r#"["Point",{"Circle":0.5},{"Line":[1,-2]},{"Box":{"width":1}}]"#,
        );
        let pod = json::parse(POD).unwrap();
        let typed: Pod = from_value(pod.clone()).unwrap();
        assert_eq!(typed, serde_json::from_slice(POD).unwrap());
        assert_eq!(to_value(&typed).unwrap().get("spec"), pod.get("spec"));
        assert_eq!(to_value(&pod).unwrap(), pod);
    }

    #[test]
    fn other_formats() {
        let value = json::parse(POD).unwrap();
        let other: serde_json::Value = serde_json::to_value(&value).unwrap();
        assert_eq!(other, serde_json::from_slice::<serde_json::Value>(POD).unwrap());
        assert_eq!(serde_json::from_value::<Value>(other).unwrap(), value);
        assert_eq!(serde_json::from_slice::<Value>(POD).unwrap(), value);
        assert_eq!(
            serde_json::from_str::<Value>("[18446744073709551615,1.0,1]").unwrap().to_string(),
            "[18446744073709552000,1,1]"
        );
    }

    #[test]
    fn what_does_not_fit() {
        assert_eq!(to_value(&f64::NAN), Err(SerdeError::Number));
        assert_eq!(to_value(&BTreeMap::from([(vec![1], 1)])), Err(SerdeError::Key));
        assert!(matches!(from_value::<bool>(Value::Int(1)), Err(SerdeError::Type(_))));
        assert!(matches!(from_value::<u8>(Value::Int(256)), Err(SerdeError::Type(_))));
        assert!(matches!(from_value::<Shape>(Value::Int(1)), Err(SerdeError::Type(_))));
        assert!(from_value::<(i32, i32)>(json::parse(b"[1,2,3]").unwrap()).is_err());
    }

    #[test]
    fn depth_is_bounded() {
        let deep = |depth: usize| json::parse(("[".repeat(depth) + &"]".repeat(depth)).as_bytes()).unwrap();
        for depth in [MAX_SERDE_DEPTH + 1, 10_000] {
            assert_eq!(from_value::<serde_json::Value>(deep(depth)), Err(SerdeError::Depth));
            assert_eq!(to_value(&deep(depth)).unwrap_err().to_string(), "more than 128 levels deep");
            assert!(serde_json::to_string(&deep(depth)).is_err());
        }
        let value = deep(MAX_SERDE_DEPTH);
        assert_eq!(to_value(&value).as_ref(), Ok(&value));
        assert_eq!(from_value::<Value>(value.clone()).as_ref(), Ok(&value));
        let nested = (0..100_000).fold(Nested(None, Vec::new()), |inner, _| Nested(None, vec![inner]));
        assert_eq!(to_value(&nested), Err(SerdeError::Depth));
        // Its own drop would recurse.
        std::mem::forget(nested);
    }
}
