//! A WebSocket that carries another protocol's bytes: a connection within the connection.

use bytes::Bytes;
use futures_util::{SinkExt as _, StreamExt as _};
use tokio::io::{AsyncRead, AsyncReadExt as _, AsyncWrite, AsyncWriteExt as _, DuplexStream};
use tokio_tungstenite::{
    WebSocketStream,
    tungstenite::{
        Message,
        protocol::{CloseFrame, frame::coding::CloseCode},
    },
};

/// The subprotocol of a WebSocket that carries forwarded ports in SPDY.
pub const PORT_FORWARD: &str = "SPDY/3.1+portforward.k8s.io";

/// How many bytes may wait on each way.
const BUFFER: usize = 64 * 1024;

/// What is written comes out as messages of the WebSocket, and the other way round. Either end closes both.
pub fn tunnel<S>(socket: WebSocketStream<S>) -> DuplexStream
where
    S: AsyncRead + AsyncWrite + Unpin + Send + 'static,
{
    let (ours, theirs) = tokio::io::duplex(BUFFER);
    let (mut sink, mut stream) = socket.split();
    let (mut read, mut write) = tokio::io::split(ours);
    tokio::spawn(async move {
        while let Some(Ok(message)) = stream.next().await {
            match message {
                Message::Binary(bytes) if write.write_all(&bytes).await.is_err() => return,
                Message::Close(_) => break,
                _ => {}
            }
        }
        let _ = write.shutdown().await;
    });
    tokio::spawn(async move {
        let mut buffer = vec![0; BUFFER / 2];
        while let Ok(read @ 1..) = read.read(&mut buffer).await {
            if sink.send(Message::Binary(Bytes::copy_from_slice(&buffer[..read]))).await.is_err() {
                return;
            }
        }
        // Without a code Go takes the end for a failure.
        let end = CloseFrame { code: CloseCode::Normal, reason: "".into() };
        let _ = sink.send(Message::Close(Some(end))).await;
    });
    theirs
}
