//! What the published definition says against an object of a built-in kind: missing fields, and values that it does not
//! know.
//!
//! Decoding has seen to the types. What upstream's code checks beyond the definition is the server's to say.

use crate::{
    Value,
    field::{Error, ErrorList, Segment, render},
    schema::{NodeRef, Schema},
};

/// The most errors that are told of one object.
const MAX_ERRORS: usize = 1_000;

/// Checks an object that was decoded by this schema and has not been defaulted yet: afterwards Go's zero values stand
/// where fields were missing.
#[must_use]
pub fn check(schema: &Schema, value: &Value) -> ErrorList {
    let mut check = Check { places: Vec::new(), errors: ErrorList::new() };
    let mut rest = vec![(schema.root(), value, None)];
    while let Some((node, value, place)) = rest.pop() {
        if check.errors.len() >= MAX_ERRORS {
            break;
        }
        match value {
            Value::Object(map) => {
                for name in node.required_fields().filter(|name| !map.contains_key(name)) {
                    check.errors.push(Error::required(check.path(place, Some(Segment::Child(name))), ""));
                }
                let (first, mut from) = (rest.len(), 0);
                for (key, value) in map.iter() {
                    let next = match node.additional() {
                        Some(values) => Some((values, Segment::Key(key))),
                        None => node.field_from(&mut from, key).map(|field| (field.node, Segment::Child(key))),
                    };
                    if let Some((node, segment)) = next.filter(|(node, _)| matters(*node, value)) {
                        rest.push((node, value, Some(check.place(place, segment))));
                    }
                }
                rest[first..].reverse();
            }
            Value::Array(items) => {
                if let Some(node) = node.items() {
                    for (index, value) in items.iter().enumerate().rev().filter(|(_, value)| matters(node, value)) {
                        rest.push((node, value, Some(check.place(place, Segment::Index(index)))));
                    }
                }
            }
            _ => check.published(node, value, place),
        }
    }
    check.errors
}

/// Whether there is something to check.
fn matters(node: NodeRef<'_>, value: &Value) -> bool {
    matches!(value, Value::Object(_) | Value::Array(_)) || !node.published_values().is_empty()
}

/// The way to each place is kept backwards: most are never told.
struct Check<'a> {
    places: Vec<(Option<usize>, Segment<'a>)>,
    errors: ErrorList,
}

impl<'a> Check<'a> {
    fn place(&mut self, parent: Option<usize>, segment: Segment<'a>) -> usize {
        self.places.push((parent, segment));
        self.places.len() - 1
    }

    fn path(&self, place: Option<usize>, last: Option<Segment<'_>>) -> String {
        let mut way: Vec<Segment<'_>> = last.into_iter().collect();
        let mut here = place;
        while let Some((parent, segment)) = here.map(|at| self.places[at]) {
            way.push(segment);
            here = parent;
        }
        render(way.into_iter().rev())
    }

    fn published(&mut self, node: NodeRef<'_>, value: &Value, place: Option<usize>) {
        let known = node.published_values();
        if !known.is_empty() && !known.contains(value) {
            let known: Vec<&str> = known.iter().filter_map(Value::as_str).collect();
            self.errors.push(Error::not_supported(self.path(place, None), value.clone(), &known));
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{builtin, names::GroupVersionKind};

    fn check_pod(text: &str, expected: &[&str]) {
        let schema = builtin::schema(&GroupVersionKind::from_static("", "v1", "Pod")).unwrap();
        let decoded = schema.decode(text.as_bytes()).unwrap();
        let found: Vec<String> = check(&schema, &decoded.value).iter().map(ToString::to_string).collect();
        assert_eq!(found, expected, "{text}");
    }

    #[test]
    fn what_is_missing_and_what_is_not_known() {
        check_pod(r#"{"spec":{"containers":[{"name":"a","imagePullPolicy":"Never"}]}}"#, &[]);
        check_pod(r#"{"spec":{}}"#, &["spec.containers: Required value"]);
        check_pod(
            r#"{"spec":{"containers":[{"name":"a"},{"env":[{}]}]}}"#,
            &["spec.containers[1].name: Required value", "spec.containers[1].env[0].name: Required value"],
        );
        check_pod(
            r#"{"spec":{"containers":[{"name":"a","imagePullPolicy":"Maybe"}]}}"#,
            &[
                r#"spec.containers[0].imagePullPolicy: Unsupported value: "Maybe": supported values: "Always", "IfNotPresent", "Never""#,
            ],
        );
    }
}
