//! The checks against what upstream's server answers, and what cannot be asked for there.

use capstan_api::Value;

use super::*;
use crate::admission::golden::{Case, lines, run};

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
            let ours = run(&case_of_level, &case_of_level.stored()).result.err().map_or_else(String::new, |status| status.message);
            if Some(&*ours) != theirs.as_str() {
                wrong.push(format!("{} at {level}\n  ours:   {ours}\n  theirs: {theirs}", case.text("name")));
            }
        }
    }
    assert!(count > 1000, "the cases are gone");
    assert!(wrong.is_empty(), "{} differ:\n{}", wrong.len(), wrong.join("\n"));
}
