//! A server on a loopback address, asked by clients that know how to misbehave.

mod bounds;
mod ends;
mod http1;
mod http2;
mod parts;
mod sockets;
mod tls;

use std::{
    convert::Infallible,
    future::poll_fn,
    pin::Pin,
    sync::{
        Arc,
        atomic::{AtomicUsize, Ordering},
    },
    task::{Context, Poll},
    time::Duration,
};

use bytes::Bytes;
use capstan_clock::{Clock, ManualClock};
use http::StatusCode;
use http_body::Frame;
use tokio::{
    io::{AsyncRead, AsyncReadExt, AsyncWrite, AsyncWriteExt},
    net::{TcpListener, TcpStream},
    sync::mpsc,
};
use tower_service::Service;

use super::*;
use crate::http::Body;

/// More than any socket buffers, made of slices that are all the same memory.
const HUGE: usize = 256 * 1024 * 1024;

type Answer = Pin<Box<dyn Future<Output = Result<Response, Infallible>> + Send>>;

/// Answers by path.
#[derive(Clone)]
struct App {
    clock: ManualClock,
    /// How many requests hang.
    hanging: Arc<AtomicUsize>,
}

impl Service<Request> for App {
    type Response = Response;
    type Error = Infallible;
    type Future = Answer;

    fn poll_ready(&mut self, _: &mut Context<'_>) -> Poll<Result<(), Infallible>> {
        Poll::Ready(Ok(()))
    }

    fn call(&mut self, request: Request) -> Answer {
        let app = self.clone();
        Box::pin(async move { Ok(answer(request, &app).await) })
    }
}

async fn answer(request: Request, app: &App) -> Response {
    let clock = &app.clock;
    let (mut head, body) = request.into_parts();
    match head.uri.path() {
        "/panic" => panic!("as asked"),
        "/hang" => {
            let _hanging = Hanging::new(&app.hanging);
            std::future::pending().await
        }
        "/timeout" => with_timeout(clock, limits::REQUEST_TIMEOUT, std::future::pending()).await,
        "/echo" => match read_body(body, clock, limits::REQUEST_TIMEOUT).await {
            Ok(bytes) => Response::new(Body::from(format!("read {}", bytes.len()))),
            Err(status) => {
                let mut response = Response::new(Body::from(status.message));
                *response.status_mut() = StatusCode::from_u16(u16::try_from(status.code).unwrap()).unwrap();
                response
            }
        },
        "/peer" => {
            let peer = head.extensions.get::<PeerInfo>().unwrap();
            Response::new(Body::from(format!("{} {}", peer.address.ip(), peer.certificates.len())))
        }
        "/large" => {
            let slice = Bytes::from(vec![b'x'; 1000]);
            gzip(&head.headers, Response::new(Body::Slices(vec![slice; 1000].into())))
        }
        "/huge" => {
            let slice = Bytes::from(vec![b'x'; 1024 * 1024]);
            Response::new(Body::Slices(vec![slice; HUGE / (1024 * 1024)].into()))
        }
        "/watch" => watch(head.extensions.get::<ShutdownSignal>().unwrap().clone(), "application/json"),
        "/websocket" => {
            let kind = head.uri.query().unwrap_or("application/json").to_owned();
            let response = watch(head.extensions.get::<ShutdownSignal>().unwrap().clone(), &kind);
            websocket::upgrade(&mut head, response)
        }
        path => Response::new(Body::from(format!("hello {path}"))),
    }
}

/// Counts a request that hangs until it is dropped.
struct Hanging(Arc<AtomicUsize>);

impl Hanging {
    fn new(count: &Arc<AtomicUsize>) -> Self {
        count.fetch_add(1, Ordering::Relaxed);
        Hanging(count.clone())
    }
}

impl Drop for Hanging {
    fn drop(&mut self) {
        self.0.fetch_sub(1, Ordering::Relaxed);
    }
}

/// Two events, then nothing until the server ends.
fn watch(signal: ShutdownSignal, content_type: &str) -> Response {
    let (sender, receiver) = mpsc::channel(2);
    for event in ["{\"one\":1}\n", "{\"two\":2}\n"] {
        sender.try_send(Bytes::from_static(event.as_bytes())).unwrap();
    }
    tokio::spawn(async move {
        signal.closed().await;
        drop(sender);
    });
    let response = http::Response::builder().header("Content-Type", content_type);
    response.body(Body::stream(Events(receiver))).unwrap()
}

struct Events(mpsc::Receiver<Bytes>);

impl http_body::Body for Events {
    type Data = Bytes;
    type Error = std::io::Error;

    fn poll_frame(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Option<std::io::Result<Frame<Bytes>>>> {
        self.0.poll_recv(cx).map(|event| event.map(|event| Ok(Frame::data(event))))
    }
}

struct Server {
    handle: Handle,
    clock: ManualClock,
    app: App,
}

impl Server {
    async fn start() -> Self {
        Server::with(Limits::default(), None).await
    }

    async fn with(limits: Limits, tls: Option<Arc<ServerConfig>>) -> Self {
        let clock = ManualClock::at("2026-01-01T00:00:00Z".parse().unwrap());
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let app = App { clock: clock.clone(), hanging: Arc::default() };
        let handle = serve(vec![listener], tls, app.clone(), limits, Arc::new(clock.clone())).unwrap();
        Server { handle, clock, app }
    }

    async fn connect(&self) -> TcpStream {
        TcpStream::connect(self.handle.local_addr()).await.unwrap()
    }

    /// Sends bytes and reads all that comes until the server closes.
    async fn ask(&self, request: &[u8]) -> String {
        let mut stream = self.connect().await;
        let (mut reader, mut writer) = stream.split();
        let mut answer = Vec::new();
        // The server may answer, and close, before it has all.
        let (_, _) = tokio::join!(writer.write_all(request), reader.read_to_end(&mut answer));
        String::from_utf8(answer).unwrap()
    }

    /// A sign that the server goes on.
    async fn is_well(&self) {
        let answer = self.ask(b"GET /well HTTP/1.1\r\nHost: a\r\nConnection: close\r\n\r\n").await;
        assert!(answer.starts_with("HTTP/1.1 200 OK\r\n") && answer.ends_with("hello /well"), "{answer}");
    }

    /// Waits until so many requests hang.
    async fn hanging(&self, count: usize) {
        while self.app.hanging.load(Ordering::Relaxed) < count {
            tokio::task::yield_now().await;
        }
    }

    /// Waits until so many wait for the clock.
    async fn sleepers(&self, count: usize) {
        while self.clock.sleepers() < count {
            tokio::task::yield_now().await;
        }
    }

    /// Lets time pass, second by second, until the server closes the connection; tells how much.
    async fn until_closed(&self, stream: &mut TcpStream) -> Duration {
        let start = self.clock.monotonic();
        let mut byte = [0];
        loop {
            for _ in 0..100 {
                tokio::select! {
                    biased;
                    read = stream.read(&mut byte) => match read {
                        Ok(1) => {}
                        _ => return self.clock.monotonic().since(start),
                    },
                    () = tokio::task::yield_now() => {}
                }
            }
            self.clock.advance(Duration::from_secs(1));
        }
    }
}

/// Reads until `end` has come.
async fn read_until(stream: &mut (impl AsyncRead + Unpin), end: &str) -> String {
    let mut text = Vec::new();
    while !text.ends_with(end.as_bytes()) {
        text.push(stream.read_u8().await.unwrap_or_else(|e| panic!("{e}: {}", String::from_utf8_lossy(&text))));
    }
    String::from_utf8(text).unwrap()
}

/// An HTTP/2 client on a connection.
async fn http2_client<I>(stream: I) -> hyper::client::conn::http2::SendRequest<String>
where
    I: AsyncRead + AsyncWrite + Unpin + Send + 'static,
{
    let executor = hyper_util::rt::TokioExecutor::new();
    let io = hyper_util::rt::TokioIo::new(stream);
    let (client, connection) = hyper::client::conn::http2::handshake(executor, io).await.unwrap();
    tokio::spawn(connection);
    client
}

fn http2_get(path: &str) -> http::Request<String> {
    http::Request::get(format!("http://a{path}")).body(String::new()).unwrap()
}

/// The whole body, and whether it ended well.
async fn collect<B: http_body::Body<Data = Bytes> + Unpin>(mut body: B) -> (Vec<u8>, bool) {
    let mut bytes = Vec::new();
    while let Some(frame) = poll_fn(|cx| Pin::new(&mut body).poll_frame(cx)).await {
        let Ok(frame) = frame else { return (bytes, false) };
        if let Ok(data) = frame.into_data() {
            bytes.extend_from_slice(&data);
        }
    }
    (bytes, true)
}
