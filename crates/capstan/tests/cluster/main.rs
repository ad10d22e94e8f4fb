//! A whole cluster in this process, on virtual time: the server, control loops, the scheduler and simulated nodes, each
//! in its own name.

#![expect(clippy::unwrap_used, reason = "all of it is a test")]

mod lost_node;
mod story;
mod world;
