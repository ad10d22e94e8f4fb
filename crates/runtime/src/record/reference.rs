//! Which object something is about.

use capstan_api::object::{Accessor, Object};
use serde::{Deserialize, Serialize};

/// Points to an object, or to a part of one.
#[derive(Clone, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct ObjectReference {
    /// The kind.
    #[serde(skip_serializing_if = "String::is_empty")]
    pub kind: String,
    /// The namespace; empty for objects of the cluster.
    #[serde(skip_serializing_if = "String::is_empty")]
    pub namespace: String,
    /// The name.
    #[serde(skip_serializing_if = "String::is_empty")]
    pub name: String,
    /// Which object of that name.
    #[serde(skip_serializing_if = "String::is_empty")]
    pub uid: String,
    /// The group and version.
    #[serde(skip_serializing_if = "String::is_empty")]
    pub api_version: String,
    /// The version of the object.
    #[serde(skip_serializing_if = "String::is_empty")]
    pub resource_version: String,
    /// The part: `spec.containers{web}`.
    #[serde(skip_serializing_if = "String::is_empty")]
    pub field_path: String,
}

impl ObjectReference {
    /// A reference to an object that is known by name.
    #[must_use]
    pub fn new(api_version: &str, kind: &str, namespace: &str, name: &str) -> Self {
        ObjectReference {
            kind: kind.to_owned(),
            namespace: namespace.to_owned(),
            name: name.to_owned(),
            api_version: api_version.to_owned(),
            ..ObjectReference::default()
        }
    }

    /// The same, to a part of it.
    #[must_use]
    pub fn with_field_path(mut self, field_path: &str) -> Self {
        field_path.clone_into(&mut self.field_path);
        self
    }

    /// The same, to the object with this uid.
    #[must_use]
    pub fn with_uid(mut self, uid: &str) -> Self {
        uid.clone_into(&mut self.uid);
        self
    }
}

/// What an event can be about: an object of any type, or a reference to one.
pub trait Referent {
    /// The reference to it.
    fn reference(&self) -> ObjectReference;
}

impl Referent for ObjectReference {
    fn reference(&self) -> ObjectReference {
        self.clone()
    }
}

impl<K: Accessor + Object> Referent for K {
    fn reference(&self) -> ObjectReference {
        let (gvk, identity) = (self.object_gvk(), self.identity());
        ObjectReference {
            kind: gvk.kind.to_string(),
            namespace: identity.namespace.to_owned(),
            name: identity.name.to_owned(),
            uid: identity.uid.to_owned(),
            api_version: gvk.api_version(),
            resource_version: identity.resource_version.to_owned(),
            field_path: String::new(),
        }
    }
}

/// With the feature `k8s-openapi` the reference of that crate can be used too.
#[cfg(feature = "k8s-openapi")]
impl From<&k8s_openapi::api::core::v1::ObjectReference> for ObjectReference {
    fn from(from: &k8s_openapi::api::core::v1::ObjectReference) -> Self {
        let text = |text: &Option<String>| text.clone().unwrap_or_default();
        ObjectReference {
            kind: text(&from.kind),
            namespace: text(&from.namespace),
            name: text(&from.name),
            uid: text(&from.uid),
            api_version: text(&from.api_version),
            resource_version: text(&from.resource_version),
            field_path: text(&from.field_path),
        }
    }
}
