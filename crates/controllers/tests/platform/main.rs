//! Control loops of network, storage, certificates and scaling on the real server in process, on a clock that obeys.

#![expect(clippy::unwrap_used, reason = "all of it is a test")]
#![expect(unreachable_pub, reason = "a test has no public surface")]

mod harness;
mod network;
mod storage;

use capstan_client::Client;
use capstan_clock::{SharedClock, SharedIds};
use capstan_controllers::{ControllerContext, ControllerOptions};
use capstan_runtime::Stop;

/// What the loops share, over this client.
fn context(client: Client, clock: SharedClock, ids: SharedIds, stop: Stop) -> ControllerContext {
    ControllerContext::new(client, clock, ids, stop, ControllerOptions::default())
}
