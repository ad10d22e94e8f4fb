//! Stateful sets, replication controllers, templates of pods and revisions.

use capstan_api::{
    Map, Value,
    field::{Error, ErrorList, Path},
    selector::{LabelSelector, Selector},
    validation::{is_dns1123_label, validate_annotations, validate_labels},
};

use super::{
    apps::{amount, at_most_all, count_or_percent, mismatch, template},
    pod,
    read::{at, int, is_set, list, object, objects, strings, text},
    rules::{IMMUTABLE, nonnegative, optional, show_selector},
    show::{json, show},
};

const SPEC: Path<'static> = Path::new("spec");

pub(super) fn stateful_set(set: &Map, errors: &mut ErrorList) {
    stateful_set_spec(at(set, "spec"), true, true, errors);
}

/// The spec of a stateful set. What cannot change any more is only looked at in a new one, and the template only if it
/// was right before.
fn stateful_set_spec(spec: &Map, is_new: bool, with_template: bool, errors: &mut ErrorList) {
    policies(spec, errors);
    if is_new {
        let path = SPEC.child("volumeClaimTemplates");
        for (i, claim) in objects(spec, "volumeClaimTemplates") {
            pod::claim_spec(at(claim, "spec"), &path.index(i).child("spec"), errors);
        }
    }
    nonnegative(errors, spec, &["replicas", "minReadySeconds"], &SPEC);
    if let Some(start) = int(at(spec, "ordinals"), "start").filter(|start| *start < 0) {
        errors.push(Error::invalid("spec.ordinals.start", start, super::rules::NEGATIVE));
    }
    if is_new {
        optional(errors, spec, "serviceName", &SPEC, is_dns1123_label);
    }
    let path = SPEC.child("selector");
    let map = object(spec, "selector");
    let selector = map.map(LabelSelector::from_map);
    match &selector {
        None => errors.push(Error::required(path, "")),
        Some(selector) => {
            errors.extend(selector.validate(&path));
            if selector.match_labels.is_empty() && selector.match_expressions.is_empty() {
                let detail = "empty selector is invalid for statefulset";
                errors.push(Error::invalid_shown(path, show_selector(map), detail));
            }
        }
    }
    match selector.map(|selector| selector.to_selector()) {
        Some(Err(_)) => errors.push(Error { bad_value: None, ..Error::invalid(path, "", show_selector(map)) }),
        other => {
            stateful_template(spec, other.and_then(Result::ok).as_ref(), with_template, errors);
        }
    }
    restarts(spec, "StatefulSet", errors);
}

/// What is left when the sets before are done, and how claims end.
fn policies(spec: &Map, errors: &mut ErrorList) {
    match text(spec, "podManagementPolicy") {
        "" => errors.push(Error::required(SPEC.child("podManagementPolicy"), "")),
        "OrderedReady" | "Parallel" => {}
        policy => {
            let detail = "must be 'OrderedReady' or 'Parallel'";
            errors.push(Error::invalid(SPEC.child("podManagementPolicy"), policy, detail));
        }
    }
    let path = SPEC.child("updateStrategy");
    let strategy = at(spec, "updateStrategy");
    let rolling = object(strategy, "rollingUpdate");
    let shown =
        |rolling: &Map| show(rolling, &[("Partition", "partition", "0"), ("MaxUnavailable", "maxUnavailable", "null")]);
    match (text(strategy, "type"), rolling) {
        ("", _) => errors.push(Error::required(path, "")),
        ("OnDelete", Some(rolling)) => {
            let detail = "only allowed for updateStrategy 'RollingUpdate'";
            errors.push(Error::invalid_shown(path.child("rollingUpdate"), shown(rolling), detail));
        }
        ("RollingUpdate", Some(rolling)) => {
            let path = path.child("rollingUpdate");
            nonnegative(errors, rolling, &["partition"], &path);
            if let Some(count) = rolling.get("maxUnavailable").filter(|count| !count.is_null()) {
                count_or_percent(rolling, "maxUnavailable", &path, errors);
                if amount(rolling, "maxUnavailable") == 0 {
                    errors.push(Error::invalid(path.child("maxUnavailable"), count.clone(), "cannot be 0"));
                }
                at_most_all(rolling, "maxUnavailable", &path, errors);
            }
        }
        ("OnDelete" | "RollingUpdate", None) => {}
        (ty, rolling) => {
            let rolling = rolling.map_or_else(|| "null".to_owned(), shown);
            let shown = format!(r#"{{"Type":{},"RollingUpdate":{rolling}}}"#, json(&ty.into()));
            errors.push(Error::invalid_shown(path, shown, "must be 'RollingUpdate' or 'OnDelete'"));
        }
    }
    if let Some(policy) = object(spec, "persistentVolumeClaimRetentionPolicy") {
        let path = SPEC.child("persistentVolumeClaimRetentionPolicy");
        for key in ["whenDeleted", "whenScaled"] {
            let known = ["Retain", "Delete"];
            if !known.contains(&text(policy, key)) {
                errors.push(Error::not_supported(path.child(key), text(policy, key), &known));
            }
        }
    }
}

fn stateful_template(spec: &Map, selector: Option<&Selector>, whole: bool, errors: &mut ErrorList) {
    let template = at(spec, "template");
    let metadata = at(template, "metadata");
    let selects_all = selector.is_some_and(Selector::is_everything);
    if !selects_all && !selector.is_some_and(|selector| selector.matches(at(metadata, "labels"))) {
        mismatch(spec, errors);
    }
    let path = SPEC.child("template");
    if whole {
        pod::template(&with_claims(spec, template), &path, errors);
    }
    errors.extend(validate_labels(strings(metadata, "labels"), &path.child("labels")));
    errors.extend(validate_annotations(strings(metadata, "annotations"), &path.child("annotations")));
    pod::annotations(metadata, at(template, "spec"), &path.child("annotations"), errors);
}

/// The template as its pods will be: with the claims as volumes, and without the names that each pod gets of its own.
fn with_claims(spec: &Map, template: &Map) -> Map {
    let mut template = template.clone();
    let Some(pod) = template.get_mut("spec").and_then(Value::as_object_mut) else { return template };
    pod.remove("subdomain");
    pod.remove("hostname");
    let mut claims: Vec<_> = Vec::new();
    for (_, claim) in objects(spec, "volumeClaimTemplates") {
        let name = text(at(claim, "metadata"), "name");
        if !claims.contains(&name) {
            claims.push(name);
        }
    }
    if claims.is_empty() {
        return template;
    }
    let claim = |name: &&str| {
        let source: Map = [("claimName".into(), Value::from(*name))].into_iter().collect();
        let volume = [("name".into(), Value::from(*name)), ("persistentVolumeClaim".into(), source.into())];
        Value::from(volume.into_iter().collect::<Map>())
    };
    let own = list(pod, "volumes").iter().filter(|volume| {
        let name = volume.get("name").and_then(Value::as_str).unwrap_or("");
        !claims.contains(&name)
    });
    let volumes: Vec<_> = claims.iter().map(claim).chain(own.cloned()).collect();
    pod.insert("volumes", Value::from(volumes));
    template
}

/// Pods that run until they are told to stop.
fn restarts(spec: &Map, kind: &str, errors: &mut ErrorList) {
    let path = SPEC.child("template");
    let path = path.child("spec");
    let pod = at(at(spec, "template"), "spec");
    if text(pod, "restartPolicy") != "Always" {
        errors.push(Error::not_supported(path.child("restartPolicy"), text(pod, "restartPolicy"), &["Always"]));
    }
    if is_set(pod, "activeDeadlineSeconds") {
        let detail = format!("activeDeadlineSeconds in {kind} is not Supported");
        errors.push(Error::forbidden(path.child("activeDeadlineSeconds"), detail));
    }
}

pub(super) fn stateful_set_update(new: &Map, old: &Map, errors: &mut ErrorList) {
    const MAY_CHANGE: &[&str] = &[
        "replicas",
        "ordinals",
        "template",
        "updateStrategy",
        "revisionHistoryLimit",
        "persistentVolumeClaimRetentionPolicy",
        "minReadySeconds",
    ];
    let (new, old) = (at(new, "spec"), at(old, "spec"));
    let mut before = ErrorList::new();
    stateful_set_spec(old, false, true, &mut before);
    stateful_set_spec(new, false, before.is_empty(), errors);
    let fixed = |spec: &Map| {
        let mut spec = spec.clone();
        spec.retain(|key, value| !MAY_CHANGE.contains(&key) && !value.is_null());
        spec
    };
    if fixed(new) != fixed(old) {
        let detail = "updates to statefulset spec for fields other than 'replicas', 'ordinals', 'template', \
            'updateStrategy', 'revisionHistoryLimit', 'persistentVolumeClaimRetentionPolicy' and 'minReadySeconds' are \
            forbidden";
        errors.push(Error::forbidden(SPEC, detail));
    }
}

pub(super) fn controller_revision(revision: &Map, errors: &mut ErrorList) {
    nonnegative(errors, revision, &["revision"], &Path::ROOT);
    match revision.get("data") {
        None | Some(Value::Null) => errors.push(Error::required("data", "data is mandatory")),
        Some(Value::Object(_)) => {}
        Some(_) => errors.push(Error::required("data", "data must be a valid JSON object")),
    }
}

pub(super) fn controller_revision_update(new: &Map, old: &Map, errors: &mut ErrorList) {
    nonnegative(errors, new, &["revision"], &Path::ROOT);
    if new.get("data") != old.get("data") {
        let data = new.get("data").map_or_else(|| "null".to_owned(), json);
        errors.push(Error::invalid_shown("data", data, IMMUTABLE));
    }
}

pub(super) fn replication_controller(controller: &Map, errors: &mut ErrorList) {
    let spec = at(controller, "spec");
    nonnegative(errors, spec, &["minReadySeconds"], &SPEC);
    let mut wanted = strings(spec, "selector").peekable();
    let selects_all = wanted.peek().is_none();
    if selects_all {
        errors.push(Error::required(SPEC.child("selector"), ""));
    }
    match int(spec, "replicas") {
        None => errors.push(Error::required(SPEC.child("replicas"), "")),
        Some(_) => nonnegative(errors, spec, &["replicas"], &SPEC),
    }
    if !is_set(spec, "template") {
        errors.push(Error::required(SPEC.child("template"), ""));
        return;
    }
    let labels = at(at(at(spec, "template"), "metadata"), "labels");
    let matches = |(key, value): (&str, &str)| labels.get(key).and_then(Value::as_str) == Some(value);
    if !wanted.all(matches) {
        mismatch(spec, errors);
    }
    template(spec, "ReplicationController", errors);
}

pub(super) fn pod_template(template: &Map, errors: &mut ErrorList) {
    pod::template(at(template, "template"), &Path::new("template"), errors);
}
