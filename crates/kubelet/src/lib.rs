//! The life of pods on a node: registration, lifecycle, volumes, runtimes.
//!
//! The heart is [`lifecycle`]: one pod as a machine without I/O. What runs containers is behind one narrow trait,
//! [`runtime::Runtime`].

pub mod downward;
pub mod env;
pub mod lifecycle;
pub mod logs;
pub mod qos;
pub mod runtime;
#[cfg(test)]
mod testing;
pub mod volumes;
