//! `garbage-collector-controller`: what belongs to nobody any longer goes.
//!
//! The [`graph`] says whom to look at; whether an object goes is decided by what the server says now of it and of its
//! owners, and the server is asked to delete exactly that object. A graph that is behind costs a question, not an
//! object.

mod absent;
mod graph;
mod sweep;
#[cfg(test)]
mod tests;

use std::sync::{Arc, Mutex, PoisonError};

use capstan_client::{BoxFuture, Key};
use capstan_clock::{SharedClock, SharedIds};
use capstan_runtime::{
    Action, Controller, EventRecorder, EventType, ObjectReference, ReconcileError, Reconciler,
    workqueue::{AddOpts, PriorityQueue, default_controller_rate_limiter},
};

use self::{
    graph::{Effect, Graph, Identity, Node},
    sweep::{Sweep, SweepError},
};
use crate::{
    ControllerContext,
    drive::{drive, join},
    metadata::{Change, MetadataInformers, ObjectMetadata},
};

/// How many objects are looked at at a time, for each of both tasks.
const WORKERS: usize = 20;

pub(crate) fn run(context: &ControllerContext) -> BoxFuture<'static, ()> {
    let new_queue = || {
        let limiter = default_controller_rate_limiter(Arc::clone(&context.clock));
        PriorityQueue::new(Arc::clone(&context.clock), limiter)
    };
    let collector = Arc::new(Collector {
        graph: Mutex::default(),
        to_delete: new_queue(),
        to_orphan: new_queue(),
        metadata: Arc::clone(&context.metadata),
        clock: Arc::clone(&context.clock),
        ids: Arc::clone(&context.ids),
        recorder: context.recorder("garbage-collector-controller"),
    });
    let heard = Arc::clone(&collector);
    context.metadata.subscribe(move |resource, change| {
        let identity = |object: &ObjectMetadata| Identity {
            kind: (&*resource.kind.kind).into(),
            api_version: resource.kind.api_version().into(),
            namespace: object.namespace.clone(),
            name: object.name.clone(),
            uid: Arc::clone(&object.uid),
        };
        heard.change(|graph| match change {
            Change::Set { old, new } => graph.set(&identity(&new), old.as_deref(), &new),
            Change::Gone(object) => graph.gone(&identity(&object)),
        });
    });
    let controller = |task: Task, queue: &PriorityQueue<Key>| {
        Controller::new(Worker { collector: Arc::clone(&collector), task }, Arc::clone(&context.clock))
            .with_queue(queue.clone())
            .max_concurrent_reconciles(WORKERS)
    };
    let deletes = controller(Task::Delete, &collector.to_delete);
    let orphans = controller(Task::Orphan, &collector.to_orphan);
    let (stop, metadata) = (context.stop.clone(), Arc::clone(&context.metadata));
    let synced = || -> BoxFuture<'static, bool> {
        let metadata = Arc::clone(&metadata);
        Box::pin(async move { metadata.wait_for_sync().await })
    };
    let first = drive(context, "garbage_collector_attempt_to_delete", vec![synced()], deletes);
    let second = drive(context, "garbage_collector_attempt_to_orphan", vec![synced()], orphans);
    Box::pin(async move {
        metadata.start(&stop);
        join(first, second).await;
    })
}

/// What the workers share. The keys of both queues are uids.
struct Collector {
    graph: Mutex<Graph>,
    to_delete: PriorityQueue<Key>,
    to_orphan: PriorityQueue<Key>,
    metadata: Arc<MetadataInformers>,
    clock: SharedClock,
    ids: SharedIds,
    recorder: EventRecorder,
}

impl Collector {
    fn with<R>(&self, act: impl FnOnce(&mut Graph) -> R) -> R {
        act(&mut self.graph.lock().unwrap_or_else(PoisonError::into_inner))
    }

    /// Changes the graph and does what that means.
    fn change(&self, change: impl FnOnce(&mut Graph) -> Vec<Effect>) {
        for effect in self.with(change) {
            match effect {
                Effect::AttemptToDelete(uid) => self.to_delete.add(Key::new("", &uid)),
                Effect::AttemptToDeleteLater(uid) => {
                    let later = AddOpts { rate_limited: true, ..AddOpts::default() };
                    self.to_delete.add_with_opts(later, Key::new("", &uid));
                }
                Effect::AttemptToOrphan(uid) => self.to_orphan.add(Key::new("", &uid)),
                Effect::InvalidNamespace(said) => {
                    let (dependent, owner) = *said;
                    let about = ObjectReference::new(
                        &dependent.api_version,
                        &dependent.kind,
                        &dependent.namespace,
                        &dependent.name,
                    );
                    let namespace = &dependent.namespace;
                    let message = format!("ownerRef {owner} does not exist in namespace {namespace:?}");
                    let about = about.with_uid(&dependent.uid);
                    self.recorder.event(&about, EventType::Warning, "OwnerRefInvalidNamespace", message);
                }
            }
        }
    }

    fn node(&self, key: &Key) -> Option<Node> {
        self.with(|graph| graph.get(key.as_str()).cloned())
    }
}

#[derive(Clone, Copy)]
enum Task {
    Delete,
    Orphan,
}

struct Worker {
    collector: Arc<Collector>,
    task: Task,
}

impl Reconciler for Worker {
    async fn reconcile(&self, key: Key) -> Result<Action, ReconcileError> {
        let Some(node) = self.collector.node(&key) else { return Ok(Action::Done) };
        let sweep = Sweep { collector: &self.collector, node: &node };
        let done = match self.task {
            Task::Delete => sweep.attempt_to_delete().await,
            Task::Orphan => sweep.attempt_to_orphan().await,
        };
        match done {
            // Until it is seen, or found to be absent, nobody knows.
            Ok(()) if node.is_virtual && self.collector.node(&key).is_some_and(|node| node.is_virtual) => {
                Err(ReconcileError::Retry(format!("{} has not been seen", node.identity)))
            }
            Ok(()) => Ok(Action::Done),
            Err(SweepError::Absent(identity)) => {
                self.collector.change(|graph| graph.found_absent(&identity));
                Ok(Action::Done)
            }
            Err(SweepError::NamespacedOwner) => Ok(Action::Done),
            Err(SweepError::NoMapping(kind)) => {
                Err(ReconcileError::Retry(format!("unable to get REST mapping for {kind}.")))
            }
            Err(SweepError::Request(error)) => Err(error.into()),
        }
    }
}
