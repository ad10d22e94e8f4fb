//! Life and death, policy and nodes: the loops on the real server, in process, on virtual time.

#![expect(clippy::unwrap_used, reason = "all of it is a test")]

mod clocks;
mod deletion;
mod harness;
mod identity;
mod nodes;
mod policy;
