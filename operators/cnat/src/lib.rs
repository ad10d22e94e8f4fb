//! Cloud-native `at`: an [`At`] holds a time and a command; the operator runs that command in a pod at that time and
//! says how far it is: PENDING, RUNNING, DONE.
//!
//! It is written with the public crates alone, as a user would, and read best in this order: the kind
//! ([`at`](crate::At)), the loop ([`Cnat`]), the program (`main.rs`).

mod at;
mod install;
mod reconcile;

pub use at::{At, AtSpec, AtStatus, Phase};
pub use install::install;
pub use reconcile::Cnat;
