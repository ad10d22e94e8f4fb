//! Questions about access and tokens, and where groups of APIs are served.

use capstan_api::{
    GroupVersionKind, Map, Value,
    field::{Error, ErrorList, Path},
    validation::{
        is_dns1035_label, is_dns1123_subdomain, is_path_segment_name, is_valid_port_num, validate_label_name,
    },
};

use super::{
    read::{at, flag, int, is_set, list, object, objects, text},
    rules::{invalid, optional},
    shape::{Field, TEXT, show},
};

const SPEC: Path<'static> = Path::new("spec");
const MIN_TOKEN_SECONDS: i64 = 600;
const MAX_TOKEN_SECONDS: i64 = 1 << 32;
const NON_RESOURCE: &[Field] = &[("Path", "path", TEXT), ("Verb", "verb", TEXT)];

/// What is wrong with a question; nothing for what is no question.
pub(super) fn validate(gvk: &GroupVersionKind, object: &Map) -> Option<ErrorList> {
    let mut errors = ErrorList::new();
    match (gvk.group.as_str(), gvk.kind.as_str()) {
        ("authorization.k8s.io", "SubjectAccessReview") => access(object, true, &mut errors),
        ("authorization.k8s.io", "SelfSubjectAccessReview") => access(object, false, &mut errors),
        ("authorization.k8s.io", "LocalSubjectAccessReview") => local(object, &mut errors),
        ("authentication.k8s.io", "TokenRequest") => token(object, &mut errors),
        ("authorization.k8s.io", "SelfSubjectRulesReview")
        | ("authentication.k8s.io", "TokenReview" | "SelfSubjectReview") => {}
        _ => return None,
    }
    Some(errors)
}

fn shown(attributes: Option<&Map>) -> String {
    attributes.map_or_else(|| "null".to_owned(), |attributes| show(attributes, NON_RESOURCE))
}

fn access_spec(spec: &Map, needs_user: bool, errors: &mut ErrorList) {
    let (resource, other) = (object(spec, "resourceAttributes"), object(spec, "nonResourceAttributes"));
    match (resource, other) {
        (Some(_), Some(_)) => {
            let detail = "cannot be specified in combination with resourceAttributes";
            errors.push(Error::invalid_shown(SPEC.child("nonResourceAttributes"), shown(other), detail));
        }
        (None, None) => {
            let detail = "exactly one of nonResourceAttributes or resourceAttributes must be specified";
            errors.push(Error::invalid(SPEC.child("resourceAttributes"), Value::Null, detail));
        }
        _ => {}
    }
    if needs_user && text(spec, "user").is_empty() && list(spec, "groups").is_empty() {
        errors.push(Error::invalid(SPEC.child("user"), "", "at least one of user or group must be specified"));
    }
    let path = SPEC.child("resourceAttributes");
    for key in ["fieldSelector", "labelSelector"] {
        if let Some(selector) = resource.and_then(|resource| object(resource, key)) {
            selector_attributes(selector, key == "labelSelector", &path.child(key), errors);
        }
    }
}

fn selector_attributes(selector: &Map, of_labels: bool, path: &Path<'_>, errors: &mut ErrorList) {
    let raw = text(selector, "rawSelector");
    let requirements = path.child("requirements");
    match (raw.is_empty(), list(selector, "requirements").is_empty()) {
        (false, false) => {
            let detail = "may not specified at the same time as requirements";
            errors.push(Error::invalid(path.child("rawSelector"), raw, detail));
        }
        (true, true) => {
            let detail = format!("when {path} is specified, requirements or rawSelector is required");
            errors.push(Error::required(requirements, detail));
        }
        _ => {}
    }
    for (i, one) in objects(selector, "requirements") {
        let path = requirements.index(i);
        if !of_labels && text(one, "key").is_empty() {
            errors.push(Error::required(path.child("key"), "must be specified"));
        }
        let values = path.child("values");
        match (text(one, "operator"), list(one, "values").len()) {
            ("In" | "NotIn", 0) => {
                errors.push(Error::required(values, "must be specified when `operator` is 'In' or 'NotIn'"));
            }
            ("Exists" | "DoesNotExist", 1..) => {
                let detail = "may not be specified when `operator` is 'Exists' or 'DoesNotExist'";
                errors.push(Error::forbidden(values, detail));
            }
            _ => {}
        }
        if of_labels {
            errors.extend(validate_label_name(text(one, "key"), &path.child("key")));
        }
    }
}

/// The metadata of a question is empty, for it is not stored.
fn no_metadata(review: &Map, allowed: &[&str], detail: &str, errors: &mut ErrorList) {
    let mut metadata = at(review, "metadata").clone();
    metadata.retain(|key, value| key != "managedFields" && !value.is_null());
    if metadata.keys().any(|key| !allowed.contains(&key)) {
        errors.push(Error::invalid("metadata", metadata, detail));
    }
}

fn access(review: &Map, needs_user: bool, errors: &mut ErrorList) {
    access_spec(at(review, "spec"), needs_user, errors);
    no_metadata(review, &[], "must be empty", errors);
}

fn local(review: &Map, errors: &mut ErrorList) {
    let spec = at(review, "spec");
    access_spec(spec, true, errors);
    no_metadata(review, &["namespace"], "must be empty except for namespace", errors);
    if let Some(resource) = object(spec, "resourceAttributes") {
        let namespace = text(resource, "namespace");
        if namespace != text(at(review, "metadata"), "namespace") {
            errors.push(Error::invalid(
                "spec.resourceAttributes.namespace",
                namespace,
                "must match metadata.namespace",
            ));
        }
    }
    let other = object(spec, "nonResourceAttributes");
    if other.is_some() {
        let detail = "disallowed on this kind of request";
        errors.push(Error::invalid_shown("spec.nonResourceAttributes", shown(other), detail));
    }
}

fn token(request: &Map, errors: &mut ErrorList) {
    let seconds = int(at(request, "spec"), "expirationSeconds").unwrap_or(0);
    let mut wrong = |detail: &str| errors.push(Error::invalid(SPEC.child("expirationSeconds"), seconds, detail));
    if seconds < MIN_TOKEN_SECONDS {
        wrong("may not specify a duration less than 10 minutes");
    }
    if seconds > MAX_TOKEN_SECONDS {
        wrong("may not specify a duration larger than 2^32 seconds");
    }
}

pub(super) fn api_service(service: &Map, errors: &mut ErrorList) {
    let spec = at(service, "spec");
    let (group, version) = (text(spec, "group"), text(spec, "version"));
    let name = text(at(service, "metadata"), "name");
    let needed = format!("{version}.{group}");
    if !name.is_empty() && is_path_segment_name(name).is_empty() && name != needed {
        let detail = format!("must be `spec.version+\".\"+spec.group`: \"{needed}\"");
        errors.push(Error::invalid(Path::new("metadata").child("name"), name, detail));
    }
    if group.is_empty() && version != "v1" {
        let detail = "only v1 may have an empty group and it better be legacy kube";
        errors.push(Error::required(SPEC.child("group"), detail));
    }
    optional(errors, spec, "group", &SPEC, is_dns1123_subdomain);
    invalid(errors, &SPEC.child("version"), version, is_dns1035_label(version));
    for (key, max) in [("groupPriorityMinimum", 20_000), ("versionPriority", 1_000)] {
        let priority = int(spec, key).unwrap_or(0);
        if priority <= 0 || priority > max {
            let detail = format!("must be positive and less than {max}");
            errors.push(Error::invalid(SPEC.child(key), priority, detail));
        }
    }
    let bundle = text(spec, "caBundle");
    let insecure = flag(spec, "insecureSkipTLSVerify");
    let insecure_path = SPEC.child("insecureSkipTLSVerify");
    let Some(backend) = object(spec, "service") else {
        if !bundle.is_empty() {
            let size = bundle.trim_end_matches('=').len() * 3 / 4;
            let detail = "local APIServices may not have a caBundle";
            errors.push(Error::invalid(SPEC.child("caBundle"), format!("{size} bytes"), detail));
        }
        if insecure {
            let detail = "local APIServices may not have insecureSkipTLSVerify";
            errors.push(Error::invalid(insecure_path, true, detail));
        }
        return;
    };
    let path = SPEC.child("service");
    for key in ["namespace", "name"] {
        if text(backend, key).is_empty() {
            errors.push(Error::required(path.child(key), ""));
        }
    }
    let port = int(backend, "port").unwrap_or(0);
    let messages = is_valid_port_num(port);
    if !messages.is_empty() {
        let detail = format!("port is not valid: {}", messages.join(", "));
        errors.push(Error::invalid(path.child("port"), port, detail));
    }
    if insecure && !bundle.is_empty() {
        errors.push(Error::invalid(insecure_path, true, "may not be true if caBundle is present"));
    }
}

/// What is known of whether a group is served.
pub(super) fn api_service_status(new: &Map, _: &Map, errors: &mut ErrorList) {
    let path = Path::new("status");
    let path = path.child("conditions");
    let known = ["True", "False", "Unknown"];
    for (i, condition) in objects(at(new, "status"), "conditions") {
        let status = text(condition, "status");
        if !known.contains(&status) || !is_set(condition, "status") {
            errors.push(Error::not_supported(path.index(i).child("status"), status, &known));
        }
    }
}
