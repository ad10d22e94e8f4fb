//! What single kinds do beyond their row, each in a few lines.

use capstan_api::{Map, Time, Value};

use super::{certificates, paths, pod, service, strategy::Strategy};

const TEMPLATE_GENERATION: &str = "deprecated.daemonset.template.generation";

/// What a kind adds to a new object; `status` is the one that the client sent.
pub(super) fn create(strategy: &Strategy, object: &mut Map, status: Option<&Value>, uid: &str, now: Time) {
    match (strategy.group, strategy.resource) {
        ("", "namespaces") => {
            paths::set(object, "status.phase", "Active");
            let mut finalizers = paths::items(object, "spec.finalizers").to_vec();
            if !finalizers.iter().any(|finalizer| finalizer.as_str() == Some("kubernetes")) {
                finalizers.push("kubernetes".into());
            }
            paths::set(object, "spec.finalizers", finalizers);
        }
        ("", "pods") => pod::create(object, status, now),
        ("", "persistentvolumes") => {
            paths::set(object, "status.phase", "Pending");
            paths::set(object, "status.lastPhaseTransitionTime", now.to_string());
        }
        ("", "persistentvolumeclaims") => data_sources(object, None),
        ("", "limitranges") if paths::text(object, "metadata.name").is_empty() => {
            paths::set(object, "metadata.name", uid);
        }
        ("", "serviceaccounts") => only_names_of_secrets(object),
        ("apps", "daemonsets") if template_generation(object) < 1 => set_template_generation(object, 1),
        ("batch", "jobs") => {
            let unlabelled = !is_labelled(object, "metadata.labels");
            let labelled = is_labelled(object, "spec.template.metadata.labels");
            job_selector(object, uid);
            // In Go both are one map by now.
            if unlabelled && labelled {
                labels_of_template(object);
            }
        }
        ("apiextensions.k8s.io", "customresourcedefinitions") => stored_versions(object),
        ("apiregistration.k8s.io", "apiservices") if paths::get(object, "spec.service").is_none_or(Value::is_null) => {
            let condition = [
                ("type", "Available".into()),
                ("status", "True".into()),
                ("lastTransitionTime", now.to_string()),
                ("reason", "Local".to_owned()),
                ("message", "Local APIServices are always available".into()),
            ];
            let condition: Map = condition.into_iter().map(|(key, value)| (key.into(), value.into())).collect();
            paths::set(object, "status.conditions", vec![condition.into()]);
        }
        ("certificates.k8s.io", _) => certificates::forget_requester(object),
        ("resource.k8s.io", "resourceslices") => taint_times(object, now),
        _ => {}
    }
}

/// What a kind takes out of the new object before the kept fields overwrite it.
pub(super) fn before_update(strategy: &Strategy, subresource: &str, new: &mut Map, old: &Map, now: Time) {
    match (strategy.resource, subresource) {
        // The row of custom resources has no name.
        ("", "status") => {
            new.retain(|key, _| matches!(key, "metadata" | "status"));
            for (key, value) in old.iter().filter(|(key, _)| !matches!(*key, "metadata" | "status")) {
                new.insert(key, value.clone());
            }
        }
        ("pods", "ephemeralcontainers") if strategy.group.is_empty() => pod::only_ephemeral_containers(new, old),
        ("pods", "resize") if strategy.group.is_empty() => pod::only_resize(new, old),
        ("certificatesigningrequests", "approval") => certificates::condition_times(new, old, now),
        ("jobs", _) => drop(label_as_template(new)),
        _ => {}
    }
}

/// What a kind does with a changed object once the kept fields are back.
pub(super) fn update(strategy: &Strategy, subresource: &str, new: &mut Map, old: &Map, now: Time) {
    match (strategy.group, strategy.resource, subresource) {
        ("", "pods", "status") => pod::update_status(new, old),
        ("", "secrets", "") if paths::text(new, "type").is_empty() => paths::copy(new, old, "type"),
        ("", "serviceaccounts", "") => only_names_of_secrets(new),
        ("", "services", "") => service::drop_what_the_type_has_not(new, old),
        ("", "persistentvolumeclaims", "") => data_sources(new, Some(old)),
        ("", "persistentvolumes", "status") => phase_transition(new, old, now),
        ("apps", "daemonsets", _) => {
            let grown = i64::from(subresource.is_empty() && !paths::same(new, old, "spec.template"));
            set_template_generation(new, template_generation(old).saturating_add(grown));
        }
        ("resource.k8s.io", "resourceslices", _) => taint_times(new, now),
        ("resource.k8s.io", "resourceclaims", "status") => drop_freed_devices(new, old),
        ("apiextensions.k8s.io", "customresourcedefinitions", "") => stored_versions(new),
        ("certificates.k8s.io", _, "status") => {
            certificates::keep_decisions(new, old);
            certificates::condition_times(new, old, now);
        }
        ("certificates.k8s.io", _, "approval") => certificates::only_conditions(new, old),
        _ => {}
    }
}

/// What is said of a device goes with its allocation.
fn drop_freed_devices(new: &mut Map, old: &Map) {
    let identity = |device: &Value| ["driver", "pool", "device", "shareID"].map(|key| device.get(key).cloned());
    let allocated = |claim: &Map| -> Vec<_> {
        paths::items(claim, "status.allocation.devices.results").iter().map(identity).collect()
    };
    let (now, before) = (allocated(new), allocated(old));
    let kept = |device: &&Value| !before.contains(&identity(device)) || now.contains(&identity(device));
    let devices: Vec<Value> = paths::items(new, "status.devices").iter().filter(kept).cloned().collect();
    if devices.len() < paths::items(new, "status.devices").len()
        && let Some(status) = new.get_mut("status").and_then(Value::as_object_mut)
    {
        if devices.is_empty() {
            status.remove("devices");
        } else {
            status.insert("devices", devices);
        }
    }
}

/// In `apps/v1`, what counts changes of a DaemonSet's template is an annotation.
fn template_generation(object: &Map) -> i64 {
    let annotations = paths::get(object, "metadata.annotations");
    let count = annotations.and_then(|map| map.get(TEMPLATE_GENERATION)).and_then(Value::as_str);
    count.and_then(|count| count.parse().ok()).unwrap_or_default()
}

/// Takes that annotation away.
pub(crate) fn drop_template_generation(object: &mut Map) {
    let Some(Value::Object(metadata)) = object.get_mut("metadata") else { return };
    let Some(Value::Object(annotations)) = metadata.get_mut("annotations") else { return };
    annotations.remove(TEMPLATE_GENERATION);
    if annotations.is_empty() {
        metadata.remove("annotations");
    }
}

/// Gives a Job without labels those of its template, as it has them before the server adds its own to both.
pub(crate) fn label_as_template(job: &mut Map) -> bool {
    let unlabelled = !is_labelled(job, "metadata.labels") && is_labelled(job, "spec.template.metadata.labels");
    if unlabelled {
        labels_of_template(job);
    }
    unlabelled
}

fn set_template_generation(object: &mut Map, count: i64) {
    let mut annotations = paths::get(object, "metadata.annotations").and_then(Value::as_object).cloned();
    annotations.get_or_insert_default().insert(TEMPLATE_GENERATION, count.to_string());
    paths::set(object, "metadata.annotations", annotations.unwrap_or_default());
}

/// References to secrets lose all but the name.
fn only_names_of_secrets(object: &mut Map) {
    for secret in paths::array_mut(object, "secrets").into_iter().flat_map(|secrets| secrets.iter_mut()) {
        if let Value::Object(secret) = secret {
            secret.retain(|key, _| key == "name");
        }
    }
}

/// A taint of a device says since when it is there.
fn taint_times(slice: &mut Map, now: Time) {
    for device in paths::array_mut(slice, "spec.devices").into_iter().flat_map(|devices| devices.iter_mut()) {
        let taints = device.as_object_mut().and_then(|device| device.get_mut("taints")).and_then(Value::as_array_mut);
        for taint in taints.into_iter().flat_map(|taints| taints.iter_mut()).filter_map(Value::as_object_mut) {
            taint.get_or_insert_with("timeAdded", || now.to_string().into());
        }
    }
}

fn is_labelled(object: &Map, path: &str) -> bool {
    paths::get(object, path).and_then(Value::as_object).is_some_and(|labels| !labels.is_empty())
}

/// A Job has the labels of its template.
fn labels_of_template(object: &mut Map) {
    if let Some(labels) = paths::get(object, "spec.template.metadata.labels").cloned() {
        paths::set(object, "metadata.labels", labels);
    }
}

/// Unless it has a selector of its own, a Job finds its pods by its uid.
fn job_selector(object: &mut Map, uid: &str) {
    if paths::get(object, "spec.manualSelector").and_then(Value::as_bool) == Some(true) {
        return;
    }
    let name = paths::text(object, "metadata.name").to_owned();
    let own = |key: &str| if key.ends_with("uid") { uid } else { &name };
    let mut fill = |path: &str, keys: &[&str]| {
        let labels = paths::get(object, path).and_then(Value::as_object).cloned();
        let mut labels = labels.unwrap_or_default();
        for key in keys {
            labels.get_or_insert_with(key, || own(key).into());
        }
        paths::set(object, path, labels);
    };
    let uid_label = "batch.kubernetes.io/controller-uid";
    fill("spec.template.metadata.labels", &["job-name", "batch.kubernetes.io/job-name", "controller-uid", uid_label]);
    fill("spec.selector.matchLabels", &[uid_label]);
}

/// The version that is stored joins those that ever were.
fn stored_versions(object: &mut Map) {
    let is_stored = |version: &&Value| version.get("storage").and_then(Value::as_bool) == Some(true);
    let stored = paths::items(object, "spec.versions").iter().find(is_stored);
    let Some(name) = stored.and_then(|version| version.get("name")).cloned() else { return };
    let mut versions = paths::items(object, "status.storedVersions").to_vec();
    if !versions.contains(&name) {
        versions.push(name);
        paths::set(object, "status.storedVersions", versions);
    }
}

/// A claim's two ways to name its source say the same. The older one only knows claims and snapshots and ignores all
/// else, and nothing reaches into another namespace: what says so is ignored, unless a source was there before.
fn data_sources(object: &mut Map, before: Option<&Map>) {
    let had = |path: &str| before.and_then(|old| paths::get(old, path)).is_some_and(|value| !value.is_null());
    let text = |object: &Map, path: &str| paths::text(object, path).to_owned();
    if !text(object, "spec.dataSourceRef.namespace").is_empty() && !had("spec.dataSourceRef") {
        paths::remove(object, "spec.dataSourceRef");
    }
    let known = [("", "PersistentVolumeClaim"), ("snapshot.storage.k8s.io", "VolumeSnapshot")];
    let source = (text(object, "spec.dataSource.apiGroup"), text(object, "spec.dataSource.kind"));
    let is_known = known.contains(&(&source.0, &source.1));
    let has_new = paths::get(object, "spec.dataSourceRef").is_some_and(|value| !value.is_null());
    if !is_known && !had("spec.dataSource") && !has_new {
        paths::remove(object, "spec.dataSource");
    }
    let old = paths::get(object, "spec.dataSource").filter(|value| !value.is_null()).cloned();
    let new = paths::get(object, "spec.dataSourceRef").filter(|value| !value.is_null()).cloned();
    match (old, new) {
        (Some(source), None) => paths::set(object, "spec.dataSourceRef", source),
        (None, Some(source)) if source.get("namespace").and_then(Value::as_str).unwrap_or_default().is_empty() => {
            paths::set(object, "spec.dataSource", source);
        }
        _ => {}
    }
}

fn phase_transition(new: &mut Map, old: &Map, now: Time) {
    const TIME: &str = "status.lastPhaseTransitionTime";
    let unset = paths::get(new, TIME).is_none_or(Value::is_null);
    if paths::same(new, old, "status.phase") {
        if unset {
            paths::copy(new, old, TIME);
        }
    } else if unset || paths::same(new, old, TIME) {
        paths::set(new, TIME, now.to_string());
    }
}
