//! Volumes, claims, and what provides them.

use capstan_api::{Time, Value};

use super::view::{View, cell};

/// The annotation that named the class before there was a field.
const BETA_CLASS: &str = "volume.beta.kubernetes.io/storage-class";
/// Annotations that make a class the default.
const DEFAULT_CLASS: [&str; 2] =
    ["storageclass.kubernetes.io/is-default-class", "storageclass.beta.kubernetes.io/is-default-class"];
/// The access modes and their short forms, in the order in which they are shown.
const ACCESS_MODES: [(&str, &str); 4] =
    [("ReadWriteOnce", "RWO"), ("ReadOnlyMany", "ROX"), ("ReadWriteMany", "RWX"), ("ReadWriteOncePod", "RWOP")];

fn access_modes(view: View<'_>, path: &str) -> Value {
    let modes = view.texts(path);
    let short = ACCESS_MODES.iter().filter(|(mode, _)| modes.contains(mode)).map(|(_, short)| *short);
    cell(short.collect::<Vec<_>>().join(","))
}

fn phase(view: View<'_>) -> Value {
    cell(if view.deleted() { "Terminating" } else { view.text("status.phase") })
}

fn class(view: View<'_>) -> Value {
    cell(view.annotation(BETA_CLASS).unwrap_or_else(|| view.text("spec.storageClassName")))
}

fn attributes_class(view: View<'_>) -> Value {
    const PATH: &str = "spec.volumeAttributesClassName";
    cell(if view.has(PATH) { view.text(PATH) } else { "<unset>" })
}

/// A volume: from its capacity to its attributes class.
pub(super) fn volume(volume: View<'_>, _now: Time) -> Vec<Value> {
    let claim = volume.at("spec.claimRef");
    let claim = if volume.has("spec.claimRef") {
        format!("{}/{}", claim.text("namespace"), claim.text("name"))
    } else {
        String::new()
    };
    vec![
        cell(volume.quantity("spec.capacity.storage")),
        access_modes(volume, "spec.accessModes"),
        cell(volume.text("spec.persistentVolumeReclaimPolicy")),
        phase(volume),
        cell(claim),
        class(volume),
        attributes_class(volume),
    ]
}

/// A claim: from its phase to its attributes class. Capacity and modes are those of the volume it is bound to.
pub(super) fn claim(claim: View<'_>, _now: Time) -> Vec<Value> {
    let volume = claim.text("spec.volumeName");
    let (capacity, modes) = if volume.is_empty() {
        (cell(""), cell(""))
    } else {
        (cell(claim.quantity("status.capacity.storage")), access_modes(claim, "status.accessModes"))
    };
    vec![phase(claim), cell(volume), capacity, modes, class(claim), attributes_class(claim)]
}

/// The name of a class, and whether it is the default.
pub(super) fn class_name(class: View<'_>, _now: Time) -> String {
    let default = DEFAULT_CLASS.iter().any(|key| class.annotation(key) == Some("true"));
    format!("{}{}", class.text("metadata.name"), if default { " (default)" } else { "" })
}

/// Whom the tokens that a driver asks for are for.
pub(super) fn audiences(driver: View<'_>, _now: Time) -> String {
    const PATH: &str = "spec.tokenRequests";
    if driver.has(PATH) { driver.each(PATH, "audience").join(",") } else { "<unset>".to_owned() }
}

/// The lifecycles of volumes that a driver knows.
pub(super) fn modes(driver: View<'_>, _now: Time) -> String {
    match driver.texts("spec.volumeLifecycleModes").join(",") {
        empty if empty.is_empty() => "<none>".to_owned(),
        modes => modes,
    }
}

/// How a claim of devices stands.
pub(super) fn resource_claim(claim: View<'_>, _now: Time) -> String {
    let (deleted, allocated) = (claim.deleted(), claim.has("status.allocation"));
    let states = [
        (deleted, "deleted"),
        (!allocated && !deleted, "pending"),
        (allocated, "allocated"),
        (allocated && claim.count("status.reservedFor") > 0, "reserved"),
    ];
    states.into_iter().filter(|(holds, _)| *holds).map(|(_, state)| state).collect::<Vec<_>>().join(",")
}
