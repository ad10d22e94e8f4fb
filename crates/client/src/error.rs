//! What can go wrong between a client and a server.

use std::{fmt, time::Duration};

use capstan_api::{
    GroupVersionKind, Status,
    object::{Encoded, Object},
};

use crate::Key;

/// Why a request, or a watch, failed.
#[derive(Clone, Debug, PartialEq)]
pub enum Error {
    /// The server said so.
    Api(Box<Status>),
    /// The server could not be reached, or went away.
    Transport(String),
    /// One side does not believe the certificate of the other: it has expired, or somebody else vouches for it.
    Certificate(String),
    /// The answer makes no sense, or the request would not.
    Decode(String),
}

/// Reads an object. An error names it, if that much can be read.
pub(crate) fn decode<K: Object>(encoded: Encoded<'_>, kind: Option<&GroupVersionKind>) -> Result<K, Error> {
    K::decode(encoded, kind).map_err(|error| {
        let metadata = encoded.metadata().unwrap_or_default();
        Error::Decode(match metadata.name.is_empty() {
            true => error.to_string(),
            false => format!("unable to understand {}: {error}", Key::new(&metadata.namespace, &metadata.name)),
        })
    })
}

impl Error {
    /// What the server said, if it said something.
    #[must_use]
    pub fn status(&self) -> Option<&Status> {
        match self {
            Error::Api(status) => Some(status),
            Error::Transport(_) | Error::Certificate(_) | Error::Decode(_) => None,
        }
    }

    fn says(&self, ask: impl Fn(&Status) -> bool) -> bool {
        self.status().is_some_and(ask)
    }

    /// Whether the version asked for is too old to be served.
    #[must_use]
    pub fn is_expired(&self) -> bool {
        self.says(|status| status.is_resource_expired() || status.is_gone())
    }

    /// Whether the version asked for is ahead of what the server has seen.
    #[must_use]
    pub fn is_too_large_resource_version(&self) -> bool {
        self.says(Status::is_too_large_resource_version)
    }

    /// Whether the same request may succeed a little later.
    #[must_use]
    pub fn is_retriable(&self) -> bool {
        match self {
            Error::Transport(_) => true,
            Error::Certificate(_) | Error::Decode(_) => false,
            Error::Api(status) => {
                status.is_too_many_requests()
                    || status.is_internal_error()
                    || status.is_service_unavailable()
                    || status.is_server_timeout()
                    || (status.is_timeout() && !status.is_too_large_resource_version())
            }
        }
    }

    /// How long the server wants the client to wait.
    #[must_use]
    pub fn retry_after(&self) -> Option<Duration> {
        let seconds = self.status()?.suggests_client_delay()?;
        Some(Duration::from_secs(u64::try_from(seconds).unwrap_or_default()))
    }
}

macro_rules! predicates {
    ($($(#[$doc:meta])+ $name:ident)+) => {
        /// What the server says, in the words of client-go's `errors` package.
        impl Error {
            $($(#[$doc])+ #[must_use] pub fn $name(&self) -> bool {
                self.says(Status::$name)
            })+
        }
    };
}

predicates! {
    /// Whether what the request is about does not exist.
    is_not_found
    /// Whether what the request would create is there already.
    is_already_exists
    /// Whether somebody else was quicker.
    is_conflict
    /// Whether the object is well-formed but not valid.
    is_invalid
    /// Whether the server does not know who asks.
    is_unauthorized
    /// Whether the server understands and refuses.
    is_forbidden
    /// Whether the request makes no sense.
    is_bad_request
    /// Whether the resource has no such verb.
    is_method_not_supported
    /// Whether none of the forms asked for can be had.
    is_not_acceptable
    /// Whether the server cannot read the form of the body.
    is_unsupported_media_type
    /// Whether what is asked for is gone for good.
    is_gone
    /// Whether the version asked for is too old to be served, by its reason.
    is_resource_expired
    /// Whether the client asks too much.
    is_too_many_requests
    /// Whether the body is too long.
    is_request_entity_too_large
    /// Whether the server could not finish in time, and says when to try again.
    is_server_timeout
    /// Whether the time of the request ran out.
    is_timeout
    /// Whether the server cannot serve now.
    is_service_unavailable
    /// Whether something is wrong with the server.
    is_internal_error
    /// Whether the answer is not one of an API server.
    is_unexpected_server_error
}

impl fmt::Display for Error {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Error::Api(status) => status.fmt(f),
            Error::Transport(text) | Error::Certificate(text) | Error::Decode(text) => f.write_str(text),
        }
    }
}

impl std::error::Error for Error {}

impl From<Status> for Error {
    fn from(status: Status) -> Self {
        Error::Api(Box::new(status))
    }
}
