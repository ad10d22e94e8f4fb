//! Pruning against upstream, and whatever comes.

use crate::{
    Map, Value, json,
    schema::{
        Schema, cases,
        default::{default, drop_nulls},
        prune::prune,
        structural::compile,
    },
};

fn schema(text: &str) -> Schema {
    compile(&json::parse(text.as_bytes()).unwrap(), "s").unwrap()
}

#[test]
fn as_upstream() {
    for group in cases::groups(include_str!("cases.txt")) {
        let schema = schema(group.head);
        for case in group.cases() {
            let mut value = json::parse(case.head.as_bytes()).unwrap();
            let place = format!("{} {}", group.head, case.head);
            let [pruned, nulls, defaulted, unknown @ ..] = &case.lines[..] else { panic!("{place}: too few lines") };
            assert_eq!(prune(&mut value, &schema), unknown, "{place}");
            assert_eq!(value.to_string(), *pruned, "{place}");
            drop_nulls(&mut value, &schema);
            assert_eq!(value.to_string(), *nulls, "{place}");
            default(&mut value, &schema);
            assert_eq!(value.to_string(), *defaulted, "{place}");
        }
    }
}

#[test]
fn what_nests_deep_is_no_danger() {
    let schema = schema(r#"{"type":"object","properties":{"a":{"x-kubernetes-preserve-unknown-fields":true}}}"#);
    let deep = |key: &str| format!("{{\"{key}\":{}{}}}", "[".repeat(9_000), "]".repeat(9_000));
    let mut kept = json::parse(deep("a").as_bytes()).unwrap();
    assert_eq!(prune(&mut kept, &schema), [""; 0]);
    assert_eq!(kept.to_string(), deep("a"));
    let mut gone = json::parse(deep("b").as_bytes()).unwrap();
    assert_eq!(prune(&mut gone, &schema), ["b"]);
    assert_eq!(gone.to_string(), "{}");
}

#[test]
fn the_paths_of_unknown_fields_have_a_bound() {
    let schema = schema(r#"{"type":"object","properties":{"a":{"type":"array","items":{"type":"object"}}}}"#);
    let long = "x".repeat(1000);
    let item = Value::from(Map::from_iter([(long.as_str().into(), Value::Null)]));
    let mut value = Value::from(Map::from_iter([("a".into(), Value::from(vec![item; 5000]))]));
    let unknown = prune(&mut value, &schema);
    assert!(unknown.len() < 2000, "{}", unknown.len());
    let items = value.get("a").unwrap().as_array().unwrap();
    assert!(items.iter().all(|item| item.as_object().unwrap().is_empty()));
}
