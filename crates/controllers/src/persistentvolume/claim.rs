//! What a claim needs.

use std::sync::Arc;

use capstan_api::selector::Selector;
use capstan_client::{Api, Key};
use capstan_runtime::{Action, ReconcileError};
use k8s_openapi::api::{
    core::v1::{PersistentVolume, PersistentVolumeClaim},
    storage::v1::StorageClass,
};

use super::{
    Binder,
    binding::{
        BIND_COMPLETED, BOUND_BY_CONTROLLER, SELECTED_NODE, STORAGE_PROVISIONER, annotate, annotation, check_satisfies,
        claim_class, claim_phase, claim_ref, default_class, find_match, is_bound_to, volume_name,
    },
    local_path::{self, LOCAL_PATH_PROVISIONER},
};
use crate::pod_claims;

impl Binder {
    pub(super) async fn sync_claim(&self, claim: Arc<PersistentVolumeClaim>) -> Result<Action, ReconcileError> {
        if annotation(&claim.metadata, BIND_COMPLETED).is_some() {
            self.sync_bound(claim).await
        } else if volume_name(&claim).is_empty() {
            self.find_volume(claim).await
        } else {
            self.take_volume(claim).await
        }
    }

    /// The claim was bound once: its volume is there, or the data are lost.
    async fn sync_bound(&self, claim: Arc<PersistentVolumeClaim>) -> Result<Action, ReconcileError> {
        if volume_name(&claim).is_empty() {
            let message = "Bound claim has lost reference to PersistentVolume. Data on the volume is lost!";
            return self.lose(claim, "ClaimLost", message).await;
        }
        match self.volumes.get(&Key::new("", volume_name(&claim))) {
            None => {
                let message = "Bound claim has lost its PersistentVolume. Data on the volume is lost!";
                self.lose(claim, "ClaimLost", message).await
            }
            Some(volume) => {
                let uid = claim_ref(&volume).map(|reference| reference.uid.clone().unwrap_or_default());
                if uid.is_none_or(|uid| Some(uid) == claim.metadata.uid) {
                    return self.bind(volume, claim).await;
                }
                let message = "Two claims are bound to the same volume, this one is bound incorrectly";
                self.lose(claim, "ClaimMisbound", message).await
            }
        }
    }

    async fn lose(
        &self,
        claim: Arc<PersistentVolumeClaim>,
        reason: &str,
        message: &str,
    ) -> Result<Action, ReconcileError> {
        if claim_phase(&claim) != "Lost" {
            let claim = self.set_claim_status(claim, "Lost", None).await?;
            self.recorder.warning(&*claim, reason, message);
        }
        Ok(Action::Done)
    }

    /// The user wants this volume and no other.
    async fn take_volume(&self, claim: Arc<PersistentVolumeClaim>) -> Result<Action, ReconcileError> {
        let Some(volume) = self.volumes.get(&Key::new("", volume_name(&claim))) else {
            self.set_claim_status(claim, "Pending", None).await?;
            return Ok(Action::Done);
        };
        let name = volume.metadata.name.as_deref().unwrap_or_default();
        if claim_ref(&volume).is_none() {
            if let Err(why) = check_satisfies(&volume, &claim) {
                let message = format!("Cannot bind to requested volume {name:?}: {why}");
                self.recorder.warning(&*claim, "VolumeMismatch", message);
                self.set_claim_status(claim, "Pending", None).await?;
                return Ok(Action::Done);
            }
            return self.bind(volume, claim).await;
        }
        if is_bound_to(&volume, &claim) {
            return self.bind(volume, claim).await;
        }
        let message = format!("volume {name:?} already bound to a different claim.");
        self.recorder.warning(&*claim, "FailedBinding", message);
        if annotation(&claim.metadata, BOUND_BY_CONTROLLER).is_none() {
            self.set_claim_status(claim, "Pending", None).await?;
            return Ok(Action::Done);
        }
        let owner = claim_ref(&volume).cloned().unwrap_or_default();
        let owner = Key::new(&owner.namespace.unwrap_or_default(), &owner.name.unwrap_or_default());
        Err(ReconcileError::Retry(format!(
            "invalid binding of claim {:?} to volume {name:?}: volume already claimed by {:?}",
            Key::of(&*claim).as_str(),
            owner.as_str()
        )))
    }

    /// Any volume that fits will do; if there is none, one is made.
    async fn find_volume(&self, claim: Arc<PersistentVolumeClaim>) -> Result<Action, ReconcileError> {
        let class = claim_class(&claim).and_then(|name| self.classes.lister().get(&Key::new("", name)));
        let mode = class.as_ref().and_then(|class| class.volume_binding_mode.as_deref());
        let delay_binding = mode == Some("WaitForFirstConsumer");
        let key = Key::of(&*claim);
        let found = find_match(&claim, &self.volumes.list(), delay_binding)
            .map_err(|why| ReconcileError::Retry(format!("error finding PV for claim {:?}: {why}", key.as_str())))?;
        if let Some(volume) = found {
            return self.bind(volume, claim).await;
        }
        if claim_class(&claim).is_none()
            && let Some(class) = default_class(&self.classes.lister().list(&Selector::default()))
        {
            let mut claim = PersistentVolumeClaim::clone(&claim);
            claim.spec.get_or_insert_default().storage_class_name.clone_from(&class.metadata.name);
            let claim = self.claims.note(self.claims_of(&claim).update(&claim).await?);
            self.queue.add(Key::of(&*claim));
            return Ok(Action::Done);
        }
        if delay_binding && annotation(&claim.metadata, SELECTED_NODE).is_none() {
            self.say_who_is_waited_for(&claim);
        } else if claim_class(&claim).is_some_and(|class| !class.is_empty()) {
            return self.provision(claim, class).await;
        } else {
            let message = "no persistent volumes available for this claim and no storage class is set";
            self.recorder.normal(&*claim, "FailedBinding", message);
        }
        self.set_claim_status(claim, "Pending", None).await?;
        Ok(Action::Done)
    }

    fn say_who_is_waited_for(&self, claim: &PersistentVolumeClaim) {
        let pods = pod_claims::pods_of(&self.pods, &Key::of(claim));
        let unscheduled = pods.iter().filter(|pod| {
            let node = pod.spec.as_ref().and_then(|spec| spec.node_name.as_deref()).unwrap_or_default();
            node.is_empty() && !pod_claims::is_terminated(pod)
        });
        let names: Vec<_> = unscheduled.filter_map(|pod| pod.metadata.name.as_deref()).collect();
        let (reason, message) = match names.as_slice() {
            [] => ("WaitForFirstConsumer", "waiting for first consumer to be created before binding".to_owned()),
            [name] => ("WaitForPodScheduled", format!("waiting for pod {name} to be scheduled")),
            names => ("WaitForPodScheduled", format!("waiting for pods {} to be scheduled", names.join(","))),
        };
        self.recorder.normal(claim, reason, message);
    }

    async fn provision(
        &self,
        claim: Arc<PersistentVolumeClaim>,
        class: Option<Arc<StorageClass>>,
    ) -> Result<Action, ReconcileError> {
        let Some(class) = class else {
            let name = claim_class(&claim).unwrap_or_default();
            let message = format!("storageclass.storage.k8s.io {name:?} not found");
            self.recorder.warning(&*claim, "ProvisioningFailed", message);
            return Ok(Action::Done);
        };
        let provisioner = class.provisioner.as_str();
        if provisioner != LOCAL_PATH_PROVISIONER && provisioner.starts_with("kubernetes.io/") {
            let message = "no volume plugin matched name: ".to_owned() + provisioner;
            self.recorder.warning(&*claim, "ProvisioningFailed", message);
            return Ok(Action::Done);
        }
        let claim = self.set_provisioner(claim, provisioner).await?;
        if provisioner == LOCAL_PATH_PROVISIONER {
            return self.provision_local(claim, &class).await;
        }
        let message = format!(
            "Waiting for a volume to be created either by the external provisioner '{provisioner}' or manually by the \
             system administrator. If volume creation is delayed, please verify that the provisioner is running and \
             correctly registered."
        );
        self.recorder.normal(&*claim, "ExternalProvisioning", message);
        Ok(Action::Done)
    }

    async fn set_provisioner(
        &self,
        claim: Arc<PersistentVolumeClaim>,
        provisioner: &str,
    ) -> Result<Arc<PersistentVolumeClaim>, ReconcileError> {
        if annotation(&claim.metadata, STORAGE_PROVISIONER[1]) == Some(provisioner) {
            return Ok(claim);
        }
        let mut claim = PersistentVolumeClaim::clone(&claim);
        STORAGE_PROVISIONER.iter().for_each(|name| annotate(&mut claim.metadata, name, provisioner));
        Ok(self.claims.note(self.claims_of(&claim).update(&claim).await?))
    }

    async fn provision_local(
        &self,
        claim: Arc<PersistentVolumeClaim>,
        class: &StorageClass,
    ) -> Result<Action, ReconcileError> {
        let name = local_path::volume_name(&claim);
        if self.volumes.get(&Key::new("", &name)).is_some() {
            return Ok(Action::Done);
        }
        let node = match annotation(&claim.metadata, SELECTED_NODE) {
            None => None,
            Some(node) => {
                let Some(found) = self.nodes.lister().get(&Key::new("", node)) else {
                    let message = format!("Failed to get target node: node {node:?} not found");
                    self.recorder.warning(&*claim, "ProvisioningFailed", message.clone());
                    return Err(ReconcileError::Retry(message));
                };
                Some(found)
            }
        };
        let volume = match local_path::provision(&self.local, &claim, class, node.as_deref()) {
            Ok(volume) => volume,
            Err(why) => return self.reschedule(claim, class, &why).await,
        };
        match Api::<PersistentVolume>::all(&self.client).create(&volume).await {
            Ok(volume) => {
                let volume = self.volumes.note(volume);
                let message = format!("Successfully provisioned volume {name} using {LOCAL_PATH_PROVISIONER}");
                self.recorder.normal(&*claim, "ProvisioningSucceeded", message);
                self.bind(volume, claim).await
            }
            Err(error) if error.is_already_exists() => Ok(Action::Done),
            Err(error) => {
                let key = Key::of(&*claim);
                let message =
                    format!("Error creating provisioned PV object for claim {key}: {error}. Deleting the volume.");
                self.recorder.warning(&*claim, "ProvisioningFailed", message);
                Err(error.into())
            }
        }
    }

    /// It cannot be done on this node; the scheduler may know another.
    async fn reschedule(
        &self,
        claim: Arc<PersistentVolumeClaim>,
        class: &StorageClass,
        why: &str,
    ) -> Result<Action, ReconcileError> {
        let name = class.metadata.name.as_deref().unwrap_or_default();
        let message = format!("Failed to provision volume with StorageClass {name:?}: {why}");
        self.recorder.warning(&*claim, "ProvisioningFailed", message);
        if annotation(&claim.metadata, SELECTED_NODE).is_some() {
            let mut changed = PersistentVolumeClaim::clone(&claim);
            if let Some(annotations) = &mut changed.metadata.annotations {
                annotations.remove(SELECTED_NODE);
            }
            self.claims.note(self.claims_of(&changed).update(&changed).await?);
        }
        Ok(Action::Done)
    }
}
