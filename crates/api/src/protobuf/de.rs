//! From a message straight into a Rust type: names come from the schema.
//!
//! A type sees what it would see in JSON: the same names, strings where JSON has strings, and nothing where JSON leaves
//! something out. So whatever reads JSON reads this, without a tree in between.

use serde::de::{DeserializeOwned, Error as _};

use super::{
    Error, MAX_DEPTH,
    decode::{is_null, leaf, zero},
    shape::{Either, Plan, Shape},
    wire::{DELIMITED, FIXED64, Reader, Tag, VARINT},
};
use crate::{
    Str, Value,
    schema::{NodeRef, Numbered, Schema},
    typed::{self, Items, Key, Source, Token},
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
    let (shape, raw) = (Shape::Struct(schema.root()), Raw::Bytes(message));
    typed::read(Source::One(One { shape, raw, within: Within { managed_fields, depth: 0 } }))
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
pub(crate) struct One<'s, 'de> {
    shape: Shape<'s>,
    raw: Raw<'de>,
    within: Within,
}

/// What values inherit from those that they are in.
#[derive(Clone, Copy)]
struct Within {
    managed_fields: bool,
    depth: u32,
}

impl Within {
    fn one<'s, 'de>(self, shape: Shape<'s>, raw: Raw<'de>) -> One<'s, 'de> {
        One { shape, raw, within: self }
    }

    fn deeper(self) -> Result<Self, SerdeError> {
        if self.depth as usize >= MAX_DEPTH {
            return Err(wrong(Error::TooDeep));
        }
        Ok(Within { depth: self.depth + 1, ..self })
    }
}

impl<'s, 'de> One<'s, 'de> {
    /// Whether JSON would not show it in a place that leaves zero values out, or shows nothing as nothing.
    pub(crate) fn is_hidden(self, drops_zero: bool) -> Result<bool, SerdeError> {
        Ok(match (self.shape, self.raw) {
            (Shape::String | Shape::Bytes, Raw::Bytes(bytes)) => drops_zero && bytes.is_empty(),
            (Shape::Bool | Shape::Int32 | Shape::Int64, Raw::Number(n)) => drops_zero && n == 0,
            (Shape::Double, Raw::Number(n)) => drops_zero && f64::from_bits(n) == 0.0,
            (Shape::Time | Shape::MicroTime | Shape::Raw, Raw::Bytes(bytes)) => {
                is_null(self.shape, bytes).map_err(wrong)?
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

    /// What JSON would show.
    pub(crate) fn token(self) -> Result<Token<'s, 'de>, SerdeError> {
        Ok(match (self.shape, self.raw) {
            (Shape::Bool, Raw::Number(n)) => Token::Bool(n != 0),
            (Shape::Int32, Raw::Number(n)) => Token::Int((n as i32).into()),
            (Shape::Int64, Raw::Number(n)) => Token::Int(n as i64),
            (Shape::Double, Raw::Number(n)) => match f64::from_bits(n) {
                // JSON has no point in whole numbers.
                n if n.fract() == 0.0 && n.abs() < MAX_WHOLE => Token::Int(n as i64),
                n => Token::Float(n),
            },
            (Shape::String, Raw::Bytes(bytes)) => match str::from_utf8(bytes) {
                Ok(text) => Token::Text(text),
                Err(_) => Token::String(Str::from_utf8_lossy(bytes)),
            },
            (Shape::Struct(node), raw) => {
                let fields = Fields::read(node, raw.bytes()?)?.into_iter().peekable();
                Token::Fields(typed::Fields::Object(Object { fields, node, within: self.within.deeper()?, plan: None }))
            }
            (Shape::Wrapped(items), raw) => {
                let shape = Shape::of(items);
                let items = numbered(raw.bytes()?, 1, shape)?.into_iter();
                Token::Items(Items::Messages(Elements { shape, items, within: self.within.deeper()? }))
            }
            (Shape::Either(either), raw) => self.either(either, raw.bytes()?)?,
            (shape, raw) => match leaf(shape, raw.bytes()?).map_err(wrong)? {
                Value::String(text) => Token::String(text),
                value => Source::Value(value, self.within.depth as usize).token()?,
            },
        })
    }

    fn either(self, either: Either<'s>, bytes: &'de [u8]) -> Result<Token<'s, 'de>, SerdeError> {
        let within = self.within.deeper()?;
        let (first, second) = match either {
            Either::Bool(schema) => (Shape::Bool, Shape::Struct(schema)),
            Either::List(schema) => (Shape::Struct(schema), Shape::Struct(schema)),
            Either::Strings(schema) => (Shape::Struct(schema), Shape::String),
        };
        let many = numbered(bytes, 2, second)?;
        match (either, many.last()) {
            (Either::Bool(_), Some(raw)) => return within.one(second, *raw).token(),
            (_, Some(_)) => {
                let elements = Elements { shape: second, items: many.into_iter(), within };
                return Ok(Token::Items(Items::Messages(elements)));
            }
            (_, None) => {}
        }
        match numbered(bytes, 1, first)?.last() {
            Some(raw) => within.one(first, *raw).token(),
            None if matches!(either, Either::Bool(_)) => Ok(Token::Bool(false)),
            None => Ok(Token::Null),
        }
    }
}

/// The fields of this number, with numbers of packed lists taken apart.
fn numbered<'de>(bytes: &'de [u8], number: i32, shape: Shape<'_>) -> Result<Vec<Raw<'de>>, SerdeError> {
    let mut reader = Reader::new(bytes);
    let mut found = Vec::new();
    while !reader.is_at_end() {
        let tag = reader.tag(String::new).map_err(wrong)?;
        if tag.number != number {
            reader.skip(tag.wire).map_err(wrong)?;
        } else if let Some(raw) = Raw::read(&mut reader, tag).map_err(wrong)? {
            unpack(shape, raw, &mut |raw| found.push(raw)).map_err(wrong)?;
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

/// What a message has, by the positions of the schema's fields; what comes several times stands together, in the order
/// in which it comes.
struct Fields<'s, 'de> {
    node: NodeRef<'s>,
    numbers: &'s [Numbered],
    /// Where the last field was among the numbers. Fields are written in their order, so that the next one is there or
    /// soon after.
    at: usize,
    found: Vec<(usize, Raw<'de>)>,
    /// The positions that were found, as bits, and whether all of one stand together.
    seen: u128,
    together: bool,
}

/// Most messages have no more fields than this.
const FEW_FIELDS: usize = 8;

impl<'s, 'de> Fields<'s, 'de> {
    fn read(node: NodeRef<'s>, bytes: &'de [u8]) -> Result<Vec<(usize, Raw<'de>)>, SerdeError> {
        let (numbers, found) = (node.numbers(), Vec::with_capacity(FEW_FIELDS));
        let mut fields = Fields { node, numbers, at: 0, found, seen: 0, together: true };
        fields.collect(bytes, 0, 0).map_err(wrong)?;
        if !fields.together {
            fields.found.sort_by_key(|(position, _)| *position);
        }
        Ok(fields.found)
    }

    /// The first field that has this path, or one after it.
    fn find(&mut self, path: u32) -> Option<Numbered> {
        let before = self.at.checked_sub(1).and_then(|before| self.numbers.get(before));
        if before.is_some_and(|before| before.path >= path) {
            self.at = self.numbers.partition_point(|field| field.path < path);
        } else {
            let skipped = self.numbers[self.at..].iter().take_while(|field| field.path < path);
            self.at += skipped.count();
        }
        self.numbers.get(self.at).copied()
    }

    fn push(&mut self, position: usize, raw: Raw<'de>) {
        if self.found.last().is_none_or(|(last, _)| *last != position) {
            let bit =
                u32::try_from(position).ok().and_then(|position| 1_u128.checked_shl(position)).unwrap_or(u128::MAX);
            self.together &= self.seen & bit == 0;
            self.seen |= bit;
        }
        self.found.push((position, raw));
    }

    /// Messages that JSON does not show are at most two deep; see [`Numbered`].
    fn collect(&mut self, bytes: &'de [u8], level: usize, within: u32) -> Result<(), Error> {
        let mut reader = Reader::new(bytes);
        while !reader.is_at_end() {
            let node = self.node;
            let tag = reader.tag(|| node.type_name().unwrap_or_default().to_owned())?;
            if tag.number > MAX_NUMBER {
                reader.skip(tag.wire)?;
                continue;
            }
            let shift = 16 - 8 * level;
            let path = within | (tag.number as u32) << shift;
            let next = self.find(path);
            let Some(raw) = Raw::read(&mut reader, tag)? else { continue };
            match (next, raw) {
                (Some(field), raw) if field.path == path => self.push(field.position, raw),
                (Some(field), Raw::Bytes(bytes)) if field.path >> shift == path >> shift && level < 2 => {
                    self.collect(bytes, level + 1, path)?;
                }
                _ => {}
            }
        }
        Ok(())
    }
}

type Found<'de> = std::iter::Peekable<std::vec::IntoIter<(usize, Raw<'de>)>>;

/// A message as a map.
pub(crate) struct Object<'s, 'de> {
    fields: Found<'de>,
    node: NodeRef<'s>,
    within: Within,
    /// That of the field whose name was asked for last.
    plan: Option<Plan<'s>>,
}

impl<'s, 'de> Object<'s, 'de> {
    pub(crate) fn key(&mut self) -> Result<Option<&'s str>, SerdeError> {
        while let Some(&(position, raw)) = self.fields.peek() {
            let field = self.node.field_at(position);
            let plan = Plan::of(field.node, self.node);
            let hidden = match plan {
                _ if !self.within.managed_fields && field.name.as_str() == MANAGED_FIELDS => true,
                Plan::One(shape) => self.within.one(shape, raw).is_hidden(field.node.drops_zero())?,
                Plan::List(_) | Plan::Map(_) => false,
            };
            if !hidden {
                self.plan = Some(plan);
                return Ok(Some(field.name.as_str()));
            }
            self.fields.next();
        }
        Ok(None)
    }

    pub(crate) fn value(&mut self) -> Result<Source<'s, 'de>, SerdeError> {
        let Some(&(position, first)) = self.fields.peek() else { return Err(SerdeError::Key) };
        let mut all = Vec::new();
        let within = self.within;
        let plan = self.plan.take();
        match plan.unwrap_or_else(|| Plan::of(self.node.field_at(position).node, self.node)) {
            Plan::One(shape) => {
                let mut last = first;
                while let Some((_, raw)) = self.fields.next_if(|(at, _)| *at == position) {
                    last = raw;
                }
                Ok(Source::One(within.one(shape, last)))
            }
            Plan::List(shape) => {
                while let Some((_, raw)) = self.fields.next_if(|(at, _)| *at == position) {
                    unpack(shape, raw, &mut |raw| all.push(raw)).map_err(wrong)?;
                }
                Ok(Source::List(Elements { shape, items: all.into_iter(), within }))
            }
            Plan::Map(shape) => {
                while let Some((_, raw)) = self.fields.next_if(|(at, _)| *at == position) {
                    all.push(raw);
                }
                Ok(Source::Map(Entries { shape, items: all.into_iter(), value: None, within }))
            }
        }
    }
}

/// The elements of a list.
pub(crate) struct Elements<'s, 'de> {
    shape: Shape<'s>,
    items: std::vec::IntoIter<Raw<'de>>,
    within: Within,
}

impl<'s, 'de> Elements<'s, 'de> {
    pub(crate) fn next(&mut self) -> Option<One<'s, 'de>> {
        self.items.next().map(|raw| self.within.one(self.shape, raw))
    }

    pub(crate) fn len(&self) -> usize {
        self.items.len()
    }
}

/// The entries of a map: messages of a key and a value.
pub(crate) struct Entries<'s, 'de> {
    /// Of the values.
    shape: Shape<'s>,
    items: std::vec::IntoIter<Raw<'de>>,
    value: Option<Option<Raw<'de>>>,
    within: Within,
}

impl<'s, 'de> Entries<'s, 'de> {
    pub(crate) fn key(&mut self) -> Result<Option<Key<'s, 'de>>, SerdeError> {
        let Some(raw) = self.items.next() else { return Ok(None) };
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
        self.value = Some(value);
        let key = key.bytes()?;
        Ok(Some(str::from_utf8(key).map_or_else(|_| Key::Text(Str::from_utf8_lossy(key)), Key::Borrowed)))
    }

    pub(crate) fn value(&mut self) -> Result<Source<'s, 'de>, SerdeError> {
        match self.value.take() {
            Some(Some(raw)) => Ok(Source::One(self.within.one(self.shape, raw))),
            Some(None) => Ok(Source::Value(zero(self.shape), self.within.depth as usize)),
            None => Err(SerdeError::Key),
        }
    }
}
