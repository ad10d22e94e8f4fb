//! The life of pods on a node: registration, lifecycle, volumes, runtimes.
//!
//! The heart is [`lifecycle`]: one pod as a machine without I/O.

pub mod lifecycle;
pub mod qos;
