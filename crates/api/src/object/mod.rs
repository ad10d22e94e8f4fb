//! What every object carries: its type, its metadata, its owners; and what a Rust type must tell to be an object.
//!
//! Fields that Go leaves out when they are empty are left out here, and `null` reads as empty, as in Go.

mod accessor;
mod any;
#[cfg(feature = "k8s-openapi")]
mod builtin;
mod encoded;
mod meta;
pub(crate) mod nullable;
mod owner;
mod resource;

pub use accessor::Accessor;
pub use any::{Identity, Object, ObjectError};
pub use encoded::Encoded;
pub use meta::{FieldsV1, ListMeta, ManagedFieldsEntry, ObjectMeta, ShardInfo, TypeMeta};
pub use owner::{OwnerReference, controller_of};
pub use resource::{Metadata, Resource, Scope, path};
