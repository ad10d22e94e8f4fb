//! Connections that are taken in one network and go on in another.

use std::{io, net::SocketAddr, sync::Arc, time::Duration};

use capstan_clock::SharedClock;
use tokio::{
    net::{TcpListener, TcpStream},
    sync::Semaphore,
    task::JoinSet,
};

/// How many connections one door has at a time; who comes then waits.
const MAX_CONNECTIONS: usize = 1024;
/// How long a door stays closed when nobody could be let in.
const PAUSE: Duration = Duration::from_millis(100);

/// A listener of any network namespace: a socket stays in the one that it was made in.
pub(super) fn listen(listener: std::net::TcpListener) -> io::Result<TcpListener> {
    listener.set_nonblocking(true)?;
    TcpListener::from_std(listener)
}

/// Takes connections and leads each to `to`, on this machine's network. Those that are open end with this.
pub(super) async fn relay(listener: TcpListener, to: SocketAddr, clock: SharedClock) {
    let room = Arc::new(Semaphore::new(MAX_CONNECTIONS));
    let mut open = JoinSet::new();
    loop {
        let Ok(permit) = room.clone().acquire_owned().await else { return };
        let taken = tokio::select! {
            taken = listener.accept() => taken,
            Some(_) = open.join_next() => continue,
        };
        let Ok((mut from, _)) = taken else {
            // One who has gone again, or no room for another: the next may fare better.
            clock.sleep(PAUSE).await;
            continue;
        };
        open.spawn(async move {
            let _permit = permit;
            let Ok(mut on) = TcpStream::connect(to).await else { return };
            let _ = tokio::io::copy_bidirectional(&mut from, &mut on).await;
        });
    }
}
