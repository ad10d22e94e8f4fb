//! Roles and their bindings.

use capstan_api::{
    Map, Value,
    field::{Error, ErrorList, Path},
    json,
    selector::LabelSelector,
    validation::{is_dns1123_subdomain, is_path_segment_name},
};

use super::{
    read::{at, list, object, objects, text},
    rules::required,
};

const GROUP: &str = "rbac.authorization.k8s.io";

fn rules(role: &Map, namespaced: bool, errors: &mut ErrorList) {
    let path = Path::new("rules");
    for (i, rule) in objects(role, "rules") {
        let path = path.index(i);
        let empty = |key: &str| list(rule, key).is_empty();
        if empty("verbs") {
            errors.push(Error::required(path.child("verbs"), "verbs must contain at least one value"));
        }
        if !empty("nonResourceURLs") {
            let urls = rule.get("nonResourceURLs").cloned().unwrap_or_default();
            let mut wrong = |detail: &str| {
                errors.push(Error::invalid(path.child("nonResourceURLs"), urls.clone(), detail));
            };
            if namespaced {
                wrong("namespaced rules cannot apply to non-resource URLs");
            }
            if !["apiGroups", "resources", "resourceNames"].into_iter().all(empty) {
                wrong("rules cannot apply to both regular resources and non-resource URLs");
            }
            continue;
        }
        for (key, what) in [("apiGroups", "api group"), ("resources", "resource")] {
            if empty(key) {
                let detail = format!("resource rules must supply at least one {what}");
                errors.push(Error::required(path.child(key), detail));
            }
        }
    }
}

pub(super) fn role(role: &Map, errors: &mut ErrorList) {
    rules(role, true, errors);
}

pub(super) fn cluster_role(role: &Map, errors: &mut ErrorList) {
    rules(role, false, errors);
    let Some(rule) = object(role, "aggregationRule") else { return };
    let path = Path::new("aggregationRule");
    let path = path.child("clusterRoleSelectors");
    if list(rule, "clusterRoleSelectors").is_empty() {
        let detail = "at least one clusterRoleSelector required if aggregationRule is non-nil";
        errors.push(Error::required(path, detail));
    }
    for (i, selector) in objects(rule, "clusterRoleSelectors") {
        let selector = LabelSelector::from_map(selector);
        errors.extend(selector.validate(&path.index(i)));
        if selector.to_selector().is_err() {
            // What is shown is the selector that could not be made.
            errors.push(Error::invalid(path.index(i), Value::Null, "invalid label selector."));
        }
    }
}

fn binding(binding: &Map, namespaced: bool, kinds: &[&str], errors: &mut ErrorList) {
    let path = Path::new("roleRef");
    let role = at(binding, "roleRef");
    let mut supported = |key: &str, values: &[&str]| {
        if !values.contains(&text(role, key)) {
            errors.push(Error::not_supported(path.child(key), text(role, key), values));
        }
    };
    supported("apiGroup", &[GROUP]);
    supported("kind", kinds);
    required(errors, role, "name", &path, is_path_segment_name);
    let path = Path::new("subjects");
    for (i, one) in objects(binding, "subjects") {
        subject(one, namespaced, &path.index(i), errors);
    }
}

fn subject(subject: &Map, namespaced: bool, path: &Path<'_>, errors: &mut ErrorList) {
    let group = text(subject, "apiGroup");
    let kind = text(subject, "kind");
    let is_account = kind == "ServiceAccount";
    required(errors, subject, "name", path, |name| if is_account { is_dns1123_subdomain(name) } else { Vec::new() });
    let expected = match kind {
        "ServiceAccount" => "",
        "User" | "Group" => GROUP,
        _ => {
            let kinds = ["ServiceAccount", "User", "Group"];
            errors.push(Error::not_supported(path.child("kind"), kind, &kinds));
            return;
        }
    };
    if group != expected {
        errors.push(Error::not_supported(path.child("apiGroup"), group, &[expected]));
    }
    if is_account && !namespaced && text(subject, "namespace").is_empty() {
        errors.push(Error::required(path.child("namespace"), ""));
    }
}

pub(super) fn role_binding(object: &Map, errors: &mut ErrorList) {
    binding(object, true, &["Role", "ClusterRole"], errors);
}

pub(super) fn cluster_role_binding(object: &Map, errors: &mut ErrorList) {
    binding(object, false, &["ClusterRole"], errors);
}

/// A binding keeps its role.
pub(super) fn immutable_role(new: &Map, old: &Map, errors: &mut ErrorList) {
    let (new, old) = (at(new, "roleRef"), at(old, "roleRef"));
    let keys = [("APIGroup", "apiGroup"), ("Kind", "kind"), ("Name", "name")];
    if keys.iter().any(|(_, key)| text(new, key) != text(old, key)) {
        let shown = keys.map(|(name, key)| format!("\"{name}\":{}", json::to_string(&text(new, key).into())));
        errors.push(Error::invalid_shown("roleRef", format!("{{{}}}", shown.join(",")), "cannot change roleRef"));
    }
}
