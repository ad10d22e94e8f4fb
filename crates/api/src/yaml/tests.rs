//! YAML against what upstream's reader and writer do, against hostile text, and against itself.

use proptest::prelude::*;

use super::*;
use crate::{Map, json};

fn check(text: impl AsRef<[u8]>, expected: &str) {
    let found = match parse(text.as_ref()) {
        Ok(value) => json::to_string(&value),
        Err(error) => error.to_string(),
    };
    assert_eq!(found, expected, "{}", String::from_utf8_lossy(text.as_ref()));
}

#[test]
fn scalars_mean_what_they_mean_in_yaml_1_1() {
    for (text, expected) in [
        ("[y, Y, yes, Yes, YES, on, On, ON, true, True]", "[true,true,true,true,true,true,true,true,true,true]"),
        (
            "[n, N, no, No, NO, off, Off, OFF, false, False]",
            "[false,false,false,false,false,false,false,false,false,false]",
        ),
        ("[yEs, oN, tRUE, nULL, Y1]", r#"["yEs","oN","tRUE","nULL","Y1"]"#),
        ("[~, null, Null, NULL, ]", "[null,null,null,null]"),
        ("[0, -0, +1, -1, 1_000, 0777, 0o17, 0x1F, 0b101, -0b11, 0b-11]", "[0,0,1,-1,1000,511,15,31,5,-3,-3]"),
        ("[08, 0o8, 0xg, 1_, _1, 0x]", r#"[8,"0o8","0xg",1,"_1","0x"]"#),
        ("[1.0, 1.5, 1., .5, .5_0, ._5, 1e3, 1E-3, 1e, 1e400]", r#"[1,1.5,1,0.5,0.5,"._5",1000,0.001,"1e","1e400"]"#),
        ("[9223372036854775807, -9223372036854775808]", "[9223372036854775807,-9223372036854775808]"),
        (
            "[9223372036854775808, 1e18, 1e19, 1e21]",
            "[9223372036854776000,1000000000000000000,10000000000000000000,1e+21]",
        ),
        (
            "[2026-03-02, 2026-03-02T10:20:30Z, 12:30, 1.2.3]",
            r#"["2026-03-02","2026-03-02T10:20:30Z","12:30","1.2.3"]"#,
        ),
        (r#"["y", '1', "", !!str 1, !!str y, ! 1, !foo 1]"#, r#"["y","1","","1","y","1","1"]"#),
        ("[!!int 1, !!float 1, !!float 1.5, !!bool on, !!null ~]", "[1,1,1.5,true,null]"),
        // Line breaks fold to spaces in plain text, which base64 does not have.
        ("!!binary aGVs\n bG8=", "yaml: !!binary value contains invalid base64 data"),
        ("!!int a", "yaml: cannot decode !!str `a` as a !!int"),
        ("!!binary x", "yaml: !!binary value contains invalid base64 data"),
        (".nan", "json: unsupported value: NaN"),
        ("-.inf", "json: unsupported value: -Inf"),
    ] {
        check(text, expected);
    }
    check("!!binary |\n  aGVs\n  bG8=\n", "\"hello\"");
    check("!!binary /w==", "\"\u{fffd}\"");
}

#[test]
fn keys_become_strings() {
    check("1: a\ntrue: b\n1.5: c\n0x10: d\n1000000.0: e\n", r#"{"1":"a","1.5":"c","16":"d","1e+06":"e","true":"b"}"#);
    check("~: a", "unsupported map key of type: %!s(<nil>)");
    check("[a]: 1", "yaml: invalid map key: []interface {}{...}");
    check("{{ .x }}: 1", "yaml: invalid map key: map[interface {}]interface {}{...}");
}

#[test]
fn structure() {
    for (text, expected) in [
        ("", "null"),
        ("---\n", "null"),
        ("# nothing\n", "null"),
        ("\u{feff}a: 1", r#"{"a":1}"#),
        ("a:\n- b\n-   c: d\n    e: f\n", r#"{"a":["b",{"c":"d","e":"f"}]}"#),
        ("a: |\n  x\n   y\nb: >-\n  x\n  y\n\n  z\n", r#"{"a":"x\n y\n","b":"x y\nz"}"#),
        ("a: &x [1]\nb: *x\n", r#"{"a":[1],"b":[1]}"#),
        ("- &a x\n- &a z\n- *a\n", r#"["x","z","z"]"#),
        ("x: &x {a: 1, b: 2}\nz: {<<: *x, a: 3}\n", r#"{"x":{"a":1,"b":2},"z":{"a":3,"b":2}}"#),
        ("x: &x {a: 1, b: 2}\nz: {a: 3, <<: *x}\n", r#"{"x":{"a":1,"b":2},"z":{"a":1,"b":2}}"#),
        (
            "x: &x {a: 1}\nw: &w {a: 2, b: 3}\nz: {<<: [*x, *w]}\n",
            r#"{"w":{"a":2,"b":3},"x":{"a":1},"z":{"a":1,"b":3}}"#,
        ),
        ("{<<: {<<: {b: 1}}, \"<<\": 2}", r#"{"<<":2,"b":1}"#),
        ("{\"a\":1,\"b\":[true,null,1.5,\"\\u00e9\"]}", r#"{"a":1,"b":[true,null,1.5,"é"]}"#),
        ("a: 1\na: 2\n", r#"{"a":2}"#),
        ("a: 1\n---\n: : :", r#"{"a":1}"#),
    ] {
        check(text, expected);
    }
}

#[test]
fn refuses_in_the_words_of_go() {
    for (text, expected) in [
        ("a: 1\nb\nc: 2\n", "yaml: line 3: could not find expected ':'"),
        ("a:\n  b: 1\n c: 2\n", "yaml: line 2: did not find expected key"),
        ("x:\n  a: b: c\n", "yaml: line 2: mapping values are not allowed in this context"),
        ("a: b: c", "yaml: mapping values are not allowed in this context"),
        ("x: 1\ny: @\n", "yaml: line 2: found character that cannot start any token"),
        ("a: [1", "yaml: line 1: did not find expected ',' or ']'"),
        ("a: *x", "yaml: unknown anchor 'x' referenced"),
        ("a: &x [*x]", "yaml: anchor 'x' value contains itself"),
        ("{<<: 1}", "yaml: map merge requires map or sequence of maps as the value"),
        ("{<<: [1]}", "yaml: map merge requires map or sequence of maps as the value"),
        ("a: \u{1}", "yaml: control characters are not allowed"),
        ("%YAML 1.2\n---\na: 1", "yaml: line 1: found incompatible YAML document"),
    ] {
        check(text, expected);
    }
    check(b"a: \xff", "yaml: invalid leading UTF-8 octet");
}

#[test]
fn strict_names_the_keys_that_come_twice() {
    for (text, expected) in [
        ("a: 1\nb: 2\n", ""),
        ("1: a\n\"1\": b\n", ""),
        (
            "a: 1\nb:\n  c: 1\n  c:\n    d: 2\na: 3\n",
            "  line 5: key \"c\" already set in map\n  line 6: key \"a\" already set in map",
        ),
        ("1: 1\n1: 2\ny: 1\ntrue: 2\n", "  line 2: key 1 already set in map\n  line 4: key true already set in map"),
        ("x: &x {a: 1}\nz:\n  <<: *x\n  a: 2\n", "  line 4: key \"a\" already set in map"),
        ("a: |\n  x\na: >\n  y\n", "  line 3: key \"a\" already set in map"),
        ("a: 1\na: {b: 1, b: 2}\n", "  line 2: key \"b\" already set in map\n  line 2: key \"a\" already set in map"),
    ] {
        let (_, errors) = parse_strict(text.as_bytes()).unwrap();
        let expected = match expected {
            "" => vec![],
            lines => vec![StrictError::Other(format!("yaml: unmarshal errors:\n{lines}"))],
        };
        assert_eq!(errors.as_slice(), expected, "{text}");
    }
    let (_, errors) = parse_strict("a: 1\n".repeat(10_000).as_bytes()).unwrap();
    assert_eq!(errors.to_string().lines().count(), 1 + MAX_DUPLICATES);
}

#[test]
fn streams() {
    let values = parse_all(b"---\n# nothing\n---\na: 1\n---\n---\n- b\n---\n").unwrap();
    assert_eq!(values.iter().map(json::to_string).collect::<Vec<_>>(), ["{\"a\":1}", "[\"b\"]"]);
    assert_eq!(parse_all(b"a: 1\n--- b\n"), Err(Error::Separator("b".into())));
}

#[test]
fn hostile_text() {
    let bomb = |levels: usize| {
        let level = |n: usize| format!("a{n}: &a{n} [{}]\n", vec![format!("*a{}", n - 1); 9].join(","));
        "a0: &a0 x\n".to_owned() + &(1..levels).map(level).collect::<String>()
    };
    assert!(parse(bomb(4).as_bytes()).is_ok());
    check(bomb(10), "yaml: document contains excessive aliasing");
    let long = format!("a: &a {}\nb: [{}]\n", "x".repeat(1 << 20), "*a,".repeat(100));
    check(long, "yaml: document contains excessive aliasing");
    // Depth through text, and through aliases.
    for (open, close) in [("[", "]"), ("{a: ", "}"), ("- ", ""), ("? ", "")] {
        let deep = |depth: usize| open.repeat(depth) + &close.repeat(depth);
        check(deep(10_001), "yaml: exceeded max depth of 10000");
        check(deep(100_000), "yaml: exceeded max depth of 10000");
    }
    assert!(parse(("[".repeat(10_000) + &"]".repeat(10_000)).as_bytes()).is_ok());
    let nested = |depth: usize, inside: &str| "[".repeat(depth) + inside + &"]".repeat(depth);
    let text = format!("a: &a {}\nb: {}\n", nested(6_000, ""), nested(6_000, "*a"));
    check(text, "yaml: exceeded max depth of 10000");
    // Long runs of one thing.
    for part in [
        "a", "a ", "a\n", "- \n", "#", "\n", " ", "\t", "&", "*", "!", "|", ">", "'", "\"", "%", "? ", ": ", "[]",
        "{}", "&a ", "---\n", "...\n", "<<: ", "\\", "\u{85}",
    ] {
        let text = part.repeat(30_000 / part.len());
        let _ = parse_strict(text.as_bytes());
        let _ = parse_all(text.as_bytes());
    }
}

/// What `kubectl get -o yaml` prints for these.
#[test]
fn prints_as_kubectl() {
    for (text, expected) in [
        ("null", "null\n"),
        ("{}", "{}\n"),
        ("[]", "[]\n"),
        (
            r#"{"b":{"c":[],"d":{}},"a":[{"x":1,"y":[2,[3]]},"z",[[4]]]}"#,
            "a:\n- x: 1\n  \"y\":\n  - 2\n  - - 3\n- z\n- - - 4\nb:\n  c: []\n  d: {}\n",
        ),
        (
            r#"{"t":"2026-03-02T10:20:30Z","v":"1.10","w":"v1.10","b":"true","e":"","n":null}"#,
            "b: \"true\"\ne: \"\"\n\"n\": null\nt: \"2026-03-02T10:20:30Z\"\nv: \"1.10\"\nw: v1.10\n",
        ),
        (
            r##"["a: b","a:b","# a","a #b","- a","-a","*a","it's","'q'","@","a\\b","{a}","a,b"," a","a ","\ta"]"##,
            "- 'a: b'\n- a:b\n- '# a'\n- 'a #b'\n- '- a'\n- -a\n- '*a'\n- it's\n- '''q'''\n- '@'\n- a\\b\n- '{a}'\n- a,b\n- ' a'\n- 'a '\n- \"\\ta\"\n",
        ),
        (
            r#"{"s":"a\nb","t":"a\nb\n","u":"a\n\n","v":"\n a","w":"a \nb","x":"12:30"}"#,
            "s: |-\n  a\n  b\nt: |\n  a\n  b\nu: |+\n  a\n\nv: |2-\n\n   a\nw: \"a \\nb\"\nx: \"12:30\"\n",
        ),
        (
            r#"{"a10":1,"a9":1.5,"_":1e6,"z":1000000.5,"f":1e21}"#,
            "_: 1000000\na9: 1.5\na10: 1\nf: 1e+21\nz: 1.0000005e+06\n",
        ),
        (r#"{"a\nb":{"c":1},"d":[2]}"#, "? |-\n  a\n  b\n: c: 1\nd:\n- 2\n"),
        ("\"a\\nb\"", "|-\n  a\n  b\n"),
        (r#"["é","😀","\u0001","\u00a0"]"#, "- é\n- \"\\U0001F600\"\n- \"\\x01\"\n- \u{a0}\n"),
    ] {
        assert_eq!(to_string(&json::parse(text.as_bytes()).unwrap()), expected, "{text}");
    }
    let long = Map::from_iter([("k".into(), Value::from("word ".repeat(20) + "end"))]);
    let folded = format!("k: {}\n  {}end\n", "word ".repeat(16).trim_end(), "word ".repeat(4));
    assert_eq!(to_string(&long.into()), folded);
}

#[test]
fn deep_values_are_written() {
    let deep = "[".repeat(10_000) + &"]".repeat(10_000);
    let value = json::parse(deep.as_bytes()).unwrap();
    let text = to_string(&value);
    assert!(text.len() < 100_000);
    assert_eq!(parse(text.as_bytes()).unwrap(), value);
}

/// Strings that look like something else, and strings of anything.
fn text() -> impl Strategy<Value = String> {
    prop_oneof![
        "[ -~]{0,12}",
        "[-0-9_.:eExob+T]{1,8}",
        "([a :#'\"\\-\n]|\t){0,10}",
        "([a-z]{1,9} {1,2}){0,30}",
        any::<String>().prop_map(|text| text.replace('\r', "")),
        prop::sample::select(vec![
            "y",
            "on",
            "null",
            "~",
            "",
            "0777",
            "1e3",
            ".inf",
            "<<",
            "---",
            "2026-03-02",
            "- a",
            "? a"
        ])
        .prop_map(str::to_owned),
    ]
}

fn value() -> impl Strategy<Value = Value> {
    let leaf = prop_oneof![
        Just(Value::Null),
        any::<bool>().prop_map(Value::from),
        any::<i64>().prop_map(Value::from),
        any::<f64>().prop_filter("JSON holds only these", |n| n.is_finite()).prop_map(Value::Float),
        text().prop_map(Value::from),
    ];
    leaf.prop_recursive(5, 40, 6, |inner| {
        prop_oneof![
            prop::collection::vec(inner.clone(), 0..6).prop_map(Value::from),
            prop::collection::vec((text().prop_map(Into::into), inner), 0..6)
                .prop_map(|entries| Value::from(Map::from_iter(entries))),
        ]
    })
}

proptest! {
    #[test]
    fn what_is_written_reads_back(value in value()) {
        // JSON does not tell 1.0 from 1.
        let expected = json::parse(json::to_string(&value).as_bytes()).unwrap();
        let text = to_string(&value);
        prop_assert_eq!(parse(text.as_bytes()), Ok(expected), "{}", text);
    }

    #[test]
    fn no_text_panics(text in "[-a:#&*!|>'\"%@`?,\\[\\]{} \n<1.~]{0,60}", bytes: Vec<u8>) {
        let _ = parse_strict(text.as_bytes());
        let _ = parse_all(&bytes);
    }
}
