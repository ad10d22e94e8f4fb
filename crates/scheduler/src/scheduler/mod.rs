//! The loop: it keeps the cache and the queue up to date, takes pod after pod, and tells the server what was decided.
//!
//! A decision holds the one lock for some microseconds and asks nobody. What has to be told to the server is told in
//! tasks of their own, while the next pod is looked at: the pod counts as being where it is to go from the moment of
//! the decision, and is taken off again if the server disagrees.

mod api;
mod cycle;
mod handlers;
mod preempt;

use std::{
    collections::HashMap,
    fmt,
    sync::{Arc, Mutex, MutexGuard, PoisonError},
};

use capstan_client::{Client, SharedInformerFactory};
use capstan_clock::{SharedClock, SharedIds};
use capstan_runtime::{EventRecorder, Stop, metrics::Families};
use tokio::sync::{Notify, OwnedSemaphorePermit, Semaphore};

use crate::{
    config::SchedulerConfig, core::Core, extender::Extender, metrics::Metrics, plugin::BindContext, pod_info::PodInfo,
    profile::Profile, queue::SchedulingQueue,
};

/// How many pods may be on their way to their nodes, or have their refusal written down, at a time. While there are as
/// many, no other pod is looked at.
const MAX_IN_FLIGHT: usize = 512;

/// How many pods may wait for volumes, for devices or for leave to go to their nodes, besides. When there are more,
/// they count as being on their way.
const MAX_WAITING: usize = 1 << 14;

/// How many pods are looked at before others get a turn on the same thread.
const BATCH: usize = 16;

/// The right to talk to the server about a pod; whoever has a part in that holds it.
type Turn = Arc<OwnedSemaphorePermit>;

struct State {
    core: Core,
    queue: SchedulingQueue,
    /// The pods without a node as the server last told of them.
    pending: HashMap<Arc<str>, Arc<PodInfo>>,
    metrics: Metrics,
    evictions: preempt::Evictions,
}

struct Shared {
    client: Client,
    clock: SharedClock,
    ids: SharedIds,
    profiles: Arc<[Profile]>,
    extenders: Vec<Extender>,
    recorders: Vec<EventRecorder>,
    state: Mutex<State>,
    wake: Notify,
    in_flight: Arc<Semaphore>,
    waiting: Arc<Semaphore>,
}

impl Shared {
    fn lock(&self) -> MutexGuard<'_, State> {
        // Whoever panics has not left anything half done that the next event would not mend.
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn bind_context(&self) -> BindContext {
        BindContext { client: self.client.clone(), clock: Arc::clone(&self.clock), ids: Arc::clone(&self.ids) }
    }

    fn profile_at(&self, pod: &PodInfo) -> Option<usize> {
        self.profiles.iter().position(|profile| profile.scheduler_name == pod.scheduler_name())
    }
}

/// Finds nodes for pods of a cluster.
///
/// Pods that ask for one of its profiles are its own; nobody else may decide for them at the same time, so of several
/// only one may run: see `capstan_runtime::leader_election`.
pub struct Scheduler {
    shared: Arc<Shared>,
    ids: SharedIds,
    informers: Option<Arc<SharedInformerFactory>>,
}

impl fmt::Debug for Scheduler {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Scheduler").field("profiles", &self.shared.profiles.len()).finish_non_exhaustive()
    }
}

/// Looks at a scheduler that runs.
#[derive(Clone)]
pub struct SchedulerHandle(Arc<Shared>);

impl fmt::Debug for SchedulerHandle {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("SchedulerHandle")
    }
}

impl SchedulerHandle {
    /// What it counts, as Prometheus reads it.
    #[must_use]
    pub fn metrics(&self) -> String {
        let mut families = Families::default();
        self.collect(&mut families);
        families.to_string()
    }

    /// Adds what it counts to what others count.
    pub fn collect(&self, families: &mut Families) {
        let state = self.0.lock();
        let assumed = state.pending.keys().filter(|uid| state.core.cache.is_assumed(uid)).count();
        let cache = [("assumed_pods", assumed), ("nodes", state.core.cache.len()), ("pods", state.core.cache.pods())];
        state.metrics.collect(families, &state.queue, cache);
    }

    /// Whether nothing is to be done now: no pod waits to be looked at, and none is on its way.
    #[must_use]
    pub fn is_idle(&self) -> bool {
        let sizes = self.0.lock().queue.sizes();
        sizes.active == 0
            && sizes.in_flight == 0
            && self.0.in_flight.available_permits() == MAX_IN_FLIGHT
            && self.0.waiting.available_permits() == MAX_WAITING
    }
}

impl Scheduler {
    /// A scheduler of the cluster that a client reaches.
    ///
    /// To be called on a runtime: events are written by tasks of their own.
    #[must_use]
    pub fn new(client: Client, clock: SharedClock, ids: SharedIds, config: SchedulerConfig) -> Self {
        let client = client.with_user_agent("capstan-scheduler");
        let profiles: Arc<[Profile]> = config.profiles.into();
        let recorder = |profile: &Profile| {
            let (name, instance) = (&profile.scheduler_name, format!("{}-capstan", profile.scheduler_name));
            EventRecorder::events_v1(&client, name, &instance, Arc::clone(&clock), Arc::clone(&ids))
        };
        let state = State {
            core: Core::new(Arc::clone(&ids)),
            queue: SchedulingQueue::new(Arc::clone(&profiles), config.pod_initial_backoff, config.pod_max_backoff),
            pending: HashMap::new(),
            metrics: Metrics::default(),
            evictions: preempt::Evictions::default(),
        };
        let shared = Shared {
            recorders: profiles.iter().map(recorder).collect(),
            extenders: config.extenders,
            client,
            clock,
            ids: Arc::clone(&ids),
            profiles,
            state: Mutex::new(state),
            wake: Notify::new(),
            in_flight: Arc::new(Semaphore::new(MAX_IN_FLIGHT)),
            waiting: Arc::new(Semaphore::new(MAX_WAITING)),
        };
        Scheduler { shared: Arc::new(shared), ids, informers: None }
    }

    /// Reads from informers that others in this process have too. Whoever made them ends them.
    #[must_use]
    pub fn with_informers(mut self, informers: Arc<SharedInformerFactory>) -> Self {
        self.informers = Some(informers);
        self
    }

    /// To look at it while it runs.
    #[must_use]
    pub fn handle(&self) -> SchedulerHandle {
        SchedulerHandle(Arc::clone(&self.shared))
    }

    /// Runs until it is told to stop. Bindings that are on their way then are carried on by their tasks.
    pub async fn run(self, stop: Stop) {
        let shared = self.shared;
        let is_shared = self.informers.is_some();
        let factory = self.informers.unwrap_or_else(|| {
            let source = Arc::new(shared.client.clone());
            let own = SharedInformerFactory::new(source, Arc::clone(&shared.clock), self.ids);
            Arc::new(own.without_managed_fields())
        });
        let synced = handlers::register(&factory, &shared);
        factory.start();
        tokio::select! {
            () = stop.stopped() => return,
            () = synced => {}
        }
        while !stop.is_stopped() {
            let mut next = None;
            for _ in 0..BATCH {
                next = cycle::step(&shared).await;
                if next.is_some() {
                    break;
                }
            }
            let Some(due) = next else {
                tokio::task::yield_now().await;
                continue;
            };
            let sleep = async {
                match due {
                    Some(due) => shared.clock.sleep_until(due).await,
                    None => std::future::pending().await,
                }
            };
            tokio::select! {
                () = stop.stopped() => {}
                () = shared.wake.notified() => {}
                () = sleep => {}
            }
        }
        if !is_shared {
            factory.shut_down();
        }
    }
}
