//! Patches: what turns one object into another.
//!
//! - [`json_patch`]: a list of operations (RFC 6902), `application/json-patch+json`.
//! - [`merge`]: an object that is laid over the other (RFC 7386), `application/merge-patch+json`.
//! - [`strategic`]: the same, but lists are merged as the schema says, `application/strategic-merge-patch+json`.
//!
//! All three work on [`Value`]s, and behave as upstream's libraries do where those differ from the letter of the
//! standards; `testdata/patches` holds what the real ones answer. Server-side
//! apply, which looks at list types and keys instead of merge keys, is in [`managed_fields`](crate::managed_fields).
//!
//! Nothing here recurses with the depth of a document. The strategic merge recurses along the schema, and stops at
//! [`strategic::MAX_DEPTH`] where a type contains itself.

pub mod json_patch;
pub mod merge;
pub mod strategic;

use crate::Value;

/// Drops the fields that are `null`, at any depth. Elements of lists that are `null` stay.
fn drop_null_fields(value: &mut Value) {
    let mut rest = vec![value];
    while let Some(value) = rest.pop() {
        match value {
            Value::Object(map) => {
                map.retain(|_, value| !value.is_null());
                rest.extend(map.iter_mut().map(|(_, value)| value));
            }
            Value::Array(items) => rest.extend(items.iter_mut()),
            _ => {}
        }
    }
}

#[cfg(test)]
mod conformance;
#[cfg(test)]
mod hostile;
