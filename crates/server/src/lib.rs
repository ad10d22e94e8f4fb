//! A Kubernetes API server as a library: one generic road for every kind.
//!
//! The parts of the road that are there so far: reading requests and writing discovery documents ([`request`],
//! [`discovery`]), deciding who may do what ([`authorization`]), what a new cluster has by itself ([`bootstrap`]), and
//! the read side over a store ([`cache`]). What joins them, the write side and the sockets, is still to come.

pub mod authorization;
mod base64;
pub mod bootstrap;
pub mod cache;
pub mod discovery;
pub mod pretty;
pub mod printers;
pub mod registry;
pub mod request;
mod sha256;
pub mod validation;
