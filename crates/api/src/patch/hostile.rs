//! Patches that mean harm, and laws that hold for all.

use std::collections::BTreeSet;

use proptest::{
    collection::{btree_set, vec},
    prelude::*,
    sample::select,
};

use super::{
    conformance::schema,
    json_patch::{self, DecodeError, JsonPatch, MAX_COPY_BYTES, MAX_OPERATIONS},
    merge, strategic,
};
use crate::{Map, Value, json};

fn value(text: &str) -> Value {
    json::parse(text.as_bytes()).unwrap()
}

fn object(text: &str) -> Map {
    into_object(value(text))
}

fn into_object(value: Value) -> Map {
    let Value::Object(map) = value else { panic!("{value}") };
    map
}

fn list(items: impl Iterator<Item = Value>) -> Value {
    items.collect::<Vec<_>>().into()
}

/// `{"key":{"key":…}}`, so many in each other.
fn nested(key: &str, depth: usize) -> Map {
    (1..depth).fold(Map::new(), |inner, _| Map::from_iter([(key.into(), inner.into())]))
}

fn apply(document: &str, patch: Value) -> Result<Value, json_patch::Error> {
    JsonPatch::from_value(patch).unwrap().apply(value(document))
}

#[test]
fn operations_are_counted() {
    let patch = |count| list((0..count).map(|_| value(r#"{"op":"add","path":"/a/-","value":1}"#)));
    let applied = apply(r#"{"a":[]}"#, patch(MAX_OPERATIONS)).unwrap();
    assert_eq!(applied.get("a").unwrap().as_array().unwrap().len(), MAX_OPERATIONS);
    assert_eq!(
        JsonPatch::from_value(patch(MAX_OPERATIONS + 1)).unwrap_err(),
        DecodeError::TooManyOperations(MAX_OPERATIONS + 1)
    );
}

#[test]
fn copies_are_bounded() {
    // Each copies all that the ones before have copied.
    let bomb = list((0..40).map(|_| value(r#"{"op":"copy","from":"/a","path":"/a/-"}"#)));
    let error = apply(r#"{"a":["0123456789"]}"#, bomb).unwrap_err();
    let json_patch::Error::TooMuchCopied(size) = error else { panic!("{error}") };
    assert!(size > MAX_COPY_BYTES && size < 3 * MAX_COPY_BYTES, "{size}");
    // What Go would escape counts as escaped: 2 quotes and 6 characters each.
    let copies = |count| list((0..count).map(|_| value(r#"{"op":"copy","from":"/a","path":"/b"}"#)));
    let document = format!(r#"{{"a":"{}"}}"#, "<".repeat(64 * 1024 - 1));
    assert!(apply(&document, copies(8)).is_ok());
    assert!(matches!(apply(&document, copies(9)), Err(json_patch::Error::TooMuchCopied(_))));
}

#[test]
fn copies_cannot_nest_without_end() {
    let deep = json::MAX_DEPTH / 2 + 10;
    let to = "/a".repeat(deep);
    let patch = format!(r#"[{{"op":"copy","from":"/a","path":"{to}"}}]"#);
    let patch = JsonPatch::from_value(value(&patch)).unwrap();
    assert_eq!(patch.apply(nested("a", deep).into()), Err(json_patch::Error::TooDeep));
    assert!(patch.apply(nested("a", 2).into()).is_err(), "there is nothing to copy to");
}

#[test]
fn deep_documents_are_merged() {
    let depth = json::MAX_DEPTH;
    let mut patch = nested("a", depth);
    let merged = merge::apply_map(nested("a", depth), patch.clone());
    assert_eq!(merged, patch);
    assert!(merge::diff(&merged, &patch).is_empty());
    patch.insert("b", 1);
    assert_eq!(merge::diff(&merged, &patch), object(r#"{"b":1}"#));
    assert_eq!(merge::three_way(&patch, &merged, &patch), object(r#"{"b":null}"#));
}

#[test]
fn deep_values_are_patched() {
    let schema = schema("Service");
    let mut patch = object(r#"{"metadata":{"labels":{"a":null}}}"#);
    patch.insert("unknown", nested("a", json::MAX_DEPTH));
    let patched = strategic::apply(Map::new(), patch.clone(), schema.root()).unwrap();
    assert_eq!(patched.get("unknown"), patch.get("unknown"));
    assert_eq!(patched.get("metadata"), Some(&value(r#"{"labels":{}}"#)));
    assert!(strategic::apply(patched, patch, schema.root()).is_err(), "nobody knows that field");
}

#[test]
fn types_in_themselves_are_merged_up_to_a_depth() {
    let schema = schema("JSONSchemaProps");
    let check = |depth| {
        let deep = nested("not", depth);
        (
            strategic::apply(deep.clone(), deep, schema.root()),
            strategic::diff(&nested("not", depth), &nested("not", depth), schema.root()),
        )
    };
    assert_eq!(check(strategic::MAX_DEPTH), (Ok(nested("not", strategic::MAX_DEPTH)), Ok(Map::new())));
    assert_eq!(check(strategic::MAX_DEPTH + 1), (Err(strategic::Error::TooDeep), Err(strategic::Error::TooDeep)));
    assert_eq!(check(json::MAX_DEPTH), (Err(strategic::Error::TooDeep), Err(strategic::Error::TooDeep)));
}

#[test]
fn long_lists_are_merged() {
    const LENGTH: i64 = 20_000;
    let schema = schema("Service");
    let ports =
        |from: i64| list((from..from + LENGTH).map(|port| Map::from_iter([("port".into(), port.into())]).into()));
    let names = |from: i64| list((from..from + LENGTH).map(|name| name.to_string().into()));
    let service = |from, more: bool| {
        let mut spec = Map::from_iter([("ports".into(), ports(from))]);
        if more {
            spec.insert("$setElementOrder/ports", ports(from));
        }
        Map::from_iter([
            ("metadata".into(), Map::from_iter([("finalizers".into(), names(from))]).into()),
            ("spec".into(), spec.into()),
        ])
    };
    // Half of the elements are in both; all of the patch's come first but for those that only the original has.
    let patched = strategic::apply(service(0, false), service(LENGTH / 2, true), schema.root()).unwrap();
    let list = |object: &str, field: &str| patched.get(object).unwrap().get(field).unwrap().as_array().unwrap().clone();
    assert_eq!(list("metadata", "finalizers").len() as i64, LENGTH * 3 / 2);
    assert_eq!(list("spec", "ports").len() as i64, LENGTH * 3 / 2);
    assert_eq!(list("spec", "ports")[0].get("port"), Some(&Value::Int(0)));
    let patch = strategic::diff(&patched, &service(0, false), schema.root()).unwrap();
    assert_eq!(strategic::apply(patched, patch, schema.root()), Ok(service(0, false)));
}

fn scalar() -> impl Strategy<Value = Value> + Clone {
    prop_oneof![
        any::<bool>().prop_map(Value::Bool),
        (-2_i64..3).prop_map(Value::Int),
        select(vec![0.5, 1.0]).prop_map(Value::Float),
        select(vec!["", "a", "b", "delete", "replace"]).prop_map(Value::from),
    ]
}

/// Objects of few words, so that they often have the same fields.
fn any_object(leaf: BoxedStrategy<Value>, keys: &'static [&'static str]) -> impl Strategy<Value = Map> {
    let inner = leaf.prop_recursive(4, 48, 5, move |inner| {
        prop_oneof![
            vec(inner.clone(), 0..4).prop_map(Value::from),
            vec((select(keys), inner), 0..5).prop_map(|entries| map(entries).into()),
        ]
    });
    vec((select(keys), inner), 0..5).prop_map(map)
}

fn map(entries: Vec<(&str, Value)>) -> Map {
    entries.into_iter().map(|(key, value)| (key.into(), value)).collect()
}

const KEYS: &[&str] = &["a", "b", "c", "0"];

/// Fields and directives that mean something in a Service and a Pod.
const WORDS: &[&str] = &[
    "metadata",
    "finalizers",
    "ownerReferences",
    "uid",
    "labels",
    "spec",
    "ports",
    "port",
    "name",
    "containers",
    "volumes",
    "args",
    "strategy",
    "$patch",
    "$retainKeys",
    "$setElementOrder/ports",
    "$setElementOrder/finalizers",
    "$setElementOrder/containers",
    "$deleteFromPrimitiveList/finalizers",
    "$deleteFromPrimitiveList/ports",
    "$setElementOrder",
    "$deleteFromPrimitiveList",
];

fn nullable() -> BoxedStrategy<Value> {
    prop_oneof![1 => Just(Value::Null), 4 => scalar()].boxed()
}

/// A Service whose lists can be told apart.
fn service() -> impl Strategy<Value = Map> {
    let ports = vec((1_i64..6, select(vec!["x", "y"])), 0..5).prop_map(|ports| {
        let mut seen = BTreeSet::new();
        let ports = ports.into_iter().filter(|(port, _)| seen.insert(*port));
        list(ports.map(|(port, name)| map(vec![("port", port.into()), ("name", name.into())]).into()))
    });
    // Sorted, because upstream, and we with it, does not see when nothing but the order of scalars changes.
    let finalizers = btree_set(1_i64..6, 0..5).prop_map(|keys| list(keys.iter().map(|key| key.to_string().into())));
    let labels = vec((select(KEYS), select(vec!["1", "2"]).prop_map(Value::from)), 0..4).prop_map(map);
    (ports, finalizers.clone(), finalizers, labels, any::<[bool; 3]>()).prop_map(
        |(ports, finalizers, ips, labels, has)| {
            let mut metadata = Map::from_iter([("labels".into(), labels.clone().into())]);
            let mut spec = Map::from_iter([("selector".into(), labels.into()), ("externalIPs".into(), ips)]);
            if has[0] {
                metadata.insert("finalizers", finalizers);
            }
            if has[1] {
                spec.insert("ports", ports);
            }
            let mut service = Map::from_iter([("metadata".into(), metadata.into())]);
            if has[2] {
                service.insert("spec", spec);
            }
            service
        },
    )
}

proptest! {
    #[test]
    fn merge_patches_lead_from_one_to_the_other(
        one in any_object(scalar().boxed(), KEYS),
        other in any_object(scalar().boxed(), KEYS),
    ) {
        prop_assert_eq!(merge::apply_map(one.clone(), merge::diff(&one, &other)), other.clone());
        prop_assert_eq!(merge::apply_map(one.clone(), merge::three_way(&one, &other, &one)), other);
    }

    #[test]
    fn merging_twice_changes_nothing(
        document in any_object(nullable(), KEYS),
        mut patch in any_object(scalar().boxed(), KEYS),
    ) {
        patch.insert("a", Value::Null);
        let once = merge::apply_map(document, patch.clone());
        prop_assert_eq!(merge::apply_map(once.clone(), patch), once);
    }

    #[test]
    fn strategic_patches_lead_from_one_to_the_other(one in service(), other in service()) {
        let schema = schema("Service");
        let patch = strategic::diff(&one, &other, schema.root()).unwrap();
        prop_assert_eq!(strategic::apply(one.clone(), patch, schema.root()), Ok(other.clone()));
        let patch = strategic::three_way(&one, &other, &one, schema.root(), false).unwrap();
        prop_assert_eq!(strategic::apply(one, patch, schema.root()), Ok(other));
    }

    #[test]
    fn three_ways_keep_what_others_added(original in service(), modified in service(), current in service()) {
        let schema = schema("Service");
        let patch = strategic::three_way(&original, &modified, &current, schema.root(), true).unwrap();
        let patched = strategic::apply(current.clone(), patch, schema.root()).unwrap();
        let label = |object: &Map, key| object.get("metadata").and_then(|m| m.get("labels")?.get(key).cloned());
        for key in KEYS {
            let expected = label(&modified, key)
                .or_else(|| label(&current, key).filter(|_| label(&original, key).is_none()));
            prop_assert_eq!(label(&patched, key), expected);
        }
    }

    #[test]
    fn whatever_is_patched_there_is_an_answer(
        document in any_object(nullable(), WORDS),
        patch in any_object(nullable(), WORDS),
        kind in select(vec!["Service", "Pod", "ObjectMeta", "ServiceSpec", "PodSpec"]),
    ) {
        let schema = schema(kind);
        if let Err(error) = strategic::apply(document.clone(), patch.clone(), schema.root()) {
            prop_assert!(!error.to_string().is_empty());
        }
        if let Ok(made) = strategic::three_way(&document, &patch, &document, schema.root(), false) {
            let _: Result<Map, _> = strategic::apply(document, made, schema.root());
        }
    }

    #[test]
    fn whatever_operations_there_are_there_is_an_answer(
        document in any_object(nullable(), KEYS),
        operations in vec(
            (
                select(vec!["add", "remove", "replace", "move", "copy", "test"]),
                "(/(a|b|c|0|1|-1|-|~0)){0,3}",
                "(/(a|b|c|0|1|-1|-|~0)){0,3}",
                nullable(),
            ),
            0..6,
        ),
    ) {
        let operations = operations.into_iter().map(|(op, path, from, value)| {
            map(vec![("op", op.into()), ("path", path.into()), ("from", from.into()), ("value", value)]).into()
        });
        let patch = JsonPatch::from_value(list(operations)).unwrap();
        match patch.apply(document.into()) {
            Ok(document) => prop_assert!(matches!(document, Value::Object(_))),
            Err(error) => prop_assert!(!error.to_string().is_empty()),
        }
    }
}
