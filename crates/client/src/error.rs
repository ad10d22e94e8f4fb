//! What can go wrong between a client and a server.

use std::{fmt, time::Duration};

use capstan_api::Status;

/// Why a request, or a watch, failed.
#[derive(Clone, Debug, PartialEq)]
pub enum Error {
    /// The server said so.
    Api(Box<Status>),
    /// The server could not be reached, or went away.
    Transport(String),
    /// The answer makes no sense.
    Decode(String),
}

impl Error {
    /// What the server said, if it said something.
    #[must_use]
    pub fn status(&self) -> Option<&Status> {
        match self {
            Error::Api(status) => Some(status),
            Error::Transport(_) | Error::Decode(_) => None,
        }
    }

    fn says(&self, ask: impl Fn(&Status) -> bool) -> bool {
        self.status().is_some_and(ask)
    }

    /// Whether what the request is about does not exist.
    #[must_use]
    pub fn is_not_found(&self) -> bool {
        self.says(Status::is_not_found)
    }

    /// Whether what the request would create is there already.
    #[must_use]
    pub fn is_already_exists(&self) -> bool {
        self.says(Status::is_already_exists)
    }

    /// Whether the object is well-formed but not valid.
    #[must_use]
    pub fn is_invalid(&self) -> bool {
        self.says(Status::is_invalid)
    }

    /// Whether the server understands and refuses.
    #[must_use]
    pub fn is_forbidden(&self) -> bool {
        self.says(Status::is_forbidden)
    }

    /// Whether somebody else was quicker.
    #[must_use]
    pub fn is_conflict(&self) -> bool {
        self.says(Status::is_conflict)
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
            Error::Decode(_) => false,
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

impl fmt::Display for Error {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Error::Api(status) => status.fmt(f),
            Error::Transport(text) | Error::Decode(text) => f.write_str(text),
        }
    }
}

impl std::error::Error for Error {}

impl From<Status> for Error {
    fn from(status: Status) -> Self {
        Error::Api(Box::new(status))
    }
}
