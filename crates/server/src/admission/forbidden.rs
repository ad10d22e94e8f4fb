//! The answer of a plugin that refuses a write.

use std::fmt;

use capstan_api::Status;

use super::Request;
use crate::validation::read::{at, text};

/// What upstream calls an object whose name nobody can tell.
const UNKNOWN: &str = "Unknown";

/// A name that the object itself has.
fn own<'a>(request: &'a Request<'_>, field: &str) -> &'a str {
    request.object.as_deref().map_or("", |object| text(at(object, "metadata"), field))
}

/// The name of the object; one that was generated is in the object only.
pub(super) fn name<'a>(request: &'a Request<'_>) -> &'a str {
    if request.name.is_empty() { own(request, "name") } else { request.name }
}

/// The write is refused because of `error`.
pub(super) fn forbidden(request: &Request<'_>, error: impl fmt::Display) -> Status {
    let names = [name(request), own(request, "generateName")];
    let name = names.into_iter().find(|name| !name.is_empty()).unwrap_or(UNKNOWN);
    Status::forbidden(&request.resource.group_resource(), name, error)
}
