//! Controllers and managers on the real server, on virtual time, over a road that fails.

use std::{
    collections::{BTreeMap, HashMap, HashSet},
    net::SocketAddr,
    sync::{
        Arc, Mutex,
        atomic::{AtomicBool, AtomicUsize, Ordering},
    },
    time::Duration,
};

use capstan_api::{options::DeleteOptions, options::ListOptions};
use capstan_client::{Api, Client, Key};
use capstan_clock::{Ids, ManualClock, SeededIds};
use tokio::{
    io::{AsyncReadExt as _, AsyncWriteExt as _},
    sync::mpsc,
};

use super::*;
use crate::{
    Action, ReconcileError, Stop, Stopper,
    controllerutil::set_controller_reference,
    leader_election::LeaderElectionConfig,
    testing::{ConfigMap, Faulty, Secret, client, clock, config_map, over_time, secret, until},
};

/// Gives each ConfigMap a Secret of its name with its data.
#[derive(Default)]
struct Copier {
    busy: Mutex<HashSet<Key>>,
    runs: AtomicUsize,
}

impl Copier {
    async fn copy(&self, key: &Key, ctx: &Context) -> Result<Action, ReconcileError> {
        let Some(map) = ctx.get::<ConfigMap>(key)? else { return Ok(Action::done()) };
        let mut wanted = secret(key.name());
        wanted.string_data.clone_from(&map.data);
        set_controller_reference(&*map, &mut wanted)?;
        match ctx.get::<Secret>(key)? {
            None => match ctx.create(&wanted).await {
                // An answer was lost, or the cache lags behind.
                Err(error) if error.is_already_exists() => return Err(ReconcileError::retry(error)),
                created => ctx.wait_for_cache(&created?).await?,
            },
            Some(known) if known.metadata.annotations.get("of") != Some(&map.metadata.resource_version) => {
                wanted.metadata.resource_version.clone_from(&known.metadata.resource_version);
                wanted.metadata.annotations.insert("of".to_owned(), map.metadata.resource_version.clone());
                ctx.wait_for_cache(&ctx.update(&wanted).await?).await?;
                ctx.event(&*map, "Copied", "copied");
            }
            Some(_) => return Ok(Action::done()),
        }
        Ok(Action::requeue_after(Duration::from_millis(1)))
    }
}

impl Reconciler for Arc<Copier> {
    type Object = ConfigMap;

    async fn reconcile(&self, key: Key, ctx: &Context) -> Result<Action, ReconcileError> {
        self.runs.fetch_add(1, Ordering::SeqCst);
        assert!(self.busy.lock().unwrap().insert(key.clone()), "never two at once");
        let answer = self.copy(&key, ctx).await;
        self.busy.lock().unwrap().remove(&key);
        answer
    }
}

pub(super) fn manager(client: &Client, clock: &ManualClock, seed: u64) -> Manager {
    Manager::on_clock(client, Arc::new(clock.clone()), Arc::new(SeededIds::new(seed)))
}

/// Whether each map that is not the server's own has a secret that is as new as it is, and no other has.
async fn copied(client: &Client) -> bool {
    let options = ListOptions::default();
    let maps = Api::<ConfigMap>::namespaced(client, "default").list(&options).await.unwrap().items;
    let secrets = Api::<Secret>::namespaced(client, "default").list(&options).await.unwrap().items;
    let mut copies: HashMap<_, _> = secrets.into_iter().map(|secret| (secret.metadata.name.clone(), secret)).collect();
    maps.iter().all(|map| {
        copies
            .remove(&map.metadata.name)
            .is_some_and(|copy| copy.metadata.annotations.get("of") == Some(&map.metadata.resource_version))
    }) && copies.is_empty()
}

async fn get(address: SocketAddr, path: &str) -> String {
    let mut socket = tokio::net::TcpStream::connect(address).await.unwrap();
    let request = format!("GET {path} HTTP/1.1\r\nhost: x\r\nconnection: close\r\n\r\n");
    socket.write_all(request.as_bytes()).await.unwrap();
    let mut text = String::new();
    socket.read_to_string(&mut text).await.unwrap();
    text
}

#[tokio::test]
async fn a_controller_and_what_it_owns() {
    let (client, clock) = (client().await, clock());
    let copier = Arc::new(Copier::default());
    let addresses: Arc<Mutex<Vec<SocketAddr>>> = Arc::default();
    let bound = Arc::clone(&addresses);
    let any = SocketAddr::from(([127, 0, 0, 1], 0));
    let fine = Arc::new(AtomicBool::new(true));
    let is_fine = Arc::clone(&fine);
    let (stopper, stop) = Stopper::new();
    let running = manager(&client, &clock, 1)
        .metrics_bind_address(any)
        .health_probe_bind_address(any)
        .on_bound(move |found| bound.lock().unwrap().extend(found))
        .readyz_check("fine", move || if is_fine.load(Ordering::SeqCst) { Ok(()) } else { Err("no".to_owned()) })
        .controller(
            Controller::new(Arc::clone(&copier))
                .with_predicates(Predicate::objects(|map: &ConfigMap| map.metadata.name != "kube-root-ca.crt"))
                .owns::<Secret>()
                .reads::<Secret>()
                .named("copier"),
        )
        .run_until(stop);
    let running = tokio::spawn(running);
    let maps = Api::<ConfigMap>::namespaced(&client, "default");
    let secrets = Api::<Secret>::namespaced(&client, "default");
    let have = async |name: &str| {
        over_time(&clock, async {
            while secrets.get_opt(name).await.unwrap().is_none_or(|found| found.metadata.annotations.is_empty()) {
                tokio::task::yield_now().await;
            }
        })
        .await;
    };
    maps.create(&config_map("a")).await.unwrap();
    have("a").await;
    secrets.delete("a", &DeleteOptions::default()).await.unwrap();
    have("a").await;
    assert!(copied(&client).await);

    let (metrics, health) = {
        let addresses = addresses.lock().unwrap();
        (addresses[0], addresses[1])
    };
    let text = get(metrics, "/metrics").await;
    for line in [
        "# TYPE workqueue_depth gauge\n",
        "workqueue_depth{controller=\"copier\",name=\"copier\",priority=\"0\"} 0\n",
        "workqueue_adds_total{controller=\"copier\",name=\"copier\"} ",
        "controller_runtime_max_concurrent_reconciles{controller=\"copier\"} 1\n",
        "controller_runtime_terminal_reconcile_errors_total{controller=\"copier\"} 0\n",
        "controller_runtime_active_workers{controller=\"copier\"} 0\n",
        "rest_client_requests_total{code=\"201\",host=\"\",method=\"POST\"}",
    ] {
        assert!(text.contains(line), "{line} in\n{text}");
    }
    for (path, code, expected) in [
        ("/healthz", 200, "ok"),
        ("/healthz/ping", 200, "ok"),
        ("/readyz?verbose", 200, "[+]fine ok\n[+]informer-sync ok\nreadyz check passed\n"),
        ("/readyz/nothing", 404, "404 page not found\n"),
        ("/other", 404, "404 page not found\n"),
    ] {
        let text = get(health, path).await;
        assert!(text.starts_with(&format!("HTTP/1.1 {code} ")) && text.ends_with(expected), "{path}: {text}");
    }
    fine.store(false, Ordering::SeqCst);
    let text = get(health, "/readyz").await;
    assert!(text.ends_with("[-]fine failed: reason withheld\n[+]informer-sync ok\nreadyz check failed\n"), "{text}");
    stopper.stop();
    over_time(&clock, running).await.unwrap().unwrap();
    assert!(tokio::net::TcpStream::connect(health).await.is_err(), "nothing is served any more");
}

/// Everything fails now and then, and yet the world becomes as it should be.
async fn with_faults(seed: u64) {
    let (direct, clock) = (client().await, clock());
    let faulty = Faulty::new(&direct, &clock, seed, 4);
    let (on, faults) = (Arc::clone(&faulty.on), Arc::clone(&faulty.faults));
    let client = Client::new(faulty);
    let copier = Arc::new(Copier::default());
    let (stopper, stop) = Stopper::new();
    let controller = Controller::new(Arc::clone(&copier))
        .with_predicates(Predicate::objects(|map: &ConfigMap| map.metadata.name != "kube-root-ca.crt"))
        .owns::<Secret>()
        .max_concurrent_reconciles(3)
        .reconciliation_timeout(Duration::from_secs(60));
    let running = tokio::spawn(manager(&client, &clock, seed).controller(controller).run_until(stop));
    let (maps, secrets) =
        (Api::<ConfigMap>::namespaced(&direct, "default"), Api::<Secret>::namespaced(&direct, "default"));
    let ids = SeededIds::new(seed);
    for step in 0..25 {
        let name = format!("m{}", ids.below(8));
        let mut map = config_map(&name);
        map.data = BTreeMap::from([("step".to_owned(), step.to_string())]);
        match (maps.get_opt(&name).await.unwrap(), ids.below(4)) {
            (None, _) => drop(maps.create(&map).await.unwrap()),
            (Some(_), 0) => {
                maps.delete(&name, &DeleteOptions::default()).await.unwrap();
                // Nobody collects garbage here.
                let _ = secrets.delete(&name, &DeleteOptions::default()).await;
            }
            (Some(_), 1) => drop(secrets.delete(&name, &DeleteOptions::default()).await),
            (Some(known), _) => {
                map.metadata = known.metadata;
                maps.update(&map).await.unwrap();
            }
        }
        let wait = ids.below(3000);
        over_time(&clock, capstan_clock::Clock::sleep(&clock, Duration::from_millis(wait))).await;
    }
    // A copy that was made while its map went is nobody's fault: the collector of garbage would take it.
    let quiet = async {
        loop {
            let options = ListOptions::default();
            let names: HashSet<_> =
                maps.list(&options).await.unwrap().items.into_iter().map(|map| map.metadata.name).collect();
            for copy in secrets.list(&options).await.unwrap().items {
                if !names.contains(&copy.metadata.name) {
                    let _ = secrets.delete(&copy.metadata.name, &DeleteOptions::default()).await;
                }
            }
            let _ = maps.delete("kube-root-ca.crt", &DeleteOptions::default()).await;
            if copied(&direct).await {
                return;
            }
            tokio::task::yield_now().await;
        }
    };
    over_time(&clock, quiet).await;
    assert!(faults.load(Ordering::SeqCst) > 5, "the road failed");
    on.store(false, Ordering::SeqCst);
    stopper.stop();
    over_time(&clock, running).await.unwrap().unwrap();
    assert!(copier.runs.load(Ordering::SeqCst) > 0);
}

#[tokio::test]
async fn no_key_is_lost_whatever_fails() {
    for seed in 0..2 {
        with_faults(seed).await;
    }
}

struct Leaders {
    acting: Arc<Mutex<Vec<&'static str>>>,
    name: &'static str,
}

impl Reconciler for Leaders {
    type Object = ConfigMap;

    async fn reconcile(&self, _: Key, ctx: &Context) -> Result<Action, ReconcileError> {
        self.acting.lock().unwrap().push(self.name);
        let _ = ctx;
        Ok(Action::requeue_after(Duration::from_secs(1)))
    }
}

#[tokio::test]
async fn one_of_two_leads() {
    let (client, clock) = (client().await, clock());
    let acting: Arc<Mutex<Vec<&'static str>>> = Arc::default();
    Api::<ConfigMap>::namespaced(&client, "default").create(&config_map("a")).await.unwrap();
    let start = |name: &'static str, seed, stop: Stop| {
        let controller = Controller::new(Leaders { acting: Arc::clone(&acting), name });
        let manager = manager(&client, &clock, seed)
            .leader_election_with("default", "cnat", LeaderElectionConfig::new(name))
            .controller(controller);
        (manager.metrics_registry().clone(), tokio::spawn(manager.run_until(stop)))
    };
    let (first_stopper, first_stop) = Stopper::new();
    let (second_stopper, second_stop) = Stopper::new();
    let (metrics, first) = start("first", 1, first_stop);
    until(&clock, || acting.lock().unwrap().len() > 3).await;
    assert!(metrics.render().contains("leader_election_master_status{name=\"cnat\"} 1\n"));
    let (metrics, second) = start("second", 2, second_stop);
    until(&clock, || acting.lock().unwrap().len() > 30).await;
    assert!(acting.lock().unwrap().iter().all(|name| *name == "first"));
    assert!(metrics.render().contains("leader_election_master_status{name=\"cnat\"} 0\n"));
    first_stopper.stop();
    over_time(&clock, first).await.unwrap().unwrap();
    let freed = capstan_clock::Clock::now(&clock);
    acting.lock().unwrap().clear();
    until(&clock, || acting.lock().unwrap().len() > 3).await;
    assert!(acting.lock().unwrap().iter().all(|name| *name == "second"));
    let took = capstan_clock::Clock::now(&clock).duration_since(freed).unsigned_abs();
    assert!(took < Duration::from_secs(12), "it need not wait for the lease to run out: {took:?}");
    second_stopper.stop();
    over_time(&clock, second).await.unwrap().unwrap();
}

#[tokio::test]
async fn what_fails_ends_all() {
    let (client, clock) = (client().await, clock());
    let (_stopper, stop) = Stopper::new();
    let order: Arc<Mutex<Vec<&'static str>>> = Arc::default();
    let (one, two) = (Arc::clone(&order), Arc::clone(&order));
    let running = manager(&client, &clock, 1)
        .runnable_everywhere(move |ctx| async move {
            one.lock().unwrap().push("everywhere");
            ctx.stop().stopped().await;
            one.lock().unwrap().push("ended");
            Ok(())
        })
        .runnable(move |_| async move {
            two.lock().unwrap().push("leading");
            Err("it failed".to_owned())
        })
        .run_until(stop);
    let ended = over_time(&clock, running).await;
    assert_eq!(ended.unwrap_err().to_string(), "it failed");
    let mut order = order.lock().unwrap().clone();
    assert_eq!(order.pop(), Some("ended"));
    order.sort_unstable();
    assert_eq!(order, ["everywhere", "leading"]);

    let (stopper, stop) = Stopper::new();
    stopper.stop();
    let running = manager(&client, &clock, 1)
        .graceful_shutdown_timeout(Duration::from_secs(3))
        .runnable(|_| std::future::pending())
        .run_until(stop);
    over_time(&clock, running).await.unwrap();

    let (_stopper, stop) = Stopper::new();
    let config = LeaderElectionConfig { retry_period: Duration::from_secs(60), ..LeaderElectionConfig::new("x") };
    let wrong = manager(&client, &clock, 1).leader_election_with("default", "x", config).run_until(stop).await;
    assert_eq!(
        wrong.unwrap_err().to_string(),
        "failed during initialization leader election process: renewDeadline must be greater than retryPeriod*JitterFactor"
    );
}

struct Seen(mpsc::Sender<String>);

impl Reconciler for Seen {
    type Object = ConfigMap;

    async fn reconcile(&self, key: Key, _: &Context) -> Result<Action, ReconcileError> {
        self.0.send(key.to_string()).await.unwrap();
        Ok(Action::done())
    }
}

/// A stream of what is in it.
struct Keys(Vec<Key>);

impl futures_core::Stream for Keys {
    type Item = Key;

    fn poll_next(mut self: std::pin::Pin<&mut Self>, _: &mut std::task::Context<'_>) -> std::task::Poll<Option<Key>> {
        std::task::Poll::Ready(self.0.pop())
    }
}

#[tokio::test]
async fn sources() {
    let (client, clock) = (client().await, clock());
    let (seen, mut keys) = mpsc::channel(8);
    let (channel, receiver) = mpsc::channel(8);
    let (stopper, stop) = Stopper::new();
    let controller = Controller::new(Seen(seen))
        .with_predicates(Predicate::all().not())
        .watches(|secret: &Secret| vec![Key::new("by", &secret.metadata.name)])
        .watches_channel(receiver)
        .watches_stream(Keys(vec![Key::new("by", "stream")]));
    let running = tokio::spawn(manager(&client, &clock, 1).controller(controller).run_until(stop));
    assert_eq!(over_time(&clock, keys.recv()).await.unwrap(), "by/stream");
    channel.send(Key::new("by", "channel")).await.unwrap();
    assert_eq!(over_time(&clock, keys.recv()).await.unwrap(), "by/channel");
    Api::<Secret>::namespaced(&client, "default").create(&secret("mapped")).await.unwrap();
    assert_eq!(over_time(&clock, keys.recv()).await.unwrap(), "by/mapped");
    stopper.stop();
    over_time(&clock, running).await.unwrap().unwrap();
}
