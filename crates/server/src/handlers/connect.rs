//! What the node of a pod answers: logs, shells and ports. Nodes are still to come; until then what can be said is
//! said.

use capstan_api::Status;
use http::StatusCode;

use super::{
    call::Call,
    read::not_found,
    write::{Current, as_it_is},
};
use crate::{
    http::{Body, Response},
    registry::paths,
    request::info::check_name,
};

/// Answers for the node.
pub(crate) fn connect(call: &Call<'_>, subresource: &str) -> Result<Response, Status> {
    check_name(call.resource.namespaced, call.namespace(), &call.info.name)?;
    let name = &call.info.name;
    let found = call.stored()?.cache.peek(call.namespace(), name).ok_or_else(|| not_found(&call.resource, name))?;
    let object = Current::of(call, &found)?.object;
    let host = paths::text(&object, "spec.nodeName");
    if call.resource.gvk.kind == *"Pod" && host.is_empty() {
        if subresource == "log" {
            // What never ran has said nothing.
            let mut response = Response::new(Body::empty());
            *response.status_mut() = StatusCode::NO_CONTENT;
            return Ok(response);
        }
        return Err(Status::bad_request(format!("pod {name} does not have a host assigned")));
    }
    let kind = &call.resource.gvk.kind;
    Err(as_it_is(format!("{subresource} of {kind} {name:?} is answered by a node, and this server reaches none yet")))
}
