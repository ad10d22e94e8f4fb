//! A request on its way: what it asks, who asks, and what has come together for the answer so far.

use std::sync::Arc;

use bytes::Bytes;
use capstan_api::{Map, Status, Time, Value};
use http::{HeaderMap, HeaderName};

use super::{
    decode,
    form::{Form, Wishes},
};
use crate::{
    admission::{self, Operation},
    authorization::{Attributes, UserInfo},
    registry::{Resource, Stored},
    request::{Query, RequestInfo},
    server::Inner,
};

/// A request for a resource.
pub(crate) struct Call<'a> {
    pub(crate) server: &'a Arc<Inner>,
    pub(crate) info: &'a RequestInfo,
    pub(crate) method: &'a http::Method,
    pub(crate) raw_query: &'a str,
    pub(crate) query: &'a Query<'a>,
    pub(crate) headers: &'a HeaderMap,
    pub(crate) user: &'a UserInfo,
    pub(crate) body: Bytes,
    pub(crate) resource: Arc<Resource>,
    pub(crate) warnings: Vec<String>,
    /// What is to be noted in the audit log, by key.
    pub(crate) annotations: Vec<(&'static str, String)>,
    /// Told when the server is to end, for answers that have no end of their own.
    pub(crate) closing: Option<crate::serve::ShutdownSignal>,
    /// The connection, for what takes it over.
    pub(crate) on_upgrade: Option<hyper::upgrade::OnUpgrade>,
}

impl<'a> Call<'a> {
    pub(crate) fn header(&self, name: HeaderName) -> &'a str {
        header(self.headers, name)
    }

    pub(crate) fn wishes(&self) -> Wishes<'a> {
        wishes(self.headers, self.raw_query, self.query)
    }

    /// Agrees on the form of the answer.
    pub(crate) fn form(&self) -> Result<Form, Status> {
        Form::negotiate(self.wishes(), &self.resource, self.info)
    }

    /// The same for what makes something, which asks whether the body can be read before it looks at anything else.
    pub(crate) fn form_of_create(&self) -> Result<Form, Status> {
        let form = self.form()?;
        decode::check_form(&self.resource, self.header(http::header::CONTENT_TYPE))?;
        Ok(form)
    }

    pub(crate) fn now(&self) -> Time {
        self.server.registry.now()
    }

    /// Where the objects are.
    pub(crate) fn stored(&self) -> Result<Arc<Stored>, Status> {
        let stored = self.resource.stored.clone();
        stored.ok_or_else(|| Status::internal_error("objects of this kind are not stored"))
    }

    /// The namespace that objects of this request are stored in; empty for those of the cluster.
    pub(crate) fn namespace(&self) -> &'a str {
        if self.resource.namespaced { &self.info.namespace } else { "" }
    }

    /// The namespace that metadata must have.
    pub(crate) fn check_namespace(&self, object: &mut Map) -> Result<(), Status> {
        ensure_namespace(self.namespace(), object)
    }

    /// Lets admission change or refuse a write.
    pub(crate) fn admit(&mut self, write: Admitted<'_>) -> Result<(), Status> {
        let server = Arc::clone(self.server);
        let resource = Arc::clone(&self.resource);
        let mut request = self.admission_request(&server, &resource, write);
        server.admission.admit(&mut request)
    }

    /// Lets admission refuse a write.
    pub(crate) fn validate(&mut self, write: Admitted<'_>) -> Result<(), Status> {
        let server = Arc::clone(self.server);
        let resource = Arc::clone(&self.resource);
        let mut request = self.admission_request(&server, &resource, write);
        server.admission.validate(&mut request)
    }

    /// What quotas count with a write.
    pub(crate) fn reserve(
        &mut self,
        write: Admitted<'_>,
        quotas: &[Arc<crate::cache::Object>],
    ) -> Result<Vec<admission::resource_quota::QuotaUpdate>, Status> {
        let server = Arc::clone(self.server);
        let resource = Arc::clone(&self.resource);
        let request = self.admission_request(&server, &resource, write);
        admission::resource_quota::reserve(&request, quotas)
    }

    fn admission_request<'r>(
        &'r mut self,
        server: &'r Arc<Inner>,
        resource: &'r Resource,
        write: Admitted<'r>,
    ) -> admission::Request<'r> {
        let subresource = &*self.info.subresource;
        let sub = resource.subresource(subresource);
        admission::Request {
            operation: write.operation,
            kind: write.kind.unwrap_or_else(|| sub.unwrap_or(&resource.gvk)),
            resource: &resource.gvr,
            subresource,
            namespace: &self.info.namespace,
            name: write.name,
            user: self.user,
            dry_run: write.dry_run,
            now: server.registry.now(),
            object: write.object,
            old_object: write.old,
            options: None,
            objects: &*server.registry,
            warnings: &mut self.warnings,
            annotations: &mut self.annotations,
        }
    }

    /// What this request asks, for authorization of something that goes with it.
    pub(crate) fn attributes<'s>(&'s self, verb: &'s str, name: &'s str) -> Attributes<'s> {
        Attributes {
            version: &self.resource.gvr.version,
            subresource: &self.info.subresource,
            name,
            namespace: self.namespace(),
            path: &self.info.path,
            ..Attributes::resource(self.user, verb, &self.resource.gvr.group, &self.resource.gvr.resource)
        }
    }
}

/// A write, as far as admission differs from one to the next.
pub(crate) struct Admitted<'a> {
    pub(crate) operation: Operation,
    pub(crate) name: &'a str,
    pub(crate) object: Option<&'a mut Map>,
    pub(crate) old: Option<&'a Map>,
    pub(crate) dry_run: bool,
    pub(crate) kind: Option<&'a capstan_api::GroupVersionKind>,
}

impl<'a> Admitted<'a> {
    /// Something new.
    pub(crate) fn create(name: &'a str, object: &'a mut Map, dry_run: bool) -> Self {
        Admitted { operation: Operation::Create, name, object: Some(object), old: None, dry_run, kind: None }
    }

    /// Something other than before.
    pub(crate) fn update(name: &'a str, object: &'a mut Map, old: &'a Map, dry_run: bool) -> Self {
        Admitted { operation: Operation::Update, name, object: Some(object), old: Some(old), dry_run, kind: None }
    }

    /// The end of something.
    pub(crate) fn delete(name: &'a str, old: &'a Map, dry_run: bool) -> Self {
        Admitted { operation: Operation::Delete, name, object: None, old: Some(old), dry_run, kind: None }
    }
}

pub(crate) fn header(headers: &HeaderMap, name: HeaderName) -> &str {
    headers.get(name).and_then(|value| value.to_str().ok()).unwrap_or_default()
}

pub(crate) fn wishes<'a>(headers: &'a HeaderMap, raw_query: &'a str, query: &'a Query<'a>) -> Wishes<'a> {
    Wishes {
        accept: header(headers, http::header::ACCEPT),
        user_agent: header(headers, http::header::USER_AGENT),
        raw_query,
        query,
    }
}

/// Gives metadata the namespace of the request.
///
/// # Errors
/// 400 when it has another.
pub(crate) fn ensure_namespace(namespace: &str, object: &mut Map) -> Result<(), Status> {
    let metadata = metadata_mut(object);
    match metadata.get("namespace").and_then(Value::as_str).unwrap_or_default() {
        same if same == namespace => {
            if namespace.is_empty() {
                metadata.remove("namespace");
            }
        }
        _ if namespace.is_empty() => drop(metadata.remove("namespace")),
        "" => drop(metadata.insert("namespace", namespace)),
        _ => {
            let words = "the namespace of the provided object does not match the namespace sent on the request";
            return Err(Status::bad_request(words));
        }
    }
    Ok(())
}

/// The metadata, made if there is none.
pub(crate) fn metadata_mut(object: &mut Map) -> &mut Map {
    if !matches!(object.get("metadata"), Some(Value::Object(_))) {
        object.insert("metadata", Map::new());
    }
    object.get_mut("metadata").and_then(Value::as_object_mut).expect("it has just been made")
}

/// A text of the metadata.
pub(crate) fn meta<'o>(object: &'o Map, field: &str) -> &'o str {
    object.get("metadata").and_then(|metadata| metadata.get(field)).and_then(Value::as_str).unwrap_or_default()
}
