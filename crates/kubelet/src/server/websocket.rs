//! Remote commands over WebSocket: `v4.channel.k8s.io` and `v5.channel.k8s.io`, with or without base64.
//!
//! The first byte (or digit) of a message is its channel. v5 can close one: 255, then the channel.

use base64::{Engine as _, prelude::BASE64_STANDARD};
use bytes::{BufMut as _, Bytes, BytesMut};
use futures_util::{SinkExt as _, StreamExt as _};
use hyper::upgrade::Upgraded;
use hyper_util::rt::TokioIo;
use tokio::sync::mpsc;
use tokio_tungstenite::{
    WebSocketStream,
    tungstenite::{
        Message,
        protocol::{CloseFrame, Role, WebSocketConfig, frame::coding::CloseCode},
    },
};

use super::stream::{CHUNKS, Channel, FromClient, ToClient};

/// The protocols for commands, the best first.
pub(super) const PROTOCOLS: [&str; 5] =
    ["v5.channel.k8s.io", "v4.channel.k8s.io", "v4.base64.channel.k8s.io", "channel.k8s.io", "base64.channel.k8s.io"];
/// The largest message that is taken.
const MAX_MESSAGE: usize = 1 << 20;
/// The message of v5 that closes a channel.
const CLOSE: u8 = 255;

/// A WebSocket on a connection that has been upgraded.
pub(super) async fn accept(upgraded: Upgraded) -> WebSocketStream<TokioIo<Upgraded>> {
    let config = WebSocketConfig::default().max_message_size(Some(MAX_MESSAGE)).max_frame_size(Some(MAX_MESSAGE));
    WebSocketStream::from_raw_socket(TokioIo::new(upgraded), Role::Server, Some(config)).await
}

/// What is read from the client and what is written to it, on one WebSocket.
pub(super) async fn serve(
    upgraded: Upgraded,
    protocol: &str,
    from: mpsc::Sender<FromClient>,
    mut to: mpsc::Receiver<ToClient>,
) {
    let (mut sink, mut stream) = accept(upgraded).await.split();
    let base64 = protocol.contains("base64");
    // The plain protocol has no status: the end is the end.
    let with_status = protocol.starts_with('v');
    let v5 = protocol.starts_with("v5");
    let reader = async move {
        while let Some(Ok(message)) = stream.next().await {
            let bytes = match message {
                Message::Binary(bytes) => bytes,
                Message::Text(text) => Bytes::copy_from_slice(text.as_bytes()),
                Message::Close(_) => break,
                _ => continue,
            };
            if let Some(message) = parse(&bytes, base64, v5)
                && from.send(message).await.is_err()
            {
                break;
            }
        }
    };
    let writer = async move {
        while let Some(message) = to.recv().await {
            let (channel, bytes, last) = match message {
                ToClient::Data(channel, bytes) => (channel, bytes, false),
                ToClient::End(status) => (Channel::Error, status, true),
            };
            if (!last || with_status) && sink.send(frame(channel, &bytes, base64)).await.is_err() {
                return;
            }
            if last {
                break;
            }
        }
        let _ = sink.send(Message::Close(Some(CloseFrame { code: CloseCode::Normal, reason: "".into() }))).await;
        let _ = sink.flush().await;
    };
    tokio::select! {
        () = writer => {}
        () = reader => {}
    }
}

fn number(channel: Channel) -> u8 {
    match channel {
        Channel::Stdin => 0,
        Channel::Stdout => 1,
        Channel::Stderr => 2,
        Channel::Error => 3,
        Channel::Resize => 4,
    }
}

fn channel(number: u8) -> Option<Channel> {
    [Channel::Stdin, Channel::Stdout, Channel::Stderr, Channel::Error, Channel::Resize]
        .get(usize::from(number))
        .copied()
}

fn frame(to: Channel, bytes: &[u8], base64: bool) -> Message {
    if base64 {
        return Message::text(format!("{}{}", number(to), BASE64_STANDARD.encode(bytes)));
    }
    let mut all = BytesMut::with_capacity(bytes.len() + 1);
    all.put_u8(number(to));
    all.put_slice(bytes);
    Message::Binary(all.freeze())
}

fn parse(message: &Bytes, base64: bool, v5: bool) -> Option<FromClient> {
    let (&first, rest) = message.split_first()?;
    if base64 {
        let bytes = BASE64_STANDARD.decode(rest).ok()?;
        return Some(FromClient::Data(channel(first.checked_sub(b'0')?)?, bytes.into()));
    }
    if v5 && first == CLOSE {
        return Some(FromClient::Close(channel(*rest.first()?)?));
    }
    Some(FromClient::Data(channel(first)?, message.slice(1..)))
}

/// The channels between a connection and a session.
#[expect(clippy::type_complexity, reason = "two pairs of ends, named where they are taken apart")]
pub(super) fn channels()
-> ((mpsc::Sender<FromClient>, mpsc::Receiver<ToClient>), (mpsc::Receiver<FromClient>, mpsc::Sender<ToClient>)) {
    let (from, from_client) = mpsc::channel(CHUNKS);
    let (to_client, to) = mpsc::channel(CHUNKS);
    ((from, to), (from_client, to_client))
}
