//! What an informer of many pods takes of the machine's memory. A process of its own: nothing else is in it.

#![cfg(target_os = "linux")]

#[path = "../examples/pods/mod.rs"]
mod pods;

use std::{
    sync::{
        Arc,
        atomic::{AtomicUsize, Ordering},
    },
    time::Duration,
};

use capstan_client::{HandlerFuncs, Key, SharedIndexInformer, reflector::machine::Config};
use capstan_clock::{ManualClock, SeededIds};
use k8s_openapi::api::core::v1::Pod;

use pods::{Pods, pod, resident};

const COUNT: usize = 30_000;
/// What a pod may take, in KB, at the worst moment: while all are listed for the third time and a handler listens.
const LIMIT: f64 = 5.0;

#[tokio::test]
async fn a_compact_informer_takes_no_more_than_the_bytes_of_its_objects() {
    assert!((3_800..4_300).contains(&pod(0).len()), "{}", pod(0).len());
    let clock = ManualClock::at("2026-01-01T00:00:00Z".parse().unwrap());
    let config = Config { no_watch_list: true, ..Config::default() };
    let lists: Arc<AtomicUsize> = Arc::default();
    let source = Arc::new(Pods { count: COUNT, lists: Arc::clone(&lists) });
    let ids = Arc::new(SeededIds::new(1));
    let informer = SharedIndexInformer::<Pod>::new(source, config, Arc::new(clock.clone()), ids);
    informer.compact();
    let transformed: Arc<AtomicUsize> = Arc::default();
    let count = Arc::clone(&transformed);
    informer.set_transform(move |mut pod| {
        pod.metadata.managed_fields = None;
        count.fetch_add(1, Ordering::SeqCst);
        Ok(pod)
    });
    let heard: Arc<AtomicUsize> = Arc::default();
    let count = Arc::clone(&heard);
    let handler = informer.add_event_handler(HandlerFuncs::<Pod>::new().on_add(move |pod, initial| {
        assert!(initial && pod.metadata.managed_fields.is_none() && pod.status.is_some());
        count.fetch_add(1, Ordering::SeqCst);
    }));
    let (before, _) = resident();
    let running = informer.clone();
    let task = tokio::spawn(async move { running.run().await });
    informer.wait_for_sync().await;
    handler.wait_for_sync().await;
    while lists.load(Ordering::SeqCst) < 3 {
        clock.advance(Duration::from_secs(60));
        tokio::task::yield_now().await;
    }
    let (_, peak) = resident();
    let per_pod = (peak - before) as f64 / COUNT as f64;
    assert!(per_pod <= LIMIT, "{per_pod:.2} KB a pod");
    assert_eq!((informer.indexer().snapshot().len(), heard.load(Ordering::SeqCst)), (COUNT, COUNT));
    assert_eq!(transformed.load(Ordering::SeqCst), COUNT, "each state is read once, however often it is listed");
    let read = informer.lister().get(&Key::new("shop-7", "web-7d4b9c6f5d-000007")).unwrap();
    assert_eq!(read.spec.as_ref().unwrap().node_name.as_deref(), Some("node-7"));
    let again = informer.lister().get(&Key::new("shop-7", "web-7d4b9c6f5d-000007")).unwrap();
    assert!(Arc::ptr_eq(&read, &again), "what was read a moment ago is not unpacked again");
    task.abort();
}
