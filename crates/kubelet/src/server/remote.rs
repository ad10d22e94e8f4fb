//! `/exec`, `/attach`, `/run` and `/portForward`: finding the container, agreeing on a protocol, carrying streams.

use std::time::Duration;

use capstan_spdy::tunnel;
use http::{HeaderMap, HeaderValue, Request, Response, StatusCode, header};
use hyper::body::Incoming;
use tokio_tungstenite::tungstenite::handshake::derive_accept_key;

use super::{
    KubeletServer,
    body::Body,
    plain, query, spdy,
    stream::{self, Channel},
    websocket,
};
use crate::runtime::{ExecConfig, Session, Streaming};

/// The protocols of remote commands on SPDY, the best first.
const SPDY_COMMANDS: [&str; 3] = ["v4.channel.k8s.io", "v3.channel.k8s.io", "v2.channel.k8s.io"];
/// The protocol of forwarded ports.
const PORT_FORWARD: &str = "portforward.k8s.io";
/// The header by which SPDY's clients say which protocols they know.
const STREAM_PROTOCOL: &str = "x-stream-protocol-version";
/// The longest that `/run` waits.
const RUN_TIMEOUT: Duration = Duration::from_secs(4 * 3600);

/// How a connection goes on after it was upgraded.
enum Upgrade {
    WebSocket(String),
    Spdy,
}

fn values<'a>(headers: &'a HeaderMap, name: &str) -> Vec<&'a str> {
    let all = headers.get_all(name).iter().filter_map(|value| value.to_str().ok());
    all.flat_map(|value| value.split(',')).map(str::trim).collect()
}

/// Which upgrade is asked for, and the answer that agrees to it; or the answer that doesn't.
#[expect(clippy::result_large_err, reason = "the error is the answer")]
fn agree(
    request: &Request<Incoming>,
    websocket: &[&str],
    spdy: &[&str],
) -> Result<(Upgrade, Response<Body>), Response<Body>> {
    let headers = request.headers();
    let upgrades = values(headers, "upgrade");
    let mut response = Response::new(Body::empty());
    *response.status_mut() = StatusCode::SWITCHING_PROTOCOLS;
    let out = response.headers_mut();
    out.insert(header::CONNECTION, HeaderValue::from_static("Upgrade"));
    let value = |text: &str| HeaderValue::from_str(text).ok();
    if upgrades.iter().any(|name| name.eq_ignore_ascii_case("websocket")) {
        let offered = values(headers, "sec-websocket-protocol");
        let chosen = websocket.iter().find(|protocol| offered.contains(protocol));
        let Some(chosen) = chosen.copied().or_else(|| websocket.get(3).copied().filter(|_| offered.is_empty())) else {
            let text =
                format!("unable to negotiate protocol: client supports {offered:?}, server accepts {websocket:?}");
            return Err(plain(StatusCode::BAD_REQUEST, text));
        };
        let key = headers.get("sec-websocket-key").map(HeaderValue::as_bytes).unwrap_or_default();
        out.insert(header::UPGRADE, HeaderValue::from_static("websocket"));
        out.extend(value(&derive_accept_key(key)).map(|key| (header::SEC_WEBSOCKET_ACCEPT, key)));
        if !offered.is_empty() {
            out.extend(value(chosen).map(|chosen| (header::SEC_WEBSOCKET_PROTOCOL, chosen)));
        }
        return Ok((Upgrade::WebSocket(chosen.to_owned()), response));
    }
    if upgrades.iter().any(|name| name.eq_ignore_ascii_case("SPDY/3.1")) {
        let offered = values(headers, STREAM_PROTOCOL);
        let chosen = spdy.iter().find(|protocol| offered.contains(protocol));
        let Some(chosen) = chosen.copied().or_else(|| spdy.first().copied().filter(|_| offered.is_empty())) else {
            let text = format!(
                "unable to upgrade: unable to negotiate protocol: client supports {offered:?}, server accepts {spdy:?}"
            );
            return Err(plain(StatusCode::FORBIDDEN, text));
        };
        out.insert(header::UPGRADE, HeaderValue::from_static("SPDY/3.1"));
        out.extend(value(chosen).map(|chosen| (header::HeaderName::from_static(STREAM_PROTOCOL), chosen)));
        return Ok((Upgrade::Spdy, response));
    }
    Err(plain(StatusCode::BAD_REQUEST, "Upgrade request required"))
}

impl KubeletServer {
    /// The runtime's id of a container that runs, and whether it has a terminal.
    #[expect(clippy::result_large_err, reason = "the error is the answer")]
    fn running(&self, namespace: &str, pod: &str, container: &str) -> Result<(String, bool), Response<Body>> {
        let Some(handle) = self.shared.pod(namespace, pod) else {
            return Err(plain(StatusCode::NOT_FOUND, "pod does not exist"));
        };
        match handle.containers.get(container).filter(|container| container.running) {
            Some(container) => Ok((container.id.clone(), container.tty)),
            None => {
                let uid = handle.pod.metadata.uid.as_deref().unwrap_or_default();
                let text = format!("container not found (\"{container}\") in pod {pod}_{namespace}({uid})");
                Err(plain(StatusCode::NOT_FOUND, text))
            }
        }
    }

    pub(super) async fn exec(&self, request: Request<Incoming>, ns: &str, pod: &str, name: &str) -> Response<Body> {
        let (id, _) = match self.running(ns, pod, name) {
            Ok(found) => found,
            Err(answer) => return answer,
        };
        let yes = |names: [&str; 2]| names.iter().any(|n| query(&request, n).iter().any(|v| v == "1" || v == "true"));
        let tty = yes(["tty", "tty"]);
        let config = ExecConfig {
            command: query(&request, "command"),
            stdin: yes(["input", "stdin"]),
            stdout: yes(["output", "stdout"]),
            stderr: yes(["error", "stderr"]) && !tty,
            tty,
        };
        if !config.stdin && !config.stdout && !config.stderr {
            return plain(StatusCode::BAD_REQUEST, "you must specify at least 1 of stdin, stdout, stderr");
        }
        let session = self.shared.runtime().exec(&id, &config).await;
        self.carry(request, &config, session).await
    }

    pub(super) async fn attach(&self, request: Request<Incoming>, ns: &str, pod: &str, name: &str) -> Response<Body> {
        let (id, tty) = match self.running(ns, pod, name) {
            Ok(found) => found,
            Err(answer) => return answer,
        };
        let yes = |names: [&str; 2]| names.iter().any(|n| query(&request, n).iter().any(|v| v == "1" || v == "true"));
        let config = ExecConfig {
            command: Vec::new(),
            stdin: yes(["input", "stdin"]),
            stdout: yes(["output", "stdout"]),
            stderr: yes(["error", "stderr"]) && !tty,
            tty,
        };
        let session = self.shared.runtime().attach(&id, &config).await;
        self.carry(request, &config, session).await
    }

    async fn carry(
        &self,
        mut request: Request<Incoming>,
        config: &ExecConfig,
        session: Result<Streaming, crate::runtime::RuntimeError>,
    ) -> Response<Body> {
        let session: Session = match session {
            Ok(Streaming::Session(session)) => session,
            Ok(Streaming::Redirect(url)) => return super::redirect::proxy(request, &url).await,
            Err(error) => return plain(StatusCode::INTERNAL_SERVER_ERROR, format!("error: {error}")),
        };
        let (upgrade, response) = match agree(&request, &websocket::PROTOCOLS, &SPDY_COMMANDS) {
            Ok(agreed) => agreed,
            Err(answer) => return answer,
        };
        let wanted: Vec<Channel> = [
            (true, Channel::Error),
            (config.stdin, Channel::Stdin),
            (config.stdout, Channel::Stdout),
            (config.stderr, Channel::Stderr),
            (config.tty, Channel::Resize),
        ]
        .into_iter()
        .filter_map(|(wanted, channel)| wanted.then_some(channel))
        .collect();
        tokio::spawn(async move {
            let Ok(upgraded) = hyper::upgrade::on(&mut request).await else { return };
            let ((from, to), (from_client, to_client)) = websocket::channels();
            let carried = stream::carry(session, from_client, to_client);
            match upgrade {
                Upgrade::WebSocket(protocol) => {
                    tokio::join!(carried, websocket::serve(upgraded, &protocol, from, to));
                }
                Upgrade::Spdy => {
                    let io = hyper_util::rt::TokioIo::new(upgraded);
                    tokio::join!(carried, spdy::remote_command(io, &wanted, from, to));
                }
            }
        });
        response
    }

    pub(super) async fn run_command(
        &self,
        request: &Request<Incoming>,
        ns: &str,
        pod: &str,
        name: &str,
    ) -> Response<Body> {
        let (id, _) = match self.running(ns, pod, name) {
            Ok(found) => found,
            Err(answer) => return answer,
        };
        let command: Vec<String> = query(request, "cmd").join(" ").split_whitespace().map(str::to_owned).collect();
        match self.shared.runtime().exec_sync(&id, &command, RUN_TIMEOUT).await {
            Ok((exit, output)) => {
                let code = if exit.code == 0 { StatusCode::OK } else { StatusCode::INTERNAL_SERVER_ERROR };
                plain(code, String::from_utf8_lossy(&output).into_owned())
            }
            Err(error) => plain(StatusCode::INTERNAL_SERVER_ERROR, error.to_string()),
        }
    }

    pub(super) async fn port_forward(&self, mut request: Request<Incoming>, ns: &str, pod: &str) -> Response<Body> {
        let Some(handle) = self.shared.pod(ns, pod) else {
            return plain(StatusCode::NOT_FOUND, "pod does not exist");
        };
        let Some(sandbox) = handle.sandbox else {
            return plain(StatusCode::INTERNAL_SERVER_ERROR, format!("pod not found (\"{pod}_{ns}\")"));
        };
        let ports: Vec<u16> = query(&request, "port").iter().filter_map(|port| port.parse().ok()).collect();
        if let Ok(Some(url)) = self.shared.runtime().port_forward_url(&sandbox, &ports).await {
            return super::redirect::proxy(request, &url).await;
        }
        let (upgrade, response) = match agree(&request, &[tunnel::PORT_FORWARD], &[PORT_FORWARD]) {
            Ok(agreed) => agreed,
            Err(answer) => return answer,
        };
        let shared = self.shared.clone();
        tokio::spawn(async move {
            let Ok(upgraded) = hyper::upgrade::on(&mut request).await else { return };
            match upgrade {
                Upgrade::WebSocket(_) => {
                    let io = tunnel(websocket::accept(upgraded).await);
                    spdy::port_forward(io, shared, sandbox).await;
                }
                Upgrade::Spdy => {
                    spdy::port_forward(hyper_util::rt::TokioIo::new(upgraded), shared, sandbox).await;
                }
            }
        });
        response
    }
}
