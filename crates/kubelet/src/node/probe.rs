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
use crate::{env, lifecycle::Outcome, runtime::RuntimeError};

/// How much of an answer is read.
const MAX_BODY: u64 = 10 * 1024;
/// How many times an answer may lead elsewhere.
const MAX_REDIRECTS: usize = 10;
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
            let command = env::expand_static(exec.command.as_deref().unwrap_or_default(), &self.container);
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
                Ok(200..=399) => Outcome::Success,
                Ok(code) => Outcome::Failure(format!("HTTP probe failed with statuscode: {code}")),
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

    /// The status code of the last answer: redirects on the same host are followed.
    async fn http(&self, get: &HTTPGetAction, timeout: Duration) -> Result<u16, String> {
        let host = get.host.as_deref().filter(|host| !host.is_empty()).unwrap_or(&self.ip);
        let port = self.port(&get.port).ok_or_else(|| format!("couldn't find port: {}", shown(&get.port)))?;
        let path = get.path.as_deref().unwrap_or("/");
        let mut place = Place {
            tls: get.scheme.as_deref() == Some("HTTPS"),
            host: host.to_owned(),
            port,
            path: if path.starts_with('/') { path.to_owned() } else { format!("/{path}") },
        };
        let headers: Vec<(&str, &str)> =
            get.http_headers.iter().flatten().map(|header| (header.name.as_str(), header.value.as_str())).collect();
        let mut url = place.url();
        let asked = async {
            for _ in 0..MAX_REDIRECTS {
                let answer = self.ask(&place, &headers, timeout).await?;
                match answer.redirect(&place) {
                    Some(next) if next.host == place.host => place = next,
                    _ => return Ok(answer.code),
                }
                url = place.url();
            }
            Err(format!("stopped after {MAX_REDIRECTS} redirects"))
        };
        let answer = tokio::select! {
            answer = asked => answer,
            () = self.shared.clock.sleep(timeout) => {
                Err("context deadline exceeded (Client.Timeout exceeded while awaiting headers)".to_owned())
            }
        };
        answer.map_err(|error| format!("Get \"{url}\": {error}"))
    }

    async fn ask(&self, place: &Place, headers: &[(&str, &str)], timeout: Duration) -> Result<Answer, String> {
        let has = |name: &str| headers.iter().any(|(known, _)| known.eq_ignore_ascii_case(name));
        let mut request = format!("GET {} HTTP/1.1\r\nConnection: close\r\n", place.path);
        let authority = place.authority();
        for (name, value) in [("Host", authority.as_str()), ("User-Agent", "kube-probe/1.36"), ("Accept", "*/*")] {
            if !has(name) {
                request.push_str(&format!("{name}: {value}\r\n"));
            }
        }
        // What is said to be empty is left out: so the usual ones can be taken away.
        for (name, value) in headers.iter().filter(|(_, value)| !value.is_empty()) {
            request.push_str(&format!("{name}: {value}\r\n"));
        }
        request.push_str("\r\n");
        let stream = self.connect(&place.host, place.port, timeout).await?;
        if place.tls {
            let config = insecure::config(None).map_err(|error| error.to_string())?;
            let stream = insecure::connect(config, stream, &place.host).await.map_err(|error| error.to_string())?;
            exchange(stream, &request).await
        } else {
            exchange(stream, &request).await
        }
    }
}

/// Where an HTTP probe goes.
#[derive(Clone, Debug, PartialEq, Eq)]
struct Place {
    tls: bool,
    host: String,
    port: u16,
    /// With the query.
    path: String,
}

impl Place {
    fn authority(&self) -> String {
        format!("{}:{}", bracketed(&self.host), self.port)
    }

    fn url(&self) -> String {
        format!("{}://{}{}", if self.tls { "https" } else { "http" }, self.authority(), self.path)
    }
}

/// What came back.
struct Answer {
    code: u16,
    location: Option<String>,
}

impl Answer {
    /// Where it leads, if it leads elsewhere.
    fn redirect(&self, from: &Place) -> Option<Place> {
        if !matches!(self.code, 301 | 302 | 303 | 307 | 308) {
            return None;
        }
        let to: http::Uri = self.location.as_deref()?.parse().ok()?;
        let path = to.path_and_query().map_or("/", http::uri::PathAndQuery::as_str);
        let Some(host) = to.host() else {
            let base = from.path.split('?').next().unwrap_or("/").rsplit_once('/').map_or("", |(base, _)| base);
            let path = if path.starts_with('/') { path.to_owned() } else { format!("{base}/{path}") };
            return Some(Place { path, ..from.clone() });
        };
        let tls = to.scheme_str().map_or(from.tls, |scheme| scheme == "https");
        let port = to.port_u16().unwrap_or(if tls { 443 } else { 80 });
        let host = host.trim_start_matches('[').trim_end_matches(']').to_owned();
        Some(Place { tls, host, port, path: path.to_owned() })
    }
}

async fn exchange(mut stream: impl AsyncRead + AsyncWrite + Unpin, request: &str) -> Result<Answer, String> {
    stream.write_all(request.as_bytes()).await.map_err(|error| error.to_string())?;
    let mut answer = Vec::new();
    // Many servers close TLS without saying so: what came is what counts.
    let read = stream.take(MAX_BODY).read_to_end(&mut answer).await;
    let text = String::from_utf8_lossy(&answer).into_owned();
    let code = text.strip_prefix("HTTP/1.").and_then(|rest| rest.get(2..5)).and_then(|code| code.parse().ok());
    match (code, read) {
        (Some(code), _) => Ok(Answer { code, location: header(&text, "location").map(str::to_owned) }),
        (None, Err(error)) => Err(error.to_string()),
        (None, Ok(_)) if answer.is_empty() => Err("EOF".to_owned()),
        (None, Ok(_)) => {
            Err(format!("malformed HTTP response {}", capstan_api::go::quote(text.lines().next().unwrap_or_default())))
        }
    }
}

/// A header of an answer.
fn header<'a>(answer: &'a str, name: &str) -> Option<&'a str> {
    let head = answer.split("\r\n\r\n").next()?;
    let mut fields = head.lines().skip(1).filter_map(|line| line.split_once(':'));
    fields.find(|(known, _)| known.eq_ignore_ascii_case(name)).map(|(_, value)| value.trim())
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn where_answers_lead() {
        let from = Place { tls: false, host: "10.0.0.1".to_owned(), port: 8080, path: "/a/b?c".to_owned() };
        let check = |code: u16, location: Option<&str>, expected: Option<&str>| {
            let answer = Answer { code, location: location.map(str::to_owned) };
            assert_eq!(answer.redirect(&from).map(|place| place.url()), expected.map(str::to_owned), "{location:?}");
        };
        check(200, Some("/x"), None);
        check(302, None, None);
        check(302, Some("/x?y"), Some("http://10.0.0.1:8080/x?y"));
        check(307, Some("http://10.0.0.1/x"), Some("http://10.0.0.1:80/x"));
        check(301, Some("https://[fd00::1]:8443"), Some("https://[fd00::1]:8443/"));
    }

    #[test]
    fn headers_of_answers() {
        let answer = "HTTP/1.1 302 Found\r\nContent-Length: 0\r\nlocation: /ok \r\n\r\nLocation: /body";
        assert_eq!(header(answer, "Location"), Some("/ok"));
        assert_eq!(header(answer, "Etag"), None);
    }
}
