//! What can go wrong between values and Rust types.

use std::fmt;

use serde::{de, ser};

/// How deep values may nest on their way to and from Rust types, which recurse on the stack. The same as
/// `serde_json`'s.
pub const MAX_SERDE_DEPTH: usize = 128;

/// Why a value is not of a type, or a type has no value.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum SerdeError {
    /// More than [`MAX_SERDE_DEPTH`] containers in each other.
    Depth,
    /// A key that is neither a string nor a number nor a boolean.
    Key,
    /// A number that JSON cannot hold.
    Number,
    /// What the type says is wrong.
    Type(String),
}

impl fmt::Display for SerdeError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            SerdeError::Depth => write!(f, "more than {MAX_SERDE_DEPTH} levels deep"),
            SerdeError::Key => f.write_str("a key must be a string"),
            SerdeError::Number => f.write_str("a number that JSON cannot hold"),
            SerdeError::Type(text) => f.write_str(text),
        }
    }
}

impl std::error::Error for SerdeError {}

impl de::Error for SerdeError {
    fn custom<T: fmt::Display>(message: T) -> Self {
        SerdeError::Type(message.to_string())
    }
}

impl ser::Error for SerdeError {
    fn custom<T: fmt::Display>(message: T) -> Self {
        SerdeError::Type(message.to_string())
    }
}

/// One level deeper, if that is allowed.
pub(crate) fn deeper<E>(depth: usize, error: impl FnOnce(SerdeError) -> E) -> Result<usize, E> {
    if depth < MAX_SERDE_DEPTH { Ok(depth + 1) } else { Err(error(SerdeError::Depth)) }
}
