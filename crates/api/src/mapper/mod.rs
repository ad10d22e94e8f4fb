//! From kinds to the resources they are served as, and back; and from what users type to either.
//!
//! [`ResourceMapper`] is the one to use: fed with rows (from discovery, the built-in table or by hand) it knows
//! plurals, singulars, short names and categories, and which group and version is meant when none is named. It is made
//! of upstream's parts: [`DefaultRESTMapper`], which knows names, and [`PriorityRESTMapper`], which chooses.

mod default;
mod error;
mod guess;
mod priority;
mod resources;

pub use default::DefaultRESTMapper;
pub use error::MatchError;
pub use guess::unsafe_guess_kind_to_resource;
pub use priority::{ANY, PriorityRESTMapper};
pub use resources::{ResourceInfo, ResourceMapper};

use crate::{
    GroupKind, GroupVersionKind, GroupVersionResource, Name, Scope,
    names::{parse_kind_arg, parse_resource_arg},
    object,
};

/// How a kind is served.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct RESTMapping {
    /// The resource.
    pub resource: GroupVersionResource,
    /// The kind.
    pub gvk: GroupVersionKind,
    /// Whether its objects live in namespaces.
    pub scope: Scope,
}

impl RESTMapping {
    /// Where an object is served; see [`object::path`].
    #[must_use]
    pub fn path(&self, namespace: &str, name: &str) -> String {
        object::path(&self.resource, self.scope, namespace, name)
    }
}

/// Maps kinds to resources and back. A resource may be named in part: without its version, or without its group too.
pub trait RESTMapper {
    /// All kinds that a resource may mean, the preferred first.
    ///
    /// # Errors
    /// None does.
    fn kinds_for(&self, resource: &GroupVersionResource) -> Result<Vec<GroupVersionKind>, MatchError>;

    /// All resources that a resource named in part may mean, the preferred first. They are plurals.
    ///
    /// # Errors
    /// None does.
    fn resources_for(&self, resource: &GroupVersionResource) -> Result<Vec<GroupVersionResource>, MatchError>;

    /// How a kind is served: in the first of `versions` that has it, or in all versions if none is named.
    ///
    /// # Errors
    /// It is not served.
    fn rest_mappings(&self, kind: &GroupKind, versions: &[&str]) -> Result<Vec<RESTMapping>, MatchError>;

    /// The singular of a resource: `pod` for `pods`.
    ///
    /// # Errors
    /// There is none, or more than one.
    fn resource_singularizer(&self, resource: &str) -> Result<Name, MatchError>;

    /// The kind that a resource means.
    ///
    /// # Errors
    /// None does, or several may.
    fn kind_for(&self, resource: &GroupVersionResource) -> Result<GroupVersionKind, MatchError> {
        let kinds = self.kinds_for(resource)?;
        match <[_; 1]>::try_from(kinds) {
            Ok([kind]) => Ok(kind),
            Err(kinds) => Err(MatchError::ambiguous_kinds(resource, kinds)),
        }
    }

    /// The resource that a resource named in part means.
    ///
    /// # Errors
    /// None does, or several may.
    fn resource_for(&self, resource: &GroupVersionResource) -> Result<GroupVersionResource, MatchError> {
        let resources = self.resources_for(resource)?;
        match <[_; 1]>::try_from(resources) {
            Ok([resource]) => Ok(resource),
            Err(resources) => Err(MatchError::ambiguous_resources(resource, resources)),
        }
    }

    /// How a kind is served: in the first of `versions` that has it, or in the preferred version if none is named.
    ///
    /// # Errors
    /// It is not served.
    fn rest_mapping(&self, kind: &GroupKind, versions: &[&str]) -> Result<RESTMapping, MatchError> {
        let first = self.rest_mappings(kind, versions)?.into_iter().next();
        first.ok_or_else(|| MatchError::no_kind(kind, versions))
    }

    /// What a user means who types `deploy`, `deployments.apps`, `deployments.v1.apps` or `Deployment.v1.apps`.
    ///
    /// # Errors
    /// Nothing is called so, in the words of kubectl; or several things may be.
    fn mapping_for(&self, arg: &str) -> Result<RESTMapping, MatchError> {
        let (full, part) = parse_resource_arg(arg);
        let full = full.and_then(|resource| self.kind_for(&resource).ok());
        if let Some(gvk) = full.or_else(|| self.kind_for(&part.with_version("")).ok()) {
            return self.rest_mapping(&gvk.group_kind(), &[&gvk.version]);
        }
        let (full, kind) = parse_kind_arg(arg);
        if let Some(mapping) = full.and_then(|gvk| self.rest_mapping(&gvk.group_kind(), &[&gvk.version]).ok()) {
            return Ok(mapping);
        }
        self.rest_mapping(&kind, &[]).map_err(|error| match error.is_no_match() {
            true => MatchError::NoSuchType(part.resource),
            false => error,
        })
    }
}

#[cfg(test)]
mod tests;
