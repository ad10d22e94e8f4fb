//! The road of a request, from the outside in: what it asks, who asks, whether they may, and who answers.

use std::sync::Arc;

use capstan_api::{
    GroupVersion, GroupVersionResource, Status,
    selector::{FieldSelector, Selector},
    status::{FAILURE, StatusReason},
};
use http::{HeaderName, HeaderValue, StatusCode, header, request::Parts};

use crate::{
    authorization::{Attributes, SYSTEM_MASTERS, UserInfo, forbidden},
    handlers::{
        self,
        call::{Call, header, wishes},
        form::{Form, Wishes, answer},
    },
    http::{Body, Request, Response},
    request::{
        Endpoint, Query, RequestInfo, Url,
        negotiate::{Protobuf, Serves, check_route},
    },
    serve::{
        Load, ShutdownSignal, catch_panic, gzip, limits::REQUEST_TIMEOUT, plain_text, read_body, websocket,
        with_timeout,
    },
    server::Inner,
};

/// Who asks, when the caller is this process itself and says so.
#[derive(Clone, Debug)]
pub struct InProcessUser(pub UserInfo);

/// Answers a request. Whatever goes wrong on the way, there is an answer.
pub(crate) async fn answer_request(server: &Arc<Inner>, request: Request) -> Response {
    let (mut parts, body) = request.into_parts();
    let audit_id = match header(&parts.headers, HeaderName::from_static("audit-id")) {
        "" => server.registry.ids.uid(),
        given => given.to_owned(),
    };
    let mut response = catch_panic(walk(server, &mut parts, body)).await;
    if let Ok(id) = HeaderValue::from_str(&audit_id) {
        response.headers_mut().insert("audit-id", id);
    }
    gzip(&parts.headers, response)
}

/// From the outside in: request info, authentication, impersonation, limits, authorization, and the handler.
async fn walk(server: &Arc<Inner>, parts: &mut Parts, body: Body) -> Response {
    let target = parts.uri.path_and_query().map_or("/", http::uri::PathAndQuery::as_str).to_owned();
    let url = match Url::parse(&target) {
        Ok(url) => url,
        Err(error) => return plain_text(StatusCode::BAD_REQUEST, format!("{error}\n")),
    };
    let query = Query::parse(url.query);
    let info = match RequestInfo::new(parts.method.as_str(), &url, &query) {
        Ok(info) => info,
        Err(error) => return plain_text(StatusCode::INTERNAL_SERVER_ERROR, error.body()),
    };
    let mut warnings = Vec::new();
    let user = match server.authenticate(parts, &mut warnings) {
        Ok(user) => user,
        Err(status) => return Form::plain(wishes(&parts.headers, url.query, &query)).status(&status),
    };
    let load = Load::of(&info);
    let _permit = match server.in_flight.enter(load, user.in_group(SYSTEM_MASTERS)) {
        Ok(permit) => permit,
        Err(refused) => return refused,
    };
    let asked = Asked { server, info: &info, url: &url, query: &query, user: &user, load };
    let clock = Arc::clone(&server.registry.clock);
    if load == Load::LongRunning {
        return asked.answer(parts, body, warnings).await;
    }
    with_timeout(&*clock, REQUEST_TIMEOUT, asked.answer(parts, body, warnings)).await
}

/// A request that is understood, from somebody who is known.
struct Asked<'a> {
    server: &'a Arc<Inner>,
    info: &'a RequestInfo,
    url: &'a Url<'a>,
    query: &'a Query<'a>,
    user: &'a UserInfo,
    load: Load,
}

impl Asked<'_> {
    async fn answer(self, parts: &mut Parts, body: Body, warnings: Vec<String>) -> Response {
        let Asked { server, info, url, query, user, load } = self;
        let headers = parts.headers.clone();
        let wishes = wishes(&headers, url.query, query);
        let fail = |status: &Status| Form::plain(wishes).status(status);
        if let Err(status) = authorize(server, info, user) {
            return fail(&status);
        }
        if !info.is_resource_request {
            return documents(server, parts, info, wishes);
        }
        let gvr = GroupVersionResource::new(&*info.api_group, &*info.api_version, &*info.resource);
        let known = server.registry.resource(&gvr);
        let Some(resource) = known.filter(|resource| {
            (info.subresource.is_empty() || resource.row.subresource(&info.subresource).is_some())
                && (resource.namespaced || info.namespace.is_empty() || info.resource == "namespaces")
                && (info.parts().count() <= 3 || load == Load::LongRunning)
        }) else {
            let group_version = GroupVersion::new(&*info.api_group, &*info.api_version);
            if server.discovery.documents().get(&group_version.path()).is_some() {
                return fail(&no_resource());
            }
            return not_found();
        };
        let clock = Arc::clone(&server.registry.clock);
        let body = match read_body(body, &*clock, REQUEST_TIMEOUT).await {
            Ok(body) => body,
            Err(status) => return fail(&status),
        };
        let mut call = Call {
            server,
            info,
            raw_query: url.query,
            query,
            headers: &headers,
            user,
            body,
            resource,
            warnings,
            closing: parts.extensions.get::<ShutdownSignal>().cloned(),
        };
        let mut response = match handlers::dispatch(&mut call).await {
            Ok(response) if info.verb == "watch" && websocket::is_upgrade(&headers) => {
                websocket::upgrade(parts, response)
            }
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
    if let Some(response) = server.openapi.answer(&info.path, wishes.query, &parts.headers, server.registry.now()) {
        return response;
    }
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
    plain_text(StatusCode::NOT_FOUND, "404 page not found\n")
}
