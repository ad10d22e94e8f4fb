//! Devices are written to claims, and taken from them.

use std::{sync::Arc, time::Duration};

use capstan_api::options::DeleteOptions;
use capstan_client::{Api, Error, Patch};
use k8s_openapi::{
    api::{
        core::v1::{ContainerExtendedResourceRequest, Pod},
        resource::v1::{AllocationResult, ResourceClaim, ResourceClaimConsumerReference},
    },
    apimachinery::pkg::apis::meta::v1::Time,
};
use serde_json::json;

use super::{Chore, DynamicResources, Reserved, allocation, extended::IN_MEMORY, is_reserved_for, uid};
use crate::{devices::full_name, plugin::BindContext, pod_info::PodInfo, status::Status};

/// Keeps a claim with devices from being deleted while they are in use.
const FINALIZER: &str = "resource.kubernetes.io/delete-protection";

/// How often a claim is written again when others were faster.
const MAX_TRIES: usize = 5;

/// How often it is looked whether devices are ready.
const READY_POLL: Duration = Duration::from_secs(5);

fn api(context: &BindContext, claim: &ResourceClaim) -> Api<ResourceClaim> {
    Api::namespaced(&context.client, claim.metadata.namespace.as_deref().unwrap_or_default())
}

fn name(claim: &ResourceClaim) -> &str {
    claim.metadata.name.as_deref().unwrap_or_default()
}

/// Whether all devices of a claim are ready for the pod to be bound.
///
/// # Errors
/// One of them will not be.
pub(super) fn is_ready(claim: &ResourceClaim) -> Result<bool, String> {
    let Some(allocation) = allocation(claim) else { return Ok(false) };
    let results = allocation.devices.iter().flat_map(|devices| devices.results.iter().flatten());
    for result in results {
        let Some(wanted) = result.binding_conditions.as_deref().filter(|wanted| !wanted.is_empty()) else { continue };
        let devices = claim.status.iter().flat_map(|status| status.devices.iter().flatten());
        let device = devices
            .into_iter()
            .find(|d| (&d.driver, &d.pool, &d.device) == (&result.driver, &result.pool, &result.device));
        let Some(device) = device else { return Ok(false) };
        let holds = |name: &String| {
            let mut all = device.conditions.iter().flatten();
            all.find(|condition| condition.type_ == *name && condition.status == "True")
        };
        if let Some(failed) = result.binding_failure_conditions.iter().flatten().find_map(holds) {
            return Err(format!(
                "device binding failed: claim={}, reason={}, message={:?}",
                name(claim),
                failed.reason,
                failed.message
            ));
        }
        if !wanted.iter().all(|name| holds(name).is_some()) {
            return Ok(false);
        }
    }
    Ok(true)
}

fn has_conditions(claim: &ResourceClaim) -> bool {
    let devices = allocation(claim).and_then(|allocation| allocation.devices.as_ref());
    let mut results = devices.iter().flat_map(|devices| devices.results.iter().flatten());
    results.any(|result| result.binding_conditions.as_ref().is_some_and(|conditions| !conditions.is_empty()))
}

impl DynamicResources {
    /// Writes the devices of a pod to its claims, and that it uses them; waits until they are ready.
    pub(super) async fn bind_claims(&self, context: &BindContext, pod: &Arc<PodInfo>) -> Result<(), Status> {
        let reserved = self.lock().reserved.get(&pod.uid).cloned().unwrap_or_default();
        let mut claims = Vec::new();
        for (at, Reserved { mut claim, allocation, mappings }) in reserved.into_iter().enumerate() {
            if is_reserved_for(&claim, &pod.uid) {
                claims.push(claim);
                continue;
            }
            if name(&claim) == IN_MEMORY {
                claim = self.create(context, pod, at, &claim).await.map_err(Status::error)?;
            }
            let written = self.bind_claim(context, pod, &claim, allocation).await.map_err(Status::error)?;
            let written = Arc::new(written);
            self.written(pod, at, &claim, &written);
            if let Some(mappings) = &mappings {
                tell_pod(context, pod, &written, mappings).await.map_err(Status::error)?;
            }
            claims.push(written);
        }
        self.until_ready(context, &claims).await.map_err(Status::error)
    }

    fn written(&self, pod: &PodInfo, at: usize, claim: &ResourceClaim, written: &Arc<ResourceClaim>) {
        let mut state = self.lock();
        let version = written.metadata.resource_version.as_deref().and_then(|version| version.parse().ok());
        if let Some(flight) = state.in_flight.get_mut(uid(claim)) {
            flight.written = version;
        }
        // If the pod is refused later, this is what has to be taken back.
        if let Some(reserved) = state.reserved.get_mut(&pod.uid).and_then(|all| all.get_mut(at)) {
            reserved.claim = Arc::clone(written);
        }
    }

    /// Creates the claim for a pod's extended resources.
    async fn create(
        &self,
        context: &BindContext,
        pod: &PodInfo,
        at: usize,
        claim: &Arc<ResourceClaim>,
    ) -> Result<Arc<ResourceClaim>, String> {
        let mut new = (**claim).clone();
        (new.metadata.name, new.metadata.uid) = (None, None);
        let made = api(context, claim).create(&new).await;
        let made = made.map_err(|error| format!("create claim for extended resources {}: {error}", full_name(&new)))?;
        let made = Arc::new(made);
        let mut state = self.lock();
        if let Some(flight) = state.in_flight.remove(uid(claim)) {
            state.fly(&made, Some(&flight.allocation), true);
        }
        // If the pod is refused from now on, the claim has to go.
        if let Some(reserved) = state.reserved.get_mut(&pod.uid).and_then(|all| all.get_mut(at)) {
            reserved.claim = Arc::clone(&made);
        }
        Ok(made)
    }

    async fn bind_claim(
        &self,
        context: &BindContext,
        pod: &PodInfo,
        claim: &Arc<ResourceClaim>,
        allocation: Option<AllocationResult>,
    ) -> Result<ResourceClaim, String> {
        let allocation = allocation.map(|allocation| named_shares(context, allocation));
        let mut current = (**claim).clone();
        for attempt in 1.. {
            match self.write(context, pod, current, allocation.as_ref()).await {
                Err(Write::Refused(error)) if error.is_conflict() && attempt < MAX_TRIES => {}
                Err(Write::Refused(error)) => {
                    let what = if allocation.is_some() { "allocation and reservation" } else { "reservation" };
                    return Err(format!("add {what} to claim {}: {error}", full_name(claim)));
                }
                Err(Write::Overtaken(message)) => return Err(message),
                Ok(written) => return Ok(written),
            }
            let newer = api(context, claim).get(name(claim)).await;
            current =
                newer.map_err(|error| format!("get updated claim {} after conflict: {error}", full_name(claim)))?;
        }
        Err(format!("claim {} is written all the time", full_name(claim)))
    }

    async fn write(
        &self,
        context: &BindContext,
        pod: &PodInfo,
        mut claim: ResourceClaim,
        new: Option<&AllocationResult>,
    ) -> Result<ResourceClaim, Write> {
        let overtaken = |claim: &ResourceClaim, what: &str| {
            Err(Write::Overtaken(format!("claim {} got {what} in the meantime", full_name(claim))))
        };
        if claim.metadata.deletion_timestamp.is_some() {
            return overtaken(&claim, "deleted");
        }
        // Only what changes is written: what drivers are to be told is not to be written in another way than it was.
        if let Some(new) = new {
            if allocation(&claim).is_some() {
                return overtaken(&claim, "allocated elsewhere");
            }
            let mut finalizers = claim.metadata.finalizers.clone().unwrap_or_default();
            if !finalizers.iter().any(|finalizer| finalizer == FINALIZER) {
                finalizers.push(FINALIZER.to_owned());
                let version = &claim.metadata.resource_version;
                let patch = json!({"metadata": {"resourceVersion": version, "finalizers": finalizers}});
                claim = api(context, &claim).patch(name(&claim), &Patch::Merge(patch)).await.map_err(Write::Refused)?;
            }
            claim.status.get_or_insert_default().allocation = Some(new.clone());
        }
        let status = claim.status.get_or_insert_default();
        status.reserved_for.get_or_insert_default().push(ResourceClaimConsumerReference {
            api_group: None,
            resource: "pods".to_owned(),
            name: pod.name().to_owned(),
            uid: pod.uid.to_string(),
        });
        let Some(allocation) = status.allocation.as_mut() else {
            return overtaken(&claim, "deallocated elsewhere");
        };
        allocation.allocation_timestamp.get_or_insert_with(|| Time(context.clock.now()));
        let patch = json!({
            "metadata": {"resourceVersion": claim.metadata.resource_version},
            "status": {"allocation": status.allocation, "reservedFor": status.reserved_for},
        });
        api(context, &claim).patch_status(name(&claim), &Patch::Merge(patch)).await.map_err(Write::Refused)
    }

    async fn until_ready(&self, context: &BindContext, claims: &[Arc<ResourceClaim>]) -> Result<(), String> {
        let until = context.clock.monotonic().plus(self.binding_timeout);
        for claim in claims.iter().filter(|claim| has_conditions(claim)) {
            loop {
                let now = api(context, claim).get(name(claim)).await.map_err(|error| error.to_string())?;
                if is_ready(&now)? {
                    break;
                }
                if context.clock.monotonic() >= until {
                    self.lock().late.insert(uid(claim).to_owned());
                    return Err(format!("device binding timeout: claim={}", name(claim)));
                }
                context.clock.sleep(READY_POLL).await;
            }
        }
        Ok(())
    }

    /// Tells the server what is to be told once a pod is refused. What fails is tried again with the pod.
    pub(super) async fn do_chores(&self, context: &BindContext, pod: &PodInfo) {
        let chores = self.lock().chores.remove(&pod.uid).unwrap_or_default();
        for chore in chores {
            match chore {
                Chore::Deallocate(claim) => {
                    let patch = json!({
                        "metadata": {"resourceVersion": claim.metadata.resource_version},
                        "status": {"allocation": null, "reservedFor": null, "devices": null},
                    });
                    if api(context, &claim).patch_status(name(&claim), &Patch::Merge(patch)).await.is_ok() {
                        self.lock().late.remove(uid(&claim));
                    }
                }
                Chore::Delete(claim) => delete(context, &claim).await,
                Chore::Unreserve(claim) => {
                    let patch = json!({
                        "metadata": {"uid": uid(&claim)},
                        "status": {"reservedFor": [{"$patch": "delete", "uid": &*pod.uid}]},
                    });
                    let _ = api(context, &claim).patch_status(name(&claim), &Patch::Strategic(patch)).await;
                }
            }
        }
    }
}

/// Deletes a claim, which nothing protects any more. What fails is tried again with the pod, or by those who collect
/// what pods leave behind.
async fn delete(context: &BindContext, claim: &ResourceClaim) {
    let api = api(context, claim);
    for _ in 0..MAX_TRIES {
        let Ok(current) = api.get(name(claim)).await else { return };
        let mut finalizers = current.metadata.finalizers.clone().unwrap_or_default();
        finalizers.retain(|finalizer| finalizer != FINALIZER);
        let version = &current.metadata.resource_version;
        let patch = json!({"metadata": {"resourceVersion": version, "finalizers": finalizers}});
        match api.patch(name(claim), &Patch::Merge(patch)).await {
            Err(error) if error.is_conflict() => {}
            Err(_) => return,
            Ok(_) => return drop(api.delete(name(claim), &DeleteOptions::default()).await),
        }
    }
}

/// Tells the pod which claim its extended resources are from.
async fn tell_pod(
    context: &BindContext,
    pod: &PodInfo,
    claim: &ResourceClaim,
    mappings: &[ContainerExtendedResourceRequest],
) -> Result<(), String> {
    let status = json!({"resourceClaimName": name(claim), "requestMappings": mappings});
    let patch = Patch::Strategic(json!({"status": {"extendedResourceClaimStatus": status}}));
    let pods = Api::<Pod>::namespaced(&context.client, pod.namespace());
    let written = pods.patch_status(pod.name(), &patch).await;
    let told = |error| format!("update pod {}/{} ExtendedResourceClaimStatus: {error}", pod.namespace(), pod.name());
    written.map(drop).map_err(told)
}

/// Why a claim was not written.
enum Write {
    Refused(Error),
    Overtaken(String),
}

/// Shares of devices get their names only when they are written down.
fn named_shares(context: &BindContext, mut allocation: AllocationResult) -> AllocationResult {
    let results = allocation.devices.iter_mut().flat_map(|devices| devices.results.iter_mut().flatten());
    for share in results.filter_map(|result| result.share_id.as_mut()) {
        *share = context.ids.uid();
    }
    allocation
}
