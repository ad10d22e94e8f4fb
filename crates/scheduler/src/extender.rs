//! Others outside this process who have a say: they are asked over HTTP which nodes will do and which are better.

use std::{collections::HashMap, fmt, sync::Arc, time::Duration};

use bytes::Bytes;
use capstan_client::Client;
use capstan_clock::SharedClock;
use k8s_openapi::api::core::v1::{Node, Pod};
use serde::{Deserialize, Serialize, de::DeserializeOwned};

use crate::{cache::Slot, node_info::NodeInfo, pod_info::PodInfo, preemption::Victims, status::Status};

/// How long an extender may take, unless its configuration says otherwise.
pub const DEFAULT_EXTENDER_TIMEOUT: Duration = Duration::from_secs(5);
/// The best score that extenders give.
pub const MAX_EXTENDER_PRIORITY: i64 = 10;
/// The largest weight of an extender's scores.
pub const MAX_WEIGHT: i64 = i64::MAX / crate::plugin::MAX_NODE_SCORE;

/// How to ask an extender; the words of the configuration.
#[derive(Clone, Debug, Default, PartialEq, Deserialize)]
#[serde(default, rename_all = "camelCase", deny_unknown_fields)]
pub struct ExtenderConfig {
    /// Where it is.
    #[serde(rename = "urlPrefix")]
    pub url_prefix: String,
    /// The last part of the path to ask which nodes will do; empty: it has no say in that.
    pub filter_verb: String,
    /// The same to ask for evictions.
    pub preempt_verb: String,
    /// The same to ask which nodes are better.
    pub prioritize_verb: String,
    /// How much its scores count.
    pub weight: i64,
    /// The same to let it bind.
    pub bind_verb: String,
    /// Whether it is reached by TLS.
    #[serde(rename = "enableHTTPS")]
    pub enable_https: bool,
    /// How TLS is set up.
    pub tls_config: Option<serde_json::Value>,
    /// How long it may take.
    #[serde(rename = "httpTimeout")]
    pub http_timeout: Option<String>,
    /// Whether it keeps nodes itself, so that names are enough.
    pub node_cache_capable: bool,
    /// The resources that it looks after; none: all pods.
    pub managed_resources: Vec<ManagedResource>,
    /// Whether things go on without it when it does not answer.
    pub ignorable: bool,
}

/// A resource that an extender looks after.
#[derive(Clone, Debug, Default, PartialEq, Deserialize)]
#[serde(default, rename_all = "camelCase", deny_unknown_fields)]
pub struct ManagedResource {
    /// Its name.
    pub name: String,
    /// Whether nobody else looks at it.
    pub ignored_by_scheduler: bool,
}

/// An extender, and the way to it.
#[derive(Clone)]
pub struct Extender {
    config: ExtenderConfig,
    client: Client,
    timeout: Duration,
}

impl fmt::Debug for Extender {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Extender").field("url", &self.config.url_prefix).finish_non_exhaustive()
    }
}

/// What an extender said about nodes.
#[derive(Debug)]
pub(crate) struct Filtered {
    pub(crate) feasible: Vec<Slot>,
    pub(crate) refused: Vec<(Slot, Arc<Status>)>,
}

type Candidates = [(Slot, Arc<Node>)];

#[derive(Serialize)]
struct NodeItems<'a> {
    items: Vec<&'a Node>,
}

#[derive(Serialize)]
struct Args<'a> {
    pod: &'a Pod,
    #[serde(skip_serializing_if = "Option::is_none")]
    nodes: Option<NodeItems<'a>>,
    #[serde(skip_serializing_if = "Option::is_none")]
    nodenames: Option<Vec<&'a str>>,
}

#[derive(Default, Deserialize)]
#[serde(default)]
struct NamedNode {
    metadata: capstan_api::ObjectMeta,
}

#[derive(Default, Deserialize)]
#[serde(default)]
struct NamedNodes {
    items: Option<Vec<NamedNode>>,
}

#[derive(Default, Deserialize)]
#[serde(default, rename_all = "camelCase")]
struct FilterResult {
    nodes: Option<NamedNodes>,
    nodenames: Option<Vec<String>>,
    failed_nodes: Option<HashMap<String, String>>,
    failed_and_unresolvable_nodes: Option<HashMap<String, String>>,
    error: String,
}

#[derive(Deserialize)]
struct HostPriority {
    host: String,
    score: i64,
}

#[derive(Default, Deserialize)]
#[serde(default)]
struct BindResult {
    error: String,
}

#[derive(Default, Deserialize)]
#[serde(default, rename_all = "camelCase")]
struct PreemptResult {
    node_name_to_meta_victims: HashMap<String, MetaVictims>,
}

/// Whom an extender lets be evicted from a node.
#[derive(Default, Deserialize)]
#[serde(default)]
pub(crate) struct MetaVictims {
    pods: Option<Vec<MetaPod>>,
    #[serde(rename = "numPDBViolations")]
    violations: usize,
}

#[derive(Default, Deserialize)]
#[serde(default)]
struct MetaPod {
    uid: String,
}

impl MetaVictims {
    /// The pods themselves. `None` when one of them is not on the node any more.
    pub(crate) fn on(&self, node: &NodeInfo) -> Option<Victims> {
        let pod = |uid: &str| node.pods.iter().find(|pod| *pod.uid == *uid).cloned();
        let pods = self.pods.iter().flatten().map(|meta| pod(&meta.uid)).collect::<Option<Vec<_>>>()?;
        Some(Victims { node: node.name().to_owned(), slot: node.slot, pods, violations: self.violations })
    }
}

fn name(node: &Node) -> &str {
    node.metadata.name.as_deref().unwrap_or_default()
}

impl Extender {
    /// An extender that a client reaches: its requests go to `urlPrefix` and the verb.
    ///
    /// # Errors
    /// Says what is wrong with the configuration.
    pub fn new(config: ExtenderConfig, client: Client) -> Result<Self, String> {
        let timeout = match &config.http_timeout {
            None => DEFAULT_EXTENDER_TIMEOUT,
            Some(text) => {
                let parsed: Result<capstan_api::Duration, _> = text.parse();
                let nanos = parsed.map_err(|error| format!("httpTimeout: {error}"))?.0;
                let nanos = u64::try_from(nanos).ok().filter(|nanos| *nanos > 0);
                nanos.map_or(DEFAULT_EXTENDER_TIMEOUT, Duration::from_nanos)
            }
        };
        Ok(Extender { config, client, timeout })
    }

    /// Whether it has a say in where a pod goes: it looks after something that the pod asks for.
    pub(crate) fn is_interested(&self, pod: &PodInfo) -> bool {
        let managed = &self.config.managed_resources;
        managed.is_empty() || managed.iter().any(|resource| pod.requests.get(&resource.name) != 0)
    }

    pub(crate) fn is_ignorable(&self) -> bool {
        self.config.ignorable
    }

    pub(crate) fn is_binder(&self) -> bool {
        !self.config.bind_verb.is_empty()
    }

    async fn ask<T: DeserializeOwned>(
        &self,
        verb: &str,
        args: &impl Serialize,
        clock: &SharedClock,
    ) -> Result<T, String> {
        let url = format!("{}/{verb}", self.config.url_prefix.trim_end_matches('/'));
        let failed = |error: &dyn fmt::Display| format!("failed {verb} with extender at URL {url}: {error}");
        let body = serde_json::to_vec(args).map_err(|error| failed(&error))?;
        let request = http::Request::post(&url).header("content-type", "application/json").body(Bytes::from(body));
        let request = request.map_err(|error| failed(&error))?;
        let answer = async { self.client.call(request).await?.into_body().bytes().await };
        let text = tokio::select! {
            answer = answer => answer.map_err(|error| failed(&error))?,
            () = clock.sleep(self.timeout) => {
                return Err(failed(&"context deadline exceeded (Client.Timeout exceeded while awaiting headers)"));
            }
        };
        serde_json::from_slice(&text).map_err(|error| failed(&error))
    }

    fn args<'a>(&self, pod: &'a PodInfo, nodes: &'a Candidates) -> Args<'a> {
        let all = nodes.iter().map(|(_, node)| &**node);
        match self.config.node_cache_capable {
            true => Args { pod: &pod.pod, nodes: None, nodenames: Some(all.map(name).collect()) },
            false => Args { pod: &pod.pod, nodes: Some(NodeItems { items: all.collect() }), nodenames: None },
        }
    }

    /// Which of the nodes will do.
    pub(crate) async fn filter(
        &self,
        pod: &PodInfo,
        nodes: &Candidates,
        clock: &SharedClock,
    ) -> Result<Filtered, String> {
        if self.config.filter_verb.is_empty() {
            return Ok(Filtered { feasible: nodes.iter().map(|(slot, _)| *slot).collect(), refused: Vec::new() });
        }
        let result: FilterResult = self.ask(&self.config.filter_verb, &self.args(pod, nodes), clock).await?;
        if !result.error.is_empty() {
            return Err(result.error);
        }
        let slot = |wanted: &str| {
            let found = nodes.iter().find(|(_, node)| name(node) == wanted).map(|(slot, _)| *slot);
            let url = &self.config.url_prefix;
            found.ok_or_else(|| {
                format!(
                    "extender \"{url}\" claims a filtered node \"{wanted}\" which is not found in the input node list"
                )
            })
        };
        let names: Vec<String> = match (result.nodenames, result.nodes) {
            (Some(names), _) if self.config.node_cache_capable => names,
            (_, Some(nodes)) => nodes.items.into_iter().flatten().map(|node| node.metadata.name.to_string()).collect(),
            (names, None) => names.unwrap_or_default(),
        };
        let feasible = names.iter().map(|name| slot(name)).collect::<Result<_, _>>()?;
        let mut refused = Vec::new();
        let unresolvable = result.failed_and_unresolvable_nodes.unwrap_or_default();
        for (name, message) in result.failed_nodes.unwrap_or_default() {
            if !unresolvable.contains_key(&name) {
                refused.push((slot(&name)?, Arc::new(Status::unschedulable(message))));
            }
        }
        for (name, message) in unresolvable {
            refused.push((slot(&name)?, Arc::new(Status::unresolvable(message))));
        }
        Ok(Filtered { feasible, refused })
    }

    /// How much better nodes are, on the scale of the sum of all plugins.
    pub(crate) async fn prioritize(
        &self,
        pod: &PodInfo,
        nodes: &Candidates,
        clock: &SharedClock,
    ) -> Result<Vec<(Slot, i64)>, String> {
        if self.config.prioritize_verb.is_empty() {
            return Ok(Vec::new());
        }
        let scores: Vec<HostPriority> = self.ask(&self.config.prioritize_verb, &self.args(pod, nodes), clock).await?;
        let scale = crate::plugin::MAX_NODE_SCORE / MAX_EXTENDER_PRIORITY;
        let known = scores.into_iter().filter_map(|HostPriority { host, score }| {
            let (slot, _) = nodes.iter().find(|(_, node)| name(node) == host)?;
            Some((*slot, score.saturating_mul(self.config.weight).saturating_mul(scale)))
        });
        Ok(known.collect())
    }

    /// Lets it bind a pod.
    pub(crate) async fn bind(&self, pod: &PodInfo, node: &str, clock: &SharedClock) -> Result<(), String> {
        let args = serde_json::json!({
            "podName": pod.name(), "podNamespace": pod.namespace(), "podUID": &*pod.uid, "node": node,
        });
        let result: BindResult = self.ask(&self.config.bind_verb, &args, clock).await?;
        if result.error.is_empty() { Ok(()) } else { Err(result.error) }
    }

    /// Whether it has a say in evictions.
    pub(crate) fn supports_preemption(&self) -> bool {
        !self.config.preempt_verb.is_empty()
    }

    /// On which of the nodes, by name, which pods may be evicted.
    pub(crate) async fn process_preemption(
        &self,
        pod: &PodInfo,
        candidates: &[Victims],
        clock: &SharedClock,
    ) -> Result<HashMap<String, MetaVictims>, String> {
        let all = candidates.iter().map(|victims| {
            let pods: Vec<serde_json::Value> = match self.config.node_cache_capable {
                true => victims.pods.iter().map(|pod| serde_json::json!({"uid": &*pod.uid})).collect(),
                false => victims.pods.iter().map(|pod| serde_json::json!(&*pod.pod)).collect(),
            };
            let of_node = serde_json::json!({"pods": pods, "numPDBViolations": victims.violations});
            (victims.node.clone(), of_node)
        });
        let all: serde_json::Map<_, _> = all.collect();
        let args = match self.config.node_cache_capable {
            true => serde_json::json!({"pod": &*pod.pod, "nodeNameToMetaVictims": all}),
            false => serde_json::json!({"pod": &*pod.pod, "nodeNameToVictims": all}),
        };
        let result: PreemptResult = self.ask(&self.config.preempt_verb, &args, clock).await?;
        Ok(result.node_name_to_meta_victims)
    }

    /// What it is called in messages.
    pub(crate) fn name(&self) -> &str {
        &self.config.url_prefix
    }
}
