//! Compiling schemas against upstream.

use super::*;
use crate::{Map, json, schema::cases};

fn texts(result: Result<Schema, ErrorList>) -> Vec<String> {
    result.err().unwrap_or_default().iter().map(ToString::to_string).collect()
}

#[test]
fn as_upstream() {
    for group in cases::groups(include_str!("cases.txt")) {
        let schema = json::parse(group.head.as_bytes()).unwrap();
        assert_eq!(texts(compile(&schema, "s")), group.lines, "{}", group.head);
    }
}

#[test]
fn keywords_of_wrong_types_are_refused() {
    let wrong = r#"{"type":1,"properties":{"a":{"maxLength":"x","required":[1],"items":3}}}"#;
    assert_eq!(
        texts(compile(&json::parse(wrong.as_bytes()).unwrap(), "s")),
        [
            "s.type: Invalid value: 1: must be a string",
            r#"s.properties[a].maxLength: Invalid value: "x": must be an integer"#,
            "s.properties[a].required: Invalid value: [1]: must be a list of strings",
            "s.properties[a].items: Invalid value: 3: must be a schema or a list of schemas",
        ]
    );
    assert_eq!(texts(compile(&Value::Null, "s")), ["s: Invalid value: null: must be an object"]);
}

/// `inner` inside of so many objects.
fn nested(levels: usize, inner: Value) -> Value {
    (0..levels).fold(inner, |inner, _| {
        let properties = Map::from_iter([("a".into(), inner)]);
        Map::from_iter([("type".into(), "object".into()), ("properties".into(), properties.into())]).into()
    })
}

#[test]
fn deep_and_wide_schemas_are_no_danger() {
    let string = || json::parse(br#"{"type":"string","default":"x"}"#).unwrap();
    let schema = compile(&nested(4_000, string()), "s").unwrap();
    let mut node = schema.root();
    while let Some(field) = node.field("a") {
        node = field.node;
    }
    assert_eq!(node.default(), Some(&"x".into()));
    assert!(schema.root().has_defaults_below());

    let errors = compile(&nested(4_000, Map::new().into()), "s").unwrap_err();
    assert_eq!(errors.len(), 1);

    let properties: Map = (0..10_000).map(|n| (format!("f{n}").into(), string())).collect();
    let wide = Map::from_iter([("type".into(), "object".into()), ("properties".into(), properties.into())]);
    let schema = compile(&wide.into(), "s").unwrap();
    assert_eq!(schema.root().fields().len(), 10_000);
}

#[test]
fn errors_have_a_bound() {
    let properties: Map = (0..10_000).map(|n| (format!("f{n}").into(), Map::new().into())).collect();
    let wide = Map::from_iter([("type".into(), "object".into()), ("properties".into(), properties.into())]);
    assert_eq!(compile(&wide.into(), "s").unwrap_err().len(), MAX_ERRORS);
}

#[test]
fn rules_of_expressions_are_kept() {
    let schema = br#"{"type":"object","x-kubernetes-validations":[{"rule":"true"}]}"#;
    let schema = compile(&json::parse(schema).unwrap(), "s").unwrap();
    let kept: Vec<_> = schema.root().rules().flat_map(|rules| &rules.validations).map(ToString::to_string).collect();
    assert_eq!(kept, [r#"{"rule":"true"}"#]);
}
