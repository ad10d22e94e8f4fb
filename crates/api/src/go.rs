//! How Go prints: quoted strings and values, as they appear in upstream's messages.

use std::fmt::Write as _;

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
}
