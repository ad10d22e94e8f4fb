//! What SPDY connections are for: remote commands and forwarded ports.

use std::{collections::HashMap, sync::Arc};

use bytes::Bytes;
use capstan_spdy::{
    Frame, Headers,
    connection::{CHUNK, FRAMES},
    data, split,
};
use tokio::{
    io::{AsyncRead, AsyncReadExt as _, AsyncWrite, AsyncWriteExt as _},
    net::TcpStream,
    sync::mpsc,
};

use crate::{
    node::Shared,
    server::stream::{Channel, FromClient, ToClient},
};

/// How many streams a connection may have.
const MAX_STREAMS: usize = 1024;

fn header<'a>(headers: &'a Headers, name: &str) -> &'a str {
    headers.iter().find(|(known, _)| known == name).map_or("", |(_, value)| value)
}

/// A remote command: waits for the client's streams, then carries them.
pub(in crate::server) async fn remote_command<S: AsyncRead + AsyncWrite + Send + 'static>(
    io: S,
    wanted: &[Channel],
    from: mpsc::Sender<FromClient>,
    mut to: mpsc::Receiver<ToClient>,
) {
    let (mut connection, writing) = split(io);
    let mut ids: HashMap<u32, Channel> = HashMap::new();
    let mut early = Vec::new();
    while !wanted.iter().all(|channel| ids.values().any(|known| known == channel)) {
        match connection.next().await {
            Some(Frame::Open { stream, headers, .. }) => {
                let channel = match header(&headers, "streamtype") {
                    "stdin" => Channel::Stdin,
                    "stdout" => Channel::Stdout,
                    "stderr" => Channel::Stderr,
                    "resize" => Channel::Resize,
                    _ => Channel::Error,
                };
                ids.insert(stream, channel);
            }
            Some(Frame::Data { stream, bytes, fin }) => early.push((stream, bytes, fin)),
            Some(Frame::Reset { .. } | Frame::Other | Frame::Ping(_)) => {}
            Some(Frame::GoAway) | None => return,
        }
        if ids.len() + early.len() > MAX_STREAMS {
            return;
        }
    }
    let by_channel: HashMap<Channel, u32> = ids.iter().map(|(id, channel)| (*channel, *id)).collect();
    let frames = connection.frames.clone();
    let reading = tokio::spawn(async move {
        let mut early = early.into_iter();
        loop {
            let (stream, bytes, fin) = match early.next() {
                Some(early) => early,
                None => match connection.next().await {
                    Some(Frame::Data { stream, bytes, fin }) => (stream, bytes, fin),
                    Some(Frame::Reset { stream }) => (stream, Bytes::new(), true),
                    Some(Frame::GoAway) | None => return,
                    Some(_) => continue,
                },
            };
            let Some(&channel) = ids.get(&stream) else { continue };
            if !bytes.is_empty() && from.send(FromClient::Data(channel, bytes)).await.is_err() {
                return;
            }
            if fin && from.send(FromClient::Close(channel)).await.is_err() {
                return;
            }
        }
    });
    let send = async move {
        while let Some(message) = to.recv().await {
            let (channel, bytes, last) = match message {
                ToClient::Data(channel, bytes) => (channel, bytes, false),
                ToClient::End(status) => (Channel::Error, status, true),
            };
            if let Some(&id) = by_channel.get(&channel)
                && frames.send(data(id, &bytes, last)).await.is_err()
            {
                return;
            }
            if last {
                for (_, id) in by_channel.iter().filter(|(channel, _)| **channel != Channel::Error) {
                    let _ = frames.send(data(*id, &[], true)).await;
                }
                return;
            }
        }
    };
    tokio::pin!(reading);
    tokio::select! {
        () = send => {}
        _ = &mut reading => {}
    }
    reading.abort();
    // All that was said goes out before the connection ends.
    let _ = writing.await;
}

/// Forwarded ports: each request has a stream for data and one for errors.
pub(in crate::server) async fn port_forward<S: AsyncRead + AsyncWrite + Send + 'static>(
    io: S,
    shared: Arc<Shared>,
    sandbox: String,
) {
    let (mut connection, writing) = split(io);
    // By request: the port, and the streams that have come.
    let mut requests: HashMap<String, (Option<u32>, Option<u32>)> = HashMap::new();
    let mut inputs: HashMap<u32, mpsc::Sender<Option<Bytes>>> = HashMap::new();
    while let Some(frame) = connection.next().await {
        match frame {
            Frame::Open { stream, headers, .. } => {
                let request = header(&headers, "requestid").to_owned();
                let entry = requests.entry(request.clone()).or_default();
                match header(&headers, "streamtype") {
                    "error" => entry.0 = Some(stream),
                    _ => entry.1 = Some(stream),
                }
                if let (Some(errors), Some(stream)) = *entry {
                    requests.remove(&request);
                    let (sender, receiver) = mpsc::channel(FRAMES);
                    inputs.insert(stream, sender);
                    let port = header(&headers, "port").parse().unwrap_or(0);
                    let (shared, sandbox, frames) = (shared.clone(), sandbox.clone(), connection.frames.clone());
                    tokio::spawn(async move {
                        let connected = shared.runtime().port_forward(&sandbox, port).await;
                        match connected {
                            Ok(tcp) => forward(tcp, stream, receiver, &frames).await,
                            Err(error) => {
                                let text = format!("error forwarding port {port} to pod {sandbox}, uid : {error}");
                                let _ = frames.send(data(errors, text.as_bytes(), false)).await;
                            }
                        }
                        let _ = frames.send(data(errors, &[], true)).await;
                        let _ = frames.send(data(stream, &[], true)).await;
                    });
                }
                inputs.retain(|_, input| !input.is_closed());
                if inputs.len() + requests.len() > MAX_STREAMS {
                    break;
                }
            }
            Frame::Data { stream, bytes, fin } => {
                if let Some(input) = inputs.get(&stream) {
                    let _ = input.send(Some(bytes)).await;
                    if fin {
                        let _ = input.send(None).await;
                        inputs.remove(&stream);
                    }
                }
            }
            Frame::Reset { stream } => {
                inputs.remove(&stream);
            }
            Frame::GoAway => break,
            Frame::Ping(_) | Frame::Other => {}
        }
    }
    drop((connection, inputs));
    let _ = writing.await;
}

/// Bytes both ways until the port's side has ended.
async fn forward(tcp: TcpStream, stream: u32, mut from: mpsc::Receiver<Option<Bytes>>, frames: &mpsc::Sender<Bytes>) {
    let (mut read, mut write) = tcp.into_split();
    let input = tokio::spawn(async move {
        while let Some(Some(bytes)) = from.recv().await {
            if write.write_all(&bytes).await.is_err() {
                return;
            }
        }
        let _ = write.shutdown().await;
    });
    let mut buffer = vec![0; CHUNK];
    while let Ok(count @ 1..) = read.read(&mut buffer).await {
        if frames.send(data(stream, &buffer[..count], false)).await.is_err() {
            break;
        }
    }
    input.abort();
}
