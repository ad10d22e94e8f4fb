//! The workload loops on the real server, in process, on a clock that obeys.

#![expect(clippy::unwrap_used, reason = "all of it is a test")]

mod bad_input;
mod cluster;
mod convergence;
mod cost;
mod cronjob;
mod daemonset;
mod deployment;
mod job;
mod job_limits;
mod statefulset;
