//! metrics.k8s.io: what nodes and pods use. The kubelets are asked when somebody wants to know, and what they said is
//! good for a little while; nothing runs in between. Of simulated nodes it follows from their pods.

use std::{
    collections::{BTreeMap, HashMap},
    sync::Arc,
    time::Duration,
};

use bytes::Bytes;
use capstan_api::{GroupResource, GroupVersionResource, Status, options::ListOptions, partial::PartialObjectMetadata};
use capstan_client::{Api, BoxFuture, Client, Error};
use capstan_clock::{Moment, SharedClock};
use futures_util::{StreamExt as _, stream};
use http::{HeaderValue, Method, Request, Response, StatusCode, header};
use http_body_util::{BodyExt as _, Empty, Limited};
use hyper::client::conn::http1;
use hyper_util::rt::TokioIo;
use k8s_openapi::{
    api::core::v1::{Node, Pod},
    apimachinery::pkg::apis::meta::v1::Time,
};
use rustls::{
    ClientConfig, RootCertStore,
    crypto::aws_lc_rs,
    pki_types::{CertificateDer, PrivateKeyDer},
};
use serde::Deserialize;
use serde_json::{Value, json};
use tokio::{net::TcpStream, sync::Mutex};

use crate::{node::insecure, server::parameters, simulated};

/// The group.
pub const GROUP: &str = "metrics.k8s.io";
/// Its version.
pub const VERSION: &str = "v1beta1";

/// For how long what the kubelets said is good: less than the time between two of their measurements.
const FRESH: Duration = Duration::from_secs(5);
/// How long a kubelet may take.
const SCRAPE_TIMEOUT: Duration = Duration::from_secs(10);
/// How many kubelets are asked at once.
const MAX_SCRAPES: usize = 32;
/// The largest answer of a kubelet.
const MAX_SUMMARY: usize = 16 << 20;
/// The time over which kubelets measure.
const WINDOW: &str = "10s";
/// Which address of a node is taken, in this order.
const ADDRESS_TYPES: [&str; 3] = ["InternalIP", "ExternalIP", "Hostname"];

/// Answers for the group. Clones share what they know.
#[derive(Clone, Debug)]
pub struct MetricsApi {
    client: Client,
    clock: SharedClock,
    tls: Arc<ClientConfig>,
    kept: Arc<Mutex<Kept>>,
}

/// What all kubelets said, and when.
type Kept = Option<(Moment, Arc<Measured>)>;

/// What all kubelets said.
#[derive(Debug, Default)]
struct Measured {
    nodes: HashMap<String, Usage>,
    /// By namespace and name; the containers by theirs.
    pods: HashMap<(String, String), Vec<(String, Usage)>>,
}

/// What `/stats/summary` says; what is not needed is left out.
#[derive(Debug, Deserialize)]
struct Summary {
    node: Usage,
    #[serde(default)]
    pods: Vec<PodStats>,
}

#[derive(Debug, Deserialize)]
#[serde(rename_all = "camelCase")]
struct PodStats {
    pod_ref: PodRef,
    #[serde(default)]
    containers: Vec<ContainerUsage>,
}

#[derive(Debug, Deserialize)]
struct PodRef {
    name: String,
    namespace: String,
}

#[derive(Debug, Deserialize)]
struct ContainerUsage {
    name: String,
    #[serde(flatten)]
    usage: Usage,
}

#[derive(Clone, Debug, Default, Deserialize)]
#[serde(default)]
struct Usage {
    cpu: Cpu,
    memory: Memory,
}

#[derive(Clone, Debug, Default, Deserialize)]
#[serde(default, rename_all = "camelCase")]
struct Cpu {
    time: Value,
    usage_nano_cores: Option<u64>,
}

#[derive(Clone, Debug, Default, Deserialize)]
#[serde(default, rename_all = "camelCase")]
struct Memory {
    working_set_bytes: Option<u64>,
}

impl Usage {
    fn of(simulated: simulated::Usage, time: &Value) -> Self {
        let cpu = Cpu { time: time.clone(), usage_nano_cores: Some(simulated.cpu_nano_cores) };
        Usage { cpu, memory: Memory { working_set_bytes: Some(simulated.memory_bytes) } }
    }

    /// Both, when both are known: one measurement says nothing of the processor yet.
    fn known(&self) -> Option<(u64, u64)> {
        Some((self.cpu.usage_nano_cores?, self.memory.working_set_bytes?))
    }
}

/// Quantities as metrics.k8s.io has them.
fn resources((cpu, memory): (u64, u64)) -> Value {
    json!({"cpu": format!("{cpu}n"), "memory": format!("{}Ki", memory / 1024)})
}

/// One of the two kinds.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Kind {
    Node,
    Pod,
}

impl Kind {
    fn name(self) -> &'static str {
        match self {
            Kind::Node => "NodeMetrics",
            Kind::Pod => "PodMetrics",
        }
    }

    /// What it is called when it is not there.
    fn resource(self) -> GroupResource {
        match self {
            Kind::Node => GroupResource::from_static(GROUP, "nodemetrics"),
            Kind::Pod => GroupResource::from_static(GROUP, "podmetrics"),
        }
    }

    /// Whose usage it is.
    fn measured(self) -> GroupVersionResource {
        GroupVersionResource::new("", "v1", if self == Kind::Node { "nodes" } else { "pods" })
    }
}

/// What is asked for: a kind, in a namespace or all, by name or not.
#[derive(Clone, Debug, PartialEq, Eq)]
struct Wanted {
    kind: Kind,
    namespace: String,
    name: Option<String>,
}

impl Wanted {
    fn of(path: &str) -> Option<Self> {
        let parts: Vec<&str> = path.trim_matches('/').split('/').skip(3).collect();
        let (kind, namespace, name) = match parts.as_slice() {
            ["nodes"] => (Kind::Node, "", None),
            ["nodes", name] => (Kind::Node, "", Some(*name)),
            ["pods"] => (Kind::Pod, "", None),
            ["namespaces", namespace, "pods"] => (Kind::Pod, *namespace, None),
            ["namespaces", namespace, "pods", name] => (Kind::Pod, *namespace, Some(*name)),
            _ => return None,
        };
        Some(Wanted { kind, namespace: namespace.to_owned(), name: name.map(str::to_owned) })
    }
}

impl MetricsApi {
    /// Reads nodes and pods by `client`, and asks kubelets with this certificate, which they have to know. Those are
    /// believed whose certificates `authorities` have signed; all, if none are named.
    ///
    /// # Errors
    /// The certificate and the key, or an authority, can't be used.
    pub fn new(
        client: Client,
        clock: SharedClock,
        (certificate, key): (Vec<CertificateDer<'static>>, PrivateKeyDer<'static>),
        authorities: Option<Vec<CertificateDer<'static>>>,
    ) -> Result<Self, rustls::Error> {
        let tls = match authorities {
            None => insecure::config(Some((certificate, key)))?,
            Some(authorities) => {
                let mut roots = RootCertStore::empty();
                authorities.into_iter().try_for_each(|authority| roots.add(authority))?;
                let builder = ClientConfig::builder_with_provider(Arc::new(aws_lc_rs::default_provider()))
                    .with_safe_default_protocol_versions()?
                    .with_root_certificates(roots);
                Arc::new(builder.with_client_auth_cert(certificate, key)?)
            }
        };
        Ok(MetricsApi { client, clock, tls, kept: Arc::default() })
    }

    /// Answers one request, for whom it may concern: who asks has been let in already.
    #[must_use]
    pub fn answer(&self, request: Request<Bytes>) -> BoxFuture<'static, Response<Bytes>> {
        let api = self.clone();
        Box::pin(async move {
            match api.try_answer(&request).await {
                Ok(value) => as_json(StatusCode::OK, &value),
                Err(status) => {
                    let code = u16::try_from(status.code).ok().and_then(|code| StatusCode::from_u16(code).ok());
                    let value = serde_json::to_value(&status).unwrap_or_default();
                    as_json(code.unwrap_or(StatusCode::INTERNAL_SERVER_ERROR), &value)
                }
            }
        })
    }

    async fn try_answer(&self, request: &Request<Bytes>) -> Result<Value, Status> {
        let path = request.uri().path();
        if path.trim_matches('/').split('/').count() == 3 {
            return Ok(discovery());
        }
        let wanted = Wanted::of(path).ok_or_else(|| Status::not_found(&Kind::Node.resource(), path))?;
        let query: BTreeMap<String, String> = parameters(request.uri().query().unwrap_or_default()).collect();
        let text = |name: &str| query.get(name).cloned().unwrap_or_default();
        if request.method() != Method::GET || matches!(text("watch").as_str(), "1" | "true") {
            let verb = if request.method() == Method::GET { "watch" } else { request.method().as_str() };
            return Err(Status::method_not_supported(&wanted.kind.resource(), &verb.to_lowercase()));
        }
        let objects = self.client.metadata(wanted.kind.measured()).namespace(&wanted.namespace);
        let found = match &wanted.name {
            Some(name) => vec![objects.get(name).await.map_err(refused)?],
            None => {
                let options = ListOptions {
                    label_selector: text("labelSelector"),
                    field_selector: text("fieldSelector"),
                    ..ListOptions::default()
                };
                objects.list_all(&options).await.map_err(refused)?.items
            }
        };
        let measured = self.measured().await?;
        let items: Vec<Value> = found.iter().filter_map(|object| measured.of(wanted.kind, object)).collect();
        let kind = wanted.kind.name();
        let accept = request.headers().get(header::ACCEPT).and_then(|accept| accept.to_str().ok()).unwrap_or_default();
        let one = match (&wanted.name, items.first()) {
            (Some(name), None) => {
                let name = if wanted.kind == Kind::Pod { format!("{}/{name}", wanted.namespace) } else { name.clone() };
                return Err(Status::not_found(&wanted.kind.resource(), &name));
            }
            (Some(_), Some(item)) => Some(item.clone()),
            (None, _) => None,
        };
        // kubectl lists what it prefers first.
        if accept.split(',').next().unwrap_or_default().contains("as=Table") {
            return Ok(table(&items));
        }
        Ok(match one {
            Some(mut item) => {
                item["kind"] = json!(kind);
                item["apiVersion"] = json!(format!("{GROUP}/{VERSION}"));
                item
            }
            None => json!({"kind": format!("{kind}List"), "apiVersion": format!("{GROUP}/{VERSION}"), "metadata": {},
                           "items": items}),
        })
    }

    /// What the kubelets say, asked anew if that is too long ago. Who comes meanwhile waits for the same answers.
    async fn measured(&self) -> Result<Arc<Measured>, Status> {
        let mut kept = self.kept.lock().await;
        if let Some((at, measured)) = &*kept
            && self.clock.monotonic().since(*at) < FRESH
        {
            return Ok(Arc::clone(measured));
        }
        let nodes = Api::<Node>::all(&self.client).list_all(&ListOptions::default()).await.map_err(refused)?.items;
        let mut measured = Measured::default();
        let mut scrapes = Vec::new();
        let mut simulated = HashMap::new();
        for node in nodes {
            if is_simulated(&node) {
                simulated.insert(node.metadata.name.unwrap_or_default(), simulated::Usage::default());
            } else if port(&node).is_some() {
                let api = self.clone();
                scrapes.push(async move { (node.metadata.name.clone(), api.scrape(&node).await) });
            }
        }
        let mut answers = stream::iter(scrapes).buffer_unordered(MAX_SCRAPES);
        while let Some((name, summary)) = answers.next().await {
            // A node that does not answer has no metrics: the API server says so of each that is asked for.
            let Some(summary) = summary else { continue };
            measured.nodes.insert(name.unwrap_or_default(), summary.node);
            for pod in summary.pods {
                let containers = pod.containers.into_iter().map(|container| (container.name, container.usage));
                measured.pods.insert((pod.pod_ref.namespace, pod.pod_ref.name), containers.collect());
            }
        }
        if !simulated.is_empty() {
            self.follow(simulated, &mut measured).await?;
        }
        let measured = Arc::new(measured);
        *kept = Some((self.clock.monotonic(), Arc::clone(&measured)));
        Ok(measured)
    }

    /// What follows from the pods of simulated nodes.
    async fn follow(
        &self,
        mut nodes: HashMap<String, simulated::Usage>,
        measured: &mut Measured,
    ) -> Result<(), Status> {
        let now = json!(Time(self.clock.now()));
        let pods = Api::<Pod>::all(&self.client).list_all(&ListOptions::default()).await.map_err(refused)?.items;
        for pod in &pods {
            let node = pod.spec.as_ref().and_then(|spec| spec.node_name.as_ref());
            let Some(sum) = node.and_then(|node| nodes.get_mut(node)) else { continue };
            let mut containers = Vec::new();
            for (name, usage) in simulated::usage(pod) {
                sum.cpu_nano_cores += usage.cpu_nano_cores;
                sum.memory_bytes += usage.memory_bytes;
                containers.push((name.to_owned(), Usage::of(usage, &now)));
            }
            let text = |field: &Option<String>| field.clone().unwrap_or_default();
            measured.pods.insert((text(&pod.metadata.namespace), text(&pod.metadata.name)), containers);
        }
        measured.nodes.extend(nodes.into_iter().map(|(name, sum)| (name, Usage::of(sum, &now))));
        Ok(())
    }

    async fn scrape(&self, node: &Node) -> Option<Summary> {
        let addresses = node.status.as_ref()?.addresses.as_ref()?;
        let of = |kind: &str| addresses.iter().find(|address| address.type_ == kind);
        let host = ADDRESS_TYPES.into_iter().find_map(of)?.address.clone();
        let asked = async {
            let stream = TcpStream::connect((host.as_str(), port(node)?)).await.ok()?;
            let stream = insecure::connect(Arc::clone(&self.tls), stream, &host).await.ok()?;
            let (mut sender, connection) = http1::handshake(TokioIo::new(stream)).await.ok()?;
            let connection = tokio::spawn(connection);
            let request =
                Request::get("/stats/summary").header(header::HOST, &host).body(Empty::<Bytes>::new()).ok()?;
            let response = sender.send_request(request).await.ok().filter(|r| r.status() == StatusCode::OK)?;
            let body = Limited::new(response.into_body(), MAX_SUMMARY).collect().await.ok()?.to_bytes();
            connection.abort();
            serde_json::from_slice(&body).ok()
        };
        tokio::select! {
            summary = asked => summary,
            () = self.clock.sleep(SCRAPE_TIMEOUT) => None,
        }
    }
}

impl Measured {
    /// The metrics of an object, if they are known.
    fn of(&self, kind: Kind, object: &PartialObjectMetadata) -> Option<Value> {
        let meta = serde_json::to_value(&object.metadata).ok()?;
        let text = |field: &str| meta.get(field).and_then(Value::as_str).unwrap_or_default().to_owned();
        let mut metadata = json!({"name": text("name")});
        if let Some(labels) = meta.get("labels").filter(|labels| labels.as_object().is_some_and(|all| !all.is_empty()))
        {
            metadata["labels"] = labels.clone();
        }
        if kind == Kind::Node {
            let usage = self.nodes.get(&text("name"))?;
            let time = usage.cpu.time.clone();
            metadata["creationTimestamp"] = time.clone();
            return Some(json!({"metadata": metadata, "timestamp": time, "window": WINDOW,
                               "usage": resources(usage.known()?)}));
        }
        let containers = self.pods.get(&(text("namespace"), text("name"))).filter(|all| !all.is_empty())?;
        let time = containers.first()?.1.cpu.time.clone();
        metadata["namespace"] = json!(text("namespace"));
        metadata["creationTimestamp"] = time.clone();
        // A pod of which a part is not known is not known.
        let containers: Option<Vec<Value>> = containers
            .iter()
            .map(|(name, usage)| Some(json!({"name": name, "usage": resources(usage.known()?)})))
            .collect();
        Some(json!({"metadata": metadata, "timestamp": time, "window": WINDOW, "containers": containers?}))
    }
}

/// Whether a node only pretends.
fn is_simulated(node: &Node) -> bool {
    let info = node.status.as_ref().and_then(|status| status.node_info.as_ref());
    info.is_some_and(|info| simulated::is_simulated(&info.container_runtime_version))
}

/// The port of a kubelet; nodes that have none are not asked.
fn port(node: &Node) -> Option<u16> {
    let endpoints = node.status.as_ref()?.daemon_endpoints.as_ref()?;
    u16::try_from(endpoints.kubelet_endpoint.as_ref()?.port).ok().filter(|port| *port != 0)
}

fn refused(error: Error) -> Status {
    match error {
        Error::Api(status) => *status,
        other => Status::internal_error(other.to_string()),
    }
}

fn as_json(code: StatusCode, value: &Value) -> Response<Bytes> {
    let mut response = Response::new(Bytes::from(value.to_string()));
    *response.status_mut() = code;
    response.headers_mut().insert(header::CONTENT_TYPE, HeaderValue::from_static("application/json"));
    response
}

fn discovery() -> Value {
    let resource = |name: &str, kind: Kind| {
        json!({"name": name, "singularName": "", "namespaced": kind == Kind::Pod, "kind": kind.name(),
               "verbs": ["get", "list"]})
    };
    json!({"kind": "APIResourceList", "apiVersion": "v1", "groupVersion": format!("{GROUP}/{VERSION}"),
           "resources": [resource("nodes", Kind::Node), resource("pods", Kind::Pod)]})
}

/// What `kubectl get` prints.
fn table(items: &[Value]) -> Value {
    let column = |name: &str, format: &str| {
        let (kind, description) = ("string", "");
        json!({"name": name, "type": kind, "format": format, "description": description, "priority": 0})
    };
    let rows: Vec<Value> = items
        .iter()
        .map(|item| {
            let total = |resource: &str| -> Value {
                let of = |usage: &Value| usage[resource].as_str().map(str::to_owned).unwrap_or_default();
                let Some(containers) = item["containers"].as_array() else { return json!(of(&item["usage"])) };
                let unit = if resource == "cpu" { "n" } else { "Ki" };
                let numbers = containers.iter().map(|c| of(&c["usage"]).trim_end_matches(unit).parse::<u64>());
                json!(format!("{}{unit}", numbers.map(Result::unwrap_or_default).sum::<u64>()))
            };
            let object = json!({"kind": "PartialObjectMetadata", "apiVersion": "meta.k8s.io/v1",
                                "metadata": item["metadata"]});
            json!({"cells": [item["metadata"]["name"], total("cpu"), total("memory"), item["window"]],
                   "object": object})
        })
        .collect();
    json!({"kind": "Table", "apiVersion": "meta.k8s.io/v1", "metadata": {},
           "columnDefinitions": [column("Name", "name"), column("cpu", "quantity"), column("memory", "quantity"),
                                 column("Window", "duration")],
           "rows": rows})
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn paths() {
        let of = |path: &str| Wanted::of(path).map(|w| (w.kind, w.namespace, w.name));
        let base = "/apis/metrics.k8s.io/v1beta1";
        assert_eq!(of(&format!("{base}/nodes")), Some((Kind::Node, String::new(), None)));
        assert_eq!(of(&format!("{base}/nodes/n")), Some((Kind::Node, String::new(), Some("n".into()))));
        assert_eq!(of(&format!("{base}/namespaces/a/pods")), Some((Kind::Pod, "a".into(), None)));
        assert_eq!(of(&format!("{base}/namespaces/a/pods/p")), Some((Kind::Pod, "a".into(), Some("p".into()))));
        assert_eq!(of(&format!("{base}/namespaces/a/nodes")), None);
    }

    #[test]
    fn a_pod_is_known_when_all_of_it_is() {
        let summary: Summary = serde_json::from_value(json!({
            "node": {"nodeName": "n", "cpu": {"time": "t", "usageNanoCores": 7}, "memory": {"workingSetBytes": 2048}},
            "pods": [
                {"podRef": {"name": "p", "namespace": "a", "uid": "1"}, "containers": [
                    {"name": "x", "cpu": {"time": "t", "usageNanoCores": 1}, "memory": {"workingSetBytes": 1024}},
                    {"name": "y", "cpu": {"time": "t", "usageNanoCores": 2}, "memory": {"workingSetBytes": 4096}}]},
                {"podRef": {"name": "new", "namespace": "a", "uid": "2"}, "containers": [
                    {"name": "x", "cpu": {"time": "t"}, "memory": {"workingSetBytes": 1024}}]}]
        }))
        .unwrap();
        let mut measured = Measured::default();
        measured.nodes.insert("n".into(), summary.node);
        for pod in summary.pods {
            let containers = pod.containers.into_iter().map(|c| (c.name, c.usage)).collect();
            measured.pods.insert((pod.pod_ref.namespace, pod.pod_ref.name), containers);
        }
        let object = |name: &str| -> PartialObjectMetadata {
            serde_json::from_value(json!({"metadata": {"name": name, "namespace": "a"}})).unwrap()
        };
        assert_eq!(measured.of(Kind::Pod, &object("new")), None);
        let item = measured.of(Kind::Pod, &object("p")).unwrap();
        assert_eq!(item["containers"][1]["usage"], json!({"cpu": "2n", "memory": "4Ki"}));
        assert_eq!(table(&[item])["rows"][0]["cells"], json!(["p", "3n", "5Ki", "10s"]));
        let node = measured.of(Kind::Node, &object("n")).unwrap();
        assert_eq!(node["usage"], json!({"cpu": "7n", "memory": "2Ki"}));
    }
}
