//! The road of a request, from the outside in: what it asks, who asks, whether they may, and who answers.

use std::{pin::pin, sync::Arc, time::Duration};

use capstan_api::{
    GroupVersionResource, Status, builtin,
    selector::{FieldSelector, Selector},
};
use http::{HeaderValue, Method, StatusCode, header, request::Parts};

use crate::{
    aggregation::Forwarded,
    audit::{self, AUDIT_ID, Record, audit_id},
    authentication::{
        JWKS_CONTENT_TYPE, JWKS_PATH, MAX_AGE_SECONDS, OPENID_CONFIG_PATH, OpenIdDocuments, PeerCertificates,
        unauthorized,
    },
    authorization::{Attributes, SYSTEM_MASTERS, UserInfo, forbidden},
    extension,
    handlers::{
        self,
        call::{Call, header, wishes},
        form::{Form, Wishes, answer},
    },
    health::Health,
    http::{Body, Request, Response},
    impersonation,
    metrics::{self, RequestLabels},
    registry::{Resource, live},
    request::{
        Endpoint, Query, RequestInfo, Url,
        negotiate::{Protobuf, Serves, check_route},
    },
    routes,
    serve::{
        Load, PeerInfo, ShutdownSignal, caught, gzip, limits::REQUEST_TIMEOUT, panicked, plain_text, read_body,
        websocket, with_timeout,
    },
    server::Inner,
    warnings::Warnings,
};

/// Who asks, when the caller is this process itself and says so.
#[derive(Clone, Debug)]
pub struct InProcessUser(pub UserInfo);

/// Answers a request. Whatever goes wrong on the way, there is an answer.
pub(crate) async fn answer_request(server: &Arc<Inner>, request: Request) -> Response {
    let (mut parts, body) = request.into_parts();
    let id = audit_id(&parts.headers, &*server.registry.ids);
    let mut record = Record::default();
    // Pinned here and handed on by reference: what is handed on by value is kept twice in the state of the task.
    let walked = {
        let walking = pin!(walk(server, &mut parts, body, &id, &mut record));
        caught(walking).await
    };
    let mut response = match walked {
        Ok(response) => record.complete(response),
        Err(panic) => {
            record.panicked(&panic);
            panicked()
        }
    };
    response.headers_mut().insert(AUDIT_ID, id);
    gzip(&parts.headers, response)
}

/// From the outside in: request info, deadline, authentication, impersonation, limits, authorization, and the handler.
async fn walk(server: &Arc<Inner>, parts: &mut Parts, body: Body, id: &HeaderValue, record: &mut Record) -> Response {
    let target = parts.uri.path_and_query().map_or("/", http::uri::PathAndQuery::as_str).to_owned();
    let url = match Url::parse(&target) {
        Ok(url) => url,
        // Go's server refuses it before anybody of ours or upstream's sees it.
        Err(_) => {
            let mut response = answer(400, "text/plain; charset=utf-8", Body::from("400 Bad Request"));
            response.headers_mut().remove(header::CACHE_CONTROL);
            return response;
        }
    };
    let query = Query::parse(url.query);
    let info = match RequestInfo::new(parts.method.as_str(), &url, &query) {
        Ok(info) => info,
        Err(error) => return plain_text(StatusCode::INTERNAL_SERVER_ERROR, error.body()),
    };
    let load = Load::of(&info);
    let asked = Asked { server, info: &info, url: &url, query: &query, load, id, target: &target };
    let mut response = match asked.timeout() {
        Ok(timeout) => asked.authorized(parts, body, timeout, record).await,
        Err(status) => asked.refuse(parts, &status, record),
    };
    // Whoever answers may say something else.
    let keep = response.headers_mut().entry(header::CACHE_CONTROL);
    keep.or_insert(HeaderValue::from_static("no-cache, private"));
    response
}

impl Asked<'_> {
    /// How long it may take: as long as it takes, or as long as the client wants to wait if that is less than the most.
    fn timeout(&self) -> Result<Option<Duration>, Status> {
        let wanted = self.query.get("timeout").unwrap_or_default();
        if self.load == Load::LongRunning || wanted.is_empty() {
            return Ok((self.load != Load::LongRunning).then_some(REQUEST_TIMEOUT));
        }
        let wanted: capstan_api::Duration = wanted
            .parse()
            .map_err(|error| Status::bad_request(format!("invalid timeout specified in the request URL - {error}")))?;
        let wanted = u64::try_from(wanted.0).ok().filter(|nanos| *nanos > 0).map(Duration::from_nanos);
        Ok(Some(wanted.map_or(REQUEST_TIMEOUT, |wanted| wanted.min(REQUEST_TIMEOUT))))
    }

    /// Who asks, whether they may, and the answer.
    async fn authorized(
        &self,
        parts: &mut Parts,
        body: Body,
        timeout: Option<Duration>,
        record: &mut Record,
    ) -> Response {
        let Asked { server, info, query, load, .. } = *self;
        let began = server.registry.clock.monotonic();
        let mut warnings = Vec::new();
        let refuse = |parts: &Parts, status: &Status| {
            let mut response = self.fail(parts, status);
            response.headers_mut().insert(header::X_CONTENT_TYPE_OPTIONS, HeaderValue::from_static("nosniff"));
            response
        };
        let user = match authenticate(server, parts, &mut warnings) {
            Ok(user) => user,
            Err(status) => return self.refuse(parts, &status, record),
        };
        let selectors = Selectors::of(info);
        *record = self.record(parts, &attributes(info, &user, &selectors));
        if let Err(status) = record.received() {
            return self.fail(parts, &status);
        }
        let user = match impersonated(server, parts, &attributes(info, &user, &selectors)) {
            Ok(None) => user,
            Ok(Some(impersonated)) => {
                record.impersonated(&impersonated);
                impersonated.user
            }
            Err(status) => {
                let response = refuse(parts, &status);
                record.answered(&response);
                return response;
            }
        };
        let attributes = attributes(info, &user, &selectors);
        // What takes long is in nobody's queue, except that watches begin there.
        let queued = load != Load::LongRunning || info.verb == "watch";
        let flow = queued.then(|| server.flow_control.classify(&attributes)).flatten();
        let decision = server.authorizer.authorize(&attributes);
        record.decided(&decision);
        let permit = server.in_flight.enter(load, user.in_group(SYSTEM_MASTERS));
        let mut response = match permit {
            Err(refused) => refused,
            Ok(_) if !decision.is_allowed() => refuse(parts, &forbidden(&attributes, decision.reason())),
            Ok(_permit) => {
                let clock = Arc::clone(&server.registry.clock);
                let answer = pin!(self.answer(parts, body, &user, warnings, record));
                match timeout {
                    None => answer.await,
                    Some(timeout) => with_timeout(&*clock, timeout, answer).await,
                }
            }
        };
        record.answered(&response);
        if let Some(flow) = flow {
            flow.write(response.headers_mut());
        }
        if info.is_resource_request && response.extensions().get::<Unknown>().is_none() {
            let content_type = header(&parts.headers, header::CONTENT_TYPE);
            let verb = metrics::verb(parts.method.as_str(), content_type, query, info);
            let labels = RequestLabels::resource(info, verb, metrics::dry_run(query));
            let took = server.registry.clock.monotonic().since(began);
            let size = response.body().len().unwrap_or_default();
            server.metrics.requests.record(&labels, response.status(), size, took, Duration::ZERO);
        }
        response
    }

    fn fail(&self, parts: &Parts, status: &Status) -> Response {
        Form::plain(wishes(&parts.headers, self.url.query, self.query)).status(status)
    }

    /// Answers somebody of whom nothing is known.
    fn refuse(&self, parts: &Parts, status: &Status, record: &mut Record) -> Response {
        let response = self.fail(parts, status);
        *record = self.record(parts, &attributes(self.info, &UserInfo::default(), &Selectors::of(self.info)));
        record.refused(&response);
        response
    }

    /// Begins what audit has to say of the request.
    fn record(&self, parts: &Parts, attributes: &Attributes<'_>) -> Record {
        let Some(audit) = &self.server.audit else { return Record::default() };
        let peer = parts.extensions.get::<PeerInfo>().map(|peer| peer.address.ip());
        let request = audit::Request {
            id: self.id,
            uri: self.target,
            source_ips: &audit::source_ips(&parts.headers, peer),
            user_agent: &audit::user_agent(&parts.headers),
            received: self.server.registry.now(),
            attributes,
        };
        Record::new(audit, &request, self.load == Load::LongRunning)
    }
}

/// Marks an answer about something that is not served: it is not counted.
#[derive(Clone, Copy)]
struct Unknown;

/// Who asks.
fn authenticate(server: &Inner, parts: &mut Parts, warnings: &mut Vec<String>) -> Result<UserInfo, Status> {
    let user = match parts.extensions.get::<InProcessUser>() {
        Some(InProcessUser(user)) => user.clone(),
        None => {
            let peer = parts.extensions.get::<Arc<PeerCertificates>>().map(|peer| &**peer);
            let found = server.authenticator.authenticate(&parts.headers, peer).ok().flatten();
            let found = found.ok_or_else(unauthorized)?;
            warnings.extend(found.warnings.iter().map(ToString::to_string));
            found.user
        }
    };
    server.authenticator.strip(&mut parts.headers);
    Ok(user)
}

/// As whom somebody asks; `None` if as themselves.
fn impersonated(
    server: &Inner,
    parts: &mut Parts,
    attributes: &Attributes<'_>,
) -> Result<Option<impersonation::Impersonated>, Status> {
    let Some(wanted) = impersonation::wanted_user(&parts.headers)? else { return Ok(None) };
    let impersonated = impersonation::impersonate(&wanted, attributes, &*server.authorizer)?;
    impersonation::strip(&mut parts.headers);
    Ok(Some(impersonated))
}

/// The selectors of a request, for those who decide by them.
#[derive(Default)]
struct Selectors {
    fields: FieldSelector,
    labels: Selector,
}

impl Selectors {
    fn of(info: &RequestInfo) -> Self {
        Selectors {
            fields: info.field_selector.parse().unwrap_or_default(),
            labels: info.label_selector.parse().unwrap_or_default(),
        }
    }
}

fn attributes<'a>(info: &'a RequestInfo, user: &'a UserInfo, selectors: &'a Selectors) -> Attributes<'a> {
    Attributes {
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
        field_selector: selectors.fields.requirements(),
        label_selector: selectors.labels.requirements(),
    }
}

/// A request that is understood.
struct Asked<'a> {
    server: &'a Arc<Inner>,
    info: &'a RequestInfo,
    url: &'a Url<'a>,
    query: &'a Query<'a>,
    load: Load,
    id: &'a HeaderValue,
    /// Path and query as they were sent.
    target: &'a str,
}

impl Asked<'_> {
    /// Answers somebody who may ask.
    async fn answer(
        &self,
        parts: &mut Parts,
        body: Body,
        user: &UserInfo,
        warnings: Vec<String>,
        record: &mut Record,
    ) -> Response {
        let Asked { server, info, url, query, id, .. } = *self;
        let elsewhere = server.aggregator.remote_for(info).or_else(|| server.aggregator.openapi_for(&info.path));
        if let Some(remote) = elsewhere {
            let forwarded = Forwarded { info, user, audit_id: id, parts, body };
            return Box::pin(server.aggregator.forward(&remote, forwarded)).await;
        }
        let headers = parts.headers.clone();
        let wishes = wishes(&headers, url.query, query);
        let fail = |status: &Status| Form::plain(wishes).status(status);
        if !info.is_resource_request {
            if Health::is_asked(&info.path) {
                server.store_check.ask().await;
            }
            return documents(server, parts, info, url, wishes);
        }
        if let Some(extension) = server.extensions.get(&info.api_group, &info.api_version) {
            let body = match read_body(body, &*server.registry.clock, REQUEST_TIMEOUT).await {
                Ok(body) => body,
                Err(status) => return fail(&status),
            };
            let target = parts.uri.path_and_query().map_or("/", http::uri::PathAndQuery::as_str);
            return Box::pin(extension::answer(&extension, (&parts.method, target, &headers), body, wishes)).await;
        }
        let gvr = GroupVersionResource::new(&*info.api_group, &*info.api_version, &*info.resource);
        let known = server.registry.resource(&gvr);
        let Some(resource) = known.filter(|resource| resource.as_custom().is_none() || is_served(resource, info))
        else {
            let mut response = match server.registry.resource(&gvr).filter(|resource| is_placed(resource, info)) {
                // Of a custom resource that is served it is known what it has not.
                Some(custom) => {
                    let mut response = fail(&Status::not_found(&gvr.group_resource(), &info.name));
                    let mut told = Warnings::default();
                    custom.deprecation().into_iter().for_each(|warning| told.add(warning));
                    told.write(response.headers_mut());
                    response
                }
                None => not_found(server, &info.path, wishes),
            };
            response.extensions_mut().insert(Unknown);
            return response;
        };
        if resource.as_custom().is_none()
            && let Err(status) = routes::check(&resource, info, &parts.method, &headers)
        {
            let mut response = fail(&status);
            response.extensions_mut().insert(Unknown);
            return response;
        }
        if let Some(stored) = &resource.stored
            && let Err(error) = stored.filled().await
        {
            return fail(&live::cache_status(error));
        }
        let clock = Arc::clone(&server.registry.clock);
        let body = match read_body(body, &*clock, REQUEST_TIMEOUT).await {
            Ok(body) => body,
            Err(status) => return fail(&status),
        };
        let method = parts.method.clone();
        if !body.is_empty() {
            record.sent(&headers, &body);
        }
        let mut call = Call {
            server,
            info,
            method: &method,
            raw_query: url.query,
            query,
            headers: &headers,
            user,
            body,
            resource,
            warnings,
            annotations: Vec::new(),
            closing: parts.extensions.get::<ShutdownSignal>().cloned(),
            // Watches have their own way to take it over.
            on_upgrade: if info.verb == "watch" { None } else { parts.extensions.remove() },
        };
        call.warnings.extend(call.resource.deprecation().map(str::to_owned));
        let mut response = match handlers::dispatch(&mut call).await {
            Ok(response) if info.verb == "watch" && websocket::is_upgrade(&headers) => {
                websocket::upgrade(parts, response)
            }
            Ok(response) => response,
            Err(status) => fail(&status),
        };
        record.annotated(&call.annotations);
        let mut told = Warnings::default();
        call.warnings.iter().for_each(|warning| told.add(warning));
        told.write(response.headers_mut());
        response
    }
}

/// The forms of discovery.
const FORMS: [&str; 3] = ["application/json", "application/yaml", "application/vnd.kubernetes.protobuf"];

/// Whether a custom resource is where the request looks for it. Those in namespaces are listed and watched, but not
/// written, without one.
fn is_placed(resource: &Resource, info: &RequestInfo) -> bool {
    match (resource.namespaced, info.namespace.is_empty()) {
        (true, true) => matches!(&*info.verb, "list" | "watch"),
        (false, false) => info.resource == "namespaces",
        _ => true,
    }
}

fn is_served(custom: &Resource, info: &RequestInfo) -> bool {
    (info.subresource.is_empty() || custom.subresource(&info.subresource).is_some()) && is_placed(custom, info)
}

/// What is not a resource: discovery, and what the server says of itself.
fn documents(server: &Inner, parts: &Parts, info: &RequestInfo, url: &Url<'_>, wishes: Wishes<'_>) -> Response {
    if let Some(response) = server.health.answer(&info.path, url.query) {
        return response;
    }
    match &*info.path {
        "/metrics" => return server.metrics.answer(),
        "/metrics/slis" => return server.health.slis(),
        path => {
            let now = server.registry.now();
            if let Some(response) = server.zpages.answer(path, wishes, server.registry.clock.now()) {
                return response;
            }
            if path.starts_with("/openapi") {
                server.openapi.follow(&server.registry);
            }
            if let Some(response) = server.openapi.answer(path, wishes.query, &parts.headers, now) {
                return response;
            }
            if let Some(response) =
                server.openid.as_ref().and_then(|openid| openid_answer(openid, path, &parts.method, wishes))
            {
                return response;
            }
        }
    }
    let documents = server.discovery.documents();
    let aggregated = Endpoint { protobuf: Protobuf::No, serves: Serves::AggregatedDiscovery, streams: false };
    if let Some(document) = documents.aggregated(&info.path)
        && (parts.method == Method::GET || info.path.starts_with("/apis"))
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
    let path = if info.path == "/index.html" { "/" } else { &*info.path };
    let Some(document) = documents.get(path) else { return not_found(server, path, wishes) };
    let depth = path.split('/').filter(|segment| !segment.is_empty()).count();
    // What the router serves is only read; the lists of paths and of groups are written whoever asks how.
    let routed = match path.split('/').nth(1) {
        Some("api" | "version") => true,
        Some("apis") => depth > 2 && path.split('/').nth(2).is_some_and(is_builtin),
        _ => false,
    };
    let forms: &[&str] = if path.starts_with("/version") { &FORMS[..1] } else { &FORMS };
    let refused = match routed {
        true if parts.method != Method::GET => Err(routes::not_allowed()),
        true => check_route(wishes.accept, forms),
        false => Ok(()),
    };
    if let Err(status) = refused {
        return Form::plain(wishes).status(&status);
    }
    if matches!(path, "/" | "/version" | "/version/") {
        return answer(200, "application/json", Body::from(document.json.clone()));
    }
    let plain = Endpoint { protobuf: Protobuf::Yes, serves: Serves::Documents, streams: false };
    if let Err(status) = plain.negotiate(wishes.accept) {
        return Form::plain(wishes).status(&status);
    }
    let json = document.json.slice(..document.json.len() - usize::from(document.json.ends_with(b"\n")));
    Form::plain(wishes).write(200, json)
}

/// What others need to check the tokens of service accounts.
fn openid_answer(openid: &OpenIdDocuments, path: &str, method: &Method, wishes: Wishes<'_>) -> Option<Response> {
    let (content_type, document) = match path {
        OPENID_CONFIG_PATH => ("application/json", &openid.configuration),
        JWKS_PATH => (JWKS_CONTENT_TYPE, &openid.keys),
        _ => return None,
    };
    let refused =
        if *method == Method::GET { check_route(wishes.accept, &[content_type]) } else { Err(routes::not_allowed()) };
    if let Err(status) = refused {
        return Some(Form::plain(wishes).status(&status));
    }
    let mut response = answer(200, content_type, Body::from(document.clone()));
    let age = HeaderValue::from_str(&format!("public, max-age={MAX_AGE_SECONDS}"));
    response.headers_mut().insert(header::CACHE_CONTROL, age.unwrap_or(HeaderValue::from_static("public")));
    Some(response)
}

fn is_builtin(group: &str) -> bool {
    builtin::group_versions().any(|known| known.group == *group)
}

/// 404. Under what is served it is said as of a resource: upstream's router says it there, and its mux elsewhere.
fn not_found(server: &Inner, path: &str, wishes: Wishes<'_>) -> Response {
    let mut segments = path.split('/').skip(1);
    let known = match (segments.next(), segments.next()) {
        (Some("api" | "version"), _) => true,
        (Some("apis"), Some(group)) => {
            // A group that is only of custom resources is unknown but for what it serves.
            is_builtin(group) && server.discovery.documents().get(&format!("/apis/{group}")).is_some()
        }
        _ => false,
    };
    if known {
        return Form::plain(wishes).status(&routes::no_resource());
    }
    plain_text(StatusCode::NOT_FOUND, "404 page not found")
}
