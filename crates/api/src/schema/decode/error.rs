//! Why a document cannot be decoded, in the words of Go's decoder.

use std::fmt;

use crate::{json, quantity, time};

/// Why a document cannot be decoded into a type.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum DecodeError {
    /// It is not JSON.
    Syntax(json::Error),
    /// A value of another type than the place has.
    Mismatch(Box<Mismatch>),
    /// Bytes that are not base64, and where that shows.
    Base64(usize),
    /// The same, found when an object that had no type before is converted.
    ConvertedBase64(usize),
    /// A number with a fraction where such an object should have an integer of this type.
    Float(&'static str),
    /// A time that is none.
    Time(time::ParseError),
    /// A quantity that is none.
    Quantity(quantity::ParseError),
    /// Neither a boolean nor a schema.
    NoSchema,
}

/// A value that does not have the type of its place.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Mismatch {
    /// What was found: `string`, `number 1.5`, `object` …
    pub value: String,
    /// The struct that has the field, and the way to it from the root; nothing if it is the whole document.
    pub field: Option<(String, String)>,
    /// The Go type of the place.
    pub ty: String,
    /// What that type is made of, when it is no list, map or struct: `string`, `int32` …
    pub scalar: Option<String>,
}

impl fmt::Display for Mismatch {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "json: cannot unmarshal {} into Go ", self.value)?;
        match &self.field {
            Some((owner, field)) => write!(f, "struct field {owner}.{field}")?,
            None => f.write_str("value")?,
        }
        write!(f, " of type {}", self.ty)
    }
}

impl fmt::Display for DecodeError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            DecodeError::Syntax(error) => error.fmt(f),
            DecodeError::Mismatch(mismatch) => mismatch.fmt(f),
            DecodeError::Base64(offset) => write!(f, "illegal base64 data at input byte {offset}"),
            DecodeError::ConvertedBase64(offset) => {
                write!(f, "error decoding from json: illegal base64 data at input byte {offset}")
            }
            DecodeError::Float(ty) => write!(f, "cannot convert float64 to {ty}"),
            DecodeError::Time(error) => error.fmt(f),
            DecodeError::Quantity(error) => error.fmt(f),
            DecodeError::NoSchema => f.write_str("boolean or JSON schema expected"),
        }
    }
}

impl std::error::Error for DecodeError {}

impl From<json::Error> for DecodeError {
    fn from(error: json::Error) -> Self {
        DecodeError::Syntax(error)
    }
}
