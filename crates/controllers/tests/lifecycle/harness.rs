//! A cluster in this process whose time obeys, and managers that can be killed at any write.

use std::{
    sync::{
        Arc, Mutex,
        atomic::{AtomicI64, AtomicU64, Ordering},
    },
    time::Duration,
};

use bytes::Bytes;
use capstan_api::{
    GroupVersionResource, Unstructured,
    options::{DeleteOptions, ListOptions},
};
use capstan_client::{Api, Body, BoxFuture, Client, Error, Transport};
use capstan_clock::{Clock, ManualClock, Moment, SeededIds, Sleep, Timestamp};
use capstan_controllers::{CONTROLLERS, ControllerContext, ControllerOptions, TokenSigner};
use capstan_runtime::Stopper;
use capstan_server::{Config, Server, authorization::UserInfo};
use capstan_storage::{Memory, Options};
use http::{Method, Request, Response};
use serde_json::{Value, json};

/// How long anything may take, in virtual seconds.
const PATIENCE: u64 = 3600;

/// A clock that obeys, and whose date somebody may set.
#[derive(Clone, Debug)]
pub(crate) struct JumpingClock {
    steady: ManualClock,
    ahead: Arc<AtomicI64>,
}

impl JumpingClock {
    fn at(now: Timestamp) -> Self {
        JumpingClock { steady: ManualClock::at(now), ahead: Arc::default() }
    }

    pub(crate) fn advance(&self, duration: Duration) {
        self.steady.advance(duration);
    }

    /// The date is another one, and no time has gone by.
    pub(crate) fn jump(&self, seconds: i64) {
        self.ahead.fetch_add(seconds, Ordering::SeqCst);
    }
}

impl Clock for JumpingClock {
    fn now(&self) -> Timestamp {
        let ahead = self.ahead.load(Ordering::SeqCst);
        Timestamp::from_nanosecond(self.steady.now().as_nanosecond() + i128::from(ahead) * 1_000_000_000).unwrap()
    }

    fn monotonic(&self) -> Moment {
        self.steady.monotonic()
    }

    fn sleep_until(&self, deadline: Moment) -> Sleep {
        self.steady.sleep_until(deadline)
    }
}

/// A server on a clock that obeys.
pub(crate) struct Cluster {
    pub(crate) clock: JumpingClock,
    pub(crate) client: Client,
    server: Server,
}

/// The requests of a manager.
#[derive(Default)]
pub(crate) struct Requests {
    writes: AtomicU64,
    log: Mutex<Vec<String>>,
}

impl Requests {
    pub(crate) fn writes(&self) -> u64 {
        self.writes.load(Ordering::SeqCst)
    }

    /// What was asked since this was last called.
    pub(crate) fn take(&self) -> Vec<String> {
        std::mem::take(&mut *self.log.lock().unwrap())
    }
}

impl Requests {
    /// The same, without the questions which kinds there are, and watches that begin again.
    pub(crate) fn besides_discovery(&self) -> Vec<String> {
        let mut asked = self.take();
        asked.retain(|request| {
            !["GET /api", "GET /apis"].contains(&request.as_str()) && !request.contains("watch=true")
        });
        asked
    }
}

/// Counts requests, and answers none once so many writes have been made: as if the process had died.
struct Counting {
    to: Client,
    requests: Arc<Requests>,
    dies_after: u64,
}

impl Transport for Counting {
    fn send(&self, request: Request<Bytes>) -> BoxFuture<'static, Result<Response<Body>, Error>> {
        let is_write = request.method() != Method::GET;
        let made = self.requests.writes.load(Ordering::SeqCst);
        if made >= self.dies_after {
            return Box::pin(std::future::pending());
        }
        self.requests.writes.fetch_add(u64::from(is_write), Ordering::SeqCst);
        let path = request.uri().path_and_query().map_or("", |path| path.as_str());
        self.requests.log.lock().unwrap().push(format!("{} {path}", request.method()));
        let to = self.to.clone();
        Box::pin(async move { to.send(request).await })
    }
}

/// Signs by writing down what is signed.
struct Plain;

impl TokenSigner for Plain {
    fn sign(&self, claims: &Value) -> Result<String, String> {
        Ok(claims.to_string())
    }
}

/// Loops that run.
pub(crate) struct Manager {
    pub(crate) requests: Arc<Requests>,
    stopper: Stopper,
    context: ControllerContext,
    tasks: Vec<tokio::task::JoinHandle<()>>,
}

impl Manager {
    /// Ends it at once, as a crash would.
    pub(crate) fn kill(self) {
        self.stopper.stop();
        self.context.informers.shut_down();
        self.tasks.iter().for_each(tokio::task::JoinHandle::abort);
    }
}

impl Cluster {
    pub(crate) async fn new() -> Self {
        let clock = JumpingClock::at("2026-01-01T00:00:00Z".parse().unwrap());
        // Pods need no account here.
        let config = Config {
            disable_admission: vec!["ServiceAccount".to_owned()],
            clock: Arc::new(clock.clone()),
            ids: Arc::new(SeededIds::new(1)),
            ..Config::default()
        };
        let server = Server::start(Arc::new(Memory::new(Options::default())), config).await.unwrap();
        let client = Client::from_service(server.as_user(UserInfo::new("admin", ["system:masters"])));
        Cluster { clock, client, server }
    }

    pub(crate) fn manager(&self, names: &[&str]) -> Manager {
        self.manager_that_dies(names, u64::MAX)
    }

    /// A manager that dies after so many writes.
    pub(crate) fn manager_that_dies(&self, names: &[&str], after: u64) -> Manager {
        let requests = Arc::new(Requests::default());
        let user = UserInfo::new("system:kube-controller-manager", ["system:masters"]);
        let to = Client::from_service(self.server.as_user(user));
        let client = Client::new(Counting { to, requests: Arc::clone(&requests), dies_after: after });
        let (stopper, stop) = Stopper::new();
        let options = ControllerOptions {
            root_ca: "the root".to_owned(),
            token_signer: Some(Arc::new(Plain)),
            ..ControllerOptions::default()
        };
        let ids = Arc::new(SeededIds::new(2));
        let context = ControllerContext::new(client, Arc::new(self.clock.clone()), ids, stop, options);
        let find = |name: &&str| CONTROLLERS.iter().find(|row| row.name == *name).unwrap_or_else(|| panic!("{name}"));
        let runs: Vec<_> = names.iter().map(|name| (find(name).run)(&context)).collect();
        context.informers.start();
        let tasks = runs.into_iter().map(tokio::spawn).collect();
        Manager { requests, stopper, context, tasks }
    }

    /// Lets everybody do what there is to do without time.
    pub(crate) async fn settle(&self) {
        for _ in 0..8 {
            self.client.get_raw("/version").await.unwrap();
            for _ in 0..40 {
                tokio::task::yield_now().await;
            }
        }
    }

    /// So many seconds go by, one by one.
    pub(crate) async fn advance(&self, seconds: u64) {
        for _ in 0..seconds {
            self.settle().await;
            self.clock.advance(Duration::from_secs(1));
        }
        self.settle().await;
    }

    /// Lets time go by until something is so.
    pub(crate) async fn until<F: Future<Output = bool>>(&self, what: &str, mut is_so: impl FnMut() -> F) {
        for _ in 0..PATIENCE {
            self.settle().await;
            if is_so().await {
                return;
            }
            self.clock.advance(Duration::from_secs(1));
        }
        panic!("this never happened: {what}");
    }

    pub(crate) fn api(&self, resource: &str, namespace: &str) -> Api<Unstructured> {
        Api::dynamic(&self.client, gvr(resource), namespace)
    }

    /// Creates an object from JSON: its resource, namespace and all else.
    pub(crate) async fn create(&self, resource: &str, namespace: &str, object: Value) -> Unstructured {
        let object = Unstructured::decode(object.to_string().as_bytes()).unwrap();
        self.api(resource, namespace).create(&object).await.unwrap_or_else(|error| panic!("{resource}: {error}"))
    }

    pub(crate) async fn get(&self, resource: &str, namespace: &str, name: &str) -> Option<Value> {
        let object = self.api(resource, namespace).get_opt(name).await.unwrap()?;
        Some(serde_json::to_value(&object).unwrap())
    }

    pub(crate) async fn exists(&self, resource: &str, namespace: &str, name: &str) -> bool {
        self.get(resource, namespace, name).await.is_some()
    }

    pub(crate) async fn names(&self, resource: &str, namespace: &str) -> Vec<String> {
        let list = self.api(resource, namespace).list(&ListOptions::default()).await.unwrap();
        list.items.iter().map(|object| object.name().to_owned()).collect()
    }

    /// Whether somebody has told: `Warning Reason name: message`.
    pub(crate) async fn has_event(&self, line: &str) -> bool {
        let events = self.api("v1/events", "").list(&ListOptions::default()).await.unwrap();
        events.items.iter().any(|event| {
            let text = |path: &[&str]| event.nested_str(path).unwrap().unwrap_or_default().to_owned();
            let about = text(&["involvedObject", "name"]);
            line == format!("{} {} {about}: {}", text(&["type"]), text(&["reason"]), text(&["message"]))
        })
    }

    /// The time as objects have it.
    pub(crate) fn now(&self) -> String {
        self.clock.now().strftime("%Y-%m-%dT%H:%M:%SZ").to_string()
    }

    pub(crate) async fn delete(&self, resource: &str, namespace: &str, name: &str, policy: &str) {
        let policy = (!policy.is_empty()).then(|| policy.to_owned());
        let options = DeleteOptions { propagation_policy: policy, ..DeleteOptions::default() };
        self.api(resource, namespace).delete(name, &options).await.unwrap();
    }

    pub(crate) async fn namespace(&self, name: &str) {
        self.create("v1/namespaces", "", named("v1", "Namespace", name)).await;
    }

    /// A kind of one's own: `widgets.x.io`, in namespaces.
    pub(crate) async fn widgets(&self) {
        let schema = json!({"openAPIV3Schema": {"type": "object", "x-kubernetes-preserve-unknown-fields": true}});
        let crd = json!({
            "apiVersion": "apiextensions.k8s.io/v1", "kind": "CustomResourceDefinition",
            "metadata": {"name": "widgets.x.io"},
            "spec": {
                "group": "x.io", "scope": "Namespaced",
                "names": {"plural": "widgets", "singular": "widget", "kind": "Widget", "listKind": "WidgetList"},
                "versions": [{"name": "v1", "served": true, "storage": true, "schema": schema}],
            },
        });
        self.create("apiextensions.k8s.io/v1/customresourcedefinitions", "", crd).await;
        self.until("widgets are served", || async {
            self.api("x.io/v1/widgets", "default").list(&ListOptions::default()).await.is_ok()
        })
        .await;
    }
}

/// `apps/v1/deployments` or `v1/pods`.
pub(crate) fn gvr(text: &str) -> GroupVersionResource {
    match *text.split('/').collect::<Vec<_>>() {
        [version, resource] => GroupVersionResource::new("", version.to_owned(), resource.to_owned()),
        [group, version, resource] => {
            GroupVersionResource::new(group.to_owned(), version.to_owned(), resource.to_owned())
        }
        _ => panic!("{text}"),
    }
}

pub(crate) fn named(api_version: &str, kind: &str, name: &str) -> Value {
    json!({"apiVersion": api_version, "kind": kind, "metadata": {"name": name}})
}

/// The same object, laid over with more.
pub(crate) fn with(mut object: Value, more: Value) -> Value {
    fn lay(under: &mut Value, over: Value) {
        match (under, over) {
            (Value::Object(under), Value::Object(over)) => {
                for (key, value) in over {
                    lay(under.entry(key).or_insert(Value::Null), value);
                }
            }
            (under, over) => *under = over,
        }
    }
    lay(&mut object, more);
    object
}

/// A reference to an owner.
pub(crate) fn owner(of: &Unstructured, blocks: bool) -> Value {
    json!({
        "apiVersion": of.api_version(), "kind": of.kind(), "name": of.name(), "uid": of.uid(),
        "blockOwnerDeletion": blocks,
    })
}

/// An object that belongs to others.
pub(crate) fn owned(object: Value, owners: &[Value]) -> Value {
    with(object, json!({"metadata": {"ownerReferences": owners}}))
}

pub(crate) fn pod(name: &str) -> Value {
    with(named("v1", "Pod", name), json!({"spec": {"containers": [{"name": "c", "image": "i"}]}}))
}
