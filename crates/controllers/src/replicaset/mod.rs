//! ReplicaSets, and what else wants a number of pods: as many pods as are asked for.

mod kinds;
mod status;

use std::{sync::Arc, time::Duration};

use capstan_api::{Resource, object::Object, selector::Selector};
use capstan_client::{Api, BoxFuture, Error, Key, Lister, SharedIndexInformer};
use capstan_runtime::{
    Action, Controller, ReconcileError, Reconciler, SLOW_START_INITIAL_BATCH_SIZE, at_once,
    handler::enqueue_request_for_object, slow_start_batch,
};
use k8s_openapi::api::{
    apps::v1::ReplicaSet,
    core::v1::{PodTemplateSpec, ReplicationController},
};
use serde::Serialize;

use crate::{
    ControllerContext,
    controller_ref::{ControllerRefManager, controller_uid, is_namespace_terminating},
    drive::{drive, filled},
    pod::Pod,
    pods::{
        self,
        control::{PodControl, encode, pod_from_template},
        expectations::{Expectations, RECHECK},
        rank::sort_for_deletion,
    },
    recorder::Recorder,
    workload::{EnqueueController, WORKERS, candidates, controlled_by, index_by_controller},
};
use status::{Counts, Failure};

/// So many pods are created or deleted at most before the cache is asked again.
const BURST_REPLICAS: usize = 500;

/// How long more changes of pods are waited for: a thousand pods that become ready are a few statuses, not hundreds.
const BATCH_PERIOD: Duration = Duration::from_millis(5);

/// A kind that wants a number of pods like its template.
pub(crate) trait Replicated: Resource + Object + Clone + Serialize + serde::de::DeserializeOwned {
    /// Who Events come from.
    const COMPONENT: &'static str;
    /// What its queue is called.
    const QUEUE: &'static str;
    /// Whether its status says how many pods are being deleted.
    const TELLS_TERMINATING: bool;
    /// How many pods.
    fn replicas(&self) -> i32;
    /// How long they must be ready to count as available.
    fn min_ready_seconds(&self) -> i32;
    /// Which pods are its own; none if the selector makes no sense.
    fn selector(&self) -> Option<Selector>;
    /// What they look like.
    fn template(&self) -> Option<&PodTemplateSpec>;
    /// What its status says.
    fn counts(&self) -> Counts;
    /// Has its status say this.
    fn set_counts(&mut self, counts: Counts);
}

/// Runs the loop of ReplicaSets.
pub(crate) fn run(context: &ControllerContext) -> BoxFuture<'static, ()> {
    run_kind::<ReplicaSet>(context)
}

/// Runs the loop of ReplicationControllers.
pub(crate) fn run_rcs(context: &ControllerContext) -> BoxFuture<'static, ()> {
    run_kind::<ReplicationController>(context)
}

fn run_kind<K: Replicated>(context: &ControllerContext) -> BoxFuture<'static, ()> {
    let (owners, pods) = (context.informers.informer::<K>(), context.informers.informer::<Pod>());
    index_by_controller(&pods);
    index_by_controller(&owners);
    let expectations = Arc::new(Expectations::new(Arc::clone(&context.clock)));
    let control =
        PodControl { client: context.client.clone(), events: Recorder::new(context, K::COMPONENT), expectations };
    let loop_ = ReplicaSetLoop { context: context.clone(), owners: owners.clone(), pods: pods.clone(), control };
    let controller = Controller::new(loop_, Arc::clone(&context.clock)).max_concurrent_reconciles(WORKERS);
    let queue = controller.queue().clone();
    owners.add_event_handler(enqueue_request_for_object::<K>(queue.clone()));
    pods.add_event_handler(EnqueueController {
        queue,
        owners: owners.lister(),
        selector: K::selector,
        batch: BATCH_PERIOD,
    });
    drive(context, K::QUEUE, vec![filled(&owners), filled(&pods)], controller)
}

/// What is to be done about the number of pods.
#[derive(Debug, PartialEq)]
enum Scale<'a> {
    Enough,
    Create(usize),
    Delete(Vec<&'a Pod>),
}

/// How many pods are missing, or which of them are too many.
fn scale<'a>(active: &[&'a Pod], replicas: i32, related: &[&Pod], now: capstan_clock::Timestamp) -> Scale<'a> {
    let wanted = usize::try_from(replicas).unwrap_or_default();
    if active.len() <= wanted {
        return match (wanted - active.len()).min(BURST_REPLICAS) {
            0 => Scale::Enough,
            missing => Scale::Create(missing),
        };
    }
    let too_many = (active.len() - wanted).min(BURST_REPLICAS);
    let mut active = active.to_vec();
    if too_many < active.len() {
        sort_for_deletion(&mut active, related, now);
    }
    active.truncate(too_many);
    Scale::Delete(active)
}

struct ReplicaSetLoop<K> {
    context: ControllerContext,
    owners: SharedIndexInformer<K>,
    pods: SharedIndexInformer<Pod>,
    control: PodControl,
}

impl<K: Replicated> ReplicaSetLoop<K> {
    /// The pods of all owners that have the same owner as this one: those of a Deployment.
    fn related_pods(&self, owner: &K) -> Vec<Arc<Pod>> {
        let above = controller_uid(owner);
        let siblings = if above.is_empty() { Vec::new() } else { controlled_by(self.owners.indexer(), &above) };
        siblings.iter().flat_map(|sibling| controlled_by(self.pods.indexer(), sibling.identity().uid)).collect()
    }

    async fn create(&self, owner: &Arc<K>, missing: usize) -> Result<(), Error> {
        let Some(template) = owner.template() else { return Ok(()) };
        let pod = pod_from_template(template, &**owner);
        if pod.metadata.labels.as_ref().is_none_or(std::collections::BTreeMap::is_empty) {
            return Err(Error::Decode("unable to create pods, no labels".to_owned()));
        }
        let pod = encode(&pod)?;
        slow_start_batch(missing, SLOW_START_INITIAL_BATCH_SIZE, |_| {
            let (control, owner, pod) = (self.control.clone(), Arc::clone(owner), pod.clone());
            async move {
                match control.create_encoded(&*owner, pod).await {
                    Err(error) if !is_namespace_terminating(&error) => Err(error),
                    _ => Ok(()),
                }
            }
        })
        .await
        .1
    }

    async fn delete(&self, owner: &Arc<K>, surplus: Vec<&Pod>) -> Result<(), Error> {
        at_once(surplus.into_iter().map(|pod| {
            let (control, owner, pod) = (self.control.clone(), Arc::clone(owner), pod.clone());
            async move { control.delete(&*owner, &pod).await }
        }))
        .await
    }

    async fn write_status(&self, key: &Key, owner: &K, counts: Counts) -> Result<(), Error> {
        let mut changed = owner.clone();
        changed.set_counts(counts);
        let written = Api::<K>::namespaced(&self.context.client, key.namespace()).update_status(&changed).await?;
        self.control.expectations.wrote(key, &written);
        Ok(())
    }
}

impl<K: Replicated> Reconciler for ReplicaSetLoop<K> {
    async fn reconcile(&self, key: Key) -> Result<Action, ReconcileError> {
        let expectations = &self.control.expectations;
        let Some(owner) = Lister::new(Arc::clone(self.owners.indexer())).get(&key) else {
            expectations.forget(&key);
            return Ok(Action::Done);
        };
        if !expectations.is_current(&key, &*owner) || !expectations.satisfied(&key, &self.pods) {
            return Ok(Action::RequeueAfter(RECHECK));
        }
        let Some(selector) = owner.selector() else { return Ok(Action::Done) };
        let all = candidates(self.pods.indexer(), &*owner, &selector);
        let (active, rest): (Vec<_>, Vec<_>) = all.into_iter().partition(|pod| pods::is_active(pod));
        let manager = ControllerRefManager::new(&self.context.client, &*owner);
        let active = manager.claim(active, |pod: &Pod| pod.is_selected(&selector)).await?;
        let terminating = rest
            .iter()
            .filter(|pod| pods::is_terminating(pod) && controller_uid(&***pod) == owner.identity().uid)
            .filter(|pod| pod.is_selected(&selector))
            .count();
        let active: Vec<&Pod> = active.iter().map(|pod| &**pod).collect();
        let now = self.context.clock.now();
        let deleted = capstan_api::object::Metadata::deletion_timestamp(owner.meta()).is_some();
        let too_many = active.len() > usize::try_from(owner.replicas()).unwrap_or_default();
        let related = if too_many { self.related_pods(&owner) } else { Vec::new() };
        let related: Vec<&Pod> = related.iter().map(|pod| &**pod).collect();
        let decision = if deleted { Scale::Enough } else { scale(&active, owner.replicas(), &related, now) };
        let managed = match decision {
            Scale::Enough => None,
            Scale::Create(missing) => Some(self.create(&owner, missing).await),
            Scale::Delete(surplus) => Some(self.delete(&owner, surplus).await),
        };
        // What was written shows up as an event soon, and then there is a status to write that is true for longer.
        let failure = match managed {
            Some(Ok(())) => return Ok(Action::Done),
            Some(Err(error)) => Some(error.to_string()),
            None => None,
        };
        let counts = owner.counts().count(
            &*owner,
            &active,
            pods::count(terminating),
            failure.as_deref().map(|message| Failure { message, active: pods::count(active.len()) }),
            now,
        );
        if counts != owner.counts() {
            self.write_status(&key, &owner, counts).await?;
        }
        match failure {
            Some(failure) => Err(ReconcileError::Retry(failure)),
            None => Ok(pods::next_availability(&active, owner.min_ready_seconds(), now)
                .map_or(Action::Done, Action::RequeueAfter)),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::pods::testing::{pod, start};

    #[test]
    fn how_many() {
        let pods: Vec<Pod> = ["a on:n ready", "b on:n", "c"].iter().map(|text| pod(text)).collect();
        let pods: Vec<&Pod> = pods.iter().collect();
        let check = |replicas: i32, expected: Scale<'_>| {
            assert_eq!(scale(&pods, replicas, &pods, start()), expected, "{replicas}");
        };
        check(3, Scale::Enough);
        check(5, Scale::Create(2));
        check(10_000, Scale::Create(BURST_REPLICAS));
        check(2, Scale::Delete(vec![pods[2]]));
        check(1, Scale::Delete(vec![pods[2], pods[1]]));
        check(0, Scale::Delete(pods.clone()));
    }
}
