//! What handlers answer, over a server in this process.

use http_body_util::BodyExt as _;

use crate::{authorization::UserInfo, testing::World};

#[tokio::test]
async fn system_priority_classes_stay() {
    let world = World::start().await;
    let answer = world.delete("/apis/scheduling.k8s.io/v1/priorityclasses/system-node-critical").await;
    let words = "this is a system priority class and cannot be deleted";
    assert_eq!(answer.code, 403, "{}", answer.body);
    let expected = format!(r#"priorityclasses.scheduling.k8s.io "system-node-critical" is forbidden: {words}"#);
    assert_eq!(answer.at("message"), expected);
}

const MAPS: &str = "/api/v1/namespaces/default/configmaps";

#[tokio::test]
async fn a_name_beside_the_beginning_of_one_counts_as_generated() {
    let world = World::start().await;
    let map = r#"{"metadata":{"name":"a","generateName":"a"}}"#;
    assert_eq!(world.post(MAPS, map).await.code, 201);
    let again = world.post(MAPS, map).await;
    let expected = r#"configmaps "a" already exists, the server was not able to generate a unique name for the object"#;
    assert_eq!((again.code, &*again.at("message")), (409, expected));
    assert_eq!(again.at("details.retryAfterSeconds"), "1");
}

#[tokio::test]
async fn entries_of_managers_are_cleared_by_every_write() {
    let world = World::start().await;
    let patch = r#"{"metadata":{"managedFields":[]}}"#;
    let yaml = "apiVersion: v1\nkind: ConfigMap\nmetadata: {name: put, managedFields: []}\ndata: {a: b}\n";
    let writes = [
        ("merge", "PATCH", "application/merge-patch+json", patch),
        ("strategic", "PATCH", "application/strategic-merge-patch+json", patch),
        ("put", "PUT", "application/yaml", yaml),
    ];
    for (name, method, content_type, body) in writes {
        let made = world.post(MAPS, &format!(r#"{{"metadata":{{"name":"{name}"}},"data":{{"a":"b"}}}}"#)).await;
        assert_ne!(made.at("metadata.managedFields"), "");
        let one = format!("{MAPS}/{name}");
        let cleared = world.send(method, &one, content_type, "application/json", body.to_owned()).await;
        assert_eq!((cleared.code, &*cleared.at("metadata.managedFields")), (200, ""), "{name}");
    }
}

/// As Go's encoder does it.
#[tokio::test]
async fn a_line_ends_where_nothing_is_indented() {
    let world = World::start().await;
    for (query, end) in [("", &b"}\n"[..]), ("?pretty=true", b"\n}")] {
        let path = format!("/api/v1/namespaces/default{query}");
        let answer = world.respond("GET", &path, "", "application/json", String::new()).await;
        let text = answer.into_body().collect().await.unwrap().to_bytes();
        assert!(text.ends_with(end), "{text:?}");
    }
}

/// Before options and bodies are looked at.
#[tokio::test]
async fn creates_of_all_kinds_ask_for_forms_first() {
    let world = World::start().await;
    let (json, table) = ("application/json", "application/json;as=Table;g=meta.k8s.io;v=v1");
    for (path, has_table) in [
        ("/api/v1/namespaces/default/configmaps", true),
        ("/api/v1/namespaces/default/bindings", false),
        ("/api/v1/namespaces/default/pods/a/eviction", false),
        ("/api/v1/namespaces/default/serviceaccounts/a/token", false),
        ("/apis/authentication.k8s.io/v1/tokenreviews", false),
    ] {
        let path = format!("{path}?dryRun=X");
        let codes =
            async |content_type, accept| world.send("POST", &path, content_type, accept, "{}".to_owned()).await.code;
        assert_eq!(codes("text/plain", json).await, 415, "{path}");
        assert_eq!(codes(json, table).await, if has_table { 422 } else { 406 }, "{path}");
        assert_eq!(codes(json, json).await, 422, "{path}");
    }
}

#[tokio::test]
async fn endpoints_go_with_their_service() {
    let world = World::start().await;
    let (services, endpoints) = (MAPS.replace("configmaps", "services"), MAPS.replace("configmaps", "endpoints"));
    world.post(&services, r#"{"metadata":{"name":"a"},"spec":{"ports":[{"port":1}]}}"#).await;
    assert_eq!(world.post(&endpoints, r#"{"metadata":{"name":"a"}}"#).await.code, 201);
    assert_eq!(world.delete(&format!("{services}/a")).await.code, 200);
    assert_eq!(world.get(&format!("{endpoints}/a")).await.code, 404);
}

const PODS: &str = "/api/v1/namespaces/default/pods";

async fn pod(world: &World) {
    world.post("/api/v1/namespaces/default/serviceaccounts", r#"{"metadata":{"name":"default"}}"#).await;
    let pod = r#"{"metadata":{"name":"a","labels":{"a":"b"}},"spec":{"containers":[{"name":"c","image":"i"}]}}"#;
    let made = world.post(PODS, pod).await;
    assert_eq!(made.code, 201, "{}", made.body);
}

#[tokio::test]
async fn budgets_say_why_they_allow_nothing() {
    let world = World::start().await;
    pod(&world).await;
    let running = r#"{"status":{"phase":"Running","conditions":[{"type":"Ready","status":"True"}]}}"#;
    world.merge(&format!("{PODS}/a/status"), running).await;
    let budgets = "/apis/policy/v1/namespaces/default/poddisruptionbudgets";
    world.post(budgets, r#"{"metadata":{"name":"b"},"spec":{"selector":{"matchLabels":{"a":"b"}}}}"#).await;
    // Both versions are taken.
    let evict = async |version: &str| {
        let body = format!(r#"{{"apiVersion":"policy/{version}","kind":"Eviction","metadata":{{"name":"a"}}}}"#);
        world.post(&format!("{PODS}/a/eviction"), &body).await
    };
    let cause = async |status: &str| {
        let status = format!(r#"{{"status":{{"observedGeneration":1,"disruptionsAllowed":0,{status}}}}}"#);
        let put = world.merge(&format!("{budgets}/b/status"), &status).await;
        assert_eq!(put.code, 200, "{}", put.body);
        let answer = evict("v1beta1").await;
        assert_eq!(answer.code, 429, "{}", answer.body);
        answer.at("details.causes.0.message")
    };
    let condition = |reason: &str| {
        format!(
            r#""conditions":[{{"type":"DisruptionAllowed","status":"False","reason":"{reason}","message":"m",
            "lastTransitionTime":"2020-01-01T00:00:00Z"}}]"#
        )
    };
    let none = "The disruption budget b does not allow evicting pods currently";
    let few = "The disruption budget b needs 2 healthy pods and has 1 currently";
    assert_eq!(cause(r#""desiredHealthy":2,"currentHealthy":1,"expectedPods":2"#).await, few);
    assert_eq!(cause(r#""desiredHealthy":1,"currentHealthy":2"#).await, none);
    assert_eq!(cause(&condition("Other")).await, format!("{none} (Other): m"));
    assert_eq!(cause(&condition("SyncFailed")).await, format!("{none} because it failed sync: m"));
    assert_eq!(evict("v2").await.code, 400);
}

#[tokio::test]
async fn a_binding_without_a_node_fails_as_it_does_upstream() {
    let world = World::start().await;
    pod(&world).await;
    let bound = world.post(&format!("{PODS}/a/binding"), r#"{"metadata":{"name":"a"},"target":{"kind":"Node"}}"#).await;
    assert_eq!((bound.code, &*bound.at("message"), &*bound.at("reason")), (500, "target.name: Required value", ""));
}

/// A role, and that somebody has it.
async fn allow(world: &World, user: &str, rules: &str) {
    let rbac = "/apis/rbac.authorization.k8s.io/v1/namespaces/default";
    let role = format!(r#"{{"metadata":{{"name":"{user}"}},"rules":[{rules}]}}"#);
    assert_eq!(world.post(&format!("{rbac}/roles"), &role).await.code, 201);
    let binding = format!(
        r#"{{"metadata":{{"name":"{user}"}},"roleRef":{{"apiGroup":"rbac.authorization.k8s.io","kind":"Role",
        "name":"{user}"}},"subjects":[{{"apiGroup":"rbac.authorization.k8s.io","kind":"User","name":"{user}"}}]}}"#
    );
    assert_eq!(world.post(&format!("{rbac}/rolebindings"), &binding).await.code, 201);
}

#[tokio::test]
async fn who_may_look_at_a_shell_may_not_open_one() {
    let world = World::start().await;
    pod(&world).await;
    allow(&world, "eve", r#"{"apiGroups":[""],"resources":["pods/exec"],"verbs":["get"]}"#).await;
    let exec = format!("{PODS}/a/exec?command=sh&stdout=1");
    let refused = world.send_as(UserInfo::new("eve", ["system:authenticated"]), "GET", &exec, "").await;
    assert_eq!((refused.code, &*refused.at("message")), (403, r#"pods "a" is forbidden: "#), "{}", refused.body);
}

#[tokio::test]
async fn escalation_is_allowed_by_the_name_in_the_path() {
    let world = World::start().await;
    let rules = r#"{"apiGroups":["rbac.authorization.k8s.io"],"resources":["roles"],"verbs":["create"]},
        {"apiGroups":["rbac.authorization.k8s.io"],"resources":["roles"],"verbs":["escalate"],"resourceNames":["foo"]}"#;
    allow(&world, "eve", rules).await;
    let role = r#"{"metadata":{"name":"foo"},"rules":[{"apiGroups":[""],"resources":["secrets"],"verbs":["get"]}]}"#;
    let roles = "/apis/rbac.authorization.k8s.io/v1/namespaces/default/roles";
    let refused = world.send_as(UserInfo::new("eve", ["system:authenticated"]), "POST", roles, role).await;
    assert_eq!(refused.code, 403, "{}", refused.body);
    assert!(refused.at("message").contains("attempting to grant RBAC permissions not currently held"));
}
