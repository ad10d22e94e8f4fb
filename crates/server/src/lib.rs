//! A Kubernetes API server as a library: one generic road for every kind.
//!
//! [`Server`] is a value: start it on a store, call it as a `tower` service, or put it behind sockets ([`serve`]). The
//! road of a request, in its order: reading it ([`request`]), who asks ([`authentication`], [`impersonation`]), whether
//! they may ([`authorization`]), the verbs, what may change or refuse a write ([`admission`]), what each kind's
//! strategy does to an object ([`registry`], [`validation`], [`warnings`]), the addresses and ports of services
//! ([`allocation`]), kinds in more than one version ([`conversion`]), those of users ([`custom`]), and the read side
//! over a store ([`cache`]). Beside it: what there is ([`discovery`]), rows of tables ([`printers`]), what a new
//! cluster has by itself ([`bootstrap`]), keys and certificates ([`pki`]), and what the server says of itself
//! ([`health`], [`metrics`], [`audit`], [`flowcontrol`]).

pub mod admission;
mod aggregation;
pub mod allocation;
pub mod audit;
pub mod authentication;
pub mod authorization;
mod backend;
mod base64;
pub mod bootstrap;
pub mod cache;
pub mod conversion;
pub mod custom;
mod descriptions;
pub mod discovery;
mod extension;
pub mod flowcontrol;
mod handlers;
pub mod health;
pub mod http;
pub mod impersonation;
mod in_process;
pub mod index;
pub mod metrics;
pub mod objects;
pub mod openapi;
pub mod pki;
pub mod pretty;
pub mod printers;
pub mod registry;
pub mod request;
mod road;
mod routes;
pub mod serve;
mod server;
mod sha256;
mod start;
#[cfg(test)]
mod testing;
mod upkeep;
pub mod validation;
pub mod warnings;
mod zpages;

pub use extension::{Answer as ExtensionAnswer, Extension};
pub use handlers::connect::KubeletClient;
pub use in_process::InProcess;
pub use road::InProcessUser;
pub use server::{AuthorizationMode, Config, Server, StartError};
