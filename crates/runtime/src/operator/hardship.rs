//! Managers whose work hangs, fails or loses its lease, and caches that are not as usual.

use std::{
    sync::{
        Arc, Mutex,
        atomic::{AtomicBool, Ordering},
    },
    time::Duration,
};

use capstan_api::{GroupVersionKind, GroupVersionResource, ObjectMeta, Unstructured, options::ListOptions};
use capstan_client::{Api, Client, InformerOptions, Key};
use capstan_clock::{Clock as _, SeededIds};
use tokio::sync::mpsc;

use super::{tests::manager, *};
use crate::{
    Action, ReconcileError, Stopper,
    testing::{ConfigMap, Faulty, client, clock, config_map, over_time, until},
};

/// Tells when it is dropped.
struct Gone(Arc<AtomicBool>);

impl Drop for Gone {
    fn drop(&mut self) {
        self.0.store(true, Ordering::SeqCst);
    }
}

/// Begins, and does not end.
struct Hangs(mpsc::Sender<Gone>, Arc<AtomicBool>);

impl Reconciler for Hangs {
    type Object = ConfigMap;

    async fn reconcile(&self, _: Key, _: &Context) -> Result<Action, ReconcileError> {
        let _gone = Gone(Arc::clone(&self.1));
        let _ = self.0.send(Gone(Arc::default())).await;
        std::future::pending().await
    }
}

#[tokio::test]
async fn who_does_not_lead_does_nothing_more() {
    let (client, clock) = (client().await, clock());
    Api::<ConfigMap>::namespaced(&client, "default").create(&config_map("a")).await.unwrap();
    let faulty = Faulty::new(&client, &clock, 1, 1);
    let on = Arc::clone(&faulty.on);
    on.store(false, Ordering::SeqCst);
    let (road, (_stopper, stop)) = (Client::new(faulty), Stopper::new());
    let (begun, mut is_running) = mpsc::channel(1);
    let gone = Arc::new(AtomicBool::new(false));
    let reported: Arc<Mutex<Vec<String>>> = Arc::default();
    let to = Arc::clone(&reported);
    let running = tokio::spawn(
        manager(&road, &clock, 1)
            .leader_election("x")
            .controller(Controller::new(Hangs(begun, Arc::clone(&gone))))
            .on_error(move |report| to.lock().unwrap().push(report.to_string()))
            .run_until(stop),
    );
    over_time(&clock, is_running.recv()).await.unwrap();
    // From now on nothing works, so the lease cannot be renewed.
    on.store(true, Ordering::SeqCst);
    let ended = over_time(&clock, running).await.unwrap();
    assert_eq!(ended.unwrap_err().to_string(), "leader election lost");
    let begun = clock.monotonic();
    until(&clock, || gone.load(Ordering::SeqCst)).await;
    let took = clock.monotonic().since(begun);
    assert!(took < Duration::from_secs(5), "it has no time to end by itself: {took:?}");
    let reported = reported.lock().unwrap();
    assert!(reported.iter().any(|text| text.starts_with("leases.coordination.k8s.io default/x: ")), "{reported:?}");
}

#[tokio::test]
async fn what_hangs_ends_with_its_manager() {
    let (client, clock) = (client().await, clock());
    Api::<ConfigMap>::namespaced(&client, "default").create(&config_map("a")).await.unwrap();
    for dropped in [false, true] {
        let (stopper, stop) = Stopper::new();
        let (begun, mut is_running) = mpsc::channel(1);
        let gone = Arc::new(AtomicBool::new(false));
        let controller = Controller::new(Hangs(begun, Arc::clone(&gone)));
        let running = tokio::spawn(manager(&client, &clock, 1).controller(controller).run_until(stop));
        over_time(&clock, is_running.recv()).await.unwrap();
        if dropped {
            running.abort();
        } else {
            stopper.stop();
            let ended = over_time(&clock, running).await.unwrap();
            assert!(matches!(ended, Err(ManagerError::GracefulShutdown(_))), "{ended:?}");
        }
        until(&clock, || gone.load(Ordering::SeqCst)).await;
    }
}

/// Tells of more than can be written in time.
struct Talks(mpsc::Sender<()>);

impl Reconciler for Talks {
    type Object = ConfigMap;

    async fn reconcile(&self, key: Key, ctx: &Context) -> Result<Action, ReconcileError> {
        if let Some(map) = ctx.get::<ConfigMap>(&key)? {
            (0..20).for_each(|at| ctx.event(&*map, &format!("Reason{at}"), "said"));
        }
        let _ = self.0.send(()).await;
        Ok(Action::done())
    }
}

#[tokio::test]
async fn the_lease_is_freed_before_all_is_told() {
    let (client, clock) = (client().await, clock());
    Api::<ConfigMap>::namespaced(&client, "default").create(&config_map("a")).await.unwrap();
    let slow = client.with_clock(Arc::new(clock.clone()), Arc::new(SeededIds::new(1))).with_rate_limit(0.05, 3);
    let (stopper, stop) = Stopper::new();
    let (begun, mut is_running) = mpsc::channel(8);
    let running = manager(&slow, &clock, 1).leader_election("x").controller(Controller::new(Talks(begun)));
    let running = tokio::spawn(running.run_until(stop));
    over_time(&clock, is_running.recv()).await.unwrap();
    stopper.stop();
    over_time(&clock, running).await.unwrap().unwrap();
    let leases = GroupVersionResource::new("coordination.k8s.io", "v1", "leases");
    let lease = client.resource(leases).namespace("default").get("x").await.unwrap();
    assert_eq!(lease.nested_str(["spec", "holderIdentity"]).unwrap().unwrap_or_default(), "");
}

struct Fails;

impl Reconciler for Fails {
    type Object = ConfigMap;

    async fn reconcile(&self, key: Key, _: &Context) -> Result<Action, ReconcileError> {
        match key.name() {
            "a" => Err(ReconcileError::terminal("no such bucket")),
            "b" => panic!("a panic that the test wants"),
            "c" => std::future::pending().await,
            _ => Ok(Action::done()),
        }
    }
}

#[tokio::test]
async fn what_fails_is_said() {
    let (client, clock) = (client().await, clock());
    for name in ["a", "b", "c"] {
        Api::<ConfigMap>::namespaced(&client, "default").create(&config_map(name)).await.unwrap();
    }
    let reported: Arc<Mutex<Vec<Report>>> = Arc::default();
    let to = Arc::clone(&reported);
    let (stopper, stop) = Stopper::new();
    let controller = Controller::new(Fails).named("bucket").reconciliation_timeout(Duration::from_secs(3));
    let running = manager(&client, &clock, 1)
        .controller(controller)
        .on_error(move |report| to.lock().unwrap().push(report.clone()))
        .run_until(stop);
    let running = tokio::spawn(running);
    let said = |text: &str| reported.lock().unwrap().iter().any(|report| report.to_string() == text);
    until(&clock, || {
        said("controller bucket: configmaps default/a: terminal error: no such bucket")
            && said("controller bucket: configmaps default/b: it panicked")
            && said("controller bucket: configmaps default/c: it took longer than 3s (2 times)")
    })
    .await;
    stopper.stop();
    over_time(&clock, running).await.unwrap().unwrap();
}

struct Waits;

impl Reconciler for Waits {
    type Object = Unstructured;

    async fn reconcile(&self, _: Key, _: &Context) -> Result<Action, ReconcileError> {
        Ok(Action::done())
    }
}

#[tokio::test]
async fn a_kind_that_is_not_there_is_waited_for_and_said_once() {
    let (client, clock) = (client().await, clock());
    let reported: Arc<Mutex<Vec<String>>> = Arc::default();
    let to = Arc::clone(&reported);
    let (_stopper, stop) = Stopper::new();
    let ats = GroupVersionResource::new("example.com", "v1", "ats");
    let kind = GroupVersionKind::new("example.com", "v1", "At");
    let running = manager(&client, &clock, 1)
        .controller(Controller::dynamic(Waits, ats, &kind))
        .on_error(move |report| to.lock().unwrap().push(report.to_string()))
        .run_until(stop);
    let ended = over_time(&clock, running).await.unwrap_err();
    assert_eq!(ended.to_string(), "timed out waiting for caches to be synced for ats.example.com within 120s");
    let expected = "ats.example.com: the server could not find the requested resource (get ats.example.com)";
    assert_eq!(*reported.lock().unwrap(), [expected]);
}

#[tokio::test]
async fn caches_as_they_are_wanted() {
    let (client, clock) = (client().await, clock());
    for name in ["a", "b"] {
        Api::<ConfigMap>::namespaced(&client, "default").create(&config_map(name)).await.unwrap();
    }
    let (seen, mut keys) = mpsc::channel(8);
    let (stopper, stop) = Stopper::new();
    let only = InformerOptions { field_selector: Some("metadata.name=b".to_owned()), ..InformerOptions::default() };
    let running = manager(&client, &clock, 1)
        .without_managed_fields()
        .cache::<ConfigMap>(only, |informer| {
            informer.set_transform(|mut map: ConfigMap| {
                map.data.insert("seen".to_owned(), map.metadata.managed_fields.len().to_string());
                Ok(map)
            });
        })
        .controller(Controller::new(Shows(seen)))
        .run_until(stop);
    let running = tokio::spawn(running);
    assert_eq!(over_time(&clock, keys.recv()).await.unwrap(), r#"default/b {"seen": "0"}"#);
    stopper.stop();
    over_time(&clock, running).await.unwrap().unwrap();
    assert_eq!(keys.recv().await, None);
}

struct Shows(mpsc::Sender<String>);

impl Reconciler for Shows {
    type Object = ConfigMap;

    async fn reconcile(&self, key: Key, ctx: &Context) -> Result<Action, ReconcileError> {
        let data = ctx.get::<ConfigMap>(&key)?.map(|map| map.data.clone()).unwrap_or_default();
        let _ = self.0.send(format!("{key} {data:?}")).await;
        Ok(Action::done())
    }
}

/// Looks at maps of several namespaces, and at those of one that is not in the cache.
struct Looks(mpsc::Sender<String>);

impl Reconciler for Looks {
    type Object = ConfigMap;

    async fn reconcile(&self, key: Key, ctx: &Context) -> Result<Action, ReconcileError> {
        let Some(map) = ctx.get::<ConfigMap>(&key)? else { return Ok(Action::done()) };
        let mut changed = (*map).clone();
        changed.data.insert("seen".to_owned(), "yes".to_owned());
        // What is written can be read, in each namespace by its own version.
        let written = ctx.update(&changed).await?;
        ctx.wait_for_cache(&written).await?;
        let seen = ctx.list::<ConfigMap>(key.namespace(), &"".parse().unwrap_or_default())?;
        let seen = seen.iter().any(|map| map.data.contains_key("seen"));
        let elsewhere = [
            ctx.get::<ConfigMap>(&Key::new("third", "x")).err(),
            ctx.list::<ConfigMap>("third", &"".parse().unwrap_or_default()).err(),
            ctx.wait_for_cache(&ConfigMap { metadata: ObjectMeta::namespaced("third", "x"), ..changed }).await.err(),
        ];
        let elsewhere = elsewhere.map(|error| error.map(|error| error.to_string()).unwrap_or_default());
        let _ = self.0.send(format!("{key} {seen} {}", elsewhere.join("; "))).await;
        Ok(Action::done())
    }
}

#[tokio::test]
async fn caches_of_several_namespaces() {
    let (client, clock) = (client().await, clock());
    for namespace in ["other", "third"] {
        let text = format!(r#"{{"apiVersion":"v1","kind":"Namespace","metadata":{{"name":"{namespace}"}}}}"#);
        let namespaces = GroupVersionResource::from_static("", "v1", "namespaces");
        client.resource(namespaces).create(&Unstructured::decode(text.as_bytes()).unwrap()).await.unwrap();
    }
    for namespace in ["default", "other", "third"] {
        let map = ConfigMap { metadata: ObjectMeta::namespaced(namespace, "x"), ..ConfigMap::default() };
        Api::<ConfigMap>::namespaced(&client, namespace).create(&map).await.unwrap();
    }
    let (seen, mut keys) = mpsc::channel(8);
    let (stopper, stop) = Stopper::new();
    // What it writes itself does not concern it.
    let changes = Predicate::updates(|_, _| false);
    let running = manager(&client, &clock, 1)
        .namespaces(["default", "other"])
        .controller(Controller::new(Looks(seen)).with_predicates(changes))
        .run_until(stop);
    let running = tokio::spawn(running);
    let mut said = vec![over_time(&clock, keys.recv()).await.unwrap(), over_time(&clock, keys.recv()).await.unwrap()];
    said.sort();
    let unknown = "unable to get: third/x because of unknown namespace for the cache; \
                   unable to list: third because of unknown namespace for the cache; \
                   unable to get: third/x because of unknown namespace for the cache";
    assert_eq!(said, [format!("default/x true {unknown}"), format!("other/x true {unknown}")]);
    stopper.stop();
    over_time(&clock, running).await.unwrap().unwrap();
    assert_eq!(keys.recv().await, None, "nobody hears of the third");
}

#[tokio::test]
async fn what_the_server_says_besides() {
    let (client, clock) = (client().await, clock());
    let said: Arc<Mutex<Vec<String>>> = Arc::default();
    let to = Arc::clone(&said);
    let (stopper, stop) = Stopper::new();
    let running = manager(&client, &clock, 1)
        .on_warning(move |warning| to.lock().unwrap().push(warning.text.clone()))
        .runnable(|ctx| async move {
            let endpoints = GroupVersionResource::from_static("", "v1", "endpoints");
            let listed = ctx.client().resource(endpoints).list(&ListOptions::default()).await;
            listed.map(|_| ()).map_err(|error| error.to_string())
        })
        .run_until(stop);
    let running = tokio::spawn(running);
    until(&clock, || said.lock().unwrap().iter().any(|text| text.starts_with("v1 Endpoints is deprecated"))).await;
    stopper.stop();
    over_time(&clock, running).await.unwrap().unwrap();
}
