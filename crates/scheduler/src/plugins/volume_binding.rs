//! Binds the volumes of a pod: only nodes where they are, or can be made.

use std::{
    collections::{BTreeSet, HashMap},
    sync::{Arc, Mutex, PoisonError},
    time::Duration,
};

use capstan_client::{Api, BoxFuture};
use k8s_openapi::{
    api::core::v1::{Node, ObjectReference, PersistentVolume, PersistentVolumeClaim},
    apimachinery::pkg::api::resource::Quantity,
};

use super::volumes::{Claim, annotation, bytes, class_of, find, is_bound, name, reaches, requested, uses, volume_of};
use crate::{
    event::{ActionType as A, ClusterEvent, EventObject, EventResource as R},
    node_info::NodeInfo,
    plugin::{BindContext, Cycle, Filter, Plugin, Point, QueueingHint},
    pod_info::{PodInfo, labels_of},
    selectors::label_selector,
    status::{Code, Status},
    world::World,
};

const SELECTED_NODE: &str = "volume.kubernetes.io/selected-node";
const BOUND_BY_CONTROLLER: &str = "pv.kubernetes.io/bound-by-controller";
/// How long volumes may take to be bound, unless the configuration says otherwise.
pub const DEFAULT_BIND_TIMEOUT: Duration = Duration::from_secs(600);
/// How often it is looked whether they are.
const BIND_POLL: Duration = Duration::from_secs(1);

/// What is to be bound or made for a pod on its node.
#[derive(Clone, Debug, Default)]
struct Bindings {
    /// Volumes that are there, with who gets them.
    existing: Vec<(Arc<PersistentVolume>, Claim)>,
    /// Claims whose volumes are to be made.
    provision: Vec<Claim>,
}

/// Only nodes where the pod's volumes are, or can be made; binds them before the pod is.
#[derive(Debug)]
pub struct VolumeBinding {
    /// How long volumes may take to be bound.
    pub bind_timeout: Duration,
    chosen: Mutex<HashMap<Arc<str>, Bindings>>,
}

impl Default for VolumeBinding {
    fn default() -> Self {
        VolumeBinding::new(DEFAULT_BIND_TIMEOUT)
    }
}

#[derive(Clone, Debug)]
struct BindingFilter {
    bound: Vec<Claim>,
    unbound: Vec<Claim>,
}

impl BindingFilter {
    fn find(&self, cycle: Cycle<'_>, node: &Node, taken: &BTreeSet<String>) -> Result<Bindings, Status> {
        let world = &cycle.cache.world;
        let mut reasons = Vec::new();
        let mut lost = false;
        for claim in &self.bound {
            match world.volumes.get("", volume_of(claim)) {
                None => lost = true,
                Some(volume) if !reaches(volume, node) => {
                    reasons.push("node(s) didn't match PersistentVolume's node affinity".into());
                    break;
                }
                Some(_) => {}
            }
        }
        let mut bindings = Bindings::default();
        let (mut found, mut enough) = (true, true);
        let mut sizes = self.unbound.clone();
        sizes.sort_by_key(|claim| claim.spec.as_ref().map_or(0, requested));
        for claim in &sizes {
            if let Some(selected) = annotation(claim, SELECTED_NODE) {
                if Some(selected) != node.metadata.name.as_deref() {
                    found = false;
                    break;
                }
                bindings.provision.push(Arc::clone(claim));
                continue;
            }
            let free = |volume: &&Arc<PersistentVolume>| {
                let volume_name = volume.metadata.name.as_deref().unwrap_or_default();
                !taken.contains(volume_name)
                    && !bindings.existing.iter().any(|(other, _)| other.metadata.name == volume.metadata.name)
                    && is_match(volume, claim, node)
            };
            let size = |volume: &Arc<PersistentVolume>| {
                let spec = volume.spec.as_ref();
                let prebound = spec.is_some_and(|spec| spec.claim_ref.is_some());
                (!prebound, bytes(spec.and_then(|spec| spec.capacity.as_ref())), volume.metadata.name.clone())
            };
            let smallest = world.volumes.iter().filter(free).min_by_key(|volume| size(volume)).cloned();
            match smallest {
                Some(volume) => bindings.existing.push((volume, Arc::clone(claim))),
                None => bindings.provision.push(Arc::clone(claim)),
            }
        }
        for claim in &bindings.provision {
            match can_provision(world, claim, node) {
                Provision::Yes => {}
                Provision::No => found = false,
                Provision::NoRoom => enough = false,
            }
        }
        if !found {
            reasons.push("node(s) didn't find available persistent volumes to bind".into());
        }
        if !enough {
            reasons.push("node(s) did not have enough free storage".into());
        }
        if lost {
            reasons.push("node(s) unavailable due to one or more pvc(s) bound to non-existent pv(s)".into());
        }
        match reasons.is_empty() {
            true => Ok(bindings),
            false => Err(Status { code: Code::UnschedulableAndUnresolvable, plugin: "", reasons }),
        }
    }
}

fn is_match(volume: &PersistentVolume, claim: &PersistentVolumeClaim, node: &Node) -> bool {
    let (Some(have), Some(want)) = (&volume.spec, &claim.spec) else { return false };
    let mine = have.claim_ref.as_ref().map(|reference| {
        reference.name == claim.metadata.name
            && reference.namespace == claim.metadata.namespace
            && (reference.uid.as_deref().unwrap_or_default().is_empty() || reference.uid == claim.metadata.uid)
    });
    let mode = |mode: &Option<String>| mode.clone().unwrap_or_else(|| "Filesystem".to_owned());
    if mine == Some(false)
        || volume.metadata.deletion_timestamp.is_some()
        || bytes(have.capacity.as_ref()) < requested(want)
        || mode(&have.volume_mode) != mode(&want.volume_mode)
        || !reaches(volume, node)
    {
        return false;
    }
    if mine == Some(true) {
        return true;
    }
    let modes = have.access_modes.as_deref().unwrap_or_default();
    let selector = want.selector.as_ref().map(|selector| label_selector(Some(selector)));
    let selected = selector.is_none_or(|selector| {
        selector.is_ok_and(|selector| selector.matches(labels_of(volume.metadata.labels.as_ref())))
    });
    volume.status.as_ref().and_then(|status| status.phase.as_deref()) == Some("Available")
        && have.storage_class_name.as_deref().unwrap_or_default() == class_of(claim)
        && want.access_modes.iter().flatten().all(|mode| modes.contains(mode))
        && selected
}

enum Provision {
    Yes,
    No,
    NoRoom,
}

fn can_provision(world: &World, claim: &PersistentVolumeClaim, node: &Node) -> Provision {
    let Some(class) = world.classes.get("", class_of(claim)) else { return Provision::No };
    if class.provisioner.is_empty() || class.provisioner == "kubernetes.io/no-provisioner" {
        return Provision::No;
    }
    let labels = labels_of(node.metadata.labels.as_ref());
    let topologies = class.allowed_topologies.as_deref().unwrap_or_default();
    let allowed = topologies.iter().any(|term| {
        term.match_label_expressions
            .iter()
            .flatten()
            .all(|expression| labels.get(&expression.key).is_some_and(|value| expression.values.contains(value)))
    });
    if !topologies.is_empty() && !allowed {
        return Provision::No;
    }
    let size = claim.spec.as_ref().map_or(0, requested);
    let driver = world.csi_drivers.get("", &class.provisioner);
    if size == 0 || driver.is_none_or(|driver| driver.spec.storage_capacity != Some(true)) {
        return Provision::Yes;
    }
    let room = world.capacities.iter().any(|capacity| {
        let parse = |quantity: &Option<Quantity>| {
            quantity.as_ref().and_then(|q| q.0.parse::<capstan_api::Quantity>().ok()).map(|q| q.value())
        };
        let limit = parse(&capacity.maximum_volume_size).or_else(|| parse(&capacity.capacity));
        let here = capacity
            .node_topology
            .as_ref()
            .is_some_and(|topology| label_selector(Some(topology)).is_ok_and(|selector| selector.matches(labels)));
        Some(capacity.storage_class_name.as_str()) == class.metadata.name.as_deref()
            && limit.is_some_and(|limit| limit >= size)
            && here
    });
    if room { Provision::Yes } else { Provision::NoRoom }
}

impl Filter for BindingFilter {
    fn filter(&self, cycle: Cycle<'_>, node: &NodeInfo) -> Result<(), Status> {
        self.find(cycle, &node.node, &BTreeSet::new()).map(drop)
    }
}

impl VolumeBinding {
    /// With another patience.
    #[must_use]
    pub fn new(bind_timeout: Duration) -> Self {
        VolumeBinding { bind_timeout, chosen: Mutex::default() }
    }

    fn claims(cycle: Cycle<'_>) -> Result<Option<BindingFilter>, Status> {
        let world = &cycle.cache.world;
        let (mut filter, mut immediate) = (BindingFilter { bound: Vec::new(), unbound: Vec::new() }, false);
        let mut any = false;
        for (claim, ephemeral) in cycle.pod.claims() {
            any = true;
            let found = find(world, cycle.pod, &claim).map_err(|status| match ephemeral {
                true => Status::unresolvable(format!(
                    "waiting for ephemeral volume controller to create the persistentvolumeclaim \"{claim}\""
                )),
                false => status,
            })?;
            let phase = found.status.as_ref().and_then(|status| status.phase.as_deref());
            if phase == Some("Lost") {
                let volume = volume_of(&found);
                return Err(Status::unresolvable(format!(
                    "persistentvolumeclaim \"{claim}\" bound to non-existent persistentvolume \"{volume}\""
                )));
            }
            if found.metadata.deletion_timestamp.is_some() {
                return Err(Status::unresolvable(format!("persistentvolumeclaim \"{claim}\" is being deleted")));
            }
            let owners = found.metadata.owner_references.iter().flatten();
            if ephemeral && !owners.into_iter().any(|owner| *owner.uid == *cycle.pod.uid) {
                let (namespace, pod) = (cycle.pod.namespace(), cycle.pod.name());
                return Err(Status::unresolvable(format!(
                    "PVC {namespace}/{claim} was not created for pod {namespace}/{pod} (pod is not owner)"
                )));
            }
            if is_bound(&found) {
                filter.bound.push(found);
                continue;
            }
            let class = class_of(&found);
            // A class that is not there does not say that its volumes can wait.
            let mode = world.classes.get("", class).and_then(|class| class.volume_binding_mode.as_deref());
            if mode == Some("WaitForFirstConsumer") && volume_of(&found).is_empty() {
                filter.unbound.push(found);
            } else {
                immediate = true;
            }
        }
        if immediate {
            return Err(Status::unresolvable("pod has unbound immediate PersistentVolumeClaims"));
        }
        Ok(any.then_some(filter))
    }

    fn lock(&self) -> std::sync::MutexGuard<'_, HashMap<Arc<str>, Bindings>> {
        self.chosen.lock().unwrap_or_else(PoisonError::into_inner)
    }

    async fn write(&self, context: &BindContext, bindings: &Bindings, node: &str) -> Result<(), String> {
        for (volume, claim) in &bindings.existing {
            let mut volume = (**volume).clone();
            let spec = volume.spec.get_or_insert_default();
            if spec.claim_ref.is_none() {
                let annotations = volume.metadata.annotations.get_or_insert_default();
                annotations.insert(BOUND_BY_CONTROLLER.to_owned(), "yes".to_owned());
            }
            spec.claim_ref = Some(ObjectReference {
                api_version: Some("v1".to_owned()),
                kind: Some("PersistentVolumeClaim".to_owned()),
                name: claim.metadata.name.clone(),
                namespace: claim.metadata.namespace.clone(),
                uid: claim.metadata.uid.clone(),
                resource_version: claim.metadata.resource_version.clone(),
                field_path: None,
            });
            Api::<PersistentVolume>::all(&context.client).update(&volume).await.map_err(|error| error.to_string())?;
        }
        for claim in &bindings.provision {
            let mut claim = (**claim).clone();
            let annotations = claim.metadata.annotations.get_or_insert_default();
            annotations.insert(SELECTED_NODE.to_owned(), node.to_owned());
            let api = claims_of(context, &claim);
            api.update(&claim).await.map_err(|error| error.to_string())?;
        }
        let until = context.clock.monotonic().plus(self.bind_timeout);
        for claim in bindings.existing.iter().map(|(_, claim)| claim).chain(&bindings.provision) {
            loop {
                let now = claims_of(context, claim).get(name(claim)).await.map_err(|error| error.to_string())?;
                if is_bound(&now) {
                    break;
                }
                let provisioned = bindings.provision.iter().any(|other| other.metadata.name == claim.metadata.name);
                if provisioned && annotation(&now, SELECTED_NODE) != Some(node) {
                    return Err(format!("binding volumes: provisioning failed for PVC \"{}\"", name(claim)));
                }
                if context.clock.monotonic() >= until {
                    return Err("binding volumes: context deadline exceeded".to_owned());
                }
                context.clock.sleep(BIND_POLL).await;
            }
        }
        Ok(())
    }
}

fn claims_of(context: &BindContext, claim: &PersistentVolumeClaim) -> Api<PersistentVolumeClaim> {
    Api::namespaced(&context.client, claim.metadata.namespace.as_deref().unwrap_or_default())
}

impl Plugin for VolumeBinding {
    fn name(&self) -> &'static str {
        "VolumeBinding"
    }

    fn points(&self) -> &'static [Point] {
        &[Point::PreFilter, Point::Filter, Point::Reserve, Point::PreBind]
    }

    fn by_class(&self) -> bool {
        true
    }

    fn events(&self) -> &'static [ClusterEvent] {
        const {
            &[
                ClusterEvent::new(R::StorageClass, A::ADD.or(A::UPDATE)),
                ClusterEvent::new(R::PersistentVolumeClaim, A::ADD.or(A::UPDATE)),
                ClusterEvent::new(R::PersistentVolume, A::ADD.or(A::UPDATE)),
                ClusterEvent::new(R::Node, A::ADD.or(A::UPDATE_NODE_LABEL)),
                ClusterEvent::new(R::CSINode, A::ADD.or(A::UPDATE)),
                ClusterEvent::new(R::CSIDriver, A::UPDATE),
                ClusterEvent::new(R::CSIStorageCapacity, A::ADD.or(A::UPDATE)),
            ]
        }
    }

    fn hint(&self, pod: &PodInfo, _event: ClusterEvent, object: &EventObject) -> QueueingHint {
        let queue = match object {
            EventObject::Claim(_, Some(claim)) => uses(pod, claim),
            EventObject::StorageClass(Some(old), Some(new)) => old.allowed_topologies != new.allowed_topologies,
            _ => true,
        };
        if queue { QueueingHint::Queue } else { QueueingHint::Skip }
    }

    fn pre_filter(&self, cycle: Cycle<'_>) -> Result<Option<Box<dyn Filter>>, Status> {
        Ok(VolumeBinding::claims(cycle)?.map(|filter| Box::new(filter) as Box<dyn Filter>))
    }

    fn reserve(&self, cycle: Cycle<'_>, node: &NodeInfo) -> Result<(), Status> {
        let Some(filter) = VolumeBinding::claims(cycle)? else { return Ok(()) };
        let mut chosen = self.lock();
        // Volumes that others were just given are not to be had, though the server does not say so yet.
        let others = chosen.values().flat_map(|bindings| &bindings.existing);
        let taken = others.filter_map(|(volume, _)| volume.metadata.name.clone()).collect();
        let bindings = filter.find(cycle, &node.node, &taken)?;
        if !bindings.existing.is_empty() || !bindings.provision.is_empty() {
            chosen.insert(Arc::clone(&cycle.pod.uid), bindings);
        }
        Ok(())
    }

    fn unreserve(&self, pod: &PodInfo, _node: &str) {
        self.lock().remove(&pod.uid);
    }

    fn pre_bind<'a>(
        &'a self,
        context: &'a BindContext,
        pod: &'a Arc<PodInfo>,
        node: &'a str,
    ) -> BoxFuture<'a, Result<(), Status>> {
        let bindings = self.lock().get(&pod.uid).cloned();
        Box::pin(async move {
            let Some(bindings) = bindings else { return Ok(()) };
            let written = self.write(context, &bindings, node).await.map_err(Status::error);
            self.lock().remove(&pod.uid);
            written
        })
    }
}
