//! Groups of the API that somebody else answers: in discovery like all others, behind the same authentication and
//! authorization, and then handed to a function.
//!
//! What aggregation does by a Service and a proxy, this does for parts of the same process: each group version that is
//! served so has an APIService without a service, which is always available. Whoever gives it a service brings a server
//! of their own, and that answers then.

use std::{
    collections::HashMap,
    fmt,
    pin::Pin,
    sync::{Arc, PoisonError, RwLock},
};

use bytes::Bytes;
use capstan_api::{GroupVersion, Name, Status, Value, json};
use http::{HeaderMap, Method};

use crate::{
    Server,
    discovery::ApiResource,
    handlers::form::{Form, Wishes},
    http::{Body, Response},
};

/// What an extension answers, later.
pub type Answer = Pin<Box<dyn Future<Output = http::Response<Bytes>> + Send>>;

/// Whoever answers for a group version: requests in, JSON out. `GET /apis/GROUP/VERSION` must answer the
/// APIResourceList of what there is; all other requests have been authenticated and authorized.
pub type Extension = Arc<dyn Fn(http::Request<Bytes>) -> Answer + Send + Sync>;

/// The group versions that are answered elsewhere.
#[derive(Default)]
pub(crate) struct Extensions(RwLock<HashMap<GroupVersion, Extension>>);

impl fmt::Debug for Extensions {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Extensions").finish_non_exhaustive()
    }
}

impl Extensions {
    /// Who answers for a group version.
    pub(crate) fn get(&self, group: &str, version: &str) -> Option<Extension> {
        let all = self.0.read().unwrap_or_else(PoisonError::into_inner);
        if all.is_empty() {
            return None;
        }
        all.get(&GroupVersion::new(group, version)).cloned()
    }
}

impl Server {
    /// Serves a group version by `extension`, from now on.
    ///
    /// # Errors
    /// The extension does not say what it has, or its APIService can't be written.
    pub async fn extend(&self, group_version: GroupVersion, extension: Extension) -> Result<(), Status> {
        let inner = self.inner();
        let mut request = http::Request::new(Bytes::new());
        let path = group_version.path().parse();
        *request.uri_mut() = path.map_err(|_| Status::bad_request(format!("{group_version} is no group version")))?;
        let rows = rows(&group_version, extension(request).await.body())?;
        let group = group_version.group.clone();
        inner.extensions.0.write().unwrap_or_else(PoisonError::into_inner).insert(group_version.clone(), extension);
        for row in rows {
            let resource = row.resource.clone();
            inner.discovery.set_custom(&group, &resource, vec![row]);
        }
        inner.aggregator.extend(&group_version).await
    }
}

/// What an APIResourceList says there is.
fn rows(group_version: &GroupVersion, list: &[u8]) -> Result<Vec<ApiResource>, Status> {
    let list = json::parse(list).map_err(|error| Status::internal_error(format!("{group_version}: {error}")))?;
    let resources = list.get("resources").and_then(Value::as_array);
    let resources = resources.ok_or_else(|| Status::internal_error(format!("{group_version} lists no resources")))?;
    let row = |resource: &Value| {
        let text = |field: &str| Name::from(resource.get(field).and_then(Value::as_str).unwrap_or_default());
        let texts = |field: &str| {
            let items = resource.get(field).and_then(Value::as_array);
            items.into_iter().flatten().filter_map(Value::as_str).map(Name::from).collect::<Vec<_>>()
        };
        ApiResource {
            group_version: group_version.clone(),
            kind: text("kind"),
            resource: text("name"),
            singular: text("singularName"),
            namespaced: resource.get("namespaced").and_then(Value::as_bool).unwrap_or_default(),
            short_names: texts("shortNames"),
            categories: texts("categories"),
            verbs: texts("verbs"),
            subresources: Vec::new(),
            storage: None,
            custom: true,
        }
    };
    Ok(resources.iter().map(row).collect())
}

/// Asks an extension, and gives its answer in the form that the client wants.
pub(crate) async fn answer(
    extension: &Extension,
    (method, target, headers): (&Method, &str, &HeaderMap),
    body: Bytes,
    wishes: Wishes<'_>,
) -> Response {
    let mut request = http::Request::new(body);
    *request.method_mut() = method.clone();
    request.headers_mut().clone_from(headers);
    match target.parse() {
        Ok(uri) => *request.uri_mut() = uri,
        Err(_) => return Form::plain(wishes).status(&Status::bad_request("the path cannot be asked for")),
    }
    let (parts, body) = extension(request).await.into_parts();
    let is_json = parts.headers.get(http::header::CONTENT_TYPE).is_some_and(|kind| kind == "application/json");
    if is_json {
        return Form::plain(wishes).write(parts.status.as_u16(), body);
    }
    let mut response = Response::new(Body::from(body));
    *response.status_mut() = parts.status;
    *response.headers_mut() = parts.headers;
    response
}

#[cfg(test)]
mod tests {
    use capstan_storage::{Memory, Options};
    use http::{StatusCode, header};
    use http_body_util::BodyExt as _;

    use super::*;
    use crate::{Config, authorization::UserInfo, http::Request};

    async fn ask(server: &Server, user: &str, path: &str) -> (StatusCode, String) {
        let groups: &[&str] = if user == "admin" { &["system:masters"] } else { &[] };
        let mut service = server.as_user(UserInfo::new(user, groups.iter().copied()));
        let mut request = Request::new(Body::empty());
        *request.uri_mut() = path.parse().expect("a path");
        let response = tower_service::Service::call(&mut service, request).await.expect("an answer");
        let status = response.status();
        let bytes = response.into_body().collect().await.expect("a body").to_bytes();
        (status, String::from_utf8_lossy(&bytes).into_owned())
    }

    #[tokio::test]
    async fn a_group_of_somebody_else() {
        let server =
            Server::start(Arc::new(Memory::new(Options::default())), Config::default()).await.expect("a server");
        let extension: Extension = Arc::new(|request| {
            Box::pin(async move {
                let text = match request.uri().path() {
                    "/apis/things.example.com/v1" => {
                        r#"{"kind":"APIResourceList","resources":[{"name":"things","singularName":"thing",
                            "namespaced":true,"kind":"Thing","verbs":["get"]}]}"#
                            .to_owned()
                    }
                    path => format!(r#"{{"kind":"Thing","path":"{path}"}}"#),
                };
                let mut response = http::Response::new(Bytes::from(text));
                let json = http::HeaderValue::from_static("application/json");
                response.headers_mut().insert(header::CONTENT_TYPE, json);
                response
            })
        });
        server.extend(GroupVersion::new("things.example.com", "v1"), extension).await.expect("it is served");
        let (status, text) = ask(&server, "admin", "/apis/things.example.com/v1/namespaces/a/things/b").await;
        assert_eq!(status, StatusCode::OK);
        assert!(text.contains("/apis/things.example.com/v1/namespaces/a/things/b"), "{text}");
        let (_, text) = ask(&server, "admin", "/apis/things.example.com/v1").await;
        assert!(text.contains(r#""name":"things""#) && text.contains(r#""verbs":["get"]"#), "{text}");
        assert!(ask(&server, "admin", "/apis").await.1.contains("things.example.com"));
        let service = "/apis/apiregistration.k8s.io/v1/apiservices/v1.things.example.com";
        let (_, text) = ask(&server, "admin", service).await;
        assert!(text.contains(r#""reason":"Local","status":"True","type":"Available""#), "{text}");
        // Who may not ask the server may not ask the extension.
        let (status, _) = ask(&server, "nobody", "/apis/things.example.com/v1/namespaces/a/things/b").await;
        assert_eq!(status, StatusCode::FORBIDDEN);
    }
}
