//! Deployments, replica sets and daemon sets.

use capstan_api::{
    Map, Value,
    field::{Error, ErrorList, Path},
    go,
    selector::LabelSelector,
    validation::is_valid_percent,
};

use super::{
    pod,
    read::{at, int, is_set, object, text},
    rules::{IMMUTABLE, NEGATIVE, nonnegative, show_selector},
};

const SPEC: Path<'static> = Path::new("spec");

/// The selector and the template, which must fit each other.
fn selector_and_template(spec: &Map, errors: &mut ErrorList) {
    let path = SPEC.child("selector");
    let selector = object(spec, "selector");
    match selector {
        None => errors.push(Error::required(path, "")),
        Some(map) => {
            let selector = LabelSelector::from_map(map);
            errors.extend(selector.validate(&path));
            if selector.match_labels.is_empty() && selector.match_expressions.is_empty() {
                let detail = "empty selector is invalid for deployment";
                errors.push(Error::invalid_shown(path, show_selector(Some(map)), detail));
            }
        }
    }
    match selector.map(|map| LabelSelector::from_map(map).to_selector()) {
        Some(Err(_)) => {
            errors.push(Error::invalid_shown(path, show_selector(selector), "invalid label selector"));
        }
        other => {
            let metadata = at(at(spec, "template"), "metadata");
            let labels = at(metadata, "labels");
            // No selector at all selects nothing.
            let matches = other.and_then(Result::ok).is_some_and(|selector| selector.matches(labels));
            if !matches {
                mismatch(spec, errors);
            }
            template(spec, "ReplicaSet", errors);
        }
    }
}

pub(super) fn mismatch(spec: &Map, errors: &mut ErrorList) {
    let labels = at(at(spec, "template"), "metadata").get("labels").cloned().unwrap_or_default();
    let path = SPEC.child("template");
    let path = path.child("metadata");
    errors.push(Error::invalid(path.child("labels"), labels, "`selector` does not match template `labels`"));
}

/// A template of pods that run until they are told to stop.
pub(super) fn template(spec: &Map, kind: &str, errors: &mut ErrorList) {
    let path = SPEC.child("template");
    pod::template(at(spec, "template"), &path, errors);
    let pod = at(at(spec, "template"), "spec");
    let path = path.child("spec");
    if text(pod, "restartPolicy") != "Always" {
        errors.push(Error::not_supported(path.child("restartPolicy"), text(pod, "restartPolicy"), &["Always"]));
    }
    if is_set(pod, "activeDeadlineSeconds") {
        let detail = format!("activeDeadlineSeconds in {kind} is not Supported");
        errors.push(Error::forbidden(path.child("activeDeadlineSeconds"), detail));
    }
}

pub(super) fn replica_set(object: &Map, errors: &mut ErrorList) {
    let spec = at(object, "spec");
    nonnegative(errors, spec, &["replicas", "minReadySeconds"], &SPEC);
    selector_and_template(spec, errors);
}

pub(super) fn deployment(object: &Map, errors: &mut ErrorList) {
    let spec = at(object, "spec");
    nonnegative(errors, spec, &["replicas"], &SPEC);
    selector_and_template(spec, errors);
    strategy(at(spec, "strategy"), errors);
    nonnegative(errors, spec, &["minReadySeconds", "revisionHistoryLimit", "progressDeadlineSeconds"], &SPEC);
    let min_ready = int(spec, "minReadySeconds").unwrap_or(0);
    if let Some(deadline) = int(spec, "progressDeadlineSeconds").filter(|deadline| *deadline <= min_ready) {
        let detail = "must be greater than minReadySeconds";
        errors.push(Error::invalid(SPEC.child("progressDeadlineSeconds"), deadline, detail));
    }
}

fn strategy(strategy: &Map, errors: &mut ErrorList) {
    let path = SPEC.child("strategy");
    let rolling_path = path.child("rollingUpdate");
    let rolling = object(strategy, "rollingUpdate");
    match (text(strategy, "type"), rolling) {
        ("Recreate", Some(_)) => {
            let detail = "may not be specified when strategy `type` is 'Recreate'";
            errors.push(Error::forbidden(rolling_path, detail));
        }
        ("RollingUpdate", None) => {
            errors.push(Error::required(rolling_path, "this should be defaulted and never be nil"));
        }
        ("RollingUpdate", Some(rolling)) => {
            for key in ["maxUnavailable", "maxSurge"] {
                count_or_percent(rolling, key, &rolling_path, errors);
            }
            if amount(rolling, "maxUnavailable") == 0 && amount(rolling, "maxSurge") == 0 {
                let value = rolling.get("maxUnavailable").cloned().unwrap_or(Value::Int(0));
                let detail = "may not be 0 when `maxSurge` is 0";
                errors.push(Error::invalid(rolling_path.child("maxUnavailable"), value, detail));
            }
            at_most_all(rolling, "maxUnavailable", &rolling_path, errors);
        }
        ("Recreate", None) => {}
        (ty, rolling) => unknown_strategy(ty, rolling, ["Recreate", "RollingUpdate"], &path, errors),
    }
}

/// What Go prints of the strategy: its own names for the fields.
fn unknown_strategy(ty: &str, rolling: Option<&Map>, known: [&str; 2], path: &Path<'_>, errors: &mut ErrorList) {
    let rolling = rolling.map_or_else(
        || "null".to_owned(),
        |rolling| {
            let of = |key| rolling.get(key).map_or_else(|| "0".to_owned(), go::show);
            format!(r#"{{"MaxUnavailable":{},"MaxSurge":{}}}"#, of("maxUnavailable"), of("maxSurge"))
        },
    );
    let error = Error::not_supported(path, "", &known);
    let detail = format!(r#"{{"Type":{},"RollingUpdate":{rolling}}}: {}"#, go::quote(ty), error.detail);
    errors.push(Error { bad_value: None, detail, ..error });
}

pub(super) fn count_or_percent(map: &Map, key: &str, path: &Path<'_>, errors: &mut ErrorList) {
    match map.get(key) {
        Some(Value::String(text)) => {
            let messages = is_valid_percent(text);
            errors.extend(messages.into_iter().map(|message| Error::invalid(path.child(key), text.as_str(), message)));
        }
        Some(Value::Int(count)) if *count < 0 => {
            errors.push(Error::invalid(path.child(key), *count, NEGATIVE));
        }
        _ => {}
    }
}

/// The number, whether it is a count or a percentage; a count may also be written as text, though it is refused then.
pub(super) fn amount(map: &Map, key: &str) -> i64 {
    match map.get(key) {
        Some(Value::String(count)) => percent(map, key).or_else(|| count.parse().ok()).unwrap_or(0),
        value => value.and_then(Value::as_i64).unwrap_or(0),
    }
}

fn percent(map: &Map, key: &str) -> Option<i64> {
    let text = text(map, key);
    is_valid_percent(text).is_empty().then(|| text.trim_end_matches('%').parse().ok())?
}

pub(super) fn at_most_all(map: &Map, key: &str, path: &Path<'_>, errors: &mut ErrorList) {
    if percent(map, key).is_some_and(|percent| percent > 100) {
        errors.push(Error::invalid(path.child(key), text(map, key), "must not be greater than 100%"));
    }
}

pub(super) fn daemon_set(daemon_set: &Map, errors: &mut ErrorList) {
    let spec = at(daemon_set, "spec");
    let path = SPEC.child("selector");
    let map = object(spec, "selector");
    let selector = map.map(LabelSelector::from_map).unwrap_or_default();
    errors.extend(selector.validate(&path));
    let labels = at(at(at(spec, "template"), "metadata"), "labels");
    // No selector at all selects nothing.
    let matches = map.is_some() && selector.to_selector().map_or(true, |selector| selector.matches(labels));
    if !matches {
        mismatch(spec, errors);
    }
    if map.is_some() && selector.match_labels.is_empty() && selector.match_expressions.is_empty() {
        let detail = "empty selector is invalid for daemonset";
        errors.push(Error::invalid_shown(path, show_selector(map), detail));
    }
    template(spec, "DaemonSet", errors);
    nonnegative(errors, spec, &["minReadySeconds"], &SPEC);
    daemon_strategy(at(spec, "updateStrategy"), errors);
    nonnegative(errors, spec, &["revisionHistoryLimit"], &SPEC);
}

fn daemon_strategy(strategy: &Map, errors: &mut ErrorList) {
    let path = SPEC.child("updateStrategy");
    match text(strategy, "type") {
        "OnDelete" => return,
        "RollingUpdate" => {}
        ty => {
            let rolling = object(strategy, "rollingUpdate");
            return unknown_strategy(ty, rolling, ["RollingUpdate", "OnDelete"], &path, errors);
        }
    }
    let path = path.child("rollingUpdate");
    let Some(rolling) = object(strategy, "rollingUpdate") else {
        return errors.push(Error::required(path, ""));
    };
    let keys = ["maxUnavailable", "maxSurge"];
    keys.iter().for_each(|key| count_or_percent(rolling, key, &path, errors));
    keys.iter().for_each(|key| at_most_all(rolling, key, &path, errors));
    match keys.map(|key| amount(rolling, key) != 0) {
        [true, true] => {
            let surge = rolling.get("maxSurge").cloned().unwrap_or_default();
            let detail = "may not be set when maxUnavailable is non-zero";
            errors.push(Error::invalid(path.child("maxSurge"), surge, detail));
        }
        [false, false] => {
            errors.push(Error::required(path.child("maxUnavailable"), "cannot be 0 when maxSurge is 0"));
        }
        _ => {}
    }
}

/// A selector stays as it is.
pub(super) fn immutable_selector(new: &Map, old: &Map, errors: &mut ErrorList) {
    let [new, old] = [new, old].map(|object_| object(at(object_, "spec"), "selector"));
    if new != old {
        errors.push(Error::invalid_shown(SPEC.child("selector"), show_selector(new), IMMUTABLE));
    }
}
