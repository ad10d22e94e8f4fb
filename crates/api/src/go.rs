//! How Go prints: quoted strings and values, as they appear in upstream's messages.

use std::fmt::Write as _;

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
            // Not printable in Go's sense: controls, separators other than the space, soft hyphen, the byte order mark.
            c if c.is_control() || (c.is_whitespace() && c != ' ') || matches!(c, '\u{ad}' | '\u{feff}') => {
                write!(out, "\\u{:04x}", u32::from(c))
            }
            c => write!(out, "{c}"),
        };
        printed.expect("memory takes all");
    }
    out.push('"');
    out
}

/// A float as `%v` prints it: with an exponent below 1e-4 and from 1e6 on.
#[must_use]
pub fn float(n: f64) -> String {
    let text = format!("{n:e}");
    let (digits, exponent) = text.split_once('e').expect("the format has an exponent");
    match exponent.parse::<i32>() {
        Ok(exponent) if !(-4..FLOAT_EXPONENT_MAX).contains(&exponent) => {
            let sign = if exponent < 0 { '-' } else { '+' };
            format!("{digits}e{sign}{:02}", exponent.unsigned_abs())
        }
        _ => n.to_string(),
    }
}

/// From this power of ten on `%v` prints floats with an exponent.
const FLOAT_EXPONENT_MAX: i32 = 6;

/// A value as it is shown in messages: strings quoted, numbers as `%v` prints them, the rest as JSON.
#[must_use]
pub fn show(value: &Value) -> String {
    match value {
        Value::String(text) => quote(text),
        Value::Float(n) => float(*n),
        value => value.to_string(),
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
    }

    #[test]
    fn floats() {
        for (n, expected) in [
            (1_000_000.5, "1.0000005e+06"),
            (1e6, "1e+06"),
            (100_000.0, "100000"),
            (1.5e20, "1.5e+20"),
            (0.0001, "0.0001"),
            (0.00001, "1e-05"),
            (-2.5, "-2.5"),
            (0.0, "0"),
        ] {
            assert_eq!(float(n), expected);
        }
    }
}
