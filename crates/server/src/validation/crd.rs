//! Definitions of custom resources.

use std::collections::BTreeSet;

use capstan_api::{
    Map, Value,
    field::{Error, ErrorList, Path},
    schema::structural::{self, Findings},
    validation::{is_dns1035_label, is_dns1123_subdomain},
};

use capstan_cel::crd::{check_rule_texts, check_rules};

use super::{
    crd_root::{has_default, root},
    read::{at, empty, flag, is_set, list, object, objects, text},
    rules::IMMUTABLE,
    shape::{FLAG, Field, NIL, TEXT, list as show_list},
    webhook::{client_config, review_versions},
};

const SPEC: Path<'static> = Path::new("spec");
const APPROVED: &str = "api-approved.kubernetes.io";
const SEE: &str = "see https://github.com/kubernetes/enhancements/pull/1111";
const MAX_WARNING: usize = 256;
/// How many versions are named that are marked as storage version but must not be.
const MAX_STORAGE: usize = 20;
const MAX_SELECTABLE_FIELDS: usize = 8;
const COLUMN_TYPES: &[&str] = &["boolean", "date", "integer", "number", "string"];
const NO_FIELD: &str = "does not refer to a valid field";
const COLUMN_FORMATS: &[&str] = &["byte", "date", "date-time", "double", "float", "int32", "int64", "password"];
/// What is said once for all versions where it is the same in all of them, with what it is called then.
const SHARED: [(&str, &str); 4] = [
    ("schema", "validation"),
    ("subresources", "subresources"),
    ("additionalPrinterColumns", "additionalPrinterColumns"),
    ("selectableFields", "selectableFields"),
];

pub(super) fn create(crd: &Map, errors: &mut ErrorList) {
    let spec = at(crd, "spec");
    let required = format!("{}.{}", text(at(spec, "names"), "plural"), text(spec, "group"));
    for field in ["generateName", "name"] {
        let name = text(at(crd, "metadata"), field);
        if !name.is_empty() && name != required {
            let detail = "must be spec.names.plural+\".\"+spec.group";
            errors.push(Error::invalid(Path::new("metadata").child(field), name, detail));
        }
    }
    body(crd, None, errors);
}

pub(super) fn update(new: &Map, old: &Map, errors: &mut ErrorList) {
    body(new, Some(old), errors);
}

fn body(crd: &Map, old: Option<&Map>, errors: &mut ErrorList) {
    definition_spec(at(crd, "spec"), errors);
    if let Some(old) = old {
        fixed(crd, old, errors);
    }
    let status = at(crd, "status");
    names(at(status, "acceptedNames"), &Path::new("status").child("acceptedNames"), errors);
    stored_versions(crd, errors);
    approval(crd, old, errors);
    let preserves = |crd| flag(at(crd, "spec"), "preserveUnknownFields");
    if preserves(crd) && !old.is_some_and(preserves) {
        let detail = "cannot set to true, set x-kubernetes-preserve-unknown-fields to true in spec.versions[*].schema \
                      instead";
        errors.push(Error::invalid(SPEC.child("preserveUnknownFields"), true, detail));
    }
}

/// The names by which a definition is known stay.
fn fixed(new: &Map, old: &Map, errors: &mut ErrorList) {
    let mut check = |key: &str, path: Path<'_>, of: &dyn Fn(&Map) -> String| {
        let value = of(new);
        if value != of(old) {
            errors.push(Error::invalid(path.child(key), value, IMMUTABLE));
        }
    };
    let of_spec = |key: &'static str| move |crd: &Map| text(at(crd, "spec"), key).to_owned();
    let of_names = |key: &'static str| move |crd: &Map| text(at(at(crd, "spec"), "names"), key).to_owned();
    let names = SPEC.child("names");
    let mut conditions = objects(at(old, "status"), "conditions");
    if conditions.any(|(_, one)| text(one, "type") == "Established" && text(one, "status") == "True") {
        check("scope", SPEC, &of_spec("scope"));
        check("kind", names, &of_names("kind"));
    }
    check("group", SPEC, &of_spec("group"));
    check("plural", names, &of_names("plural"));
}

fn stored_versions(crd: &Map, errors: &mut ErrorList) {
    let path = Path::new("status");
    let path = path.child("storedVersions");
    let versions = || objects(at(crd, "spec"), "versions").map(|(_, version)| version);
    let mut stored: Vec<_> = list(at(crd, "status"), "storedVersions").iter().filter_map(Value::as_str).collect();
    // What is written is stored in the first storage version from then on.
    let first = versions().find(|version| flag(version, "storage")).map(|version| text(version, "name"));
    stored.extend(first.filter(|first| !stored.contains(first)));
    if stored.is_empty() {
        let detail = "must have at least one stored version";
        return errors.push(Error::invalid(path, Value::Null, detail));
    }
    let shown: Vec<Value> = stored.iter().map(|name| Value::from(*name)).collect();
    let known: BTreeSet<_> = stored.iter().copied().collect();
    let names: BTreeSet<_> = versions().map(|version| text(version, "name")).collect();
    let storage = versions().filter(|version| flag(version, "storage")).map(|version| text(version, "name"));
    // Every error shows all versions.
    for name in storage.filter(|name| !known.contains(name)).take(MAX_STORAGE) {
        let detail = format!("must have the storage version {name}");
        errors.push(Error::invalid(path, Value::from(shown.clone()), detail));
    }
    for (i, name) in stored.iter().enumerate() {
        if !names.contains(name) {
            let detail = format!(
                "missing from spec.versions; {name} was previously a storage version, and must remain in spec.versions \
                 until a storage migration ensures no data remains persisted in {name} and removes {name} from \
                 status.storedVersions"
            );
            errors.push(Error::invalid(path.index(i), *name, detail));
        }
    }
}

/// Whether a group of the community was approved, or says that it was not.
fn approval_state(crd: &Map) -> &'static str {
    let value = text(at(at(crd, "metadata"), "annotations"), APPROVED);
    let is_url = value.split_once("://").is_some_and(|(scheme, rest)| {
        !scheme.is_empty() && rest.split('/').next().is_some_and(|host| !host.is_empty())
    });
    match value {
        "" => "missing",
        value if value.starts_with("unapproved") => "bypassed",
        _ if is_url => "approved",
        _ => "invalid",
    }
}

fn approval(crd: &Map, old: Option<&Map>, errors: &mut ErrorList) {
    let group = text(at(crd, "spec"), "group");
    let is_protected = ["k8s.io", "kubernetes.io"]
        .iter()
        .any(|domain| group.strip_suffix(domain).is_some_and(|rest| rest.is_empty() || rest.ends_with('.')));
    let state = approval_state(crd);
    if !is_protected || old.is_some_and(|old| approval_state(old) == state) {
        return;
    }
    let path = Path::new("metadata");
    let path = path.child("annotations");
    let path = path.key(APPROVED);
    let needed = format!("protected groups must have approval annotation \"{APPROVED}\"");
    match state {
        "missing" => errors.push(Error::required(path, format!("{needed}, {SEE}"))),
        "invalid" => {
            let value = text(at(at(crd, "metadata"), "annotations"), APPROVED);
            let how = "with either a URL or a reason starting with \"unapproved\"";
            errors.push(Error::invalid(path, value, format!("{needed} {how}, {SEE}")));
        }
        _ => {}
    }
}

/// All messages about a value in one error.
fn joined(value: &str, messages: Vec<String>, prefix: &str, path: Path<'_>, errors: &mut ErrorList) {
    if !messages.is_empty() {
        errors.push(Error::invalid(path, value, format!("{prefix}{}", messages.join(","))));
    }
}

fn enumerated(value: &str, known: &[&str], path: Path<'_>, errors: &mut ErrorList) {
    if value.is_empty() {
        errors.push(Error::required(path, ""));
    } else if !known.contains(&value) {
        errors.push(Error::not_supported(path, value, known));
    }
}

fn definition_spec(spec: &Map, errors: &mut ErrorList) {
    let group = text(spec, "group");
    let messages = is_dns1123_subdomain(group);
    match group {
        "" => errors.push(Error::required(SPEC.child("group"), "")),
        group if messages.is_empty() && !group.contains('.') => {
            errors.push(Error::invalid(SPEC.child("group"), group, "should be a domain with at least one dot"));
        }
        group => joined(group, messages, "", SPEC.child("group"), errors),
    }
    enumerated(text(spec, "scope"), &["Cluster", "Namespaced"], SPEC.child("scope"), errors);
    let versions: Vec<_> = objects(spec, "versions").map(|(_, version)| version).collect();
    let path = SPEC.child("versions");
    let shared = SHARED.map(|(key, _)| {
        let first = versions.first()?.get(key);
        versions.iter().all(|version| version.get(key) == first).then_some(key)
    });
    for (i, version) in versions.iter().enumerate() {
        if !is_set(at(version, "schema"), "openAPIV3Schema") {
            let path = path.index(i);
            errors.push(Error::required(path.child("schema").child("openAPIV3Schema"), ""));
        }
    }
    let has_status = |version: &Map| is_set(at(version, "subresources"), "status");
    let any_status = versions.iter().any(|version| has_status(version));
    let has_defaults = |version: &&Map| version.get("schema").is_some_and(has_default);
    if flag(spec, "preserveUnknownFields") && versions.iter().any(has_defaults) {
        let detail = "must be false in order to use defaults in the schema";
        errors.push(Error::invalid(SPEC.child("preserveUnknownFields"), true, detail));
    }
    for (i, version) in versions.iter().enumerate() {
        let path = path.index(i);
        let name = text(version, "name");
        joined(name, is_dns1035_label(name), "", path.child("name"), errors);
        warning(version, path.child("deprecationWarning"), errors);
        for ((key, _), of_all) in SHARED.iter().zip(shared) {
            if of_all.is_none() {
                // A schema that is said once for all versions is none of theirs.
                let schema = object(version, "schema")
                    .filter(|schema| *key == "schema" || shared[0].is_none() && is_set(schema, "openAPIV3Schema"));
                if *key == "schema" && (has_status(version) || shared[1].is_some() && any_status) {
                    root(at(version, "schema"), &path.child(key), errors);
                }
                part(version, key, schema, path.child(key), errors);
            }
        }
    }
    counts(spec, &versions, &shared, errors);
    if let Some(name) = versions.first().map(|version| text(version, "name")).filter(|name| !name.is_empty()) {
        joined(name, is_dns1035_label(name), "", SPEC.child("version"), errors);
    }
    let names_path = SPEC.child("names");
    for key in ["plural", "singular", "kind", "listKind"] {
        if text(at(spec, "names"), key).is_empty() {
            errors.push(Error::required(names_path.child(key), ""));
        }
    }
    names(at(spec, "names"), &names_path, errors);
    for ((key, name), of_all) in SHARED.iter().zip(shared) {
        if let (Some(_), Some(version)) = (of_all, versions.first()) {
            let schema = object(version, "schema").filter(|_| shared[0].is_some());
            if *key == "schema" && any_status {
                root(at(version, "schema"), &SPEC.child(name), errors);
            }
            part(version, key, schema, SPEC.child(name), errors);
        }
    }
    let strategy = text(at(spec, "conversion"), "strategy");
    if flag(spec, "preserveUnknownFields") && is_set(spec, "conversion") && strategy != "None" {
        let path = SPEC.child("conversion");
        let detail = "must be None if spec.preserveUnknownFields is true";
        errors.push(Error::invalid(path.child("strategy"), strategy, detail));
    }
    if let Some(conversion) = object(spec, "conversion") {
        convert(conversion, &SPEC.child("conversion"), errors);
    }
}

/// Versions as Go prints them, without what is said once for all.
const VERSION: &[Field] = &[
    ("Name", "name", TEXT),
    ("Served", "served", FLAG),
    ("Storage", "storage", FLAG),
    ("Deprecated", "deprecated", FLAG),
    ("DeprecationWarning", "deprecationWarning", NIL),
    ("Schema", "schema", NIL),
    ("Subresources", "subresources", NIL),
    ("AdditionalPrinterColumns", "additionalPrinterColumns", NIL),
    ("SelectableFields", "selectableFields", NIL),
];

/// One name once, and one version that is stored.
fn counts(spec: &Map, versions: &[&Map], shared: &[Option<&str>], errors: &mut ErrorList) {
    let path = SPEC.child("versions");
    let shown = || {
        let mut versions = spec.get("versions").cloned().unwrap_or_default();
        for version in versions.as_array_mut().into_iter().flat_map(|versions| versions.iter_mut()) {
            if let Some(version) = version.as_object_mut() {
                version.retain(|key, _| !shared.contains(&Some(key)));
            }
        }
        show_list(Some(&versions), VERSION)
    };
    let names: BTreeSet<_> = versions.iter().map(|version| text(version, "name")).collect();
    if names.len() < versions.len() {
        errors.push(Error::invalid_shown(path, shown(), "must contain unique version names"));
    }
    if versions.iter().filter(|version| flag(version, "storage")).count() != 1 {
        let detail = "must have exactly one version marked as storage version";
        errors.push(Error::invalid_shown(path, shown(), detail));
    }
}

fn warning(version: &Map, path: Path<'_>, errors: &mut ErrorList) {
    let Some(warning) = version.get("deprecationWarning").and_then(Value::as_str) else { return };
    let mut wrong = |detail: String| errors.push(Error::invalid(path, warning, detail));
    if !flag(version, "deprecated") {
        return wrong("can only be set for deprecated versions".to_owned());
    }
    if warning.len() > MAX_WARNING {
        wrong(format!("must be <= {MAX_WARNING} characters long"));
    }
    if warning.is_empty() {
        wrong("must not be an empty string".to_owned());
    }
    if let Some((i, _)) = warning.char_indices().find(|(_, c)| c.is_control()) {
        wrong(format!("must only contain printable UTF-8 characters; non-printable character found at index {i}"));
    }
}

/// One of the parts of a version that may be the same in all.
fn part(version: &Map, key: &str, schema: Option<&Map>, path: Path<'_>, errors: &mut ErrorList) {
    match key {
        "schema" => {
            if let Some(schema) = schema.and_then(|schema| schema.get("openAPIV3Schema")) {
                let path = path.child("openAPIV3Schema").to_string();
                let Findings { shape, keywords, schema: compiled } = structural::inspect(schema, &path);
                let rules = match compiled {
                    Some(compiled) => check_rules(compiled.root(), &path, &keywords),
                    None => check_rule_texts(schema, &path),
                };
                errors.extend(shape.into_iter().chain(keywords).take(structural::MAX_ERRORS).chain(rules));
            }
        }
        "subresources" => scale(at(at(version, key), "scale"), &path, errors),
        "additionalPrinterColumns" => {
            for (i, one) in objects(version, key) {
                column(one, &path.index(i), errors);
            }
        }
        _ => selectable(list(version, key), schema, &path, errors),
    }
}

fn scale(scale: &Map, path: &Path<'_>, errors: &mut ErrorList) {
    if scale.is_empty() {
        return;
    }
    for (key, under, told, is_required) in [
        ("specReplicasPath", &[".spec."][..], ".spec", true),
        ("statusReplicasPath", &[".status."], ".status", true),
        ("labelSelectorPath", &[".spec.", ".status."], "either .spec or .status", false),
    ] {
        let scale_path = path.child("scale");
        let (value, path) = (text(scale, key), scale_path.child(key));
        match value {
            "" if is_required => errors.push(Error::required(path, "")),
            "" => {}
            value if !value.starts_with('.') => errors.push(Error::invalid(path, value, SIMPLE)),
            value if !under.iter().any(|prefix| value.starts_with(prefix)) => {
                errors.push(Error::invalid(path, value, format!("should be a json path under {told}")));
            }
            _ => {}
        }
    }
}

const SIMPLE: &str = "must be a simple json path starting with .";

fn column(column: &Map, path: &Path<'_>, errors: &mut ErrorList) {
    if text(column, "name").is_empty() {
        errors.push(Error::required(path.child("name"), ""));
    }
    let known = |known: &[&str]| format!("must be one of {}", known.join(","));
    match text(column, "type") {
        "" => errors.push(Error::required(path.child("type"), known(COLUMN_TYPES))),
        ty if COLUMN_TYPES.contains(&ty) => {}
        ty => errors.push(Error::invalid(path.child("type"), ty, known(COLUMN_TYPES))),
    }
    let format = text(column, "format");
    if !format.is_empty() && !COLUMN_FORMATS.contains(&format) {
        errors.push(Error::invalid(path.child("format"), format, known(COLUMN_FORMATS)));
    }
    match text(column, "jsonPath") {
        "" => errors.push(Error::required(path.child("JSONPath"), "")),
        value if value.starts_with('.') => {}
        value => errors.push(Error::invalid(path.child("JSONPath"), value, SIMPLE)),
    }
}

/// The schema that a path of names leads to.
fn follow<'s>(path: &str, mut schema: &'s Map) -> Result<&'s Map, String> {
    let mut rest = path;
    while !rest.is_empty() {
        let step = rest.strip_prefix('.').ok_or_else(|| match rest.strip_prefix('[') {
            Some(_) => "array notation is not allowed".to_owned(),
            None => {
                format!("expected [ or . but got: {}", &rest[..rest.find(['.', '[', ']']).unwrap_or(rest.len()).max(1)])
            }
        })?;
        if step.is_empty() {
            return Err("unexpected end of JSON path".to_owned());
        }
        let (name, behind) = step.split_at(step.find(['.', '[', ']']).unwrap_or(step.len()).max(1));
        let next = match object(schema, "properties") {
            Some(properties) => object(properties, name),
            None => object(schema, "additionalProperties"),
        };
        (schema, rest) = (next.ok_or(NO_FIELD)?, behind);
    }
    Ok(schema)
}

/// The fields that objects can be selected by.
fn selectable(fields: &[Value], schema: Option<&Map>, path: &Path<'_>, errors: &mut ErrorList) {
    if schema.is_none() && !fields.is_empty() {
        let hoisted = path.to_string() == "spec.selectableFields";
        let detail = if hoisted {
            "may only be set when validations.schema is included"
        } else {
            "may only be set when `version.schema.openAPIV3Schema` is not included"
        };
        errors.push(Error::invalid(path, "", detail));
        return;
    }
    let mut seen = BTreeSet::new();
    for (i, one) in fields.iter().enumerate() {
        let path = path.index(i);
        let path = path.child("jsonPath");
        let place = one.get("jsonPath").and_then(Value::as_str).unwrap_or("");
        if place.is_empty() {
            errors.push(Error::required(path, ""));
            continue;
        }
        let found = match follow(place, schema.map_or(empty(), |schema| at(schema, "openAPIV3Schema"))) {
            Ok(found) => found,
            Err(problem) => {
                errors.push(Error::invalid(path, place, format!("is an invalid path: {problem}")));
                continue;
            }
        };
        if place.starts_with(".metadata.") {
            errors.push(Error::invalid(path, place, "must not point to fields in metadata"));
        }
        if !["string", "boolean", "integer"].contains(&text(found, "type")) {
            let detail = "must point to a field of type string, boolean or integer. Enum string fields and strings \
                          with formats are allowed.";
            errors.push(Error::invalid(path, place, detail));
        }
        if !seen.insert(place) {
            errors.push(Error::duplicate(path, place));
        }
    }
    if seen.len() > MAX_SELECTABLE_FIELDS {
        errors.push(Error::too_many(path, seen.len(), MAX_SELECTABLE_FIELDS));
    }
}

fn names(names: &Map, path: &Path<'_>, errors: &mut ErrorList) {
    for (key, is_kind) in [("plural", false), ("singular", false), ("kind", true), ("listKind", true)] {
        let value = text(names, key);
        let checked = if is_kind { value.to_lowercase() } else { value.to_owned() };
        let prefix = if is_kind { "may have mixed case, but should otherwise match: " } else { "" };
        if !value.is_empty() {
            joined(value, is_dns1035_label(&checked), prefix, path.child(key), errors);
        }
    }
    let each = |key: &str, errors: &mut ErrorList| {
        let path = path.child(key);
        for (i, value) in list(names, key).iter().enumerate() {
            let value = value.as_str().unwrap_or("");
            joined(value, is_dns1035_label(value), "", path.index(i), errors);
        }
    };
    each("shortNames", errors);
    let (kind, list_kind) = (text(names, "kind"), text(names, "listKind"));
    if !kind.is_empty() && kind == list_kind {
        errors.push(Error::invalid(path.child("listKind"), list_kind, "kind and listKind may not be the same"));
    }
    each("categories", errors);
}

fn convert(conversion: &Map, path: &Path<'_>, errors: &mut ErrorList) {
    let strategy = text(conversion, "strategy");
    enumerated(strategy, &["None", "Webhook"], path.child("strategy"), errors);
    let webhook = at(conversion, "webhook");
    let config = object(webhook, "clientConfig");
    let (config_path, versions_path) = (path.child("webhookClientConfig"), path.child("conversionReviewVersions"));
    let versions: Vec<_> = list(webhook, "conversionReviewVersions").iter().filter_map(Value::as_str).collect();
    if strategy == "Webhook" {
        match config {
            None => errors.push(Error::required(config_path, "required when strategy is set to Webhook")),
            Some(config) => client_config(config, &config_path, errors),
        }
        review_versions(&versions, true, "", &versions_path, errors);
        return;
    }
    let detail = "should not be set when strategy is not set to Webhook";
    if config.is_some() {
        errors.push(Error::forbidden(config_path, detail));
    }
    if !versions.is_empty() {
        errors.push(Error::forbidden(versions_path, detail));
    }
}

/// What a definition says of itself.
pub(super) fn status(new: &Map, _: &Map, errors: &mut ErrorList) {
    names(at(at(new, "status"), "acceptedNames"), &Path::new("status").child("acceptedNames"), errors);
}
