//! The cluster, its clock, and a record of who wrote what.

use std::{
    future::Future,
    sync::{
        Arc, Mutex,
        atomic::{AtomicUsize, Ordering},
    },
    time::Duration,
};

use bytes::Bytes;
use capstan_api::{Resource, object::Object, options::ListOptions};
use capstan_client::{Api, Body, BoxFuture, Client, Error, Transport};
use capstan_clock::{ManualClock, SeededIds};
use capstan_controllers::{CONTROLLERS, ControllerContext, ControllerOptions};
use capstan_kubelet::simulated;
use capstan_runtime::Stopper;
use capstan_scheduler::{Scheduler, SchedulerConfig};
use capstan_server::{Config, InProcess, Server, authorization::UserInfo, http as server};
use capstan_storage::{Memory, Options};
use http::{Method, Request, Response};
use serde_json::Value;

/// How often the clock is moved on before it counts as never.
const PATIENCE: usize = 20_000;

/// The control loops that a Deployment needs, and the service account of each.
const LOOPS: [(&str, &str); 6] = [
    ("deployment-controller", "deployment-controller"),
    ("replicaset-controller", "replicaset-controller"),
    ("serviceaccount-controller", "service-account-controller"),
    ("node-lifecycle-controller", "node-controller"),
    ("taint-eviction-controller", "node-controller"),
    ("pod-garbage-collector-controller", "pod-garbage-collector"),
];

/// A write that the server has accepted.
#[derive(Clone, Debug)]
pub(crate) struct Write {
    /// When it was asked for: answers may be read late, but nobody asks before what they answer to has happened.
    pub(crate) at: usize,
    pub(crate) who: String,
    pub(crate) method: Method,
    /// The path without what all paths begin with: `pods/web-1/binding`.
    pub(crate) path: String,
    pub(crate) asked: Value,
    pub(crate) answer: Value,
}

/// All writes.
#[derive(Debug, Default)]
pub(crate) struct Record {
    asked: AtomicUsize,
    writes: Mutex<Vec<Write>>,
}

impl Record {
    /// In the order in which they were asked for.
    pub(crate) fn writes(&self) -> Vec<Write> {
        let mut writes = self.writes.lock().unwrap().clone();
        writes.sort_by_key(|write| write.at);
        writes
    }
}

/// The road of one part to the server.
struct Recorded {
    service: InProcess,
    who: &'static str,
    record: Arc<Record>,
}

impl Transport for Recorded {
    fn send(&self, request: Request<Bytes>) -> BoxFuture<'static, Result<Response<Body>, Error>> {
        let (mut service, who, record) = (self.service.clone(), self.who, Arc::clone(&self.record));
        Box::pin(async move {
            let at = record.asked.fetch_add(1, Ordering::SeqCst);
            let (method, uri, asked) = (request.method().clone(), request.uri().clone(), request.body().clone());
            let answer = tower_service::Service::call(&mut service, request.map(server::Body::from)).await.unwrap();
            let path = uri.path();
            let refused = answer.status().as_u16();
            assert!(!matches!(refused, 401 | 403), "{who} may not {method} {path}");
            if method == Method::GET || !answer.status().is_success() || path.ends_with("/events") {
                return Ok(answer.map(Body::new));
            }
            let (parts, body) = answer.into_parts();
            let body = Body::new(body).bytes().await?;
            let parse = |bytes: &[u8]| serde_json::from_slice(bytes).unwrap_or_default();
            let path = path.split_once("/namespaces/default/").map_or(path, |(_, rest)| rest).to_owned();
            let write = Write { at, who: who.to_owned(), method, path, asked: parse(&asked), answer: parse(&body) };
            record.writes.lock().unwrap().push(write);
            Ok(Response::from_parts(parts, Body::new(server::Body::from(body))))
        })
    }
}

/// A whole cluster.
pub(crate) struct World {
    pub(crate) clock: ManualClock,
    /// The user's.
    pub(crate) client: Client,
    pub(crate) record: Arc<Record>,
    ids: Arc<SeededIds>,
    server: Server,
    /// Ends the loops when it goes.
    _stopper: Stopper,
}

impl World {
    pub(crate) async fn start() -> Self {
        let clock = ManualClock::at("2026-01-01T00:00:00Z".parse().unwrap());
        let ids = Arc::new(SeededIds::new(11));
        let store = Arc::new(Memory::new(Options::with_clock(Arc::new(clock.clone()))));
        let config = Config { clock: Arc::new(clock.clone()), ids: ids.clone(), ..Config::default() };
        let server = Server::start(store, config).await.unwrap();
        let record = Arc::new(Record::default());
        let (stopper, stop) = Stopper::new();
        let client = client_of(&server, &record, "user", "admin", &["system:masters"]);
        let world = World { clock, client, record, ids, server, _stopper: stopper };

        let shared = world.part("kube-controller-manager", "system:kube-controller-manager", &[]);
        let options = ControllerOptions::default();
        let clock = Arc::new(world.clock.clone());
        let context = ControllerContext::new(shared, clock.clone(), world.ids.clone(), stop.clone(), options);
        for (name, account) in LOOPS {
            let row = CONTROLLERS.iter().find(|row| row.name == name).unwrap();
            let user = format!("system:serviceaccount:kube-system:{account}");
            let client = world.part(name, &user, &["system:serviceaccounts", "system:serviceaccounts:kube-system"]);
            tokio::spawn((row.run)(&ControllerContext { client, ..context.clone() }));
        }
        context.informers.start();
        // Informers end with the factory that made them.
        let kept = stop.clone();
        tokio::spawn(async move {
            kept.stopped().await;
            drop(context);
        });
        let client = world.part("scheduler", "system:kube-scheduler", &[]);
        tokio::spawn(Scheduler::new(client, clock, world.ids.clone(), SchedulerConfig::default()).run(stop));
        world
    }

    fn part(&self, who: &'static str, user: &str, groups: &[&'static str]) -> Client {
        let groups: Vec<&str> = groups.iter().copied().chain(["system:authenticated"]).collect();
        client_of(&self.server, &self.record, who, user, &groups)
    }

    /// Starts nodes; they report until the stopper goes.
    pub(crate) fn nodes(&self, names: &[&str]) -> Stopper {
        let (stopper, stop) = Stopper::new();
        // Who speaks for many nodes has no role in a cluster by itself.
        let client = client_of(&self.server, &self.record, "node", "nodes", &["system:masters"]);
        let names = names.iter().map(|name| (*name).to_owned()).collect();
        let nodes = simulated::Nodes::new(client, Arc::new(self.clock.clone()), self.ids.clone(), names);
        tokio::spawn(nodes.run(stop));
        stopper
    }

    pub(crate) fn api<K: Resource>(&self) -> Api<K> {
        Api::namespaced(&self.client, "default")
    }

    pub(crate) async fn list<K: Object + Resource>(&self) -> Vec<K> {
        Api::<K>::namespaced(&self.client, "default").list(&ListOptions::default()).await.unwrap().items
    }

    /// Waits until something is so, moving the clock on by little steps.
    pub(crate) async fn until<T, F: Future<Output = Option<T>>>(&self, what: &str, mut check: impl FnMut() -> F) -> T {
        for _ in 0..PATIENCE {
            if let Some(found) = check().await {
                return found;
            }
            self.clock.advance(Duration::from_millis(20));
            turn().await;
        }
        panic!("never: {what}");
    }

    /// Lets time pass, second by second.
    pub(crate) async fn pass(&self, seconds: usize) {
        for _ in 0..seconds {
            self.clock.advance(Duration::from_secs(1));
            for _ in 0..20 {
                turn().await;
            }
        }
    }

    /// A Deployment of so many pods, made by the user.
    pub(crate) async fn deploy(&self, name: &str, replicas: usize) {
        let deployment = serde_json::json!({
            "metadata": {"name": name},
            "spec": {
                "replicas": replicas,
                "selector": {"matchLabels": {"app": name}},
                "template": {
                    "metadata": {"labels": {"app": name}},
                    "spec": {"containers": [{"name": "web", "image": "nginx"}]},
                },
            },
        });
        let deployments = self.api::<k8s_openapi::api::apps::v1::Deployment>();
        deployments.create(&serde_json::from_value(deployment).unwrap()).await.unwrap();
    }

    /// Waits until so many pods of a Deployment can be used.
    pub(crate) async fn until_available(&self, name: &str, replicas: i32) {
        let deployments = self.api::<k8s_openapi::api::apps::v1::Deployment>();
        self.until(&format!("{replicas} of {name}"), || async {
            let status = deployments.get(name).await.unwrap().status?;
            (status.available_replicas == Some(replicas) && status.replicas == Some(replicas)).then_some(())
        })
        .await;
    }
}

fn client_of(server: &Server, record: &Arc<Record>, who: &'static str, user: &str, groups: &[&str]) -> Client {
    let service = server.as_user(UserInfo::new(user, groups.iter().copied()));
    Client::new(Recorded { service, who, record: Arc::clone(record) })
}

/// Lets everybody else have a turn, threads too.
async fn turn() {
    for _ in 0..10 {
        tokio::task::yield_now().await;
    }
    std::thread::yield_now();
}
