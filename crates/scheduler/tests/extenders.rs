//! Others outside the process who have a say: who answers, who lies, who hangs; and plugins that make pods wait.

#![expect(clippy::unwrap_used, reason = "all of it is a test")]

use std::{
    sync::{
        Arc, Mutex,
        atomic::{AtomicBool, Ordering},
    },
    time::Duration,
};

use bytes::Bytes;
use capstan_api::options::ListOptions;
use capstan_client::{Api, Body, BoxFuture, Client, Error, Patch, Transport};
use capstan_clock::{Clock, OsIds, RealClock};
use capstan_runtime::Stopper;
use capstan_scheduler::{
    Registry, Scheduler, SchedulerConfig,
    node_info::NodeInfo,
    plugin::{BindContext, Cycle, Permit, Plugin, Point},
    pod_info::PodInfo,
    profile::Profile,
    status::Status,
};
use capstan_server::{Config, Server, authorization::UserInfo};
use capstan_storage::{Memory, Options};
use http::{Request, Response};
use k8s_openapi::{
    api::core::v1::{Node, Pod, ServiceAccount},
    serde::de::DeserializeOwned,
};
use serde_json::{Value, json};

type Answer = Arc<dyn Fn(&str, &Value) -> Option<Value> + Send + Sync>;

/// An extender: its answers by verb, none when it hangs. Remembers what it was asked.
#[derive(Clone)]
struct Extender {
    answer: Answer,
    asked: Arc<Mutex<Vec<String>>>,
}

impl std::fmt::Debug for Extender {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("Extender")
    }
}

impl Transport for Extender {
    fn send(&self, request: Request<Bytes>) -> BoxFuture<'static, Result<Response<Body>, Error>> {
        let verb = request.uri().path().rsplit('/').next().unwrap_or_default().to_owned();
        let args: Value = serde_json::from_slice(request.body()).unwrap();
        self.asked.lock().unwrap().push(verb.clone());
        let answer = (self.answer)(&verb, &args);
        Box::pin(async move {
            match answer {
                Some(answer) => {
                    Ok(Response::new(Body::new(capstan_server::http::Body::from(answer.to_string().into_bytes()))))
                }
                None => std::future::pending().await,
            }
        })
    }
}

fn object<K: DeserializeOwned>(yaml: &str) -> K {
    capstan_api::value::from_value(capstan_api::yaml::parse(yaml.as_bytes()).unwrap()).unwrap()
}

struct Cluster {
    client: Client,
    pods: Api<Pod>,
    clock: RealClock,
}

/// A cluster with two nodes.
async fn cluster() -> Cluster {
    let server = Server::start(Arc::new(Memory::new(Options::default())), Config::default()).await.unwrap();
    let client = Client::from_service(server.as_user(UserInfo::new("admin", ["system:masters"])));
    let account = object("{apiVersion: v1, kind: ServiceAccount, metadata: {name: default}}");
    Api::<ServiceAccount>::namespaced(&client, "default").create(&account).await.unwrap();
    let class = "{apiVersion: scheduling.k8s.io/v1, kind: PriorityClass, metadata: {name: high}, value: 1000}";
    let class: k8s_openapi::api::scheduling::v1::PriorityClass = object(class);
    Api::all(&client).create(&class).await.unwrap();
    let nodes = Api::<Node>::all(&client);
    for name in ["a", "b"] {
        let size = "{cpu: '1', memory: 8Gi, pods: '110'}";
        let yaml = format!(
            "{{apiVersion: v1, kind: Node, metadata: {{name: {name}}}, status: {{capacity: {size}, allocatable: {size}}}}}"
        );
        nodes.create(&object(&yaml)).await.unwrap();
        nodes.patch(name, &Patch::Merge(json!({"spec": {"taints": null}}))).await.unwrap();
    }
    Cluster { pods: Api::namespaced(&client, "default"), client, clock: RealClock::new() }
}

impl Cluster {
    async fn pod(&self, name: &str, cpu: &str, more: &str) {
        let yaml = format!(
            "{{apiVersion: v1, kind: Pod, metadata: {{name: {name}}}, spec: {{{more} terminationGracePeriodSeconds: 0, \
             containers: [{{name: c, image: i, resources: {{requests: {{cpu: '{cpu}'}}}}}}]}}}}"
        );
        self.pods.create(&object(&yaml)).await.unwrap();
    }

    /// Where a pod went, or what was said of it.
    async fn outcome(&self, name: &str) -> String {
        for _ in 0..400 {
            let pod = self.pods.get(name).await.unwrap();
            if let Some(node) = &pod.spec.as_ref().unwrap().node_name {
                return node.clone();
            }
            let status = pod.status.as_ref().unwrap();
            let mut conditions = status.conditions.iter().flatten();
            let said = conditions.find(|c| c.type_ == "PodScheduled" && c.status == "False");
            if let Some(said) = said
                && status.nominated_node_name.is_none()
            {
                return said.message.clone().unwrap_or_default();
            }
            self.clock.sleep(Duration::from_millis(25)).await;
        }
        "nothing happened".to_owned()
    }

    fn start(&self, config: SchedulerConfig) -> Stopper {
        let (stopper, stop) = Stopper::new();
        let scheduler = Scheduler::new(self.client.clone(), Arc::new(self.clock), Arc::new(OsIds), config);
        tokio::spawn(scheduler.run(stop));
        stopper
    }

    fn start_with(&self, extender: &Extender, body: &str) -> Stopper {
        let text = format!(
            "apiVersion: kubescheduler.config.k8s.io/v1\nkind: KubeSchedulerConfiguration\n\
             extenders: [{{urlPrefix: 'http://extender.example/x', {body}}}]"
        );
        let config =
            SchedulerConfig::parse(text.as_bytes(), &Registry::default(), |_| Ok(Client::new(extender.clone())));
        self.start(config.unwrap())
    }
}

fn extender(answer: impl Fn(&str, &Value) -> Option<Value> + Send + Sync + 'static) -> Extender {
    Extender { answer: Arc::new(answer), asked: Arc::default() }
}

#[tokio::test]
async fn filters_and_ranks() {
    let cluster = cluster().await;
    let choosy = extender(|verb, args| match verb {
        "filter" => {
            assert_eq!(args["nodenames"].as_array().map(Vec::len), Some(2), "{args}");
            assert_eq!(args["pod"]["metadata"]["name"], "p");
            Some(json!({"nodenames": ["b"], "failedNodes": {"a": "a is not to my taste"}}))
        }
        _ => panic!("{verb}"),
    });
    let stopper = cluster.start_with(&choosy, "filterVerb: filter, nodeCacheCapable: true");
    cluster.pod("p", "100m", "").await;
    assert_eq!(cluster.outcome("p").await, "b");
    stopper.stop();

    let fond = extender(|verb, args| match verb {
        "prioritize" => {
            assert_eq!(args["nodes"]["items"].as_array().map(Vec::len), Some(2), "whole nodes: {args}");
            Some(json!([{"host": "a", "score": 10}, {"host": "b", "score": 0}, {"host": "nowhere", "score": 10}]))
        }
        _ => panic!("{verb}"),
    });
    let _stopper = cluster.start_with(&fond, "prioritizeVerb: prioritize, weight: 100");
    cluster.pod("q", "100m", "").await;
    assert_eq!(cluster.outcome("q").await, "a");
}

#[tokio::test]
async fn refuses_all() {
    let cluster = cluster().await;
    let grim = extender(|_, _| Some(json!({"nodenames": [], "failedNodes": {"a": "no", "b": "never"}})));
    let _stopper = cluster.start_with(&grim, "filterVerb: filter, nodeCacheCapable: true");
    cluster.pod("p", "100m", "").await;
    let said = cluster.outcome("p").await;
    assert!(said.starts_with("0/2 nodes are available: 1 never, 1 no."), "{said}");
}

#[tokio::test]
async fn lies() {
    let cluster = cluster().await;
    let liar = extender(|_, _| Some(json!({"nodenames": ["nowhere"]})));
    let stopper = cluster.start_with(&liar, "filterVerb: filter, nodeCacheCapable: true");
    cluster.pod("p", "100m", "").await;
    let said = cluster.outcome("p").await;
    assert!(said.contains("claims a filtered node \"nowhere\" which is not found in the input node list"), "{said}");
    stopper.stop();
    // One whose word is not needed may lie as it likes.
    let _stopper = cluster.start_with(&liar, "filterVerb: filter, nodeCacheCapable: true, ignorable: true");
    cluster.pod("q", "100m", "").await;
    assert!(["a", "b"].contains(&cluster.outcome("q").await.as_str()));
}

#[tokio::test]
async fn hangs() {
    let cluster = cluster().await;
    let silent = extender(|_, _| None);
    let stopper = cluster.start_with(&silent, "filterVerb: filter, httpTimeout: 50ms");
    cluster.pod("p", "100m", "").await;
    let said = cluster.outcome("p").await;
    assert!(said.contains("context deadline exceeded"), "{said}");
    stopper.stop();
    let _stopper = cluster.start_with(&silent, "filterVerb: filter, httpTimeout: 50ms, ignorable: true");
    cluster.pod("q", "100m", "").await;
    assert!(["a", "b"].contains(&cluster.outcome("q").await.as_str()));
}

#[tokio::test]
async fn binds() {
    let cluster = cluster().await;
    let client = cluster.client.clone();
    let bound = Arc::new(Mutex::new(Vec::new()));
    let seen = Arc::clone(&bound);
    let binder = extender(move |verb, args| {
        assert_eq!(verb, "bind");
        seen.lock().unwrap().push(args.clone());
        let (client, args) = (client.clone(), args.clone());
        tokio::spawn(async move {
            let binding = json!({
                "apiVersion": "v1", "kind": "Binding", "metadata": {"name": args["podName"]},
                "target": {"kind": "Node", "name": args["node"]},
            });
            let pods = Api::<Pod>::namespaced(&client, "default");
            pods.create_subresource(args["podName"].as_str().unwrap(), "binding", &binding).await.unwrap();
        });
        Some(json!({}))
    });
    let _stopper = cluster.start_with(&binder, "bindVerb: bind");
    cluster.pod("p", "100m", "").await;
    let node = cluster.outcome("p").await;
    let bound = bound.lock().unwrap().clone();
    assert_eq!(bound.len(), 1);
    assert_eq!(bound[0]["node"], node.as_str());
}

#[tokio::test]
async fn has_a_say_in_evictions() {
    let cluster = cluster().await;
    for (name, node) in [("one", "a"), ("two", "b")] {
        cluster.pod(name, "1", &format!("nodeName: {node},")).await;
    }
    let agrees = Arc::new(AtomicBool::new(false));
    let asked = Arc::clone(&agrees);
    let merciful = extender(move |verb, args| {
        assert_eq!(verb, "preempt");
        let nodes = args["nodeNameToVictims"].as_object().unwrap();
        match asked.load(Ordering::Relaxed).then(|| nodes.get("b")?["pods"][0]["metadata"]["uid"].as_str()) {
            Some(Some(uid)) => Some(json!({"nodeNameToMetaVictims": {"b": {"pods": [{"uid": uid}]}}})),
            Some(None) => Some(json!({"nodeNameToMetaVictims": {}})),
            None => {
                assert_eq!(nodes.keys().collect::<Vec<_>>(), ["a", "b"], "it sees all that would help");
                Some(json!({"nodeNameToMetaVictims": {}}))
            }
        }
    });
    let _stopper = cluster.start_with(&merciful, "preemptVerb: preempt");
    cluster.pod("p", "1", "priorityClassName: high,").await;
    let said = cluster.outcome("p").await;
    let refused = "0/2 nodes are available: 2 Insufficient cpu. preemption: no candidate node for preemption";
    assert_eq!(said, refused);
    assert_eq!(cluster.pods.list(&ListOptions::default()).await.unwrap().items.len(), 3, "nobody was evicted");
    agrees.store(true, Ordering::Relaxed);
    cluster.pod("q", "1", "priorityClassName: high,").await;
    assert_eq!(cluster.outcome("q").await, "b");
    assert!(cluster.pods.get("two").await.unwrap_err().is_not_found());
}

/// Makes pods wait until it is told otherwise, and fails to prepare the first of them.
#[derive(Debug, Default)]
struct Doorkeeper {
    open: AtomicBool,
    stumbles: AtomicBool,
    patience: Duration,
}

impl Plugin for Doorkeeper {
    fn name(&self) -> &'static str {
        "Doorkeeper"
    }

    fn points(&self) -> &'static [Point] {
        &[Point::Permit, Point::PreBind]
    }

    fn permit(&self, cycle: Cycle<'_>, _node: &NodeInfo) -> Permit {
        match (cycle.pod.name(), self.open.load(Ordering::Relaxed)) {
            ("never", _) => Permit::Reject(Status::unschedulable("not you")),
            (_, true) => Permit::Allow,
            (_, false) => Permit::Wait(self.patience),
        }
    }

    fn pre_bind<'a>(
        &'a self,
        _context: &'a BindContext,
        _pod: &'a Arc<PodInfo>,
        _node: &'a str,
    ) -> BoxFuture<'a, Result<(), Status>> {
        let stumbles = self.stumbles.swap(false, Ordering::Relaxed);
        Box::pin(async move { if stumbles { Err(Status::error("stumbled")) } else { Ok(()) } })
    }
}

fn with_plugin(plugin: &Arc<Doorkeeper>) -> SchedulerConfig {
    let mut profile = Profile::default();
    for point in [Point::Permit, Point::PreBind] {
        profile.enable(point, Arc::clone(plugin) as Arc<dyn Plugin>, 0);
    }
    SchedulerConfig { profiles: vec![profile], ..SchedulerConfig::default() }
}

#[tokio::test]
async fn waits_for_leave() {
    let cluster = cluster().await;
    let keeper = Arc::new(Doorkeeper { patience: Duration::from_secs(60), ..Doorkeeper::default() });
    let _stopper = cluster.start(with_plugin(&keeper));
    cluster.pod("never", "100m", "").await;
    let said = cluster.outcome("never").await;
    assert!(said.contains("not you"), "{said}");
    // Those who wait take their place meanwhile: a third does not fit.
    for name in ["p", "q"] {
        cluster.pod(name, "1", "").await;
    }
    cluster.pod("r", "1", "").await;
    let said = cluster.outcome("r").await;
    assert!(said.starts_with("0/2 nodes are available: 2 Insufficient cpu."), "{said}");
    keeper.open.store(true, Ordering::Relaxed);
    let mut nodes = [cluster.outcome("p").await, cluster.outcome("q").await];
    nodes.sort();
    assert_eq!(nodes, ["a", "b"]);
}

#[tokio::test]
async fn waits_no_longer_than_allowed() {
    let cluster = cluster().await;
    let keeper = Arc::new(Doorkeeper { patience: Duration::from_millis(1), ..Doorkeeper::default() });
    let _stopper = cluster.start(with_plugin(&keeper));
    cluster.pod("p", "100m", "").await;
    let said = cluster.outcome("p").await;
    assert!(said.contains("rejected due to timeout after waiting 1ms at plugin Doorkeeper"), "{said}");
}

#[tokio::test]
async fn a_failure_before_binding_is_told_and_tried_again() {
    let cluster = cluster().await;
    let keeper = Doorkeeper { open: true.into(), stumbles: true.into(), ..Doorkeeper::default() };
    let _stopper = cluster.start(with_plugin(&Arc::new(keeper)));
    cluster.pod("p", "100m", "").await;
    let said = cluster.outcome("p").await;
    // Whoever looks late finds it placed already.
    assert!(said.contains("running PreBind plugin \"Doorkeeper\": stumbled") || said.len() == 1, "{said}");
    for _ in 0..400 {
        if cluster.outcome("p").await.len() == 1 {
            return;
        }
        cluster.clock.sleep(Duration::from_millis(25)).await;
    }
    panic!("not tried again");
}
