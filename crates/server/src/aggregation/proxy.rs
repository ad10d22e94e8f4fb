//! The way to the server of an APIService and back: a connection for each request, on which this server shows its
//! certificate of a front proxy and says for whom it asks. Answers come back as they are, watches as they are sent, and
//! connections that are used for something else are handed through.

use std::{io, sync::Arc, time::Duration};

use bytes::Bytes;
use capstan_clock::Clock;
use http::{HeaderMap, HeaderName, HeaderValue, Request, StatusCode, header};
use http_body_util::{BodyExt as _, Limited};
use hyper::{body::Incoming, client::conn::http1};
use hyper_util::rt::TokioIo;
use tokio::net::TcpStream;
use tokio_rustls::TlsConnector;

use super::{Aggregator, Remote, resolve::Place};
use crate::{
    audit::AUDIT_ID,
    authentication::RequestHeaders,
    authorization::UserInfo,
    backend::{DIAL_TIMEOUT, Relay, host_port, is_upgrade, pass_on, strip_hops, tunnel, words},
    http::{Body, Response},
    request::RequestInfo,
    serve::{PeerInfo, ShutdownSignal, plain_text},
};

/// How long a server may take to say what it has.
const DISCOVERY_TIMEOUT: Duration = Duration::from_secs(5);

/// The largest document that is read of a server.
const MAX_DOCUMENT: usize = 32 << 20;

const UNAVAILABLE: &str = "service unavailable";

/// What is answered for a server that sends clients elsewhere: they would follow with what they show to this one.
fn redirected() -> Response {
    let text = "the backend attempted to redirect this request, which is not permitted";
    let mut response = Response::new(Body::from(text));
    *response.status_mut() = StatusCode::BAD_GATEWAY;
    response.headers_mut().insert(header::CONTENT_TYPE, HeaderValue::from_static("text/plain; charset=utf-8"));
    response
}

/// A request that another server is to answer.
pub(crate) struct Forwarded<'a> {
    pub(crate) info: &'a RequestInfo,
    pub(crate) user: &'a UserInfo,
    pub(crate) audit_id: &'a HeaderValue,
    pub(crate) parts: &'a mut http::request::Parts,
    pub(crate) body: Body,
}

impl Aggregator {
    /// What the server of an APIService answers.
    pub(crate) async fn forward(&self, remote: &Remote, request: Forwarded<'_>) -> Response {
        let mut response = self.ask(remote, request).await;
        let private = HeaderValue::from_static("no-cache, private");
        response.headers_mut().entry(header::CACHE_CONTROL).or_insert(private);
        response
    }

    async fn ask(&self, remote: &Remote, request: Forwarded<'_>) -> Response {
        if !remote.available {
            return plain_text(StatusCode::SERVICE_UNAVAILABLE, UNAVAILABLE);
        }
        let Ok(place) = self.place(remote) else {
            return plain_text(StatusCode::SERVICE_UNAVAILABLE, UNAVAILABLE);
        };
        let Forwarded { info, user, audit_id, parts, body } = request;
        let upgrade = parts.extensions.remove().filter(|_| is_upgrade(&parts.headers));
        let mut headers = pass_on(&parts.headers, upgrade.is_some());
        headers.insert(AUDIT_ID, audit_id.clone());
        if let Some(peer) = parts.extensions.get::<PeerInfo>() {
            forwarded_for(&mut headers, &peer.address.ip().to_string());
        }
        vouch(&mut headers, user);
        let mut request = Request::new(body);
        *request.method_mut() = parts.method.clone();
        let target = parts.uri.path_and_query().map_or("/", http::uri::PathAndQuery::as_str);
        match target.parse() {
            Ok(uri) => *request.uri_mut() = uri,
            Err(_) => return plain_text(StatusCode::BAD_REQUEST, "the path cannot be asked for"),
        }
        *request.headers_mut() = headers;
        // What a server has is asked by all clients, and a slow one would hold up all of them.
        let discovery = !info.is_resource_request && info.path.trim_matches('/').split('/').count() == 3;
        let sent = self.send(remote, &place, request);
        let sent = if discovery { self.within(DISCOVERY_TIMEOUT, sent).await } else { sent.await };
        let mut response = match sent {
            Ok(response) => response,
            Err(why) => {
                let text = format!("error trying to reach service: {why}");
                return plain_text(StatusCode::SERVICE_UNAVAILABLE, text);
            }
        };
        if response.status().is_redirection() && response.headers().contains_key(header::LOCATION) {
            return redirected();
        }
        if response.status() != StatusCode::SWITCHING_PROTOCOLS {
            strip_hops(response.headers_mut());
            return response.map(|body| Body::stream(Relay(body)));
        }
        let Some(client) = upgrade else {
            let text = "the backend switched protocols without being asked to";
            return plain_text(StatusCode::SERVICE_UNAVAILABLE, text);
        };
        let backend = hyper::upgrade::on(&mut response);
        tokio::spawn(tunnel(client, backend, parts.extensions.get::<ShutdownSignal>().cloned()));
        response.map(|_| Body::empty())
    }

    /// Reads a document as this user of the server's own.
    ///
    /// # Errors
    /// Says why there is none.
    pub(super) async fn read(
        &self,
        remote: &Remote,
        place: &Place,
        path: &str,
        (accept, user): (&'static str, &UserInfo),
    ) -> Result<(StatusCode, HeaderMap, Bytes), String> {
        let mut request = Request::new(Body::empty());
        *request.uri_mut() = path.parse().map_err(|_| "the path cannot be asked for".to_owned())?;
        request.headers_mut().insert(header::ACCEPT, HeaderValue::from_static(accept));
        vouch(request.headers_mut(), user);
        let answer = async {
            let (parts, body) = self.send(remote, place, request).await?.into_parts();
            let body = Limited::new(body, MAX_DOCUMENT).collect().await.map_err(|error| error.to_string())?;
            Ok((parts.status, parts.headers, body.to_bytes()))
        };
        self.within(DISCOVERY_TIMEOUT, answer).await
    }

    async fn within<T>(&self, most: Duration, work: impl Future<Output = Result<T, String>>) -> Result<T, String> {
        tokio::select! {
            done = work => done,
            () = self.registry.clock.sleep(most) => {
                Err("context deadline exceeded (Client.Timeout exceeded while awaiting headers)".to_owned())
            }
        }
    }

    async fn send(
        &self,
        remote: &Remote,
        place: &Place,
        mut request: Request<Body>,
    ) -> Result<http::Response<Incoming>, String> {
        let tls = remote.tls.as_ref().map_err(Clone::clone)?;
        let host = host_port(&place.host, place.port);
        let stream = dial(&*self.registry.clock, place).await?;
        let stream = TlsConnector::from(Arc::clone(&tls.config)).connect(tls.name.clone(), stream).await;
        let stream = stream.map_err(|error| words(&error))?;
        let (mut sender, connection) =
            http1::handshake(TokioIo::new(stream)).await.map_err(|error| error.to_string())?;
        tokio::spawn(connection.with_upgrades());
        let host = HeaderValue::from_str(&host).map_err(|_| "the host has no name".to_owned())?;
        request.headers_mut().insert(header::HOST, host);
        sender.send_request(request).await.map_err(|error| error.to_string())
    }
}

/// A connection to the first address of a place that answers; or why none does, with the last that was tried.
async fn dial(clock: &dyn Clock, place: &Place) -> Result<TcpStream, String> {
    let deadline = clock.monotonic().plus(DIAL_TIMEOUT);
    let found = tokio::net::lookup_host((place.host.as_str(), place.port)).await;
    let found = found.map_err(|_| format!("dial tcp: lookup {}: no such host", place.host))?;
    let mut failed = format!("dial tcp: lookup {}: no such host", place.host);
    for address in found {
        let stream = tokio::select! {
            stream = TcpStream::connect(address) => stream,
            () = clock.sleep_until(deadline) => Err(io::ErrorKind::TimedOut.into()),
        };
        match stream.and_then(|stream| stream.set_nodelay(true).map(|()| stream)) {
            Ok(stream) => return Ok(stream),
            Err(error) => failed = format!("dial tcp {address}: {}", words(&error)),
        }
    }
    Err(failed)
}

/// Says for whom this server asks. What a client said of that itself has been removed by authentication; it is removed
/// again, for everything behind this believes it.
fn vouch(headers: &mut HeaderMap, user: &UserInfo) {
    RequestHeaders::standard_names().strip(headers);
    let mut add = |name: &str, value: &str| {
        if let (Ok(name), Ok(value)) = (HeaderName::try_from(name), HeaderValue::from_str(value)) {
            headers.append(name, value);
        }
    };
    add("X-Remote-User", &user.name);
    if !user.uid.is_empty() {
        add("X-Remote-Uid", &user.uid);
    }
    user.groups.iter().for_each(|group| add("X-Remote-Group", group));
    for (key, values) in &user.extra {
        let name = format!("X-Remote-Extra-{}", escape(key));
        values.iter().for_each(|value| add(&name, value));
    }
}

/// A key as a part of a header's name: what may not be in one is written as in a URL, and so is the percent sign.
fn escape(key: &str) -> String {
    let mut out = String::with_capacity(key.len());
    for byte in key.bytes() {
        if byte.is_ascii_alphanumeric() || b"!#$&'*+-.^_`|~".contains(&byte) {
            out.push(char::from(byte));
        } else {
            out.push_str(&format!("%{byte:02X}"));
        }
    }
    out
}

fn forwarded_for(headers: &mut HeaderMap, client: &str) {
    let name = HeaderName::from_static("x-forwarded-for");
    let mut all: Vec<&str> = headers.get_all(&name).iter().filter_map(|value| value.to_str().ok()).collect();
    all.push(client);
    if let Ok(value) = HeaderValue::from_str(&all.join(", ")) {
        headers.insert(name, value);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn users_are_named_in_headers() {
        let mut user = UserInfo::new("jane", ["a", "b"]);
        user.uid = "7".into();
        user.extra.insert("example.com/scopes".into(), vec!["x".into(), "y".into()]);
        let mut headers = HeaderMap::new();
        headers.insert("x-remote-user", HeaderValue::from_static("root"));
        headers.insert("x-remote-extra-foo", HeaderValue::from_static("bar"));
        vouch(&mut headers, &user);
        let all: Vec<_> = headers.iter().map(|(name, value)| format!("{name}: {}", value.to_str().unwrap())).collect();
        assert_eq!(
            all,
            [
                "x-remote-user: jane",
                "x-remote-uid: 7",
                "x-remote-group: a",
                "x-remote-group: b",
                "x-remote-extra-example.com%2fscopes: x",
                "x-remote-extra-example.com%2fscopes: y",
            ]
        );
    }

    #[test]
    fn clients_are_added_to_those_before() {
        let mut headers = HeaderMap::new();
        forwarded_for(&mut headers, "192.0.2.1");
        forwarded_for(&mut headers, "192.0.2.2");
        assert_eq!(headers["x-forwarded-for"], "192.0.2.1, 192.0.2.2");
    }
}
