//! The kinds that Kubernetes has built in, as a table of facts.

pub mod text;
