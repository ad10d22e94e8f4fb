//! The control loops of Kubernetes, one module each, reaching state only through the API.
//!
//! Each loop is level-driven: an event says that something changed, never what to do. A module has one public function,
//! `run`, which works on what all loops share (a [`ControllerContext`]) until it is told to stop; [`CONTROLLERS`] is
//! the table of all of them, by upstream's names.

mod context;
mod endpoints;
mod endpointslice;
mod endpointslice_mirroring;
mod fnv;
mod loops;
mod recorder;
mod service_cidr;
mod service_pods;

pub use context::{ControllerContext, Descriptor};

/// All loops that there are, by upstream's names.
#[rustfmt::skip]
pub const CONTROLLERS: &[Descriptor] = &[
    Descriptor { name: "endpoints-controller", on_by_default: true, run: endpoints::run },
    Descriptor { name: "endpointslice-controller", on_by_default: true, run: endpointslice::run },
    Descriptor { name: "endpointslice-mirroring-controller", on_by_default: true, run: endpointslice_mirroring::run },
    Descriptor { name: "service-cidr-controller", on_by_default: true, run: service_cidr::run },
];
