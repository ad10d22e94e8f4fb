//! NodeRestriction, off by default: a node changes what is its own only.

mod node;
mod pod;
mod token;

use std::sync::Arc;

use capstan_api::{GroupResource, Map, Status, go};

use super::{
    Operation, Plugin, Request,
    certificates::{CSRS, subject},
    common::{
        NODES, PODS, PVCS, SERVICE_ACCOUNTS, forbidden, is_of, lister_not_found, object, old_object, same_meaning,
        stored,
    },
};
use crate::{
    authorization::{Authorizer, UserInfo},
    registry::paths,
};

const USER_PREFIX: &str = "system:node:";
const GROUP: &str = "system:nodes";
const LEASE_NAMESPACE: &str = "kube-node-lease";

const LEASES: GroupResource = GroupResource::from_static("coordination.k8s.io", "leases");
const CSI_NODES: GroupResource = GroupResource::from_static("storage.k8s.io", "csinodes");
const RESOURCE_SLICES: GroupResource = GroupResource::from_static("resource.k8s.io", "resourceslices");
const POD_CERTIFICATES: GroupResource = GroupResource::from_static("certificates.k8s.io", "podcertificaterequests");

/// The signers that make certificates for nodes.
const NODE_SIGNERS: [&str; 2] = ["kubernetes.io/kubelet-serving", "kubernetes.io/kube-apiserver-client-kubelet"];

/// The plugin.
pub struct NodeRestriction {
    authorizer: Arc<dyn Authorizer>,
}

impl NodeRestriction {
    /// A plugin that asks this authorizer which audiences a node may have tokens for.
    #[must_use]
    pub fn new(authorizer: Arc<dyn Authorizer>) -> Self {
        NodeRestriction { authorizer }
    }
}

/// The node that a user is, if it is one. The name may be empty.
fn node_name(user: &UserInfo) -> Option<&str> {
    user.name.strip_prefix(USER_PREFIX).filter(|_| user.in_group(GROUP))
}

/// The words that upstream uses for an operation.
fn verb(request: &Request<'_>) -> &'static str {
    match request.operation {
        Operation::Create => "CREATE",
        Operation::Update => "UPDATE",
        Operation::Delete => "DELETE",
        Operation::Connect => "CONNECT",
    }
}

impl Plugin for NodeRestriction {
    fn name(&self) -> &'static str {
        "NodeRestriction"
    }

    fn admit(&self, request: &mut Request<'_>) -> Result<(), Status> {
        let request = &*request;
        let Some(node) = node_name(request.user).filter(|_| request.operation != Operation::Connect) else {
            return Ok(());
        };
        if node.is_empty() {
            let user = go::quote(&request.user.name);
            return Err(forbidden(request, format!("could not determine node from user {user}")));
        }
        if is_of(request, &PODS) {
            return pod::admit(request, node);
        }
        if is_of(request, &SERVICE_ACCOUNTS) {
            return token::admit(request, node, &*self.authorizer);
        }
        let refusal = if is_of(request, &NODES) {
            node::refusal(request, node)
        } else if is_of(request, &PVCS) {
            claim_refusal(request, node)
        } else if is_of(request, &POD_CERTIFICATES) {
            Some("PodCertificateRequest feature gate is disabled".to_owned())
        } else if is_of(request, &LEASES) {
            lease_refusal(request, node)
        } else if is_of(request, &CSI_NODES) {
            (own_name(request) != node)
                .then(|| "can only access CSINode with the same name as the requesting node".to_owned())
        } else if is_of(request, &RESOURCE_SLICES) {
            slice_refusal(request, node)
        } else if is_of(request, &CSRS) {
            csr_refusal(request, node)
        } else {
            None
        };
        refusal.map_or(Ok(()), |error| Err(forbidden(request, error)))
    }
}

/// The name of what is written; a new object says it itself.
fn own_name<'a>(request: &'a Request<'_>) -> &'a str {
    match request.operation {
        Operation::Create => paths::text(object(request), "metadata.name"),
        _ => request.name,
    }
}

fn stored_pod(request: &Request<'_>, name: &str) -> Result<Map, Status> {
    stored(request, &PODS, request.namespace, name).ok_or_else(|| lister_not_found("", "pod", name))
}

fn claim_refusal(request: &Request<'_>, node: &str) -> Option<String> {
    if request.subresource != "status" {
        return Some("may only update PVC status".to_owned());
    }
    if request.operation != Operation::Update {
        return Some(format!("unexpected operation {}", go::quote(verb(request))));
    }
    let open = |claim: &Map| {
        let mut claim = claim.clone();
        for field in ["capacity", "conditions", "allocatedResourceStatuses", "allocatedResources"] {
            paths::remove(&mut claim, &format!("status.{field}"));
        }
        for field in ["resourceVersion", "managedFields"] {
            paths::remove(&mut claim, &format!("metadata.{field}"));
        }
        claim
    };
    let (new, old) = (open(object(request)), open(old_object(request)));
    if same_meaning(&new, &old) {
        return None;
    }
    // Upstream goes on with a difference of its own types in Go's notation, which nobody can depend on.
    let keys = new.keys().chain(old.keys()).filter(|key| !paths::same(&new, &old, key));
    let keys = keys.collect::<std::collections::BTreeSet<_>>().into_iter().collect::<Vec<_>>().join(", ");
    let node = go::quote(node);
    Some(format!(
        "node {node} is not allowed to update fields other than status.quantity and status.conditions: {keys}"
    ))
}

fn lease_refusal(request: &Request<'_>, node: &str) -> Option<String> {
    if request.namespace != LEASE_NAMESPACE {
        return Some(format!("can only access leases in the {} system namespace", go::quote(LEASE_NAMESPACE)));
    }
    (own_name(request) != node)
        .then(|| "can only access node lease with the same name as the requesting node".to_owned())
}

fn slice_refusal(request: &Request<'_>, node: &str) -> Option<String> {
    let (slice, what) = match request.operation {
        Operation::Create => (object(request), "create"),
        Operation::Delete => (old_object(request), "delete"),
        // The node authorizer sees to the rest.
        _ => return None,
    };
    (paths::text(slice, "spec.nodeName") != node)
        .then(|| format!("can only {what} ResourceSlice with the same NodeName as the requesting node"))
}

fn csr_refusal(request: &Request<'_>, node: &str) -> Option<String> {
    let csr = object(request);
    if request.operation != Operation::Create || !NODE_SIGNERS.contains(&paths::text(csr, "spec.signerName")) {
        return None;
    }
    match subject(csr) {
        Err(error) => Some(format!("unable to parse csr: {error}")),
        Ok(subject) if subject.common_name.strip_prefix(USER_PREFIX) == Some(node) => None,
        Ok(_) => Some(format!("can only create a node CSR with CN={USER_PREFIX}{node}")),
    }
}
