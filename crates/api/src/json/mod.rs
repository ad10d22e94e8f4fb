//! JSON in and out.
//!
//! [`Reader`] is a pull parser: one token at a time, no recursion, with Go's limits and Go's words for what is wrong.
//! [`parse`] builds a [`Value`] from it; the schema's decoder drives it directly. Writing prints what Go prints: sorted
//! keys, `1.0` as `1`, large and small floats with an exponent, `<`, `>` and `&` left alone.

mod error;
mod number;
mod reader;
mod string;
#[cfg(test)]
mod tests;
mod write;

pub use error::{Error, Wrong};
pub use number::Number;
pub use reader::{MAX_DEPTH, Reader, Token};
pub(crate) use string::lossy;
pub use write::{to_pretty_string, to_string, write, write_map, write_str};

use crate::{Str, Value, value::Builder};

/// Reads one JSON document; of fields that come twice the last one counts.
///
/// # Errors
/// Says where and why the text is not JSON, or that it nests too deep.
pub fn parse(text: &[u8]) -> Result<Value, Error> {
    build(text).map(|(value, _)| value)
}

/// The value of a JSON text, and whether a field comes twice.
pub(crate) fn build(text: &[u8]) -> Result<(Value, bool), Error> {
    let mut twice = false;
    let mut reader = Reader::new(text);
    let mut builder = Builder::default();
    loop {
        match reader.next()? {
            Token::Null => builder.value(Value::Null),
            Token::Bool(b) => builder.value(Value::Bool(b)),
            Token::Number(n) => builder.value(n.to_value().ok_or_else(|| reader.number_error(n.text()))?),
            Token::String(s) => builder.value(Value::String(s.into())),
            Token::Key(key) => builder.key(Str::from(key)),
            Token::BeginArray => builder.begin_array(0),
            Token::BeginObject => builder.begin_object(0),
            Token::EndArray | Token::EndObject => builder.end(|_| twice = true),
            Token::End => return Ok((builder.finish().expect("the reader's tokens are balanced"), twice)),
        }
    }
}
