//! Containers: their names, images, ports and mounts.

use std::collections::BTreeSet;

use capstan_api::{
    Map, Value,
    field::{Error, ErrorList, Path},
    validation::{is_dns1123_label, is_valid_port_name, is_valid_port_num},
};

use super::{env, padded_image, probe, resources, security, volumes::Volumes};
use crate::validation::{
    read::{flag, int, is_set, list, object, objects, text},
    rules::{invalid, one_of, relative_path, required},
};

const PROBES: &[&str] = &["livenessProbe", "readinessProbe", "startupProbe"];
const PROTOCOLS: &[&str] = &["SCTP", "TCP", "UDP"];

/// What containers are looked at with: the pod that they are in.
pub(super) struct Pod<'a> {
    pub(super) spec: &'a Map,
    pub(super) volumes: Volumes<'a>,
    /// The claims of devices that containers can name.
    pub(super) claims: BTreeSet<&'a str>,
}

impl Pod<'_> {
    fn host_users(&self) -> bool {
        self.spec.get("hostUsers").and_then(Value::as_bool).unwrap_or(true)
    }
}

pub(super) fn regular(pod: &Pod<'_>, path: &Path<'_>, errors: &mut ErrorList) {
    let spec = pod.spec;
    let path = path.child("containers");
    if list(spec, "containers").is_empty() {
        errors.push(Error::required(path, ""));
        return;
    }
    let mut names = BTreeSet::new();
    for (i, container) in objects(spec, "containers") {
        let path = path.index(i);
        common(container, pod, &path, errors);
        if !names.insert(text(container, "name")) {
            errors.push(Error::duplicate(path.child("name"), text(container, "name")));
        }
        running(container, spec, &path, errors);
        restart_policy(container, false, &path, errors);
    }
    host_ports(objects(spec, "containers"), &path, errors);
}

pub(super) fn init(pod: &Pod<'_>, path: &Path<'_>, errors: &mut ErrorList) {
    let spec = pod.spec;
    let path = path.child("initContainers");
    let mut names: BTreeSet<_> = objects(spec, "containers").map(|(_, container)| text(container, "name")).collect();
    for (i, container) in objects(spec, "initContainers") {
        let item = path.index(i);
        common(container, pod, &item, errors);
        restart_policy(container, true, &item, errors);
        let name = text(container, "name");
        if names.contains(name) {
            errors.push(Error::duplicate(item.child("name"), name));
        } else if !name.is_empty() {
            names.insert(name);
        }
        // They run one by one, so each has the ports for itself, and counts as the first.
        host_ports([(0, container)].into_iter(), &path, errors);
        if text(container, "restartPolicy") == "Always" {
            running(container, spec, &item, errors);
            continue;
        }
        for key in ["lifecycle"].iter().chain(PROBES).filter(|key| is_set(container, key)) {
            let detail = "may not be set for init containers without restartPolicy=Always";
            errors.push(Error::forbidden(item.child(key), detail));
        }
        let path = item.child("resizePolicy");
        for (i, policy) in objects(container, "resizePolicy") {
            if text(policy, "restartPolicy") == "RestartContainer" {
                let detail = "must not be set to 'RestartContainer' for non-sidecar initContainers";
                errors.push(Error::invalid(path.index(i).child("restartPolicy"), "RestartContainer", detail));
            }
        }
    }
}

/// What a container that helps to look at a running pod may not have.
const NOT_EPHEMERAL: &[&str] = &[
    "ports",
    "resources",
    "resizePolicy",
    "restartPolicy",
    "restartPolicyRules",
    "livenessProbe",
    "readinessProbe",
    "startupProbe",
    "lifecycle",
];

pub(super) fn ephemeral(pod: &Pod<'_>, path: &Path<'_>, errors: &mut ErrorList) {
    const DETAIL: &str = "cannot be set for an Ephemeral Container";
    let spec = pod.spec;
    let path = path.child("ephemeralContainers");
    let others: BTreeSet<_> = ["containers", "initContainers"]
        .into_iter()
        .flat_map(|key| objects(spec, key))
        .map(|(_, container)| text(container, "name"))
        .collect();
    let mut names = others.clone();
    for (i, container) in objects(spec, "ephemeralContainers") {
        let path = path.index(i);
        common(container, pod, &path, errors);
        padded_image(container, &path, errors);
        let [name, target] = ["name", "targetContainerName"].map(|key| text(container, key));
        if !names.insert(name) {
            errors.push(Error::duplicate(path.child("name"), name));
        }
        if !target.is_empty() && !others.contains(target) {
            errors.push(Error::not_found(path.child("targetContainerName"), target));
        }
        // An empty list or object is as none in Go.
        let has = |key: &&&str| match container.get(key) {
            Some(Value::Array(items)) => !items.is_empty(),
            Some(Value::Object(map)) => !map.is_empty(),
            value => value.is_some_and(|value| !value.is_null()),
        };
        errors.extend(NOT_EPHEMERAL.iter().filter(has).map(|key| Error::forbidden(path.child(key), DETAIL)));
        let path = path.child("volumeMounts");
        for (i, mount) in objects(container, "volumeMounts") {
            let path = path.index(i);
            for key in ["subPath", "subPathExpr"].iter().filter(|key| !text(mount, key).is_empty()) {
                errors.push(Error::forbidden(path.child(key), DETAIL));
            }
        }
    }
}

const MAX_RESTART_RULES: usize = 20;
const MAX_EXIT_CODES: usize = 255;

/// When a container is started again.
fn restart_policy(container: &Map, is_init: bool, path: &Path<'_>, errors: &mut ErrorList) {
    let rules = list(container, "restartPolicyRules");
    if !is_set(container, "restartPolicy") {
        if rules.is_empty() {
            return;
        }
        let detail = "must specify restartPolicy when restart rules are used";
        errors.push(Error::required(path.child("restartPolicy"), detail));
        if is_init {
            return;
        }
    } else if !["Always", "Never", "OnFailure"].contains(&text(container, "restartPolicy")) {
        let policy = text(container, "restartPolicy");
        errors.push(Error::not_supported(path.child("restartPolicy"), policy, &["Always", "Never", "OnFailure"]));
    }
    let path = path.child("restartPolicyRules");
    if rules.len() > MAX_RESTART_RULES {
        errors.push(Error::too_many(path, rules.len(), MAX_RESTART_RULES));
    }
    for (i, rule) in objects(container, "restartPolicyRules") {
        let path = path.index(i);
        let actions = ["Restart", "RestartAllContainers"];
        if !actions.contains(&text(rule, "action")) {
            errors.push(Error::not_supported(path.child("action"), text(rule, "action"), &actions));
        }
        let codes_path = path.child("exitCodes");
        let Some(codes) = object(rule, "exitCodes") else {
            errors.push(Error::required(codes_path, "must be specified"));
            continue;
        };
        if !["In", "NotIn"].contains(&text(codes, "operator")) {
            let operator = text(codes, "operator");
            errors.push(Error::not_supported(codes_path.child("operator"), operator, &["In", "NotIn"]));
        }
        let count = list(codes, "values").len();
        if count > MAX_EXIT_CODES {
            errors.push(Error::too_many(codes_path.child("values"), count, MAX_EXIT_CODES));
        }
    }
}

/// What only containers have that go on running.
fn running(container: &Map, spec: &Map, path: &Path<'_>, errors: &mut ErrorList) {
    if let Some(lifecycle) = object(container, "lifecycle") {
        probe::lifecycle(lifecycle, spec, &path.child("lifecycle"), errors);
    }
    for key in PROBES {
        if let Some(probe) = object(container, key) {
            probe::probe(probe, *key == "readinessProbe", &path.child(key), errors);
        }
    }
}

fn common(container: &Map, pod: &Pod<'_>, path: &Path<'_>, errors: &mut ErrorList) {
    required(errors, container, "name", path, is_dns1123_label);
    required(errors, container, "image", path, |_| Vec::new());
    one_of(errors, container, "terminationMessagePolicy", path, &["File", "FallbackToLogsOnError"]);
    ports(container, path, errors);
    env::env(container, path, errors);
    env::env_from(container, path, errors);
    mounts(container, &pod.volumes, path, errors);
    devices(container, &pod.volumes, path, errors);
    one_of(errors, container, "imagePullPolicy", path, &["Always", "IfNotPresent", "Never"]);
    if let Some(wanted) = object(container, "resources") {
        resources::validate(wanted, resources::Of::Container, &path.child("resources"), errors);
        resources::claims(wanted, &pod.claims, &path.child("resources"), errors);
    }
    resize_policy(container, text(pod.spec, "restartPolicy"), &path.child("resizePolicy"), errors);
    security::of_container(container, pod.host_users(), path, errors);
}

fn resize_policy(container: &Map, restart_policy: &str, path: &Path<'_>, errors: &mut ErrorList) {
    let mut seen = BTreeSet::new();
    for (i, policy) in objects(container, "resizePolicy") {
        let [name, restart] = ["resourceName", "restartPolicy"].map(|key| text(policy, key));
        if !seen.insert(name) {
            errors.push(Error::duplicate(path.index(i), name));
        }
        // Told of the list, as upstream does.
        for (value, known) in [(name, ["cpu", "memory"]), (restart, ["NotRequired", "RestartContainer"])] {
            if value.is_empty() {
                errors.push(Error::required(path, ""));
            } else if !known.contains(&value) {
                errors.push(Error::not_supported(path, value, &known));
            }
        }
        if restart_policy == "Never" && restart != "NotRequired" {
            let detail = "must be 'NotRequired' when pod `restartPolicy` is 'Never'";
            errors.push(Error::invalid(path, restart, detail));
        }
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

/// What a field says in all objects of a list.
fn words<'a>(map: &'a Map, list: &str, key: &str) -> BTreeSet<&'a str> {
    objects(map, list).map(|(_, item)| text(item, key)).collect()
}

fn mounts(container: &Map, volumes: &Volumes<'_>, path: &Path<'_>, errors: &mut ErrorList) {
    let path = path.child("volumeMounts");
    let [device_names, device_places] = ["name", "devicePath"].map(|key| words(container, "volumeDevices", key));
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
        if device_names.contains(name) {
            errors.push(Error::invalid(item.child("name"), name, "must not already exist in volumeDevices"));
        }
        if device_places.contains(place) {
            let detail = "must not already exist as a path in volumeDevices";
            errors.push(Error::invalid(item.child("mountPath"), place, detail));
        }
        // These two are told of the list, not of the mount, as upstream does.
        relative_path(errors, sub, &path.child("subPath"));
        if !sub.is_empty() && !expression.is_empty() {
            let detail = "subPathExpr and subPath are mutually exclusive";
            errors.push(Error::invalid(item.child("subPathExpr"), expression, detail));
        }
        relative_path(errors, expression, &path.child("subPathExpr"));
        propagation(mount, container, &path.child("mountPropagation"), errors);
        read_only(mount, &path.child("recursiveReadOnly"), errors);
    }
}

fn read_only(mount: &Map, path: &Path<'_>, errors: &mut ErrorList) {
    const MODES: &[&str] = &["Disabled", "Enabled", "IfPossible"];
    match text(mount, "recursiveReadOnly") {
        _ if !is_set(mount, "recursiveReadOnly") => {}
        "Disabled" => {}
        "Enabled" | "IfPossible" => {
            if !flag(mount, "readOnly") {
                errors.push(Error::forbidden(path, "may only be specified when readOnly is true"));
            }
            if !["", "None"].contains(&text(mount, "mountPropagation")) {
                let detail = "may only be specified when mountPropagation is None or not specified";
                errors.push(Error::forbidden(path, detail));
            }
        }
        mode => errors.push(Error::not_supported(path, mode, MODES)),
    }
}

/// Volumes that are given as devices.
fn devices(container: &Map, volumes: &Volumes<'_>, path: &Path<'_>, errors: &mut ErrorList) {
    let path = path.child("volumeDevices");
    let [mount_names, mount_places] = ["name", "mountPath"].map(|key| words(container, "volumeMounts", key));
    let (mut names, mut places) = (BTreeSet::new(), BTreeSet::new());
    for (i, device) in objects(container, "volumeDevices") {
        let path = path.index(i);
        let [name, place] = ["name", "devicePath"].map(|key| text(device, key));
        if name.is_empty() {
            errors.push(Error::required(path.child("name"), ""));
        }
        let mut wrong = |key: &str, value: &str, detail: &str| {
            errors.push(Error::invalid(path.child(key), value, detail));
        };
        if names.contains(name) {
            wrong("name", name, "must be unique");
        }
        match volumes.get(name) {
            Some(volume) if ["persistentVolumeClaim", "ephemeral"].iter().all(|key| !is_set(volume, key)) => {
                let detail = "can only use volume source type of PersistentVolumeClaim or Ephemeral for block mode";
                wrong("name", name, detail);
            }
            Some(_) => {}
            None => errors.push(Error::not_found(path.child("name"), name)),
        }
        if place.is_empty() {
            errors.push(Error::required(path.child("devicePath"), ""));
        }
        let mut wrong = |key: &str, value: &str, detail: &str| {
            errors.push(Error::invalid(path.child(key), value, detail));
        };
        if places.contains(place) {
            wrong("devicePath", place, "must be unique");
        }
        if place.split('/').any(|part| part == "..") {
            wrong("devicePath", place, "can not contain backsteps ('..')");
        } else {
            places.insert(place);
        }
        if mount_names.contains(name) {
            wrong("name", name, "must not already exist in volumeMounts");
        }
        if mount_places.contains(place) {
            wrong("devicePath", place, "must not already exist as a path in volumeMounts");
        }
        if !name.is_empty() {
            names.insert(name);
        }
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
