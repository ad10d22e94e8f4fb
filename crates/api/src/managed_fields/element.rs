//! One step of a path: a field, an element of a list by its key or its value, or a place in a list.

use std::{cmp::Ordering, fmt};

use crate::{Str, Value, go, json};

/// One step of a path into an object.
#[derive(Clone, Debug)]
pub enum PathElement {
    /// A field of an object, or a key of a map.
    Field(Str),
    /// The element of a list that has these values in its key fields, sorted by name.
    Key(Box<[(Str, Value)]>),
    /// The element of a set that has this value.
    Value(Box<Value>),
    /// The element at this place.
    Index(i64),
}

/// Why a text is not a path element.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum ElementError {
    /// It is of a kind that is not known. A later version may know it.
    Unknown,
    /// It is not well formed.
    Malformed(String),
}

impl PathElement {
    /// The field `name`.
    pub fn field(name: impl Into<Str>) -> Self {
        PathElement::Field(name.into())
    }

    /// The name of the field, if it is one.
    #[must_use]
    pub fn as_field(&self) -> Option<&str> {
        if let PathElement::Field(name) = self { Some(name) } else { None }
    }

    /// Reads the text that `FieldsV1` has for it: `f:name`, `k:{…}`, `v:…` or `i:0`.
    ///
    /// # Errors
    /// If it is of an unknown kind, or malformed.
    pub fn parse(text: &str) -> Result<Self, ElementError> {
        let malformed = |message: String| ElementError::Malformed(message);
        let bytes = text.as_bytes();
        if bytes.len() < 2 {
            return Err(malformed("key must be 2 characters long:".to_owned()));
        }
        if bytes[1] != b':' {
            return Err(malformed(format!("missing colon: {text}")));
        }
        let rest = &text[2..];
        match bytes[0] {
            b'f' => Ok(PathElement::Field(rest.into())),
            b'v' => {
                let value = json::parse(rest.as_bytes()).map_err(|error| malformed(error.to_string()))?;
                Ok(PathElement::Value(Box::new(value)))
            }
            b'k' if let Some(keys) = plain_keys(rest) => Ok(PathElement::Key(keys.into())),
            b'k' => match json::parse(rest.as_bytes()).map_err(|error| malformed(error.to_string()))? {
                Value::Object(map) => Ok(PathElement::Key(map.into_entries().into())),
                Value::Null => Ok(PathElement::Key(Box::new([]))),
                _ => Err(malformed(format!("expected an object: {rest}"))),
            },
            b'i' => rest.parse().map(PathElement::Index).map_err(|_| malformed(format!("not an index: {rest}"))),
            _ => Err(ElementError::Unknown),
        }
    }

    /// The text that `FieldsV1` has for it.
    #[must_use]
    pub fn text(&self) -> Str {
        let mut text = Str::default();
        match self {
            PathElement::Field(name) => {
                text.reserve(name.len() + 2);
                text.push_str("f:");
                text.push_str(name);
            }
            PathElement::Key(fields) => {
                let mut json = Vec::with_capacity(64);
                text.push_str("k:{");
                for (at, (name, value)) in fields.iter().enumerate() {
                    if at > 0 {
                        json.push(b',');
                    }
                    json::write_str(name, &mut json);
                    json.push(b':');
                    write_escaped(value, &mut json);
                }
                text.push_str(&String::from_utf8_lossy(&json));
                text.push('}');
            }
            PathElement::Value(value) => {
                text.push_str("v:");
                text.push_str(&escaped(value));
            }
            PathElement::Index(at) => text = format!("i:{at}").into(),
        }
        text
    }

    fn rank(&self) -> u8 {
        match self {
            PathElement::Field(_) => 0,
            PathElement::Key(_) => 1,
            PathElement::Value(_) => 2,
            PathElement::Index(_) => 3,
        }
    }
}

/// JSON in which `<`, `>` and `&` are escaped, as Go writes it unless told not to.
pub(super) fn escaped(value: &Value) -> String {
    let mut text = Vec::new();
    write_escaped(value, &mut text);
    String::from_utf8(text).expect("what is written is UTF-8")
}

fn write_escaped(value: &Value, out: &mut Vec<u8>) {
    let from = out.len();
    json::write(value, out);
    if !out[from..].iter().any(|byte| matches!(byte, b'<' | b'>' | b'&')) {
        return;
    }
    for byte in out.split_off(from) {
        match byte {
            b'<' | b'>' | b'&' => out.extend_from_slice(format!("\\u{byte:04x}").as_bytes()),
            byte => out.push(byte),
        }
    }
}

/// Reads the keys of an element as they are nearly always written: sorted, strings without escapes and small numbers.
fn plain_keys(text: &str) -> Option<Vec<(Str, Value)>> {
    fn string(text: &str) -> Option<(&str, &str)> {
        let (string, rest) = text.strip_prefix('"')?.split_once('"')?;
        string.bytes().all(|byte| byte >= b' ' && byte != b'\\').then_some((string, rest))
    }
    let mut keys: Vec<(Str, Value)> = Vec::with_capacity(2);
    let mut rest = text.strip_prefix('{')?;
    loop {
        let (name, behind) = string(rest)?;
        let behind = behind.strip_prefix(':')?;
        let (value, behind) = match string(behind) {
            Some((value, behind)) => (Value::from(value), behind),
            None => {
                let (number, behind) = behind.split_at(behind.find([',', '}'])?);
                let is_plain = number.len() <= 18 && number.bytes().all(|byte| byte.is_ascii_digit());
                (Value::Int(number.parse().ok().filter(|_| is_plain && !number.starts_with('0'))?), behind)
            }
        };
        if keys.last().is_some_and(|(before, _)| before.as_str() >= name) {
            return None;
        }
        keys.push((name.into(), value));
        match behind.split_at_checked(1)? {
            (",", behind) => rest = behind,
            ("}", "") => return Some(keys),
            _ => return None,
        }
    }
}

/// Values in upstream's order: numbers, strings, booleans, lists, maps, `null`. Numbers are compared by their size, be
/// they integers or not.
pub(super) fn compare(a: &Value, b: &Value) -> Ordering {
    match (a, b) {
        (Value::Int(a), Value::Int(b)) => a.cmp(b),
        (Value::Int(_) | Value::Float(_), Value::Int(_) | Value::Float(_)) => {
            let (a, b) = (a.as_f64().unwrap_or_default(), b.as_f64().unwrap_or_default());
            a.partial_cmp(&b).unwrap_or(Ordering::Equal)
        }
        (Value::String(a), Value::String(b)) => a.cmp(b),
        (Value::Bool(a), Value::Bool(b)) => a.cmp(b),
        (Value::Array(_), Value::Array(_)) | (Value::Object(_), Value::Object(_)) => {
            json::to_string(a).cmp(&json::to_string(b))
        }
        _ => rank(a).cmp(&rank(b)),
    }
}

fn rank(value: &Value) -> u8 {
    match value {
        Value::Int(_) | Value::Float(_) => 0,
        Value::String(_) => 1,
        Value::Bool(_) => 2,
        Value::Array(_) => 3,
        Value::Object(_) => 4,
        Value::Null => 5,
    }
}

/// Fields come first, then keys, values and places.
impl Ord for PathElement {
    fn cmp(&self, other: &Self) -> Ordering {
        match (self, other) {
            (PathElement::Field(a), PathElement::Field(b)) => a.cmp(b),
            (PathElement::Key(a), PathElement::Key(b)) => {
                for ((name_a, a), (name_b, b)) in a.iter().zip(b) {
                    let order = name_a.cmp(name_b).then_with(|| compare(a, b));
                    if order.is_ne() {
                        return order;
                    }
                }
                a.len().cmp(&b.len())
            }
            (PathElement::Value(a), PathElement::Value(b)) => compare(a, b),
            (PathElement::Index(a), PathElement::Index(b)) => a.cmp(b),
            _ => self.rank().cmp(&other.rank()),
        }
    }
}

impl PartialOrd for PathElement {
    fn partial_cmp(&self, other: &Self) -> Option<Ordering> {
        Some(self.cmp(other))
    }
}

impl PartialEq for PathElement {
    fn eq(&self, other: &Self) -> bool {
        self.cmp(other).is_eq()
    }
}

impl Eq for PathElement {}

/// Prints it as messages do: `.name`, `[name="a"]`, `[="a"]`, `[0]`.
impl fmt::Display for PathElement {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            PathElement::Field(name) => write!(f, ".{name}"),
            PathElement::Key(fields) => {
                f.write_str("[")?;
                for (at, (name, value)) in fields.iter().enumerate() {
                    let comma = if at > 0 { "," } else { "" };
                    write!(f, "{comma}{name}={}", shown(value))?;
                }
                f.write_str("]")
            }
            PathElement::Value(value) => write!(f, "[={}]", shown(value)),
            PathElement::Index(at) => write!(f, "[{at}]"),
        }
    }
}

fn shown(value: &Value) -> String {
    match value {
        Value::String(text) => go::quote(text),
        Value::Float(n) => go::float(*n),
        value => json::to_string(value),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn elements_read_back() {
        for text in ["f:", "f:a b", r#"k:{"name":"a\u003cb","port":80}"#, r#"v:"\u0026""#, "v:1.5", "v:true", "i:-3"] {
            assert_eq!(PathElement::parse(text).unwrap().text(), text);
        }
    }

    #[test]
    fn keys_are_read_as_json() {
        for text in [
            r#"{"a":"x"}"#,
            r#"{"a":"x","b":80}"#,
            r#"{"b":"x","a":80}"#,
            r#"{"a":1,"a":2}"#,
            r#"{"a":0}"#,
            r#"{"a":01}"#,
            r#"{"a":-1}"#,
            r#"{"a":1e3}"#,
            r#"{"a":9223372036854775807}"#,
            r#"{"a":92233720368547758070}"#,
            r#"{"a":true}"#,
            r#"{"a\n":"\u0041"}"#,
            r#"{"a":"x"} "#,
            r#"{"a":"x",}"#,
            r#"{"a":"x"}}"#,
            r#"{"a":"é"}"#,
            "{\"a\":\"\n\"}",
            r#"{"a":}"#,
            r#"{"a":"x""#,
            "{}",
        ] {
            let Some(keys) = plain_keys(text) else { continue };
            let Ok(Value::Object(map)) = json::parse(text.as_bytes()) else { panic!("{text} is no object") };
            assert_eq!(keys, map.into_entries(), "{text}");
        }
        assert!(plain_keys(r#"{"a":"x","b":80}"#).is_some());
    }

    #[test]
    fn what_is_not_an_element() {
        assert_eq!(PathElement::parse("x:a"), Err(ElementError::Unknown));
        for text in ["", "f", "fa", "v:", "k:[]", "k:{", "i:x", "é"] {
            assert!(matches!(PathElement::parse(text), Err(ElementError::Malformed(_))), "{text}");
        }
    }

    #[test]
    fn order() {
        let sorted = [
            "f:a",
            "f:b",
            r#"k:{"a":9}"#,
            r#"k:{"a":80}"#,
            r#"k:{"a":80,"b":1}"#,
            r#"k:{"a":"x"}"#,
            r#"k:{"b":1}"#,
            "v:1",
            "v:1.5",
            "v:2",
            r#"v:"a""#,
            "v:false",
            "v:true",
            "v:[1]",
            r#"v:{"a":1}"#,
            "v:null",
            "i:0",
            "i:10",
        ];
        let sorted: Vec<_> = sorted.iter().map(|text| PathElement::parse(text).unwrap()).collect();
        assert!(sorted.is_sorted_by(|a, b| a < b));
        assert_eq!(PathElement::parse("v:1").unwrap(), PathElement::parse("v:1.0").unwrap());
    }
}
