//! Connections to the ports of a pod.

use std::fmt;

use bytes::Bytes;

use super::socket::{Reader, Writer};
use crate::{Api, Error, query::with_pairs};

/// Two streams for each port: data, and errors.
const PROTOCOL: &str = "v4.channel.k8s.io";

/// What comes from a port.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Forwarded {
    /// Data of the port that was asked for at this place.
    Data(usize, Bytes),
    /// Why there is no data of that port.
    Failed(usize, String),
}

/// Connections to ports of a pod, all over one connection to the server. They end when this is dropped.
pub struct PortForward {
    reader: Reader,
    writer: Writer,
    /// Which streams have said which port they are.
    named: Vec<bool>,
}

impl fmt::Debug for PortForward {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("PortForward").field("ports", &(self.named.len() / 2)).finish()
    }
}

/// The most ports that a stream's number has room for.
const MAX_PORTS: usize = 127;

/// Of pods.
impl<K> Api<K> {
    /// Connects to ports of a pod.
    ///
    /// # Errors
    /// The pod is not there, the server refuses or cannot be reached.
    pub async fn port_forward(&self, name: &str, ports: &[u16]) -> Result<PortForward, Error> {
        if ports.is_empty() || ports.len() > MAX_PORTS {
            return Err(Error::Decode(format!("1 to {MAX_PORTS} ports can be forwarded, not {}", ports.len())));
        }
        let pairs: Vec<_> = ports.iter().map(|port| ("ports", port.to_string())).collect();
        let path = with_pairs(&self.path(name, "portforward"), &pairs);
        let (reader, writer, _) = self.client().web_socket(&path, PROTOCOL).await?;
        Ok(PortForward { reader, writer, named: vec![false; ports.len() * 2] })
    }
}

impl PortForward {
    /// Sends data to the port at this place, once the connection takes it.
    ///
    /// # Errors
    /// There is no such port, or the connection broke.
    pub async fn write(&mut self, port: usize, bytes: &[u8]) -> Result<(), Error> {
        let stream = u8::try_from(port * 2).ok().filter(|stream| usize::from(*stream) < self.named.len());
        let Some(stream) = stream else { return Err(Error::Decode(format!("there is no port {port}"))) };
        self.writer.send(stream, bytes).await
    }

    /// What comes next; nothing when the connection is over.
    ///
    /// # Errors
    /// The connection broke.
    pub async fn next(&mut self) -> Result<Option<Forwarded>, Error> {
        while let Some((stream, bytes)) = self.reader.next().await? {
            let at = usize::from(stream);
            let Some(named) = self.named.get_mut(at) else { continue };
            // The first message of each stream is the number of its port.
            if !std::mem::replace(named, true) || bytes.is_empty() {
                continue;
            }
            return Ok(Some(match at % 2 {
                0 => Forwarded::Data(at / 2, bytes),
                _ => Forwarded::Failed(at / 2, String::from_utf8_lossy(&bytes).into_owned()),
            }));
        }
        Ok(None)
    }
}
