//! Printing JSON as Go prints it.

use std::io::Write as _;

use super::string::plain_end;
use crate::{Map, Value, value::Event};

/// Compact JSON.
#[must_use]
pub fn to_string(value: &Value) -> String {
    let mut out = Vec::new();
    write(value, &mut out);
    String::from_utf8(out).expect("what is written is UTF-8")
}

/// JSON indented by two spaces, without a newline at the end.
#[must_use]
pub fn to_pretty_string(value: &Value) -> String {
    let mut out = Vec::new();
    print(value, &mut out, Some(0));
    String::from_utf8(out).expect("what is written is UTF-8")
}

/// Appends compact JSON.
pub fn write(value: &Value, out: &mut Vec<u8>) {
    print(value, out, None);
}

/// Appends the compact JSON of a map.
pub fn write_map(map: &Map, out: &mut Vec<u8>) {
    out.push(b'{');
    for (at, (key, value)) in map.iter().enumerate() {
        if at > 0 {
            out.push(b',');
        }
        write_str(key, out);
        out.push(b':');
        write(value, out);
    }
    out.push(b'}');
}

/// Appends `value`; `indent` is how far the present line is indented, nothing for compact.
fn print(value: &Value, out: &mut Vec<u8>, mut indent: Option<usize>) {
    // Whether something of the innermost container has been written, so that a comma is due.
    let mut due = false;
    // Right behind a key nothing is due and no line begins.
    let mut behind_key = false;
    for event in value.walk() {
        let ends = matches!(event, Event::EndArray | Event::EndObject);
        if ends {
            indent = indent.map(|depth| depth - 1);
        }
        if !std::mem::take(&mut behind_key) {
            if due && !ends {
                out.push(b',');
            }
            // An empty container stays on its line.
            if let Some(depth) = indent
                && !out.is_empty()
                && (due || !ends)
            {
                newline(out, depth);
            }
        }
        due = true;
        match event {
            Event::Null => out.extend_from_slice(b"null"),
            Event::Bool(true) => out.extend_from_slice(b"true"),
            Event::Bool(false) => out.extend_from_slice(b"false"),
            Event::Int(n) => write!(out, "{n}").expect("memory takes all"),
            Event::Float(n) => write_f64(n, out),
            Event::String(s) => write_str(s, out),
            Event::Key(key) => {
                write_str(key, out);
                out.push(b':');
                if indent.is_some() {
                    out.push(b' ');
                }
                behind_key = true;
            }
            Event::BeginArray(_) | Event::BeginObject(_) => {
                out.push(if matches!(event, Event::BeginArray(_)) { b'[' } else { b'{' });
                indent = indent.map(|depth| depth + 1);
                due = false;
            }
            Event::EndArray => out.push(b']'),
            Event::EndObject => out.push(b'}'),
        }
    }
}

fn newline(out: &mut Vec<u8>, depth: usize) {
    out.push(b'\n');
    out.resize(out.len() + 2 * depth, b' ');
}

/// Appends a string with its quotes and escapes.
pub fn write_str(text: &str, out: &mut Vec<u8>) {
    out.push(b'"');
    let bytes = text.as_bytes();
    // U+2028 and U+2029 end lines in JavaScript, and begin with this byte.
    let lines = bytes.contains(&0xe2);
    let (mut from, mut at) = (0, 0);
    loop {
        if !lines {
            at = plain_end(bytes, at);
        }
        let Some(&c) = bytes.get(at) else { break };
        let escape: &[u8] = match c {
            b'"' => b"\\\"",
            b'\\' => b"\\\\",
            b'\n' => b"\\n",
            b'\r' => b"\\r",
            b'\t' => b"\\t",
            8 => b"\\b",
            12 => b"\\f",
            0..0x20 => &[b'\\', b'u', b'0', b'0', HEX[usize::from(c >> 4)], HEX[usize::from(c & 15)]],
            0xe2 if bytes[at + 1] == 0x80 && bytes[at + 2] & 0xfe == 0xa8 => {
                if bytes[at + 2] == 0xa8 {
                    b"\\u2028"
                } else {
                    b"\\u2029"
                }
            }
            _ => {
                at += 1;
                continue;
            }
        };
        out.extend_from_slice(&bytes[from..at]);
        out.extend_from_slice(escape);
        at += if c == 0xe2 { 3 } else { 1 };
        from = at;
    }
    out.extend_from_slice(&bytes[from..]);
    out.push(b'"');
}

const HEX: &[u8; 16] = b"0123456789abcdef";

/// Appends the shortest text that reads back as `n`, with an exponent only below 1e-6 and from 1e21 on.
fn write_f64(n: f64, out: &mut Vec<u8>) {
    let size = n.abs();
    if size != 0.0 && !(1e-6..1e21).contains(&size) {
        let text = format!("{n:e}");
        let (digits, exponent) = text.split_once('e').expect("the format has an exponent");
        let sign = if exponent.starts_with('-') { "" } else { "+" };
        write!(out, "{digits}e{sign}{exponent}").expect("memory takes all");
    } else {
        write!(out, "{n}").expect("memory takes all");
    }
}

#[cfg(test)]
mod tests {
    use super::super::parse;
    use super::*;

    #[test]
    fn floats_as_go() {
        for (n, expected) in [
            (1.0, "1"),
            (-0.5, "-0.5"),
            (1e20, "100000000000000000000"),
            (1e21, "1e+21"),
            (1.5e300, "1.5e+300"),
            (1e-6, "0.000001"),
            (1e-7, "1e-7"),
            (0.0, "0"),
            (-0.0, "-0"),
        ] {
            assert_eq!(to_string(&Value::Float(n)), expected);
        }
    }

    #[test]
    fn pretty() {
        let value = parse(br#"{"a":[],"b":{},"c":[1,{"d":"<&>\u2028\u0001"}]}"#).unwrap();
        let expected = "{\n  \"a\": [],\n  \"b\": {},\n  \"c\": [\n    1,\n    {\n      \"d\": \"<&>\\u2028\\u0001\"\n    }\n  ]\n}";
        assert_eq!(to_pretty_string(&value), expected);
        assert_eq!(to_pretty_string(&Value::Int(1)), "1");
    }
}
