//! Informers among functions that panic, servers that refuse, watches that go silent, and an end that comes early.

use std::{
    collections::BTreeMap,
    sync::{
        Arc, Mutex,
        atomic::{AtomicBool, Ordering},
    },
};

use capstan_api::{GroupResource, Status, Str, Unstructured, options::ListOptions};
use capstan_clock::SeededIds;

use super::{
    HandlerFuncs, SharedIndexInformer,
    tests::{name, turns, world},
};
use crate::{
    BoxFuture, Error, ListPage, ListerWatcher, WatchStream, reflector::machine::Config, store::IndexFunc,
    testing::Source,
};

#[tokio::test]
async fn what_is_not_ours_may_panic() {
    let world = world(false);
    let told: Arc<Mutex<Vec<String>>> = Arc::default();
    let to = Arc::clone(&told);
    world.informer.set_watch_error_handler(Arc::new(move |error| {
        to.lock().unwrap().push(error.to_string());
        panic!("a panic that the test wants");
    }));
    world.informer.set_transform(|object| {
        assert!(name(&object) != "transform", "a panic that the test wants");
        Ok(object)
    });
    let index: IndexFunc<Unstructured> = Arc::new(|object| {
        assert!(name(object) != "index", "a panic that the test wants");
        vec![name(object).into()]
    });
    world.informer.add_indexers(BTreeMap::from([(Str::from("by-name"), index)]));
    for name in ["transform", "index", "a"] {
        world.source.put(name);
    }
    world.start();
    assert!(world.informer.wait_for_sync().await);
    for name in ["transform", "index", "b"] {
        world.source.put(name);
    }
    turns().await;
    let indexer = world.informer.indexer();
    let names: Vec<_> = indexer.list().iter().map(|object| name(object)).collect();
    assert_eq!(names, ["a", "b", "index"]);
    let found = ["a", "b", "index"].map(|name| indexer.by_index("by-name", name).unwrap().len());
    assert_eq!(found, [1, 1, 0]);
    assert_eq!(*told.lock().unwrap(), ["unable to understand ns/transform: reading it panicked"; 2]);
}

#[tokio::test]
async fn what_goes_on_is_told_of_once() {
    let world = world(false);
    let told: Arc<Mutex<Vec<String>>> = Arc::default();
    let to = Arc::clone(&told);
    world.informer.set_watch_error_handler(Arc::new(move |error| to.lock().unwrap().push(error.to_string())));
    let refused = |verb: &str| Status::forbidden(&GroupResource::new("", "things"), "", format!("no {verb}"));
    world.source.with(|model| {
        for _ in 0..4 {
            model.faults.extend([refused("watch").into(), refused("list").into()]);
        }
    });
    world.start();
    world.settle().await;
    assert!(world.informer.has_synced());
    assert_eq!(*told.lock().unwrap(), [refused("list").to_string()]);
}

#[tokio::test]
async fn a_watch_that_went_silent_is_given_up() {
    let world = world(false);
    world.start();
    assert!(world.informer.wait_for_sync().await);
    world.settle().await;
    assert_eq!(world.source.with(|model| (model.lists, model.watches)), (0, 2));
}

#[tokio::test]
async fn who_waits_hears_of_the_end() {
    let world = world(false);
    let early = world.informer.add_event_handler(HandlerFuncs::new());
    let waiting = tokio::spawn(async move { early.wait_for_sync().await });
    turns().await;
    world.informer.shut_down();
    assert!(!waiting.await.unwrap());
    let late = world.informer.add_event_handler(HandlerFuncs::new());
    assert!(!late.wait_for_sync().await && !late.has_synced());
}

#[tokio::test]
async fn the_version_comes_after_what_it_stands_for() {
    let world = world(false);
    world.source.put("a");
    world.start();
    assert!(world.informer.wait_for_sync().await);
    let handler = world.informer.add_event_handler(HandlerFuncs::new());
    assert!(handler.wait_for_sync().await);
    let before = world.informer.last_sync_resource_version();
    world.source.delete("a");
    world.informer.synced_beyond(&before).await;
    assert!(world.informer.indexer().list().is_empty());
    world.informer.shut_down();
    assert!(handler.wait_for_sync().await, "what it has heard it has heard");
}

/// Panics when it is first asked.
#[derive(Debug)]
struct Panics(Source, AtomicBool);

impl ListerWatcher for Panics {
    fn list(&self, options: ListOptions) -> BoxFuture<'_, Result<ListPage, Error>> {
        self.0.list(options)
    }

    fn watch(&self, options: ListOptions) -> BoxFuture<'_, Result<WatchStream, Error>> {
        assert!(self.1.swap(true, Ordering::SeqCst), "a panic that the test wants");
        self.0.watch(options)
    }
}

#[tokio::test]
async fn a_source_that_panics_is_asked_again() {
    let mut world = world(false);
    let source = Arc::new(Panics(world.source.clone(), AtomicBool::new(false)));
    let (clock, ids) = (Arc::new(world.clock.clone()), Arc::new(SeededIds::new(1)));
    world.informer = SharedIndexInformer::new(source, Config::default(), clock, ids);
    world.start();
    turns().await;
    assert!(!world.informer.has_synced());
    world.settle().await;
    assert!(world.informer.has_synced());
}
