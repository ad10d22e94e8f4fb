//! Sockets: HTTP/1.1 and HTTP/2, with TLS or without, over any service that answers requests.
//!
//! [`serve`] listens, [`Handle`] says where and ends it. What each request goes through on its way in is put together
//! by the caller from the parts here: [`catch_panic`], [`with_timeout`], [`InFlight`], [`read_body`], [`gzip`] and, for
//! watches of browsers, [`websocket`]. A service that is called without a socket needs none of this.

mod activity;
mod body;
mod compress;
mod connection;
mod guard;
mod io;
pub mod limits;
mod shutdown;
#[cfg(test)]
mod tests;
mod timer;
pub mod websocket;

use std::{convert::Infallible, net::SocketAddr, sync::Arc, time::Duration};

use capstan_clock::SharedClock;
use rustls::ServerConfig;
use tokio::{
    net::TcpListener,
    sync::{Semaphore, watch},
};
use tokio_rustls::TlsAcceptor;
use tower_service::Service;

pub use body::read_body;
pub use compress::gzip;
pub use connection::PeerInfo;
pub use guard::{InFlight, InFlightPermit, Load, catch_panic, plain_text, with_timeout};
pub(crate) use guard::{caught, panicked};
pub use limits::Limits;
pub use shutdown::ShutdownSignal;

use self::{
    connection::Shared,
    limits::{ACCEPT_RETRY_FIRST, ACCEPT_RETRY_LAST},
    shutdown::{Phase, reached},
};
use crate::http::{Request, Response};

/// What clients may speak over TLS, the best first.
const ALPN: [&[u8]; 2] = [b"h2", b"http/1.1"];

/// A server that runs. Dropping this ends it at once.
#[derive(Debug)]
pub struct Handle {
    addresses: Vec<SocketAddr>,
    phase: watch::Sender<Phase>,
    connections: Arc<Semaphore>,
    limits: Limits,
    clock: SharedClock,
}

impl Handle {
    /// The address of the first listener.
    ///
    /// # Panics
    /// When the server was started without a listener.
    #[must_use]
    pub fn local_addr(&self) -> SocketAddr {
        self.addresses[0]
    }

    /// The addresses of all listeners.
    #[must_use]
    pub fn local_addrs(&self) -> &[SocketAddr] {
        &self.addresses
    }

    /// Ends the server: no new connections, requests under way are finished, those who watch are told
    /// ([`ShutdownSignal`]). What is still there after `bound` is cut off. True if nothing had to be.
    pub async fn shutdown(self, bound: Duration) -> bool {
        self.phase.send_replace(Phase::Draining);
        let all = u32::try_from(self.limits.connections).unwrap_or(u32::MAX);
        let clean = tokio::select! {
            biased;
            _ = self.connections.acquire_many(all) => true,
            () = self.clock.sleep(bound) => false,
        };
        self.phase.send_replace(Phase::Aborted);
        clean
    }
}

/// Serves `service` on all `listeners`, until the handle ends it. Must be called in a runtime.
///
/// Each request carries [`PeerInfo`] and [`ShutdownSignal`] as extensions. A service that panics answers 500. A
/// configuration of TLS that names no protocols gets HTTP/2 and HTTP/1.1; without TLS the client's first bytes tell.
///
/// # Errors
/// A listener does not know its address.
pub fn serve<S>(
    listeners: Vec<TcpListener>,
    tls: Option<Arc<ServerConfig>>,
    service: S,
    limits: Limits,
    clock: SharedClock,
) -> std::io::Result<Handle>
where
    S: Service<Request, Response = Response, Error = Infallible> + Clone + Send + Sync + 'static,
    S::Future: Send,
{
    let limits =
        Limits { connections: limits.connections.min(Semaphore::MAX_PERMITS).min(u32::MAX as usize), ..limits };
    let addresses = listeners.iter().map(TcpListener::local_addr).collect::<Result<_, _>>()?;
    let connections = Arc::new(Semaphore::new(limits.connections));
    let (phase, receiver) = watch::channel(Phase::Running);
    let shared = Arc::new(Shared {
        tls: tls.map(|tls| TlsAcceptor::from(with_alpn(tls))),
        service,
        limits,
        clock: clock.clone(),
        http: connection::http(&limits, &clock),
        phase: receiver,
    });
    for listener in listeners {
        tokio::spawn(accept(listener, shared.clone(), connections.clone()));
    }
    Ok(Handle { addresses, phase, connections, limits, clock })
}

fn with_alpn(tls: Arc<ServerConfig>) -> Arc<ServerConfig> {
    if !tls.alpn_protocols.is_empty() {
        return tls;
    }
    let mut tls = Arc::unwrap_or_clone(tls);
    tls.alpn_protocols = ALPN.map(<[u8]>::to_vec).to_vec();
    Arc::new(tls)
}

/// Accepts connections until the server ends, whatever single ones do.
async fn accept<S>(listener: TcpListener, shared: Arc<Shared<S>>, connections: Arc<Semaphore>)
where
    S: Service<Request, Response = Response, Error = Infallible> + Clone + Send + Sync + 'static,
    S::Future: Send,
{
    let accepting = async {
        let mut pause = ACCEPT_RETRY_FIRST;
        // The semaphore is never closed.
        while let Ok(permit) = connections.clone().acquire_owned().await {
            match listener.accept().await {
                Ok((stream, address)) => {
                    pause = ACCEPT_RETRY_FIRST;
                    let signal = ShutdownSignal::new(shared.phase.clone(), permit);
                    tokio::spawn(connection::run(shared.clone(), stream, address, signal));
                }
                // The client gave up before it was its turn.
                Err(error) if is_of_one_connection(&error) => {}
                // No descriptors or no memory: others must end first.
                Err(_) => {
                    shared.clock.sleep(pause).await;
                    pause = (pause * 2).min(ACCEPT_RETRY_LAST);
                }
            }
        }
    };
    tokio::select! {
        biased;
        () = reached(shared.phase.clone(), Phase::Draining) => {}
        () = accepting => {}
    }
}

fn is_of_one_connection(error: &std::io::Error) -> bool {
    use std::io::ErrorKind::{ConnectionAborted, ConnectionRefused, ConnectionReset, Interrupted};
    matches!(error.kind(), ConnectionAborted | ConnectionRefused | ConnectionReset | Interrupted)
}
