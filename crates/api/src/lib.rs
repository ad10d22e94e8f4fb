//! The vocabulary of Kubernetes' API machinery.
//!
//! Names and shapes, and what can be done with them without asking anybody: read and write them, default, validate,
//! select, patch and convert them. The crate is pure: no sockets, no files, no async, no clock. Built-in kinds and
//! kinds brought by users take the same road, the road of one compiled [`schema`].
//!
//! Not for: talking to a server (the client does), storing (storage does), deciding who may do what (the server does).

pub mod builtin;
pub mod codec;
pub mod duration;
pub mod field;
pub mod go;
#[cfg(test)]
mod golden;
pub mod int_or_string;
pub mod json;
pub mod list;
pub mod managed_fields;
pub mod mapper;
mod name;
pub mod names;
pub mod object;
pub mod options;
pub mod partial;
pub mod patch;
pub mod protobuf;
pub mod quantity;
pub mod schema;
pub mod scheme;
pub mod selector;
pub mod status;
pub mod table;
pub mod time;
mod typed;
pub mod unstructured;
pub mod validation;
pub mod value;
pub mod watch_event;
pub mod yaml;

/// The string type of values: short ones live in place.
pub use compact_str::CompactString as Str;
pub use duration::Duration;
pub use int_or_string::IntOrString;
pub use name::Name;
pub use names::{GroupKind, GroupResource, GroupVersion, GroupVersionKind, GroupVersionResource};
pub use object::{ObjectMeta, Resource, Scope};
pub use quantity::Quantity;
pub use scheme::Scheme;
pub use status::Status;
pub use time::{MicroTime, Time};
pub use unstructured::{Unstructured, UnstructuredList};
pub use value::{Array, Map, Value};
