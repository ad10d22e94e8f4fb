//! What a node may do to pods: make mirrors of its static ones, report on its own, delete and evict them.

use capstan_api::{Map, Status, Value, go};

use super::{NODES, stored_pod, verb};
use crate::{
    admission::{
        Operation, Request,
        common::{MIRROR_POD, annotation, each, flag, forbidden, lister_not_found, object, old_object, strings},
        pod_references::api_reference,
    },
    registry::paths,
};

pub(super) fn admit(request: &Request<'_>, node: &str) -> Result<(), Status> {
    let refusal = match (request.subresource, request.operation) {
        ("", Operation::Create) => create_refusal(request, node)?,
        ("", Operation::Delete) => {
            let pod = stored_pod(request, request.name)?;
            (paths::text(&pod, "spec.nodeName") != node)
                .then(|| format!("node {} can only delete pods with spec.nodeName set to itself", go::quote(node)))
        }
        ("", _) => Some(format!(
            "unexpected operation {}, node {} can only create and delete mirror pods",
            go::quote(verb(request)),
            go::quote(node)
        )),
        ("status", Operation::Update) => status_refusal(request, node),
        ("status", _) => Some(format!("unexpected operation {}", go::quote(verb(request)))),
        ("eviction", Operation::Create) => eviction_refusal(request, node)?,
        // Without quotes, as upstream has it here.
        ("eviction", _) => Some(format!("unexpected operation {}", verb(request))),
        (other, _) => {
            Some(format!("unexpected pod subresource {}, only 'status' and 'eviction' are allowed", go::quote(other)))
        }
    };
    refusal.map_or(Ok(()), |error| Err(forbidden(request, error)))
}

fn create_refusal(request: &Request<'_>, node: &str) -> Result<Option<String>, Status> {
    let (pod, quoted) = (object(request), go::quote(node));
    if annotation(pod, MIRROR_POD).is_none() {
        let annotation = go::quote(MIRROR_POD);
        return Ok(Some(format!(
            "pod does not have {annotation} annotation, node {quoted} can only create mirror pods"
        )));
    }
    if paths::text(pod, "spec.nodeName") != node {
        return Ok(Some(format!("node {quoted} can only create pods with spec.nodeName set to itself")));
    }
    let owners: Vec<&Map> = each(pod, "metadata.ownerReferences").collect();
    if owners.len() > 1 {
        return Ok(Some(format!("node {quoted} can only create pods with a single owner reference set to itself")));
    }
    let is_node = |owner: &&&Map| {
        [("apiVersion", "v1"), ("kind", "Node"), ("name", node)]
            .iter()
            .all(|(key, text)| paths::text(owner, key) == *text)
    };
    let Some(owner) = owners.first().filter(is_node) else {
        return Ok(Some(format!("node {quoted} can only create pods with an owner reference set to itself")));
    };
    if flag(owner, "controller") != Some(true) {
        return Ok(Some(format!("node {quoted} can only create pods with a controller owner reference set to itself")));
    }
    if flag(owner, "blockOwnerDeletion") == Some(true) {
        return Ok(Some(format!("node {quoted} must not set blockOwnerDeletion on an owner reference")));
    }
    let Some(stored) = request.objects.get(&NODES, "", node) else {
        return Err(lister_not_found("", "node", node));
    };
    let uid = paths::text(owner, "uid");
    if stored.uid != uid {
        return Ok(Some(format!("node {node} UID mismatch: expected {uid} got {}", stored.uid)));
    }
    Ok(match api_reference(pod) {
        Ok(None) => None,
        Ok(Some(what)) => Some(format!("node {quoted} can not create pods that reference {what}")),
        Err(error) => Some(format!("error checking mirror pod for API references: {error}")),
    })
}

fn status_refusal(request: &Request<'_>, node: &str) -> Option<String> {
    let (new, old, node_quoted) = (object(request), old_object(request), go::quote(node));
    if paths::text(old, "spec.nodeName") != node {
        return Some(format!(
            "node {node_quoted} can only update pod status for pods with spec.nodeName set to itself"
        ));
    }
    if !strings(old, "metadata.labels").eq(strings(new, "metadata.labels")) {
        return Some(format!("node {node_quoted} cannot update labels through pod status"));
    }
    let claims = |pod| each(pod, "status.resourceClaimStatuses").map(claim);
    if !claims(old).eq(claims(new)) {
        return Some(format!("node {node_quoted} cannot update resource claim statues"));
    }
    if !paths::same(old, new, "status.extendedResourceClaimStatus") {
        return Some(format!("node {node_quoted} cannot update extended resource claim status"));
    }
    None
}

fn claim(status: &Map) -> (&str, Option<&str>) {
    (paths::text(status, "name"), status.get("resourceClaimName").and_then(Value::as_str))
}

fn eviction_refusal(request: &Request<'_>, node: &str) -> Result<Option<String>, Status> {
    let name = match request.name {
        "" => paths::text(object(request), "metadata.name"),
        name => name,
    };
    if name.is_empty() {
        return Ok(Some("could not determine pod from request data".to_owned()));
    }
    let pod = stored_pod(request, name)?;
    Ok((paths::text(&pod, "spec.nodeName") != node)
        .then(|| format!("node {node} can only evict pods with spec.nodeName set to itself")))
}
