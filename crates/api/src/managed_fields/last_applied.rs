//! The annotation in which kubectl kept what it applied, when it did so on its side.

use super::{FieldSet, compare, fields::field_set, types::Ty, validate::validate};
use crate::{Map, Value, json, validation::TOTAL_ANNOTATION_SIZE_LIMIT};

const ANNOTATION: &str = "kubectl.kubernetes.io/last-applied-configuration";

/// The manager to whom the annotation matters.
pub(super) const MANAGER: &str = "kubectl";

fn annotations(object: &Map) -> Option<&Map> {
    object.get("metadata")?.get("annotations")?.as_object()
}

/// Whether the object has the annotation.
pub(super) fn has(object: &Map) -> bool {
    text(object).is_some()
}

fn text(object: &Map) -> Option<&str> {
    annotations(object)?.get(ANNOTATION)?.as_str().filter(|text| !text.is_empty())
}

/// The fields that the annotation has as the object has them: kubectl may take them over.
pub(super) fn allowed(live: &Map, version: &str, ty: Ty<'_>) -> Option<FieldSet> {
    let config = json::parse(text(live)?.as_bytes()).ok()?;
    if config.get("apiVersion")?.as_str()? != version {
        return None;
    }
    validate(ty, &config).ok()?;
    let comparison = compare::compare(ty, config.as_object()?, live).ok()?;
    let set = field_set(ty, &config).ok()?;
    Some(set.difference(&comparison.modified).difference(&comparison.added).difference(&comparison.removed))
}

/// Sets the annotation, if the object still has it, to what was applied now.
pub(super) fn set(object: &mut Map, mut config: Value) {
    if !has(object) {
        return;
    }
    let annotations = config.get_mut("metadata").and_then(|metadata| metadata.get_mut("annotations")?.as_object_mut());
    if let Some(annotations) = annotations {
        annotations.remove(ANNOTATION);
    }
    let mut text = super::element::escaped(&config);
    text.push('\n');
    let Some(annotations) =
        object.get_mut("metadata").and_then(|metadata| metadata.get_mut("annotations")?.as_object_mut())
    else {
        return;
    };
    annotations.insert(ANNOTATION, text);
    let size: usize = annotations.iter().map(|(key, value)| key.len() + value.as_str().map_or(0, str::len)).sum();
    if size > TOTAL_ANNOTATION_SIZE_LIMIT {
        annotations.remove(ANNOTATION);
    }
}
