//! Validation: what is wrong with a value, in the words that clients of custom resources know.
//!
//! One walk over value and schema, with a stack of its own, looks for three kinds of errors, which are answered one
//! kind after the other: those of OpenAPI, those of embedded resources, those of lists that are sets or maps.

mod failure;
mod lists;
mod resource;
mod scalar;
mod walk;

use super::{NodeRef, Schema};
use crate::{Value, field::ErrorList};
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
