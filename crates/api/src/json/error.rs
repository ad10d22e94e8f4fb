//! What can be wrong with JSON, in the words of Go's decoder.

use std::fmt;

/// Text that is not JSON, and where.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Error {
    /// How many bytes come before the place.
    pub offset: usize,
    /// What is wrong there.
    pub wrong: Wrong,
}

/// What is wrong with the text.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Wrong {
    /// A character that cannot stand here; the context says what was being read.
    Character(u8, &'static str),
    /// The text ends too early.
    End,
    /// The bracket that opens more than [`MAX_DEPTH`](super::MAX_DEPTH) containers in each other.
    Depth(u8),
    /// A number that no 64-bit number comes near.
    Number(String),
}

impl fmt::Display for Error {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match &self.wrong {
            Wrong::Depth(c) => write!(f, "invalid character '{}' exceeded max depth", char::from(*c)),
            Wrong::Character(c, context) => {
                f.write_str("invalid character ")?;
                match c {
                    b'\'' => f.write_str(r"'\''")?,
                    b'"' => f.write_str("'\"'")?,
                    b'\\' => f.write_str(r"'\\'")?,
                    b'\n' => f.write_str(r"'\n'")?,
                    b'\r' => f.write_str(r"'\r'")?,
                    b'\t' => f.write_str(r"'\t'")?,
                    7 => f.write_str(r"'\a'")?,
                    8 => f.write_str(r"'\b'")?,
                    11 => f.write_str(r"'\v'")?,
                    12 => f.write_str(r"'\f'")?,
                    // Go looks at one byte as a code point, so a byte of a longer character shows as Latin-1.
                    0..0x20 | 0x7f => write!(f, r"'\x{c:02x}'")?,
                    0x80..0xa1 | 0xad => write!(f, r"'\u{c:04x}'")?,
                    _ => write!(f, "'{}'", char::from(*c))?,
                }
                write!(f, " {context}")
            }
            Wrong::End => f.write_str("unexpected end of JSON input"),
            Wrong::Number(text) => write!(f, "json: cannot unmarshal number {text} into Go value of type float64"),
        }
    }
}

impl std::error::Error for Error {}
