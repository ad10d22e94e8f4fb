//! Keeps the published definition up with the custom resources that are served.

use std::{collections::HashMap, sync::PoisonError};

use capstan_api::{GroupVersionKind, Value, json};
use capstan_storage::Revision;

use super::{CustomResource, OpenApi};
use crate::{
    custom::controller,
    registry::{Registry, Resource},
};

/// What was made of each version of a definition, as of its revision; nothing of what cannot be published.
pub(super) type Made = HashMap<(GroupVersionKind, Revision), Option<CustomResource>>;

impl OpenApi {
    /// Publishes the custom resources that are served now. Only definitions that have changed since the last time are
    /// read.
    pub(crate) fn follow(&self, registry: &Registry) {
        let served = registry.custom();
        let key =
            |resource: &Resource| Some((resource.gvk.clone(), resource.as_custom()?.definition().source().revision));
        let keys: Vec<_> = served.iter().filter_map(|resource| Some((key(resource)?, resource))).collect();
        let mut made = self.made.lock().unwrap_or_else(PoisonError::into_inner);
        if keys.len() == made.len() && keys.iter().all(|(key, _)| made.contains_key(key)) {
            return;
        }
        let mut before = std::mem::take(&mut *made);
        *made = keys
            .into_iter()
            .map(|(key, resource)| {
                let one = before.remove(&key).unwrap_or_else(|| custom_resource(resource));
                (key, one)
            })
            .collect();
        let mut all: Vec<CustomResource> = made.values().flatten().cloned().collect();
        all.sort_by(|a, b| {
            (&a.resource.group_version, &a.resource.resource).cmp(&(&b.resource.group_version, &b.resource.resource))
        });
        self.set_custom(all);
    }
}

fn custom_resource(resource: &Resource) -> Option<CustomResource> {
    let definition = resource.as_custom()?.definition();
    let row = controller::rows(definition).into_iter().find(|row| row.group_version.version == resource.gvk.version)?;
    let crd = json::parse(&definition.source().json).ok();
    let versions = crd.as_ref().and_then(|crd| crd.get("spec")?.get("versions")?.as_array());
    let is_it = |version: &&Value| version.get("name").and_then(Value::as_str) == Some(resource.gvk.version.as_str());
    let version = versions.and_then(|versions| versions.iter().find(is_it));
    let schema = version.and_then(|version| version.get("schema")?.get("openAPIV3Schema")).cloned();
    let selectable = version.and_then(|version| version.get("selectableFields")?.as_array());
    let path = |field: &Value| Some(field.get("jsonPath")?.as_str()?.trim_start_matches('.').to_owned());
    let selectable_fields = selectable.into_iter().flatten().filter_map(path).collect();
    Some(CustomResource { resource: row, list_kind: resource.list_gvk.kind.clone(), schema, selectable_fields })
}
