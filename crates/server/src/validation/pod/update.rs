//! What may change in a pod.

use capstan_api::{
    Map, Value,
    field::{Error, ErrorList, Path},
    go,
    validation::is_in_range,
};

use super::{MIRROR, affinity, body, padded_image, spec};
use crate::validation::{
    internal,
    read::{at, empty, int, list, object, objects, strings, text},
    rules::invalid,
};

const MAY_CHANGE: &str = "`spec.containers[*].image`,`spec.initContainers[*].image`,`spec.activeDeadlineSeconds`,\
    `spec.tolerations` (only additions to existing tolerations),`spec.terminationGracePeriodSeconds` (allow it to be \
    set to 1 if it was previously negative)";

/// The pod as it is now, and what must not change in it.
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
    let fixed = fixed(new, old, gated);
    if fixed != *old {
        let difference = internal::difference("PodSpec", old, &fixed);
        let detail = format!("pod updates may not change fields other than {MAY_CHANGE}\n{difference}");
        errors.push(Error::forbidden(path, detail));
    }
}

/// Containers to look at the pod with come and do not go.
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
        let (what, difference) = match now {
            None => ("removed", String::new()),
            Some((_, now)) if now != before => ("changed", internal::difference("EphemeralContainer", before, now)),
            Some(_) => continue,
        };
        let detail = format!("existing ephemeral containers {} may not be {what}\n{difference}", go::quote(name));
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

/// The new spec, with what may change as it was. The nodes for a gated pod may still be narrowed.
fn fixed(new: &Map, old: &Map, gated: bool) -> Map {
    const GRACE: &str = "terminationGracePeriodSeconds";
    let mut spec = new.clone();
    for key in ["activeDeadlineSeconds", "tolerations", "schedulingGates"] {
        keep(&mut spec, old, key);
    }
    if int(old, GRACE).is_some_and(|seconds| seconds < 0) && int(new, GRACE) == Some(1) {
        keep(&mut spec, old, GRACE);
    }
    if gated {
        keep(&mut spec, old, "nodeSelector");
        let before = object(old, "affinity");
        let mut affinity = at(&spec, "affinity").clone();
        keep(&mut affinity, before.unwrap_or(empty()), "nodeAffinity");
        if affinity.is_empty() && before.is_none() {
            spec.remove("affinity");
        } else {
            spec.insert("affinity", affinity);
        }
    }
    for key in ["containers", "initContainers"] {
        let containers = spec.get_mut(key).and_then(Value::as_array_mut);
        let before = list(old, key).iter().filter_map(Value::as_object);
        for (container, before) in containers.into_iter().flat_map(|containers| containers.iter_mut()).zip(before) {
            if let Some(container) = container.as_object_mut() {
                keep(container, before, "image");
            }
        }
    }
    spec
}

/// Lets a field be what it was.
fn keep(map: &mut Map, old: &Map, key: &str) {
    match old.get(key) {
        Some(value) => drop(map.insert(key, value.clone())),
        None => drop(map.remove(key)),
    }
}
