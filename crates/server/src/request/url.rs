//! The target of a request: its path without escapes, and its query as it is.
//!
//! The rules are those of Go's `net/url`, which decide what upstream sees: every escape in the path is resolved before
//! anything looks at it, so `%2e%2e` is `..` and `%2f` parts segments; nothing is cleaned, so `//` and `..` stay.

use std::{borrow::Cow, fmt};

/// A target that has been taken apart.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Url<'a> {
    /// The path without escapes. Bytes that are not UTF-8 have become U+FFFD: no object has such a name.
    pub path: Cow<'a, str>,
    /// The query as it was sent, without its question mark.
    pub query: &'a str,
    /// All of it, as it was sent.
    pub target: &'a str,
}

/// Why a target cannot be read. Go's server answers it before any handler, with 400 in plain text.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum UrlError {
    /// There is a control character in it.
    Control,
    /// It does not begin with a slash.
    NotAPath,
    /// An escape that is none.
    Escape(String),
}

impl fmt::Display for UrlError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            UrlError::Control => f.write_str("net/url: invalid control character in URL"),
            UrlError::NotAPath => f.write_str("invalid URI for request"),
            UrlError::Escape(text) => write!(f, "invalid URL escape {}", capstan_api::go::quote(text)),
        }
    }
}

impl std::error::Error for UrlError {}

impl<'a> Url<'a> {
    /// Takes a target in origin form apart: `/api/v1/pods?limit=1`.
    ///
    /// # Errors
    /// When Go's server would refuse it.
    pub fn parse(target: &'a str) -> Result<Self, UrlError> {
        if target.bytes().any(|c| c < b' ' || c == 0x7f) {
            return Err(UrlError::Control);
        }
        let (path, query) = target.split_once('?').unwrap_or((target, ""));
        if target == "*" {
            return Ok(Url { path: Cow::Borrowed(target), query: "", target });
        }
        if !path.starts_with('/') {
            return Err(UrlError::NotAPath);
        }
        let path = unescape(path, Mode::Path).map_err(|escape| UrlError::Escape(escape.to_owned()))?;
        Ok(Url { path, query, target })
    }
}

/// Where text stands in a target.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Mode {
    /// In the path.
    Path,
    /// In the query, where a plus is a space.
    Query,
}

/// Resolves the escapes, or returns the first that is none.
pub(super) fn unescape(text: &str, mode: Mode) -> Result<Cow<'_, str>, &str> {
    let plus = mode == Mode::Query && text.contains('+');
    if !plus && !text.contains('%') {
        return Ok(Cow::Borrowed(text));
    }
    let bytes = text.as_bytes();
    let mut out = Vec::with_capacity(bytes.len());
    let mut at = 0;
    while let Some(&c) = bytes.get(at) {
        match c {
            b'%' => {
                let digit = |at| bytes.get(at).and_then(|&c| char::from(c).to_digit(16));
                let (Some(high), Some(low)) = (digit(at + 1), digit(at + 2)) else {
                    let end = text.ceil_char_boundary((at + 3).min(text.len()));
                    return Err(&text[at..end]);
                };
                out.push((high << 4 | low) as u8);
                at += 2;
            }
            b'+' if plus => out.push(b' '),
            c => out.push(c),
        }
        at += 1;
    }
    Ok(Cow::Owned(
        String::from_utf8(out).unwrap_or_else(|error| String::from_utf8_lossy(error.as_bytes()).into_owned()),
    ))
}

/// Resolves the escapes of a part of a path; text with one that is none is left as it is.
pub(crate) fn unescape_path(text: &str) -> Cow<'_, str> {
    unescape(text, Mode::Path).unwrap_or(Cow::Borrowed(text))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn takes_targets_apart() {
        for (target, path, query) in [
            ("/", "/", ""),
            ("/api?x=%zz", "/api", "x=%zz"),
            ("/api?", "/api", ""),
            ("/a?b?c", "/a", "b?c"),
            ("//api/v1/", "//api/v1/", ""),
            ("/%61pi/%2e%2e/a%2fb%00c+d", "/api/../a/b\0c+d", ""),
            ("/%ff%C3%A9é", "/\u{fffd}éé", ""),
            ("*", "*", ""),
        ] {
            let url = Url::parse(target).unwrap();
            assert_eq!((&*url.path, url.query), (path, query), "{target}");
        }
    }

    #[test]
    fn refuses_what_go_refuses() {
        for (target, expected) in [
            ("", "invalid URI for request"),
            ("api", "invalid URI for request"),
            ("?x", "invalid URI for request"),
            ("/a\u{1}", "net/url: invalid control character in URL"),
            ("/a\u{7f}", "net/url: invalid control character in URL"),
            ("/a%zz", r#"invalid URL escape "%zz""#),
            ("/a%", r#"invalid URL escape "%""#),
            ("/a%4", r#"invalid URL escape "%4""#),
            ("/a%4é", r#"invalid URL escape "%4é""#),
            ("/%+1", r#"invalid URL escape "%+1""#),
        ] {
            assert_eq!(Url::parse(target).unwrap_err().to_string(), expected, "{target}");
        }
    }
}
