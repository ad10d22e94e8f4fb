//! What runs controllers: one set of caches, one leader, one beginning and one end.

use std::{
    fmt,
    net::SocketAddr,
    sync::{
        Arc,
        atomic::{AtomicBool, Ordering},
    },
    time::Duration,
};

use capstan_api::{GroupVersionResource, Resource, object::Object};
use capstan_client::{
    Client, InformerOptions, Key, NamespaceOptions, Namespaces, SharedIndexInformer, SharedInformerFactory, Warning,
    beat::{Either, race},
};
use capstan_clock::{SharedClock, SharedIds};
use tokio::{net::TcpListener, sync::mpsc, task::JoinSet};

use super::{
    Checks, Context, Controller, Reconciler, Report, endpoints,
    endpoints::Endpoints,
    report::{Once, Reporter},
    running::{Prepared, Running, spawn},
    setup_signal_handler,
    transport::Requests,
};
use crate::{
    EventRecorder, Stop, Stopper,
    leader_election::{ConfigError, LeaderElection, LeaderElectionConfig, Leadership, LeaseLock},
    metrics::Registry,
};

/// How long those that run have to end, unless another time is given.
pub const GRACEFUL_SHUTDOWN: Duration = Duration::from_secs(30);

/// How long caches have to get all objects, unless another time is given.
pub const CACHE_SYNC_TIMEOUT: Duration = Duration::from_secs(2 * 60);

/// How many of those that run may report that they failed before anybody listens.
const FAILURES: usize = 16;

/// Why a manager ended.
#[derive(Debug)]
pub enum ManagerError {
    /// An address could not be taken.
    Listen(SocketAddr, std::io::Error),
    /// Signals cannot be heard.
    Signals(std::io::Error),
    /// The leader election is configured wrongly.
    LeaderElection(ConfigError),
    /// These caches did not get all objects in time.
    CacheSync(Vec<GroupVersionResource>, Duration),
    /// Another one leads now, or may.
    LeaderElectionLost,
    /// One that was run failed.
    Runnable(String),
    /// Those that ran did not end in time.
    GracefulShutdown(Duration),
}

impl fmt::Display for ManagerError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            ManagerError::Listen(address, error) => write!(f, "error listening on {address}: {error}"),
            ManagerError::Signals(error) => write!(f, "unable to hear signals: {error}"),
            ManagerError::LeaderElection(error) => {
                write!(f, "failed during initialization leader election process: {error}")
            }
            ManagerError::CacheSync(resources, timeout) => {
                let names: Vec<_> = resources.iter().map(|resource| resource.group_resource().to_string()).collect();
                let (names, seconds) = (names.join(", "), timeout.as_secs_f64());
                write!(f, "timed out waiting for caches to be synced for {names} within {seconds}s")
            }
            ManagerError::LeaderElectionLost => f.write_str("leader election lost"),
            ManagerError::Runnable(error) => f.write_str(error),
            ManagerError::GracefulShutdown(period) => {
                write!(f, "failed waiting for all runnables to end within grace period of {}s", period.as_secs_f64())
            }
        }
    }
}

impl std::error::Error for ManagerError {}

type Bound = Box<dyn FnOnce(&[SocketAddr]) + Send>;
type Tweak = Box<dyn FnOnce(SharedInformerFactory) -> SharedInformerFactory + Send>;
type Prepare = Box<dyn FnOnce(&Context, &Registry, &Reporter) -> Prepared + Send>;

/// Runs controllers and whatever else belongs to a program, on shared caches.
///
/// What is served over HTTP begins first, then the caches; once they have all objects, what runs on every replica; once
/// this one leads, controllers. The end is in the order: what runs, caches, then the Lease is freed, so that no other
/// one leads before everything that acts here has ended; at last events that are still to be told, and what is served.
///
/// What fails on the way is tried again, and said on standard error unless [`on_error`](Manager::on_error) says else.
pub struct Manager {
    client: Client,
    clock: SharedClock,
    ids: SharedIds,
    name: String,
    namespaces: Namespaces,
    resync: Option<Duration>,
    caches: Vec<Tweak>,
    registry: Registry,
    election: Option<(String, String, LeaderElectionConfig)>,
    metrics: Option<SocketAddr>,
    health: Option<SocketAddr>,
    healthz: Checks,
    readyz: Checks,
    pages: Vec<endpoints::Page>,
    controllers: Vec<Prepare>,
    others: Vec<Prepare>,
    graceful_shutdown: Duration,
    cache_sync_timeout: Duration,
    reporter: Reporter,
    bound: Option<Bound>,
}

impl fmt::Debug for Manager {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Manager").field("name", &self.name).finish_non_exhaustive()
    }
}

impl Manager {
    /// A manager with nothing to run, by the clock of the client: that of the operating system unless it has another.
    #[must_use]
    pub fn new(client: &Client) -> Self {
        Manager::on_clock(client, Arc::clone(client.clock()), Arc::clone(client.ids()))
    }

    /// A manager for the server that the user's surroundings name; see [`Client::from_default_config`].
    ///
    /// # Errors
    /// There is nothing of that, or it does not make sense, or credentials fail.
    #[cfg(feature = "kube")]
    pub async fn from_default_config() -> Result<Self, capstan_client::ConfigError> {
        Ok(Manager::new(&Client::from_default_config().await?))
    }

    /// The same, by another clock.
    #[must_use]
    pub fn on_clock(client: &Client, clock: SharedClock, ids: SharedIds) -> Self {
        let mut healthz = Checks::default();
        healthz.add("ping", || Ok(()));
        Manager {
            client: client.clone(),
            clock,
            ids,
            name: "controller-manager".to_owned(),
            namespaces: Namespaces::default(),
            resync: None,
            caches: Vec::new(),
            registry: Registry::default(),
            election: None,
            metrics: None,
            health: None,
            healthz,
            readyz: Checks::default(),
            pages: Vec::new(),
            controllers: Vec::new(),
            others: Vec::new(),
            graceful_shutdown: GRACEFUL_SHUTDOWN,
            cache_sync_timeout: CACHE_SYNC_TIMEOUT,
            reporter: Reporter::default(),
            bound: None,
        }
    }

    /// The name under which events are told.
    #[must_use]
    pub fn named(mut self, name: &str) -> Self {
        name.clone_into(&mut self.name);
        self
    }

    /// Caches hold only this namespace.
    #[must_use]
    pub fn namespace(self, namespace: &str) -> Self {
        self.namespaces([namespace])
    }

    /// Caches hold only these namespaces, each of which is listed and watched by itself: for accounts that may read
    /// some and not all. Kinds that live in none are there all the same. Reading another namespace from a cache is an
    /// error.
    #[must_use]
    pub fn namespaces<'a>(self, namespaces: impl IntoIterator<Item = &'a str>) -> Self {
        let whole = |namespace: &str| (namespace.to_owned(), NamespaceOptions::default());
        self.namespaces_with(namespaces.into_iter().map(whole).collect())
    }

    /// The same, and of each only what its options select. The empty namespace stands for all that are not named. What
    /// differs for a kind is said with [`cache`](Self::cache).
    #[must_use]
    pub fn namespaces_with(mut self, namespaces: Namespaces) -> Self {
        self.namespaces = namespaces;
        self
    }

    /// Caches do without who manages which fields: often half of an object, and seldom looked at.
    #[must_use]
    pub fn without_managed_fields(mut self) -> Self {
        self.caches.push(Box::new(SharedInformerFactory::without_managed_fields));
        self
    }

    /// The cache of a kind holds only what these options select, and is as `setup` makes it: transformed, kept compact,
    /// or with indices.
    #[must_use]
    pub fn cache<K: Object + Resource>(
        self,
        options: InformerOptions,
        setup: impl Fn(&SharedIndexInformer<K>) + Send + Sync + 'static,
    ) -> Self {
        self.cache_of(K::gvr(), options, setup)
    }

    /// The same for any resource, read as any type.
    #[must_use]
    pub fn cache_of<K: Object>(
        mut self,
        resource: GroupVersionResource,
        options: InformerOptions,
        setup: impl Fn(&SharedIndexInformer<K>) + Send + Sync + 'static,
    ) -> Self {
        self.caches.push(Box::new(|informers| informers.with_own(resource, options, setup)));
        self
    }

    /// How often all objects are looked at again.
    #[must_use]
    pub fn resync(mut self, period: Duration) -> Self {
        self.resync = Some(period);
        self
    }

    /// Of all managers with this name only one runs controllers. The Lease is in the client's namespace.
    #[must_use]
    pub fn leader_election(self, name: &str) -> Self {
        let (namespace, identity) = (self.client.default_namespace().to_owned(), self.ids.uid());
        self.leader_election_with(&namespace, name, LeaderElectionConfig::new(&identity))
    }

    /// The same, with a namespace, an identity and durations of one's own.
    #[must_use]
    pub fn leader_election_with(mut self, namespace: &str, name: &str, config: LeaderElectionConfig) -> Self {
        self.election = Some((namespace.to_owned(), name.to_owned(), config));
        self
    }

    /// Where `/metrics` is served.
    #[must_use]
    pub fn metrics_bind_address(mut self, address: SocketAddr) -> Self {
        self.metrics = Some(address);
        self
    }

    /// Where `/healthz` and `/readyz` are served.
    #[must_use]
    pub fn health_probe_bind_address(mut self, address: SocketAddr) -> Self {
        self.health = Some(address);
        self
    }

    /// Told which addresses were taken, in the order metrics, health: for those who asked for any port.
    #[must_use]
    pub fn on_bound(mut self, bound: impl FnOnce(&[SocketAddr]) + Send + 'static) -> Self {
        self.bound = Some(Box::new(bound));
        self
    }

    /// One more thing that must be well for the process to go on.
    #[must_use]
    pub fn healthz_check(mut self, name: &str, check: impl Fn() -> Result<(), String> + Send + Sync + 'static) -> Self {
        self.healthz.add(name, check);
        self
    }

    /// One more thing that must be well for the process to be of use.
    #[must_use]
    pub fn readyz_check(mut self, name: &str, check: impl Fn() -> Result<(), String> + Send + Sync + 'static) -> Self {
        self.readyz.add(name, check);
        self
    }

    /// One more text that is served beside `/metrics`.
    #[must_use]
    pub fn page(mut self, path: &'static str, make: impl Fn() -> String + Send + Sync + 'static) -> Self {
        self.pages.push((path, Arc::new(make)));
        self
    }

    /// How long those that run have to end.
    #[must_use]
    pub fn graceful_shutdown_timeout(mut self, timeout: Duration) -> Self {
        self.graceful_shutdown = timeout;
        self
    }

    /// How long caches have to get all objects before the manager gives up, else [`CACHE_SYNC_TIMEOUT`].
    #[must_use]
    pub fn cache_sync_timeout(mut self, timeout: Duration) -> Self {
        self.cache_sync_timeout = timeout;
        self
    }

    /// Hears of each reconcile that fails, and of each failure of a cache, of the leader election or of an event: that
    /// a kind does not exist, for instance, or may not be read. Without this they are said on standard error, each
    /// once, and then the tenth time, the hundredth and so on.
    #[must_use]
    pub fn on_error(mut self, listener: impl Fn(&Report) + Send + Sync + 'static) -> Self {
        self.reporter = Reporter::new(listener);
        self
    }

    /// Hears what the server says besides its answers: that a version is deprecated, for instance. Without this it is
    /// said on standard error, each text once, unless the client has a handler of its own.
    #[must_use]
    pub fn on_warning(mut self, handler: impl Fn(&Warning) + Send + Sync + 'static) -> Self {
        self.client = self.client.with_warning_handler(handler);
        self
    }

    /// Where numbers are collected.
    #[must_use]
    pub fn metrics_registry(&self) -> &Registry {
        &self.registry
    }

    /// Runs a controller, on the leader.
    #[must_use]
    pub fn controller<R: Reconciler>(mut self, controller: Controller<R>) -> Self {
        self.controllers.push(Box::new(move |ctx, registry, reporter| {
            let run = controller.prepare(ctx, registry, reporter);
            Box::pin(async move {
                run.await;
                Ok(())
            })
        }));
        self
    }

    /// Runs anything, on the leader, until the context says stop. If it fails, the manager ends.
    #[must_use]
    pub fn runnable<F: Future<Output = Result<(), String>> + Send + 'static>(
        mut self,
        run: impl FnOnce(Context) -> F + Send + 'static,
    ) -> Self {
        self.controllers.push(prepared(run));
        self
    }

    /// Runs anything, on every replica, until the context says stop. If it fails, the manager ends.
    #[must_use]
    pub fn runnable_everywhere<F: Future<Output = Result<(), String>> + Send + 'static>(
        mut self,
        run: impl FnOnce(Context) -> F + Send + 'static,
    ) -> Self {
        self.others.push(prepared(run));
        self
    }

    /// Runs until SIGTERM or SIGINT.
    ///
    /// # Errors
    /// It could not begin, the leadership was lost, something that was run failed, or it did not end in time.
    pub async fn run(self) -> Result<(), ManagerError> {
        let stop = setup_signal_handler().map_err(ManagerError::Signals)?;
        self.run_until(stop).await
    }

    /// Runs until it is time to go.
    ///
    /// # Errors
    /// It could not begin, the leadership was lost, something that was run failed, or it did not end in time.
    pub async fn run_until(mut self, stop: Stop) -> Result<(), ManagerError> {
        if self.client.warning_handler().is_none() {
            let once = Once::default();
            self = self.on_warning(move |warning| {
                if warning.is_for_people() && once.is_new(&warning.text) {
                    eprintln!("warning: {}", warning.text);
                }
            });
        }
        let requests = Requests::new(&self.client, &self.clock, &self.ids, &self.registry);
        let client = requests.client(None);
        let election = self.elect(&client.with_own_rate_limit())?;
        let leadership = election.as_ref().map(LeaderElection::leadership);
        let (http_stopper, http_stop) = Stopper::new();
        let synced = Arc::new(AtomicBool::new(false));
        let is_synced = Arc::clone(&synced);
        self.readyz.add("informer-sync", move || match is_synced.load(Ordering::SeqCst) {
            true => Ok(()),
            false => Err("not all caches have synced".to_owned()),
        });
        let mut running = Running::new(self.serve(&http_stop).await?);

        let informers = self.informers(&client);
        let (others_stopper, others_stop) = Stopper::new();
        let (leader_stopper, leader_stop) = Stopper::new();
        let (election_stopper, election_stop) = Stopper::new();
        let recorder = EventRecorder::new(&client, &self.name, Arc::clone(&self.clock), Arc::clone(&self.ids));
        let reporter = self.reporter.clone();
        let events = GroupVersionResource::from_static("", "v1", "events");
        recorder.on_error(move |error| reporter.report("", &events, None, error));
        let context = |leadership: Option<Leadership>, stop: &Stop| {
            let client = requests.client(leadership);
            let (clock, ids) = (Arc::clone(&self.clock), Arc::clone(&self.ids));
            Context::new(client, Arc::clone(&informers), clock, ids, recorder.clone(), stop.clone())
        };
        let (everywhere, leading) = (context(None, &others_stop), context(leadership.clone(), &leader_stop));
        // Controllers begin to hear of objects before they lead: the next leader need not read everything first.
        let controllers: Vec<_> = std::mem::take(&mut self.controllers)
            .into_iter()
            .map(|prepare| prepare(&leading, &self.registry, &self.reporter))
            .collect();
        let others: Vec<_> = std::mem::take(&mut self.others)
            .into_iter()
            .map(|prepare| prepare(&everywhere, &self.registry, &self.reporter))
            .collect();
        informers.start();

        let (failed, mut failures) = mpsc::channel(FAILURES);
        let ended = {
            let work = async {
                let late = self.clock.sleep(self.cache_sync_timeout);
                if !race(informers.wait_for_cache_sync(), late).await.is_first() {
                    let waiting = informers.unsynced().into_iter().collect();
                    return ManagerError::CacheSync(waiting, self.cache_sync_timeout);
                }
                synced.store(true, Ordering::SeqCst);
                running.others = spawn(others, &failed);
                if let (Some(election), Some(leadership)) = (election, &leadership) {
                    running.election.spawn(election.run(election_stop, |_| {}));
                    leadership.acquired().await;
                }
                running.leading = spawn(controllers, &failed);
                match &leadership {
                    Some(leadership) => leadership.lost().await,
                    None => std::future::pending().await,
                }
                ManagerError::LeaderElectionLost
            };
            match race(stop.stopped(), race(failures.recv(), work)).await {
                Either::First(()) => Ok(()),
                Either::Second(Either::First(failure)) => {
                    Err(ManagerError::Runnable(failure.unwrap_or_else(|| "a runnable panicked".to_owned())))
                }
                Either::Second(Either::Second(error)) => Err(error),
            }
        };
        // Who no longer leads has no time at all: another one may have begun.
        let lost = matches!(ended, Err(ManagerError::LeaderElectionLost));
        let grace = if lost { Duration::ZERO } else { self.graceful_shutdown };
        let deadline = self.clock.monotonic().plus(grace);
        let end = async {
            others_stopper.stop();
            leader_stopper.stop();
            running.work_ended().await;
            informers.shut_down();
            election_stopper.stop();
            running.election_ended().await;
        };
        let in_time = race(end, self.clock.sleep_until(deadline)).await.is_first();
        let rest = async {
            recorder.flush().await;
            http_stopper.stop();
            running.http_ended().await;
        };
        if in_time {
            // What cannot be told in time is no failure of what ran.
            race(rest, self.clock.sleep_until(deadline)).await;
        }
        informers.shut_down();
        match ended {
            Ok(()) if !in_time => Err(ManagerError::GracefulShutdown(self.graceful_shutdown)),
            ended => ended,
        }
    }

    fn elect(&self, client: &Client) -> Result<Option<LeaderElection>, ManagerError> {
        let Some((namespace, name, config)) = &self.election else { return Ok(None) };
        let lock = LeaseLock::new(client, namespace, name);
        let (clock, ids) = (Arc::clone(&self.clock), Arc::clone(&self.ids));
        let election = LeaderElection::new(config.clone(), lock, clock, ids).map_err(ManagerError::LeaderElection)?;
        election.register(&self.registry);
        let (reporter, key) = (self.reporter.clone(), Key::new(namespace, name));
        let leases = GroupVersionResource::from_static("coordination.k8s.io", "v1", "leases");
        Ok(Some(election.on_error(move |error| reporter.report("", &leases, Some(&key), error))))
    }

    fn informers(&mut self, client: &Client) -> Arc<SharedInformerFactory> {
        let (clock, ids) = (Arc::clone(&self.clock), Arc::clone(&self.ids));
        let reporter = self.reporter.clone();
        let mut informers = SharedInformerFactory::new(Arc::new(client.clone()), clock, ids)
            .namespaces(self.namespaces.clone())
            .on_watch_error(move |resource, error| reporter.report("", resource, None, error));
        if let Some(resync) = self.resync {
            informers = informers.resync(resync);
        }
        for tweak in self.caches.drain(..) {
            informers = tweak(informers);
        }
        Arc::new(informers)
    }

    async fn serve(&mut self, stop: &Stop) -> Result<JoinSet<()>, ManagerError> {
        let mut listeners: Vec<(TcpListener, Endpoints)> = Vec::new();
        let pages = std::mem::take(&mut self.pages);
        let mut metrics = Endpoints { pages, metrics: Some(self.registry.clone()), health: None };
        let health = Some((self.healthz.clone(), self.readyz.clone()));
        let mut served = self.health;
        // One address may be for both, unless it is any that is free.
        if self.metrics == self.health && self.metrics.is_some_and(|address| address.port() != 0) {
            (metrics.health, served) = (health.clone(), None);
        }
        let health = Endpoints { health, ..Endpoints::default() };
        for (address, endpoints) in [(self.metrics, metrics), (served, health)] {
            let Some(address) = address else { continue };
            let listener = endpoints::bind(address).await.map_err(|error| ManagerError::Listen(address, error))?;
            listeners.push((listener, endpoints));
        }
        if let Some(bound) = self.bound.take() {
            let addresses: Vec<_> = listeners.iter().filter_map(|(listener, _)| listener.local_addr().ok()).collect();
            bound(&addresses);
        }
        let served = listeners.into_iter();
        Ok(served
            .map(|(listener, endpoints)| endpoints.serve(listener, Arc::clone(&self.clock), stop.clone()))
            .collect())
    }
}

fn prepared<F: Future<Output = Result<(), String>> + Send + 'static>(
    run: impl FnOnce(Context) -> F + Send + 'static,
) -> Prepare {
    Box::new(move |ctx, _, _| Box::pin(run(ctx.clone())))
}
