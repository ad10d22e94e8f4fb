//! How many volumes a node takes, where they are, and who may share them.

use std::{
    collections::{BTreeMap, BTreeSet, HashMap},
    sync::Arc,
};

use k8s_openapi::{
    api::core::v1::{Node, PersistentVolume, PersistentVolumeClaim, PersistentVolumeClaimSpec},
    apimachinery::pkg::api::resource::Quantity,
};

use crate::{
    event::{ActionType as A, ClusterEvent, EventObject, EventResource as R},
    node_info::NodeInfo,
    plugin::{Cycle, Filter, Plugin, Point, QueueingHint},
    pod_info::{PodInfo, labels_of},
    selectors::NodeTerms,
    status::Status,
    world::World,
};

const BIND_COMPLETED: &str = "pv.kubernetes.io/bind-completed";
const BETA_CLASS: &str = "volume.beta.kubernetes.io/storage-class";

pub(super) type Claim = Arc<PersistentVolumeClaim>;

pub(super) fn name(claim: &PersistentVolumeClaim) -> &str {
    claim.metadata.name.as_deref().unwrap_or_default()
}

pub(super) fn class_of(claim: &PersistentVolumeClaim) -> &str {
    let old = claim.metadata.annotations.as_ref().and_then(|annotations| annotations.get(BETA_CLASS));
    let class = claim.spec.as_ref().and_then(|spec| spec.storage_class_name.as_deref());
    old.map(String::as_str).or(class).unwrap_or_default()
}

pub(super) fn volume_of(claim: &PersistentVolumeClaim) -> &str {
    claim.spec.as_ref().and_then(|spec| spec.volume_name.as_deref()).unwrap_or_default()
}

pub(super) fn annotation<'a>(claim: &'a PersistentVolumeClaim, key: &str) -> Option<&'a str> {
    claim.metadata.annotations.as_ref()?.get(key).map(String::as_str)
}

pub(super) fn is_bound(claim: &PersistentVolumeClaim) -> bool {
    !volume_of(claim).is_empty() && annotation(claim, BIND_COMPLETED).is_some()
}

pub(super) fn find(world: &World, pod: &PodInfo, claim: &str) -> Result<Claim, Status> {
    let found = world.claims.get(pod.namespace(), claim).cloned();
    found.ok_or_else(|| Status::unresolvable(format!("persistentvolumeclaim \"{claim}\" not found")))
}

/// Whether a volume can be used on a node.
pub(super) fn reaches(volume: &PersistentVolume, node: &Node) -> bool {
    let required = volume.spec.as_ref().and_then(|spec| spec.node_affinity.as_ref()?.required.as_ref());
    required.is_none_or(|required| NodeTerms::new(required).matches_node(node))
}

pub(super) fn bytes(list: Option<&BTreeMap<String, Quantity>>) -> i64 {
    let storage = list.and_then(|list| list.get("storage"));
    storage.and_then(|quantity| quantity.0.parse::<capstan_api::Quantity>().ok()).map_or(0, |q| q.value())
}

pub(super) fn requested(spec: &PersistentVolumeClaimSpec) -> i64 {
    bytes(spec.resources.as_ref().and_then(|resources| resources.requests.as_ref()))
}

/// Whether two pods want the same disk, and cannot both have it.
fn disks_conflict(one: &PodInfo, other: &PodInfo) -> bool {
    let volumes = |pod: &PodInfo| pod.pod.spec.clone().and_then(|spec| spec.volumes).unwrap_or_default();
    let read_only = |one: Option<bool>, other: Option<bool>| one == Some(true) && other == Some(true);
    volumes(one).iter().any(|a| {
        volumes(other).iter().any(|b| {
            let gce = a.gce_persistent_disk.as_ref().zip(b.gce_persistent_disk.as_ref());
            let aws = a.aws_elastic_block_store.as_ref().zip(b.aws_elastic_block_store.as_ref());
            let iscsi = a.iscsi.as_ref().zip(b.iscsi.as_ref());
            let rbd = a.rbd.as_ref().zip(b.rbd.as_ref());
            gce.is_some_and(|(a, b)| a.pd_name == b.pd_name && !read_only(a.read_only, b.read_only))
                || aws.is_some_and(|(a, b)| a.volume_id == b.volume_id)
                || iscsi.is_some_and(|(a, b)| a.iqn == b.iqn && !read_only(a.read_only, b.read_only))
                || rbd.is_some_and(|(a, b)| {
                    a.monitors.iter().any(|monitor| b.monitors.contains(monitor))
                        && a.pool.as_deref().unwrap_or("rbd") == b.pool.as_deref().unwrap_or("rbd")
                        && a.image == b.image
                        && !read_only(a.read_only, b.read_only)
                })
        })
    })
}

fn has_disks(pod: &PodInfo) -> bool {
    pod.pod.spec.iter().flat_map(|spec| spec.volumes.iter().flatten()).any(|volume| {
        volume.gce_persistent_disk.is_some()
            || volume.aws_elastic_block_store.is_some()
            || volume.iscsi.is_some()
            || volume.rbd.is_some()
    })
}

/// No two pods with a disk that only one can have.
#[derive(Debug)]
pub struct VolumeRestrictions;

#[derive(Debug)]
struct RestrictionFilter {
    disks: bool,
    once: BTreeSet<String>,
    in_use: i64,
}

impl Filter for RestrictionFilter {
    fn filter(&self, cycle: Cycle<'_>, node: &NodeInfo) -> Result<(), Status> {
        if self.disks && node.pods.iter().any(|other| disks_conflict(cycle.pod, other)) {
            return Err(Status::unschedulable("node(s) had no available disk"));
        }
        match self.in_use > 0 {
            true => Err(Status::unschedulable(
                "node(s) unavailable due to PersistentVolumeClaim with ReadWriteOncePod access mode already in-use by \
                 another pod",
            )),
            false => Ok(()),
        }
    }

    fn update(&mut self, cycle: Cycle<'_>, other: &PodInfo, _node: &NodeInfo, delta: i64) {
        if other.namespace() == cycle.pod.namespace() {
            self.in_use += delta * other.claims().filter(|(claim, _)| self.once.contains(claim)).count() as i64;
        }
    }
}

impl Plugin for VolumeRestrictions {
    fn name(&self) -> &'static str {
        "VolumeRestrictions"
    }

    fn points(&self) -> &'static [Point] {
        &[Point::PreFilter, Point::Filter]
    }

    fn by_class(&self) -> bool {
        true
    }

    fn events(&self) -> &'static [ClusterEvent] {
        const {
            &[
                ClusterEvent::new(R::Pod, A::DELETE),
                ClusterEvent::new(R::Node, A::ADD),
                ClusterEvent::new(R::PersistentVolumeClaim, A::ADD),
            ]
        }
    }

    fn hint(&self, pod: &PodInfo, _event: ClusterEvent, object: &EventObject) -> QueueingHint {
        let queue = match object {
            EventObject::Pod(Some(old), _) => {
                old.namespace() == pod.namespace()
                    && (disks_conflict(pod, old) || pod.claims().any(|claim| old.claims().any(|other| claim == other)))
            }
            EventObject::Claim(_, Some(claim)) => uses(pod, claim),
            _ => true,
        };
        if queue { QueueingHint::Queue } else { QueueingHint::Skip }
    }

    fn pre_filter(&self, cycle: Cycle<'_>) -> Result<Option<Box<dyn Filter>>, Status> {
        let mut once = BTreeSet::new();
        for (claim, _) in cycle.pod.claims().filter(|(_, ephemeral)| !ephemeral) {
            let found = find(&cycle.cache.world, cycle.pod, &claim)?;
            let modes = found.spec.as_ref().and_then(|spec| spec.access_modes.as_deref()).unwrap_or_default();
            if modes.iter().any(|mode| mode == "ReadWriteOncePod") {
                once.insert(claim);
            }
        }
        let used = |claim: &&String| cycle.cache.claim_users(cycle.pod.namespace(), claim) > 0;
        let in_use = once.iter().filter(used).count() as i64;
        let disks = has_disks(cycle.pod);
        if !disks && in_use == 0 {
            return Ok(None);
        }
        Ok(Some(Box::new(RestrictionFilter { disks, once, in_use })))
    }
}

/// Whether a claim is one of a pod's.
pub(super) fn uses(pod: &PodInfo, claim: &PersistentVolumeClaim) -> bool {
    claim.metadata.namespace.as_deref() == Some(pod.namespace()) && pod.claims().any(|(other, _)| other == name(claim))
}

/// No more volumes than a node can have attached.
#[derive(Debug)]
pub struct NodeVolumeLimits;

#[derive(Debug)]
struct LimitFilter;

/// The volumes of a pod that are attached, by what they are and with their driver.
fn attachable(world: &World, pod: &PodInfo, new: bool, out: &mut HashMap<String, String>) -> Result<(), Status> {
    for (claim, _) in pod.claims() {
        let Some(found) = world.claims.get(pod.namespace(), &claim) else {
            if new {
                let namespace = pod.namespace();
                return Err(Status::unresolvable(format!(
                    "looking up PVC {namespace}/{claim}: persistentvolumeclaim \"{claim}\" not found"
                )));
            }
            continue;
        };
        let volume = world.volumes.get("", volume_of(found));
        if let Some(csi) = volume.and_then(|volume| volume.spec.as_ref()?.csi.as_ref()) {
            out.insert(format!("{}/{}", csi.driver, csi.volume_handle), csi.driver.clone());
        } else if volume.is_none()
            && let Some(class) = world.classes.get("", class_of(found))
        {
            // It is not made yet; it will count as one of its own.
            let key = format!("{}//{}/{claim}", class.provisioner, pod.namespace());
            out.insert(key, class.provisioner.clone());
        }
    }
    Ok(())
}

impl Filter for LimitFilter {
    fn filter(&self, cycle: Cycle<'_>, node: &NodeInfo) -> Result<(), Status> {
        let world = &cycle.cache.world;
        let mut wanted = HashMap::new();
        attachable(world, cycle.pod, true, &mut wanted)?;
        let Some(csi_node) = world.csi_nodes.get("", node.name()) else { return Ok(()) };
        let mut there = HashMap::new();
        for pod in &node.pods {
            attachable(world, pod, false, &mut there)?;
        }
        for attachment in world.attachments.iter().filter(|attachment| attachment.spec.node_name == node.name()) {
            let volume = attachment.spec.source.persistent_volume_name.as_deref().unwrap_or_default();
            let spec = world.volumes.get("", volume).and_then(|volume| volume.spec.as_ref()?.csi.as_ref());
            if let Some(csi) = spec {
                there.insert(format!("{}/{}", csi.driver, csi.volume_handle), csi.driver.clone());
            }
        }
        for driver in &csi_node.spec.drivers {
            let Some(limit) = driver.allocatable.as_ref().and_then(|allocatable| allocatable.count) else { continue };
            let new = wanted.iter().filter(|(key, of)| **of == driver.name && !there.contains_key(*key)).count();
            let old = there.values().filter(|of| **of == driver.name).count();
            if new > 0 && old + new > usize::try_from(limit).unwrap_or(0) {
                return Err(Status::unschedulable("node(s) exceed max volume count"));
            }
        }
        Ok(())
    }
}

impl Plugin for NodeVolumeLimits {
    fn name(&self) -> &'static str {
        "NodeVolumeLimits"
    }

    fn points(&self) -> &'static [Point] {
        &[Point::PreFilter, Point::Filter]
    }

    fn by_class(&self) -> bool {
        true
    }

    fn events(&self) -> &'static [ClusterEvent] {
        const {
            &[
                ClusterEvent::new(R::CSINode, A::ADD.or(A::UPDATE)),
                ClusterEvent::new(R::Pod, A::DELETE),
                ClusterEvent::new(R::PersistentVolumeClaim, A::ADD),
                ClusterEvent::new(R::VolumeAttachment, A::DELETE),
            ]
        }
    }

    fn hint(&self, pod: &PodInfo, _event: ClusterEvent, object: &EventObject) -> QueueingHint {
        let queue = match object {
            EventObject::Pod(Some(old), _) => {
                (!old.node_name().is_empty() || !old.nominated_node_name().is_empty()) && old.claims().next().is_some()
            }
            EventObject::Claim(_, Some(claim)) => uses(pod, claim),
            _ => true,
        };
        if queue { QueueingHint::Queue } else { QueueingHint::Skip }
    }

    fn pre_filter(&self, cycle: Cycle<'_>) -> Result<Option<Box<dyn Filter>>, Status> {
        Ok(cycle.pod.claims().next().is_some().then(|| Box::new(LimitFilter) as Box<dyn Filter>))
    }
}

/// Only nodes in the zones of the pod's volumes.
#[derive(Debug)]
pub struct VolumeZone;

const ZONE_LABELS: [&str; 4] = [
    "failure-domain.beta.kubernetes.io/zone",
    "failure-domain.beta.kubernetes.io/region",
    "topology.kubernetes.io/zone",
    "topology.kubernetes.io/region",
];

#[derive(Debug)]
struct ZoneFilter(Vec<(&'static str, BTreeSet<String>)>);

impl Filter for ZoneFilter {
    fn filter(&self, _cycle: Cycle<'_>, node: &NodeInfo) -> Result<(), Status> {
        let labels = node.labels();
        if !ZONE_LABELS.iter().any(|label| labels.contains_key(*label)) {
            return Ok(());
        }
        for (key, values) in &self.0 {
            let new = key.replace("failure-domain.beta.kubernetes.io/", "topology.kubernetes.io/");
            let value = labels.get(*key).or_else(|| labels.get(&new));
            if value.is_none_or(|value| !values.contains(value)) {
                return Err(Status::unresolvable("node(s) had no available volume zone"));
            }
        }
        Ok(())
    }
}

impl Plugin for VolumeZone {
    fn name(&self) -> &'static str {
        "VolumeZone"
    }

    fn points(&self) -> &'static [Point] {
        &[Point::PreFilter, Point::Filter]
    }

    fn by_class(&self) -> bool {
        true
    }

    fn events(&self) -> &'static [ClusterEvent] {
        const {
            &[
                ClusterEvent::new(R::StorageClass, A::ADD),
                ClusterEvent::new(R::Node, A::ADD.or(A::UPDATE_NODE_LABEL)),
                ClusterEvent::new(R::PersistentVolumeClaim, A::ADD.or(A::UPDATE)),
                ClusterEvent::new(R::PersistentVolume, A::ADD.or(A::UPDATE)),
            ]
        }
    }

    fn hint(&self, pod: &PodInfo, _event: ClusterEvent, object: &EventObject) -> QueueingHint {
        match object {
            EventObject::Claim(_, Some(claim)) if !uses(pod, claim) => QueueingHint::Skip,
            _ => QueueingHint::Queue,
        }
    }

    fn pre_filter(&self, cycle: Cycle<'_>) -> Result<Option<Box<dyn Filter>>, Status> {
        let world = &cycle.cache.world;
        let mut zones = Vec::new();
        for (claim, _) in cycle.pod.claims().filter(|(_, ephemeral)| !ephemeral) {
            let claim = find(world, cycle.pod, &claim)?;
            if volume_of(&claim).is_empty() {
                let class = class_of(&claim);
                if class.is_empty() {
                    let message = "PersistentVolumeClaim had no pv name and storageClass name";
                    return Err(Status::unresolvable(message));
                }
                let Some(found) = world.classes.get("", class) else {
                    let message = format!("storageclass.storage.k8s.io \"{class}\" not found");
                    return Err(Status::unresolvable(message));
                };
                match found.volume_binding_mode.as_deref() {
                    Some("WaitForFirstConsumer") => continue,
                    Some(_) => return Err(Status::unresolvable("PersistentVolume had no name")),
                    None => {
                        let message = format!("VolumeBindingMode not set for StorageClass \"{class}\"");
                        return Err(Status::unresolvable(message));
                    }
                }
            }
            let Some(volume) = world.volumes.get("", volume_of(&claim)) else {
                let message = format!("persistentvolume \"{}\" not found", volume_of(&claim));
                return Err(Status::unresolvable(message));
            };
            let labels = labels_of(volume.metadata.labels.as_ref());
            for key in ZONE_LABELS {
                if let Some(value) = labels.get(key) {
                    zones.push((key, value.split("__").map(str::to_owned).collect()));
                }
            }
        }
        Ok((!zones.is_empty()).then(|| Box::new(ZoneFilter(zones)) as Box<dyn Filter>))
    }
}
