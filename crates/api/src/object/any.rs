//! What objects of Rust types and objects of any kind have in common, for those who keep both.

use std::{borrow::Cow, fmt};

use serde::de::DeserializeOwned;

use super::{Encoded, Metadata as _, OwnerReference, Resource, encoded::Opened};
use crate::{
    GroupVersionKind, Map, Unstructured, Value, json, partial::PartialObjectMetadata, protobuf, selector::Selector,
    unstructured::nested,
};

/// Which object, and in which state.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Identity<'a> {
    /// The namespace; empty for objects of the cluster.
    pub namespace: &'a str,
    /// The name.
    pub name: &'a str,
    /// Tells this object from all others that ever had its name.
    pub uid: &'a str,
    /// The version of the object.
    pub resource_version: &'a str,
}

/// Bytes that are not an object of the type asked for.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ObjectError(String);

impl ObjectError {
    pub(super) fn of(error: impl fmt::Display) -> Self {
        ObjectError(error.to_string())
    }
}

impl fmt::Display for ObjectError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

impl std::error::Error for ObjectError {}

impl From<serde_json::Error> for ObjectError {
    fn from(error: serde_json::Error) -> Self {
        ObjectError(error.to_string())
    }
}

/// An object that caches can keep: of a Rust type that is a [`Resource`], or [`Unstructured`].
///
/// ```
/// use capstan_api::{Unstructured, object::Object};
///
/// let pod = Unstructured::decode(br#"{"kind":"Pod","metadata":{"name":"a","namespace":"b"}}"#).unwrap();
/// assert_eq!((pod.identity().namespace, pod.identity().name), ("b", "a"));
/// ```
pub trait Object: Send + Sync + Sized + 'static {
    /// Which object, and in which state.
    fn identity(&self) -> Identity<'_>;

    /// Whether its labels are selected.
    fn is_selected(&self, selector: &Selector) -> bool;

    /// Whom it belongs to.
    fn owners(&self) -> Cow<'_, [OwnerReference]>;

    /// Reads JSON, or protobuf in its envelope. Items of lists may lack their kind: `gvk` is what they are then.
    ///
    /// # Errors
    /// The bytes are not an object of this type.
    fn decode_as(bytes: &[u8], gvk: Option<&GroupVersionKind>) -> Result<Self, ObjectError>;

    /// Reads an object, whatever its form. Types that know nothing of protobuf see it as JSON.
    ///
    /// # Errors
    /// The bytes are not an object of this type.
    fn decode(encoded: Encoded<'_>, gvk: Option<&GroupVersionKind>) -> Result<Self, ObjectError> {
        match encoded.open(gvk)? {
            Opened::Json(text) => Self::decode_as(&text, gvk),
            Opened::Message { schema, message, gvk } => {
                let value = protobuf::decode_message(&schema, message).map_err(ObjectError::of)?;
                Self::decode_as(value.to_string().as_bytes(), Some(&gvk))
            }
        }
    }
}

impl<T: Resource + DeserializeOwned + Send + Sync + 'static> Object for T {
    fn identity(&self) -> Identity<'_> {
        let meta = self.meta();
        Identity {
            namespace: meta.namespace(),
            name: meta.name(),
            uid: meta.uid(),
            resource_version: meta.resource_version(),
        }
    }

    fn is_selected(&self, selector: &Selector) -> bool {
        selector.matches(self.meta().labels())
    }

    fn owners(&self) -> Cow<'_, [OwnerReference]> {
        self.meta().owner_references()
    }

    fn decode_as(bytes: &[u8], gvk: Option<&GroupVersionKind>) -> Result<Self, ObjectError> {
        <Self as Object>::decode(Encoded::new(bytes), gvk)
    }

    fn decode(encoded: Encoded<'_>, gvk: Option<&GroupVersionKind>) -> Result<Self, ObjectError> {
        match encoded.open(gvk)? {
            Opened::Json(text) => encoded.json(&text),
            Opened::Message { schema, message, gvk } => {
                // What the envelope says is not in the message: a type that is another would not notice.
                if gvk.kind != T::gvk().kind {
                    return Err(ObjectError(format!("expected a {} and not a {}", T::gvk().kind, gvk.kind)));
                }
                protobuf::from_message(&schema, message, encoded.wants_managed_fields()).map_err(ObjectError::of)
            }
        }
    }
}

/// The metadata alone, of an object of any kind. It is always JSON that is asked for.
impl Object for PartialObjectMetadata {
    fn identity(&self) -> Identity<'_> {
        Identity {
            namespace: self.metadata.namespace(),
            name: self.metadata.name(),
            uid: self.metadata.uid(),
            resource_version: self.metadata.resource_version(),
        }
    }

    fn is_selected(&self, selector: &Selector) -> bool {
        selector.matches(self.metadata.labels())
    }

    fn owners(&self) -> Cow<'_, [OwnerReference]> {
        self.metadata.owner_references()
    }

    fn decode_as(bytes: &[u8], gvk: Option<&GroupVersionKind>) -> Result<Self, ObjectError> {
        <Self as Object>::decode(Encoded::new(bytes), gvk)
    }

    fn decode(encoded: Encoded<'_>, gvk: Option<&GroupVersionKind>) -> Result<Self, ObjectError> {
        match encoded.open(gvk)? {
            Opened::Json(text) => encoded.json(&text),
            Opened::Message { schema, message, .. } => {
                protobuf::from_message(&schema, message, encoded.wants_managed_fields()).map_err(ObjectError::of)
            }
        }
    }
}

impl Object for Unstructured {
    fn identity(&self) -> Identity<'_> {
        Identity {
            namespace: self.namespace(),
            name: self.name(),
            uid: self.uid(),
            resource_version: self.resource_version(),
        }
    }

    fn is_selected(&self, selector: &Selector) -> bool {
        match nested::map(self.content(), &["metadata", "labels"]) {
            Ok(Some(labels)) => selector.matches(labels),
            _ => selector.matches(&Map::default()),
        }
    }

    fn owners(&self) -> Cow<'_, [OwnerReference]> {
        Cow::Owned(self.owner_references())
    }

    fn decode_as(bytes: &[u8], gvk: Option<&GroupVersionKind>) -> Result<Self, ObjectError> {
        <Self as Object>::decode(Encoded::new(bytes), gvk)
    }

    fn decode(encoded: Encoded<'_>, gvk: Option<&GroupVersionKind>) -> Result<Self, ObjectError> {
        let (value, known) = match encoded.open(gvk)? {
            Opened::Json(text) => (json::parse(&text)?, gvk.cloned()),
            Opened::Message { schema, message, gvk } => {
                (protobuf::decode_message(&schema, message).map_err(ObjectError::of)?, Some(gvk))
            }
        };
        let mut map = match value {
            Value::Object(map) => map,
            other => return Err(ObjectError(format!("expected an object and not a {}", other.type_name()))),
        };
        if !encoded.wants_managed_fields()
            && let Some(metadata) = map.get_mut("metadata").and_then(Value::as_object_mut)
        {
            metadata.remove("managedFields");
        }
        let mut object = Unstructured::from(map);
        match &known {
            Some(gvk) if object.kind().is_empty() => object.set_gvk(gvk),
            None if object.kind().is_empty() => return Err(ObjectError("Object 'Kind' is missing".to_owned())),
            _ => {}
        }
        Ok(object)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn objects_of_any_kind() {
        fn check(text: &str, kind: &str, expected: &str) {
            let gvk = (!kind.is_empty()).then(|| GroupVersionKind::new("", "v1", kind.to_owned()));
            let found = match Unstructured::decode_as(text.as_bytes(), gvk.as_ref()) {
                Ok(object) => {
                    let selected = object.is_selected(&"a=b".parse().unwrap());
                    format!("{} {} {selected}", object.kind(), object.identity().name)
                }
                Err(error) => error.to_string(),
            };
            assert_eq!(found, expected, "{text}");
        }
        check(r#"{"kind":"Pod","metadata":{"name":"x","labels":{"a":"b"}}}"#, "", "Pod x true");
        check(r#"{"kind":"Pod","metadata":{"name":"x","labels":3}}"#, "Node", "Pod x false");
        check(r#"{"metadata":{"name":"x"}}"#, "Node", "Node x false");
        check(r#"{"metadata":{"name":"x"}}"#, "", "Object 'Kind' is missing");
        check("[]", "", "expected an object and not a array");
        check("{", "", "unexpected end of JSON input");
    }
}
