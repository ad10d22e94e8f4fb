//! Decoding bytes of either format into a value, within limits.

use std::{collections::HashSet, fmt};

use super::{StrictError, StrictErrors, StrictPath};
use crate::{
    Value,
    json::{self, Reader, Token},
    yaml,
};

/// How many bytes an object may have on its way in, as the real server has it.
pub const MAX_BODY_BYTES: usize = 3 * 1024 * 1024;

/// How bytes are to be read.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Format {
    /// JSON.
    Json,
    /// YAML.
    Yaml,
}

impl Format {
    /// What `bytes` look like: what begins with a brace is JSON, everything else is YAML.
    #[must_use]
    pub fn guess(bytes: &[u8]) -> Format {
        // White space in the sense of Unicode may come first.
        let mut rest = bytes;
        while let Some(chunk) = rest.utf8_chunks().next() {
            let text = chunk.valid().trim_start();
            if !text.is_empty() {
                return if text.starts_with('{') { Format::Json } else { Format::Yaml };
            }
            if !chunk.invalid().is_empty() {
                return Format::Yaml;
            }
            rest = &rest[chunk.valid().len()..];
        }
        Format::Yaml
    }
}

/// Why bytes are not a value.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum DecodeError {
    /// There are more than [`MAX_BODY_BYTES`].
    TooLarge,
    /// They are not JSON.
    Json(json::Error),
    /// They are not YAML.
    Yaml(yaml::Error),
}

impl fmt::Display for DecodeError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            DecodeError::TooLarge => write!(f, "limit is {MAX_BODY_BYTES}"),
            DecodeError::Json(error) => error.fmt(f),
            DecodeError::Yaml(error) => error.fmt(f),
        }
    }
}

impl std::error::Error for DecodeError {}

impl From<json::Error> for DecodeError {
    fn from(error: json::Error) -> Self {
        DecodeError::Json(error)
    }
}

impl From<yaml::Error> for DecodeError {
    fn from(error: yaml::Error) -> Self {
        DecodeError::Yaml(error)
    }
}

/// Reads a value; of fields that come twice the last one counts.
///
/// # Errors
/// When `bytes` are too many or not of their format.
pub fn decode(bytes: &[u8], format: Format) -> Result<Value, DecodeError> {
    check_size(bytes)?;
    Ok(match format {
        Format::Json => json::parse(bytes)?,
        Format::Yaml => yaml::parse(bytes)?,
    })
}

/// Reads a value as [`decode`] does, and tells the fields that come twice.
///
/// # Errors
/// As [`decode`]. What strictness finds is no error here: upstream may answer it with a warning.
pub fn decode_strict(bytes: &[u8], format: Format) -> Result<(Value, StrictErrors), DecodeError> {
    check_size(bytes)?;
    Ok(match format {
        Format::Json => {
            let (value, twice) = json::build(bytes)?;
            let mut errors = StrictErrors::default();
            // They are rare, so that only what has some is read again to name them.
            if twice {
                duplicate_fields(bytes, &mut errors)?;
            }
            (value, errors)
        }
        Format::Yaml => yaml::parse_strict(bytes)?,
    })
}

fn check_size(bytes: &[u8]) -> Result<(), DecodeError> {
    if bytes.len() > MAX_BODY_BYTES { Err(DecodeError::TooLarge) } else { Ok(()) }
}

/// Names the fields of a JSON text that come twice, in the order of the text.
///
/// # Errors
/// When the text is not JSON.
pub fn duplicate_fields(text: &[u8], errors: &mut StrictErrors) -> Result<(), json::Error> {
    /// An open container: its keys so far, or the position of the next element.
    enum Level<'a> {
        Object(HashSet<std::borrow::Cow<'a, str>>),
        Array(usize),
    }
    let mut reader = Reader::new(text);
    let mut path = StrictPath::default();
    let mut open: Vec<Level<'_>> = Vec::new();
    loop {
        let token = reader.next()?;
        if let (Some(Level::Array(next)), false) = (open.last_mut(), matches!(token, Token::EndArray)) {
            path.index(*next);
            *next += 1;
        }
        match token {
            Token::Key(key) => {
                if let Some(Level::Object(keys)) = open.last_mut() {
                    if keys.contains(&key) && !errors.is_full() {
                        errors.push(StrictError::Duplicate(path.field(&key)));
                    }
                    path.key(&key);
                    keys.insert(key);
                }
                continue;
            }
            Token::BeginArray => {
                open.push(Level::Array(0));
                continue;
            }
            Token::BeginObject => {
                open.push(Level::Object(HashSet::new()));
                continue;
            }
            Token::EndArray | Token::EndObject => {
                open.pop();
            }
            Token::End => return Ok(()),
            Token::Null | Token::Bool(_) | Token::Number(_) | Token::String(_) => {}
        }
        // A value is over, and with it the step that led to it.
        path.pop();
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn check(text: &str, format: Format, expected: &str) {
        let found = match decode_strict(text.as_bytes(), format) {
            Ok((value, errors)) if errors.is_empty() => value.to_string(),
            Ok((_, errors)) => errors.to_string(),
            Err(error) => error.to_string(),
        };
        assert_eq!(found, expected, "{text}");
    }

    #[test]
    fn strict_json() {
        for (text, expected) in [
            (r#"{"b":1,"a":[{}]}"#, r#"{"a":[{}],"b":1}"#),
            (r#"{"a":1,"a":2}"#, r#"duplicate field "a""#),
            (
                r#"{"z":1,"z":{"y":1,"y":2},"a":0,"a":0,"a":0}"#,
                r#"duplicate field "z", duplicate field "z.y", duplicate field "a""#,
            ),
            (
                r#"{"spec":{"containers":[{},1,[],{"foo":[[{"b":1,"b":2}]],"foo":1}]},"x":{"y":{}},"spec":1}"#,
                r#"duplicate field "spec.containers[3].foo[0][0].b", duplicate field "spec.containers[3].foo", duplicate field "spec""#,
            ),
            (r#"[{"a":1},{"a":1,"a":1}]"#, r#"duplicate field "[1].a""#),
            (r#"{"":{"":1,"":2}}"#, r#"duplicate field ".""#),
            (r#"{"a":1,"\u0061":2}"#, r#"duplicate field "a""#),
        ] {
            let strict = if expected.starts_with("dup") { "strict decoding error: " } else { "" };
            check(text, Format::Json, &format!("{strict}{expected}"));
        }
        check(r#"{"a":1,"a":2"#, Format::Json, "unexpected end of JSON input");
        check(
            r#"{"a":1,"a":2}"#,
            Format::Yaml,
            "strict decoding error: yaml: unmarshal errors:\n  line 1: key \"a\" already set in map",
        );
    }

    #[test]
    fn large_bodies_are_refused() {
        let text = format!("\"{}\"", "x".repeat(MAX_BODY_BYTES - 2));
        assert!(decode(text.as_bytes(), Format::Json).is_ok());
        for format in [Format::Json, Format::Yaml] {
            check(&format!("{text} "), format, "limit is 3145728");
        }
    }

    #[test]
    fn long_paths_do_not_multiply() {
        let fields = "\"b\":1,".repeat(1000);
        let text = format!("{{\"{}\":{{{}\"c\":1}}}}", "a".repeat(1 << 20), fields + "\"d\":1,\"d\":1,");
        let (_, errors) = decode_strict(text.as_bytes(), Format::Json).unwrap();
        assert_eq!(errors.as_slice().len(), 1);
    }

    #[test]
    fn formats() {
        for (bytes, expected) in [
            (&b"{"[..], Format::Json),
            (b" \r\n\t\xc2\xa0{\"a\":1}", Format::Json),
            (b"[]", Format::Yaml),
            (b"", Format::Yaml),
            (b"  ", Format::Yaml),
            (b"a: {}", Format::Yaml),
            (b"\xff{", Format::Yaml),
        ] {
            assert_eq!(Format::guess(bytes), expected, "{}", String::from_utf8_lossy(bytes));
        }
    }
}
