//! Pods, and the specs of pods in templates.

mod affinity;
mod claim;
mod container;
mod container_status;
pub(in crate::validation) mod disks;
mod dns;
mod env;
mod probe;
mod projected;
mod resize;
mod resources;
mod security;
mod spec;
mod spread;
mod status;
mod update;
mod volumes;
mod windows;

use capstan_api::{
    Map,
    field::{Error, ErrorList, Path},
    validation::{validate_annotations, validate_labels},
};

use super::read::{at, is_set, list, objects, strings, text};
pub(super) use claim::spec as claim_spec;
pub(super) use resize::resize;
pub(super) use resources::name_errors as container_resource_name;
pub(super) use spec::{overhead, tolerations};
pub(super) use status::status;
pub(super) use update::{ephemeral_containers, update};

/// Goes through all containers, those that start first first.
fn containers<'a>(spec: &'a Map, path: &Path<'_>, mut visit: impl FnMut(&'a Map, &Path<'_>)) {
    for key in ["initContainers", "containers", "ephemeralContainers"] {
        let path = path.child(key);
        for (i, container) in objects(spec, key) {
            visit(container, &path.index(i));
        }
    }
}

/// A new pod, without its metadata.
pub(super) fn create(pod: &Map, errors: &mut ErrorList) {
    body(pod, errors);
    let path = Path::new("spec");
    let spec = at(pod, "spec");
    if !list(spec, "ephemeralContainers").is_empty() {
        errors.push(Error::forbidden(path.child("ephemeralContainers"), "cannot be set on create"));
    }
    if !text(spec, "nodeName").is_empty() && !list(spec, "schedulingGates").is_empty() {
        let detail = "cannot be set until all schedulingGates have been cleared";
        errors.push(Error::forbidden(path.child("nodeName"), detail));
    }
}

/// What holds for a pod but not for a template, whether it is new or not.
fn body(pod: &Map, errors: &mut ErrorList) {
    let path = Path::new("spec");
    let (pod_spec, metadata) = (at(pod, "spec"), at(pod, "metadata"));
    annotations(metadata, pod_spec, &Path::new("metadata").child("annotations"), errors);
    spec::validate(pod_spec, Some(metadata), &path, errors);
    if text(pod_spec, "serviceAccountName").is_empty() {
        tokens_without_account(pod_spec, &path, errors);
    }
    for key in ["containers", "initContainers"] {
        let path = path.child(key);
        for (i, container) in objects(pod_spec, key) {
            padded_image(container, &path.index(i), errors);
        }
    }
}

fn tokens_without_account(spec: &Map, path: &Path<'_>, errors: &mut ErrorList) {
    let path = path.child("volumes");
    for (i, volume) in objects(spec, "volumes") {
        let path = path.index(i);
        let path = path.child("projected");
        let path = path.child("sources");
        for (i, _) in objects(at(volume, "projected"), "sources").filter(|(_, s)| is_set(s, "serviceAccountToken")) {
            let detail = "must not be specified when serviceAccountName is not set";
            errors.push(Error::forbidden(path.index(i).child("serviceAccountToken"), detail));
        }
    }
}

const MIRROR: &str = "kubernetes.io/config.mirror";
const DELETION_COST: &str = "controller.kubernetes.io/pod-deletion-cost";

/// The annotations that mean something to pods.
pub(super) fn annotations(metadata: &Map, spec: &Map, path: &Path<'_>, errors: &mut ErrorList) {
    let annotations = at(metadata, "annotations");
    if annotations.contains_key(MIRROR) && text(spec, "nodeName").is_empty() {
        let detail = "must set spec.nodeName if mirror pod annotation is set";
        errors.push(Error::invalid(path.key(MIRROR), text(annotations, MIRROR), detail));
    }
    if annotations.contains_key(DELETION_COST) {
        let cost = text(annotations, DELETION_COST);
        // What would sort wrongly as text is refused too: a plus sign and leading zeros.
        let plain = cost == "0" || cost.starts_with(['-', '1', '2', '3', '4', '5', '6', '7', '8', '9']);
        if !plain || cost.parse::<i32>().is_err() {
            errors.push(Error::invalid(path.key(DELETION_COST), cost, "must be a 32bit integer"));
        }
    }
}

/// Which node a pod is to run on.
pub(super) fn binding(binding: &Map, errors: &mut ErrorList) {
    let path = Path::new("target");
    let target = at(binding, "target");
    if !["", "Node"].contains(&text(target, "kind")) {
        errors.push(Error::not_supported(path.child("kind"), text(target, "kind"), &["Node", "<empty>"]));
    }
    if text(target, "name").is_empty() {
        errors.push(Error::required(path.child("name"), ""));
    }
}

fn padded_image(container: &Map, path: &Path<'_>, errors: &mut ErrorList) {
    let image = text(container, "image");
    if image.trim() != image {
        let detail = "must not have leading or trailing whitespace";
        errors.push(Error::invalid(path.child("image"), image, detail));
    }
}

/// The template of a pod, in what makes pods.
pub(super) fn template(template: &Map, path: &Path<'_>, errors: &mut ErrorList) {
    let metadata = at(template, "metadata");
    errors.extend(validate_labels(strings(metadata, "labels"), &path.child("labels")));
    errors.extend(validate_annotations(strings(metadata, "annotations"), &path.child("annotations")));
    annotations(metadata, at(template, "spec"), &path.child("annotations"), errors);
    let path = path.child("spec");
    spec::validate(at(template, "spec"), None, &path, errors);
    if !list(at(template, "spec"), "ephemeralContainers").is_empty() {
        let detail = "ephemeral containers not allowed in pod template";
        errors.push(Error::forbidden(path.child("ephemeralContainers"), detail));
    }
}
