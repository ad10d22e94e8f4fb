//! A client's socket that does not wait forever for a client that does not read.

use std::{
    io,
    pin::Pin,
    sync::Arc,
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

/// A socket, with TLS or without.
pub(super) struct ClientIo<S> {
    inner: S,
    clock: SharedClock,
    activity: Arc<Activity>,
    write_timeout: std::time::Duration,
    /// Runs while the client takes nothing.
    stalled: Option<Sleep>,
    /// Runs once our side is closed, while the client still sends.
    linger: Option<(Sleep, usize)>,
}

impl<S: AsyncRead + AsyncWrite + Unpin> ClientIo<S> {
    pub(super) fn new(
        inner: S,
        clock: SharedClock,
        activity: Arc<Activity>,
        write_timeout: std::time::Duration,
    ) -> Self {
        ClientIo { inner, clock, activity, write_timeout, stalled: None, linger: None }
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
        let this = self.get_mut();
        let before = buffer.filled().len();
        let result = ready!(Pin::new(&mut this.inner).poll_read(cx, buffer));
        if buffer.filled().len() > before {
            this.activity.received();
        }
        Poll::Ready(result)
    }
}

impl<S: AsyncRead + AsyncWrite + Unpin> AsyncWrite for ClientIo<S> {
    fn poll_write(self: Pin<&mut Self>, cx: &mut Context<'_>, bytes: &[u8]) -> Poll<io::Result<usize>> {
        let this = self.get_mut();
        let result = Pin::new(&mut this.inner).poll_write(cx, bytes);
        this.progress(cx, result)
    }

    fn poll_write_vectored(
        self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        slices: &[io::IoSlice<'_>],
    ) -> Poll<io::Result<usize>> {
        let this = self.get_mut();
        let result = Pin::new(&mut this.inner).poll_write_vectored(cx, slices);
        this.progress(cx, result)
    }

    fn is_write_vectored(&self) -> bool {
        self.inner.is_write_vectored()
    }

    fn poll_flush(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        let this = self.get_mut();
        let result = Pin::new(&mut this.inner).poll_flush(cx);
        this.progress(cx, result)
    }

    fn poll_shutdown(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        let this = self.get_mut();
        if this.linger.is_none() {
            let result = Pin::new(&mut this.inner).poll_shutdown(cx);
            ready!(this.progress(cx, result))?;
        }
        if this.activity.has_unread() {
            ready!(this.poll_linger(cx));
        }
        Poll::Ready(Ok(()))
    }
}
