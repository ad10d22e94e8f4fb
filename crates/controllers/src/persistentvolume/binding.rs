//! Which claim belongs to which volume, and what each looks like when it is bound. No I/O.

use std::{collections::BTreeMap, sync::Arc};

use capstan_api::{Quantity, selector::LabelSelector};
use k8s_openapi::{
    api::{
        core::v1::{ObjectReference, PersistentVolume, PersistentVolumeClaim},
        storage::v1::StorageClass,
    },
    apimachinery::pkg::apis::meta::v1::ObjectMeta,
};

/// On a claim: it was bound completely once.
pub(crate) const BIND_COMPLETED: &str = "pv.kubernetes.io/bind-completed";
/// On either: the other side was chosen by the controller and not by a user.
pub(crate) const BOUND_BY_CONTROLLER: &str = "pv.kubernetes.io/bound-by-controller";
/// On a claim: where the scheduler wants the volume.
pub(crate) const SELECTED_NODE: &str = "volume.kubernetes.io/selected-node";
/// On a volume: who made it.
pub(crate) const PROVISIONED_BY: &str = "pv.kubernetes.io/provisioned-by";
/// On a claim: who is to make its volume.
pub(crate) const STORAGE_PROVISIONER: [&str; 2] =
    ["volume.beta.kubernetes.io/storage-provisioner", "volume.kubernetes.io/storage-provisioner"];
const BETA_CLASS: &str = "volume.beta.kubernetes.io/storage-class";

pub(crate) fn annotation<'a>(meta: &'a ObjectMeta, name: &str) -> Option<&'a str> {
    meta.annotations.as_ref()?.get(name).map(String::as_str)
}

pub(crate) fn annotate(meta: &mut ObjectMeta, name: &str, value: &str) {
    meta.annotations.get_or_insert_default().insert(name.to_owned(), value.to_owned());
}

/// The class that a claim asks for; none when it leaves that open, and the empty one when it wants none.
pub(crate) fn claim_class(claim: &PersistentVolumeClaim) -> Option<&str> {
    let spec = claim.spec.as_ref().and_then(|spec| spec.storage_class_name.as_deref());
    annotation(&claim.metadata, BETA_CLASS).or(spec)
}

/// The class of a volume.
pub(crate) fn volume_class(volume: &PersistentVolume) -> &str {
    let spec = volume.spec.as_ref().and_then(|spec| spec.storage_class_name.as_deref());
    annotation(&volume.metadata, BETA_CLASS).or(spec).unwrap_or_default()
}

type Amounts = BTreeMap<String, k8s_openapi::apimachinery::pkg::api::resource::Quantity>;

pub(crate) fn storage(amounts: Option<&Amounts>) -> Option<Quantity> {
    amounts?.get("storage")?.0.parse().ok()
}

pub(crate) fn requested(claim: &PersistentVolumeClaim) -> Option<Quantity> {
    storage(claim.spec.as_ref()?.resources.as_ref()?.requests.as_ref())
}

pub(crate) fn capacity(volume: &PersistentVolume) -> Option<Quantity> {
    storage(volume.spec.as_ref()?.capacity.as_ref())
}

pub(crate) fn claim_ref(volume: &PersistentVolume) -> Option<&ObjectReference> {
    volume.spec.as_ref()?.claim_ref.as_ref()
}

pub(crate) fn volume_name(claim: &PersistentVolumeClaim) -> &str {
    claim.spec.as_ref().and_then(|spec| spec.volume_name.as_deref()).unwrap_or_default()
}

pub(crate) fn volume_phase(volume: &PersistentVolume) -> &str {
    volume.status.as_ref().and_then(|status| status.phase.as_deref()).unwrap_or_default()
}

pub(crate) fn claim_phase(claim: &PersistentVolumeClaim) -> &str {
    claim.status.as_ref().and_then(|status| status.phase.as_deref()).unwrap_or_default()
}

/// Whether the volume names this claim. One that a user bound need not know the claim's uid.
pub(crate) fn is_bound_to(volume: &PersistentVolume, claim: &PersistentVolumeClaim) -> bool {
    claim_ref(volume).is_some_and(|reference| {
        reference.name == claim.metadata.name
            && reference.namespace == claim.metadata.namespace
            && reference.uid.as_ref().is_none_or(|uid| uid.is_empty() || Some(uid) == claim.metadata.uid.as_ref())
    })
}

fn access_modes(modes: Option<&Vec<String>>) -> Vec<&str> {
    let mut modes: Vec<_> = modes.into_iter().flatten().map(String::as_str).collect();
    modes.sort_unstable();
    modes.dedup();
    modes
}

fn has_modes(volume: &PersistentVolume, claim: &PersistentVolumeClaim) -> bool {
    let has = access_modes(volume.spec.as_ref().and_then(|spec| spec.access_modes.as_ref()));
    let wants = access_modes(claim.spec.as_ref().and_then(|spec| spec.access_modes.as_ref()));
    wants.iter().all(|mode| has.contains(mode))
}

/// Whether one wants a file system and the other is a device.
pub(crate) fn modes_mismatch(volume: &PersistentVolume, claim: &PersistentVolumeClaim) -> bool {
    let has = volume.spec.as_ref().and_then(|spec| spec.volume_mode.as_deref()).unwrap_or("Filesystem");
    let wants = claim.spec.as_ref().and_then(|spec| spec.volume_mode.as_deref()).unwrap_or("Filesystem");
    has != wants
}

fn attributes_mismatch(volume: &PersistentVolume, claim: &PersistentVolumeClaim) -> bool {
    let has = volume.spec.as_ref().and_then(|spec| spec.volume_attributes_class_name.as_deref());
    let wants = claim.spec.as_ref().and_then(|spec| spec.volume_attributes_class_name.as_deref());
    has.unwrap_or_default() != wants.unwrap_or_default()
}

/// Why a volume that a claim asks for by name is not for it.
pub(crate) fn check_satisfies(volume: &PersistentVolume, claim: &PersistentVolumeClaim) -> Result<(), String> {
    let name = volume.metadata.name.as_deref().unwrap_or_default();
    if volume.metadata.deletion_timestamp.is_some() {
        return Err(format!("the volume is marked for deletion {name:?}"));
    }
    let why = if capacity(volume) < requested(claim) {
        "requested PV is too small"
    } else if volume_class(volume) != claim_class(claim).unwrap_or_default() {
        "storageClassName does not match"
    } else if attributes_mismatch(volume, claim) {
        "volumeAttributesClassName does not match"
    } else if modes_mismatch(volume, claim) {
        "incompatible volumeMode"
    } else if !has_modes(volume, claim) {
        "incompatible accessMode"
    } else {
        return Ok(());
    };
    Err(why.to_owned())
}

/// The volume for a claim: one that a user gave to it, or the smallest that will do, among those with as few access
/// modes as possible. When binding waits for the first consumer, only the scheduler chooses.
///
/// # Errors
/// The claim's selector makes no sense.
pub(crate) fn find_match(
    claim: &PersistentVolumeClaim,
    volumes: &[Arc<PersistentVolume>],
    delay_binding: bool,
) -> Result<Option<Arc<PersistentVolume>>, String> {
    let selector = match claim.spec.as_ref().and_then(|spec| spec.selector.as_ref()) {
        None => None,
        Some(selector) => {
            let selector = serde_json::to_value(selector).and_then(serde_json::from_value::<LabelSelector>);
            Some(selector.map_err(|error| error.to_string()).and_then(|selector| selector.to_selector())?)
        }
    };
    let none = BTreeMap::new();
    let mut groups: BTreeMap<(usize, Vec<&str>), Vec<&Arc<PersistentVolume>>> = BTreeMap::new();
    for volume in volumes.iter().filter(|volume| has_modes(volume, claim)) {
        let modes = access_modes(volume.spec.as_ref().and_then(|spec| spec.access_modes.as_ref()));
        groups.entry((modes.len(), modes)).or_default().push(volume);
    }
    for volumes in groups.into_values() {
        let possible = volumes.into_iter().filter(|volume| {
            (claim_ref(volume).is_none() || is_bound_to(volume, claim))
                && capacity(volume) >= requested(claim)
                && !modes_mismatch(volume, claim)
                && !attributes_mismatch(volume, claim)
                && volume.metadata.deletion_timestamp.is_none()
        });
        let possible: Vec<_> = possible.collect();
        if let Some(bound) = possible.iter().find(|volume| is_bound_to(volume, claim)) {
            return Ok(Some(Arc::clone(bound)));
        }
        let free = possible.into_iter().filter(|volume| {
            !delay_binding
                && volume_phase(volume) == "Available"
                && volume_class(volume) == claim_class(claim).unwrap_or_default()
                && selector
                    .as_ref()
                    .is_none_or(|selector| selector.matches(volume.metadata.labels.as_ref().unwrap_or(&none)))
        });
        if let Some(smallest) = free.min_by_key(|volume| capacity(volume)) {
            return Ok(Some(Arc::clone(smallest)));
        }
    }
    Ok(None)
}

/// What a volume says of the claim that it is for.
pub(crate) fn reference(claim: &PersistentVolumeClaim) -> ObjectReference {
    ObjectReference {
        api_version: Some("v1".to_owned()),
        kind: Some("PersistentVolumeClaim".to_owned()),
        namespace: claim.metadata.namespace.clone(),
        name: claim.metadata.name.clone(),
        uid: claim.metadata.uid.clone(),
        resource_version: claim.metadata.resource_version.clone(),
        field_path: None,
    }
}

/// The volume as it is when it is bound to the claim, if it is not yet.
pub(crate) fn bound_volume(volume: &PersistentVolume, claim: &PersistentVolumeClaim) -> Option<PersistentVolume> {
    let by_controller = !is_bound_to(volume, claim) && annotation(&volume.metadata, BOUND_BY_CONTROLLER).is_none();
    let knows_uid =
        is_bound_to(volume, claim) && claim_ref(volume).is_some_and(|reference| reference.uid == claim.metadata.uid);
    if knows_uid && !by_controller {
        return None;
    }
    let mut volume = volume.clone();
    if !knows_uid {
        volume.spec.get_or_insert_default().claim_ref = Some(reference(claim));
    }
    if by_controller {
        annotate(&mut volume.metadata, BOUND_BY_CONTROLLER, "yes");
    }
    Some(volume)
}

/// The claim as it is when it is bound to the volume, if it is not yet.
pub(crate) fn bound_claim(claim: &PersistentVolumeClaim, volume: &PersistentVolume) -> Option<PersistentVolumeClaim> {
    let name = volume.metadata.name.as_deref().unwrap_or_default();
    let bound = volume_name(claim) == name;
    if bound && annotation(&claim.metadata, BIND_COMPLETED).is_some() {
        return None;
    }
    let mut claim = claim.clone();
    if !bound {
        claim.spec.get_or_insert_default().volume_name = Some(name.to_owned());
        annotate(&mut claim.metadata, BOUND_BY_CONTROLLER, "yes");
    }
    annotate(&mut claim.metadata, BIND_COMPLETED, "yes");
    Some(claim)
}

/// The volume as it is when nobody has it, as far as the controller chose who does.
pub(crate) fn unbound_volume(volume: &PersistentVolume) -> PersistentVolume {
    let mut volume = volume.clone();
    let spec = volume.spec.get_or_insert_default();
    if annotation(&volume.metadata, BOUND_BY_CONTROLLER).is_some() {
        spec.claim_ref = None;
        if let Some(annotations) = &mut volume.metadata.annotations {
            annotations.remove(BOUND_BY_CONTROLLER);
        }
    } else if let Some(reference) = &mut spec.claim_ref {
        reference.uid = None;
    }
    volume
}

/// The claim with the status of this phase, if it is not that yet.
///
/// # Errors
/// The volume does not say how large it is.
pub(crate) fn claim_with_status(
    claim: &PersistentVolumeClaim,
    phase: &str,
    volume: Option<&PersistentVolume>,
) -> Result<Option<PersistentVolumeClaim>, String> {
    let mut status = claim.status.clone().unwrap_or_default();
    let enters = claim_phase(claim) != phase;
    match volume {
        None => {
            status.access_modes = None;
            status.capacity = None;
            status.current_volume_attributes_class_name = None;
        }
        Some(volume) => {
            let spec = volume.spec.as_ref();
            status.access_modes = spec.and_then(|spec| spec.access_modes.clone());
            if enters {
                let size = capacity(volume).ok_or_else(|| {
                    let name = volume.metadata.name.as_deref().unwrap_or_default();
                    format!("PersistentVolume {name:?} is without a storage capacity")
                })?;
                if storage(status.capacity.as_ref()) != Some(size) {
                    status.capacity = spec.and_then(|spec| spec.capacity.clone());
                }
            }
            if claim_phase(claim) == "Pending" && phase == "Bound" {
                status.current_volume_attributes_class_name =
                    spec.and_then(|spec| spec.volume_attributes_class_name.clone());
            }
        }
    }
    status.phase = Some(phase.to_owned());
    if claim.status.as_ref() == Some(&status) {
        return Ok(None);
    }
    Ok(Some(PersistentVolumeClaim { status: Some(status), ..claim.clone() }))
}

/// The class for claims that leave it open: the newest that says so.
pub(crate) fn default_class(classes: &[Arc<StorageClass>]) -> Option<&Arc<StorageClass>> {
    const MARKS: [&str; 2] =
        ["storageclass.kubernetes.io/is-default-class", "storageclass.beta.kubernetes.io/is-default-class"];
    let is_default =
        |class: &&Arc<StorageClass>| MARKS.iter().any(|mark| annotation(&class.metadata, mark) == Some("true"));
    let age = |class: &&Arc<StorageClass>| {
        let created = class.metadata.creation_timestamp.as_ref().map(|time| time.0);
        (created, std::cmp::Reverse(class.metadata.name.clone()))
    };
    classes.iter().filter(is_default).max_by_key(age)
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::{Value, json};

    fn volume(name: &str, size: &str, modes: &[&str], extra: Value) -> Arc<PersistentVolume> {
        let mut volume = json!({"metadata": {"name": name, "labels": {"name": name}}, "status": {"phase": "Available"},
            "spec": {"capacity": {"storage": size}, "accessModes": modes, "storageClassName": "c"}});
        for (key, value) in extra.as_object().unwrap() {
            volume["spec"][key] = value.clone();
        }
        Arc::new(serde_json::from_value(volume).unwrap())
    }

    fn claim(extra: Value) -> PersistentVolumeClaim {
        let mut claim = json!({"metadata": {"namespace": "ns", "name": "claim", "uid": "u"},
            "spec": {"accessModes": ["ReadWriteOnce"], "storageClassName": "c",
                     "resources": {"requests": {"storage": "5Gi"}}}});
        for (key, value) in extra.as_object().unwrap() {
            claim["spec"][key] = value.clone();
        }
        serde_json::from_value(claim).unwrap()
    }

    #[test]
    fn the_smallest_that_will_do() {
        let (once, many) = (["ReadWriteOnce"], ["ReadWriteOnce", "ReadWriteMany"]);
        let volumes = [
            volume("small", "1Gi", &once, json!({})),
            volume("exact-but-many", "5Gi", &many, json!({})),
            volume("large", "50Gi", &once, json!({})),
            volume("fits", "10Gi", &once, json!({})),
            volume("block", "5Gi", &once, json!({"volumeMode": "Block"})),
            volume("other-class", "5Gi", &once, json!({"storageClassName": "d"})),
            volume("taken", "5Gi", &once, json!({"claimRef": {"namespace": "ns", "name": "other", "uid": "x"}})),
        ];
        let check = |extra: Value, delay: bool, expected: Option<&str>| {
            let found = find_match(&claim(extra.clone()), &volumes, delay).unwrap();
            assert_eq!(found.as_ref().and_then(|volume| volume.metadata.name.as_deref()), expected, "{extra}");
        };
        check(json!({}), false, Some("fits"));
        check(json!({}), true, None);
        check(json!({"accessModes": ["ReadWriteMany"]}), false, Some("exact-but-many"));
        check(json!({"resources": {"requests": {"storage": "20Gi"}}}), false, Some("large"));
        check(json!({"resources": {"requests": {"storage": "99Gi"}}}), false, None);
        check(json!({"selector": {"matchLabels": {"name": "large"}}}), false, Some("large"));
        check(json!({"volumeMode": "Block"}), false, Some("block"));
        check(json!({"storageClassName": "d"}), false, Some("other-class"));
        check(json!({"storageClassName": ""}), false, None);
        // What a user gave to the claim is taken even when binding waits.
        let mut given = volumes.to_vec();
        given.push(volume("given", "50Gi", &once, json!({"claimRef": {"namespace": "ns", "name": "claim"}})));
        let found = find_match(&claim(json!({})), &given, true).unwrap().unwrap();
        assert_eq!(found.metadata.name.as_deref(), Some("given"));
    }

    #[test]
    fn why_a_volume_is_not_for_a_claim() {
        fn check(volume_: Value, claim_: Value, expected: Result<(), &str>) {
            let volume = volume("v", "5Gi", &["ReadWriteOnce"], volume_);
            assert_eq!(check_satisfies(&volume, &claim(claim_)), expected.map_err(str::to_owned));
        }
        check(json!({}), json!({}), Ok(()));
        check(json!({"capacity": {"storage": "4Gi"}}), json!({}), Err("requested PV is too small"));
        check(json!({"storageClassName": "x"}), json!({}), Err("storageClassName does not match"));
        check(json!({}), json!({"volumeMode": "Block"}), Err("incompatible volumeMode"));
        check(json!({}), json!({"accessModes": ["ReadWriteMany"]}), Err("incompatible accessMode"));
        check(json!({}), json!({"volumeAttributesClassName": "x"}), Err("volumeAttributesClassName does not match"));
    }

    #[test]
    fn binding_marks_who_chose() {
        let (free, claim) = (volume("v", "5Gi", &["ReadWriteOnce"], json!({})), claim(json!({})));
        let bound = bound_volume(&free, &claim).unwrap();
        assert_eq!(annotation(&bound.metadata, BOUND_BY_CONTROLLER), Some("yes"));
        assert_eq!(claim_ref(&bound).unwrap().uid.as_deref(), Some("u"));
        assert_eq!(bound_volume(&bound, &claim), None);
        assert_eq!(unbound_volume(&bound).spec, free.spec);

        let given = volume("v", "5Gi", &[], json!({"claimRef": {"namespace": "ns", "name": "claim"}}));
        let bound = bound_volume(&given, &claim).unwrap();
        assert_eq!(annotation(&bound.metadata, BOUND_BY_CONTROLLER), None, "the user chose");
        assert_eq!(claim_ref(&unbound_volume(&bound)).unwrap().uid, None);

        let bound = bound_claim(&claim, &free).unwrap();
        assert_eq!(volume_name(&bound), "v");
        assert_eq!(annotation(&bound.metadata, BIND_COMPLETED), Some("yes"));
        assert_eq!(bound_claim(&bound, &free), None);
    }
}
