//! What was there before an update: where nothing has changed, nothing is wrong.

use crate::{
    Name, Value,
    field::Segment,
    schema::{ListType, NodeRef},
};

/// How many elements of lists are looked at to find those of before. Beyond that everything counts as changed.
const MAX_LOOKUPS: usize = 1 << 22;

/// The old value and the new, side by side.
#[derive(Debug)]
pub(super) struct Ratchet<'a> {
    node: NodeRef<'a>,
    new: &'a Value,
    old: &'a Value,
    /// The walk began below the root: then `kind` and `apiVersion` are fields like others.
    inner: bool,
    lookups: usize,
}

impl<'a> Ratchet<'a> {
    pub(super) fn new(node: NodeRef<'a>, new: &'a Value, old: &'a Value, inner: bool) -> Self {
        Ratchet { node, new, old, inner, lookups: 0 }
    }

    /// Whether the value at a path is what it was. Elements are found again only in lists that are maps.
    pub(super) fn is_unchanged(&mut self, path: &[Segment<'_>]) -> bool {
        if !self.inner && matches!(path.first(), Some(Segment::Child("kind" | "apiVersion"))) {
            return false;
        }
        let (mut node, mut new, mut old) = (self.node, self.new, self.old);
        for segment in path {
            let step = match segment {
                Segment::Child(name) | Segment::Key(name) => child(node, name).zip(new.get(name)).zip(old.get(name)),
                Segment::Index(index) => self.element(node, new, old, *index),
            };
            // What cannot be told apart is as it was if all around it is.
            let Some(((next_node, next_new), next_old)) = step else { return is_same(node, new, old) };
            (node, new, old) = (next_node, next_new, next_old);
        }
        is_same(node, new, old)
    }

    fn element(
        &mut self,
        node: NodeRef<'a>,
        new: &'a Value,
        old: &'a Value,
        index: usize,
    ) -> Option<((NodeRef<'a>, &'a Value), &'a Value)> {
        let (child, keys) = (node.items()?, node.list_map_keys());
        let (new, old) = (new.as_array()?.get(index)?, old.as_array()?);
        if node.list_type() != ListType::Map || self.lookups > MAX_LOOKUPS {
            return None;
        }
        // It is mostly where it was.
        let place = old.get(index).filter(|old| same_keys(new, old, keys));
        let found = place.or_else(|| {
            self.lookups += old.len();
            old.iter().find(|old| same_keys(new, old, keys))
        });
        found.map(|old| ((child, new), old))
    }
}

/// Whether a value of this schema is what it was. Lists that are maps may have been put in another order; an object
/// with a field that the schema does not know counts as changed.
#[must_use]
pub fn is_same(node: NodeRef<'_>, new: &Value, old: &Value) -> bool {
    match (new, old) {
        (Value::Object(new), Value::Object(old)) => {
            new.len() == old.len()
                && new.iter().all(|(name, new)| match (child(node, name), old.get(name)) {
                    (Some(node), Some(old)) => is_same(node, new, old),
                    _ => false,
                })
        }
        (Value::Array(new), Value::Array(old)) => match node.items() {
            Some(items) if node.list_type() == ListType::Map && new.len() * old.len() <= MAX_LOOKUPS => {
                let keys = node.list_map_keys();
                let found = |new: &Value| old.iter().find(|old| same_keys(new, old, keys));
                new.len() == old.len() && new.iter().all(|new| found(new).is_some_and(|old| is_same(items, new, old)))
            }
            _ => new == old,
        },
        _ => new == old,
    }
}

fn child<'a>(node: NodeRef<'a>, name: &str) -> Option<NodeRef<'a>> {
    node.field(name).map(|field| field.node).or_else(|| node.additional())
}

fn same_keys(a: &Value, b: &Value, keys: &[Name]) -> bool {
    keys.iter().all(|key| a.get(key) == b.get(key))
}
