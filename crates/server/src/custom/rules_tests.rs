//! Rules in CEL and scales of custom resources, over a server in this process.

use capstan_api::Value;

use crate::testing::World;

/// A kind with two versions, whose spec is to be filled in.
fn crd(spec: &str) -> String {
    let version = |name: &str, storage: bool| {
        format!(
            r#"{{"name":"{name}","served":true,"storage":{storage},
            "subresources":{{"scale":{{"specReplicasPath":".spec.size","statusReplicasPath":".status.size"}}}},
            "schema":{{"openAPIV3Schema":{{"type":"object","properties":{{"spec":{spec},
            "status":{{"type":"object","properties":{{"size":{{"type":"integer"}}}}}}}}}}}}}}"#
        )
    };
    format!(
        r#"{{"apiVersion":"apiextensions.k8s.io/v1","kind":"CustomResourceDefinition",
        "metadata":{{"name":"ranges.example.com"}},"spec":{{"group":"example.com","scope":"Namespaced",
        "names":{{"plural":"ranges","kind":"Range"}},"versions":[{},{}]}}}}"#,
        version("v1", true),
        version("v2", false)
    )
}

const RANGES: &str = "/apis/example.com/v1/namespaces/default/ranges";

fn range(spec: &str) -> String {
    format!(r#"{{"apiVersion":"example.com/v1","kind":"Range","metadata":{{"name":"a"}},"spec":{spec}}}"#)
}

/// Replaces the rules of the kind, and waits until they hold: until what breaks them is refused.
async fn tighten(world: &World, path: &str, spec: &str, broken: &str) {
    let version = world.get(path).await.at("metadata.resourceVersion");
    let named = format!(r#""resourceVersion":"{version}","name":"ranges."#);
    let changed = crd(spec).replace(r#""name":"ranges."#, &named);
    let changed = world.send("PUT", path, "application/json", "application/json", changed).await;
    assert_eq!(changed.code, 200, "{}", changed.body);
    let probe = format!("{RANGES}?dryRun=All");
    let broken = range(broken).replace(r#""name":"a""#, r#""name":"probe""#);
    world.until(|| async { world.post(&probe, &broken).await.code == 422 }).await;
}

#[tokio::test]
async fn rules_are_forgiven_where_their_value_is_what_it_was() {
    let world = World::start().await;
    let plain = r#"{"type":"object","properties":{"n":{"type":"integer"},"min":{"type":"integer"},
        "max":{"type":"integer"},"size":{"type":"integer"},
        "items":{"type":"array","x-kubernetes-list-type":"map","x-kubernetes-list-map-keys":["k"],
            "items":{"type":"object","required":["k"],"properties":{"k":{"type":"string"},"v":{"type":"integer"}}}}}}"#;
    let path = world.define(&crd(plain)).await;
    let made = world.post(RANGES, &range(r#"{"n":5,"min":1,"max":2,"items":[{"k":"x","v":9}]}"#)).await;
    assert_eq!(made.code, 201, "{}", made.body);
    let ruled = plain
        .replace(r#""n":{"type":"integer"}"#, r#""n":{"type":"integer","x-kubernetes-validations":[{"rule":"self > oldSelf"}]}"#)
        .replace(r#""v":{"type":"integer"}"#, r#""v":{"type":"integer","x-kubernetes-validations":[{"rule":"self < 5"}]}"#)
        .replacen(
            r#"{"type":"object","#,
            r#"{"type":"object","x-kubernetes-validations":[{"rule":"!has(self.max) || self.min <= self.max","fieldPath":".max"}],"#,
            1,
        );
    tighten(&world, &path, &ruled, r#"{"min":3,"max":2}"#).await;
    let one = format!("{RANGES}/a");

    // A rule that compares with the old value is about the change, even if there is none.
    let label = world.merge(&one, r#"{"metadata":{"labels":{"a":"b"}}}"#).await;
    assert_eq!(label.code, 422, "{}", label.body);
    assert_eq!(label.at("details.causes.0.field"), "spec.n");

    // What breaks a rule and is as it was is told, not refused: the element is found again by its key.
    let grown = world.merge(&one, r#"{"spec":{"n":6}}"#).await;
    assert_eq!(grown.code, 200, "{}", grown.body);
    assert_eq!(grown.warnings, [r#"299 - "spec.items[0].v: Invalid value: 9: failed rule: self < 5""#]);

    // The rule is of the spec, which has changed; that the field it names has not is no excuse.
    let min = world.merge(&one, r#"{"spec":{"n":7,"min":3}}"#).await;
    assert_eq!((min.code, &*min.at("details.causes.0.field")), (422, "spec.max"), "{}", min.body);
}

#[tokio::test]
async fn scales_own_the_field_that_the_definition_names() {
    let world = World::start().await;
    world.define(&crd(r#"{"type":"object","properties":{"size":{"type":"integer"},"note":{"type":"string"}}}"#)).await;
    let one = format!("{RANGES}/a");
    world.post(RANGES, &range(r#"{"note":"n","size":1}"#)).await;

    world.post(RANGES, &range("{}").replace(r#""name":"a""#, r#""name":"b""#)).await;
    let empty = world.merge(&format!("{RANGES}/b/scale"), "{}").await;
    assert_eq!(empty.code, 400, "{}", empty.body);
    assert_eq!(empty.at("message"), r#"the spec replicas field ".spec.size" cannot be empty"#);

    let scale = one.replace("v1", "v2") + "/scale?fieldManager=scaler";
    let scaled = world.merge(&scale, r#"{"spec":{"replicas":3}}"#).await;
    assert_eq!((scaled.code, &*scaled.at("spec.replicas")), (200, "3"), "{}", scaled.body);
    let object = world.get(&one).await;
    let entries = object.body.get("metadata").and_then(|metadata| metadata.get("managedFields")?.as_array());
    let entry = |version: &str| {
        let of = |entry: &&Value| entry.get("apiVersion").and_then(Value::as_str) == Some(version);
        entries.and_then(|all| all.iter().find(of)).and_then(|entry| entry.get("fieldsV1")).map(ToString::to_string)
    };
    assert_eq!(entry("example.com/v2").as_deref(), Some(r#"{"f:spec":{"f:size":{}}}"#), "{}", object.body);
    // Who wrote the object in the other version still owns what they wrote.
    assert_eq!(entry("example.com/v1").as_deref(), Some(r#"{"f:spec":{".":{},"f:note":{}}}"#), "{}", object.body);

    let late = world.get(&format!("{one}/scale?resourceVersion=99999999")).await;
    assert_eq!(late.code, 504, "{}", late.body);
}

#[tokio::test]
async fn nothing_is_applied_to_a_kind_that_goes() {
    let world = World::start().await;
    let path = world.define(&crd(r#"{"type":"object","x-kubernetes-preserve-unknown-fields":true}"#)).await;
    let held = range("{}").replace(r#""name":"a""#, r#""name":"a","finalizers":["example.com/hold"]"#);
    assert_eq!(world.post(RANGES, &held).await.code, 201);
    world.delete(&path).await;
    let apply = async || {
        let body = range("{}").replace(r#""name":"a""#, r#""name":"b""#);
        let path = format!("{RANGES}/b?fieldManager=m&dryRun=All");
        world.send("PATCH", &path, "application/apply-patch+yaml", "application/json", body).await
    };
    world.until(|| async { apply().await.code == 403 }).await;
    let words = "create not allowed while custom resource definition is terminating";
    assert_eq!(apply().await.at("message"), format!(r#"ranges.example.com "b" is forbidden: {words}"#));
}
