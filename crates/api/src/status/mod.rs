//! What the server answers when it has no object to answer with: mostly errors, in the words that clients match on.

mod errors;
mod negotiation;
mod predicates;
mod reason;
mod response;

use std::fmt;

use serde::{Deserialize, Deserializer, Serialize, Serializer, ser::SerializeStruct};

pub use reason::StatusReason;
pub use response::GenericResponse;

use crate::{
    Name,
    object::{ListMeta, nullable::value as nullable},
};

/// What [`Status::status`] is of a request that went well.
pub const SUCCESS: Name = Name::from_static("Success");
/// What [`Status::status`] is of a request that went wrong.
pub const FAILURE: Name = Name::from_static("Failure");

/// The types of causes that do not come from a field error; those are
/// [`ErrorType::reason`](crate::field::ErrorType::reason).
pub mod cause {
    use crate::Name;

    /// The answer of a server was not what the client can read.
    pub const UNEXPECTED_SERVER_RESPONSE: Name = Name::from_static("UnexpectedServerResponse");
    /// Another manager owns the field that is applied.
    pub const FIELD_MANAGER_CONFLICT: Name = Name::from_static("FieldManagerConflict");
    /// The version asked for is ahead of what the server has seen.
    pub const RESOURCE_VERSION_TOO_LARGE: Name = Name::from_static("ResourceVersionTooLarge");
}

/// The outcome of a request. As an error it prints as its message.
///
/// Written as JSON it begins with `"kind":"Status","apiVersion":"v1"`; reading does not ask for them.
#[derive(Clone, Debug, Default, PartialEq, Eq, Deserialize)]
#[serde(default)]
pub struct Status {
    /// The metadata of a list: a status that ends a paged list may carry where to go on.
    #[serde(deserialize_with = "empty_is_none")]
    pub metadata: Option<Box<ListMeta>>,
    /// [`SUCCESS`] or [`FAILURE`].
    #[serde(deserialize_with = "nullable")]
    pub status: Name,
    /// What happened, for people.
    #[serde(deserialize_with = "nullable")]
    pub message: String,
    /// Why, for programs.
    #[serde(deserialize_with = "nullable")]
    pub reason: StatusReason,
    /// What the reason is about.
    pub details: Option<Box<StatusDetails>>,
    /// The HTTP code, 0 if it is not said.
    #[serde(deserialize_with = "nullable")]
    pub code: i32,
}

/// What a [`StatusReason`] is about.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default, rename_all = "camelCase")]
pub struct StatusDetails {
    /// The name of the object.
    #[serde(deserialize_with = "nullable", skip_serializing_if = "String::is_empty")]
    pub name: String,
    /// The group of the object.
    #[serde(deserialize_with = "nullable", skip_serializing_if = "str_is_empty")]
    pub group: Name,
    /// The kind of the object; in many statuses its resource.
    #[serde(deserialize_with = "nullable", skip_serializing_if = "str_is_empty")]
    pub kind: Name,
    /// The UID of the object.
    #[serde(deserialize_with = "nullable", skip_serializing_if = "String::is_empty")]
    pub uid: String,
    /// What led to the reason, one by one.
    #[serde(deserialize_with = "nullable", skip_serializing_if = "Vec::is_empty")]
    pub causes: Vec<StatusCause>,
    /// After how many seconds the client may try again, 0 if it is not said.
    #[serde(deserialize_with = "nullable", skip_serializing_if = "is_zero")]
    pub retry_after_seconds: i32,
}

/// One thing that led to a [`StatusReason`].
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct StatusCause {
    /// What it is, for programs.
    #[serde(deserialize_with = "nullable", skip_serializing_if = "str_is_empty")]
    pub reason: Name,
    /// What it is, for people.
    #[serde(deserialize_with = "nullable", skip_serializing_if = "String::is_empty")]
    pub message: String,
    /// The path of the field that it is about.
    #[serde(deserialize_with = "nullable", skip_serializing_if = "String::is_empty")]
    pub field: String,
}

fn str_is_empty(name: &Name) -> bool {
    name.is_empty()
}

#[expect(clippy::trivially_copy_pass_by_ref, reason = "serde hands out references")]
fn is_zero(n: &i32) -> bool {
    *n == 0
}

/// The metadata that every status has, mostly empty, is not worth a piece of memory.
fn empty_is_none<'de, D: Deserializer<'de>>(deserializer: D) -> Result<Option<Box<ListMeta>>, D::Error> {
    let metadata: Option<ListMeta> = Option::deserialize(deserializer)?;
    Ok(metadata.filter(|metadata| *metadata != ListMeta::default()).map(Box::new))
}

impl Serialize for Status {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        #[derive(Serialize)]
        struct Empty {}

        let mut out = serializer.serialize_struct("Status", 8)?;
        out.serialize_field("kind", "Status")?;
        out.serialize_field("apiVersion", "v1")?;
        match &self.metadata {
            Some(metadata) => out.serialize_field("metadata", metadata)?,
            None => out.serialize_field("metadata", &Empty {})?,
        }
        for (key, text) in [("status", &*self.status), ("message", &self.message), ("reason", self.reason.as_str())] {
            if !text.is_empty() {
                out.serialize_field(key, text)?;
            }
        }
        if let Some(details) = &self.details {
            out.serialize_field("details", details)?;
        }
        if self.code != 0 {
            out.serialize_field("code", &self.code)?;
        }
        out.end()
    }
}

impl fmt::Display for Status {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.message)
    }
}

impl std::error::Error for Status {}

#[cfg(test)]
mod tests;
