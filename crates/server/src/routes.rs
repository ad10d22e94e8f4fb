//! Which paths and methods there are for built-in resources, and which forms they take and give. What is not among them
//! is refused before anybody looks at the rest of a request: first a path that is not there, then a method that it does
//! not have, then a patch of an unknown type, then a form that nobody writes.

use capstan_api::{
    Status,
    status::{FAILURE, StatusReason},
};
use http::{HeaderMap, Method, header};

use crate::{
    handlers::{call, form::Form},
    registry::Resource,
    request::{PatchType, RequestInfo},
};

/// The verbs of a path that ends with the resource, and of one that ends with a name.
const COLLECTION: [&str; 4] = ["list", "watch", "create", "deletecollection"];
const ITEM: [&str; 4] = ["get", "update", "patch", "delete"];
/// Subresources that lead elsewhere, where they are answered in whatever form.
const CONNECTS: [&str; 4] = ["attach", "exec", "portforward", PROXY];
/// The subresource that has paths of its own behind it, and every method.
const PROXY: &str = "proxy";

/// Whether there is a route for a request.
///
/// # Errors
/// 404, 405, 415 or 406.
pub(crate) fn check(
    resource: &Resource,
    info: &RequestInfo,
    method: &Method,
    headers: &HeaderMap,
) -> Result<(), Status> {
    find(resource, info, method)?;
    if CONNECTS.contains(&&*info.subresource) {
        return Ok(());
    }
    if *method == Method::PATCH {
        PatchType::parse(call::header(headers, header::CONTENT_TYPE))?;
    }
    Form::check_route(call::header(headers, header::ACCEPT), resource, info)
}

fn find(resource: &Resource, info: &RequestInfo, method: &Method) -> Result<(), Status> {
    let depth = info.parts().count();
    let sub = &*info.subresource;
    let has = |verbs: &[&str]| verbs.iter().any(|verb| resource.has_verb(sub, verb));
    // Over all namespaces there is nothing but lists and watches.
    let everywhere = resource.namespaced && !info.in_namespace && depth == 1;
    let placed = resource.namespaced == info.in_namespace;
    let exists = match (info.verb_in_path, depth) {
        (true, _) => info.verb == "watch" && depth <= 2 && has(&["watch"]) && (placed || everywhere),
        (false, 1) => {
            if everywhere {
                has(&["list"])
            } else {
                placed && has(&COLLECTION)
            }
        }
        (false, 2) => placed && has(&ITEM),
        (false, _) => placed && resource.subresource(sub).is_some() && (depth == 3 || sub == PROXY),
    };
    if !exists {
        return Err(no_resource());
    }
    let allowed = match *method {
        Method::GET if info.verb_in_path => true,
        _ if info.verb_in_path => false,
        Method::GET if depth == 1 => has(&["list"]),
        Method::GET => has(&["get"]),
        Method::POST => !everywhere && has(&["create"]) && depth != 2,
        Method::DELETE if depth == 1 => !everywhere && has(&["deletecollection"]),
        Method::DELETE => has(&["delete"]),
        Method::PUT => depth > 1 && has(&["update"]),
        Method::PATCH => depth > 1 && has(&["patch"]),
        Method::HEAD | Method::OPTIONS => sub == PROXY,
        _ => false,
    };
    if allowed { Ok(()) } else { Err(not_allowed()) }
}

/// 404 for what is not served under a version that is.
pub(crate) fn no_resource() -> Status {
    failure(StatusReason::NotFound, 404, "the server could not find the requested resource")
}

/// 405, as the router says it.
pub(crate) fn not_allowed() -> Status {
    failure(StatusReason::MethodNotAllowed, 405, "the server does not allow this method on the requested resource")
}

fn failure(reason: StatusReason, code: i32, message: &str) -> Status {
    let message = message.to_owned();
    Status { status: FAILURE, code, reason, message, details: Some(Box::default()), ..Status::default() }
}

#[cfg(test)]
#[path = "routes_tests.rs"]
mod tests;
