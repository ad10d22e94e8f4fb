//! Everything goes wrong at once, by seeds: requests of all kinds that do not arrive, answers that get lost, a rival who
//! binds the same pods, nodes that vanish between decision and binding and come back, and schedulers that die in the
//! middle. In the end every pod has a node or a reason, and no node has more than it can take.

use std::{
    collections::BTreeMap,
    sync::{
        Arc,
        atomic::{AtomicU64, Ordering},
    },
    time::Duration,
};

use bytes::Bytes;
use capstan_api::options::{DeleteOptions, ListOptions};
use capstan_client::{Api, Body, BoxFuture, Client, Error, Transport};
use capstan_clock::{Clock, Ids, ManualClock, OsIds, RealClock, SeededIds};
use capstan_runtime::Stopper;
use capstan_scheduler::{Scheduler, SchedulerConfig};
use http::{Method, Request, Response};
use k8s_openapi::api::{
    core::v1::{Node, Pod},
    scheduling::v1::PriorityClass,
};
use serde_json::json;
use tokio::runtime::Runtime;

use crate::cluster::{CPUS, Cluster, node_of, object};

/// The node that only the rival uses: the others are kept away.
const RIVAL: &str = "rival";

/// The road to the server, in a storm. It calms down after so many faults: else nothing would ever be done.
#[derive(Clone, Debug)]
struct Storm {
    client: Client,
    ids: Arc<SeededIds>,
    left: Arc<AtomicU64>,
}

impl Storm {
    fn strikes(&self, one_in: u64) -> bool {
        let lose = |left: u64| left.checked_sub(1);
        self.ids.below(one_in) == 0 && self.left.fetch_update(Ordering::Relaxed, Ordering::Relaxed, lose).is_ok()
    }

    async fn pass(self, request: Request<Bytes>) -> Result<Response<Body>, Error> {
        let closed = || Error::Transport("the road is closed".to_owned());
        if !request.uri().path().ends_with("/binding") {
            let rare = if request.method() == Method::GET { 60 } else { 12 };
            if self.strikes(rare) {
                return Err(closed());
            }
            return self.client.send(request).await;
        }
        if !self.strikes(3) {
            return self.client.send(request).await;
        }
        match self.ids.below(4) {
            0 => Err(closed()),
            1 => {
                self.client.send(request).await?;
                Err(Error::Transport("the answer was lost".to_owned()))
            }
            2 => {
                // Somebody else has bound the pod a moment before: this one is refused with a conflict.
                let path = request.uri().path().to_owned();
                let binding = json!({
                    "apiVersion": "v1", "kind": "Binding", "metadata": {"name": path.split('/').rev().nth(1)},
                    "target": {"kind": "Node", "name": RIVAL},
                });
                let other = Request::post(path).header("content-type", "application/json");
                let _ = self.client.send(other.body(Bytes::from(binding.to_string())).unwrap()).await;
                self.client.send(request).await
            }
            _ => {
                let nodes = Api::<Node>::all(&self.client);
                let _ = nodes.delete("shaky", &DeleteOptions::default()).await;
                self.client.send(request).await
            }
        }
    }
}

impl Transport for Storm {
    fn send(&self, request: Request<Bytes>) -> BoxFuture<'static, Result<Response<Body>, Error>> {
        Box::pin(self.clone().pass(request))
    }
}

/// A cluster with a time of its own.
struct Stormy {
    cluster: Cluster,
    clock: Arc<ManualClock>,
}

impl Stormy {
    async fn new() -> Self {
        let cluster = Cluster::new().await;
        let class = "{apiVersion: scheduling.k8s.io/v1, kind: PriorityClass, metadata: {name: high}, value: 10}";
        Api::<PriorityClass>::all(&cluster.client).create(&object(class)).await.unwrap();
        Stormy { cluster, clock: Arc::new(ManualClock::at(RealClock::new().now())) }
    }

    async fn node(&self, name: &str) {
        let taints = if name == RIVAL { json!([{"key": "mine", "effect": "NoSchedule"}]) } else { json!(null) };
        self.cluster.node(name, taints).await;
    }

    /// A scheduler with threads of its own, so that it can die.
    fn start(&self, storm: &Storm) -> (Runtime, Stopper) {
        let threads = tokio::runtime::Builder::new_multi_thread().worker_threads(1).enable_all().build().unwrap();
        let (stopper, stop) = Stopper::new();
        let (client, clock) = (Client::new(storm.clone()), self.clock.clone());
        threads.spawn(async move {
            Scheduler::new(client, clock, Arc::new(OsIds), SchedulerConfig::default()).run(stop).await;
        });
        (threads, stopper)
    }

    /// Lets time go by while the others work. They have threads of their own, so that nobody knows when they are done:
    /// a moment of real time is what they get for each step.
    async fn pass(&self, steps: usize) {
        for _ in 0..steps {
            RealClock::new().sleep(Duration::from_millis(2)).await;
            self.clock.advance(Duration::from_millis(200));
        }
    }

    /// Waits until every pod has a node or a reason, while time goes by.
    async fn settle(&self) -> Vec<Pod> {
        tokio::select! {
            all = self.cluster.until_all(|pod| node_of(pod).is_some() || reason(pod).is_some()) => return all,
            () = self.pass(10_000) => {}
        }
        let all = self.cluster.pods.list(&ListOptions::default()).await.unwrap().items;
        let open = all.iter().filter(|pod| node_of(pod).is_none() && reason(pod).is_none());
        panic!("neither node nor reason: {:?}", open.map(|pod| &pod.metadata.name).collect::<Vec<_>>())
    }
}

fn reason(pod: &Pod) -> Option<&str> {
    let conditions = pod.status.as_ref()?.conditions.as_ref()?;
    let said = conditions.iter().find(|condition| condition.type_ == "PodScheduled" && condition.status == "False")?;
    said.message.as_deref().filter(|message| !message.is_empty())
}

fn milli(pod: &Pod) -> i64 {
    let requests = pod.spec.as_ref().unwrap().containers[0].resources.as_ref().unwrap().requests.as_ref().unwrap();
    let text = &requests["cpu"].0;
    text.strip_suffix('m').map_or_else(|| text.parse::<i64>().unwrap() * 1000, |text| text.parse().unwrap())
}

async fn die(threads: Runtime) {
    tokio::task::spawn_blocking(move || threads.shutdown_timeout(Duration::from_secs(20))).await.unwrap();
}

async fn weather(seed: u64) {
    let stormy = Stormy::new().await;
    let cluster = &stormy.cluster;
    let storm = Storm {
        client: cluster.client.clone(),
        ids: Arc::new(SeededIds::new(seed)),
        left: Arc::new(AtomicU64::new(60)),
    };
    for name in ["a", "b", "c", "d", "shaky", RIVAL] {
        stormy.node(name).await;
    }
    let (mut threads, mut stopper) = stormy.start(&storm);
    for at in 0..24 {
        cluster.pod(&format!("low-{at}"), 500, "").await;
        if at % 8 == 7 {
            // It dies with bindings on their way, and another one takes over.
            stormy.pass(storm.ids.below(4) as usize).await;
            die(threads).await;
            drop(stopper);
            (threads, stopper) = stormy.start(&storm);
            stormy.node("shaky").await;
        }
    }
    cluster.pod("hopeless", 9000, "priorityClassName: high,").await;
    for at in 0..4 {
        cluster.pod(&format!("high-{at}"), 2000, "priorityClassName: high,").await;
    }
    stormy.settle().await;
    // The storm is over, and what was lost is tried again.
    storm.left.store(0, Ordering::Relaxed);
    stormy.pass(400).await;
    let all = stormy.settle().await;
    let mut used = BTreeMap::new();
    for pod in &all {
        let name = pod.metadata.name.as_deref().unwrap();
        match node_of(pod) {
            Some(node) => *used.entry(node).or_insert(0) += milli(pod),
            None => assert!(name == "hopeless" || name.starts_with("low"), "seed {seed}: {name}: {:?}", reason(pod)),
        }
    }
    // Pods on a node that vanished do not count against the one that came in its place, and nobody counts the rival's.
    for (node, used) in used.iter().filter(|(node, _)| **node != RIVAL && **node != "shaky") {
        assert!(*used <= CPUS * 1000, "seed {seed}: {used} on {node}");
    }
    let hopeless = all.iter().find(|pod| pod.metadata.name.as_deref() == Some("hopeless")).unwrap();
    assert!(node_of(hopeless).is_none());
    stopper.stop();
    die(threads).await;
}

#[tokio::test]
async fn every_pod_ends_somewhere() {
    for seed in 0..5 {
        weather(seed).await;
    }
}
