//! Asking a container how it is, and running its hooks: commands, HTTP, TCP, gRPC.

use std::{sync::Arc, time::Duration};

use k8s_openapi::{
    api::core::v1::{Container, HTTPGetAction, LifecycleHandler, Pod, Probe},
    apimachinery::pkg::util::intstr::IntOrString,
};
use tokio::{
    io::{AsyncRead, AsyncReadExt as _, AsyncWrite, AsyncWriteExt as _},
    net::TcpStream,
};

use super::{insecure, shared::Shared};
use crate::{lifecycle::Outcome, runtime::RuntimeError};

/// How much of an answer is read.
const MAX_BODY: u64 = 10 * 1024;
/// How much of a command's output is shown.
const MAX_OUTPUT: usize = 1024;

/// Where to ask.
pub(super) struct Target {
    pub(super) shared: Arc<Shared>,
    pub(super) container: Arc<Container>,
    pub(super) id: String,
    pub(super) ip: String,
}

impl Target {
    /// Asks once.
    pub(super) async fn probe(&self, probe: &Probe) -> Outcome {
        let seconds = u64::try_from(probe.timeout_seconds.unwrap_or(1)).unwrap_or(1).max(1);
        let timeout = Duration::from_secs(seconds);
        if let Some(exec) = &probe.exec {
            let command = exec.command.clone().unwrap_or_default();
            return match self.shared.runtime.exec_sync(&self.id, &command, timeout).await {
                Ok((exit, _)) if exit.code == 0 => Outcome::Success,
                Ok((_, output)) => {
                    let text = String::from_utf8_lossy(&output[..output.len().min(MAX_OUTPUT)]);
                    Outcome::Failure(text.trim_end().to_owned())
                }
                Err(error @ RuntimeError::Failed(_)) if error.to_string().contains("timed out") => {
                    Outcome::Failure(error.to_string())
                }
                Err(error) => Outcome::Error(error.to_string()),
            };
        }
        if let Some(get) = &probe.http_get {
            return match self.http(get, timeout).await {
                Ok((200..=399, _)) => Outcome::Success,
                Ok((code, _)) => Outcome::Failure(format!("HTTP probe failed with statuscode: {code}")),
                Err(text) => Outcome::Failure(text),
            };
        }
        if let Some(tcp) = &probe.tcp_socket {
            let Some(port) = self.port(&tcp.port) else {
                return Outcome::Error(format!("couldn't find port: {}", shown(&tcp.port)));
            };
            let host = tcp.host.as_deref().filter(|host| !host.is_empty()).unwrap_or(&self.ip);
            return match self.connect(host, port, timeout).await {
                Ok(_) => Outcome::Success,
                Err(text) => Outcome::Failure(text),
            };
        }
        if let Some(grpc) = &probe.grpc {
            let address = format!("{}:{}", bracketed(&self.ip), grpc.port);
            let asked = super::grpc::check(&address, grpc.service.as_deref().unwrap_or_default());
            return tokio::select! {
                answer = asked => answer,
                () = self.shared.clock.sleep(timeout) => {
                    Outcome::Failure(format!(
                        "timeout: failed to connect service \"{address}\" within {seconds}s: context deadline exceeded"
                    ))
                }
            };
        }
        Outcome::Error("missing probe handler".to_owned())
    }

    /// Runs a hook to its end; a sentence if it failed.
    pub(super) async fn hook(&self, pod: &Pod, handler: &LifecycleHandler) -> Result<(), String> {
        /// A hook has no time limit of its own: the grace period or the container's end ends it.
        const FOREVER: Duration = Duration::from_secs(365 * 24 * 3600);
        let meta = &pod.metadata;
        let text = |field: &Option<String>| field.clone().unwrap_or_default();
        let pod_name = format!("{}_{}({})", text(&meta.name), text(&meta.namespace), text(&meta.uid));
        let name = &self.container.name;
        if let Some(exec) = &handler.exec {
            let command = exec.command.clone().unwrap_or_default();
            let shown = command.join(" ");
            let done = self.shared.runtime.exec_sync(&self.id, &command, FOREVER).await;
            let (error, output) = match done {
                Ok((exit, _)) if exit.code == 0 => return Ok(()),
                Ok((exit, output)) => (format!("command '{shown}' exited with {}", exit.code), output),
                Err(error) => (error.to_string(), Vec::new()),
            };
            let output = capstan_api::go::quote(&String::from_utf8_lossy(&output));
            return Err(format!(
                "Exec lifecycle hook ([{shown}]) for Container \"{name}\" in Pod \"{pod_name}\" failed - error: \
                 {error}, message: {output}"
            ));
        }
        if let Some(get) = &handler.http_get {
            return self.http(get, FOREVER).await.map(drop).map_err(|error| {
                let path = get.path.as_deref().unwrap_or_default();
                format!(
                    "HTTP lifecycle hook ({path}) for Container \"{name}\" in Pod \"{pod_name}\" failed - error: \
                     {error}"
                )
            });
        }
        if let Some(sleep) = &handler.sleep {
            self.shared.clock.sleep(Duration::from_secs(u64::try_from(sleep.seconds).unwrap_or(0))).await;
        }
        Ok(())
    }

    /// A port by number or by its name in the container.
    fn port(&self, port: &IntOrString) -> Option<u16> {
        match port {
            IntOrString::Int(number) => u16::try_from(*number).ok(),
            IntOrString::String(name) => {
                let named = self.container.ports.iter().flatten().find(|port| port.name.as_ref() == Some(name));
                named.map_or_else(|| name.parse().ok(), |port| u16::try_from(port.container_port).ok())
            }
        }
    }

    async fn connect(&self, host: &str, port: u16, timeout: Duration) -> Result<TcpStream, String> {
        let address = format!("{}:{port}", bracketed(host));
        tokio::select! {
            stream = TcpStream::connect((host, port)) => stream.map_err(|error| {
                let why = if error.kind() == std::io::ErrorKind::ConnectionRefused {
                    "connection refused".to_owned()
                } else {
                    error.to_string()
                };
                format!("dial tcp {address}: connect: {why}")
            }),
            () = self.shared.clock.sleep(timeout) => Err(format!("dial tcp {address}: i/o timeout")),
        }
    }

    /// The status code and the beginning of the body.
    async fn http(&self, get: &HTTPGetAction, timeout: Duration) -> Result<(u16, String), String> {
        let host = get.host.as_deref().filter(|host| !host.is_empty()).unwrap_or(&self.ip);
        let port = self.port(&get.port).ok_or_else(|| format!("couldn't find port: {}", shown(&get.port)))?;
        let tls = get.scheme.as_deref() == Some("HTTPS");
        let path = get.path.as_deref().unwrap_or("/");
        let path = if path.starts_with('/') { path.to_owned() } else { format!("/{path}") };
        let authority = format!("{}:{port}", bracketed(host));
        let url = format!("{}://{authority}{path}", if tls { "https" } else { "http" });
        let headers: Vec<(&str, &str)> =
            get.http_headers.iter().flatten().map(|header| (header.name.as_str(), header.value.as_str())).collect();
        let has = |name: &str| headers.iter().any(|(known, _)| known.eq_ignore_ascii_case(name));
        let mut request = format!("GET {path} HTTP/1.1\r\nConnection: close\r\n");
        for (name, value) in [("Host", authority.as_str()), ("User-Agent", "kube-probe/1.36"), ("Accept", "*/*")] {
            if !has(name) {
                request.push_str(&format!("{name}: {value}\r\n"));
            }
        }
        for (name, value) in &headers {
            request.push_str(&format!("{name}: {value}\r\n"));
        }
        request.push_str("\r\n");
        let asked = async {
            let stream = self.connect(host, port, timeout).await?;
            if tls {
                let config = insecure::config(None).map_err(|error| error.to_string())?;
                let stream = insecure::connect(config, stream, host).await.map_err(|error| error.to_string())?;
                exchange(stream, &request).await
            } else {
                exchange(stream, &request).await
            }
        };
        let answer = tokio::select! {
            answer = asked => answer,
            () = self.shared.clock.sleep(timeout) => {
                Err("context deadline exceeded (Client.Timeout exceeded while awaiting headers)".to_owned())
            }
        };
        answer.map_err(|error| format!("Get \"{url}\": {error}"))
    }
}

async fn exchange(mut stream: impl AsyncRead + AsyncWrite + Unpin, request: &str) -> Result<(u16, String), String> {
    stream.write_all(request.as_bytes()).await.map_err(|error| error.to_string())?;
    let mut answer = Vec::new();
    // Many servers close TLS without saying so: what came is what counts.
    let read = stream.take(MAX_BODY).read_to_end(&mut answer).await;
    let text = String::from_utf8_lossy(&answer).into_owned();
    let code = text.strip_prefix("HTTP/1.").and_then(|rest| rest.get(2..5)).and_then(|code| code.parse().ok());
    match (code, read) {
        (Some(code), _) => Ok((code, text)),
        (None, Err(error)) => Err(error.to_string()),
        (None, Ok(_)) if answer.is_empty() => Err("EOF".to_owned()),
        (None, Ok(_)) => {
            Err(format!("malformed HTTP response {}", capstan_api::go::quote(text.lines().next().unwrap_or_default())))
        }
    }
}

fn shown(port: &IntOrString) -> String {
    match port {
        IntOrString::Int(number) => number.to_string(),
        IntOrString::String(name) => name.clone(),
    }
}

fn bracketed(host: &str) -> String {
    if host.contains(':') { format!("[{host}]") } else { host.to_owned() }
}
