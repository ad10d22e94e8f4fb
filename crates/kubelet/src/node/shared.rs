//! What the parts of one node share.

use std::{
    collections::BTreeMap,
    net::SocketAddr,
    path::PathBuf,
    sync::{Arc, Mutex, MutexGuard, PoisonError},
    time::Duration,
};

use capstan_api::selector::Selector;
use capstan_client::{Client, Lister};
use capstan_clock::{SharedClock, SharedIds};
use capstan_runtime::{EventRecorder, EventType, ObjectReference};
use k8s_openapi::api::core::v1::{Pod, PodStatus, Service};

use super::dns::Dns;
use crate::{
    downward::Facts,
    lifecycle::Role,
    runtime::{ContainerStats, LeftOver, Runtime},
};

/// Where the node says what goes wrong with nobody's pod.
pub type Log = Arc<dyn Fn(&str) + Send + Sync>;

/// A container as the node's server needs to know it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ContainerHandle {
    /// What kind of container it is.
    pub role: Role,
    /// The runtime's id of the one that runs or ran last.
    pub id: String,
    /// How often it had been started before.
    pub attempt: u32,
    /// Whether it runs.
    pub running: bool,
    /// Whether it has a terminal.
    pub tty: bool,
}

/// A pod as the node's server needs to know it.
#[derive(Clone, Debug)]
pub struct PodHandle {
    /// The pod as last seen, with the status that the node has for it.
    pub pod: Arc<Pod>,
    /// That status.
    pub status: PodStatus,
    /// The runtime's id of the sandbox.
    pub sandbox: Option<String>,
    /// The containers that have been started, by name.
    pub containers: BTreeMap<String, ContainerHandle>,
    /// Where the logs are: a directory a container, a file an attempt.
    pub logs: PathBuf,
}

/// What the parts of one node share.
pub struct Shared {
    pub(crate) name: String,
    pub(crate) client: Client,
    pub(crate) runtime: Arc<dyn Runtime>,
    pub(crate) clock: SharedClock,
    pub(crate) ids: SharedIds,
    pub(crate) root: PathBuf,
    pub(crate) host_ips: Vec<String>,
    pub(crate) recorder: EventRecorder,
    pub(crate) services: Lister<Service>,
    pub(crate) sync_frequency: Duration,
    /// Thousandths of a processor and bytes that pods may have.
    pub(crate) allocatable: (i64, i64),
    pub(crate) dns: Dns,
    pub(crate) api_server: Option<SocketAddr>,
    pub(crate) log: Log,
    /// Who gives a pod users of its own holds this.
    pub(crate) users: Mutex<()>,
    pub(crate) pods: Mutex<BTreeMap<String, PodHandle>>,
    pub(crate) usage: Mutex<Vec<ContainerStats>>,
    /// What an earlier life of the node has left, by the uid of the pod, until its worker takes it.
    pub(crate) left_over: Mutex<BTreeMap<String, LeftOver>>,
}

impl std::fmt::Debug for Shared {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Shared").field("name", &self.name).finish_non_exhaustive()
    }
}

impl Shared {
    /// The services, as pods are to be told of them; those on the node's network are led to the API server themselves.
    pub(crate) fn services_for_pods(&self, host_network: bool) -> Vec<Service> {
        let mut all: Vec<_> =
            self.services.list(&Selector::default()).iter().map(|service| (**service).clone()).collect();
        let is_own = |service: &&mut Service| {
            let (metadata, named) = (&service.metadata, |text: &Option<String>, name| text.as_deref() == Some(name));
            named(&metadata.namespace, "default") && named(&metadata.name, "kubernetes")
        };
        if let Some(address) = self.api_server.filter(|_| host_network)
            && let Some(spec) = all.iter_mut().find(is_own).and_then(|service| service.spec.as_mut())
        {
            spec.cluster_ip = Some(address.ip().to_string());
            spec.ports.iter_mut().flatten().for_each(|port| port.port = address.port().into());
        }
        all
    }

    /// The pods by uid.
    pub(crate) fn pods(&self) -> MutexGuard<'_, BTreeMap<String, PodHandle>> {
        self.pods.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// The pod of a name.
    #[must_use]
    pub fn pod(&self, namespace: &str, name: &str) -> Option<PodHandle> {
        let is = |handle: &&PodHandle| {
            handle.pod.metadata.namespace.as_deref() == Some(namespace)
                && handle.pod.metadata.name.as_deref() == Some(name)
        };
        self.pods().values().find(is).cloned()
    }

    /// All pods, with their statuses.
    #[must_use]
    pub fn all_pods(&self) -> Vec<Pod> {
        let with_status = |handle: &PodHandle| Pod { status: Some(handle.status.clone()), ..(*handle.pod).clone() };
        self.pods().values().map(with_status).collect()
    }

    /// Says something to whoever runs this node.
    pub(crate) fn log(&self, text: &str) {
        (self.log)(text);
    }

    /// The node's name.
    #[must_use]
    pub fn name(&self) -> &str {
        &self.name
    }

    /// What runs its containers.
    #[must_use]
    pub fn runtime(&self) -> &Arc<dyn Runtime> {
        &self.runtime
    }

    /// Its clock.
    #[must_use]
    pub fn clock(&self) -> &SharedClock {
        &self.clock
    }

    pub(crate) fn facts(&self, pod_ips: &[String]) -> Facts {
        Facts {
            pod_ips: pod_ips.to_vec(),
            host_ips: self.host_ips.clone(),
            allocatable_cpu_milli: self.allocatable.0,
            allocatable_memory: self.allocatable.1,
        }
    }

    /// Tells what happened to a pod, or to one of its containers.
    pub(crate) fn event(
        &self,
        pod: &Pod,
        container: Option<(Role, &str)>,
        warning: bool,
        reason: &str,
        message: String,
    ) {
        let reference = reference(pod, container);
        let kind = if warning { EventType::Warning } else { EventType::Normal };
        self.recorder.event(&reference, kind, reason, message);
    }

    /// The directory of a pod's own files.
    pub(crate) fn pod_dir(&self, uid: &str) -> PathBuf {
        self.root.join("pods").join(uid)
    }

    /// The directory of a pod's logs.
    pub(crate) fn log_dir(&self, pod: &Pod) -> PathBuf {
        let text = |field: &Option<String>| field.clone().unwrap_or_default();
        let meta = &pod.metadata;
        self.root.join("logs").join(format!("{}_{}_{}", text(&meta.namespace), text(&meta.name), text(&meta.uid)))
    }
}

/// A pod, or one of its containers, as events name it.
pub(crate) fn reference(pod: &Pod, container: Option<(Role, &str)>) -> ObjectReference {
    let meta = &pod.metadata;
    let text = |field: &Option<String>| field.clone().unwrap_or_default();
    let mut reference =
        ObjectReference::new("v1", "Pod", &text(&meta.namespace), &text(&meta.name)).with_uid(&text(&meta.uid));
    reference.resource_version = text(&meta.resource_version);
    let Some((role, name)) = container else { return reference };
    let list = match role {
        Role::Init | Role::Sidecar => "initContainers",
        Role::Regular => "containers",
        Role::Ephemeral => "ephemeralContainers",
    };
    reference.with_field_path(&format!("spec.{list}{{{name}}}"))
}
