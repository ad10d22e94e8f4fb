//! A controller as people describe it: which objects it is for, what concerns them, who looks at them.

use std::{fmt, future::Future, marker::PhantomData, pin::Pin, sync::Arc, time::Duration};

use capstan_api::{
    GroupKind, GroupVersionKind, GroupVersionResource, Resource, Scope, Unstructured, builtin, object::Object,
};
use capstan_client::{
    BoxFuture, Key, SharedInformerFactory,
    beat::{Either, race},
};
use capstan_clock::SharedClock;
use futures_core::Stream;
use tokio::sync::mpsc;

use super::{
    Context,
    metrics::ReconcileMetrics,
    predicate::{Filtered, Predicate},
    report::Reporter,
};
use crate::{
    Action, Outcome, ReconcileError, Stop, handler,
    metrics::Registry,
    workqueue::{ItemExponentialFailureRateLimiter, PriorityQueue, RateLimiter},
};

/// Makes the world as an object wants it.
///
/// It is given a key and no event: whatever happened, the present state counts. It is never called for a key that it is
/// working on.
pub trait Reconciler: Send + Sync + 'static {
    /// The kind of object that it is for.
    type Object: Object;

    /// Looks at the object of this key, which may be gone, and does the next thing.
    fn reconcile(&self, key: Key, ctx: &Context) -> impl Future<Output = Result<Action, ReconcileError>> + Send;
}

/// Where keys come from: begins at once, and says when all that was there at first is in the queue. False if it never
/// will be, when the informers were shut down.
type Source = Box<dyn FnOnce(&SharedInformerFactory, PriorityQueue<Key>, &Stop) -> BoxFuture<'static, bool> + Send>;

type Limiter = Box<dyn FnOnce(SharedClock) -> Arc<dyn RateLimiter<Key>> + Send>;

/// A controller as it is described, to be run by a [`Manager`](super::Manager).
///
/// ```
/// # use capstan_runtime::{Action, ReconcileError, operator::{Context, Controller, Predicate, Reconciler}};
/// # use capstan_client::Key;
/// # fn example<R: Reconciler<Object = At>, At, Pod>(cnat: R)
/// # where
/// #     At: capstan_api::object::Accessor + capstan_api::Resource,
/// #     Pod: capstan_api::object::Object + capstan_api::Resource,
/// # {
/// let controller = Controller::new(cnat)
///     .with_predicates(Predicate::generation_changed())
///     .owns::<Pod>()
///     .max_concurrent_reconciles(4);
/// # }
/// ```
pub struct Controller<R: Reconciler> {
    pub(super) name: String,
    reconciler: R,
    resource: GroupVersionResource,
    owner: GroupKind,
    scope: Scope,
    predicate: Predicate<R::Object>,
    sources: Vec<Source>,
    limiter: Option<Limiter>,
    max_concurrent_reconciles: usize,
    timeout: Option<Duration>,
    of: PhantomData<fn() -> R::Object>,
}

impl<R: Reconciler> fmt::Debug for Controller<R> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Controller").field("name", &self.name).finish_non_exhaustive()
    }
}

impl<R: Reconciler<Object: Resource>> Controller<R> {
    /// A controller for the reconciler's kind, named after it. One key at a time, and the usual rate limits.
    pub fn new(reconciler: R) -> Self {
        Controller::of(reconciler, R::Object::gvr(), &R::Object::gvk(), R::Object::SCOPE)
    }
}

impl<R: Reconciler<Object = Unstructured>> Controller<R> {
    /// A controller for any kind, without its type. Kinds that are not built in are taken to live in namespaces, until
    /// [`cluster_scoped`](Self::cluster_scoped) says otherwise.
    pub fn dynamic(reconciler: R, resource: GroupVersionResource, kind: &GroupVersionKind) -> Self {
        let in_cluster = builtin::resource(&resource).is_some_and(|row| !row.namespaced);
        let scope = if in_cluster { Scope::Cluster } else { Scope::Namespaced };
        Controller::of(reconciler, resource, kind, scope)
    }

    /// The kind lives in the cluster itself. To be said before [`owns`](Self::owns).
    #[must_use]
    pub fn cluster_scoped(mut self) -> Self {
        self.scope = Scope::Cluster;
        self
    }
}

impl<R: Reconciler> Controller<R> {
    fn of(reconciler: R, resource: GroupVersionResource, kind: &GroupVersionKind, scope: Scope) -> Self {
        Controller {
            name: kind.kind.to_lowercase(),
            reconciler,
            resource,
            owner: GroupKind { group: kind.group.clone(), kind: kind.kind.clone() },
            scope,
            predicate: Predicate::all(),
            sources: Vec::new(),
            limiter: None,
            max_concurrent_reconciles: 1,
            timeout: None,
            of: PhantomData,
        }
    }

    /// Another name, in metrics and records.
    #[must_use]
    pub fn named(mut self, name: &str) -> Self {
        name.clone_into(&mut self.name);
        self
    }

    /// Only these changes of the objects themselves.
    #[must_use]
    pub fn with_predicates(mut self, predicate: Predicate<R::Object>) -> Self {
        self.predicate = self.predicate.and(predicate);
        self
    }

    /// Changes of objects that one of the controller's objects controls concern that one.
    #[must_use]
    pub fn owns<K: Object + Resource>(self) -> Self {
        self.owns_with(Predicate::<K>::all())
    }

    /// The same, but only these changes.
    #[must_use]
    pub fn owns_with<K: Object + Resource>(self, predicate: Predicate<K>) -> Self {
        let (owner, scope) = (self.owner.clone(), self.scope);
        self.source(move |informers, queue, _| {
            let handler = handler::enqueue_request_for_owner::<K>(queue, owner, scope, true);
            let registration = informers.informer::<K>().add_event_handler(Filtered { predicate, handler });
            Box::pin(async move { registration.wait_for_sync().await })
        })
    }

    /// Changes of objects of another kind concern those that `keys` says.
    #[must_use]
    pub fn watches<K: Object + Resource>(self, keys: impl Fn(&K) -> Vec<Key> + Send + 'static) -> Self {
        self.watches_with(keys, Predicate::all())
    }

    /// The same, but only these changes.
    #[must_use]
    pub fn watches_with<K: Object + Resource>(
        self,
        keys: impl Fn(&K) -> Vec<Key> + Send + 'static,
        predicate: Predicate<K>,
    ) -> Self {
        self.source(move |informers, queue, _| {
            let handler = handler::enqueue_requests_from_map_func(queue, keys);
            let registration = informers.informer::<K>().add_event_handler(Filtered { predicate, handler });
            Box::pin(async move { registration.wait_for_sync().await })
        })
    }

    /// Keys come from a channel.
    #[must_use]
    pub fn watches_channel(self, mut keys: mpsc::Receiver<Key>) -> Self {
        self.source(move |_, queue, stop| {
            let stop = stop.clone();
            tokio::spawn(async move {
                while let Either::First(Some(key)) = race(keys.recv(), stop.stopped()).await {
                    queue.add(key);
                }
            });
            Box::pin(std::future::ready(true))
        })
    }

    /// Keys come from a stream of any type.
    #[must_use]
    pub fn watches_stream(self, keys: impl Stream<Item = Key> + Send + 'static) -> Self {
        self.source(move |_, queue, stop| {
            let stop = stop.clone();
            tokio::spawn(async move {
                let mut keys: Pin<Box<_>> = Box::pin(keys);
                loop {
                    let next = std::future::poll_fn(|cx| keys.as_mut().poll_next(cx));
                    match race(next, stop.stopped()).await {
                        Either::First(Some(key)) => queue.add(key),
                        Either::First(None) | Either::Second(()) => return,
                    }
                }
            });
            Box::pin(std::future::ready(true))
        })
    }

    /// Reads a kind from its cache without hearing of changes: the controller begins once the cache is there.
    #[must_use]
    pub fn reads<K: Object + Resource>(self) -> Self {
        self.source(|informers, _, _| {
            let informer = informers.informer::<K>();
            Box::pin(async move { informer.wait_for_sync().await })
        })
    }

    fn source<S>(mut self, source: S) -> Self
    where
        S: FnOnce(&SharedInformerFactory, PriorityQueue<Key>, &Stop) -> BoxFuture<'static, bool> + Send + 'static,
    {
        self.sources.push(Box::new(source));
        self
    }

    /// So many keys at a time, at least one.
    #[must_use]
    pub fn max_concurrent_reconciles(mut self, count: usize) -> Self {
        self.max_concurrent_reconciles = count.max(1);
        self
    }

    /// A reconcile that takes longer is dropped and tried again.
    #[must_use]
    pub fn reconciliation_timeout(mut self, timeout: Duration) -> Self {
        self.timeout = Some(timeout);
        self
    }

    /// Other rate limits than the usual ones.
    #[must_use]
    pub fn rate_limiter(
        mut self,
        limiter: impl FnOnce(SharedClock) -> Arc<dyn RateLimiter<Key>> + Send + 'static,
    ) -> Self {
        self.limiter = Some(Box::new(limiter));
        self
    }
}

impl<R: Reconciler> Controller<R> {
    /// Asks for the informers, and gives what runs until it is told to stop. The informers are to be started in
    /// between.
    pub(super) fn prepare(self, ctx: &Context, registry: &Registry, reporter: &Reporter) -> BoxFuture<'static, ()> {
        let clock = Arc::clone(ctx.clock());
        let limiter = match self.limiter {
            Some(limiter) => limiter(Arc::clone(&clock)),
            // As controller-runtime has it with its priority queue: a limit for all would keep many keys that fail from
            // being tried again for long.
            None => {
                Arc::new(ItemExponentialFailureRateLimiter::new(Duration::from_millis(5), Duration::from_secs(1000)))
            }
        };
        let queue = PriorityQueue::new(Arc::clone(&clock), limiter);
        let (informers, stop) = (ctx.informers(), ctx.stop().clone());
        let handler = handler::enqueue_request_for_object::<R::Object>(queue.clone());
        let own = informers.informer_scoped::<R::Object>(self.resource.clone(), self.scope);
        let own = own.add_event_handler(Filtered { predicate: self.predicate, handler });
        let mut syncs: Vec<BoxFuture<'static, bool>> = vec![Box::pin(async move { own.wait_for_sync().await })];
        syncs.extend(self.sources.into_iter().map(|source| source(informers, queue.clone(), &stop)));

        let metrics = ReconcileMetrics::register(registry, &self.name, self.max_concurrent_reconciles, queue.clone());
        let bound = Bound { reconciler: self.reconciler, ctx: ctx.clone(), metrics: Arc::clone(&metrics) };
        let (observed, reporter, timeout) = (stop.clone(), reporter.clone(), self.timeout.unwrap_or_default());
        let (name, resource) = (self.name, self.resource);
        let mut controller = crate::Controller::new(bound, clock)
            .with_queue(queue.clone())
            .max_concurrent_reconciles(self.max_concurrent_reconciles)
            .on_outcome_timed(move |key, outcome, took| {
                if observed.is_stopped() {
                    return;
                }
                metrics.observe(outcome, took);
                match outcome {
                    Outcome::Action(_) => {}
                    Outcome::Error(error) => reporter.report(&name, &resource, Some(key), error),
                    Outcome::TimedOut => {
                        let late = format_args!("it took longer than {}s", timeout.as_secs_f64());
                        reporter.report(&name, &resource, Some(key), late);
                    }
                    Outcome::Panicked => reporter.report(&name, &resource, Some(key), "it panicked"),
                }
            });
        if let Some(timeout) = self.timeout {
            controller = controller.reconciliation_timeout(timeout);
        }
        Box::pin(async move {
            let all = async {
                for sync in syncs {
                    if !sync.await {
                        return false;
                    }
                }
                true
            };
            if race(all, stop.stopped()).await == Either::First(true) {
                let ending = async {
                    stop.stopped().await;
                    queue.shut_down();
                    std::future::pending::<()>().await;
                };
                race(controller.run(), ending).await;
            }
            queue.shut_down();
        })
    }
}

/// A reconciler with what it works with.
struct Bound<R> {
    reconciler: R,
    ctx: Context,
    metrics: Arc<ReconcileMetrics>,
}

impl<R: Reconciler> crate::Reconciler for Bound<R> {
    async fn reconcile(&self, key: Key) -> Result<Action, ReconcileError> {
        // What is still in the queue when it is time to go is left alone: the next one to run finds it by itself.
        if self.ctx.stop().is_stopped() {
            return Ok(Action::Done);
        }
        let _active = self.metrics.active();
        self.reconciler.reconcile(key, &self.ctx).await
    }
}
