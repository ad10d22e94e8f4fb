//! Pruning in place comes to what pruning by copies does.

use proptest::prelude::*;

use super::*;
use crate::{json, managed_fields::OneVersion, schema::structural};

const SCHEMA: &str = r#"{"type":"object","properties":{"spec":{"type":"object","properties":{
    "a":{"type":"string"},
    "m":{"type":"object","additionalProperties":{"type":"string"}},
    "atomic":{"type":"object","x-kubernetes-map-type":"atomic","additionalProperties":{"type":"string"}},
    "free":{"type":"object","x-kubernetes-preserve-unknown-fields":true},
    "o":{"type":"object","properties":{"a":{"type":"string"},"m":{"type":"object","additionalProperties":
        {"type":"object","properties":{"a":{"type":"string"},"b":{"type":"string"}}}}}},
    "set":{"type":"array","x-kubernetes-list-type":"set","items":{"type":"string"}},
    "list":{"type":"array","items":{"type":"string"}},
    "by":{"type":"array","x-kubernetes-list-type":"map","x-kubernetes-list-map-keys":["a"],"items":{"type":"object",
        "required":["a"],"properties":{"a":{"type":"string"},"b":{"type":"string"},
        "m":{"type":"object","additionalProperties":{"type":"string"}}}}}}}}}"#;

fn letter() -> impl Strategy<Value = &'static str> {
    prop::sample::select(vec!["a", "b", "c"])
}

fn letters() -> impl Strategy<Value = Value> {
    prop::collection::btree_map(letter(), letter(), 0..3)
        .prop_map(|map| Value::Object(map.into_iter().map(|(key, value)| (key.into(), value.into())).collect()))
}

/// A map of some of the fields.
fn some(fields: Vec<(&'static str, BoxedStrategy<Value>)>) -> impl Strategy<Value = Value> {
    let field = |(key, value): (&'static str, BoxedStrategy<Value>)| {
        prop::option::of(value).prop_map(move |value| Some((Str::from(key), value?)))
    };
    let fields: Vec<_> = fields.into_iter().map(field).collect();
    fields.prop_map(|fields| Value::Object(fields.into_iter().flatten().collect()))
}

fn object() -> impl Strategy<Value = Value> {
    let inner =
        || some(vec![("a", letter().prop_map(Value::from).boxed()), ("b", letter().prop_map(Value::from).boxed())]);
    let set = |max| {
        prop::collection::btree_set(letter(), 0..max)
            .prop_map(|set| Value::from(set.into_iter().map(Value::from).collect::<Vec<_>>()))
    };
    let maps = || {
        prop::collection::btree_map(letter(), inner(), 0..3)
            .prop_map(|map| Value::Object(map.into_iter().map(|(key, value)| (key.into(), value)).collect()))
    };
    let by = prop::collection::btree_map(letter(), (prop::option::of(letter()), prop::option::of(letters())), 0..3)
        .prop_map(|items| {
            let item = |(a, (b, m)): (&str, (Option<&str>, Option<Value>))| {
                let mut item = Map::new();
                item.insert("a", a);
                b.map(|b| item.insert("b", b));
                m.map(|m| item.insert("m", m));
                Value::Object(item)
            };
            Value::from(items.into_iter().map(item).collect::<Vec<_>>())
        });
    let a = || letter().prop_map(Value::from).boxed();
    let spec = some(vec![
        ("a", a()),
        ("atomic", letters().boxed()),
        ("by", by.boxed()),
        ("free", maps().boxed()),
        ("list", set(2).boxed()),
        ("m", letters().boxed()),
        ("o", some(vec![("a", a()), ("m", maps().boxed())]).boxed()),
        ("set", set(3).boxed()),
    ]);
    some(vec![("spec", spec.boxed())])
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(2000))]

    /// What is quick for one version comes to what is right for all.
    #[test]
    fn pruning_in_place_is_pruning_by_copies(
        live in object(),
        (config, last) in (object(), object()),
        others in prop::collection::vec(object(), 0..3),
        (forget, named) in (any::<u64>(), any::<bool>()),
    ) {
        let schema = json::parse(SCHEMA.as_bytes()).expect("it is JSON");
        let schema = structural::compile(&schema, "schema").expect("it is a schema");
        let ty = Ty::of(&schema);
        let entry = |at: usize, object: &Value| {
            let mut fields = field_set(ty, object).expect("it fits");
            if named {
                // As entries of updates are: with what leads to fields.
                ensure_named(&mut fields, Some(ty), 0);
            }
            // Sets shrink when others take fields: leaves, or what has nothing left in it.
            let paths = fields.paths();
            let is_in = |path: &[PathElement], other: &[PathElement]| other != path && other.starts_with(path);
            let forgotten = |bit: usize| forget >> ((bit + at * 7) % 64) & 3 == 0;
            let mut gone = FieldSet::new();
            for (bit, path) in paths.iter().enumerate() {
                if forgotten(bit) && !paths.iter().any(|other| is_in(path, other)) {
                    gone.insert(path);
                }
            }
            ManagedFieldsEntry {
                manager: format!("m{at}").into(),
                operation: Operation::Apply,
                api_version: "v1".into(),
                subresource: Str::default(),
                time: None,
                fields: fields.difference(&gone),
            }
        };
        let last = ManagedFieldsEntry { manager: "own".into(), ..entry(0, &last) };
        let mut entries: Vec<_> = others.iter().enumerate().map(|(at, object)| entry(at + 1, object)).collect();
        entries.push(ManagedFieldsEntry {
            manager: "own".into(), fields: field_set(ty, &config).expect("it fits"), ..last.clone()
        });
        let own = entries.len() - 1;
        let updater = Updater::new("v1", &schema, &OneVersion, &Filter::All, &entries);
        let mut live = live.as_object().expect("it is one").clone();
        live.insert("kind", "Widget");
        let merged = merge(ty, &live, config).expect("it merges");
        let merged = Typed { value: merged, version: "v1".into(), ty };
        if !last.fields.is_empty() {
            // Copies can be what no type has: elements without what tells them apart.
            let Ok(right) = updater.prune_by_copies(merged.clone(), &entries, own, &last) else { return Ok(()) };
            let quick = updater.prune(merged, &entries, own, Some(&last)).expect("it is pruned");
            prop_assert_eq!(quick.value, right.value);
        }
    }
}
