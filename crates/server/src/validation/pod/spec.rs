//! The spec of a pod.

use std::collections::BTreeSet;

use capstan_api::{
    Map, Value,
    field::{Error, ErrorList, Path},
    validation::{
        is_dns1123_label, is_dns1123_subdomain, is_in_range, is_qualified_name, is_valid_label_value,
        validate_label_name, validate_labels,
    },
};

use super::{
    affinity,
    container::{self, Pod},
    dns, resources, security, spread, volumes, windows,
};
use crate::validation::{
    read::{at, flag, int, is_set, list, object, objects, strings, text},
    rules::{invalid, one_of, optional},
    show::{Field, show},
};

const RESTART_POLICIES: &[&str] = &["Always", "OnFailure", "Never"];
const DNS_POLICIES: &[&str] = &["ClusterFirstWithHostNet", "ClusterFirst", "Default", "None"];
const EFFECTS: &[&str] = &["NoSchedule", "PreferNoSchedule", "NoExecute"];

/// The spec of a pod, or of a template if there is no `metadata`.
pub(super) fn validate(spec: &Map, metadata: Option<&Map>, path: &Path<'_>, errors: &mut ErrorList) {
    if !is_set(spec, "terminationGracePeriodSeconds") {
        errors.push(Error::required(path.child("terminationGracePeriodSeconds"), ""));
    }
    let volumes = volumes::validate(spec, metadata, path, errors);
    resource_claims(spec, &path.child("resourceClaims"), errors);
    let claims = objects(spec, "resourceClaims").map(|(_, claim)| text(claim, "name"));
    let pod = Pod { spec, volumes, claims: claims.filter(|name| !name.is_empty()).collect() };
    container::regular(&pod, path, errors);
    container::init(&pod, path, errors);
    container::ephemeral(&pod, path, errors);
    resources::of_pod(spec, path, errors);
    if flag(spec, "hostNetwork") {
        host_network(spec, metadata.is_some(), path, errors);
    }
    one_of(errors, spec, "restartPolicy", path, RESTART_POLICIES);
    one_of(errors, spec, "dnsPolicy", path, DNS_POLICIES);
    errors.extend(validate_labels(strings(spec, "nodeSelector"), &path.child("nodeSelector")));
    security::of_pod(spec, path, errors);
    if let Some(affinity) = object(spec, "affinity") {
        affinity::validate(affinity, &path.child("affinity"), errors);
    }
    dns::config(spec, path, errors);
    gates(spec, path, errors);
    spread::validate(spec, path, errors);
    windows::host_process(spec, path, errors);
    host_users(spec, path, errors);
    dns::hostname_override(spec, path, errors);
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
    dns::host_aliases(spec, path, errors);
    optional(errors, spec, "priorityClassName", path, is_dns1123_subdomain);
    if is_set(spec, "runtimeClassName") {
        let name = text(spec, "runtimeClassName");
        invalid(errors, &path.child("runtimeClassName"), name, is_dns1123_subdomain(name));
    }
    if is_set(spec, "preemptionPolicy") {
        one_of(errors, spec, "preemptionPolicy", path, &["PreemptLowerPriority", "Never"]);
    }
    overhead(at(spec, "overhead"), &path.child("overhead"), errors);
    windows::os(spec, path, errors);
    files_of_variables(spec, path, errors);
}

/// What a pod needs beyond its containers.
pub(in crate::validation) fn overhead(amounts: &Map, path: &Path<'_>, errors: &mut ErrorList) {
    let limits: Map = [("limits".into(), Value::from(amounts.clone()))].into_iter().collect();
    resources::validate(&limits, resources::Of::Container, path, errors);
}

fn resource_claims(spec: &Map, path: &Path<'_>, errors: &mut ErrorList) {
    const SOURCES: [&str; 2] = ["resourceClaimName", "resourceClaimTemplateName"];
    const FIELDS: &[Field] = &[
        ("Name", "name", "\"\""),
        ("ResourceClaimName", "resourceClaimName", "null"),
        ("ResourceClaimTemplateName", "resourceClaimTemplateName", "null"),
    ];
    let mut names = BTreeSet::new();
    for (i, claim) in objects(spec, "resourceClaims") {
        let path = path.index(i);
        match text(claim, "name") {
            "" => errors.push(Error::required(path.child("name"), "")),
            name if !names.insert(name) => errors.push(Error::duplicate(path.child("name"), name)),
            name => invalid(errors, &path.child("name"), name, is_dns1123_label(name)),
        }
        let detail = match SOURCES.map(|key| is_set(claim, key)) {
            [true, true] => "at most one of `resourceClaimName` or `resourceClaimTemplateName` may be specified",
            [false, false] => "must specify one of: `resourceClaimName`, `resourceClaimTemplateName`",
            _ => "",
        };
        if !detail.is_empty() {
            errors.push(Error::invalid_shown(path, show(claim, FIELDS), detail));
        }
        for key in SOURCES.iter().filter(|key| is_set(claim, key)) {
            invalid(errors, &path.child(key), text(claim, key), is_dns1123_subdomain(text(claim, key)));
        }
    }
}

/// What a pod waits for.
fn gates(spec: &Map, path: &Path<'_>, errors: &mut ErrorList) {
    let readiness = path.child("readinessGates");
    for (i, gate) in objects(spec, "readinessGates") {
        let ty = text(gate, "conditionType");
        invalid(errors, &readiness.index(i).child("conditionType"), ty, is_qualified_name(ty));
    }
    let scheduling = path.child("schedulingGates");
    let mut names = BTreeSet::new();
    for (i, gate) in objects(spec, "schedulingGates") {
        let name = text(gate, "name");
        invalid(errors, &scheduling.index(i), name, is_qualified_name(name));
        if !names.insert(name) {
            errors.push(Error::duplicate(scheduling.index(i), name));
        }
    }
}

/// With users of its own a pod cannot have all of the host.
fn host_users(spec: &Map, path: &Path<'_>, errors: &mut ErrorList) {
    const DETAIL: &str = "when `hostUsers` is false";
    if spec.get("hostUsers").and_then(Value::as_bool) != Some(false) {
        return;
    }
    for (key, called) in [("hostNetwork", "hostNetwork"), ("hostPID", "HostPID"), ("hostIPC", "HostIPC")] {
        if flag(spec, key) {
            errors.push(Error::forbidden(path.child(called), DETAIL));
        }
    }
    super::containers(spec, path, |container, path| {
        if !list(container, "volumeDevices").is_empty() {
            errors.push(Error::forbidden(path.child("volumeDevices"), DETAIL));
        }
    });
}

/// Variables that are read from a file need it in a volume that the pod itself fills.
fn files_of_variables(spec: &Map, path: &Path<'_>, errors: &mut ErrorList) {
    super::containers(spec, path, |container, path| {
        let path = path.child("env");
        for (i, variable) in objects(container, "env") {
            let Some(file) = object(at(variable, "valueFrom"), "fileKeyRef") else { continue };
            let path = path.index(i);
            let path = path.child("valueFrom");
            let path = path.child("fileKeyRef");
            let name = text(file, "volumeName");
            match objects(spec, "volumes").filter(|(_, volume)| text(volume, "name") == name).last() {
                None => errors.push(Error::not_found(path.child("volumeName"), name)),
                Some((_, volume)) if !is_set(volume, "emptyDir") => {
                    let detail = "referenced volume must be of type emptyDir";
                    errors.push(Error::invalid(path.child("volumeName"), name, detail));
                }
                Some(_) => {}
            }
        }
    });
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

pub(in crate::validation) fn tolerations(spec: &Map, path: &Path<'_>, errors: &mut ErrorList) {
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
