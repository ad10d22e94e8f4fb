//! A Kubernetes API server as a library: one generic road for every kind.
//!
//! The parts of the road that are there so far; what joins them is still to come. [`request`] reads what a client asks for,
//! [`discovery`] tells what there is to ask for. Both are pure: text in, typed values and bytes out.

mod base64;
pub mod discovery;
pub mod pretty;
pub mod request;
mod sha256;
