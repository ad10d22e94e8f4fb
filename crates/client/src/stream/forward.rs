//! Connections to the ports of a pod.
//!
//! As kubectl does it: SPDY inside a WebSocket, where each connection to a port is two streams of its own. Servers that
//! only know the older protocol have one connection a port and WebSocket; there, each further one is another WebSocket.

use std::{
    fmt,
    sync::{Arc, Mutex, PoisonError},
};

use bytes::Bytes;
use capstan_spdy::{Encoder, Frame, Headers, connection::FRAMES, split, tunnel};
use tokio::{
    io::{AsyncRead, AsyncWrite, AsyncWriteExt as _, copy},
    sync::mpsc,
};

use super::{
    ports::{Hub, PortStream, Streams, Wire},
    socket::{Reader, Socket, halves},
};
use crate::{Api, Client, Error, query::with_pairs};

/// The server chooses; what a connection can do does not depend on it, only what it costs.
const PROTOCOLS: &str = "SPDY/3.1+portforward.k8s.io, v4.channel.k8s.io";

/// The most ports that the number of a stream has room for.
const MAX_PORTS: usize = 127;

/// The highest number of a stream; a connection that has used them all is at its end.
const MAX_STREAM: u32 = (1 << 31) - 4;

/// Ports of a pod, by way of the server. Connections that were made go on when this is dropped.
pub struct PortForward {
    client: Client,
    /// Of the pod's subresource, without ports.
    path: String,
    way: Way,
}

enum Way {
    Tunnel {
        hub: Arc<Hub>,
        next: tokio::sync::Mutex<Next>,
    },
    /// Streams that were opened and that nobody has taken yet.
    Channels(Mutex<Vec<(u16, PortStream)>>),
}

/// What the next streams of a tunnel are made from. Headers are packed one after the other, so that their frames have
/// to go out in that order too.
#[derive(Default)]
struct Next {
    encoder: Encoder,
    request: u32,
}

impl fmt::Debug for PortForward {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("PortForward").field("path", &self.path).finish_non_exhaustive()
    }
}

/// Of pods.
impl<K> Api<K> {
    /// Opens a way to ports of a pod.
    ///
    /// # Errors
    /// The pod is not there, the server refuses or cannot be reached.
    pub async fn port_forward(&self, name: &str, ports: &[u16]) -> Result<PortForward, Error> {
        let (client, path) = (self.client().clone(), self.path(name, "portforward")?);
        let (socket, protocol) = open(&client, &path, ports).await?;
        let way = if protocol == tunnel::PORT_FORWARD {
            Way::Tunnel { hub: tunnelled(socket), next: tokio::sync::Mutex::default() }
        } else {
            Way::Channels(Mutex::new(channels(socket, ports)))
        };
        Ok(PortForward { client, path, way })
    }
}

async fn open(client: &Client, path: &str, ports: &[u16]) -> Result<(Socket, String), Error> {
    if ports.is_empty() || ports.len() > MAX_PORTS {
        return Err(Error::Decode(format!("1 to {MAX_PORTS} ports can be forwarded, not {}", ports.len())));
    }
    if ports.contains(&0) {
        return Err(Error::Decode("remote port must be > 0".to_owned()));
    }
    let pairs: Vec<_> = ports.iter().map(|port| ("ports", port.to_string())).collect();
    client.web_socket(&with_pairs(path, &pairs), PROTOCOLS).await
}

/// SPDY inside the WebSocket.
fn tunnelled(socket: Socket) -> Arc<Hub> {
    let (mut connection, _writing) = split(tunnel(socket));
    let streams = Streams::new(Wire::Spdy, connection.frames.clone());
    let to = Arc::clone(&streams);
    Hub::new(streams, async move {
        while let Some(frame) = connection.next().await {
            match frame {
                Frame::Data { stream, bytes, fin } => to.deliver(stream, bytes, fin).await,
                Frame::Reset { stream } => to.reset(stream).await,
                Frame::GoAway => break,
                // Servers open no streams here.
                Frame::Open { .. } | Frame::Ping(_) | Frame::Other => {}
            }
        }
        false
    })
}

/// The older protocol: what is even is data of a port, what is odd is why there is none.
fn channels(socket: Socket, ports: &[u16]) -> Vec<(u16, PortStream)> {
    let (reader, mut writer) = halves(socket);
    let (messages, mut queue) = mpsc::channel::<Bytes>(FRAMES);
    tokio::spawn(async move {
        while let Some(message) = queue.recv().await {
            if writer.send_as_it_is(message).await.is_err() {
                return;
            }
        }
        writer.close().await;
    });
    let streams = Streams::new(Wire::Channels, messages);
    let hub = Hub::new(Arc::clone(&streams), read_channels(reader, streams, ports.len() * 2));
    let number = |at: usize| u32::try_from(at).unwrap_or(u32::MAX);
    ports.iter().enumerate().map(|(at, port)| (*port, hub.stream(number(at * 2), number(at * 2 + 1)))).collect()
}

async fn read_channels(mut reader: Reader, to: Arc<Streams>, count: usize) -> bool {
    let mut named = vec![false; count];
    loop {
        let (stream, bytes) = match reader.next().await {
            Ok(Some(message)) => message,
            Ok(None) => return true,
            Err(_) => return false,
        };
        let Some(named) = named.get_mut(usize::from(stream)) else { continue };
        // The first message of each stream is the number of its port.
        if !std::mem::replace(named, true) || bytes.is_empty() {
            continue;
        }
        let failed = stream % 2 == 1;
        to.deliver(stream.into(), bytes, failed).await;
        if failed {
            to.deliver(u32::from(stream) - 1, Bytes::new(), true).await;
        }
    }
}

impl PortForward {
    /// Connects to a port. Whether anything listens there shows when the stream is used.
    ///
    /// # Errors
    /// The connection to the server is lost, or another one is needed and cannot be made.
    pub async fn connect(&self, port: u16) -> Result<PortStream, Error> {
        match &self.way {
            Way::Tunnel { hub, next } => {
                if port == 0 {
                    return Err(Error::Decode("remote port must be > 0".to_owned()));
                }
                next.lock().await.open(hub, port).await
            }
            Way::Channels(waiting) => {
                let lock = || waiting.lock().unwrap_or_else(PoisonError::into_inner);
                let take = |all: &mut Vec<(u16, PortStream)>| {
                    let at = all.iter().position(|(of, _)| *of == port)?;
                    Some(all.swap_remove(at).1)
                };
                if let Some(stream) = take(&mut lock()) {
                    return Ok(stream);
                }
                let (socket, protocol) = open(&self.client, &self.path, &[port]).await?;
                let mut more = if protocol == tunnel::PORT_FORWARD { Vec::new() } else { channels(socket, &[port]) };
                take(&mut more).ok_or_else(|| Error::Transport(format!("the server now speaks {protocol}")))
            }
        }
    }

    /// Connects a local connection to a port and carries bytes both ways until the port's side has ended or the local
    /// one breaks.
    ///
    /// # Errors
    /// Nothing listens on the port, or the connection to the server is lost.
    pub async fn forward(&self, port: u16, local: impl AsyncRead + AsyncWrite) -> Result<(), Error> {
        let mut stream = self.connect(port).await?;
        {
            let (mut from_port, mut to_port) = tokio::io::split(&mut stream);
            let (mut from_local, mut to_local) = tokio::io::split(local);
            let up = async {
                if copy(&mut from_local, &mut to_port).await.is_ok() && to_port.shutdown().await.is_ok() {
                    std::future::pending::<()>().await;
                }
            };
            let down = async {
                let _ = copy(&mut from_port, &mut to_local).await;
                let _ = to_local.shutdown().await;
            };
            tokio::select! {
                () = up => return Ok(()),
                () = down => {}
            }
        }
        match stream.error().await {
            None => Ok(()),
            Some(reason) => Err(Error::Transport(reason)),
        }
    }
}

impl Next {
    /// Asks for the streams of one connection; somebody waits for them before they are asked for.
    async fn open(&mut self, hub: &Arc<Hub>, port: u16) -> Result<PortStream, Error> {
        let lost = || Error::Transport("lost connection to pod".to_owned());
        let request = self.request;
        let errors = request * 4 + 1;
        if !hub.is_open() || errors > MAX_STREAM {
            return Err(lost());
        }
        // From here on nothing waits: who gives up must not leave half of it behind.
        let places = hub.streams.reserve(3).await.ok_or_else(lost)?;
        self.request += 1;
        let stream = hub.stream(errors + 2, errors);
        let headers = |kind: &str| -> Headers {
            let pairs = [("streamtype", kind), ("port", &port.to_string()), ("requestid", &request.to_string())];
            pairs.map(|(name, value)| (name.to_owned(), value.to_owned())).to_vec()
        };
        let frames = [
            self.encoder.open(errors, &headers("error")),
            // Nothing will be written there.
            capstan_spdy::data(errors, &[], true),
            self.encoder.open(errors + 2, &headers("data")),
        ];
        for (place, frame) in places.zip(frames) {
            place.send(frame);
        }
        Ok(stream)
    }
}
