//! The compiler: an OpenAPI v3 schema of a user's kind becomes a [`Schema`], if it is structural.
//!
//! What is refused, and in which words, is upstream's: the checks of a `CustomResourceDefinition` as far as they
//! concern the schema itself. The rules of `x-kubernetes-validations` are kept as they are written.

mod build;
mod defaults;
mod keywords;
mod raw;
mod shape;

use std::collections::HashMap;

use regex::Regex;

use super::{NodeId, Schema};
use crate::{
    Value,
    field::{Error, ErrorList},
};
use raw::Tree;

/// How many errors a schema is answered with at most. Paths can be long, and there can be many of them.
const MAX_ERRORS: usize = 1000;

/// Patterns that have been compiled, each once, or what is wrong with them.
type Patterns<'a> = HashMap<&'a str, Result<Regex, String>>;

/// Compiles the schema at `path`, which is `spec.validation.openAPIV3Schema` when a definition has one schema for all
/// versions.
///
/// # Errors
/// All that is wrong with the schema.
pub fn compile(schema: &Value, path: &str) -> Result<Schema, ErrorList> {
    let Some(props) = schema.as_object() else {
        return Err(vec![Error::type_invalid(path, schema.clone(), "must be an object")]);
    };
    // One place is kept for values of maps that may be anything.
    let tree = Tree::new(props, path, NodeId::MAX_NODES - 1).map_err(|raw::TooMany| {
        vec![Error::forbidden(path, format!("must have less than {} subschemas", NodeId::MAX_NODES))]
    })?;
    let mut errors = Vec::new();
    for at in 0..tree.raws.len() {
        if errors.len() < MAX_ERRORS {
            raw::check_shapes(&tree, at, &mut errors);
        }
    }
    if !errors.is_empty() {
        return Err(errors);
    }
    if tree.raws[0].flag("nullable") {
        errors.push(Error::forbidden(format!("{path}.nullable"), "nullable cannot be true at the root"));
    }
    let unsupported = shape::unsupported(&tree);
    let mut compiled = None;
    if unsupported.is_none() {
        let mut patterns = Patterns::new();
        let wrong = shape::check(&tree, &mut patterns);
        if wrong.is_empty() {
            let schema = build::build(&tree, &patterns);
            errors.extend(defaults::check(&tree, &schema));
            compiled = Some(schema);
        }
        errors.extend(wrong);
    }
    errors.extend(keywords::check(&tree));
    if let Some(unsupported) = unsupported.filter(|_| errors.is_empty()) {
        errors.push(Error::invalid(path, "", unsupported));
    }
    match compiled {
        Some(schema) if errors.is_empty() => Ok(schema),
        _ => {
            errors.truncate(MAX_ERRORS);
            Err(errors)
        }
    }
}

#[cfg(test)]
mod tests;
