//! What a manager says of itself over HTTP: whether it lives, whether it is ready, its numbers.

use std::{convert::Infallible, fmt, net::SocketAddr, sync::Arc, time::Duration};

use capstan_client::beat::{Either, race};
use capstan_clock::SharedClock;
use http::{Method, Request, Response, StatusCode, header};
use http_body_util::Full;
use hyper::{
    body::{Bytes, Incoming},
    server::conn::http1,
    service::service_fn,
};
use hyper_util::rt::TokioIo;
use tokio::{
    net::{TcpListener, TcpStream},
    sync::Semaphore,
    task::JoinSet,
};

use crate::{
    Stop,
    metrics::{CONTENT_TYPE, Registry},
};

/// How many connections are served at once; others wait.
const MAX_CONNECTIONS: usize = 64;

/// How long a connection lasts. Who has more to ask makes another one.
const CONNECTION_LASTS: Duration = Duration::from_secs(30);

/// How long the last answer of a connection may take.
const CONNECTION_ENDS: Duration = Duration::from_secs(5);

/// How long to wait when no connection can be taken.
const ACCEPT_WAIT: Duration = Duration::from_secs(1);

/// Whether all is well, or what is not.
pub type Check = Arc<dyn Fn() -> Result<(), String> + Send + Sync>;

/// Checks by their names, as `/healthz` and `/readyz` show them.
#[derive(Clone, Default)]
pub struct Checks(Vec<(String, Check)>);

impl fmt::Debug for Checks {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_list().entries(self.0.iter().map(|(name, _)| name)).finish()
    }
}

impl Checks {
    /// Adds a check.
    pub fn add(&mut self, name: &str, check: impl Fn() -> Result<(), String> + Send + Sync + 'static) {
        self.0.push((name.to_owned(), Arc::new(check)));
    }

    /// What to answer: `below` is the path below the endpoint, the name of one check, or nothing.
    #[must_use]
    pub fn answer(&self, endpoint: &str, below: &str, query: &str) -> (u16, String) {
        let one = below.trim_matches('/');
        if !one.is_empty() {
            return match self.0.iter().find(|(name, _)| name == one) {
                None => (404, "404 page not found\n".to_owned()),
                Some((_, check)) => match check() {
                    Ok(()) => (200, "ok".to_owned()),
                    Err(reason) => (500, format!("internal server error: {reason}\n")),
                },
            };
        }
        let has = |key: &str| query.split('&').any(|pair| pair.split('=').next() == Some(key));
        let excluded = |name: &str| query.split('&').any(|pair| pair.strip_prefix("exclude=") == Some(name));
        let (mut text, mut failed) = (String::new(), false);
        for (name, check) in &self.0 {
            text.push_str(&match check {
                _ if excluded(name) => format!("[+]{name} excluded: ok\n"),
                check if check().is_ok() => format!("[+]{name} ok\n"),
                _ => {
                    failed = true;
                    format!("[-]{name} failed: reason withheld\n")
                }
            });
        }
        if failed {
            return (500, format!("{text}{endpoint} check failed\n"));
        }
        (200, if has("verbose") { format!("{text}{endpoint} check passed\n") } else { "ok".to_owned() })
    }
}

/// A text that is made when it is asked for, and where it is.
pub(super) type Page = (&'static str, Arc<dyn Fn() -> String + Send + Sync>);

/// What is served at one address.
#[derive(Clone, Default)]
pub(super) struct Endpoints {
    pub(super) pages: Vec<Page>,
    pub(super) metrics: Option<Registry>,
    pub(super) health: Option<(Checks, Checks)>,
}

impl Endpoints {
    fn answer(&self, method: &Method, path: &str, query: &str) -> Response<Full<Bytes>> {
        let page = self.pages.iter().find(|(at, _)| *at == path);
        let (code, kind, text) = match (&self.metrics, &self.health) {
            _ if method != Method::GET && method != Method::HEAD => {
                (405, "text/plain; charset=utf-8", "Method Not Allowed\n".to_owned())
            }
            _ if page.is_some() => {
                (200, "text/plain; charset=utf-8", page.map_or_else(String::new, |(_, make)| make()))
            }
            (Some(registry), _) if path == "/metrics" => (200, CONTENT_TYPE, registry.render()),
            (_, Some((healthz, readyz))) => {
                let (code, text) = if let Some(below) = path.strip_prefix("/healthz") {
                    healthz.answer("healthz", below, query)
                } else if let Some(below) = path.strip_prefix("/readyz") {
                    readyz.answer("readyz", below, query)
                } else {
                    (404, "404 page not found\n".to_owned())
                };
                (code, "text/plain; charset=utf-8", text)
            }
            _ => (404, "text/plain; charset=utf-8", "404 page not found\n".to_owned()),
        };
        let mut response = Response::new(Full::new(Bytes::from(text)));
        *response.status_mut() = StatusCode::from_u16(code).unwrap_or(StatusCode::INTERNAL_SERVER_ERROR);
        response.headers_mut().insert(header::CONTENT_TYPE, header::HeaderValue::from_static(kind));
        response
    }

    /// Serves until it is time to go. Connections that are open then are closed once they have their answer.
    pub(super) async fn serve(self, listener: TcpListener, clock: SharedClock, stop: Stop) {
        let (this, places) = (Arc::new(self), Arc::new(Semaphore::new(MAX_CONNECTIONS)));
        let mut connections = JoinSet::new();
        let accept = async || {
            let place = Arc::clone(&places).acquire_owned().await;
            (listener.accept().await, place)
        };
        while let Either::First((accepted, place)) = race(accept(), stop.stopped()).await {
            while connections.try_join_next().is_some() {}
            // One that went away before it was greeted is no reason to stop; nor is having no file descriptors left,
            // which only time mends.
            let Ok((socket, _)) = accepted else {
                race(clock.sleep(ACCEPT_WAIT), stop.stopped()).await;
                continue;
            };
            let (this, clock, stop) = (Arc::clone(&this), Arc::clone(&clock), stop.clone());
            connections.spawn(async move {
                this.connection(socket, &clock, &stop).await;
                drop(place);
            });
        }
        while connections.join_next().await.is_some() {}
    }

    /// Answers on a connection for so long. Then it is closed once it has its answer, or soon if it never asks: who
    /// says nothing takes a place from others.
    async fn connection(&self, socket: TcpStream, clock: &SharedClock, stop: &Stop) {
        let service = service_fn(|request: Request<Incoming>| {
            let uri = request.uri();
            let response = self.answer(request.method(), uri.path(), uri.query().unwrap_or_default());
            std::future::ready(Ok::<_, Infallible>(response))
        });
        let mut connection = std::pin::pin!(http1::Builder::new().serve_connection(TokioIo::new(socket), service));
        let enough = race(clock.sleep(CONNECTION_LASTS), stop.stopped());
        if let Either::Second(_) = race(connection.as_mut(), enough).await {
            connection.as_mut().graceful_shutdown();
            race(connection, clock.sleep(CONNECTION_ENDS)).await;
        }
    }
}

/// Takes an address.
pub(super) async fn bind(address: SocketAddr) -> std::io::Result<TcpListener> {
    TcpListener::bind(address).await
}

#[cfg(test)]
mod tests {
    use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};

    use super::*;
    use crate::{
        Stopper,
        testing::{clock, over_time},
    };

    #[tokio::test]
    async fn who_says_nothing_takes_no_place_for_long() {
        let clock = clock();
        let listener = bind(SocketAddr::from(([127, 0, 0, 1], 0))).await.unwrap();
        let address = listener.local_addr().unwrap();
        let (stopper, stop) = Stopper::new();
        let endpoints = Endpoints { health: Some(Default::default()), ..Endpoints::default() };
        let serving = tokio::spawn(endpoints.serve(listener, Arc::new(clock.clone()), stop));
        let mut silent = Vec::new();
        for _ in 0..MAX_CONNECTIONS {
            let mut socket = TcpStream::connect(address).await.unwrap();
            socket.write_all(b"GET /heal").await.unwrap();
            silent.push(socket);
        }
        let asked = async {
            let mut socket = TcpStream::connect(address).await.unwrap();
            socket.write_all(b"GET /healthz HTTP/1.1\r\nhost: x\r\nconnection: close\r\n\r\n").await.unwrap();
            let mut text = String::new();
            socket.read_to_string(&mut text).await.unwrap();
            text
        };
        assert!(over_time(&clock, asked).await.starts_with("HTTP/1.1 200 "));
        stopper.stop();
        over_time(&clock, serving).await.unwrap();
    }
}
