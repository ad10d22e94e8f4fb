//! How much memory an informer of many pods takes: `cargo run --release -p capstan-client --example memory -- 100000`.
//!
//! With `whole` behind the number the pods are kept as Rust types, otherwise packed. They come a page at a time. Then
//! all are listed again, which must not take a second copy.

mod pods;

use std::{
    sync::{
        Arc,
        atomic::{AtomicUsize, Ordering},
    },
    time::Duration,
};

use capstan_client::{SharedIndexInformer, reflector::machine::Config};
use capstan_clock::{ManualClock, SeededIds};
use k8s_openapi::api::core::v1::Pod;

use pods::{Pods, pod, resident};

#[tokio::main(flavor = "current_thread")]
async fn main() {
    let mut arguments = std::env::args().skip(1);
    let count = arguments.next().and_then(|count| count.parse().ok()).unwrap_or(10_000);
    let whole = arguments.next().is_some_and(|word| word == "whole");
    println!("{count} pods of {} bytes as JSON; the struct alone has {}", pod(0).len(), size_of::<Pod>());
    let clock = ManualClock::at("2026-01-01T00:00:00Z".parse().expect("it is a time"));
    let config = Config { no_managed_fields: true, no_watch_list: true, ..Config::default() };
    let lists: Arc<AtomicUsize> = Arc::default();
    let source = Arc::new(Pods { count, lists: Arc::clone(&lists) });
    let ids = Arc::new(SeededIds::new(1));
    let informer = SharedIndexInformer::<Pod>::new(source, config, Arc::new(clock.clone()), ids);
    if !whole {
        informer.compact();
    }
    let (before, _) = resident();
    let running = informer.clone();
    let task = tokio::spawn(async move { running.run().await });
    informer.wait_for_sync().await;
    let per_pod = |kb: usize| kb.saturating_sub(before) as f64 / count as f64;
    let (first, peak) = resident();
    println!("after the first list: {:.2} KB a pod, at most {:.2}", per_pod(first), per_pod(peak));
    while lists.load(Ordering::SeqCst) < 3 {
        clock.advance(Duration::from_secs(60));
        tokio::task::yield_now().await;
    }
    let (again, peak) = resident();
    println!("after listing again:  {:.2} KB a pod, at most {:.2}", per_pod(again), per_pod(peak));
    assert_eq!(informer.indexer().snapshot().len(), count);
    task.abort();
}
