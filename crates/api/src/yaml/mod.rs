//! YAML in and out, as Kubernetes understands it.
//!
//! Upstream turns YAML into JSON with the rules of YAML 1.1 and reads that: `y` and `on` are booleans, `0777` is octal,
//! keys that are not strings become strings, `1.0` becomes `1`. So does [`parse`]. A document is first taken apart into
//! a flat list of nodes, then built with its aliases followed; neither recurses. Writing prints what `kubectl -o yaml`
//! prints.

mod error;
mod expand;
mod nodes;
mod order;
mod scalar;
mod stream;
mod style;
#[cfg(test)]
mod tests;
mod write;

pub use error::Error;
pub use stream::{Documents, documents};
pub use write::{to_string, write};

use crate::{
    Value,
    codec::{StrictError, StrictErrors},
};

/// How many bytes of text aliases may repeat altogether.
pub const MAX_ALIAS_BYTES: usize = 16 << 20;

/// How many keys that come twice are named at most.
const MAX_DUPLICATES: usize = crate::codec::MAX_STRICT_ERRORS;

/// Reads the first document of `text`; nothing at all is `null`. Of keys that come twice the last one counts.
///
/// # Errors
/// Says why `text` is not YAML, or what in it JSON cannot hold.
pub fn parse(text: &[u8]) -> Result<Value, Error> {
    let nodes = nodes::read(text)?;
    expand::expand(&nodes, expand::Duplicates::Ignore).map(|(value, _)| value)
}

/// As [`parse`], and names the keys that come twice.
///
/// # Errors
/// As [`parse`].
pub fn parse_strict(text: &[u8]) -> Result<(Value, StrictErrors), Error> {
    let nodes = nodes::read(text)?;
    let mut errors = StrictErrors::default();
    let (value, lines) = expand::expand(&nodes, expand::Duplicates::Tell)?;
    if !lines.is_empty() {
        errors.push(StrictError::Other(format!("yaml: unmarshal errors:\n  {}", lines.join("\n  "))));
    }
    Ok((value, errors))
}

/// Reads all documents of a stream, without those that are empty.
///
/// # Errors
/// As [`parse`], for the first document that is wrong.
pub fn parse_all(text: &[u8]) -> Result<Vec<Value>, Error> {
    let mut values = Vec::new();
    for document in documents(text) {
        let value = parse(document?)?;
        if !value.is_null() {
            values.push(value);
        }
    }
    Ok(values)
}
