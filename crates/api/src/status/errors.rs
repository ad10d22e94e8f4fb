//! The errors that upstream's API machinery knows, each with its code, reason, details and words.

use std::fmt;

use super::{FAILURE, SUCCESS, Status, StatusCause, StatusDetails, StatusReason, cause};
use crate::{
    field::{self, ErrorList},
    go,
    names::{GroupKind, GroupResource},
};

/// A failure with the code that goes with its reason.
pub(super) fn failure(reason: StatusReason, message: impl Into<String>) -> Status {
    Status { status: FAILURE, code: reason.code(), reason, message: message.into(), ..Status::default() }
}

impl Status {
    /// All went well.
    #[must_use]
    pub fn success() -> Self {
        Status { status: SUCCESS, code: 200, ..Status::default() }
    }

    fn with_details(mut self, details: StatusDetails) -> Self {
        self.details = Some(Box::new(details));
        self
    }

    fn about(self, resource: &GroupResource, name: impl Into<String>) -> Self {
        let (group, kind) = (resource.group.clone(), resource.resource.clone());
        self.with_details(StatusDetails { group, kind, name: name.into(), ..StatusDetails::default() })
    }

    fn retry_after(mut self, seconds: i32) -> Self {
        self.details.get_or_insert_default().retry_after_seconds = seconds;
        self
    }

    /// The object is not there.
    #[must_use]
    pub fn not_found(resource: &GroupResource, name: &str) -> Self {
        failure(StatusReason::NotFound, format!("{resource} {} not found", go::quote(name))).about(resource, name)
    }

    /// The object is there already.
    #[must_use]
    pub fn already_exists(resource: &GroupResource, name: &str) -> Self {
        let message = format!("{resource} {} already exists", go::quote(name));
        failure(StatusReason::AlreadyExists, message).about(resource, name)
    }

    /// No free name could be made up.
    #[must_use]
    pub fn generate_name_conflict(resource: &GroupResource, name: &str, retry_after_seconds: i32) -> Self {
        let message = format!(
            "{resource} {} already exists, the server was not able to generate a unique name for the object",
            go::quote(name)
        );
        failure(StatusReason::AlreadyExists, message).about(resource, name).retry_after(retry_after_seconds)
    }

    /// The request lacks credentials. Without a message it says `not authorized`.
    #[must_use]
    pub fn unauthorized(message: &str) -> Self {
        failure(StatusReason::Unauthorized, if message.is_empty() { "not authorized" } else { message })
    }

    /// The request is refused.
    #[must_use]
    pub fn forbidden(resource: &GroupResource, name: &str, error: impl fmt::Display) -> Self {
        let message = if resource.is_empty() {
            format!("forbidden: {error}")
        } else if name.is_empty() {
            format!("{resource} is forbidden: {error}")
        } else {
            format!("{resource} {} is forbidden: {error}", go::quote(name))
        };
        failure(StatusReason::Forbidden, message).about(resource, name)
    }

    /// The object has changed in the meantime, or its state does not allow the operation.
    #[must_use]
    pub fn conflict(resource: &GroupResource, name: &str, error: impl fmt::Display) -> Self {
        let message = format!("Operation cannot be fulfilled on {resource} {}: {error}", go::quote(name));
        failure(StatusReason::Conflict, message).about(resource, name)
    }

    /// Others own fields that are applied; the causes name them.
    #[must_use]
    pub fn apply_conflict(causes: Vec<StatusCause>, message: impl Into<String>) -> Self {
        failure(StatusReason::Conflict, message).with_details(StatusDetails { causes, ..StatusDetails::default() })
    }

    /// What the request is about is gone for good. Content that is too old is
    /// [`resource_expired`](Status::resource_expired).
    #[must_use]
    pub fn gone(message: impl Into<String>) -> Self {
        failure(StatusReason::Gone, message)
    }

    /// The content is too old to be served.
    #[must_use]
    pub fn resource_expired(message: impl Into<String>) -> Self {
        failure(StatusReason::Expired, message)
    }

    /// The object is not valid. Each error becomes a cause; the message has each text once.
    #[must_use]
    pub fn invalid(kind: &GroupKind, name: &str, errors: &ErrorList) -> Self {
        let mut message = format!("{kind} {} is invalid", go::quote(name));
        if !errors.is_empty() {
            message = format!("{message}: {}", field::aggregate(errors));
        }
        let causes = errors.iter().map(|error| StatusCause {
            reason: error.ty.reason().into(),
            message: error.body(),
            field: error.field.clone(),
        });
        failure(StatusReason::Invalid, message).with_details(StatusDetails {
            group: kind.group.clone(),
            kind: kind.kind.clone(),
            name: name.to_owned(),
            causes: causes.collect(),
            ..StatusDetails::default()
        })
    }

    /// The request makes no sense.
    #[must_use]
    pub fn bad_request(message: impl Into<String>) -> Self {
        failure(StatusReason::BadRequest, message)
    }

    /// The client must wait.
    #[must_use]
    pub fn too_many_requests(message: impl Into<String>, retry_after_seconds: i32) -> Self {
        failure(StatusReason::TooManyRequests, message).retry_after(retry_after_seconds)
    }

    /// The client must wait, nobody knows how long.
    #[must_use]
    pub fn too_many_requests_error(message: impl fmt::Display) -> Self {
        failure(StatusReason::TooManyRequests, format!("Too many requests: {message}"))
    }

    /// The service is not there.
    #[must_use]
    pub fn service_unavailable(message: impl Into<String>) -> Self {
        failure(StatusReason::ServiceUnavailable, message)
    }

    /// The resource does not have the verb `action`.
    #[must_use]
    pub fn method_not_supported(resource: &GroupResource, action: &str) -> Self {
        let quoted = go::quote(&resource.to_string());
        let message = format!("{action} is not supported on resources of kind {quoted}");
        failure(StatusReason::MethodNotAllowed, message).about(resource, "")
    }

    /// The server could not do it in time; the client should retry.
    #[must_use]
    pub fn server_timeout(resource: &GroupResource, operation: &str, retry_after_seconds: i32) -> Self {
        let message = format!(
            "The {operation} operation against {resource} could not be completed at this time, please try again."
        );
        failure(StatusReason::ServerTimeout, message).about(resource, operation).retry_after(retry_after_seconds)
    }

    /// As [`server_timeout`](Status::server_timeout), where only the kind is known.
    #[must_use]
    pub fn server_timeout_for_kind(kind: &GroupKind, operation: &str, retry_after_seconds: i32) -> Self {
        let resource = GroupResource::new(kind.group.clone(), kind.kind.clone());
        Status::server_timeout(&resource, operation, retry_after_seconds)
    }

    /// Something unexpected went wrong.
    #[must_use]
    pub fn internal_error(error: impl fmt::Display) -> Self {
        let cause = StatusCause { message: error.to_string(), ..StatusCause::default() };
        failure(StatusReason::InternalError, format!("Internal error occurred: {error}"))
            .with_details(StatusDetails { causes: vec![cause], ..StatusDetails::default() })
    }

    /// The request took too long; it may still be done.
    #[must_use]
    pub fn timeout(message: impl fmt::Display, retry_after_seconds: i32) -> Self {
        failure(StatusReason::Timeout, format!("Timeout: {message}")).retry_after(retry_after_seconds)
    }

    /// The version asked for is ahead of what the server has seen.
    #[must_use]
    pub fn too_large_resource_version(minimum: u64, current: u64, retry_after_seconds: i32) -> Self {
        let message = format!("Too large resource version: {minimum}, current: {current}");
        let mut status = Status::timeout(message, retry_after_seconds);
        status.details.get_or_insert_default().causes = vec![StatusCause {
            reason: cause::RESOURCE_VERSION_TOO_LARGE,
            message: "Too large resource version".to_owned(),
            field: String::new(),
        }];
        status
    }

    /// The request is too large.
    #[must_use]
    pub fn request_entity_too_large(message: impl fmt::Display) -> Self {
        failure(StatusReason::RequestEntityTooLarge, format!("Request entity too large: {message}"))
    }

    /// The server could not read back what it has stored.
    #[must_use]
    pub fn store_read_error(message: impl Into<String>) -> Self {
        failure(StatusReason::StoreReadError, message)
    }

    /// An error that has no reason of its own.
    #[must_use]
    pub fn unknown(message: impl Into<String>) -> Self {
        failure(StatusReason::Unknown, message)
    }
}
