//! Decoding against what the real server refused.

use super::*;
use crate::{builtin, json, names::GroupVersionKind};

fn schema(api_version: &str, kind: &str) -> Schema {
    let (group, version) = api_version.split_once('/').unwrap_or(("", api_version));
    builtin::schema(&GroupVersionKind::new(group, version, kind)).unwrap()
}

fn answer(schema: &Schema, text: &[u8]) -> String {
    match schema.decode(text) {
        Ok(Decoded { value, strict }) if strict.is_empty() => json::to_string(&value),
        Ok(Decoded { strict, .. }) => strict.to_string(),
        Err(error) => error.to_string(),
    }
}

fn check(kind: &str, text: impl AsRef<[u8]>, expected: &str) {
    let (api_version, kind) = kind.split_once(' ').unwrap();
    let text = text.as_ref();
    let shown = String::from_utf8_lossy(&text[..text.len().min(300)]);
    assert_eq!(answer(&schema(api_version, kind), text), expected, "{shown}");
}

#[test]
fn refuses_in_the_words_of_a_real_server() {
    let mut lines = include_str!("../../../testdata/decode.txt").lines();
    while let (Some(case), Some(expected)) = (lines.next(), lines.next()) {
        let (kind, text) = case.split_at(case.find('{').unwrap());
        check(kind.trim_end(), text, expected.trim_start());
    }
}

#[test]
fn what_is_decoded_is_what_go_would_encode() {
    for (kind, text, expected) in [
        // A real server gives these back without their zero values, but for those that a pointer tells from nothing.
        (
            "v1 Pod",
            r#"{"metadata":{"labels":{},"annotations":{"a":""}},"spec":{"hostNetwork":false,"priority":0,"nodeSelector":{},
                "automountServiceAccountToken":false,"containers":[{"name":"","args":[],"stdin":false,"securityContext":{},
                "env":[{"name":"A","value":""}],"resources":{"limits":{"cpu":"1000m","memory":1024}}}]}}"#,
            r#"{"metadata":{"annotations":{"a":""}},"spec":{"automountServiceAccountToken":false,"containers":[{"env":[{"name":"A"}],"name":"","resources":{"limits":{"cpu":"1","memory":"1024"}},"securityContext":{}}],"priority":0}}"#,
        ),
        (
            "v1 Pod",
            r#"{"metadata":null,"spec":{"containers":null,"nodeSelector":{"a":null}}}"#,
            r#"{"spec":{"nodeSelector":{"a":""}}}"#,
        ),
        (
            "v1 Pod",
            r#"{"spec":{"containers":[null],"hostname":null,"volumes":[{"emptyDir":null,"name":null}]}}"#,
            r#"{"spec":{"containers":[{}],"volumes":[{}]}}"#,
        ),
        (
            "v1 Secret",
            r#"{"data":{"a":null,"b":"YQ==\n","c":[1,2],"d":""}}"#,
            r#"{"data":{"a":"","b":"YQ==","c":"AQI=","d":""}}"#,
        ),
        (
            "v1 Pod",
            r#"{"metadata":{"creationTimestamp":"2020-01-01T02:00:00.5+02:00","deletionTimestamp":"0001-01-01T00:00:00Z"}}"#,
            r#"{"metadata":{"creationTimestamp":"2020-01-01T00:00:00Z"}}"#,
        ),
        (
            "coordination.k8s.io/v1 Lease",
            r#"{"spec":{"renewTime":"2020-01-01T02:00:00.500000+02:00"}}"#,
            r#"{"spec":{"renewTime":"2020-01-01T00:00:00.500000Z"}}"#,
        ),
        (
            "apps/v1 ControllerRevision",
            r#"{"data":{"b":[1,2.5,null,{"x":1}],"a":"x"},"revision":0}"#,
            r#"{"data":{"a":"x","b":[1,2.5,null,{"x":1}]},"revision":0}"#,
        ),
        (
            "v1 Service",
            r#"{"spec":{"ports":[{"port":80,"targetPort":"http"},{"port":81,"targetPort":8080}]}}"#,
            r#"{"spec":{"ports":[{"port":80,"targetPort":"http"},{"port":81,"targetPort":8080}]}}"#,
        ),
        // What may be a schema or something else is pruned without a word.
        (
            "apiextensions.k8s.io/v1 CustomResourceDefinition",
            r#"{"spec":{"versions":[{"schema":{"openAPIV3Schema":{"items":{"foo":1,"type":"object"},"maximum":5,
                "additionalProperties":false,"enum":[1,"a",null]}}}]}}"#,
            r#"{"spec":{"versions":[{"schema":{"openAPIV3Schema":{"additionalProperties":false,"enum":[1,"a",null],"items":{"type":"object"},"maximum":5}}}]}}"#,
        ),
        (
            "v1 DeleteOptions",
            r#"{"gracePeriodSeconds":0,"dryRun":["All"]}"#,
            r#"{"dryRun":["All"],"gracePeriodSeconds":0}"#,
        ),
    ] {
        check(kind, text, expected);
    }
}

#[test]
fn what_is_applied_is_converted_as_go_converts_it() {
    let convert = |kind: &str, text: &str| {
        let (api_version, kind) = kind.split_once(' ').unwrap();
        match schema(api_version, kind).convert(text.as_bytes()) {
            Ok(Decoded { value, .. }) => json::to_string(&value),
            Err(error) => error.to_string(),
        }
    };
    for (number, expected) in [
        ("3000000000", r#"{"spec":{"replicas":-1294967296}}"#),
        ("100000000000000000000", r#"{"spec":{"replicas":0}}"#),
        ("2.0", r#"{"spec":{"replicas":2}}"#),
        ("1.5", "cannot convert float64 to int32"),
    ] {
        assert_eq!(convert("apps/v1 Deployment", &format!(r#"{{"spec":{{"replicas":{number}}}}}"#)), expected);
    }
    let surge = r#"{"spec":{"strategy":{"rollingUpdate":{"maxSurge":true}}}}"#;
    assert_eq!(convert("apps/v1 Deployment", surge), "json: cannot unmarshal bool into Go value of type int32");
    let words = "error decoding from json: illegal base64 data at input byte 1";
    assert_eq!(convert("v1 Secret", r#"{"data":{"a":"A_B"}}"#), words);
    assert_eq!(convert("apps/v1 ControllerRevision", r#"{"revision":1e30}"#), r#"{"revision":-9223372036854775808}"#);
}

#[test]
fn refuses_what_is_no_object_of_the_kind() {
    check("v1 Pod", "[]", "json: cannot unmarshal array into Go value of type v1.Pod");
    check("apps/v1 Deployment", "1", "json: cannot unmarshal number into Go value of type v1.Deployment");
    check("v1 Pod", "", "unexpected end of JSON input");
    check("v1 Pod", r#"{"spec":1"#, "unexpected end of JSON input");
    check(
        "v1 Pod",
        r#"{"metadata":{"creationTimestamp":"x"},}"#,
        "invalid character '}' looking for beginning of object key string",
    );
    check(
        "v1 PodList",
        r#"{"items":[{"kind":1}]}"#,
        "json: cannot unmarshal number into Go struct field Pod.items.TypeMeta.kind of type string",
    );
}

#[test]
fn hostile_documents_are_bounded() {
    let crd = "apiextensions.k8s.io/v1 CustomResourceDefinition";
    // The only type that contains itself, as deep as the reader goes, with an unknown field at the bottom again and
    // again.
    let deep = r#"{"spec":{"versions":[{"schema":{"openAPIV3Schema":"#.to_owned() + &r#"{"not":"#.repeat(9_990);
    let text = deep.clone() + r#"{"x":1"# + &r#","x":1"#.repeat(10_000) + &"}".repeat(9_991) + "}}]}}";
    check(
        crd,
        &text,
        &format!(
            r#"strict decoding error: unknown field "spec.versions[0].schema.openAPIV3Schema{}.x""#,
            ".not".repeat(9_990)
        ),
    );
    let deeper = deep + &r#"{"not":"#.repeat(100);
    assert!(
        answer(&schema("apiextensions.k8s.io/v1", "CustomResourceDefinition"), deeper.as_bytes())
            .ends_with("exceeded max depth")
    );

    let keys = (0..50_000).rev().map(|n| format!(r#""{}":"""#, n / 2)).collect::<Vec<_>>().join(",");
    let found = answer(&schema("v1", "ConfigMap"), format!(r#"{{"data":{{{keys}}}}}"#).as_bytes());
    assert_eq!(found.matches("duplicate field").count(), 100);
    assert!(found.starts_with(r#"strict decoding error: duplicate field "data.24999", "#), "{}", &found[..100]);
}

#[test]
fn no_type_has_more_fields_than_are_watched_for_duplicates() {
    for (name, _) in builtin::types() {
        let fields = builtin::type_schema(name).unwrap().root().fields().len();
        assert!(fields <= 128, "{name} has {fields}");
    }
}
