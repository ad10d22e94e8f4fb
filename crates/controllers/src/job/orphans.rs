//! Pods that wait to be counted by a Job that will never do it: it is gone, or has ended.

use std::sync::Arc;

use capstan_api::object::{Object, controller_of};
use capstan_client::{Api, BoxFuture, Deleted, HandlerFuncs, Key, SharedIndexInformer};
use capstan_runtime::{Action, Controller, ReconcileError, Reconciler, workqueue::PriorityQueue};
use k8s_openapi::api::batch::v1::Job;

use super::{
    free, is_managed_elsewhere, queue,
    sync::{has_finalizer, is_finished},
};
use crate::{
    ControllerContext,
    drive::{drive, filled},
    pod::Pod,
    workload::controlled_by,
};

/// Frees pods until the context says stop.
pub(super) fn run(
    context: &ControllerContext,
    jobs: &SharedIndexInformer<Job>,
    pods: &SharedIndexInformer<Pod>,
) -> BoxFuture<'static, ()> {
    let loop_ = OrphanLoop { context: context.clone(), jobs: jobs.clone(), pods: pods.clone() };
    let controller = Controller::new(loop_, Arc::clone(&context.clock)).with_queue(queue(context));
    let queue = controller.queue().clone();
    let add = move |queue: &PriorityQueue<Key>, pod: &Arc<Pod>| {
        if has_finalizer(pod) {
            queue.add(Key::of(&**pod));
        }
    };
    let (on_add, on_update) = (queue.clone(), queue.clone());
    let handler = HandlerFuncs::<Pod>::new()
        .on_add(move |pod, _| add(&on_add, pod))
        .on_update(move |_, pod| add(&on_update, pod));
    pods.add_event_handler(handler);
    // With a Job that ends all that it has left behind is free.
    let all_of = {
        let (pods, queue) = (pods.clone(), queue);
        move |job: &Job| controlled_by(pods.indexer(), job.identity().uid).iter().for_each(|pod| add(&queue, pod))
    };
    let gone = all_of.clone();
    let handler = HandlerFuncs::<Job>::new()
        .on_update(move |_, job| {
            if is_finished(job) {
                all_of(job);
            }
        })
        .on_delete(move |job: &Deleted<Job>| gone(job.object()));
    jobs.add_event_handler(handler);
    drive(context, "job_orphan_pod", vec![filled(jobs), filled(pods)], controller)
}

struct OrphanLoop {
    context: ControllerContext,
    jobs: SharedIndexInformer<Job>,
    pods: SharedIndexInformer<Pod>,
}

impl Reconciler for OrphanLoop {
    async fn reconcile(&self, key: Key) -> Result<Action, ReconcileError> {
        let Some(pod) = self.pods.lister().get(&key).filter(|pod| has_finalizer(pod)) else {
            return Ok(Action::Done);
        };
        let owners = pod.owners();
        if let Some(owner) = controller_of(&owners) {
            if (owner.api_version.as_str(), owner.kind.as_str()) != ("batch/v1", "Job") {
                return Ok(Action::Done);
            }
            let job = self.jobs.lister().get(&Key::new(key.namespace(), &owner.name));
            let job = job.filter(|job| job.identity().uid == owner.uid);
            if job.is_some_and(|job| !is_finished(&job) || is_managed_elsewhere(&job)) {
                return Ok(Action::Done);
            }
        }
        free(&Api::namespaced(&self.context.client, key.namespace()), &pod).await?;
        Ok(Action::Done)
    }
}
