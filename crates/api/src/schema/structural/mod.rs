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
pub const MAX_ERRORS: usize = 1000;

/// Patterns that have been compiled, each once, or what is wrong with them.
type Patterns<'a> = HashMap<&'a str, Result<Regex, String>>;

/// What there is to say of a schema.
#[derive(Debug, Default)]
pub struct Findings {
    /// What keeps it from being structural, or what is wrong with its defaults.
    pub shape: ErrorList,
    /// What is wrong with single keywords.
    pub keywords: ErrorList,
    /// What it means, if it is structural. Rules can be read on that even where keywords elsewhere are wrong.
    pub schema: Option<Schema>,
}

/// Compiles the schema at `path`, which is `spec.validation.openAPIV3Schema` when a definition has one schema for all
/// versions.
///
/// # Errors
/// All that is wrong with the schema.
pub fn compile(schema: &Value, path: &str) -> Result<Schema, ErrorList> {
    let Findings { shape: mut errors, keywords, schema } = inspect(schema, path);
    errors.extend(keywords);
    match schema {
        Some(schema) if errors.is_empty() => Ok(schema),
        _ => {
            errors.truncate(MAX_ERRORS);
            Err(errors)
        }
    }
}

/// Says all there is to say of the schema at `path`.
#[must_use]
pub fn inspect(schema: &Value, path: &str) -> Findings {
    let wrong = |error: Error| Findings { shape: vec![error], ..Findings::default() };
    let Some(props) = schema.as_object() else {
        return wrong(Error::type_invalid(path, schema.clone(), "must be an object"));
    };
    // One place is kept for values of maps that may be anything.
    let Ok(tree) = Tree::new(props, path, NodeId::MAX_NODES - 1) else {
        return wrong(Error::forbidden(path, format!("must have less than {} subschemas", NodeId::MAX_NODES)));
    };
    let mut found = Findings::default();
    for at in 0..tree.raws.len() {
        if found.shape.len() < MAX_ERRORS {
            raw::check_shapes(&tree, at, &mut found.shape);
        }
    }
    if !found.shape.is_empty() {
        return found;
    }
    if tree.raws[0].flag("nullable") {
        found.shape.push(Error::forbidden(format!("{path}.nullable"), "nullable cannot be true at the root"));
    }
    let unsupported = shape::unsupported(&tree);
    if unsupported.is_none() {
        let mut patterns = Patterns::new();
        let mut wrong = shape::check(&tree, &mut patterns);
        if wrong.is_empty() {
            let schema = build::build(&tree, &patterns);
            wrong = defaults::check(&tree, &schema);
            found.schema = Some(schema).filter(|_| wrong.is_empty());
        }
        found.shape.extend(wrong);
    }
    found.keywords = keywords::check(&tree);
    if let Some(unsupported) = unsupported.filter(|_| found.shape.is_empty() && found.keywords.is_empty()) {
        found.shape.push(Error::invalid(path, "", unsupported));
    }
    found
}

#[cfg(test)]
mod tests;
