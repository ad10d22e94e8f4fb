//! Probes for real: HTTP, TCP and gRPC, of all three kinds, and one that never answers.

use std::{
    convert::Infallible,
    sync::{
        Arc,
        atomic::{AtomicU16, Ordering},
    },
};

use bytes::Bytes;
use capstan_clock::{Clock as _, OsIds, RealClock};
use capstan_server::pki::{self, Pki};
use http::{HeaderMap, HeaderValue, Request, Response};
use http_body_util::{BodyExt as _, Full};
use hyper::{body::Incoming, service::service_fn};
use hyper_util::rt::{TokioExecutor, TokioIo};
use k8s_openapi::api::core::v1::Pod;
use serde_json::{Value, json};
use tokio::net::TcpListener;

use crate::world::{World, ready};

/// A pod that does nothing but be probed.
fn probed(probes: Value) -> Value {
    let mut container = json!({"name": "c", "image": "busybox", "command": ["sleep", "1000"]});
    container.as_object_mut().unwrap().extend(probes.as_object().unwrap().clone());
    json!({"automountServiceAccountToken": false, "terminationGracePeriodSeconds": 0, "containers": [container]})
}

fn restarts(pod: &Pod) -> i32 {
    pod.status.iter().flat_map(|s| s.container_statuses.iter().flatten()).map(|c| c.restart_count).sum()
}

/// Answers HTTP with the code that is set.
async fn http_server(code: Arc<AtomicU16>) -> u16 {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let port = listener.local_addr().unwrap().port();
    tokio::spawn(async move {
        while let Ok((stream, _)) = listener.accept().await {
            let code = code.clone();
            let service = service_fn(move |request: Request<Incoming>| {
                let code = if request.headers()["x-asks"] == "probe" { code.load(Ordering::SeqCst) } else { 400 };
                let response = match request.uri().path() {
                    "/moved" => Response::builder().status(302).header("location", "/healthz"),
                    _ => Response::builder().status(code),
                };
                let response = response.body(Full::<Bytes>::from("hello"));
                async move { Ok::<_, Infallible>(response.unwrap()) }
            });
            let serving = hyper::server::conn::http1::Builder::new().serve_connection(TokioIo::new(stream), service);
            tokio::spawn(serving);
        }
    });
    port
}

/// Answers grpc.health.v1 with the status that is set: 1 is serving, 2 is not.
async fn grpc_server(status: Arc<AtomicU16>) -> u16 {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let port = listener.local_addr().unwrap().port();
    tokio::spawn(async move {
        while let Ok((stream, _)) = listener.accept().await {
            let status = status.clone();
            let service = service_fn(move |request: Request<Incoming>| {
                let status = u8::try_from(status.load(Ordering::SeqCst)).unwrap();
                async move {
                    assert_eq!(request.uri().path(), "/grpc.health.v1.Health/Check");
                    let mut trailers = HeaderMap::new();
                    trailers.insert("grpc-status", HeaderValue::from_static("0"));
                    let body = Full::new(Bytes::from(vec![0, 0, 0, 0, 2, 8, status]));
                    let body = body.with_trailers(async move { Some(Ok(trailers)) });
                    let response = Response::builder().header("content-type", "application/grpc").body(body);
                    Ok::<_, Infallible>(response.unwrap())
                }
            });
            let http = hyper::server::conn::http2::Builder::new(TokioExecutor::new());
            tokio::spawn(http.serve_connection(TokioIo::new(stream), service));
        }
    });
    port
}

#[tokio::test(flavor = "multi_thread")]
async fn http_readiness_comes_and_goes() {
    let Some(world) = World::new("http").await else { return };
    let code = Arc::new(AtomicU16::new(503));
    let port = http_server(code.clone()).await;
    let headers = json!([{"name": "x-asks", "value": "probe"}]);
    let get = json!({"port": "web", "path": "moved?full=1", "httpHeaders": headers});
    let probe = json!({"httpGet": get, "periodSeconds": 1, "failureThreshold": 1});
    world
        .create("p", probed(json!({"ports": [{"name": "web", "containerPort": port}], "readinessProbe": probe})))
        .await;
    assert_eq!(world.event("p", "Unhealthy").await, "Readiness probe failed: HTTP probe failed with statuscode: 503");
    // An answer that leads nowhere is good enough.
    code.store(302, Ordering::SeqCst);
    world.until("p", ready).await;
    code.store(500, Ordering::SeqCst);
    let pod = world.until("p", |pod| !ready(pod)).await;
    assert_eq!(restarts(&pod), 0);
    world.end().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn https_is_asked_whoever_signed_for_it() {
    let Some(world) = World::new("https").await else { return };
    let options = pki::Options { host: "nobody".to_owned(), service_ip: [192, 0, 2, 1].into(), extra: Vec::new() };
    let pki = Pki::open(&world.dir.join("pki"), &options, RealClock::new().now(), &OsIds).unwrap();
    let tls = Arc::new(pki::server_config(&pki.serving, &pki.ca.own.chain()).unwrap());
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let port = listener.local_addr().unwrap().port();
    tokio::spawn(async move {
        while let Ok((stream, _)) = listener.accept().await {
            let acceptor = tokio_rustls::TlsAcceptor::from(tls.clone());
            tokio::spawn(async move {
                let stream = acceptor.accept(stream).await.unwrap();
                let service = service_fn(|request: Request<Incoming>| async move {
                    let well = request.headers()["host"] == "example.com" && !request.headers().contains_key("accept");
                    let response = Response::builder().status(if well { 200 } else { 400 });
                    Ok::<_, Infallible>(response.body(Full::<Bytes>::default()).unwrap())
                });
                let _ =
                    hyper::server::conn::http1::Builder::new().serve_connection(TokioIo::new(stream), service).await;
            });
        }
    });
    let headers = json!([{"name": "Host", "value": "example.com"}, {"name": "Accept", "value": ""}]);
    let get = json!({"port": port, "scheme": "HTTPS", "host": "localhost", "httpHeaders": headers});
    world.create("p", probed(json!({"readinessProbe": {"httpGet": get, "periodSeconds": 1}}))).await;
    world.until("p", ready).await;
    world.end().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn tcp_startup_lets_liveness_begin_which_ends_the_container() {
    let Some(world) = World::new("tcp").await else { return };
    let reserved = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let port = reserved.local_addr().unwrap().port();
    drop(reserved);
    let startup = json!({"tcpSocket": {"port": port}, "periodSeconds": 1, "failureThreshold": 1000});
    let code = Arc::new(AtomicU16::new(404));
    let web = http_server(code.clone()).await;
    let get = json!({"port": web, "httpHeaders": [{"name": "x-asks", "value": "probe"}]});
    let liveness = json!({"httpGet": get, "periodSeconds": 1, "failureThreshold": 1});
    world.create("p", probed(json!({"startupProbe": startup, "livenessProbe": liveness}))).await;
    let refused = world.event("p", "Unhealthy").await;
    let expected = format!("Startup probe failed: dial tcp 127.0.0.1:{port}: connect: connection refused");
    assert_eq!(refused, expected);
    // Until the startup probe has said yes, the liveness probe does not end it.
    let _listening = TcpListener::bind(("127.0.0.1", port)).await.unwrap();
    let pod = world.until("p", |pod| restarts(pod) == 1).await;
    assert!(!ready(&pod) || restarts(&pod) == 1);
    assert_eq!(world.event("p", "Killing").await, "Container c failed liveness probe, will be restarted");
    code.store(200, Ordering::SeqCst);
    world.until("p", ready).await;
    world.end().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn grpc_readiness() {
    let Some(world) = World::new("grpc").await else { return };
    let status = Arc::new(AtomicU16::new(2));
    let port = grpc_server(status.clone()).await;
    let probe = json!({"grpc": {"port": port, "service": "it"}, "periodSeconds": 1, "failureThreshold": 1});
    world.create("p", probed(json!({"readinessProbe": probe}))).await;
    let failed = world.event("p", "Unhealthy").await;
    assert_eq!(failed, "Readiness probe failed: service unhealthy (responded with \"NOT_SERVING\")");
    status.store(1, Ordering::SeqCst);
    world.until("p", ready).await;
    world.end().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_probe_that_hangs_fails_and_the_node_goes_on() {
    let Some(world) = World::new("hangs").await else { return };
    let silent = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let port = silent.local_addr().unwrap().port();
    tokio::spawn(async move {
        let mut kept = Vec::new();
        while let Ok((stream, _)) = silent.accept().await {
            kept.push(stream);
        }
    });
    let liveness = json!({"httpGet": {"port": port}, "periodSeconds": 1, "timeoutSeconds": 1, "failureThreshold": 1});
    world.create("http", probed(json!({"livenessProbe": liveness}))).await;
    let exec = json!({"exec": {"command": ["sleep", "1000"]}, "periodSeconds": 1, "timeoutSeconds": 1});
    world.create("exec", probed(json!({"readinessProbe": exec}))).await;
    let http = world.event("http", "Unhealthy").await;
    let words = "context deadline exceeded (Client.Timeout exceeded while awaiting headers)";
    assert_eq!(http, format!("Liveness probe failed: Get \"http://127.0.0.1:{port}/\": {words}"));
    world.until("http", |pod| restarts(pod) == 1).await;
    let exec = world.event("exec", "Unhealthy").await;
    assert!(exec.starts_with("Readiness probe failed: command timed out: "), "{exec}");
    world.create("fine", probed(json!({}))).await;
    world.until("fine", ready).await;
    world.end().await;
}
