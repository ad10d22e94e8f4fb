//! A server in this process, a clock that obeys, and control loops that can be killed.

use std::{
    collections::BTreeMap,
    fmt::Debug,
    future::Future,
    sync::{
        Arc, Mutex,
        atomic::{AtomicUsize, Ordering},
    },
    time::Duration,
};

use bytes::Bytes;
use capstan_api::{
    Resource,
    object::Object,
    options::{DeleteOptions, ListOptions},
};
use capstan_client::{Api, Body, BoxFuture, Client, Error, Transport};
use capstan_clock::{ManualClock, SeededIds};
use capstan_controllers::{CONTROLLERS, ControllerContext, ControllerOptions};
use capstan_runtime::{Stop, Stopper};
use capstan_server::{Config, Server, authorization::UserInfo};
use capstan_storage::{Memory, Options};
use http::{Method, Request, Response};
use k8s_openapi::api::core::v1::Event;
use serde::{Serialize, de::DeserializeOwned};
use serde_json::Value;

/// How often the clock is moved on before it counts as never.
const PATIENCE: usize = 20_000;
/// How many turns without a request mean that nothing more happens.
const QUIET: usize = 300;

/// What others serve, by the beginnings of paths, or of `METHOD path`. A `Status` has its code.
pub type Elsewhere = Arc<Mutex<BTreeMap<String, Value>>>;

/// What the loops ask of the server, counted; and a road that can be cut after so many writes.
#[derive(Debug)]
pub struct Road {
    elsewhere: Elsewhere,
    client: Client,
    requests: AtomicUsize,
    writes: AtomicUsize,
    last_write: AtomicUsize,
}

impl Road {
    fn elsewhere(&self, request: &Request<Bytes>) -> Option<Response<Body>> {
        let all = self.elsewhere.lock().unwrap();
        let path = request.uri().path();
        let line = format!("{} {path}", request.method());
        let (_, value) = all.iter().find(|(begins, _)| path.starts_with(*begins) || line.starts_with(*begins))?;
        let body = Body::new(http_body_util::Full::new(Bytes::from(value.to_string())));
        let code = value["code"].as_u64().and_then(|code| u16::try_from(code).ok()).unwrap_or(200);
        Some(Response::builder().status(code).body(body).unwrap())
    }
}

struct Shared(Arc<Road>);

impl Transport for Shared {
    fn send(&self, request: Request<Bytes>) -> BoxFuture<'static, Result<Response<Body>, Error>> {
        let road = Arc::clone(&self.0);
        Box::pin(async move {
            let is_event = request.uri().path().ends_with("/events");
            if !is_event {
                road.requests.fetch_add(1, Ordering::SeqCst);
            }
            if request.method() != Method::GET && !is_event {
                let write = road.writes.fetch_add(1, Ordering::SeqCst);
                if write >= road.last_write.load(Ordering::SeqCst) {
                    // Whoever is dead gets no answer.
                    return std::future::pending().await;
                }
            }
            if let Some(answer) = road.elsewhere(&request) {
                return Ok(answer);
            }
            road.client.send(request).await
        })
    }
}

/// Control loops at work.
pub struct Running {
    stopper: Stopper,
    tasks: Vec<tokio::task::JoinHandle<()>>,
    informers: Arc<capstan_client::SharedInformerFactory>,
    pub road: Arc<Road>,
}

impl Running {
    /// They are gone, whatever they were doing.
    pub fn kill(self) {
        self.informers.shut_down();
        self.stopper.stop();
        self.tasks.iter().for_each(tokio::task::JoinHandle::abort);
    }

    /// How many requests were made so far.
    pub fn requests(&self) -> usize {
        self.road.requests.load(Ordering::SeqCst)
    }

    /// How many writes were tried so far.
    pub fn writes(&self) -> usize {
        self.road.writes.load(Ordering::SeqCst)
    }
}

pub struct Cluster {
    pub client: Client,
    pub clock: ManualClock,
    pub ids: Arc<SeededIds>,
    pub options: ControllerOptions,
    pub elsewhere: Elsewhere,
    server: Server,
}

impl Cluster {
    pub async fn start() -> Self {
        Cluster::with(|_| {}).await
    }

    pub async fn with(change: impl FnOnce(&mut Config)) -> Self {
        let clock = ManualClock::at("2026-01-01T00:00:00Z".parse().unwrap());
        let ids = Arc::new(SeededIds::new(9));
        let store = Arc::new(Memory::new(Options::with_clock(Arc::new(clock.clone()))));
        let mut config = Config { clock: Arc::new(clock.clone()), ids: ids.clone(), ..Config::default() };
        config.disable_admission.push("ServiceAccount".to_owned());
        change(&mut config);
        let server = Server::start(store, config).await.unwrap();
        let client = Client::from_service(server.as_user(UserInfo::new("admin", ["system:masters"])));
        Cluster { client, clock, ids, options: ControllerOptions::default(), elsewhere: Elsewhere::default(), server }
    }

    /// Starts these loops.
    pub fn run(&self, names: &[&str]) -> Running {
        self.run_until(names, usize::MAX)
    }

    /// Starts these loops; after so many writes the world is as if they had died.
    pub fn run_until(&self, names: &[&str], last_write: usize) -> Running {
        let road = Arc::new(Road {
            elsewhere: Arc::clone(&self.elsewhere),
            client: self.client.clone(),
            requests: AtomicUsize::new(0),
            writes: AtomicUsize::new(0),
            last_write: AtomicUsize::new(last_write),
        });
        let client = Client::new(Shared(Arc::clone(&road)));
        let (stopper, stop) = Stopper::new();
        let context = self.context(client, stop);
        let tasks = names
            .iter()
            .map(|name| {
                let row = CONTROLLERS.iter().find(|row| row.name == *name).unwrap_or_else(|| panic!("no {name}"));
                tokio::spawn((row.run)(&context))
            })
            .collect();
        context.informers.start();
        Running { stopper, tasks, informers: context.informers, road }
    }

    fn context(&self, client: Client, stop: Stop) -> ControllerContext {
        ControllerContext::new(client, Arc::new(self.clock.clone()), self.ids.clone(), stop, self.options.clone())
    }

    /// Somebody else's client.
    pub fn as_user(&self, name: &str, groups: &[&str]) -> Client {
        Client::from_service(self.server.as_user(UserInfo::new(name, groups.iter().copied())))
    }

    /// Waits until something is so, moving the clock on by little steps.
    pub async fn until<T, F: Future<Output = Option<T>>>(&self, what: &str, mut check: impl FnMut() -> F) -> T {
        for _ in 0..PATIENCE {
            if let Some(found) = check().await {
                return found;
            }
            self.clock.advance(Duration::from_millis(20));
            turn().await;
        }
        panic!("never: {what}");
    }

    /// Waits until the loops have made no request for many turns; the clock stands still.
    pub async fn settle(&self, running: &Running) {
        let (mut quiet, mut seen) = (0, running.requests());
        while quiet < QUIET {
            turn().await;
            let now = running.requests();
            quiet = if now == seen { quiet + 1 } else { 0 };
            seen = now;
        }
    }

    /// Lets time pass in steps of a second, each worked off.
    pub async fn pass(&self, running: &Running, seconds: u64) {
        for _ in 0..seconds {
            self.clock.advance(Duration::from_secs(1));
            for _ in 0..20 {
                turn().await;
            }
        }
        self.settle(running).await;
    }

    pub fn api<K: Resource>(&self, namespace: &str) -> Api<K> {
        Api::namespaced(&self.client, namespace)
    }

    /// Creates what the JSON says; the status too, if there is one.
    pub async fn create<K: Object + Resource + Serialize + DeserializeOwned + Clone>(&self, object: Value) -> K {
        let namespace = object["metadata"]["namespace"].as_str().unwrap_or("default").to_owned();
        let has_status = !object["status"].is_null();
        let status = object["status"].clone();
        let api = Api::<K>::namespaced(&self.client, &namespace);
        let typed: K = serde_json::from_value(object).unwrap();
        let created = api.create(&typed).await.unwrap();
        if !has_status {
            return created;
        }
        self.set_status(&created, status).await
    }

    /// Writes the status of an object.
    pub async fn set_status<K: Object + Resource>(&self, object: &K, status: Value) -> K {
        let api = Api::<K>::namespaced(&self.client, object.identity().namespace);
        let patch = capstan_client::Patch::Merge(serde_json::json!({"status": status}));
        api.patch_status(object.identity().name, &patch).await.unwrap()
    }

    /// Changes an object.
    pub async fn merge<K: Object + Resource>(&self, namespace: &str, name: &str, patch: Value) -> K {
        self.api::<K>(namespace).patch(name, &capstan_client::Patch::Merge(patch)).await.unwrap()
    }

    pub async fn list<K: Object + Resource>(&self, namespace: &str) -> Vec<K> {
        self.api::<K>(namespace).list(&ListOptions::default()).await.unwrap().items
    }

    pub async fn get<K: Object + Resource>(&self, namespace: &str, name: &str) -> Option<K> {
        self.api::<K>(namespace).get_opt(name).await.unwrap()
    }

    pub async fn delete<K: Object + Resource + Debug>(&self, namespace: &str, name: &str) {
        self.api::<K>(namespace).delete(name, &DeleteOptions::default()).await.unwrap();
    }

    /// Deletes what would take its time.
    pub async fn delete_now<K: Object + Resource + Debug>(&self, namespace: &str, name: &str) {
        let options = DeleteOptions { grace_period_seconds: Some(0), ..DeleteOptions::default() };
        self.api::<K>(namespace).delete(name, &options).await.unwrap();
    }

    /// The events of a namespace, as `type reason message`.
    pub async fn events(&self, namespace: &str) -> Vec<String> {
        let text = |value: Option<String>| value.unwrap_or_default();
        let events = self.list::<Event>(namespace).await;
        events.into_iter().map(|e| format!("{} {} {}", text(e.type_), text(e.reason), text(e.message))).collect()
    }

    /// Waits for an event that begins so.
    pub async fn event(&self, namespace: &str, begins: &str) {
        self.until(begins, || async {
            self.events(namespace).await.iter().any(|event| event.starts_with(begins)).then_some(())
        })
        .await;
    }
}

/// Lets everybody else have a turn, threads too.
pub async fn turn() {
    for _ in 0..10 {
        tokio::task::yield_now().await;
    }
    std::thread::yield_now();
}
