//! What a node says of single containers: who runs in them, and how the devices are that they were given.

use std::collections::BTreeSet;

use capstan_api::{
    Map, Value,
    field::{Error, ErrorList, Path},
    validation::{is_valid_group_id, is_valid_user_id},
};

use crate::validation::{
    read::{at, int, list, object, objects, text},
    rules::invalid,
};

const KINDS: [(&str, &str); 3] =
    [("containerStatuses", "containers"), ("initContainerStatuses", "initContainers"), (EPHEMERAL, "")];
const EPHEMERAL: &str = "ephemeralContainerStatuses";
const HEALTH: &[&str] = &["Healthy", "Unhealthy", "Unknown"];
const MAX_HEALTH_MESSAGE: usize = 1024;
const NO_CLAIM: &str = "must match one of the container's resource claims in a format 'claim:<claimName>/<request>' or \
                        'claim:<claimName>' if request is empty";

pub(super) fn all(status: &Map, spec: &Map, errors: &mut ErrorList) {
    let path = Path::new("status");
    let os = match text(at(spec, "os"), "name") {
        "" => "linux",
        name => name,
    };
    for (key, _) in KINDS {
        for (i, one) in objects(status, key) {
            let Some(linux) = object(at(one, "user"), "linux") else { continue };
            let path = path.child(key);
            let path = path.index(i);
            let path = path.child("user");
            match os {
                "windows" => errors.push(Error::forbidden(path.child("linux"), "cannot be set for a windows pod")),
                "linux" => user(linux, &path.child("linux"), errors),
                _ => {}
            }
        }
    }
    for (key, of) in KINDS {
        for (i, one) in objects(status, key) {
            let path = path.child(key);
            let path = path.index(i);
            let path = path.child("allocatedResourcesStatus");
            if key != EPHEMERAL {
                let container = objects(spec, of).find(|(_, container)| text(container, "name") == text(one, "name"));
                devices(one, container.map(|(_, container)| container), &path, errors);
            } else if !list(one, "allocatedResourcesStatus").is_empty() {
                errors.push(Error::forbidden(path, "must not be specified in container status"));
            }
        }
    }
}

fn user(user: &Map, path: &Path<'_>, errors: &mut ErrorList) {
    let [uid, gid] = ["uid", "gid"].map(|key| int(user, key).unwrap_or(0));
    invalid(errors, &path.child("uid"), uid, is_valid_user_id(uid));
    invalid(errors, &path.child("gid"), gid, is_valid_group_id(gid));
    let path = path.child("supplementalGroups");
    for (i, group) in list(user, "supplementalGroups").iter().enumerate() {
        let group = group.as_i64().unwrap_or(0);
        invalid(errors, &path.index(i), group, is_valid_group_id(group));
    }
}

/// The state of what a container was given. One that the spec does not have may say anything.
fn devices(status: &Map, container: Option<&Map>, path: &Path<'_>, errors: &mut ErrorList) {
    for (i, resource) in objects(status, "allocatedResourcesStatus") {
        let (name, path) = (text(resource, "name"), path.index(i));
        if let Some(resources) = container.map(|container| at(container, "resources")) {
            let is_claim = |(_, claim): (usize, &Map)| match text(claim, "request") {
                "" => name == format!("claim:{}", text(claim, "name")),
                request => name == format!("claim:{}/{request}", text(claim, "name")),
            };
            let (found, detail) = if name.starts_with("claim:") {
                (objects(resources, "claims").any(is_claim), NO_CLAIM)
            } else {
                let found = at(resources, "requests").contains_key(name);
                (found, "must match one of the container's resource requests")
            };
            if !found {
                errors.push(Error::invalid(path.child("name"), name, detail));
            }
        }
        let mut seen = BTreeSet::new();
        let path = path.child("resources");
        for (i, one) in objects(resource, "resources") {
            let path = path.index(i);
            let [health, id] = ["health", "resourceID"].map(|key| text(one, key));
            if !HEALTH.contains(&health) {
                errors.push(Error::not_supported(path.child("health"), health, HEALTH));
            }
            match one.get("message").and_then(Value::as_str).map(str::len) {
                Some(0) => errors.push(Error::required(path.child("message"), "must be non-empty if specified")),
                Some(length) if length > MAX_HEALTH_MESSAGE => {
                    errors.push(Error::too_long(path.child("message"), MAX_HEALTH_MESSAGE));
                }
                _ => {}
            }
            if !seen.insert(id) {
                errors.push(Error::duplicate(path.child("resourceID"), id));
            }
        }
    }
}
