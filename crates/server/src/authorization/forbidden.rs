//! Denials in upstream's words.

use capstan_api::{GroupResource, Status, go};

use super::Attributes;

/// The answer to a request that was not allowed, for this reason.
#[must_use]
pub fn forbidden(attributes: &Attributes<'_>, reason: &str) -> Status {
    // Upstream takes care that the request's part of the message can't be taken for HTML; the reason is its own.
    let mut message = go::without_tags(&message(attributes));
    if !reason.is_empty() {
        message.push_str(": ");
        message.push_str(reason);
    }
    Status::forbidden(&GroupResource::new(attributes.group, attributes.resource), attributes.name, message)
}

fn message(attributes: &Attributes<'_>) -> String {
    let Attributes { verb, resource, subresource, .. } = attributes;
    let user = go::quote(&attributes.user.name);
    if !attributes.is_resource {
        return format!("User {user} cannot {verb} path {}", go::quote(attributes.path));
    }
    let resource = match *subresource {
        "" => go::quote(resource),
        subresource => go::quote(&format!("{resource}/{subresource}")),
    };
    let place = match attributes.namespace {
        "" => "at the cluster scope".to_owned(),
        namespace => format!("in the namespace {}", go::quote(namespace)),
    };
    format!("User {user} cannot {verb} resource {resource} in API group {} {place}", go::quote(attributes.group))
}
