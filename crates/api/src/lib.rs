//! The vocabulary of Kubernetes' API machinery.
//!
//! Names and shapes, and what can be done with them without asking anybody: read and write them, default, validate, select,
//! patch and convert them. The crate is pure: no sockets, no files, no async, no clock. Built-in kinds and kinds brought by
//! users take the same road, the road of one compiled [`schema`].
//!
//! Not for: talking to a server (the client does), storing (storage does), deciding who may do what (the server does).

pub mod builtin;
pub mod codec;
pub mod field;
pub mod go;
pub mod json;
mod name;
pub mod names;
pub mod schema;
pub mod value;

/// The string type of values: short ones live in place.
pub use compact_str::CompactString as Str;
pub use name::Name;
pub use value::{Array, Map, Value};
