//! The metadata of objects and lists.

use std::collections::BTreeMap;

use serde::{Deserialize, Deserializer, Serialize, Serializer};

use super::{OwnerReference, nullable};
use crate::{GroupVersionKind, Time, Value};

/// What an object says about its own type.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct TypeMeta {
    /// The kind: `Deployment`.
    #[serde(deserialize_with = "nullable::value", skip_serializing_if = "String::is_empty")]
    pub kind: String,
    /// The group and version: `apps/v1`.
    #[serde(deserialize_with = "nullable::value", skip_serializing_if = "String::is_empty")]
    pub api_version: String,
}

impl From<&GroupVersionKind> for TypeMeta {
    fn from(gvk: &GroupVersionKind) -> Self {
        TypeMeta { kind: gvk.kind.to_string(), api_version: gvk.api_version() }
    }
}

impl TypeMeta {
    /// The full name of the type; group and version are empty if `apiVersion` cannot be read.
    #[must_use]
    pub fn gvk(&self) -> GroupVersionKind {
        GroupVersionKind::from_api_version_and_kind(&self.api_version, &self.kind)
    }
}

/// The metadata of an object.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct ObjectMeta {
    /// The name, unique among the objects of a kind in a namespace.
    #[serde(deserialize_with = "nullable::value", skip_serializing_if = "String::is_empty")]
    pub name: String,
    /// How the name shall begin, if the server is to make one up.
    #[serde(deserialize_with = "nullable::value", skip_serializing_if = "String::is_empty")]
    pub generate_name: String,
    /// The namespace; empty for objects of the cluster.
    #[serde(deserialize_with = "nullable::value", skip_serializing_if = "String::is_empty")]
    pub namespace: String,
    /// No longer filled in.
    #[serde(deserialize_with = "nullable::value", skip_serializing_if = "String::is_empty")]
    pub self_link: String,
    /// Tells this object from all others that ever had its name.
    #[serde(deserialize_with = "nullable::value", skip_serializing_if = "String::is_empty")]
    pub uid: String,
    /// Changes with each write; only to be compared for equality.
    #[serde(deserialize_with = "nullable::value", skip_serializing_if = "String::is_empty")]
    pub resource_version: String,
    /// Counts the changes of what is wanted.
    #[serde(deserialize_with = "nullable::value", skip_serializing_if = "is_zero")]
    pub generation: i64,
    /// When the object was made.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub creation_timestamp: Option<Time>,
    /// By when the object is to be gone; set once its deletion has been asked for.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub deletion_timestamp: Option<Time>,
    /// How long the object may take to end.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub deletion_grace_period_seconds: Option<i64>,
    /// What the object can be selected by.
    #[serde(deserialize_with = "nullable::strings", skip_serializing_if = "BTreeMap::is_empty")]
    pub labels: BTreeMap<String, String>,
    /// What tools keep at the object.
    #[serde(deserialize_with = "nullable::strings", skip_serializing_if = "BTreeMap::is_empty")]
    pub annotations: BTreeMap<String, String>,
    /// Whose part this object is.
    #[serde(deserialize_with = "nullable::value", skip_serializing_if = "Vec::is_empty")]
    pub owner_references: Vec<OwnerReference>,
    /// Who still has to do something before the object may go.
    #[serde(deserialize_with = "nullable::value", skip_serializing_if = "Vec::is_empty")]
    pub finalizers: Vec<String>,
    /// Who manages which fields.
    #[serde(deserialize_with = "nullable::value", skip_serializing_if = "Vec::is_empty")]
    pub managed_fields: Vec<ManagedFieldsEntry>,
}

impl ObjectMeta {
    /// The metadata of an object in the cluster, or whose namespace is not known yet.
    pub fn named(name: impl Into<String>) -> Self {
        ObjectMeta { name: name.into(), ..ObjectMeta::default() }
    }

    /// The metadata of an object in a namespace.
    pub fn namespaced(namespace: impl Into<String>, name: impl Into<String>) -> Self {
        ObjectMeta { namespace: namespace.into(), ..ObjectMeta::named(name) }
    }
}

#[expect(clippy::trivially_copy_pass_by_ref, reason = "serde passes a reference")]
fn is_zero(n: &i64) -> bool {
    *n == 0
}

/// The metadata of a list.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct ListMeta {
    /// No longer filled in.
    #[serde(deserialize_with = "nullable::value", skip_serializing_if = "String::is_empty")]
    pub self_link: String,
    /// The version of the whole that the list shows; a watch goes on from here.
    #[serde(deserialize_with = "nullable::value", skip_serializing_if = "String::is_empty")]
    pub resource_version: String,
    /// What to send to get the next part of the list; empty at its end.
    #[serde(rename = "continue", deserialize_with = "nullable::value", skip_serializing_if = "String::is_empty")]
    pub continue_token: String,
    /// How many objects come after this part, if that is known.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub remaining_item_count: Option<i64>,
    /// Which share of the objects the list shows, if not all.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub shard_info: Option<ShardInfo>,
}

/// The share of objects that a list shows.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct ShardInfo {
    /// The selector of the share.
    #[serde(deserialize_with = "nullable::value")]
    pub selector: String,
}

/// Which fields one manager has set, in one version and by one way of writing.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct ManagedFieldsEntry {
    /// Who.
    #[serde(deserialize_with = "nullable::value", skip_serializing_if = "String::is_empty")]
    pub manager: String,
    /// How: `Apply` or `Update`.
    #[serde(deserialize_with = "nullable::value", skip_serializing_if = "String::is_empty")]
    pub operation: String,
    /// The version in which the fields are named.
    #[serde(deserialize_with = "nullable::value", skip_serializing_if = "String::is_empty")]
    pub api_version: String,
    /// When the manager last changed its set of fields.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub time: Option<Time>,
    /// The format of the fields: `FieldsV1`.
    #[serde(deserialize_with = "nullable::value", skip_serializing_if = "String::is_empty")]
    pub fields_type: String,
    /// The fields.
    #[serde(rename = "fieldsV1", skip_serializing_if = "Option::is_none")]
    pub fields_v1: Option<FieldsV1>,
    /// Through which subresource, if not the object itself.
    #[serde(deserialize_with = "nullable::value", skip_serializing_if = "String::is_empty")]
    pub subresource: String,
}

/// A set of fields as a tree: `{"f:spec":{"f:replicas":{}}}`.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct FieldsV1(pub Value);

impl Serialize for FieldsV1 {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        self.0.serialize(serializer)
    }
}

impl<'de> Deserialize<'de> for FieldsV1 {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        Value::deserialize(deserializer).map(FieldsV1)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn check<T: Serialize + serde::de::DeserializeOwned>(text: &str, expected: &str) {
        let read: T = serde_json::from_str(text).unwrap();
        assert_eq!(serde_json::to_string(&read).unwrap(), expected, "{text}");
    }

    /// As Go prints what it has read.
    #[test]
    fn empty_fields_are_left_out_and_null_is_empty() {
        check::<ObjectMeta>("{}", "{}");
        check::<ObjectMeta>(
            r#"{"name":null,"labels":null,"ownerReferences":null,"generation":null,"creationTimestamp":null}"#,
            "{}",
        );
        check::<ObjectMeta>(r#"{"name":"","labels":{},"finalizers":[],"generation":0}"#, "{}");
        check::<ObjectMeta>(r#"{"labels":{"a":null}}"#, r#"{"labels":{"a":""}}"#);
        check::<ObjectMeta>(r#"{"deletionGracePeriodSeconds":0}"#, r#"{"deletionGracePeriodSeconds":0}"#);
        check::<ListMeta>(r#"{"continue":"x","remainingItemCount":0}"#, r#"{"continue":"x","remainingItemCount":0}"#);
        check::<ListMeta>(r#"{"resourceVersion":"","shardInfo":{}}"#, r#"{"shardInfo":{"selector":""}}"#);
        check::<OwnerReference>("{}", r#"{"apiVersion":"","kind":"","name":"","uid":""}"#);
        check::<TypeMeta>(r#"{"apiVersion":"v1","kind":"Pod"}"#, r#"{"kind":"Pod","apiVersion":"v1"}"#);
        let entry = r#"{"manager":"m","operation":"Apply","apiVersion":"v1","time":"2026-01-02T03:04:05Z","fieldsType":"FieldsV1","fieldsV1":{"f:spec":{"f:n":{}}}}"#;
        check::<ManagedFieldsEntry>(entry, entry);
    }

    #[test]
    fn fields_come_in_the_order_of_go() {
        check::<ObjectMeta>(
            r#"{"annotations":{"x":"y"},"labels":{"b":"1","a":"2"},"uid":"u","namespace":"n","name":"o","generation":3,
               "resourceVersion":"7","creationTimestamp":"2026-01-02T03:04:05Z","finalizers":["f"]}"#,
            r#"{"name":"o","namespace":"n","uid":"u","resourceVersion":"7","generation":3,"creationTimestamp":"2026-01-02T03:04:05Z","labels":{"a":"2","b":"1"},"annotations":{"x":"y"},"finalizers":["f"]}"#,
        );
    }
}
