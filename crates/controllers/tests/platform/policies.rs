//! Whether the expressions of admission policies fit.

use k8s_openapi::api::admissionregistration::v1::ValidatingAdmissionPolicy;
use serde_json::{Value, json};

use crate::harness::Cluster;

fn policy(name: &str, resources: &[(&str, &str, &str)], more: Value) -> Value {
    let rule = |(group, version, resource): &(&str, &str, &str)| json!({"apiGroups": [group], "apiVersions": [version], "resources": [resource], "operations": ["CREATE"]});
    let rules: Vec<Value> = resources.iter().map(rule).collect();
    let mut spec = json!({"failurePolicy": "Fail", "matchConstraints": {"resourceRules": rules}});
    for (field, value) in more.as_object().unwrap() {
        spec[field] = value.clone();
    }
    json!({"metadata": {"name": name}, "spec": spec})
}

async fn checked(cluster: &Cluster, policy: Value) -> Vec<(String, String)> {
    let name = policy["metadata"]["name"].as_str().unwrap().to_owned();
    let _: ValidatingAdmissionPolicy = cluster.create(policy).await;
    let status = cluster
        .until(&format!("{name} is checked"), || async {
            let policy: ValidatingAdmissionPolicy = cluster.get("", &name).await?;
            let status = policy.status?;
            (status.observed_generation == policy.metadata.generation).then_some(status)
        })
        .await;
    let warnings = status.type_checking.unwrap().expression_warnings.unwrap_or_default();
    warnings.into_iter().map(|warning| (warning.field_ref, warning.warning)).collect()
}

#[tokio::test]
async fn expressions_are_checked_against_kinds() {
    let cluster = Cluster::start().await;
    let running = cluster.run(&["validatingadmissionpolicy-status-controller"]);
    let deployments = ("apps", "v1", "deployments");
    let expressions = |list: &[&str]| {
        let list: Vec<Value> = list.iter().map(|text| json!({"expression": text})).collect();
        json!({"validations": list})
    };
    let fits = expressions(&[
        "object.spec.replicas > 1 && object.metadata.name.startsWith('a')",
        "object.spec.template.spec.containers.all(c, c.image != '')",
        "request.userInfo.username != '' && namespaceObject.metadata.labels['a'] == 'b'",
        "authorizer.group('').resource('pods').check('get').allowed()",
    ]);
    assert_eq!(checked(&cluster, policy("fits", &[deployments], fits)).await, []);

    let wrong = expressions(&["object.foo == 'bar'", "object.spec.replicas > 1", "object.spec.replicas > '1'"]);
    let warnings = checked(&cluster, policy("wrong", &[deployments, ("", "v1", "pods")], wrong)).await;
    let undefined = |kind: &str, column: usize, field: &str, text: &str| {
        let pointer = ".".repeat(column - 1);
        format!("{kind}: ERROR: <input>:1:{column}: undefined field '{field}'\n | {text}\n | {pointer}^\n")
    };
    let text = "object.foo == 'bar'";
    let both = [undefined("/v1, Kind=Pod", 7, "foo", text), undefined("apps/v1, Kind=Deployment", 7, "foo", text)];
    assert_eq!(warnings[0], ("spec.validations[0].expression".to_owned(), both.join("\n")));
    let of_pods = undefined("/v1, Kind=Pod", 12, "replicas", "object.spec.replicas > 1");
    assert_eq!(warnings[1], ("spec.validations[1].expression".to_owned(), of_pods));
    assert!(warnings[2].1.contains("found no matching overload for '_>_' applied to '(int, string)'"), "{warnings:?}");

    // Variables have types, parameters too; who names no kind in particular is not checked.
    let more = json!({
        "paramKind": {"apiVersion": "v1", "kind": "ConfigMap"},
        "variables": [{"name": "many", "expression": "object.spec.replicas > 5"}],
        "validations": [{"expression": "variables.many == true || params.data['a'] == 'b'"},
                        {"expression": "variables.many == true", "messageExpression": "'no: ' + params.nothing"}],
    });
    let warnings = checked(&cluster, policy("variables", &[deployments], more)).await;
    let expected = undefined("apps/v1, Kind=Deployment", 16, "nothing", "'no: ' + params.nothing");
    assert_eq!(warnings, [("spec.validations[1].messageExpression".to_owned(), expected)]);
    let any = policy("any", &[("*", "v1", "deployments"), ("apps", "v1", "*")], expressions(&["object.foo == 1"]));
    assert_eq!(checked(&cluster, any).await, []);

    cluster.pass(&running, 3).await;
    let before = running.writes();
    cluster.pass(&running, 60).await;
    assert_eq!(running.writes(), before, "what was checked is not checked again");
    running.kill();
}
