//! What a new object is before anything is written into it.

use crate::{
    Map, Value,
    schema::{Absent, NodeRef, Schema},
};

/// The object as Go encodes it when nothing is set. For users' kinds that is nothing at all.
pub(super) fn zero_object(schema: &Schema) -> Map {
    let root = schema.root();
    if root.full_type_name().is_none() {
        return Map::new();
    }
    let mut map = fields(root);
    // Kinds always have metadata, and it is a struct.
    map.get_or_insert_with("metadata", || Map::new().into());
    map
}

fn fields(node: NodeRef<'_>) -> Map {
    let mut map = Map::new();
    // Go's structs cannot be in themselves, so this ends.
    for field in node.fields() {
        match (field.node.absent(), field.node.zero()) {
            (Absent::Omitted, _) => {}
            (Absent::Null, _) | (Absent::Zero, None) => drop(map.insert(field.name.as_str(), Value::Null)),
            (Absent::Zero, Some(Value::Object(_))) => drop(map.insert(field.name.as_str(), fields(field.node))),
            (Absent::Zero, Some(zero)) => drop(map.insert(field.name.as_str(), zero.clone())),
        }
    }
    map
}
