//! Jobs that have ended are deleted after a while, if they say so.

use std::{sync::Arc, time::Duration};

use capstan_api::{
    object::Object,
    options::{DeleteOptions, Preconditions},
};
use capstan_client::{Api, BoxFuture, Key, SharedIndexInformer};
use capstan_clock::Timestamp;
use capstan_runtime::{Action, Controller, ReconcileError, Reconciler, handler::enqueue_request_for_object};
use k8s_openapi::api::batch::v1::Job;

use crate::{
    ControllerContext,
    drive::{drive, filled},
    pods::until,
    workload::WORKERS,
};

/// Runs the loop.
pub(crate) fn run(context: &ControllerContext) -> BoxFuture<'static, ()> {
    let jobs = context.informers.informer::<Job>();
    let loop_ = TtlLoop { context: context.clone(), jobs: jobs.clone() };
    let controller = Controller::new(loop_, Arc::clone(&context.clock)).max_concurrent_reconciles(WORKERS);
    jobs.add_event_handler(enqueue_request_for_object::<Job>(controller.queue().clone()));
    drive(context, "ttl_jobs_to_delete", vec![filled(&jobs)], controller)
}

struct TtlLoop {
    context: ControllerContext,
    jobs: SharedIndexInformer<Job>,
}

/// When a Job is to go, if ever.
fn expires_at(job: &Job) -> Option<Timestamp> {
    if job.metadata.deletion_timestamp.is_some() {
        return None;
    }
    let ttl = job.spec.as_ref()?.ttl_seconds_after_finished?;
    let mut conditions = job.status.as_ref()?.conditions.iter().flatten();
    let end = conditions.find(|c| c.status == "True" && (c.type_ == "Complete" || c.type_ == "Failed"))?;
    end.last_transition_time.as_ref()?.0.checked_add(Duration::from_secs(ttl.unsigned_abs().into())).ok()
}

impl Reconciler for TtlLoop {
    async fn reconcile(&self, key: Key) -> Result<Action, ReconcileError> {
        let now = self.context.clock.now();
        let Some(end) = self.jobs.lister().get(&key).and_then(|job| expires_at(&job)) else { return Ok(Action::Done) };
        if let Some(left) = until(end, now) {
            return Ok(Action::RequeueAfter(left));
        }
        // The cache may not show that the Job is to live longer.
        let jobs = Api::<Job>::namespaced(&self.context.client, key.namespace());
        let Some(fresh) = jobs.get_opt(key.name()).await? else { return Ok(Action::Done) };
        if expires_at(&fresh).is_none_or(|end| end > now) {
            return Ok(Action::Done);
        }
        let uid = Some(fresh.identity().uid.to_owned());
        let options = DeleteOptions {
            propagation_policy: Some("Foreground".to_owned()),
            preconditions: Some(Preconditions { uid, ..Preconditions::default() }),
            ..DeleteOptions::default()
        };
        match jobs.delete(key.name(), &options).await {
            Err(error) if !error.is_not_found() => Err(error.into()),
            _ => Ok(Action::Done),
        }
    }
}
