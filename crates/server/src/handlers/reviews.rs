//! Questions about access: answered by the authorizer, never stored.

use std::{collections::BTreeMap, sync::Arc};

use capstan_api::{
    GroupKind, Map, Status, Str, Value,
    selector::{FieldRequirement, FieldSelector, LabelSelector, Requirement, Selector},
};

use super::{
    call::{Admitted, Call},
    decode, managed,
};
use crate::{
    authentication::{self_subject_review, token_review},
    authorization::{Attributes, Decision, PolicyRule, UserInfo, aggregate},
    http::Response,
    registry::{encode, paths},
    request::WriteOptions,
    validation,
};

/// Answers a review.
pub(crate) async fn review(call: &mut Call<'_>) -> Result<Response, Status> {
    let form = call.form_of_create()?;
    let options = WriteOptions::for_create(call.query)?;
    let resource = Arc::clone(&call.resource);
    let content_type = call.header(http::header::CONTENT_TYPE);
    let (gvk, schema) = (&resource.gvk, resource.schema());
    let mut object =
        decode::object(&call.body, content_type, gvk, schema, options.field_validation, &mut call.warnings)?;
    let metadata = super::call::metadata_mut(&mut object);
    super::create::SYSTEM_FIELDS.iter().for_each(|field| drop(metadata.remove(field)));
    super::call::ensure_namespace(call.namespace(), &mut object)?;
    managed::track(call, None, &mut object, &options.field_manager);
    call.admit(Admitted::create("", &mut object, options.dry_run))?;
    let errors = validation::validate_create(gvk, &object);
    if !errors.is_empty() {
        // Upstream's reviews have forgotten their kind by then.
        return Err(Status::invalid(&GroupKind::new(gvk.group.clone(), ""), "", &errors));
    }
    call.validate(Admitted::create("", &mut object, options.dry_run))?;
    let answered = match &*gvk.kind {
        "SelfSubjectRulesReview" => rules(call, &object)?,
        "SelfSubjectAccessReview" => {
            let status = access(call, &object, call.user);
            paths::set(&mut object, "status", status);
            object
        }
        "SubjectAccessReview" | "LocalSubjectAccessReview" => {
            let user = subject(&object);
            let status = access(call, &object, &user);
            paths::set(&mut object, "status", status);
            object
        }
        "TokenReview" => token_review(&call.server.authenticator, object)?,
        _ => self_subject_review(call.user, call.server.registry.clock.now()),
    };
    form.object(&resource, 201, encode(&answered).into(), call.now())
}

fn texts(value: Option<&Value>) -> Vec<Str> {
    let items = value.and_then(Value::as_array).map_or(&[][..], |items| items);
    items.iter().filter_map(Value::as_str).map(Str::from).collect()
}

fn subject(review: &Map) -> UserInfo {
    let extra = paths::get(review, "spec.extra").and_then(Value::as_object);
    let extra: BTreeMap<Str, Vec<Str>> =
        extra.iter().flat_map(|map| map.iter()).map(|(key, values)| (Str::from(key), texts(Some(values)))).collect();
    UserInfo {
        name: paths::text(review, "spec.user").into(),
        uid: paths::text(review, "spec.uid").into(),
        groups: texts(paths::get(review, "spec.groups")),
        extra,
    }
}

/// The status of a review of access.
fn access(call: &Call<'_>, review: &Map, user: &UserInfo) -> Map {
    let of = |field: &str| paths::text(review, &format!("spec.resourceAttributes.{field}"));
    let mut ignored = Vec::new();
    let (fields, labels);
    let attributes = if paths::get(review, "spec.resourceAttributes").is_some_and(|value| !value.is_null()) {
        (fields, labels) = selectors(review, &mut ignored);
        Attributes {
            version: if of("version").is_empty() { "*" } else { of("version") },
            subresource: of("subresource"),
            name: of("name"),
            namespace: of("namespace"),
            field_selector: &fields,
            label_selector: &labels,
            ..Attributes::resource(user, of("verb"), of("group"), of("resource"))
        }
    } else {
        let of = |field: &str| paths::text(review, &format!("spec.nonResourceAttributes.{field}"));
        Attributes::non_resource(user, of("verb"), of("path"))
    };
    let decision = call.server.authorizer.authorize(&attributes);
    let mut status = Map::new();
    status.insert("allowed", decision.is_allowed());
    if matches!(decision, Decision::Deny(_)) {
        status.insert("denied", true);
    }
    if !decision.reason().is_empty() {
        status.insert("reason", decision.reason());
    }
    if !ignored.is_empty() {
        status.insert("evaluationError", ignored.join("; "));
    }
    status
}

/// The selectors of a review, and what of them could not be read.
fn selectors(review: &Map, ignored: &mut Vec<String>) -> (Vec<FieldRequirement>, Vec<Requirement>) {
    let at = |path: &str| paths::get(review, &format!("spec.resourceAttributes.{path}"));
    let raw = |path: &str| at(path).and_then(Value::as_str).filter(|text| !text.is_empty());
    let mut wrong = |which: &str, some: bool| {
        let how = if some { "partially ignored" } else { "ignored" };
        ignored.push(format!("spec.resourceAttributes.{which} {how} due to parse error"));
    };
    let mut fields = Vec::new();
    if let Some(text) = raw("fieldSelector.rawSelector") {
        match text.parse::<FieldSelector>() {
            Ok(selector) => fields = selector.requirements().to_vec(),
            Err(_) => wrong("fieldSelector", false),
        }
    }
    if let Some(Value::Array(requirements)) = at("fieldSelector.requirements").filter(|value| !value.is_null()) {
        let mut bad = false;
        for requirement in requirements.iter() {
            let values = texts(requirement.get("values"));
            let key = requirement.get("key").and_then(Value::as_str).unwrap_or_default();
            let negated = match requirement.get("operator").and_then(Value::as_str) {
                Some("In") => false,
                Some("NotIn") => true,
                _ => {
                    bad = true;
                    continue;
                }
            };
            match &values[..] {
                [value] => fields.push(FieldRequirement { field: key.into(), negated, value: value.clone() }),
                _ => bad = true,
            }
        }
        if bad {
            wrong("fieldSelector", !fields.is_empty());
        }
    }
    let mut labels = Vec::new();
    if let Some(text) = raw("labelSelector.rawSelector") {
        match text.parse::<Selector>() {
            Ok(selector) => labels = selector.requirements().to_vec(),
            Err(_) => wrong("labelSelector", false),
        }
    }
    if let Some(Value::Array(requirements)) = at("labelSelector.requirements").filter(|value| !value.is_null()) {
        let mut bad = false;
        for requirement in requirements.iter() {
            let mut one = Map::new();
            one.insert("matchExpressions", vec![requirement.clone()]);
            let selector = capstan_api::value::from_value::<LabelSelector>(one.into());
            match selector.ok().and_then(|selector| selector.to_selector().ok()) {
                Some(selector) => labels.extend_from_slice(selector.requirements()),
                None => bad = true,
            }
        }
        if bad {
            wrong("labelSelector", !labels.is_empty());
        }
    }
    (fields, labels)
}

/// All that the user may do in a namespace.
fn rules(call: &Call<'_>, review: &Map) -> Result<Map, Status> {
    let namespace = paths::text(review, "spec.namespace");
    if namespace.is_empty() {
        return Err(Status::bad_request("no namespace on request"));
    }
    let found = call.server.authorizer.rules_for(call.user, namespace);
    let (mut resources, mut paths_) = (Vec::new(), Vec::new());
    for rule in &found.rules {
        let list = |items: &[Str]| Value::from(items.iter().map(|item| Value::from(item.as_str())).collect::<Vec<_>>());
        let PolicyRule { verbs, api_groups, resources: kinds, resource_names, non_resource_urls } = rule;
        if !kinds.is_empty() {
            let mut one = Map::new();
            one.insert("verbs", list(verbs));
            one.insert("apiGroups", list(api_groups));
            one.insert("resources", list(kinds));
            if !resource_names.is_empty() {
                one.insert("resourceNames", list(resource_names));
            }
            resources.push(Value::Object(one));
        }
        if !non_resource_urls.is_empty() {
            let mut one = Map::new();
            one.insert("verbs", list(verbs));
            one.insert("nonResourceURLs", list(non_resource_urls));
            paths_.push(Value::Object(one));
        }
    }
    let mut status = Map::new();
    status.insert("resourceRules", resources);
    status.insert("nonResourceRules", paths_);
    status.insert("incomplete", found.incomplete);
    if let Some(error) = aggregate(&found.errors) {
        status.insert("evaluationError", error);
    }
    let mut answer = Map::new();
    for key in ["kind", "apiVersion"] {
        answer.insert(key, review.get(key).cloned().unwrap_or_default());
    }
    answer.insert("metadata", Map::new());
    answer.insert("spec", Map::new());
    answer.insert("status", status);
    Ok(answer)
}
