//! A server in this process, the loops on it, a clock that obeys, and a node that is played.

use std::{
    sync::{
        Arc, Mutex,
        atomic::{AtomicU64, Ordering},
    },
    time::Duration,
};

use capstan_api::{
    Resource,
    object::Object,
    options::{DeleteOptions, ListOptions},
};
use capstan_client::{Api, BoxFuture, Client, Event, SharedInformerFactory, Transport};
use capstan_clock::{ManualClock, SeededIds};
use capstan_controllers::{CONTROLLERS, ControllerContext, ControllerOptions};
use capstan_runtime::Stopper;
use capstan_server::{Config, Server, authorization::UserInfo};
use capstan_storage::{Memory, Options};
use k8s_openapi::api::core::v1::{Pod, PodCondition};
use serde::{Serialize, de::DeserializeOwned};

/// How often a condition is looked at before it counts as never coming.
const LOOKS: usize = 4000;

pub(crate) struct Cluster {
    /// The tests' own client.
    pub(crate) client: Client,
    pub(crate) clock: ManualClock,
    server: Server,
    manager: Option<Manager>,
    controllers: Vec<&'static str>,
    /// Requests of the loops that were not reads, but for Events.
    pub(crate) writes: Arc<AtomicU64>,
    /// All requests of the loops, but for watches: these end by themselves and are renewed each 5 to 10 minutes.
    pub(crate) requests: Arc<AtomicU64>,
    refused: Arc<Mutex<Vec<Refusal>>>,
    seed: u64,
}

/// The loops while they run.
struct Manager {
    _stopper: Stopper,
    informers: Arc<SharedInformerFactory>,
    running: tokio::task::JoinHandle<()>,
}

impl Cluster {
    pub(crate) async fn start(controllers: &[&'static str]) -> Self {
        let clock = ManualClock::at("2026-03-02T10:00:00Z".parse().unwrap());
        let config = Config {
            clock: Arc::new(clock.clone()),
            ids: Arc::new(SeededIds::new(1)),
            disable_admission: vec!["ServiceAccount".to_owned()],
            ..Config::default()
        };
        let server = Server::start(Arc::new(Memory::new(Options::default())), config).await.unwrap();
        let client = Client::from_service(server.as_user(UserInfo::new("test", ["system:masters"])));
        let mut cluster = Cluster {
            client,
            clock,
            server,
            manager: None,
            controllers: controllers.to_vec(),
            writes: Arc::default(),
            requests: Arc::default(),
            refused: Arc::default(),
            seed: 2,
        };
        cluster.start_manager(u64::MAX);
        cluster
    }

    /// Starts the loops. Once they have made `budget` writes they are cut off from the server.
    pub(crate) fn start_manager(&mut self, budget: u64) {
        let inner = Client::from_service(self.server.as_user(UserInfo::new("loops", ["system:masters"])));
        let transport = Counted {
            inner,
            writes: Arc::clone(&self.writes),
            requests: Arc::clone(&self.requests),
            refused: Arc::clone(&self.refused),
            budget: Arc::new(AtomicU64::new(budget)),
        };
        let client = Client::new(transport);
        self.seed += 1;
        let (clock, ids) = (Arc::new(self.clock.clone()), Arc::new(SeededIds::new(self.seed)));
        let (stopper, stop) = Stopper::new();
        let context = ControllerContext::new(client, clock, ids, stop, ControllerOptions::default());
        let informers = Arc::clone(&context.informers);
        let loops: Vec<BoxFuture<'static, ()>> = CONTROLLERS
            .iter()
            .filter(|descriptor| self.controllers.contains(&descriptor.name))
            .map(|descriptor| (descriptor.run)(&context))
            .collect();
        assert_eq!(loops.len(), self.controllers.len(), "all of {:?} are known", self.controllers);
        informers.start();
        let running = tokio::spawn(async move {
            let mut loops: tokio::task::JoinSet<()> = loops.into_iter().collect();
            while loops.join_next().await.is_some() {}
        });
        self.manager = Some(Manager { _stopper: stopper, informers, running });
    }

    /// Ends the loops, whatever they are doing.
    pub(crate) async fn stop_manager(&mut self) {
        let Some(Manager { _stopper, informers, running }) = self.manager.take() else { return };
        drop(_stopper);
        informers.shut_down();
        running.await.unwrap();
    }

    /// From now on requests of the loops with this method are refused if their path contains this.
    pub(crate) fn refuse(&self, method: http::Method, path: &'static str) {
        self.refused.lock().unwrap().push((method, path));
    }

    /// Nothing is refused any more.
    pub(crate) fn relent(&self) {
        self.refused.lock().unwrap().clear();
    }

    /// The reasons and messages of all Events.
    pub(crate) async fn told(&self) -> Vec<(String, String)> {
        let events = self.list::<k8s_openapi::api::core::v1::Event>().await.into_iter();
        events.map(|event| (event.reason.unwrap_or_default(), event.message.unwrap_or_default())).collect()
    }

    pub(crate) async fn is_told(&self, reason: &str) -> bool {
        self.told().await.iter().any(|(found, _)| found == reason)
    }

    /// How many requests the loops make in a minute in which nobody else does anything.
    pub(crate) async fn requests_in_a_minute(&self) -> u64 {
        let before = self.requests.load(Ordering::SeqCst);
        for _ in 0..60 {
            self.clock.advance(Duration::from_secs(1));
            for _ in 0..20 {
                self.breathe().await;
            }
        }
        self.requests.load(Ordering::SeqCst) - before
    }

    pub(crate) fn api<K: Resource>(&self) -> Api<K> {
        Api::namespaced(&self.client, "default")
    }

    /// Creates what a text in YAML says.
    pub(crate) async fn create<K: Resource + Object + Serialize + DeserializeOwned>(&self, yaml: &str) -> K {
        let value = capstan_api::yaml::parse(yaml.as_bytes()).unwrap();
        let object: K = serde_json::from_str(&value.to_string()).unwrap();
        self.api::<K>().create(&object).await.unwrap()
    }

    pub(crate) async fn get<K: Resource + Object>(&self, name: &str) -> K {
        self.api::<K>().get(name).await.unwrap()
    }

    pub(crate) async fn list<K: Resource + Object>(&self) -> Vec<K> {
        self.api::<K>().list(&ListOptions::default()).await.unwrap().items
    }

    /// Changes an object until nobody else was quicker.
    pub(crate) async fn change<K: Resource + Object + Serialize>(&self, name: &str, change: impl Fn(&mut K)) -> K {
        loop {
            let mut object: K = self.get(name).await;
            change(&mut object);
            match self.api::<K>().update(&object).await {
                Err(error) if error.is_conflict() => {}
                other => return other.unwrap(),
            }
        }
    }

    /// Lets everybody work for a while; time moves a little, for those who try again.
    pub(crate) async fn breathe(&self) {
        for _ in 0..20 {
            tokio::task::yield_now().await;
        }
        self.clock.advance(Duration::from_millis(5));
    }

    /// Waits until something is so.
    pub(crate) async fn until<F: Future<Output = bool>>(&self, what: &str, mut is_so: impl FnMut() -> F) {
        for _ in 0..LOOKS {
            if is_so().await {
                return;
            }
            self.breathe().await;
        }
        panic!("it never came to this: {what}");
    }

    /// Waits until an object is so, and gives it.
    pub(crate) async fn until_object<K: Resource + Object>(&self, name: &str, is_so: impl Fn(&K) -> bool) -> K {
        let mut last = None;
        for _ in 0..LOOKS {
            let object = self.api::<K>().get_opt(name).await.unwrap();
            if let Some(object) = object {
                if is_so(&object) {
                    return object;
                }
                last = Some(object.identity().resource_version.to_owned());
            }
            self.breathe().await;
        }
        let told = self.list::<k8s_openapi::api::core::v1::Event>().await;
        let told: Vec<_> = told.into_iter().filter_map(|event| event.message).collect();
        panic!("{} {name} never came to this, it is at {last:?}; told was {told:#?}", K::gvk().kind);
    }

    /// Waits until nobody writes any more.
    pub(crate) async fn settle(&self) {
        let (mut before, mut calm) = (self.version().await, 0);
        for _ in 0..LOOKS / 10 {
            if calm == 5 {
                return;
            }
            for _ in 0..10 {
                self.breathe().await;
            }
            let now = self.version().await;
            calm = if now == before { calm + 1 } else { 0 };
            before = now;
        }
        panic!("somebody writes all the time");
    }

    /// The version of the whole.
    async fn version(&self) -> String {
        self.api::<Pod>().list(&ListOptions { limit: 1, ..ListOptions::default() }).await.unwrap().resource_version
    }

    /// Plays the node from now on: pods begin to run and are ready at once, pods that are deleted go.
    pub(crate) fn play_node(&self) -> Node {
        let (pods, clock) = (self.api::<Pod>(), self.clock.clone());
        let task = tokio::spawn(async move {
            let mut watch = pods.watch(&ListOptions::default()).await.unwrap();
            while let Some(event) = watch.try_next().await.unwrap() {
                let (Event::Added(pod) | Event::Modified(pod)) = event else { continue };
                let name = pod.identity().name.to_owned();
                // Who has no time left is deleted by the server itself.
                if pod.metadata.deletion_grace_period_seconds.is_some_and(|seconds| seconds > 0) {
                    let now = DeleteOptions { grace_period_seconds: Some(0), ..DeleteOptions::default() };
                    let _ = pods.delete(&name, &now).await;
                } else if pod.status.as_ref().and_then(|s| s.phase.as_deref()).unwrap_or("Pending") == "Pending" {
                    // Somebody else may have been quicker; then there is another event.
                    let _ = pods.update_status(&running(pod, clock_time(&clock))).await;
                }
            }
        });
        Node { task }
    }
}

fn clock_time(clock: &ManualClock) -> capstan_clock::Timestamp {
    use capstan_clock::Clock as _;
    clock.now()
}

/// The pod as it runs, ready since now.
pub(crate) fn running(mut pod: Pod, now: capstan_clock::Timestamp) -> Pod {
    let status = pod.status.get_or_insert_default();
    status.phase = Some("Running".to_owned());
    let ready = PodCondition {
        type_: "Ready".to_owned(),
        status: "True".to_owned(),
        last_transition_time: Some(k8s_openapi::apimachinery::pkg::apis::meta::v1::Time(now)),
        ..PodCondition::default()
    };
    status.conditions = Some(vec![ready]);
    pod
}

/// A node that is played, until it is dropped.
pub(crate) struct Node {
    task: tokio::task::JoinHandle<()>,
}

impl Drop for Node {
    fn drop(&mut self) {
        self.task.abort();
    }
}

/// A method, and a part of a path.
type Refusal = (http::Method, &'static str);

/// Counts requests, and lets no more writes through than there shall be.
#[derive(Clone, Debug)]
struct Counted {
    inner: Client,
    writes: Arc<AtomicU64>,
    requests: Arc<AtomicU64>,
    refused: Arc<Mutex<Vec<Refusal>>>,
    budget: Arc<AtomicU64>,
}

impl Transport for Counted {
    fn send(
        &self,
        request: http::Request<bytes::Bytes>,
    ) -> BoxFuture<'static, Result<http::Response<capstan_client::Body>, capstan_client::Error>> {
        let this = self.clone();
        Box::pin(async move {
            let is_watch = request.uri().query().is_some_and(|query| query.contains("watch=true"));
            this.requests.fetch_add(u64::from(!is_watch), Ordering::SeqCst);
            let is_meant = |(method, path): &Refusal| method == request.method() && request.uri().path().contains(path);
            if this.refused.lock().unwrap().iter().any(is_meant) {
                return Err(capstan_client::Error::Transport("refused".to_owned()));
            }
            // Events are told on the side and change nothing.
            let is_write = request.method() != http::Method::GET && !request.uri().path().ends_with("/events");
            if is_write {
                let left = this.budget.fetch_update(Ordering::SeqCst, Ordering::SeqCst, |left| left.checked_sub(1));
                if left.is_err() {
                    return Err(capstan_client::Error::Transport("cut off".to_owned()));
                }
                this.writes.fetch_add(1, Ordering::SeqCst);
            }
            this.inner.send(request).await
        })
    }
}
