//! A client's socket: it gathers what is written, and does not wait forever for a client that does not read.

use std::{
    io,
    pin::Pin,
    sync::{Arc, Mutex, MutexGuard, PoisonError},
    task::{Context, Poll, ready},
};

use capstan_clock::{SharedClock, Sleep};
use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};

use super::{activity::Activity, limits::LINGER};

/// How many bytes are thrown away at a time while the connection lingers.
const LINGER_CHUNK: usize = 8 * 1024;

/// How many are thrown away in all: more than the longest body, so that who sends one that is a little too long reads
/// why it was refused.
const LINGER_BYTES: usize = 8 * 1024 * 1024;

/// How much is gathered before it is sent: two of the largest records of TLS.
const GATHERED: usize = 32 * 1024;

/// A socket, with TLS or without.
///
/// What HTTP writes is gathered, and sent when the connection has nothing more to write at the moment ([`Sending`]):
/// HTTP/2 flushes after every frame, and a system call and a record of TLS for each cost more than all the rest of a
/// small answer, or of an event that a hundred watches of one connection wait for.
pub(super) struct ClientIo<S>(Arc<Mutex<Socket<S>>>);

/// The other end of a [`ClientIo`]: whoever drives the connection sends what was gathered.
pub(super) struct Sending<S>(Arc<Mutex<Socket<S>>>);

struct Socket<S> {
    inner: S,
    clock: SharedClock,
    activity: Arc<Activity>,
    write_timeout: std::time::Duration,
    /// Runs while the client takes nothing.
    stalled: Option<Sleep>,
    /// Runs once our side is closed, while the client still sends.
    linger: Option<(Sleep, usize)>,
    gathered: Vec<u8>,
    /// How much of it has been sent.
    sent: usize,
    /// Whether somebody sends what is gathered; otherwise a flush does.
    gathers: bool,
    /// Whether others have had their turn to write since something was gathered.
    waited: bool,
}

impl<S: AsyncRead + AsyncWrite + Unpin> ClientIo<S> {
    pub(super) fn new(
        inner: S,
        clock: SharedClock,
        activity: Arc<Activity>,
        write_timeout: std::time::Duration,
    ) -> (Self, Sending<S>) {
        let socket = Socket {
            inner,
            clock,
            activity,
            write_timeout,
            stalled: None,
            linger: None,
            gathered: Vec::new(),
            sent: 0,
            gathers: true,
            waited: false,
        };
        let socket = Arc::new(Mutex::new(socket));
        (ClientIo(Arc::clone(&socket)), Sending(socket))
    }

    fn socket(&self) -> MutexGuard<'_, Socket<S>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl<S: AsyncRead + AsyncWrite + Unpin> Sending<S> {
    /// Sends what is gathered. Those who are about to write to the same connection get a turn first.
    pub(super) fn poll_send(&self, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        let mut socket = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        if socket.gathered.is_empty() {
            return Poll::Ready(Ok(()));
        }
        if !socket.waited {
            socket.waited = true;
            cx.waker().wake_by_ref();
            return Poll::Pending;
        }
        socket.poll_send(cx)
    }

    /// From now on a flush sends what is gathered: the connection belongs to somebody else.
    pub(super) fn release(&self) {
        let mut socket = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        (socket.gathers, socket.waited) = (false, true);
    }
}

impl<S: AsyncRead + AsyncWrite + Unpin> Socket<S> {
    /// Writes what is gathered.
    fn poll_drain(&mut self, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        while self.sent < self.gathered.len() {
            let result = Pin::new(&mut self.inner).poll_write(cx, &self.gathered[self.sent..]);
            match ready!(self.progress(cx, result))? {
                0 => return Poll::Ready(Err(io::ErrorKind::WriteZero.into())),
                written => self.sent += written,
            }
        }
        self.gathered.clear();
        (self.sent, self.waited) = (0, !self.gathers);
        // A connection that is quiet needs no room for much.
        if self.gathered.capacity() > GATHERED {
            self.gathered = Vec::new();
        }
        Poll::Ready(Ok(()))
    }

    /// Writes what is gathered, down to the client.
    fn poll_send(&mut self, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        ready!(self.poll_drain(cx))?;
        let result = Pin::new(&mut self.inner).poll_flush(cx);
        self.progress(cx, result)
    }

    /// Passes on what a write did; turns one that made no progress for too long into an error.
    fn progress<T>(&mut self, cx: &mut Context<'_>, result: Poll<io::Result<T>>) -> Poll<io::Result<T>> {
        if result.is_ready() {
            self.stalled = None;
            return result;
        }
        let stalled = self.stalled.get_or_insert_with(|| self.clock.sleep(self.write_timeout));
        ready!(stalled.as_mut().poll(cx));
        Poll::Ready(Err(io::ErrorKind::TimedOut.into()))
    }

    /// Throws away what the client still sends. Closing at once would reset the connection, and the client would lose
    /// the answer that tells it why.
    fn poll_linger(&mut self, cx: &mut Context<'_>) -> Poll<()> {
        let (sleep, left) = self.linger.get_or_insert_with(|| (self.clock.sleep(LINGER), LINGER_BYTES));
        let mut chunk = [0; LINGER_CHUNK];
        while *left > 0 {
            let mut buffer = ReadBuf::new(&mut chunk);
            match Pin::new(&mut self.inner).poll_read(cx, &mut buffer) {
                Poll::Ready(Ok(())) if !buffer.filled().is_empty() => {
                    *left = left.saturating_sub(buffer.filled().len());
                }
                Poll::Ready(_) => return Poll::Ready(()),
                Poll::Pending => return sleep.as_mut().poll(cx),
            }
        }
        Poll::Ready(())
    }
}

impl<S: AsyncRead + AsyncWrite + Unpin> AsyncRead for ClientIo<S> {
    fn poll_read(self: Pin<&mut Self>, cx: &mut Context<'_>, buffer: &mut ReadBuf<'_>) -> Poll<io::Result<()>> {
        let mut socket = self.socket();
        let before = buffer.filled().len();
        let result = ready!(Pin::new(&mut socket.inner).poll_read(cx, buffer));
        if buffer.filled().len() > before {
            socket.activity.received();
        }
        Poll::Ready(result)
    }
}

impl<S: AsyncRead + AsyncWrite + Unpin> AsyncWrite for ClientIo<S> {
    fn poll_write(self: Pin<&mut Self>, cx: &mut Context<'_>, bytes: &[u8]) -> Poll<io::Result<usize>> {
        self.poll_write_vectored(cx, &[io::IoSlice::new(bytes)])
    }

    fn poll_write_vectored(
        self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        slices: &[io::IoSlice<'_>],
    ) -> Poll<io::Result<usize>> {
        let mut guard = self.socket();
        let socket = &mut *guard;
        let total = slices.iter().map(|slice| slice.len()).sum();
        // What is large goes its way without being copied, and so does what somebody writes who need not flush.
        let straight = total > GATHERED || !socket.gathers;
        if straight || socket.gathered.len() + total > GATHERED {
            ready!(socket.poll_drain(cx))?;
        }
        if straight {
            let result = Pin::new(&mut socket.inner).poll_write_vectored(cx, slices);
            return socket.progress(cx, result);
        }
        slices.iter().for_each(|slice| socket.gathered.extend_from_slice(slice));
        Poll::Ready(Ok(total))
    }

    fn is_write_vectored(&self) -> bool {
        true
    }

    fn poll_flush(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        let mut socket = self.socket();
        if socket.gathers { Poll::Ready(Ok(())) } else { socket.poll_send(cx) }
    }

    fn poll_shutdown(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        let mut guard = self.socket();
        let socket = &mut *guard;
        if socket.linger.is_none() {
            ready!(socket.poll_send(cx))?;
            let result = Pin::new(&mut socket.inner).poll_shutdown(cx);
            ready!(socket.progress(cx, result))?;
        }
        if socket.activity.has_unread() {
            ready!(socket.poll_linger(cx));
        }
        Poll::Ready(Ok(()))
    }
}
