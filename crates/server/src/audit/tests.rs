//! Policies and events.

use std::{
    fs,
    sync::{Arc, Mutex},
    time::Duration,
};

use capstan_api::{Status, json};
use capstan_clock::{ManualClock, SeededIds, Timestamp};

use super::*;
use crate::authorization::UserInfo;

const POLICY: &str = r#"
apiVersion: audit.k8s.io/v1
kind: Policy
omitStages: [Panic]
rules:
- {level: None, users: ["system:apiserver"]}
- {level: RequestResponse, resources: [{group: "", resources: [configmaps]}]}
- {level: Request, omitManagedFields: true, resources: [{group: apps}]}
- {level: None, nonResourceURLs: ["/healthz*", "/version"]}
- {level: None, verbs: [watch], userGroups: [g], resources: [{group: "*", resources: ["pods/*", "*/status"]}]}
- {level: Metadata, omitStages: [RequestReceived], namespaces: [a, ""], resources: [{group: "", resources: [secrets], resourceNames: [x]}]}
"#;

#[derive(Clone, Default)]
struct Lines(Arc<Mutex<Vec<String>>>);

impl Sink for Lines {
    fn write(&self, line: &[u8]) -> io::Result<()> {
        self.0.lock().unwrap().push(String::from_utf8(line.to_vec()).unwrap());
        Ok(())
    }
}

fn clock() -> ManualClock {
    ManualClock::at("2026-11-16T01:36:01.572767Z".parse::<Timestamp>().unwrap())
}

fn user() -> UserInfo {
    UserInfo::new("admin", ["system:masters", "system:authenticated"])
}

#[test]
fn the_first_rule_that_matches_decides() {
    let policy = Policy::parse(POLICY.as_bytes()).unwrap();
    let check = |name: &str, change: fn(&mut Attributes<'_>), expected: Level| {
        let user = UserInfo::new(name, ["g"]);
        let mut request = Attributes::resource(&user, "get", "", "pods");
        change(&mut request);
        assert_eq!(policy.evaluate(&request).level, expected, "{request:?}");
    };
    check("system:apiserver", |r| r.resource = "configmaps", Level::None);
    check("me", |r| r.resource = "configmaps", Level::RequestResponse);
    check("me", |r| (r.resource, r.subresource) = ("configmaps", "status"), Level::None);
    check("me", |r| (r.group, r.resource) = ("apps", "deployments"), Level::Request);
    check("me", |r| (r.group, r.resource, r.subresource) = ("apps", "deployments", "scale"), Level::Request);
    check("me", |r| (r.resource, r.name) = ("secrets", "x"), Level::Metadata);
    check("me", |r| (r.resource, r.name, r.namespace) = ("secrets", "x", "b"), Level::None);
    check("me", |r| (r.resource, r.name) = ("secrets", "y"), Level::None);
    check("me", |r| (r.is_resource, r.path) = (false, "/healthz/ping"), Level::None);
    let config =
        |resource| policy.evaluate(&Attributes { name: "x", ..Attributes::resource(&user(), "get", "", resource) });
    let omitted = |resource| Stage::ALL.map(|stage| config(resource).omit_stages.has(stage));
    assert_eq!(omitted("secrets"), [true, false, false, true], "those of the rule and those of the policy");
    assert_eq!(omitted("configmaps"), [false, false, false, true]);
}

#[test]
fn resources_of_rules() {
    let check = |own: &str, resource: &'static str, subresource: &'static str, expected: bool| {
        let text = format!(
            "{{apiVersion: audit.k8s.io/v1, kind: Policy, rules: [{{level: Metadata, resources: [{{group: '*', resources: ['{own}']}}]}}]}}"
        );
        let policy = Policy::parse(text.as_bytes()).unwrap();
        let user = user();
        let request = Attributes { subresource, ..Attributes::resource(&user, "get", "any", resource) };
        assert_eq!(policy.evaluate(&request).level == Level::Metadata, expected, "{own} {resource} {subresource}");
    };
    check("pods", "pods", "", true);
    check("pods", "pods", "log", false);
    check("pods/log", "pods", "log", true);
    check("pods/*", "pods", "log", true);
    check("pods/*", "pods", "", true);
    check("*/log", "pods", "log", true);
    check("*/log", "pods", "", false);
    check("*", "pods", "log", true);
}

#[test]
fn policies_that_cannot_be_used() {
    let check = |text: &str, expected: &str| {
        assert_eq!(Policy::parse(text.as_bytes()).unwrap_err().to_string(), expected, "{text}");
    };
    check("kind: Policy", "unknown group version field , Kind=Policy in policy");
    check("{apiVersion: audit.k8s.io/v1, kind: Policy}", "loaded illegal policy with 0 rules");
    let rule = |rule: &str, expected: &str| {
        check(&format!("{{apiVersion: audit.k8s.io/v1, kind: Policy, rules: [{rule}]}}"), expected);
    };
    rule("{}", "rules[0].level: Required value");
    rule(
        "{level: All}",
        r#"rules[0].level: Unsupported value: "All": supported values: "None", "Metadata", "Request", "RequestResponse""#,
    );
    rule(
        "{level: None, nonResourceURLs: ['a', '/*/b']}",
        r#"[rules[0].nonResourceURLs[0]: Invalid value: "a": non-resource URL rules must begin with a '/' character, rules[0].nonResourceURLs[1]: Invalid value: "/*/b": non-resource URL wildcards '*' must be the final character of the rule]"#,
    );
    rule(
        "{level: None, omitStages: [Never]}",
        r#"rules[0].omitStages[0]: Invalid value: "Never": allowed stages are RequestReceived,ResponseStarted,ResponseComplete,Panic"#,
    );
}

/// What upstream wrote for a create, with our user.
#[test]
fn events_are_written_as_upstream_writes_them() {
    let lines = Lines::default();
    let metrics = Metrics::new(0.0);
    let policy = Policy::parse(POLICY.as_bytes()).unwrap();
    let audit = Audit::new(policy, Box::new(lines.clone()), Arc::new(clock()), &metrics);
    let user = user();
    let mut attributes = Attributes::resource(&user, "create", "", "configmaps");
    (attributes.version, attributes.namespace) = ("v1", "kube-system");
    let request = Request {
        id: &HeaderValue::from_static("f5e5ac15-f242-47f1-8c97-8a8b0d31a97e"),
        uri: "/api/v1/namespaces/kube-system/configmaps?a=b&c=d",
        source_ips: &["127.0.0.1".to_owned()],
        user_agent: "curl/7.88.1",
        received: "2026-11-16T01:36:01.105283Z".parse().unwrap(),
        attributes: &attributes,
    };
    let mut event = audit.begin(&request).expect("it is recorded");
    audit.write(&mut event, Stage::RequestReceived).unwrap();
    event.decision(true, "");
    let object = br#"{"kind":"ConfigMap","apiVersion":"v1","metadata":{"name":"x"},"data":{"a":"<b>"}}"#;
    event.request_object(json::parse(object).unwrap());
    event.response_object(json::parse(b"{\"kind\":\"ConfigMap\"}\n").unwrap());
    event.code(201);
    audit.write(&mut event, Stage::ResponseComplete).unwrap();
    audit.write(&mut event, Stage::Panic).unwrap();
    let lines = lines.0.lock().unwrap();
    let head = r#"{"kind":"Event","apiVersion":"audit.k8s.io/v1","level":"RequestResponse","auditID":"f5e5ac15-f242-47f1-8c97-8a8b0d31a97e","stage":"#;
    let who = r#""requestURI":"/api/v1/namespaces/kube-system/configmaps?a=b\u0026c=d","verb":"create","user":{"username":"admin","groups":["system:masters","system:authenticated"]},"sourceIPs":["127.0.0.1"],"userAgent":"curl/7.88.1","#;
    assert_eq!(
        lines[0],
        format!(
            r#"{head}"RequestReceived",{who}"objectRef":{{"resource":"configmaps","namespace":"kube-system","apiVersion":"v1"}},"requestReceivedTimestamp":"2026-11-16T01:36:01.105283Z","stageTimestamp":"2026-11-16T01:36:01.105283Z"}}{}"#,
            "\n"
        )
    );
    assert_eq!(
        lines[1],
        format!(
            r#"{head}"ResponseComplete",{who}"objectRef":{{"resource":"configmaps","namespace":"kube-system","name":"x","apiVersion":"v1"}},"responseStatus":{{"metadata":{{}},"code":201}},"requestObject":{{"kind":"ConfigMap","apiVersion":"v1","data":{{"a":"\u003cb\u003e"}},"metadata":{{"name":"x"}}}},"responseObject":{{"kind":"ConfigMap"}},"requestReceivedTimestamp":"2026-11-16T01:36:01.105283Z","stageTimestamp":"2026-11-16T01:36:01.572767Z","annotations":{{"authorization.k8s.io/decision":"allow","authorization.k8s.io/reason":""}}}}{}"#,
            "\n"
        )
    );
    assert_eq!(lines.len(), 2, "the policy omits Panic");
    assert_eq!(metrics.audit_events.with(&[]).get(), 2);
    assert_eq!(metrics.audit_levels.with(&["RequestResponse"]).get(), 1);
}

#[test]
fn a_refusal_is_told_at_every_level_and_managed_fields_are_left_out() {
    let lines = Lines::default();
    let policy = Policy::parse(POLICY.as_bytes()).unwrap();
    let audit = Audit::new(policy, Box::new(lines.clone()), Arc::new(clock()), &Metrics::new(0.0));
    let user = user();
    let attributes =
        Attributes { version: "v1", name: "x", ..Attributes::resource(&user, "update", "apps", "deployments") };
    let id = HeaderValue::from_static("id");
    let request =
        Request { id: &id, uri: "/", source_ips: &[], user_agent: "", received: Time::ZERO, attributes: &attributes };
    let mut event = audit.begin(&request).unwrap();
    let object = br#"{"metadata":{"managedFields":[],"name":"x","uid":"u"}}"#;
    event.request_object(json::parse(object).unwrap());
    let resource = capstan_api::GroupResource { group: "apps".into(), resource: "deployments".into() };
    event.response_status(&Status::not_found(&resource, "x"));
    event.code(404);
    audit.write(&mut event, Stage::ResponseComplete).unwrap();
    let line = &lines.0.lock().unwrap()[0];
    for part in [
        r#""objectRef":{"resource":"deployments","name":"x","uid":"u","apiGroup":"apps","apiVersion":"v1"}"#,
        r#""responseStatus":{"metadata":{},"status":"Failure","message":"deployments.apps \"x\" not found","reason":"NotFound","details":{"name":"x","group":"apps","kind":"deployments"},"code":404}"#,
        r#""requestObject":{"metadata":{"name":"x","uid":"u"}}"#,
    ] {
        assert!(line.contains(part), "{part} in {line}");
    }
    assert!(!line.contains("responseObject"), "{line}");
}

#[test]
fn ids_of_clients_are_kept() {
    let ids = SeededIds::new(1);
    let mut headers = HeaderMap::new();
    let made = audit_id(&headers, &ids);
    assert_eq!(made.len(), 36);
    headers.insert("Audit-ID", HeaderValue::from_static(""));
    assert_eq!(audit_id(&headers, &ids).len(), 36);
    headers.insert("Audit-ID", HeaderValue::from_static("mine"));
    assert_eq!(audit_id(&headers, &ids), "mine");
}

#[test]
fn where_requests_come_from() {
    let check = |forwarded: &'static str, real: &'static str, expected: &[&str]| {
        let mut headers = HeaderMap::new();
        for (name, value) in [("x-forwarded-for", forwarded), ("x-real-ip", real)] {
            if !value.is_empty() {
                headers.insert(name, HeaderValue::from_static(value));
            }
        }
        assert_eq!(source_ips(&headers, Some("10.0.0.1".parse().unwrap())), expected, "{forwarded} {real}");
    };
    check("", "", &["10.0.0.1"]);
    check("1.2.3.4, nonsense,5.6.7.8", "", &["1.2.3.4", "5.6.7.8", "10.0.0.1"]);
    check("1.2.3.4", "1.2.3.4", &["1.2.3.4", "10.0.0.1"]);
    check("1.2.3.4", "::ffff:9.9.9.9", &["1.2.3.4", "9.9.9.9", "10.0.0.1"]);
    check("10.0.0.1", "", &["10.0.0.1"]);
    let mut headers = HeaderMap::new();
    headers.insert("user-agent", HeaderValue::from_str(&"a".repeat(1025)).unwrap());
    assert_eq!(user_agent(&headers), format!("{}...TRUNCATED", "a".repeat(1024)));
}

#[test]
fn full_files_are_put_aside() {
    let folder = std::env::temp_dir().join(format!("capstan-audit-{}", std::process::id()));
    fs::create_dir_all(&folder).unwrap();
    let clock = clock();
    let config = LogConfig { path: folder.join("audit.log"), max_age: 0, max_backup: 2, max_size: 1 };
    let log = LogFile::open(config, Arc::new(clock.clone())).unwrap();
    let line = vec![b'x'; 700_000];
    for _ in 0..5 {
        log.write(&line).unwrap();
        clock.advance(Duration::from_millis(1500));
    }
    let mut names: Vec<_> =
        fs::read_dir(&folder).unwrap().map(|entry| entry.unwrap().file_name().into_string().unwrap()).collect();
    names.sort();
    fs::remove_dir_all(&folder).unwrap();
    assert_eq!(names, ["audit-2026-11-16T01-36-06.072.log", "audit-2026-11-16T01-36-07.572.log", "audit.log"]);
}
