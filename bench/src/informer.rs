//! Our side of B13: an informer in a process of its own, as `capstan-bench informer KUBECONFIG`. It prints what
//! `bench/peers/go/informer` prints.

use std::{
    path::Path,
    sync::{Arc, Mutex, PoisonError},
};

use capstan_client::{Client, HandlerFuncs, SharedInformerFactory};
use capstan_clock::{Clock as _, RealClock};
use k8s_openapi::api::core::v1::Pod;
use tokio::signal::unix::{SignalKind, signal};

use crate::{objects::SENT_AT, process::usage_of};

/// Follows the pods of a server until SIGTERM.
pub(crate) async fn run(kubeconfig: &str) -> Result<(), String> {
    let clock = RealClock::new();
    let mut end = signal(SignalKind::terminate()).map_err(|error| error.to_string())?;
    let client = Client::from_kubeconfig(Path::new(kubeconfig), None).await.map_err(|error| error.to_string())?;
    let factory = SharedInformerFactory::for_client(&client).without_managed_fields();
    let pods = factory.informer::<Pod>();
    pods.compact();
    let (late, heard): (Arc<Mutex<Vec<f64>>>, Arc<Mutex<usize>>) = Default::default();
    let (to, count) = (Arc::clone(&late), Arc::clone(&heard));
    let handler = pods.add_event_handler(
        HandlerFuncs::<Pod>::new()
            .on_add_key(move |_, _| *count.lock().unwrap_or_else(PoisonError::into_inner) += 1)
            .on_change(move |pod| {
                let at = pod.metadata.annotations.as_ref().and_then(|all| all.get(SENT_AT)?.parse::<i128>().ok());
                if let Some(at) = at {
                    let late = (clock.now().as_nanosecond() - at) as f64 / 1e6;
                    to.lock().unwrap_or_else(PoisonError::into_inner).push(late);
                }
            }),
    );
    let kb = || usage_of("self").rss * 1e3 / 1.024;
    let (before, begun) = (kb(), clock.monotonic());
    factory.start();
    factory.wait_for_cache_sync().await;
    handler.wait_for_sync().await;
    let took = clock.monotonic().since(begun).as_secs_f64();
    let heard = *heard.lock().unwrap_or_else(PoisonError::into_inner);
    println!("synced {took:.4} {heard} {before:.0} {:.0}", kb());
    end.recv().await;
    let mut late = late.lock().unwrap_or_else(PoisonError::into_inner).clone();
    late.sort_by(f64::total_cmp);
    let part = |of: f64| late.get((of * late.len().saturating_sub(1) as f64) as usize).copied().unwrap_or(0.0);
    println!("events {} {:.3} {:.3}", late.len(), part(0.5), part(0.99));
    Ok(())
}
