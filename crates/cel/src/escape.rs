//! How field names are spelled in expressions, where not every name is an identifier.

use std::borrow::Cow;

const RESERVED: [&str; 21] = [
    "true",
    "false",
    "null",
    "in",
    "as",
    "break",
    "const",
    "continue",
    "else",
    "for",
    "function",
    "if",
    "import",
    "let",
    "loop",
    "package",
    "namespace",
    "return",
    "var",
    "void",
    "while",
];

const ESCAPES: [(&str, &str); 4] = [("__", "__underscores__"), (".", "__dot__"), ("-", "__dash__"), ("/", "__slash__")];

/// The identifier for a field, if it can have one.
#[must_use]
pub fn escape(name: &str) -> Option<Cow<'_, str>> {
    if name.is_empty() || name.starts_with(|c: char| c.is_ascii_digit()) {
        return None;
    }
    if RESERVED.contains(&name) {
        return Some(format!("__{name}__").into());
    }
    if name.contains(|c: char| !c.is_ascii_alphanumeric() && !matches!(c, '_' | '.' | '-' | '/')) {
        return None;
    }
    if !name.contains(['.', '-', '/']) && !name.contains("__") {
        return Some(name.into());
    }
    let mut out = String::with_capacity(name.len() + 16);
    let mut rest = name;
    'next: while let Some(c) = rest.chars().next() {
        for (plain, escaped) in ESCAPES {
            if let Some(behind) = rest.strip_prefix(plain) {
                out.push_str(escaped);
                rest = behind;
                continue 'next;
            }
        }
        out.push(c);
        rest = &rest[c.len_utf8()..];
    }
    Some(out.into())
}

/// The field that an identifier stands for, if it stands for one.
#[must_use]
pub fn unescape(identifier: &str) -> Option<Cow<'_, str>> {
    if !identifier.contains("__") {
        return Some(identifier.into());
    }
    let mut out = String::with_capacity(identifier.len());
    let mut rest = identifier;
    while let Some(at) = rest.find("__") {
        let behind = &rest[at + 2..];
        // An escape is two underscores, something without underscores, and two underscores.
        let length = behind.find('_').unwrap_or(behind.len());
        if length == 0 || !behind[length..].starts_with("__") {
            out.push_str(&rest[..=at]);
            rest = &rest[at + 1..];
            continue;
        }
        let inside = &behind[..length];
        out.push_str(&rest[..at]);
        match inside {
            "underscores" => out.push_str("__"),
            "dot" => out.push('.'),
            "dash" => out.push('-'),
            "slash" => out.push('/'),
            word if RESERVED.contains(&word) && identifier.len() == length + 4 => out.push_str(word),
            _ => return None,
        }
        rest = &behind[length + 2..];
    }
    out.push_str(rest);
    Some(out.into())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn check(name: &str, escaped: Option<&str>) {
        assert_eq!(escape(name).as_deref(), escaped, "{name}");
        if let Some(escaped) = escaped {
            assert_eq!(unescape(escaped).as_deref(), Some(name));
        }
    }

    #[test]
    fn names() {
        check("a", Some("a"));
        check("a_b", Some("a_b"));
        check("_a_", Some("_a_"));
        check("a__b", Some("a__underscores__b"));
        check("a-b.c/d", Some("a__dash__b__dot__c__slash__d"));
        check("namespace", Some("__namespace__"));
        check("in", Some("__in__"));
        check("___", Some("__underscores___"));
        check("1a", None);
        check("", None);
        check("a b", None);
        check("ä", None);
        assert_eq!(unescape("__unknown__"), None);
        assert_eq!(unescape("a__in__"), None);
        assert_eq!(unescape("a__b").as_deref(), Some("a__b"));
    }
}
