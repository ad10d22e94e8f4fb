//! The pure half of the write road: where objects are stored, and what a kind makes of a write before it is validated.
//!
//! No I/O and no clock: the caller brings the uid and the time, and commits what comes out. A kind is a row of
//! [`strategy`]; code is only for kinds that really behave differently.

mod certificates;
mod disabled;
pub mod fields;
pub(crate) mod hooks;
pub mod layout;
pub mod live;
pub mod names;
pub(crate) mod paths;
pub mod pod;
pub mod prepare;
pub mod resource;
mod rows;
mod service;
pub mod strategy;
#[cfg(test)]
mod tests;

pub use certificates::{Requester, set_requester};
pub use live::Registry;
pub use prepare::{is_unchanged, prepare_for_create, prepare_for_update};
pub use resource::{Resource, Stored, encode};
pub use strategy::Strategy;
