//! Control loops of network, storage, certificates and scaling on the real server in process, on a clock that obeys.

#![expect(clippy::unwrap_used, reason = "all of it is a test")]
#![expect(unreachable_pub, reason = "a test has no public surface")]

mod harness;
mod network;

use std::sync::Arc;

use capstan_client::{Client, SharedInformerFactory};
use capstan_clock::{SharedClock, SharedIds};
use capstan_controllers::ControllerContext;
use capstan_runtime::Stop;

/// What the loops share, over this client.
fn context(client: Client, clock: SharedClock, ids: SharedIds, stop: Stop) -> ControllerContext {
    let source = Arc::new(client.clone());
    let informers = Arc::new(SharedInformerFactory::new(source, Arc::clone(&clock), Arc::clone(&ids)));
    ControllerContext { client, informers, clock, ids, stop }
}
