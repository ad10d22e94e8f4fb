//! The errors of content negotiation.

use super::{Status, StatusReason, errors::failure};

impl Status {
    /// The client accepts none of the media types that the server can answer in.
    #[must_use]
    pub fn not_acceptable(accepted: &[&str]) -> Self {
        let message = format!("only the following media types are accepted: {}", accepted.join(", "));
        failure(StatusReason::NotAcceptable, message)
    }

    /// The client accepts none of the media types in which the server can answer with `target`, such as a Table.
    #[must_use]
    pub fn not_acceptable_conversion(target: &str, accepted: &[&str]) -> Self {
        let accepted = accepted.join(", ");
        let message = format!("only the following media types are accepted when converting to {target}: {accepted}");
        failure(StatusReason::NotAcceptable, message)
    }

    /// The body of the request is in none of the media types that the server reads.
    #[must_use]
    pub fn unsupported_media_type(accepted: &[&str]) -> Self {
        let accepted = accepted.join(", ");
        let message =
            format!("the body of the request was in an unknown format - accepted media types include: {accepted}");
        failure(StatusReason::UnsupportedMediaType, message)
    }
}
