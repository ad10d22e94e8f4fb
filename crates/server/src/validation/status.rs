//! What `/status` and `/scale` take: counts that are not negative and fit each other.

use std::collections::BTreeSet;

use capstan_api::{
    Map,
    field::{Error, ErrorList, Path},
    validation::validate_label_name,
};

use super::{
    read::{at, int, is_set, objects, text},
    rules::nonnegative,
};

const STATUS: Path<'static> = Path::new("status");

pub(super) fn scale(scale: &Map, errors: &mut ErrorList) {
    nonnegative(errors, at(scale, "spec"), &["replicas"], &Path::new("spec"));
}

fn count(status: &Map, key: &str) -> i64 {
    int(status, key).unwrap_or(0)
}

/// None of `parts` is more than all replicas, and the available ones are not more than the ready ones.
fn within(status: &Map, parts: &[&str], ready: &str, errors: &mut ErrorList) {
    let mut more = |key: &str, bound: &str, called: &str| {
        if count(status, key) > count(status, bound) {
            let detail = format!("cannot be greater than {called}");
            errors.push(Error::invalid(STATUS.child(key), count(status, key), detail));
        }
    };
    for key in parts {
        more(key, "replicas", "status.replicas");
    }
    more("availableReplicas", "readyReplicas", ready);
}

/// How often names have collided is only counted up.
fn collisions(new: &Map, old: &Map, errors: &mut ErrorList) {
    const KEY: &str = "collisionCount";
    let (new, old) = (at(new, "status"), at(old, "status"));
    if int(old, KEY).is_some_and(|before| int(new, KEY).is_none_or(|now| now < before)) {
        errors.push(Error::invalid(STATUS.child(KEY), count(new, KEY), "cannot be decremented"));
    }
}

pub(super) fn deployment(new: &Map, old: &Map, errors: &mut ErrorList) {
    const COUNTS: &[&str] = &[
        "observedGeneration",
        "replicas",
        "updatedReplicas",
        "readyReplicas",
        "availableReplicas",
        "unavailableReplicas",
        "terminatingReplicas",
        "collisionCount",
    ];
    let status = at(new, "status");
    nonnegative(errors, status, COUNTS, &STATUS);
    within(status, &["updatedReplicas", "readyReplicas", "availableReplicas"], "readyReplicas", errors);
    collisions(new, old, errors);
}

/// Replica sets, and replication controllers, which have the same counts.
pub(super) fn replica_set(new: &Map, _: &Map, errors: &mut ErrorList) {
    const COUNTS: &[&str] = &[
        "replicas",
        "fullyLabeledReplicas",
        "readyReplicas",
        "availableReplicas",
        "observedGeneration",
        "terminatingReplicas",
    ];
    let status = at(new, "status");
    nonnegative(errors, status, COUNTS, &STATUS);
    within(status, &["fullyLabeledReplicas", "readyReplicas", "availableReplicas"], "readyReplicas", errors);
}

pub(super) fn stateful_set(new: &Map, old: &Map, errors: &mut ErrorList) {
    const COUNTS: &[&str] = &[
        "replicas",
        "readyReplicas",
        "currentReplicas",
        "updatedReplicas",
        "availableReplicas",
        "observedGeneration",
        "collisionCount",
    ];
    let status = at(new, "status");
    nonnegative(errors, status, COUNTS, &STATUS);
    within(status, &COUNTS[1..5], "status.readyReplicas", errors);
    collisions(new, old, errors);
}

pub(super) fn daemon_set(new: &Map, old: &Map, errors: &mut ErrorList) {
    const COUNTS: &[&str] = &[
        "currentNumberScheduled",
        "numberMisscheduled",
        "desiredNumberScheduled",
        "numberReady",
        "observedGeneration",
        "updatedNumberScheduled",
        "numberAvailable",
        "numberUnavailable",
        "collisionCount",
    ];
    nonnegative(errors, at(new, "status"), COUNTS, &STATUS);
    collisions(new, old, errors);
}

pub(super) fn autoscaler(new: &Map, _: &Map, errors: &mut ErrorList) {
    nonnegative(errors, at(new, "status"), &["currentReplicas", "desiredReplicas"], &STATUS);
}

pub(super) fn budget(new: &Map, _: &Map, errors: &mut ErrorList) {
    let status = at(new, "status");
    conditions(status, &STATUS.child("conditions"), errors);
    nonnegative(errors, status, &["disruptionsAllowed", "currentHealthy", "desiredHealthy", "expectedPods"], &STATUS);
}

const MAX_REASON: usize = 1024;
const MAX_MESSAGE: usize = 32 * 1024;
const REASON: &str = "a condition reason must start with alphabetic character, optionally followed by a string of \
    alphanumeric characters or '_,:', and must end with an alphanumeric character or '_' (e.g. 'my_name',  or \
    'MY_NAME',  or 'MyName',  or 'ReasonA,ReasonB',  or 'ReasonA:ReasonB', regex used for validation is \
    '[A-Za-z]([A-Za-z0-9_,:]*[A-Za-z0-9_])?')";

fn is_reason(reason: &str) -> bool {
    let bytes = reason.as_bytes();
    let inner = |c: &u8| c.is_ascii_alphanumeric() || b"_,:".contains(c);
    bytes.iter().all(inner)
        && bytes.first().is_some_and(u8::is_ascii_alphabetic)
        && bytes.last().is_some_and(|c| c.is_ascii_alphanumeric() || *c == b'_')
}

/// The conditions of a status, in the form that newer kinds share.
pub(super) fn conditions(status: &Map, path: &Path<'_>, errors: &mut ErrorList) {
    let mut types = BTreeSet::new();
    for (i, condition) in objects(status, "conditions") {
        let path = path.index(i);
        let [ty, state, reason] = ["type", "status", "reason"].map(|key| text(condition, key));
        if !types.insert(ty) {
            errors.push(Error::duplicate(path.child("type"), ty));
        }
        errors.extend(validate_label_name(ty, &path.child("type")));
        let states = ["False", "True", "Unknown"];
        if !states.contains(&state) {
            errors.push(Error::not_supported(path.child("status"), state, &states));
        }
        if let Some(generation) = int(condition, "observedGeneration").filter(|generation| *generation < 0) {
            let detail = "must be greater than or equal to zero";
            errors.push(Error::invalid(path.child("observedGeneration"), generation, detail));
        }
        if !is_set(condition, "lastTransitionTime") {
            errors.push(Error::required(path.child("lastTransitionTime"), ""));
        }
        if reason.is_empty() {
            errors.push(Error::required(path.child("reason"), ""));
        } else {
            if !is_reason(reason) {
                errors.push(Error::invalid(path.child("reason"), reason, REASON));
            }
            if reason.len() > MAX_REASON {
                errors.push(Error::too_long(path.child("reason"), MAX_REASON));
            }
        }
        if text(condition, "message").len() > MAX_MESSAGE {
            errors.push(Error::too_long(path.child("message"), MAX_MESSAGE));
        }
    }
}
