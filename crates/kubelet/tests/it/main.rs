//! The node and its parts for real: processes, a server, streams. One program, because linking it takes a while.

#![expect(clippy::unwrap_used, reason = "all of it is a test")]

mod cri;
mod faulty;
mod metrics;
mod node;
mod pod_network;
mod probes;
mod process;
mod rough;
mod server;
mod shutdown;
mod simulated;
mod token;
mod world;
