//! The road of a request, from the outside in: what it asks, who asks, whether they may, and who answers.

use std::sync::Arc;

use bytes::Bytes;
use capstan_api::{
    GroupVersion, GroupVersionResource, Status,
    codec::MAX_BODY_BYTES,
    selector::FieldSelector,
    selector::Selector,
    status::{FAILURE, StatusReason},
};
use http::{HeaderValue, header, request::Parts};
use http_body_util::{BodyExt as _, LengthLimitError, Limited};

use crate::{
    authorization::{Attributes, UserInfo, forbidden},
    handlers::{
        self,
        call::{Call, header, wishes},
        form::{Form, Wishes, answer},
    },
    http::{Body, Response},
    request::{
        Endpoint, Query, RequestInfo, Url,
        negotiate::{Protobuf, Serves, check_route},
    },
    server::{Closing, Inner},
};

/// Who asks, when the caller is this process itself and says so.
#[derive(Clone, Debug)]
pub struct InProcessUser(pub UserInfo);

/// Answers a request.
pub(crate) async fn answer_request<B>(server: &Arc<Inner>, request: http::Request<B>) -> Response
where
    B: http_body::Body<Data: Send, Error: Into<Box<dyn std::error::Error + Send + Sync>>> + Send,
{
    let (parts, body) = request.into_parts();
    let audit_id = match header(&parts.headers, http::HeaderName::from_static("audit-id")) {
        "" => server.registry.ids.uid(),
        given => given.to_owned(),
    };
    let mut response = walk(server, &parts, body).await;
    if let Ok(id) = HeaderValue::from_str(&audit_id) {
        response.headers_mut().insert("audit-id", id);
    }
    response
}

async fn walk<B>(server: &Arc<Inner>, parts: &Parts, body: B) -> Response
where
    B: http_body::Body<Data: Send, Error: Into<Box<dyn std::error::Error + Send + Sync>>> + Send,
{
    let target = parts.uri.path_and_query().map_or("/", http::uri::PathAndQuery::as_str);
    let url = match Url::parse(target) {
        Ok(url) => url,
        Err(error) => return text(400, format!("{error}\n")),
    };
    let query = Query::parse(url.query);
    let info = match RequestInfo::new(parts.method.as_str(), &url, &query) {
        Ok(info) => info,
        Err(error) => return text(500, error.body()),
    };
    let wishes = wishes(&parts.headers, url.query, &query);
    let fail = |status: &Status| Form::plain(wishes).status(status);

    let user = match server.authenticate(parts) {
        Ok(user) => user,
        Err(status) => return fail(&status),
    };
    if let Err(status) = authorize(server, &info, &user) {
        return fail(&status);
    }
    if !info.is_resource_request {
        return documents(server, parts, &info, wishes);
    }
    let gvr = GroupVersionResource::new(&*info.api_group, &*info.api_version, &*info.resource);
    let known = server.registry.resource(&gvr);
    let Some(resource) = known.filter(|resource| {
        (info.subresource.is_empty() || resource.row.subresource(&info.subresource).is_some())
            && (resource.namespaced || info.namespace.is_empty() || info.resource == "namespaces")
            && info.parts().count() <= 3
    }) else {
        let group_version = GroupVersion::new(&*info.api_group, &*info.api_version);
        if server.discovery.documents().get(&group_version.path()).is_some() {
            return fail(&no_resource());
        }
        return not_found();
    };
    let body = match read_body(body).await {
        Ok(body) => body,
        Err(status) => return fail(&status),
    };
    let mut call = Call {
        server,
        info: &info,
        raw_query: url.query,
        query: &query,
        headers: &parts.headers,
        user: &user,
        body,
        resource,
        warnings: Vec::new(),
        closing: parts.extensions.get::<Closing>().cloned(),
    };
    let mut response = match handlers::dispatch(&mut call).await {
        Ok(response) => response,
        Err(status) => fail(&status),
    };
    for warning in &call.warnings {
        if let Ok(value) = HeaderValue::from_str(&format!("299 - {}", capstan_api::go::quote(warning))) {
            response.headers_mut().append("warning", value);
        }
    }
    response
}

fn authorize(server: &Inner, info: &RequestInfo, user: &UserInfo) -> Result<(), Status> {
    let fields: FieldSelector = info.field_selector.parse().unwrap_or_default();
    let labels: Selector = info.label_selector.parse().unwrap_or_default();
    let attributes = Attributes {
        user,
        verb: &info.verb,
        group: &info.api_group,
        version: &info.api_version,
        resource: &info.resource,
        subresource: &info.subresource,
        name: &info.name,
        namespace: &info.namespace,
        path: &info.path,
        is_resource: info.is_resource_request,
        field_selector: fields.requirements(),
        label_selector: labels.requirements(),
    };
    let decision = server.authorizer.authorize(&attributes);
    if decision.is_allowed() { Ok(()) } else { Err(forbidden(&attributes, decision.reason())) }
}

/// What is not a resource: discovery, and what the server says of itself.
fn documents(server: &Arc<Inner>, parts: &Parts, info: &RequestInfo, wishes: Wishes<'_>) -> Response {
    let documents = server.discovery.documents();
    let aggregated = Endpoint { protobuf: Protobuf::No, serves: Serves::AggregatedDiscovery, streams: false };
    if let Some(document) = documents.aggregated(&info.path)
        && let Ok(agreed) = aggregated.negotiate(wishes.accept)
    {
        let tag = document.etag.as_deref().unwrap_or_default();
        let same = document.matches(header(&parts.headers, header::IF_NONE_MATCH));
        let body = if same { Body::empty() } else { Body::from(document.json.clone()) };
        let mut response = answer(if same { 304 } else { 200 }, &agreed.content_type(), body);
        let headers = response.headers_mut();
        headers.insert(header::CACHE_CONTROL, HeaderValue::from_static("public"));
        headers.insert(header::VARY, HeaderValue::from_static("Accept"));
        if let Ok(tag) = HeaderValue::from_str(tag) {
            headers.insert(header::ETAG, tag);
        }
        return response;
    }
    let Some(document) = documents.get(&info.path) else { return not_found() };
    if matches!(&*info.path, "/" | "/version" | "/version/") {
        return answer(200, "application/json", Body::from(document.json.clone()));
    }
    if let Err(status) = check_route(wishes.accept, &["application/json", "application/yaml"]) {
        return Form::plain(wishes).status(&status);
    }
    let json = document.json.slice(..document.json.len() - usize::from(document.json.ends_with(b"\n")));
    Form::plain(wishes).write(200, json)
}

/// 404 for what is not served under a version that is.
fn no_resource() -> Status {
    let message = "the server could not find the requested resource".to_owned();
    let reason = StatusReason::NotFound;
    Status { status: FAILURE, code: 404, reason, message, details: Some(Box::default()), ..Status::default() }
}

fn not_found() -> Response {
    text(404, "404 page not found\n".to_owned())
}

fn text(code: u16, body: String) -> Response {
    let mut response = answer(code, "text/plain; charset=utf-8", Body::from(body));
    response.headers_mut().insert("x-content-type-options", HeaderValue::from_static("nosniff"));
    response
}

async fn read_body<B>(body: B) -> Result<Bytes, Status>
where
    B: http_body::Body<Data: Send, Error: Into<Box<dyn std::error::Error + Send + Sync>>> + Send,
{
    match Limited::new(body, MAX_BODY_BYTES).collect().await {
        Ok(collected) => Ok(collected.to_bytes()),
        Err(error) if error.downcast_ref::<LengthLimitError>().is_some() => {
            Err(Status::request_entity_too_large(format!("limit is {MAX_BODY_BYTES}")))
        }
        Err(error) => Err(Status::bad_request(error.to_string())),
    }
}
