//! Documents against what upstream publishes, of which `upstream.txt` has a hash for each schema and path, without
//! descriptions.

use std::{fmt::Write as _, fs};

use capstan_api::{GroupVersionKind, Map, Name, Time, Value, json};
use http::{HeaderMap, HeaderValue, StatusCode, header};

use super::*;
use crate::{
    discovery::ApiSubresource,
    http::Body,
    request::Query,
    sha256::{hex, sha256},
};

/// A value as text that does not depend on the order of what has none, without descriptions. `named` says that the keys
/// are names that somebody chose.
fn canonical(value: &Value, key: &str, named: bool, out: &mut String) {
    match value {
        Value::Object(map) => {
            let mut entries: Vec<_> = map.iter().collect();
            entries.sort_by(|a, b| a.0.cmp(b.0));
            out.push('{');
            for (key, value) in entries {
                if named || key != "description" || value.as_str().is_none() {
                    write!(out, "{key:?}:").unwrap();
                    canonical(value, key, !named && key == "properties", out);
                    out.push(',');
                }
            }
            out.push('}');
        }
        Value::Array(items) => {
            let mut items: Vec<String> = items
                .iter()
                .map(|item| {
                    let mut text = String::new();
                    canonical(item, "", false, &mut text);
                    text
                })
                .collect();
            if matches!(key, "required" | "parameters") {
                items.sort();
            }
            write!(out, "[{}]", items.join(",")).unwrap();
        }
        scalar => out.push_str(&json::to_string(scalar)),
    }
}

fn short_hash(text: &str) -> String {
    hex(&sha256(text.as_bytes()))[..8].to_owned()
}

/// Version 2 has parameters in a place of their own, under names that do not matter.
fn resolve_parameters(document: &mut Value) {
    let Some(shared) = document.get("parameters").cloned() else { return };
    let paths = document.get_mut("paths").and_then(Value::as_object_mut).unwrap();
    let mut stack: Vec<&mut Value> = paths.iter_mut().map(|(_, item)| item).collect();
    while let Some(value) = stack.pop() {
        let reference = value.get("$ref").and_then(Value::as_str).and_then(|path| path.strip_prefix("#/parameters/"));
        if let Some(parameter) = reference.map(|name| shared.get(name).unwrap().clone()) {
            *value = parameter;
            continue;
        }
        match value {
            Value::Object(map) => stack.extend(map.iter_mut().map(|(_, value)| value)),
            Value::Array(items) => stack.extend(items.iter_mut()),
            _ => {}
        }
    }
}

/// Two of upstream's lists name versions that nobody serves.
fn forget_unserved(document: &mut Value) {
    let Some(definitions) = document.get_mut("definitions").and_then(Value::as_object_mut) else { return };
    for kind in ["DeleteOptions", "WatchEvent"] {
        let name = format!("io.k8s.apimachinery.pkg.apis.meta.v1.{kind}");
        if let Some(Value::Object(schema)) = definitions.get_mut(&name) {
            schema.remove("x-kubernetes-group-version-kind");
        }
    }
}

/// A line for each document, and for each schema and path of version 3, so that one sees which it is. A schema that is
/// not the same in all documents has a line for each form.
fn digest(documents: impl Iterator<Item = (String, Value)>) -> String {
    let (mut lines, mut things) = (String::new(), BTreeSet::new());
    for (path, mut document) in documents {
        resolve_parameters(&mut document);
        forget_unserved(&mut document);
        let schemas = document.get("components").and_then(|components| components.get("schemas"));
        let of_v2 = document.get("definitions");
        let mut counts = Vec::new();
        let mut all = String::new();
        for (what, values) in [("schema", schemas.or(of_v2)), ("path", document.get("paths"))] {
            let values: BTreeMap<&str, &Value> =
                values.and_then(Value::as_object).into_iter().flat_map(Map::iter).collect();
            for (name, value) in &values {
                let mut text = String::new();
                canonical(value, "", false, &mut text);
                let line = format!("{what} {name} {}\n", short_hash(&text));
                all.push_str(&line);
                if of_v2.is_none() {
                    things.insert(line);
                }
            }
            counts.push(values.len().to_string());
        }
        writeln!(lines, "document {path} {} {}", counts.join(" "), short_hash(&all)).unwrap();
    }
    lines.extend(things);
    lines
}

fn ours() -> String {
    let open_api = OpenApi::new();
    let snapshot = open_api.snapshot();
    let v3 = snapshot.v3.iter().map(|(path, lazy)| (path.clone(), v3(&snapshot, path, lazy)));
    let all = v3.chain([("v2".to_owned(), v2(&snapshot))]);
    digest(all.map(|(path, document)| (path, json::parse(&document.bytes()).unwrap())))
}

#[test]
fn all_schemas_and_paths_are_upstreams() {
    let ours = ours();
    let ours: BTreeSet<&str> = ours.lines().collect();
    let upstream: BTreeSet<&str> = include_str!("upstream.txt").lines().filter(|line| !line.starts_with('#')).collect();
    let missing: Vec<_> = upstream.difference(&ours).collect();
    let other: Vec<_> = ours.difference(&upstream).collect();
    assert!(
        upstream.len() > 1000 && missing.is_empty() && other.is_empty(),
        "upstream: {missing:#?}\nours: {other:#?}"
    );
}

/// Makes `upstream.txt` from a folder with the documents of a server, `/` in their paths written as `__`.
#[test]
#[ignore = "is run by hand for a new version of Kubernetes, with OPENAPI_UPSTREAM set"]
fn bless() {
    let folder = std::env::var("OPENAPI_UPSTREAM").expect("OPENAPI_UPSTREAM names the folder");
    let mut files: Vec<_> = fs::read_dir(folder).unwrap().map(|entry| entry.unwrap().path()).collect();
    files.sort();
    let documents = files.iter().map(|file| {
        let path = file.file_name().unwrap().to_str().unwrap().trim_end_matches(".json").replace("__", "/");
        (path, json::parse(&fs::read(file).unwrap()).unwrap())
    });
    let header = "# Hashes of what Kubernetes v1.36.3 publishes, descriptions left out; made by the test `bless`.\n";
    let path = concat!(env!("CARGO_MANIFEST_DIR"), "/src/openapi/upstream.txt");
    fs::write(path, format!("{header}{}", digest(documents))).unwrap();
}

/// Asks with headers; what is answered as status, headers of interest, and body.
fn ask(open_api: &OpenApi, target: &str, headers: &[(header::HeaderName, &str)]) -> (StatusCode, HeaderMap, Bytes) {
    let (path, query) = target.split_once('?').unwrap_or((target, ""));
    let headers: HeaderMap =
        headers.iter().map(|(name, value)| (name.clone(), HeaderValue::from_str(value).unwrap())).collect();
    let now = Time::from_unix(1_794_795_167, 0);
    let response = open_api.answer(path, &Query::parse(query), &headers, now).unwrap();
    let (parts, body) = response.into_parts();
    let Body::Slices(slices) = body else { panic!("a stream") };
    (parts.status, parts.headers, slices.into_iter().next().unwrap_or_default())
}

fn text(headers: &HeaderMap, name: header::HeaderName) -> &str {
    headers.get(name).map(|value| value.to_str().unwrap()).unwrap_or_default()
}

#[test]
fn documents_may_be_kept_by_their_hash() {
    let open_api = OpenApi::new();
    let (status, headers, index) = ask(&open_api, "/openapi/v3", &[]);
    assert_eq!((status, text(&headers, header::CONTENT_TYPE)), (StatusCode::OK, "text/plain; charset=utf-8"));
    let index = json::parse(&index).unwrap();
    let url = index.get("paths").and_then(|paths| paths.get("version")?.get("serverRelativeURL")?.as_str()).unwrap();
    let hash = url.strip_prefix("/openapi/v3/version?hash=").unwrap();
    let tag = format!("\"{hash}\"");

    let (status, headers, body) = ask(&open_api, url, &[]);
    assert_eq!((status, hash), (StatusCode::OK, &*super::hash(&body)));
    for (name, expected) in [
        (header::CONTENT_TYPE, "application/json"),
        (header::ETAG, &*tag),
        (header::VARY, "Accept"),
        (header::CACHE_CONTROL, "public, immutable"),
        (header::EXPIRES, "Tue, 16 Nov 2027 02:12:47 UTC"),
    ] {
        assert_eq!(text(&headers, name), expected);
    }
    let (status, headers, body) = ask(&open_api, "/openapi/v3/version?hash=old", &[]);
    assert_eq!((status, text(&headers, header::LOCATION), body.len()), (StatusCode::MOVED_PERMANENTLY, url, 0));
    let (status, headers, body) = ask(&open_api, "/openapi/v3/version", &[(header::IF_NONE_MATCH, &tag)]);
    assert_eq!((status, text(&headers, header::ETAG), body.len()), (StatusCode::NOT_MODIFIED, &*tag, 0));
    assert_eq!(text(&headers, header::CACHE_CONTROL), "");
}

const PROTOBUF_AT: &str = "application/com.github.proto-openapi.spec.v2@v1.0+protobuf";
const PROTOBUF: &str = "application/com.github.proto-openapi.spec.v2.v1.0+protobuf";

#[test]
fn what_a_client_takes() {
    let open_api = OpenApi::new();
    for (path, accept, status, content_type) in [
        ("/openapi/v3/version", "", 200, "application/json"),
        ("/openapi/v3/version", "application/yaml, application/json;q=0.5", 200, "application/json"),
        ("/openapi/v3/version", "*/*", 200, "application/json"),
        ("/openapi/v3/version", "text/html", 406, ""),
        ("/openapi/v3/nothing", "text/html", 404, ""),
        ("/openapi/v3/", "", 404, ""),
        ("/openapi/v3/api/v1/", "", 404, ""),
        ("/openapi/v2", "text/html", 406, ""),
        ("/openapi/v2", "application/json", 200, "application/json"),
        ("/openapi/v2", "application/*", 200, "application/json"),
        ("/openapi/v2", PROTOBUF_AT, 200, PROTOBUF),
        ("/openapi/v2", PROTOBUF, 200, PROTOBUF),
    ] {
        let (got, headers, _) = ask(&open_api, path, &[(header::ACCEPT, accept)]);
        assert_eq!((got.as_u16(), text(&headers, header::CONTENT_TYPE)), (status, content_type), "{path} {accept}");
    }
    let none = open_api.answer("/openapi", &Query::parse(""), &HeaderMap::new(), Time::ZERO);
    assert!(none.is_none());
}

fn names<const N: usize>(names: [&'static str; N]) -> Vec<Name> {
    names.map(Name::from_static).to_vec()
}

fn cron_tab(schema: &str) -> CustomResource {
    let sub = |name, group, kind| ApiSubresource {
        name: Name::from_static(name),
        kind: GroupVersionKind::from_static(group, "v1", kind),
        verbs: names(["get", "patch", "update"]),
    };
    let resource = ApiResource {
        group_version: GroupVersion::from_static("stable.example.com", "v1"),
        kind: Name::from_static("CronTab"),
        resource: Name::from_static("crontabs"),
        singular: Name::from_static("crontab"),
        namespaced: true,
        short_names: Vec::new(),
        categories: Vec::new(),
        verbs: names(["create", "delete", "deletecollection", "get", "list", "patch", "update", "watch"]),
        subresources: vec![sub("status", "stable.example.com", "CronTab"), sub("scale", "autoscaling", "Scale")],
        storage: None,
        custom: true,
    };
    let schema = Some(json::parse(schema.as_bytes()).unwrap());
    CustomResource { resource, list_kind: Name::from_static("CronTabList"), schema, selectable_fields: Vec::new() }
}

const SCHEMA: &str = r#"{"type":"object","properties":{
    "spec":{"type":"object","x-kubernetes-preserve-unknown-fields":true,"properties":{
        "tpl":{"type":"object","x-kubernetes-embedded-resource":true,"x-kubernetes-preserve-unknown-fields":true}}},
    "status":{"type":"object","properties":{"replicas":{"type":"integer","default":1}}}}}"#;

/// What a real server publishes of this custom resource, as far as it is published at all.
#[test]
fn custom_resources() {
    let open_api = OpenApi::new();
    let before = ask(&open_api, "/openapi/v3", &[]).2;
    assert!(open_api.set_custom(vec![cron_tab(SCHEMA)]));
    assert!(!open_api.set_custom(vec![cron_tab(SCHEMA)]));
    assert_ne!(ask(&open_api, "/openapi/v3", &[]).2, before);
    let document = json::parse(&ask(&open_api, "/openapi/v3/apis/stable.example.com/v1", &[]).2).unwrap();
    let schemas = document.get("components").unwrap().get("schemas").unwrap();
    let spec = r#"{"properties":{"tpl":{"properties":{"apiVersion":{"type":"string",},"kind":{"type":"string",},"#;
    let meta = r##"{"allOf":[{"$ref":"#/components/schemas/io.k8s.apimachinery.pkg.apis.meta.v1.ObjectMeta",}],}"##;
    check(
        schemas.get("com.example.stable.v1.CronTab").unwrap().get("properties").unwrap().get("spec").unwrap(),
        &format!(
            "{spec}\"metadata\":{meta},}},\"required\":[\"apiVersion\",\"kind\"],\"type\":\"object\",\
             \"x-kubernetes-embedded-resource\":true,\"x-kubernetes-preserve-unknown-fields\":true,}},}},\
             \"type\":\"object\",\"x-kubernetes-preserve-unknown-fields\":true,}}"
        ),
    );
    let paths = document.get("paths").and_then(Value::as_object).unwrap();
    let base = "/apis/stable.example.com/v1/";
    let mut asked: Vec<String> = paths.iter().map(|(path, _)| path.strip_prefix(base).unwrap().to_owned()).collect();
    asked.sort();
    let one = "namespaces/{namespace}/crontabs/{name}";
    assert_eq!(
        asked,
        [
            "crontabs".to_owned(),
            "namespaces/{namespace}/crontabs".to_owned(),
            one.to_owned(),
            format!("{one}/scale"),
            format!("{one}/status")
        ]
    );
    let scale = paths.get(&format!("{base}{one}/scale")).unwrap().get("get").unwrap();
    assert_eq!(scale.get("operationId").and_then(Value::as_str), Some("readStableExampleComV1NamespacedCronTabScale"));
    assert_eq!(scale.get("tags").unwrap().as_array().unwrap()[0].as_str(), Some("stableExampleCom_v1"));

    let v2 = json::parse(&ask(&open_api, "/openapi/v2", &[]).2).unwrap();
    let properties = v2.get("definitions").unwrap().get("com.example.stable.v1.CronTab").unwrap().get("properties");
    check(properties.unwrap().get("spec").unwrap(), r#"{"x-kubernetes-preserve-unknown-fields":true,}"#);

    assert!(open_api.set_custom(Vec::new()));
    assert_eq!(ask(&open_api, "/openapi/v3", &[]).2, before);
}

fn check(value: &Value, expected: &str) {
    let mut text = String::new();
    canonical(value, "", false, &mut text);
    assert_eq!(text, expected);
}

/// A schema with all that is published otherwise than it is written.
const RICH_SCHEMA: &str = r##"
    {"properties":{"spec":{"properties":{"a":{"x-kubernetes-int-or-string":true},
    "any":{"x-kubernetes-preserve-unknown-fields":true},"b":{"anyOf":[{"type":"integer"},{"type":"string"}],
    "default":3,"x-kubernetes-int-or-string":true},"c":{"anyOf":[{"pattern":"x"}],"nullable":true,
    "x-kubernetes-int-or-string":true},"color":{"default":"a","oneOf":[{"pattern":"a"},{"pattern":"b"}],
    "type":"string"},"en":{"default":"x","enum":["x","z"],"format":"hostname","nullable":true,"type":"string"},
    "free":{"properties":{"k":{"type":"string"}},"type":"object","x-kubernetes-preserve-unknown-fields":true},
    "l":{"items":{"type":"string"},"nullable":true,"type":"array"},"m":{"additionalProperties":{"nullable":true,
    "type":"string"},"type":"object"},"nob":{"nullable":true,"properties":{"q":{"type":"string"}},"required":["q"],
    "type":"object"},"raw":{"type":"object","x-kubernetes-embedded-resource":true,
    "x-kubernetes-preserve-unknown-fields":true},"tpl":{"properties":{"spec":{"properties":{"z":{"default":1,
    "format":"int32","type":"integer"}},"type":"object"}},"required":["spec"],"type":"object",
    "x-kubernetes-embedded-resource":true},"v":{"type":"integer","x-kubernetes-validations":[{"message":"big",
    "rule":"self > 1"}]}},"required":["a","en","color"],"type":"object"}},"required":["spec"],"type":"object"}"##;

/// What a real server publishes of it in version 3, without words.
const RICH_V3: &str = r##"
    {"properties":{"apiVersion":{"type":"string"},"kind":{"type":"string"},
    "metadata":{"allOf":[{"$ref":"#/components/schemas/io.k8s.apimachinery.pkg.apis.meta.v1.ObjectMeta"}]},
    "spec":{"properties":{"a":{"anyOf":[{"type":"integer"},{"type":"string"}],"x-kubernetes-int-or-string":true},
    "any":{"x-kubernetes-preserve-unknown-fields":true},"b":{"anyOf":[{"type":"integer"},{"type":"string"}],
    "default":3,"x-kubernetes-int-or-string":true},"c":{"allOf":[{"anyOf":[{"type":"integer"},{"type":"string"}]}],
    "anyOf":[{"pattern":"x"}],"nullable":true,"x-kubernetes-int-or-string":true},"color":{"default":"a",
    "oneOf":[{"pattern":"a"},{"pattern":"b"}],"type":"string"},"en":{"default":"x","enum":["x","z"],
    "format":"hostname","nullable":true,"type":"string"},"free":{"properties":{"k":{"type":"string"}},
    "type":"object","x-kubernetes-preserve-unknown-fields":true},"l":{"items":{"type":"string"},"nullable":true,
    "type":"array"},"m":{"additionalProperties":{"nullable":true,"type":"string"},"type":"object"},
    "nob":{"nullable":true,"properties":{"q":{"type":"string"}},"required":["q"],"type":"object"},
    "raw":{"properties":{"apiVersion":{"type":"string"},"kind":{"type":"string"},
    "metadata":{"allOf":[{"$ref":"#/components/schemas/io.k8s.apimachinery.pkg.apis.meta.v1.ObjectMeta"}]}},
    "required":["kind","apiVersion"],"type":"object","x-kubernetes-embedded-resource":true,
    "x-kubernetes-preserve-unknown-fields":true},"tpl":{"properties":{"apiVersion":{"type":"string"},
    "kind":{"type":"string"},
    "metadata":{"allOf":[{"$ref":"#/components/schemas/io.k8s.apimachinery.pkg.apis.meta.v1.ObjectMeta"}]},
    "spec":{"properties":{"z":{"default":1,"format":"int32","type":"integer"}},"type":"object"}},"required":["spec",
    "kind","apiVersion"],"type":"object","x-kubernetes-embedded-resource":true},"v":{"type":"integer",
    "x-kubernetes-validations":[{"message":"big","rule":"self > 1"}]}},"required":["a","en","color"],
    "type":"object"}},"required":["spec"],"type":"object",
    "x-kubernetes-group-version-kind":[{"group":"stable.example.com","kind":"CronTab","version":"v1"}],
    "x-kubernetes-selectable-fields":[{"fieldPath":"spec.color"}]}"##;

/// And in version 2.
const RICH_V2: &str = r##"
    {"properties":{"apiVersion":{"type":"string"},"kind":{"type":"string"},
    "metadata":{"$ref":"#/definitions/io.k8s.apimachinery.pkg.apis.meta.v1.ObjectMeta"},
    "spec":{"properties":{"a":{"x-kubernetes-int-or-string":true},
    "any":{"x-kubernetes-preserve-unknown-fields":true},"b":{"x-kubernetes-int-or-string":true},
    "c":{"x-kubernetes-int-or-string":true},"color":{"type":"string"},"en":{"enum":["x","z"],"format":"hostname"},
    "free":{"x-kubernetes-preserve-unknown-fields":true},"l":{},"m":{"additionalProperties":{},"type":"object"},
    "nob":{"required":["q"]},"raw":{"x-kubernetes-embedded-resource":true,
    "x-kubernetes-preserve-unknown-fields":true},"tpl":{"properties":{"apiVersion":{"type":"string"},
    "kind":{"type":"string"},"metadata":{"$ref":"#/definitions/io.k8s.apimachinery.pkg.apis.meta.v1.ObjectMeta"},
    "spec":{"properties":{"z":{"format":"int32","type":"integer"}},"type":"object"}},"required":["spec","kind",
    "apiVersion"],"type":"object","x-kubernetes-embedded-resource":true},"v":{"type":"integer",
    "x-kubernetes-validations":[{"message":"big","rule":"self > 1"}]}},"required":["a","color"],"type":"object"}},
    "required":["spec"],"type":"object","x-kubernetes-group-version-kind":[{"group":"stable.example.com",
    "kind":"CronTab","version":"v1"}],"x-kubernetes-selectable-fields":[{"fieldPath":"spec.color"}]}"##;

fn without_words(value: &Value) -> Value {
    match value {
        Value::Object(object) => {
            let fields = object.iter().filter(|(key, _)| *key != "description");
            Value::Object(fields.map(|(key, value)| (key.into(), without_words(value))).collect())
        }
        Value::Array(items) => Value::Array(items.iter().map(without_words).collect()),
        other => other.clone(),
    }
}

#[test]
fn schemas_of_custom_resources_are_published_as_upstream_does() {
    let open_api = OpenApi::new();
    let selectable_fields = vec!["spec.color".to_owned()];
    open_api.set_custom(vec![CustomResource { selectable_fields, ..cron_tab(RICH_SCHEMA) }]);
    let schema = |path: &str, keys: &[&str]| {
        let document = json::parse(&ask(&open_api, path, &[]).2).unwrap();
        keys.iter().fold(document, |value, key| value.get(key).unwrap().clone())
    };
    let name = "com.example.stable.v1.CronTab";
    let v3 = schema("/openapi/v3/apis/stable.example.com/v1", &["components", "schemas", name]);
    assert_eq!(without_words(&v3), json::parse(RICH_V3.as_bytes()).unwrap());
    let v2 = schema("/openapi/v2", &["definitions", name]);
    assert_eq!(without_words(&v2), json::parse(RICH_V2.as_bytes()).unwrap());
    let list = schema("/openapi/v2", &["definitions", "com.example.stable.v1.CronTabList"]);
    assert_eq!(list.get("x-kubernetes-selectable-fields"), v2.get("x-kubernetes-selectable-fields"));
    assert_eq!(list.get("description").and_then(Value::as_str), Some("CronTabList is a list of CronTab"));
    for (schema, kind) in [(&v3, "object's"), (&list, "list")] {
        for (field, words) in
            [("apiVersion", "APIVersion defines"), ("metadata", &*format!("Standard {kind} metadata."))]
        {
            let field = schema.get("properties").unwrap().get(field).unwrap();
            assert!(field.get("description").and_then(Value::as_str).unwrap().starts_with(words), "{words}");
        }
    }
    let open =
        r#"{"type":"object","x-kubernetes-preserve-unknown-fields":true,"properties":{"spec":{"type":"object"}}}"#;
    open_api.set_custom(vec![cron_tab(open)]);
    let v2 = json::parse(&ask(&open_api, "/openapi/v2", &[]).2).unwrap();
    assert_eq!(v2.get("definitions").unwrap().get(name).unwrap().get("properties"), None);
}

#[test]
fn a_change_remakes_only_its_own_document() {
    let open_api = OpenApi::new();
    let other = |group: &'static str| {
        let mut custom = cron_tab(SCHEMA);
        custom.resource.group_version = GroupVersion::from_static(group, "v1");
        custom
    };
    let document = |group: &str| {
        let path = format!("apis/{group}/v1");
        open_api.snapshot().v3.get(&path).cloned().unwrap_or_default()
    };
    open_api.set_custom(vec![other("a.example.com"), other("b.example.com")]);
    ask(&open_api, "/openapi/v3", &[]);
    let (a, b) = (document("a.example.com"), document("b.example.com"));
    assert!(a.get().is_some() && b.get().is_some());
    let changed = CustomResource { selectable_fields: vec!["spec.color".to_owned()], ..other("b.example.com") };
    open_api.set_custom(vec![other("a.example.com"), changed, other("c.example.com")]);
    assert!(Arc::ptr_eq(&a, &document("a.example.com")));
    assert!(!Arc::ptr_eq(&b, &document("b.example.com")));
    open_api.set_custom(Vec::new());
    assert!(document("a.example.com").get().is_none());
}
