//! Control loops of network, storage, certificates and scaling on the real server in process, on a clock that obeys.

#![expect(clippy::unwrap_used, reason = "all of it is a test")]
#![expect(unreachable_pub, reason = "a test has no public surface")]

mod autoscaling;
mod certificates;
mod claims;
mod harness;
mod network;
mod policies;
mod storage;
