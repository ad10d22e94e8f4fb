//! How Go prints a value of no fixed type, and what it calls its type: `%v` and `%T`.

use std::fmt::Write as _;

use crate::{Value, go, value::Event};

/// The Go type that holds such a value, as `%T` prints it.
pub(super) fn type_of(value: &Value) -> &'static str {
    match value {
        Value::Null => "<nil>",
        Value::Bool(_) => "bool",
        Value::Int(_) => "int64",
        Value::Float(_) => "float64",
        Value::String(_) => "string",
        Value::Array(_) => "[]interface {}",
        Value::Object(_) => "map[string]interface {}",
    }
}

/// The value as `%v` prints it: `map[a:[x y] b:1]`.
pub(super) fn text_of(value: &Value) -> String {
    let mut out = String::new();
    // Whether a space is due before the next element or key.
    let mut due = false;
    for event in value.walk() {
        if due && !matches!(event, Event::EndArray | Event::EndObject) {
            out.push(' ');
        }
        due = true;
        let printed = match event {
            Event::Null => write!(out, "<nil>"),
            Event::Bool(b) => write!(out, "{b}"),
            Event::Int(n) => write!(out, "{n}"),
            Event::Float(n) => write!(out, "{}", go::float(n)),
            Event::String(s) => write!(out, "{s}"),
            Event::EndArray | Event::EndObject => write!(out, "]"),
            Event::Key(key) => {
                due = false;
                write!(out, "{key}:")
            }
            Event::BeginArray(_) => {
                due = false;
                write!(out, "[")
            }
            Event::BeginObject(_) => {
                due = false;
                write!(out, "map[")
            }
        };
        printed.expect("memory takes all");
    }
    out
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::json::parse;

    /// What `fmt.Sprintf("%v|%T")` prints for the same.
    #[test]
    fn print_as_go() {
        for (text, expected) in [
            ("3", "3|int64"),
            ("true", "true|bool"),
            ("null", "<nil>|<nil>"),
            ("1.5", "1.5|float64"),
            ("1e6", "1e+06|float64"),
            ("123456789.0", "1.23456789e+08|float64"),
            ("100000.0", "100000|float64"),
            ("1e21", "1e+21|float64"),
            ("0.0001", "0.0001|float64"),
            ("0.00001", "1e-05|float64"),
            ("0.0", "0|float64"),
            ("\"a b\"", "a b|string"),
            (r#"{"b":1,"a":["p q",null,{},[]]}"#, "map[a:[p q <nil> map[] []] b:1]|map[string]interface {}"),
            (r#"["a",1]"#, "[a 1]|[]interface {}"),
            (r#"[[],[[]],{}]"#, "[[] [[]] map[]]|[]interface {}"),
        ] {
            let value = parse(text.as_bytes()).unwrap();
            assert_eq!(format!("{}|{}", text_of(&value), type_of(&value)), expected);
        }
    }
}
