//! A server that fails: bindings that are refused, lost answers, nodes that vanish between decision and binding. In the
//! end every pod has a node, and no node has more than it can take.

#![expect(clippy::unwrap_used, reason = "all of it is a test")]

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
use capstan_client::{Api, Body, BoxFuture, Client, Error, Patch, Transport};
use capstan_clock::{Clock, Ids, OsIds, RealClock, SeededIds};
use capstan_runtime::Stopper;
use capstan_scheduler::{Scheduler, SchedulerConfig};
use capstan_server::{Config, Server, authorization::UserInfo};
use capstan_storage::{Memory, Options};
use http::{Request, Response};
use k8s_openapi::{
    api::core::v1::{Node, Pod, ServiceAccount},
    serde::de::DeserializeOwned,
};

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

fn object<K: DeserializeOwned>(yaml: &str) -> K {
    capstan_api::value::from_value(capstan_api::yaml::parse(yaml.as_bytes()).unwrap()).unwrap()
}

async fn node(client: &Client, name: &str) {
    let nodes = Api::<Node>::all(client);
    let size = "{cpu: '4', memory: 8Gi, pods: '110'}";
    let yaml = format!(
        "{{apiVersion: v1, kind: Node, metadata: {{name: {name}}}, status: {{capacity: {size}, allocatable: {size}}}}}"
    );
    nodes.create(&object(&yaml)).await.unwrap();
    nodes.patch(name, &Patch::Merge(serde_json::json!({"spec": {"taints": null}}))).await.unwrap();
}

#[tokio::test]
async fn all_is_well_in_the_end() {
    let server = Server::start(Arc::new(Memory::new(Options::default())), Config::default()).await.unwrap();
    let client = Client::from_service(server.as_user(UserInfo::new("admin", ["system:masters"])));
    let account = object("{apiVersion: v1, kind: ServiceAccount, metadata: {name: default}}");
    Api::<ServiceAccount>::namespaced(&client, "default").create(&account).await.unwrap();
    for name in ["a", "b", "c", "d", "e", "shaky"] {
        node(&client, name).await;
    }
    let faults = Arc::new(AtomicU64::new(0));
    let bumpy = Bumpy { client: client.clone(), ids: SeededIds::new(3), faults: Arc::clone(&faults) };
    let clock = Arc::new(RealClock::new());
    let (_stopper, stop) = Stopper::new();
    let scheduler = Scheduler::new(Client::new(bumpy), clock.clone(), Arc::new(OsIds), SchedulerConfig::default());
    let handle = scheduler.handle();
    tokio::spawn(scheduler.run(stop));

    let pods = Api::<Pod>::namespaced(&client, "default");
    for at in 0..36 {
        let yaml = format!(
            "{{apiVersion: v1, kind: Pod, metadata: {{name: p{at}}}, spec: {{containers: [{{name: c, image: i, \
             resources: {{requests: {{cpu: 500m}}}}}}]}}}}"
        );
        pods.create(&object(&yaml)).await.unwrap();
    }
    let mut placed = Vec::new();
    for _ in 0..600 {
        placed = pods.list(&ListOptions::default()).await.unwrap().items;
        if placed.iter().all(|pod| pod.spec.as_ref().unwrap().node_name.is_some()) {
            break;
        }
        clock.sleep(Duration::from_millis(50)).await;
    }
    let mut count = BTreeMap::new();
    for pod in &placed {
        *count.entry(pod.spec.as_ref().unwrap().node_name.clone()).or_insert(0) += 1;
    }
    assert_eq!(count.get(&None), None, "{count:?}\n{}", handle.metrics());
    assert!(count.values().all(|pods| *pods <= 8), "{count:?}");
    assert!(faults.load(Ordering::Relaxed) > 0);
}
