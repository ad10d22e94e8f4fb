//! What a client makes of an answer that carries no status.

use super::{FAILURE, Status, StatusCause, StatusDetails, StatusReason, cause};
use crate::{go, names::GroupResource};

/// An answer that carries no status.
#[derive(Clone, Copy, Debug, Default)]
pub struct GenericResponse<'a> {
    /// The HTTP code.
    pub code: i32,
    /// The method of the request, such as `POST`.
    pub verb: &'a str,
    /// What the request was about, if it is known.
    pub resource: Option<&'a GroupResource>,
    /// The name of what the request was about, or nothing.
    pub name: &'a str,
    /// What the server said.
    pub server_message: &'a str,
    /// After how many seconds the client may try again, 0 if it is not said.
    pub retry_after_seconds: i32,
    /// Whether the answer was not in the form of the API at all.
    pub unexpected: bool,
}

impl From<GenericResponse<'_>> for Status {
    fn from(response: GenericResponse<'_>) -> Self {
        let (reason, mut message) = response.meaning();
        let GenericResponse { code, verb, name, server_message, retry_after_seconds, unexpected, .. } = response;
        let resource = response.resource.cloned().unwrap_or_default();
        if !resource.is_empty() {
            let verb = verb.to_lowercase();
            let about =
                if name.is_empty() { format!("{verb} {resource}") } else { format!("{verb} {resource} {name}") };
            message = format!("{message} ({about})");
        }
        let unexpected = unexpected.then(|| StatusCause {
            reason: cause::UNEXPECTED_SERVER_RESPONSE,
            message: server_message.to_owned(),
            field: String::new(),
        });
        let details = StatusDetails {
            group: resource.group,
            kind: resource.resource,
            name: name.to_owned(),
            causes: unexpected.into_iter().collect(),
            retry_after_seconds,
            ..StatusDetails::default()
        };
        Status { status: FAILURE, message, reason, details: Some(Box::new(details)), code, ..Status::default() }
    }
}

impl GenericResponse<'_> {
    /// What the code means: a reason and words for it.
    fn meaning(&self) -> (StatusReason, String) {
        use StatusReason as R;
        let said = self.server_message;
        let (reason, message) = match self.code {
            409 if self.verb == "POST" => (R::AlreadyExists, "the server reported a conflict"),
            409 => (R::Conflict, "the server reported a conflict"),
            404 => (R::NotFound, "the server could not find the requested resource"),
            400 => (R::BadRequest, "the server rejected our request for an unknown reason"),
            401 => (R::Unauthorized, "the server has asked for the client to provide credentials"),
            // What the server says about these has the details.
            403 => (R::Forbidden, said),
            406 if said.is_empty() || said == "unknown" => {
                (R::NotAcceptable, "the server was unable to respond with a content type that the client supports")
            }
            406 => (R::NotAcceptable, said),
            415 => (R::UnsupportedMediaType, said),
            405 => (R::MethodNotAllowed, "the server does not allow this method on the requested resource"),
            422 => (R::Invalid, "the server rejected our request due to an error in our request"),
            503 => (R::ServiceUnavailable, "the server is currently unable to handle the request"),
            504 => (
                R::Timeout,
                "the server was unable to return a response in the time allotted, \
                 but may still be processing the request",
            ),
            429 => {
                (R::TooManyRequests, "the server has received too many requests and has asked us to try again later")
            }
            500.. => {
                let said = go::quote(said);
                let message = format!("an error on the server ({said}) has prevented the request from succeeding");
                return (R::InternalError, message);
            }
            code => {
                let message =
                    format!("the server responded with the status code {code} but did not return more information");
                return (R::Unknown, message);
            }
        };
        (reason, message.to_owned())
    }
}
