//! Requests and where they belong.

use capstan_api::{Value, json};

use super::*;
use crate::{authorization::UserInfo, bootstrap};

/// Flow control of a new cluster, whose uids are the names.
fn bootstrapped() -> FlowControl {
    let flow_control = FlowControl::default();
    for mut object in bootstrap::objects() {
        let name = object.get("metadata").and_then(|metadata| metadata.get("name")).cloned().unwrap_or(Value::Null);
        let metadata = object.get_mut("metadata").and_then(Value::as_object_mut).unwrap();
        metadata.insert("uid", format!("uid-of-{}", name.as_str().unwrap()));
        flow_control.upsert(object.as_object().unwrap());
    }
    flow_control
}

fn check(user: &UserInfo, change: impl FnOnce(&mut Attributes<'_>), schema: &str, level: &str) {
    let mut request = Attributes::resource(user, "get", "", "pods");
    request.namespace = "default";
    change(&mut request);
    let flow = bootstrapped().classify(&request).expect("there is a catch-all");
    assert_eq!((flow.flow_schema.as_str(), flow.priority_level.as_str()), (schema, level), "{request:?}");
}

#[test]
fn requests_of_a_new_cluster_belong_where_upstream_puts_them() {
    let user =
        |name: &str, groups: &[&str]| UserInfo::new(name, groups.iter().copied().chain(["system:authenticated"]));
    let admin = user("admin", &["system:masters"]);
    let somebody = user("somebody", &[]);
    let node = user("system:node:a", &["system:nodes"]);
    let account = user("system:serviceaccount:a:b", &["system:serviceaccounts", "system:serviceaccounts:a"]);
    let in_system =
        user("system:serviceaccount:kube-system:x", &["system:serviceaccounts", "system:serviceaccounts:kube-system"]);
    let controllers = user("system:kube-controller-manager", &[]);
    let nobody = UserInfo::new("system:anonymous", ["system:unauthenticated"]);
    let strange = UserInfo::new("strange", []);

    check(&admin, |_| {}, "exempt", "exempt");
    check(&somebody, |_| {}, "global-default", "global-default");
    check(&node, |_| {}, "system-nodes", "system");
    check(
        &node,
        |r| (r.resource, r.subresource, r.verb) = ("nodes", "status", "patch"),
        "system-node-high",
        "node-high",
    );
    check(
        &node,
        |r| (r.resource, r.group, r.namespace) = ("leases", "coordination.k8s.io", "kube-node-lease"),
        "system-node-high",
        "node-high",
    );
    check(&account, |_| {}, "service-accounts", "workload-low");
    check(&in_system, |_| {}, "kube-system-service-accounts", "workload-high");
    check(&controllers, |_| {}, "kube-controller-manager", "workload-high");
    check(
        &controllers,
        |r| (r.resource, r.group, r.namespace, r.verb) = ("leases", "coordination.k8s.io", "kube-system", "update"),
        "system-leader-election",
        "leader-election",
    );
    check(&nobody, |_| {}, "global-default", "global-default");
    check(&strange, |_| {}, "catch-all", "catch-all");
    let path =
        |path: &'static str| move |r: &mut Attributes<'_>| (r.path, r.is_resource, r.namespace) = (path, false, "");
    check(&nobody, path("/readyz"), "probes", "exempt");
    check(&nobody, path("/readyz/ping"), "probes", "exempt");
    check(&somebody, path("/version"), "global-default", "global-default");
}

fn parse(text: &str) -> Value {
    json::parse(text.as_bytes()).unwrap()
}

fn schema(name: &str, precedence: i64, rule: &str) -> Value {
    parse(&format!(
        r#"{{"kind":"FlowSchema","metadata":{{"name":"{name}","uid":"u-{name}"}},"spec":{{"matchingPrecedence":{precedence},
        "priorityLevelConfiguration":{{"name":"level"}},"rules":[{{"subjects":[{{"kind":"Group","group":{{"name":"*"}}}}],{rule}}}]}}}}"#
    ))
}

#[test]
fn the_lower_precedence_wins_then_the_name() {
    const ANY: &str = r#""resourceRules":[{"verbs":["*"],"apiGroups":["*"],"resources":["*"],"clusterScope":true,"namespaces":["*"]}]"#;
    let flow_control = FlowControl::default();
    let user = UserInfo::new("me", []);
    let request = Attributes::resource(&user, "get", "", "pods");
    let name = || flow_control.classify(&request).map(|flow| flow.flow_schema.to_string());
    flow_control.upsert(schema("b", 20, ANY).as_object().unwrap());
    assert_eq!(name(), None, "its level is missing");
    flow_control.upsert(
        parse(r#"{"kind":"PriorityLevelConfiguration","metadata":{"name":"level","uid":"u"}}"#).as_object().unwrap(),
    );
    assert_eq!(name().as_deref(), Some("b"));
    flow_control.upsert(schema("a", 20, ANY).as_object().unwrap());
    assert_eq!(name().as_deref(), Some("a"));
    flow_control.upsert(schema("z", 3, ANY).as_object().unwrap());
    assert_eq!(name().as_deref(), Some("z"));
    flow_control.remove("FlowSchema", "z");
    flow_control.remove("FlowSchema", "a");
    assert_eq!(name().as_deref(), Some("b"));
    flow_control.remove("PriorityLevelConfiguration", "level");
    assert_eq!(name(), None);
}

#[test]
fn paths_match_from_slash_to_slash() {
    let flow_control = FlowControl::default();
    flow_control.upsert(
        schema("paths", 1, r#""nonResourceRules":[{"verbs":["get"],"nonResourceURLs":["/a","/b/*"]}]"#)
            .as_object()
            .unwrap(),
    );
    flow_control.upsert(
        parse(r#"{"kind":"PriorityLevelConfiguration","metadata":{"name":"level","uid":"u"}}"#).as_object().unwrap(),
    );
    let user = UserInfo::new("me", []);
    for (path, matches) in
        [("/a", true), ("/a/c", true), ("/ab", false), ("/b", false), ("/b/", true), ("/b/c/d", true), ("/", false)]
    {
        let found = flow_control.classify(&Attributes::non_resource(&user, "get", path)).is_some();
        assert_eq!(found, matches, "{path}");
        assert!(flow_control.classify(&Attributes::non_resource(&user, "post", path)).is_none());
    }
}

#[test]
fn headers_name_both() {
    let user = UserInfo::new("admin", ["system:masters"]);
    let mut headers = HeaderMap::new();
    bootstrapped().classify(&Attributes::resource(&user, "get", "", "pods")).unwrap().write(&mut headers);
    assert_eq!(headers["X-Kubernetes-PF-FlowSchema-UID"], "uid-of-exempt");
    assert_eq!(headers["X-Kubernetes-PF-PriorityLevel-UID"], "uid-of-exempt");
}
