//! Defaults against what the real server answered.

use super::*;
use crate::{builtin, json, names::GroupVersionKind};

/// What the server decides when it creates an object, which no default does.
const DECIDED: &[(&str, &[&str])] = &[
    ("*", &["status"]),
    (
        "Service",
        &["spec.clusterIP", "spec.clusterIPs", "spec.ipFamilies", "spec.ipFamilyPolicy", "spec.ports.nodePort"],
    ),
    ("Pod", &["spec.serviceAccount"]),
    ("DaemonSet", &["metadata.annotations"]),
    ("Job", &["metadata.labels", "spec.selector", "spec.template.metadata.labels"]),
    ("Namespace", &["spec.finalizers"]),
];

#[test]
fn rules_are_sorted() {
    assert!(RULES.is_sorted_by(|(a, _), (b, _)| a < b));
}

#[test]
fn every_rule_names_a_type_and_its_fields() {
    for (name, rules) in RULES {
        let schema = builtin::type_schema(name).unwrap_or_else(|| panic!("no type {name}"));
        for rule in *rules {
            let Rule::Fill(path, _, when) = rule else { continue };
            let (When::Is(other, _) | When::Set(other) | When::Unset(other)) = when else {
                check_path(&schema, name, path);
                continue;
            };
            check_path(&schema, name, path);
            check_path(&schema, name, other);
        }
    }
}

fn check_path(schema: &Schema, name: &str, path: &str) {
    path.split('.')
        .fold(schema.root(), |node, part| node.field(part).unwrap_or_else(|| panic!("{name} has no {path}")).node);
}

#[test]
fn as_the_real_server() {
    let mut wrong = Vec::new();
    for line in include_str!("../../../testdata/defaults.jsonl").lines() {
        let case = json::parse(line.as_bytes()).unwrap();
        let input = case.get("input").unwrap();
        let mut expected = case.get("output").unwrap().clone();
        let text = |field| input.get(field).and_then(Value::as_str).unwrap();
        let gvk = GroupVersionKind::from_api_version_and_kind(text("apiVersion"), text("kind"));
        let schema = builtin::schema(&gvk).unwrap();
        let mut found = schema.decode(json::to_string(input).as_bytes()).unwrap().value;
        default(&schema, &mut found);
        let once = found.clone();
        default(&schema, &mut found);
        assert_eq!(found, once, "defaulting twice changes nothing");
        for (kind, paths) in DECIDED {
            if *kind == "*" || *kind == gvk.kind.as_str() {
                paths.iter().for_each(|path| remove(&mut found, path));
                paths.iter().for_each(|path| remove(&mut expected, path));
            }
        }
        if found != expected {
            wrong.push(format!("{gvk}\n  found    {found}\n  expected {expected}"));
        }
    }
    assert!(wrong.is_empty(), "{} differ\n{}", wrong.len(), wrong.join("\n"));
}

fn remove(value: &mut Value, path: &str) {
    let (first, rest) = path.split_once('.').map_or((path, None), |(first, rest)| (first, Some(rest)));
    match (value, rest) {
        (Value::Array(items), _) => items.iter_mut().for_each(|item| remove(item, path)),
        (Value::Object(map), None) => _ = map.remove(first),
        (Value::Object(map), Some(rest)) => {
            if let Some(next) = map.get_mut(first) {
                remove(next, rest);
            }
        }
        _ => {}
    }
}

fn defaulted(text: &str) -> Value {
    let input = json::parse(text.as_bytes()).unwrap();
    let field = |field| input.get(field).and_then(Value::as_str).unwrap();
    let gvk = GroupVersionKind::from_api_version_and_kind(field("apiVersion"), field("kind"));
    let schema = builtin::schema(&gvk).unwrap();
    let mut found = schema.decode(text.as_bytes()).unwrap().value;
    default(&schema, &mut found);
    found
}

fn shown(value: &Value, path: &str) -> Option<String> {
    path.split('.').try_fold(value, |value, part| value.get(part)).map(json::to_string)
}

#[test]
fn an_empty_list_of_policies_is_one() {
    let found = defaulted(
        r#"{"apiVersion":"autoscaling/v2","kind":"HorizontalPodAutoscaler","spec":{"behavior":{
            "scaleUp":{"policies":[]},"scaleDown":{}}}}"#,
    );
    assert_eq!(shown(&found, "spec.behavior.scaleUp.policies").as_deref(), Some("[]"));
    assert!(shown(&found, "spec.behavior.scaleDown.policies").unwrap().contains("Percent"));
}

#[test]
fn addresses_of_pods_agree() {
    let of = |status: &str| {
        let found = defaulted(&format!(r#"{{"apiVersion":"v1","kind":"Pod","spec":{{}},"status":{status}}}"#));
        ["status.podIP", "status.podIPs"].map(|path| shown(&found, path).unwrap_or_default()).join(" ")
    };
    assert_eq!(of(r#"{"podIP":"1.2.3.4"}"#), r#""1.2.3.4" [{"ip":"1.2.3.4"}]"#);
    assert_eq!(of(r#"{"podIPs":[{"ip":"::1"},{"ip":"1.2.3.4"}]}"#), r#""::1" [{"ip":"::1"},{"ip":"1.2.3.4"}]"#);
    assert_eq!(of(r#"{"podIP":"1.2.3.4","podIPs":[{"ip":"::1"}]}"#), r#""1.2.3.4" [{"ip":"1.2.3.4"}]"#);
    assert_eq!(of("{}"), " ");
}

#[test]
fn pods_take_a_second_to_end_and_templates_say_what_they_like() {
    let seconds = r#"{"terminationGracePeriodSeconds":-5}"#;
    let pod = defaulted(&format!(r#"{{"apiVersion":"v1","kind":"Pod","spec":{seconds}}}"#));
    assert_eq!(shown(&pod, "spec.terminationGracePeriodSeconds").as_deref(), Some("1"));
    let template = format!(r#"{{"apiVersion":"v1","kind":"PodTemplate","template":{{"spec":{seconds}}}}}"#);
    let template = defaulted(&template);
    assert_eq!(shown(&template, "template.spec.terminationGracePeriodSeconds").as_deref(), Some("-5"));
}
