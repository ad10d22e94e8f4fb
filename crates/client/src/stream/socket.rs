//! A WebSocket to a server, by whatever transport can be upgraded.

use std::{future::poll_fn, pin::Pin};

use base64::{Engine as _, engine::general_purpose::STANDARD};
use bytes::Bytes;
use futures_util::{
    Sink as _, Stream as _,
    stream::{SplitSink, SplitStream, StreamExt as _},
};
use http::{HeaderValue, Method, StatusCode, header};
use hyper::upgrade::Upgraded;
use hyper_util::rt::TokioIo;
use tokio_tungstenite::{
    WebSocketStream,
    tungstenite::{
        Error as SocketError, Message,
        handshake::derive_accept_key,
        protocol::{Role, WebSocketConfig},
    },
};

use crate::{Client, Error, failure::Asked};

/// The longest message that is read. Servers send far shorter ones.
const MAX_MESSAGE: usize = 1 << 20;

/// A WebSocket on a connection that was upgraded.
pub(super) type Socket = WebSocketStream<TokioIo<Upgraded>>;

/// What messages of a connection are read from. The first byte of a message says which stream it is of.
pub(super) struct Reader(SplitStream<Socket>);

/// What messages of a connection are written to.
pub(super) struct Writer(SplitSink<Socket, Message>);

fn broken(error: SocketError) -> Error {
    Error::Transport(format!("the connection broke: {error}"))
}

impl Client {
    /// Opens a WebSocket. Gives the protocol that the server chose.
    pub(super) async fn web_socket(&self, path: &str, protocols: &'static str) -> Result<(Socket, String), Error> {
        let mut key = [0; 16];
        self.ids().fill(&mut key);
        let key = STANDARD.encode(key);
        let mut request = self.request(Method::GET, path)?;
        let headers = request.headers_mut();
        headers.remove(header::ACCEPT);
        headers.insert(header::CONNECTION, HeaderValue::from_static("Upgrade"));
        headers.insert(header::UPGRADE, HeaderValue::from_static("websocket"));
        headers.insert(header::SEC_WEBSOCKET_VERSION, HeaderValue::from_static("13"));
        headers.insert(header::SEC_WEBSOCKET_PROTOCOL, HeaderValue::from_static(protocols));
        let wrong = |what: &str| Error::Transport(format!("{path}: {what}"));
        headers.insert(header::SEC_WEBSOCKET_KEY, key.parse().map_err(|_| wrong("no key could be made"))?);
        let asked = Asked::of(&request);
        let mut response = self.send(request).await?;
        if response.status() != StatusCode::SWITCHING_PROTOCOLS {
            let (head, body) = response.into_parts();
            return Err(asked.failure(head.status, &head.headers, &body.bytes().await?));
        }
        let said = |name| response.headers().get(name).and_then(|value: &HeaderValue| value.to_str().ok());
        if said(header::SEC_WEBSOCKET_ACCEPT) != Some(derive_accept_key(key.as_bytes()).as_str()) {
            return Err(wrong("the server does not speak WebSocket"));
        }
        let protocol = said(header::SEC_WEBSOCKET_PROTOCOL).unwrap_or_default().to_owned();
        if !protocols.split(", ").any(|known| known == protocol) {
            return Err(wrong(&format!("the server chose the protocol {protocol:?}, out of {protocols}")));
        }
        let upgraded = hyper::upgrade::on(&mut response).await;
        let upgraded = upgraded.map_err(|error| wrong(&format!("the connection cannot be upgraded: {error}")))?;
        let config = WebSocketConfig::default().max_message_size(Some(MAX_MESSAGE));
        let socket = WebSocketStream::from_raw_socket(TokioIo::new(upgraded), Role::Client, Some(config)).await;
        Ok((socket, protocol))
    }
}

/// The two halves of a connection whose messages are of several streams.
pub(super) fn halves(socket: Socket) -> (Reader, Writer) {
    let (writer, reader) = socket.split();
    (Reader(reader), Writer(writer))
}

impl Reader {
    /// The next message: which stream, and what. Nothing when the server has closed.
    pub(super) async fn next(&mut self) -> Result<Option<(u8, Bytes)>, Error> {
        loop {
            let message = poll_fn(|cx| Pin::new(&mut self.0).poll_next(cx)).await;
            let bytes = match message {
                None | Some(Ok(Message::Close(_)) | Err(SocketError::ConnectionClosed)) => return Ok(None),
                Some(Err(error)) => return Err(broken(error)),
                Some(Ok(Message::Binary(bytes))) => bytes,
                Some(Ok(Message::Text(text))) => text.into(),
                Some(Ok(_)) => continue,
            };
            if let Some(stream) = bytes.first() {
                return Ok(Some((*stream, bytes.slice(1..))));
            }
        }
    }
}

impl Writer {
    /// Sends a message of a stream, once the connection takes it.
    pub(super) async fn send(&mut self, stream: u8, bytes: &[u8]) -> Result<(), Error> {
        let mut message = Vec::with_capacity(bytes.len() + 1);
        message.push(stream);
        message.extend_from_slice(bytes);
        self.send_as_it_is(message.into()).await
    }

    /// Sends a message that begins with its stream, once the connection takes it.
    pub(super) async fn send_as_it_is(&mut self, message: Bytes) -> Result<(), Error> {
        poll_fn(|cx| Pin::new(&mut self.0).poll_ready(cx)).await.map_err(broken)?;
        Pin::new(&mut self.0).start_send(Message::Binary(message)).map_err(broken)?;
        poll_fn(|cx| Pin::new(&mut self.0).poll_flush(cx)).await.map_err(broken)
    }

    /// Says that there is no more to come, if that can still be said.
    pub(super) async fn close(&mut self) {
        let _ = poll_fn(|cx| Pin::new(&mut self.0).poll_close(cx)).await;
    }
}
