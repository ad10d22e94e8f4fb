//! `namespace-controller`: a namespace that is to go takes all it has with it.

mod conditions;
mod content;

use std::{sync::Arc, time::Duration};

use capstan_client::{Api, BoxFuture, Client, Error, HandlerFuncs, Key};
use capstan_clock::SharedClock;
use capstan_runtime::{
    Action, Controller, ReconcileError, Reconciler,
    workqueue::{BucketRateLimiter, ItemExponentialFailureRateLimiter, MaxOfRateLimiter, PriorityQueue},
};
use k8s_openapi::api::core::v1::{Namespace, NamespaceSpec, NamespaceStatus};

use self::content::{Content, Removal};
use crate::{
    ControllerContext,
    discovery::Discovery,
    drive::{add_after, drive, filled},
    metadata::metadata_client,
};

/// Gives servers and stores that are behind the time to see the deletion, and what was created just before it.
const DELETION_GRACE_PERIOD: Duration = Duration::from_secs(5);

/// How many namespaces are worked on at a time.
const WORKERS: usize = 10;

/// The finalizer that is ours to remove.
const FINALIZER: &str = "kubernetes";

/// How often a write that others are quicker than is tried at once.
const MAX_CONFLICTS: u32 = 10;

pub(crate) fn run(context: &ControllerContext) -> BoxFuture<'static, ()> {
    let namespaces = context.informers.informer::<Namespace>();
    let clock = Arc::clone(&context.clock);
    let deleter = Deleter {
        metadata: metadata_client(&context.client),
        client: context.client.clone(),
        clock: Arc::clone(&clock),
    };
    let limiter = MaxOfRateLimiter::new(vec![
        Arc::new(ItemExponentialFailureRateLimiter::new(Duration::from_millis(5), Duration::from_secs(60))),
        Arc::new(BucketRateLimiter::new(Arc::clone(&clock), 10.0, 100)),
    ]);
    let controller = Controller::new(deleter, Arc::clone(&clock))
        .with_queue(PriorityQueue::new(clock, Arc::new(limiter)))
        .max_concurrent_reconciles(WORKERS);
    let queue = controller.queue().clone();
    let see = move |namespace: &Arc<Namespace>| {
        if namespace.metadata.deletion_timestamp.is_some() {
            add_after(&queue, Key::of(&**namespace), DELETION_GRACE_PERIOD);
        }
    };
    let again = see.clone();
    namespaces
        .add_event_handler(HandlerFuncs::new().on_add(move |new, _| see(new)).on_update(move |_, new| again(new)));
    drive(context, "namespace", vec![filled(&namespaces)], controller)
}

struct Deleter {
    client: Client,
    metadata: Client,
    clock: SharedClock,
}

impl Reconciler for Deleter {
    async fn reconcile(&self, key: Key) -> Result<Action, ReconcileError> {
        match self.delete(key.name()).await {
            Ok(action) => Ok(action),
            // Somebody else has finished it.
            Err(Failure::Request(error)) if error.is_not_found() => Ok(Action::Done),
            Err(Failure::Request(error)) => Err(error.into()),
            Err(Failure::Content(said)) => Err(ReconcileError::Retry(said)),
        }
    }
}

enum Failure {
    Request(Error),
    Content(String),
}

impl From<Error> for Failure {
    fn from(error: Error) -> Self {
        Failure::Request(error)
    }
}

impl Deleter {
    async fn delete(&self, name: &str) -> Result<Action, Failure> {
        let api = Api::<Namespace>::all(&self.client);
        let namespace = api.get(name).await?;
        let Some(deleted) = namespace.metadata.deletion_timestamp.clone() else { return Ok(Action::Done) };
        let namespace = self.write(namespace, "status", terminating).await?;
        if finalizers(&namespace).is_empty() {
            return Ok(Action::Done);
        }
        let content = Content { client: &self.client, metadata: &self.metadata, namespace: name };
        let since = self.clock.now().duration_since(deleted.0);
        let removal = content.remove(Discovery::of(&self.client).await, since).await;
        self.report(&api, &namespace, &removal).await;
        if !removal.errors.is_empty() {
            return Err(Failure::Content(removal.errors.join(", ")));
        }
        if removal.estimate > 0 {
            let wait = u64::try_from(removal.estimate / 2 + 1).unwrap_or(1);
            return Ok(Action::RequeueAfter(Duration::from_secs(wait)));
        }
        self.write(namespace, "finalize", without_finalizer).await?;
        Ok(Action::Done)
    }

    /// Writes the conditions if they changed. A write that fails is made up for by the next attempt.
    async fn report(&self, api: &Api<Namespace>, namespace: &Namespace, removal: &Removal) {
        let mut changed = namespace.clone();
        let status = changed.status.get_or_insert_default();
        if conditions::update(status, removal, self.clock.now()) {
            let _ = api.update_status(&changed).await;
        }
    }

    /// Changes the namespace, reading it anew when others are quicker, as long as it is the same one.
    async fn write(
        &self,
        namespace: Namespace,
        subresource: &str,
        change: fn(&Namespace) -> Option<Namespace>,
    ) -> Result<Namespace, Failure> {
        let api = Api::<Namespace>::all(&self.client);
        let mut latest = namespace;
        for _ in 0..MAX_CONFLICTS {
            let Some(changed) = change(&latest) else { return Ok(latest) };
            match api.update_with(&changed, subresource, &Default::default()).await {
                Err(error) if error.is_conflict() => {}
                answer => return Ok(answer?),
            }
            let uid = latest.metadata.uid.take();
            latest = api.get(latest.metadata.name.as_deref().unwrap_or_default()).await?;
            if latest.metadata.uid != uid {
                return Err(Failure::Content("namespace uid has changed across retries".to_owned()));
            }
        }
        Err(Failure::Content(format!("others have changed the namespace {MAX_CONFLICTS} times")))
    }
}

fn finalizers(namespace: &Namespace) -> &[String] {
    namespace.spec.as_ref().and_then(|spec| spec.finalizers.as_deref()).unwrap_or_default()
}

fn terminating(namespace: &Namespace) -> Option<Namespace> {
    const TERMINATING: &str = "Terminating";
    let phase = namespace.status.as_ref().and_then(|status| status.phase.as_deref());
    if namespace.metadata.deletion_timestamp.is_none() || phase == Some(TERMINATING) {
        return None;
    }
    let status = namespace.status.clone().unwrap_or_default();
    let status = Some(NamespaceStatus { phase: Some(TERMINATING.to_owned()), ..status });
    Some(Namespace { status, ..namespace.clone() })
}

#[expect(clippy::unnecessary_wraps, reason = "it is one of two changes")]
fn without_finalizer(namespace: &Namespace) -> Option<Namespace> {
    let mut others: Vec<_> = finalizers(namespace).iter().filter(|own| *own != FINALIZER).cloned().collect();
    others.sort();
    others.dedup();
    let spec = Some(NamespaceSpec { finalizers: Some(others) });
    Some(Namespace { metadata: namespace.metadata.clone(), spec, status: None })
}

/// Whether the server refuses because the namespace is going.
pub(crate) fn is_terminating(error: &Error) -> bool {
    error.status().is_some_and(|status| status.cause("NamespaceTerminating").is_some())
}
