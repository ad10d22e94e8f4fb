//! Custom resources: what a CustomResourceDefinition says becomes a resource that takes the same road as built-in ones.
//!
//! A [`Definition`] is read off the definition's object; a [`Served`] is one of its versions, as handlers ask it.
//! Schemas are compiled when they are first needed: most definitions of a cluster are never used. The task in
//! `controller` keeps conditions, discovery and the set of what is served up with the stored definitions.

mod coerce;
mod columns;
mod conditions;
pub(crate) mod controller;
mod convert;
pub(crate) mod decode;
mod definition;
pub(crate) mod deletion;
pub mod jsonpath;
mod names;
mod rules;
#[cfg(test)]
mod rules_tests;
pub(crate) mod scale;
#[cfg(test)]
mod tests;
pub(crate) mod validate;

pub use convert::Stored;
pub(crate) use convert::normalize;
pub use definition::{Definition, Scale, Served, Version};
pub use names::Names;

use capstan_api::{GroupResource, GroupVersionKind};

/// What is read and written at `/scale`.
pub static SCALE: GroupVersionKind = GroupVersionKind::from_static("autoscaling", "v1", "Scale");

/// What can be done with custom resources, in the order in which it is told.
pub const VERBS: [&str; 8] = ["delete", "deletecollection", "get", "list", "patch", "create", "update", "watch"];

/// What can be done while the definition goes.
pub(crate) const TERMINATING_VERBS: [&str; 5] = ["delete", "deletecollection", "get", "list", "watch"];

/// What can be done with their subresources.
pub const SUBRESOURCE_VERBS: [&str; 3] = ["get", "patch", "update"];

/// The definitions themselves.
pub(crate) const DEFINITIONS: GroupResource =
    GroupResource::from_static("apiextensions.k8s.io", "customresourcedefinitions");
