//! Watches over WebSocket: each event is one message.
//!
//! The protocol is tungstenite's, run over two buffers in memory (`Wire`); the pump moves bytes between those and the
//! socket, so that all waiting is in one place.

use std::{
    collections::VecDeque,
    future::poll_fn,
    io::{self, Read, Write},
    pin::Pin,
};

use bytes::{Buf, Bytes, BytesMut};
use http::{HeaderMap, HeaderValue, Method, StatusCode, Uri, header, request::Parts};
use http_body::{Body as _, Frame};
use hyper::upgrade::{OnUpgrade, Upgraded};
use hyper_util::rt::TokioIo;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio_tungstenite::tungstenite::{
    self, Message, Utf8Bytes, WebSocket,
    handshake::derive_accept_key,
    protocol::{CloseFrame, Role, WebSocketConfig, frame::coding::CloseCode},
};

use super::{ShutdownSignal, limits::WEBSOCKET_MESSAGE_BYTES};
use crate::http::{Body, Response};

/// How many bytes are read from the client at a time.
const READ_BUFFER: usize = 4 * 1024;

/// The length that stands before each event of a watch in protobuf. Messages have a length of their own.
const PROTOBUF_PREFIX: usize = 4;

/// Whether a request wants to go on as a WebSocket.
#[must_use]
pub fn is_upgrade(headers: &HeaderMap) -> bool {
    let lower = |value: &HeaderValue| value.as_bytes().to_ascii_lowercase();
    let upgrades = |value: &HeaderValue| lower(value).windows(7).any(|part| part == b"upgrade");
    headers.get(header::UPGRADE).is_some_and(|value| lower(value) == b"websocket")
        && headers.get_all(header::CONNECTION).iter().any(upgrades)
}

/// Turns the answer to a watch into one over WebSocket: the events of its body become messages.
///
/// `request` is the head of the request as it came from the socket. Each frame of the body has to be one event. An
/// answer that is not a success stays as it is. Must be called in a runtime.
#[must_use]
pub fn upgrade(request: &mut Parts, response: Response) -> Response {
    if !response.status().is_success() {
        return response;
    }
    let accepted = match handshake(request) {
        Ok(accepted) => accepted,
        Err(refusal) => return refusal.into(),
    };
    // Only HTTP/1 connections can be taken over.
    let Some(upgraded) = request.extensions.remove::<OnUpgrade>() else {
        return Refusal(StatusCode::BAD_REQUEST, "not websocket protocol").into();
    };
    let signal = request.extensions.get::<ShutdownSignal>().cloned();
    let content_type = response.headers().get(header::CONTENT_TYPE).map(HeaderValue::as_bytes).unwrap_or_default();
    let framing = if content_type.starts_with(b"application/json") { Framing::Text } else { Framing::Binary };
    let events = response.into_body();
    tokio::spawn(async move {
        // A client that is gone before it got its answer has no use for events.
        let Ok(upgraded) = upgraded.await else { return };
        let aborted = async {
            match &signal {
                Some(signal) => signal.aborted().await,
                None => std::future::pending().await,
            }
        };
        tokio::select! {
            // Whether the client saw all events is its own to find out: it resumes where it was.
            _ = pump(TokioIo::new(upgraded), events, framing) => {}
            () = aborted => {}
        }
    });
    accepted
}

/// The refusal that also says which version would do.
const BAD_VERSION: &str = "missing or bad WebSocket Version";

/// Why a handshake fails, in the words of Go's package.
struct Refusal(StatusCode, &'static str);

impl From<Refusal> for Response {
    fn from(Refusal(status, text): Refusal) -> Self {
        let mut response = Response::new(Body::from(text));
        *response.status_mut() = status;
        let headers = response.headers_mut();
        headers.insert(header::CONNECTION, HeaderValue::from_static("close"));
        if text == BAD_VERSION {
            headers.insert(header::SEC_WEBSOCKET_VERSION, HeaderValue::from_static("13"));
        }
        response
    }
}

/// Checks the client's side of the handshake and makes ours.
///
/// Watches take any one subprotocol and say it back. They want an origin, which browsers send by themselves.
fn handshake(request: &Parts) -> Result<Response, Refusal> {
    let value = |name| request.headers.get(name).map(HeaderValue::as_bytes).unwrap_or_default();
    if request.method != Method::GET {
        return Err(Refusal(StatusCode::METHOD_NOT_ALLOWED, "bad method"));
    }
    if !is_upgrade(&request.headers) {
        return Err(Refusal(StatusCode::BAD_REQUEST, "not websocket protocol"));
    }
    let key = value(header::SEC_WEBSOCKET_KEY);
    if key.is_empty() {
        return Err(Refusal(StatusCode::BAD_REQUEST, "mismatch challenge/response"));
    }
    if value(header::SEC_WEBSOCKET_VERSION) != b"13" {
        return Err(Refusal(StatusCode::BAD_REQUEST, BAD_VERSION));
    }
    if !is_origin(value(header::ORIGIN)) {
        return Err(Refusal(StatusCode::FORBIDDEN, ""));
    }
    let mut response = Response::new(Body::empty());
    *response.status_mut() = StatusCode::SWITCHING_PROTOCOLS;
    let headers = response.headers_mut();
    headers.insert(header::UPGRADE, HeaderValue::from_static("websocket"));
    headers.insert(header::CONNECTION, HeaderValue::from_static("Upgrade"));
    let refused = |_| Refusal(StatusCode::BAD_REQUEST, "");
    headers.insert(header::SEC_WEBSOCKET_ACCEPT, derive_accept_key(key).try_into().map_err(refused)?);
    match value(header::SEC_WEBSOCKET_PROTOCOL).trim_ascii() {
        b"" => {}
        several if several.contains(&b',') => return Err(Refusal(StatusCode::BAD_REQUEST, "")),
        one => {
            headers.insert(header::SEC_WEBSOCKET_PROTOCOL, HeaderValue::from_bytes(one).map_err(refused)?);
        }
    }
    Ok(response)
}

/// Whether an origin is a URL or a path. That of a page without one, `null`, is neither.
fn is_origin(origin: &[u8]) -> bool {
    Uri::try_from(origin).is_ok_and(|uri| uri.scheme().is_some() || origin.starts_with(b"/"))
}

/// What events are made of.
#[derive(Clone, Copy)]
enum Framing {
    Text,
    Binary,
}

impl Framing {
    fn message(self, event: Bytes) -> Message {
        match self {
            // What is no text is sent as bytes: the client decides what it makes of it.
            Framing::Text => match Utf8Bytes::try_from(event.clone()) {
                Ok(text) => Message::Text(text),
                Err(_) => Message::Binary(event),
            },
            Framing::Binary => Message::Binary(event.slice(PROTOBUF_PREFIX.min(event.len())..)),
        }
    }
}

/// The socket as the protocol sees it: what has come in, what is to go out.
#[derive(Default)]
struct Wire {
    incoming: VecDeque<u8>,
    outgoing: BytesMut,
}

impl Read for Wire {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        if self.incoming.is_empty() { Err(io::ErrorKind::WouldBlock.into()) } else { self.incoming.read(buffer) }
    }
}

impl Write for Wire {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        self.outgoing.extend_from_slice(bytes);
        Ok(bytes.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

/// Sends events until there are no more or the client leaves. What the client says is ignored, but for pings.
async fn pump(mut socket: TokioIo<Upgraded>, mut events: Body, framing: Framing) -> Result<(), tungstenite::Error> {
    let config = WebSocketConfig::default()
        .read_buffer_size(READ_BUFFER)
        .max_message_size(Some(WEBSOCKET_MESSAGE_BYTES))
        .max_frame_size(Some(WEBSOCKET_MESSAGE_BYTES));
    let mut protocol = WebSocket::from_raw_socket(Wire::default(), Role::Server, Some(config));
    let mut buffer = [0; READ_BUFFER];
    let mut open = true;
    while open {
        // Nothing new is taken in from either side before the client has read what is there for it.
        socket.write_all_buf(&mut protocol.get_mut().outgoing).await?;
        socket.flush().await?;
        tokio::select! {
            read = socket.read(&mut buffer) => {
                let length = read?;
                protocol.get_mut().incoming.extend(&buffer[..length]);
                open = length > 0 && drain(&mut protocol);
            }
            event = next(&mut events) => match event {
                Some(frame) => if let Ok(event) = frame?.into_data() {
                    protocol.send(framing.message(event))?;
                },
                None => {
                    let normal = CloseFrame { code: CloseCode::Normal, reason: Utf8Bytes::from_static("") };
                    protocol.close(Some(normal))?;
                    open = false;
                }
            },
        }
    }
    let mut rest = std::mem::take(&mut protocol.get_mut().outgoing);
    while rest.has_remaining() {
        socket.write_buf(&mut rest).await?;
    }
    socket.shutdown().await?;
    Ok(())
}

async fn next(events: &mut Body) -> Option<io::Result<Frame<Bytes>>> {
    poll_fn(|cx| Pin::new(&mut *events).poll_frame(cx)).await
}

/// Throws away what the client said; false once it has said goodbye, or nonsense.
fn drain(protocol: &mut WebSocket<Wire>) -> bool {
    loop {
        match protocol.read() {
            Ok(Message::Close(_)) => {
                // The goodbye is answered by the flush; that there is nothing more to send is no error.
                let _ = protocol.flush();
                return false;
            }
            Ok(_) => {}
            Err(tungstenite::Error::Io(error)) if error.kind() == io::ErrorKind::WouldBlock => {
                return protocol.flush().is_ok();
            }
            Err(_) => return false,
        }
    }
}
