//! Groups that another server answers: a real one, over TLS, that asks for the certificate of a front proxy.

use std::{convert::Infallible, sync::Arc};

use base64::Engine as _;
use bytes::Bytes;
use capstan_api::GroupVersion;
use capstan_clock::RealClock;
use capstan_server::{
    Config, Server,
    authentication::{self, StaticTokens},
    authorization::UserInfo,
    bootstrap::RequestHeader,
    http::Body,
    pki::{Certified, PrivateKey},
    serve::{self, Limits},
};
use capstan_storage::{Memory, Options};
use http::{HeaderValue, Method, Request, Response, StatusCode, header};
use http_body::Frame;
use http_body_util::{BodyExt as _, Either, Full, StreamBody};
use hyper::{body::Incoming, service::service_fn};
use hyper_util::rt::TokioIo;
use rcgen::{BasicConstraints, CertificateParams, DnType, IsCa, Issuer, KeyPair};
use rustls::{RootCertStore, crypto::aws_lc_rs, pki_types::PrivateKeyDer, server::WebPkiClientVerifier};
use tokio::{
    io::{AsyncReadExt as _, AsyncWriteExt as _},
    net::{TcpListener, TcpStream},
};

const GROUP: &str = "/apis/things.example.com/v1";
const SERVICE: &str = "/apis/apiregistration.k8s.io/v1/apiservices";

/// An authority.
struct Ca {
    issuer: Issuer<'static, KeyPair>,
    pem: String,
    /// What the server shows, if it is the authority itself.
    shown: Option<(String, String)>,
}

impl Ca {
    fn new(name: &str) -> Self {
        let mut params = CertificateParams::new(Vec::<String>::new()).expect("parameters");
        params.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
        params.distinguished_name.push(DnType::CommonName, name);
        let key = KeyPair::generate().expect("a key");
        let pem = params.self_signed(&key).expect("a certificate").pem();
        Ca { issuer: Issuer::new(params, key), pem, shown: None }
    }

    /// A server that has signed for itself, as `openssl req -x509` does it.
    fn of_itself(name: &str) -> Self {
        let mut params = CertificateParams::new(vec![name.to_owned()]).expect("parameters");
        params.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
        let key = KeyPair::generate().expect("a key");
        let pem = params.self_signed(&key).expect("a certificate").pem();
        let shown = Some((pem.clone(), key.serialize_pem()));
        Ca { issuer: Issuer::new(params, key), pem, shown }
    }

    /// A certificate and its key, as PEM.
    fn issue(&self, name: &str) -> (String, String) {
        let mut params = CertificateParams::new(vec![name.to_owned()]).expect("parameters");
        params.distinguished_name.push(DnType::CommonName, name);
        let key = KeyPair::generate().expect("a key");
        (params.signed_by(&key, &self.issuer).expect("a certificate").pem(), key.serialize_pem())
    }
}

fn der(pem: &str) -> rustls::pki_types::CertificateDer<'static> {
    use rustls::pki_types::pem::PemObject as _;
    rustls::pki_types::CertificateDer::from_pem_slice(pem.as_bytes()).expect("a certificate")
}

/// Starts the other server; it is only answered for those whose certificate `proxies` signed.
async fn backend(serving: &Ca, proxies: &Ca) -> u16 {
    use rustls::pki_types::pem::PemObject as _;
    let (certificate, key) = match &serving.shown {
        Some(own) => own.clone(),
        None => serving.issue("things.default.svc"),
    };
    let provider = Arc::new(aws_lc_rs::default_provider());
    let mut roots = RootCertStore::empty();
    roots.add(der(&proxies.pem)).expect("an authority");
    let verifier = WebPkiClientVerifier::builder_with_provider(Arc::new(roots), Arc::clone(&provider));
    let tls = rustls::ServerConfig::builder_with_provider(provider)
        .with_safe_default_protocol_versions()
        .expect("versions")
        .with_client_cert_verifier(verifier.build().expect("a verifier"))
        .with_single_cert(vec![der(&certificate)], PrivateKeyDer::from_pem_slice(key.as_bytes()).expect("a key"))
        .expect("a key that fits");
    let acceptor = tokio_rustls::TlsAcceptor::from(Arc::new(tls));
    let listener = TcpListener::bind("127.0.0.1:0").await.expect("a port");
    let port = listener.local_addr().expect("it is bound").port();
    tokio::spawn(async move {
        while let Ok((stream, _)) = listener.accept().await {
            let acceptor = acceptor.clone();
            tokio::spawn(async move {
                let Ok(stream) = acceptor.accept(stream).await else { return };
                let service = service_fn(|request| async { Ok::<_, Infallible>(answer(request)) });
                let http = hyper::server::conn::http1::Builder::new();
                let _ = http.serve_connection(TokioIo::new(stream), service).with_upgrades().await;
            });
        }
    });
    port
}

/// An event at once, and no end.
struct OneEvent(Option<Bytes>);

impl futures_core::Stream for OneEvent {
    type Item = Result<Frame<Bytes>, Infallible>;

    fn poll_next(
        mut self: std::pin::Pin<&mut Self>,
        _: &mut std::task::Context<'_>,
    ) -> std::task::Poll<Option<Self::Item>> {
        match self.0.take() {
            Some(event) => std::task::Poll::Ready(Some(Ok(Frame::data(event)))),
            None => std::task::Poll::Pending,
        }
    }
}

type Answer = Response<Either<Full<Bytes>, StreamBody<OneEvent>>>;

fn answer(mut request: Request<Incoming>) -> Answer {
    let path = request.uri().path().to_owned();
    let accept = request.headers().get(header::ACCEPT).and_then(|a| a.to_str().ok()).unwrap_or_default();
    let (kind, text) = match path.as_str() {
        "/apis" if accept.contains("APIGroupDiscoveryList") => (
            "application/json;g=apidiscovery.k8s.io;v=v2;as=APIGroupDiscoveryList",
            r#"{"kind":"APIGroupDiscoveryList","items":[{"metadata":{"name":"things.example.com"},"versions":[
                {"version":"v1","resources":[{"resource":"things","responseKind":{"group":"","version":"",
                "kind":"Thing"},"scope":"Namespaced","singularResource":"thing","verbs":["get","list","watch"]}]}]}]}"#
                .to_owned(),
        ),
        GROUP => ("application/json", r#"{"kind":"APIResourceList","resources":[{"name":"things"}]}"#.to_owned()),
        "/openapi/v3" => (
            "application/json",
            r#"{"paths":{"apis/things.example.com/v1":
                {"serverRelativeURL":"/openapi/v3/apis/things.example.com/v1?hash=7"}}}"#
                .to_owned(),
        ),
        "/openapi/v2" => (
            "application/json",
            r##"{"paths":{"/apis/things.example.com/v1/things":{"get":{"responses":{"200":{"schema":
                {"$ref":"#/definitions/Thing"}}}}}},"definitions":{"Thing":{"type":"object"}}}"##
                .to_owned(),
        ),
        path => {
            let mut headers: Vec<String> = request
                .headers()
                .iter()
                .filter(|(name, _)| name.as_str().starts_with("x-remote") || *name == "authorization")
                .map(|(name, value)| format!("{name}={}", value.to_str().expect("text")))
                .collect();
            headers.sort();
            let query = request.uri().query().unwrap_or_default();
            let (method, user) = (request.method(), headers.join(" "));
            ("application/json", format!(r#"{{"asked":"{method} {path}?{query}","for":"{user}"}}"#))
        }
    };
    let mut response = Response::new(Either::Left(Full::from(text)));
    if request.uri().query() == Some("watch=true") {
        let event = Bytes::from_static(b"{\"type\":\"ADDED\",\"object\":{\"kind\":\"Thing\"}}\n");
        response = Response::new(Either::Right(StreamBody::new(OneEvent(Some(event)))));
    }
    response.headers_mut().insert(header::CONTENT_TYPE, HeaderValue::from_str(kind).expect("a type"));
    if request.uri().query() == Some("elsewhere") {
        *response.status_mut() = StatusCode::FOUND;
        response.headers_mut().insert(header::LOCATION, HeaderValue::from_static("https://elsewhere.example.com/"));
    }
    if let Some(protocol) = request.headers().get(header::UPGRADE).cloned() {
        let upgraded = hyper::upgrade::on(&mut request);
        tokio::spawn(async move {
            let mut stream = TokioIo::new(upgraded.await.expect("an upgrade"));
            let mut typed = [0; 5];
            stream.read_exact(&mut typed).await.expect("something is typed");
            stream.write_all(&typed).await.expect("it is open");
        });
        response = Response::new(Either::Left(Full::default()));
        *response.status_mut() = StatusCode::SWITCHING_PROTOCOLS;
        response.headers_mut().insert(header::UPGRADE, protocol);
        response.headers_mut().insert(header::CONNECTION, HeaderValue::from_static("Upgrade"));
    }
    response
}

async fn start(proxies: &Ca) -> Server {
    let (certificate, key) = proxies.issue("front-proxy-client");
    let mut tokens = StaticTokens::default();
    tokens.insert("secret", UserInfo::new("admin", ["system:masters"]));
    let config = Config {
        authentication: authentication::Config { static_tokens: Some(tokens), ..authentication::Config::default() },
        proxy_client: Some(Certified { certificate, key: PrivateKey::from_pem(key.as_bytes()).expect("a key") }),
        request_header: Some(RequestHeader {
            client_ca: proxies.pem.clone(),
            allowed_names: vec!["front-proxy-client".to_owned()],
            username_headers: vec!["X-Remote-User".to_owned()],
            ..RequestHeader::default()
        }),
        ..Config::default()
    };
    Server::start(Arc::new(Memory::new(Options::default())), config).await.expect("it starts")
}

fn admin() -> UserInfo {
    let mut admin = UserInfo::new("admin", ["system:masters"]);
    admin.extra.insert("example.com/Scope".into(), vec!["all".into()]);
    admin
}

async fn send(server: &Server, method: Method, path: &str, body: &str) -> Response<Body> {
    let kind = if method == Method::PATCH { "application/merge-patch+json" } else { "application/json" };
    let request = Request::builder().method(method).uri(path).header(header::CONTENT_TYPE, kind);
    let request = request.body(Body::from(body.to_owned())).expect("a request");
    tower_service::Service::call(&mut server.as_user(admin()), request).await.expect("an answer")
}

async fn ask(server: &Server, method: Method, path: &str, body: &str) -> (StatusCode, String) {
    let response = send(server, method, path, body).await;
    let status = response.status();
    let body = response.into_body().collect().await.expect("a body").to_bytes();
    (status, String::from_utf8_lossy(&body).into_owned())
}

async fn get(server: &Server, path: &str) -> (StatusCode, String) {
    ask(server, Method::GET, path, "").await
}

async fn make(server: &Server, path: &str, body: &str) {
    let (status, text) = ask(server, Method::POST, path, body).await;
    assert_eq!(status, StatusCode::CREATED, "{text}");
}

/// Waits until an event about an APIService says this.
async fn until(server: &Server, name: &str, says: &str) -> String {
    let path = format!("{SERVICE}?watch=true&fieldSelector=metadata.name={name}");
    let mut body = send(server, Method::GET, &path, "").await.into_body();
    loop {
        let frame = body.frame().await.expect("the watch goes on").expect("it is whole");
        let text = String::from_utf8_lossy(frame.data_ref().expect("data")).into_owned();
        if text.contains(says) {
            return text;
        }
    }
}

/// Waits until an answer says this: what follows from a condition need not be there with it.
async fn eventually(server: &Server, path: &str, says: &str) -> String {
    loop {
        let (_, text) = get(server, path).await;
        if text.contains(says) {
            return text;
        }
        tokio::task::yield_now().await;
    }
}

/// Waits until discovery says this.
async fn discovered(server: &Server, says: &str) -> String {
    loop {
        let request = Request::builder()
            .uri("/apis")
            .header(header::ACCEPT, "application/json;g=apidiscovery.k8s.io;v=v2;as=APIGroupDiscoveryList");
        let request = request.body(Body::empty()).expect("a request");
        let response = tower_service::Service::call(&mut server.as_user(admin()), request).await.expect("an answer");
        let text = response.into_body().collect().await.expect("a body").to_bytes();
        let text = String::from_utf8_lossy(&text).into_owned();
        if text.contains(says) {
            return text;
        }
        tokio::task::yield_now().await;
    }
}

fn external_name(name: &str) -> String {
    format!(
        r#"{{"apiVersion":"v1","kind":"Service","metadata":{{"name":"{name}"}},"spec":{{"type":"ExternalName",
            "externalName":"localhost"}}}}"#
    )
}

fn api_service(group: &str, service: &str, port: u16, more: &str) -> String {
    format!(
        r#"{{"apiVersion":"apiregistration.k8s.io/v1","kind":"APIService","metadata":{{"name":"v1.{group}"}},
            "spec":{{"group":"{group}","version":"v1","groupPriorityMinimum":100,"versionPriority":100,
            "service":{{"namespace":"default","name":"{service}","port":{port}}}{more}}}}}"#
    )
}

fn trusting(ca: &Ca) -> String {
    let bundle = base64::engine::general_purpose::STANDARD.encode(&ca.pem);
    format!(r#","caBundle":"{bundle}""#)
}

#[tokio::test(flavor = "multi_thread")]
async fn another_server_answers() {
    let (serving, proxies) = (Ca::new("serving"), Ca::new("proxies"));
    let (server, port) = (start(&proxies).await, backend(&serving, &proxies).await);
    let (_, text) = get(&server, "/api/v1/namespaces/kube-system/configmaps/extension-apiserver-authentication").await;
    assert!(text.contains(r#""requestheader-allowed-names":"[\"front-proxy-client\"]""#), "{text}");

    make(&server, SERVICE, &api_service("things.example.com", "things", port, &trusting(&serving))).await;
    let text = until(&server, "v1.things.example.com", "ServiceNotFound").await;
    assert!(text.contains(r#""message":"service/things in \"default\" is not present""#), "{text}");
    let (status, text) = get(&server, &format!("{GROUP}/namespaces/a/things")).await;
    assert_eq!((status, text.as_str()), (StatusCode::SERVICE_UNAVAILABLE, "service unavailable\n"));
    discovered(&server, r#"{"version":"v1","freshness":"Stale"}"#).await;

    let gauge = |value: u8| format!("aggregator_unavailable_apiservice{{name=\"v1.things.example.com\"}} {value}");
    eventually(&server, "/metrics", &gauge(1)).await;
    make(&server, "/api/v1/namespaces/default/services", &external_name("things")).await;
    let text = until(&server, "v1.things.example.com", r#""reason":"Passed""#).await;
    eventually(&server, "/metrics", &gauge(0)).await;
    assert!(text.contains(r#""message":"all checks passed""#), "{text}");
    let text = eventually(&server, &format!("{GROUP}/namespaces/a/things?limit=5"), "asked").await;
    let said = "x-remote-extra-example.com%2fscope=all x-remote-group=system:masters x-remote-user=admin";
    assert_eq!(text, format!(r#"{{"asked":"GET {GROUP}/namespaces/a/things?limit=5","for":"{said}"}}"#));
    let (_, text) = ask(&server, Method::POST, &format!("{GROUP}/namespaces/a/things"), "{}").await;
    assert!(text.contains("POST "), "{text}");

    // Nobody is sent elsewhere.
    let (status, text) = get(&server, &format!("{GROUP}/namespaces/a/things?elsewhere")).await;
    assert_eq!(status, StatusCode::BAD_GATEWAY);
    assert_eq!(text, "the backend attempted to redirect this request, which is not permitted");

    // A watch is sent on while it goes on.
    let watch = send(&server, Method::GET, &format!("{GROUP}/things?watch=true"), "").await;
    let frame = watch.into_body().frame().await.expect("an event").expect("it is whole");
    assert!(frame.data_ref().is_some_and(|data| data.starts_with(b"{\"type\":\"ADDED\"")), "{frame:?}");

    // What it has is told here, once and for all, and by itself.
    let text = discovered(&server, r#""resource":"things""#).await;
    assert!(text.contains(r#""freshness":"Current"}]}]}"#), "the group is the last: {text}");
    eventually(&server, "/apis", "\"name\":\"things.example.com\"").await;
    let (_, text) = get(&server, GROUP).await;
    assert_eq!(text, r#"{"kind":"APIResourceList","resources":[{"name":"things"}]}"#);
    eventually(&server, "/openapi/v3", "/openapi/v3/apis/things.example.com/v1?hash=7").await;
    let (status, text) = get(&server, "/openapi/v3/apis/things.example.com/v1?hash=7").await;
    assert!(status == StatusCode::OK && text.contains("GET /openapi/v3/apis/things.example.com/v1?hash=7"), "{text}");
    eventually(&server, "/openapi/v2", r#""Thing":{"type":"object"}"#).await;

    // Without the APIService nobody answers.
    let (status, _) = ask(&server, Method::DELETE, &format!("{SERVICE}/v1.things.example.com"), "").await;
    assert_eq!(status, StatusCode::OK);
    loop {
        let (status, _) = get(&server, &format!("{GROUP}/namespaces/a/things")).await;
        if status == StatusCode::NOT_FOUND {
            break;
        }
        tokio::task::yield_now().await;
    }
    while get(&server, "/apis").await.1.contains("things.example.com") {
        tokio::task::yield_now().await;
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn nobody_is_believed_without_reason() {
    let (serving, proxies) = (Ca::new("serving"), Ca::new("proxies"));
    let (server, port) = (start(&proxies).await, backend(&serving, &proxies).await);
    make(&server, "/api/v1/namespaces/default/services", &external_name("things")).await;
    make(&server, "/api/v1/namespaces/default/services", &external_name("others")).await;
    for (group, service, more, expected) in [
        ("untrusted", "things", trusting(&proxies), "certificate signed by unknown authority"),
        ("nobody", "things", String::new(), "certificate signed by unknown authority"),
        (
            "misnamed",
            "others",
            trusting(&serving),
            "certificate is valid for things.default.svc, not others.default.svc",
        ),
        ("insecure", "others", r#","insecureSkipTLSVerify":true"#.to_owned(), "all checks passed"),
    ] {
        let group = format!("{group}.example.com");
        make(&server, SERVICE, &api_service(&group, service, port, &more)).await;
        // The server has no such group, but it answers everything.
        let text = until(&server, &format!("v1.{group}"), expected).await;
        if expected != "all checks passed" {
            let url = format!("https://localhost:{port}/apis/{group}/v1");
            let message = format!(r#"failing or missing response from {url}: Get \"{url}\": tls: failed to verify"#);
            assert!(text.contains(&message) && text.contains("FailedDiscoveryCheck"), "{text}");
        }
    }
    // Who has signed for itself is believed if it is the one that is named, and under its own name.
    let itself = Ca::of_itself("things.default.svc");
    let port = backend(&itself, &proxies).await;
    for (group, service, expected) in [
        ("itself", "things", "all checks passed"),
        ("misnamed-itself", "others", "certificate is valid for things.default.svc, not others.default.svc"),
    ] {
        let group = format!("{group}.example.com");
        make(&server, SERVICE, &api_service(&group, service, port, &trusting(&itself))).await;
        until(&server, &format!("v1.{group}"), expected).await;
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn what_the_cluster_knows_is_said_first() {
    let (proxies, service) = (Ca::new("proxies"), "/api/v1/namespaces/default/services");
    let server = start(&proxies).await;
    make(&server, SERVICE, &api_service("a.example.com", "a", 444, "")).await;
    let body = r#"{"apiVersion":"v1","kind":"Service","metadata":{"name":"a"},
        "spec":{"ports":[{"port":443,"name":"https"}]}}"#;
    make(&server, service, body).await;
    let text = until(&server, "v1.a.example.com", "ServicePortError").await;
    assert!(text.contains(r#"service/a in \"default\" is not listening on port 444"#), "{text}");
    let patch = r#"{"spec":{"service":{"port":443}}}"#;
    let (status, text) = ask(&server, Method::PATCH, &format!("{SERVICE}/v1.a.example.com"), patch).await;
    assert_eq!(status, StatusCode::OK, "{text}");
    let text = until(&server, "v1.a.example.com", "EndpointsNotFound").await;
    assert!(text.contains(r#"cannot find endpointslices for service/a in \"default\""#), "{text}");
    let slice = r#"{"apiVersion":"discovery.k8s.io/v1","kind":"EndpointSlice","metadata":{"name":"a-1",
        "labels":{"kubernetes.io/service-name":"a"}},"addressType":"IPv4","ports":[{"name":"https","port":8443}],
        "endpoints":[{"addresses":["192.0.2.1"],"conditions":{"ready":false}}]}"#;
    make(&server, "/apis/discovery.k8s.io/v1/namespaces/default/endpointslices", slice).await;
    let text = until(&server, "v1.a.example.com", "MissingEndpoints").await;
    let message = r#"endpointslices for service/a in \"default\" have no addresses with port name \"https\""#;
    assert!(text.contains(message), "{text}");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_server_of_somebodys_own_takes_over() {
    let (serving, proxies) = (Ca::new("serving"), Ca::new("proxies"));
    let (server, port) = (start(&proxies).await, backend(&serving, &proxies).await);
    let extension: capstan_server::Extension = Arc::new(|_| {
        Box::pin(async {
            let list = r#"{"resources":[{"name":"things","kind":"Ours","namespaced":true,"verbs":["get"]}]}"#;
            let mut response = Response::new(Bytes::from_static(list.as_bytes()));
            response.headers_mut().insert(header::CONTENT_TYPE, HeaderValue::from_static("application/json"));
            response
        })
    });
    server.extend(GroupVersion::new("things.example.com", "v1"), extension).await.expect("it is served");
    assert!(get(&server, &format!("{GROUP}/namespaces/a/things/b")).await.1.contains("Ours"));
    make(&server, "/api/v1/namespaces/default/services", &external_name("things")).await;
    let patch = api_service("things.example.com", "things", port, &trusting(&serving));
    let (status, text) = ask(&server, Method::PATCH, &format!("{SERVICE}/v1.things.example.com"), &patch).await;
    assert_eq!(status, StatusCode::OK, "{text}");
    until(&server, "v1.things.example.com", r#""reason":"Passed""#).await;
    eventually(&server, &format!("{GROUP}/namespaces/a/things/b"), "x-remote-user=admin").await;
    let text = discovered(&server, r#""kind":"Thing""#).await;
    assert!(!text.contains("Ours"), "{text}");
    // Once that is gone, what was there before answers again.
    ask(&server, Method::DELETE, &format!("{SERVICE}/v1.things.example.com"), "").await;
    until(&server, "v1.things.example.com", r#""reason":"Local""#).await;
    discovered(&server, r#""kind":"Ours""#).await;
    eventually(&server, &format!("{GROUP}/namespaces/a/things/b"), "Ours").await;
}

#[tokio::test(flavor = "multi_thread")]
async fn connections_are_handed_through() {
    let (serving, proxies) = (Ca::new("serving"), Ca::new("proxies"));
    let (server, port) = (start(&proxies).await, backend(&serving, &proxies).await);
    make(&server, "/api/v1/namespaces/default/services", &external_name("things")).await;
    make(&server, SERVICE, &api_service("things.example.com", "things", port, &trusting(&serving))).await;
    until(&server, "v1.things.example.com", r#""reason":"Passed""#).await;
    eventually(&server, &format!("{GROUP}/namespaces/a/things"), "asked").await;
    let listener = TcpListener::bind("127.0.0.1:0").await.expect("a port");
    let address = listener.local_addr().expect("it is bound");
    let clock = Arc::new(RealClock::new());
    let _serving = serve::serve(vec![listener], None, server, Limits::default(), clock).expect("it serves");
    let mut stream = TcpStream::connect(address).await.expect("it listens");
    let request = format!(
        "GET {GROUP}/namespaces/a/things/b/console HTTP/1.1\r\nHost: a\r\nAuthorization: Bearer secret\r\n\
         Connection: Upgrade\r\nUpgrade: SPDY/3.1\r\n\r\n"
    );
    stream.write_all(request.as_bytes()).await.expect("it is open");
    let mut head = Vec::new();
    while !head.ends_with(b"\r\n\r\n") {
        head.push(stream.read_u8().await.expect("an answer"));
    }
    let head = String::from_utf8(head).expect("text").to_ascii_lowercase();
    assert!(head.starts_with("http/1.1 101") && head.contains("upgrade: spdy/3.1"), "{head}");
    stream.write_all(b"hello").await.expect("it is open");
    let mut echoed = [0; 5];
    stream.read_exact(&mut echoed).await.expect("an echo");
    assert_eq!(&echoed, b"hello");
}

#[tokio::test(flavor = "multi_thread")]
async fn custom_resources_have_their_own() {
    let server = start(&Ca::new("proxies")).await;
    let crd = r#"{"apiVersion":"apiextensions.k8s.io/v1","kind":"CustomResourceDefinition",
        "metadata":{"name":"crontabs.stable.example.com"},"spec":{"group":"stable.example.com","scope":"Namespaced",
        "names":{"plural":"crontabs","singular":"crontab","kind":"CronTab"},"versions":[{"name":"v1","served":true,
        "storage":true,"schema":{"openAPIV3Schema":{"type":"object"}}}]}}"#;
    let path = "/apis/apiextensions.k8s.io/v1/customresourcedefinitions";
    make(&server, path, crd).await;
    let text = until(&server, "v1.stable.example.com", "ADDED").await;
    for part in [
        r#""labels":{"kube-aggregator.kubernetes.io/automanaged":"true"}"#,
        r#""groupPriorityMinimum":1000"#,
        r#""versionPriority":100"#,
        r#""reason":"Local""#,
    ] {
        assert!(text.contains(part), "{part}: {text}");
    }
    // It stays as long as the definition does.
    ask(&server, Method::DELETE, &format!("{SERVICE}/v1.stable.example.com"), "").await;
    until(&server, "v1.stable.example.com", "ADDED").await;
    let mut watch = send(&server, Method::GET, &format!("{SERVICE}?watch=true"), "").await.into_body();
    ask(&server, Method::DELETE, &format!("{path}/crontabs.stable.example.com"), "").await;
    loop {
        let frame = watch.frame().await.expect("the watch goes on").expect("it is whole");
        let text = String::from_utf8_lossy(frame.data_ref().expect("data")).into_owned();
        if text.contains("DELETED") && text.contains("v1.stable.example.com") {
            break;
        }
    }
}
