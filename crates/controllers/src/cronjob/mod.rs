//! CronJobs: Jobs at their times.

mod plan;
mod schedule;

use std::sync::Arc;

use capstan_api::{
    Resource as _,
    object::Object,
    options::{DeleteOptions, Preconditions},
};
use capstan_client::{Api, BoxFuture, Error, Key, SharedIndexInformer};
use capstan_runtime::{
    Action, Controller, ReconcileError, Reconciler,
    handler::{enqueue_request_for_object, enqueue_request_for_owner},
};
use k8s_openapi::api::batch::v1::{CronJob, Job};

use crate::{
    ControllerContext,
    controller_ref::{controller_uid, is_namespace_terminating},
    drive::{drive, filled},
    pods::{
        expectations::{Expectations, RECHECK},
        time,
    },
    recorder::Recorder,
    workload::{WORKERS, controlled_by, index_by_controller},
};

/// Runs the loop.
pub(crate) fn run(context: &ControllerContext) -> BoxFuture<'static, ()> {
    let (crons, jobs) = (context.informers.informer::<CronJob>(), context.informers.informer::<Job>());
    index_by_controller(&jobs);
    let loop_ = CronJobLoop {
        context: context.clone(),
        crons: crons.clone(),
        jobs: jobs.clone(),
        events: Recorder::new(context, "cronjob-controller"),
        expectations: Expectations::new(Arc::clone(&context.clock)),
    };
    let controller = Controller::new(loop_, Arc::clone(&context.clock)).max_concurrent_reconciles(WORKERS);
    let queue = controller.queue().clone();
    crons.add_event_handler(enqueue_request_for_object::<CronJob>(queue.clone()));
    jobs.add_event_handler(enqueue_request_for_owner::<Job>(queue, CronJob::gvk().group_kind(), CronJob::SCOPE, true));
    drive(context, "cronjob", vec![filled(&crons), filled(&jobs)], controller)
}

struct CronJobLoop {
    context: ControllerContext,
    crons: SharedIndexInformer<CronJob>,
    jobs: SharedIndexInformer<Job>,
    events: Recorder,
    expectations: Expectations,
}

impl CronJobLoop {
    fn jobs(&self, key: &Key) -> Api<Job> {
        Api::namespaced(&self.context.client, key.namespace())
    }

    async fn delete(&self, key: &Key, cron: &CronJob, name: &str, uid: &str) -> Result<(), Error> {
        let preconditions = Preconditions { uid: Some(uid.to_owned()), ..Preconditions::default() };
        let options = DeleteOptions {
            propagation_policy: Some("Background".to_owned()),
            preconditions: Some(preconditions),
            ..DeleteOptions::default()
        };
        match self.jobs(key).delete(name, &options).await {
            Err(error) if !error.is_not_found() && !error.is_conflict() => {
                self.events.warning(cron, "FailedDelete", format!("Deleted job: {error}"));
                Err(error)
            }
            _ => {
                self.events.normal(cron, "SuccessfulDelete", format!("Deleted job {name}"));
                Ok(())
            }
        }
    }

    /// Makes the Job whose time has come, and notes it in the status. Those in its way go first.
    async fn start(&self, key: &Key, cron: &CronJob, plan: &mut plan::Plan) -> Result<(), Error> {
        for (name, uid) in &plan.replace {
            self.delete(key, cron, name, uid).await?;
            plan::forget(&mut plan.status, uid);
        }
        let Some((due, job)) = &plan.create else { return Ok(()) };
        if let Some(job) = self.create(key, cron, job).await? {
            if plan::ended(&job).is_none() {
                plan.status.active.get_or_insert_default().push(plan::reference(&job));
            }
            plan.status.last_schedule_time = Some(time(*due));
        }
        Ok(())
    }

    /// The Job that is there in the end, if it is ours.
    async fn create(&self, key: &Key, cron: &CronJob, job: &Job) -> Result<Option<Job>, Error> {
        match self.jobs(key).create(job).await {
            Ok(created) => {
                self.expectations.created(key, &created);
                self.events.normal(cron, "SuccessfulCreate", format!("Created job {}", created.identity().name));
                Ok(Some(created))
            }
            Err(error) if is_namespace_terminating(&error) => Ok(None),
            Err(error) if error.is_already_exists() => {
                let there = self.jobs(key).get(job.identity().name).await?;
                Ok((controller_uid(&there) == cron.identity().uid).then_some(there))
            }
            Err(error) => {
                self.events.warning(cron, "FailedCreate", format!("Error creating job: {error}"));
                Err(error)
            }
        }
    }
}

impl Reconciler for CronJobLoop {
    async fn reconcile(&self, key: Key) -> Result<Action, ReconcileError> {
        let Some(cron) = self.crons.lister().get(&key) else {
            self.expectations.forget(&key);
            return Ok(Action::Done);
        };
        if !self.expectations.is_current(&key, &*cron) || !self.expectations.satisfied(&key, &self.jobs) {
            return Ok(Action::RequeueAfter(RECHECK));
        }
        let jobs = controlled_by(self.jobs.indexer(), cron.identity().uid);
        let jobs: Vec<&Job> = jobs.iter().map(|job| &**job).collect();
        let mut status = cron.status.clone().unwrap_or_default();
        for (name, uid) in plan::surplus(&cron, &jobs) {
            // What stays is told of and tried again next time; the schedule does not wait for it.
            if self.delete(&key, &cron, &name, &uid).await.is_ok() {
                plan::forget(&mut status, &uid);
            }
        }
        let mut plan = plan::plan(&cron, status, &jobs, self.context.clock.now());
        for told in std::mem::take(&mut plan.tell) {
            self.events.tell(told.warning, &*cron, told.reason, told.message);
        }
        let started = self.start(&key, &cron, &mut plan).await;
        if plan.status != cron.status.clone().unwrap_or_default() {
            let changed = CronJob { status: Some(plan.status), ..(*cron).clone() };
            let api = Api::<CronJob>::namespaced(&self.context.client, key.namespace());
            self.expectations.wrote(&key, &api.update_status(&changed).await?);
        }
        started?;
        Ok(plan.again.map_or(Action::Done, Action::RequeueAfter))
    }
}
