//! One compiled schema for every kind.
//!
//! A [`Schema`] is an arena of nodes. Users' kinds are compiled from OpenAPI v3; built-in kinds come from a table of
//! facts and are loaded piece by piece, when first looked at. Strict decoding, pruning, defaulting, validation and
//! patching all walk it through [`NodeRef`].

#[cfg(test)]
mod cases;
pub mod default;
mod format;
mod node;
pub mod pattern;
pub mod prune;
pub mod structural;
pub mod validate;

pub use node::{
    Definition, FieldRef, Format, ListType, MapType, Node, NodeField, NodeId, NodeRef, PatchStrategy, Rules, Schema,
    Type,
};
