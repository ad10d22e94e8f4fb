//! Asking a status what it means.

use super::{Status, StatusCause, StatusReason, cause};

/// The predicates that look at the code too, but only when the reason says nothing that is known.
macro_rules! reason_or_code {
    ($($(#[$doc:meta])* $name:ident => $reason:ident),+ $(,)?) => {
        impl Status {
            $($(#[$doc])* #[must_use] pub fn $name(&self) -> bool {
                self.reason == StatusReason::$reason
                    || (!self.reason.is_known() && self.code == StatusReason::$reason.code())
            })+
        }
    };
}

/// The predicates for which only the reason counts: several reasons share their code.
macro_rules! reason_only {
    ($($(#[$doc:meta])* $name:ident => $reason:ident),+ $(,)?) => {
        impl Status {
            $($(#[$doc])* #[must_use] pub fn $name(&self) -> bool {
                self.reason == StatusReason::$reason
            })+
        }
    };
}

reason_or_code! {
    /// Whether what the request is about does not exist.
    is_not_found => NotFound,
    /// Whether the update conflicts with another.
    is_conflict => Conflict,
    /// Whether the object is not valid.
    is_invalid => Invalid,
    /// Whether what the request is about is gone for good.
    is_gone => Gone,
    /// Whether the server cannot answer in a form that the client accepts.
    is_not_acceptable => NotAcceptable,
    /// Whether the server cannot read the form of the request.
    is_unsupported_media_type => UnsupportedMediaType,
    /// Whether the resource does not have the verb.
    is_method_not_supported => MethodNotAllowed,
    /// Whether the service is not there.
    is_service_unavailable => ServiceUnavailable,
    /// Whether the request makes no sense.
    is_bad_request => BadRequest,
    /// Whether the request lacks credentials.
    is_unauthorized => Unauthorized,
    /// Whether the request is refused.
    is_forbidden => Forbidden,
    /// Whether the request took too long.
    is_timeout => Timeout,
    /// Whether something unexpected went wrong on the server.
    is_internal_error => InternalError,
}

reason_only! {
    /// Whether what the request would create is there already.
    is_already_exists => AlreadyExists,
    /// Whether the content is too old to be served.
    is_resource_expired => Expired,
    /// Whether the server asks to retry what it could not do in time.
    is_server_timeout => ServerTimeout,
    /// Whether the server could not read back what it has stored.
    is_store_read_error => StoreReadError,
}

impl Status {
    /// Whether the client must wait; here the code counts whatever the reason.
    #[must_use]
    pub fn is_too_many_requests(&self) -> bool {
        self.reason == StatusReason::TooManyRequests || self.code == 429
    }

    /// Whether the request is too large; here the code counts whatever the reason.
    #[must_use]
    pub fn is_request_entity_too_large(&self) -> bool {
        self.reason == StatusReason::RequestEntityTooLarge || self.code == 413
    }

    /// Whether somebody else than an API server answered.
    #[must_use]
    pub fn is_unexpected_server_error(&self) -> bool {
        self.cause(&cause::UNEXPECTED_SERVER_RESPONSE).is_some()
    }

    /// Whether the version asked for is ahead of what the server has seen.
    #[must_use]
    pub fn is_too_large_resource_version(&self) -> bool {
        self.is_timeout() && self.cause(&cause::RESOURCE_VERSION_TOO_LARGE).is_some()
    }

    /// The first cause of this type.
    #[must_use]
    pub fn cause(&self, reason: &str) -> Option<&StatusCause> {
        self.details.as_ref()?.causes.iter().find(|cause| cause.reason == *reason)
    }

    /// How many seconds the client should wait, if the server wants it to wait.
    #[must_use]
    pub fn suggests_client_delay(&self) -> Option<i32> {
        let seconds = self.details.as_ref()?.retry_after_seconds;
        (self.reason == StatusReason::ServerTimeout || seconds > 0).then_some(seconds)
    }
}
