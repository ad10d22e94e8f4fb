//! From one version to another: directly where a function says how, otherwise through the hub.

use std::any::{Any, TypeId, type_name};

use super::{AnyObject, ConvertError, NotRegistered, Scheme};
use crate::{GroupVersion, GroupVersionKind, names::INTERNAL_VERSION};

pub(super) type Convert = Box<dyn Fn(&dyn Any) -> Result<AnyObject, ConvertError> + Send + Sync>;

impl Scheme {
    /// Registers a function that converts one type to another. A later one takes the place of an earlier one.
    ///
    /// Its error is any text: it ends up in the answer to whoever sent the object.
    pub fn add_conversion<A, B>(&mut self, convert: impl Fn(&A) -> Result<B, String> + Send + Sync + 'static)
    where
        A: 'static,
        B: Send + Sync + 'static,
    {
        let convert = move |object: &dyn Any| match object.downcast_ref::<A>().map(&convert) {
            Some(Ok(converted)) => Ok(Box::new(converted) as AnyObject),
            Some(Err(error)) => Err(ConvertError::Failed(error)),
            None => Err(ConvertError::Unknown { from: "another type", to: type_name::<B>() }),
        };
        self.conversions.insert((TypeId::of::<A>(), TypeId::of::<B>()), Box::new(convert));
    }

    /// The same object as another type.
    ///
    /// # Errors
    /// No function converts the types and there is no way through a hub, or a function failed.
    pub fn convert<A: 'static, B: 'static>(&self, object: &A) -> Result<B, ConvertError> {
        let unknown = || ConvertError::Unknown { from: type_name::<A>(), to: type_name::<B>() };
        let converted = self.convert_any(object, TypeId::of::<B>()).unwrap_or_else(|| Err(unknown()))?;
        converted.downcast().map(|object| *object).map_err(|_| unknown())
    }

    /// The same object in another version, and what its kind is called there. Objects that need no conversion are
    /// copied.
    ///
    /// # Errors
    /// The kind is not registered in that version, or the conversion failed.
    pub fn convert_to_version(
        &self,
        object: &(dyn Any + Send + Sync),
        target: &GroupVersion,
    ) -> Result<(GroupVersionKind, AnyObject), ConvertError> {
        let from = (*object).type_id();
        let Some(info) = self.types.get(&from) else {
            return Err(NotRegistered::Type { type_name: self.type_name(from), scheme: self.name.clone() }.into());
        };
        let of_group = info.kinds.iter().filter(|gvk| gvk.group == target.group);
        let exact = of_group.clone().find(|gvk| gvk.version == target.version);
        let gvk = exact.cloned().or_else(|| of_group.clone().next().map(|gvk| target.with_kind(gvk.kind.clone())));
        let (gvk, to) = match (gvk, &info.unversioned) {
            // What has no version takes the one asked for, if it is of its group, and keeps its own otherwise.
            (Some(gvk), Some(_)) => (gvk, from),
            (None, Some(own)) => (own.clone(), from),
            (Some(gvk), None) => match self.kinds.get(&gvk) {
                Some(to) => (gvk, *to),
                None => return Err(NotRegistered::Kind { gvk, scheme: self.name.clone() }.into()),
            },
            (None, None) => {
                let (type_name, scheme) = (info.name, self.name.clone());
                return Err(NotRegistered::Target { type_name, target: target.clone(), scheme }.into());
            }
        };
        let unknown = || Err(ConvertError::Unknown { from: info.name, to: self.type_name(to) });
        Ok((gvk, self.convert_any(object, to).unwrap_or_else(unknown)?))
    }

    /// Converts to a type; nothing if there is no way.
    pub(super) fn convert_any(&self, object: &dyn Any, to: TypeId) -> Option<Result<AnyObject, ConvertError>> {
        let from = object.type_id();
        if from == to {
            return (self.types.get(&from)?.copy)(object).map(Ok);
        }
        if let Some(convert) = self.conversions.get(&(from, to)) {
            return Some(convert(object));
        }
        let kinds = &self.types.get(&from)?.kinds;
        kinds.iter().find_map(|gvk| {
            let hub = self.kinds.get(&gvk.group_kind().with_version(INTERNAL_VERSION))?;
            let (into, out) = (self.conversions.get(&(from, *hub))?, self.conversions.get(&(*hub, to))?);
            Some(into(object).and_then(|hub| out(hub.as_ref())))
        })
    }
}
