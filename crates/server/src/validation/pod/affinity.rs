//! Where a pod may run: near or far from nodes and other pods.

use std::collections::{BTreeMap, BTreeSet};

use capstan_api::{
    Map, Value,
    field::{Error, ErrorList, Path},
    selector::LabelSelector,
    validation::{is_dns1123_subdomain, is_valid_label_value, name_is_dns_label, validate_label_name},
};

use crate::validation::{
    read::{at, int, is_set, list, object, objects, text},
    rules::invalid,
};

const REQUIRED: &str = "requiredDuringSchedulingIgnoredDuringExecution";
const PREFERRED: &str = "preferredDuringSchedulingIgnoredDuringExecution";

pub(super) fn validate(affinity: &Map, path: &Path<'_>, errors: &mut ErrorList) {
    if let Some(node) = object(affinity, "nodeAffinity") {
        node_affinity(node, &path.child("nodeAffinity"), errors);
    }
    for key in ["podAffinity", "podAntiAffinity"] {
        let path = path.child(key);
        let Some(pods) = object(affinity, key) else { continue };
        let required = path.child(REQUIRED);
        for (i, term) in objects(pods, REQUIRED) {
            pod_term(term, &required.index(i), errors);
        }
        let preferred = path.child(PREFERRED);
        for (i, weighted) in objects(pods, PREFERRED) {
            let path = preferred.index(i);
            weight(weighted, &path, errors);
            pod_term(at(weighted, "podAffinityTerm"), &path.child("podAffinityTerm"), errors);
        }
    }
}

fn node_affinity(node: &Map, path: &Path<'_>, errors: &mut ErrorList) {
    if let Some(selector) = object(node, REQUIRED) {
        let path = path.child(REQUIRED);
        let path = path.child("nodeSelectorTerms");
        if list(selector, "nodeSelectorTerms").is_empty() {
            errors.push(Error::required(path, "must have at least one node selector term"));
        }
        for (i, term) in objects(selector, "nodeSelectorTerms") {
            node_term(term, true, &path.index(i), errors);
        }
    }
    let path = path.child(PREFERRED);
    for (i, term) in objects(node, PREFERRED) {
        let path = path.index(i);
        weight(term, &path, errors);
        node_term(at(term, "preference"), false, &path.child("preference"), errors);
    }
}

fn weight(term: &Map, path: &Path<'_>, errors: &mut ErrorList) {
    let weight = int(term, "weight").unwrap_or(0);
    if !(1..=100).contains(&weight) {
        errors.push(Error::invalid(path.child("weight"), weight, "must be in the range 1-100"));
    }
}

/// What nodes are meant. Only in what is required the values are looked at.
fn node_term(term: &Map, strict: bool, path: &Path<'_>, errors: &mut ErrorList) {
    let expressions = path.child("matchExpressions");
    for (i, requirement) in objects(term, "matchExpressions") {
        let path = expressions.index(i);
        let count = list(requirement, "values").len();
        match text(requirement, "operator") {
            "In" | "NotIn" if count == 0 => {
                let detail = "must be specified when `operator` is 'In' or 'NotIn'";
                errors.push(Error::required(path.child("values"), detail));
            }
            "Exists" | "DoesNotExist" if count > 0 => {
                let detail = "may not be specified when `operator` is 'Exists' or 'DoesNotExist'";
                errors.push(Error::forbidden(path.child("values"), detail));
            }
            "Gt" | "Lt" if count != 1 => {
                let detail = "must be specified single value when `operator` is 'Lt' or 'Gt'";
                errors.push(Error::required(path.child("values"), detail));
            }
            "In" | "NotIn" | "Exists" | "DoesNotExist" | "Gt" | "Lt" => {}
            operator => {
                errors.push(Error::invalid(path.child("operator"), operator, "not a valid selector operator"));
            }
        }
        errors.extend(validate_label_name(text(requirement, "key"), &path.child("key")));
        let path = path.child("values");
        for (i, value) in list(requirement, "values").iter().enumerate().filter(|_| strict) {
            let value = value.as_str().unwrap_or("");
            invalid(errors, &path.index(i), value, is_valid_label_value(value));
        }
    }
    let fields = path.child("matchFields");
    for (i, requirement) in objects(term, "matchFields") {
        node_field(requirement, &fields.index(i), errors);
    }
}

fn node_field(requirement: &Map, path: &Path<'_>, errors: &mut ErrorList) {
    let values = list(requirement, "values");
    match text(requirement, "operator") {
        "In" | "NotIn" if values.len() == 1 => {}
        "In" | "NotIn" => {
            let detail = "must be only one value when `operator` is 'In' or 'NotIn' for node field selector";
            errors.push(Error::required(path.child("values"), detail));
        }
        operator => errors.push(Error::invalid(path.child("operator"), operator, "not a valid selector operator")),
    }
    let key = text(requirement, "key");
    if key != "metadata.name" {
        errors.push(Error::invalid(path.child("key"), key, "not a valid field selector key"));
        return;
    }
    let path = path.child("values");
    for (i, value) in values.iter().enumerate() {
        let value = value.as_str().unwrap_or("");
        invalid(errors, &path.index(i), value, is_dns1123_subdomain(value));
    }
}

fn pod_term(term: &Map, path: &Path<'_>, errors: &mut ErrorList) {
    for key in ["labelSelector", "namespaceSelector"] {
        errors.extend(LabelSelector::from_map(at(term, key)).validate(&path.child(key)));
    }
    for name in list(term, "namespaces").iter().filter_map(Value::as_str) {
        invalid(errors, &path.child("namespace"), name, name_is_dns_label(name, false));
    }
    label_keys(term, path, errors);
    let key = text(term, "topologyKey");
    if key.is_empty() {
        errors.push(Error::required(path.child("topologyKey"), "can not be empty"));
    }
    errors.extend(validate_label_name(key, &path.child("topologyKey")));
}

fn keys<'a>(map: &'a Map, key: &str) -> Vec<&'a str> {
    list(map, key).iter().map(|key| key.as_str().unwrap_or("")).collect()
}

/// Keys whose values come from the pod itself.
pub(super) fn label_keys(term: &Map, path: &Path<'_>, errors: &mut ErrorList) {
    let (matching, differing) = (keys(term, "matchLabelKeys"), keys(term, "mismatchLabelKeys"));
    for (name, keys) in [("matchLabelKeys", &matching), ("mismatchLabelKeys", &differing)] {
        let path = path.child(name);
        if !keys.is_empty() && !is_set(term, "labelSelector") {
            errors.push(Error::forbidden(path, "must not be specified when labelSelector is not set"));
            continue;
        }
        for (i, key) in keys.iter().enumerate() {
            errors.extend(validate_label_name(key, &path.index(i)));
        }
    }
    let selector = at(term, "labelSelector");
    let mut selected: BTreeSet<_> = at(selector, "matchLabels").keys().collect();
    let place_of: BTreeMap<_, _> = matching.iter().enumerate().map(|(i, key)| (*key, i)).collect();
    for (_, expression) in objects(selector, "matchExpressions") {
        let key = text(expression, "key");
        if let Some(i) = place_of.get(key).copied().filter(|_| selected.contains(key)) {
            let detail = "exists in both matchLabelKeys and labelSelector";
            errors.push(Error::invalid(path.index(i), key, detail));
        }
        selected.insert(key);
    }
    let path = path.child("matchLabelKeys");
    let differing: BTreeSet<_> = differing.into_iter().collect();
    for (i, key) in matching.iter().enumerate().filter(|(_, key)| differing.contains(*key)) {
        let detail = "exists in both matchLabelKeys and mismatchLabelKeys";
        errors.push(Error::invalid(path.index(i), *key, detail));
    }
}

/// What nodes a pod is held back for may only become fewer.
pub(super) fn narrowed(new: &Map, old: &Map, path: &Path<'_>, errors: &mut ErrorList) {
    let terms = |affinity| list(at(affinity, REQUIRED), "nodeSelectorTerms");
    let (new, old) = (terms(new), terms(old));
    let path = path.child(REQUIRED);
    let path = path.child("nodeSelectorTerms");
    if !old.is_empty() && new.len() != old.len() {
        let detail = "no additions/deletions to non-empty NodeSelectorTerms list are allowed";
        let value = if new.is_empty() { Value::Null } else { Value::from(new.to_vec()) };
        errors.push(Error::invalid_shown(path, show_terms(&value), detail));
        return;
    }
    for (i, (new, old)) in new.iter().zip(old).enumerate() {
        let of = |term: &Value, key: &str| term.get(key).and_then(Value::as_array).map_or(0, |items| items.len());
        let none = |term: &Value| ["matchExpressions", "matchFields"].iter().all(|key| of(term, key) == 0);
        let kept = ["matchExpressions", "matchFields"].iter().all(|key| {
            let [new, old] = [new, old].map(|term| term.as_object().map_or(&[][..], |term| list(term, key)));
            new.len() >= old.len() && new[..old.len()] == *old
        });
        if !kept || (none(old) && !none(new)) {
            let detail = "only additions are allowed (no mutations or deletions)";
            errors.push(Error::invalid_shown(path.index(i), show_term(new), detail));
        }
    }
}

fn show_terms(terms: &Value) -> String {
    match terms.as_array() {
        None => "null".to_owned(),
        Some(terms) => format!("[{}]", terms.iter().map(show_term).collect::<Vec<_>>().join(",")),
    }
}

/// A term as Go prints it.
fn show_term(term: &Value) -> String {
    use crate::validation::show::{json, show};
    let list_of = |key: &str| {
        let Some(items) = term.get(key).and_then(Value::as_array) else { return "null".to_owned() };
        let fields = [("Key", "key", "\"\""), ("Operator", "operator", "\"\""), ("Values", "values", "null")];
        let one = |item: &Value| item.as_object().map_or_else(|| json(item), |item| show(item, &fields));
        format!("[{}]", items.iter().map(one).collect::<Vec<_>>().join(","))
    };
    format!(r#"{{"MatchExpressions":{},"MatchFields":{}}}"#, list_of("matchExpressions"), list_of("matchFields"))
}
