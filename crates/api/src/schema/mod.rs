//! One compiled schema for every kind.
//!
//! A [`Schema`] is an arena of nodes. Users' kinds are compiled from OpenAPI v3; built-in kinds come from a table of
//! facts and are loaded piece by piece, when first looked at. Strict decoding, pruning, defaulting, validation and
//! patching all walk it through [`NodeRef`].

mod arena;
#[cfg(test)]
mod cases;
mod decode;
pub mod default;
mod format;
mod node;
pub mod pattern;
pub mod prune;
pub mod structural;
pub mod validate;
mod view;

pub(crate) use arena::Numbered;
pub use arena::{Definition, GoField, Notes, Schema};
pub use decode::{DecodeError, Decoded, Mismatch};
pub use node::{Absent, Facts, Format, ListType, MapType, Node, NodeField, NodeId, PatchStrategy, Rules, Type};
pub use view::{FieldRef, NodeRef};
