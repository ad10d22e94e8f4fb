//! Protobuf on the whole road: what Go's typed clients send is taken, and they are answered in kind.

use std::{pin::Pin, sync::Arc};

use capstan_api::{GroupVersionKind, Value, builtin, json, protobuf};
use capstan_server::{Config, InProcessUser, Server, authorization::UserInfo, http::Body};
use capstan_storage::{Memory, Options};
use http_body::Body as _;

const PROTOBUF: &str = "application/vnd.kubernetes.protobuf";
const CONFIG_MAPS: &str = "/api/v1/namespaces/default/configmaps";

async fn start() -> Server {
    Server::start(Arc::new(Memory::new(Options::default())), Config::default())
        .await
        .expect("a test asks only for what is there")
}

async fn ask(server: &Server, method: &str, path: &str, accept: &str, message: Vec<u8>) -> http::Response<Body> {
    let request = http::Request::builder()
        .method(method)
        .uri(path)
        .header("accept", accept)
        .header("content-type", PROTOBUF)
        .extension(InProcessUser(UserInfo::new("admin", ["system:masters"])))
        .body(Body::from(message))
        .expect("a test asks only for what is there");
    server.answer(request).await
}

async fn next(body: &mut Body) -> Option<Vec<u8>> {
    let frame = std::future::poll_fn(|cx| Pin::new(&mut *body).poll_frame(cx)).await?;
    Some(
        frame
            .expect("a test asks only for what is there")
            .into_data()
            .expect("a test asks only for what is there")
            .to_vec(),
    )
}

/// The code, and the object behind the message of the answer.
async fn read(mut response: http::Response<Body>) -> (u16, Value) {
    assert_eq!(response.headers()["content-type"], PROTOBUF);
    let mut bytes = Vec::new();
    while let Some(chunk) = next(response.body_mut()).await {
        bytes.extend(chunk);
    }
    (response.status().as_u16(), object(&bytes))
}

fn object(message: &[u8]) -> Value {
    let envelope = protobuf::envelope(message).expect("a test asks only for what is there");
    let gvk = GroupVersionKind::from_api_version_and_kind(&envelope.api_version, &envelope.kind);
    protobuf::decode(&builtin::schema(&gvk).expect("a test asks only for what is there"), message)
        .expect("a test asks only for what is there")
}

fn message(text: &str) -> Vec<u8> {
    let value = json::parse(text.as_bytes()).expect("a test asks only for what is there");
    let text = |name| value.get(name).and_then(Value::as_str).expect("a test asks only for what is there");
    let gvk = GroupVersionKind::from_api_version_and_kind(text("apiVersion"), text("kind"));
    protobuf::encode_object(&gvk, &builtin::schema(&gvk).expect("a test asks only for what is there"), &value)
}

fn at<'a>(value: &'a Value, path: &str) -> &'a str {
    path.split('.').try_fold(value, |value, name| value.get(name)).and_then(Value::as_str).unwrap_or_default()
}

#[tokio::test(flavor = "multi_thread")]
async fn objects_come_and_go_as_messages() {
    let server = start().await;
    let a = message(r#"{"apiVersion":"v1","kind":"ConfigMap","metadata":{"name":"a"},"data":{"k":"v"}}"#);
    let (code, created) = read(ask(&server, "POST", CONFIG_MAPS, PROTOBUF, a).await).await;
    assert_eq!((code, at(&created, "data.k"), at(&created, "kind")), (201, "v", "ConfigMap"), "{created}");

    let path = format!("{CONFIG_MAPS}/a");
    assert_eq!(read(ask(&server, "GET", &path, PROTOBUF, Vec::new()).await).await, (200, created.clone()));

    let (_, list) = read(ask(&server, "GET", CONFIG_MAPS, PROTOBUF, Vec::new()).await).await;
    assert_eq!(at(&list, "kind"), "ConfigMapList");
    let names: Vec<_> = list
        .get("items")
        .expect("a test asks only for what is there")
        .as_array()
        .expect("a test asks only for what is there")
        .iter()
        .map(|i| at(i, "metadata.name"))
        .collect();
    assert!(names.contains(&"a"), "{list}");

    let partial = format!("{PROTOBUF};as=PartialObjectMetadata;g=meta.k8s.io;v=v1");
    let (_, partial) = read(ask(&server, "GET", &path, &partial, Vec::new()).await).await;
    assert_eq!((at(&partial, "kind"), at(&partial, "metadata.name")), ("PartialObjectMetadata", "a"));

    let options =
        message(r#"{"apiVersion":"meta.k8s.io/v1","kind":"DeleteOptions","preconditions":{"uid":"another"}}"#);
    let (code, refused) = read(ask(&server, "DELETE", &path, PROTOBUF, options).await).await;
    assert_eq!((code, at(&refused, "reason")), (409, "Conflict"), "{refused}");
    let options = message(r#"{"apiVersion":"v1","kind":"DeleteOptions","propagationPolicy":"Background"}"#);
    let (code, done) = read(ask(&server, "DELETE", &path, PROTOBUF, options).await).await;
    assert_eq!((code, at(&done, "status")), (200, "Success"), "{done}");
    let (code, gone) = read(ask(&server, "GET", &path, PROTOBUF, Vec::new()).await).await;
    assert_eq!((code, at(&gone, "message")), (404, r#"configmaps "a" not found"#));
}

#[tokio::test(flavor = "multi_thread")]
async fn what_is_wrong_is_said_as_upstream_says_it() {
    let server = start().await;
    for (message, expected) in [
        (
            &b"k8s\0\x0a\x03\x0a\x01"[..],
            "the object provided is unrecognized (must be of type ConfigMap): unexpected EOF (6b3873000a030a01)",
        ),
        (
            b"hello",
            "the object provided is unrecognized (must be of type ConfigMap): provided data does not appear to be a \
             protobuf message, expected prefix [107 56 115 0] (68656c6c6f)",
        ),
        (b"k8s\0", "the object provided is unrecognized (must be of type ConfigMap): empty body (6b387300)"),
        (b"", "the object provided is unrecognized (must be of type ConfigMap): empty data (<empty>)"),
        (
            b"k8s\0\x0a\x00\x12\x02\x0f\x00",
            "ConfigMap in version \"v1\" cannot be handled as a ConfigMap: proto: wrong wireType = 7 for field ObjectMeta",
        ),
        (
            b"k8s\0\x0a\x09\x0a\x02v1\x12\x03Pod\x12\x02\x0a\x00",
            "Pod in version \"v1\" cannot be handled as a ConfigMap: converting (v1.Pod) to (core.ConfigMap): unknown \
             conversion",
        ),
    ] {
        let (code, status) = read(ask(&server, "POST", CONFIG_MAPS, PROTOBUF, message.to_vec()).await).await;
        assert_eq!((code, at(&status, "message")), (400, expected));
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn watches_send_frames() {
    let server = start().await;
    let path = format!("{CONFIG_MAPS}?watch=1&fieldSelector=metadata.name%3Da");
    let mut response = ask(&server, "GET", &path, &format!("{PROTOBUF};stream=watch"), Vec::new()).await;
    assert_eq!(response.headers()["content-type"], "application/vnd.kubernetes.protobuf;stream=watch");
    let a = message(r#"{"apiVersion":"v1","kind":"ConfigMap","metadata":{"name":"a"}}"#);
    let (_, created) = read(ask(&server, "POST", CONFIG_MAPS, PROTOBUF, a).await).await;
    let frame = next(response.body_mut()).await.expect("a test asks only for what is there");
    let (length, event) = frame.split_at(4);
    assert_eq!(
        u32::from_be_bytes(length.try_into().expect("a test asks only for what is there")) as usize,
        event.len()
    );
    let rest = event.strip_prefix(b"\x0a\x05ADDED\x12").expect("a test asks only for what is there");
    let start = rest.windows(4).position(|window| window == b"k8s\0").expect("a test asks only for what is there");
    assert_eq!(object(&rest[start..]), created);
}
