//! The life of pods on a node: registration, lifecycle, volumes, runtimes.
//!
//! The heart is [`lifecycle`]: one pod as a machine without I/O. What runs containers is behind one narrow trait,
//! [`runtime::Runtime`].

mod dirty;
pub mod downward;
pub mod env;
mod env_file;
pub mod lifecycle;
pub mod logs;
pub mod metrics;
pub mod metrics_api;
pub mod node;
pub mod qos;
pub mod runtime;
pub mod server;
pub mod simulated;
#[cfg(test)]
mod testing;
pub mod volumes;
