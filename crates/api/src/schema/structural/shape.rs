//! What makes a schema structural, and what upstream says when it is not.

use std::collections::HashMap;

use super::{
    MAX_ERRORS, Patterns,
    raw::{Part, Raw, Step, Tree, append},
};
use crate::{
    Value,
    field::{Error, ErrorList},
    schema::pattern,
};

const META: [&str; 3] = ["apiVersion", "kind", "metadata"];

/// Keywords of which there is no trace in a structural schema.
pub(super) fn unsupported(tree: &Tree<'_>) -> Option<String> {
    let keywords = [
        ("id", "id"),
        ("$schema", "schema"),
        ("$ref", "$ref"),
        ("patternProperties", "patternProperties"),
        ("dependencies", "dependencies"),
        ("additionalItems", "additionalItems"),
        ("definitions", "definitions"),
    ];
    let is_said = |raw: &Raw<'_>, keyword| match raw.get(keyword) {
        Some(Value::String(text)) => !text.is_empty(),
        Some(Value::Object(map)) => keyword == "additionalItems" || !map.is_empty(),
        Some(_) => true,
        None => false,
    };
    tree.raws.iter().find_map(|raw| {
        if let Some((_, name)) = keywords.iter().find(|(keyword, _)| is_said(raw, keyword)) {
            return Some(format!("OpenAPIV3Schema '{name}' is not supported"));
        }
        if !raw.list("items").is_empty() {
            return Some("OpenAPIV3Schema 'items' must be a schema, but is an array".to_owned());
        }
        let preserve = raw.get("x-kubernetes-preserve-unknown-fields");
        (preserve == Some(&Value::Bool(false)))
            .then(|| "internal error: 'x-kubernetes-preserve-unknown-fields' must be true or undefined".to_owned())
    })
}

/// All that keeps the schema from being structural, sorted.
pub(super) fn check<'a>(tree: &Tree<'a>, patterns: &mut Patterns<'a>) -> ErrorList {
    let mut errors = Vec::new();
    for (at, raw) in tree.raws.iter().enumerate() {
        if errors.len() >= MAX_ERRORS {
            break;
        }
        match raw.part {
            Part::Structure => check_structure(tree, at, &mut errors),
            Part::Nested => check_nested(tree, at, &mut errors),
            Part::Loose => continue,
        }
        let text = raw.text("pattern");
        if !text.is_empty()
            && let Err(error) = patterns.entry(text).or_insert_with(|| pattern::compile(text))
        {
            let detail = format!("must be a valid regular expression, but isn't: {error}");
            errors.push(Error::invalid(tree.child(at, "pattern"), text, detail));
        }
    }
    check_completeness(tree, &mut errors);
    errors.sort_by_cached_key(ToString::to_string);
    errors
}

fn check_structure(tree: &Tree<'_>, at: usize, errors: &mut ErrorList) {
    let raw = &tree.raws[at];
    let path = |keyword: &str| tree.child(at, keyword);
    let ty = raw.ty();
    let root = at == 0;
    let embedded = raw.flag("x-kubernetes-embedded-resource");
    let preserves = raw.flag("x-kubernetes-preserve-unknown-fields");
    let int_or_string = raw.flag("x-kubernetes-int-or-string");
    let has_additional = raw.get("additionalProperties").is_some();

    if ty == "array" && raw.get("items").is_none() {
        errors.push(Error::required(path("items"), "must be specified"));
    }
    if has_additional && root {
        errors.push(Error::forbidden(path("additionalProperties"), "must not be used at the root"));
    }
    for (keyword, set) in
        [("x-kubernetes-preserve-unknown-fields", preserves), ("x-kubernetes-embedded-resource", embedded)]
    {
        if int_or_string && set {
            errors.push(Error::invalid(path(keyword), true, "must be false if x-kubernetes-int-or-string is true"));
        }
    }
    if embedded && ty != "object" {
        let detail = "must be object if x-kubernetes-embedded-resource is true";
        errors.push(required_or_invalid(path("type"), ty, detail));
    } else if ty.is_empty() && !int_or_string && !preserves {
        let detail = match raw.step {
            Step::Root => "must not be empty at the root",
            Step::Items => "must not be empty for specified array items",
            _ => "must not be empty for specified object fields",
        };
        errors.push(Error::required(path("type"), detail));
    }
    if embedded && has_additional {
        let detail = "must not be used if x-kubernetes-embedded-resource is set";
        errors.push(Error::forbidden(path("additionalProperties"), detail));
    }
    if root && !ty.is_empty() && ty != "object" {
        errors.push(Error::invalid(path("type"), ty, "must be object at the root"));
    }
    for name in META {
        if let Some(property) = raw.property(name).filter(|_| root || embedded) {
            let wanted = if name == "metadata" { "object" } else { "string" };
            if property.ty() != wanted {
                let path = path(&format!("properties[{name}].type"));
                errors.push(Error::invalid(path, property.ty(), format!("must be {wanted}")));
            }
        }
    }
    if root && raw.property("metadata").is_some_and(|metadata| says_more_than_names(&metadata)) {
        let detail = "must not specify anything other than name and generateName, but metadata is implicitly specified";
        errors.push(Error::forbidden(path("properties[metadata]"), detail));
    }
    if embedded && !preserves && raw.entries("properties").is_empty() {
        let detail =
            "must not be empty if x-kubernetes-embedded-resource is true without x-kubernetes-preserve-unknown-fields";
        errors.push(Error::required(path("properties"), detail));
    }
}

/// A value that is missing is required, a wrong one invalid.
pub(super) fn required_or_invalid(path: String, value: &str, detail: &str) -> Error {
    if value.is_empty() { Error::required(path, detail) } else { Error::invalid(path, value, detail) }
}

/// The schema of metadata at the root has its type and the two names, nothing else.
fn says_more_than_names(metadata: &Raw<'_>) -> bool {
    let names = metadata.entries("properties").iter().all(|(name, _)| name == "name" || name == "generateName");
    let other = metadata.props.iter().any(|(keyword, value)| {
        let empty = match value {
            Value::Null | Value::Bool(false) => true,
            Value::String(text) => text.is_empty(),
            Value::Array(items) => items.is_empty() && keyword != "required",
            _ => false,
        };
        !matches!(keyword, "type" | "default" | "properties") && !empty
    });
    !names || other
}

/// The two type alternatives by which an int-or-string may say what it is, alone in its `anyOf`.
fn is_int_or_string_any_of(raw: &Raw<'_>) -> bool {
    let only_type = |value: &Value, ty: &str| {
        value.as_object().is_some_and(|map| map.len() == 1 && map.get("type").and_then(Value::as_str) == Some(ty))
    };
    matches!(raw.list("anyOf"), [first, second] if only_type(first, "integer") && only_type(second, "string"))
}

fn may_have_type(tree: &Tree<'_>, at: usize) -> bool {
    let raw = &tree.raws[at];
    let parent = &tree.raws[raw.parent];
    let below_structure =
        parent.is_structure() || (parent.step == Step::AllOf(0) && tree.raws[parent.parent].is_structure());
    matches!(raw.step, Step::AnyOf(_)) && below_structure && is_int_or_string_any_of(parent)
}

fn check_nested(tree: &Tree<'_>, at: usize, errors: &mut ErrorList) {
    let raw = &tree.raws[at];
    let mut forbid = |keyword: &str, detail| errors.push(Error::forbidden(tree.child(at, keyword), detail));
    let text = |keyword| !raw.text(keyword).is_empty();
    let list = |keyword| !raw.list(keyword).is_empty();
    let additional = raw.get("additionalProperties");
    const EMPTY: &str = "must be empty to be structural";
    const FALSE: &str = "must be false to be structural";
    const UNDEFINED: &str = "must be undefined to be structural";
    let said = [
        ("type", text("type") && !may_have_type(tree, at), EMPTY),
        ("additionalProperties", additional.is_some_and(|value| *value != Value::Bool(false)), UNDEFINED),
        ("default", raw.get("default").is_some(), UNDEFINED),
        ("title", text("title"), EMPTY),
        ("description", text("description"), EMPTY),
        ("nullable", raw.flag("nullable"), FALSE),
        ("x-kubernetes-preserve-unknown-fields", raw.flag("x-kubernetes-preserve-unknown-fields"), FALSE),
        ("x-kubernetes-embedded-resource", raw.flag("x-kubernetes-embedded-resource"), FALSE),
        ("x-kubernetes-int-or-string", raw.flag("x-kubernetes-int-or-string"), FALSE),
        ("x-kubernetes-list-map-keys", list("x-kubernetes-list-map-keys"), EMPTY),
        ("x-kubernetes-list-type", raw.get("x-kubernetes-list-type").is_some(), UNDEFINED),
        ("x-kubernetes-map-type", raw.get("x-kubernetes-map-type").is_some(), UNDEFINED),
        ("x-kubernetes-validations", list("x-kubernetes-validations"), EMPTY),
    ];
    for (keyword, said, detail) in said {
        if said {
            forbid(keyword, detail);
        }
    }
    if raw.property("metadata").is_some() {
        forbid("properties[metadata]", "must not be specified in a nested context");
    }
}

/// What the junctors of the root restrict must be there in the structure. Upstream looks no further than the root's
/// junctors.
fn check_completeness<'a>(tree: &Tree<'a>, errors: &mut ErrorList) {
    let child = |(at, raw): (usize, &Raw<'a>)| match raw.step {
        Step::Property(name) if raw.is_structure() => Some(((raw.parent, Some(name)), at)),
        Step::Items if raw.is_structure() => Some(((raw.parent, None), at)),
        _ => None,
    };
    let children: HashMap<_, _> = tree.raws.iter().enumerate().filter_map(child).collect();
    // The place in the structure that each subschema below a junctor of the root speaks of.
    let mut places: Vec<Option<usize>> = vec![None; tree.raws.len()];
    places[0] = Some(0);
    for (at, raw) in tree.raws.iter().enumerate().skip(1) {
        if raw.part != Part::Nested {
            continue;
        }
        let Some(place) = places[raw.parent] else { continue };
        match raw.step {
            Step::Not | Step::AllOf(_) | Step::OneOf(_) | Step::AnyOf(_) => places[at] = Some(place),
            Step::Property(_) | Step::Items => {
                let name = if let Step::Property(name) = raw.step { Some(name) } else { None };
                let found = children.get(&(place, name)).copied();
                places[at] = found;
                if found.is_none() && errors.len() < MAX_ERRORS {
                    let mut path = tree.path(place);
                    append(&mut path, raw.step);
                    errors.push(Error::required(path, format!("because it is defined in {}", tree.path(at))));
                }
            }
            _ => {}
        }
    }
}
