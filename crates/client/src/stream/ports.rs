//! Streams to ports, whatever carries them: one connection, many streams, each a pair of data and errors.
//!
//! The connection has one task that reads it and hands out what comes, and one that writes. A stream that nobody reads
//! holds up the others once its buffers are full: neither protocol has a way to tell the other side to wait.

use std::{
    collections::HashMap,
    fmt, io,
    pin::Pin,
    sync::{Arc, Mutex, MutexGuard, PoisonError},
    task::{Context, Poll},
};

use bytes::{BufMut as _, Bytes, BytesMut};
use capstan_spdy::connection::{CHUNK, FRAMES};
use tokio::{
    io::{AsyncRead, AsyncReadExt as _, AsyncWrite, AsyncWriteExt as _, DuplexStream, ReadBuf},
    sync::{mpsc, oneshot},
    task::AbortHandle,
};

/// How many bytes of a stream may wait on each way.
const BUFFER: usize = 64 * 1024;

/// The most that is kept of why a stream failed.
const MAX_REASON: usize = 16 * 1024;

/// What is said of streams whose connection has ended.
const LOST: &str = "lost connection to pod";

/// What is said of streams that the other side gave up without saying why.
const RESET: &str = "the stream was reset";

/// How data of a stream is put on the connection.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Wire {
    /// Frames of SPDY.
    Spdy,
    /// Messages whose first byte is the stream. There is no way to say that a stream ends.
    Channels,
}

impl Wire {
    fn data(self, stream: u32, bytes: &[u8]) -> Bytes {
        match self {
            Wire::Spdy => capstan_spdy::data(stream, bytes, false),
            Wire::Channels => {
                let mut message = BytesMut::with_capacity(bytes.len() + 1);
                message.put_u8(u8::try_from(stream).unwrap_or(u8::MAX));
                message.put_slice(bytes);
                message.freeze()
            }
        }
    }
}

/// Who waits for what comes on a stream.
enum Waiting {
    Data(mpsc::Sender<Bytes>),
    Reason(Vec<u8>, oneshot::Sender<String>),
}

/// The streams of a connection.
pub(super) struct Streams {
    wire: Wire,
    frames: mpsc::Sender<Bytes>,
    waiting: Mutex<HashMap<u32, Waiting>>,
}

/// A connection with its streams. It ends when this and all of its streams are gone.
pub(super) struct Hub {
    pub(super) streams: Arc<Streams>,
    reading: AbortHandle,
}

impl Drop for Hub {
    fn drop(&mut self) {
        self.reading.abort();
    }
}

impl Hub {
    /// `reading` hands out what comes, ends with the connection and tells whether that was as it should be.
    pub(super) fn new(streams: Arc<Streams>, reading: impl Future<Output = bool> + Send + 'static) -> Arc<Self> {
        let told = Arc::clone(&streams);
        let reading = tokio::spawn(async move {
            let well = reading.await;
            told.end(well);
        });
        Arc::new(Hub { streams, reading: reading.abort_handle() })
    }

    /// Whether the connection is still there.
    pub(super) fn is_open(&self) -> bool {
        !self.reading.is_finished()
    }

    /// A stream to a port. What comes is waited for from here on, so nothing is missed that is asked for afterwards.
    pub(super) fn stream(self: &Arc<Self>, data: u32, errors: u32) -> PortStream {
        let (input, from) = mpsc::channel(FRAMES);
        let (tell, reason) = oneshot::channel();
        let mut waiting = self.streams.lock();
        waiting.insert(data, Waiting::Data(input));
        waiting.insert(errors, Waiting::Reason(Vec::new(), tell));
        drop(waiting);
        let (ours, pipe) = tokio::io::duplex(BUFFER);
        let (alive, gone) = oneshot::channel();
        tokio::spawn(carry(Arc::clone(self), data, ours, from, gone));
        PortStream { pipe, reason: Some(reason), _alive: alive, _hub: Arc::clone(self) }
    }
}

impl Streams {
    pub(super) fn new(wire: Wire, frames: mpsc::Sender<Bytes>) -> Arc<Self> {
        Arc::new(Streams { wire, frames, waiting: Mutex::default() })
    }

    fn lock(&self) -> MutexGuard<'_, HashMap<u32, Waiting>> {
        self.waiting.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Room for frames that go out together; none when the connection is over.
    pub(super) async fn reserve(&self, frames: usize) -> Option<mpsc::PermitIterator<'_, Bytes>> {
        self.frames.reserve_many(frames).await.ok()
    }

    /// Hands out what came on a stream, once there is room for it.
    pub(super) async fn deliver(&self, stream: u32, bytes: Bytes, ended: bool) {
        let input = match self.lock().get_mut(&stream) {
            Some(Waiting::Data(input)) => Some(input.clone()),
            Some(Waiting::Reason(text, _)) => {
                let room = MAX_REASON.saturating_sub(text.len()).min(bytes.len());
                text.extend_from_slice(&bytes[..room]);
                None
            }
            None => return,
        };
        if let Some(input) = input
            && !bytes.is_empty()
        {
            // It fails if nobody wants it any more.
            let _ = input.send(bytes).await;
        }
        if ended && let Some(Waiting::Reason(text, tell)) = self.lock().remove(&stream) {
            let _ = tell.send(String::from_utf8_lossy(&text).into_owned());
        }
    }

    /// Ends a stream that the other side gave up. It is a failure, even if no reason came before.
    pub(super) async fn reset(&self, stream: u32) {
        if let Some(Waiting::Reason(text, _)) = self.lock().get_mut(&stream)
            && text.is_empty()
        {
            text.extend_from_slice(RESET.as_bytes());
        }
        self.deliver(stream, Bytes::new(), true).await;
    }

    /// Ends all streams. Those that were not told why learn that the connection is lost, unless it ended well.
    fn end(&self, well: bool) {
        for waiting in std::mem::take(&mut *self.lock()).into_values() {
            if let Waiting::Reason(text, tell) = waiting
                && (well || !text.is_empty())
            {
                let _ = tell.send(String::from_utf8_lossy(&text).into_owned());
            }
        }
    }
}

/// Bytes both ways, until the other side has ended or nobody wants the stream any more.
async fn carry(
    hub: Arc<Hub>,
    stream: u32,
    pipe: DuplexStream,
    mut from: mpsc::Receiver<Bytes>,
    mut gone: oneshot::Receiver<()>,
) {
    let Streams { wire, frames, .. } = &*hub.streams;
    let (mut read, mut write) = tokio::io::split(pipe);
    let up = async {
        let mut buffer = vec![0; CHUNK];
        while let Ok(count @ 1..) = read.read(&mut buffer).await {
            if frames.send(wire.data(stream, &buffer[..count])).await.is_err() {
                return;
            }
        }
        if *wire == Wire::Spdy {
            let _ = frames.send(capstan_spdy::data(stream, &[], true)).await;
        }
        std::future::pending::<()>().await;
    };
    let down = async {
        while let Some(bytes) = from.recv().await {
            if write.write_all(&bytes).await.is_err() {
                return;
            }
        }
        let _ = write.shutdown().await;
    };
    tokio::select! {
        () = down => {}
        () = up => {}
        _ = &mut gone => {}
    }
    hub.streams.lock().remove(&stream);
    // What the other side has not sent or read yet is of no use to anybody, and could hold up other streams.
    if *wire == Wire::Spdy {
        let _ = frames.send(capstan_spdy::reset(stream)).await;
    }
}

/// A connection to a port of a pod. It is read and written like one; shutting it down tells the port that no more
/// comes, where the protocol can tell that. Dropping it gives it up.
///
/// That a read is at its end says nothing of why: [`PortStream::error`] does.
pub struct PortStream {
    pipe: DuplexStream,
    reason: Option<oneshot::Receiver<String>>,
    _alive: oneshot::Sender<()>,
    /// Why it failed may come after all else.
    _hub: Arc<Hub>,
}

impl fmt::Debug for PortStream {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("PortStream")
    }
}

impl PortStream {
    /// Why it failed, once that is known; nothing if it ended well. Waits for the end of the stream.
    pub async fn error(&mut self) -> Option<String> {
        let reason = self.reason.as_mut()?.await.unwrap_or_else(|_| LOST.to_owned());
        self.reason = None;
        (!reason.is_empty()).then_some(reason)
    }
}

impl AsyncRead for PortStream {
    fn poll_read(mut self: Pin<&mut Self>, cx: &mut Context<'_>, buf: &mut ReadBuf<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.pipe).poll_read(cx, buf)
    }
}

impl AsyncWrite for PortStream {
    fn poll_write(mut self: Pin<&mut Self>, cx: &mut Context<'_>, bytes: &[u8]) -> Poll<io::Result<usize>> {
        Pin::new(&mut self.pipe).poll_write(cx, bytes)
    }

    fn poll_flush(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.pipe).poll_flush(cx)
    }

    fn poll_shutdown(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.pipe).poll_shutdown(cx)
    }
}
