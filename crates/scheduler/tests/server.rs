//! The scheduler on the real server, in process.

#![expect(clippy::unwrap_used, reason = "all of it is a test")]

use std::{sync::Arc, time::Duration};

use capstan_api::options::{DeleteOptions, ListOptions};
use capstan_client::{Api, Client, Patch};
use capstan_clock::{Clock, ManualClock, OsIds, RealClock, SharedClock};
use capstan_runtime::{Stop, Stopper};
use capstan_scheduler::{Scheduler, SchedulerConfig, SchedulerHandle};
use capstan_server::{Config, Server, authorization::UserInfo};
use capstan_storage::{Memory, Options};
use k8s_openapi::{
    api::{
        core::v1::{Node, Pod, ServiceAccount},
        events::v1::Event,
    },
    serde::de::DeserializeOwned,
};

struct Cluster {
    client: Client,
    pods: Api<Pod>,
    nodes: Api<Node>,
    clock: SharedClock,
    _stopper: Stopper,
    handle: SchedulerHandle,
}

fn object<K: DeserializeOwned>(yaml: &str) -> K {
    let value = capstan_api::yaml::parse(yaml.as_bytes()).unwrap();
    capstan_api::value::from_value(value).unwrap()
}

async fn server() -> Client {
    let server = Server::start(Arc::new(Memory::new(Options::default())), Config::default()).await.unwrap();
    let client = Client::from_service(server.as_user(UserInfo::new("admin", ["system:masters"])));
    let account = object("{apiVersion: v1, kind: ServiceAccount, metadata: {name: default}}");
    Api::<ServiceAccount>::namespaced(&client, "default").create(&account).await.unwrap();
    client
}

fn start(client: &Client, clock: &SharedClock) -> (Stopper, SchedulerHandle) {
    let (stopper, stop): (Stopper, Stop) = Stopper::new();
    let scheduler = Scheduler::new(client.clone(), Arc::clone(clock), Arc::new(OsIds), SchedulerConfig::default());
    let handle = scheduler.handle();
    tokio::spawn(scheduler.run(stop));
    (stopper, handle)
}

async fn cluster_with(clock: SharedClock) -> Cluster {
    let client = server().await;
    let (stopper, handle) = start(&client, &clock);
    Cluster {
        pods: Api::namespaced(&client, "default"),
        nodes: Api::all(&client),
        client,
        clock,
        _stopper: stopper,
        handle,
    }
}

async fn cluster() -> Cluster {
    cluster_with(Arc::new(RealClock::new())).await
}

impl Cluster {
    async fn node(&self, name: &str, cpu: &str) {
        let yaml = format!(
            "{{apiVersion: v1, kind: Node, metadata: {{name: {name}, labels: {{kubernetes.io/hostname: {name}}}}}, \
             status: {{capacity: {{cpu: '{cpu}', memory: 8Gi, pods: '110'}}, \
             allocatable: {{cpu: '{cpu}', memory: 8Gi, pods: '110'}}}}}}"
        );
        self.nodes.create(&object(&yaml)).await.unwrap();
        // A new node is closed until its conditions are known; nobody here finds out.
        let patch = serde_json::json!({"spec": {"taints": null}});
        self.nodes.patch(name, &Patch::Merge(patch)).await.unwrap();
    }

    async fn pod(&self, name: &str, cpu: &str, more: &str) -> Pod {
        let yaml = format!(
            "{{apiVersion: v1, kind: Pod, metadata: {{name: {name}}}, spec: {{{more} containers: [{{name: c, image: i, \
             resources: {{requests: {{cpu: '{cpu}'}}}}}}]}}}}"
        );
        self.pods.create(&object(&yaml)).await.unwrap()
    }

    /// Waits until a pod is as wanted.
    async fn until(&self, name: &str, wanted: impl Fn(&Pod) -> bool) -> Pod {
        let mut watch = self.pods.watch(&ListOptions::default()).await.unwrap();
        let search = async {
            loop {
                let event = watch.try_next().await.unwrap().unwrap();
                use capstan_client::Event as E;
                if let E::Added(pod) | E::Modified(pod) = event
                    && pod.metadata.name.as_deref() == Some(name)
                    && wanted(&pod)
                {
                    return pod;
                }
            }
        };
        let patience = RealClock::new();
        tokio::select! {
            pod = search => pod,
            () = patience.sleep(Duration::from_secs(20)) => {
                panic!("{name}: {:?}\n{}", self.pods.get(name).await, self.handle.metrics())
            }
        }
    }

    async fn placed(&self, name: &str) -> String {
        let pod = self.until(name, |pod| node_of(pod).is_some()).await;
        node_of(&pod).unwrap()
    }

    async fn refused(&self, name: &str) -> (String, String) {
        let pod = self.until(name, |pod| condition(pod).is_some()).await;
        condition(&pod).unwrap()
    }

    async fn event(&self, reason: &str) -> Event {
        let events = Api::<Event>::namespaced(&self.client, "default");
        let patience = RealClock::new();
        for _ in 0..200 {
            let all = events.list(&ListOptions::default()).await.unwrap().items;
            if let Some(event) = all.into_iter().find(|event| event.reason.as_deref() == Some(reason)) {
                return event;
            }
            patience.sleep(Duration::from_millis(50)).await;
        }
        panic!("no event {reason}");
    }
}

fn node_of(pod: &Pod) -> Option<String> {
    pod.spec.as_ref().unwrap().node_name.clone()
}

fn condition(pod: &Pod) -> Option<(String, String)> {
    let all = pod.status.as_ref()?.conditions.as_ref()?;
    let condition = all.iter().find(|c| c.type_ == "PodScheduled" && c.status == "False")?;
    Some((condition.reason.clone()?, condition.message.clone()?))
}

#[tokio::test]
async fn places_and_refuses() {
    let cluster = cluster().await;
    cluster.pod("early", "1", "").await;
    let refused = ("Unschedulable".to_owned(), "no nodes available to schedule pods".to_owned());
    assert_eq!(cluster.refused("early").await, refused);

    cluster.node("a", "2").await;
    assert_eq!(cluster.placed("early").await, "a", "a node came");
    let event = cluster.event("Scheduled").await;
    assert_eq!(event.note.as_deref(), Some("Successfully assigned default/early to a"));
    assert_eq!(event.reporting_controller.as_deref(), Some("default-scheduler"));
    assert_eq!(event.action.as_deref(), Some("Binding"));

    cluster.pod("large", "3", "").await;
    let (reason, message) = cluster.refused("large").await;
    assert_eq!(reason, "Unschedulable");
    assert_eq!(
        message,
        "0/1 nodes are available: 1 Insufficient cpu. no new claims to deallocate, preemption: 0/1 nodes are \
         available: 1 Preemption is not helpful for scheduling."
    );
    let event = cluster.event("FailedScheduling").await;
    assert_eq!((event.type_.as_deref(), event.action.as_deref()), (Some("Warning"), Some("Scheduling")));

    cluster.node("b", "4").await;
    assert_eq!(cluster.placed("large").await, "b");
    let metrics = cluster.handle.metrics();
    let line = "scheduler_schedule_attempts_total{profile=\"default-scheduler\",result=\"scheduled\"} 2";
    assert!(metrics.contains(line), "{metrics}");
}

#[tokio::test]
async fn gates_and_other_schedulers() {
    let cluster = cluster().await;
    cluster.node("a", "2").await;
    cluster.pod("other", "100m", "schedulerName: someone,").await;
    cluster.pod("gated", "100m", "schedulingGates: [{name: wait}],").await;
    cluster.pod("plain", "100m", "").await;
    cluster.placed("plain").await;
    assert_eq!(node_of(&cluster.pods.get("gated").await.unwrap()), None);
    let patch = serde_json::json!({"spec": {"schedulingGates": null}});
    cluster.pods.patch("gated", &Patch::Merge(patch)).await.unwrap();
    assert_eq!(cluster.placed("gated").await, "a");
    assert_eq!(node_of(&cluster.pods.get("other").await.unwrap()), None);
}

#[tokio::test]
async fn room_is_made() {
    let cluster = cluster().await;
    cluster.node("a", "1").await;
    let class = "{apiVersion: scheduling.k8s.io/v1, kind: PriorityClass, metadata: {name: high}, value: 1000}";
    let class: k8s_openapi::api::scheduling::v1::PriorityClass = object(class);
    Api::all(&cluster.client).create(&class).await.unwrap();
    cluster.pod("low", "1", "terminationGracePeriodSeconds: 0,").await;
    cluster.placed("low").await;
    cluster.pod("high", "1", "priorityClassName: high,").await;
    assert_eq!(cluster.placed("high").await, "a");
    assert!(cluster.pods.get("low").await.unwrap_err().is_not_found());
    let event = cluster.event("Preempted").await;
    let high = cluster.pods.get("high").await.unwrap();
    let note = format!("Preempted by pod {} on node a", high.metadata.uid.unwrap());
    assert_eq!(event.note, Some(note));
    assert_eq!(event.related.unwrap().name.as_deref(), Some("high"));
}

#[tokio::test]
async fn room_is_made_once() {
    let cluster = cluster().await;
    let class = "{apiVersion: scheduling.k8s.io/v1, kind: PriorityClass, metadata: {name: high}, value: 1000}";
    let class: k8s_openapi::api::scheduling::v1::PriorityClass = object(class);
    Api::all(&cluster.client).create(&class).await.unwrap();
    for at in 0..4 {
        cluster.node(&format!("n{at}"), "4").await;
    }
    for at in 0..16 {
        cluster.pod(&format!("low-{at}"), "1", "terminationGracePeriodSeconds: 0,").await;
    }
    for at in 0..16 {
        cluster.placed(&format!("low-{at}")).await;
    }
    for at in 0..4 {
        cluster.pod(&format!("high-{at}"), "3", "priorityClassName: high,").await;
    }
    for at in 0..4 {
        cluster.placed(&format!("high-{at}")).await;
    }
    let metrics = cluster.handle.metrics();
    let once = ["scheduler_preemption_attempts_total 4", "scheduler_preemption_victims_sum 12"];
    assert!(once.iter().all(|line| metrics.contains(line)), "{metrics}");
    let all = cluster.pods.list(&ListOptions::default()).await.unwrap().items;
    assert_eq!(all.len(), 8, "nobody was evicted in vain");
}

#[tokio::test]
async fn many_pods_and_a_restart() {
    let cluster = cluster().await;
    for at in 0..5 {
        cluster.node(&format!("n{at}"), "10").await;
    }
    for at in 0..60 {
        cluster.pod(&format!("p{at}"), "500m", "").await;
    }
    for at in 0..60 {
        cluster.placed(&format!("p{at}")).await;
    }
    let Cluster { client, clock, _stopper: stopper, pods, nodes, .. } = cluster;
    stopper.stop();
    // Another one takes over, and knows what is there.
    let (stopper, handle) = start(&client, &clock);
    let cluster = Cluster { client, clock, pods, nodes, _stopper: stopper, handle };
    for at in 60..100 {
        cluster.pod(&format!("p{at}"), "500m", "").await;
    }
    for at in 60..100 {
        cluster.placed(&format!("p{at}")).await;
    }
    let mut count = std::collections::BTreeMap::new();
    for pod in cluster.pods.list(&ListOptions::default()).await.unwrap().items {
        *count.entry(node_of(&pod).unwrap()).or_insert(0) += 1;
    }
    assert!(count.values().all(|pods| *pods == 20), "{count:?}");
    cluster.pod("more", "500m", "").await;
    assert_eq!(cluster.refused("more").await.0, "Unschedulable");
    cluster.pods.delete("p7", &DeleteOptions { grace_period_seconds: Some(0), ..Default::default() }).await.unwrap();
    cluster.placed("more").await;
}

#[tokio::test]
async fn waits_by_the_clock() {
    let clock = Arc::new(ManualClock::at(RealClock::new().now()));
    let cluster = cluster_with(clock.clone()).await;
    // Without nodes a pod is tried again after a while, not before: and no time goes by.
    cluster.pod("early", "1", "").await;
    cluster.refused("early").await;
    cluster.node("a", "1").await;
    cluster.pod("other", "1", "").await;
    assert_eq!(cluster.placed("other").await, "a", "it came later, and need not wait");
    cluster.node("b", "1").await;
    clock.advance(Duration::from_secs(1));
    assert_eq!(cluster.placed("early").await, "b");
}

#[tokio::test]
async fn extended_resources_from_devices() {
    use k8s_openapi::api::resource::v1::{DeviceClass, ResourceClaim, ResourceSlice};
    let cluster = cluster().await;
    let class = "{apiVersion: resource.k8s.io/v1, kind: DeviceClass, metadata: {name: gpu}, spec: \
                 {extendedResourceName: example.com/gpu}}";
    Api::<DeviceClass>::all(&cluster.client).create(&object(class)).await.unwrap();
    let slice = "{apiVersion: resource.k8s.io/v1, kind: ResourceSlice, metadata: {name: s}, spec: {driver: d.io, \
                 nodeName: a, pool: {name: a, generation: 1, resourceSliceCount: 1}, devices: [{name: d0}]}}";
    Api::<ResourceSlice>::all(&cluster.client).create(&object(slice)).await.unwrap();
    cluster.node("a", "4").await;
    let pod = |name: &str, resource: &str| {
        format!(
            "{{apiVersion: v1, kind: Pod, metadata: {{name: {name}}}, spec: {{containers: [{{name: c, image: i, \
             resources: {{limits: {{{resource}: '1'}}}}}}]}}}}"
        )
    };
    cluster.pods.create(&object(&pod("p", "example.com/gpu"))).await.unwrap();
    assert_eq!(cluster.placed("p").await, "a");
    let told = cluster.pods.get("p").await.unwrap().status.unwrap().extended_resource_claim_status.unwrap();
    let mapping = &told.request_mappings[0];
    assert_eq!(
        (mapping.container_name.as_str(), mapping.resource_name.as_str(), mapping.request_name.as_str()),
        ("c", "example.com/gpu", "container-0-request-0")
    );
    let claims = Api::<ResourceClaim>::namespaced(&cluster.client, "default");
    let claim = claims.get(&told.resource_claim_name).await.unwrap();
    assert!(told.resource_claim_name.starts_with("p-extended-resources-"));
    let marked = &claim.metadata.annotations.unwrap()["resource.kubernetes.io/extended-resource-claim"];
    assert_eq!((marked.as_str(), claim.metadata.owner_references.unwrap()[0].name.as_str()), ("true", "p"));
    let status = claim.status.unwrap();
    assert_eq!(status.allocation.unwrap().devices.unwrap().results.unwrap()[0].device, "d0");
    assert_eq!(status.reserved_for.unwrap()[0].name, "p");

    // The same device by the name that always stands for its class.
    cluster.pods.create(&object(&pod("q", "deviceclass.resource.kubernetes.io/gpu"))).await.unwrap();
    let (_, message) = cluster.refused("q").await;
    assert!(message.starts_with("0/1 nodes are available: 1 cannot allocate all claims."), "{message}");
    cluster.pods.delete("p", &DeleteOptions { grace_period_seconds: Some(0), ..Default::default() }).await.unwrap();
    // Nobody collects garbage here.
    let freed = serde_json::json!({"status": {"allocation": null, "reservedFor": null}});
    claims.patch_status(&told.resource_claim_name, &Patch::Merge(freed)).await.unwrap();
    assert_eq!(cluster.placed("q").await, "a");
}
