//! The checks against what upstream's server answers, and what cannot be asked for there.

use capstan_api::Value;

use super::*;
use crate::admission::golden::{Case, Stored, check, lines, run};

const PODS: &str = include_str!("../../../testdata/admission/pod_security.jsonl");

/// The case of a pod that is created in a namespace with these labels.
fn create(pod: &Value, level: &str, version: &str) -> Case {
    let text = format!(
        r#"{{"operation": "Create", "resource": "pods", "kind": "Pod", "namespace": "ns", "object_name": "p",
            "object": {pod}, "stored": [{{"resource": "namespaces", "object": {{"metadata": {{"name": "ns", "labels": {{
            "pod-security.kubernetes.io/enforce": "{level}", "pod-security.kubernetes.io/enforce-version": "{version}"
            }}}}}}}}]}}"#
    );
    Case(json::parse(text.as_bytes()).expect("a case"))
}

#[test]
fn checks_say_what_upstream_says() {
    let mut wrong = Vec::new();
    let mut count = 0;
    for case in lines(PODS) {
        let pod = case.0.get("pod").expect("a pod");
        for (level, theirs) in case.object("answers").expect("answers").iter() {
            count += 1;
            let (name, version) = level.split_once(':').expect("a level and a version");
            let case_of_level = create(pod, name, version);
            let outcome = run(&case_of_level, &case_of_level.stored(), &PodSecurity::default());
            let ours = outcome.result.err().map_or_else(String::new, |status| status.message);
            if Some(&*ours) != theirs.as_str() {
                wrong.push(format!("{} at {level}\n  ours:   {ours}\n  theirs: {theirs}", case.text("name")));
            }
        }
    }
    assert!(count > 1000, "the cases are gone");
    assert!(wrong.is_empty(), "{} differ:\n{}", wrong.len(), wrong.join("\n"));
}

/// What upstream's server answers that is configured as [`configured`] is.
const CONFIGURED: &str = include_str!("../../../testdata/admission/pod_security_config.jsonl");

fn configured() -> PodSecurity {
    let mode = |level, version| LevelVersion { level, version };
    PodSecurity {
        defaults: Policy {
            enforce: mode(Level::Baseline, Version::Latest),
            audit: mode(Level::Privileged, Version::Latest),
            warn: mode(Level::Restricted, Version::Minor(30)),
        },
        exemptions: Exemptions {
            usernames: vec!["root-like".to_owned()],
            runtime_classes: vec!["heavy".to_owned()],
            namespaces: vec!["exempt".to_owned()],
        },
    }
}

#[test]
fn defaults_and_exemptions_are_those_of_upstream() {
    check(CONFIGURED, &configured());
}

/// So many pods that share the host's network, of which each third has a controller.
fn many(count: usize) -> Stored {
    let mut stored = Stored::default();
    for at in 0..count {
        let owner = r#"[{"apiVersion":"v1","kind":"K","name":"k","uid":"u","controller":true}]"#;
        let owners = if at % 3 == 0 { owner } else { "[]" };
        let pod = format!(
            r#"{{"metadata":{{"name":"p{at:05}","namespace":"ns","ownerReferences":{owners}}},"spec":{{"hostNetwork":true}}}}"#
        );
        stored.insert("pods", &json::parse(pod.as_bytes()).expect("a pod"), 1);
    }
    stored
}

#[test]
fn a_large_namespace_is_looked_at_in_part() {
    let case = |labels: &str| {
        let namespace = format!(r#"{{"metadata": {{"name": "ns", "labels": {{{labels}}}}}}}"#);
        let old = r#"{"metadata": {"name": "ns"}}"#;
        let text = format!(
            r#"{{"operation": "Update", "resource": "namespaces", "kind": "Namespace", "object_name": "ns",
            "object": {namespace}, "old": {old}}}"#
        );
        Case(json::parse(text.as_bytes()).expect("a case"))
    };
    let warnings = |count| {
        let case = case(r#""pod-security.kubernetes.io/enforce": "baseline""#);
        run(&case, &many(count), &PodSecurity::default()).warnings
    };
    let violate = r#"existing pods in namespace "ns" violate the new PodSecurity enforce level "baseline:latest""#;
    assert_eq!(warnings(3000), [violate, "p00000 (and 2999 other pods): host namespaces"]);
    let part = "new PodSecurity enforce level only checked against the first 3000 of 3002 existing pods";
    assert_eq!(warnings(3002), [part, violate, "p00000 (and 2999 other pods): host namespaces"]);
}

#[test]
fn labels_that_were_wrong_before_may_stay() {
    let update = |old: &str, new: &str| {
        let namespace = |level: &str| {
            format!(
                r#"{{"metadata": {{"name": "ns", "labels": {{"pod-security.kubernetes.io/enforce": "{level}"}}}}}}"#
            )
        };
        let text = format!(
            r#"{{"operation": "Update", "resource": "namespaces", "kind": "Namespace", "object_name": "ns",
            "object": {}, "old": {}}}"#,
            namespace(new),
            namespace(old)
        );
        run(&Case(json::parse(text.as_bytes()).expect("a case")), &Stored::default(), &PodSecurity::default()).result
    };
    assert!(update("nonsense", "nonsense").is_ok());
    assert!(update("nonsense", "baseline").is_ok());
    assert!(update("nonsense", "rubbish").is_err());
    assert!(update("baseline", "nonsense").is_err());
}

#[test]
fn a_namespace_that_is_not_there_is_an_error_of_ours() {
    let mut case =
        create(&json::parse(br#"{"metadata": {"name": "p"}, "spec": {}}"#).expect("a pod"), "baseline", "latest");
    case.0.as_object_mut().expect("a case").insert("stored", Value::from(Vec::new()));
    let status = run(&case, &case.stored(), &PodSecurity::default()).result.expect_err("refused");
    assert_eq!((status.code, &*status.message), (500, "Internal error occurred: failed to lookup namespace \"ns\""));
}
