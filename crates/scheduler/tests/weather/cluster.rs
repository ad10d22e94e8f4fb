//! A server in this process with nodes and pods, and waiting for what becomes of the pods.

use std::{collections::BTreeMap, sync::Arc};

use capstan_api::options::ListOptions;
use capstan_client::{Api, Client, Event, Patch};
use capstan_server::{Config, Server, authorization::UserInfo};
use capstan_storage::{Memory, Options};
use k8s_openapi::{
    api::core::v1::{Node, Pod, ServiceAccount},
    serde::de::DeserializeOwned,
};
use serde_json::{Value, json};

/// How many CPUs every node has.
pub(crate) const CPUS: i64 = 4;

pub(crate) fn object<K: DeserializeOwned>(yaml: &str) -> K {
    capstan_api::value::from_value(capstan_api::yaml::parse(yaml.as_bytes()).unwrap()).unwrap()
}

pub(crate) fn node_of(pod: &Pod) -> Option<&str> {
    pod.spec.as_ref()?.node_name.as_deref()
}

pub(crate) struct Cluster {
    pub(crate) client: Client,
    pub(crate) pods: Api<Pod>,
}

impl Cluster {
    pub(crate) async fn new() -> Self {
        let server = Server::start(Arc::new(Memory::new(Options::default())), Config::default()).await.unwrap();
        let client = Client::from_service(server.as_user(UserInfo::new("admin", ["system:masters"])));
        let account = object("{apiVersion: v1, kind: ServiceAccount, metadata: {name: default}}");
        Api::<ServiceAccount>::namespaced(&client, "default").create(&account).await.unwrap();
        Cluster { pods: Api::namespaced(&client, "default"), client }
    }

    /// A node, if it is not there, with these taints only.
    pub(crate) async fn node(&self, name: &str, taints: Value) {
        let nodes = Api::<Node>::all(&self.client);
        let size = format!("{{cpu: '{CPUS}', memory: 8Gi, pods: '110'}}");
        let yaml = format!(
            "{{apiVersion: v1, kind: Node, metadata: {{name: {name}}}, \
             status: {{capacity: {size}, allocatable: {size}}}}}"
        );
        let _ = nodes.create(&object(&yaml)).await;
        nodes.patch(name, &Patch::Merge(json!({"spec": {"taints": taints}}))).await.unwrap();
    }

    pub(crate) async fn pod(&self, name: &str, milli: u32, more: &str) {
        let yaml = format!(
            "{{apiVersion: v1, kind: Pod, metadata: {{name: {name}}}, spec: {{terminationGracePeriodSeconds: 0, {more} \
             containers: [{{name: c, image: i, resources: {{requests: {{cpu: {milli}m}}}}}}]}}}}"
        );
        self.pods.create(&object(&yaml)).await.unwrap();
    }

    /// Waits until every pod is as wanted, with every change of one.
    pub(crate) async fn until_all(&self, wanted: impl Fn(&Pod) -> bool) -> Vec<Pod> {
        loop {
            let list = self.pods.list(&ListOptions::default()).await.unwrap();
            let name = |pod: &Pod| pod.metadata.name.clone().unwrap();
            let mut all: BTreeMap<String, Pod> = list.items.into_iter().map(|pod| (name(&pod), pod)).collect();
            let since = list.resource_version;
            let since = ListOptions { resource_version: since, ..ListOptions::default() };
            let mut watch = self.pods.watch(&since).await.unwrap();
            loop {
                if all.values().all(&wanted) {
                    return all.into_values().collect();
                }
                match watch.try_next().await {
                    Ok(Some(Event::Added(pod) | Event::Modified(pod))) => drop(all.insert(name(&pod), pod)),
                    Ok(Some(Event::Deleted(pod))) => drop(all.remove(&name(&pod))),
                    Ok(Some(_)) => {}
                    // A watch may end: all is asked for again.
                    Ok(None) | Err(_) => break,
                }
            }
        }
    }
}
