//! Pruning: fields that the schema does not know are taken out of an object.

use super::{NodeRef, Schema};
use crate::Value;

/// How many bytes of unknown fields' paths are kept; those beyond are pruned without being named.
const MAX_PATHS: usize = 1 << 20;

/// The fields that every resource has, whatever its schema says.
const META: [&str; 3] = ["apiVersion", "kind", "metadata"];

/// Prunes a whole resource and returns the paths of what was unknown, sorted: `spec.foo`, `spec.list[0].bar`.
///
/// `apiVersion`, `kind` and `metadata` stay as they are, at the root and in embedded resources: what of metadata is
/// known is not the schema's to say.
pub fn prune(object: &mut Value, schema: &Schema) -> Vec<String> {
    prune_at(object, schema.root(), true)
}

/// Prunes a value that is described by `node`, at `is_resource` as a whole resource.
pub fn prune_at(value: &mut Value, node: NodeRef<'_>, is_resource: bool) -> Vec<String> {
    let mut unknown = Unknown::default();
    let mut waiting = vec![Place { value, node: Some(node), is_resource, keep: false, trail: NOWHERE }];
    while let Some(place) = waiting.pop() {
        place.visit(&mut waiting, &mut unknown);
    }
    unknown.paths.sort_unstable();
    unknown.paths
}

/// A value that waits to be looked at.
struct Place<'v, 's> {
    value: &'v mut Value,
    /// What is known of it; nothing is known below what is not described.
    node: Option<NodeRef<'s>>,
    is_resource: bool,
    /// What is unknown stays, because a list around this value said so.
    keep: bool,
    trail: usize,
}

/// Not on the way from anywhere: the root.
const NOWHERE: usize = usize::MAX;

#[derive(Clone, Copy)]
enum Step<'v> {
    Field(&'v str),
    Index(usize),
}

/// The way to each container, and what was unknown in them.
#[derive(Default)]
struct Unknown<'v> {
    /// Each step with the one before it.
    trail: Vec<(usize, Step<'v>)>,
    paths: Vec<String>,
    bytes: usize,
}

impl<'v> Unknown<'v> {
    fn step(&mut self, from: usize, step: Step<'v>) -> usize {
        self.trail.push((from, step));
        self.trail.len() - 1
    }

    fn report(&mut self, mut at: usize, field: &str) {
        if self.bytes > MAX_PATHS {
            return;
        }
        let mut steps = Vec::new();
        while let Some(&(from, step)) = self.trail.get(at) {
            steps.push(step);
            at = from;
        }
        let mut path = String::new();
        for step in steps.into_iter().rev().chain([Step::Field(field)]) {
            match step {
                Step::Field(name) => {
                    if !path.is_empty() {
                        path.push('.');
                    }
                    path.push_str(name);
                }
                Step::Index(index) => path.push_str(&format!("[{index}]")),
            }
        }
        self.bytes += path.len();
        self.paths.push(path);
    }
}

impl<'v, 's> Place<'v, 's> {
    fn visit(self, waiting: &mut Vec<Place<'v, 's>>, unknown: &mut Unknown<'v>) {
        let Place { value, node, is_resource, trail, .. } = self;
        let keep = self.keep || node.is_some_and(NodeRef::preserves_unknown);
        let is_resource = is_resource || node.is_some_and(NodeRef::is_embedded_resource);
        match value {
            Value::Object(map) => {
                let additional = node.and_then(NodeRef::additional);
                let is_meta = |name: &str| is_resource && META.contains(&name);
                let all = keep || additional.is_some();
                let is_known = |from: &mut usize, name: &str| {
                    all || node.is_some_and(|node| node.find_from(from, name)) || is_meta(name)
                };
                let mut from = 0;
                if !map.keys().all(|name| is_known(&mut from, name)) {
                    from = 0;
                    map.retain(|name, _| {
                        let known = is_known(&mut from, name);
                        let quiet = trail == NOWHERE && META.contains(&name);
                        if !known && !quiet {
                            unknown.report(trail, name);
                        }
                        known
                    });
                }
                let mut from = 0;
                for (name, value) in map.iter_mut() {
                    if !is_container(value) || is_meta(name) {
                        continue;
                    }
                    let field = node.and_then(|node| node.field_from(&mut from, name)).map(|field| field.node);
                    if let Some(child) = field.or(additional) {
                        let trail = unknown.step(trail, Step::Field(name));
                        waiting.push(Place { value, node: Some(child), is_resource: false, keep: false, trail });
                    }
                }
            }
            Value::Array(items) => {
                let child = node.and_then(NodeRef::items);
                if keep && child.is_none() {
                    return;
                }
                for (index, value) in items.iter_mut().enumerate().filter(|(_, value)| is_container(value)) {
                    let trail = unknown.step(trail, Step::Index(index));
                    waiting.push(Place { value, node: child, is_resource: false, keep, trail });
                }
            }
            _ => {}
        }
    }
}

fn is_container(value: &Value) -> bool {
    matches!(value, Value::Array(_) | Value::Object(_))
}

#[cfg(test)]
mod tests;
