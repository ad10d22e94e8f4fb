//! DaemonSets: a pod on every node that fits.

mod nodes;
mod plan;
#[cfg(test)]
mod tests;

use std::{
    cell::Cell,
    collections::HashMap,
    sync::{Arc, Mutex, PoisonError},
    time::Duration,
};

use capstan_api::{object::Object, selector::Selector};
use capstan_client::{Api, BoxFuture, Deleted, Error, HandlerFuncs, Key, SharedIndexInformer};
use capstan_clock::Moment;
use capstan_runtime::{
    Action, Controller, ReconcileError, Reconciler, SLOW_START_INITIAL_BATCH_SIZE, at_once,
    handler::enqueue_request_for_object, slow_start_batch,
};
use k8s_openapi::api::{
    apps::v1::{ControllerRevision, DaemonSet},
    core::v1::Node,
};

use crate::{
    ControllerContext,
    controller_ref::{ControllerRefManager, controller_uid, is_namespace_terminating, selector_of},
    drive::{drive, filled},
    hash::template_hash,
    history::{self, DATA_HASH, REVISION_HASH, Revisions},
    pod::Pod,
    pods::{
        control::PodControl,
        expectations::{Expectations, RECHECK},
        next_availability,
    },
    recorder::Recorder,
    workload::{EnqueueController, WORKERS, candidates, index_by_controller},
};

/// How long a pod that failed stays at least, and at most; twice as long each time.
const FAILED_POD_BACKOFF: (Duration, Duration) = (Duration::from_secs(1), Duration::from_secs(15 * 60));
/// How many nodes with failures are remembered.
const MAX_BACKOFFS: usize = 10_000;

/// Runs the loop.
pub(crate) fn run(context: &ControllerContext) -> BoxFuture<'static, ()> {
    let (sets, pods) = (context.informers.informer::<DaemonSet>(), context.informers.informer::<Pod>());
    let nodes = context.informers.informer::<Node>();
    index_by_controller(&pods);
    let expectations = Arc::new(Expectations::new(Arc::clone(&context.clock)));
    let revisions = Revisions::new(context, &expectations);
    let cache = revisions.cache().clone();
    let control = PodControl {
        client: context.client.clone(),
        events: Recorder::new(context, "daemonset-controller"),
        expectations,
    };
    let loop_ = DaemonSetLoop {
        context: context.clone(),
        sets: sets.clone(),
        pods: pods.clone(),
        revisions,
        nodes: nodes.clone(),
        control,
        failures: Mutex::default(),
    };
    let controller = Controller::new(loop_, Arc::clone(&context.clock)).max_concurrent_reconciles(WORKERS);
    let queue = controller.queue().clone();
    sets.add_event_handler(enqueue_request_for_object::<DaemonSet>(queue.clone()));
    pods.add_event_handler(EnqueueController {
        queue: queue.clone(),
        owners: sets.lister(),
        selector: |set: &DaemonSet| selector_of(&set.spec.as_ref()?.selector),
        batch: Duration::ZERO,
    });
    // A node that comes, goes or changes concerns all; its heartbeat concerns none.
    let all = {
        let sets = sets.clone();
        move || sets.lister().list(&Selector::everything()).iter().for_each(|set| queue.add(Key::of(&**set)))
    };
    let (added, changed, gone) = (all.clone(), all.clone(), all);
    let handler = HandlerFuncs::<Node>::new()
        .on_add(move |_, _| added())
        .on_update(move |old, new| {
            let matters = |node: &Node| (node.metadata.labels.clone(), node.spec.clone().and_then(|spec| spec.taints));
            if matters(old) != matters(new) {
                changed();
            }
        })
        .on_delete(move |_: &Deleted<Node>| gone());
    nodes.add_event_handler(handler);
    let caches = vec![filled(&sets), filled(&pods), filled(&cache), filled(&nodes)];
    drive(context, "daemonset", caches, controller)
}

struct DaemonSetLoop {
    context: ControllerContext,
    sets: SharedIndexInformer<DaemonSet>,
    pods: SharedIndexInformer<Pod>,
    revisions: Revisions,
    nodes: SharedIndexInformer<Node>,
    control: PodControl,
    /// When pods on a node may be replaced again, and how long they stay the next time they fail.
    failures: Mutex<HashMap<(String, String), (Moment, Duration)>>,
}

impl DaemonSetLoop {
    /// How long a pod that failed on a node stays yet. None if it may be replaced; the next one has to wait longer.
    fn backoff(&self, set: &str, node: &str) -> Option<Duration> {
        let now = self.context.clock.monotonic();
        let mut failures = self.failures.lock().unwrap_or_else(PoisonError::into_inner);
        if failures.len() >= MAX_BACKOFFS {
            failures.retain(|_, (until, _)| *until > now);
        }
        let (first, longest) = FAILED_POD_BACKOFF;
        let known = failures.get(&(set.to_owned(), node.to_owned())).copied();
        if let Some((until, _)) = known.filter(|(until, _)| now < *until) {
            return Some(until.since(now));
        }
        // Who has done well for a long time begins anew.
        let wait = known
            .filter(|(until, _)| now.since(*until) < longest * 2)
            .map_or(first, |(_, wait)| (wait * 2).min(longest));
        failures.insert((set.to_owned(), node.to_owned()), (now.plus(wait), wait));
        None
    }

    /// The revisions, oldest first, the last being that of the present template. None if its name is taken: then that
    /// is noted in the status, and makes another name.
    async fn sync_revisions(
        &self,
        key: &Key,
        set: &DaemonSet,
        selector: &Selector,
    ) -> Result<Option<Vec<ControllerRevision>>, ReconcileError> {
        let template = set.spec.as_ref().map(|spec| spec.template.clone()).unwrap_or_default();
        let mut revisions = self.revisions.claim(set, selector).await?;
        if self.revisions.raise(key, &mut revisions, &template).await? {
            return Ok(Some(revisions));
        }
        let collisions = set.status.as_ref().and_then(|status| status.collision_count);
        let hash = template_hash(&template, collisions);
        let mut new = history::new(set, &template, history::next_revision(&revisions), 0);
        new.metadata.name = Some(history::name(set.identity().name, &hash));
        let labels = new.metadata.labels.get_or_insert_default();
        labels.remove(DATA_HASH);
        labels.insert(REVISION_HASH.to_owned(), hash);
        let api = self.revisions.api(key);
        let there = match api.create(&new).await {
            Ok(written) => self.revisions.wrote(key, written),
            Err(error) if error.is_already_exists() => api.get(new.identity().name).await?,
            Err(error) => return Err(error.into()),
        };
        if there.data == new.data && controller_uid(&there) == set.identity().uid {
            revisions.push(there);
            return Ok(Some(revisions));
        }
        let mut changed = set.clone();
        changed.status.get_or_insert_default().collision_count = Some(collisions.unwrap_or_default() + 1);
        self.write_status(key, changed).await?;
        Ok(None)
    }

    async fn write_status(&self, key: &Key, changed: DaemonSet) -> Result<(), Error> {
        let api = Api::<DaemonSet>::namespaced(&self.context.client, key.namespace());
        self.control.expectations.wrote(key, &api.update_status(&changed).await?);
        Ok(())
    }

    async fn carry_out(
        &self,
        set: &Arc<DaemonSet>,
        hash: &str,
        create: &[String],
        delete: &[&Pod],
    ) -> Result<(), Error> {
        let spec = set.spec.clone().unwrap_or_default();
        let (_, created) = slow_start_batch(create.len(), SLOW_START_INITIAL_BATCH_SIZE, |at| {
            let pod = nodes::new_pod(set, &spec, hash, &create[at]);
            let (control, set) = (self.control.clone(), Arc::clone(set));
            async move {
                match control.create(&*set, &pod).await {
                    Err(error) if !is_namespace_terminating(&error) => Err(error),
                    _ => Ok(()),
                }
            }
        })
        .await;
        let deleted = at_once(delete.iter().map(|pod| {
            let (control, set, pod) = (self.control.clone(), Arc::clone(set), (*pod).clone());
            async move { control.delete(&*set, &pod).await }
        }))
        .await;
        created.and(deleted)
    }

    /// Deletes revisions that nothing is of, beyond those to keep.
    async fn truncate(
        &self,
        key: &Key,
        set: &DaemonSet,
        old: &[ControllerRevision],
        pods: &[&Pod],
    ) -> Result<(), Error> {
        let limit = set.spec.as_ref().and_then(|spec| spec.revision_history_limit).unwrap_or(10);
        let limit = usize::try_from(limit).unwrap_or_default();
        let hash = |labels: Option<&std::collections::BTreeMap<String, String>>| {
            labels.and_then(|labels| labels.get(REVISION_HASH).cloned())
        };
        let is_live = |revision: &&ControllerRevision| {
            pods.iter().any(|pod| hash(Some(pod.metadata.labels())) == hash(revision.metadata.labels.as_ref()))
        };
        let dead: Vec<_> = old.iter().filter(|revision| !is_live(revision)).collect();
        self.revisions.delete(key, &dead, old.len().saturating_sub(limit)).await
    }
}

impl Reconciler for DaemonSetLoop {
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
        let Some(spec) = set.spec.as_ref().filter(|_| set.metadata.deletion_timestamp.is_none()) else {
            return Ok(Action::Done);
        };
        let Some(selector) = selector_of(&spec.selector) else { return Ok(Action::Done) };
        if selector.is_everything() {
            let message = "This daemon set is selecting all pods. A non-empty selector is required.";
            self.control.events.warning(&*set, "SelectingAll", message);
            return Ok(Action::Done);
        }
        let Some(revisions) = self.sync_revisions(&key, &set, &selector).await? else { return Ok(Action::Done) };
        let Some((newest, old)) = revisions.split_last() else { return Ok(Action::Done) };
        let hash = newest.metadata.labels.as_ref().and_then(|labels| labels.get(REVISION_HASH)).cloned();
        let hash = hash.unwrap_or_default();
        let manager = ControllerRefManager::new(&self.context.client, &*set);
        let pods = candidates(self.pods.indexer(), &*set, &selector);
        let pods = manager.claim(pods, |pod| pod.is_selected(&selector)).await?;
        let pods: Vec<&Pod> = pods.iter().map(|pod| &**pod).collect();
        let nodes = self.nodes.lister().list(&Selector::everything());
        let nodes: Vec<&Node> = nodes.iter().map(|node| &**node).collect();
        let now = self.context.clock.now();
        let again = Cell::new(next_availability(&pods, spec.min_ready_seconds.unwrap_or_default(), now));
        let plan = plan::plan(
            &set,
            &hash,
            &nodes,
            &pods,
            |node| {
                let wait = self.backoff(set.identity().uid, node);
                again.set(again.get().into_iter().chain(wait).min());
                wait.is_none()
            },
            now,
        );
        let again = again.into_inner();
        for (warning, reason, message) in plan.tell {
            self.control.events.tell(warning, &*set, reason, message);
        }
        let acts = !plan.create.is_empty() || !plan.delete.is_empty();
        let done = self.carry_out(&set, &hash, &plan.create, &plan.delete).await;
        // A pod that came or went is told of soon, and then there is a status to write that is true for longer.
        if (!acts || done.is_err()) && set.status.as_ref() != Some(&plan.status) {
            self.write_status(&key, DaemonSet { status: Some(plan.status), ..(*set).clone() }).await?;
        }
        done?;
        self.truncate(&key, &set, old, &pods).await?;
        Ok(again.map_or(Action::Done, Action::RequeueAfter))
    }
}
