//! Expansion of volumes: whoever has to do it is told to; directories of nodes need only new numbers.

use std::sync::Arc;

use capstan_client::{Api, BoxFuture, Client, HandlerFuncs, Key, SharedIndexInformer};
use capstan_runtime::{Action, Controller, ReconcileError, Reconciler};
use k8s_openapi::api::core::v1::{PersistentVolume, PersistentVolumeClaim};

use crate::{
    ControllerContext,
    drive::{drive, filled},
    persistentvolume::{
        LOCAL_PATH_PROVISIONER, PROVISIONED_BY, annotation, capacity, claim_ref, requested, storage, volume_name,
    },
    recorder::Recorder,
};

/// How many claims are worked on at the same time.
const WORKERS: usize = 10;

struct Expander {
    client: Client,
    claims: SharedIndexInformer<PersistentVolumeClaim>,
    recorder: Recorder,
}

/// Whether a bound claim asks for more than it has.
fn wants_more(claim: &PersistentVolumeClaim) -> bool {
    let status = claim.status.as_ref();
    let bound = status.and_then(|status| status.phase.as_deref()) == Some("Bound");
    bound && requested(claim) > storage(status.and_then(|status| status.capacity.as_ref()))
}

/// Expands volumes of claims that ask for more.
pub(crate) fn run(context: &ControllerContext) -> BoxFuture<'static, ()> {
    let claims: SharedIndexInformer<PersistentVolumeClaim> = context.informers.informer();
    let reconciler = Expander {
        client: context.client.clone(),
        claims: claims.clone(),
        recorder: Recorder::new(context, "volume_expand"),
    };
    let controller = Controller::new(reconciler, Arc::clone(&context.clock)).max_concurrent_reconciles(WORKERS);
    let (added, updated) = (controller.queue().clone(), controller.queue().clone());
    claims.add_event_handler(
        HandlerFuncs::new()
            .on_add(move |claim: &Arc<PersistentVolumeClaim>, _| {
                if wants_more(claim) {
                    added.add(Key::of(&**claim));
                }
            })
            .on_update(move |old: &Arc<PersistentVolumeClaim>, new: &Arc<PersistentVolumeClaim>| {
                // Once for each size that is asked for, not for each status that is written meanwhile.
                if wants_more(new) && (requested(old) != requested(new) || !wants_more(old)) {
                    updated.add(Key::of(&**new));
                }
            }),
    );
    drive(context, "volume_expand", vec![filled(&claims)], controller)
}

impl Reconciler for Expander {
    async fn reconcile(&self, key: Key) -> Result<Action, ReconcileError> {
        let Some(claim) = self.claims.lister().get(&key).filter(|claim| wants_more(claim)) else {
            return Ok(Action::Done);
        };
        let volumes = Api::<PersistentVolume>::all(&self.client);
        let name = volume_name(&claim);
        let volume = volumes.get(name).await;
        let volume = volume.map_err(|error| ReconcileError::Retry(format!("failed to get PV {name:?}: {error}")))?;
        let is_bound = claim_ref(&volume).is_some_and(|reference| reference.uid == claim.metadata.uid);
        if !is_bound {
            let message = format!("persistent Volume is not bound to PVC being updated : {key}");
            return Err(ReconcileError::Retry(message));
        }
        if annotation(&volume.metadata, PROVISIONED_BY) == Some(LOCAL_PATH_PROVISIONER) {
            return self.expand(&claim, volume).await;
        }
        let message = "waiting for an external controller to expand this PVC";
        if volume.spec.as_ref().is_some_and(|spec| spec.csi.is_some()) {
            self.recorder.normal(&*claim, "ExternalExpanding", message);
        } else {
            self.recorder.warning(&*claim, "ExternalExpanding", message);
        }
        Ok(Action::Done)
    }
}

impl Expander {
    /// A directory is as large as its disk: the volume says the new size, then the claim does.
    async fn expand(
        &self,
        claim: &PersistentVolumeClaim,
        mut volume: PersistentVolume,
    ) -> Result<Action, ReconcileError> {
        let wanted = claim.spec.as_ref().and_then(|spec| spec.resources.as_ref());
        let wanted = wanted.and_then(|resources| resources.requests.as_ref()?.get("storage")).cloned();
        let Some(wanted) = wanted else { return Ok(Action::Done) };
        if capacity(&volume) < requested(claim) {
            let spec = volume.spec.get_or_insert_default();
            spec.capacity.get_or_insert_default().insert("storage".to_owned(), wanted.clone());
            Api::<PersistentVolume>::all(&self.client).update(&volume).await?;
        }
        let mut claim = claim.clone();
        let status = claim.status.get_or_insert_default();
        status.capacity.get_or_insert_default().insert("storage".to_owned(), wanted);
        let namespace = claim.metadata.namespace.clone().unwrap_or_default();
        Api::namespaced(&self.client, &namespace).update_status(&claim).await?;
        self.recorder.normal(&claim, "VolumeResizeSuccessful", "ExpandVolume succeeded");
        Ok(Action::Done)
    }
}
