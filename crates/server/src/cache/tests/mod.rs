//! The cache on the memory engine, on virtual time.

mod concurrent;
mod faults;
mod flaky;
mod lists;
mod properties;
mod watches;

use std::{
    sync::Arc,
    task::{Context, Poll, Waker},
};

use capstan_clock::ManualClock;
use capstan_storage::{Memory, Op, Options, Revision, Store};

use super::{
    CacheError, CacheOptions, CachedResource, FieldPaths, ListQuery, ReadAt, ResourceCache, WatchItem, WatchQuery,
    WatchStart, Watcher,
};
use flaky::Flaky;

const PREFIX: &str = "/registry/pods/";

const _: fn() = || {
    fn shared_between_threads<T: Send + Sync>() {}
    shared_between_threads::<(ResourceCache, Watcher, WatchItem)>();
};

struct World {
    clock: ManualClock,
    store: Arc<Flaky>,
    cache: ResourceCache,
}

impl World {
    fn new() -> Self {
        World::with(|_| {})
    }

    fn with(change: impl FnOnce(&mut CacheOptions)) -> Self {
        let clock = ManualClock::at("2026-01-01T00:00:00Z".parse().unwrap());
        let store = Arc::new(Flaky::new(Memory::new(Options::with_clock(Arc::new(clock.clone())))));
        let cache = start(&clock, &store, change);
        World { clock, store, cache }
    }

    /// Commits, in one revision, `key label` (with the node `n` and the label) or `-key`, separated by commas.
    async fn commit(&self, changes: &str) -> Revision {
        let ops = changes.split(',').map(|change| match change.strip_prefix('-') {
            Some(key) => Op::delete(format!("{PREFIX}{key}")),
            None => {
                let (key, label) = change.split_once(' ').unwrap();
                Op::put(format!("{PREFIX}{key}"), object(key, label))
            }
        });
        self.store.commit(ops.collect()).await.unwrap().revision
    }

    /// Something elsewhere in the store.
    async fn commit_elsewhere(&self) -> Revision {
        self.store.commit(vec![Op::put("/registry/other", "x")]).await.unwrap().revision
    }

    async fn list(&self, query: ListQuery) -> Result<Vec<String>, CacheError> {
        let page = self.cache.list(&query).await?;
        Ok(page.items.iter().map(|object| format!("{}@{}", object.key, object.revision)).collect())
    }

    /// Everything that the watcher has to tell by now.
    async fn drain(&self, watcher: &mut Watcher) -> Vec<String> {
        self.cache.snapshot(ReadAt::Consistent).await.unwrap();
        let mut told = Vec::new();
        while let Some(item) = now(watcher) {
            told.push(told_of(item));
            if told.last().is_some_and(|last| last.starts_with("error")) {
                break;
            }
        }
        told
    }
}

fn start(clock: &ManualClock, store: &Arc<Flaky>, change: impl FnOnce(&mut CacheOptions)) -> ResourceCache {
    let mut options = CacheOptions::with_clock(Arc::new(clock.clone()));
    change(&mut options);
    let resource = CachedResource::new(PREFIX, true).with_fields(FieldPaths::new(["spec.nodeName"]));
    ResourceCache::start(Arc::clone(store) as _, resource.indexed_by("spec.nodeName"), options)
}

/// A pod whose label `x` and node are `label`, an identity of its own for each label that begins with a capital.
fn object(key: &str, label: &str) -> String {
    let (namespace, name) = key.split_once('/').unwrap_or(("", key));
    let uid = if label.starts_with(char::is_uppercase) { label } else { "u" };
    format!(
        r#"{{"kind":"Pod","metadata":{{"labels":{{"x":"{label}"}},"name":"{name}","namespace":"{namespace}","uid":"{key}{uid}"}},"spec":{{"nodeName":"{label}"}}}}"#
    )
}

/// The next item, if there is one now.
fn now(watcher: &mut Watcher) -> Option<Result<WatchItem, CacheError>> {
    match watcher.poll_next(&mut Context::from_waker(Waker::noop())) {
        Poll::Ready(item) => Some(item),
        Poll::Pending => None,
    }
}

/// An item in short, after its frame was compared with what it says.
fn told_of(item: Result<WatchItem, CacheError>) -> String {
    match item {
        Ok(WatchItem::Event(event)) => {
            let (object, event_type) = (event.object(), event.event_type());
            let json = str::from_utf8(&object.json).unwrap();
            assert!(json.contains(&format!("\"resourceVersion\":\"{}\"", object.revision)), "{json}");
            assert_eq!(event.frame(), format!("{{\"type\":\"{event_type}\",\"object\":{json}}}\n"));
            format!("{event_type} {} {}@{}", object.key, object.labels[0].1, object.revision)
        }
        Ok(WatchItem::Bookmark { revision, initial_events_end }) => {
            format!("{} {revision}", if initial_events_end { "end" } else { "bookmark" })
        }
        Err(error) => format!("error {error}"),
    }
}

fn query(namespace: &str, labels: &str, fields: &str, start: WatchStart) -> WatchQuery {
    WatchQuery {
        namespace: (!namespace.is_empty()).then(|| namespace.into()),
        labels: labels.parse().unwrap(),
        fields: fields.parse().unwrap(),
        ..WatchQuery::all(start)
    }
}
