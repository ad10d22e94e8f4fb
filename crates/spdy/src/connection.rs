//! Frames on a connection: read by whoever owns it, written by a task.

use bytes::Bytes;
use tokio::{
    io::{AsyncRead, AsyncReadExt as _, AsyncWrite, AsyncWriteExt as _, ReadHalf},
    sync::mpsc,
    task::JoinHandle,
};

use crate::{Decoder, Encoder, Frame, ping};

/// How many frames may wait to be written.
pub const FRAMES: usize = 64;
/// How much is read at once.
pub const CHUNK: usize = 32 * 1024;

/// The side of a connection that frames are read from.
#[derive(Debug)]
pub struct Connection<R> {
    reader: R,
    decoder: Decoder,
    encoder: Encoder,
    /// Takes frames that are to be written. The connection ends when this and its clones are gone.
    pub frames: mpsc::Sender<Bytes>,
}

impl<R: AsyncRead + Unpin> Connection<R> {
    /// The next frame that is of interest; streams are accepted and pings answered on the way. Nothing when the
    /// connection is over, or the other side cannot be understood.
    pub async fn next(&mut self) -> Option<Frame> {
        loop {
            match self.decoder.decode() {
                Ok(Some(Frame::Ping(number))) => self.frames.send(ping(number)).await.ok()?,
                Ok(Some(Frame::Open { stream, headers, fin })) => {
                    let reply = self.encoder.reply(stream);
                    self.frames.send(reply).await.ok()?;
                    return Some(Frame::Open { stream, headers, fin });
                }
                Ok(Some(Frame::Other)) => {}
                Ok(Some(frame)) => return Some(frame),
                Ok(None) => {
                    let mut buffer = vec![0; CHUNK];
                    let read = self.reader.read(&mut buffer).await.ok().filter(|read| *read > 0)?;
                    self.decoder.push(&buffer[..read]);
                }
                Err(_) => return None,
            }
        }
    }
}

/// The two halves: frames come from the connection, and go through a channel to a task that writes them.
pub fn split<S: AsyncRead + AsyncWrite + Send + 'static>(io: S) -> (Connection<ReadHalf<S>>, JoinHandle<()>) {
    let (reader, mut writer) = tokio::io::split(io);
    let (frames, mut queue) = mpsc::channel::<Bytes>(FRAMES);
    let writing = tokio::spawn(async move {
        while let Some(frame) = queue.recv().await {
            if writer.write_all(&frame).await.is_err() || writer.flush().await.is_err() {
                return;
            }
        }
        let _ = writer.shutdown().await;
    });
    (Connection { reader, decoder: Decoder::default(), encoder: Encoder::default(), frames }, writing)
}
