//! A server that fails: bindings that are refused, lost answers, nodes that vanish between decision and binding. In the
//! end every pod has a node, and no node has more than it can take.

use std::{
    collections::BTreeMap,
    sync::{
        Arc,
        atomic::{AtomicU64, Ordering},
    },
    time::Duration,
};

use bytes::Bytes;
use capstan_api::options::DeleteOptions;
use capstan_client::{Api, Body, BoxFuture, Client, Error, Transport};
use capstan_clock::{Clock, Ids, OsIds, RealClock, SeededIds};
use capstan_runtime::Stopper;
use capstan_scheduler::{Scheduler, SchedulerConfig};
use http::{Request, Response};
use k8s_openapi::api::core::v1::Node;
use serde_json::json;

use crate::cluster::{CPUS, Cluster, node_of};

/// A road on which some bindings do not arrive, some answers get lost, and a node vanishes now and then.
#[derive(Debug)]
struct Bumpy {
    client: Client,
    ids: SeededIds,
    faults: Arc<AtomicU64>,
}

impl Transport for Bumpy {
    fn send(&self, request: Request<Bytes>) -> BoxFuture<'static, Result<Response<Body>, Error>> {
        let (client, faults, dice) = (self.client.clone(), Arc::clone(&self.faults), self.ids.below(10));
        Box::pin(async move {
            if !request.uri().path().ends_with("/binding") {
                return client.send(request).await;
            }
            match dice {
                0 => {
                    faults.fetch_add(1, Ordering::Relaxed);
                    Err(Error::Transport("the road is closed".to_owned()))
                }
                1 => {
                    faults.fetch_add(1, Ordering::Relaxed);
                    client.send(request).await?;
                    Err(Error::Transport("the answer was lost".to_owned()))
                }
                2 => {
                    faults.fetch_add(1, Ordering::Relaxed);
                    let nodes = Api::<Node>::all(&client);
                    let _ = nodes.delete("shaky", &DeleteOptions::default()).await;
                    client.send(request).await
                }
                _ => client.send(request).await,
            }
        })
    }
}

#[tokio::test]
async fn all_is_well_in_the_end() {
    let cluster = Cluster::new().await;
    for name in ["a", "b", "c", "d", "e", "shaky"] {
        cluster.node(name, json!(null)).await;
    }
    let faults = Arc::new(AtomicU64::new(0));
    let bumpy = Bumpy { client: cluster.client.clone(), ids: SeededIds::new(3), faults: Arc::clone(&faults) };
    let clock = Arc::new(RealClock::new());
    let (_stopper, stop) = Stopper::new();
    let scheduler = Scheduler::new(Client::new(bumpy), clock.clone(), Arc::new(OsIds), SchedulerConfig::default());
    let handle = scheduler.handle();
    tokio::spawn(scheduler.run(stop));

    for at in 0..36 {
        cluster.pod(&format!("p{at}"), 500, "").await;
    }
    let placed = tokio::select! {
        placed = cluster.until_all(|pod| node_of(pod).is_some()) => placed,
        () = clock.sleep(Duration::from_secs(30)) => panic!("not all have a node:\n{}", handle.metrics()),
    };
    let mut count = BTreeMap::new();
    for pod in &placed {
        *count.entry(node_of(pod).unwrap()).or_insert(0) += 1;
    }
    assert!(count.values().all(|pods| *pods * 500 <= CPUS * 1000), "{count:?}");
    assert!(faults.load(Ordering::Relaxed) > 0);
}
