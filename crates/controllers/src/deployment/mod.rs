//! Deployments: pods are replaced by new ones, a few at a time, and can be put back.
//!
//! [`plan`] decides what to write; this driver writes it and puts up with what goes wrong.

mod plan;
mod revision;
mod sizes;
mod status;
#[cfg(test)]
mod tests;

use std::{sync::Arc, time::Duration};

use capstan_api::{
    Resource,
    object::{Object, controller_of},
    options::DeleteOptions,
};
use capstan_client::{Api, BoxFuture, Deleted, Error, HandlerFuncs, Key, Lister, SharedIndexInformer};
use capstan_runtime::{Action, Controller, ReconcileError, Reconciler, handler::enqueue_request_for_object};
use k8s_openapi::api::apps::v1::{Deployment, ReplicaSet};

use crate::{
    ControllerContext,
    controller_ref::{ControllerRefManager, controller_uid, is_namespace_terminating, selector_of},
    drive::{drive, filled},
    pod::Pod,
    pods::expectations::{Expectations, RECHECK},
    recorder::Recorder,
    workload::{EnqueueController, WORKERS, candidates, controlled_by, index_by_controller},
};
use plan::{Plan, Told};
use status::reason;

/// Runs the loop.
pub(crate) fn run(context: &ControllerContext) -> BoxFuture<'static, ()> {
    let deployments = context.informers.informer::<Deployment>();
    let (sets, pods) = (context.informers.informer::<ReplicaSet>(), context.informers.informer::<Pod>());
    index_by_controller(&sets);
    index_by_controller(&pods);
    let loop_ = DeploymentLoop {
        context: context.clone(),
        deployments: deployments.clone(),
        sets: sets.clone(),
        pods: pods.clone(),
        events: Recorder::new(context, "deployment-controller"),
        expectations: Expectations::new(Arc::clone(&context.clock)),
    };
    let controller = Controller::new(loop_, Arc::clone(&context.clock)).max_concurrent_reconciles(WORKERS);
    let queue = controller.queue().clone();
    deployments.add_event_handler(enqueue_request_for_object::<Deployment>(queue.clone()));
    sets.add_event_handler(EnqueueController {
        queue: queue.clone(),
        owners: deployments.lister(),
        selector: |deployment: &Deployment| selector_of(&deployment.spec.as_ref()?.selector),
        batch: Duration::ZERO,
    });
    // Who does not run old and new pods side by side waits for the last of the old ones to go.
    let (owners, above) = (sets.clone(), deployments.clone());
    pods.add_event_handler(HandlerFuncs::<Pod>::new().on_delete(move |pod: &Deleted<Pod>| {
        let set = controller_in(&**pod.object(), &owners.lister());
        let deployment = set.and_then(|set| controller_in(&*set, &above.lister()));
        if let Some(deployment) = deployment.filter(|deployment| !sizes::is_rolling(deployment)) {
            queue.add(Key::of(&*deployment));
        }
    }));
    let caches = vec![filled(&deployments), filled(&sets), filled(&pods)];
    drive(context, "deployment", caches, controller)
}

/// Who controls an object, if it is of a kind.
fn controller_in<K: Object, O: Object + Resource>(object: &K, owners: &Lister<O>) -> Option<Arc<O>> {
    let references = object.owners();
    let reference = controller_of(&references)?;
    let owner = owners.namespace(object.identity().namespace).get(&reference.name)?;
    (*reference.kind == *O::gvk().kind && reference.uid == owner.identity().uid).then_some(owner)
}

struct DeploymentLoop {
    context: ControllerContext,
    deployments: SharedIndexInformer<Deployment>,
    sets: SharedIndexInformer<ReplicaSet>,
    pods: SharedIndexInformer<Pod>,
    events: Recorder,
    expectations: Expectations,
}

impl DeploymentLoop {
    fn tell(&self, about: &Deployment, told: Told) {
        self.events.tell(told.warning, about, told.reason, told.message);
    }

    fn deployments(&self, key: &Key) -> Api<Deployment> {
        Api::namespaced(&self.context.client, key.namespace())
    }

    async fn execute(&self, key: &Key, deployment: &Deployment, plan: Plan) -> Result<(), Error> {
        let sets = Api::<ReplicaSet>::namespaced(&self.context.client, key.namespace());
        plan.tell.into_iter().for_each(|told| self.tell(deployment, told));
        if let Some((set, told)) = plan.create {
            match sets.create(&set).await {
                Ok(created) => self.expectations.created(key, &created),
                Err(error) => return self.not_created(key, deployment, &set, error).await,
            }
            told.into_iter().for_each(|told| self.tell(deployment, told));
        }
        for (set, told) in plan.update {
            self.expectations.created(key, &sets.update(&set).await?);
            told.into_iter().for_each(|told| self.tell(deployment, told));
        }
        for name in plan.delete {
            match sets.delete(&name, &DeleteOptions::default()).await {
                Err(error) if !error.is_not_found() => return Err(error),
                _ => {}
            }
        }
        if let Some((changed, told)) = plan.deployment {
            let written = self.deployments(key).update(&changed).await?;
            self.expectations.wrote(key, &written);
            told.into_iter().for_each(|told| self.tell(deployment, told));
        }
        if let Some(changed) = plan.status {
            let written = self.deployments(key).update_status(&changed).await?;
            self.expectations.wrote(key, &written);
        }
        Ok(())
    }

    /// A ReplicaSet could not be made: its name is taken, or something forbids it.
    async fn not_created(
        &self,
        key: &Key,
        deployment: &Deployment,
        set: &ReplicaSet,
        error: Error,
    ) -> Result<(), Error> {
        let name = set.identity().name;
        let mut changed = deployment.clone();
        let status = changed.status.get_or_insert_default();
        if is_namespace_terminating(&error) {
            return Ok(());
        }
        if error.is_already_exists() {
            let there = Api::<ReplicaSet>::namespaced(&self.context.client, key.namespace()).get(name).await?;
            let same = revision::template(&there)
                .zip(revision::template(set))
                .is_some_and(|(there, wanted)| revision::equal_ignoring_hash(there, wanted));
            // Our own, which the cache does not show yet.
            if controller_uid(&there) == deployment.identity().uid && same {
                return Ok(());
            }
            status.collision_count = Some(status.collision_count.unwrap_or_default() + 1);
            let written = self.deployments(key).update_status(&changed).await?;
            self.expectations.wrote(key, &written);
            return Err(error);
        }
        let message = format!("Failed to create new replica set {name:?}: {error}");
        if status::progress_deadline(deployment).is_some() {
            let now = self.context.clock.now();
            let failed = status::condition(status::PROGRESSING, "False", reason::FAILED_CREATE, &message, now);
            status::set(status, failed);
            if deployment.status != changed.status
                && let Ok(written) = self.deployments(key).update_status(&changed).await
            {
                self.expectations.wrote(key, &written);
            }
        }
        self.events.warning(deployment, reason::FAILED_CREATE, message);
        Err(error)
    }
}

impl Reconciler for DeploymentLoop {
    async fn reconcile(&self, key: Key) -> Result<Action, ReconcileError> {
        let Some(deployment) = self.deployments.lister().get(&key) else {
            self.expectations.forget(&key);
            return Ok(Action::Done);
        };
        if !self.expectations.is_current(&key, &*deployment) || !self.expectations.satisfied(&key, &self.sets) {
            return Ok(Action::RequeueAfter(RECHECK));
        }
        let selector = deployment.spec.as_ref().and_then(|spec| selector_of(&spec.selector));
        let Some(selector) = selector else { return Ok(Action::Done) };
        let sets = if selector.is_everything() {
            Vec::new()
        } else {
            let sets = candidates(self.sets.indexer(), &*deployment, &selector);
            ControllerRefManager::new(&self.context.client, &*deployment)
                .claim(sets, |set: &ReplicaSet| set.is_selected(&selector))
                .await?
        };
        let sets: Vec<ReplicaSet> = sets.iter().map(|set| (**set).clone()).collect();
        let pods = |set: &ReplicaSet| {
            let pods = controlled_by(self.pods.indexer(), set.identity().uid);
            pods.iter().map(|pod| (**pod).clone()).collect()
        };
        let plan = plan::plan(&deployment, &sets, pods, self.context.clock.now());
        let again = plan.again.map_or(Action::Done, Action::RequeueAfter);
        self.execute(&key, &deployment, plan).await?;
        Ok(again)
    }
}
