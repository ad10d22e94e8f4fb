//! A server and a node with real processes, for one test.

use std::{
    ops::Deref,
    path::{Path, PathBuf},
    sync::Arc,
    time::Duration,
};

use capstan_api::options::ListOptions;
use capstan_client::{
    Api, Client, Event,
    beat::{Either, race},
};
use capstan_clock::{Clock as _, Ids as _, OsIds, RealClock, SharedClock};
use capstan_kubelet::{
    node::{Node, NodeBuilder, Shared, machine::Signals},
    runtime::{Runtime, process::Process},
};
use capstan_runtime::{Stop, Stopper};
use capstan_server::{
    Config, KubeletClient, Server,
    authentication::{self, StaticTokens, TokenIssuer},
    authorization::UserInfo,
    pki::PrivateKey,
};
use capstan_storage::{Memory, Options};
use k8s_openapi::api::core::v1::{ConfigMap, Event as CoreEvent, Pod, ServiceAccount};
use serde_json::{Value, json};

/// The token of those who reach the server by a socket.
pub(crate) const TOKEN: &str = "a-token";

pub(crate) struct World {
    pub(crate) server: Server,
    pub(crate) client: Client,
    pub(crate) shared: Arc<Shared>,
    pub(crate) dir: Temporary,
    pub(crate) stopper: Stopper,
    pub(crate) node: Option<tokio::task::JoinHandle<()>>,
}

/// What takes so long does not come; nothing here takes a tenth of it on a slow machine.
const NEVER: Duration = Duration::from_secs(600);

/// The shim, built by cargo beside this test.
pub(crate) fn shim() -> PathBuf {
    env!("CARGO_BIN_EXE_process-init").into()
}

/// A directory that is gone with this, however the test ends.
pub(crate) struct Temporary(PathBuf);

impl Deref for Temporary {
    type Target = Path;

    fn deref(&self) -> &Path {
        &self.0
    }
}

impl Drop for Temporary {
    fn drop(&mut self) {
        let _ = std::fs::remove_dir_all(&self.0);
    }
}

/// A new directory for one test.
pub(crate) fn directory(name: &str) -> Temporary {
    let dir = std::env::temp_dir().join(format!("capstan-node-{name}-{}", OsIds.suffix(8)));
    std::fs::create_dir_all(dir.join("manifests")).unwrap();
    Temporary(dir)
}

/// Containers as processes; none where this machine allows no namespaces.
pub(crate) async fn processes(dir: &Path) -> Option<Arc<dyn Runtime>> {
    let clock = Arc::new(RealClock::new());
    let ips = vec!["127.0.0.1".to_owned()];
    let runtime = Process::new(&dir.join("run"), &shim(), ips, clock, Arc::new(OsIds)).await.unwrap();
    if runtime.limitations().iter().any(|text| text.starts_with("no mount namespaces")) {
        eprintln!("skipped: this machine allows no mount namespaces");
        return None;
    }
    Some(Arc::new(runtime))
}

pub(crate) fn build(client: &Client, dir: &Path, runtime: Arc<dyn Runtime>) -> Node {
    builder(client, dir, runtime).build()
}

pub(crate) fn builder(client: &Client, dir: &Path, runtime: Arc<dyn Runtime>) -> NodeBuilder {
    builder_on(Arc::new(RealClock::new()), client, dir, runtime)
}

pub(crate) fn builder_on(clock: SharedClock, client: &Client, dir: &Path, runtime: Arc<dyn Runtime>) -> NodeBuilder {
    Node::builder(client.clone(), clock, Arc::new(OsIds))
        .name("node-1")
        .root_dir(dir)
        .runtime(runtime)
        .static_pods(&dir.join("manifests"))
        .sync_frequency(Duration::from_millis(200))
        // How full this machine happens to be is not what is tested.
        .signals(Arc::new(Signals::default))
}

/// Who signs the tokens of pods.
fn issuer() -> TokenIssuer {
    TokenIssuer {
        issuer: "https://kubernetes.default.svc".into(),
        key: Arc::new(PrivateKey::generate()),
        api_audiences: vec!["https://kubernetes.default.svc".into()],
        max_expiration_seconds: None,
        extend_expiration: false,
    }
}

impl World {
    pub(crate) async fn new(name: &str) -> Option<Self> {
        let dir = directory(name);
        let runtime = processes(&dir).await?;
        Some(World::with(dir, runtime).await)
    }

    pub(crate) async fn with(dir: Temporary, runtime: Arc<dyn Runtime>) -> Self {
        World::through(dir, runtime, |client| client).await
    }

    /// A world whose node reaches the server by a way of its own.
    pub(crate) async fn through(dir: Temporary, runtime: Arc<dyn Runtime>, way: impl FnOnce(Client) -> Client) -> Self {
        World::built(dir, |client, dir| build(&way(client), dir, runtime)).await
    }

    /// A world whose node says that its own server is at this port.
    pub(crate) async fn at_port(name: &str, port: u16) -> Option<Self> {
        let dir = directory(name);
        let runtime = processes(&dir).await?;
        Some(World::built(dir, |client, dir| builder(&client, dir, runtime).port(port).build()).await)
    }

    pub(crate) async fn built(dir: Temporary, build: impl FnOnce(Client, &Path) -> Node) -> Self {
        World::built_on(dir, Arc::new(RealClock::new()), build).await
    }

    /// A world whose server has this clock.
    pub(crate) async fn built_on(
        dir: Temporary,
        clock: SharedClock,
        build: impl FnOnce(Client, &Path) -> Node,
    ) -> Self {
        let mut tokens = StaticTokens::default();
        tokens.insert(TOKEN, UserInfo::new("admin", ["system:masters"]));
        let by_ip = KubeletClient::new(None, None).unwrap().prefer_addresses(vec!["InternalIP".to_owned()]);
        let config = Config {
            token_issuer: Some(issuer()),
            authentication: authentication::Config { static_tokens: Some(tokens), ..authentication::Config::default() },
            kubelet_client: Some(by_ip),
            clock,
            ..Config::default()
        };
        let server = Server::start(Arc::new(Memory::new(Options::default())), config).await.unwrap();
        let client = Client::from_service(server.as_user(UserInfo::new("admin", ["system:masters"])));
        let account: ServiceAccount = serde_json::from_value(json!({"metadata": {"name": "default"}})).unwrap();
        Api::<ServiceAccount>::namespaced(&client, "default").create(&account).await.unwrap();
        let ca = json!({"metadata": {"name": "kube-root-ca.crt"}, "data": {"ca.crt": "a certificate\n"}});
        let maps = Api::<ConfigMap>::namespaced(&client, "default");
        maps.create(&serde_json::from_value(ca).unwrap()).await.unwrap();
        let node = build(client.clone(), &dir);
        let (stopper, stop): (Stopper, Stop) = Stopper::new();
        let shared = node.shared();
        let node = Some(tokio::spawn(node.run(stop)));
        World { server, client, shared, dir, stopper, node }
    }

    pub(crate) fn pods(&self) -> Api<Pod> {
        Api::namespaced(&self.client, "default")
    }

    pub(crate) async fn create(&self, name: &str, mut spec: Value) {
        spec["nodeName"] = json!("node-1");
        let pod = json!({"metadata": {"name": name, "labels": {"app": name}}, "spec": spec});
        self.pods().create(&serde_json::from_value(pod).unwrap()).await.unwrap();
    }

    /// Waits until the pod is as wanted; says what it was like last if that does not come.
    pub(crate) async fn until(&self, name: &str, wanted: impl Fn(&Pod) -> bool) -> Pod {
        let options = ListOptions { field_selector: format!("metadata.name={name}"), ..ListOptions::default() };
        let mut last = None;
        let found = async {
            loop {
                let mut watch = self.pods().watch(&options).await.unwrap();
                while let Some(event) = watch.try_next().await.unwrap() {
                    let (Event::Added(pod) | Event::Modified(pod)) = event else { continue };
                    if wanted(&pod) {
                        return pod;
                    }
                    last = Some(pod);
                }
            }
        };
        match race(found, RealClock::new().sleep(NEVER)).await {
            Either::First(pod) => pod,
            Either::Second(()) => panic!("pod {name} is not as wanted, it is {}", json!(last)),
        }
    }

    pub(crate) async fn until_gone(&self, name: &str) {
        while self.pods().get_opt(name).await.unwrap().is_some() {
            tokio::task::yield_now().await;
        }
    }

    pub(crate) fn log(&self, name: &str, container: &str, attempt: u32) -> String {
        let handle = self.shared.pod("default", name).unwrap();
        let path = handle.logs.join(container).join(format!("{attempt}.log"));
        let text = std::fs::read_to_string(path).unwrap_or_default();
        text.lines().filter_map(|line| line.splitn(4, ' ').nth(3)).map(|line| format!("{line}\n")).collect()
    }

    /// Waits for an event about a pod; its message.
    pub(crate) async fn event(&self, pod: &str, reason: &str) -> String {
        let events = Api::<CoreEvent>::namespaced(&self.client, "default");
        let mut watch = events.watch(&ListOptions::default()).await.unwrap();
        let mut others = Vec::new();
        let found = async {
            loop {
                let Some(Event::Added(event) | Event::Modified(event)) = watch.try_next().await.unwrap() else {
                    continue;
                };
                if event.involved_object.name.as_deref() == Some(pod) && event.reason.as_deref() == Some(reason) {
                    return event.message.unwrap_or_default();
                }
                others.push((event.involved_object.name, event.reason));
            }
        };
        match race(found, RealClock::new().sleep(NEVER)).await {
            Either::First(message) => message,
            Either::Second(()) => panic!("no {reason} of pod {pod} but {others:?}"),
        }
    }

    pub(crate) async fn end(mut self) {
        self.stopper.stop();
        self.node.take().unwrap().await.unwrap();
    }
}

pub(crate) fn phase(pod: &Pod) -> &str {
    pod.status.as_ref().and_then(|status| status.phase.as_deref()).unwrap_or_default()
}

pub(crate) fn waiting(pod: &Pod) -> (String, String) {
    let statuses = pod.status.iter().flat_map(|s| s.container_statuses.iter().flatten());
    let waiting = statuses.filter_map(|c| c.state.as_ref()?.waiting.clone()).next().unwrap_or_default();
    (waiting.reason.unwrap_or_default(), waiting.message.unwrap_or_default())
}

pub(crate) fn ready(pod: &Pod) -> bool {
    let conditions = pod.status.iter().flat_map(|s| s.conditions.iter().flatten());
    conditions.into_iter().any(|c| c.type_ == "Ready" && c.status == "True")
}

pub(crate) fn sh(script: &str) -> Value {
    json!(["sh", "-c", script])
}
