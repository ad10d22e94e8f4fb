//! controller-runtime for Rust: what turns changes into work, and does it.
//!
//! A change becomes a key in a work queue ([`workqueue`]), never twice at the same time; a [`Controller`] takes keys
//! and lets a [`Reconciler`] look at the present state. [`retry_on_conflict`] writes against others,
//! [`leader_election`] keeps all but one from writing at all. All waiting is on the injected clock.
//!
//! [`operator`] puts these together: a manager with caches, and controllers that say what concerns them.
//!
//! Not for: talking to the server and keeping copies of objects (`capstan-client` does).

pub mod conditions;
mod controller;
pub mod controllerutil;
pub mod expectations;
pub mod handler;
pub mod leader_election;
mod lru;
pub mod metrics;
pub mod operator;
pub mod record;
mod retry;
mod slow_start;
mod stop;
mod sync;
#[cfg(test)]
mod testing;
pub mod workqueue;

pub use controller::{Action, Controller, Outcome, ReconcileError, Reconciler};
pub use controllerutil::{apply, create_or_patch, create_or_update, set_controller_reference};
pub use record::{EventRecorder, EventType, ObjectReference};
pub use retry::{Backoff, DEFAULT_RETRY, retry_on_conflict};
pub use slow_start::{SLOW_START_INITIAL_BATCH_SIZE, at_once, slow_start_batch};
pub use stop::{Stop, Stopper};
