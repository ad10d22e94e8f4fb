//! How Go prints: quoted strings and values, as they appear in upstream's messages.

use std::{
    fmt::{self, Write as _},
    num::{IntErrorKind, ParseIntError},
};

use crate::Value;

/// A string in double quotes with Go's escapes, as `%q` prints it.
#[must_use]
pub fn quote(text: &str) -> String {
    let mut out = String::with_capacity(text.len() + 2);
    out.push('"');
    for c in text.chars() {
        let printed = match c {
            '"' => write!(out, "\\\""),
            '\\' => write!(out, "\\\\"),
            '\n' => write!(out, "\\n"),
            '\r' => write!(out, "\\r"),
            '\t' => write!(out, "\\t"),
            '\x07' => write!(out, "\\a"),
            '\x08' => write!(out, "\\b"),
            '\x0b' => write!(out, "\\v"),
            '\x0c' => write!(out, "\\f"),
            c if u32::from(c) < 0x20 || c == '\x7f' => write!(out, "\\x{:02x}", u32::from(c)),
            c if !is_print(c) && u32::from(c) > 0xffff => write!(out, "\\U{:08x}", u32::from(c)),
            c if !is_print(c) => write!(out, "\\u{:04x}", u32::from(c)),
            c => write!(out, "{c}"),
        };
        printed.expect("memory takes all");
    }
    out.push('"');
    out
}

/// Whether Go shows a character as it is: letters, marks, numbers, punctuation, symbols and the space.
pub(crate) fn is_print(c: char) -> bool {
    // The standard library tells only through its own escapes. A mark is only left alone behind something to stand on.
    c.is_ascii_graphic() || c == ' ' || ['a', c].iter().collect::<String>().escape_debug().eq(['a', c])
}

/// A number as `%v` prints it: the shortest text that reads back, with an exponent below 1e-4 and from 1e6 on.
#[must_use]
pub fn float(n: f64) -> String {
    if n.is_nan() {
        return "NaN".to_owned();
    }
    if n.is_infinite() {
        return if n > 0.0 { "+Inf" } else { "-Inf" }.to_owned();
    }
    let text = format!("{n:e}");
    let (digits, exponent) = text.split_once('e').expect("the format has an exponent");
    let exponent: i32 = exponent.parse().expect("the format's exponent is an integer");
    if n != 0.0 && !(-4..6).contains(&exponent) {
        let sign = if exponent < 0 { '-' } else { '+' };
        return format!("{digits}e{sign}{:02}", exponent.abs());
    }
    n.to_string()
}

/// Text that is not an integer of 64 bits, in the words of Go's `strconv`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct IntError {
    function: &'static str,
    text: String,
    range: bool,
    /// What Go returns besides the error: the end of the range that was left, or 0.
    pub nearest: i64,
}

impl fmt::Display for IntError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let why = if self.range { "value out of range" } else { "invalid syntax" };
        write!(f, "strconv.{}: parsing {}: {why}", self.function, quote(&self.text))
    }
}

impl std::error::Error for IntError {}

/// Reads an integer as `strconv.Atoi` does.
///
/// # Errors
/// If the text is not an integer, or not one of 64 bits.
pub fn atoi(text: &str) -> Result<i64, IntError> {
    int(text, "Atoi")
}

/// Reads an integer as `strconv.ParseInt(text, 10, 64)` does.
///
/// # Errors
/// If the text is not an integer, or not one of 64 bits.
pub fn parse_int(text: &str) -> Result<i64, IntError> {
    int(text, "ParseInt")
}

fn int(text: &str, function: &'static str) -> Result<i64, IntError> {
    text.parse().map_err(|error: ParseIntError| {
        let nearest = match error.kind() {
            IntErrorKind::PosOverflow => i64::MAX,
            IntErrorKind::NegOverflow => i64::MIN,
            _ => 0,
        };
        IntError { function, text: text.to_owned(), range: nearest != 0, nearest }
    })
}

/// Text in which nothing can be taken for a tag, as upstream writes errors that repeat what was asked for.
#[must_use]
pub fn without_tags(text: &str) -> String {
    text.replace('&', "&amp;").replace('<', "&lt;").replace('>', "&gt;")
}

/// Escapes what could be taken for a tag in JSON that ends up in HTML, as Go's encoder does.
#[must_use]
pub fn escape_html(json: &str) -> String {
    let mut out = String::with_capacity(json.len());
    for c in json.chars() {
        match c {
            '<' => out.push_str("\\u003c"),
            '>' => out.push_str("\\u003e"),
            '&' => out.push_str("\\u0026"),
            c => out.push(c),
        }
    }
    out
}

/// A value as it is shown in messages: scalars as `%v` prints them, strings as `%q` does, anything else as JSON that is
/// safe in HTML.
#[must_use]
pub fn show(value: &Value) -> String {
    match value {
        Value::String(text) => quote(text),
        Value::Float(n) => float(*n),
        Value::Array(_) | Value::Object(_) => escape_html(&value.to_string()),
        Value::Null | Value::Bool(_) | Value::Int(_) => value.to_string(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn quotes() {
        for (text, expected) in
            [("a", "\"a\""), ("a\"b\\c\n", r#""a\"b\\c\n""#), ("\u{0}é€", "\"\\x00é€\""), ("\u{a0}", "\"\\u00a0\"")]
        {
            assert_eq!(quote(text), expected);
        }
        let go = r#""\u0301 a\u0301 \u200b \U000e0001 😀 \ue000 \u0378 \u00a0 \u0085 \ufeff \u00ad \ufffd""#;
        let marks = go.replace(r"\u0301", "\u{301}").replace(r"\ufffd", "\u{fffd}");
        let text = "\u{301} a\u{301} \u{200b} \u{e0001} 😀 \u{e000} \u{378} \u{a0} \u{85} \u{feff} \u{ad} \u{fffd}";
        assert_eq!(quote(text), marks);
    }

    #[test]
    fn floats() {
        for (n, expected) in [
            (1e5, "100000"),
            (1e6, "1e+06"),
            (123_456_789.0, "1.23456789e+08"),
            (123_456.789, "123456.789"),
            (0.0001, "0.0001"),
            (0.00001, "1e-05"),
            (-2.5, "-2.5"),
            (0.0, "0"),
            (-0.0, "-0"),
            (1.5e300, "1.5e+300"),
            (f64::NEG_INFINITY, "-Inf"),
            (f64::NAN, "NaN"),
        ] {
            assert_eq!(float(n), expected);
        }
    }
}
