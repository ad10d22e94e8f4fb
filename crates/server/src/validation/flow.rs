//! Flow schemas and priority levels.

use std::collections::BTreeSet;

use capstan_api::{
    Map, Value,
    field::{Error, ErrorList, Path},
    validation::{name_is_dns_label, name_is_dns_subdomain},
};

use super::{
    read::{at, flag, int, is_set, list, object, objects, text},
    rules::invalid,
    shape::{Field, TEXT, show},
};

const SPEC: Path<'static> = Path::new("spec");
const MAX_PRECEDENCE: i64 = 10_000;
const MAX_QUEUES: i64 = 10_000_000;
const MAX_HASH_BITS: f64 = 60.0;
const VERBS: &[&str] = &["create", "delete", "deletecollection", "get", "list", "patch", "proxy", "update", "watch"];
const METHOD: &[Field] = &[("Type", "type", TEXT)];

pub(super) fn schema(schema: &Map, errors: &mut ErrorList) {
    let spec = at(schema, "spec");
    let precedence = int(spec, "matchingPrecedence").unwrap_or(0);
    let mut wrong = |detail: &str| errors.push(Error::invalid(SPEC.child("matchingPrecedence"), precedence, detail));
    if precedence <= 0 {
        wrong("must be a positive value");
    }
    if precedence > MAX_PRECEDENCE {
        wrong(&format!("must not be greater than {MAX_PRECEDENCE}"));
    }
    if precedence == 1 && text(at(schema, "metadata"), "name") != "exempt" {
        wrong("only the schema named 'exempt' may have matchingPrecedence 1");
    }
    if let Some(method) = object(spec, "distinguisherMethod") {
        let known = ["ByNamespace", "ByUser"];
        if !known.contains(&text(method, "type")) {
            let path = SPEC.child("distinguisherMethod");
            // What is shown is the struct.
            let error = Error::not_supported(path.child("type"), "", &known);
            let detail = format!("{}: {}", show(method, METHOD), error.detail);
            errors.push(Error { bad_value: None, detail, ..error });
        }
    }
    let path = SPEC.child("priorityLevelConfiguration");
    match text(at(spec, "priorityLevelConfiguration"), "name") {
        "" => errors.push(Error::required(path.child("name"), "must reference a priority level")),
        name => invalid(errors, &path.child("name"), name, name_is_dns_subdomain(name, false)),
    }
    let path = SPEC.child("rules");
    for (i, one) in objects(spec, "rules") {
        rule(one, &path.index(i), errors);
    }
}

/// What both kinds say of their state.
pub(super) fn status(new: &Map, _: &Map, errors: &mut ErrorList) {
    let path = Path::new("status");
    let path = path.child("conditions");
    let mut seen = BTreeSet::new();
    for (i, condition) in objects(at(new, "status"), "conditions") {
        let (ty, path) = (text(condition, "type"), path.index(i));
        if !seen.insert(ty) {
            errors.push(Error::duplicate(path.child("type"), ty));
        }
        if ty.is_empty() {
            errors.push(Error::required(path.child("type"), ""));
        }
    }
}

fn rule(rule: &Map, path: &Path<'_>, errors: &mut ErrorList) {
    let subjects = path.child("subjects");
    if list(rule, "subjects").is_empty() {
        errors.push(Error::required(subjects, "subjects must contain at least one value"));
    }
    for (i, one) in objects(rule, "subjects") {
        subject(one, &subjects.index(i), errors);
    }
    if ["resourceRules", "nonResourceRules"].iter().all(|key| list(rule, key).is_empty()) {
        let detail = "at least one of resourceRules and nonResourceRules has to be non-empty";
        errors.push(Error::required(path, detail));
    }
    let resources = path.child("resourceRules");
    for (i, one) in objects(rule, "resourceRules") {
        let path = resources.index(i);
        verbs(one, &path, errors);
        some(one, "apiGroups", "resource rules must supply at least one api group", "api groups", &path, errors);
        some(one, "resources", "resource rules must supply at least one resource", "resources", &path, errors);
        namespaces(one, &path, errors);
    }
    let urls = path.child("nonResourceRules");
    for (i, one) in objects(rule, "nonResourceRules") {
        let path = urls.index(i);
        verbs(one, &path, errors);
        let missing = "nonResourceURLs must contain at least one value";
        if some(one, "nonResourceURLs", missing, "non-resource URLs", &path, errors) {
            let path = path.child("nonResourceURLs");
            for (i, url) in texts(one, "nonResourceURLs").into_iter().enumerate() {
                if let Some(detail) = url_error(url) {
                    errors.push(Error::invalid(path.index(i), url, detail));
                }
            }
        }
    }
}

fn texts<'a>(map: &'a Map, key: &str) -> Vec<&'a str> {
    list(map, key).iter().map(|value| value.as_str().unwrap_or("")).collect()
}

fn shown(map: &Map, key: &str) -> Value {
    map.get(key).cloned().unwrap_or_default()
}

/// At least one value, and a star stands alone. Whether there are values that are no star.
fn some(map: &Map, key: &str, missing: &str, what: &str, path: &Path<'_>, errors: &mut ErrorList) -> bool {
    let values = texts(map, key);
    if values.is_empty() {
        errors.push(Error::required(path.child(key), missing));
    }
    let star = values.contains(&"*");
    if star && values.len() > 1 {
        let detail = format!("if '*' is present, must not specify other {what}");
        errors.push(Error::invalid(path.child(key), shown(map, key), detail));
    }
    !values.is_empty() && !star
}

fn verbs(rule: &Map, path: &Path<'_>, errors: &mut ErrorList) {
    let named = some(rule, "verbs", "verbs must contain at least one value", "verbs", path, errors);
    if named && !texts(rule, "verbs").iter().all(|verb| VERBS.contains(verb)) {
        errors.push(Error::not_supported(path.child("verbs"), shown(rule, "verbs"), VERBS));
    }
}

fn namespaces(rule: &Map, path: &Path<'_>, errors: &mut ErrorList) {
    if texts(rule, "namespaces").is_empty() {
        if !flag(rule, "clusterScope") {
            let detail = "resource rules that are not cluster scoped must supply at least one namespace";
            errors.push(Error::required(path.child("namespaces"), detail));
        }
        return;
    }
    if some(rule, "namespaces", "", "namespaces", path, errors) {
        let path = path.child("namespaces");
        for (i, name) in texts(rule, "namespaces").into_iter().enumerate() {
            let told = |message| format!("each member of this list must be '*' or a DNS-1123 label; {message}");
            let messages = name_is_dns_label(name, false).into_iter().map(told).collect();
            invalid(errors, &path.index(i), name, messages);
        }
    }
}

fn url_error(url: &str) -> Option<&'static str> {
    match url {
        "" => Some("must not be empty"),
        "/" => None,
        url if !url.starts_with('/') => Some("must start with slash"),
        url if url.contains(' ') => Some("must not contain white-space"),
        url if url.contains("//") => Some("must not contain double slash"),
        url => {
            let stars = url.matches('*').count();
            (stars > 1 || (stars == 1 && !url.ends_with("/*"))).then_some("wildcard can only do suffix matching")
        }
    }
}

fn subject(subject: &Map, path: &Path<'_>, errors: &mut ErrorList) {
    let kinds = [("ServiceAccount", "serviceAccount"), ("User", "user"), ("Group", "group")];
    let kind = text(subject, "kind");
    let Some((_, key)) = kinds.iter().find(|(name, _)| *name == kind) else {
        let known = ["Group", "ServiceAccount", "User"];
        return errors.push(Error::not_supported(path.child("kind"), kind, &known));
    };
    let own = path.child(key);
    match object(subject, key) {
        None => errors.push(Error::required(own, format!("{key} is required when subject kind is '{kind}'"))),
        Some(who) => {
            let name = text(who, "name");
            if name.is_empty() {
                errors.push(Error::required(own.child("name"), ""));
            } else if kind == "ServiceAccount" && name != "*" {
                invalid(errors, &own.child("name"), name, name_is_dns_subdomain(name, false));
            }
            let namespace = text(who, "namespace");
            if kind == "ServiceAccount" && namespace.is_empty() {
                let detail = "must specify namespace for service account";
                errors.push(Error::required(own.child("namespace"), detail));
            } else if kind == "ServiceAccount" {
                invalid(errors, &own.child("namespace"), namespace, name_is_dns_label(namespace, false));
            }
        }
    }
    // Users come before groups, and accounts before both.
    for (name, key) in kinds.iter().filter(|(name, key)| *name != kind && is_set(subject, key)) {
        let detail = format!("{key} is forbidden when subject kind is not '{name}'");
        errors.push(Error::forbidden(path.child(key), detail));
    }
}

pub(super) fn priority_level(level: &Map, errors: &mut ErrorList) {
    let spec = at(level, "spec");
    let ty = text(spec, "type");
    if (text(at(level, "metadata"), "name") == "exempt") != (ty == "Exempt") {
        let detail = "must be 'Exempt' if and only if `name` is 'exempt'";
        errors.push(Error::invalid(SPEC.child("type"), ty, detail));
    }
    let (limited_path, exempt_path) = (SPEC.child("limited"), SPEC.child("exempt"));
    match (ty, object(spec, "limited"), object(spec, "exempt")) {
        ("Exempt", limited, exempt) => {
            if limited.is_some() {
                errors.push(Error::forbidden(limited_path, "must be nil if the type is not Limited"));
            }
            if let Some(exempt) = exempt {
                shares(exempt, &exempt_path, errors);
                lendable(exempt, &exempt_path, errors);
            }
        }
        ("Limited", limited, exempt) => {
            if exempt.is_some() {
                errors.push(Error::forbidden(exempt_path, "must be nil if the type is Limited"));
            }
            match limited {
                None => errors.push(Error::required(limited_path, "must not be empty when type is Limited")),
                Some(limited) => limits(limited, &limited_path, errors),
            }
        }
        ("", ..) => errors.push(Error::required(SPEC.child("type"), "")),
        _ => errors.push(Error::not_supported(SPEC.child("type"), ty, &["Exempt", "Limited"])),
    }
}

fn shares(map: &Map, path: &Path<'_>, errors: &mut ErrorList) {
    if let Some(shares) = int(map, "nominalConcurrencyShares").filter(|shares| *shares < 0) {
        errors.push(Error::invalid(path.child("nominalConcurrencyShares"), shares, "must be a non-negative integer"));
    }
}

fn lendable(map: &Map, path: &Path<'_>, errors: &mut ErrorList) {
    if let Some(percent) = int(map, "lendablePercent").filter(|percent| !(0..=100).contains(percent)) {
        errors.push(Error::invalid(path.child("lendablePercent"), percent, "must be between 0 and 100, inclusive"));
    }
}

fn limits(limited: &Map, path: &Path<'_>, errors: &mut ErrorList) {
    shares(limited, path, errors);
    let response = at(limited, "limitResponse");
    let response_path = path.child("limitResponse");
    let queuing_path = response_path.child("queuing");
    match (text(response, "type"), object(response, "queuing")) {
        ("Reject", Some(_)) => {
            errors.push(Error::forbidden(queuing_path, "must be nil if limited.limitResponse.type is not Limited"));
        }
        ("Reject", None) => {}
        ("Queue", None) => {
            let detail = "must not be empty if limited.limitResponse.type is Limited";
            errors.push(Error::required(queuing_path, detail));
        }
        ("Queue", Some(queuing)) => queues(queuing, &queuing_path, errors),
        ("", _) => errors.push(Error::required(response_path.child("type"), "")),
        (ty, _) => errors.push(Error::not_supported(response_path.child("type"), ty, &["Queue", "Reject"])),
    }
    lendable(limited, path, errors);
    if let Some(percent) = int(limited, "borrowingLimitPercent").filter(|percent| *percent < 0) {
        let detail = "if specified, must be a non-negative integer";
        errors.push(Error::invalid(path.child("borrowingLimitPercent"), percent, detail));
    }
}

fn queues(queuing: &Map, path: &Path<'_>, errors: &mut ErrorList) {
    let [length, queues, hand] = ["queueLengthLimit", "queues", "handSize"].map(|key| int(queuing, key).unwrap_or(0));
    let mut wrong = |key: &str, value: i64, detail: String| errors.push(Error::invalid(path.child(key), value, detail));
    let positive = || "must be positive".to_owned();
    if length <= 0 {
        wrong("queueLengthLimit", length, positive());
    }
    if queues <= 0 {
        wrong("queues", queues, positive());
    } else if queues > MAX_QUEUES {
        wrong("queues", queues, format!("must not be greater than {MAX_QUEUES}"));
    }
    if hand <= 0 {
        wrong("handSize", hand, positive());
    } else if hand > queues {
        wrong("handSize", hand, format!("should not be greater than queues ({queues})"));
    } else if entropy_bits(queues, hand) > MAX_HASH_BITS {
        let detail = format!(
            "required entropy bits of deckSize {queues} and handSize {hand} should not be greater than {MAX_HASH_BITS}"
        );
        wrong("handSize", hand, detail);
    }
}

/// How many bits of a hash it takes to deal a hand of queues.
#[expect(clippy::cast_precision_loss, reason = "the numbers are checked to be small, and this is an estimate")]
fn entropy_bits(queues: i64, hand: i64) -> f64 {
    ((queues as f64).log2() * hand as f64).ceil()
}
