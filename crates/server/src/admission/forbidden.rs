//! The answer of a plugin that refuses a write.

use std::fmt;

use capstan_api::Status;

use super::Request;
use crate::validation::read::{at, text};

/// What upstream calls an object whose name nobody can tell.
const UNKNOWN: &str = "Unknown";

/// The object's name, what its name is generated from, or [`UNKNOWN`].
fn name<'a>(request: &'a Request<'_>) -> &'a str {
    let metadata = request.object.as_deref().map(|object| at(object, "metadata"));
    let of = |field| metadata.map_or("", |metadata| text(metadata, field));
    [request.name, of("name"), of("generateName")].into_iter().find(|name| !name.is_empty()).unwrap_or(UNKNOWN)
}

/// The write is refused because of `error`.
pub(super) fn forbidden(request: &Request<'_>, error: impl fmt::Display) -> Status {
    Status::forbidden(&request.resource.group_resource(), name(request), error)
}
