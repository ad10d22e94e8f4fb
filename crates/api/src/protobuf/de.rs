//! From a message straight into a Rust type: a serde format whose names come from the schema.
//!
//! A type sees what it would see in JSON: the same names, strings where JSON has strings, and nothing where JSON leaves
//! something out. So whatever reads JSON reads this, without a tree in between.

use serde::{
    Deserializer,
    de::{DeserializeOwned, DeserializeSeed, Error as _, IntoDeserializer, MapAccess, SeqAccess, Visitor},
    forward_to_deserialize_any,
};

use super::{
    Error, MAX_DEPTH,
    decode::{leaf, zero},
    shape::{Either, Plan, Shape},
    wire::{DELIMITED, FIXED64, Reader, Tag, VARINT},
};
use crate::{
    Value,
    schema::{NodeRef, Schema},
    value::SerdeError,
};

/// The largest number of a field that a schema knows.
const MAX_NUMBER: i32 = 0xff;

/// Up to here every whole number is a float.
const MAX_WHOLE: f64 = 9_007_199_254_740_992.0;

/// The field of metadata that is large and that few look at.
const MANAGED_FIELDS: &str = "managedFields";

/// Makes a `T` of a message without its envelope; `managedFields` are passed over unless they are wanted.
///
/// # Errors
/// The bytes are no such message, or what they say is not of the type.
pub fn from_message<T: DeserializeOwned>(
    schema: &Schema,
    message: &[u8],
    managed_fields: bool,
) -> Result<T, SerdeError> {
    T::deserialize(One { shape: Shape::Struct(schema.root()), raw: Raw::Bytes(message), managed_fields, depth: 0 })
}

fn wrong(error: Error) -> SerdeError {
    SerdeError::custom(error)
}

/// What stands behind a tag.
#[derive(Clone, Copy, Debug)]
enum Raw<'de> {
    Number(u64),
    Bytes(&'de [u8]),
}

impl<'de> Raw<'de> {
    fn read(reader: &mut Reader<'de>, tag: Tag) -> Result<Option<Self>, Error> {
        Ok(Some(match tag.wire {
            VARINT => Raw::Number(reader.varint()?),
            FIXED64 => Raw::Number(reader.fixed64()?),
            DELIMITED => Raw::Bytes(reader.delimited()?),
            other => return reader.skip(other).map(|()| None),
        }))
    }

    fn bytes(self) -> Result<&'de [u8], SerdeError> {
        match self {
            Raw::Bytes(bytes) => Ok(bytes),
            Raw::Number(_) => Err(wrong(Error::IllegalWireType(VARINT))),
        }
    }
}

/// One value.
#[derive(Clone, Copy)]
struct One<'s, 'de> {
    shape: Shape<'s>,
    raw: Raw<'de>,
    managed_fields: bool,
    depth: usize,
}

impl<'s, 'de> One<'s, 'de> {
    fn with(self, shape: Shape<'s>, raw: Raw<'de>) -> Self {
        One { shape, raw, ..self }
    }

    /// Whether JSON would not show it in a place that leaves zero values out, or shows nothing as nothing.
    fn is_hidden(self, drops_zero: bool) -> Result<bool, SerdeError> {
        Ok(match (self.shape, self.raw) {
            (Shape::String | Shape::Bytes, Raw::Bytes(bytes)) => drops_zero && bytes.is_empty(),
            (Shape::Bool | Shape::Int32 | Shape::Int64, Raw::Number(n)) => drops_zero && n == 0,
            (Shape::Double, Raw::Number(n)) => drops_zero && f64::from_bits(n) == 0.0,
            (Shape::Time | Shape::MicroTime | Shape::Raw, Raw::Bytes(bytes)) => {
                leaf(self.shape, bytes).map_err(wrong)?.is_null()
            }
            (Shape::IntOrString, Raw::Bytes(bytes)) if drops_zero => match leaf(self.shape, bytes).map_err(wrong)? {
                Value::Int(n) => n == 0,
                Value::String(text) => text.is_empty(),
                _ => false,
            },
            (Shape::Wrapped(_), Raw::Bytes(bytes)) => bytes.is_empty(),
            _ => false,
        })
    }

    fn deeper(self) -> Result<Self, SerdeError> {
        if self.depth >= MAX_DEPTH { Err(wrong(Error::TooDeep)) } else { Ok(One { depth: self.depth + 1, ..self }) }
    }
}

impl<'de> Deserializer<'de> for One<'_, 'de> {
    type Error = SerdeError;

    fn deserialize_any<V: Visitor<'de>>(self, visitor: V) -> Result<V::Value, SerdeError> {
        match (self.shape, self.raw) {
            (Shape::Bool, Raw::Number(n)) => visitor.visit_bool(n != 0),
            (Shape::Int32, Raw::Number(n)) => visitor.visit_i32(n as i32),
            (Shape::Int64, Raw::Number(n)) => visitor.visit_i64(n as i64),
            (Shape::Double, Raw::Number(n)) => match f64::from_bits(n) {
                // JSON has no point in whole numbers.
                n if n.fract() == 0.0 && n.abs() < MAX_WHOLE => visitor.visit_i64(n as i64),
                n => visitor.visit_f64(n),
            },
            (Shape::String, Raw::Bytes(bytes)) => match str::from_utf8(bytes) {
                Ok(text) => visitor.visit_borrowed_str(text),
                Err(_) => visitor.visit_string(String::from_utf8_lossy(bytes).into_owned()),
            },
            (Shape::Struct(node), raw) => {
                let fields = Fields::read(node, raw.bytes()?)?;
                visitor.visit_map(Object { fields: fields.into_iter().peekable(), node, one: self.deeper()? })
            }
            (Shape::Wrapped(items), raw) => {
                let items = numbered(raw.bytes()?, 1, Shape::of(items))?;
                visitor.visit_seq(List { items: items.into_iter(), one: self.deeper()? })
            }
            (Shape::Either(either), raw) => self.either(either, raw.bytes()?, visitor),
            (Shape::Raw, raw) => {
                let inner = numbered(raw.bytes()?, 1, Shape::Bytes)?;
                let Some((_, Raw::Bytes(text))) = inner.last() else { return visitor.visit_unit() };
                let mut json = serde_json::Deserializer::from_slice(text);
                json.deserialize_any(visitor).map_err(SerdeError::custom)
            }
            (shape, raw) => match leaf(shape, raw.bytes()?).map_err(wrong)? {
                Value::String(text) => visitor.visit_str(&text),
                Value::Int(n) => visitor.visit_i64(n),
                _ => visitor.visit_unit(),
            },
        }
    }

    fn deserialize_option<V: Visitor<'de>>(self, visitor: V) -> Result<V::Value, SerdeError> {
        if self.is_hidden(false)? { visitor.visit_none() } else { visitor.visit_some(self) }
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
        let text = String::from_utf8_lossy(self.raw.bytes()?);
        visitor.visit_enum(text.as_ref().into_deserializer())
    }

    fn deserialize_ignored_any<V: Visitor<'de>>(self, visitor: V) -> Result<V::Value, SerdeError> {
        visitor.visit_unit()
    }

    forward_to_deserialize_any! {
        bool i8 i16 i32 i64 i128 u8 u16 u32 u64 u128 f32 f64 char str string bytes byte_buf unit unit_struct seq tuple
        tuple_struct map struct identifier
    }
}

impl<'s, 'de> One<'s, 'de> {
    fn either<V: Visitor<'de>>(self, either: Either<'s>, bytes: &'de [u8], visitor: V) -> Result<V::Value, SerdeError> {
        let one = self.deeper()?;
        let (first, second) = match either {
            Either::Bool(schema) => (Shape::Bool, Shape::Struct(schema)),
            Either::List(schema) => (Shape::Struct(schema), Shape::Struct(schema)),
            Either::Strings(schema) => (Shape::Struct(schema), Shape::String),
        };
        let many = numbered(bytes, 2, second)?;
        match (either, many.last()) {
            (Either::Bool(_), Some(&(shape, raw))) => return one.with(shape, raw).deserialize_any(visitor),
            (_, Some(_)) => return visitor.visit_seq(List { items: many.into_iter(), one }),
            (_, None) => {}
        }
        match numbered(bytes, 1, first)?.last() {
            Some(&(shape, raw)) => one.with(shape, raw).deserialize_any(visitor),
            None if matches!(either, Either::Bool(_)) => visitor.visit_bool(false),
            None => visitor.visit_unit(),
        }
    }
}

/// The fields of this number, with numbers of packed lists taken apart.
fn numbered<'s, 'de>(
    bytes: &'de [u8],
    number: i32,
    shape: Shape<'s>,
) -> Result<Vec<(Shape<'s>, Raw<'de>)>, SerdeError> {
    let mut reader = Reader::new(bytes);
    let mut found = Vec::new();
    while !reader.is_at_end() {
        let tag = reader.tag(String::new).map_err(wrong)?;
        if tag.number != number {
            reader.skip(tag.wire).map_err(wrong)?;
        } else if let Some(raw) = Raw::read(&mut reader, tag).map_err(wrong)? {
            unpack(shape, raw, &mut |raw| found.push((shape, raw))).map_err(wrong)?;
        }
    }
    Ok(found)
}

fn unpack<'de>(shape: Shape<'_>, raw: Raw<'de>, put: &mut impl FnMut(Raw<'de>)) -> Result<(), Error> {
    match (shape, raw) {
        (Shape::Bool | Shape::Int32 | Shape::Int64 | Shape::Double, Raw::Bytes(packed)) => {
            let mut reader = Reader::new(packed);
            while !reader.is_at_end() {
                let double = matches!(shape, Shape::Double);
                put(Raw::Number(if double { reader.fixed64()? } else { reader.varint()? }));
            }
        }
        _ => put(raw),
    }
    Ok(())
}

/// What a message has, in the order of the schema's fields; what comes several times in the order in which it comes.
struct Fields;

impl Fields {
    fn read<'de>(node: NodeRef<'_>, bytes: &'de [u8]) -> Result<Vec<(usize, Raw<'de>)>, SerdeError> {
        let mut found = Vec::new();
        Fields::collect(node, bytes, 0, 0, &mut found).map_err(wrong)?;
        // Go writes fields in the order of their numbers, which need not be that of their names.
        found.sort_by_key(|(position, _)| *position);
        Ok(found)
    }

    /// Messages that JSON does not show are at most two deep; see [`Numbered`](crate::schema::Numbered).
    fn collect<'de>(
        node: NodeRef<'_>,
        bytes: &'de [u8],
        level: usize,
        within: u32,
        found: &mut Vec<(usize, Raw<'de>)>,
    ) -> Result<(), Error> {
        let numbers = node.numbers();
        let mut reader = Reader::new(bytes);
        while !reader.is_at_end() {
            let tag = reader.tag(|| node.type_name().unwrap_or_default().to_owned())?;
            if tag.number > MAX_NUMBER {
                reader.skip(tag.wire)?;
                continue;
            }
            let shift = 16 - 8 * level;
            let path = within | (tag.number as u32) << shift;
            let next = numbers.get(numbers.partition_point(|field| field.path < path));
            let Some(raw) = Raw::read(&mut reader, tag)? else { continue };
            match (next, raw) {
                (Some(field), raw) if field.path == path => found.push((field.position, raw)),
                (Some(field), Raw::Bytes(bytes)) if field.path >> shift == path >> shift && level < 2 => {
                    Fields::collect(node, bytes, level + 1, path, found)?;
                }
                _ => {}
            }
        }
        Ok(())
    }
}

type Found<'de> = std::iter::Peekable<std::vec::IntoIter<(usize, Raw<'de>)>>;

/// A message as a map.
struct Object<'s, 'de> {
    fields: Found<'de>,
    node: NodeRef<'s>,
    one: One<'s, 'de>,
}

impl<'de> MapAccess<'de> for Object<'_, 'de> {
    type Error = SerdeError;

    fn next_key_seed<K: DeserializeSeed<'de>>(&mut self, seed: K) -> Result<Option<K::Value>, SerdeError> {
        while let Some(&(position, raw)) = self.fields.peek() {
            let field = self.node.field_at(position);
            let hidden = match Plan::of(field.node, self.node) {
                _ if !self.one.managed_fields && field.name.as_str() == MANAGED_FIELDS => true,
                Plan::One(shape) => self.one.with(shape, raw).is_hidden(field.node.drops_zero())?,
                Plan::List(_) | Plan::Map(_) => false,
            };
            if !hidden {
                return seed.deserialize(field.name.as_str().into_deserializer()).map(Some);
            }
            self.fields.next();
        }
        Ok(None)
    }

    fn next_value_seed<V: DeserializeSeed<'de>>(&mut self, seed: V) -> Result<V::Value, SerdeError> {
        let Some(&(position, first)) = self.fields.peek() else { return Err(SerdeError::Key) };
        let mut all = Vec::new();
        let one = self.one;
        match Plan::of(self.node.field_at(position).node, self.node) {
            Plan::One(shape) => {
                let mut last = first;
                while let Some((_, raw)) = self.fields.next_if(|(at, _)| *at == position) {
                    last = raw;
                }
                seed.deserialize(one.with(shape, last))
            }
            Plan::List(shape) => {
                while let Some((_, raw)) = self.fields.next_if(|(at, _)| *at == position) {
                    unpack(shape, raw, &mut |raw| all.push((shape, raw))).map_err(wrong)?;
                }
                seed.deserialize(Many::List(List { items: all.into_iter(), one }))
            }
            Plan::Map(shape) => {
                while let Some((_, raw)) = self.fields.next_if(|(at, _)| *at == position) {
                    all.push((shape, raw));
                }
                seed.deserialize(Many::Map(Entries { items: all.into_iter(), value: None, one }))
            }
        }
    }
}

/// The elements of a list.
struct List<'s, 'de> {
    items: std::vec::IntoIter<(Shape<'s>, Raw<'de>)>,
    one: One<'s, 'de>,
}

impl<'de> SeqAccess<'de> for List<'_, 'de> {
    type Error = SerdeError;

    fn next_element_seed<T: DeserializeSeed<'de>>(&mut self, seed: T) -> Result<Option<T::Value>, SerdeError> {
        self.items.next().map(|(shape, raw)| seed.deserialize(self.one.with(shape, raw))).transpose()
    }

    fn size_hint(&self) -> Option<usize> {
        Some(self.items.len())
    }
}

/// The entries of a map: messages of a key and a value.
struct Entries<'s, 'de> {
    items: std::vec::IntoIter<(Shape<'s>, Raw<'de>)>,
    value: Option<(Shape<'s>, Option<Raw<'de>>)>,
    one: One<'s, 'de>,
}

impl<'de> MapAccess<'de> for Entries<'_, 'de> {
    type Error = SerdeError;

    fn next_key_seed<K: DeserializeSeed<'de>>(&mut self, seed: K) -> Result<Option<K::Value>, SerdeError> {
        let Some((shape, raw)) = self.items.next() else { return Ok(None) };
        let (mut key, mut value) = (Raw::Bytes(b""), None);
        let mut reader = Reader::new(raw.bytes()?);
        while !reader.is_at_end() {
            let tag = reader.tag(|| "Entry".to_owned()).map_err(wrong)?;
            match (tag.number, Raw::read(&mut reader, tag).map_err(wrong)?) {
                (1, Some(raw)) => key = raw,
                (2, raw) => value = raw,
                _ => {}
            }
        }
        self.value = Some((shape, value));
        seed.deserialize(self.one.with(Shape::String, key)).map(Some)
    }

    fn next_value_seed<V: DeserializeSeed<'de>>(&mut self, seed: V) -> Result<V::Value, SerdeError> {
        match self.value.take() {
            Some((shape, Some(raw))) => seed.deserialize(self.one.with(shape, raw)),
            Some((shape, None)) => seed.deserialize(Many::Zero(zero(shape))),
            None => Err(SerdeError::Key),
        }
    }
}

/// What comes several times, or what an entry does not say.
enum Many<'s, 'de> {
    List(List<'s, 'de>),
    Map(Entries<'s, 'de>),
    Zero(Value),
}

impl<'de> Deserializer<'de> for Many<'_, 'de> {
    type Error = SerdeError;

    fn deserialize_any<V: Visitor<'de>>(self, visitor: V) -> Result<V::Value, SerdeError> {
        match self {
            Many::List(list) => visitor.visit_seq(list),
            Many::Map(map) => visitor.visit_map(map),
            Many::Zero(value) => match value {
                Value::Bool(b) => visitor.visit_bool(b),
                Value::Int(n) => visitor.visit_i64(n),
                Value::Float(n) => visitor.visit_f64(n),
                Value::String(text) => visitor.visit_str(&text),
                Value::Object(_) => {
                    visitor.visit_map(serde::de::value::MapDeserializer::new(std::iter::empty::<(&str, &str)>()))
                }
                _ => visitor.visit_unit(),
            },
        }
    }

    fn deserialize_option<V: Visitor<'de>>(self, visitor: V) -> Result<V::Value, SerdeError> {
        if matches!(self, Many::Zero(Value::Null)) { visitor.visit_none() } else { visitor.visit_some(self) }
    }

    fn deserialize_newtype_struct<V: Visitor<'de>>(self, _: &'static str, visitor: V) -> Result<V::Value, SerdeError> {
        visitor.visit_newtype_struct(self)
    }

    forward_to_deserialize_any! {
        bool i8 i16 i32 i64 i128 u8 u16 u32 u64 u128 f32 f64 char str string bytes byte_buf unit unit_struct seq tuple
        tuple_struct map struct enum identifier ignored_any
    }
}
