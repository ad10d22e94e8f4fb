//! Policies of admission and their bindings.

use std::{collections::BTreeSet, slice};

use capstan_api::{
    Map, Value,
    field::{Error, ErrorList, Path},
    selector::LabelSelector,
    validation::{
        is_c_identifier, is_dns1035_label, is_dns1123_subdomain, is_path_segment_name, is_qualified_name,
        name_is_dns_subdomain,
    },
};

use capstan_cel::Type;

use super::{
    expressions::{self, Has, Place},
    read::{at, is_set, list, object, objects, text},
    rules::{invalid, one_of, one_of_pointer, required},
    webhook::{match_conditions, rule},
};

const SPEC: Path<'static> = Path::new("spec");
const FAILURE_POLICIES: &[&str] = &["Fail", "Ignore"];
const MUTATING_OPERATIONS: &[&str] = &["*", "CONNECT", "CREATE", "UPDATE"];
const MAX_AUDIT_ANNOTATIONS: usize = 20;
const MAX_AUDIT_EXPRESSION: usize = 5 * 1024;
/// Words that CEL keeps for itself.
const RESERVED: &[&str] = &[
    "true",
    "false",
    "null",
    "in",
    "as",
    "break",
    "const",
    "continue",
    "else",
    "for",
    "function",
    "if",
    "import",
    "let",
    "loop",
    "package",
    "namespace",
    "return",
    "var",
    "void",
    "while",
];

/// What the expressions of a policy can speak of.
struct Scope<'a> {
    params: bool,
    /// One may speak of those before it.
    variables: Option<Vec<(&'a str, Type)>>,
}

impl Scope<'_> {
    fn place(&self, has: Has) -> Place {
        expressions::admission(Has { params: self.params, ..has }, self.variables.as_deref())
    }
}

/// What both kinds of policies have.
fn policy<'a>(spec: &'a Map, mutating: bool, errors: &mut ErrorList) -> Scope<'a> {
    one_of_pointer(errors, spec, "failurePolicy", &SPEC, FAILURE_POLICIES);
    if let Some(kind) = object(spec, "paramKind") {
        param_kind(kind, &SPEC.child("paramKind"), errors);
    }
    let path = SPEC.child("matchConstraints");
    match object(spec, "matchConstraints") {
        None => errors.push(Error::required(path, "")),
        Some(constraints) => {
            match_resources(constraints, &path, errors);
            if list(constraints, "resourceRules").is_empty() {
                errors.push(Error::required(path.child("resourceRules"), ""));
            }
            if mutating {
                mutating_operations(constraints, &path, errors);
            }
        }
    }
    let params = is_set(spec, "paramKind");
    match_conditions(spec, &expressions::admission(Has { params, ..Has::default() }, None), &SPEC, errors);
    let composed = mutating || !list(spec, "variables").is_empty();
    let mut scope = Scope { params, variables: composed.then(Vec::new) };
    let path = SPEC.child("variables");
    for (i, variable) in objects(spec, "variables") {
        let path = path.index(i);
        let name = text(variable, "name");
        if name.trim().is_empty() {
            errors.push(Error::required(path.child("name"), "name is not specified"));
        } else if !is_c_identifier(name).is_empty() || RESERVED.contains(&name) {
            errors.push(Error::invalid(path.child("name"), name, "must be a valid CEL identifier"));
        }
        let expression = text(variable, "expression");
        if expression.trim().is_empty() {
            errors.push(Error::required(path.child("expression"), "expression is not specified"));
        } else {
            let place = scope.place(Has::default());
            let ty = expressions::expression(expression, &place, &[], &path.child("expression"), errors);
            scope.variables.get_or_insert_default().push((name, expressions::of_variable(&ty)));
        }
    }
    scope
}

fn mutating_operations(constraints: &Map, path: &Path<'_>, errors: &mut ErrorList) {
    let path = path.child("resourceRules");
    for (_, rule) in objects(constraints, "resourceRules") {
        for operation in list(rule, "operations").iter().filter_map(Value::as_str) {
            if !MUTATING_OPERATIONS.contains(&operation) {
                errors.push(Error::not_supported(path.child("operations"), operation, MUTATING_OPERATIONS));
            }
        }
    }
}

fn param_kind(kind: &Map, path: &Path<'_>, errors: &mut ErrorList) {
    let (version_path, full) = (path.child("apiVersion"), text(kind, "apiVersion"));
    let mut wrong = |value: &str, detail: String| errors.push(Error::invalid(version_path, value, detail));
    let (group, version) = full.split_once('/').unwrap_or(("", full));
    let joined = |messages: Vec<String>| (!messages.is_empty()).then(|| messages.join(","));
    if full.is_empty() {
        errors.push(Error::required(version_path, ""));
    } else if version.contains('/') {
        wrong(full, format!("unexpected GroupVersion string: {full}"));
    } else {
        if let Some(detail) = joined(is_dns1123_subdomain(group)).filter(|_| !group.is_empty()) {
            wrong(group, detail);
        }
        if version.is_empty() {
            wrong(full, "version must be specified".to_owned());
        } else if let Some(detail) = joined(is_dns1035_label(version)) {
            wrong(version, detail);
        }
    }
    let name = text(kind, "kind");
    if name.is_empty() {
        errors.push(Error::required(path.child("kind"), ""));
    } else if let Some(detail) = joined(is_dns1035_label(&name.to_lowercase())) {
        let detail = format!("may have mixed case, but should otherwise match: {detail}");
        errors.push(Error::invalid(path.child("kind"), name, detail));
    }
}

fn match_resources(resources: &Map, path: &Path<'_>, errors: &mut ErrorList) {
    one_of(errors, resources, "matchPolicy", path, &["Equivalent", "Exact"]);
    for key in ["namespaceSelector", "objectSelector"] {
        match object(resources, key) {
            None => errors.push(Error::required(path.child(key), "")),
            Some(selector) => errors.extend(LabelSelector::from_map(selector).validate(&path.child(key))),
        }
    }
    for key in ["resourceRules", "excludeResourceRules"] {
        let path = path.child(key);
        for (i, one) in objects(resources, key) {
            let path = path.index(i);
            let names = path.child("resourceNames");
            let mut seen = BTreeSet::new();
            for (i, name) in list(one, "resourceNames").iter().filter_map(Value::as_str).enumerate() {
                invalid(errors, &names.index(i), name, is_path_segment_name(name));
                if !seen.insert(name) {
                    errors.push(Error::duplicate(names.index(i), name));
                }
            }
            rule(one, &path, errors);
        }
    }
}

pub(super) fn validating(object: &Map, errors: &mut ErrorList) {
    let spec = at(object, "spec");
    let scope = policy(spec, false, errors);
    let place = scope.place(Has::default());
    let messages = scope.place(Has { no_authorizer: true, ..Has::default() });
    let keys = ["validations", "auditAnnotations"];
    if keys.iter().all(|key| list(spec, key).is_empty()) {
        let detail = "validations or auditAnnotations must contain at least one item";
        return errors.extend(keys.map(|key| Error::required(SPEC.child(key), detail)));
    }
    let path = SPEC.child("validations");
    for (i, one) in objects(spec, "validations") {
        validation(one, (&place, &messages), &path.index(i), errors);
    }
    let path = SPEC.child("auditAnnotations");
    let count = list(spec, "auditAnnotations").len();
    if count > MAX_AUDIT_ANNOTATIONS {
        let shown = spec.get("auditAnnotations").cloned().unwrap_or_default();
        let detail = format!("must not have more than {MAX_AUDIT_ANNOTATIONS} auditAnnotations");
        errors.push(Error::invalid(path, shown, detail));
    }
    let policy_name = text(at(object, "metadata"), "name");
    let mut seen = BTreeSet::new();
    for (i, one) in objects(spec, "auditAnnotations") {
        let path = path.index(i);
        let key = text(one, "key");
        if policy_name.is_empty() {
            errors.push(Error::invalid(path.child("key"), key, "requires metadata.name be non-empty"));
        } else {
            let name = format!("{policy_name}/{key}");
            let messages = is_qualified_name(&name);
            invalid(errors, &path.child("key"), name, messages);
        }
        let expression = text(one, "valueExpression").trim();
        if expression.is_empty() {
            errors.push(Error::required(path.child("valueExpression"), "valueExpression is not specified"));
        } else if expression.len() > MAX_AUDIT_EXPRESSION {
            let detail = format!("must not exceed {MAX_AUDIT_EXPRESSION} bytes in length");
            errors.push(Error::required(path.child("valueExpression"), detail));
        } else {
            let wanted = [Type::String, Type::Null];
            expressions::expression(expression, &place, &wanted, &path.child("valueExpression"), errors);
        }
        if !seen.insert(key) {
            errors.push(Error::duplicate(path.child("key"), key));
        }
    }
}

fn validation(one: &Map, (place, messages): (&Place, &Place), path: &Path<'_>, errors: &mut ErrorList) {
    match text(one, "expression").trim() {
        "" => errors.push(Error::required(path.child("expression"), "expression is not specified")),
        text => drop(expressions::expression(text, place, &[Type::Bool], &path.child("expression"), errors)),
    }
    for key in ["messageExpression", "message"] {
        let (value, path) = (text(one, key), path.child(key));
        if !value.is_empty() && value.trim().is_empty() {
            errors.push(Error::invalid(path, value, "must be non-empty if specified"));
        } else if key == "messageExpression" && !value.is_empty() {
            expressions::expression(value.trim(), messages, &[Type::String], &path, errors);
        } else if key == "message" && value.trim().contains(['\n', '\r']) {
            errors.push(Error::invalid(path, value, "must not contain line breaks"));
        }
    }
    let reasons = ["Forbidden", "Invalid", "RequestEntityTooLarge"];
    if is_set(one, "reason") && !reasons.contains(&text(one, "reason")) {
        errors.push(Error::not_supported(path.child("reason"), text(one, "reason"), &reasons));
    }
}

/// What both kinds of bindings have.
fn binding(spec: &Map, errors: &mut ErrorList) {
    required(errors, spec, "policyName", &SPEC, |name| name_is_dns_subdomain(name, false));
    if let Some(reference) = object(spec, "paramRef") {
        param_ref(reference, &SPEC.child("paramRef"), errors);
    }
    if let Some(resources) = object(spec, "matchResources") {
        match_resources(resources, &SPEC.child("matchResources"), errors);
    }
}

fn param_ref(reference: &Map, path: &Path<'_>, errors: &mut ErrorList) {
    const EXCLUSIVE: &str = "name and selector are mutually exclusive";
    let name = text(reference, "name");
    let selector = object(reference, "selector");
    if !name.is_empty() {
        invalid(errors, &path.child("name"), name, is_path_segment_name(name));
        if selector.is_some() {
            errors.push(Error::forbidden(path.child("name"), EXCLUSIVE));
        }
    }
    match selector {
        Some(selector) => {
            errors.extend(LabelSelector::from_map(selector).validate(&path.child("selector")));
            if !name.is_empty() {
                errors.push(Error::forbidden(path.child("selector"), EXCLUSIVE));
            }
        }
        None if name.is_empty() => {
            errors.push(Error::required(path, "one of name or selector must be specified"));
        }
        None => {}
    }
    one_of(errors, reference, "parameterNotFoundAction", path, &["Deny", "Allow"]);
}

pub(super) fn validating_binding(object: &Map, errors: &mut ErrorList) {
    let spec = at(object, "spec");
    binding(spec, errors);
    let path = SPEC.child("validationActions");
    let known = ["Audit", "Deny", "Warn"];
    let mut seen = BTreeSet::new();
    for (i, action) in list(spec, "validationActions").iter().filter_map(Value::as_str).enumerate() {
        if !known.contains(&action) {
            errors.push(Error::not_supported(path.index(i), action, &known));
        }
        if !seen.insert(action) {
            errors.push(Error::duplicate(path.index(i), action));
        }
    }
    if seen.contains("Deny") && seen.contains("Warn") {
        let detail = "must not contain both Deny and Warn (repeating the same validation failure information in the API \
                      response and headers serves no purpose)";
        let shown = spec.get("validationActions").cloned().unwrap_or_default();
        errors.push(Error::invalid(path, shown, detail));
    }
    if seen.is_empty() {
        errors.push(Error::required(path, "at least one validation action is required"));
    }
}

pub(super) fn mutating(object_: &Map, errors: &mut ErrorList) {
    let spec = at(object_, "spec");
    let place = policy(spec, true, errors).place(Has { patches: true, ..Has::default() });
    let path = SPEC.child("mutations");
    if list(spec, "mutations").is_empty() {
        errors.push(Error::required(path, "mutations must contain at least one item"));
    }
    let kinds =
        [("ApplyConfiguration", "applyConfiguration", Type::applied()), ("JSONPatch", "jsonPatch", Type::patches())];
    for (i, mutation) in objects(spec, "mutations") {
        let path = path.index(i);
        let ty = text(mutation, "patchType");
        one_of(errors, mutation, "patchType", &path, &["ApplyConfiguration", "JSONPatch"]);
        let Some((_, key, wanted)) = kinds.iter().find(|(kind, ..)| *kind == ty) else { continue };
        match object(mutation, key) {
            None => {
                errors.push(Error::required(path.child(key), format!("must be specified when patchType is {ty}")));
            }
            Some(patch) => {
                let path = path.child(key);
                let path = path.child("expression");
                match text(patch, "expression").trim() {
                    "" => errors.push(Error::required(path, "")),
                    text => drop(expressions::expression(text, &place, slice::from_ref(wanted), &path, errors)),
                }
            }
        }
        for (_, other, _) in kinds.iter().filter(|(kind, other, _)| *kind != ty && is_set(mutation, other)) {
            let detail = format!("must not be specified when patchType is {ty}");
            errors.push(Error::invalid(path.child(other), format!("{{{other}}}"), detail));
        }
    }
    one_of(errors, spec, "reinvocationPolicy", &SPEC, &["IfNeeded", "Never"]);
}

pub(super) fn mutating_binding(object_: &Map, errors: &mut ErrorList) {
    let spec = at(object_, "spec");
    binding(spec, errors);
    if let Some(resources) = object(spec, "matchResources") {
        mutating_operations(resources, &SPEC.child("matchResources"), errors);
    }
}
