//! What kubelets may do: each one only what concerns its own node.
//!
//! Secrets, config maps, claims and volumes are a node's business if a pod that is bound to the node refers to them; a
//! `Graph` knows that, kept up to date by whoever sees those objects change. Everything else is by rules that are the
//! same for all nodes. Nodes that are refused here may still be allowed by the next authorizer.

mod graph;
mod references;
#[cfg(test)]
mod tests;

use std::sync::{PoisonError, RwLock};

use capstan_api::{Value, go};
use graph::{Graph, Kind};

use super::{Attributes, Authorizer, Decision, PolicyRule, Rules, UserInfo};
use crate::bootstrap;

const USERNAME_PREFIX: &str = "system:node:";
const GROUP: &str = "system:nodes";
const LEASE_NAMESPACE: &str = "kube-node-lease";

/// The kinds of objects that the authorizer has to see.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum NodeKind {
    /// Pods, which refer to most of what nodes read.
    Pod,
    /// PersistentVolumes, which refer to claims and secrets.
    PersistentVolume,
    /// VolumeAttachments.
    VolumeAttachment,
    /// ResourceSlices.
    ResourceSlice,
}

/// Decides about nodes; has no opinion on anybody else. A change made by one call is seen by every decision that begins
/// after it has returned.
#[derive(Debug)]
pub struct NodeAuthorizer {
    graph: RwLock<Graph>,
    rules: Vec<PolicyRule>,
}

impl Default for NodeAuthorizer {
    /// One that knows no objects, with the rules of the cluster role `system:node`.
    fn default() -> Self {
        let role = bootstrap::rbac_of(|kind, name| (kind, name) == ("ClusterRole", "system:node"));
        NodeAuthorizer::new(role.first().map(PolicyRule::list_of).unwrap_or_default())
    }
}

impl NodeAuthorizer {
    /// One that knows no objects, with these rules for what is the same for all nodes.
    #[must_use]
    pub fn new(rules: Vec<PolicyRule>) -> Self {
        NodeAuthorizer { graph: RwLock::default(), rules }
    }

    /// Takes in an object that was created or has changed.
    pub fn upsert(&self, kind: NodeKind, object: &Value) {
        let meta =
            |field| object.get("metadata").and_then(|meta| meta.get(field)).and_then(Value::as_str).unwrap_or("");
        let (namespace, name) = (meta("namespace"), meta("name"));
        // Read before the lock is taken: objects can be large.
        match kind {
            NodeKind::Pod => {
                let (node, references) = references::of_pod(object, namespace, name);
                self.write(|graph| graph.set_pod(namespace, name, node, references));
            }
            NodeKind::PersistentVolume => {
                let volume = references::of_volume(object);
                self.write(|graph| graph.set_volume(name, volume));
            }
            NodeKind::VolumeAttachment | NodeKind::ResourceSlice => {
                let node = object.get("spec").and_then(|spec| spec.get("nodeName")).and_then(Value::as_str);
                self.write(|graph| graph.set_direct(direct(kind), name, node.unwrap_or("")));
            }
        }
    }

    /// Forgets an object.
    pub fn remove(&self, kind: NodeKind, namespace: &str, name: &str) {
        self.write(|graph| match kind {
            NodeKind::Pod => graph.set_pod(namespace, name, "", Vec::new()),
            NodeKind::PersistentVolume => graph.set_volume(name, None),
            NodeKind::VolumeAttachment | NodeKind::ResourceSlice => graph.set_direct(direct(kind), name, ""),
        });
    }

    fn write(&self, change: impl FnOnce(&mut Graph)) {
        change(&mut self.graph.write().unwrap_or_else(PoisonError::into_inner));
    }

    fn decide(&self, node: &str, attributes: &Attributes<'_>) -> Result<(), String> {
        let Attributes { verb, subresource, name, namespace, .. } = *attributes;
        match (attributes.group, attributes.resource) {
            ("", "secrets") => self.read(node, Kind::Secret, attributes),
            ("", "configmaps") => self.read(node, Kind::ConfigMap, attributes),
            ("", "persistentvolumeclaims") if subresource == "status" => match verb {
                "update" | "patch" => self.related(node, Kind::Claim, attributes),
                _ => no("can only get/update/patch this type"),
            },
            ("", "persistentvolumeclaims") => self.get(node, Kind::Claim, attributes),
            ("", "persistentvolumes") => self.get(node, Kind::Volume, attributes),
            ("resource.k8s.io", "resourceclaims") => self.get(node, Kind::ResourceClaim, attributes),
            ("storage.k8s.io", "volumeattachments") => self.get(node, Kind::Attachment, attributes),
            ("", "serviceaccounts") if verb == "get" && subresource.is_empty() => {
                self.read(node, Kind::ServiceAccount, attributes)
            }
            ("", "serviceaccounts") if verb != "create" || name.is_empty() => {
                no("can only create tokens for individual service accounts")
            }
            ("", "serviceaccounts") if subresource != "token" => {
                no("can only create token subresource of serviceaccount")
            }
            ("", "serviceaccounts") => self.related(node, Kind::ServiceAccount, attributes),
            ("coordination.k8s.io", "leases") => match verb {
                "get" | "create" | "update" | "patch" | "delete" if namespace != LEASE_NAMESPACE => {
                    no(&format!("can only access leases in the {} system namespace", go::quote(LEASE_NAMESPACE)))
                }
                // The name of what is created is not known yet; admission looks at it.
                "create" => Ok(()),
                "get" | "update" | "patch" | "delete" if name == node => Ok(()),
                "get" | "update" | "patch" | "delete" => {
                    no("can only access node lease with the same name as the requesting node")
                }
                _ => no("can only get, create, update, patch, or delete a node lease"),
            },
            ("storage.k8s.io", "csinodes") => match verb {
                "get" | "create" | "update" | "patch" | "delete" if !subresource.is_empty() => {
                    no("cannot authorize CSINode subresources")
                }
                "create" => Ok(()),
                "get" | "update" | "patch" | "delete" if name == node => Ok(()),
                "get" | "update" | "patch" | "delete" => {
                    no("can only access CSINode with the same name as the requesting node")
                }
                _ => no("can only get, create, update, patch, or delete a CSINode"),
            },
            ("resource.k8s.io", "resourceslices") => self.slices(node, attributes),
            ("", "nodes") => own_node(node, attributes),
            ("", "pods") => self.pods(node, attributes),
            // Upstream's feature for these is off by default, and then nodes have no business with them.
            ("certificates.k8s.io", "podcertificaterequests") => no(""),
            _ => self.by_rules(attributes),
        }
    }

    fn by_rules(&self, attributes: &Attributes<'_>) -> Result<(), String> {
        if self.rules.iter().any(|rule| rule.allows(attributes)) { Ok(()) } else { no("") }
    }

    fn get(&self, node: &str, kind: Kind, attributes: &Attributes<'_>) -> Result<(), String> {
        if attributes.verb != "get" {
            return no("can only get individual resources of this type");
        }
        if !attributes.subresource.is_empty() {
            return no("cannot get subresource");
        }
        self.related(node, kind, attributes)
    }

    fn read(&self, node: &str, kind: Kind, attributes: &Attributes<'_>) -> Result<(), String> {
        if !matches!(attributes.verb, "get" | "list" | "watch") {
            return no("can only read resources of this type");
        }
        if !attributes.subresource.is_empty() {
            return no("cannot read subresource");
        }
        if attributes.namespace.is_empty() {
            return no("can only read namespaced object of this type");
        }
        self.related(node, kind, attributes)
    }

    fn related(&self, node: &str, kind: Kind, attributes: &Attributes<'_>) -> Result<(), String> {
        if attributes.name.is_empty() {
            return no("No Object name found");
        }
        let graph = self.graph.read().unwrap_or_else(PoisonError::into_inner);
        if graph.is_related(kind, attributes.namespace, attributes.name, node) {
            Ok(())
        } else {
            no(&format!("no relationship found between node '{node}' and this object"))
        }
    }

    fn slices(&self, node: &str, attributes: &Attributes<'_>) -> Result<(), String> {
        if !attributes.subresource.is_empty() {
            return no("cannot authorize ResourceSlice subresources");
        }
        match attributes.verb {
            // Admission looks at whose the new one is.
            "create" => Ok(()),
            "get" | "update" | "patch" | "delete" => self.related(node, Kind::Slice, attributes),
            "watch" | "list" | "deletecollection" if selects_node(attributes, node) => Ok(()),
            "watch" | "list" | "deletecollection" => {
                no("can only list/watch/deletecollection resourceslices with nodeName field selector")
            }
            _ => no(
                "only the following verbs are allowed for a ResourceSlice: get, watch, list, create, update, patch, \
                 delete, deletecollection",
            ),
        }
    }

    fn pods(&self, node: &str, attributes: &Attributes<'_>) -> Result<(), String> {
        match (attributes.subresource, attributes.verb) {
            ("", "get") => self.get(node, Kind::Pod, attributes),
            ("", "list" | "watch") if selects_node(attributes, node) => Ok(()),
            ("", "list" | "watch") if !attributes.name.is_empty() => self.related(node, Kind::Pod, attributes),
            ("", "list" | "watch") => no("can only list/watch pods with spec.nodeName field selector"),
            // Admission sees to it that these are about the node's own pods.
            ("", "create" | "delete") | ("status", "update" | "patch") | ("eviction", "create") => Ok(()),
            _ => no(""),
        }
    }
}

fn no(reason: &str) -> Result<(), String> {
    Err(reason.to_owned())
}

fn direct(kind: NodeKind) -> Kind {
    match kind {
        NodeKind::ResourceSlice => Kind::Slice,
        _ => Kind::Attachment,
    }
}

/// A node reads itself by name, so that it can look whether it is there already.
fn own_node(node: &str, attributes: &Attributes<'_>) -> Result<(), String> {
    match (attributes.subresource, attributes.verb) {
        ("", "create" | "update" | "patch") | ("status", "update" | "patch") => Ok(()),
        ("", "get" | "list" | "watch") => match attributes.name {
            name if name == node => Ok(()),
            "" => no(&format!("node '{node}' cannot read all nodes, only its own Node object")),
            name => no(&format!("node '{node}' cannot read '{name}', only its own Node object")),
        },
        _ => no(""),
    }
}

fn selects_node(attributes: &Attributes<'_>, node: &str) -> bool {
    let selector = attributes.field_selector.iter();
    selector.filter(|one| !one.negated).any(|one| one.field == "spec.nodeName" && one.value == node)
}

/// The name of the node that this user is, if it is one; it may be empty.
fn node_of(user: &UserInfo) -> Option<&str> {
    user.name.strip_prefix(USERNAME_PREFIX).filter(|_| user.in_group(GROUP))
}

impl Authorizer for NodeAuthorizer {
    fn authorize(&self, attributes: &Attributes<'_>) -> Decision {
        let decision = match node_of(attributes.user) {
            None => no(""),
            Some("") => no(&format!("unknown node for user {}", go::quote(&attributes.user.name))),
            Some(node) if attributes.is_resource => self.decide(node, attributes),
            Some(_) => self.by_rules(attributes),
        };
        match decision {
            Ok(()) => Decision::Allow(String::new()),
            Err(reason) => Decision::NoOpinion(reason),
        }
    }

    fn rules_for(&self, user: &UserInfo, _namespace: &str) -> Rules {
        match node_of(user) {
            Some(_) => Rules {
                incomplete: true,
                errors: vec!["node authorizer does not support user rule resolution".into()],
                ..Rules::default()
            },
            None => Rules::default(),
        }
    }
}
