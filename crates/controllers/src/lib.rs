//! The control loops of Kubernetes, one module each, reaching state only through the API.
//!
//! Each loop is level-driven: an event says that something changed, never what to do. A module has one public function,
//! `run`, which works on what all loops share (a [`ControllerContext`]) until it is told to stop; [`CONTROLLERS`] is
//! the table of all of them, by upstream's names.

mod context;

pub use context::{ControllerContext, Descriptor};

/// All loops that there are, by upstream's names.
pub const CONTROLLERS: &[Descriptor] = &[];
