//! The status of jobs.

use std::collections::BTreeSet;

use capstan_api::{
    Map, Time, Value,
    field::{Error, ErrorList, Path},
    go,
};

use super::{
    read::{at, flag, int, is_set, list, objects, text},
    rules::{IMMUTABLE, nonnegative},
    show::{hidden, json, show},
};

const STATUS: Path<'static> = Path::new("status");

fn is_true(status: &Map, ty: &str) -> bool {
    objects(status, "conditions").any(|(_, c)| text(c, "type") == ty && text(c, "status") == "True")
}

fn is_finished(status: &Map) -> bool {
    is_true(status, "Complete") || is_true(status, "Failed")
}

fn time(status: &Map, key: &str) -> Option<Time> {
    text(status, key).parse().ok()
}

pub(super) fn update(new: &Map, old: &Map, errors: &mut ErrorList) {
    let spec = at(new, "spec");
    let (now, before) = (at(new, "status"), at(old, "status"));
    nonnegative(errors, now, &["active", "succeeded", "failed", "ready", "terminating"], &STATUS);
    uncounted(now, errors);
    let changed = |key: &str| now.get(key).filter(|v| !v.is_null()) != before.get(key).filter(|v| !v.is_null());
    conditions_and_times(now, before, errors);
    let ended = is_finished(now) != is_finished(before);
    counts_of_finished(spec, now, ended, changed, errors);
    index_lists(spec, now, changed, errors);
    if is_finished(now) && int(now, "terminating").is_some_and(|n| n > 0) && (ended || changed("terminating")) {
        let value = int(now, "terminating").unwrap_or(0);
        let detail = "terminating>0 is invalid for finished job";
        errors.push(Error::invalid(STATUS.child("terminating"), value, detail));
    }
    let active = int(now, "active").unwrap_or(0);
    if let Some(ready) = int(now, "ready").filter(|ready| *ready > active && (changed("ready") || changed("active"))) {
        errors.push(Error::invalid(STATUS.child("ready"), ready, "cannot set more ready pods than active"));
    }
    let path = STATUS.child("conditions");
    let met = is_true(now, "SuccessCriteriaMet");
    for other in ["Failed", "FailureTarget"] {
        if met && is_true(now, other) {
            hidden(errors, &path, format!("cannot set SuccessCriteriaMet=True and {other}=true conditions"));
        }
    }
    if is_set(spec, "successPolicy") && !met && is_true(now, "Complete") {
        let detail = "cannot set Complete=True for Job with SuccessPolicy unless SuccessCriteriaMet=True";
        hidden(errors, &path, detail);
    }
    transitions(spec, now, before, errors);
}

/// Pods that are done but not counted yet.
fn uncounted(status: &Map, errors: &mut ErrorList) {
    let path = STATUS.child("uncountedTerminatedPods");
    let pods = at(status, "uncountedTerminatedPods");
    let mut seen = BTreeSet::new();
    for key in ["succeeded", "failed"] {
        let path = path.child(key);
        for (i, uid) in list(pods, key).iter().enumerate() {
            let uid = uid.as_str().unwrap_or("");
            // A type of its own in Go, which is printed as JSON.
            let shown = json(&uid.into());
            if uid.is_empty() {
                errors.push(Error::invalid_shown(path.index(i), shown, "must not be empty"));
            } else if !seen.insert(uid) {
                errors.push(Error { bad_value: None, detail: shown, ..Error::duplicate(path.index(i), 0) });
            }
        }
    }
}

fn conditions_and_times(now: &Map, before: &Map, errors: &mut ErrorList) {
    let path = STATUS.child("conditions");
    let turned = |ty: &str| is_true(now, ty) != is_true(before, ty);
    let changed = |key: &str| now.get(key) != before.get(key);
    let [complete, failed, target, met] =
        ["Complete", "Failed", "FailureTarget", "SuccessCriteriaMet"].map(|ty| is_true(now, ty));
    if complete && failed && (turned("Complete") || turned("Failed")) {
        hidden(errors, &path, "cannot set Complete=True and Failed=true conditions");
    }
    if complete && target && (turned("Complete") || turned("FailureTarget")) {
        hidden(errors, &path, "cannot set Complete=True and FailureTarget=true conditions");
    }
    let time_path = STATUS.child("completionTime");
    let shown = now.get("completionTime").cloned().unwrap_or(Value::Null);
    let (has_time, touched) = (is_set(now, "completionTime"), turned("Complete") || changed("completionTime"));
    if has_time && !complete && touched {
        let detail = "cannot set completionTime when there is no Complete=True condition";
        errors.push(Error::invalid(time_path, shown.clone(), detail));
    }
    if !has_time && complete && touched {
        errors.push(Error::required(time_path, "completionTime is required for Complete jobs"));
    }
    let (start, end) = (time(now, "startTime"), time(now, "completionTime"));
    let early = start.is_some() && end.is_some() && end < start;
    if early && (changed("startTime") || changed("completionTime")) {
        errors.push(Error::invalid(time_path, shown, "must be equal to or after `startTime`"));
    }
    if failed && !target && (turned("Failed") || changed("failedIndexes")) {
        hidden(errors, &path, "cannot set Failed=True condition without the FailureTarget=true condition");
    }
    if complete && !met && (turned("Complete") || turned("SuccessCriteriaMet")) {
        hidden(errors, &path, "cannot set Complete=True condition without the SuccessCriteriaMet=true condition");
    }
}

fn counts_of_finished(spec: &Map, now: &Map, ended: bool, changed: impl Fn(&str) -> bool, errors: &mut ErrorList) {
    if !is_finished(now) {
        return;
    }
    let active = int(now, "active").unwrap_or(0);
    if active > 0 && (ended || changed("active")) {
        errors.push(Error::invalid(STATUS.child("active"), active, "active>0 is invalid for finished job"));
    }
    let never_ran = flag(spec, "suspend") && int(spec, "completions") == Some(0);
    if !is_set(now, "startTime") && (ended || changed("startTime")) && !never_ran {
        errors.push(Error::required(STATUS.child("startTime"), "startTime is required for finished job"));
    }
    let pods = at(now, "uncountedTerminatedPods");
    let some = ["succeeded", "failed"].iter().any(|key| !list(pods, key).is_empty());
    if some && (ended || changed("uncountedTerminatedPods")) {
        let shown = show(pods, &[("Succeeded", "succeeded", "null"), ("Failed", "failed", "null")]);
        let detail = "must be empty for finished job";
        errors.push(Error::invalid_shown(STATUS.child("uncountedTerminatedPods"), shown, detail));
    }
}

fn index_lists(spec: &Map, now: &Map, changed: impl Fn(&str) -> bool, errors: &mut ErrorList) {
    let completions = int(spec, "completions");
    let per_index = is_set(spec, "backoffLimitPerIndex");
    let [completed, failed] = ["completedIndexes", "failedIndexes"].map(|key| text(now, key));
    let mut wrong = |key: &str, value: &str, detail: String| {
        errors.push(Error::invalid(STATUS.child(key), value, detail));
    };
    if let Some(Err(error)) = completions.filter(|_| changed("completedIndexes")).map(|n| indexes(completed, n)) {
        wrong("completedIndexes", completed, format!("error parsing completedIndexes: {error}"));
    }
    let has_failed = is_set(now, "failedIndexes");
    let look = changed("failedIndexes") && per_index && has_failed;
    if let Some(Err(error)) = completions.filter(|_| look).map(|n| indexes(failed, n)) {
        wrong("failedIndexes", failed, format!("error parsing failedIndexes: {error}"));
    }
    if changed("completedIndexes") && !completed.is_empty() && text(spec, "completionMode") != "Indexed" {
        let detail = "cannot set non-empty completedIndexes when non-indexed completion mode";
        wrong("completedIndexes", completed, detail.to_owned());
    }
    if changed("failedIndexes") && !per_index && has_failed {
        let detail = "cannot set non-null failedIndexes when backoffLimitPerIndex is null";
        wrong("failedIndexes", failed, detail.to_owned());
    }
    if (changed("failedIndexes") || changed("completedIndexes")) && has_failed {
        let overlap = completions.and_then(|n| overlap(completed, failed, n));
        if let Some(index) = overlap {
            let detail = format!("failedIndexes and completedIndexes overlap at index: {index}");
            wrong("failedIndexes", failed, detail);
        }
    }
}

/// What may not be taken back.
fn transitions(spec: &Map, now: &Map, before: &Map, errors: &mut ErrorList) {
    let path = STATUS.child("conditions");
    for ty in ["Failed", "Complete", "FailureTarget"] {
        if is_true(before, ty) && !is_true(now, ty) {
            hidden(errors, &path, format!("cannot disable the terminal {ty}=True condition"));
        }
    }
    let indexed = text(spec, "completionMode") == "Indexed";
    let elastic = indexed && int(spec, "completions") == int(spec, "parallelism");
    for (key, looked_at) in [("failed", true), ("succeeded", !elastic)] {
        let [now, before] = [now, before].map(|status| int(status, key).unwrap_or(0));
        if looked_at && now < before {
            errors.push(Error::invalid(STATUS.child(key), now, format!("cannot decrease the {key} counter")));
        }
    }
    let shown = |key: &str| now.get(key).cloned().unwrap_or(Value::Null);
    let both = is_set(now, "completionTime") && is_set(before, "completionTime");
    if both && time(now, "completionTime") != time(before, "completionTime") {
        errors.push(Error::invalid(STATUS.child("completionTime"), shown("completionTime"), IMMUTABLE));
    }
    let is_false = |(_, c): (usize, &Map)| text(c, "type") == "Suspended" && text(c, "status") == "False";
    let resuming = is_true(before, "Suspended") && objects(now, "conditions").any(is_false);
    let moved = is_set(before, "startTime") && time(now, "startTime") != time(before, "startTime");
    if moved && !resuming && !flag(spec, "suspend") {
        let detail = "field is immutable for unsuspended job once set";
        errors.push(Error::invalid(STATUS.child("startTime"), shown("startTime"), detail));
    }
    let [met_now, met_before] = [now, before].map(|status| is_true(status, "SuccessCriteriaMet"));
    if met_before && !met_now {
        hidden(errors, &path, "cannot disable the SuccessCriteriaMet=True condition");
    }
    if is_true(before, "Complete") && !met_before && met_now {
        let detail = "cannot set SuccessCriteriaMet=True for Job already has Complete=true conditions";
        hidden(errors, &path, detail);
    }
}

/// How many indexes a list such as `1,3-5` has.
///
/// # Errors
/// Says what is wrong with the list.
pub(super) fn indexes(list: &str, completions: i64) -> Result<i64, String> {
    let (mut total, mut last) = (0, None);
    for interval in list.split(',').filter(|_| !list.is_empty()) {
        let (start, end) = interval_of(interval, completions)?;
        if let Some(last) = last.filter(|last| *last >= start) {
            return Err(format!("non-increasing order, previous: {last}, current: {start}"));
        }
        total += end - start + 1;
        last = Some(end);
    }
    Ok(total)
}

fn interval_of(interval: &str, completions: i64) -> Result<(i64, i64), String> {
    let parts: Vec<_> = interval.split('-').collect();
    let number = |text: &str| match go::atoi(text) {
        Err(_) => Err(format!("cannot convert string to integer for index: {}", go::quote(text))),
        Ok(n) if n >= completions => Err(format!("too large index: {}", go::quote(text))),
        Ok(n) => Ok(n),
    };
    match parts[..] {
        [one] => number(one).map(|n| (n, n)),
        [start, end] => {
            let (start, end) = (number(start)?, number(end)?);
            if start >= end {
                return Err(format!("non-increasing order, previous: {start}, current: {end}"));
            }
            Ok((start, end))
        }
        _ => Err(format!(
            "the fragment {} violates the requirement that an index interval can have at most two parts separated by '-'",
            go::quote(interval)
        )),
    }
}

/// The first index that is in both lists; what is no interval is passed over.
fn overlap(completed: &str, failed: &str, completions: i64) -> Option<i64> {
    let intervals = |list: &str| -> Vec<_> {
        list.split(',').filter_map(|interval| interval_of(interval, completions).ok()).collect()
    };
    let (completed, failed) = (intervals(completed), intervals(failed));
    let (mut left, mut right) = (completed.iter().peekable(), failed.iter().peekable());
    while let (Some((start, end)), Some((other_start, other_end))) = (left.peek(), right.peek()) {
        if start <= other_end && other_start <= end {
            return Some(*start.max(other_start));
        }
        if start <= other_start {
            left.next();
        } else {
            right.next();
        }
    }
    None
}
