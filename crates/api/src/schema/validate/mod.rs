//! Validation: what is wrong with a value, in the words that clients of custom resources know.
//!
//! One walk over value and schema, with a stack of its own, looks for three kinds of errors, which are answered one
//! kind after the other: those of OpenAPI, those of embedded resources, those of lists that are sets or maps.

mod failure;
mod lists;
mod ratchet;
mod resource;
mod scalar;
mod walk;

use super::{NodeRef, Schema};
use crate::{Value, field::ErrorList};
use ratchet::Ratchet;
pub use ratchet::is_same;
use walk::Walker;

/// What is looked at.
#[derive(Clone, Copy, Debug)]
pub(super) struct Checks {
    /// Formats that count.
    formats: bool,
    /// Also formats that do not count.
    all_formats: bool,
    /// That an int-or-string is one of them.
    int_or_string: bool,
    /// That sets and maps have no duplicates.
    lists: bool,
    /// Embedded resources.
    resources: bool,
    /// Everything of OpenAPI.
    openapi: bool,
}

impl Checks {
    const ALL: Checks =
        Checks { formats: true, all_formats: false, int_or_string: true, lists: true, resources: true, openapi: true };
}

/// Validates a whole custom resource. Its own `apiVersion`, `kind` and `metadata` are not looked at further than the
/// schema says.
#[must_use]
pub fn validate(object: &Value, schema: &Schema) -> ErrorList {
    Walker::new(Checks::ALL, "").run(schema.root(), object)
}

/// What is wrong with a custom resource, by kind of error.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Findings {
    /// What OpenAPI says.
    pub openapi: ErrorList,
    /// What is wrong with embedded resources.
    pub resources: ErrorList,
    /// What comes twice in lists that are sets or maps.
    pub lists: ErrorList,
}

/// As [`validate`], by kind of error. Of what OpenAPI says, parts that are as they were in `old` are tolerated.
#[must_use]
pub fn inspect(object: &Value, schema: &Schema, old: Option<&Value>) -> Findings {
    let ratchet = old.map(|old| Ratchet::new(schema.root(), object, old, false));
    Walker::new(Checks::ALL, "").tolerating(ratchet).inspect(schema.root(), object)
}

/// What OpenAPI says of one field of a custom resource. What is as it was in `old` is tolerated.
#[must_use]
pub fn inspect_field(value: &Value, schema: &Schema, field: &str, old: Option<&Value>) -> ErrorList {
    let Some(found) = schema.root().field(field) else { return ErrorList::new() };
    let ratchet = old.map(|old| Ratchet::new(found.node, value, old, true));
    Walker::new(Checks::ALL, field).tolerating(ratchet).inspect(found.node, value).openapi
}

/// What is wrong with a default that is found at `path`. Upstream forgets here that an int-or-string is one of the two,
/// and that there are formats that do not count.
pub(super) fn default(node: NodeRef<'_>, value: &Value, path: &str) -> ErrorList {
    let checks = Checks { all_formats: true, int_or_string: false, lists: false, resources: false, ..Checks::ALL };
    Walker::new(checks, path).run(node, value)
}

/// What is wrong with the embedded resources of a default that is found at `path`; at `is_resource` it is one itself.
pub(super) fn resources(node: NodeRef<'_>, value: &Value, path: &str, is_resource: bool) -> ErrorList {
    let checks = Checks { formats: false, int_or_string: false, lists: false, openapi: false, ..Checks::ALL };
    let mut walker = Walker::new(checks, path);
    if is_resource && !node.is_embedded_resource() {
        walker.check_resource(value);
    }
    let errors = walker.run(node, value);
    // A wrong type is found before anything else is looked at.
    match errors.iter().find(|error| error.detail == resource::NOT_A_STRING) {
        Some(error) => vec![error.clone()],
        None => errors,
    }
}

#[cfg(test)]
mod tests;
