//! `device-taint-eviction-controller`: pods leave devices whose `NoExecute` taints their claims do not tolerate, or
//! not for long.
//!
//! Taints come from ResourceSlices; DeviceTaintRules are behind a gate that is off by default.

use std::{
    collections::HashSet,
    sync::{Arc, Mutex, PoisonError},
    time::Duration,
};

use capstan_api::{
    options::{DeleteOptions, Preconditions},
    selector::Selector,
};
use capstan_client::{Api, BoxFuture, Client, Deleted, Error, HandlerFuncs, Key, Lister};
use capstan_clock::{SharedClock, Timestamp};
use capstan_runtime::{Action, Controller, ReconcileError, Reconciler, workqueue::PriorityQueue};
use k8s_openapi::api::resource::v1::{
    DeviceRequestAllocationResult, DeviceTaint, DeviceToleration, ResourceClaim, ResourceSlice, ResourceSliceSpec,
};

use crate::{
    ControllerContext,
    drive::{drive, filled},
    pod::{Pod, PodResourceClaimStatus},
    pod_claims::is_controlled_by,
    pod_status::{AsOf, disruption, node_name, patch_status, set_condition},
    recorder::Recorder,
    resource_claim::{Named, name_of, reserved_for, specs},
};

const WORKERS: usize = 10;
const NO_EXECUTE: &str = "NoExecute";
const REASON: &str = "DeviceTaintManagerEviction";

pub(crate) fn run(context: &ControllerContext) -> BoxFuture<'static, ()> {
    let informers = &context.informers;
    let (pods, claims, slices) =
        (informers.informer::<Pod>(), informers.informer::<ResourceClaim>(), informers.informer::<ResourceSlice>());
    let evictor = Evictor {
        client: context.client.clone(),
        clock: Arc::clone(&context.clock),
        recorder: Recorder::new(context, "device-taint-eviction-controller"),
        pods: pods.lister(),
        claims: claims.lister(),
        slices: slices.lister(),
        marked: Mutex::default(),
    };
    let controller = Controller::new(evictor, Arc::clone(&context.clock)).max_concurrent_reconciles(WORKERS);
    let queue = controller.queue().clone();
    // Most pods have no claims, and all that happens to them is of no interest here.
    let see = {
        let queue = queue.clone();
        move |pod: &Pod| {
            if specs(pod).next().is_some() {
                queue.add(Key::of(pod));
            }
        }
    };
    let (added, gone) = (see.clone(), see.clone());
    pods.add_event_handler(
        HandlerFuncs::new()
            .on_add(move |pod: &Arc<Pod>, _| added(pod))
            .on_update(move |old: &Arc<Pod>, new: &Arc<Pod>| {
                if node_name(old) != node_name(new) || claim_statuses(old) != claim_statuses(new) {
                    see(new);
                }
            })
            .on_delete(move |pod: &Deleted<Pod>| gone(pod.object())),
    );
    let users = {
        let queue = queue.clone();
        move |claim: &ResourceClaim| enqueue_users(&queue, claim)
    };
    let (came, went) = (users.clone(), users.clone());
    claims.add_event_handler(
        HandlerFuncs::new()
            .on_add(move |claim: &Arc<ResourceClaim>, _| came(claim))
            .on_update(move |old: &Arc<ResourceClaim>, new: &Arc<ResourceClaim>| {
                users(old);
                users(new);
            })
            .on_delete(move |claim: &Deleted<ResourceClaim>| went(claim.object())),
    );
    let affected = {
        let lister = claims.lister();
        move |spec: &ResourceSliceSpec| {
            for claim in lister.list(&Selector::everything()) {
                let uses = |device: &DeviceRequestAllocationResult| {
                    device.driver == spec.driver && device.pool == spec.pool.name
                };
                if allocated(&claim).any(uses) {
                    enqueue_users(&queue, &claim);
                }
            }
        }
    };
    let (more, fewer) = (affected.clone(), affected.clone());
    slices.add_event_handler(
        HandlerFuncs::new()
            .on_add(move |slice: &Arc<ResourceSlice>, _| more(&slice.spec))
            .on_update(move |old: &Arc<ResourceSlice>, new: &Arc<ResourceSlice>| {
                if old.spec != new.spec {
                    affected(&old.spec);
                    affected(&new.spec);
                }
            })
            .on_delete(move |slice: &Deleted<ResourceSlice>| fewer(&slice.object().spec)),
    );
    let caches = vec![filled(&pods), filled(&claims), filled(&slices)];
    drive(context, "device-taint-eviction-controller", caches, controller)
}

fn claim_statuses(pod: &Pod) -> Option<&[PodResourceClaimStatus]> {
    pod.status.as_ref()?.resource_claim_statuses.as_deref()
}

/// Enqueues the pods that a claim is reserved for.
fn enqueue_users(queue: &PriorityQueue<Key>, claim: &ResourceClaim) {
    let namespace = claim.metadata.namespace.as_deref().unwrap_or_default();
    for consumer in reserved_for(claim) {
        if consumer.api_group.as_deref().unwrap_or_default().is_empty() && consumer.resource == "pods" {
            queue.add(Key::new(namespace, &consumer.name));
        }
    }
}

/// The devices that a claim has.
fn allocated(claim: &ResourceClaim) -> impl Iterator<Item = &DeviceRequestAllocationResult> {
    let allocation = claim.status.as_ref().and_then(|status| status.allocation.as_ref());
    let devices = allocation.and_then(|allocation| allocation.devices.as_ref());
    devices.and_then(|devices| devices.results.as_ref()).into_iter().flatten()
}

/// The taints of a device, as the newest generation of its pool has them.
fn taints<'a>(slices: &'a [Arc<ResourceSlice>], device: &DeviceRequestAllocationResult) -> Vec<&'a DeviceTaint> {
    let pool = || {
        let specs = slices.iter().map(|slice| &slice.spec);
        specs.filter(|spec| spec.driver == device.driver && spec.pool.name == device.pool)
    };
    let newest = pool().map(|spec| spec.pool.generation).max();
    let current = pool().filter(|spec| Some(spec.pool.generation) == newest);
    let mut devices = current.flat_map(|spec| spec.devices.iter().flatten());
    let found = devices.find(|known| known.name == device.device);
    let taints = found.and_then(|device| device.taints.as_ref()).into_iter().flatten();
    taints.filter(|taint| taint.effect == NO_EXECUTE).collect()
}

fn tolerates(toleration: &DeviceToleration, taint: &DeviceTaint) -> bool {
    let text = |text: &Option<String>| text.clone().unwrap_or_default();
    let key = text(&toleration.key);
    // One without an effect is for the scheduler: staying needs to be asked for by name.
    if text(&toleration.effect) != taint.effect || (!key.is_empty() && key != taint.key) {
        return false;
    }
    match text(&toleration.operator).as_str() {
        "" | "Equal" => text(&toleration.value) == text(&taint.value),
        "Exists" => true,
        _ => false,
    }
}

/// When whoever uses a device has to go because of a taint; never if that is tolerated for good.
fn due(taint: &DeviceTaint, tolerations: &[DeviceToleration]) -> Option<Timestamp> {
    let mut shortest: Option<u64> = None;
    for toleration in tolerations.iter().filter(|toleration| tolerates(toleration, taint)) {
        let seconds = u64::try_from(toleration.toleration_seconds?).unwrap_or_default();
        shortest = Some(shortest.map_or(seconds, |shortest| shortest.min(seconds)));
    }
    // The server sets the time; a taint without one is as old as can be.
    let added = taint.time_added.as_ref().map_or(Timestamp::UNIX_EPOCH, |time| time.0);
    Some(added.saturating_add(Duration::from_secs(shortest.unwrap_or_default())).unwrap_or(Timestamp::MAX))
}

struct Evictor {
    client: Client,
    clock: SharedClock,
    recorder: Recorder,
    pods: Lister<Pod>,
    claims: Lister<ResourceClaim>,
    slices: Lister<ResourceSlice>,
    /// Pods that will have to go. Only to tell when they may stay after all.
    marked: Mutex<HashSet<Key>>,
}

impl Evictor {
    fn marked<R>(&self, act: impl FnOnce(&mut HashSet<Key>) -> R) -> R {
        act(&mut self.marked.lock().unwrap_or_else(PoisonError::into_inner))
    }

    /// When a pod has to go, by the earliest of the taints of all its devices.
    fn due(&self, pod: &Pod) -> Option<Timestamp> {
        if node_name(pod).is_empty() {
            return None;
        }
        let namespace = pod.metadata.namespace.as_deref().unwrap_or_default();
        let slices = self.slices.list(&Selector::everything());
        let named = specs(pod).filter_map(|spec| match name_of(pod, spec) {
            Ok(Named::Yes { name, made }) => Some((name, made)),
            _ => None,
        });
        let claims = named.filter_map(|(name, made)| {
            let claim = self.claims.get(&Key::new(namespace, name))?;
            let is_reserved = reserved_for(&claim).iter().any(|user| user.uid == pod.metadata.uid());
            (is_reserved && (!made || is_controlled_by(&claim.metadata, pod))).then_some(claim)
        });
        let times = claims.flat_map(|claim| {
            let of_device = |device: &DeviceRequestAllocationResult| {
                let tolerations = device.tolerations.as_deref().unwrap_or_default();
                taints(&slices, device).iter().filter_map(|taint| due(taint, tolerations)).min()
            };
            allocated(&claim).filter_map(of_device).min()
        });
        times.min()
    }

    async fn evict(&self, key: &Key, uid: &str) -> Result<(), Error> {
        let api = Api::<Pod>::namespaced(&self.client, key.namespace());
        let Some(pod) = api.get_opt(key.name()).await? else { return Ok(()) };
        if pod.metadata.uid() != uid || pod.metadata.deletion_timestamp.is_some() {
            return Ok(());
        }
        self.recorder.normal(&pod, REASON, "Marking for deletion");
        let mut status = pod.status.clone().unwrap_or_default();
        let message = "Device Taint manager: deleting due to NoExecute taint";
        if set_condition(&mut status, disruption("DeletionByDeviceTaintManager", message), self.clock.now()) {
            patch_status(&self.client, &pod, &status, AsOf::Any).await?;
        }
        let preconditions = Some(Preconditions { uid: Some(uid.to_owned()), ..Preconditions::default() });
        api.delete(key.name(), &DeleteOptions { preconditions, ..DeleteOptions::default() }).await
    }
}

impl Reconciler for Evictor {
    async fn reconcile(&self, key: Key) -> Result<Action, ReconcileError> {
        let Some(pod) = self.pods.get(&key).filter(|pod| pod.metadata.deletion_timestamp.is_none()) else {
            self.marked(|marked| marked.remove(&key));
            return Ok(Action::Done);
        };
        let Some(due) = self.due(&pod) else {
            if self.marked(|marked| marked.remove(&key)) {
                self.recorder.normal(&*pod, REASON, "Cancelling deletion");
            }
            return Ok(Action::Done);
        };
        self.marked(|marked| marked.insert(key.clone()));
        let left = due.duration_since(self.clock.now());
        if left.is_positive() {
            return Ok(Action::RequeueAfter(left.unsigned_abs()));
        }
        match self.evict(&key, pod.metadata.uid()).await {
            Err(error) if !error.is_not_found() => Err(error.into()),
            _ => {
                self.marked(|marked| marked.remove(&key));
                Ok(Action::Done)
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn when_pods_have_to_go() {
        /// Tolerations as `key[=seconds][!effect]`.
        fn check(tolerations: &str, expected: Option<i64>) {
            let added = Timestamp::from_second(1_000).unwrap();
            let taint = DeviceTaint {
                key: "k".into(),
                effect: NO_EXECUTE.into(),
                time_added: Some(k8s_openapi::apimachinery::pkg::apis::meta::v1::Time(added)),
                value: None,
            };
            let tolerations: Vec<_> = tolerations
                .split_whitespace()
                .map(|text| {
                    let (text, effect) = text.split_once('!').unwrap_or((text, NO_EXECUTE));
                    let (key, seconds) = text.split_once('=').unwrap_or((text, ""));
                    DeviceToleration {
                        key: Some(key.trim_matches('*').to_owned()),
                        operator: Some("Exists".to_owned()),
                        effect: Some(effect.to_owned()),
                        toleration_seconds: seconds.parse().ok(),
                        value: None,
                    }
                })
                .collect();
            assert_eq!(due(&taint, &tolerations).map(Timestamp::as_second), expected, "{tolerations:?}");
        }
        check("", Some(1_000));
        check("k", None);
        check("*", None);
        check("other", Some(1_000));
        check("k=30", Some(1_030));
        check("k=30 *=10", Some(1_010));
        check("k=30 k", None);
        check("k=-5", Some(1_000));
        check("k!NoSchedule", Some(1_000));
        check("k!", Some(1_000));
    }
}
