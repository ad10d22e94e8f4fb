//! Defaults must be what a user could have written: pruned and valid.

use super::raw::{Step, Tree};
use crate::{
    Value,
    field::{Error, ErrorList},
    schema::{Schema, node::NodeId, prune, validate},
};

/// Checks all defaults of the structure. There are none to check in the values of maps, which upstream skips.
pub(super) fn check(tree: &Tree<'_>, schema: &Schema) -> ErrorList {
    let mut errors = Vec::new();
    // For each subschema whether its defaults are looked at, and whether they are about the metadata of a resource.
    let mut places: Vec<Option<bool>> = vec![None; tree.raws.len()];
    for (at, raw) in tree.raws.iter().enumerate() {
        if errors.len() >= super::MAX_ERRORS {
            break;
        }
        places[at] = match (places[raw.parent], raw.step) {
            _ if !raw.is_structure() => None,
            (_, Step::Root) => Some(false),
            (_, Step::Additional) | (None, _) => None,
            _ if raw.flag("x-kubernetes-embedded-resource") => Some(false),
            (Some(_), Step::Property("metadata" | "apiVersion" | "kind")) if is_resource(tree, raw.parent) => {
                Some(true)
            }
            (inside, _) => inside,
        };
        let (Some(inside_metadata), Some(default)) = (places[at], raw.get("default")) else {
            continue;
        };
        let id = NodeId::new(0, at).expect("the tree has no more subschemas than an arena has nodes");
        let schema = schema.rooted_at(id);
        let place = if inside_metadata {
            Place::Metadata
        } else if is_resource(tree, at) {
            Place::Resource
        } else {
            Place::Other
        };
        check_one(&tree.child(at, "default"), default, &schema, place, &mut errors);
    }
    errors
}

fn is_resource(tree: &Tree<'_>, at: usize) -> bool {
    at == 0 || tree.raws[at].flag("x-kubernetes-embedded-resource")
}

/// What a default is the default of.
#[derive(Clone, Copy, PartialEq)]
enum Place {
    Resource,
    /// Part of a resource's metadata, which is not the schema's to prune.
    Metadata,
    Other,
}

fn check_one(path: &str, default: &Value, schema: &Schema, place: Place, errors: &mut ErrorList) {
    let node = schema.root();
    if place != Place::Metadata {
        let is_resource = place == Place::Resource;
        let mut pruned = default.clone();
        prune::prune_at(&mut pruned, node, is_resource);
        if pruned != *default {
            errors.push(Error::invalid(path, default.clone(), "must not have unknown fields"));
        }
        let resources = validate::resources(node, default, path, is_resource);
        if !resources.is_empty() {
            errors.extend(resources);
            return;
        }
    }
    errors.extend(validate::default(node, default, path));
}
