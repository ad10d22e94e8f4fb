//! Why bytes are not the message that they should be, in the words of Go's generated code.

use std::fmt;

use crate::{json, quantity};

/// Why a message cannot be decoded.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Error {
    /// There are no bytes at all.
    NoData,
    /// The bytes do not begin as Kubernetes' messages do.
    NoPrefix,
    /// There is nothing behind the beginning.
    NoBody,
    /// The bytes end too early.
    UnexpectedEnd,
    /// A number has more than 64 bits.
    Overflow,
    /// A length is negative.
    NegativeLength,
    /// A group ends that never began.
    EndOfGroup,
    /// A group ends in a message of this type.
    EndGroup(String),
    /// A tag without a field number, in a message of this type.
    IllegalTag {
        /// The type.
        ty: String,
        /// The number.
        number: i32,
        /// The whole tag.
        tag: u64,
    },
    /// A field comes in another form than it has.
    WrongWireType {
        /// The form.
        wire: u8,
        /// The field, as Go calls it.
        field: String,
    },
    /// There is no such form.
    IllegalWireType(u8),
    /// A quantity that is none.
    Quantity(quantity::ParseError),
    /// Raw JSON that is none.
    Json(json::Error),
    /// Neither a number nor a string where either should be.
    IntOrString,
    /// Messages are inside each other beyond [`MAX_DEPTH`](super::decode::MAX_DEPTH).
    TooDeep,
}

impl fmt::Display for Error {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Error::NoData => f.write_str("empty data"),
            Error::NoPrefix => {
                let prefix = "[107 56 115 0]";
                write!(f, "provided data does not appear to be a protobuf message, expected prefix {prefix}")
            }
            Error::NoBody => f.write_str("empty body"),
            Error::UnexpectedEnd => f.write_str("unexpected EOF"),
            Error::Overflow => f.write_str("proto: integer overflow"),
            Error::NegativeLength => f.write_str("proto: negative length found during unmarshaling"),
            Error::EndOfGroup => f.write_str("proto: unexpected end of group"),
            Error::EndGroup(ty) => write!(f, "proto: {ty}: wiretype end group for non-group"),
            Error::IllegalTag { ty, number, tag } => {
                write!(f, "proto: {ty}: illegal tag {number} (wire type {tag})")
            }
            Error::WrongWireType { wire, field } => write!(f, "proto: wrong wireType = {wire} for field {field}"),
            Error::IllegalWireType(wire) => write!(f, "proto: illegal wireType {wire}"),
            Error::Quantity(error) => error.fmt(f),
            Error::Json(error) => error.fmt(f),
            Error::IntOrString => f.write_str("impossible IntOrString.Type"),
            Error::TooDeep => f.write_str("proto: exceeded max depth"),
        }
    }
}

impl std::error::Error for Error {}
