//! Jobs: pods that run until enough of them have succeeded.
//!
//! [`sync`] decides, this driver carries it out. [`orphans`] frees pods that no Job will ever count.

mod backoff;
mod indexes;
mod orphans;
mod policy;
mod sync;
pub(crate) mod template;

use std::{
    collections::HashMap,
    sync::{Arc, Mutex, PoisonError},
    time::Duration,
};

use capstan_api::object::Object;
use capstan_client::{Api, BoxFuture, Error, Key, Patch, SharedIndexInformer};
use capstan_runtime::{
    Action, Controller, ReconcileError, Reconciler, SLOW_START_INITIAL_BATCH_SIZE, at_once,
    handler::enqueue_request_for_object,
    slow_start_batch,
    workqueue::{ItemExponentialFailureRateLimiter, PriorityQueue},
};
use k8s_openapi::api::batch::v1::Job;
use serde_json::json;

use crate::{
    ControllerContext,
    controller_ref::{ControllerRefManager, is_namespace_terminating, selector_of},
    drive::{drive, filled, join},
    pod::Pod,
    pods::{
        self,
        control::PodControl,
        expectations::{Expectations, RECHECK},
    },
    recorder::Recorder,
    workload::{EnqueueController, WORKERS, candidates, index_by_controller},
};
use backoff::Record;
use sync::{Manage, Managed, Sync, TRACKING_FINALIZER, has_finalizer, is_finished};

/// Pods of a Job tend to end together: so long more of them are waited for.
const BATCH_PERIOD: Duration = Duration::from_millis(100);
/// How long a Job waits at first, and at most, when the server did not do what it was asked.
const API_BACKOFF: (Duration, Duration) = (Duration::from_secs(1), Duration::from_secs(60));
/// Who runs Jobs unless they say otherwise.
const CONTROLLER_NAME: &str = "kubernetes.io/job-controller";

/// Runs the loop.
pub(crate) fn run(context: &ControllerContext) -> BoxFuture<'static, ()> {
    let (jobs, pods) = (context.informers.informer::<Job>(), context.informers.informer::<Pod>());
    index_by_controller(&pods);
    let control = PodControl {
        client: context.client.clone(),
        events: Recorder::new(context, "job-controller"),
        expectations: Arc::new(Expectations::new(Arc::clone(&context.clock))),
    };
    let loop_ = JobLoop {
        context: context.clone(),
        jobs: jobs.clone(),
        pods: pods.clone(),
        control,
        backoffs: Mutex::default(),
    };
    let controller = Controller::new(loop_, Arc::clone(&context.clock))
        .with_queue(queue(context))
        .max_concurrent_reconciles(WORKERS);
    let queue = controller.queue().clone();
    jobs.add_event_handler(enqueue_request_for_object::<Job>(queue.clone()));
    pods.add_event_handler(EnqueueController {
        queue,
        owners: jobs.lister(),
        selector: |job: &Job| selector_of(job.spec.as_ref()?.selector.as_ref()?),
        batch: BATCH_PERIOD,
    });
    let orphans = orphans::run(context, &jobs, &pods);
    let counted = drive(context, "job", vec![filled(&jobs), filled(&pods)], controller);
    Box::pin(async move {
        join(counted, orphans).await;
    })
}

/// A queue whose failures wait for at most a minute: a Job that cannot make its pods now may soon.
fn queue(context: &ControllerContext) -> PriorityQueue<Key> {
    let limiter = ItemExponentialFailureRateLimiter::new(API_BACKOFF.0, API_BACKOFF.1);
    PriorityQueue::new(Arc::clone(&context.clock), Arc::new(limiter))
}

/// Whether somebody else runs the Job.
fn is_managed_elsewhere(job: &Job) -> bool {
    job.spec.as_ref().and_then(|spec| spec.managed_by.as_deref()).is_some_and(|by| by != CONTROLLER_NAME)
}

struct JobLoop {
    context: ControllerContext,
    jobs: SharedIndexInformer<Job>,
    pods: SharedIndexInformer<Pod>,
    control: PodControl,
    /// The failures of the Jobs that have not ended.
    backoffs: Mutex<HashMap<Key, Record>>,
}

impl JobLoop {
    fn backoffs<T>(&self, change: impl FnOnce(&mut HashMap<Key, Record>) -> T) -> T {
        change(&mut self.backoffs.lock().unwrap_or_else(PoisonError::into_inner))
    }

    fn pods_api(&self, key: &Key) -> Api<Pod> {
        Api::namespaced(&self.context.client, key.namespace())
    }

    async fn manage(&self, key: &Key, job: &Arc<Job>, manage: Manage<'_>) -> (Managed, Result<(), Error>) {
        match manage {
            Manage::Nothing => (Managed::default(), Ok(())),
            Manage::Create(which) => {
                let (created, result) = slow_start_batch(which.len(), SLOW_START_INITIAL_BATCH_SIZE, |at| {
                    let pod = template::pod(job, which[at]);
                    let (control, job) = (self.control.clone(), Arc::clone(job));
                    async move {
                        match control.create(&*job, &pod).await {
                            Err(error) if !is_namespace_terminating(&error) => Err(error),
                            _ => Ok(()),
                        }
                    }
                })
                .await;
                (Managed { created: pods::count(created), ..Managed::default() }, result)
            }
            Manage::Delete { pods, uncounted } => {
                let deleted: Arc<Mutex<Managed>> = Arc::default();
                let result = at_once(pods.into_iter().map(|pod| {
                    let (control, job, pod) = (self.control.clone(), Arc::clone(job), pod.clone());
                    let (deleted, api) = (Arc::clone(&deleted), self.pods_api(key));
                    async move {
                        if uncounted && has_finalizer(&pod) {
                            free(&api, &pod).await?;
                        }
                        control.delete(&*job, &pod).await?;
                        let mut deleted = deleted.lock().unwrap_or_else(PoisonError::into_inner);
                        deleted.deleted += 1;
                        deleted.deleted_ready += i32::from(pods::is_ready(&pod));
                        Ok(())
                    }
                }))
                .await;
                let deleted = *deleted.lock().unwrap_or_else(PoisonError::into_inner);
                (deleted, result)
            }
        }
    }

    /// Removes the finalizers of pods; gives those that have none any more.
    async fn remove_finalizers(&self, key: &Key, pods: Vec<&Pod>) -> (Vec<Pod>, Result<(), Error>) {
        let freed: Arc<Mutex<Vec<Pod>>> = Arc::default();
        let result = at_once(pods.into_iter().map(|pod| {
            let (api, pod, freed) = (self.pods_api(key), pod.clone(), Arc::clone(&freed));
            let (expectations, key) = (Arc::clone(&self.control.expectations), key.clone());
            async move {
                if let Some(written) = free(&api, &pod).await? {
                    expectations.created(&key, &written);
                }
                freed.lock().unwrap_or_else(PoisonError::into_inner).push(pod);
                Ok(())
            }
        }))
        .await;
        let freed = std::mem::take(&mut *freed.lock().unwrap_or_else(PoisonError::into_inner));
        (freed, result)
    }

    async fn write_status(
        &self,
        key: &Key,
        job: &mut Job,
        status: &k8s_openapi::api::batch::v1::JobStatus,
    ) -> Result<(), Error> {
        job.status = Some(status.clone());
        *job = Api::<Job>::namespaced(&self.context.client, key.namespace()).update_status(job).await?;
        self.control.expectations.wrote(key, job);
        Ok(())
    }
}

/// Removes the finalizer of a pod; none if the pod is gone.
async fn free(pods: &Api<Pod>, pod: &Pod) -> Result<Option<Pod>, Error> {
    let patch = json!({"metadata": {"$deleteFromPrimitiveList/finalizers": [TRACKING_FINALIZER]}});
    match pods.patch(pod.identity().name, &Patch::Strategic(patch)).await {
        Err(error) if error.is_not_found() => Ok(None),
        other => other.map(Some),
    }
}

impl Reconciler for JobLoop {
    async fn reconcile(&self, key: Key) -> Result<Action, ReconcileError> {
        let expectations = &self.control.expectations;
        let Some(job) = self.jobs.lister().get(&key).filter(|job| !is_finished(job)) else {
            expectations.forget(&key);
            self.backoffs(|all| all.remove(&key));
            return Ok(Action::Done);
        };
        if is_managed_elsewhere(&job) {
            return Ok(Action::Done);
        }
        if !expectations.is_current(&key, &*job) || !expectations.satisfied(&key, &self.pods) {
            return Ok(Action::RequeueAfter(RECHECK));
        }
        let Some(spec) = &job.spec else { return Ok(Action::Done) };
        if !matches!(spec.completion_mode.as_deref(), None | Some("NonIndexed" | "Indexed")) {
            let message = "Skipped Job sync because completion mode is unknown";
            self.control.events.warning(&*job, "UnknownCompletionMode", message);
            return Ok(Action::Done);
        }
        let Some(selector) = spec.selector.as_ref().and_then(selector_of) else { return Ok(Action::Done) };
        let manager = ControllerRefManager::new(&self.context.client, &*job).with_finalizers(&[TRACKING_FINALIZER]);
        let pods = candidates(self.pods.indexer(), &*job, &selector);
        let pods = manager.claim(pods, |pod: &Pod| pod.is_selected(&selector)).await?;
        let pods: Vec<&Pod> = pods.iter().map(|pod| &**pod).collect();
        let known = self.backoffs(|all| all.get(&key).copied()).unwrap_or_default();
        let mut sync = Sync::new(&job, spec, pods, known, self.context.clock.now());

        let manage = sync.manage();
        let (outcome, managed) = self.manage(&key, &job, manage).await;
        sync.managed(outcome);
        let free = sync.track();
        let mut written = (*job).clone();
        if sync.flush() {
            self.write_status(&key, &mut written, &sync.status).await?;
            let record = sync.backoff;
            self.backoffs(|all| all.insert(key.clone(), record));
        }
        let (freed, removed) = self.remove_finalizers(&key, free).await;
        sync.counted(&freed);
        if removed.is_ok() {
            sync.finish();
        }
        if sync.flush() {
            self.write_status(&key, &mut written, &sync.status).await?;
        }
        for told in sync.tell {
            self.control.events.tell(told.warning, &*job, &told.reason, told.message);
        }
        removed?;
        managed?;
        Ok(sync.again.map_or(Action::Done, Action::RequeueAfter))
    }
}
