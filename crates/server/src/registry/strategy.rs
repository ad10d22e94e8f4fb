//! How a kind differs from the others when its objects are written: facts, one row a kind.

use capstan_api::GroupResource;

use super::{fields::SelectableFields, names::NameRule, rows::ROWS};

/// The facts of one resource.
#[derive(Clone, Copy, Debug)]
pub struct Strategy {
    /// The group; empty for the core group.
    pub group: &'static str,
    /// The resource: `pods`.
    pub resource: &'static str,
    /// PUT creates what does not exist.
    pub allow_create_on_update: bool,
    /// PUT needs no resourceVersion.
    pub allow_unconditional_update: bool,
    /// Creating an object empties its status.
    pub resets_status: bool,
    /// For each endpoint, the fields that stay as they were. The main endpoint has the empty name.
    pub endpoints: &'static [Endpoint],
    /// How `metadata.generation` counts.
    pub generation: Generation,
    /// What names may be.
    pub name: NameRule,
    /// What becomes of dependents when the request does not say.
    pub garbage_collection: GarbageCollection,
    /// Deletion waits until a node has stopped the object: only pods.
    pub graceful_deletion: bool,
    /// The fields that lists can be filtered by.
    pub fields: SelectableFields,
}

/// What an endpoint leaves as it was.
#[derive(Clone, Copy, Debug)]
pub struct Endpoint {
    /// The subresource; empty for the object itself.
    pub subresource: &'static str,
    /// The fields that stay as they were, by dotted path.
    pub keeps: &'static [&'static str],
}

/// How `metadata.generation` counts. Where the server does not count, what the client sent at first stays.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Generation {
    /// The server does not count.
    Never,
    /// It is 1 for ever.
    Once,
    /// It starts with 1 and grows when one of these fields changes, by dotted path.
    When(&'static [&'static str]),
    /// It starts with what the client sent, and grows when one of these fields changes.
    Unset(&'static [&'static str]),
    /// It starts with 1 and grows when the labels change, or anything but the metadata.
    ContentOrLabels,
    /// It starts with 1 and grows when anything changes but the metadata.
    Content,
    /// It starts with 1 and grows when anything changes but the metadata and the status.
    ContentButStatus,
}

/// What becomes of dependents when their owner is deleted.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum GarbageCollection {
    /// They are deleted.
    DeleteDependents,
    /// They stay, without their owner.
    OrphanDependents,
    /// The kind never has dependents.
    Unsupported,
}

impl Strategy {
    /// The row of a built-in resource, if objects of it are stored.
    #[must_use]
    pub fn of(resource: &GroupResource) -> Option<&'static Strategy> {
        let asked = (resource.group.as_str(), resource.resource.as_str());
        ROWS.binary_search_by(|row| (row.group, row.resource).cmp(&asked)).ok().map(|at| &ROWS[at])
    }

    /// The row of a custom resource, with or without the status subresource.
    #[must_use]
    pub const fn custom(status: bool) -> &'static Strategy {
        if status { &super::rows::CUSTOM_WITH_STATUS } else { &super::rows::CUSTOM }
    }

    /// All rows of built-in resources.
    pub fn all() -> impl ExactSizeIterator<Item = &'static Strategy> {
        ROWS.iter()
    }

    /// The fields that a write to `subresource` (empty for the object itself) leaves as they were.
    #[must_use]
    pub fn keeps(&self, subresource: &str) -> &'static [&'static str] {
        let mut endpoints = self.endpoints.iter();
        endpoints.find(|endpoint| endpoint.subresource == subresource).map_or(&[], |endpoint| endpoint.keeps)
    }

    /// Writes to the object itself leave its status alone.
    #[must_use]
    pub fn has_status(&self) -> bool {
        self.endpoints.iter().any(|endpoint| endpoint.subresource == "status")
    }
}
