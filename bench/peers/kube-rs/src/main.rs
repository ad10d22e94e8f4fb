//! kube-rs' reflector under the load of B13; it prints what `bench/peers/go/informer` prints.

use std::{
    sync::{Arc, Mutex},
    time::Instant,
};

use futures::StreamExt as _;
use jiff::Timestamp;
use k8s_openapi::api::core::v1::Pod;
use kube::{
    Api, Client, Config, ResourceExt as _,
    config::{KubeConfigOptions, Kubeconfig},
    runtime::{WatchStreamExt as _, reflector, watcher},
};
use tokio::signal::unix::{SignalKind, signal};

/// The allocator that ours has too.
#[global_allocator]
static ALLOCATOR: mimalloc::MiMalloc = mimalloc::MiMalloc;

fn resident() -> usize {
    let status = std::fs::read_to_string("/proc/self/status").unwrap_or_default();
    let line = status.lines().find_map(|line| line.strip_prefix("VmRSS:")).unwrap_or_default();
    line.split_whitespace().next().and_then(|kb| kb.parse().ok()).unwrap_or(0)
}

#[tokio::main(flavor = "multi_thread", worker_threads = 2)]
async fn main() {
    let file = std::env::args().nth(1).expect("a kubeconfig");
    let kubeconfig = Kubeconfig::read_from(file).expect("a kubeconfig");
    let config = Config::from_custom_kubeconfig(kubeconfig, &KubeConfigOptions::default()).await.expect("a config");
    let client = Client::try_from(config).expect("a client");
    let mut end = signal(SignalKind::terminate()).expect("signals");
    let (reader, writer) = reflector::store::<Pod>();
    let pods = watcher(Api::<Pod>::all(client), watcher::Config::default());
    let pods = pods.modify(|pod| pod.managed_fields_mut().clear());
    let late: Arc<Mutex<Vec<f64>>> = Arc::default();
    let to = Arc::clone(&late);
    let (before, begun) = (resident(), Instant::now());
    tokio::spawn(async move {
        let mut pods = std::pin::pin!(pods.default_backoff().reflect(writer).applied_objects());
        while let Some(pod) = pods.next().await {
            let Ok(pod) = pod else { continue };
            if let Some(at) = pod.annotations().get("bench/at").and_then(|at| at.parse::<i128>().ok()) {
                to.lock().unwrap().push((Timestamp::now().as_nanosecond() - at) as f64 / 1e6);
            }
        }
    });
    reader.wait_until_ready().await.expect("a store");
    let took = begun.elapsed().as_secs_f64();
    println!("synced {took:.4} {} {before} {}", reader.state().len(), resident());
    late.lock().unwrap().clear();
    end.recv().await;
    let mut late = late.lock().unwrap().clone();
    late.sort_by(f64::total_cmp);
    let part = |of: f64| late.get((of * late.len().saturating_sub(1) as f64) as usize).copied().unwrap_or(0.0);
    println!("events {} {:.3} {:.3}", late.len(), part(0.5), part(0.99));
}
