//! From what is stored to what is served, and back: other versions, and objects that were written under another schema.

use std::sync::Arc;

use capstan_api::{
    Map, Name, Str, Value, json,
    schema::{
        default::{default, drop_nulls},
        prune::prune,
    },
};

use super::definition::{Definition, Served};
use crate::{
    cache::{FieldPaths, SelectableFields},
    registry::encode,
};

/// Takes objects out of the store as the definition has them now.
///
/// An object may have been written under another schema, or in a version that is no longer the one that is stored. What
/// the present schema does not know goes, what it fills in comes. This is done once, when an object comes from the
/// store, so that reads serve bytes.
pub struct Stored {
    definition: Arc<Definition>,
    fields: FieldPaths,
}

impl Stored {
    /// The objects of a definition.
    #[must_use]
    pub fn new(definition: Arc<Definition>) -> Self {
        let mut paths: Vec<Name> =
            definition.versions.iter().flat_map(|version| version.selectable.iter().cloned()).collect();
        paths.sort_unstable();
        paths.dedup();
        Stored { definition, fields: FieldPaths::new(paths) }
    }
}

impl SelectableFields for Stored {
    fn extract(&self, object: &[u8]) -> Vec<(Name, Str)> {
        self.fields.extract(object)
    }

    fn normalize(&self, object: &[u8]) -> Option<Vec<u8>> {
        let Ok(Value::Object(before)) = json::parse(object) else { return None };
        let after = normalize(&self.definition, before.clone());
        (after != before).then(|| encode(&after))
    }
}

/// The object in the version that is stored, with the present schema's defaults and nothing that it does not know.
pub(crate) fn normalize(definition: &Definition, object: Map) -> Map {
    let text = object.get("apiVersion").and_then(Value::as_str).unwrap_or_default();
    let version = text.rsplit('/').next().unwrap_or_default();
    let storage = definition.storage();
    let written = definition.versions.iter().position(|one| *one.name == *version).unwrap_or(storage);
    let mut object = Value::Object(object);
    fit(definition, written, &mut object);
    default(&mut object, definition.schema(written));
    let Value::Object(mut object) = object else { return Map::new() };
    if written != storage {
        object = rewrite(definition, storage, object);
    }
    object
}

/// Gives an object another version, whose schema may know less.
fn rewrite(definition: &Definition, at: usize, mut object: Map) -> Map {
    object.insert("apiVersion", definition.gvk(at).api_version());
    let mut object = Value::Object(object);
    fit(definition, at, &mut object);
    match object {
        Value::Object(object) => object,
        _ => Map::new(),
    }
}

fn fit(definition: &Definition, at: usize, object: &mut Value) {
    let schema = definition.schema(at);
    prune(object, schema);
    drop_nulls(object, schema);
}

impl Served {
    /// A stored object in this version.
    #[must_use]
    pub fn from_storage(&self, object: Map) -> Map {
        let definition = self.definition();
        let at = definition.versions.iter().position(|version| version.name == self.version().name);
        rewrite(definition, at.unwrap_or_default(), object)
    }

    /// An object of this version as it is stored.
    #[must_use]
    pub fn to_storage(&self, object: Map) -> Map {
        rewrite(self.definition(), self.definition().storage(), object)
    }
}
