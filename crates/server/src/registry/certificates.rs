//! CertificateSigningRequests: who asked, and the times and decisions in their conditions.

use capstan_api::{Map, Time, Value};

use super::paths;

/// Who asks for a certificate.
#[derive(Clone, Debug, Default)]
pub struct Requester<'a> {
    /// The name of the user.
    pub username: &'a str,
    /// The uid of the user; may be empty.
    pub uid: &'a str,
    /// The groups of the user.
    pub groups: &'a [String],
    /// What else is known about the user.
    pub extra: &'a [(String, Vec<String>)],
}

/// Writes down who asked, after `prepare_for_create` has removed what the client claimed.
pub fn set_requester(object: &mut Map, requester: &Requester<'_>) {
    let list = |items: &[String]| Value::from(items.iter().map(|item| item.as_str().into()).collect::<Vec<Value>>());
    for (path, text) in [("spec.username", requester.username), ("spec.uid", requester.uid)] {
        if !text.is_empty() {
            paths::set(object, path, text);
        }
    }
    if !requester.groups.is_empty() {
        paths::set(object, "spec.groups", list(requester.groups));
    }
    if !requester.extra.is_empty() {
        let extra: Map = requester.extra.iter().map(|(key, values)| (key.as_str().into(), list(values))).collect();
        paths::set(object, "spec.extra", extra);
    }
}

pub(super) fn forget_requester(object: &mut Map) {
    ["spec.username", "spec.uid", "spec.groups", "spec.extra"].iter().for_each(|path| paths::remove(object, path));
}

/// Conditions without times get them; one that holds already keeps the time since when.
pub(super) fn condition_times(new: &mut Map, old: &Map, now: Time) {
    let is_unset = |condition: &Map, key: &str| condition.get(key).is_none_or(Value::is_null);
    let before = paths::items(old, "status.conditions");
    for condition in paths::array_mut(new, "status.conditions").into_iter().flat_map(|all| all.iter_mut()) {
        let Value::Object(condition) = condition else { continue };
        if is_unset(condition, "lastUpdateTime") {
            condition.insert("lastUpdateTime", now.to_string());
        }
        if is_unset(condition, "lastTransitionTime") {
            let holds = |old: &&Value| ["type", "status"].iter().all(|key| old.get(key) == condition.get(key));
            let since = before.iter().filter(holds).find_map(|old| old.get("lastTransitionTime"));
            let since = since.filter(|time| !time.is_null()).cloned();
            condition.insert("lastTransitionTime", since.unwrap_or_else(|| now.to_string().into()));
        }
    }
}

/// `/status` cannot change an approval or a denial, as long as there are as many as before.
pub(super) fn keep_decisions(new: &mut Map, old: &Map) {
    for decision in ["Approved", "Denied"] {
        let is_one = |condition: &&Value| condition.get("type").and_then(Value::as_str) == Some(decision);
        let before: Vec<_> = paths::items(old, "status.conditions").iter().filter(is_one).collect();
        if paths::items(new, "status.conditions").iter().filter(is_one).count() != before.len() {
            continue;
        }
        let all = paths::array_mut(new, "status.conditions").into_iter().flat_map(|all| all.iter_mut());
        for (condition, before) in all.filter(|condition| is_one(&&**condition)).zip(before) {
            *condition = before.clone();
        }
    }
}

/// `/approval` changes conditions and nothing else of the status.
pub(super) fn only_conditions(new: &mut Map, old: &Map) {
    let conditions = paths::get(new, "status.conditions").cloned();
    paths::copy(new, old, "status");
    match conditions {
        Some(conditions) => paths::set(new, "status.conditions", conditions),
        None => paths::remove(new, "status.conditions"),
    }
}
