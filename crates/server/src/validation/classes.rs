//! Classes of priority and of runtimes.

use std::collections::BTreeSet;

use capstan_api::{
    Map, Value,
    field::{Error, ErrorList, Path},
    validation::{name_is_dns_label, validate_labels},
};

use super::{
    pod,
    read::{at, flag, int, is_set, object, objects, strings, text},
    rules::{IMMUTABLE, invalid, one_of, required},
    show::show,
};

/// The highest priority that users can give.
const MAX_PRIORITY: i64 = 1_000_000_000;
/// The prefix of the names that the system keeps for itself, and the priorities of those that it has.
const SYSTEM: &str = "system-";
const SYSTEM_CLASSES: [(&str, i64); 2] =
    [("system-node-critical", 2_000_001_000), ("system-cluster-critical", 2_000_000_000)];

pub(super) fn priority_class(class: &Map, errors: &mut ErrorList) {
    let value = int(class, "value").unwrap_or(0);
    let name = text(at(class, "metadata"), "name");
    if name.starts_with(SYSTEM) {
        if let Some(error) = unknown_system_class(name, value, flag(class, "globalDefault")) {
            let detail =
                format!("priority class names with '{SYSTEM}' prefix are reserved for system use only. error: {error}");
            errors.push(Error::forbidden("metadata.name", detail));
        }
    } else if value > MAX_PRIORITY {
        let detail = format!("maximum allowed value of a user defined priority is {MAX_PRIORITY}");
        errors.push(Error::forbidden("value", detail));
    }
    if is_set(class, "preemptionPolicy") {
        one_of(errors, class, "preemptionPolicy", &Path::ROOT, &["PreemptLowerPriority", "Never"]);
    }
}

fn unknown_system_class(name: &str, value: i64, global_default: bool) -> Option<String> {
    match SYSTEM_CLASSES.iter().find(|class| class.0 == name) {
        None => Some(format!("{name} is not a known system priority class")),
        Some((_, known)) if *known != value => Some(format!("value of {name} PriorityClass must be {known}")),
        Some(_) if global_default => Some(format!("globalDefault of {name} PriorityClass must be false")),
        Some(_) => None,
    }
}

pub(super) fn priority_class_update(new: &Map, old: &Map, errors: &mut ErrorList) {
    if int(new, "value").unwrap_or(0) != int(old, "value").unwrap_or(0) {
        errors.push(Error::forbidden("value", "may not be changed in an update."));
    }
    if text(new, "preemptionPolicy") != text(old, "preemptionPolicy") {
        let policy = new.get("preemptionPolicy").cloned().unwrap_or(Value::Null);
        errors.push(Error::invalid("preemptionPolicy", policy, IMMUTABLE));
    }
}

pub(super) fn runtime_class(class: &Map, errors: &mut ErrorList) {
    required(errors, class, "handler", &Path::ROOT, |handler| name_is_dns_label(handler, false));
    if let Some(overhead) = object(class, "overhead") {
        pod::overhead(at(overhead, "podFixed"), &Path::new("overhead"), errors);
    }
    let Some(scheduling) = object(class, "scheduling") else { return };
    let path = Path::new("scheduling");
    errors.extend(validate_labels(strings(scheduling, "nodeSelector"), &path.child("nodeSelector")));
    pod::tolerations(scheduling, &path, errors);
    let path = path.child("tolerations");
    let mut seen = BTreeSet::new();
    for (i, toleration) in objects(scheduling, "tolerations") {
        if !seen.insert(["key", "operator", "value", "effect"].map(|key| text(toleration, key))) {
            let shown = show(
                toleration,
                &[
                    ("Key", "key", "\"\""),
                    ("Operator", "operator", "\"\""),
                    ("Value", "value", "\"\""),
                    ("Effect", "effect", "\"\""),
                    ("TolerationSeconds", "tolerationSeconds", "null"),
                ],
            );
            errors.push(Error { bad_value: None, detail: shown, ..Error::duplicate(path.index(i), 0) });
        }
    }
}

pub(super) fn runtime_class_update(new: &Map, old: &Map, errors: &mut ErrorList) {
    if text(new, "handler") != text(old, "handler") {
        invalid(errors, &Path::new("handler"), text(new, "handler"), vec![IMMUTABLE.to_owned()]);
    }
}
