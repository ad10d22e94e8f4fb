//! Validation against upstream.

use proptest::prelude::*;

use super::*;
use crate::{
    Map, Str, json,
    schema::{cases, default::default as fill, prune::prune, structural::compile},
};

fn texts(errors: &ErrorList) -> Vec<String> {
    errors.iter().map(ToString::to_string).collect()
}

fn of_x(name: &str, inner: &str) -> Value {
    json::parse(format!(r#"{{{name}"x":{inner}}}"#).as_bytes()).unwrap()
}

#[test]
fn as_upstream() {
    for group in cases::groups(include_str!("cases.txt")) {
        let properties = of_x("", group.head);
        let schema = Map::from_iter([("type".into(), "object".into()), ("properties".into(), properties)]);
        let schema = compile(&schema.into(), "s").unwrap();
        for case in group.cases() {
            let errors = validate(&of_x("", case.head), &schema);
            assert_eq!(texts(&errors), case.lines, "{} {}", group.head, case.head);
        }
    }
}

#[test]
fn formats_duplicates_and_required_fields_add_up() {
    let schema =
        br#"{"type":"object","required":["b"],"properties":{"a":{"type":"array","x-kubernetes-list-type":"set",
        "items":{"type":"string","format":"byte"}}}}"#;
    let schema = compile(&json::parse(schema).unwrap(), "s").unwrap();
    let value = json::parse(br#"{"a":["",""]}"#).unwrap();
    assert_eq!(validate(&value, &schema).len(), 4);
}

#[test]
fn deep_values_and_schemas_are_no_danger() {
    let mut schema = json::parse(br#"{"type":"string","allOf":[{"maxLength":1}]}"#).unwrap();
    let mut value = Value::from("ab");
    for _ in 0..3_000 {
        let properties = Map::from_iter([("a".into(), schema)]);
        schema = Map::from_iter([("type".into(), "object".into()), ("properties".into(), properties.into())]).into();
        value = Map::from_iter([("a".into(), value)]).into();
    }
    let schema = compile(&schema, "s").unwrap();
    let path = vec!["a"; 3_000].join(".");
    let expected = [
        format!("{path}: Too long: may not be more than 1 byte"),
        format!(r#"<nil>: Invalid value: "": "{path}" must validate all the schemas (allOf). None validated"#),
    ];
    assert_eq!(texts(&validate(&value, &schema)), expected);
}

#[test]
fn messages_have_a_bound() {
    let schema = br#"{"type":"object","properties":{"a":{"type":"array","items":{"type":"string"}}}}"#;
    let schema = compile(&json::parse(schema).unwrap(), "s").unwrap();
    let value = Map::from_iter([("a".into(), vec![Value::Int(1); 200_000].into())]).into();
    let errors = validate(&value, &schema);
    assert!(!errors.is_empty() && errors.len() < 100_000, "{}", errors.len());
}

fn values() -> impl Strategy<Value = Value> {
    let leaf = prop_oneof![
        Just(Value::Null),
        any::<bool>().prop_map(Value::from),
        (-3..20i64).prop_map(Value::from),
        (-3.0..3.0).prop_map(Value::Float),
        "[a-c]{0,3}".prop_map(Value::from),
    ];
    leaf.prop_recursive(3, 24, 4, |inner| {
        let fields = prop::collection::vec(("[a-d]", inner.clone()), 0..4);
        let object = |fields: Vec<(String, Value)>| fields.into_iter().map(|(k, v)| (Str::from(k), v)).collect::<Map>();
        prop_oneof![
            prop::collection::vec(inner, 0..4).prop_map(Value::from),
            fields.prop_map(move |f| object(f).into())
        ]
    })
}

/// Keywords, right and wrong ones alike.
fn schemas() -> impl Strategy<Value = Value> {
    let ty =
        prop::sample::select(vec!["object", "array", "string", "integer", "number", "boolean"]).prop_map(Value::from);
    let words = prop::sample::select(vec![
        r#""minLength":1"#,
        r#""maxLength":2"#,
        r#""pattern":"^a""#,
        r#""maximum":5"#,
        r#""multipleOf":2"#,
        r#""enum":["a",1]"#,
        r#""required":["a"]"#,
        r#""nullable":true"#,
        r#""format":"date""#,
        r#""x-kubernetes-preserve-unknown-fields":true"#,
        r#""x-kubernetes-list-type":"set""#,
        r#""anyOf":[{"minLength":2},{"required":["b"]}]"#,
        r#""oneOf":[{"maxLength":2},{"minProperties":1}]"#,
        r#""not":{"pattern":"b"}"#,
        r#""additionalProperties":true"#,
    ]);
    let keywords = prop::collection::vec(words, 0..3).prop_map(|words| {
        let text = format!("{{{}}}", words.join(","));
        json::parse(text.as_bytes()).unwrap().as_object().cloned().unwrap_or_default()
    });
    let leaf = (ty, keywords.clone()).prop_map(|(ty, mut map)| {
        map.insert("type", ty);
        map
    });
    let inner = leaf.prop_recursive(3, 16, 3, move |inner| {
        let properties = prop::collection::vec(("[a-d]", inner.clone(), prop::option::weighted(0.1, values())), 1..4);
        let object = (properties, keywords.clone()).prop_map(|(properties, mut map)| {
            let field = |(name, mut schema, default): (String, Map, Option<Value>)| {
                default.into_iter().for_each(|default| drop(schema.insert("default", default)));
                (Str::from(name), Value::from(schema))
            };
            map.insert("type", "object");
            map.remove("additionalProperties");
            map.insert("properties", properties.into_iter().map(field).collect::<Map>());
            map
        });
        let array =
            inner.prop_map(|items| Map::from_iter([("type".into(), "array".into()), ("items".into(), items.into())]));
        prop_oneof![object, array]
    });
    prop::collection::vec(("[a-d]", inner), 1..4).prop_map(|properties| {
        let properties: Map = properties.into_iter().map(|(name, schema)| (Str::from(name), schema.into())).collect();
        Map::from_iter([("type".into(), "object".into()), ("properties".into(), properties.into())]).into()
    })
}

proptest! {
    #[test]
    fn pruning_and_defaulting_are_done_at_once(schema in schemas(), value in values()) {
        // Defaults at random are mostly wrong.
        let Ok(schema) = compile(&schema, "s") else { return Err(TestCaseError::reject("not structural")) };
        let mut value = value;
        prune(&mut value, &schema);
        prop_assert_eq!(prune(&mut value, &schema), [""; 0]);
        fill(&mut value, &schema);
        prop_assert_eq!(prune(&mut value.clone(), &schema), [""; 0]);
        let mut again = value.clone();
        fill(&mut again, &schema);
        prop_assert_eq!(&again, &value);
        let errors = validate(&value, &schema);
        prop_assert_eq!(validate(&again, &schema), errors);
    }
}

#[test]
fn what_has_not_changed_is_tolerated() {
    let schema = br#"{"type":"object","properties":{
        "spec":{"type":"object","required":["r"],"properties":{
            "n":{"type":"integer","maximum":5},"m":{"type":"integer","maximum":5},
            "s":{"type":"array","items":{"type":"integer","maximum":5}},
            "l":{"type":"array","x-kubernetes-list-type":"map","x-kubernetes-list-map-keys":["k"],
                 "items":{"type":"object","required":["k"],"properties":{"k":{"type":"string"},"v":{"type":"integer","maximum":5}}}}}}}}"#;
    let schema = compile(&json::parse(schema).unwrap(), "").unwrap();
    let check = |old: &str, new: &str, expected: &[&str]| {
        let parse = |text: &str| json::parse(format!(r#"{{"spec":{text}}}"#).as_bytes()).unwrap();
        let (old, new) = (parse(old), parse(new));
        let fields = |errors: &ErrorList| errors.iter().map(|error| error.field.clone()).collect::<Vec<_>>();
        assert_eq!(fields(&inspect(&new, &schema, Some(&old)).openapi), expected, "{old} {new}");
        let inner = inspect_field(new.get("spec").unwrap(), &schema, "spec", old.get("spec"));
        assert_eq!(fields(&inner), expected, "{old} {new}");
    };
    check(r#"{"n":9}"#, r#"{"n":9}"#, &[]);
    check(r#"{"n":9}"#, r#"{"n":9,"m":1}"#, &["spec.r"]);
    check(r#"{"r":1,"n":9}"#, r#"{"r":1,"n":9,"m":8}"#, &["spec.m"]);
    check(r#"{"r":1,"n":9}"#, r#"{"r":1,"n":8}"#, &["spec.n"]);
    check(r#"{"r":1,"s":[9]}"#, r#"{"r":1,"s":[9],"m":1}"#, &[]);
    check(r#"{"r":1,"s":[9]}"#, r#"{"r":1,"s":[9,1]}"#, &["spec.s[0]"]);
    let old = r#"{"r":1,"l":[{"k":"a","v":9},{"k":"b","v":9}]}"#;
    check(old, r#"{"r":1,"l":[{"k":"c","v":1},{"k":"b","v":9},{"k":"a","v":8}]}"#, &["spec.l[2].v"]);
}
