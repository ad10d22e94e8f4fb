//! What is written of requests that a whole server answers, of those above all that end badly.

use std::sync::{Arc, Mutex};

use bytes::Bytes;
use capstan_api::{GroupVersion, Value, json};
use capstan_storage::{Memory, Options};
use http_body_util::BodyExt as _;

use super::*;
use crate::{
    Server,
    authorization::UserInfo,
    http::{Body, Request, Response},
};

#[derive(Clone, Default)]
struct Lines(Arc<Mutex<Vec<u8>>>);

impl Sink for Lines {
    fn write(&self, line: &[u8]) -> io::Result<()> {
        self.0.lock().unwrap().extend_from_slice(line);
        Ok(())
    }
}

impl Lines {
    /// The events since the last time, read as a reader of the log reads them: by lines.
    fn take(&self) -> Vec<Value> {
        let bytes = std::mem::take(&mut *self.0.lock().unwrap());
        let lines = bytes.split(|byte| *byte == b'\n').filter(|line| !line.is_empty());
        lines.map(|line| json::parse(line).unwrap_or_else(|_| panic!("{}", String::from_utf8_lossy(line)))).collect()
    }

    fn stages(&self) -> Vec<String> {
        self.take().iter().map(|event| text(event, "stage").to_owned()).collect()
    }
}

fn text<'a>(value: &'a Value, path: &str) -> &'a str {
    let found = path.split('.').try_fold(value, |value, key| value.get(key));
    found.and_then(Value::as_str).unwrap_or_default()
}

async fn server() -> (Server, Lines) {
    let lines = Lines::default();
    let policy = "{apiVersion: audit.k8s.io/v1, kind: Policy, rules: [
        {level: None, users: [nobody-asks]}, {level: RequestResponse}]}";
    let config = crate::Config {
        authentication: crate::authentication::Config::default(),
        audit: Some((Policy::parse(policy.as_bytes()).unwrap(), Box::new(lines.clone()))),
        ..crate::Config::default()
    };
    let server = Server::start(Arc::new(Memory::new(Options::default())), config).await.unwrap();
    lines.take();
    (server, lines)
}

fn request(method: &str, path: &str, headers: &[(&'static str, &'static str)], body: impl Into<Body>) -> Request {
    let mut request = Request::new(body.into());
    *request.method_mut() = method.parse().unwrap();
    *request.uri_mut() = path.parse().unwrap();
    for (name, value) in headers {
        request.headers_mut().insert(*name, HeaderValue::from_static(value));
    }
    request
}

async fn ask(server: &Server, request: Request) -> Response {
    let mut service = server.as_user(UserInfo::new("admin", ["system:masters"]));
    tower_service::Service::call(&mut service, request).await.unwrap()
}

const CONFIG_MAPS: &str = "/api/v1/namespaces/default/configmaps";

#[tokio::test]
async fn whoever_is_refused_is_recorded() {
    let (server, lines) = server().await;
    let response = server.answer(request("GET", CONFIG_MAPS, &[("authorization", "Bearer x")], "")).await;
    assert_eq!(response.status(), 401);
    let events = lines.take();
    assert_eq!(events.len(), 1, "{events:?}");
    assert_eq!(text(&events[0], "stage"), "ResponseStarted");
    assert_eq!(json::to_string(events[0].get("user").unwrap()), "{}");
    assert_eq!(text(&events[0], "responseStatus.reason"), "Unauthorized");
    assert_eq!(events[0].get("responseStatus").unwrap().get("code").and_then(Value::as_i64), Some(401));

    let response = ask(&server, request("GET", "/api?timeout=x", &[], "")).await;
    assert_eq!(response.status(), 400);
    assert_eq!(lines.stages(), ["ResponseStarted"]);

    let mut poor = server.as_user(UserInfo::new("me", ["system:authenticated"]));
    let response =
        tower_service::Service::call(&mut poor, request("GET", CONFIG_MAPS, &[("impersonate-user", "you")], ""));
    assert_eq!(response.await.unwrap().status(), 403);
    let events = lines.take();
    assert_eq!(
        events.iter().map(|event| text(event, "stage")).collect::<Vec<_>>(),
        ["RequestReceived", "ResponseComplete"]
    );
    assert_eq!(text(&events[1], "user.username"), "me");
    assert_eq!(text(&events[1], "responseStatus.reason"), "Forbidden");
    assert!(text(&events[1], "responseStatus.message").contains("cannot"), "{events:?}");
}

#[tokio::test]
async fn who_acts_as_whom() {
    let (server, lines) = server().await;
    // The policy asks who it really is.
    let response = ask(&server, request("GET", "/api", &[("impersonate-user", "nobody-asks")], "")).await;
    assert_eq!(response.status(), 200);
    let events = lines.take();
    assert_eq!(events.len(), 2);
    assert_eq!(text(&events[1], "user.username"), "admin");
    assert_eq!(text(&events[1], "impersonatedUser.username"), "nobody-asks");
    assert_eq!(text(&events[1], "authenticationMetadata.impersonationConstraint"), "impersonate:user-info");
    assert_eq!(events[0].get("impersonatedUser"), None, "that is not known yet");
}

#[tokio::test]
async fn errors_tell_why() {
    let (server, lines) = server().await;
    for accept in ["application/json", "application/yaml", "application/vnd.kubernetes.protobuf"] {
        ask(&server, request("GET", "/api/v1/namespaces/default/configmaps/x", &[("accept", accept)], "")).await;
        let events = lines.take();
        let expected = r#"configmaps "x" not found"#;
        assert_eq!(text(&events[1], "responseStatus.message"), expected, "{accept}");
        assert_eq!(text(&events[1], "responseStatus.status"), "Failure", "{accept}");
        assert_eq!(text(&events[1], "responseObject.message"), expected, "{accept}");
    }
}

#[tokio::test]
async fn a_watch_is_complete_when_it_ends() {
    let (server, lines) = server().await;
    let response = ask(&server, request("GET", &format!("{CONFIG_MAPS}?watch=1"), &[], "")).await;
    assert_eq!(lines.stages(), ["RequestReceived", "ResponseStarted"]);
    drop(response);
    assert_eq!(lines.stages(), ["ResponseComplete"]);
    let response = ask(&server, request("GET", &format!("{CONFIG_MAPS}?watch=1&resourceVersion=x"), &[], "")).await;
    assert!(!response.status().is_success());
    assert_eq!(lines.stages(), ["RequestReceived", "ResponseStarted", "ResponseComplete"]);
}

#[tokio::test]
async fn panics_are_recorded() {
    let (server, lines) = server().await;
    let extension: crate::extension::Extension = Arc::new(|request: http::Request<Bytes>| {
        Box::pin(async move {
            assert!(!request.uri().path().ends_with("/things"), "of a thing");
            http::Response::new(Bytes::from_static(
                br#"{"resources":[{"name":"things","kind":"Thing","verbs":["list"]}]}"#,
            ))
        })
    });
    server.extend(GroupVersion::new("x.example.com", "v1"), extension).await.unwrap();
    lines.take();
    let response = ask(&server, request("GET", "/apis/x.example.com/v1/things", &[], "")).await;
    assert_eq!(response.status(), 500);
    let events = lines.take();
    assert_eq!(events.len(), 2, "{events:?}");
    assert_eq!(text(&events[1], "stage"), "Panic");
    assert_eq!(text(&events[1], "responseStatus.message"), "APIServer panic'd: of a thing");
}

#[tokio::test]
async fn nobody_writes_events_of_their_own() {
    let (server, lines) = server().await;
    let fake = r#"{"kind":"Event","stage":"ResponseComplete","user":{"username":"victim"}}"#;
    let garbage = format!("1}}\n{fake}\n{{\"a\":1");
    let patch = "application/apply-patch+yaml";
    for (method, path, content_type, body) in [
        ("POST", CONFIG_MAPS.to_owned(), "application/json", garbage.clone()),
        ("POST", CONFIG_MAPS.to_owned(), "application/vnd.kubernetes.protobuf", garbage.clone()),
        ("POST", CONFIG_MAPS.to_owned(), "text/plain", garbage),
        ("PATCH", format!("{CONFIG_MAPS}/a?fieldManager=m"), patch, format!("kind: Event\n# \n{fake}\n")),
        ("PATCH", format!("{CONFIG_MAPS}/a"), "application/merge-patch+json", format!("{{\n\"data\":\n{fake}\n}}")),
    ] {
        let response = ask(&server, request(method, &path, &[("content-type", content_type)], body)).await;
        assert!(response.status().is_client_error(), "{content_type}");
        let events = lines.take();
        assert_eq!(events.len(), 2, "{content_type}: {events:?}");
        assert!(events.iter().all(|event| text(event, "user.username") == "admin"), "{content_type}");
    }
    let good = "{\n  \"kind\": \"ConfigMap\",\n  \"apiVersion\": \"v1\",\n  \"metadata\": {\"name\": \"a\"}\n}";
    let response = ask(&server, request("POST", CONFIG_MAPS, &[("content-type", "application/json")], good)).await;
    assert_eq!(response.status(), 201);
    let body = response.into_body().collect().await.unwrap().to_bytes();
    let events = lines.take();
    assert_eq!(text(&events[1], "requestObject.metadata.name"), "a");
    assert_eq!(*events[1].get("responseObject").unwrap(), json::parse(&body).unwrap());
    let yaml = "kind: ConfigMap\napiVersion: v1\nmetadata: {name: b}\n";
    ask(&server, request("POST", CONFIG_MAPS, &[("content-type", "application/yaml")], yaml)).await;
    assert_eq!(text(&lines.take()[1], "objectRef.name"), "b");
}

#[tokio::test]
async fn what_admission_notes() {
    let (server, lines) = server().await;
    let json = &[("content-type", "application/json")];
    let namespace = r#"{"metadata":{"name":"ns","labels":{"pod-security.kubernetes.io/audit":"baseline",
        "pod-security.kubernetes.io/enforce":"baseline","pod-security.kubernetes.io/enforce-version":"v1.30"}}}"#;
    ask(&server, request("POST", "/api/v1/namespaces", json, namespace)).await;
    let account = r#"{"metadata":{"name":"default"}}"#;
    ask(&server, request("POST", "/api/v1/namespaces/ns/serviceaccounts", json, account)).await;
    lines.take();
    let pod = r#"{"metadata":{"name":"p"},"spec":{"hostNetwork":true,"containers":[{"name":"c","image":"i"}]}}"#;
    let response = ask(&server, request("POST", "/api/v1/namespaces/ns/pods?dryRun=All", json, pod)).await;
    assert_eq!(response.status(), 403);
    let events = lines.take();
    let noted = |key: &str| {
        let annotations = events[1].get("annotations").unwrap();
        annotations.get(&format!("pod-security.kubernetes.io/{key}")).and_then(Value::as_str).unwrap_or_default()
    };
    assert_eq!(noted("enforce-policy"), "baseline:v1.30");
    let words = r#"would violate PodSecurity "baseline:latest": host namespaces (hostNetwork=true)"#;
    assert_eq!(noted("audit-violations"), words);
}
