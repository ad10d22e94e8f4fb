//! StatefulSets: pods with names and claims of their own, one after the other.

mod plan;
mod pods;

use std::{sync::Arc, time::Duration};

use capstan_api::{Resource, object::Object, options::DeleteOptions, selector::Selector};
use capstan_client::{Api, BoxFuture, Deleted, Error, HandlerFuncs, Key, SharedIndexInformer};
use capstan_runtime::{
    Action, Controller, ReconcileError, Reconciler, SLOW_START_INITIAL_BATCH_SIZE, handler::enqueue_request_for_object,
    slow_start_batch,
};
use k8s_openapi::api::{
    apps::v1::{ControllerRevision, StatefulSet},
    core::v1::PersistentVolumeClaim,
};

use crate::{
    ControllerContext,
    controller_ref::{ControllerRefManager, reference_to, selector_of},
    drive::{drive, filled},
    history::{self, Revisions},
    pod::{Pod, WholePod, whole},
    pods::{
        expectations::{Expectations, RECHECK},
        next_availability,
    },
    recorder::Recorder,
    workload::{EnqueueController, WORKERS, candidates, index_by_controller},
};
use plan::{Revision, Step};

/// Runs the loop.
pub(crate) fn run(context: &ControllerContext) -> BoxFuture<'static, ()> {
    let (sets, pods) = (context.informers.informer::<StatefulSet>(), context.informers.informer::<Pod>());
    let claims = context.informers.informer::<PersistentVolumeClaim>();
    index_by_controller(&pods);
    let expectations = Arc::new(Expectations::new(Arc::clone(&context.clock)));
    let revisions = Revisions::new(context, &expectations);
    let cache = revisions.cache().clone();
    let control = PodControl {
        context: context.clone(),
        claims: claims.clone(),
        events: Recorder::new(context, "statefulset-controller"),
        expectations,
    };
    let loop_ = StatefulSetLoop {
        context: context.clone(),
        sets: sets.clone(),
        pods: pods.clone(),
        revisions,
        control: Arc::new(control),
    };
    let controller = Controller::new(loop_, Arc::clone(&context.clock)).max_concurrent_reconciles(WORKERS);
    let queue = controller.queue().clone();
    sets.add_event_handler(enqueue_request_for_object::<StatefulSet>(queue.clone()));
    // A pod may wait for a claim of that name to be gone.
    claims.add_event_handler(HandlerFuncs::new().on_delete({
        let (queue, sets) = (queue.clone(), sets.lister());
        move |claim: &Deleted<PersistentVolumeClaim>| {
            let claim = claim.object().identity();
            let of_namespace = sets.namespace(claim.namespace).list(&Selector::everything());
            let waiting = of_namespace.iter().filter(|set| pods::is_claim_of(set, claim.name));
            waiting.for_each(|set| queue.add(Key::of(&**set)));
        }
    }));
    pods.add_event_handler(EnqueueController {
        queue,
        owners: sets.lister(),
        selector: |set: &StatefulSet| selector_of(&set.spec.as_ref()?.selector),
        batch: Duration::ZERO,
    });
    let caches = vec![filled(&sets), filled(&pods), filled(&cache), filled(&claims)];
    drive(context, "statefulset", caches, controller)
}

/// Carries out steps, and tells of them.
struct PodControl {
    context: ControllerContext,
    claims: SharedIndexInformer<PersistentVolumeClaim>,
    events: Recorder,
    expectations: Arc<Expectations>,
}

impl PodControl {
    fn tell(&self, verb: &str, set: &StatefulSet, pod: &impl Object, error: Option<&Error>) {
        let (pod, name) = (pod.identity().name, set.identity().name);
        match error {
            None => {
                let message = format!("{verb} Pod {pod} in StatefulSet {name} successful");
                self.events.normal(set, &format!("Successful{verb}"), message);
            }
            Some(error) => {
                let message = format!("{verb} Pod {pod} in StatefulSet {name} failed error: {error}");
                self.events.warning(set, &format!("Failed{verb}"), message);
            }
        }
    }

    async fn carry_out(&self, key: &Key, set: &StatefulSet, step: &Step) -> Result<(), Error> {
        let api = Api::<WholePod>::namespaced(&self.context.client, key.namespace());
        match step {
            Step::Create(pod) => {
                let created = async {
                    self.create_claims(key, set, &**pod).await?;
                    api.create(pod).await
                }
                .await;
                match created {
                    Ok(created) => {
                        self.expectations.created_as::<Pod>(key, &created);
                        self.tell("Create", set, &created, None);
                        self.set_retention(key, set, &created, true).await
                    }
                    Err(error) if error.is_already_exists() => Err(error),
                    Err(error) => {
                        self.tell("Create", set, &**pod, Some(&error));
                        Err(error)
                    }
                }
            }
            Step::Claims(pod) => {
                self.create_claims(key, set, &**pod).await?;
                self.set_retention(key, set, &**pod, true).await
            }
            Step::Retention(pod) => self.set_retention(key, set, &**pod, false).await,
            Step::Update { pod, identity, storage } => {
                let updated = async {
                    self.create_claims(key, set, &**pod).await?;
                    let mut whole = whole(&self.context.client, pod).await?;
                    let ordinal = pods::ordinal(set, &**pod);
                    if let Some(ordinal) = ordinal.filter(|_| *identity) {
                        pods::set_identity(&mut whole, ordinal);
                    }
                    if let Some(ordinal) = ordinal.filter(|_| *storage) {
                        pods::set_storage(set, &mut whole, ordinal);
                    }
                    api.update(&whole).await
                }
                .await;
                self.tell("Update", set, &**pod, updated.as_ref().err());
                self.expectations.created_as::<Pod>(key, &updated?);
                Ok(())
            }
            Step::Delete(pod) => {
                let deleted = match api.delete(pod.identity().name, &DeleteOptions::default()).await {
                    Err(error) if error.is_not_found() => Ok(()),
                    other => other,
                };
                self.tell("Delete", set, &**pod, deleted.as_ref().err());
                deleted?;
                self.expectations.deleted(key, &**pod);
                Ok(())
            }
        }
    }

    /// Whether a claim of a pod that shall be made is about to go with one that was there before.
    fn is_stale(&self, key: &Key, set: &StatefulSet, pod: &WholePod) -> bool {
        let claims = pods::ordinal(set, pod).filter(|_| pods::goes_when_scaled(set));
        let mut claims = claims.into_iter().flat_map(|ordinal| pods::claims(set, ordinal));
        claims.any(|(_, claim)| {
            let there = self.claims.lister().namespace(key.namespace()).get(claim.identity().name);
            there.is_some_and(|there| pods::has_stale_owner(&there, &reference_to(pod)))
        })
    }

    async fn create_claims(&self, key: &Key, set: &StatefulSet, pod: &impl Object) -> Result<(), Error> {
        let Some(ordinal) = pods::ordinal(set, pod) else { return Ok(()) };
        let api = Api::<PersistentVolumeClaim>::namespaced(&self.context.client, key.namespace());
        for (_, claim) in pods::claims(set, ordinal) {
            let name = claim.identity().name;
            match self.claims.lister().namespace(key.namespace()).get(name) {
                Some(there) if there.metadata.deletion_timestamp.is_some() => {
                    return Err(Error::Decode(format!("pvc {name} is being deleted")));
                }
                Some(_) => continue,
                None => {}
            }
            let (pod, set_name) = (pod.identity().name, set.identity().name);
            match api.create(&claim).await {
                Ok(_) => {
                    let message = format!("Create Claim {name} Pod {pod} in StatefulSet {set_name} success");
                    self.events.normal(set, "SuccessfulCreate", message);
                }
                // The cache is behind.
                Err(error) if error.is_already_exists() => {}
                Err(error) => {
                    let message =
                        format!("Create Claim {name} for Pod {pod} in StatefulSet {set_name} failed error: {error}");
                    self.events.warning(set, "FailedCreate", message);
                    return Err(Error::Decode(format!("failed to create PVC {name}: {error}")));
                }
            }
        }
        Ok(())
    }

    /// Has the claims of a pod go with whom they shall. `is_new` if the pod is, or waits for them: then it is told of
    /// those that somebody else controls; later only when there is something to mend.
    async fn set_retention(
        &self,
        key: &Key,
        set: &StatefulSet,
        pod: &(impl Resource + Object),
        is_new: bool,
    ) -> Result<(), Error> {
        let Some(ordinal) = pods::ordinal(set, pod) else { return Ok(()) };
        let api = Api::<PersistentVolumeClaim>::namespaced(&self.context.client, key.namespace());
        for (_, claim) in pods::claims(set, ordinal) {
            let there = self.claims.lister().namespace(key.namespace()).get(claim.identity().name);
            let Some(there) = there else { continue };
            let owners = pods::new_owners(&there, set, pod);
            if (is_new || owners.is_some()) && pods::has_unexpected_controller(&there, set, pod) {
                let message = format!(
                    "PersistentVolumeClaim {} has a conflicting OwnerReference that acts as a manging controller, the \
                     retention policy is ignored for this claim",
                    claim.identity().name
                );
                self.events.warning(set, "ConflictingController", message);
            }
            if let Some(owners) = owners {
                let mut changed = (*there).clone();
                changed.metadata.owner_references = Some(owners).filter(|owners| !owners.is_empty());
                if let Err(error) = api.update(&changed).await {
                    let name = claim.identity().name;
                    let error =
                        Error::Decode(format!("could not update claim {name} for delete policy ownerRefs: {error}"));
                    self.tell("Update", set, pod, Some(&error));
                    return Err(error);
                }
            }
        }
        Ok(())
    }
}

struct StatefulSetLoop {
    context: ControllerContext,
    sets: SharedIndexInformer<StatefulSet>,
    pods: SharedIndexInformer<Pod>,
    revisions: Revisions,
    control: Arc<PodControl>,
}

impl StatefulSetLoop {
    /// All revisions, oldest first, the newest being that of the present template.
    async fn sync_revisions(
        &self,
        key: &Key,
        set: &StatefulSet,
        selector: &Selector,
        collisions: &mut i32,
    ) -> Result<Vec<ControllerRevision>, ReconcileError> {
        let template = set.spec.as_ref().map(|spec| spec.template.clone()).unwrap_or_default();
        let mut revisions = self.revisions.claim(set, selector).await?;
        if !self.revisions.raise(key, &mut revisions, &template).await? {
            let new = history::new(set, &template, history::next_revision(&revisions), *collisions);
            let written = history::create(&self.revisions.api(key), set.identity().name, new, collisions).await?;
            revisions.push(self.revisions.wrote(key, written));
        }
        Ok(revisions)
    }

    /// Deletes revisions that nothing is of, beyond those to keep.
    async fn truncate(
        &self,
        key: &Key,
        set: &StatefulSet,
        revisions: &[ControllerRevision],
        live: &[&str],
    ) -> Result<(), Error> {
        let limit = set.spec.as_ref().and_then(|spec| spec.revision_history_limit).unwrap_or(10);
        let Ok(limit) = usize::try_from(limit) else { return Ok(()) };
        let dead: Vec<_> = revisions.iter().filter(|r| !live.contains(&r.identity().name)).collect();
        self.revisions.delete(key, &dead, dead.len().saturating_sub(limit)).await
    }

    async fn carry_out(&self, key: &Key, set: &Arc<StatefulSet>, steps: Vec<Step>, burst: bool) -> Result<(), Error> {
        if !burst {
            for step in &steps {
                self.control.carry_out(key, set, step).await?;
            }
            return Ok(());
        }
        let steps = Arc::new(steps);
        slow_start_batch(steps.len(), SLOW_START_INITIAL_BATCH_SIZE, |at| {
            let (control, set, key) = (Arc::clone(&self.control), Arc::clone(set), key.clone());
            let steps = Arc::clone(&steps);
            async move { control.carry_out(&key, &set, &steps[at]).await }
        })
        .await
        .1
    }
}

impl Reconciler for StatefulSetLoop {
    async fn reconcile(&self, key: Key) -> Result<Action, ReconcileError> {
        let expectations = &self.control.expectations;
        let Some(set) = self.sets.lister().get(&key) else {
            expectations.forget(&key);
            return Ok(Action::Done);
        };
        if !expectations.is_current(&key, &*set)
            || !expectations.satisfied(&key, &self.pods)
            || !expectations.satisfied(&key, self.revisions.cache())
        {
            return Ok(Action::RequeueAfter(RECHECK));
        }
        let Some(spec) = &set.spec else { return Ok(Action::Done) };
        let Some(selector) = selector_of(&spec.selector) else { return Ok(Action::Done) };
        let pods = candidates(self.pods.indexer(), &*set, &selector);
        let fits = |pod: &Pod| pod.is_selected(&selector) && pods::ordinal(&set, pod).is_some();
        let pods = ControllerRefManager::new(&self.context.client, &*set).claim(pods, fits).await?;
        let pods: Vec<&Pod> = pods.iter().map(|pod| &**pod).collect();

        let before = set.status.clone().unwrap_or_default();
        let mut collisions = before.collision_count.unwrap_or_default();
        let revisions = self.sync_revisions(&key, &set, &selector, &mut collisions).await?;
        let Some(newest) = revisions.last() else { return Ok(Action::Done) };
        let current = revisions.iter().find(|r| Some(r.identity().name) == before.current_revision.as_deref());
        let current = current.unwrap_or(newest);
        let kept = history::template(current).unwrap_or_else(|| spec.template.clone());
        let now = self.context.clock.now();
        let plan = plan::plan(
            &set,
            &pods,
            [
                &Revision { name: current.identity().name, template: &kept },
                &Revision { name: newest.identity().name, template: &spec.template },
            ],
            |pod| self.control.is_stale(&key, &set, pod),
            collisions,
            now,
        );
        let acted = plan.steps.iter().any(|step| matches!(step, Step::Create(_) | Step::Delete(_)));
        let burst = spec.pod_management_policy.as_deref() == Some("Parallel");
        let done = self.carry_out(&key, &set, plan.steps, burst).await;
        // A pod that came or went is told of soon, and then there is a status to write that is true for longer.
        if (!acted || done.is_err()) && plan.status != before {
            let changed = StatefulSet { status: Some(plan.status), ..(*set).clone() };
            let api = Api::<StatefulSet>::namespaced(&self.context.client, key.namespace());
            expectations.wrote(&key, &api.update_status(&changed).await?);
        }
        done?;
        let mut live: Vec<&str> = pods.iter().map(|pod| pods::revision(pod)).collect();
        live.extend([current.identity().name, newest.identity().name]);
        self.truncate(&key, &set, &revisions, &live).await?;
        let min_ready = spec.min_ready_seconds.unwrap_or_default();
        Ok(next_availability(&pods, min_ready, now).map_or(Action::Done, Action::RequeueAfter))
    }
}
