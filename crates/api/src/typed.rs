//! From values and messages into Rust types: one serde format for both.
//!
//! A program has hundreds of types from Kubernetes' API, and serde compiles the reading of each of them anew for every
//! format. So there is one format here whatever the bytes are, what does not depend on the type is done before its
//! visitor is called, and every request of a type gets only the answers that it can use.

use serde::{
    Deserialize, Deserializer,
    de::{
        DeserializeOwned, DeserializeSeed, EnumAccess, Error as _, Expected, IntoDeserializer, MapAccess, SeqAccess,
        Unexpected, VariantAccess, Visitor,
    },
    forward_to_deserialize_any,
};

use crate::{
    Str, Value,
    protobuf::{Elements, Entries, Object, One},
    value::{SerdeError, deeper},
};

/// Where something is read from.
pub(crate) enum Source<'s, 'de> {
    /// A value, so deep in the one that was given.
    Value(Value, usize),
    /// What stands once in a message.
    One(One<'s, 'de>),
    /// What stands there as often as a list has elements.
    List(Elements<'s, 'de>),
    /// What stands there as often as a map has entries.
    Map(Entries<'s, 'de>),
}

/// What is there.
pub(crate) enum Token<'s, 'de> {
    Null,
    Bool(bool),
    Int(i64),
    Float(f64),
    /// Text that lies in the bytes as it is.
    Text(&'de str),
    String(Str),
    Items(Items<'s, 'de>),
    Fields(Fields<'s, 'de>),
}

/// The elements of a list.
pub(crate) enum Items<'s, 'de> {
    Values(std::vec::IntoIter<Value>, usize),
    Messages(Elements<'s, 'de>),
}

/// The entries of a map.
pub(crate) enum Fields<'s, 'de> {
    Values { entries: std::vec::IntoIter<(Str, Value)>, value: Option<Value>, depth: usize },
    Object(Object<'s, 'de>),
    Map(Entries<'s, 'de>),
}

/// The key of an entry: a string, or what the type makes of it.
pub(crate) enum Key<'s, 'de> {
    Name(&'s str),
    /// Text that lies in the bytes as it is.
    Borrowed(&'de str),
    Text(Str),
}

/// Makes a `T` of what is there.
pub(crate) fn read<T: DeserializeOwned>(source: Source<'_, '_>) -> Result<T, SerdeError> {
    T::deserialize(source)
}

impl<'s, 'de> Source<'s, 'de> {
    pub(crate) fn token(self) -> Result<Token<'s, 'de>, SerdeError> {
        Ok(match self {
            Source::Value(value, depth) => match value {
                Value::Null => Token::Null,
                Value::Bool(b) => Token::Bool(b),
                Value::Int(n) => Token::Int(n),
                Value::Float(n) => Token::Float(n),
                Value::String(text) => Token::String(text),
                Value::Array(items) => Token::Items(Items::Values(items.into_iter(), deeper(depth, |error| error)?)),
                Value::Object(map) => {
                    let depth = deeper(depth, |error| error)?;
                    Token::Fields(Fields::Values { entries: map.into_iter(), value: None, depth })
                }
            },
            Source::One(one) => one.token()?,
            Source::List(list) => Token::Items(Items::Messages(list)),
            Source::Map(map) => Token::Fields(Fields::Map(map)),
        })
    }

    fn is_nothing(&self) -> Result<bool, SerdeError> {
        match self {
            Source::Value(value, _) => Ok(value.is_null()),
            Source::One(one) => one.is_hidden(false),
            Source::List(_) | Source::Map(_) => Ok(false),
        }
    }

    fn variant(self) -> Result<Variant<'s, 'de>, SerdeError> {
        match self.token()? {
            Token::Text(name) => Ok(Variant { name: name.into(), content: None }),
            Token::String(name) => Ok(Variant { name, content: None }),
            Token::Fields(Fields::Values { mut entries, depth, .. }) if entries.len() == 1 => {
                let (name, value) = entries.next().unwrap_or_default();
                Ok(Variant { name, content: Some(Source::Value(value, depth)) })
            }
            other => Err(other.unlike(&"a variant")),
        }
    }
}

impl Token<'_, '_> {
    /// The error of a type that wanted something else.
    #[cold]
    fn unlike(&self, expected: &dyn Expected) -> SerdeError {
        let found = match self {
            Token::Null => Unexpected::Unit,
            Token::Bool(b) => Unexpected::Bool(*b),
            Token::Int(n) => Unexpected::Signed(*n),
            Token::Float(n) => Unexpected::Float(*n),
            Token::Text(text) => Unexpected::Str(text),
            Token::String(text) => Unexpected::Str(text),
            Token::Items(_) => Unexpected::Seq,
            Token::Fields(_) => Unexpected::Map,
        };
        SerdeError::invalid_type(found, expected)
    }
}

/// Reads what one request of a type can use; anything else is an error.
macro_rules! reads {
    ($($method:ident($($hint:ty),*): $($token:pat => $visit:expr),+;)+) => {
        $(fn $method<V: Visitor<'de>>(self, $(_: $hint,)* visitor: V) -> Result<V::Value, SerdeError> {
            match self.token()? {
                $($token => ($visit)(visitor),)+
                other => Err(other.unlike(&visitor)),
            }
        })+
    };
}

/// A request for a number.
macro_rules! numbers {
    ($($method:ident)+) => {
        $(fn $method<V: Visitor<'de>>(self, visitor: V) -> Result<V::Value, SerdeError> {
            match self.token()? {
                Token::Int(n) => visitor.visit_i64(n),
                Token::Float(n) => visitor.visit_f64(n),
                other => Err(other.unlike(&visitor)),
            }
        })+
    };
}

/// A request for text.
macro_rules! texts {
    ($($method:ident)+) => {
        $(fn $method<V: Visitor<'de>>(self, visitor: V) -> Result<V::Value, SerdeError> {
            match self.token()? {
                Token::Text(text) => visitor.visit_borrowed_str(text),
                Token::String(text) => visitor.visit_string(text.into()),
                other => Err(other.unlike(&visitor)),
            }
        })+
    };
}

impl<'de> Deserializer<'de> for Source<'_, 'de> {
    type Error = SerdeError;

    fn deserialize_any<V: Visitor<'de>>(self, visitor: V) -> Result<V::Value, SerdeError> {
        match self.token()? {
            Token::Null => visitor.visit_unit(),
            Token::Bool(b) => visitor.visit_bool(b),
            Token::Int(n) => visitor.visit_i64(n),
            Token::Float(n) => visitor.visit_f64(n),
            Token::Text(text) => visitor.visit_borrowed_str(text),
            Token::String(text) => visitor.visit_string(text.into()),
            Token::Items(items) => items.visit(visitor),
            Token::Fields(fields) => fields.visit(visitor),
        }
    }

    numbers! {
        deserialize_i8 deserialize_i16 deserialize_i32 deserialize_i64 deserialize_i128 deserialize_u8 deserialize_u16
        deserialize_u32 deserialize_u64 deserialize_u128 deserialize_f32 deserialize_f64
    }

    texts! { deserialize_char deserialize_str deserialize_string deserialize_identifier }

    reads! {
        deserialize_bool(): Token::Bool(b) => |visitor: V| visitor.visit_bool(b);
        deserialize_unit(): Token::Null => |visitor: V| visitor.visit_unit();
        deserialize_unit_struct(&'static str): Token::Null => |visitor: V| visitor.visit_unit();
        deserialize_seq(): Token::Items(items) => |visitor: V| items.visit(visitor);
        deserialize_tuple(usize): Token::Items(items) => |visitor: V| items.visit(visitor);
        deserialize_tuple_struct(&'static str, usize): Token::Items(items) => |visitor: V| items.visit(visitor);
        deserialize_map(): Token::Fields(fields) => |visitor: V| fields.visit(visitor);
        deserialize_struct(&'static str, &'static [&'static str]):
            Token::Fields(fields) => |visitor: V| fields.visit(visitor);
    }

    fn deserialize_option<V: Visitor<'de>>(self, visitor: V) -> Result<V::Value, SerdeError> {
        if self.is_nothing()? { visitor.visit_none() } else { visitor.visit_some(self) }
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
        visitor.visit_enum(self.variant()?)
    }

    fn deserialize_ignored_any<V: Visitor<'de>>(self, visitor: V) -> Result<V::Value, SerdeError> {
        visitor.visit_unit()
    }

    forward_to_deserialize_any! { bytes byte_buf }
}

impl<'s, 'de> Items<'s, 'de> {
    fn visit<V: Visitor<'de>>(mut self, visitor: V) -> Result<V::Value, SerdeError> {
        let value = visitor.visit_seq(&mut self)?;
        self.end()?;
        Ok(value)
    }

    fn next(&mut self) -> Option<Source<'s, 'de>> {
        match self {
            Items::Values(values, depth) => values.next().map(|value| Source::Value(value, *depth)),
            Items::Messages(list) => list.next().map(Source::One),
        }
    }

    fn len(&self) -> usize {
        match self {
            Items::Values(values, _) => values.len(),
            Items::Messages(list) => list.len(),
        }
    }

    /// A type must have read all of it.
    fn end(&self) -> Result<(), SerdeError> {
        match self.len() {
            0 => Ok(()),
            more => Err(SerdeError::custom(format_args!("{more} elements more than expected"))),
        }
    }
}

impl<'de> SeqAccess<'de> for &mut Items<'_, 'de> {
    type Error = SerdeError;

    fn next_element_seed<T: DeserializeSeed<'de>>(&mut self, seed: T) -> Result<Option<T::Value>, SerdeError> {
        match self.next() {
            Some(item) => seed.deserialize(item).map(Some),
            None => Ok(None),
        }
    }

    fn size_hint(&self) -> Option<usize> {
        Some(self.len())
    }
}

impl<'s, 'de> Fields<'s, 'de> {
    fn visit<V: Visitor<'de>>(mut self, visitor: V) -> Result<V::Value, SerdeError> {
        let value = visitor.visit_map(&mut self)?;
        match self {
            Fields::Values { entries, .. } if entries.len() > 0 => {
                Err(SerdeError::custom(format_args!("{} entries more than expected", entries.len())))
            }
            _ => Ok(value),
        }
    }

    fn key(&mut self) -> Result<Option<Key<'s, 'de>>, SerdeError> {
        match self {
            Fields::Values { entries, value: next, .. } => Ok(entries.next().map(|(key, value)| {
                *next = Some(value);
                Key::Text(key)
            })),
            Fields::Object(object) => Ok(object.key()?.map(Key::Name)),
            Fields::Map(map) => map.key(),
        }
    }

    fn value(&mut self) -> Result<Source<'s, 'de>, SerdeError> {
        match self {
            Fields::Values { value, depth, .. } => {
                value.take().map(|value| Source::Value(value, *depth)).ok_or(SerdeError::Key)
            }
            Fields::Object(object) => object.value(),
            Fields::Map(map) => map.value(),
        }
    }
}

impl<'de> MapAccess<'de> for &mut Fields<'_, 'de> {
    type Error = SerdeError;

    fn next_key_seed<K: DeserializeSeed<'de>>(&mut self, seed: K) -> Result<Option<K::Value>, SerdeError> {
        match self.key()? {
            Some(key) => seed.deserialize(key).map(Some),
            None => Ok(None),
        }
    }

    fn next_value_seed<V: DeserializeSeed<'de>>(&mut self, seed: V) -> Result<V::Value, SerdeError> {
        seed.deserialize(self.value()?)
    }
}

impl Key<'_, '_> {
    fn text(&self) -> &str {
        match self {
            Key::Name(text) | Key::Borrowed(text) => text,
            Key::Text(text) => text,
        }
    }
}

/// Keys that are numbers or booleans for the type are read as such.
macro_rules! parsed {
    ($($method:ident => $visit:ident),*) => {
        $(fn $method<V: Visitor<'de>>(self, visitor: V) -> Result<V::Value, SerdeError> {
            match self.text().parse() {
                Ok(key) => visitor.$visit(key),
                Err(_) => visitor.visit_str(self.text()),
            }
        })*
    };
}

impl<'de> Deserializer<'de> for Key<'_, '_> {
    type Error = SerdeError;

    fn deserialize_any<V: Visitor<'de>>(self, visitor: V) -> Result<V::Value, SerdeError> {
        visitor.visit_str(self.text())
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
        visitor.visit_enum(Variant { name: self.text().into(), content: None })
    }

    forward_to_deserialize_any! {
        i128 u128 f32 f64 char str string bytes byte_buf unit unit_struct seq tuple tuple_struct map struct identifier
        ignored_any
    }
}

/// A variant of an enum: `"Name"` or `{"Name": content}`.
struct Variant<'s, 'de> {
    name: Str,
    content: Option<Source<'s, 'de>>,
}

impl<'s, 'de> Variant<'s, 'de> {
    fn content(self) -> Source<'s, 'de> {
        self.content.unwrap_or(Source::Value(Value::Null, 0))
    }
}

impl<'de> EnumAccess<'de> for Variant<'_, 'de> {
    type Error = SerdeError;
    type Variant = Self;

    fn variant_seed<V: DeserializeSeed<'de>>(self, seed: V) -> Result<(V::Value, Self), SerdeError> {
        let name: serde::de::value::StrDeserializer<'_, SerdeError> = self.name.as_str().into_deserializer();
        Ok((seed.deserialize(name)?, self))
    }
}

impl<'de> VariantAccess<'de> for Variant<'_, 'de> {
    type Error = SerdeError;

    fn unit_variant(self) -> Result<(), SerdeError> {
        match self.content {
            None => Ok(()),
            Some(content) => Deserialize::deserialize(content),
        }
    }

    fn newtype_variant_seed<T: DeserializeSeed<'de>>(self, seed: T) -> Result<T::Value, SerdeError> {
        seed.deserialize(self.content())
    }

    fn tuple_variant<V: Visitor<'de>>(self, _: usize, visitor: V) -> Result<V::Value, SerdeError> {
        self.content().deserialize_seq(visitor)
    }

    fn struct_variant<V: Visitor<'de>>(self, _: &'static [&'static str], visitor: V) -> Result<V::Value, SerdeError> {
        self.content().deserialize_map(visitor)
    }
}
