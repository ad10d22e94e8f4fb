//! Objects that mean harm, and laws that hold for all sets.

use proptest::{collection::vec, prelude::*, sample::select};

use super::{
    ApplyError, FieldManager, FieldSet, Filter, MAX_DEPTH, OneVersion, PathElement, ScaleHandler,
    check_after_admission, read_entries,
};
use crate::{Map, Value, builtin, json, names::GroupVersionKind, schema::structural};

fn object(text: &str) -> Map {
    let Value::Object(map) = json::parse(text.as_bytes()).unwrap() else { panic!("{text}") };
    map
}

/// `{"a":{"a":…}}` or `[[…]]`, so many in each other.
fn nested(depth: usize, list: bool) -> Value {
    (0..depth).fold(
        Value::Int(1),
        |inner, _| {
            if list { vec![inner].into() } else { Map::from_iter([("a".into(), inner)]).into() }
        },
    )
}

#[test]
fn depth_is_bounded() {
    let schema = structural::compile(
        &json::parse(
            br#"{"type":"object","properties":{"spec":{"type":"object","x-kubernetes-preserve-unknown-fields":true}}}"#,
        )
        .unwrap(),
        "schema",
    )
    .unwrap();
    let kind = GroupVersionKind::new("example.com", "v1", "Deep");
    let manager =
        FieldManager { kind: &kind, schema: &schema, subresource: "", filter: &Filter::All, versions: &OneVersion };
    for list in [false, true] {
        let mut config = object(r#"{"apiVersion":"example.com/v1","kind":"Deep","metadata":{"name":"a"},"spec":{}}"#);
        config.insert("spec", Map::from_iter([("a".into(), nested(9_990, list))]));
        let live = manager.apply(None, config.clone(), "one", false, "2026-01-01T00:00:00Z").unwrap();
        let [entry] = &*read_entries(&live).unwrap() else { panic!("one manager has applied") };
        let deepest = entry.fields.paths().iter().map(Vec::len).max().unwrap();
        assert_eq!(deepest, if list { 2 } else { MAX_DEPTH });

        let mut other = config.clone();
        other.insert("spec", Map::from_iter([("a".into(), nested(9_000, list))]));
        let error = manager.apply(Some(&live), other.clone(), "two", false, "2026-01-01T00:00:00Z").unwrap_err();
        assert!(matches!(error, ApplyError::Conflicts(_)), "{error:?}");
        let taken = manager.apply(Some(&live), other, "two", true, "2026-01-01T00:00:00Z").unwrap();
        assert_eq!(taken.get("spec").unwrap().get("a").unwrap(), &nested(9_000, list));
        let mut updated = config;
        updated.insert("spec", Map::from_iter([("b".into(), 1.into())]));
        manager.update(Some(&taken), &mut updated, "three", "2026-01-01T00:00:00Z");
        assert!(!read_entries(&updated).unwrap().is_empty());
    }
}

#[test]
fn values_in_messages_are_bounded() {
    let kind = GroupVersionKind::from_static("", "v1", "ConfigMap");
    let schema = builtin::schema(&kind).unwrap();
    let manager =
        FieldManager { kind: &kind, schema: &schema, subresource: "", filter: &Filter::All, versions: &OneVersion };
    let mut config = object(r#"{"apiVersion":"v1","kind":"ConfigMap","metadata":{"name":"a"}}"#);
    config.insert("data", Map::from_iter([("a".into(), nested(9_990, true))]));
    let error = manager.apply(None, config, "one", false, "").unwrap_err();
    assert!(matches!(&error, ApplyError::Internal(message) if message.len() < 2_000), "{error:?}");
}

#[test]
fn entries_that_admission_has_broken_are_put_back() {
    let good = object(
        r#"{"metadata":{"managedFields":[{"manager":"a","operation":"Update","apiVersion":"v1","fieldsType":"FieldsV1",
             "fieldsV1":{"f:a":{}}}]}}"#,
    );
    let before = good.get("metadata").unwrap().get("managedFields").unwrap().as_array().unwrap().to_vec();
    let mut object = object(r#"{"metadata":{"managedFields":[{"operation":"Foo"}]}}"#);
    let warning = check_after_admission(Some(&before), &mut object).unwrap();
    assert!(warning.ends_with("please fix your requests: operation must be `Apply` or `Update`"), "{warning}");
    assert_eq!(object, good);
    assert_eq!(check_after_admission(Some(&before), &mut object), None);
}

#[test]
fn scales() {
    let replicas = [PathElement::field("spec"), PathElement::field("replicas")];
    let mappings = [("apps/v1", Some(&replicas[..]))];
    let handler = ScaleHandler { mappings: &mappings, api_version: "apps/v1" };
    let entries = |text: &str| read_entries(&object(&format!(r#"{{"metadata":{{"managedFields":{text}}}}}"#))).unwrap();
    let parent = entries(
        r#"[{"manager":"a","operation":"Apply","apiVersion":"apps/v1","fieldsType":"FieldsV1",
             "fieldsV1":{"f:spec":{"f:replicas":{},"f:x":{}}}},
            {"manager":"old","operation":"Update","apiVersion":"apps/v0","fieldsType":"FieldsV1",
             "fieldsV1":{"f:spec":{"f:replicas":{}}}},
            {"manager":"b","operation":"Update","apiVersion":"apps/v1","fieldsType":"FieldsV1",
             "fieldsV1":{"f:spec":{"f:y":{}}}}]"#,
    );
    let scale = handler.to_subresource(&parent);
    let expected = r#"[{"manager":"a","operation":"Apply","apiVersion":"autoscaling/v1","fieldsType":"FieldsV1",
             "fieldsV1":{"f:spec":{"f:replicas":{}}}}]"#;
    assert_eq!(scale, entries(expected));
    // The scale is written by another.
    let scale = entries(
        r#"[{"manager":"c","operation":"Update","apiVersion":"autoscaling/v1","subresource":"scale","fieldsType":"FieldsV1",
             "fieldsV1":{"f:spec":{"f:replicas":{}}}}]"#,
    );
    let after = entries(
        r#"[{"manager":"a","operation":"Apply","apiVersion":"apps/v1","fieldsType":"FieldsV1",
             "fieldsV1":{"f:spec":{"f:x":{}}}},
            {"manager":"b","operation":"Update","apiVersion":"apps/v1","fieldsType":"FieldsV1",
             "fieldsV1":{"f:spec":{"f:y":{}}}},
            {"manager":"c","operation":"Update","apiVersion":"apps/v1","subresource":"scale","fieldsType":"FieldsV1",
             "fieldsV1":{"f:spec":{"f:replicas":{}}}}]"#,
    );
    assert_eq!(handler.to_parent(parent, scale), after);
}

fn sets() -> impl Strategy<Value = FieldSet> {
    let element = select(vec!["f:a", "f:b", "k:{\"a\":9}", "k:{\"a\":80}", "v:1", "v:\"x\"", "i:0"]);
    vec(vec(element, 1..4), 0..8).prop_map(|paths| {
        let mut set = FieldSet::new();
        for path in paths {
            let path: Vec<_> = path.iter().map(|text| PathElement::parse(text).unwrap()).collect();
            set.insert(&path);
        }
        set
    })
}

proptest! {
    #[test]
    fn sets_are_sets(a in sets(), b in sets()) {
        let (in_a, in_b) = (a.paths(), b.paths());
        for path in in_a.iter().chain(&in_b) {
            let (of_a, of_b) = (a.has(path), b.has(path));
            prop_assert_eq!(a.clone().union(b.clone()).has(path), of_a || of_b);
            prop_assert_eq!(a.intersection(&b).has(path), of_a && of_b);
            prop_assert_eq!(a.clone().difference(&b).has(path), of_a && !of_b);
            let above = (1..=path.len()).any(|length| b.has(&path[..length]));
            prop_assert_eq!(a.clone().recursive_difference(&b).has(path), of_a && !above);
        }
        prop_assert_eq!(a.is_subset(&b), in_a.iter().all(|path| b.has(path)));
        prop_assert_eq!(a.clone().difference(&b).union(a.intersection(&b)), a.clone());
        prop_assert_eq!(FieldSet::from_value(&a.to_value()).unwrap(), a.clone());
        prop_assert_eq!(FieldSet::from_value(&json::parse(&a.to_json()).unwrap()).unwrap(), a);
    }
}
