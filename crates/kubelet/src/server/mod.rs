//! The node's server: logs, commands, terminals, ports, pods, numbers.
//!
//! It is reached by the API server on behalf of users. Who it is comes from a client certificate; whether it may is
//! asked of an [`Authorizer`]. One address, HTTP/1.1, because all that is interesting here upgrades the connection.

mod body;
mod logs;
mod redirect;
mod remote;
mod spdy;
mod stream;
mod webhook;
mod websocket;

use std::{convert::Infallible, fmt, net::SocketAddr, sync::Arc};

use body::Body;
use capstan_client::BoxFuture;
use capstan_runtime::Stop;
use http::{Method, Request, Response, StatusCode};
use hyper::{body::Incoming, service::service_fn};
use hyper_util::rt::TokioIo;
use tokio::{
    io::{AsyncRead, AsyncWrite},
    net::TcpListener,
    sync::Semaphore,
};
use tokio_rustls::{TlsAcceptor, rustls::ServerConfig};

pub use webhook::Webhook;

use crate::node::Shared;

/// How many connections there may be at once; more wait.
const MAX_CONNECTIONS: usize = 1024;

/// Who asks.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct User {
    /// The certificate's common name; `system:anonymous` without one.
    pub name: String,
    /// The certificate's organizations.
    pub groups: Vec<String>,
}

/// Decides whether somebody may do something to this node: the verb and the subresource of `nodes` (`proxy`, `log`,
/// `stats`, `metrics`, `pods`, `healthz`).
pub trait Authorizer: fmt::Debug + Send + Sync + 'static {
    /// Whose a bearer token is; nobody's, unless this knows how to find out.
    fn authenticate<'a>(&'a self, _token: &'a str) -> BoxFuture<'a, Option<User>> {
        Box::pin(async { None })
    }

    /// Whether they may.
    fn allows<'a>(&'a self, user: &'a User, verb: &'a str, subresource: &'a str) -> BoxFuture<'a, bool>;
}

/// Lets in whoever has a certificate of the cluster's administrators or is the API server; `/healthz` is for everybody.
#[derive(Clone, Copy, Debug, Default)]
pub struct Masters;

impl Authorizer for Masters {
    fn allows<'a>(&'a self, user: &'a User, _verb: &'a str, subresource: &'a str) -> BoxFuture<'a, bool> {
        let master = user.groups.iter().any(|group| group == "system:masters" || group == "kubeadm:cluster-admins");
        Box::pin(async move { master || subresource == "healthz" || user.name == "kube-apiserver-kubelet-client" })
    }
}

/// Lets in everybody. For servers that only listen where nobody else can reach them.
#[derive(Clone, Copy, Debug, Default)]
pub struct Everybody;

impl Authorizer for Everybody {
    fn allows<'a>(&'a self, _: &'a User, _: &'a str, _: &'a str) -> BoxFuture<'a, bool> {
        Box::pin(async { true })
    }
}

/// The server of one node.
#[derive(Clone, Debug)]
pub struct KubeletServer {
    shared: Arc<Shared>,
    authorizer: Arc<dyn Authorizer>,
}

impl KubeletServer {
    /// A server for a node.
    #[must_use]
    pub fn new(shared: Arc<Shared>, authorizer: Arc<dyn Authorizer>) -> Self {
        KubeletServer { shared, authorizer }
    }

    /// Serves connections of `listener` until told to stop, with TLS if there is a configuration for it.
    pub async fn serve(self, listener: TcpListener, tls: Option<Arc<ServerConfig>>, stop: Stop) {
        let free = Arc::new(Semaphore::new(MAX_CONNECTIONS));
        let acceptor = tls.map(|tls| {
            // Whoever is offered HTTP/2 takes it, and could upgrade nothing then.
            let mut tls = (*tls).clone();
            tls.alpn_protocols = vec![b"http/1.1".to_vec()];
            TlsAcceptor::from(Arc::new(tls))
        });
        loop {
            let Ok(permit) = free.clone().acquire_owned().await else { return };
            let accepted = tokio::select! {
                accepted = listener.accept() => accepted,
                () = stop.stopped() => return,
            };
            let Ok((stream, peer)) = accepted else { continue };
            let (server, acceptor, stop) = (self.clone(), acceptor.clone(), stop.clone());
            tokio::spawn(async move {
                let served = async {
                    match acceptor {
                        None => server.connection(stream, anonymous(), peer).await,
                        Some(acceptor) => {
                            let Ok(stream) = acceptor.accept(stream).await else { return };
                            let certificates = stream.get_ref().1.peer_certificates();
                            let user = certificates.and_then(|all| user_of(all.first()?)).unwrap_or_else(anonymous);
                            server.connection(stream, user, peer).await;
                        }
                    }
                };
                tokio::select! {
                    () = served => {}
                    () = stop.stopped() => {}
                }
                drop(permit);
            });
        }
    }

    async fn connection(
        self,
        stream: impl AsyncRead + AsyncWrite + Send + Unpin + 'static,
        user: User,
        _peer: SocketAddr,
    ) {
        let user = Arc::new(user);
        let service = service_fn(move |request| {
            let (server, user) = (self.clone(), user.clone());
            async move { Ok::<_, Infallible>(server.answer(request, &user).await) }
        });
        let connection = hyper::server::conn::http1::Builder::new().serve_connection(TokioIo::new(stream), service);
        // A connection that breaks is the business of who opened it.
        let _ = connection.with_upgrades().await;
    }

    /// One request. The only place that knows which path is what.
    async fn answer(&self, request: Request<Incoming>, user: &User) -> Response<Body> {
        let path = request.uri().path().to_owned();
        let parts: Vec<&str> = path.trim_matches('/').split('/').collect();
        let subresource = match parts[0] {
            "healthz" => "healthz",
            "pods" | "runningpods" => "pods",
            "stats" => "stats",
            "metrics" => "metrics",
            "logs" => "log",
            _ => "proxy",
        };
        let verb = match *request.method() {
            Method::POST => "create",
            Method::GET | Method::HEAD => "get",
            Method::PUT => "update",
            Method::DELETE => "delete",
            _ => "patch",
        };
        let bearer = request.headers().get(http::header::AUTHORIZATION).and_then(|value| value.to_str().ok());
        let by_token = match bearer.and_then(|value| value.strip_prefix("Bearer ")) {
            Some(token) if user.name == ANONYMOUS => self.authorizer.authenticate(token.trim()).await,
            _ => None,
        };
        let user = by_token.as_ref().unwrap_or(user);
        if !self.authorizer.allows(user, verb, subresource).await {
            let name = self.shared.name();
            let who = &user.name;
            let text = format!(
                "Forbidden (user={who}, verb={verb}, resource=nodes, subresource(s)=[{subresource}]) on {name}"
            );
            let code = if who == ANONYMOUS { StatusCode::UNAUTHORIZED } else { StatusCode::FORBIDDEN };
            return plain(code, text);
        }
        match parts.as_slice() {
            ["healthz", ..] => plain(StatusCode::OK, "ok"),
            ["pods" | "runningpods"] => self.pods(),
            ["stats", "summary"] => json(&self.shared.summary()),
            ["metrics", "resource"] => plain(StatusCode::OK, self.shared.resource_metrics()),
            ["metrics", "cadvisor"] => plain(StatusCode::OK, self.shared.cadvisor_metrics()),
            ["metrics", ..] => plain(StatusCode::OK, self.metrics()),
            ["containerLogs", namespace, pod, container] => self.logs(&request, namespace, pod, container),
            ["exec", namespace, pod, container] | ["exec", namespace, pod, _, container] => {
                self.exec(request, namespace, pod, container).await
            }
            ["attach", namespace, pod, container] | ["attach", namespace, pod, _, container] => {
                self.attach(request, namespace, pod, container).await
            }
            ["run", namespace, pod, container] | ["run", namespace, pod, _, container] => {
                self.run_command(&request, namespace, pod, container).await
            }
            ["portForward", namespace, pod] | ["portForward", namespace, pod, _] => {
                self.port_forward(request, namespace, pod).await
            }
            _ => plain(StatusCode::NOT_FOUND, "404 page not found\n"),
        }
    }

    fn pods(&self) -> Response<Body> {
        let items = self.shared.all_pods();
        json(&serde_json::json!({"kind": "PodList", "apiVersion": "v1", "metadata": {}, "items": items}))
    }

    fn metrics(&self) -> String {
        let pods = self.shared.all_pods();
        let running: usize = pods
            .iter()
            .filter(|pod| pod.status.as_ref().and_then(|status| status.phase.as_deref()) == Some("Running"))
            .count();
        format!(
            "# TYPE kubelet_node_name gauge\nkubelet_node_name{{node=\"{}\"}} 1\n# TYPE kubelet_running_pods gauge\n\
             kubelet_running_pods {running}\n# TYPE kubelet_desired_pods gauge\nkubelet_desired_pods {}\n",
            self.shared.name(),
            pods.len()
        )
    }
}

/// The name of who shows no certificate.
const ANONYMOUS: &str = "system:anonymous";

fn anonymous() -> User {
    User { name: ANONYMOUS.to_owned(), groups: vec!["system:unauthenticated".to_owned()] }
}

/// Who a verified certificate is for.
fn user_of(certificate: &rustls::pki_types::CertificateDer<'_>) -> Option<User> {
    let (_, certificate) = x509_parser::parse_x509_certificate(certificate).ok()?;
    let subject = certificate.subject();
    let text = |attribute: &x509_parser::x509::AttributeTypeAndValue<'_>| Some(attribute.as_str().ok()?.to_owned());
    let name = subject.iter_common_name().next().and_then(text)?;
    Some(User { name, groups: subject.iter_organization().filter_map(text).collect() })
}

/// A text as an answer.
fn plain(code: StatusCode, text: impl Into<String>) -> Response<Body> {
    let mut response = Response::new(Body::text(text.into()));
    *response.status_mut() = code;
    let plain = http::HeaderValue::from_static("text/plain; charset=utf-8");
    response.headers_mut().insert(http::header::CONTENT_TYPE, plain);
    response
}

fn json(value: &serde_json::Value) -> Response<Body> {
    let mut response = Response::new(Body::text(value.to_string()));
    let json = http::HeaderValue::from_static("application/json");
    response.headers_mut().insert(http::header::CONTENT_TYPE, json);
    response
}

/// The values of a parameter of the query, decoded.
fn query(request: &Request<Incoming>, name: &str) -> Vec<String> {
    parameters(request.uri().query().unwrap_or_default())
        .filter(|(key, _)| key == name)
        .map(|(_, value)| value)
        .collect()
}

/// The parameters of a query, decoded.
pub(crate) fn parameters(query: &str) -> impl Iterator<Item = (String, String)> + '_ {
    query.split('&').filter(|part| !part.is_empty()).map(|part| {
        let (key, value) = part.split_once('=').unwrap_or((part, ""));
        (decode(key), decode(value))
    })
}

/// Percent and plus, undone; what is malformed stays as it is.
fn decode(text: &str) -> String {
    let mut out = Vec::with_capacity(text.len());
    let bytes = text.as_bytes();
    let mut at = 0;
    while at < bytes.len() {
        let hex = bytes.get(at + 1..at + 3).and_then(|hex| u8::from_str_radix(std::str::from_utf8(hex).ok()?, 16).ok());
        match (bytes[at], hex) {
            (b'%', Some(byte)) => {
                out.push(byte);
                at += 2;
            }
            (b'+', _) => out.push(b' '),
            (byte, _) => out.push(byte),
        }
        at += 1;
    }
    String::from_utf8_lossy(&out).into_owned()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn queries() {
        let all: Vec<_> = parameters("command=echo&command=a%20b+c%2&tty=1&x").collect();
        let expected = [("command", "echo"), ("command", "a b c%2"), ("tty", "1"), ("x", "")];
        assert_eq!(all, expected.map(|(a, b)| (a.to_owned(), b.to_owned())));
    }
}
