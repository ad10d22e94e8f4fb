//! Requests as nobody should send them, with what upstream v1.36 answered.

use std::sync::Arc;

use capstan_api::{Value, json};
use capstan_storage::{Memory, Options};
use http_body_util::BodyExt as _;

use crate::{
    Config, InProcessUser, Server,
    authorization::{SYSTEM_MASTERS, UserInfo},
    http::{Body, Request},
};

/// A request a line: method, target, `Accept`, `Content-Type`, whom to impersonate, the code, what headers there are,
/// and the message.
static CASES: &str = include_str!("routes_cases.txt");

#[tokio::test]
async fn what_is_not_served_is_refused_as_upstream_does() {
    let server = Server::start(Arc::new(Memory::new(Options::default())), Config::default()).await.unwrap();
    for line in CASES.lines() {
        let [method, target, accept, content_type, user, code, flags, message] =
            line.split('\t').collect::<Vec<_>>().try_into().unwrap();
        let admin = UserInfo { name: "admin".into(), groups: vec![SYSTEM_MASTERS.into()], ..UserInfo::default() };
        let mut request = http::Request::builder().method(method).uri(target).extension(InProcessUser(admin));
        for (name, value) in [("accept", accept), ("content-type", content_type), ("impersonate-user", user)] {
            if !value.is_empty() {
                request = request.header(name, value);
            }
        }
        let body = if matches!(method, "POST" | "PUT" | "PATCH") { "{}" } else { "" };
        let request: Request = request.body(Body::from(body.to_owned())).unwrap();
        let response = server.answer(request).await;
        let named =
            [("x-content-type-options", "nosniff"), ("x-kubernetes-pf-flowschema-uid", "flow"), ("warning", "warning")];
        let found: Vec<_> =
            named.iter().filter(|(name, _)| response.headers().contains_key(*name)).map(|(_, flag)| *flag).collect();
        assert_eq!((response.status().as_str(), &*found.join(" ")), (code, flags), "{line}");
        // What cannot be understood is refused by whoever stands before the one who says this.
        let kept = response.headers().get("cache-control").map(|value| value.to_str().unwrap());
        assert_eq!(kept, (code != "500").then_some("no-cache, private"), "{line}");
        let body = response.into_body().collect().await.unwrap().to_bytes();
        if method == "HEAD" {
            continue; // The connection drops the body.
        }
        let said = match json::parse(&body) {
            Ok(status) => status.get("message").and_then(Value::as_str).unwrap_or_default().to_owned(),
            Err(_) => String::from_utf8_lossy(&body).into_owned(),
        };
        assert_eq!(said.trim_end().replace('\n', "\\n"), message, "{line}");
    }
}

/// There are as many of these as there are requests under way, and each is moved more than once before it runs.
#[tokio::test]
async fn a_request_under_way_is_small() {
    let server = Server::start(Arc::new(Memory::new(Options::default())), Config::default()).await.unwrap();
    let request: Request = http::Request::builder().uri("/").body(Body::empty()).unwrap();
    let answering = server.answer(request);
    assert!(size_of_val(&answering) < 8 * 1024, "{} bytes", size_of_val(&answering));
}
