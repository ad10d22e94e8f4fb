//! Informers on the real server, over a road that fails: dropped watches, versions that are gone, errors.

#![expect(clippy::unwrap_used, reason = "all of it is a test")]

use std::{
    collections::{BTreeMap, VecDeque},
    fmt::Write as _,
    pin::Pin,
    sync::{
        Arc,
        atomic::{AtomicUsize, Ordering},
    },
    task::{Context, Poll},
    time::Duration,
};

use bytes::Bytes;
use capstan_api::{
    GroupVersionKind, GroupVersionResource, ObjectMeta, Resource, Scope, Status, Unstructured, json,
    object::{Object, path},
    options::ListOptions,
    value::from_value,
    watch_event::{EventType, WatchEvent},
};
use capstan_client::{
    BoxFuture, Error, HandlerFuncs, ListPage, ListerWatcher, SharedInformerFactory, Watch, WatchStream,
    factory::ListerWatchers, reflector::machine::Config,
};
use capstan_clock::{ManualClock, SeededIds};
use capstan_server::{InProcessUser, Server, authorization::UserInfo, http::Body};
use capstan_storage::{Memory, Options};
use http_body::Body as _;
use serde::Deserialize;

#[derive(Debug, Default, Deserialize)]
#[serde(default)]
struct ConfigMap {
    metadata: ObjectMeta,
    data: BTreeMap<String, String>,
}

impl Resource for ConfigMap {
    const SCOPE: Scope = Scope::Namespaced;
    type Meta = ObjectMeta;

    fn gvk() -> GroupVersionKind {
        GroupVersionKind::from_static("", "v1", "ConfigMap")
    }

    fn gvr() -> GroupVersionResource {
        GroupVersionResource::from_static("", "v1", "configmaps")
    }

    fn meta(&self) -> &ObjectMeta {
        &self.metadata
    }

    fn meta_mut(&mut self) -> &mut ObjectMeta {
        &mut self.metadata
    }
}

async fn ask(server: &Server, method: &str, uri: &str, body: &str) -> http::Response<Body> {
    let request = http::Request::builder()
        .method(method)
        .uri(uri)
        .header("content-type", "application/json")
        .extension(InProcessUser(UserInfo::new("admin", ["system:masters"])))
        .body(Body::from(body.as_bytes().to_vec()))
        .unwrap();
    server.answer(request).await
}

fn poll_bytes(body: &mut Body, cx: &mut Context<'_>) -> Poll<Option<Bytes>> {
    Pin::new(body).poll_frame(cx).map(|frame| Some(frame?.unwrap().into_data().unwrap()))
}

async fn whole(mut response: http::Response<Body>) -> Result<Bytes, Error> {
    let mut bytes = Vec::new();
    while let Some(chunk) = std::future::poll_fn(|cx| poll_bytes(response.body_mut(), cx)).await {
        bytes.extend(chunk);
    }
    if response.status().is_success() {
        return Ok(bytes.into());
    }
    Err(from_value::<Status>(json::parse(&bytes).unwrap()).unwrap().into())
}

/// What goes wrong next: of every few requests some fail, in turn.
#[derive(Debug, Default)]
struct Faults {
    on: bool,
    lists: AtomicUsize,
    watches: AtomicUsize,
}

#[derive(Clone, Debug)]
struct Road {
    server: Server,
    faults: Arc<Faults>,
}

#[derive(Debug)]
struct Source {
    road: Road,
    path: String,
}

impl ListerWatchers for Road {
    fn lister_watcher(&self, resource: &GroupVersionResource, namespace: &str) -> Arc<dyn ListerWatcher> {
        Arc::new(Source { road: self.clone(), path: path(resource, Scope::Namespaced, namespace, "") })
    }
}

fn query(options: &ListOptions, watch: bool) -> String {
    let mut query = format!("watch={watch}&resourceVersion={}", options.resource_version);
    for (name, value) in [
        ("resourceVersionMatch", options.resource_version_match.clone()),
        ("continue", options.continue_token.clone()),
        ("limit", options.limit.to_string()),
        ("timeoutSeconds", options.timeout_seconds.map(|seconds| seconds.to_string()).unwrap_or_default()),
        ("sendInitialEvents", options.send_initial_events.map(|yes| yes.to_string()).unwrap_or_default()),
        ("allowWatchBookmarks", options.allow_watch_bookmarks.to_string()),
    ] {
        if !value.is_empty() && value != "0" && value != "false" {
            write!(query, "&{name}={value}").unwrap();
        }
    }
    query
}

impl ListerWatcher for Source {
    fn list(&self, options: ListOptions) -> BoxFuture<'_, Result<ListPage, Error>> {
        Box::pin(async move {
            let faults = &self.road.faults;
            if faults.on && faults.lists.fetch_add(1, Ordering::SeqCst).is_multiple_of(3) {
                return Err(Status::internal_error("a fault that the test wants").into());
            }
            let uri = format!("{}?{}", self.path, query(&options, false));
            ListPage::parse(&whole(ask(&self.road.server, "GET", &uri, "").await).await?)
        })
    }

    fn watch(&self, options: ListOptions) -> BoxFuture<'_, Result<WatchStream, Error>> {
        Box::pin(async move {
            let faults = &self.road.faults;
            let turn = if faults.on { faults.watches.fetch_add(1, Ordering::SeqCst) % 5 } else { 4 };
            let fault = match turn {
                0 => return Err(Status::resource_expired("a fault that the test wants").into()),
                1 => return Err(Error::Transport("a fault that the test wants".to_owned())),
                2 => Some((7, None)),
                3 => Some((5, Some(Status::resource_expired("a fault that the test wants")))),
                _ if faults.on => Some((30, None)),
                _ => None,
            };
            let uri = format!("{}?{}", self.path, query(&options, true));
            let response = ask(&self.road.server, "GET", &uri, "").await;
            if !response.status().is_success() {
                return Err(whole(response).await.unwrap_err());
            }
            Ok(WatchStream::new(Lines { body: response.into_body(), read: Vec::new(), ready: VecDeque::new(), fault }))
        })
    }
}

struct Lines {
    body: Body,
    read: Vec<u8>,
    ready: VecDeque<WatchEvent<Bytes>>,
    /// After so many events: the end, or this.
    fault: Option<(usize, Option<Status>)>,
}

impl Watch for Lines {
    fn poll_next(&mut self, cx: &mut Context<'_>) -> Poll<Option<Result<WatchEvent<Bytes>, Error>>> {
        loop {
            match &mut self.fault {
                Some((0, None)) => return Poll::Ready(None),
                Some((0, Some(status))) => {
                    let object = format!(r#"{{"kind":"Status","code":{},"reason":"Expired"}}"#, status.code);
                    let object = Bytes::from(object);
                    return Poll::Ready(Some(Ok(WatchEvent { event_type: EventType::Error, object })));
                }
                _ => {}
            }
            if let Some(event) = self.ready.pop_front() {
                if let Some((left, _)) = &mut self.fault {
                    *left -= 1;
                }
                return Poll::Ready(Some(Ok(event)));
            }
            let Poll::Ready(chunk) = poll_bytes(&mut self.body, cx) else { return Poll::Pending };
            let Some(chunk) = chunk else { return Poll::Ready(None) };
            self.read.extend(chunk);
            while let Some(end) = self.read.iter().position(|byte| *byte == b'\n') {
                let line: Vec<u8> = self.read.drain(..=end).collect();
                let event = WatchEvent::parse(&line).unwrap();
                let (event_type, object) = (event.event_type, Bytes::copy_from_slice(event.object));
                self.ready.push_back(WatchEvent { event_type, object });
            }
        }
    }
}

const CONFIG_MAPS: &str = "/api/v1/namespaces/default/configmaps";

/// How often the clock is moved on before it counts as never.
const PATIENCE: usize = 1_000_000;

async fn follows(faults: bool, no_watch_list: bool) {
    let store = Arc::new(Memory::new(Options::default()));
    let server = Server::start(store, capstan_server::Config::default()).await.unwrap();
    let clock = ManualClock::at("2026-01-01T00:00:00Z".parse().unwrap());
    let road = Road { server: server.clone(), faults: Arc::new(Faults { on: faults, ..Faults::default() }) };
    let ids = Arc::new(SeededIds::new(3));
    let factory = SharedInformerFactory::new(Arc::new(road), Arc::new(clock.clone()), ids)
        .namespace("default")
        .config(Config { no_watch_list, ..Config::default() });
    let typed = factory.informer::<ConfigMap>();
    let untyped = factory.for_resource(ConfigMap::gvr());
    let view: Arc<std::sync::Mutex<BTreeMap<String, String>>> = Arc::default();
    let version = |object: &Arc<ConfigMap>| (object.name().to_owned(), object.identity().resource_version.to_owned());
    let (add, update, delete) = (Arc::clone(&view), Arc::clone(&view), Arc::clone(&view));
    typed.add_event_handler(
        HandlerFuncs::new()
            .on_add(move |new, _| add.lock().unwrap().extend([version(new)]))
            .on_update(move |_, new| update.lock().unwrap().extend([version(new)]))
            .on_delete(move |gone| drop(delete.lock().unwrap().remove(gone.object().name()))),
    );
    factory.start();

    for round in 0..60 {
        let (name, data) = (format!("c{}", round * 7 % 13), format!("{{\"round\":\"{round}\"}}"));
        let object =
            format!(r#"{{"kind":"ConfigMap","apiVersion":"v1","metadata":{{"name":"{name}"}},"data":{data}}}"#);
        let uri = format!("{CONFIG_MAPS}/{name}");
        if round % 3 == 2 {
            drop(whole(ask(&server, "DELETE", &uri, "").await).await);
        } else if whole(ask(&server, "POST", CONFIG_MAPS, &object).await).await.is_err() {
            whole(ask(&server, "PUT", &uri, &object).await).await.unwrap();
        }
        clock.advance(Duration::from_secs(round % 4));
        tokio::task::yield_now().await;
    }

    let list = whole(ask(&server, "GET", CONFIG_MAPS, "").await).await.unwrap();
    let expected: BTreeMap<String, String> = ListPage::parse(&list)
        .unwrap()
        .items
        .iter()
        .map(|item| Unstructured::decode_as(item, Some(&ConfigMap::gvk())).unwrap())
        .map(|object| (object.name().to_owned(), object.resource_version().to_owned()))
        .collect();
    assert!(!expected.is_empty());
    let found = || -> [BTreeMap<String, String>; 3] {
        let typed = typed.lister().namespace("default").list(&"".parse().unwrap());
        let untyped = untyped.lister().list(&"".parse().unwrap());
        [
            typed.iter().map(version).collect(),
            untyped.iter().map(|o| (o.name().to_owned(), o.resource_version().to_owned())).collect(),
            view.lock().unwrap().clone(),
        ]
    };
    let mut patience = 0;
    while !found().iter().all(|found| *found == expected) {
        patience += 1;
        assert!(patience < PATIENCE, "{:?} is not {expected:?}", found());
        clock.advance(Duration::from_millis(100));
        tokio::task::yield_now().await;
    }
    let (name, _) = expected.first_key_value().unwrap();
    assert!(typed.lister().namespace("default").get(name).unwrap().data.contains_key("round"));
    assert!(factory.wait_for_cache_sync().await);
    factory.shut_down();
}

#[tokio::test(flavor = "multi_thread")]
async fn informers_follow_the_server() {
    for no_watch_list in [false, true] {
        follows(false, no_watch_list).await;
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn informers_follow_the_server_whatever_fails() {
    for no_watch_list in [false, true] {
        follows(true, no_watch_list).await;
    }
}
