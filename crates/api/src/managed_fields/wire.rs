//! `FieldsV1`: a set of paths as JSON.

use std::fmt;

use super::{ElementError, FieldSet, MAX_DEPTH, PathElement, set::Node};
use crate::{Map, Str, Value, json};

/// Why something is no `FieldsV1`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct FieldsError(String);

impl fmt::Display for FieldsError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

impl std::error::Error for FieldsError {}

impl FieldSet {
    /// Reads `FieldsV1`. Path elements of unknown kinds are left out, with all below them.
    ///
    /// # Errors
    /// If it is no object of path elements, or deeper than [`MAX_DEPTH`].
    pub fn from_value(value: &Value) -> Result<Self, FieldsError> {
        read(value, MAX_DEPTH).map(|(set, _)| set)
    }

    /// As `FieldsV1`. Maps are sorted by their keys' text; [`to_json`](FieldSet::to_json) has upstream's order.
    #[must_use]
    pub fn to_value(&self) -> Value {
        self.with_this(false)
    }

    /// As `FieldsV1`; if `this` is set, the field that the set is below of is in it, too.
    fn with_this(&self, this: bool) -> Value {
        let this = this && !self.is_empty();
        let mut entries = Vec::with_capacity(self.nodes.len() + usize::from(this));
        if this {
            entries.push((Str::const_new("."), Map::new().into()));
        }
        entries.extend(self.nodes.iter().map(|node| (node.element.text(), node.children.with_this(node.member))));
        Value::Object(entries.into_iter().collect())
    }

    /// As the bytes of `FieldsV1`, in upstream's order: by field name, key, value and index.
    #[must_use]
    pub fn to_json(&self) -> Vec<u8> {
        let mut out = Vec::new();
        write(self, false, &mut out);
        out
    }
}

/// The set, and whether what it belongs to is a member.
fn read(value: &Value, depth: usize) -> Result<(FieldSet, bool), FieldsError> {
    let map = match value {
        Value::Object(map) => map,
        Value::Null => return Ok((FieldSet::new(), true)),
        other => return Err(FieldsError(format!("expected an object of fields, got {}", other.type_name()))),
    };
    if depth == 0 && !map.is_empty() {
        return Err(FieldsError(format!("fields are nested deeper than {MAX_DEPTH}")));
    }
    let mut set = FieldSet { nodes: Vec::with_capacity(map.len()) };
    let mut this = false;
    for (key, below) in map.iter() {
        if key == "." {
            this = true;
            continue;
        }
        let element = match PathElement::parse(key) {
            Ok(element) => element,
            Err(ElementError::Unknown) => continue,
            Err(ElementError::Malformed(message)) => {
                return Err(FieldsError(format!("parsing key as path element: {message}")));
            }
        };
        let (children, member) = match below {
            Value::Object(map) if map.is_empty() => (FieldSet::new(), true),
            below => read(below, depth - 1)?,
        };
        set.nodes.push(Node { element, member, children });
    }
    set.sort();
    let member = this || set.is_empty();
    Ok((set, member))
}

fn write(set: &FieldSet, member: bool, out: &mut Vec<u8>) {
    out.push(b'{');
    if member && !set.is_empty() {
        out.extend_from_slice(b"\".\":{}");
    }
    for (at, node) in set.nodes.iter().enumerate() {
        if at > 0 || member {
            out.push(b',');
        }
        json::write_str(&node.element.text(), out);
        out.push(b':');
        write(&node.children, node.member, out);
    }
    out.push(b'}');
}

#[cfg(test)]
mod tests {
    use super::*;

    fn parse(text: &str) -> Result<FieldSet, FieldsError> {
        FieldSet::from_value(&json::parse(text.as_bytes()).unwrap())
    }

    #[test]
    fn bytes_are_upstreams() {
        for text in [
            "{}",
            r#"{"f:a":{}}"#,
            r#"{"f:a":{".":{},"f:b":{}},"f:c":{"f:d":{}}}"#,
            r#"{"f:p":{"k:{\"port\":9}":{".":{},"f:port":{}},"k:{\"port\":80}":{},"v:\"a\"":{},"i:3":{}}}"#,
        ] {
            let set = parse(text).unwrap();
            assert_eq!(String::from_utf8(set.to_json()).unwrap(), text);
            assert_eq!(FieldSet::from_value(&set.to_value()).unwrap(), set);
        }
    }

    #[test]
    fn what_is_unknown_is_left_out_and_what_is_wrong_is_refused() {
        assert_eq!(parse(r#"{"x:a":{"f:b":{}},"f:c":{"z:":{}}}"#).unwrap().to_json(), br#"{"f:c":{}}"#);
        for text in ["[]", "1", r#"{"f:a":1}"#, r#"{"a":{}}"#] {
            assert!(parse(text).is_err(), "{text}");
        }
        let deep = format!("{}{{}}{}", r#"{"f:a":"#.repeat(1000), "}".repeat(1000));
        assert!(parse(&deep).is_err());
    }
}
