//! What a definition's schema may say, structural or not: which keywords, where, and in which company.

use super::{
    MAX_ERRORS,
    raw::{Raw, Step, Tree},
    shape::required_or_invalid,
};
use crate::{
    Value,
    field::{Error, ErrorList},
};

const TYPES: [&str; 6] = ["array", "boolean", "integer", "number", "object", "string"];
const LIST_TYPE: &str = "x-kubernetes-list-type";
const LIST_MAP_KEYS: &str = "x-kubernetes-list-map-keys";
const MAP_TYPE: &str = "x-kubernetes-map-type";

/// What holds for a subschema because of where it is.
#[derive(Clone, Default)]
struct Context {
    /// Why there must be no defaults.
    no_defaults: Option<String>,
    inside_metadata: bool,
}

/// All that is wrong, in upstream's order: some of what concerns a schema itself comes before its subschemas, most
/// behind them.
pub(super) fn check(tree: &Tree<'_>) -> ErrorList {
    let mut errors = Vec::new();
    let mut open: Vec<(usize, Context)> = Vec::new();
    for at in 0..=tree.raws.len() {
        if errors.len() >= MAX_ERRORS {
            break;
        }
        while let Some(&(inner, _)) = open.last()
            && tree.raws[inner].end <= at
        {
            check_behind(tree, inner, &mut errors);
            open.pop();
        }
        if let Some(raw) = tree.raws.get(at) {
            let context = match open.last() {
                Some((parent, context)) => inherit(tree, *parent, context, raw.step),
                None => Context::default(),
            };
            check_before(tree, at, &context, &mut errors);
            open.push((at, context));
        }
    }
    errors
}

fn inherit(tree: &Tree<'_>, parent: usize, context: &Context, step: Step<'_>) -> Context {
    let mut context = context.clone();
    match step {
        Step::Additional if context.inside_metadata => {
            context.no_defaults = Some("inside additionalProperties applying to object metadata".to_owned());
        }
        Step::Property(name @ ("metadata" | "kind" | "apiVersion"))
            if parent == 0 || tree.raws[parent].flag("x-kubernetes-embedded-resource") =>
        {
            context.inside_metadata = true;
            if parent == 0 {
                context.no_defaults = Some(format!("in top-level {name}"));
            }
        }
        _ => {}
    }
    context
}

fn check_before(tree: &Tree<'_>, at: usize, context: &Context, errors: &mut ErrorList) {
    let raw = &tree.raws[at];
    let path = |keyword: &str| tree.child(at, keyword);
    let ty = raw.ty();
    if !ty.is_empty() && !TYPES.contains(&ty) {
        errors.push(Error::not_supported(path("type"), ty, &TYPES));
    }
    if let Some(reason) = context.no_defaults.as_ref().filter(|_| raw.get("default").is_some()) {
        errors.push(Error::forbidden(path("default"), format!("must not be set {reason}")));
    }
    let said = [
        ("id", !raw.text("id").is_empty()),
        ("additionalItems", raw.get("additionalItems").is_some()),
        ("patternProperties", !raw.entries("patternProperties").is_empty()),
        ("definitions", !raw.entries("definitions").is_empty()),
        ("dependencies", raw.get("dependencies").is_some()),
        ("$ref", raw.get("$ref").is_some()),
    ];
    for (keyword, said) in said {
        if said {
            errors.push(Error::forbidden(path(keyword), format!("{keyword} is not supported")));
        }
    }
    if ty == "null" {
        let detail = "type cannot be set to null, use nullable as an alternative";
        errors.push(Error::forbidden(path("type"), detail));
    }
    if !raw.list("items").is_empty() {
        errors.push(Error::forbidden(path("items"), "items must be a schema object and not an array"));
    }
    if context.inside_metadata && raw.flag("x-kubernetes-embedded-resource") {
        let detail = "must not be used inside of resource meta";
        errors.push(Error::forbidden(path("x-kubernetes-embedded-resource"), detail));
    }
    if raw.flag("uniqueItems") {
        let detail = "uniqueItems cannot be set to true since the runtime complexity becomes quadratic";
        errors.push(Error::forbidden(path("uniqueItems"), detail));
    }
    let additional = raw.get("additionalProperties");
    if additional.is_some_and(|value| *value != Value::Bool(true)) && !raw.entries("properties").is_empty() {
        let detail = "additionalProperties and properties are mutual exclusive";
        errors.push(Error::forbidden(path("additionalProperties"), detail));
    }
}

fn check_behind(tree: &Tree<'_>, at: usize, errors: &mut ErrorList) {
    let raw = &tree.raws[at];
    let path = |keyword: &str| tree.child(at, keyword);
    let preserve = "x-kubernetes-preserve-unknown-fields";
    if raw.get(preserve) == Some(&Value::Bool(false)) {
        errors.push(Error::invalid(path(preserve), false, "must be true or undefined"));
    }
    let map_type = raw.get(MAP_TYPE).and_then(Value::as_str);
    if let Some(map_type) = map_type {
        if raw.ty() != "object" {
            let detail = "must be object if x-kubernetes-map-type is specified";
            errors.push(required_or_invalid(path("type"), raw.ty(), detail));
        }
        if !matches!(map_type, "atomic" | "granular") {
            errors.push(Error::not_supported(path(MAP_TYPE), map_type, &["atomic", "granular"]));
        }
    }
    let list_type = raw.get(LIST_TYPE).and_then(Value::as_str);
    let items = raw.schema("items");
    if list_type.is_some() && raw.ty() != "array" {
        let detail = "must be array if x-kubernetes-list-type is specified";
        errors.push(required_or_invalid(path("type"), raw.ty(), detail));
    } else if let (Some("set"), Some(items)) = (list_type, &items) {
        check_set_items(tree, at, items, errors);
    }
    if let Some(list_type) = list_type
        && !matches!(list_type, "atomic" | "set" | "map")
    {
        errors.push(Error::not_supported(path(LIST_TYPE), list_type, &["atomic", "set", "map"]));
    }
    let keys = !raw.list(LIST_MAP_KEYS).is_empty();
    let detail = "must be map if x-kubernetes-list-map-keys is non-empty";
    match list_type {
        None if keys => errors.push(Error::required(path(LIST_TYPE), detail)),
        Some("map") => check_map_list(tree, at, items.as_ref(), errors),
        Some(other) if keys => errors.push(Error::invalid(path(LIST_TYPE), other, detail)),
        _ => {}
    }
    if let (Some(list_type @ ("set" | "map")), Some(items)) = (list_type, &items) {
        check_keys(tree, at, list_type, items, errors);
    }
}

/// Elements of a set are compared as wholes.
fn check_set_items(tree: &Tree<'_>, at: usize, items: &Raw<'_>, errors: &mut ErrorList) {
    let list_type = items.get(LIST_TYPE).and_then(Value::as_str);
    let wrong = match items.ty() {
        "array" if list_type.is_some_and(|list_type| list_type != "atomic") => LIST_TYPE,
        "object" if items.text(MAP_TYPE) != "atomic" => MAP_TYPE,
        _ => return,
    };
    // Upstream shows the list type in both cases.
    let shown = list_type.map_or(Value::Null, Value::from);
    let detail = "must be atomic as item of a list with x-kubernetes-list-type=set";
    errors.push(Error::invalid(format!("{}.items.{wrong}", tree.path(at)), shown, detail));
}

fn check_map_list(tree: &Tree<'_>, at: usize, items: Option<&Raw<'_>>, errors: &mut ErrorList) {
    let raw = &tree.raws[at];
    let path = |keyword: &str| tree.child(at, keyword);
    if raw.list(LIST_MAP_KEYS).is_empty() {
        let detail = "must not be empty if x-kubernetes-list-type is map";
        errors.push(Error::required(path(LIST_MAP_KEYS), detail));
    }
    let Some(items) = items else {
        errors.push(match raw.get("items") {
            None => Error::required(path("items"), "must have a schema if x-kubernetes-list-type is map"),
            Some(items) => {
                let detail = "must only have a single schema if x-kubernetes-list-type is map";
                Error::invalid(path("items"), items.clone(), detail)
            }
        });
        return;
    };
    if items.ty() != "object" {
        let detail = "must be object if parent array's x-kubernetes-list-type is map";
        errors.push(Error::invalid(path("items.type"), items.ty(), detail));
        return;
    }
    let mut seen = std::collections::HashSet::new();
    for key in raw.texts(LIST_MAP_KEYS) {
        let all = || Value::Array(raw.list(LIST_MAP_KEYS).iter().cloned().collect());
        match items.property(key) {
            Some(property) if matches!(property.ty(), "array" | "object") => {
                let path = path(&format!("items.properties[{key}].type"));
                let detail = "must be a scalar type if parent array's x-kubernetes-list-type is map";
                errors.push(Error::invalid(path, items.ty(), detail));
            }
            Some(_) => {}
            None => {
                errors.push(Error::invalid(path(LIST_MAP_KEYS), all(), "entries must all be names of item properties"));
            }
        }
        if !seen.insert(key) {
            errors.push(Error::invalid(path(LIST_MAP_KEYS), all(), "must not contain duplicate entries"));
        }
    }
}

/// Elements of sets and maps are never null, and keys are always there.
fn check_keys(tree: &Tree<'_>, at: usize, list_type: &str, items: &Raw<'_>, errors: &mut ErrorList) {
    let path = |keyword: &str| tree.child(at, &format!("items.{keyword}"));
    if items.flag("nullable") {
        let detail = format!("cannot be nullable when x-kubernetes-list-type is {list_type}");
        errors.push(Error::forbidden(path("nullable"), detail));
    }
    if list_type != "map" {
        return;
    }
    let required: std::collections::HashSet<_> = items.texts("required").collect();
    for key in tree.raws[at].texts(LIST_MAP_KEYS) {
        let Some(property) = items.property(key) else { continue };
        if !required.contains(key) && property.get("default").is_none() {
            let detail =
                "this property is in x-kubernetes-list-map-keys, so it must have a default or be a required property";
            errors.push(Error::required(path(&format!("properties[{key}].default")), detail));
        }
        if property.flag("nullable") {
            let detail = "this property is in x-kubernetes-list-map-keys, so it cannot be nullable";
            errors.push(Error::forbidden(path(&format!("properties[{key}].nullable")), detail));
        }
    }
}
