//! The pods of a StatefulSet, and their claims.

use capstan_api::{Resource, object::Object};
use k8s_openapi::{
    api::{
        apps::v1::{StatefulSet, StatefulSetPersistentVolumeClaimRetentionPolicy, StatefulSetSpec},
        core::v1::{PersistentVolumeClaim, PersistentVolumeClaimVolumeSource, PodTemplateSpec, Volume},
    },
    apimachinery::pkg::apis::meta::v1::OwnerReference,
};

use crate::{
    controller_ref::reference_to,
    history::REVISION_HASH,
    pod::{Pod, WholePod},
    pods::control::pod_from_template,
};

const POD_NAME_LABEL: &str = "statefulset.kubernetes.io/pod-name";
const POD_INDEX_LABEL: &str = "apps.kubernetes.io/pod-index";

/// The number at the end of a pod's name, if the rest is the set's.
pub(super) fn ordinal(set: &StatefulSet, pod: &impl Object) -> Option<i32> {
    let (parent, number) = pod.identity().name.rsplit_once('-')?;
    let digits = !number.is_empty() && number.bytes().all(|byte| byte.is_ascii_digit());
    (Some(parent) == set.metadata.name.as_deref() && digits).then(|| number.parse().ok())?
}

/// The first number.
pub(super) fn start(spec: &StatefulSetSpec) -> i32 {
    spec.ordinals.as_ref().and_then(|ordinals| ordinals.start).unwrap_or_default()
}

/// Whether a number is one of those that there shall be.
pub(super) fn is_in_range(spec: &StatefulSetSpec, ordinal: i32) -> bool {
    (start(spec)..start(spec) + spec.replicas.unwrap_or(1)).contains(&ordinal)
}

/// The revision that a pod is of.
pub(super) fn revision(pod: &Pod) -> &str {
    pod.metadata.labels().get(REVISION_HASH).map(String::as_str).unwrap_or_default()
}

/// The pod of a number, from a template of a revision.
pub(super) fn new_pod(set: &StatefulSet, template: &PodTemplateSpec, revision: &str, ordinal: i32) -> WholePod {
    let mut pod = pod_from_template(template, set);
    let name = format!("{}-{ordinal}", set.metadata.name.as_deref().unwrap_or_default());
    pod.metadata.name = Some(name.clone());
    set_identity(&mut pod, ordinal);
    pod.metadata.labels.get_or_insert_default().insert(REVISION_HASH.to_owned(), revision.to_owned());
    let service = set.spec.as_ref().and_then(|spec| spec.service_name.clone());
    let spec = pod.spec.get_or_insert_default();
    spec.hostname = Some(name);
    spec.subdomain = service.filter(|service| !service.is_empty());
    set_storage(set, &mut pod, ordinal);
    pod
}

/// Gives a pod the labels of its number.
pub(super) fn set_identity(pod: &mut WholePod, ordinal: i32) {
    let name = pod.metadata.name.clone().unwrap_or_default();
    let labels = pod.metadata.labels.get_or_insert_default();
    labels.insert(POD_NAME_LABEL.to_owned(), name);
    labels.insert(POD_INDEX_LABEL.to_owned(), ordinal.to_string());
}

/// Whether a pod has the labels of its number.
pub(super) fn has_identity(pod: &Pod) -> bool {
    pod.metadata.labels().get(POD_NAME_LABEL).map(String::as_str) == pod.metadata.name.as_deref()
}

/// Whether a pod has the volumes of its number.
pub(super) fn has_storage(set: &StatefulSet, pod: &Pod, ordinal: i32) -> bool {
    let volumes = pod.spec.as_ref().and_then(|spec| spec.volumes.as_deref()).unwrap_or_default();
    claims(set, ordinal).iter().all(|(volume, claim)| {
        volumes.iter().any(|found| {
            let source = found.persistent_volume_claim.as_ref().map(|source| &source.claim_name);
            found.name == *volume && source == claim.metadata.name.as_ref()
        })
    })
}

/// Gives a pod the volumes of its claims, in place of those of the same names.
pub(super) fn set_storage(set: &StatefulSet, pod: &mut WholePod, ordinal: i32) {
    let claims = claims(set, ordinal);
    if claims.is_empty() {
        return;
    }
    let spec = pod.spec.get_or_insert_default();
    let others = spec.volumes.take().unwrap_or_default();
    let others = others.into_iter().filter(|volume| claims.iter().all(|(name, _)| *name != volume.name));
    let ours = claims.iter().map(|(name, claim)| Volume {
        name: name.clone(),
        persistent_volume_claim: Some(PersistentVolumeClaimVolumeSource {
            claim_name: claim.metadata.name.clone().unwrap_or_default(),
            read_only: None,
        }),
        ..Volume::default()
    });
    spec.volumes = Some(ours.chain(others).collect());
}

/// The claims of a number, by the names of their volumes.
pub(super) fn claims(set: &StatefulSet, ordinal: i32) -> Vec<(String, PersistentVolumeClaim)> {
    let Some(spec) = &set.spec else { return Vec::new() };
    let templates = spec.volume_claim_templates.iter().flatten();
    let claim = |template: &PersistentVolumeClaim| {
        let mut claim = template.clone();
        let volume = claim.metadata.name.clone().unwrap_or_default();
        claim.metadata.name = Some(format!("{volume}-{}-{ordinal}", set.metadata.name.as_deref().unwrap_or_default()));
        claim.metadata.namespace.clone_from(&set.metadata.namespace);
        let labels = claim.metadata.labels.get_or_insert_default();
        labels.extend(spec.selector.match_labels.clone().unwrap_or_default());
        claim.status = None;
        (volume, claim)
    };
    templates.map(claim).collect()
}

/// Whether a claim is one of those of a set, of whatever number.
pub(super) fn is_claim_of(set: &StatefulSet, claim: &str) -> bool {
    let templates = set.spec.iter().flat_map(|spec| spec.volume_claim_templates.iter().flatten());
    let name = set.metadata.name.as_deref().unwrap_or_default();
    templates.filter_map(|template| template.metadata.name.as_deref()).any(|volume| {
        let number = claim.strip_prefix(volume).and_then(|rest| rest.strip_prefix('-')?.strip_prefix(name));
        number.and_then(|rest| rest.strip_prefix('-')).is_some_and(|number| number.parse::<u32>().is_ok())
    })
}

fn retention(set: &StatefulSet) -> Option<&StatefulSetPersistentVolumeClaimRetentionPolicy> {
    set.spec.as_ref()?.persistent_volume_claim_retention_policy.as_ref()
}

/// Whether claims go with the set.
fn goes_when_deleted(set: &StatefulSet) -> bool {
    retention(set).and_then(|policy| policy.when_deleted.as_deref()) == Some("Delete")
}

/// Whether claims go with pods that are too many.
pub(super) fn goes_when_scaled(set: &StatefulSet) -> bool {
    retention(set).and_then(|policy| policy.when_scaled.as_deref()) == Some("Delete")
}

/// Whether a reference is to something of this name, be it the same or one from before.
fn is_to(owner: &OwnerReference, us: &OwnerReference) -> bool {
    (&owner.api_version, &owner.kind, &owner.name) == (&us.api_version, &us.kind, &us.name)
}

/// Whether a claim belongs to one of this name who is no more: it is about to go.
pub(super) fn has_stale_owner(claim: &PersistentVolumeClaim, us: &OwnerReference) -> bool {
    let mut owners = claim.metadata.owner_references.iter().flatten();
    owners.find(|owner| is_to(owner, us)).is_some_and(|owner| owner.uid != us.uid)
}

/// Whether somebody else controls a claim that shall go with the set or the pod.
pub(super) fn has_unexpected_controller(claim: &PersistentVolumeClaim, set: &StatefulSet, pod: &impl Resource) -> bool {
    let us = [reference_to(set), reference_to(pod)];
    let is_unexpected = |owner: &OwnerReference| match us.iter().find(|us| is_to(owner, us)) {
        Some(us) => owner.uid != us.uid,
        None => owner.controller == Some(true),
    };
    (goes_when_deleted(set) || goes_when_scaled(set))
        && claim.metadata.owner_references.iter().flatten().any(is_unexpected)
}

/// Whom a claim must belong to so that it goes with the set, with the pod, or with neither; none if it does already.
pub(super) fn new_owners(
    claim: &PersistentVolumeClaim,
    set: &StatefulSet,
    pod: &(impl Resource + Object),
) -> Option<Vec<OwnerReference>> {
    let (when_deleted, when_scaled) = (goes_when_deleted(set), goes_when_scaled(set));
    let owners = claim.metadata.owner_references.clone().unwrap_or_default();
    let us = [reference_to(set), reference_to(pod)];
    if us.iter().any(|us| has_stale_owner(claim, us)) {
        return None;
    }
    let mut wanted: Vec<_> = owners.iter().filter(|owner| !us.iter().any(|us| is_to(owner, us))).cloned().collect();
    let scaled_down =
        ordinal(set, pod).is_some_and(|ordinal| !set.spec.as_ref().is_some_and(|s| is_in_range(s, ordinal)));
    let taken = wanted.iter().any(|owner| owner.controller == Some(true));
    if !taken {
        let [of_set, of_pod] = &us;
        if when_deleted && !(when_scaled && scaled_down) {
            wanted.push(of_set.clone());
        }
        if when_scaled && scaled_down {
            wanted.push(of_pod.clone());
        }
    }
    let known: Vec<_> = owners.iter().map(|owner| (&owner.uid, owner.controller)).collect();
    let same =
        wanted.len() == known.len() && wanted.iter().all(|owner| known.contains(&(&owner.uid, owner.controller)));
    (!same).then_some(wanted)
}
