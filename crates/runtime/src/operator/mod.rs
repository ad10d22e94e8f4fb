//! What operators are written with: a [`Reconciler`] that is given a key and a [`Context`], a [`Controller`] that says
//! what concerns it, and a [`Manager`] that runs controllers on shared caches.
//!
//! controller-runtime's builder, predicates and manager. Below it are the [queue](crate::workqueue) and the
//! [loop](crate::Controller), which can be used without any of this.

mod context;
mod controller;
mod endpoints;
#[cfg(test)]
mod hardship;
mod manager;
mod metrics;
mod predicate;
mod report;
mod running;
mod signals;
#[cfg(test)]
mod tests;
mod transport;

pub use context::{CACHE_WAIT, Context};
pub use controller::{Controller, Reconciler};
pub use endpoints::{Check, Checks};
pub use manager::{CACHE_SYNC_TIMEOUT, GRACEFUL_SHUTDOWN, Manager, ManagerError};
pub use predicate::{Change, Predicate};
pub use report::Report;
pub use signals::setup_signal_handler;
