//! Who owns an object, and which of the owners controls it.

use serde::{Deserialize, Serialize};

use super::{Metadata as _, Resource, nullable};
use crate::GroupVersionKind;

/// Points from an object to one that owns it. When all owners are gone, the object goes too.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct OwnerReference {
    /// The group and version of the owner.
    #[serde(deserialize_with = "nullable::value")]
    pub api_version: String,
    /// The kind of the owner.
    #[serde(deserialize_with = "nullable::value")]
    pub kind: String,
    /// The name of the owner, in the same namespace or in the cluster.
    #[serde(deserialize_with = "nullable::value")]
    pub name: String,
    /// Which object of that name.
    #[serde(deserialize_with = "nullable::value")]
    pub uid: String,
    /// Whether the owner controls the object; at most one does.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub controller: Option<bool>,
    /// Whether the owner must wait for this object, when it is deleted in the foreground.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub block_owner_deletion: Option<bool>,
}

impl OwnerReference {
    /// A reference to an owner that does not control.
    pub fn to<O: Resource>(owner: &O) -> Self {
        OwnerReference::new(&O::gvk(), owner.meta().name(), owner.meta().uid())
    }

    /// A reference to the owner that controls the object and waits for it.
    pub fn controller<O: Resource>(owner: &O) -> Self {
        OwnerReference { controller: Some(true), block_owner_deletion: Some(true), ..OwnerReference::to(owner) }
    }

    /// A reference to an owner that is known by name.
    pub fn new(gvk: &GroupVersionKind, name: impl Into<String>, uid: impl Into<String>) -> Self {
        OwnerReference {
            api_version: gvk.api_version(),
            kind: gvk.kind.to_string(),
            name: name.into(),
            uid: uid.into(),
            ..OwnerReference::default()
        }
    }
}

/// The reference to the owner that controls, if one does.
#[must_use]
pub fn controller_of(references: &[OwnerReference]) -> Option<&OwnerReference> {
    references.iter().find(|reference| reference.controller == Some(true))
}
