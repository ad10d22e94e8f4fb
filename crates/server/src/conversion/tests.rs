//! Objects of the real server in each version.

use capstan_api::{Value, json};

use super::*;

/// Objects written to a running server in one version, and how it gave them out in each, one a line.
const CASES: &str = include_str!("cases.jsonl");
/// Objects of a running server and their Scales, one a line.
const SCALES: &str = include_str!("scale.jsonl");

fn object(value: &Value) -> Map {
    value.as_object().unwrap().clone()
}

fn gvk(object: &Map) -> GroupVersionKind {
    let text = |key| object.get(key).and_then(Value::as_str).unwrap().to_owned();
    let api_version = text("apiVersion");
    let (group, version) = api_version.split_once('/').unwrap_or(("", &api_version));
    GroupVersionKind::new(group, version, text("kind"))
}

fn defaulted(object: Map) -> Map {
    let schema = builtin::schema(&gvk(&object)).unwrap();
    let mut value = object.into();
    builtin::default(&schema, &mut value);
    self::object(&value)
}

/// All versions of an object that a running server gave out: each is made from each, through the stored one.
#[test]
fn what_is_read_in_one_version_is_read_alike_in_the_other() {
    let mut pairs = 0;
    for line in CASES.lines() {
        let case = json::parse(line.as_bytes()).unwrap();
        let read: Vec<Map> = case.get("read").unwrap().as_object().unwrap().values().map(object).collect();
        for from in &read {
            let stored = to_storage(&gvk(from), from.clone());
            for to in &read {
                // What v1 carries in annotations comes back with zeros for what was not there, and before the use of CPU.
                let exact = gvk(from).version.as_str() == "v2" || gvk(from).kind.as_str() == "Event";
                let lossy = line.contains("currentMetrics\":[{") || line.contains("}},{\"type\":\"Resource\"");
                if exact || !lossy {
                    assert_eq!(&defaulted(from_storage(&gvk(to), stored.clone())), to, "{line}");
                    pairs += 1;
                }
            }
        }
    }
    assert!(pairs > 100, "{pairs}");
}

#[test]
fn what_is_sent_is_stored_as_upstream_stores_it() {
    for line in CASES.lines() {
        let case = json::parse(line.as_bytes()).unwrap();
        let sent = defaulted(object(case.get("sent").unwrap()));
        let mut stored = to_storage(&gvk(&sent), sent.clone());
        if case.get("status").is_none() && stored.contains_key("spec") {
            // The strategy takes away the status of something new.
            stored.remove("status");
        }
        let stored = defaulted(stored);
        for to in case.get("read").unwrap().as_object().unwrap().values().map(object) {
            let mut got = defaulted(from_storage(&gvk(&to), stored.clone()));
            // The status of something new is the strategy's to make.
            if got.get("status").is_none() {
                let empty = to.get("status").cloned();
                empty.map(|status| got.insert("status", status));
            }
            assert_eq!(got, to, "{line}");
        }
    }
}

#[test]
fn scales() {
    for line in SCALES.lines() {
        let case = json::parse(line.as_bytes()).unwrap();
        let (mut workload, expected) = (object(case.get("object").unwrap()), object(case.get("scale").unwrap()));
        assert_eq!(scale::read(&workload).unwrap(), expected, "{line}");
        let before = workload.clone();
        scale::write(&mut workload, &expected);
        assert_eq!(workload, before, "writing what was read changes nothing");
        let mut more = expected.clone();
        more.insert("spec", json::parse(br#"{"replicas":7}"#).unwrap());
        scale::write(&mut workload, &more);
        assert_eq!(scale::read(&workload).unwrap().get("spec"), more.get("spec"));
    }
}

#[test]
fn a_selector_that_is_none_is_told() {
    let broken = br#"{"kind":"Deployment","spec":{"selector":{"matchExpressions":[{"key":"a","operator":"Is"}]}}}"#;
    assert_eq!(
        scale::read(&object(&json::parse(broken).unwrap())).unwrap_err(),
        "\"Is\" is not a valid label selector operator"
    );
}

#[test]
fn one_version_is_stored() {
    for (group, resource, stored) in [
        ("autoscaling", "horizontalpodautoscalers", Some(("autoscaling", "v2"))),
        ("events.k8s.io", "events", Some(("", "v1"))),
        ("", "events", Some(("", "v1"))),
        ("", "pods", Some(("", "v1"))),
        ("apps", "deployments", Some(("apps", "v1"))),
        ("example.com", "things", None),
    ] {
        let stored = stored.map(|(group, version)| GroupVersion::from_static(group, version));
        assert_eq!(storage_version(&GroupResource::new(group, resource)), stored, "{group} {resource}");
    }
    // Whatever is served in two versions, and whatever lives where another resource does, has a row.
    let is_stored = |kind: &&builtin::Kind| kind.verbs.iter().any(|verb| verb.as_str() == "list");
    let place = |kind: &builtin::Kind| registry::layout::prefix(&kind.gvr().group_resource());
    for kind in builtin::kinds() {
        let same = |other: &builtin::Kind| place(other) == place(kind) && other.gvk() != kind.gvk();
        if is_stored(&kind) && builtin::kinds().filter(is_stored).any(same) {
            let stored = storage_version(&kind.gvr().group_resource()).unwrap();
            assert!(needs_conversion(&kind.gvk()) || stored == kind.group_version, "{:?}", kind.gvk());
        }
        assert!(!needs_conversion(&kind.gvk()) || matches!(kind.kind.as_str(), "Event" | "HorizontalPodAutoscaler"));
    }
}

#[test]
fn what_is_not_of_its_shape_does_no_harm() {
    for text in [
        r#"{}"#,
        r#"{"metadata":null,"spec":[],"status":3}"#,
        r#"{"metadata":{"annotations":7},"spec":{"metrics":[1,{"resource":[]},{"type":3}]},"status":{"currentMetrics":{}}}"#,
        r#"{"metadata":{"annotations":{"autoscaling.alpha.kubernetes.io/metrics":"[1]","autoscaling.alpha.kubernetes.io/behavior":"[]"}}}"#,
        r#"{"spec":{"behavior":{"scaleUp":{"policies":[1]}}}}"#,
    ] {
        let object = object(&json::parse(text.as_bytes()).unwrap());
        for (group, version, kind, ..) in ROWS {
            let gvk = GroupVersionKind::from_static(group, version, kind);
            let stored = to_storage(&gvk, object.clone());
            assert_eq!(to_storage(&gvk, from_storage(&gvk, stored.clone())), stored, "{text}");
        }
    }
    let mut deep = String::from("[{\"a\":");
    deep.push_str(&"[".repeat(5_000));
    deep.push_str(&"]".repeat(5_000));
    deep.push_str("}]");
    let mut object = Map::new();
    let mut status = Map::new();
    status.insert("conditions", json::parse(deep.as_bytes()).unwrap());
    object.insert("status", status);
    assert!(
        json::to_string(
            &from_storage(&GroupVersionKind::from_static("autoscaling", "v1", "HorizontalPodAutoscaler"), object)
                .into()
        )
        .len()
            > 10_000
    );
}
