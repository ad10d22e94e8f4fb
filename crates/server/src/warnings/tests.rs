//! Warnings of the real server.

use capstan_api::{Value, json};

use super::*;

fn gvk(object: &Map) -> GroupVersionKind {
    let text = |key| object.get(key).and_then(Value::as_str).unwrap_or("");
    let (group, version) = text("apiVersion").split_once('/').unwrap_or(("", text("apiVersion")));
    GroupVersionKind { group: group.into(), version: version.into(), kind: text("kind").into() }
}

/// Objects that were sent to upstream, as it had them after defaulting, with what it said in `Warning` headers.
#[test]
fn upstream_says_the_same() {
    let golden = include_str!("../../testdata/warnings.jsonl");
    let mut wrong = Vec::new();
    for line in golden.lines() {
        let case = json::parse(line.as_bytes()).unwrap();
        let object = case.get("object").and_then(Value::as_object).unwrap();
        let old = case.get("old").and_then(Value::as_object);
        let gvk = gvk(object);
        let mut warnings = Warnings::default();
        warnings.extend(deprecated(&gvk));
        warnings.extend(match (old, case.get("subresource")) {
            (None, _) => warnings_on_create(&gvk, object),
            (Some(old), None) => warnings_on_update(&gvk, object, old),
            (Some(old), Some(_)) => warnings_on_status_update(&gvk, object, old),
        });
        let mut headers = http::HeaderMap::new();
        warnings.write(&mut headers);
        let said = |text: &str| text.replace('\\', "\\\\").replace('"', "\\\"");
        let list = case.get("warnings").and_then(Value::as_array).unwrap();
        let expected: Vec<_> = list.iter().map(|text| format!("299 - \"{}\"", said(text.as_str().unwrap()))).collect();
        let text = |value: &http::HeaderValue| String::from_utf8(value.as_bytes().to_vec()).unwrap();
        let mut got: Vec<_> = headers.get_all("warning").iter().map(text).collect();
        // Upstream goes through the properties of a schema in an order that changes.
        if gvk.kind == "CustomResourceDefinition" {
            got.sort();
        }
        if got != expected {
            wrong.push(format!("{}\n  got {got:#?}\n  expected {expected:#?}", json::to_string(&case)));
        }
    }
    assert!(wrong.is_empty(), "{} are wrong:\n{}", wrong.len(), wrong.join("\n"));
}

#[test]
fn addresses_of_old() {
    let check = |ip: &str, expected: &str| {
        let text = format!(
            r#"{{"apiVersion":"v1","kind":"Endpoints","metadata":{{"name":"x"}},"subsets":[{{"addresses":[{{"ip":"{ip}"}}]}}]}}"#
        );
        let object = json::parse(text.as_bytes()).unwrap();
        let object = object.as_object().unwrap();
        assert_eq!(warnings_on_create(&gvk(object), object).join(" "), expected, "{ip}");
    };
    check("1.2.3.4", "");
    check("nonsense", "");
    check("1.2.3.04", r#"subsets[0].addresses[0].ip: non-standard IP address "1.2.3.04" is invalid: use "1.2.3.4""#);
    check(
        "::ffff:1.2.3.4",
        r#"subsets[0].addresses[0].ip: non-standard IP address "::ffff:1.2.3.4" is invalid: use "1.2.3.4""#,
    );
}
