//! A Kubernetes API server as a library: one generic road for every kind.
//!
//! The parts of the road that are there so far; what joins them is still to come.

pub mod cache;
