//! What a volume needs.

use std::sync::Arc;

use capstan_client::{Api, Key};
use capstan_runtime::{Action, ReconcileError};
use k8s_openapi::api::core::v1::{PersistentVolume, PersistentVolumeClaim};

use super::{
    Binder,
    binding::{PROVISIONED_BY, annotation, claim_ref, modes_mismatch, unbound_volume, volume_name, volume_phase},
    claim_key,
    local_path::{self, FINALIZER, LOCAL_PATH_PROVISIONER},
};

/// How a volume that nobody wants is got rid of.
enum Deleter {
    /// By us.
    Local,
    /// By whoever made it.
    External,
    /// By nobody.
    None(String),
}

fn deleter(volume: &PersistentVolume) -> Deleter {
    let by = annotation(&volume.metadata, PROVISIONED_BY).filter(|by| !by.is_empty());
    let name = volume.metadata.name.as_deref().unwrap_or_default();
    let spec = volume.spec.as_ref();
    match by {
        Some(LOCAL_PATH_PROVISIONER) => Deleter::Local,
        Some(by) if by.starts_with("kubernetes.io/") => Deleter::None(format!("no volume plugin matched name: {by}")),
        Some(_) => Deleter::External,
        None if spec.is_some_and(|spec| spec.csi.is_some()) => Deleter::External,
        None => match spec.and_then(|spec| spec.host_path.as_ref()) {
            Some(source) if local_path::is_temporary(&source.path) => Deleter::Local,
            Some(source) => {
                let path = &source.path;
                Deleter::None(format!("host_path deleter only supports /tmp/.+ but received provided {path}"))
            }
            None => Deleter::None(format!(
                "error getting deleter volume plugin for volume {name:?}: no deletable volume plugin matched"
            )),
        },
    }
}

impl Binder {
    pub(super) async fn sync_volume(&self, volume: Arc<PersistentVolume>) -> Result<Action, ReconcileError> {
        let uid = claim_ref(&volume).and_then(|reference| reference.uid.clone()).unwrap_or_default();
        if uid.is_empty() {
            self.set_volume_phase(volume, "Available", "").await?;
            return Ok(Action::Done);
        }
        let Some(claim) = self.owner(&volume, &uid).await? else { return self.release(volume).await };
        let name = volume.metadata.name.as_deref().unwrap_or_default();
        if volume_name(&claim).is_empty() {
            if modes_mismatch(&volume, &claim) {
                let claim_name = claim.metadata.name.as_deref().unwrap_or_default();
                let message = format!(
                    "Cannot bind PersistentVolume to requested PersistentVolumeClaim {claim_name:?} due to incompatible \
                     volumeMode."
                );
                self.recorder.warning(&*volume, "VolumeMismatch", message);
                let message = format!(
                    "Cannot bind PersistentVolume {name:?} to requested PersistentVolumeClaim due to incompatible \
                     volumeMode."
                );
                self.recorder.warning(&*claim, "VolumeMismatch", message);
                return Ok(Action::Done);
            }
            // The claim's half of the bind is still to come.
            self.queue.add(Key::of(&*claim));
            return Ok(Action::Done);
        }
        if volume_name(&claim) == name {
            self.set_volume_phase(volume, "Bound", "").await?;
            return Ok(Action::Done);
        }
        // The claim went with another volume: one that was made for it is of no use, any other is free again.
        let policy = volume.spec.as_ref().and_then(|spec| spec.persistent_volume_reclaim_policy.as_deref());
        if annotation(&volume.metadata, PROVISIONED_BY).is_some() && policy == Some("Delete") {
            return self.release(volume).await;
        }
        let volume = self.volumes.note(Api::all(&self.client).update(&unbound_volume(&volume)).await?);
        self.set_volume_phase(volume, "Available", "").await?;
        Ok(Action::Done)
    }

    /// The claim that a volume is for. Data depend on the answer, so a cache that says "none" is not believed.
    async fn owner(
        &self,
        volume: &PersistentVolume,
        uid: &str,
    ) -> Result<Option<Arc<PersistentVolumeClaim>>, ReconcileError> {
        let Some(key) = claim_key(volume) else { return Ok(None) };
        let is_it = |claim: &PersistentVolumeClaim| claim.metadata.uid.as_deref() == Some(uid);
        let known = self.claims.get(&key);
        if let Some(claim) = known.as_ref().filter(|claim| is_it(claim)) {
            return Ok(Some(Arc::clone(claim)));
        }
        if known.is_none() && matches!(volume_phase(volume), "Released" | "Failed") {
            return Ok(None);
        }
        let api = Api::<PersistentVolumeClaim>::namespaced(&self.client, key.namespace());
        Ok(api.get_opt(key.name()).await?.filter(is_it).map(Arc::new))
    }

    /// Nobody wants the volume any more.
    async fn release(&self, volume: Arc<PersistentVolume>) -> Result<Action, ReconcileError> {
        let volume = match volume_phase(&volume) {
            "Released" | "Failed" => volume,
            _ => self.set_volume_phase(volume, "Released", "").await?,
        };
        match volume.spec.as_ref().and_then(|spec| spec.persistent_volume_reclaim_policy.as_deref()) {
            Some("Retain") => Ok(Action::Done),
            Some("Delete") => match deleter(&volume) {
                Deleter::External => Ok(Action::Done),
                Deleter::None(why) => self.fail(volume, "VolumeFailedDelete", &why).await,
                Deleter::Local => self.delete_local(volume).await,
            },
            Some("Recycle") => {
                self.fail(volume, "VolumeFailedRecycle", "No recycler plugin found for the volume!").await
            }
            _ => {
                let message = "Volume has unrecognized PersistentVolumeReclaimPolicy";
                self.fail(volume, "VolumeUnknownReclaimPolicy", message).await
            }
        }
    }

    async fn fail(&self, volume: Arc<PersistentVolume>, reason: &str, message: &str) -> Result<Action, ReconcileError> {
        if volume_phase(&volume) != "Failed" {
            let volume = self.set_volume_phase(volume, "Failed", message).await?;
            self.recorder.warning(&*volume, reason, message);
        }
        Ok(Action::Done)
    }

    async fn delete_local(&self, volume: Arc<PersistentVolume>) -> Result<Action, ReconcileError> {
        if let Err(why) = local_path::remove(&self.local, &volume) {
            self.fail(volume, "VolumeFailedDelete", &why).await?;
            return Err(ReconcileError::Retry(why));
        }
        let api = Api::<PersistentVolume>::all(&self.client);
        let mut volume = volume;
        if volume.metadata.finalizers.iter().flatten().any(|finalizer| finalizer == FINALIZER) {
            let mut changed = PersistentVolume::clone(&volume);
            if let Some(finalizers) = &mut changed.metadata.finalizers {
                finalizers.retain(|finalizer| finalizer != FINALIZER);
            }
            volume = self.volumes.note(api.update(&changed).await?);
        }
        if volume.metadata.deletion_timestamp.is_none() {
            match api.delete(volume.metadata.name.as_deref().unwrap_or_default(), &Default::default()).await {
                Err(error) if !error.is_not_found() => return Err(error.into()),
                _ => {}
            }
        }
        Ok(Action::Done)
    }
}
