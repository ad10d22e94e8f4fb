//! Nodes without machines: pods live by rules and delays, thousands of nodes in one process.
//!
//! The same [`lifecycle`](crate::lifecycle) as on real nodes, but what it asks for is answered by [`Stage`]s. One task
//! holds all pods and one heap of times; a task exists only for a write that is under way.

mod pods;
mod rules;
mod usage;

use std::{collections::BTreeMap, sync::Arc, time::Duration};

use capstan_client::{Client, SharedInformerFactory, reflector::machine::Config};
use capstan_clock::{SharedClock, SharedIds};
use capstan_runtime::{EventRecorder, Stop};
use k8s_openapi::api::core::v1::Pod;
use pods::Pods;
pub use rules::{Delay, EXIT_CODE, RUN_FOR, START_DELAY, Stage, default_stages, stage};
use tokio::sync::Semaphore;
pub use usage::{USAGE_CPU, USAGE_MEMORY, Usage, is_simulated, usage};

use crate::{
    dirty::Dirty,
    node::register::{self, Health, NodeInfo},
};

/// How many writes of nodes and leases may be under way at once.
const MAX_NODE_WRITES: usize = 32;
/// How long after a registration that failed it is tried again: at first, and at most. It doubles each time.
const REGISTER_RETRY: (Duration, Duration) = (Duration::from_millis(100), Duration::from_secs(7));

/// Many nodes without machines.
#[derive(Clone)]
pub struct Nodes {
    client: Client,
    clock: SharedClock,
    ids: SharedIds,
    names: Vec<String>,
    stages: Arc<Vec<Stage>>,
    capacity: BTreeMap<String, String>,
    labels: BTreeMap<String, String>,
    informers: Option<Arc<SharedInformerFactory>>,
    events: bool,
}

impl std::fmt::Debug for Nodes {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Nodes").field("names", &self.names.len()).finish_non_exhaustive()
    }
}

impl Nodes {
    /// Nodes of these names.
    #[must_use]
    pub fn new(client: Client, clock: SharedClock, ids: SharedIds, names: Vec<String>) -> Self {
        let capacity = [("cpu", "32"), ("memory", "256Gi"), ("ephemeral-storage", "1Ti"), ("pods", "110")];
        Nodes {
            client,
            clock,
            ids,
            names,
            stages: Arc::new(default_stages()),
            capacity: capacity.map(|(name, value)| (name.to_owned(), value.to_owned())).into(),
            labels: BTreeMap::from([("type".to_owned(), "simulated".to_owned())]),
            informers: None,
            events: false,
        }
    }

    /// Reads from informers that others in this process have too. Whoever made them ends them.
    #[must_use]
    pub fn informers(mut self, informers: Arc<SharedInformerFactory>) -> Self {
        self.informers = Some(informers);
        self
    }

    /// Tells by Events what happens to pods; nothing is told when not said, because with many pods it is most of what
    /// is written.
    #[must_use]
    pub fn events(mut self) -> Self {
        self.events = true;
        self
    }

    /// What their pods do.
    #[must_use]
    pub fn stages(mut self, stages: Vec<Stage>) -> Self {
        self.stages = Arc::new(stages);
        self
    }

    /// What each has of a resource.
    #[must_use]
    pub fn capacity(mut self, resource: &str, quantity: &str) -> Self {
        self.capacity.insert(resource.to_owned(), quantity.to_owned());
        self
    }

    /// A label that all have.
    #[must_use]
    pub fn label(mut self, key: &str, value: &str) -> Self {
        self.labels.insert(key.to_owned(), value.to_owned());
        self
    }

    fn info(&self, index: usize) -> NodeInfo {
        NodeInfo {
            name: self.names[index].clone(),
            ips: vec![address(10, index)],
            labels: self.labels.clone(),
            capacity: self.capacity.clone(),
            allocatable: self.capacity.clone(),
            runtime_version: format!("{}{}", usage::RUNTIME, env!("CARGO_PKG_VERSION")),
            architecture: "amd64".to_owned(),
            kernel: "simulated".to_owned(),
            os_image: "simulated".to_owned(),
            machine_id: self.names[index].clone(),
            ..NodeInfo::default()
        }
    }

    /// Runs until told to stop.
    pub async fn run(self, stop: Stop) {
        let is_shared = self.informers.is_some();
        let factory = self.informers.clone().unwrap_or_else(|| {
            let config = Config { field_selector: "spec.nodeName!=".to_owned(), ..Config::default() };
            let own = SharedInformerFactory::new(Arc::new(self.client.clone()), self.clock.clone(), self.ids.clone());
            Arc::new(own.config(config).without_managed_fields())
        });
        let informer = factory.informer::<Pod>();
        let changed = Dirty::of(&informer);
        factory.start();
        let keeping = tokio::spawn(self.clone().keep_nodes());
        let recorder = || EventRecorder::new(&self.client, "kubelet", self.clock.clone(), self.ids.clone());
        let recorder = self.events.then(recorder);
        let pods = Pods::new(self.client, self.clock, self.ids, self.stages, self.names, informer.lister());
        let pods = pods.recorder(recorder);
        tokio::select! {
            () = pods.run(&changed) => {}
            () = stop.stopped() => {}
        }
        if !is_shared {
            factory.shut_down();
        }
        keeping.abort();
    }

    /// Registers all nodes and renews their leases, spread over the interval.
    async fn keep_nodes(self) {
        let writes = Arc::new(Semaphore::new(MAX_NODE_WRITES));
        let mut tasks = tokio::task::JoinSet::new();
        let count = u32::try_from(self.names.len().max(1)).unwrap_or(u32::MAX);
        let mut uids = vec![String::new(); self.names.len()];
        for index in 0..self.names.len() {
            let Ok(permit) = writes.clone().acquire_owned().await else { return };
            let nodes = self.clone();
            tasks.spawn(async move {
                let _permit = permit;
                let info = nodes.info(index);
                let mut retry = REGISTER_RETRY.0;
                loop {
                    let now = nodes.clock.now();
                    if let Ok(node) = register::register(&nodes.client, &info, &Health::default(), now).await {
                        let uid = node.metadata.uid.unwrap_or_default();
                        let _ = register::renew_lease(&nodes.client, &info.name, &uid, now).await;
                        return (index, uid);
                    }
                    nodes.clock.sleep(retry).await;
                    retry = REGISTER_RETRY.1.min(2 * retry);
                }
            });
        }
        while let Some(done) = tasks.join_next().await {
            if let Ok((index, uid)) = done {
                uids[index] = uid;
            }
        }
        let pause = register::LEASE_RENEW_INTERVAL / count;
        let mut due = self.clock.monotonic();
        loop {
            for (name, uid) in self.names.iter().zip(&uids) {
                // What was late is made up for: on a busy machine the lateness of a thousand pauses would add up to
                // more than a lease holds.
                due = due.plus(pause);
                self.clock.sleep_until(due).await;
                let Ok(permit) = writes.clone().acquire_owned().await else { return };
                let (client, clock, name, uid) = (self.client.clone(), self.clock.clone(), name.clone(), uid.clone());
                tokio::spawn(async move {
                    let _permit = permit;
                    // One that is missed is made up for by the next: a lease holds for four.
                    let _ = register::renew_lease(&client, &name, &uid, clock.now()).await;
                });
            }
        }
    }
}

/// A made-up address.
fn address(first: u8, index: usize) -> String {
    format!("{first}.{}.{}.{}", (index >> 16) & 0xff, (index >> 8) & 0xff, index & 0xff)
}
