//! The binder: claims get volumes, volumes that nobody wants any more are reclaimed.
//!
//! Claims and volumes go through one queue and one worker, so a volume is never given away twice; a key without a
//! namespace is a volume's. What a bind consists of (volume, its phase, claim, its phase) is written in that order,
//! each only if it is not so already: whoever dies in between is continued by the next look.

mod binding;
mod claim;
mod local_path;
mod volume;

use std::sync::Arc;

use capstan_api::selector::Selector;
use capstan_client::{Api, BoxFuture, Client, Deleted, HandlerFuncs, Key, SharedIndexInformer};
use capstan_runtime::{Action, Controller, ReconcileError, Reconciler, workqueue::PriorityQueue};
use k8s_openapi::api::{
    core::v1::{Node, PersistentVolume, PersistentVolumeClaim},
    storage::v1::StorageClass,
};

pub(crate) use binding::{
    PROVISIONED_BY, annotation, capacity, claim_ref, requested, storage, volume_name, volume_phase,
};
pub use local_path::{LOCAL_PATH_PROVISIONER, LocalPath, RemoveDirectory};

use binding::{bound_claim, bound_volume, claim_phase, claim_with_status};

use crate::{
    ControllerContext,
    drive::{drive, filled},
    overlay::Overlay,
    pod::Pod,
    pod_claims,
    recorder::Recorder,
};

struct Binder {
    client: Client,
    volumes: Overlay<PersistentVolume>,
    claims: Overlay<PersistentVolumeClaim>,
    classes: SharedIndexInformer<StorageClass>,
    pods: SharedIndexInformer<Pod>,
    nodes: SharedIndexInformer<Node>,
    queue: PriorityQueue<Key>,
    local: LocalPath,
    recorder: Recorder,
}

/// Binds claims and volumes.
pub(crate) fn run(context: &ControllerContext) -> BoxFuture<'static, ()> {
    let informers = &context.informers;
    let limiter = capstan_runtime::workqueue::default_controller_rate_limiter(Arc::clone(&context.clock));
    let queue = PriorityQueue::new(Arc::clone(&context.clock), limiter);
    let binder = Binder {
        client: context.client.clone(),
        volumes: Overlay::new(informers.informer()),
        claims: Overlay::new(informers.informer()),
        classes: informers.informer(),
        pods: informers.informer(),
        nodes: informers.informer(),
        queue: queue.clone(),
        local: context.options.local_path.clone(),
        recorder: Recorder::new(context, "persistentvolume-controller"),
    };
    pod_claims::index(&binder.pods);
    let (volumes, claims) = (binder.volumes.informer().clone(), binder.claims.informer().clone());
    let (classes, pods, nodes) = (binder.classes.clone(), binder.pods.clone(), binder.nodes.clone());
    let waiting = waiting_claims(&claims, queue.clone());
    volumes.add_event_handler(volume_handler(waiting.clone(), queue.clone()));
    claims.add_event_handler(claim_handler(&volumes, queue.clone()));
    classes.add_event_handler(
        HandlerFuncs::new()
            .on_add({
                let waiting = waiting.clone();
                move |_: &Arc<StorageClass>, is_in_initial_list| {
                    if !is_in_initial_list {
                        waiting();
                    }
                }
            })
            .on_update(move |_: &Arc<StorageClass>, _: &Arc<StorageClass>| waiting()),
    );
    let lister = claims.lister();
    pods.add_event_handler(HandlerFuncs::new().on_add(move |pod: &Arc<Pod>, _| {
        // Who waits for a first consumer says for whom it waits now.
        let waits = |key: &Key| lister.get(key).is_some_and(|claim| volume_name(&claim).is_empty());
        pod_claims::claims_of(pod).into_iter().filter(waits).for_each(|key| queue.add(key));
    }));
    let caches = vec![filled(&volumes), filled(&claims), filled(&classes), filled(&pods), filled(&nodes)];
    let queue = binder.queue.clone();
    let controller = Controller::new(binder, Arc::clone(&context.clock)).with_queue(queue);
    drive(context, "claims", caches, controller)
}

/// Looks again at all claims without a volume.
fn waiting_claims(
    claims: &SharedIndexInformer<PersistentVolumeClaim>,
    queue: PriorityQueue<Key>,
) -> impl Fn() + Clone + Send + 'static {
    let lister = claims.lister();
    move || {
        let all = lister.list(&Selector::default());
        let waiting = all.iter().filter(|claim| volume_name(claim).is_empty() || claim_phase(claim) != "Bound");
        waiting.for_each(|claim| queue.add(Key::of(&**claim)));
    }
}

fn claim_key(volume: &PersistentVolume) -> Option<Key> {
    let reference = claim_ref(volume)?;
    Some(Key::new(reference.namespace.as_deref()?, reference.name.as_deref()?))
}

fn volume_handler(
    waiting: impl Fn() + Clone + Send + 'static,
    queue: PriorityQueue<Key>,
) -> HandlerFuncs<PersistentVolume> {
    let tell = {
        let queue = queue.clone();
        move |volume: &PersistentVolume| {
            queue.add(Key::of(volume));
            // A volume that is free may be what somebody waits for; one that is not may be theirs.
            if volume_phase(volume) == "Available" {
                waiting();
            } else if let Some(key) = claim_key(volume) {
                queue.add(key);
            }
        }
    };
    let added = tell.clone();
    HandlerFuncs::new()
        .on_add(move |volume: &Arc<PersistentVolume>, _| added(volume))
        .on_update(move |_: &Arc<PersistentVolume>, volume: &Arc<PersistentVolume>| tell(volume))
        .on_delete(move |volume: &Deleted<PersistentVolume>| {
            if let Some(key) = claim_key(volume.object()) {
                queue.add(key);
            }
        })
}

fn claim_handler(
    volumes: &SharedIndexInformer<PersistentVolume>,
    queue: PriorityQueue<Key>,
) -> HandlerFuncs<PersistentVolumeClaim> {
    let (added, updated) = (queue.clone(), queue.clone());
    let lister = volumes.lister();
    HandlerFuncs::new()
        .on_add(move |claim: &Arc<PersistentVolumeClaim>, _| added.add(Key::of(&**claim)))
        .on_update(move |_: &Arc<PersistentVolumeClaim>, claim: &Arc<PersistentVolumeClaim>| {
            updated.add(Key::of(&**claim));
        })
        .on_delete(move |claim: &Deleted<PersistentVolumeClaim>| {
            let claim = Key::of(&**claim.object());
            let all = lister.list(&Selector::default());
            let theirs = all.iter().filter(|volume| claim_key(volume).as_ref() == Some(&claim));
            theirs.for_each(|volume| queue.add(Key::of(&**volume)));
        })
}

impl Reconciler for Binder {
    async fn reconcile(&self, key: Key) -> Result<Action, ReconcileError> {
        if key.namespace().is_empty() {
            match self.volumes.get(&key) {
                Some(volume) => self.sync_volume(volume).await,
                None => Ok(Action::Done),
            }
        } else {
            match self.claims.get(&key) {
                Some(claim) => self.sync_claim(claim).await,
                None => Ok(Action::Done),
            }
        }
    }
}

impl Binder {
    async fn bind(
        &self,
        volume: Arc<PersistentVolume>,
        claim: Arc<PersistentVolumeClaim>,
    ) -> Result<Action, ReconcileError> {
        let volume = match bound_volume(&volume, &claim) {
            Some(bound) => self.volumes.note(Api::all(&self.client).update(&bound).await?),
            None => volume,
        };
        let volume = self.set_volume_phase(volume, "Bound", "").await?;
        let claim = match bound_claim(&claim, &volume) {
            Some(bound) => self.claims.note(self.claims_of(&bound).update(&bound).await?),
            None => claim,
        };
        self.set_claim_status(claim, "Bound", Some(&volume)).await?;
        Ok(Action::Done)
    }

    fn claims_of(&self, claim: &PersistentVolumeClaim) -> Api<PersistentVolumeClaim> {
        Api::namespaced(&self.client, claim.metadata.namespace.as_deref().unwrap_or_default())
    }

    async fn set_volume_phase(
        &self,
        volume: Arc<PersistentVolume>,
        phase: &str,
        message: &str,
    ) -> Result<Arc<PersistentVolume>, ReconcileError> {
        if volume_phase(&volume) == phase {
            return Ok(volume);
        }
        let mut volume = PersistentVolume::clone(&volume);
        let status = volume.status.get_or_insert_default();
        status.phase = Some(phase.to_owned());
        status.message = (!message.is_empty()).then(|| message.to_owned());
        Ok(self.volumes.note(Api::all(&self.client).update_status(&volume).await?))
    }

    async fn set_claim_status(
        &self,
        claim: Arc<PersistentVolumeClaim>,
        phase: &str,
        volume: Option<&PersistentVolume>,
    ) -> Result<Arc<PersistentVolumeClaim>, ReconcileError> {
        match claim_with_status(&claim, phase, volume).map_err(ReconcileError::Retry)? {
            None => Ok(claim),
            Some(changed) => Ok(self.claims.note(self.claims_of(&changed).update_status(&changed).await?)),
        }
    }
}
