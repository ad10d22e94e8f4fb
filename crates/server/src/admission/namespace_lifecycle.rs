//! NamespaceLifecycle: nothing is made in a namespace that is not there or that is going, and some stay for good.

use capstan_api::{GroupResource, Status, status::StatusCause};

use memchr::memmem;

use super::{
    Operation, Plugin, Request,
    common::{NAMESPACES, content, forbidden, is_of},
};
use crate::{cache::Object, registry::paths};

/// The namespaces that may not be deleted.
const IMMORTAL: [&str; 3] = ["default", "kube-system", "kube-public"];

/// Reviews are answered in any namespace, for an error would tell which ones there are.
const ACCESS_REVIEWS: GroupResource = GroupResource::from_static("authorization.k8s.io", "localsubjectaccessreviews");

/// The plugin.
#[derive(Debug, Default)]
pub struct NamespaceLifecycle;

impl Plugin for NamespaceLifecycle {
    fn name(&self) -> &'static str {
        "NamespaceLifecycle"
    }

    fn admit(&self, request: &mut Request<'_>) -> Result<(), Status> {
        let (operation, namespace) = (request.operation, request.namespace);
        if operation == Operation::Connect {
            return Ok(());
        }
        if request.kind.group.is_empty() && request.kind.kind == "Namespace" {
            if operation == Operation::Delete && IMMORTAL.contains(&request.name) {
                let resource = request.resource.group_resource();
                return Err(Status::forbidden(&resource, request.name, "this namespace may not be deleted"));
            }
            return Ok(());
        }
        if namespace.is_empty() || operation == Operation::Delete || is_of(request, &ACCESS_REVIEWS) {
            return Ok(());
        }
        let Some(stored) = request.objects.get(&NAMESPACES, "", namespace) else {
            return Err(Status::not_found(&NAMESPACES, namespace));
        };
        if operation != Operation::Create || !is_terminating(&stored) {
            return Ok(());
        }
        let error = format!("unable to create new content in namespace {namespace} because it is being terminated");
        let mut status = forbidden(request, error);
        status.details.get_or_insert_default().causes.push(StatusCause {
            reason: "NamespaceTerminating".into(),
            message: format!("namespace {namespace} is being terminated"),
            field: "metadata.namespace".to_owned(),
        });
        Err(status)
    }
}

/// Read only where the word occurs: every object that is made comes by here.
fn is_terminating(namespace: &Object) -> bool {
    memmem::find(&namespace.json, b"Terminating").is_some()
        && paths::text(&content(namespace), "status.phase") == "Terminating"
}

/// NamespaceExists, which is off by default: no write in a namespace that is not there.
#[derive(Debug, Default)]
pub struct NamespaceExists;

impl Plugin for NamespaceExists {
    fn name(&self) -> &'static str {
        "NamespaceExists"
    }

    fn validate(&self, request: &mut Request<'_>) -> Result<(), Status> {
        let is_namespace = request.kind.group.is_empty() && request.kind.kind == "Namespace";
        if request.operation == Operation::Connect || request.namespace.is_empty() || is_namespace {
            return Ok(());
        }
        match request.objects.get(&NAMESPACES, "", request.namespace) {
            Some(_) => Ok(()),
            None => Err(Status::not_found(&NAMESPACES, request.namespace)),
        }
    }
}
