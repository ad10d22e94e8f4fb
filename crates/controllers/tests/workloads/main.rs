//! The workload loops on the real server, in process, on a clock that obeys.

#![expect(clippy::unwrap_used, reason = "all of it is a test")]

mod cluster;
mod deployment;
