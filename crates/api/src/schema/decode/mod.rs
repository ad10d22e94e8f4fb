//! Strict decoding into built-in types: one pass over the bytes, without recursion.
//!
//! This is what Go does when it decodes into a struct: unknown and duplicate fields are reported and dropped, `null`
//! leaves a field as it was, a value of the wrong type is an error in Go's words, times and quantities come out in
//! their canonical form. One thing differs on purpose: of a field that comes twice the last one counts, where Go merges
//! objects.

mod base64;
mod error;
mod frame;

use std::{borrow::Cow, mem};

use ::base64::{Engine as _, prelude::BASE64_STANDARD};
pub use error::{DecodeError, Mismatch};
use frame::{Frame, Keys, Place, mismatch, strict_path};

use super::{Format, NodeRef, Schema, Type};
use crate::{
    MicroTime, Quantity, Time, Value,
    codec::{StrictError, StrictErrors},
    json::{Reader, Token},
    value::Builder,
};

/// How many bytes of paths are made at most: a hostile document could have the same long path reported again and again.
const MAX_PATH_BYTES: usize = 8 << 20;

/// A decoded document.
#[derive(Clone, Debug, PartialEq)]
pub struct Decoded {
    /// The value, without what the type does not know.
    pub value: Value,
    /// Unknown and duplicate fields.
    pub strict: StrictErrors,
}

impl Schema {
    /// Decodes JSON into this type, as Go would decode it into the struct.
    ///
    /// # Errors
    /// Says in Go's words why the text is not JSON or does not fit the type. Unknown and duplicate fields are no error
    /// here.
    pub fn decode(&self, text: &[u8]) -> Result<Decoded, DecodeError> {
        self.decode_as(text, false)
    }

    /// The same for what has been an object without a type before, as an applied one: whole numbers that are too large
    /// wrap around, and errors have other words.
    ///
    /// # Errors
    /// As [`decode`](Schema::decode).
    pub fn convert(&self, text: &[u8]) -> Result<Decoded, DecodeError> {
        self.decode_as(text, true)
    }

    fn decode_as(&self, text: &[u8], converting: bool) -> Result<Decoded, DecodeError> {
        let decoder = Decoder {
            root: self.root(),
            converting,
            reader: Reader::new(text),
            builder: Builder::default(),
            frames: Vec::new(),
            strict: StrictErrors::default(),
            path_bytes: 0,
            saved: None,
        };
        decoder.run()
    }
}

struct Decoder<'s, 'a> {
    root: NodeRef<'s>,
    reader: Reader<'a>,
    /// Whether it was decoded once already, without a type.
    converting: bool,
    builder: Builder,
    frames: Vec<Frame<'s, 'a>>,
    strict: StrictErrors,
    path_bytes: usize,
    /// The first error that did not end the decoding.
    saved: Option<DecodeError>,
}

/// Why decoding ends early: the text is not JSON, or a type that reads itself has refused its text.
type Step = Result<(), DecodeError>;

impl<'s, 'a> Decoder<'s, 'a> {
    fn run(mut self) -> Result<Decoded, DecodeError> {
        loop {
            let done = match self.reader.next()? {
                Token::Key(key) => self.key(key),
                Token::EndArray | Token::EndObject => {
                    self.end();
                    Ok(())
                }
                Token::End => break,
                token => self.value(token),
            };
            if let Err(error) = done {
                // Go looks at the whole text before it decodes: what is not JSON is said first.
                self.reader.check_rest()?;
                return Err(error);
            }
        }
        match self.saved {
            Some(error) => Err(error),
            None => Ok(Decoded { value: self.builder.finish().unwrap_or_default(), strict: self.strict }),
        }
    }

    /// The innermost container ends.
    fn end(&mut self) {
        let empty = match self.frames.pop() {
            Some(Frame { node, place: Place::Index(usize::MAX), .. }) => node.drops_zero(),
            Some(Frame { node, place: Place::Key { seen, .. }, .. }) => node.drops_zero() && seen.is_empty(),
            _ => false,
        };
        // Only a field can be left out; an element has to be there.
        if empty && self.is_field() { self.builder.discard() } else { self.builder.end(|_| {}) }
    }

    /// Whether the value that comes next is that of a struct's field.
    fn is_field(&self) -> bool {
        matches!(self.frames.last(), Some(Frame { place: Place::Field { .. }, .. }))
    }

    /// A scalar, unless the field is the same without it.
    fn scalar(&mut self, node: NodeRef<'s>, is_zero: bool, value: Value) {
        if !is_zero || !node.drops_zero() {
            self.builder.value(value);
        }
    }

    fn key(&mut self, key: Cow<'a, str>) -> Step {
        let frame = self.frames.last_mut().expect("keys come in containers");
        match &mut frame.place {
            Place::Field { position, seen } => {
                let Some(found) = frame.node.position(&key) else {
                    self.report(&key, StrictError::Unknown);
                    self.reader.skip()?;
                    return Ok(());
                };
                let bit = 1_u128.checked_shl(found as u32).unwrap_or(0);
                let again = *seen & bit != 0;
                *seen |= bit;
                *position = found;
                frame.current = frame.node.field_at(found).node;
                if again {
                    self.report(&key, StrictError::Duplicate);
                }
                self.builder.key(key.into());
            }
            Place::Key { key: place, seen } => {
                let new = seen.insert(&key, self.builder.keys());
                *place = key.clone();
                if !new {
                    self.report(&key, StrictError::Duplicate);
                }
                self.builder.key(key.into());
            }
            Place::Index(_) => {}
        }
        Ok(())
    }

    /// Reports the field `key` of the innermost container.
    fn report(&mut self, key: &str, error: fn(String) -> StrictError) {
        let lenient = self.frames.last().is_some_and(|frame| frame.lenient);
        if !lenient && !self.strict.is_full() && self.path_bytes <= MAX_PATH_BYTES {
            let path = strict_path(&self.frames, key);
            self.path_bytes += path.len();
            self.strict.push(error(path));
        }
    }

    fn value(&mut self, token: Token<'a>) -> Step {
        let (node, is_element) = match self.frames.last_mut() {
            None => (self.root, false),
            Some(frame) => {
                if let Place::Index(index) = &mut frame.place {
                    *index = index.wrapping_add(1);
                }
                (frame.current, !matches!(frame.place, Place::Field { .. }))
            }
        };
        if token == Token::Null {
            // A field stays as it was; an element has to be there, with the zero value of its type.
            if is_element {
                self.builder.value(node.zero().cloned().unwrap_or_default());
            }
            return Ok(());
        }
        match (node.ty(), node.format(), token) {
            (Type::String, Format::None, Token::String(text)) => {
                self.scalar(node, text.is_empty(), Value::String(text.into()));
            }
            (Type::Boolean, _, Token::Bool(b)) => self.scalar(node, !b, Value::Bool(b)),
            (Type::Boolean, _, token) if node.alternative().is_some() => match token {
                Token::BeginObject => self.any(node, token)?,
                _ => return Err(DecodeError::NoSchema),
            },
            (Type::Object, _, Token::BeginObject) => self.begin_object(node, false),
            (Type::Array, _, Token::BeginArray) => self.begin_array(node, node.items().unwrap_or(node), false),
            (Type::Integer, format, Token::Number(number)) if self.converting => match whole(number.text()) {
                Some(n) if format == Format::Int32 => self.scalar(node, n as i32 == 0, Value::Int((n as i32).into())),
                Some(n) => self.scalar(node, n == 0, Value::Int(n)),
                None => {
                    let ty = if format == Format::Int32 { "int32" } else { "int64" };
                    self.saved = self.saved.take().or(Some(DecodeError::Float(ty)));
                }
            },
            (Type::Integer, format, Token::Number(number)) => {
                let fits = |n: &i64| format != Format::Int32 || i32::try_from(*n).is_ok();
                match number.as_i64().filter(fits) {
                    Some(n) => self.scalar(node, n == 0, Value::Int(n)),
                    None => self.save(node, format!("number {}", number.text())),
                }
            }
            (Type::Number, _, Token::Number(number)) => match number.as_f64() {
                // As it is read again once it is stored: a whole number has no fraction.
                Some(n) => self.scalar(node, n == 0.0, number_of(n)),
                None => self.save(node, format!("number {}", number.text())),
            },
            (Type::String, Format::Byte, Token::String(text)) => match base64::decode(text.as_bytes()) {
                Ok(bytes) => self.bytes(node, &bytes),
                Err(at) if self.converting => self.saved = self.saved.take().or(Some(DecodeError::ConvertedBase64(at))),
                Err(at) => self.saved = self.saved.take().or(Some(DecodeError::Base64(at))),
            },
            (Type::String, Format::Byte, Token::BeginArray) => return self.byte_array(node),
            (Type::String, Format::DateTime | Format::MicroTime | Format::Quantity, token) => {
                return self.self_reading(node, token);
            }
            (Type::Any, Format::IntOrString, token) => return self.int_or_string(node, token),
            (Type::Any, _, token) => return self.any(node, token),
            // Formats that say nothing about how a string is read.
            (Type::String, format, Token::String(text)) if format != Format::Byte => {
                self.builder.value(Value::String(text.into()));
            }
            (_, _, token) => {
                self.save(node, kind_of(&token).to_owned());
                return self.pass(&token);
            }
        }
        Ok(())
    }

    fn begin_object(&mut self, node: NodeRef<'s>, lenient: bool) {
        let lenient = lenient || self.frames.last().is_some_and(|frame| frame.lenient);
        let frame = match node.additional() {
            Some(values) => {
                let place = Place::Key { key: Cow::Borrowed(""), seen: Keys::default() };
                Frame { node, current: values, place, lenient }
            }
            None => Frame { node, current: node, place: Place::Field { position: 0, seen: 0 }, lenient },
        };
        self.builder.begin_object(0);
        self.frames.push(frame);
    }

    fn begin_array(&mut self, node: NodeRef<'s>, items: NodeRef<'s>, lenient: bool) {
        let lenient = lenient || self.frames.last().is_some_and(|frame| frame.lenient);
        self.builder.begin_array(0);
        // Before the first element: the next index is 0.
        self.frames.push(Frame { node, current: items, place: Place::Index(usize::MAX), lenient });
    }

    /// Keeps the error of a value of the wrong type, if it is the first.
    fn save(&mut self, node: NodeRef<'s>, value: String) {
        if self.saved.is_none() {
            self.saved = Some(DecodeError::Mismatch(mismatch(&self.frames, node, value, None)));
        }
    }

    /// The error of a type that reads itself, where the text should have been a `ty`.
    fn refuse(&self, node: NodeRef<'s>, value: String, ty: &str) -> DecodeError {
        // What was decoded before reads itself alone, without knowing where it is.
        let frames: &[Frame<'_, '_>] = if self.converting { &[] } else { &self.frames };
        DecodeError::Mismatch(mismatch(frames, node, value, Some(ty)))
    }

    /// Passes over the rest of a container that has just begun.
    fn pass(&mut self, begun: &Token<'a>) -> Step {
        if matches!(begun, Token::BeginObject | Token::BeginArray) {
            let outside = self.reader.depth() - 1;
            while self.reader.depth() > outside {
                self.reader.next()?;
            }
        }
        Ok(())
    }

    /// Times and quantities.
    fn self_reading(&mut self, node: NodeRef<'s>, token: Token<'a>) -> Step {
        let format = node.format();
        let text = match &token {
            Token::String(text) => text.as_ref(),
            Token::Number(number) if format == Format::Quantity => number.text(),
            _ if format == Format::Quantity => "",
            token => return Err(self.refuse(node, kind_of(token).to_owned(), "string")),
        };
        let read = match format {
            Format::Quantity => {
                text.trim().parse::<Quantity>().map(|q| Some(q.to_string())).map_err(DecodeError::Quantity)
            }
            Format::MicroTime => text.parse::<MicroTime>().map(|t| shown(&t, t.0)).map_err(DecodeError::Time),
            _ => text.parse::<Time>().map(|t| shown(&t, t)).map_err(DecodeError::Time),
        };
        match read? {
            Some(text) => self.builder.value(Value::String(text.into())),
            // The zero time is encoded as null; as a field it is not there.
            None if self.is_field() => {}
            None => self.builder.value(Value::Null),
        }
        Ok(())
    }

    fn int_or_string(&mut self, node: NodeRef<'s>, token: Token<'a>) -> Step {
        let value = match token {
            Token::String(text) => Value::String(text.into()),
            Token::Number(number) => match number.as_i64().filter(|n| i32::try_from(*n).is_ok()) {
                Some(n) => Value::Int(n),
                None => return Err(self.refuse(node, format!("number {}", number.text()), "int32")),
            },
            token => return Err(self.refuse(node, kind_of(&token).to_owned(), "int32")),
        };
        self.builder.value(value);
        Ok(())
    }

    /// A value that is kept as it is, or that may be a type whose unknown fields nobody reports.
    fn any(&mut self, node: NodeRef<'s>, token: Token<'a>) -> Step {
        match (token, node.alternative()) {
            (Token::BeginObject, Some(object)) => self.begin_object(object, true),
            (Token::BeginArray, Some(object)) => self.begin_array(node, object, true),
            (token, _) => return self.keep(token),
        }
        Ok(())
    }

    /// Keeps a value as it is.
    fn keep(&mut self, token: Token<'a>) -> Step {
        let outside = self.reader.depth() - usize::from(matches!(token, Token::BeginObject | Token::BeginArray));
        let mut token = token;
        loop {
            match mem::replace(&mut token, Token::Null) {
                Token::Null => self.builder.value(Value::Null),
                Token::Bool(b) => self.builder.value(Value::Bool(b)),
                Token::Number(n) => {
                    let value = n.to_value().ok_or_else(|| self.reader.number_error(n.text()))?;
                    self.builder.value(value);
                }
                Token::String(text) => self.builder.value(Value::String(text.into())),
                Token::Key(key) => self.builder.key(key.into()),
                Token::BeginArray => self.builder.begin_array(0),
                Token::BeginObject => self.builder.begin_object(0),
                Token::EndArray | Token::EndObject => self.builder.end(|_| {}),
                Token::End => return Ok(()),
            }
            if self.reader.depth() <= outside {
                return Ok(());
            }
            token = self.reader.next()?;
        }
    }

    /// Bytes as a list of numbers, which Go takes too.
    fn byte_array(&mut self, node: NodeRef<'s>) -> Step {
        let mut bytes = Vec::new();
        loop {
            let token = self.reader.next()?;
            let found = match &token {
                Token::EndArray => break,
                Token::Null => Ok(0),
                Token::Number(number) => number.text().parse::<u8>().map_err(|_| format!("number {}", number.text())),
                token => Err(kind_of(token).to_owned()),
            };
            match found {
                Ok(byte) => bytes.push(byte),
                Err(value) => {
                    self.saved = self.saved.take().or_else(|| Some(self.refuse(node, value, "uint8")));
                    self.pass(&token)?;
                }
            }
        }
        self.bytes(node, &bytes);
        Ok(())
    }

    fn bytes(&mut self, node: NodeRef<'s>, bytes: &[u8]) {
        self.scalar(node, bytes.is_empty(), Value::String(BASE64_STANDARD.encode(bytes).into()));
    }
}

/// A number as Go converts it to an integer, if it has no fraction; what is out of range becomes the least.
fn whole(text: &str) -> Option<i64> {
    text.parse().ok().or_else(|| {
        let n = text.parse::<f64>().ok().filter(|n| n.fract() == 0.0)?;
        let fits = (i64::MIN as f64..i64::MAX as f64).contains(&n);
        Some(if fits { n as i64 } else { i64::MIN })
    })
}

/// A number as its text is read again where no type is known: without a fraction it is an integer.
fn number_of(n: f64) -> Value {
    const EXACT: f64 = (1_u64 << f64::MANTISSA_DIGITS) as f64;
    if n.fract() == 0.0 && n.abs() < EXACT { Value::Int(n as i64) } else { Value::Float(n) }
}

/// A time as it is printed, if it is one.
fn shown(printed: &impl ToString, time: Time) -> Option<String> {
    (!time.is_zero()).then(|| printed.to_string())
}

/// What Go calls a value of the wrong type.
fn kind_of(token: &Token<'_>) -> &'static str {
    match token {
        Token::Bool(_) => "bool",
        Token::Number(_) => "number",
        Token::String(_) | Token::Key(_) => "string",
        Token::BeginArray | Token::EndArray => "array",
        Token::BeginObject | Token::EndObject => "object",
        Token::Null | Token::End => "null",
    }
}

#[cfg(test)]
mod tests;
