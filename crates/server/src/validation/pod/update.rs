//! What may change in a pod.

use capstan_api::{
    Map, Value,
    field::{Error, ErrorList, Path},
    go,
    validation::is_in_range,
};

use super::{MIRROR, affinity, body, padded_image, spec};
use crate::validation::{
    read::{at, int, list, objects, strings, text},
    rules::invalid,
};

const MAY_CHANGE: &str = "`spec.containers[*].image`,`spec.initContainers[*].image`,`spec.activeDeadlineSeconds`,\
    `spec.tolerations` (only additions to existing tolerations),`spec.terminationGracePeriodSeconds` (allow it to be \
    set to 1 if it was previously negative)";

/// The pod as it is now, and what must not change in it. Upstream adds a dump of Go structs to the message about
/// fields that must not change; that is left out here.
pub(in crate::validation) fn update(new: &Map, old: &Map, errors: &mut ErrorList) {
    body(new, errors);
    let (new, old) = (at(new, "spec"), at(old, "spec"));
    let path = Path::new("spec");
    for key in ["containers", "initContainers"] {
        let path = path.child(key);
        if list(new, key).len() != list(old, key).len() {
            errors.push(Error::forbidden(path, "pod updates may not add or remove containers"));
            return;
        }
        for (i, container) in objects(new, key) {
            if text(container, "image").is_empty() {
                errors.push(Error::required(path.index(i).child("image"), ""));
            }
            padded_image(container, &path.index(i), errors);
        }
    }
    if !deadline(new, old, &path.child("activeDeadlineSeconds"), errors) {
        return;
    }
    tolerations(new, old, &path, errors);
    gates(new, old, &path.child("schedulingGates"), errors);
    let gated = !list(old, "schedulingGates").is_empty();
    let kept = |(key, value): (&str, &str)| text(at(new, "nodeSelector"), key) == value;
    if gated && !strings(old, "nodeSelector").all(kept) {
        let detail = "only additions to spec.nodeSelector are allowed (no mutations or deletions)";
        let selector = new.get("nodeSelector").cloned().unwrap_or_default();
        errors.push(Error::invalid(path.child("nodeSelector"), selector, detail));
    }
    if gated {
        let [new, old] = [new, old].map(|spec| at(at(spec, "affinity"), "nodeAffinity"));
        if new != old {
            let path = path.child("affinity");
            affinity::narrowed(new, old, &path.child("nodeAffinity"), errors);
        }
    }
    if fixed(new, gated) != fixed(old, gated) && !only_grace(new, old, gated) {
        let detail = format!("pod updates may not change fields other than {MAY_CHANGE}");
        errors.push(Error::forbidden(path, detail));
    }
}

/// Containers to look at the pod with come and do not go. Upstream adds a dump of Go structs here too.
pub(in crate::validation) fn ephemeral_containers(new: &Map, old: &Map, errors: &mut ErrorList) {
    body(new, errors);
    if at(at(old, "metadata"), "annotations").contains_key(MIRROR) {
        *errors = vec![Error::forbidden(Path::ROOT, "static pods do not support ephemeral containers")];
        return;
    }
    let (new, old) = (at(new, "spec"), at(old, "spec"));
    for (_, before) in objects(old, "ephemeralContainers") {
        let name = text(before, "name");
        let now = objects(new, "ephemeralContainers").find(|(_, container)| text(container, "name") == name);
        let what = match now {
            None => "removed",
            Some((_, now)) if now != before => "changed",
            Some(_) => continue,
        };
        let detail = format!("existing ephemeral containers {} may not be {what}\n", go::quote(name));
        errors.push(Error::forbidden("spec.ephemeralContainers", detail));
    }
}

/// A deadline may be set, and then only come nearer. Whether the rest is worth looking at.
fn deadline(new: &Map, old: &Map, path: &Path<'_>, errors: &mut ErrorList) -> bool {
    let before = int(old, "activeDeadlineSeconds");
    let Some(seconds) = int(new, "activeDeadlineSeconds") else {
        if before.is_some() {
            let detail = "must not update from a positive integer to nil value";
            errors.push(Error::invalid(path, Value::Null, detail));
        }
        return true;
    };
    let messages = is_in_range(seconds, 0, i32::MAX.into());
    let in_range = messages.is_empty();
    invalid(errors, path, seconds, messages);
    let later = in_range && before.is_some_and(|before| before < seconds);
    if later {
        errors.push(Error::invalid(path, seconds, "must be less than or equal to previous value"));
    }
    in_range && !later
}

fn without(map: &Map, keys: &[&str]) -> Map {
    let mut map = map.clone();
    map.retain(|key, _| !keys.contains(&key));
    map
}

fn tolerations(new: &Map, old: &Map, path: &Path<'_>, errors: &mut ErrorList) {
    let rest = |toleration: &Map| without(toleration, &["tolerationSeconds"]);
    let kept = |(_, old)| objects(new, "tolerations").any(|(_, new)| rest(new) == rest(old));
    if objects(old, "tolerations").all(kept) {
        spec::tolerations(new, path, errors);
    } else {
        let detail = "existing toleration can not be modified except its tolerationSeconds";
        errors.push(Error::forbidden(path.child("tolerations"), detail));
    }
}

fn gates(new: &Map, old: &Map, path: &Path<'_>, errors: &mut ErrorList) {
    for (i, gate) in objects(new, "schedulingGates") {
        let name = text(gate, "name");
        if !objects(old, "schedulingGates").any(|(_, old)| text(old, "name") == name) {
            let detail = format!("only deletion is allowed, but found new scheduling gate '{name}'");
            errors.push(Error::forbidden(path.index(i).child("name"), detail));
        }
    }
}

/// The spec without what may change. The nodes for a gated pod may still be narrowed.
fn fixed(spec: &Map, gated: bool) -> Map {
    let mut spec = without(spec, &["activeDeadlineSeconds", "tolerations", "schedulingGates"]);
    if gated {
        spec.retain(|key, _| key != "nodeSelector");
        if let Some(affinity) = spec.get_mut("affinity").and_then(Value::as_object_mut) {
            affinity.remove("nodeAffinity");
            if affinity.is_empty() {
                spec.remove("affinity");
            }
        }
    }
    for key in ["containers", "initContainers"] {
        let containers = spec.get_mut(key).and_then(Value::as_array_mut);
        for container in containers.into_iter().flat_map(|containers| containers.iter_mut()) {
            if let Some(container) = container.as_object_mut() {
                container.remove("image");
            }
        }
    }
    spec
}

/// Whether all that changes is a negative grace period, to 1.
fn only_grace(new: &Map, old: &Map, gated: bool) -> bool {
    const KEY: &str = "terminationGracePeriodSeconds";
    let allowed = int(old, KEY).is_some_and(|seconds| seconds < 0) && int(new, KEY) == Some(1);
    allowed && without(&fixed(new, gated), &[KEY]) == without(&fixed(old, gated), &[KEY])
}
