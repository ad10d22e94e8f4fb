//! A Kubernetes API server as a library: one generic road for every kind.
//!
//! The parts of the road that are there so far, in the order of a request: reading it ([`request`]), telling what there
//! is ([`discovery`]), deciding who may do what ([`authorization`]), what each kind's strategy does to an object
//! ([`registry`], [`validation`]), the read side over a store ([`cache`]), rows of tables ([`printers`]), and what a
//! new cluster has by itself ([`bootstrap`]). Sockets are in [`serve`]. What joins them all is still to come;
//! [`validation`] knows some kinds only.
//! new cluster has by itself ([`bootstrap`]). Beside the road stands what looks at it: [`health`], [`metrics`],
//! [`flowcontrol`], [`audit`], [`warnings`]. What joins them, commits and sockets, is still to come; [`validation`]
//! knows some kinds only.

pub mod admission;
pub mod audit;
pub mod authorization;
mod base64;
pub mod bootstrap;
pub mod cache;
pub mod discovery;
pub mod flowcontrol;
mod handlers;
pub mod health;
pub mod http;
pub mod index;
pub mod metrics;
pub mod objects;
pub mod openapi;
pub mod pretty;
pub mod printers;
pub mod registry;
pub mod request;
mod road;
pub mod serve;
mod server;
mod sha256;
mod start;
pub mod validation;
pub mod warnings;

pub use road::InProcessUser;
pub use server::{Config, Server, StartError};
