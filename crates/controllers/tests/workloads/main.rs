//! The workload loops on the real server, in process, on a clock that obeys.

#![expect(clippy::unwrap_used, reason = "all of it is a test")]

mod cluster;
mod convergence;
mod cronjob;
mod daemonset;
mod deployment;
mod job;
mod statefulset;
