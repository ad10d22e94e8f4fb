//! What others answer for an object: the node of a pod its logs, shells and ports, and whoever listens behind a pod, a
//! service or a node.
//!
//! [`location`] says where that is and refuses what must not be reached; [`forward`] goes there.

mod forward;
mod location;
#[cfg(test)]
mod tests;

use capstan_api::Status;
use http::{HeaderValue, StatusCode, header};

pub use self::forward::KubeletClient;
use self::location::{Location, Route};
use super::call::Call;
use crate::{
    backend::is_upgrade,
    http::{Body, Response},
};

/// The most of an answer that is told as the reason why there are no logs.
const MAX_REASON: usize = 50 * 1024;

/// Answers with what is at the other end.
pub(crate) async fn connect(call: &mut Call<'_>, subresource: &str) -> Result<Response, Status> {
    // Over WebSockets it is a GET, which those may send who may only look.
    if matches!(subresource, "exec" | "attach" | "portforward") && call.info.verb != *"create" {
        let decision = call.server.authorizer.authorize(&call.attributes("create", &call.info.name));
        if !decision.is_allowed() {
            let pods = call.resource.gvr.group_resource();
            return Err(Status::forbidden(&pods, &call.info.name, decision.reason()));
        }
    }
    if subresource == "log" {
        // Logs have one form only, but who asks for what there is none of is told so, as for objects.
        call.form()?;
    }
    let route = location::find(call, subresource)?;
    let location = match route {
        Route::Nothing => return Ok(answer(StatusCode::NO_CONTENT)),
        Route::Slash => {
            let mut response = answer(StatusCode::MOVED_PERMANENTLY);
            let query = if call.raw_query.is_empty() { String::new() } else { format!("?{}", call.raw_query) };
            let place = HeaderValue::from_str(&format!("{}/{query}", call.info.path));
            let place = place.map_err(|_| Status::bad_request("the path cannot be redirected to"))?;
            response.headers_mut().insert(header::LOCATION, place);
            return Ok(response);
        }
        Route::To(location) => location,
    };
    match subresource {
        "log" => logs(call, &location).await,
        "proxy" => forward::exchange(call, &location).await,
        _ if !is_upgrade(call.headers) => Err(Status::bad_request("Upgrade request required")),
        _ => forward::exchange(call, &location).await,
    }
}

fn answer(status: StatusCode) -> Response {
    let mut response = Response::new(Body::empty());
    *response.status_mut() = status;
    response
}

/// Logs are text, and why there are none is told by a Status.
async fn logs(call: &mut Call<'_>, location: &Location) -> Result<Response, Status> {
    let mut response = forward::get(call, location).await?;
    let status = response.status();
    if !(200..=206).contains(&status.as_u16()) {
        let text = forward::text(response.into_body(), MAX_REASON).await;
        return Err(match status {
            StatusCode::INTERNAL_SERVER_ERROR => Status::internal_error(text),
            StatusCode::BAD_REQUEST => Status::bad_request(text),
            _ => forward::refused(call, status, &text),
        });
    }
    let headers = response.headers_mut();
    headers.retain_only_length();
    headers.insert(header::CONTENT_TYPE, HeaderValue::from_static("text/plain"));
    *response.status_mut() = StatusCode::OK;
    Ok(response)
}

/// Of the headers of logs only how long they are is passed on.
trait RetainLength {
    fn retain_only_length(&mut self);
}

impl RetainLength for http::HeaderMap {
    fn retain_only_length(&mut self) {
        let length = self.remove(header::CONTENT_LENGTH);
        self.clear();
        if let Some(length) = length {
            self.insert(header::CONTENT_LENGTH, length);
        }
    }
}
