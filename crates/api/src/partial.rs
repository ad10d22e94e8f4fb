//! Objects of which only the metadata is shown.

use serde::{Deserialize, Serialize};

use crate::{
    GroupVersion, GroupVersionKind, ObjectMeta, Status,
    object::ListMeta,
    scheme::{RegisterError, Scheme},
};

/// The group and version of what is made of other objects: tables and metadata.
pub const META_V1: GroupVersion = GroupVersion::from_static("meta.k8s.io", "v1");

/// The kind of an object of which only the metadata is shown.
pub const PARTIAL_OBJECT_METADATA: GroupVersionKind =
    GroupVersionKind::from_static("meta.k8s.io", "v1", "PartialObjectMetadata");

/// The kind of a list of objects of which only the metadata is shown.
pub const PARTIAL_OBJECT_METADATA_LIST: GroupVersionKind =
    GroupVersionKind::from_static("meta.k8s.io", "v1", "PartialObjectMetadataList");

/// The metadata of an object of any kind.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct PartialObjectMetadata {
    /// `PartialObjectMetadata`, or the kind of the object when a client keeps it so.
    #[serde(skip_serializing_if = "String::is_empty")]
    pub kind: String,
    /// The group and version that go with the kind.
    #[serde(skip_serializing_if = "String::is_empty")]
    pub api_version: String,
    /// The metadata.
    pub metadata: ObjectMeta,
}

impl From<ObjectMeta> for PartialObjectMetadata {
    fn from(metadata: ObjectMeta) -> Self {
        let gvk = PARTIAL_OBJECT_METADATA;
        PartialObjectMetadata { kind: gvk.kind.to_string(), api_version: gvk.api_version(), metadata }
    }
}

/// A list of the metadata of objects.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct PartialObjectMetadataList {
    /// `PartialObjectMetadataList`.
    #[serde(skip_serializing_if = "String::is_empty")]
    pub kind: String,
    /// The group and version that go with the kind.
    #[serde(skip_serializing_if = "String::is_empty")]
    pub api_version: String,
    /// The metadata of the list.
    pub metadata: ListMeta,
    /// The objects.
    pub items: Vec<PartialObjectMetadata>,
}

/// Appends an object of which only the metadata is shown, around metadata whose bytes exist already.
pub fn render(metadata: &[u8], out: &mut Vec<u8>) {
    out.extend_from_slice(br#"{"kind":"PartialObjectMetadata","apiVersion":"meta.k8s.io/v1","metadata":"#);
    out.extend_from_slice(metadata);
    out.push(b'}');
}

/// Registers what every API has: metadata alone, and `Status`, which is the same in every group and version.
///
/// # Errors
/// Other types are registered under these kinds.
pub fn add_to_scheme(scheme: &mut Scheme) -> Result<(), RegisterError> {
    scheme.add_known_type_with_name::<PartialObjectMetadata>(PARTIAL_OBJECT_METADATA)?;
    scheme.add_known_type_with_name::<PartialObjectMetadataList>(PARTIAL_OBJECT_METADATA_LIST)?;
    scheme.add_unversioned_type::<Status>(GroupVersionKind::from_static("", "v1", "Status"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn print_as_go() {
        let typed = serde_json::to_string(&PartialObjectMetadata::from(ObjectMeta::named("a"))).unwrap();
        let expected = r#"{"kind":"PartialObjectMetadata","apiVersion":"meta.k8s.io/v1","metadata":{"name":"a"}}"#;
        assert_eq!(typed, expected);
        let mut raw = Vec::new();
        render(br#"{"name":"a"}"#, &mut raw);
        assert_eq!(raw, expected.as_bytes());
        assert_eq!(serde_json::to_string(&PartialObjectMetadata::default()).unwrap(), r#"{"metadata":{}}"#);
        let list = PartialObjectMetadataList { items: vec![PartialObjectMetadata::default()], ..Default::default() };
        assert_eq!(serde_json::to_string(&list).unwrap(), r#"{"metadata":{},"items":[{"metadata":{}}]}"#);
    }

    #[test]
    fn read_through_a_scheme() {
        let mut scheme = Scheme::new("meta");
        add_to_scheme(&mut scheme).unwrap();
        let text =
            br#"{"kind":"PartialObjectMetadata","apiVersion":"meta.k8s.io/v1","metadata":{"name":"a"},"spec":{}}"#;
        assert_eq!(scheme.decode_as::<PartialObjectMetadata>(text).unwrap(), ObjectMeta::named("a").into());
        let status =
            scheme.decode_as::<Status>(br#"{"kind":"Status","apiVersion":"meta.k8s.io/v1","code":410}"#).unwrap();
        assert_eq!(status.code, 410);
    }
}
