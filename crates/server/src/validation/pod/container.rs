//! Containers: their names, images, ports and mounts.

use std::collections::BTreeSet;

use capstan_api::{
    Map,
    field::{Error, ErrorList, Path},
    validation::{is_dns1123_label, is_valid_port_name, is_valid_port_num},
};

use super::{env, probe, resources, volumes::Volumes};
use crate::validation::{
    read::{flag, int, is_set, list, object, objects, text},
    rules::{invalid, one_of, relative_path, required},
};

const PROBES: &[&str] = &["livenessProbe", "readinessProbe", "startupProbe"];
const PROTOCOLS: &[&str] = &["SCTP", "TCP", "UDP"];

pub(super) fn regular(spec: &Map, volumes: &Volumes<'_>, path: &Path<'_>, errors: &mut ErrorList) {
    let path = path.child("containers");
    if list(spec, "containers").is_empty() {
        errors.push(Error::required(path, ""));
        return;
    }
    let mut names = BTreeSet::new();
    for (i, container) in objects(spec, "containers") {
        let path = path.index(i);
        common(container, volumes, &path, errors);
        if !names.insert(text(container, "name")) {
            errors.push(Error::duplicate(path.child("name"), text(container, "name")));
        }
        running(container, int(spec, "terminationGracePeriodSeconds"), &path, errors);
    }
    host_ports(objects(spec, "containers"), &path, errors);
}

pub(super) fn init(spec: &Map, volumes: &Volumes<'_>, path: &Path<'_>, errors: &mut ErrorList) {
    let path = path.child("initContainers");
    let mut names: BTreeSet<_> = objects(spec, "containers").map(|(_, container)| text(container, "name")).collect();
    for (i, container) in objects(spec, "initContainers") {
        let item = path.index(i);
        common(container, volumes, &item, errors);
        let name = text(container, "name");
        if names.contains(name) {
            errors.push(Error::duplicate(item.child("name"), name));
        } else if !name.is_empty() {
            names.insert(name);
        }
        // They run one by one, so each has the ports for itself, and counts as the first.
        host_ports([(0, container)].into_iter(), &path, errors);
        if text(container, "restartPolicy") == "Always" {
            running(container, int(spec, "terminationGracePeriodSeconds"), &item, errors);
            continue;
        }
        for key in ["lifecycle"].iter().chain(PROBES).filter(|key| is_set(container, key)) {
            let detail = "may not be set for init containers without restartPolicy=Always";
            errors.push(Error::forbidden(item.child(key), detail));
        }
    }
}

/// What only containers have that go on running.
fn running(container: &Map, grace: Option<i64>, path: &Path<'_>, errors: &mut ErrorList) {
    if let Some(lifecycle) = object(container, "lifecycle") {
        probe::lifecycle(lifecycle, grace, &path.child("lifecycle"), errors);
    }
    for key in PROBES {
        if let Some(probe) = object(container, key) {
            probe::probe(probe, *key == "readinessProbe", &path.child(key), errors);
        }
    }
}

fn common(container: &Map, volumes: &Volumes<'_>, path: &Path<'_>, errors: &mut ErrorList) {
    required(errors, container, "name", path, is_dns1123_label);
    required(errors, container, "image", path, |_| Vec::new());
    one_of(errors, container, "terminationMessagePolicy", path, &["File", "FallbackToLogsOnError"]);
    ports(container, path, errors);
    env::env(container, path, errors);
    env::env_from(container, path, errors);
    mounts(container, volumes, path, errors);
    one_of(errors, container, "imagePullPolicy", path, &["Always", "IfNotPresent", "Never"]);
    if let Some(wanted) = object(container, "resources") {
        resources::validate(wanted, &path.child("resources"), errors);
    }
}

fn ports(container: &Map, path: &Path<'_>, errors: &mut ErrorList) {
    let path = path.child("ports");
    let mut names = BTreeSet::new();
    for (i, port) in objects(container, "ports") {
        let path = path.index(i);
        let name = text(port, "name");
        if !name.is_empty() {
            let messages = is_valid_port_name(name);
            if messages.is_empty() && !names.insert(name) {
                errors.push(Error::duplicate(path.child("name"), name));
            }
            invalid(errors, &path.child("name"), name, messages);
        }
        match int(port, "containerPort").unwrap_or(0) {
            0 => errors.push(Error::required(path.child("containerPort"), "")),
            number => invalid(errors, &path.child("containerPort"), number, is_valid_port_num(number)),
        }
        if let Some(number) = int(port, "hostPort").filter(|number| *number != 0) {
            invalid(errors, &path.child("hostPort"), number, is_valid_port_num(number));
        }
        one_of(errors, port, "protocol", &path, PROTOCOLS);
    }
}

/// A port of the host can be had once.
fn host_ports<'a>(containers: impl Iterator<Item = (usize, &'a Map)>, path: &Path<'_>, errors: &mut ErrorList) {
    let mut taken = BTreeSet::new();
    for (i, container) in containers {
        let path = path.index(i);
        let path = path.child("ports");
        for (i, port) in objects(container, "ports") {
            let Some(number) = int(port, "hostPort").filter(|number| *number != 0) else { continue };
            let key = format!("{}/{}/{number}", text(port, "protocol"), text(port, "hostIP"));
            if !taken.insert(key.clone()) {
                errors.push(Error::duplicate(path.index(i).child("hostPort"), key));
            }
        }
    }
}

fn mounts(container: &Map, volumes: &Volumes<'_>, path: &Path<'_>, errors: &mut ErrorList) {
    let path = path.child("volumeMounts");
    let mut taken = BTreeSet::new();
    for (i, mount) in objects(container, "volumeMounts") {
        let item = path.index(i);
        let [name, place, sub, expression] =
            ["name", "mountPath", "subPath", "subPathExpr"].map(|key| text(mount, key));
        if name.is_empty() {
            errors.push(Error::required(item.child("name"), ""));
        }
        if !volumes.contains_key(name) {
            errors.push(Error::not_found(item.child("name"), name));
        }
        if place.is_empty() {
            errors.push(Error::required(item.child("mountPath"), ""));
        }
        if !taken.insert(place) {
            errors.push(Error::invalid(item.child("mountPath"), place, "must be unique"));
        }
        for (_, device) in objects(container, "volumeDevices") {
            if text(device, "name") == name {
                errors.push(Error::invalid(item.child("name"), name, "must not already exist in volumeDevices"));
            }
            if text(device, "devicePath") == place {
                let detail = "must not already exist as a path in volumeDevices";
                errors.push(Error::invalid(item.child("mountPath"), place, detail));
            }
        }
        // These two are told of the list, not of the mount, as upstream does.
        relative_path(errors, sub, &path.child("subPath"));
        if !sub.is_empty() && !expression.is_empty() {
            let detail = "subPathExpr and subPath are mutually exclusive";
            errors.push(Error::invalid(item.child("subPathExpr"), expression, detail));
        }
        relative_path(errors, expression, &path.child("subPathExpr"));
        propagation(mount, container, &path.child("mountPropagation"), errors);
    }
}

fn propagation(mount: &Map, container: &Map, path: &Path<'_>, errors: &mut ErrorList) {
    const MODES: &[&str] = &["Bidirectional", "HostToContainer", "None"];
    if !is_set(mount, "mountPropagation") {
        return;
    }
    let mode = text(mount, "mountPropagation");
    if !MODES.contains(&mode) {
        errors.push(Error::not_supported(path, mode, MODES));
    }
    let privileged = object(container, "securityContext").is_some_and(|context| flag(context, "privileged"));
    if mode == "Bidirectional" && !privileged {
        errors
            .push(Error::forbidden(path, "Bidirectional mount propagation is available only to privileged containers"));
    }
}
