//! Why a request failed, in the one word that clients match on.

use std::fmt;

use serde::{Deserialize, Deserializer, Serialize, Serializer};

use crate::Name;

/// The machine-readable reason of a [`Status`](super::Status).
#[derive(Clone, Debug, Default, PartialEq, Eq, Hash)]
pub enum StatusReason {
    /// The server does not say.
    #[default]
    Unknown,
    /// The request carries no credentials, or none that are good enough.
    Unauthorized,
    /// The request is understood and refused.
    Forbidden,
    /// What the request is about does not exist.
    NotFound,
    /// What the request would create is there already.
    AlreadyExists,
    /// The present state does not allow the operation; the client may read again and retry.
    Conflict,
    /// What the request is about is gone for good.
    Gone,
    /// The object is well-formed but not valid; the causes say where.
    Invalid,
    /// The server could not do it in time; the client should retry.
    ServerTimeout,
    /// The server could not read back what it has stored.
    StoreReadError,
    /// The request took longer than it may take.
    Timeout,
    /// The client must wait and try again.
    TooManyRequests,
    /// The request makes no sense and never will.
    BadRequest,
    /// The resource does not have this verb.
    MethodNotAllowed,
    /// The server cannot answer in a form that the client accepts.
    NotAcceptable,
    /// The request is too large.
    RequestEntityTooLarge,
    /// The server does not read the form in which the request is written.
    UnsupportedMediaType,
    /// Something unexpected went wrong.
    InternalError,
    /// The content was there, but is too old to be served.
    Expired,
    /// The service is not there at this time.
    ServiceUnavailable,
    /// A reason that upstream does not have: extensions bring their own.
    Other(Name),
}

/// Every reason, the word it is called by and the code that goes with it.
const TABLE: [(StatusReason, &str, i32); 20] = [
    (StatusReason::Unknown, "", 500),
    (StatusReason::Unauthorized, "Unauthorized", 401),
    (StatusReason::Forbidden, "Forbidden", 403),
    (StatusReason::NotFound, "NotFound", 404),
    (StatusReason::AlreadyExists, "AlreadyExists", 409),
    (StatusReason::Conflict, "Conflict", 409),
    (StatusReason::Gone, "Gone", 410),
    (StatusReason::Invalid, "Invalid", 422),
    (StatusReason::ServerTimeout, "ServerTimeout", 500),
    (StatusReason::StoreReadError, "StorageReadError", 500),
    (StatusReason::Timeout, "Timeout", 504),
    (StatusReason::TooManyRequests, "TooManyRequests", 429),
    (StatusReason::BadRequest, "BadRequest", 400),
    (StatusReason::MethodNotAllowed, "MethodNotAllowed", 405),
    (StatusReason::NotAcceptable, "NotAcceptable", 406),
    (StatusReason::RequestEntityTooLarge, "RequestEntityTooLarge", 413),
    (StatusReason::UnsupportedMediaType, "UnsupportedMediaType", 415),
    (StatusReason::InternalError, "InternalError", 500),
    (StatusReason::Expired, "Expired", 410),
    (StatusReason::ServiceUnavailable, "ServiceUnavailable", 503),
];

impl StatusReason {
    /// The reason as it is written.
    #[must_use]
    pub fn as_str(&self) -> &str {
        match self {
            StatusReason::Other(name) => name,
            known => known.row().1,
        }
    }

    /// The HTTP code that goes with it.
    #[must_use]
    pub fn code(&self) -> i32 {
        self.row().2
    }

    /// Whether it says something that upstream knows; if not, clients look at the code.
    #[must_use]
    pub fn is_known(&self) -> bool {
        !matches!(self, StatusReason::Unknown | StatusReason::Other(_))
    }

    fn row(&self) -> &'static (StatusReason, &'static str, i32) {
        TABLE.iter().find(|(reason, ..)| reason == self).unwrap_or(&TABLE[0])
    }
}

impl From<&str> for StatusReason {
    fn from(text: &str) -> Self {
        let known = TABLE.iter().find(|(_, name, _)| *name == text);
        known.map_or_else(|| StatusReason::Other(text.into()), |(reason, ..)| reason.clone())
    }
}

impl fmt::Display for StatusReason {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.as_str())
    }
}

impl Serialize for StatusReason {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.serialize_str(self.as_str())
    }
}

impl<'de> Deserialize<'de> for StatusReason {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        String::deserialize(deserializer).map(|text| text.as_str().into())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn words_there_and_back() {
        for (reason, word, code) in &TABLE {
            assert_eq!(&StatusReason::from(*word), reason);
            assert_eq!((reason.as_str(), reason.code()), (*word, *code));
        }
        let own = StatusReason::from("OutOfStock");
        assert_eq!((own.as_str(), own.code(), own.is_known()), ("OutOfStock", 500, false));
    }
}
