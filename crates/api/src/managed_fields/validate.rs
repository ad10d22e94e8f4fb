//! Whether an object fits its type, in the words of upstream's apply.

use std::fmt;

use super::{
    PathElement,
    types::{Fields, List, Relation, Scalar, Shape, Ty},
};
use crate::{Value, go};

/// How many errors are told at most.
const MAX_ERRORS: usize = 1000;

/// What is wrong with an object, place by place.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct TypeErrors(Vec<String>);

impl TypeErrors {
    pub(super) fn one(error: String) -> Self {
        TypeErrors(vec![error])
    }
}

impl fmt::Display for TypeErrors {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if let [one] = &*self.0 {
            return f.write_str(one);
        }
        f.write_str("errors:")?;
        self.0.iter().try_for_each(|error| write!(f, "\n  {error}"))
    }
}

/// Checks an object. Sets and lists with keys may have no two equal elements.
pub(super) fn validate(ty: Ty<'_>, value: &Value) -> Result<(), TypeErrors> {
    let mut walker = Walker { path: Vec::new(), errors: Vec::new() };
    walker.walk(ty, value);
    if walker.errors.is_empty() { Ok(()) } else { Err(TypeErrors(walker.errors)) }
}

enum Step<'v> {
    Field(&'v str),
    Element(PathElement),
}

struct Walker<'v> {
    path: Vec<Step<'v>>,
    errors: Vec<String>,
}

impl<'v> Walker<'v> {
    fn error(&mut self, message: impl fmt::Display) {
        if self.errors.len() >= MAX_ERRORS {
            return;
        }
        let path = self.path.iter().fold(String::new(), |path, step| match step {
            Step::Field(name) => format!("{path}.{name}"),
            Step::Element(element) => format!("{path}{element}"),
        });
        self.errors.push(if path.is_empty() { message.to_string() } else { format!("{path}: {message}") });
    }

    fn below(&mut self, step: Step<'v>, ty: Ty<'_>, value: &'v Value) {
        self.path.push(step);
        self.walk(ty, value);
        self.path.pop();
    }

    fn walk(&mut self, ty: Ty<'_>, value: &'v Value) {
        // What lies deeper is one value, and any value is right.
        if self.path.len() >= super::MAX_DEPTH || value.is_null() {
            return;
        }
        match (ty.shape(Some(value), self.path.len()), value) {
            (Shape::Scalar(scalar), value) => self.scalar(scalar, value),
            (Shape::Map(fields), Value::Object(map)) => self.map(&fields, map.iter()),
            (Shape::Map(_), value) => self.error(format_args!("expected map, got {}", Shown(value))),
            (Shape::List(list), Value::Array(items)) => self.list(&list, items),
            (Shape::List(_), value) => self.error(format_args!("expected list, got {}", Shown(value))),
        }
    }

    fn map(&mut self, fields: &Fields<'_>, entries: impl Iterator<Item = (&'v str, &'v Value)>) {
        let mut from = 0;
        for (key, value) in entries {
            match fields.at_from(&mut from, key) {
                Some((ty, _)) => self.below(Step::Field(key), ty, value),
                None => {
                    self.path.push(Step::Field(key));
                    self.error("field not declared in schema");
                    self.path.pop();
                    return;
                }
            }
        }
    }

    fn list(&mut self, list: &List<'_>, items: &'v [Value]) {
        if let Relation::Atomic = list.relation {
            for (at, item) in (0..).zip(items) {
                self.below(Step::Element(PathElement::Index(at)), list.element, item);
            }
            return;
        }
        let mut seen = std::collections::BTreeSet::new();
        for (at, item) in items.iter().enumerate() {
            match list.path_element(item) {
                Ok(element) => {
                    if !seen.insert(element.clone()) {
                        self.error(format_args!("duplicate entries for key {element}"));
                    }
                    self.below(Step::Element(element), list.element, item);
                }
                Err(message) => return self.error(format_args!("element {at}: {message}")),
            }
        }
    }

    fn scalar(&mut self, scalar: Scalar, value: &Value) {
        match (scalar, value) {
            (scalar, value) if scalar.takes(value) => {}
            (Scalar::Numeric, value) => {
                self.error(format_args!("expected numeric (int or float), got {}", go_type(value)));
            }
            (Scalar::String, value) => {
                self.error(format_args!("expected string, got &value.valueUnstructured{{Value:{}}}", Syntax(value)));
            }
            (Scalar::Boolean, value) => self.error(format_args!("expected boolean, got {}", Shown(value))),
            (Scalar::Untyped, value) => self.error(format_args!("expected any scalar, got {}", Shown(value))),
        }
    }
}

fn go_type(value: &Value) -> &'static str {
    match value {
        Value::Null => "<nil>",
        Value::Bool(_) => "bool",
        Value::Int(_) => "int64",
        Value::Float(_) => "float64",
        Value::String(_) => "string",
        Value::Array(_) => "[]interface {}",
        Value::Object(_) => "map[string]interface {}",
    }
}

/// How deep values are printed. They are what a client has sent, and it may have nested them as deep as it likes.
const MAX_SHOWN: usize = 32;

/// A value as `%v` prints it, within the struct that it is in upstream.
struct Shown<'v>(&'v Value);

impl fmt::Display for Shown<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("&{")?;
        show(self.0, MAX_SHOWN, f)?;
        f.write_str("}")
    }
}

fn show(value: &Value, depth: usize, f: &mut fmt::Formatter<'_>) -> fmt::Result {
    match value {
        _ if depth == 0 => f.write_str("..."),
        Value::Null => f.write_str("<nil>"),
        Value::Bool(b) => write!(f, "{b}"),
        Value::Int(n) => write!(f, "{n}"),
        Value::Float(n) => f.write_str(&go::float(*n)),
        Value::String(text) => f.write_str(text),
        Value::Array(items) => {
            f.write_str("[")?;
            for (at, item) in items.iter().enumerate() {
                f.write_str(if at > 0 { " " } else { "" })?;
                show(item, depth - 1, f)?;
            }
            f.write_str("]")
        }
        Value::Object(map) => {
            f.write_str("map[")?;
            for (at, (key, value)) in map.iter().enumerate() {
                write!(f, "{}{key}:", if at > 0 { " " } else { "" })?;
                show(value, depth - 1, f)?;
            }
            f.write_str("]")
        }
    }
}

/// A value as `%#v` prints it.
struct Syntax<'v>(&'v Value);

impl fmt::Display for Syntax<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        syntax(self.0, MAX_SHOWN, f)
    }
}

fn syntax(value: &Value, depth: usize, f: &mut fmt::Formatter<'_>) -> fmt::Result {
    match value {
        _ if depth == 0 => f.write_str("..."),
        Value::Null => f.write_str("interface {}(nil)"),
        Value::String(text) => f.write_str(&go::quote(text)),
        Value::Bool(_) | Value::Int(_) | Value::Float(_) => show(value, depth, f),
        Value::Array(items) => {
            f.write_str("[]interface {}{")?;
            for (at, item) in items.iter().enumerate() {
                f.write_str(if at > 0 { ", " } else { "" })?;
                syntax(item, depth - 1, f)?;
            }
            f.write_str("}")
        }
        Value::Object(map) => {
            f.write_str("map[string]interface {}{")?;
            for (at, (key, value)) in map.iter().enumerate() {
                write!(f, "{}{}:", if at > 0 { ", " } else { "" }, go::quote(key))?;
                syntax(value, depth - 1, f)?;
            }
            f.write_str("}")
        }
    }
}
