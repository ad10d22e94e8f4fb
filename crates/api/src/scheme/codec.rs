//! Between bytes and objects of registered types.

use std::any::{Any, TypeId, type_name};

use super::{AnyObject, ConvertError, DecodeError, NotRegistered, Scheme};
use crate::{GroupVersion, GroupVersionKind, Map, Value, json};

/// An object that was read, and what it said it was.
#[derive(Debug)]
pub struct Decoded {
    /// The kind that the bytes named.
    pub gvk: GroupVersionKind,
    /// The object, of the type that stands for the kind.
    pub object: AnyObject,
}

impl Decoded {
    /// The object, if it is of this type.
    #[must_use]
    pub fn downcast_ref<T: 'static>(&self) -> Option<&T> {
        self.object.downcast_ref()
    }
}

impl Scheme {
    /// Reads JSON into the type that stands for the kind it names, and fills in what is missing.
    ///
    /// # Errors
    /// The bytes are not JSON, name no kind, or one that is not registered, or are not what its type expects.
    pub fn decode(&self, data: &[u8]) -> Result<Decoded, DecodeError> {
        let value = json::parse(data).map_err(DecodeError::Json)?;
        let gvk = interpret(&value)?;
        let text = || String::from_utf8_lossy(data).into_owned();
        if gvk.kind.is_empty() {
            return Err(DecodeError::MissingKind(text()));
        }
        if gvk.version.is_empty() {
            return Err(DecodeError::MissingVersion(text()));
        }
        let id = self.kinds.get(&gvk).or_else(|| self.unversioned_kinds.get(&gvk.kind));
        let codec = id.and_then(|id| self.types.get(id)?.codec);
        let Some(codec) = codec else {
            return Err(NotRegistered::Kind { gvk, scheme: self.name.clone() }.into());
        };
        let mut object = (codec.read)(&value).map_err(DecodeError::Shape)?;
        self.default_any(object.as_mut());
        Ok(Decoded { gvk, object })
    }

    /// Reads JSON of any version of a kind as one type, converting it if need be.
    ///
    /// # Errors
    /// As [`decode`](Self::decode); or what was read could not be converted.
    pub fn decode_as<T: 'static>(&self, data: &[u8]) -> Result<T, DecodeError> {
        let decoded = self.decode(data)?;
        let from = self.type_name((*decoded.object).type_id());
        match decoded.object.downcast::<T>() {
            Ok(object) => Ok(*object),
            Err(object) => {
                let unknown = || ConvertError::Unknown { from, to: type_name::<T>() };
                let to = TypeId::of::<T>();
                let converted = self.convert_any(object.as_ref(), to).unwrap_or_else(|| Err(unknown()))?;
                converted.downcast().map(|object| *object).map_err(|_| unknown().into())
            }
        }
    }

    /// Writes an object as JSON, in a version: converted if need be, and with that kind and version in it.
    ///
    /// # Errors
    /// The kind is not registered in that version, or the conversion failed, or the type does not serialize.
    pub fn encode<T: Send + Sync + 'static>(&self, object: &T, target: &GroupVersion) -> Result<Vec<u8>, ConvertError> {
        let (gvk, object) = match self.convert_to_version(object, target) {
            // Here the type is known even if it is not registered.
            Err(ConvertError::NotRegistered(NotRegistered::Type { scheme, .. })) => {
                return Err(NotRegistered::Type { type_name: type_name::<T>(), scheme }.into());
            }
            converted => converted?,
        };
        let mut out = Vec::new();
        json::write(&self.value_of(object.as_ref(), &gvk)?, &mut out);
        Ok(out)
    }

    /// An object as a tree that says what it is.
    pub(super) fn value_of(&self, object: &dyn Any, gvk: &GroupVersionKind) -> Result<Value, ConvertError> {
        let codec = self.types.get(&object.type_id()).and_then(|info| info.codec);
        let Some(codec) = codec else {
            return Err(NotRegistered::Kind { gvk: gvk.clone(), scheme: self.name.clone() }.into());
        };
        let mut value = (codec.write)(object).map_err(|error| ConvertError::Failed(error.to_string()))?;
        if let Value::Object(map) = &mut value {
            map.insert("apiVersion", gvk.api_version());
            map.insert("kind", gvk.kind.as_str());
        }
        Ok(value)
    }
}

/// What an object says it is.
fn interpret(value: &Value) -> Result<GroupVersionKind, DecodeError> {
    let map = match value {
        Value::Object(map) => map,
        Value::Null => return Ok(GroupVersionKind::default()),
        other => {
            let found = crate::unstructured::go_word(other);
            return Err(DecodeError::TypeMeta(format!(
                r#"{found} into Go value of type struct {{ APIVersion string "json:\"apiVersion,omitempty\""; Kind string "json:\"kind,omitempty\"" }}"#
            )));
        }
    };
    let api_version: GroupVersion = text(map, "apiVersion")?.parse().map_err(DecodeError::GroupVersion)?;
    Ok(api_version.with_kind(text(map, "kind")?))
}

fn text<'a>(map: &'a Map, field: &str) -> Result<&'a str, DecodeError> {
    match map.get(field) {
        None | Some(Value::Null) => Ok(""),
        Some(Value::String(text)) => Ok(text),
        Some(other) => {
            let found = crate::unstructured::go_word(other);
            Err(DecodeError::TypeMeta(format!("{found} into Go struct field .{field} of type string")))
        }
    }
}
