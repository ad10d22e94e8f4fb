//! Where pods go: a decision core without I/O, and the loop around it.
//!
//! [`Core`](core::Core) decides: a [`Cache`](cache::Cache) of nodes and pods that is kept up to date event by event, a
//! [`Profile`](profile::Profile) of [plugins](plugin::Plugin), and a pod give a node or reasons. Nothing in it waits or
//! asks anybody.

pub mod cache;
mod class;
pub mod core;
pub mod event;
pub mod node_info;
mod node_tree;
pub mod nominator;
pub mod plugin;
pub mod plugins;
pub mod pod_info;
pub mod preemption;
pub mod profile;
pub mod queue;
pub mod resource;
pub mod selectors;
pub mod status;
#[cfg(test)]
mod testing;
#[cfg(test)]
mod tests;
pub mod world;
