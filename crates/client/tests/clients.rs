//! Clients of every sort on the real server in process, over a road that now and then fails, on virtual time.

#![expect(clippy::unwrap_used, reason = "all of it is a test")]

use std::{
    collections::VecDeque,
    sync::{Arc, Mutex},
    time::Duration,
};

use bytes::Bytes;
use capstan_api::{
    GroupVersionResource, Status, Unstructured,
    options::{DeleteOptions, ListOptions},
};
use capstan_client::{
    Api, Body, BoxFuture, CachedDiscovery, Client, DeferredRESTMapper, Error, Event, InformerOptions, Key, Patch,
    SharedInformerFactory, Transport, retry_on_conflict, wait::conditions,
};
use capstan_clock::{ManualClock, SeededIds};
use capstan_server::{Config, InProcess, Server, authorization::UserInfo};
use capstan_storage::{Memory, Options};
use http::{Request, Response};
use k8s_openapi::api::{
    apps::v1::Deployment,
    core::v1::{ConfigMap, Namespace, Pod},
};
use tower_service::Service as _;

/// What goes wrong with a request.
#[derive(Clone, Debug)]
enum Fault {
    Answer(Status, Option<u32>),
    Broken,
    Slow(Duration),
}

#[derive(Clone)]
struct Road {
    server: InProcess,
    clock: ManualClock,
    faults: Arc<Mutex<VecDeque<Fault>>>,
    asked: Arc<Mutex<Vec<String>>>,
}

struct Text(Option<Bytes>);

impl http_body::Body for Text {
    type Data = Bytes;
    type Error = std::convert::Infallible;

    fn poll_frame(
        mut self: std::pin::Pin<&mut Self>,
        _: &mut std::task::Context<'_>,
    ) -> std::task::Poll<Option<Result<http_body::Frame<Bytes>, Self::Error>>> {
        std::task::Poll::Ready(self.0.take().map(|bytes| Ok(http_body::Frame::data(bytes))))
    }
}

impl Transport for Road {
    fn send(&self, request: Request<Bytes>) -> BoxFuture<'static, Result<Response<Body>, Error>> {
        let mut this = self.clone();
        self.asked.lock().unwrap().push(format!("{} {}", request.method(), request.uri()));
        let fault = self.faults.lock().unwrap().pop_front();
        Box::pin(async move {
            match fault {
                Some(Fault::Broken) => return Err(Error::Transport("a fault that the test wants".to_owned())),
                Some(Fault::Answer(status, retry_after)) => {
                    let mut answer = Response::builder().status(u16::try_from(status.code).unwrap());
                    if let Some(seconds) = retry_after {
                        answer = answer.header("retry-after", seconds);
                    }
                    let text = serde_json::to_vec(&status).unwrap();
                    return Ok(answer.body(Body::new(Text(Some(text.into())))).unwrap());
                }
                Some(Fault::Slow(by)) => capstan_clock::Clock::sleep(&this.clock, by).await,
                None => {}
            }
            let request = request.map(capstan_server::http::Body::from);
            let Ok(response) = this.server.call(request).await;
            Ok(response.map(Body::new))
        })
    }
}

struct World {
    client: Client,
    clock: ManualClock,
    road: Road,
}

async fn world() -> World {
    let server = Server::start(Arc::new(Memory::new(Options::default())), Config::default()).await.unwrap();
    let clock = ManualClock::at("2026-01-01T00:00:00Z".parse().unwrap());
    let road = Road {
        server: server.as_user(UserInfo::new("admin", ["system:masters"])),
        clock: clock.clone(),
        faults: Arc::default(),
        asked: Arc::default(),
    };
    let client = Client::new(road.clone()).with_clock(Arc::new(clock.clone()), Arc::new(SeededIds::new(1)));
    World { client, clock, road }
}

impl World {
    fn fail(&self, faults: impl IntoIterator<Item = Fault>) {
        self.road.faults.lock().unwrap().extend(faults);
    }

    fn asked(&self) -> usize {
        std::mem::take(&mut *self.road.asked.lock().unwrap()).len()
    }

    /// Runs something while the clock goes on whenever nothing else does.
    async fn run<T: Send + 'static>(&self, work: impl Future<Output = T> + Send + 'static) -> T {
        let work = tokio::spawn(work);
        while !work.is_finished() {
            for _ in 0..100 {
                tokio::task::yield_now().await;
            }
            self.clock.advance(Duration::from_millis(500));
        }
        work.await.unwrap()
    }
}

fn config_map(name: &str, value: &str) -> ConfigMap {
    let mut map = ConfigMap::default();
    map.metadata.name = Some(name.to_owned());
    map.data = Some([("a".to_owned(), value.to_owned())].into());
    map
}

#[tokio::test]
async fn typed_clients_in_both_forms() {
    let world = world().await;
    for (at, client) in [world.client.clone(), world.client.with_protobuf(true)].iter().enumerate() {
        let maps = client.core_v1().config_maps("default");
        let name = format!("map-{at}");
        let created = maps.create(&config_map(&name, "1")).await.unwrap();
        assert_eq!(maps.get(&name).await.unwrap(), created);
        assert!(created.metadata.managed_fields.is_some());
        let mut watch = maps.watch(&ListOptions::default()).await.unwrap();
        let found = maps.list_all(&ListOptions { limit: 1, ..ListOptions::default() }).await.unwrap();
        assert!(found.items.contains(&created) && !found.resource_version.is_empty());
        loop {
            match watch.try_next().await.unwrap().unwrap() {
                Event::Added(seen) if seen == created => break,
                _ => {}
            }
        }
        assert!(maps.get("nobody").await.unwrap_err().is_not_found());
        assert!(maps.create(&created).await.is_err());
        let odd = ListOptions { resource_version: "abc".into(), ..ListOptions::default() };
        assert_eq!(maps.list(&odd).await.unwrap_err().status().unwrap().code, 400);
        // The clientset and the builder ask the same.
        let raw: ConfigMap =
            client.rest().get().resource(maps.resource()).namespace("default").name(&name).into().await.unwrap();
        assert_eq!(raw, created);
        client.core_v1().namespaces().get("default").await.unwrap();
    }
}

#[tokio::test]
async fn what_the_server_turns_away_is_sent_again_where_that_is_safe() {
    let world = world().await;
    let maps: Api<ConfigMap> = world.client.core_v1().config_maps("default");
    let busy = || Fault::Answer(Status::too_many_requests("slow down", 3), Some(3));
    let broken = || Fault::Answer(Status::internal_error("oops"), Some(1));
    let went = world.clock.clone();
    let since = capstan_clock::Clock::monotonic(&went);
    world.fail([busy(), busy()]);
    let api = maps.clone();
    world.run(async move { api.create(&config_map("a", "1")).await }).await.unwrap();
    assert_eq!(world.asked(), 3, "429 is safe for writes too");
    assert!(capstan_clock::Clock::monotonic(&went).since(since) >= Duration::from_secs(6));
    world.fail([broken(), broken()]);
    let api = maps.clone();
    world.run(async move { api.get("a").await }).await.unwrap();
    assert_eq!(world.asked(), 3, "reads are safe");
    world.fail([broken()]);
    let api = maps.clone();
    let error = world.run(async move { api.create(&config_map("b", "1")).await }).await.unwrap_err();
    assert_eq!((world.asked(), error.status().unwrap().code), (1, 500), "a write may have happened");
    world.fail([Fault::Answer(Status::too_many_requests("no time named", 0), None)]);
    let api = maps.clone();
    assert!(world.run(async move { api.get("a").await }).await.unwrap_err().is_retriable());
    assert_eq!(world.asked(), 1);
    world.fail(vec![busy(); 20]);
    let api = maps.clone();
    assert!(world.run(async move { api.get("a").await }).await.is_err());
    assert_eq!(world.asked(), 11, "there is an end");
    world.road.faults.lock().unwrap().clear();

    world.fail([Fault::Slow(Duration::from_secs(60))]);
    let patient = world.client.with_timeout(Duration::from_secs(10)).core_v1().config_maps("default");
    let error = world.run(async move { patient.get("a").await }).await.unwrap_err();
    assert_eq!(error.to_string(), "no answer within 10s");
}

#[tokio::test]
async fn requests_are_not_sent_faster_than_told() {
    let world = world().await;
    let maps = world.client.with_rate_limit(1.0, 2).core_v1().config_maps("default");
    let before = capstan_clock::Clock::monotonic(&world.clock);
    world
        .run(async move {
            for _ in 0..6 {
                maps.list(&ListOptions::default()).await.unwrap();
            }
        })
        .await;
    let took = capstan_clock::Clock::monotonic(&world.clock).since(before);
    assert!(took >= Duration::from_secs(4), "{took:?}");
}

#[tokio::test]
async fn conflicts_are_tried_again() {
    let world = world().await;
    let maps = world.client.core_v1().config_maps("default");
    maps.create(&config_map("a", "1")).await.unwrap();
    let tries = Mutex::new(0);
    let written = retry_on_conflict(|| async {
        let mut map = maps.get("a").await?;
        *tries.lock().unwrap() += 1;
        if *tries.lock().unwrap() < 3 {
            // Somebody else is quicker.
            maps.patch("a", &Patch::Merge(serde_json::json!({"data": {"b": tries.lock().unwrap().to_string()}})))
                .await?;
        }
        map.data.get_or_insert_default().insert("a".into(), "2".into());
        maps.update(&map).await
    })
    .await
    .unwrap();
    assert_eq!((*tries.lock().unwrap(), written.data.unwrap()["b"].as_str()), (3, "2"));
}

#[tokio::test]
async fn waiting_for_a_condition() {
    let world = world().await;
    let maps = world.client.core_v1().config_maps("default");
    // The first list breaks, and so does the first watch.
    world.fail([Fault::Broken]);
    let api = maps.clone();
    let waiter = tokio::spawn(async move {
        api.wait_for("a", |map: Option<&ConfigMap>| {
            map.is_some_and(|map| map.data.as_ref().is_some_and(|data| data["a"] == "2"))
        })
        .await
    });
    while !waiter.is_finished() {
        for _ in 0..100 {
            tokio::task::yield_now().await;
        }
        world.clock.advance(Duration::from_secs(1));
        match maps.create(&config_map("a", "1")).await {
            Ok(_) => {}
            Err(error) if error.is_already_exists() => {
                maps.patch("a", &Patch::Merge(serde_json::json!({"data": {"a": "2"}}))).await.unwrap();
            }
            Err(error) => panic!("{error}"),
        }
    }
    let found = waiter.await.unwrap().unwrap().unwrap();
    let uid = found.metadata.uid.unwrap();
    maps.delete("a", &DeleteOptions::default()).await.unwrap();
    assert_eq!(maps.wait_for("a", conditions::is_deleted(&uid)).await.unwrap(), None);
}

const CRONTABS: &str = r#"{"apiVersion":"apiextensions.k8s.io/v1","kind":"CustomResourceDefinition",
  "metadata":{"name":"crontabs.stable.example.com"},
  "spec":{"group":"stable.example.com","scope":"Namespaced",
    "names":{"plural":"crontabs","singular":"crontab","kind":"CronTab","shortNames":["ct"]},
    "versions":[{"name":"v1","served":true,"storage":true,
      "subresources":{"scale":{"specReplicasPath":".spec.replicas","statusReplicasPath":".status.replicas"}},
      "schema":{"openAPIV3Schema":{"type":"object","properties":{
        "spec":{"type":"object","properties":{"cronSpec":{"type":"string"},"replicas":{"type":"integer"}}},
        "status":{"type":"object","properties":{"replicas":{"type":"integer"}}}}}}}]}}"#;

#[tokio::test]
async fn kinds_that_come_later_are_found() {
    let world = world().await;
    let client = &world.client;
    assert_eq!(client.discovery().server_version().await.unwrap().major, "1");
    let discovery: Arc<CachedDiscovery> = client.discovery().cached();
    let mapper = DeferredRESTMapper::new(Arc::clone(&discovery));
    let deploy = mapper.mapping_for("deploy").await.unwrap();
    assert_eq!(deploy.resource, GroupVersionResource::new("apps", "v1", "deployments"));
    world.asked();
    mapper.mapping_for("pods").await.unwrap();
    assert_eq!(world.asked(), 0, "what is known is not asked for");
    assert!(mapper.mapping_for("ct").await.unwrap_err().is_no_match());
    assert_eq!(world.asked(), 0, "nor is what was asked for just now");

    let crds = client.resource(GroupVersionResource::new("apiextensions.k8s.io", "v1", "customresourcedefinitions"));
    crds.create(&Unstructured::decode(CRONTABS.as_bytes()).unwrap()).await.unwrap();
    let found = loop {
        world.clock.advance(Duration::from_secs(2));
        match mapper.mapping_for("ct").await {
            Ok(found) => break found,
            Err(error) => assert!(error.is_no_match(), "{error}"),
        }
        tokio::task::yield_now().await;
    };
    assert_eq!(found.gvk.to_string(), "stable.example.com/v1, Kind=CronTab");
    let resources = discovery.resources().await.unwrap();
    let crontabs = resources.preferred().into_iter().find(|one| one.info.plural == *"crontabs").unwrap().clone();
    assert!(crontabs.supports("watch") && crontabs.subresources.iter().any(|sub| sub.name == *"scale"));

    // Any kind, without its type; its metadata alone; its scale.
    let tabs = client.resource(found.resource.clone()).namespace("default");
    let text =
        r#"{"apiVersion":"stable.example.com/v1","kind":"CronTab","metadata":{"name":"t"},"spec":{"replicas":2}}"#;
    let created = tabs.create(&Unstructured::decode(text.as_bytes()).unwrap()).await.unwrap();
    let metadata = client.metadata(found.resource.clone()).namespace("default");
    assert_eq!(metadata.get("t").await.unwrap().metadata.uid, created.uid());
    let all = client.metadata(found.resource.clone()).list(&ListOptions::default()).await.unwrap();
    assert_eq!((all.items.len(), all.items[0].kind.as_str()), (1, "PartialObjectMetadata"));
    let scales = tabs.scales();
    let mut scale = scales.get("t").await.unwrap();
    assert_eq!(scale.spec.replicas, 2);
    scale.spec.replicas = 5;
    assert_eq!(scales.update("t", &scale).await.unwrap().spec.replicas, 5);
    let patch = Patch::Merge(serde_json::json!({"spec": {"replicas": 7}}));
    assert_eq!(scales.patch("t", &patch).await.unwrap().spec.replicas, 7);
    assert_eq!(tabs.get("t").await.unwrap().nested_i64(["spec", "replicas"]).unwrap(), Some(7));
}

#[tokio::test]
async fn what_becomes_invalid_on_the_way_is_asked_for_again() {
    let world = world().await;
    let discovery = world.client.discovery().cached();
    world.fail([Fault::Slow(Duration::from_secs(5))]);
    let asking = Arc::clone(&discovery);
    let asking = tokio::spawn(async move { asking.resources().await.map(drop) });
    for _ in 0..100 {
        tokio::task::yield_now().await;
    }
    discovery.invalidate();
    world.run(asking).await.unwrap().unwrap();
    world.asked();
    discovery.resources().await.unwrap();
    assert!(world.asked() > 0, "what it knows is from before");
    discovery.resources().await.unwrap();
    assert_eq!(world.asked(), 0);
}

#[tokio::test]
async fn pages_that_expire_are_asked_for_at_once() {
    let world = world().await;
    let maps = world.client.core_v1().config_maps("default");
    for at in 0..5 {
        maps.create(&config_map(&format!("m{at}"), "1")).await.unwrap();
    }
    let two = ListOptions { limit: 2, ..ListOptions::default() };
    assert_eq!(maps.list_all(&two).await.unwrap().items.len(), 5);
    world.asked();
    // The second page is gone.
    let api = maps.clone();
    let first = maps.list(&two).await.unwrap();
    assert!(!first.continue_token.is_empty());
    world.fail([Fault::Slow(Duration::ZERO), Fault::Answer(Status::resource_expired("too old"), None)]);
    world.asked();
    let all = world.run(async move { api.list_all(&two).await }).await.unwrap();
    assert_eq!((all.items.len(), world.asked()), (5, 3));
    let _: Api<Pod> = Api::namespaced(&world.client, "default");
    let _: Api<Deployment> = world.client.apps_v1().deployments("default");
    let _: Api<Namespace> = Api::all(&world.client);
}

#[tokio::test]
async fn informers_of_parts_and_of_metadata() {
    let world = world().await;
    for protobuf in [false, true] {
        let client = world.client.with_protobuf(protobuf);
        let maps = client.core_v1().config_maps("default");
        let factory = SharedInformerFactory::for_client(&client).namespace("default").without_managed_fields();
        let gvr = maps.resource().clone();
        let one = InformerOptions { field_selector: Some("metadata.name=one".into()), ..InformerOptions::default() };
        let all = factory.informer::<ConfigMap>();
        let part = factory.informer_with::<ConfigMap>(gvr.clone(), one.clone());
        let again = factory.informer_with::<ConfigMap>(gvr.clone(), one);
        let untyped = factory.for_resource(gvr.clone());
        let metadata = factory.for_metadata(gvr);
        // A namespace means nothing to kinds that live in none, whoever asks for them.
        let namespaces = factory.informer::<Namespace>();
        let untyped_namespaces = factory.for_resource(GroupVersionResource::new("", "v1", "namespaces"));
        factory.start();
        assert!(factory.wait_for_cache_sync().await);
        assert!(namespaces.lister().get(&Key::new("", "default")).is_some());
        assert!(untyped_namespaces.lister().get(&Key::new("", "default")).is_some());
        for name in ["one", "two"] {
            drop(maps.delete(name, &DeleteOptions::default()).await);
            maps.create(&config_map(name, "1")).await.unwrap();
        }
        let names = |objects: Vec<String>| objects.join(" ");
        let seen = || {
            let any = "".parse().unwrap();
            [
                names(all.lister().list(&any).iter().filter_map(|map| map.metadata.name.clone()).collect()),
                names(part.lister().list(&any).iter().filter_map(|map| map.metadata.name.clone()).collect()),
                names(again.lister().list(&any).iter().filter_map(|map| map.metadata.name.clone()).collect()),
                names(untyped.lister().list(&any).iter().map(|map| map.name().to_owned()).collect()),
                names(metadata.lister().list(&any).iter().map(|map| map.metadata.name.clone()).collect()),
            ]
        };
        let mut patience = 0;
        while seen() != ["one two", "one", "one", "one two", "one two"] {
            patience += 1;
            assert!(patience < 100_000, "{:?}", seen());
            tokio::task::yield_now().await;
        }
        let any = "".parse().unwrap();
        assert!(all.lister().list(&any).iter().all(|map| map.metadata.managed_fields.is_none()));
        assert!(all.lister().list(&any).iter().any(|map| map.data.as_ref().is_some_and(|data| data["a"] == "1")));
        assert!(
            untyped.lister().list(&any).iter().all(|map| map.managed_fields().is_empty() && map.kind() == "ConfigMap")
        );
        assert!(metadata.lister().list(&any).iter().all(|map| map.metadata.managed_fields.is_empty()));
        factory.shut_down();
    }
}

#[tokio::test]
async fn what_the_server_says_besides() {
    let world = world().await;
    let said: Arc<Mutex<Vec<String>>> = Arc::default();
    let to = Arc::clone(&said);
    let client = world.client.with_warning_handler(move |warning| {
        assert!(warning.is_for_people());
        to.lock().unwrap().push(warning.text.clone());
    });
    let endpoints = client.resource(GroupVersionResource::new("", "v1", "endpoints")).namespace("default");
    endpoints.list(&ListOptions::default()).await.unwrap();
    client.core_v1().config_maps("default").list(&ListOptions::default()).await.unwrap();
    let expected = "v1 Endpoints is deprecated in v1.33+; use discovery.k8s.io/v1 EndpointSlice";
    assert_eq!(*said.lock().unwrap(), [expected]);
}
