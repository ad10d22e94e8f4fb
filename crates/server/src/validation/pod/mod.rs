//! Pods, and the specs of pods in templates.

mod container;
mod env;
mod probe;
mod resources;
mod spec;
mod update;
mod volumes;

use capstan_api::{
    Map,
    field::{Error, ErrorList, Path},
    validation::{validate_annotations, validate_labels},
};

use super::read::{at, list, objects, strings, text};
pub(super) use update::update;

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
    let pod_spec = at(pod, "spec");
    spec::validate(pod_spec, true, &path, errors);
    for key in ["containers", "initContainers"] {
        let path = path.child(key);
        for (i, container) in objects(pod_spec, key) {
            padded_image(container, &path.index(i), errors);
        }
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
    let path = path.child("spec");
    spec::validate(at(template, "spec"), false, &path, errors);
    if !list(at(template, "spec"), "ephemeralContainers").is_empty() {
        let detail = "ephemeral containers not allowed in pod template";
        errors.push(Error::forbidden(path.child("ephemeralContainers"), detail));
    }
}
