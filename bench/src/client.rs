//! A plain HTTP/2 client over TLS that counts the bytes on the wire: the same for every side.

use std::{
    fmt,
    io::{self, IoSlice},
    net::SocketAddr,
    path::Path,
    pin::Pin,
    sync::{
        Arc,
        atomic::{AtomicU64, Ordering},
    },
    task::{Context, Poll},
};

use bytes::{Bytes, BytesMut};
use http::{HeaderValue, Method, Request, StatusCode, header};
use http_body_util::{BodyExt as _, Full};
use hyper::{body::Incoming, client::conn::http2};
use hyper_util::rt::{TokioExecutor, TokioIo};
use rustls::{ClientConfig, RootCertStore};
use rustls_pki_types::{CertificateDer, ServerName, pem::PemObject as _};
use tokio::{
    io::{AsyncRead, AsyncWrite, ReadBuf},
    net::TcpStream,
};
use tokio_rustls::TlsConnector;

/// How much of one answer may be on its way before it is read: what Go's client takes.
const STREAM_WINDOW: u32 = 4 << 20;
/// How much of all answers of a connection.
const CONNECTION_WINDOW: u32 = 64 << 20;

/// Where a server is and who asks.
#[derive(Clone)]
pub(crate) struct Endpoint {
    address: SocketAddr,
    tls: TlsConnector,
    authorization: HeaderValue,
    authority: String,
    wire: Arc<AtomicU64>,
}

/// One connection.
#[derive(Clone)]
pub(crate) struct Connection {
    send: http2::SendRequest<Full<Bytes>>,
    endpoint: Endpoint,
}

/// What is asked; cheap to clone.
#[derive(Clone, Debug)]
pub(crate) struct Call {
    pub(crate) method: Method,
    pub(crate) path: String,
    pub(crate) accept: &'static str,
    pub(crate) content_type: &'static str,
    pub(crate) body: Bytes,
}

impl Call {
    pub(crate) fn get(path: impl Into<String>) -> Self {
        Call { method: Method::GET, path: path.into(), accept: JSON, content_type: "", body: Bytes::new() }
    }

    pub(crate) fn delete(path: impl Into<String>) -> Self {
        Call { method: Method::DELETE, ..Call::get(path) }
    }

    pub(crate) fn post(path: impl Into<String>, body: impl Into<Bytes>) -> Self {
        Call { method: Method::POST, content_type: JSON, body: body.into(), ..Call::get(path) }
    }

    pub(crate) fn put(path: impl Into<String>, body: impl Into<Bytes>) -> Self {
        Call { method: Method::PUT, ..Call::post(path, body) }
    }

    pub(crate) fn merge_patch(path: impl Into<String>, body: impl Into<Bytes>) -> Self {
        let content_type = "application/merge-patch+json";
        Call { method: Method::PATCH, content_type, ..Call::post(path, body) }
    }

    pub(crate) fn accept(self, accept: &'static str) -> Self {
        Call { accept, ..self }
    }
}

pub(crate) const JSON: &str = "application/json";
pub(crate) const PROTOBUF: &str = "application/vnd.kubernetes.protobuf";

/// Why there is no answer as wanted.
#[derive(Debug)]
pub(crate) enum CallError {
    /// None came.
    Transport(String),
    /// It was refused.
    Status(StatusCode, String),
}

impl fmt::Display for CallError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            CallError::Transport(error) => f.write_str(error),
            CallError::Status(status, body) => write!(f, "{status}: {body}"),
        }
    }
}

fn transport(error: impl fmt::Display) -> CallError {
    CallError::Transport(error.to_string())
}

impl Endpoint {
    /// A server at `address` whose certificate the authority in the file `ca` signed.
    pub(crate) fn new(address: SocketAddr, ca: &Path, token: &str) -> Result<Self, String> {
        let fail = |error: &dyn fmt::Display| format!("{}: {error}", ca.display());
        let mut roots = RootCertStore::empty();
        for certificate in CertificateDer::pem_file_iter(ca).map_err(|error| fail(&error))? {
            let certificate = certificate.map_err(|error| fail(&error))?;
            roots.add(certificate).map_err(|error| fail(&error))?;
        }
        let provider = Arc::new(rustls::crypto::aws_lc_rs::default_provider());
        let config = ClientConfig::builder_with_provider(provider)
            .with_safe_default_protocol_versions()
            .map_err(|error| error.to_string())?;
        let mut config = config.with_root_certificates(roots).with_no_client_auth();
        config.alpn_protocols = vec![b"h2".to_vec()];
        let authorization = HeaderValue::try_from(format!("Bearer {token}")).map_err(|error| error.to_string())?;
        let (tls, wire) = (TlsConnector::from(Arc::new(config)), Arc::new(AtomicU64::new(0)));
        Ok(Endpoint { address, tls, authorization, authority: address.to_string(), wire })
    }

    /// Where it is.
    pub(crate) fn address(&self) -> SocketAddr {
        self.address
    }

    /// How many bytes went over all its connections, both ways.
    pub(crate) fn wire_bytes(&self) -> u64 {
        self.wire.load(Ordering::Relaxed)
    }

    /// Connects.
    pub(crate) async fn connect(&self) -> Result<Connection, CallError> {
        self.connect_with(STREAM_WINDOW).await
    }

    /// Connects; answers may be so far ahead of who reads them.
    pub(crate) async fn connect_with(&self, window: u32) -> Result<Connection, CallError> {
        let stream = TcpStream::connect(self.address).await.map_err(transport)?;
        stream.set_nodelay(true).map_err(transport)?;
        let counted = Counted { stream, bytes: Arc::clone(&self.wire) };
        let name = ServerName::IpAddress(self.address.ip().into());
        let stream = self.tls.connect(name, counted).await.map_err(transport)?;
        let (send, connection) = http2::Builder::new(TokioExecutor::new())
            .initial_stream_window_size(window)
            .initial_connection_window_size(CONNECTION_WINDOW)
            .max_frame_size(1 << 20)
            .handshake(TokioIo::new(stream))
            .await
            .map_err(transport)?;
        tokio::spawn(connection);
        Ok(Connection { send, endpoint: self.clone() })
    }

    /// So many connections.
    pub(crate) async fn connect_all(&self, count: usize) -> Result<Vec<Connection>, CallError> {
        let mut connections = Vec::with_capacity(count);
        for _ in 0..count {
            connections.push(self.connect().await?);
        }
        Ok(connections)
    }
}

impl Connection {
    /// Asks, and returns the answer when its head is there.
    pub(crate) async fn open(&self, call: Call) -> Result<Incoming, CallError> {
        let mut request = Request::new(Full::new(call.body));
        *request.method_mut() = call.method;
        let uri = format!("https://{}{}", self.endpoint.authority, call.path);
        *request.uri_mut() = uri.parse().map_err(transport)?;
        let headers = request.headers_mut();
        headers.insert(header::AUTHORIZATION, self.endpoint.authorization.clone());
        headers.insert(header::ACCEPT, HeaderValue::from_static(call.accept));
        if !call.content_type.is_empty() {
            headers.insert(header::CONTENT_TYPE, HeaderValue::from_static(call.content_type));
        }
        let mut send = self.send.clone();
        send.ready().await.map_err(transport)?;
        let response = send.send_request(request).await.map_err(transport)?;
        let status = response.status();
        if status.is_success() {
            return Ok(response.into_body());
        }
        let body = response.into_body().collect().await.map_err(transport)?.to_bytes();
        Err(CallError::Status(status, String::from_utf8_lossy(&body).into_owned()))
    }

    /// Asks, reads the answer and forgets it; returns its size.
    pub(crate) async fn call(&self, call: Call) -> Result<u64, CallError> {
        let mut body = self.open(call).await?;
        let mut size = 0;
        while let Some(frame) = body.frame().await {
            let frame = frame.map_err(transport)?;
            size += frame.data_ref().map_or(0, |data| data.len() as u64);
        }
        Ok(size)
    }

    /// Asks and reads the answer.
    pub(crate) async fn read(&self, call: Call) -> Result<Bytes, CallError> {
        let mut body = self.open(call).await?;
        let mut whole = BytesMut::new();
        while let Some(frame) = body.frame().await {
            if let Ok(data) = frame.map_err(transport)?.into_data() {
                whole.extend_from_slice(&data);
            }
        }
        Ok(whole.freeze())
    }
}

/// A socket that counts.
struct Counted {
    stream: TcpStream,
    bytes: Arc<AtomicU64>,
}

impl Counted {
    fn count(&self, written: Poll<io::Result<usize>>) -> Poll<io::Result<usize>> {
        if let Poll::Ready(Ok(count)) = &written {
            self.bytes.fetch_add(*count as u64, Ordering::Relaxed);
        }
        written
    }
}

impl AsyncRead for Counted {
    fn poll_read(mut self: Pin<&mut Self>, cx: &mut Context<'_>, buffer: &mut ReadBuf<'_>) -> Poll<io::Result<()>> {
        let before = buffer.filled().len();
        let read = Pin::new(&mut self.stream).poll_read(cx, buffer);
        self.bytes.fetch_add((buffer.filled().len() - before) as u64, Ordering::Relaxed);
        read
    }
}

impl AsyncWrite for Counted {
    fn poll_write(mut self: Pin<&mut Self>, cx: &mut Context<'_>, bytes: &[u8]) -> Poll<io::Result<usize>> {
        let written = Pin::new(&mut self.stream).poll_write(cx, bytes);
        self.count(written)
    }

    fn poll_write_vectored(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        slices: &[IoSlice<'_>],
    ) -> Poll<io::Result<usize>> {
        let written = Pin::new(&mut self.stream).poll_write_vectored(cx, slices);
        self.count(written)
    }

    fn is_write_vectored(&self) -> bool {
        self.stream.is_write_vectored()
    }

    fn poll_flush(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.stream).poll_flush(cx)
    }

    fn poll_shutdown(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.stream).poll_shutdown(cx)
    }
}
