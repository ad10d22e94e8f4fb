//! Reading JSON against Go's words, against `serde_json` and against hostile text.

use proptest::prelude::*;

use super::{Reader, parse, to_string};

fn check(text: impl AsRef<[u8]>, expected: &str) {
    let found = match parse(text.as_ref()) {
        Ok(value) => to_string(&value),
        Err(error) => error.to_string(),
    };
    assert_eq!(found, expected, "{}", String::from_utf8_lossy(text.as_ref()));
}

#[test]
fn reads() {
    for (text, expected) in [
        (
            r#" {"b" : [1, 2.5,-3e2 ,true,false,null,"x"] , "a":{}} "#,
            r#"{"a":{},"b":[1,2.5,-300,true,false,null,"x"]}"#,
        ),
        ("[]", "[]"),
        ("0", "0"),
        ("-0", "0"),
        ("9223372036854775807", "9223372036854775807"),
        ("9223372036854775808", "9223372036854776000"),
        ("12345678901234567890", "12345678901234567000"),
        ("1.0", "1"),
        (r#""a\"\\\/\b\f\n\r\té€😀""#, "\"a\\\"\\\\/\\b\\f\\n\\r\\té€😀\""),
        (r#""\ud83d\ude00""#, "\"😀\""),
        (r#""\ud83d x \udc00A""#, "\"\u{fffd} x \u{fffd}A\""),
        (r#"{"a":1,"a":2}"#, r#"{"a":2}"#),
    ] {
        check(text, expected);
    }
    check(b"\"\xe2\x82\"", "\"\u{fffd}\u{fffd}\"");
    check(b"\"a\xffb\"", "\"a\u{fffd}b\"");
    check(b"\"\\n\xff\"", "\"\\n\u{fffd}\"");
}

#[test]
fn refuses_in_the_words_of_go() {
    for (text, expected) in [
        ("", "unexpected end of JSON input"),
        ("{", "unexpected end of JSON input"),
        ("[1,", "unexpected end of JSON input"),
        ("\"a", "unexpected end of JSON input"),
        ("nul", "invalid character ' ' in literal null (expecting 'l')"),
        ("[1.", "invalid character ' ' after decimal point in numeric literal"),
        ("\"\\u00", "invalid character ' ' in \\u hexadecimal character escape"),
        ("nux", "invalid character 'x' in literal null (expecting 'l')"),
        ("x", "invalid character 'x' looking for beginning of value"),
        ("[1 2]", "invalid character '2' after array element"),
        ("[,]", "invalid character ',' looking for beginning of value"),
        ("{a", "invalid character 'a' looking for beginning of object key string"),
        (r#"{"a" 1"#, "invalid character '1' after object key"),
        (r#"{"a":1 "b""#, "invalid character '\"' after object key:value pair"),
        (r#"{"a":1,}"#, "invalid character '}' looking for beginning of object key string"),
        ("1 2", "invalid character '2' after top-level value"),
        ("01", "invalid character '1' after top-level value"),
        ("-x", "invalid character 'x' in numeric literal"),
        ("1.x", "invalid character 'x' after decimal point in numeric literal"),
        ("1ex", "invalid character 'x' in exponent of numeric literal"),
        ("\"\n\"", "invalid character '\\n' in string literal"),
        ("\"\\x\"", "invalid character 'x' in string escape code"),
        ("\"\\u00g0\"", "invalid character 'g' in \\u hexadecimal character escape"),
        ("[1e400,x]", "invalid character 'x' looking for beginning of value"),
        ("1e400", "json: cannot unmarshal number 1e400 into Go value of type float64"),
    ] {
        check(text, expected);
    }
}

#[test]
fn long_runs_of_one_thing() {
    for part in
        ["[", "{", "\"", "\\", "1", "-", "\"\\u00", "[],", "{\"a\":", "t", " ", "\u{0}", "[1,", "\"a\":", "\u{fffd}"]
    {
        assert!(parse(part.repeat(100_000).as_bytes()).is_err() || part == "1", "{part}");
    }
    let list = format!("[{}0]", "0,".repeat(1_000_000));
    assert_eq!(parse(list.as_bytes()).unwrap().as_array().unwrap().len(), 1_000_001);
    let same = format!("{{{}\"a\":1}}", "\"a\":0,".repeat(100_000));
    check(same, r#"{"a":1}"#);
}

/// Text that is nearly JSON.
fn nearly() -> impl Strategy<Value = String> {
    let part = prop::sample::select(vec![
        "{", "}", "[", "]", ",", ":", "\"a\"", "\"", "\\n", "\\u00e9", "1", "-", ".5", "e3", "true", "null", " ", "\n",
        "é",
    ]);
    prop::collection::vec(part, 0..20).prop_map(|parts| parts.concat())
}

proptest! {
    #[test]
    fn agrees_with_serde_json(text in nearly(), whole in "\\PC*") {
        for text in [text, serde_json::to_string(&whole).unwrap()] {
            let theirs = serde_json::from_str::<serde_json::Value>(&text);
            match parse(text.as_bytes()) {
                Ok(value) => prop_assert_eq!(serde_json::to_value(&value).ok(), theirs.ok(), "{}", text),
                Err(error) => prop_assert!(theirs.is_err(), "{}: {}", text, error),
            }
        }
    }

    #[test]
    fn bytes_do_not_panic(bytes: Vec<u8>, text in nearly()) {
        let _ = parse(&bytes);
        let mut reader = Reader::new(text.as_bytes());
        let skipped = reader.skip().map(<[u8]>::len);
        if parse(text.as_bytes()).is_ok() {
            prop_assert_eq!(skipped, Ok(text.trim_ascii().len()));
        }
    }
}

#[test]
fn depth_is_bounded() {
    check("[".repeat(10_000) + &"]".repeat(10_000), &("[".repeat(10_000) + &"]".repeat(10_000)));
    check("[".repeat(10_001), "invalid character '[' exceeded max depth");
    check("{\"a\":".repeat(10_001), "invalid character '{' exceeded max depth");
}
