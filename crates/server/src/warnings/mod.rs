//! Placeholder.
use capstan_api::{GroupVersionKind, Map};
/// Nothing.
#[must_use]
pub fn warnings_on_create(_: &GroupVersionKind, _: &Map) -> Vec<String> {
    Vec::new()
}
/// Nothing.
#[must_use]
pub fn warnings_on_update(_: &GroupVersionKind, _: &Map, _: &Map) -> Vec<String> {
    Vec::new()
}
