//! What is wrong with a custom resource: its kind, its metadata, its schema, its replicas, its lists, its rules.

use capstan_api::{
    Map, Value,
    field::{Error, ErrorList, ErrorType},
    schema::validate::{self, Findings},
    unstructured::nested,
};

use super::definition::{Scale, Served};
use crate::validation::{validate_custom_create, validate_custom_update};

const MAX_REPLICAS: i64 = i32::MAX as i64;

/// What is wrong with an object that is to be created.
#[must_use]
pub(crate) fn create(served: &Served, object: &Map) -> ErrorList {
    let mut errors = type_meta(served, object);
    if !errors.is_empty() {
        return errors;
    }
    errors.extend(validate_custom_create(served.definition().namespaced, object));
    let whole = Value::Object(object.clone());
    let findings = validate::inspect(&whole, served.schema(), None);
    add(served, findings, object, &mut errors);
    rules(served, object, None, &mut Vec::new(), &mut errors);
    errors
}

/// What is wrong with an object that is to replace `old`. What was wrong before and has not changed is tolerated;
/// of rules in CEL that is said in warnings.
#[must_use]
pub(crate) fn update(served: &Served, object: &Map, old: &Map, warnings: &mut Vec<String>) -> ErrorList {
    let mut errors = type_meta(served, object);
    if !errors.is_empty() {
        return errors;
    }
    errors.extend(validate_custom_update(served.definition().namespaced, object, old));
    let (whole, before) = (Value::Object(object.clone()), Value::Object(old.clone()));
    let mut findings = validate::inspect(&whole, served.schema(), Some(&before));
    if !findings.lists.is_empty() && !validate::inspect(&before, served.schema(), None).lists.is_empty() {
        findings.lists.clear();
    }
    add(served, findings, object, &mut errors);
    rules(served, object, Some(old), warnings, &mut errors);
    errors
}

/// What is wrong with an object whose status is to replace that of `old`.
#[must_use]
pub(crate) fn update_status(served: &Served, object: &Map, old: &Map, warnings: &mut Vec<String>) -> ErrorList {
    let mut errors = type_meta(served, object);
    if !errors.is_empty() {
        return errors;
    }
    errors.extend(validate_custom_update(served.definition().namespaced, object, old));
    let (whole, before) = (Value::Object(object.clone()), Value::Object(old.clone()));
    if let Some(status) = object.get("status") {
        errors.extend(validate::inspect_field(status, served.schema(), "status", old.get("status")));
    }
    scale_status(served.version().scale.as_ref(), object, &mut errors);
    let lists = validate::inspect(&whole, served.schema(), None).lists;
    if !lists.is_empty() && validate::inspect(&before, served.schema(), None).lists.is_empty() {
        errors.extend(lists);
    }
    rules(served, object, Some(old), warnings, &mut errors);
    errors
}

fn add(served: &Served, findings: Findings, object: &Map, errors: &mut ErrorList) {
    let scale = served.version().scale.as_ref();
    errors.extend(findings.openapi);
    if let Some(scale) = scale {
        replicas(&scale.spec_replicas, object, errors);
    }
    scale_status(scale, object, errors);
    errors.extend(findings.resources);
    errors.extend(findings.lists);
}

fn type_meta(served: &Served, object: &Map) -> ErrorList {
    let gvk = served.gvk();
    let mut errors = Vec::new();
    for (key, expected) in [("kind", gvk.kind.to_string()), ("apiVersion", gvk.api_version().to_string())] {
        let found = object.get(key).and_then(Value::as_str).unwrap_or_default();
        if found != expected {
            errors.push(Error::invalid(key, found, format!("must be {expected}")));
        }
    }
    errors
}

fn parts(path: &str) -> Vec<&str> {
    path.split('.').collect()
}

fn replicas(path: &str, object: &Map, errors: &mut ErrorList) {
    let wrong = match nested::i64(object, &parts(path)) {
        Err(error) => (0, error.to_string()),
        Ok(Some(count)) if count < 0 => (count, "should be a non-negative integer".to_owned()),
        Ok(Some(count)) if count > MAX_REPLICAS => (count, format!("should be less than or equal to {MAX_REPLICAS}")),
        Ok(_) => return,
    };
    errors.push(Error::invalid(format!(".{path}"), wrong.0, wrong.1));
}

fn scale_status(scale: Option<&Scale>, object: &Map, errors: &mut ErrorList) {
    let Some(scale) = scale else { return };
    replicas(&scale.status_replicas, object, errors);
    if !scale.label_selector.is_empty()
        && let Err(error) = nested::str(object, &parts(&scale.label_selector))
    {
        errors.push(Error::invalid(format!(".{}", scale.label_selector), "", error.to_string()));
    }
}

/// Rules are asked only about objects that are whole.
fn rules(served: &Served, object: &Map, old: Option<&Map>, warnings: &mut Vec<String>, errors: &mut ErrorList) {
    let Some(rules) = served.rules() else { return };
    let blocks = |error: &Error| {
        matches!(
            error.ty,
            ErrorType::NotSupported
                | ErrorType::Required
                | ErrorType::TooLong
                | ErrorType::TooMany
                | ErrorType::TypeInvalid
        )
    };
    if errors.iter().any(blocks) {
        let words = "some validation rules were not checked because the object was invalid; correct the existing \
                     errors to complete validation";
        errors.push(Error::invalid("<nil>", Value::Null, words));
        return;
    }
    errors.extend(rules.check(object, old, warnings));
}
