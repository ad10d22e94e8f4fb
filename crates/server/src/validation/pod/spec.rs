//! The spec of a pod.

use capstan_api::{
    Map,
    field::{Error, ErrorList, Path},
    validation::{
        is_dns1123_label, is_dns1123_subdomain, is_in_range, is_valid_label_value, validate_label_name, validate_labels,
    },
};

use super::{container, volumes};
use crate::validation::{
    read::{flag, int, is_set, objects, strings, text},
    rules::{invalid, one_of, optional},
};

const RESTART_POLICIES: &[&str] = &["Always", "OnFailure", "Never"];
const DNS_POLICIES: &[&str] = &["ClusterFirstWithHostNet", "ClusterFirst", "Default", "None"];
const EFFECTS: &[&str] = &["NoSchedule", "PreferNoSchedule", "NoExecute"];

pub(super) fn validate(spec: &Map, is_pod: bool, path: &Path<'_>, errors: &mut ErrorList) {
    if !is_set(spec, "terminationGracePeriodSeconds") {
        errors.push(Error::required(path.child("terminationGracePeriodSeconds"), ""));
    }
    let volumes = volumes::validate(spec, path, errors);
    container::regular(spec, &volumes, path, errors);
    container::init(spec, &volumes, path, errors);
    if flag(spec, "hostNetwork") {
        host_network(spec, is_pod, path, errors);
    }
    one_of(errors, spec, "restartPolicy", path, RESTART_POLICIES);
    one_of(errors, spec, "dnsPolicy", path, DNS_POLICIES);
    errors.extend(validate_labels(strings(spec, "nodeSelector"), &path.child("nodeSelector")));
    for key in ["serviceAccountName", "nodeName"] {
        optional(errors, spec, key, path, is_dns1123_subdomain);
    }
    if let Some(seconds) = int(spec, "activeDeadlineSeconds") {
        let messages = is_in_range(seconds, 1, i32::MAX.into());
        invalid(errors, &path.child("activeDeadlineSeconds"), seconds, messages);
    }
    for key in ["hostname", "subdomain"] {
        optional(errors, spec, key, path, is_dns1123_label);
    }
    tolerations(spec, path, errors);
    optional(errors, spec, "priorityClassName", path, is_dns1123_subdomain);
    if is_set(spec, "runtimeClassName") {
        let name = text(spec, "runtimeClassName");
        invalid(errors, &path.child("runtimeClassName"), name, is_dns1123_subdomain(name));
    }
    if is_set(spec, "preemptionPolicy") {
        one_of(errors, spec, "preemptionPolicy", path, &["PreemptLowerPriority", "Never"]);
    }
}

/// On the host's network a port is the host's; in a template it may still be open.
fn host_network(spec: &Map, is_pod: bool, path: &Path<'_>, errors: &mut ErrorList) {
    let path = path.child("containers");
    for (i, container) in objects(spec, "containers") {
        let path = path.index(i);
        let path = path.child("ports");
        for (i, port) in objects(container, "ports") {
            let host = int(port, "hostPort").unwrap_or(0);
            if (is_pod || host != 0) && host != int(port, "containerPort").unwrap_or(0) {
                let detail = "must match `containerPort` when `hostNetwork` is true";
                errors.push(Error::invalid(path.index(i).child("hostPort"), host, detail));
            }
        }
    }
}

pub(super) fn tolerations(spec: &Map, path: &Path<'_>, errors: &mut ErrorList) {
    let path = path.child("tolerations");
    for (i, toleration) in objects(spec, "tolerations") {
        let path = path.index(i);
        let [key, operator, value, effect] = ["key", "operator", "value", "effect"].map(|key| text(toleration, key));
        if !key.is_empty() {
            errors.extend(validate_label_name(key, &path.child("key")));
        }
        let mut wrong = |key: &str, value: &str, detail: &str| {
            errors.push(Error::invalid(path.child(key), value, detail));
        };
        if key.is_empty() && operator != "Exists" {
            let detail = "operator must be Exists when `key` is empty, which means \"match all values and all keys\"";
            wrong("operator", operator, detail);
        }
        if is_set(toleration, "tolerationSeconds") && effect != "NoExecute" {
            wrong("effect", effect, "effect must be 'NoExecute' when `tolerationSeconds` is set");
        }
        match operator {
            "Equal" | "" => {
                let messages = is_valid_label_value(value);
                if !messages.is_empty() {
                    wrong("operator", value, &messages.join(";"));
                }
            }
            "Exists" if value.is_empty() => {}
            "Exists" => wrong("operator", value, "value must be empty when `operator` is 'Exists'"),
            _ => {
                // Two more are known, but not enabled; then all of them are listed.
                let known: &[&str] = &["Equal", "Exists", "Lt", "Gt"];
                let listed = if matches!(operator, "Lt" | "Gt") { known } else { &known[..2] };
                errors.push(Error::not_supported(path.child("operator"), operator, listed));
            }
        }
        if !effect.is_empty() {
            one_of(errors, toleration, "effect", &path, EFFECTS);
        }
    }
}
