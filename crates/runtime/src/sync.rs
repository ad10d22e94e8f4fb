//! The locks of the queues: the real one, or with the feature `shuttle` that of a scheduler that tries interleavings.
//!
//! What tokio's notifications do does not hold a thread up, so they are tokio's own under either.

#[cfg(feature = "shuttle")]
pub(crate) use shuttle::sync::{Mutex, MutexGuard, atomic::AtomicUsize};
#[cfg(not(feature = "shuttle"))]
pub(crate) use std::sync::{Mutex, MutexGuard, atomic::AtomicUsize};
