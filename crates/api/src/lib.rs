//! The vocabulary of Kubernetes' API machinery.
//!
//! Names and shapes, and what can be done with them without asking anybody: read and write them, default, validate, select,
//! patch and convert them. The crate is pure: no sockets, no files, no async, no clock. Built-in kinds and kinds brought by
//! users take the same road, the road of one compiled [`schema`].
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
mod name;
pub mod names;
pub mod quantity;
pub mod schema;
pub mod status;
pub mod time;
pub mod value;
pub mod yaml;

/// The string type of values: short ones live in place.
pub use compact_str::CompactString as Str;
pub use duration::Duration;
pub use int_or_string::IntOrString;
pub use name::Name;
pub use quantity::Quantity;
pub use status::Status;
pub use time::{MicroTime, Time};
pub use value::{Array, Map, Value};
