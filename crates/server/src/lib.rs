//! A Kubernetes API server as a library: one generic road for every kind.
//!
//! The parts of the road that are there so far; what joins them is still to come. [`request`] reads what a client asks for.
//! It is pure: text in, typed values out.

mod base64;
pub mod pretty;
pub mod request;
