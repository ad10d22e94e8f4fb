//! Where pods go: a decision core without I/O, and the loop around it.
//!
//! [`Core`](core::Core) decides: a [`Cache`](cache::Cache) of nodes and pods that is kept up to date event by event, a
//! [`Profile`](profile::Profile) of [plugins](plugin::Plugin), and a pod give a node or reasons. Nothing in it waits or
//! asks anybody. The [`SchedulingQueue`](queue::SchedulingQueue) says which pod is next, and the [`Scheduler`] is the
//! loop that keeps both up to date and tells the server.

pub mod cache;
mod class;
pub mod config;
pub mod core;
mod devices;
pub mod event;
pub mod extender;
mod metrics;
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
mod scheduler;
pub mod selectors;
pub mod status;
#[cfg(test)]
mod testing;
#[cfg(test)]
mod tests;
pub mod world;

pub use config::{Registry, SchedulerConfig};
pub use scheduler::{Scheduler, SchedulerHandle};
