//! Webhooks for admission, and how webhooks are reached.

use std::collections::BTreeSet;

use capstan_api::{
    Map, Value,
    field::{Error, ErrorList, Path},
    selector::LabelSelector,
    validation::{
        is_dns1035_label, is_dns1123_subdomain, is_fully_qualified_name, is_qualified_name, is_valid_port_num,
    },
};

use capstan_cel::Type;

use super::{
    expressions::{self, Place},
    go_url::{self, Url},
    read::{at, int, is_set, list, object, objects, text},
    rules::{invalid, required},
};

const MAX_MATCH_CONDITIONS: usize = 64;
const REVIEW_VERSIONS: &[&str] = &["v1", "v1beta1"];
const FORM: &str = "; desired format: https://host[/path]";

fn texts<'a>(map: &'a Map, key: &str) -> Vec<&'a str> {
    list(map, key).iter().map(|value| value.as_str().unwrap_or("")).collect()
}

fn shown(map: &Map, key: &str) -> Value {
    map.get(key).cloned().unwrap_or_default()
}

/// Which versions of reviews a webhook understands, of which we must know one.
pub(super) fn review_versions(versions: &[&str], known: bool, detail: &str, path: &Path<'_>, errors: &mut ErrorList) {
    if versions.is_empty() {
        return errors.push(Error::required(path, detail));
    }
    let mut seen = BTreeSet::new();
    for (i, version) in versions.iter().enumerate() {
        if !seen.insert(version) {
            errors.push(Error::invalid(path.index(i), *version, "duplicate version"));
            continue;
        }
        invalid(errors, &path.index(i), *version, is_dns1035_label(version));
    }
    if known && !versions.iter().any(|version| REVIEW_VERSIONS.contains(version)) {
        let shown: Vec<Value> = versions.iter().map(|version| Value::from(*version)).collect();
        let detail = format!("must include at least one of {}", REVIEW_VERSIONS.join(", "));
        errors.push(Error::invalid(path, Value::from(shown), detail));
    }
}

/// How a webhook is reached.
pub(super) fn client_config(config: &Map, path: &Path<'_>, errors: &mut ErrorList) {
    let url = config.get("url").and_then(Value::as_str);
    match (url, object(config, "service")) {
        (Some(url), None) => webhook_url(url, &path.child("url"), errors),
        (None, Some(service)) => webhook_service(service, &path.child("service"), errors),
        _ => errors.push(Error::required(path, "exactly one of url or service is required")),
    }
}

fn webhook_url(url: &str, path: &Path<'_>, errors: &mut ErrorList) {
    let Url { scheme, user, host, query, fragment } = match go_url::parse(url) {
        Ok(url) => url,
        Err(error) => return errors.push(Error::required(path, format!("url must be a valid URL: {error}{FORM}"))),
    };
    let mut wrong = |value: &str, detail: &str| errors.push(Error::invalid(path, value, detail));
    if scheme != "https" {
        wrong(&scheme, &format!("'https' is the only allowed URL scheme{FORM}"));
    }
    if host.is_empty() {
        wrong(host, &format!("host must be specified{FORM}"));
    }
    if let Some(user) = user {
        wrong(user, "user information is not permitted in the URL");
    }
    if !fragment.is_empty() {
        wrong(fragment, "fragments are not permitted in the URL");
    }
    if !query.is_empty() {
        wrong(query, "query parameters are not permitted in the URL");
    }
}

fn webhook_service(service: &Map, path: &Path<'_>, errors: &mut ErrorList) {
    // Upstream mixes up which of the two is missing.
    for (key, told) in [("namespace", "name"), ("name", "namespace")] {
        if text(service, key).is_empty() {
            errors.push(Error::required(path.child(told), ""));
        }
    }
    let port = int(service, "port").unwrap_or(0);
    let messages = is_valid_port_num(port);
    if !messages.is_empty() {
        let detail = format!("port is not valid: {}", messages.join(", "));
        errors.push(Error::invalid(path.child("port"), port, detail));
    }
    let place = text(service, "path");
    let mut wrong = |detail: &str| errors.push(Error::invalid(path.child("path"), place, detail));
    match place {
        "" | "/" => return,
        "//" => return wrong("segment[0] may not be empty"),
        _ => {}
    }
    if !place.starts_with('/') {
        wrong("must start with a '/'");
    }
    let steps = String::from_utf8_lossy(place.as_bytes().get(1..).unwrap_or_default());
    for (i, step) in steps.strip_suffix('/').unwrap_or(&steps).split('/').enumerate() {
        if step.is_empty() {
            wrong(&format!("segment[{i}] may not be empty"));
            continue;
        }
        for message in is_dns1123_subdomain(step) {
            wrong(&format!("segment[{i}]: {message}"));
        }
    }
}

/// A rule about what is admitted, with its operations.
pub(super) fn rule(rule: &Map, path: &Path<'_>, errors: &mut ErrorList) {
    let only = |key: &str, what: &str, errors: &mut ErrorList| {
        let values = texts(rule, key);
        if values.is_empty() {
            errors.push(Error::required(path.child(key), ""));
        }
        if values.len() > 1 && values.contains(&"*") {
            let detail = format!("if '*' is present, must not specify other {what}");
            errors.push(Error::invalid(path.child(key), shown(rule, key), detail));
        }
    };
    only("operations", "operations", errors);
    let operations = ["*", "CONNECT", "CREATE", "DELETE", "UPDATE"];
    let operations_path = path.child("operations");
    for (i, operation) in texts(rule, "operations").into_iter().enumerate() {
        if !operations.contains(&operation) {
            errors.push(Error::not_supported(operations_path.index(i), operation, &operations));
        }
    }
    only("apiGroups", "API groups", errors);
    only("apiVersions", "API versions", errors);
    let versions_path = path.child("apiVersions");
    for (i, _) in texts(rule, "apiVersions").iter().enumerate().filter(|(_, version)| version.is_empty()) {
        errors.push(Error::required(versions_path.index(i), ""));
    }
    resources(rule, &path.child("resources"), errors);
    let scopes = ["*", "Cluster", "Namespaced"];
    if is_set(rule, "scope") && !scopes.contains(&text(rule, "scope")) {
        errors.push(Error::not_supported(path.child("scope"), text(rule, "scope"), &scopes));
    }
}

fn resources(rule: &Map, path: &Path<'_>, errors: &mut ErrorList) {
    let resources = texts(rule, "resources");
    if resources.is_empty() {
        errors.push(Error::required(path, ""));
    }
    let (mut with_all_subresources, mut of_all) = (BTreeSet::new(), BTreeSet::new());
    let mut last_plain = false;
    for (i, resource) in resources.iter().enumerate() {
        if resource.is_empty() {
            errors.push(Error::required(path.index(i), ""));
            continue;
        }
        let Some((one, sub)) = resource.split_once('/') else {
            // Upstream remembers the last one only.
            last_plain = *resource != "*";
            continue;
        };
        let mut wrong = |other: String| {
            let detail = format!("if '{other}' is present, must not specify {resource}");
            errors.push(Error::invalid(path.index(i), *resource, detail));
        };
        if with_all_subresources.contains(one) {
            wrong(format!("{one}/*"));
        }
        if of_all.contains(sub) {
            wrong(format!("*/{sub}"));
        }
        if sub == "*" {
            with_all_subresources.insert(one);
        }
        if one == "*" {
            of_all.insert(sub);
        }
    }
    if resources.len() > 1 && resources.contains(&"*/*") {
        let detail = "if '*/*' is present, must not specify other resources";
        errors.push(Error::invalid(path, shown(rule, "resources"), detail));
    }
    if resources.contains(&"*") && last_plain {
        let detail = "if '*' is present, must not specify other resources without subresources";
        errors.push(Error::invalid(path, shown(rule, "resources"), detail));
    }
}

/// Conditions on which something is asked. The expressions are compiled elsewhere.
pub(super) fn match_conditions(map: &Map, place: &Place, path: &Path<'_>, errors: &mut ErrorList) {
    let path = path.child("matchConditions");
    let count = list(map, "matchConditions").len();
    if count > MAX_MATCH_CONDITIONS {
        errors.push(Error::too_many(path, count, MAX_MATCH_CONDITIONS));
    }
    let mut names = BTreeSet::new();
    for (i, condition) in objects(map, "matchConditions") {
        let path = path.index(i);
        match text(condition, "expression").trim() {
            "" => errors.push(Error::required(path.child("expression"), "")),
            text => drop(expressions::expression(text, place, &[Type::Bool], &path.child("expression"), errors)),
        }
        required(errors, condition, "name", &path, is_qualified_name);
        let name = text(condition, "name");
        if !name.is_empty() && !names.insert(name) {
            errors.push(Error::duplicate(path.child("name"), name));
        }
    }
}

/// What a configuration may keep because it has it already.
#[derive(Clone, Copy)]
struct Strict {
    no_side_effects: bool,
    known_versions: bool,
    unique_names: bool,
}

pub(super) fn configuration(configuration: &Map, errors: &mut ErrorList) {
    let strict = Strict { no_side_effects: true, known_versions: true, unique_names: true };
    hooks(configuration, strict, errors);
}

pub(super) fn configuration_update(new: &Map, old: &Map, errors: &mut ErrorList) {
    let all = |test: &dyn Fn(&Map) -> bool| objects(old, "webhooks").all(|(_, hook)| test(hook));
    let names: Vec<_> = objects(old, "webhooks").map(|(_, hook)| text(hook, "name")).collect();
    let strict = Strict {
        no_side_effects: all(&|hook| ["None", "NoneOnDryRun"].contains(&text(hook, "sideEffects"))),
        known_versions: all(&|hook| {
            let versions = texts(hook, "admissionReviewVersions");
            versions.is_empty() || versions.iter().any(|version| REVIEW_VERSIONS.contains(version))
        }),
        unique_names: names.iter().collect::<BTreeSet<_>>().len() == names.len(),
    };
    hooks(new, strict, errors);
}

fn hooks(configuration: &Map, strict: Strict, errors: &mut ErrorList) {
    let path = Path::new("webhooks");
    let mut names = BTreeSet::new();
    for (i, one) in objects(configuration, "webhooks") {
        let path = path.index(i);
        hook(one, strict, &path, errors);
        let detail = format!("must specify one of {}", REVIEW_VERSIONS.join(", "));
        let versions = texts(one, "admissionReviewVersions");
        review_versions(&versions, strict.known_versions, &detail, &path.child("admissionReviewVersions"), errors);
        let name = text(one, "name");
        if strict.unique_names && !name.is_empty() && !names.insert(name) {
            errors.push(Error::duplicate(path.child("name"), name));
        }
    }
}

fn hook(hook: &Map, strict: Strict, path: &Path<'_>, errors: &mut ErrorList) {
    errors.extend(is_fully_qualified_name(&path.child("name"), text(hook, "name")));
    let rules = path.child("rules");
    for (i, one) in objects(hook, "rules") {
        rule(one, &rules.index(i), errors);
    }
    let one_of = |key: &str, known: &[&str], errors: &mut ErrorList| {
        if is_set(hook, key) && !known.contains(&text(hook, key)) {
            errors.push(Error::not_supported(path.child(key), text(hook, key), known));
        }
    };
    one_of("failurePolicy", &["Fail", "Ignore"], errors);
    one_of("matchPolicy", &["Equivalent", "Exact"], errors);
    let effects: &[&str] =
        if strict.no_side_effects { &["None", "NoneOnDryRun"] } else { &["None", "NoneOnDryRun", "Some", "Unknown"] };
    if !is_set(hook, "sideEffects") {
        let detail = format!("must specify one of {}", effects.join(", "));
        errors.push(Error::required(path.child("sideEffects"), detail));
    }
    one_of("sideEffects", effects, errors);
    if let Some(seconds) = int(hook, "timeoutSeconds").filter(|seconds| !(1..=30).contains(seconds)) {
        let detail = "the timeout value must be between 1 and 30 seconds";
        errors.push(Error::invalid(path.child("timeoutSeconds"), seconds, detail));
    }
    for key in ["namespaceSelector", "objectSelector"] {
        if let Some(selector) = object(hook, key) {
            errors.extend(LabelSelector::from_map(selector).validate(&path.child(key)));
        }
    }
    one_of("reinvocationPolicy", &["IfNeeded", "Never"], errors);
    client_config(at(hook, "clientConfig"), &path.child("clientConfig"), errors);
    match_conditions(hook, &expressions::WEBHOOK, path, errors);
}
