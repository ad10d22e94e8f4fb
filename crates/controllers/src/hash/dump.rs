//! Templates as Go prints them. The hash of a template is the hash of this text, so every type and every field that is
//! not set counts, in Go's order.
//!
//! `types.txt` is the shape of Go's types that a pod template is made of: a line for each, `type Field:json:type …` for
//! one with fields (`=` if the name in JSON is the same but for the first letter, nothing if the fields are the outer
//! one's own), `type = other` for another name of a type.

use std::{collections::HashMap, sync::LazyLock};

use serde_json::Value;

/// A type of Go.
enum Type {
    /// Fields: their name in Go, their name in JSON (empty if it is embedded), their type.
    Struct(Vec<(&'static str, String, &'static str)>),
    Alias(&'static str),
}

static TYPES: LazyLock<HashMap<&'static str, Type>> = LazyLock::new(|| {
    let field = |text: &'static str| {
        let mut parts = text.splitn(3, ':');
        let (name, json, of) = (parts.next()?, parts.next()?, parts.next()?);
        let json = if json == "=" { lower_first(name) } else { json.to_owned() };
        Some((name, json, of))
    };
    let line = |line: &'static str| {
        let (name, rest) = line.split_once(' ')?;
        Some(match rest.strip_prefix("= ") {
            Some(other) => (name, Type::Alias(other)),
            None => (name, Type::Struct(rest.split(' ').filter_map(field).collect())),
        })
    };
    include_str!("types.txt").lines().filter_map(line).collect()
});

fn lower_first(name: &str) -> String {
    let mut letters = name.chars();
    letters.next().map(|first| first.to_ascii_lowercase().to_string() + letters.as_str()).unwrap_or_default()
}

/// A pod template as Go prints it, from its JSON.
pub(super) fn pod_template(template: &Value) -> String {
    let mut text = String::new();
    print(&mut text, "v1.PodTemplateSpec", Some(template), true);
    text
}

/// Types are nested about ten deep, and none contains itself, so this recursion has a bound.
fn print(to: &mut String, of: &str, value: Option<&Value>, with_type: bool) {
    let value = value.filter(|value| !value.is_null());
    if with_type {
        to.push('(');
        to.push_str(of);
        to.push(')');
    }
    if let Some(pointed) = of.strip_prefix('*') {
        match value {
            None => to.push_str("<nil>"),
            Some(_) => print(to, pointed, value, false),
        }
        return;
    }
    if let Some(item) = of.strip_prefix("[]") {
        let Some(items) = value.and_then(Value::as_array) else { return to.push_str("<nil>") };
        to.push('[');
        for (at, value) in items.iter().enumerate() {
            to.push_str(if at > 0 { " " } else { "" });
            print(to, item, Some(value), false);
        }
        to.push(']');
        return;
    }
    if let Some((_, item)) = of.strip_prefix("map[").and_then(|of| of.split_once(']')) {
        let Some(items) = value.and_then(Value::as_object) else { return to.push_str("<nil>") };
        to.push_str("map[");
        for (at, (key, value)) in items.iter().enumerate() {
            to.push_str(if at > 0 { " " } else { "" });
            to.push_str(key);
            to.push(':');
            print(to, item, Some(value), false);
        }
        to.push(']');
        return;
    }
    match (TYPES.get(of), of) {
        (Some(Type::Alias(other)), _) => print(to, other, value, false),
        (Some(Type::Struct(fields)), _) => {
            to.push('{');
            for (at, (name, json, of)) in fields.iter().enumerate() {
                to.push_str(if at > 0 { " " } else { "" });
                to.push_str(name);
                to.push(':');
                let of_field = if json.is_empty() { value } else { value.and_then(|value| value.get(json)) };
                print(to, of, of_field, true);
            }
            to.push('}');
        }
        (None, "intstr.IntOrString") => {
            let (kind, number, text) = match value {
                Some(Value::String(text)) => (1, 0, text.as_str()),
                number => (0, number.and_then(Value::as_i64).unwrap_or_default(), ""),
            };
            to.push_str(&format!("{{Type:(intstr.Type){kind} IntVal:(int32){number} StrVal:(string){text}}}"));
        }
        (None, "resource.Quantity") => to.push_str(&quantity(value.and_then(Value::as_str).unwrap_or_default())),
        // Templates have no times of their own.
        (None, "v1.Time") => {
            to.push_str("{Time:(time.Time){wall:(uint64)0 ext:(int64)0 loc:(*time.Location)<nil>}}");
        }
        (None, "string") => to.push_str(value.and_then(Value::as_str).unwrap_or_default()),
        (None, "bool") => to.push_str(if value == Some(&Value::Bool(true)) { "true" } else { "false" }),
        (None, _) => to.push_str(&value.map_or_else(|| "0".to_owned(), Value::to_string)),
    }
}

/// The suffixes of quantities: what they multiply by, as a power of two or of ten.
const SUFFIXES: [(&str, bool, i32); 16] = [
    ("Ki", true, 10),
    ("Mi", true, 20),
    ("Gi", true, 30),
    ("Ti", true, 40),
    ("Pi", true, 50),
    ("Ei", true, 60),
    ("n", false, -9),
    ("u", false, -6),
    ("m", false, -3),
    ("k", false, 3),
    ("M", false, 6),
    ("G", false, 9),
    ("T", false, 12),
    ("P", false, 15),
    ("E", false, 18),
    ("", false, 0),
];

/// A quantity as Go keeps it: a number and a power of ten, and perhaps the text it was read from. Numbers that do
/// not fit in 64
/// bits are kept in another way there; they are printed here as zero.
fn quantity(text: &str) -> String {
    let end = text.find(|c: char| c.is_ascii_alphabetic()).unwrap_or(text.len());
    let (number, suffix) = text.split_at(end);
    let exponent = suffix.strip_prefix(['e', 'E']).and_then(|digits| digits.parse::<i32>().ok());
    let known = SUFFIXES.iter().find(|(known, ..)| *known == suffix);
    let (binary, power) = match (known, exponent) {
        (Some((_, binary, power)), _) => (*binary, *power),
        (None, Some(exponent)) => (false, exponent),
        (None, None) => (false, 0),
    };
    let format = match (binary, exponent) {
        (true, _) => "BinarySI",
        (false, Some(_)) => "DecimalExponent",
        (false, None) => "DecimalSI",
    };
    let (whole, fraction) = number.split_once('.').unwrap_or((number, ""));
    let trimmed = whole.trim_start_matches('0');
    let shifted = format!("{}{fraction}", if trimmed.is_empty() { "0" } else { trimmed });
    let digits = shifted.parse::<i64>().unwrap_or_default();
    let places = i32::try_from(fraction.len()).unwrap_or_default();
    let (value, scale) = if binary {
        (digits.checked_mul(1i64.checked_shl(power.unsigned_abs()).unwrap_or_default()).unwrap_or_default(), 0)
    } else {
        (digits, power - places)
    };
    // The text is kept only if it is what would be written.
    let canonical = text == "0"
        || if binary {
            digits & 7 != 0
        } else {
            scale % 3 == 0 && !shifted.ends_with("000") && !shifted.starts_with('0')
        };
    let text = if canonical { text } else { "" };
    format!(
        "{{i:(resource.int64Amount){{value:(int64){value} scale:(resource.Scale){scale}}} \
         d:(resource.infDecAmount){{Dec:(*inf.Dec)<nil>}} s:(string){text} Format:(resource.Format){format}}}"
    )
}
