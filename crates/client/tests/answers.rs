//! Requests that are not sent, and answers that are not what they should be, over a road that answers by itself.

#![expect(clippy::unwrap_used, reason = "all of it is a test")]

use std::sync::{Arc, Mutex};

use bytes::Bytes;
use capstan_api::options::{DeleteOptions, ListOptions};
use capstan_client::{Api, Body, BoxFuture, Client, Error, Event, Patch, Transport, wait::conditions};
use capstan_clock::{ManualClock, SeededIds};
use futures_util::TryStreamExt as _;
use http::{HeaderValue, Request, Response, header};
use http_body_util::Full;
use k8s_openapi::api::core::v1::ConfigMap;

/// Answers lists and watches always the same, and keeps what it was asked.
#[derive(Clone, Default)]
struct Canned {
    list: &'static str,
    watch: &'static str,
    asked: Arc<Mutex<Vec<Request<Bytes>>>>,
}

impl Transport for Canned {
    fn send(&self, request: Request<Bytes>) -> BoxFuture<'static, Result<Response<Body>, Error>> {
        let is_watch = request.uri().query().is_some_and(|query| query.contains("watch=true"));
        self.asked.lock().unwrap().push(request);
        let text = if is_watch { self.watch } else { self.list };
        Box::pin(async move { Ok(Response::new(Body::new(Full::new(Bytes::from_static(text.as_bytes()))))) })
    }
}

impl Canned {
    fn maps(&self) -> Api<ConfigMap> {
        let clock = ManualClock::at("2026-01-01T00:00:00Z".parse().unwrap());
        let client = Client::new(self.clone()).with_clock(Arc::new(clock), Arc::new(SeededIds::new(1)));
        client.core_v1().config_maps("default")
    }
}

#[tokio::test]
async fn names_that_lead_elsewhere_are_refused() {
    let canned = Canned::default();
    let maps = canned.maps();
    for (name, expected) in [
        ("", "resource name may not be empty"),
        (".", "invalid resource name \".\": [may not be '.']"),
        ("..", "invalid resource name \"..\": [may not be '..']"),
        ("a/b", "invalid resource name \"a/b\": [may not contain '/']"),
        ("a%2Fb", "invalid resource name \"a%2Fb\": [may not contain '%']"),
    ] {
        let mut map = ConfigMap::default();
        map.metadata.name = Some(name.to_owned());
        let rest = maps.client().rest().delete().resource(maps.resource()).namespace("default").name(name);
        let answers = [
            maps.get(name).await.map(drop),
            maps.update(&map).await.map(drop),
            maps.patch(name, &Patch::Merge(())).await.map(drop),
            maps.delete(name, &DeleteOptions::default()).await,
            maps.create_subresource(name, "token", &()).await.map(drop),
            maps.logs(name, &Default::default()).await.map(drop),
            rest.raw().await.map(drop),
        ];
        for answer in answers {
            assert_eq!(answer.unwrap_err().to_string(), expected);
        }
    }
    let elsewhere = maps.namespace("..").list(&ListOptions::default()).await;
    assert_eq!(elsewhere.unwrap_err().to_string(), "invalid namespace \"..\": [may not be '..']");
    assert!(canned.asked.lock().unwrap().is_empty());
}

#[tokio::test]
async fn objects_that_cannot_be_read_are_named() {
    let bad = r#"{"kind":"ConfigMap","apiVersion":"v1","metadata":{"namespace":"ns","name":"a"},"data":3}"#;
    let canned = Canned {
        list: r#"{"kind":"ConfigMapList","apiVersion":"v1","metadata":{},
            "items":[{"metadata":{"namespace":"ns","name":"a"},"data":3}]}"#,
        ..Canned::default()
    };
    let error = canned.maps().list(&ListOptions::default()).await.unwrap_err().to_string();
    assert!(error.starts_with("unable to understand ns/a: "), "{error}");
    let error = Canned { list: bad, ..Canned::default() }.maps().get("a").await.unwrap_err().to_string();
    assert!(error.starts_with("unable to understand ns/a: "), "{error}");
}

#[tokio::test]
async fn a_watch_is_a_stream() {
    let canned = Canned {
        watch: r#"{"type":"ADDED","object":{"kind":"ConfigMap","apiVersion":"v1","metadata":{"name":"a"}}}
            {"type":"BOOKMARK","object":{"kind":"ConfigMap","apiVersion":"v1","metadata":{"resourceVersion":"7"}}}
            {"type":"ADDED","object":{"kind":"ConfigMap","apiVersion":"v1","metadata":{"name":"b"},"data":3}}
            {"type":"ERROR","object":{"kind":"Status","code":410,"reason":"Expired","message":"too old"}}
            {"type":"ADDED","object":{"kind":"ConfigMap","apiVersion":"v1","metadata":{"name":"c"}}}
            "#
        .trim_end_matches(' '),
        ..Canned::default()
    };
    let maps = canned.maps();
    let rest = maps.client().rest().get().resource(maps.resource());
    let rest = rest.header(header::USER_AGENT, HeaderValue::from_static("me"));
    let mut watch = rest.watch::<ConfigMap>(&ListOptions::default()).await.unwrap();
    assert_eq!(canned.asked.lock().unwrap()[0].headers()[header::USER_AGENT], "me");
    let mut first = (&mut watch).into_stream();
    let Some(Event::Added(map)) = first.try_next().await.unwrap() else { panic!("it was added") };
    assert_eq!(map.metadata.name.as_deref(), Some("a"));
    assert_eq!(first.try_next().await.unwrap(), Some(Event::Bookmark("7".to_owned())));
    assert!(watch.try_next().await.unwrap_err().to_string().starts_with("unable to understand b: "));
    assert!(watch.try_next().await.unwrap_err().is_expired());
    assert_eq!(watch.try_next().await.unwrap(), None, "an error ends it");
}

#[tokio::test]
async fn watches_that_end_at_once_are_not_begun_at_once() {
    let canned = Canned {
        list: r#"{"kind":"ConfigMapList","apiVersion":"v1","metadata":{"resourceVersion":"1"},"items":[]}"#,
        ..Canned::default()
    };
    let maps = canned.maps();
    let waiting = tokio::spawn(async move { maps.wait_for("a", conditions::exists()).await });
    for _ in 0..1000 {
        tokio::task::yield_now().await;
    }
    assert_eq!(canned.asked.lock().unwrap().len(), 2, "a list and a watch");
    waiting.abort();
}
