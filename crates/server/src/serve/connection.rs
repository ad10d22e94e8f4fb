//! One connection, from the handshake to its end.

use std::{
    convert::Infallible,
    future::{Future, poll_fn},
    net::SocketAddr,
    pin::{Pin, pin},
    sync::Arc,
    task::{Context, Poll},
};

use capstan_clock::{Moment, SharedClock, Sleep};
use http::{HeaderValue, StatusCode, Version, header};
use hyper::body::Incoming;
use hyper_util::{
    rt::{TokioExecutor, TokioIo},
    server::conn::auto,
};
use rustls_pki_types::CertificateDer;
use tokio::{
    io::{AsyncRead, AsyncWrite},
    net::TcpStream,
    sync::watch,
};
use tokio_rustls::{TlsAcceptor, server::TlsStream};
use tower_service::Service;

use super::{
    Limits, ShutdownSignal,
    activity::{Activity, Download, Upload},
    catch_panic,
    io::ClientIo,
    limits::{self, GO_AWAY_TIMEOUT},
    shutdown::{Phase, reached},
    timer::ClockTimer,
};
use crate::{
    authentication::PeerCertificates,
    http::{Body, Request, Response},
};

/// Who is at the other end. It is an extension of each request that came over a socket.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PeerInfo {
    /// The address.
    pub address: SocketAddr,
    /// The certificates that the client showed, its own first; none without TLS. What they are worth is not said.
    pub certificates: Arc<[CertificateDer<'static>]>,
}

/// What all connections of a server share.
pub(super) struct Shared<S> {
    pub(super) tls: Option<TlsAcceptor>,
    pub(super) service: S,
    pub(super) limits: Limits,
    pub(super) clock: SharedClock,
    pub(super) http: auto::Builder<TokioExecutor>,
    pub(super) phase: watch::Receiver<Phase>,
}

/// How connections speak HTTP.
pub(super) fn http(limits: &Limits, clock: &SharedClock) -> auto::Builder<TokioExecutor> {
    let timer = ClockTimer::new(clock.clone());
    let mut http = auto::Builder::new(TokioExecutor::new());
    http.http1()
        .timer(timer.clone())
        // hyper's timeout would also end connections that are merely idle; `Activity` tells the two apart.
        .header_read_timeout(None)
        .max_headers(limits::HEADERS)
        .max_buf_size((limits::HEADER_BYTES + limits::HEADER_BYTES_SLOP) as usize);
    // The size of frames stays the least there is: from it follows in how many pieces a head may come, and clients send
    // small ones before they know that they may send larger ones.
    http.http2()
        .timer(timer)
        .max_concurrent_streams(limits.streams)
        // As Go's server counts. Who ends takes back all its watches at once, some of them before they were looked at.
        .max_pending_accept_reset_streams(4 * limits.streams as usize)
        .max_header_list_size(limits::HEADER_BYTES)
        .initial_stream_window_size(limits::STREAM_WINDOW)
        .initial_connection_window_size(limits::CONNECTION_WINDOW)
        .max_send_buf_size(limits::STREAM_SEND_BUFFER)
        .keep_alive_interval(limits::PING_INTERVAL)
        .keep_alive_timeout(limits::PING_TIMEOUT);
    http
}

/// Serves one client until one of the two is done, or all has to end.
pub(super) async fn run<S>(shared: Arc<Shared<S>>, stream: TcpStream, address: SocketAddr, signal: ShutdownSignal)
where
    S: Service<Request, Response = Response, Error = Infallible> + Clone + Send + Sync + 'static,
    S::Future: Send,
{
    // It only fails when the connection is dead, which the first read will tell as well.
    let _ = stream.set_nodelay(true);
    let Some(tls) = &shared.tls else {
        let peer = PeerInfo { address, certificates: Arc::new([]) };
        return speak(&shared, stream, peer, false, signal).await;
    };
    // A client that cannot shake hands gets the alert that rustls sends, nothing more.
    let handshake = tls.accept(stream);
    let stream = tokio::select! {
        biased;
        () = reached(shared.phase.clone(), Phase::Draining) => return,
        result = handshake => result,
        () = shared.clock.sleep(shared.limits.header_timeout) => return,
    };
    let Ok(stream) = stream else { return };
    let (peer, http2) = peer(&stream, address);
    speak(&shared, stream, peer, http2, signal).await;
}

/// Who a TLS client is, and whether it speaks HTTP/2.
fn peer(stream: &TlsStream<TcpStream>, address: SocketAddr) -> (PeerInfo, bool) {
    let (_, tls) = stream.get_ref();
    let certificates = tls.peer_certificates().unwrap_or_default();
    let certificates = certificates.iter().cloned().map(CertificateDer::into_owned).collect();
    (PeerInfo { address, certificates }, tls.alpn_protocol() == Some(b"h2"))
}

async fn speak<S, I>(shared: &Shared<S>, stream: I, peer: PeerInfo, http2: bool, signal: ShutdownSignal)
where
    S: Service<Request, Response = Response, Error = Infallible> + Clone + Send + Sync + 'static,
    S::Future: Send,
    I: AsyncRead + AsyncWrite + Unpin + Send + 'static,
{
    let activity = Activity::new(shared.clock.clone(), shared.limits, http2);
    let (io, sending) = ClientIo::new(stream, shared.clock.clone(), activity.clone(), shared.limits.write_timeout);
    // What is found out about the certificates once holds for the whole connection.
    let certificates = PeerCertificates::new(peer.certificates.to_vec()).map(Arc::new);
    let service = {
        let (service, activity) = (shared.service.clone(), activity.clone());
        hyper::service::service_fn(move |request: http::Request<Incoming>| {
            let busy = activity.begin(request.version() == Version::HTTP_2);
            let mut request = request.map(|body| Upload::wrap(body, &activity));
            request.extensions_mut().insert(peer.clone());
            if let Some(certificates) = &certificates {
                request.extensions_mut().insert(certificates.clone());
            }
            request.extensions_mut().insert(signal.clone());
            let service = service.clone();
            async move {
                let answering = pin!(answer(service, request));
                let answer = catch_panic(answering).await;
                Ok::<_, Infallible>(answer.map(|body| Download { body, _busy: busy }))
            }
        })
    };
    let mut connection = pin!(shared.http.serve_connection_with_upgrades(TokioIo::new(io), service));
    let mut draining = pin!(reached(shared.phase.clone(), Phase::Draining));
    let mut aborted = pin!(reached(shared.phase.clone(), Phase::Aborted));
    let mut deadline = Deadline::new(&shared.clock, &activity);
    let (mut told, mut over) = (false, false);
    // The connection writes all it has to, and then it is sent.
    let go_on = |cx: &mut Context<'_>, connection: Pin<&mut _>, over: &mut bool| {
        if !*over && Future::poll(connection, cx).is_ready() {
            *over = true;
            // It may be that the client and somebody here now speak otherwise than by HTTP.
            sending.release();
        }
        match sending.poll_send(cx) {
            Poll::Ready(Ok(())) if !*over => Poll::Pending,
            Poll::Ready(_) => Poll::Ready(()),
            Poll::Pending => Poll::Pending,
        }
    };
    poll_fn(|cx| {
        if aborted.as_mut().poll(cx).is_ready() {
            return Poll::Ready(());
        }
        if !told && !over && draining.as_mut().poll(cx).is_ready() {
            told = true;
            connection.as_mut().graceful_shutdown();
        }
        // Why a connection broke is of interest to the client alone, and hyper has told it what can be told.
        if go_on(cx, connection.as_mut(), &mut over).is_ready() {
            return Poll::Ready(());
        }
        while deadline.poll(cx).is_ready() {
            if over || !activity.is_http2() || !deadline.extend(GO_AWAY_TIMEOUT) {
                return Poll::Ready(());
            }
            told = true;
            connection.as_mut().graceful_shutdown();
            if go_on(cx, connection.as_mut(), &mut over).is_ready() {
                return Poll::Ready(());
            }
        }
        Poll::Pending
    })
    .await;
}

/// Calls the service, unless the request lacks what HTTP/1.1 wants to tell hosts apart.
async fn answer<S>(mut service: S, request: Request) -> Response
where
    S: Service<Request, Response = Response, Error = Infallible>,
{
    let mut hosts = request.headers().get_all(header::HOST).iter();
    let refusal = match (hosts.next(), hosts.next()) {
        (None, _) if request.version() == Version::HTTP_11 => "400 Bad Request: missing required Host header",
        (Some(_), Some(_)) => "400 Bad Request",
        _ => "",
    };
    if !refusal.is_empty() {
        let mut response = Response::new(Body::from(refusal));
        *response.status_mut() = StatusCode::BAD_REQUEST;
        let headers = response.headers_mut();
        headers.insert(header::CONTENT_TYPE, HeaderValue::from_static("text/plain; charset=utf-8"));
        headers.insert(header::CONNECTION, HeaderValue::from_static("close"));
        return response;
    }
    let Ok(()) = poll_fn(|cx| service.poll_ready(cx)).await;
    let Ok(response) = service.call(request).await;
    response
}

/// Waits for the deadline of a connection, wherever that moves.
struct Deadline<'a> {
    clock: &'a SharedClock,
    activity: &'a Activity,
    until: Moment,
    sleep: Sleep,
    /// The client has been told to go, by then it has to be gone.
    last: Option<Moment>,
}

impl<'a> Deadline<'a> {
    fn new(clock: &'a SharedClock, activity: &'a Activity) -> Self {
        let until = activity.deadline().unwrap_or_else(|| clock.monotonic());
        Deadline { clock, activity, until, sleep: clock.sleep_until(until), last: None }
    }

    /// Ready once the deadline has passed.
    ///
    /// Nobody wakes the task when the deadline moves. It does not have to: a deadline that moves away is seen when the
    /// sleep ends, and one comes nearer only by bytes that are read, which is done by this very task.
    fn poll(&mut self, cx: &mut Context<'_>) -> Poll<()> {
        loop {
            let deadline = self.last.or_else(|| self.activity.deadline());
            if let Some(deadline) = deadline.filter(|&deadline| deadline < self.until) {
                self.set(deadline);
            }
            if self.sleep.as_mut().poll(cx).is_pending() {
                return Poll::Pending;
            }
            let now = self.clock.monotonic();
            match deadline {
                Some(deadline) if deadline <= now => return Poll::Ready(()),
                Some(deadline) => self.set(deadline),
                None => self.set(now.plus(self.activity.idle_timeout())),
            }
        }
    }

    /// Grants more time, once.
    fn extend(&mut self, more: std::time::Duration) -> bool {
        if self.last.is_some() {
            return false;
        }
        let last = self.clock.monotonic().plus(more);
        self.last = Some(last);
        self.set(last);
        true
    }

    fn set(&mut self, until: Moment) {
        self.until = until;
        self.sleep = self.clock.sleep_until(until);
    }
}
