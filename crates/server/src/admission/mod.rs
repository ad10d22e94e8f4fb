//! What changes or refuses a write after it was authorized and before it is committed: a chain of small plugins.
//!
//! The order of a write: [`Plugin::admit`] of each plugin, the strategy and validation, [`Plugin::validate`] of each.
//! Plugins read other objects through [`Objects`] and never wait.

mod forbidden;
#[cfg(test)]
mod golden;
pub mod limit_ranger;
pub mod pod_security;
pub mod resource_quota;
mod resources;

use capstan_api::{GroupVersionKind, GroupVersionResource, Map, Status, Time};

use crate::{authorization::UserInfo, objects::Objects};

/// What is done to an object.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Operation {
    /// It is created.
    Create,
    /// It is changed: PUT and PATCH, also those of subresources.
    Update,
    /// It is deleted.
    Delete,
    /// A connection to it is opened.
    Connect,
}

/// A write, as plugins see it.
pub struct Request<'a> {
    /// What is done.
    pub operation: Operation,
    /// The kind of `object`: that of the subresource where there is one (`Scale`, `Binding`).
    pub kind: &'a GroupVersionKind,
    /// The resource that the request names.
    pub resource: &'a GroupVersionResource,
    /// The subresource; empty for the object itself.
    pub subresource: &'a str,
    /// The namespace; empty for objects of the cluster.
    pub namespace: &'a str,
    /// The name; empty for a create whose name is to be generated and for deletecollection.
    pub name: &'a str,
    /// Who asks.
    pub user: &'a UserInfo,
    /// Nothing will be written.
    pub dry_run: bool,
    /// The present time.
    pub now: Time,
    /// The new object; `None` for deletes and connections without options.
    pub object: Option<&'a mut Map>,
    /// The object as it is stored; `None` for creates.
    pub old_object: Option<&'a Map>,
    /// The options of the request as an object (`CreateOptions`, `UpdateOptions`, `DeleteOptions`), where it has some.
    pub options: Option<&'a Map>,
    /// What is stored.
    pub objects: &'a dyn Objects,
    /// What the client is to be warned of; plugins add to it.
    pub warnings: &'a mut Vec<String>,
}

/// One rule of admission.
pub trait Plugin: Send + Sync {
    /// Its name, as `--enable-admission-plugins` has it.
    fn name(&self) -> &'static str;

    /// Changes the new object, or refuses the write.
    ///
    /// # Errors
    /// The answer to a write that is refused.
    fn admit(&self, request: &mut Request<'_>) -> Result<(), Status> {
        let _ = request;
        Ok(())
    }

    /// Refuses the write, or lets it pass as it is.
    ///
    /// # Errors
    /// The answer to a write that is refused.
    fn validate(&self, request: &mut Request<'_>) -> Result<(), Status> {
        let _ = request;
        Ok(())
    }
}
