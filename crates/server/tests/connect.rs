//! Logs and shells through the server: a kubelet of our own listens, and what it says comes back.

use std::sync::Arc;

use capstan_clock::RealClock;
use capstan_server::{
    Config, Server,
    authentication::{self, StaticTokens},
    authorization::UserInfo,
    serve::{self, Limits},
};
use capstan_storage::{Memory, Options};
use http::{Method, Request, Response, StatusCode, header};
use http_body_util::{BodyExt as _, Full};
use hyper::{body::Incoming, service::service_fn};
use hyper_util::rt::TokioIo;
use tokio::{
    io::{AsyncReadExt as _, AsyncWriteExt as _},
    net::{TcpListener, TcpStream},
};

/// A kubelet that shows in its answers what it was asked, and echoes what is typed into a shell.
async fn kubelet() -> u16 {
    let own = rcgen::generate_simple_self_signed(["localhost".to_owned()]).expect("a certificate");
    let key = rustls::pki_types::PrivateKeyDer::try_from(own.signing_key.serialize_der()).expect("a key");
    let tls = rustls::ServerConfig::builder_with_provider(Arc::new(rustls::crypto::aws_lc_rs::default_provider()))
        .with_safe_default_protocol_versions()
        .expect("versions")
        .with_no_client_auth()
        .with_single_cert(vec![own.cert.der().clone()], key)
        .expect("a key that fits");
    let acceptor = tokio_rustls::TlsAcceptor::from(Arc::new(tls));
    let listener = TcpListener::bind("127.0.0.1:0").await.expect("a port");
    let port = listener.local_addr().expect("it is bound").port();
    tokio::spawn(async move {
        while let Ok((stream, _)) = listener.accept().await {
            let acceptor = acceptor.clone();
            tokio::spawn(async move {
                let stream = acceptor.accept(stream).await.expect("a handshake");
                let service = service_fn(|request| async { Ok::<_, std::convert::Infallible>(answer(request)) });
                let http = hyper::server::conn::http1::Builder::new();
                let _ = http.serve_connection(TokioIo::new(stream), service).with_upgrades().await;
            });
        }
    });
    port
}

fn answer(mut request: Request<Incoming>) -> Response<Full<bytes::Bytes>> {
    let text = format!("{} {}", request.method(), request.uri());
    if request.uri().path().ends_with("/gone") {
        let mut response = Response::new(Full::from("no such container"));
        *response.status_mut() = StatusCode::NOT_FOUND;
        return response;
    }
    if !request.headers().contains_key(header::UPGRADE) {
        return Response::new(Full::from(text));
    }
    let upgraded = hyper::upgrade::on(&mut request);
    tokio::spawn(async move {
        let mut stream = TokioIo::new(upgraded.await.expect("an upgrade"));
        stream.write_all(format!("{text}\n").as_bytes()).await.expect("it is open");
        let mut typed = [0; 5];
        stream.read_exact(&mut typed).await.expect("something is typed");
        stream.write_all(&typed).await.expect("it is open");
    });
    let mut response = Response::new(Full::default());
    *response.status_mut() = StatusCode::SWITCHING_PROTOCOLS;
    let protocol = request.headers()[header::UPGRADE].clone();
    response.headers_mut().insert(header::UPGRADE, protocol);
    response.headers_mut().insert(header::CONNECTION, http::HeaderValue::from_static("Upgrade"));
    response
}

struct Cluster {
    address: std::net::SocketAddr,
    _server: serve::Handle,
}

impl Cluster {
    async fn start() -> Self {
        let mut tokens = StaticTokens::default();
        tokens.insert("secret", UserInfo::new("admin", ["system:masters"]));
        let config = Config {
            authentication: authentication::Config { static_tokens: Some(tokens), ..authentication::Config::default() },
            disable_admission: vec!["ServiceAccount".to_owned()],
            ..Config::default()
        };
        let clock = Arc::new(RealClock::new());
        let server = Server::start(Arc::new(Memory::new(Options::default())), config).await.expect("it starts");
        let listener = TcpListener::bind("127.0.0.1:0").await.expect("a port");
        let address = listener.local_addr().expect("it is bound");
        let handle = serve::serve(vec![listener], None, server, Limits::default(), clock).expect("it serves");
        Cluster { address, _server: handle }
    }

    async fn ask(&self, method: Method, path: &str, body: &str) -> (StatusCode, String) {
        let stream = TcpStream::connect(self.address).await.expect("it listens");
        let (mut sender, connection) = hyper::client::conn::http1::handshake(TokioIo::new(stream)).await.expect("HTTP");
        tokio::spawn(connection);
        let request = Request::builder()
            .method(method)
            .uri(path)
            .header(header::HOST, "localhost")
            .header(header::AUTHORIZATION, "Bearer secret")
            .header(header::CONTENT_TYPE, "application/json")
            .body(Full::<bytes::Bytes>::from(body.to_owned()))
            .expect("a request");
        let response = sender.send_request(request).await.expect("an answer");
        let status = response.status();
        let body = response.into_body().collect().await.expect("a body").to_bytes();
        (status, String::from_utf8_lossy(&body).into_owned())
    }

    async fn make(&self, path: &str, body: &str) {
        let (status, text) = self.ask(Method::POST, path, body).await;
        assert_eq!(status, StatusCode::CREATED, "{text}");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn what_the_kubelet_says_comes_back() {
    let (cluster, port) = (Cluster::start().await, kubelet().await);
    let node = format!(
        r#"{{"apiVersion":"v1","kind":"Node","metadata":{{"name":"n"}},"status":{{"addresses":[{{"type":"InternalIP",
        "address":"127.0.0.1"}}],"daemonEndpoints":{{"kubeletEndpoint":{{"Port":{port}}}}}}}}}"#
    );
    cluster.make("/api/v1/nodes", &node).await;
    let pod = r#"{"apiVersion":"v1","kind":"Pod","metadata":{"name":"p"},"spec":{"nodeName":"n","containers":[
        {"name":"c","image":"i"},{"name":"gone","image":"i"}]}}"#;
    cluster.make("/api/v1/namespaces/default/pods", pod).await;
    let base = "/api/v1/namespaces/default/pods/p";

    let path = format!("{base}/log?container=c&tailLines=5&follow=true&sinceTime=2024-01-01T00:00:00Z");
    let (status, text) = cluster.ask(Method::GET, &path, "").await;
    let expected = "GET /containerLogs/default/p/c?follow=true&tailLines=5&sinceTime=2024-01-01T00%3A00%3A00Z";
    assert_eq!((status, &*text), (StatusCode::OK, expected));

    let (status, text) = cluster.ask(Method::GET, &format!("{base}/log?container=gone"), "").await;
    assert_eq!(status, StatusCode::NOT_FOUND);
    assert!(text.contains("the server could not find the requested resource"), "{text}");

    let (status, text) = cluster.ask(Method::POST, &format!("{base}/exec?container=c&command=ls"), "").await;
    assert_eq!(status, StatusCode::BAD_REQUEST);
    assert!(text.contains("Upgrade request required"), "{text}");

    // Loopback is where kubelets of tests are, and where nobody is led.
    let (status, text) = cluster.ask(Method::GET, "/api/v1/nodes/n/proxy/healthz", "").await;
    assert_eq!(status, StatusCode::BAD_REQUEST);
    assert!(text.contains("address not allowed"), "{text}");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_shell_is_handed_through() {
    let (cluster, port) = (Cluster::start().await, kubelet().await);
    let node = format!(
        r#"{{"apiVersion":"v1","kind":"Node","metadata":{{"name":"n"}},"status":{{"addresses":[{{"type":"InternalIP",
        "address":"127.0.0.1"}}],"daemonEndpoints":{{"kubeletEndpoint":{{"Port":{port}}}}}}}}}"#
    );
    cluster.make("/api/v1/nodes", &node).await;
    let pod = r#"{"apiVersion":"v1","kind":"Pod","metadata":{"name":"p"},"spec":{"nodeName":"n","containers":[
        {"name":"c","image":"i"}]}}"#;
    cluster.make("/api/v1/namespaces/default/pods", pod).await;
    let mut stream = TcpStream::connect(cluster.address).await.expect("it listens");
    let head = "POST /api/v1/namespaces/default/pods/p/exec?command=sh&command=-c&stdin=true&stdout=true&tty=false \
                HTTP/1.1\r\nHost: localhost\r\nAuthorization: Bearer secret\r\nConnection: Upgrade\r\n\
                Upgrade: SPDY/3.1\r\nContent-Length: 0\r\n\r\n";
    stream.write_all(head.as_bytes()).await.expect("it is open");
    let mut got = Vec::new();
    let expected = "POST /exec/default/p/c?input=1&output=1&command=sh&command=-c\n";
    while !got.ends_with(expected.as_bytes()) {
        let mut part = [0; 1024];
        let read = stream.read(&mut part).await.expect("it is open");
        assert_ne!(read, 0, "{}", String::from_utf8_lossy(&got));
        got.extend_from_slice(&part[..read]);
    }
    let head = String::from_utf8_lossy(&got).to_lowercase();
    assert!(head.starts_with("http/1.1 101 ") && head.contains("upgrade: spdy/3.1"), "{head}");
    stream.write_all(b"hello").await.expect("it is open");
    let mut back = [0; 5];
    stream.read_exact(&mut back).await.expect("an echo");
    assert_eq!(&back, b"hello");
}
