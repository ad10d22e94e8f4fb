//! Taking out of an object what its manager applied the last time but not now.

use super::{
    FieldSet, MAX_DEPTH, PathElement,
    set::Node,
    types::{Relation, Shape, Ty},
};
use crate::Value;

/// Takes out of `object` what is in `last` and nobody has among `managed`, of which each is what a manager owns now.
///
/// This is what upstream comes to by taking out all of `last`, putting back what is owned, and then what was lost with
/// it though `last` did not have it; without the copies of the object, as long as all sets are of one version and the
/// object [has no empty list](has_empty_list).
pub(super) fn prune(ty: Ty<'_>, object: &mut Value, last: &FieldSet, managed: &[&FieldSet]) {
    Pruner::default().inside(ty, object, last, managed, 0);
}

/// What is known of what the present place is in.
#[derive(Clone, Copy, Default)]
struct Pruner {
    /// Some of it was applied the last time.
    applied: bool,
    /// Some of it is owned no more, and is in what was applied: it would be lost with all that is in it.
    lost: bool,
}

impl Pruner {
    fn inside(self, ty: Ty<'_>, value: &mut Value, last: &FieldSet, managed: &[&FieldSet], depth: usize) {
        let shape = ty.shape(Some(value), depth);
        let emptied = match (shape, &mut *value) {
            (Shape::Map(fields), Value::Object(map)) if !fields.atomic => {
                let before = map.len();
                for node in last.nodes.iter().filter(|node| !self.stays(node, managed)) {
                    let PathElement::Field(key) = &node.element else { continue };
                    let (ty, known) = fields.at(key).unwrap_or((Ty::Deduced, false));
                    if let Some(value) = map.get_mut(key)
                        && self.takes(node, managed, ty, value, Some(known), depth + 1)
                    {
                        map.remove(key);
                    }
                }
                before > 0 && map.is_empty()
            }
            (Shape::List(list), Value::Array(items)) if !matches!(list.relation, Relation::Atomic) => {
                let before = items.len();
                let elements: Vec<_> = items.iter().map(|item| list.path_element(item).ok()).collect();
                let mut sorted: Vec<_> = elements.iter().flatten().collect();
                sorted.sort_unstable();
                let is_twice = |element: &PathElement| {
                    let at = sorted.partition_point(|other| *other < element);
                    sorted.get(at + 1).is_some_and(|other| *other == element)
                };
                let mut elements = elements.iter();
                items.retain_mut(|item| {
                    let Some(element) = elements.next().and_then(Option::as_ref) else { return true };
                    let Some(node) = last.find(element).filter(|node| !self.stays(node, managed)) else { return true };
                    // What cannot be told apart is one value.
                    let alone;
                    let node = if node.children.is_empty() || !is_twice(element) {
                        node
                    } else {
                        alone = Node { element: element.clone(), member: node.member, children: FieldSet::new() };
                        &alone
                    };
                    !self.takes(node, managed, list.element, item, None, depth + 1)
                });
                before > 0 && items.is_empty()
            }
            _ => false,
        };
        if emptied {
            *value = Value::Null;
        }
    }

    /// Whether one has all that `node` has. That is so for most of what is applied.
    fn stays(self, node: &Node, managed: &[&FieldSet]) -> bool {
        let has = |same: &Node| (same.member || !node.member) && node.children.is_subset(&same.children);
        !self.lost && managed.iter().filter_map(|set| set.find(&node.element)).any(has)
    }

    /// Whether the value that `node` is of goes; if not, what goes of it is taken out. `known` is whether it is a known
    /// field, if it is a field.
    fn takes(
        self,
        node: &Node,
        managed: &[&FieldSet],
        ty: Ty<'_>,
        value: &mut Value,
        known: Option<bool>,
        depth: usize,
    ) -> bool {
        // A known field is owned with what is in it.
        let has = |node: &Node| node.member || known == Some(true) && !node.children.is_empty();
        let is_applied = has(node);
        let managed: Vec<&Node> = managed.iter().filter_map(|set| set.find(&node.element)).collect();
        let applied = self.applied || is_applied;
        let lost = self.lost || applied && !managed.iter().any(|node| has(node));
        if is_applied && lost {
            return true;
        }
        if !node.children.is_empty() {
            let managed: Vec<&FieldSet> = managed.iter().map(|node| &node.children).collect();
            Pruner { applied, lost }.inside(ty, value, &node.children, &managed, depth);
        }
        false
    }
}

/// Whether there is an empty list somewhere, down to a depth that nobody comes near. It is a field to nobody, and what
/// has nothing else in it is none either: then what is lost cannot be told from the sets alone.
pub(super) fn has_empty_list(value: &Value, depth: usize) -> bool {
    match value {
        Value::Array(items) => {
            depth >= MAX_DEPTH || items.is_empty() || items.iter().any(|item| has_empty_list(item, depth + 1))
        }
        Value::Object(map) => depth >= MAX_DEPTH || map.values().any(|value| has_empty_list(value, depth + 1)),
        _ => false,
    }
}
