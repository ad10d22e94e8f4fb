//! Metadata of custom resources and of resources inside of them: it is what Go's type for it takes, whatever the schema
//! says.

use std::sync::LazyLock;

use capstan_api::{
    GroupVersionKind, Map, Value, builtin,
    codec::{StrictError, StrictErrors},
    field::{self, Error, Segment},
    json,
    schema::{NodeRef, Schema},
};

const CONFIG_MAP: GroupVersionKind = GroupVersionKind::from_static("", "v1", "ConfigMap");

/// The type of all metadata.
static OBJECT_META: LazyLock<Schema> = LazyLock::new(|| {
    let schema = builtin::schema(&CONFIG_MAP).expect("ConfigMap is built in");
    let id = schema.root().field("metadata").expect("all kinds have metadata").node.id();
    schema.rooted_at(id)
});

/// Reads the metadata of an object again as what it must be, and adds what is unknown in it to `strict`.
///
/// # Errors
/// Go's words about what it cannot be.
pub(super) fn metadata(object: &mut Map, prefix: &str, strict: &mut StrictErrors) -> Result<(), String> {
    let Some(metadata) = object.get_mut("metadata") else { return Ok(()) };
    let decoded = OBJECT_META.decode(json::to_string(metadata).as_bytes()).map_err(|error| error.to_string())?;
    *metadata = match decoded.value {
        Value::Object(map) => map.into(),
        _ => Map::new().into(),
    };
    for error in decoded.strict.as_slice() {
        strict.push(match error {
            StrictError::Unknown(path) => StrictError::Unknown(format!("{prefix}metadata.{path}")),
            StrictError::Duplicate(path) => StrictError::Duplicate(format!("{prefix}metadata.{path}")),
            StrictError::Other(words) => StrictError::Other(words.clone()),
        });
    }
    Ok(())
}

/// A value that waits to be looked at, and the way to it.
struct Place<'v, 's> {
    value: &'v mut Value,
    node: NodeRef<'s>,
    trail: Option<usize>,
}

/// Reads the metadata of all resources inside of an object again.
///
/// # Errors
/// What a resource has and cannot have.
pub(super) fn embedded(object: &mut Map, schema: &Schema, strict: &mut StrictErrors) -> Result<(), String> {
    let mut trail: Vec<(Option<usize>, Step)> = Vec::new();
    let mut waiting = Vec::new();
    children(object, schema.root(), None, &mut trail, &mut waiting);
    while let Some(Place { value, node, trail: at }) = waiting.pop() {
        match value {
            Value::Object(map) => {
                if node.is_embedded_resource() {
                    resource(map, &trail, at, strict)?;
                }
                children(map, node, at, &mut trail, &mut waiting);
            }
            Value::Array(items) => {
                let Some(child) = node.items() else { continue };
                for (index, value) in items.iter_mut().enumerate() {
                    trail.push((at, Step::Index(index)));
                    waiting.push(Place { value, node: child, trail: Some(trail.len() - 1) });
                }
            }
            _ => {}
        }
    }
    Ok(())
}

/// One step of a path.
enum Step {
    Child(String),
    Key(String),
    Index(usize),
}

fn children<'v, 's>(
    map: &'v mut Map,
    node: NodeRef<'s>,
    at: Option<usize>,
    trail: &mut Vec<(Option<usize>, Step)>,
    waiting: &mut Vec<Place<'v, 's>>,
) {
    for (name, value) in map.iter_mut().filter(|(_, value)| matches!(value, Value::Object(_) | Value::Array(_))) {
        let (child, step) = match (node.field(name), node.additional()) {
            (Some(field), _) => (field.node, Step::Child(name.to_owned())),
            (None, Some(child)) => (child, Step::Key(name.to_owned())),
            (None, None) => continue,
        };
        trail.push((at, step));
        waiting.push(Place { value, node: child, trail: Some(trail.len() - 1) });
    }
}

fn resource(
    map: &mut Map,
    trail: &[(Option<usize>, Step)],
    at: Option<usize>,
    strict: &mut StrictErrors,
) -> Result<(), String> {
    let path = |last: &str| render(trail, at, last);
    for key in ["apiVersion", "kind"] {
        if let Some(value) = map.get(key).filter(|value| value.as_str().is_none()) {
            return Err(Error::invalid(path(key), value.clone(), "must be a string").to_string());
        }
    }
    let before = map.get("metadata").cloned();
    let prefix = path("metadata");
    let prefix = prefix.strip_suffix("metadata").unwrap_or_default();
    metadata(map, prefix, strict)
        .map_err(|error| Error::invalid(path("metadata"), before.unwrap_or_default(), error).to_string())?;
    if let Some(Value::Object(metadata)) = map.get_mut("metadata")
        && metadata.get("creationTimestamp").is_some_and(Value::is_null)
    {
        metadata.remove("creationTimestamp");
    }
    Ok(())
}

fn render(trail: &[(Option<usize>, Step)], mut at: Option<usize>, last: &str) -> String {
    let mut steps = vec![Segment::Child(last)];
    while let Some((before, step)) = at.and_then(|at| trail.get(at)) {
        steps.push(match step {
            Step::Child(name) => Segment::Child(name),
            Step::Key(name) => Segment::Key(name),
            Step::Index(index) => Segment::Index(*index),
        });
        at = *before;
    }
    field::render(steps.into_iter().rev())
}
