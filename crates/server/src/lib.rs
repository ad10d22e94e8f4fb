//! A Kubernetes API server as a library: one generic road for every kind.
//!
//! The parts of the road that are there so far, in the order of a request: reading it ([`request`]), telling what there
//! is ([`discovery`]), finding out who asks ([`authentication`], with the certificates of [`pki`]) and as whom
//! ([`impersonation`]), deciding who may do what ([`authorization`]), what each kind's strategy does to an object
//! ([`registry`], [`validation`]), the read side over a store ([`cache`]), rows of tables ([`printers`]), and what a
//! new cluster has by itself ([`bootstrap`]). What joins them, commits and sockets, is still to come; [`validation`]
//! knows some kinds only.

pub mod admission;
pub mod authentication;
pub mod authorization;
mod base64;
pub mod bootstrap;
pub mod cache;
pub mod discovery;
pub mod http;
pub mod impersonation;
pub mod objects;
pub mod pki;
pub mod pretty;
pub mod printers;
pub mod registry;
pub mod request;
mod sha256;
pub mod validation;
