//! The cache's figures: `cargo bench -p capstan-server --bench cache`.
//!
//! On the memory engine, in one process: what a GET, a LIST of 10,000 and an event for 1,000 watchers cost beside the
//! network.

#![expect(clippy::unwrap_used, reason = "a benchmark that fails may panic")]

use std::{hint::black_box, num::NonZeroUsize, sync::Arc, time::Duration};

use capstan_clock::{Clock, RealClock};
use capstan_server::cache::{
    CacheOptions, CachedResource, FieldPaths, ListQuery, Object, ReadAt, ResourceCache, WatchItem, WatchQuery,
    WatchStart,
};
use capstan_storage::{Action, Memory, Op, Options, Revision, SharedStore};
use tokio::sync::Semaphore;

const OBJECTS: usize = 10_000;
const NAMESPACES: usize = 100;
const WATCHERS: usize = 1_000;
const EVENTS: usize = 500;

fn main() {
    let runtime = tokio::runtime::Builder::new_multi_thread().worker_threads(2).enable_all().build().unwrap();
    runtime.block_on(run());
}

fn put(n: usize) -> Op {
    let (namespace, name) = (format!("ns-{:03}", n % NAMESPACES), format!("pod-{n:06}"));
    let labels = format!(r#"{{"app":"a{}"}}"#, n % 7);
    let metadata = format!(r#"{{"labels":{labels},"name":"{name}","namespace":"{namespace}","uid":"u{n}"}}"#);
    let spec = format!(r#"{{"nodeName":"node-{}","padding":"{}"}}"#, n % 50, "x".repeat(900));
    let object = format!(r#"{{"apiVersion":"v1","kind":"Pod","metadata":{metadata},"spec":{spec}}}"#);
    Op::put(format!("/registry/pods/{namespace}/{name}"), object)
}

async fn run() {
    let clock = Arc::new(RealClock::new());
    let store: SharedStore = Arc::new(Memory::new(Options::with_clock(clock.clone())));
    for n in 0..OBJECTS {
        store.commit(vec![put(n)]).await.unwrap();
    }
    let fields = FieldPaths::new(["spec.nodeName"]);
    let Action::Put { value, .. } = put(1).action else { return };
    let begun = clock.monotonic();
    for _ in 0..10_000 {
        black_box(Object::encode(b"ns-001/pod-000001", black_box(&value), Revision(12345), &fields).unwrap());
    }
    tell("encode 1 KB", clock.monotonic().since(begun), 10_000);

    let begun = clock.monotonic();
    let resource = CachedResource::new("/registry/pods/", true).with_fields(fields);
    let options = CacheOptions::with_clock(clock.clone());
    let cache = ResourceCache::start(Arc::clone(&store), resource.indexed_by("spec.nodeName"), options);
    cache.snapshot(ReadAt::Consistent).await.unwrap();
    tell("fill 10,000", clock.monotonic().since(begun), 1);

    for (what, at) in [("GET", ReadAt::Any), ("GET, consistent", ReadAt::Consistent)] {
        let begun = clock.monotonic();
        for n in 0..100_000 {
            let n = n * 7919 % OBJECTS;
            let (namespace, name) = (format!("ns-{:03}", n % NAMESPACES), format!("pod-{n:06}"));
            assert!(cache.get(&namespace, &name, at).await.unwrap().object.is_some());
        }
        tell(what, clock.monotonic().since(begun), 100_000);
    }
    let lists = [
        ("LIST 10,000", ListQuery::default(), OBJECTS),
        ("LIST of a namespace (100)", ListQuery { namespace: Some("ns-042".into()), ..ListQuery::default() }, 100),
        ("LIST limit=500", ListQuery { limit: NonZeroUsize::new(500), ..ListQuery::default() }, 500),
        ("LIST, selector for nothing", ListQuery { labels: "app=none".parse().unwrap(), ..ListQuery::default() }, 0),
    ];
    for (what, query, expected) in lists {
        let begun = clock.monotonic();
        for _ in 0..100 {
            assert_eq!(cache.list(&query).await.unwrap().items.len(), expected);
        }
        tell(what, clock.monotonic().since(begun), 100);
    }
    for (what, queries) in [("event to 1,000 watchers", 1), ("event to 20 of 1,000 (by node)", 50)] {
        watchers(&*clock, &store, &cache, what, queries).await;
    }
}

/// One event after another, each to all watchers of its node, of which there are `nodes`; one node: all see all.
async fn watchers(clock: &dyn Clock, store: &SharedStore, cache: &ResourceCache, what: &str, nodes: usize) {
    let seen = Arc::new(Semaphore::new(0));
    let mut tasks = Vec::new();
    for n in 0..WATCHERS {
        let mut query = WatchQuery::all(WatchStart::Now);
        if nodes > 1 {
            query.fields = format!("spec.nodeName=node-{}", n % nodes).parse().unwrap();
        }
        let mut watcher = cache.watch(query).await.unwrap();
        let seen = Arc::clone(&seen);
        tasks.push(tokio::spawn(async move {
            while let Ok(WatchItem::Event(event)) = watcher.next().await {
                assert!(event.frame().len() > 900);
                seen.add_permits(1);
            }
        }));
    }
    let begun = clock.monotonic();
    for n in 0..EVENTS {
        store.commit(vec![put(n)]).await.unwrap();
        seen.acquire_many((WATCHERS / nodes) as u32).await.unwrap().forget();
    }
    tell(what, clock.monotonic().since(begun), EVENTS as u32);
    for task in tasks {
        task.abort();
        let _ = task.await;
    }
}

fn tell(what: &str, took: Duration, times: u32) {
    println!("{what:32} {:>12.3} µs", took.as_secs_f64() * 1e6 / f64::from(times));
}
