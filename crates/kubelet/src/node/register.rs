//! What a node says of itself: its object, its conditions, and that it is still there.

use std::{collections::BTreeMap, sync::Arc, time::Duration};

use capstan_client::{Api, Client, Error, Patch};
use capstan_clock::{SharedClock, Timestamp};
use k8s_openapi::{
    api::{
        coordination::v1::{Lease, LeaseSpec},
        core::v1::{
            ContainerImage, DaemonEndpoint, Node, NodeAddress, NodeCondition, NodeDaemonEndpoints, NodeSpec,
            NodeStatus, NodeSystemInfo, Taint,
        },
    },
    apimachinery::pkg::{
        api::resource::Quantity,
        apis::meta::v1::{MicroTime, ObjectMeta, OwnerReference, Time},
    },
};
use serde_json::json;

/// How often a node says that it is there.
pub const LEASE_RENEW_INTERVAL: Duration = Duration::from_secs(10);
/// How long that holds.
pub const LEASE_DURATION_SECONDS: i32 = 40;
/// How often the status is computed; it is written when it has changed.
pub const STATUS_UPDATE_FREQUENCY: Duration = Duration::from_secs(10);
/// How often it is written although it has not changed.
pub const STATUS_REPORT_FREQUENCY: Duration = Duration::from_secs(300);
/// Where leases of nodes are.
const LEASE_NAMESPACE: &str = "kube-node-lease";
/// The annotation that says what the runtime can't keep apart.
pub const LIMITATIONS: &str = "capstan.dev/runtime-limitations";

/// What a node is and has.
#[derive(Clone, Debug, Default)]
pub struct NodeInfo {
    /// Its name.
    pub name: String,
    /// Its addresses.
    pub ips: Vec<String>,
    /// The port of its server; 0 for none.
    pub port: u16,
    /// Labels beyond the usual.
    pub labels: BTreeMap<String, String>,
    /// Taints that it is created with.
    pub taints: Vec<Taint>,
    /// All that it has.
    pub capacity: BTreeMap<String, String>,
    /// What pods can have of it.
    pub allocatable: BTreeMap<String, String>,
    /// `containerd://2.1`.
    pub runtime_version: String,
    /// What its runtime can't keep apart.
    pub limitations: Vec<String>,
    /// The machine's architecture, as Kubernetes names it.
    pub architecture: String,
    /// The kernel's version.
    pub kernel: String,
    /// The operating system's name.
    pub os_image: String,
    /// What identifies the machine.
    pub machine_id: String,
    /// What identifies this start of it.
    pub boot_id: String,
}

/// How it is: what presses, whether it can run pods, and which images it has.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Health {
    /// Too little memory.
    pub memory_pressure: bool,
    /// Too little disk.
    pub disk_pressure: bool,
    /// Too many processes.
    pub pid_pressure: bool,
    /// Why it can't run pods.
    pub not_ready: Option<String>,
    /// The names and bytes of its largest images, the largest first.
    pub images: Vec<(Vec<String>, u64)>,
}

impl NodeInfo {
    /// The object as it is created.
    #[must_use]
    pub fn node(&self, health: &Health, now: Timestamp) -> Node {
        let mut labels = self.labels.clone();
        for (key, value) in [
            ("kubernetes.io/hostname", self.name.as_str()),
            ("kubernetes.io/os", "linux"),
            ("kubernetes.io/arch", &self.architecture),
            ("beta.kubernetes.io/os", "linux"),
            ("beta.kubernetes.io/arch", &self.architecture),
        ] {
            labels.entry(key.to_owned()).or_insert_with(|| value.to_owned());
        }
        let taints = Some(self.taints.clone());
        let limitations = (!self.limitations.is_empty()).then(|| self.limitations.join("; "));
        let mut annotations: BTreeMap<String, String> =
            [("volumes.kubernetes.io/controller-managed-attach-detach".to_owned(), "true".to_owned())].into();
        annotations.extend(limitations.map(|text| (LIMITATIONS.to_owned(), text)));
        Node {
            metadata: ObjectMeta {
                name: Some(self.name.clone()),
                labels: Some(labels),
                annotations: Some(annotations),
                ..ObjectMeta::default()
            },
            spec: Some(NodeSpec { taints: taints.filter(|all| !all.is_empty()), ..NodeSpec::default() }),
            status: Some(self.status(health, &[], now)),
        }
    }

    /// The status; conditions that have not changed keep their times.
    #[must_use]
    pub fn status(&self, health: &Health, before: &[NodeCondition], now: Timestamp) -> NodeStatus {
        let quantities = |map: &BTreeMap<String, String>| {
            Some(map.iter().map(|(name, value)| (name.clone(), Quantity(value.clone()))).collect())
        };
        let mut addresses: Vec<NodeAddress> =
            self.ips.iter().map(|ip| NodeAddress { address: ip.clone(), type_: "InternalIP".to_owned() }).collect();
        addresses.push(NodeAddress { address: self.name.clone(), type_: "Hostname".to_owned() });
        let images = health
            .images
            .iter()
            .map(|(names, size)| ContainerImage { names: Some(names.clone()), size_bytes: i64::try_from(*size).ok() });
        let endpoint = DaemonEndpoint { port: i32::from(self.port) };
        NodeStatus {
            addresses: Some(addresses),
            allocatable: quantities(&self.allocatable),
            capacity: quantities(&self.capacity),
            conditions: Some(conditions(health, before, now)),
            daemon_endpoints: (self.port != 0).then_some(NodeDaemonEndpoints { kubelet_endpoint: Some(endpoint) }),
            images: (!health.images.is_empty()).then(|| images.collect()),
            node_info: Some(NodeSystemInfo {
                architecture: self.architecture.clone(),
                boot_id: self.boot_id.clone(),
                container_runtime_version: self.runtime_version.clone(),
                kernel_version: self.kernel.clone(),
                kube_proxy_version: String::new(),
                kubelet_version: "v1.36.0".to_owned(),
                machine_id: self.machine_id.clone(),
                operating_system: "linux".to_owned(),
                os_image: self.os_image.clone(),
                system_uuid: self.machine_id.clone(),
                ..NodeSystemInfo::default()
            }),
            ..NodeStatus::default()
        }
    }
}

fn conditions(health: &Health, before: &[NodeCondition], now: Timestamp) -> Vec<NodeCondition> {
    let pressures = [
        (
            "MemoryPressure",
            health.memory_pressure,
            ("KubeletHasInsufficientMemory", "kubelet has insufficient memory available"),
            ("KubeletHasSufficientMemory", "kubelet has sufficient memory available"),
        ),
        (
            "DiskPressure",
            health.disk_pressure,
            ("KubeletHasDiskPressure", "kubelet has disk pressure"),
            ("KubeletHasNoDiskPressure", "kubelet has no disk pressure"),
        ),
        (
            "PIDPressure",
            health.pid_pressure,
            ("KubeletHasInsufficientPID", "kubelet has insufficient PID available"),
            ("KubeletHasSufficientPID", "kubelet has sufficient PID available"),
        ),
    ];
    let of = |kind: &str, holds: bool, reason: &str, message: &str| {
        let status = if holds { "True" } else { "False" };
        let same = before.iter().find(|c| c.type_ == kind && c.status == status);
        NodeCondition {
            last_heartbeat_time: Some(Time(now)),
            last_transition_time: Some(same.and_then(|c| c.last_transition_time.clone()).unwrap_or(Time(now))),
            message: Some(message.to_owned()),
            reason: Some(reason.to_owned()),
            status: status.to_owned(),
            type_: kind.to_owned(),
        }
    };
    let mut all: Vec<NodeCondition> = pressures
        .into_iter()
        .map(|(kind, holds, bad, good)| {
            let (reason, message) = if holds { bad } else { good };
            of(kind, holds, reason, message)
        })
        .collect();
    all.push(match &health.not_ready {
        None => of("Ready", true, "KubeletReady", "kubelet is posting ready status"),
        Some(why) => of("Ready", false, "KubeletNotReady", why),
    });
    all
}

/// Creates the node's object, or takes over the one that is there.
///
/// # Errors
/// The server refuses or can't be reached.
pub async fn register(client: &Client, info: &NodeInfo, health: &Health, now: Timestamp) -> Result<Node, Error> {
    let nodes = Api::<Node>::all(client);
    let node = info.node(health, now);
    match nodes.create(&node).await {
        Err(error) if error.is_already_exists() => {}
        done => return done,
    }
    let metadata = json!({"metadata": {"labels": node.metadata.labels, "annotations": node.metadata.annotations}});
    let there = nodes.patch(&info.name, &Patch::Strategic(metadata)).await?;
    let before = there.status.and_then(|status| status.conditions).unwrap_or_default();
    report(client, info, health, &before, now).await
}

/// Writes the status.
///
/// # Errors
/// The server refuses or can't be reached.
pub async fn report(
    client: &Client,
    info: &NodeInfo,
    health: &Health,
    before: &[NodeCondition],
    now: Timestamp,
) -> Result<Node, Error> {
    let patch = json!({"status": info.status(health, before, now)});
    Api::<Node>::all(client).patch_status(&info.name, &Patch::Strategic(patch)).await
}

/// Says once that the node is there.
///
/// # Errors
/// The server refuses or can't be reached.
pub async fn renew_lease(client: &Client, name: &str, node_uid: &str, now: Timestamp) -> Result<(), Error> {
    let leases = Api::<Lease>::namespaced(client, LEASE_NAMESPACE);
    let patch = json!({"spec": {"renewTime": MicroTime(now), "holderIdentity": name}});
    match leases.patch(name, &Patch::Merge(patch)).await {
        Err(error) if error.is_not_found() => {}
        done => return done.map(drop),
    }
    let owner = OwnerReference {
        api_version: "v1".to_owned(),
        kind: "Node".to_owned(),
        name: name.to_owned(),
        uid: node_uid.to_owned(),
        ..OwnerReference::default()
    };
    let lease = Lease {
        metadata: ObjectMeta {
            name: Some(name.to_owned()),
            namespace: Some(LEASE_NAMESPACE.to_owned()),
            owner_references: Some(vec![owner]),
            ..ObjectMeta::default()
        },
        spec: Some(LeaseSpec {
            holder_identity: Some(name.to_owned()),
            lease_duration_seconds: Some(LEASE_DURATION_SECONDS),
            renew_time: Some(MicroTime(now)),
            ..LeaseSpec::default()
        }),
    };
    leases.create(&lease).await.map(drop)
}

/// Says again and again that the node is there.
pub(super) async fn keep_lease(client: Client, name: Arc<str>, node_uid: String, clock: SharedClock) {
    loop {
        // A lease that could not be renewed is renewed next time: it holds for four of them.
        let _ = renew_lease(&client, &name, &node_uid, clock.now()).await;
        clock.sleep(LEASE_RENEW_INTERVAL).await;
    }
}
