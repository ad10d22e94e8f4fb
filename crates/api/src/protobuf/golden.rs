//! Objects that were asked of a real server in both forms.

use base64::{Engine as _, prelude::BASE64_STANDARD};

use super::{decode, encode_object, envelope, from_message, metadata};
use crate::{GroupVersionKind, Value, builtin, json, schema::Schema};

/// The lines of the file: an object as JSON, and its message as base64.
fn cases() -> Vec<(Value, Vec<u8>)> {
    let path = concat!(env!("CARGO_MANIFEST_DIR"), "/testdata/protobuf.jsonl");
    let text = std::fs::read_to_string(path).unwrap();
    let cases = text.lines().map(|line| {
        let (text, message): (String, String) = serde_json::from_str(line).unwrap();
        (json::parse(text.as_bytes()).unwrap(), BASE64_STANDARD.decode(message).unwrap())
    });
    cases.collect()
}

fn schema_of(object: &Value) -> (GroupVersionKind, Schema) {
    let text = |name| object.get(name).and_then(Value::as_str).unwrap_or_default();
    let gvk = GroupVersionKind::from_api_version_and_kind(text("apiVersion"), text("kind"));
    let schema = builtin::schema(&gvk).unwrap_or_else(|| panic!("{gvk}"));
    (gvk, schema)
}

/// The object as the server holds it: with what Go prints although it was never set.
fn canonical(schema: &Schema, mut value: Value) -> Value {
    builtin::default(schema, &mut value);
    let mut text = Vec::new();
    json::write(&value, &mut text);
    schema.decode(&text).unwrap().value
}

/// Elements of a list say in JSON of what kind they are; messages leave that to the envelope of the list.
fn without_kinds_of_items(mut object: Value) -> Value {
    for item in object.get_mut("items").and_then(Value::as_array_mut).into_iter().flat_map(|items| items.iter_mut()) {
        for name in ["apiVersion", "kind"] {
            item.as_object_mut().unwrap().remove(name);
        }
    }
    object
}

/// The serde format shows a type what a tree would show it, and typed objects are those of JSON.
#[test]
fn types_see_what_json_shows() {
    for (object, message) in cases() {
        let (gvk, schema) = schema_of(&object);
        let mut tree = decode(&schema, &message).unwrap();
        let names = tree.as_object_mut().unwrap();
        names.remove("apiVersion");
        names.remove("kind");
        let raw = envelope(&message).unwrap().raw;
        let seen: serde_json::Value = from_message(&schema, raw, true).unwrap_or_else(|error| panic!("{gvk}: {error}"));
        let expected: serde_json::Value = serde_json::from_str(&tree.to_string()).unwrap();
        assert_eq!(seen, expected, "{gvk}");
        let without: serde_json::Value = from_message(&schema, raw, false).unwrap();
        assert!(without.get("metadata").is_none_or(|metadata| metadata.get("managedFields").is_none()));
        if let (Some(name), false) =
            (tree.get("metadata").and_then(|metadata| metadata.get("name")), gvk.kind.ends_with("List"))
        {
            assert_eq!(metadata(raw).unwrap().name, name.as_str().unwrap());
        }
        if &*gvk.kind == "Pod" {
            let typed: k8s_openapi::api::core::v1::Pod = from_message(&schema, raw, true).unwrap();
            assert_eq!(typed, serde_json::from_str(&tree.to_string()).unwrap());
        }
    }
}

#[test]
fn messages_are_read_as_json_is() {
    let mut wrong = Vec::new();
    let cases = cases();
    assert!(cases.len() > 90);
    for (object, message) in cases {
        let (gvk, schema) = schema_of(&object);
        let read = match decode(&schema, &message) {
            Ok(read) => canonical(&schema, read),
            Err(error) => panic!("{gvk}: {error}"),
        };
        let expected = canonical(&schema, without_kinds_of_items(object));
        if read != expected {
            wrong.push(format!("{gvk}\n  got      {read}\n  expected {expected}"));
        }
    }
    assert!(wrong.is_empty(), "{} wrong\n{}", wrong.len(), wrong.join("\n"));
}

#[test]
fn messages_are_written_as_go_writes_them() {
    let mut wrong = Vec::new();
    for (object, message) in cases() {
        let (gvk, schema) = schema_of(&object);
        let written = encode_object(&gvk, &schema, &object);
        if written != message {
            let at = written.iter().zip(&message).take_while(|(a, b)| a == b).count();
            let from = at.saturating_sub(40);
            let show =
                |bytes: &[u8]| bytes[from.min(bytes.len())..(at + 40).min(bytes.len())].escape_ascii().to_string();
            wrong.push(format!(
                "{gvk} at {at}\n  got      {}\n  expected {}\n {object}",
                show(&written),
                show(&message)
            ));
        }
    }
    assert!(wrong.is_empty(), "{} wrong\n{}", wrong.len(), wrong.join("\n"));
}
